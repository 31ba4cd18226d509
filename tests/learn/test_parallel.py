"""gc.parallel: replicas in one program, clients in threads, layers on devices, steps in flight."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import nn, optim, parallel
from graphc.errors import GraphError, TraceError, TypeRuleError
from graphc.learn import inflight
from graphc.learn.trees import tree_map

rng = np.random.default_rng(0)
TEN = [f"cpu:{k}" for k in range(10)]
THREE = TEN[:3]
X, Y = rng.standard_normal((1000, 20)), rng.standard_normal((1000, 5))
PARAMS = {"w": rng.standard_normal((20, 5)), "b": rng.standard_normal(5)}


def loss(params: Any, batch: Any) -> Any:
    x, y = batch
    return ((np.tanh(x @ params["w"] + params["b"]) - y) ** 2).mean()


def check(got: Any, wanted: Any, rtol: float) -> None:
    tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), got, wanted)


def stage(function: Any, name: str, *arguments: Any) -> Any:
    return {stage: value for stage, value, *_ in function.stages(*arguments)}[name]


# ------------------------------------------------------------------------------------ batches


@pytest.mark.parametrize(
    ("rows", "parts", "wanted"),
    [(10, 4, (3, 3, 3, 1)), (3, 8, (1, 1, 1)), (8, 4, (2,) * 4), (5, 1, (5,)), (0, 3, (0,))],
)
def test_sizes(rows: int, parts: int, wanted: tuple[int, ...]) -> None:
    assert parallel.sizes(rows, parts) == wanted


@pytest.mark.parametrize("parts", [1, 3, 4, 20])
def test_what_is_split_is_joined(parts: int) -> None:
    batch = {"x": rng.standard_normal((10, 3)), "more": [np.arange(10), (np.ones((10, 0)),)]}
    pieces = parallel.split(batch, parts)
    assert [len(piece["x"]) for piece in pieces] == list(parallel.sizes(10, parts))
    tree_map(np.testing.assert_array_equal, parallel.join(pieces), batch)


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ((X, "words"), "of type str"),
        ((X, 3.0), "of type float"),
        ((X, np.float64(3)), "is a number"),
        ((X, np.array(3.0)), "is a number"),
        ((X, Y[:-1]), "0 has 1000, 1 has 999"),
        ((), "no arrays"),
    ],
)
def test_no_batch(batch: Any, problem: str) -> None:
    with pytest.raises(TypeRuleError, match=problem):
        parallel.split(batch, 2)


def test_bad_arguments() -> None:
    with pytest.raises(GraphError, match="parts of a batch"):
        parallel.sizes(3, 0)
    for devices, replicas in ((), None), (TEN, 0):
        with pytest.raises(GraphError, match=r"one device or more|^replicas: a whole"):
            parallel.replicate(loss, devices, replicas)
    with pytest.raises(GraphError, match="not by 'median'"):
        parallel.replicate(loss, TEN, combine="median")
    with pytest.raises(GraphError, match="parts to combine come as a list"):
        parallel.join([])
    two = parallel.replicate(loss, TEN, combine=("mean", "sum"))
    with pytest.raises(TraceError, match="no results in a tuple"):
        two(PARAMS, (X, Y))


# ------------------------------------------------------------------------------------ replicas


@pytest.mark.parametrize(
    ("devices", "replicas"), [(TEN[:1], 10), (TEN[:2], 10), (TEN, None), (TEN[:3], 7), (TEN, 3)]
)
def test_replicas_equal_one_batch(devices: list[str], replicas: int | None) -> None:
    """10 x 100 = 1 x 1000; seven parts are of 143 rows, the last one of 142."""
    step = gc.value_and_grad(loss)
    wanted = gc.compile(step)(PARAMS, (X, Y))
    replicated = gc.compile(parallel.replicate(step, devices, replicas), devices=devices, threads=1)
    check(replicated(PARAMS, (X, Y)), wanted, 1e-12)


def test_a_short_part_counts_less() -> None:
    """Ten rows in four parts: without weights the last one would count as much as three."""
    replicated = parallel.replicate(lambda p, x: x.mean() * p, TEN[:2], 4)
    x = np.arange(10.0)
    run = gc.compile(replicated, devices=TEN[:2])
    assert run(np.float64(2), x) == pytest.approx(9.0, rel=1e-15)
    assert replicated(2.0, x) == pytest.approx(9.0, rel=1e-15)


def test_each_result_in_its_way() -> None:
    def function(params: Any, x: Any) -> Any:
        return {"mean": x.mean()}, (x > 0).sum(), (x * params, None)

    x, scale = X[:23, 0], np.float64(3)
    replicated = parallel.replicate(function, TEN[:2], 5, ("mean", "sum", "concatenate"))
    mean, count, (scaled, nothing) = gc.compile(replicated, devices=TEN[:2])(scale, x)
    assert mean["mean"] == pytest.approx(x.mean())
    assert count == (x > 0).sum()
    assert nothing is None
    np.testing.assert_array_equal(scaled, x * scale)


@pytest.mark.parametrize("devices", [TEN[:2], TEN])
def test_parameters_travel_once_to_each_device(devices: list[str]) -> None:
    """However many replicas: parameters and rows there, one loss and one gradient back."""
    replicated = parallel.replicate(gc.value_and_grad(loss), devices, 20)
    program = stage(gc.compile(replicated, devices=devices, threads=1), "partition", PARAMS, (X, Y))
    sends = [node for graph in program.graphs for node in graph.nodes if node.op.name == "send"]
    assert len(sends) == (len(devices) - 1) * (2 + 2 + 3)
    share = 8 * X.size // len(devices)
    sent = [node.inputs[0].type.nbytes for node in sends]
    assert sent.count(share) == len(devices) - 1
    assert 8 * X.size not in sent


def test_replicas_are_differentiated_and_compose() -> None:
    """A gradient around the replicas, and replicas of two devices each with four of their own."""
    wanted = gc.compile(gc.value_and_grad(loss))(PARAMS, (X, Y))
    outside = gc.value_and_grad(parallel.replicate(loss, TEN[:2], 10))
    check(gc.compile(outside, devices=TEN[:2])(PARAMS, (X, Y)), wanted, 1e-12)
    inner = parallel.replicate(gc.value_and_grad(loss), TEN[2:4], 4)
    nested = gc.compile(parallel.replicate(inner, TEN[:2], 2), devices=TEN[:4])
    check(nested(PARAMS, (X, Y)), wanted, 1e-12)


def test_replicas_in_a_loop() -> None:
    """Ten updates in one run: the loop spans the devices."""

    def train(step: Any) -> Any:
        def update(params: Any, batch: Any) -> Any:
            value, slopes = step(params, batch)
            return tree_map(lambda p, slope: p - 0.1 * slope, params, slopes), value

        return lambda params, x, y: gc.scan(update, params, (x, y))

    data = PARAMS, X.reshape(10, 100, 20), Y.reshape(10, 100, 5)
    step = gc.value_and_grad(loss)
    spread = train(parallel.replicate(step, TEN[:2], 7))
    got = gc.compile(spread, devices=TEN[:2], threads=1)(*data)
    check(got, gc.compile(train(step))(*data), 1e-11)


def test_variables_are_batches_and_parameters() -> None:
    with gc.container("replicas"):
        params = tree_map(gc.Variable, PARAMS)
        batch = gc.Variable(X), gc.Variable(Y)
        replicated = parallel.replicate(loss, TEN[:2], 3)
        got = gc.compile(lambda: replicated(params, batch), devices=TEN[:2])()
        assert got == pytest.approx(loss(PARAMS, (X, Y)), rel=1e-12)
        gc.reset_container("replicas")


def test_one_loop_trains_replicas() -> None:
    """A step with its update, compiled once; parameters agree with those of one device."""
    rule = optim.momentum(0.1)

    def trained(devices: list[str], step: Any) -> Any:
        @gc.compile(devices=devices, threads=1)
        def update(params: Any, state: Any, batch: Any) -> Any:
            value, gradients = step(params, batch)
            return *rule.update(gradients, state, params), value

        params, state, values = PARAMS, rule.init(PARAMS), []
        for _ in range(5):
            params, state, value = update(params, state, (X, Y))
            values.append(float(value))
        assert len(update.compiles) == 1
        assert values[-1] < values[0]
        return params

    step = gc.value_and_grad(loss)
    check(trained(TEN[:2], parallel.replicate(step, TEN[:2], 10)), trained(["cpu:0"], step), 1e-12)


# ------------------------------------------------------------------------------------ clients

TRUE = rng.standard_normal(8)
INPUTS = rng.standard_normal((400, 8))
TARGETS = INPUTS @ TRUE
FOUR = ["cpu:0", "cpu:1", "cpu:0", "cpu:1"]


def squared(params: Any, batch: Any) -> Any:
    x, y = batch
    return ((x @ params["w"] - y) ** 2).mean()


def streams(count: int = 4, steps: int = 50) -> list[list[Any]]:
    """Rows k, k + count, ... in batches of 20, again and again."""
    found = []
    for k in range(count):
        x, y = INPUTS[k::count], TARGETS[k::count]
        found.append([(x[s : s + 20], y[s : s + 20]) for s in [20 * i % 100 for i in range(steps)]])
    return found


@pytest.fixture
def clients() -> Any:
    with gc.container("clients"):

        def make(devices: list[str] = FOUR, **options: Any) -> parallel.Asynchronous:
            start = {"w": np.zeros(8)}
            return parallel.Asynchronous(
                squared, start, optim.momentum(0.02, 0.5), devices, **options
            )

        yield make
        gc.reset_container("clients")


def test_clients_converge(clients: Any) -> None:
    """The last update may be stale by as much as threads are uneven: hence the room."""
    trainer = clients()
    done = trainer.run(streams())
    assert squared(trainer.values(), (INPUTS, TARGETS)) < 0.05 * (TARGETS**2).mean()
    assert sorted(done.interleaving) == sorted([0, 1, 2, 3] * 100)
    assert len(done.losses) == len(done.staleness) == 200
    assert trainer.state["step"].value == 200
    assert isinstance(trainer.params["w"], gc.Variable)


def test_clients_that_take_turns_converge(clients: Any) -> None:
    """All read, then all update: each update is stale by those of the clients before it."""
    trainer = clients()
    done = trainer.run(streams(4, 100), replay=[0, 1, 2, 3] * 200)
    assert done.staleness == (0, 1, 2, 3) * 100
    np.testing.assert_allclose(trainer.values()["w"], TRUE, atol=1e-6)


def test_an_interleaving_is_replayed(clients: Any) -> None:
    first = clients()
    done = first.run(streams())
    noted = json.loads(json.dumps(done.interleaving))
    for _ in range(2):
        again = clients()
        assert again.run(streams(), replay=noted) == done
        assert again.values()["w"].tobytes() == first.values()["w"].tobytes()
        assert again.state["velocity"]["w"].value.tobytes() == (
            first.state["velocity"]["w"].value.tobytes()
        )


def test_the_interleaving_matters(clients: Any) -> None:
    """Updates based on what was read long ago: other bits, and staleness says so."""
    fresh, stale = clients(FOUR[:2]), clients(FOUR[:2])
    one = fresh.run(streams(2, 3), replay=[0, 0, 1, 1] * 3)
    two = stale.run(streams(2, 3), replay=[0, 1, 0, 1] * 3)
    assert one.staleness == (0,) * 6
    assert two.staleness == (0, 1) * 3
    assert not np.array_equal(fresh.values()["w"], stale.values()["w"])
    w = np.zeros(8)
    velocity = np.zeros(8)
    for batches in zip(*streams(2, 3)):
        for x, y in batches:  # one after the other, by hand
            velocity = 0.5 * velocity + 2 * x.T @ (x @ w - y) / len(x)
            w = w - 0.02 * velocity
    np.testing.assert_allclose(fresh.values()["w"], w, rtol=1e-12)


@pytest.mark.parametrize("replay", [[0, 0, 1, 1], [0, 0, 1, 1] * 3, [0, 0, 5, 5]])
def test_the_wrong_interleaving(clients: Any, replay: list[int]) -> None:
    with pytest.raises(GraphError, match="interleaving"):
        clients(FOUR[:2]).run(streams(2, 2), replay=replay)


def test_a_client_that_fails_stops_the_others(
    clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight, "GRACE_SECONDS", 300)

    def broken() -> Any:
        yield streams()[0][0]
        raise OSError("no more data")

    def endless() -> Any:
        while True:
            yield streams()[1][0]

    trainer, before = clients(FOUR[:3]), set(threading.enumerate())
    with pytest.raises(OSError, match="no more data"):
        trainer.run([broken(), endless(), endless()])
    assert before.issuperset(threading.enumerate())
    trainer.run(streams(3, 2))
    with pytest.raises(GraphError, match="3 replicas take a list of as many streams"):
        trainer.run(streams(2, 2))
    with pytest.raises(GraphError, match="one device or more"):
        clients([])


def test_a_client_that_hangs_is_left_behind(clients: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "GRACE_SECONDS", 0.1)
    more = threading.Event()

    def late() -> Any:
        more.wait()
        yield streams()[0][0]

    trainer, others = clients(FOUR[:2]), set(threading.enumerate())
    with pytest.raises(GraphError, match="no batch"):
        trainer.run([late(), iter_that_fails()])
    before = trainer.values()["w"].tobytes()
    (hung,) = set(threading.enumerate()) - others
    more.set()
    hung.join()
    assert trainer.values()["w"].tobytes() == before


def iter_that_fails() -> Any:
    yield from ()
    raise GraphError("no batch")


def test_clients_share_variables_that_exist(clients: Any) -> None:
    w = gc.Variable(np.ones(8), name="w")
    trainer = parallel.Asynchronous(squared, {"w": w}, optim.sgd(0.01), "cpu:1")
    trainer.run(streams(1, 3))
    assert trainer.params["w"] is w
    assert not np.array_equal(w.value, np.ones(8))


# ------------------------------------------------------------------------------------ layers

SEQUENCES = rng.standard_normal((4, 12, 16)).astype("f4")
NEXT = rng.standard_normal((4, 12, 24)).astype("f4")


def lstm(devices: list[str]) -> nn.Sequential:
    """Three layers on the devices of three names."""
    return nn.Sequential(
        *(parallel.on(d, nn.LSTM(24 if k else 16, 24)) for k, d in enumerate(devices))
    )


def test_layers_on_devices_are_layers() -> None:
    layers: Any = lstm(THREE).layers
    placed, plain = lstm(THREE), nn.Sequential(*(layer.layer for layer in layers))
    params = placed.init(gc.random.key(0))
    tree_map(np.testing.assert_array_equal, params, plain.init(gc.random.key(0)))
    np.testing.assert_array_equal(placed(params, SEQUENCES), plain(params, SEQUENCES))
    norm = parallel.on("cpu:1", nn.BatchNorm(3))
    x = rng.standard_normal((5, 3)).astype("f4")
    _, state = norm.apply(norm.init(gc.random.key(0)), x, norm.state(), training=True)
    assert not np.array_equal(state["mean"], norm.state()["mean"])
    assert "cpu:0" in repr(placed)
    with pytest.raises(TraceError, match="layers and functions"):
        parallel.on("cpu:1", 3)


def test_three_devices_compute_what_one_does() -> None:
    params = lstm(THREE).init(gc.random.key(0))
    run = gc.compile(lstm(THREE), devices=THREE, threads=1)
    alone = gc.compile(lstm(["cpu:0"] * 3), threads=1)
    np.testing.assert_array_equal(run(params, SEQUENCES), alone(params, SEQUENCES))
    program = stage(run, "partition", params, SEQUENCES)
    scans = [sum(node.op.name == "scan" for node in graph.nodes) for graph in program.graphs]
    assert scans == [1, 1, 1]


def trained(devices: list[str], used: list[str]) -> tuple[Any, Any]:
    """Three steps whose parameters and moments live where their layer is: (parameters, step)."""
    net, rule = lstm(devices), optim.adam(1e-2)
    params = net.init(gc.random.key(0))
    weights = [tree_map(gc.Variable, part) for part in params]
    moments = [tree_map(gc.Variable, rule.init(part)) for part in params]

    def values(tree: Any) -> Any:
        return tree_map(lambda variable: variable.value, tree)

    @gc.compile(devices=used, threads=1, fast_math=False)
    def step(x: Any, y: Any) -> Any:
        held = []
        for name, part in zip(devices, weights):
            with gc.device(name):
                held.append(values(part))
        value, gradients = gc.value_and_grad(lambda p: nn.mse(net(p, x), y))(held)
        for name, *part, own, slopes in zip(devices, weights, moments, held, gradients):
            with gc.device(name):
                made = rule.update(slopes, values(part[1]), own)
                tree_map(gc.Variable.assign, tuple(part), made)
        return value

    losses = [float(step(SEQUENCES, NEXT)) for _ in range(3)]
    assert losses[2] < losses[0]
    return (losses, [values(part) for part in weights]), step


def test_three_devices_train_as_one_does() -> None:
    """To the bit; what crosses is activations, their cotangents, the target and the loss."""
    with gc.container("lstm"):
        one, _ = trained(["cpu:0"] * 3, ["cpu:0"])
        three, step = trained(THREE, THREE)
    gc.reset_container("lstm")
    tree_map(np.testing.assert_array_equal, three, one)
    program = stage(step, "partition", SEQUENCES, NEXT)
    sends = [node for graph in program.graphs for node in graph.nodes if node.op.name == "send"]
    assert sorted(node.inputs[0].type.nbytes for node in sends) == [4] + [NEXT.nbytes] * 5


# ------------------------------------------------------------------------------------ in flight


def test_steps_in_flight_give_right_answers() -> None:
    w = rng.standard_normal((64, 64)).astype("f4")

    @gc.compile(threads=1)
    def work(x: Any) -> Any:
        for _ in range(6):
            x = np.tanh(x @ w)
        return x

    arguments = [(rng.standard_normal((64, 64)).astype("f4"),) for _ in range(60)]
    wanted = [work(*a) for a in arguments]
    for count in (1, 2, 5):
        flight = parallel.concurrent(work, iter(arguments), count)
        assert len(flight.results) == 60
        assert flight.per_second == pytest.approx(60 / flight.seconds)
        for got, expected in zip(flight.results, wanted):
            np.testing.assert_array_equal(got, expected)
    assert len(work.compiles) == 1


def test_two_steps_are_in_flight_at_once() -> None:
    """Each waits for the other: one step at a time would never end."""
    both = threading.Barrier(2, timeout=300)
    flight = parallel.concurrent(lambda k: (both.wait(), k)[1], [(k,) for k in range(6)])
    assert flight.results == tuple(range(6))


def test_a_step_that_fails() -> None:
    pick = gc.compile(lambda x, i: x[i])
    numbers = [(np.arange(3.0), np.int64(k)) for k in (0, 1, 7, 2)]
    with pytest.raises(gc.RunError, match=r"index .* out of range"):
        parallel.concurrent(pick, numbers)
    assert parallel.concurrent(pick, numbers[:2]).results == (0, 1)
    with pytest.raises(GraphError, match="steps in flight"):
        parallel.concurrent(pick, numbers, 0)
    assert parallel.concurrent(pick, []).results == ()
