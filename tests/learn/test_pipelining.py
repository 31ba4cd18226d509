"""gc.parallel.pipeline: any function in stages and chunks has the value and gradients of itself."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from effort import crossed, few

import graphc as gc
from graphc import nn, parallel
from graphc.base.record import replace
from graphc.errors import GraphError, RunError, TypeRuleError
from graphc.frontend.trace.tree import flatten
from graphc.ir.liveness import peak_bytes
from graphc.learn.trees import tree_map

rng = np.random.default_rng(0)
TWO = ["cpu:0", "cpu:1"]
THREE = [*TWO, "cpu:2"]
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")
BATCH = rng.standard_normal((10, 6)), rng.standard_normal((10, 6))
LAYERS = [rng.standard_normal((6, 6)) for _ in range(4)]
TIED = {"e": rng.standard_normal((6, 5)), "w": [rng.standard_normal((5, 5)) for _ in range(4)]}


def mlp(params: Any, batch: Any) -> Any:
    x, y = batch
    for w in params:
        x = np.tanh(x @ w)
    return ((x - y) ** 2).mean()


def tied(params: Any, batch: Any) -> Any:
    """Skips over many stages, a shared weight, and a part that does not depend on the batch."""
    x, y = batch
    start = h = x @ params["e"]
    for w in params["w"]:
        h = np.tanh(h @ w) + h
    out = (h + start) @ params["e"].T
    return ((out - y) ** 2).mean() + 1e-2 * sum((w**2).sum() for w in params["w"])


def recurrent(params: Any, batch: Any) -> Any:
    x, y = batch
    series = x.reshape(x.shape[0], 2, 3).transpose(1, 0, 2)
    for layer in params:
        zero = np.zeros((x.shape[0], 3))
        _, series = gc.scan(lambda h, x, w=layer: (np.tanh(h @ w + x),) * 2, zero, series)
    return ((series.sum(0) - y[:, :3]) ** 2).mean()


MODELS = {
    "mlp": (mlp, LAYERS),
    "tied": (tied, TIED),
    "scan": (recurrent, [rng.standard_normal((3, 3)) for _ in range(3)]),
}


def same(got: Any, wanted: Any, rtol: float = 1e-9) -> None:
    tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12), got, wanted)


WAYS = [("always", 3, THREE), ("never", 4, TWO), ("except_last", 1, TWO), ("except_last", 4, THREE)]


@pytest.mark.parametrize(
    ("case", "way"),
    few(crossed(product(MODELS, SCHEDULES), WAYS), 8),
    ids=lambda found: str(found[:2]),
)
def test_gradients_are_those_of_the_whole(case: Any, way: Any) -> None:
    (name, schedule), (checkpoint, chunks, devices) = case, way
    loss, params = MODELS[name]
    wanted = gc.value_and_grad(loss)(params, BATCH)
    same(parallel.pipeline(loss, devices, chunks, schedule, checkpoint)(params, BATCH), wanted)


@pytest.mark.slow
def test_modes_and_schedules_differ_in_no_bit() -> None:
    """With chunks in one order, whatever is run once more and wherever it is run."""
    first: Any = None
    for checkpoint, devices in (("always", TWO), ("except_last", THREE), ("never", TWO)):
        piped = parallel.pipeline(tied, devices, 4, "1f1b", checkpoint, stages=2)
        made = gc.compile(piped, devices=devices, fast_math=False)(TIED, BATCH)
        first = first or made
        tree_map(np.testing.assert_array_equal, made, first)


def test_one_chunk_is_model_parallelism() -> None:
    """Stages by gc.device, with a way back to the first device; bit for bit the whole."""

    def loss(params: Any, batch: Any) -> Any:
        x, y = batch
        with gc.device("cpu:0"):
            a = np.tanh(x @ params[0])
        with gc.device("cpu:1"):
            b = np.tanh(a @ params[1])
        with gc.device("cpu:0"):
            return ((b @ params[2] - y) ** 2).mean()

    wanted = gc.compile(gc.value_and_grad(loss), devices=TWO, fast_math=False)(LAYERS, BATCH)
    for chunks in (1, 4):
        piped = parallel.pipeline(loss, TWO, chunks, checkpoint="never")
        got = gc.compile(piped, devices=TWO, fast_math=False)(LAYERS, BATCH)
        same(got, wanted)
        if chunks == 1:
            tree_map(np.testing.assert_array_equal, got, wanted)


def test_stages_by_name_and_schedules_by_hand() -> None:
    def loss(params: Any, batch: Any) -> Any:
        x, y = batch
        for number, w in enumerate(params):
            x = gc.name(np.tanh(x @ w), f"layer{number}")
        return ((x - y) ** 2).mean()

    wanted = gc.value_and_grad(loss)(LAYERS, BATCH)
    table = """
        device 0 | 0F1 0F0  .   .  0B1 0R0 0B0
        device 1 |  .  1F1 1F0 1B1 1B0
    """
    for schedule in (table, parallel.schedule(table)):
        piped = parallel.pipeline(loss, TWO, 2, schedule, stages=["layer2"])
        same(piped(LAYERS, BATCH), wanted)
    assert parallel.schedule(str(parallel.schedule("1f1b", 2, 4))) == parallel.schedule(
        "1f1b", 2, 4
    )
    for names, problem in ((["layer9"], "no value is named"), (["layer1", "layer0"], "follows")):
        with pytest.raises(GraphError, match=problem):
            parallel.pipeline(loss, THREE, 2, stages=names)(LAYERS, BATCH)


def test_a_skip_crosses_once() -> None:
    """Straight from the device that makes it to the one that reads it, over eight stages."""
    devices = [f"cpu:{k}" for k in range(8)]

    def skipping(params: Any, batch: Any) -> Any:
        x, y = batch
        with gc.device(devices[0]):
            h = skip = x @ params[0]
        for w, name in zip(params[1:], devices[1:]):
            with gc.device(name):
                h = np.tanh(h @ w)
        with gc.device(devices[7]):
            return ((h + skip - y) ** 2).mean()

    params = [rng.standard_normal((6, 6)) for _ in range(8)]
    piped = parallel.pipeline(skipping, devices, 1, checkpoint="never", gradients=False)
    graphs = {n: g for n, g, *_ in gc.compile(piped, devices=devices).stages(params, BATCH)}
    sends = gc.show(graphs["partition"]).count(" send(")
    assert sends == 7 + 1 + 1 + 7 + 1  # weights, y, the skip, one to each next stage, the loss


def test_chunks_have_keys_of_their_own() -> None:
    """The mask of a chunk is the same in both forward passes."""
    key = gc.random.key(3)

    def dropped(params: Any, batch: Any, key: Any = None) -> Any:
        x, y = batch
        for w in params:
            x = np.tanh(x @ w)
            x = x * gc.random.bernoulli(key, 0.5, x.shape)
        return ((x - y) ** 2).mean()

    parts = parallel.split(BATCH, 2)
    made = [
        gc.value_and_grad(dropped)(LAYERS, part, key=gc.random.fold_in(key, number))
        for number, part in enumerate(parts)
    ]
    wanted = tree_map(lambda a, b: (a + b) / 2, *made)
    for checkpoint in ("always", "never"):
        piped = parallel.pipeline(dropped, TWO, 2, checkpoint=checkpoint)
        same(piped(LAYERS, BATCH, key=key), wanted)


def test_results_beside_the_loss() -> None:
    """Further arguments are what they are: flags and numbers of Python, whole arrays."""

    def loss(params: Any, batch: Any, scale: float, *, wide: bool = False) -> Any:
        x, y = batch
        for w in params if wide else params[:1]:
            x = np.tanh(x @ w) * scale
        return ((x - y) ** 2).sum(), {"rows": x}

    (value, aux), slopes = gc.value_and_grad(loss, has_aux=True)(LAYERS, BATCH, 0.5, wide=True)
    piped = parallel.pipeline(loss, TWO, 3, has_aux=True, combine=("sum", "concatenate"))
    (got, rows), gradients = piped(LAYERS, BATCH, 0.5, wide=True)
    same([got, rows, gradients], [value, aux, slopes])


def test_without_gradients() -> None:
    def model(params: Any, x: Any) -> Any:
        for w in params:
            x = np.tanh(x @ w)
        return {"y": x, "z": x.sum(1)}

    piped = parallel.pipeline(model, THREE, 4, combine="concatenate", gradients=False)
    same(piped(LAYERS, BATCH[0]), model(LAYERS, BATCH[0]))


def test_a_parameter_that_nothing_reads_has_no_slope() -> None:
    def loss(params: Any, batch: Any) -> Any:
        return (batch[0] @ params["w"]).mean()

    params = {"w": LAYERS[0], "unused": np.ones(3)}
    _, slopes = parallel.pipeline(loss, TWO, 2)(params, BATCH)
    np.testing.assert_array_equal(slopes["unused"], np.zeros(3))


class Models:
    """A U-Net with skips, a transformer whose embedding is tied, an LSTM and a ResNet with batch
    norm: losses of (params, batch), parameters and batch."""

    @staticmethod
    def unet() -> Any:
        conv = [nn.Conv(a, b, 3, padding="same") for a, b in ((1, 4), (4, 8), (12, 4), (4, 1))]

        def loss(params: Any, batch: Any) -> Any:
            x, y = batch
            skip = nn.relu(conv[0](params[0], x))
            low = nn.relu(conv[1](params[1], nn.MaxPool(2)({}, skip)))
            wide = np.repeat(np.repeat(low, 2, axis=2), 2, axis=3)
            h = nn.relu(conv[2](params[2], np.concatenate([wide, skip], axis=1)))
            return ((conv[3](params[3], h) - y) ** 2).mean()

        batch = tuple(rng.standard_normal((6, 1, 8, 8)) for _ in range(2))
        return loss, [c.init(gc.random.key(k), "f64") for k, c in enumerate(conv)], batch

    @staticmethod
    def transformer() -> Any:
        layers = [nn.MultiHeadAttention(8, 2) for _ in range(2)]

        def loss(params: Any, batch: Any) -> Any:
            h = params["words"][batch]
            for layer, part in zip(layers, params["layers"]):
                h = gc.layer_norm(h + layer(part, h))
            return gc.cross_entropy(
                (h @ params.get("head", params["words"]).T).reshape(-1, 11), batch.reshape(-1)
            )

        parts = [layer.init(gc.random.key(k), "f64") for k, layer in enumerate(layers)]
        params = {"words": rng.standard_normal((11, 8)), "layers": parts}
        return loss, params, rng.integers(0, 11, (6, 5))

    @staticmethod
    def lstm() -> Any:
        net = nn.Sequential(nn.LSTM(4, 6), nn.LSTM(6, 6), nn.Dense(6, 2))

        def loss(params: Any, batch: Any) -> Any:
            return (net(params, batch) ** 2).mean()

        return loss, net.init(gc.random.key(0), "f64"), rng.standard_normal((6, 5, 4))

    @staticmethod
    def resnet() -> Any:
        def block() -> Any:
            parts = nn.Conv(4, 4, 3, padding="same"), nn.BatchNorm(4), nn.relu
            return nn.Residual(*parts)

        net = nn.Sequential(nn.Conv(1, 4, 3, padding="same"), block(), block())
        state = net.state("f64")

        def loss(params: Any, batch: Any) -> Any:
            h, _ = net.apply(params, batch, state, training=True)
            return (h**2).mean()

        return loss, net.init(gc.random.key(0), "f64"), rng.standard_normal((6, 1, 6, 6))


@pytest.mark.slow
@pytest.mark.parametrize("name", few(["lstm", "resnet", "transformer", "unet"], 2))
def test_models(name: str) -> None:
    """The bits of the mean of two halves, one after the other on one device."""
    loss, params, batch = getattr(Models, name)()
    piped = parallel.pipeline(loss, TWO, 2, "1f1b", "except_last")
    made = gc.compile(piped, devices=TWO, fast_math=False)(params, batch)
    alone = gc.compile(gc.value_and_grad(loss), fast_math=False)
    first, second = (alone(params, part) for part in parallel.split(batch, 2))
    wanted = tree_map(lambda a, b: (a + b) / 2, first, second)
    same(made, wanted, rtol=1e-12)
    if name != "transformer":
        tree_map(np.testing.assert_array_equal, made, wanted)


def test_a_tied_weight_in_two_stages() -> None:
    """Every stage sums its part over chunks: the bits of two weights whose gradients are added."""
    loss, params, batch = Models.transformer()

    def untied(weights: Any, batch: Any) -> Any:
        return loss(weights[0] | {"head": weights[1]}, batch)

    piped = parallel.pipeline(loss, TWO, 2, "1f1b", "except_last")
    value, made = gc.compile(piped, devices=TWO, fast_math=False)(params, batch)
    alone = gc.compile(gc.value_and_grad(untied), fast_math=False)
    halves = [alone((params, params["words"]), part) for part in parallel.split(batch, 2)]
    wanted, (slopes, head) = tree_map(lambda a, b: (a + b) / 2, *halves)
    slopes["words"] = head + slopes["words"]
    tree_map(np.testing.assert_array_equal, (value, made), (wanted, slopes))


def test_running_statistics_move_once_for_the_batch() -> None:
    """Whatever the chunks: those of the whole batch, also far from zero."""
    layer = nn.BatchNorm(6)
    params, state = layer.init(gc.random.key(0)), layer.state()
    x = (rng.standard_normal((10, 6, 4)) * 3 + 50).astype(np.float32)

    def loss(params: Any, batch: Any, state: Any) -> Any:
        h, state = layer.apply(params, batch, state, training=True)
        return (h**3).mean(), {"new": state, "h": h.mean()}

    (_, wanted), _ = gc.value_and_grad(loss, has_aux=True)(params, x, state)
    for chunks in (1, 3, 4):
        piped = parallel.pipeline(loss, TWO[:1], chunks, has_aux=True, checkpoint="always")
        (_, made), _ = piped(params, x, state)
        same(made["new"], wanted["new"], rtol=1e-6)


@pytest.mark.slow
def test_running_statistics_of_layers_behind_one_another() -> None:
    """Of each layer: those of all that it was given, which is normalised chunk by chunk; of the
    first one, and with one chunk of all, those of the whole batch."""
    conv, norm = nn.Conv(3, 3, 3, padding="same"), nn.BatchNorm(3)
    net = nn.Sequential(*(nn.Residual(conv, norm, nn.relu) for _ in range(3)))
    params, start = net.init(gc.random.key(0), "f64"), net.state("f64")
    x = rng.standard_normal((8, 3, 4, 4)) * 3 + 50

    def loss(params: Any, batch: Any) -> Any:
        h, state = net.apply(params, batch, start, training=True)
        return (h**2).mean(), state

    (_, whole), _ = gc.value_and_grad(loss, has_aux=True)(params, x)
    for chunks in (1, 4):
        piped = parallel.pipeline(loss, TWO, chunks, has_aux=True)
        (_, made), _ = piped(params, x)
        same(made[0], whole[0], rtol=1e-6)
        given = parallel.split(x, chunks)
        for number, (own, state) in enumerate(zip(params, made)):
            rows = np.concatenate([conv(own[0], part) for part in given])
            _, wanted = norm.apply(own[1], rows, start[number][1], training=True)
            same(state[1], wanted, rtol=1e-6)
            block = nn.Residual(conv, norm, nn.relu)
            given = [block.apply(own, h, start[number], training=True)[0] for h in given]


@pytest.mark.slow
def test_several_pipelines_share_a_batch() -> None:
    """Stages times replicas, times short messages, times a memory limit."""
    four = [TWO, ["cpu:2", "cpu:3"]]
    wanted = gc.value_and_grad(tied)(TIED, BATCH)
    piped = parallel.pipeline(tied, four, 2)
    same(piped(TIED, BATCH), wanted)
    same(
        piped(TIED, tree_map(lambda rows: rows[:1], BATCH)),
        gc.value_and_grad(tied)(TIED, tree_map(lambda rows: rows[:1], BATCH)),
    )
    short = tree_map(lambda a: a.astype(np.float32), (TIED, BATCH))
    options: Any = {"compress": "nearest", "memory_limit": 1 << 20}
    made = gc.compile(piped, devices=[*four[0], *four[1]], **options)(*short)
    tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.1, atol=0.1), made, wanted)
    with pytest.raises(GraphError, match="devices of equal number"):
        parallel.pipeline(mlp, [TWO, THREE])


def test_short_messages_of_stages_keep_to_the_error_budget() -> None:
    """No result of the sample changes by more than that, relative to its largest magnitude."""
    short = tree_map(lambda a: a.astype(np.float32), (LAYERS, BATCH))
    piped = parallel.pipeline(mlp, TWO, 2)
    exact = gc.compile(piped, devices=TWO)(*short)
    counts = []
    for budget in (1e-3, 1.0):
        options: Any = {"compress": "nearest", "error_budget": budget, "sample": short}
        made = gc.compile(piped, devices=TWO, **options)
        note = next(stage.note for stage in made.stages(*short) if stage.name == "compress")
        counts.append(int(note.split(" of ")[0].split()[-1]))
        for got, wanted in zip(flatten(made(*short))[0], flatten(exact)[0]):
            assert np.abs(got - wanted).max() <= 1.01 * budget * np.abs(wanted).max()
    assert 0 < counts[0] < counts[1]


def test_a_failure_in_one_stage_ends_the_step() -> None:
    """With the line of the user; the next step works, and nothing is called twice."""
    calls = []

    def loss(params: Any, batch: Any) -> Any:
        x, y = batch
        for number, w in enumerate(params):
            with gc.device(THREE[min(number, 2)]):
                x = np.tanh(x @ w)
                if number == 1:
                    gc.assert_(np.isfinite(x).all(), "not finite")  # noqa: PT009
                    gc.callback(lambda x: calls.append(len(x)), None, x)
        return ((x - y) ** 2).mean()

    piped = gc.compile(parallel.pipeline(loss, THREE, 3, checkpoint="always"), devices=THREE)
    wanted = gc.value_and_grad(mlp)(LAYERS, BATCH)
    same(piped(LAYERS, BATCH), wanted)
    assert sorted(calls) == [2, 4, 4]
    broken = BATCH[0].copy()
    broken[5] = np.nan
    with pytest.raises(RunError, match="not finite") as error:
        piped(LAYERS, (broken, BATCH[1]))
    assert "test_pipelining.py" in str(error.value)
    same(piped(LAYERS, BATCH), wanted)


@pytest.mark.slow
def test_order_is_what_bounds_memory() -> None:
    """One chunk after the other; without the edges of the schedule all may be there together."""
    params = [rng.standard_normal(shape) for shape in [(2, 16), (16, 16), (16, 16), (16, 2)] * 2]
    batch = tuple(rng.standard_normal((4096, 2)) for _ in range(2))

    def peaks(schedule: str, checkpoint: str, fenced: bool = True) -> list[int]:
        piped = parallel.pipeline(mlp, TWO, 8, schedule, checkpoint, stages=2)
        piped.options = replace(piped.options, fenced=fenced)
        stages = gc.compile(piped, devices=TWO).stages(params, batch)
        plan = next(record.value for record in stages if record.name == "plan")
        return [peak_bytes(graph) for graph in plan.graphs]

    kept, again = peaks("gpipe", "never"), peaks("gpipe", "always")
    loose = peaks("gpipe", "always", fenced=False)
    for stage in range(2):
        assert 2 * again[stage] < kept[stage]
        assert loose[stage] > 1.3 * again[stage]


@pytest.mark.slow
def test_one_compilation_serves_batches_of_all_sizes() -> None:
    """Chunks and messages are as large as a call asks for, the last chunk smaller or not; bit for
    bit what is compiled for the size."""
    piped = parallel.pipeline(mlp, TWO, 3)
    sizes = {f"batch.{k}": ("n", 6) for k in range(2)}
    options: Any = {"devices": TWO, "fast_math": False, "threads": 1}
    served = gc.compile(piped, sizes=sizes, **options)
    whole = gc.compile(gc.value_and_grad(mlp), sizes=sizes)
    for rows in (64, 7, 5, 33):
        batch = tuple(rng.standard_normal((rows, 6)) for _ in range(2))
        made = served(LAYERS[:2], batch)
        same(made, whole(LAYERS[:2], batch))
    exact = gc.compile(piped, sizes="exact", **options)(LAYERS[:2], batch)
    tree_map(np.testing.assert_array_equal, made, exact)
    assert len(served.compiles) == 1
    for rows in (1, 0):  # there is one chunk
        batch = tuple(rng.standard_normal((rows, 6)) for _ in range(2))
        same(served(LAYERS[:2], batch), whole(LAYERS[:2], batch))


@pytest.mark.slow
def test_the_best_way_is_chosen() -> None:
    """The fastest that fits, by the simulated timelines of all; what it is rejected for is told."""
    params = [rng.standard_normal((64, 64)) for _ in range(8)]
    batch = tuple(rng.standard_normal((4096, 64)) for _ in range(2))

    def best(**options: Any) -> Any:
        piped = parallel.pipeline(mlp, TWO, 4, stages="auto", **options)
        gc.compile(piped, devices=TWO).graph(params, batch)
        return piped.planned

    free = best()
    first = free.choices[0]
    assert first.seconds == min(choice.seconds for choice in free.choices)
    assert len(free.schedule.rows) == 2
    assert free.schedule.chunks == first.chunks
    text = str(free)
    assert "taken" in text
    assert "slower" in text
    tight = best(memory_limit=0.5 * first.bytes)
    chosen = tight.choices[0]
    assert chosen.fits
    assert chosen.bytes <= 0.5 * first.bytes
    assert chosen.seconds > first.seconds
    assert "does not fit" in str(tight)
    with pytest.raises(GraphError, match="fits into 1,000 bytes a device"):
        best(memory_limit=1000)
    small = parallel.pipeline(mlp, TWO, 4, stages="auto")
    same(small(LAYERS, BATCH), gc.value_and_grad(mlp)(LAYERS, BATCH))


@pytest.mark.slow
def test_cuts_know_the_limit_of_memory() -> None:
    """A long table takes no time, but bytes: beside it there is room for fewer layers."""

    def loss(params: Any, batch: Any) -> Any:
        x = params[0][batch]
        for w in params[1:]:
            x = np.tanh(x @ w)
        return (x**2).mean()

    shapes = [(2048, 64), *[(64, 64)] * 8]
    params = [rng.standard_normal(shape) * 0.1 for shape in shapes]
    batch = rng.integers(0, 2048, 512)

    def planned(**options: Any) -> Any:
        piped = parallel.pipeline(loss, TWO, 8, checkpoint="never", **options)
        same(piped(params, batch), wanted)
        return piped.planned

    wanted = gc.value_and_grad(loss)(params, batch)
    free = planned()
    limit = max(free.bytes) * 0.9
    tight = planned(memory_limit=limit)
    assert max(tight.bytes) <= limit
    assert tight.prediction.makespan > free.prediction.makespan
    assert planned(memory_limit=max(free.bytes)).bytes == free.bytes


def test_what_cannot_be_piped() -> None:
    counter = gc.Variable(0.0, name="piped counter")

    def counting(params: Any, batch: Any) -> Any:
        counter.assign_add(1.0)
        return mlp(params, batch)

    cases: list[tuple[Any, dict[str, Any], str]] = [
        (mlp, {"chunks": 0}, "one chunk or more"),
        (mlp, {"chunks": 2.5}, "one chunk or more"),
        (3, {}, "takes a function, got int"),
        (mlp, {"schedule": None}, "a name or a text, got NoneType"),
        (mlp, {"devices": []}, "one device or more"),
        (mlp, {"combine": "median"}, "not by 'median'"),
        (mlp, {"combine": "concatenate"}, "by mean or sum"),
        (mlp, {"schedule": "pipe"}, "schedules are"),
        (mlp, {"schedule": "0F0 0B0"}, "the schedule is for 1 stages of 1 chunks"),
        (mlp, {"checkpoint": "often"}, "checkpoint is always"),
        (mlp, {"balance": "luck"}, "by time, bytes, not"),
        (mlp, {"stages": 200}, "are no 200 stages"),
        *((mlp, {"stages": bad}, 'names or "auto"') for bad in ("all", 0, -1, 1.5, [3])),
        (mlp, {"devices": None}, "names of devices, one device or more, got None"),
        (mlp, {"memory_limit": 1e6, "gradients": False}, "pipelines with gradients"),
        (mlp, {"memory_limit": np.nan}, "a number of bytes, not nan"),
        (mlp, {"memory_limit": 1e3}, "needs about .* bytes, and memory_limit allows 1,000"),
        (counting, {}, "assigns a variable"),
        (lambda params, batch: params[0].sum(), {}, "depends on the batch"),
    ]
    for loss, options, problem in cases:
        with pytest.raises(GraphError, match=problem):
            parallel.pipeline(loss, **{"devices": TWO, **options})(LAYERS, BATCH)
    for numbers in ((), (2,), (2.5, 3)):
        with pytest.raises(GraphError, match="a number of stages and of chunks"):
            parallel.schedule("1f1b", *numbers)
    with pytest.raises(TypeRuleError, match="differ in their rows"):
        parallel.pipeline(mlp, TWO)(LAYERS, (BATCH[0], BATCH[1][:-1]))


def test_products_and_sums_over_chunks_are_one_kernel() -> None:
    """A gradient is added to those of earlier chunks where it is made."""
    batch = tuple(rng.standard_normal((256, 64)) for _ in range(2))
    params = [rng.standard_normal((64, 64)) for _ in range(4)]
    piped = parallel.pipeline(mlp, TWO, 4, checkpoint="never")
    program = gc.compile(piped, devices=TWO, threads=1).lower(params, batch)
    kinds = [
        sorted(inner.op.name for inner in node.regions[0].nodes)
        for graph in program.graphs
        for node in graph.nodes
        if node.op.name == "fused" and getattr(node.type, "dims", ()) == (64, 64)
    ]
    assert ["add"] not in kinds
    assert sum(found == ["add", "einsum"] for found in kinds) == 3 * len(params)
