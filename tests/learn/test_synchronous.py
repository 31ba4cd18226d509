"""Synchronous data parallelism: one device's training, the same bits everywhere, shared state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import nn, optim, parallel
from graphc.errors import GraphError
from graphc.frontend.trace.tree import flatten
from graphc.learn import synchronous
from graphc.learn.trees import tree_map

rng = np.random.default_rng(0)
BATCH = rng.standard_normal((50, 7)), rng.standard_normal((50, 3))
NET = nn.Sequential(nn.Dense(7, 11), nn.tanh, nn.Dense(11, 11), nn.tanh, nn.Dense(11, 3))
START = NET.init(gc.random.key(0), "f64")
SHARDS = [False, True, "parameters"]
NAMES = [f"cpu:{k}" for k in range(4)]
RULES = {
    "adamw": optim.adamw(1e-2, mask=optim.matrices),
    "momentum": optim.momentum(0.1),
    "sgd": optim.sgd(0.1),
}


def loss(params: Any, batch: Any) -> Any:
    x, y = batch
    return nn.mse(NET(params, x), y)


def alone(rule: optim.Optimiser, steps: int) -> tuple[Any, list[float]]:
    @gc.compile
    def step(params: Any, state: Any, batch: Any) -> Any:
        value, slopes = gc.value_and_grad(loss)(params, batch)
        return *rule.update(slopes, state, params), value

    params, state, losses = START, rule.init(START), []
    for _ in range(steps):
        params, state, value = step(params, state, BATCH)
        losses.append(float(value))
    return params, losses


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("count", [1, 3])
def test_it_is_the_training_of_one_device(
    name: str, shard: bool | str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synchronous, "BUCKET", 600)
    wanted, losses = alone(RULES[name], 5)
    trainer = parallel.Synchronous(loss, START, RULES[name], NAMES[:count], shard, threads=1)
    np.testing.assert_allclose([trainer(BATCH) for _ in range(5)], losses, rtol=1e-12)
    tree_map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12),
        trainer.values(),
        wanted,
    )
    copies = [[np.asarray(v.value).tobytes() for v in flatten(tree)[0]] for tree in trainer.params]
    if shard != "parameters":
        assert all(copy == copies[0] for copy in copies)


def test_parameters_are_shared_out() -> None:
    """A device keeps its part of them and of the state; training is that of shard=True."""
    near, far = (
        parallel.Synchronous(loss, START, optim.adam(), NAMES, shard, threads=1)
        for shard in (True, "parameters")
    )
    losses = [[float(trainer(BATCH)) for _ in range(3)] for trainer in (near, far)]
    np.testing.assert_allclose(*losses, rtol=1e-12)
    whole = sum(x.nbytes for x in flatten(START)[0])
    kept = [sum(v.value.nbytes for v in flatten(tree)[0]) for tree in far.params]
    assert len({*kept}) == 1 and whole <= sum(kept) < whole + 8 * len(NAMES)
    pairs = zip(flatten(near.values())[0], flatten(far.values())[0], strict=True)
    assert all(np.allclose(a, b, rtol=1e-12) for a, b in pairs)


def test_state_is_shared_out() -> None:
    """Of what Adam keeps, a device has its part; all parts together are what one device keeps."""
    kept = [
        sum(v.value.nbytes for v in flatten(state)[0] if v.value.ndim)
        for state in parallel.Synchronous(loss, START, optim.adam(), NAMES, shard=True).state
    ]
    whole = 2 * sum(x.nbytes for x in flatten(START)[0])
    assert len({*kept}) == 1
    assert whole <= sum(kept) < whole + 2 * 8 * len(NAMES)


@pytest.mark.slow
def test_the_bytes_are_those_of_one_sum() -> None:
    """Sharded or not, a device sends 2 (n - 1) / n of the gradients, and no parameters."""
    wide = nn.Dense(300, 300)
    batch = np.zeros((4, 300), "f4"), np.zeros((4, 300), "f4")
    start = wide.init(gc.random.key(0))
    size = sum(x.nbytes for x in flatten(start)[0])
    for shard in SHARDS:
        trainer = parallel.Synchronous(
            lambda p, b: nn.mse(wide(p, b[0]), b[1]), start, optim.adam(), NAMES, shard, threads=1
        )
        stages = {name: value for name, value, *_ in trainer.compiled.stages(batch)}
        sent = dict.fromkeys(NAMES, 0)
        for graph in stages["partition"].graphs:
            sends = [n for n in graph.nodes if n.op.traits.send and n.inputs]
            sent[graph.device.short] = sum(n.inputs[0].nbytes for n in sends)
        for name in NAMES[1:]:  # the first one sends the batch, too
            assert sent[name] == pytest.approx(1.5 * size, rel=0.01)


def test_gradients_travel_while_others_are_computed() -> None:
    """The first bucket is sent before the last gradient is there, on every device."""
    width = 512
    net = nn.Sequential(*(nn.Dense(width, width) for _ in range(6)))
    batch = np.zeros((64, width), "f4"), np.zeros((64, width), "f4")
    trainer = parallel.Synchronous(
        lambda p, b: nn.mse(net(p, b[0]), b[1]),
        net.init(gc.random.key(0)),
        optim.sgd(),
        NAMES[:2],
        threads=1,
    )
    stages = {name: value for name, value, *_ in trainer.compiled.stages(batch)}
    for graph in stages["schedule"].graphs:
        products = [k for k, n in enumerate(graph.nodes) if n.op.traits.matrix_product]
        sends = [
            k
            for k, n in enumerate(graph.nodes)
            if n.op.traits.send and n.inputs and n.inputs[0].nbytes == width * width * 2
        ]
        assert sends, "a bucket is half a matrix for each device"
        assert sum(k > sends[0] for k in products) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("shard", SHARDS)
def test_each_device_reads_its_part(shard: bool | str, tmp_path: Path) -> None:
    """Readers on the devices: rows do not cross, and the losses are those of whole batches."""
    np.savez(tmp_path / "a.npz", x=BATCH[0], y=BATCH[1])
    kinds = {"x": gc.spec((7,), "f64"), "y": gc.spec((3,), "f64")}
    readers = [
        gc.Reader(tmp_path / "a.npz", kinds, batch=5, part=(k, 2), epochs=None) for k in range(2)
    ]
    trainer = parallel.Synchronous(loss, START, optim.sgd(0.1), NAMES[:2], shard, threads=1)

    @gc.compile(devices=NAMES[:2], threads=1)
    def step() -> Any:
        batches = []
        for name, reader in zip(NAMES, readers):
            with gc.device(name):
                found = reader.next()
                batches.append((found["x"], found["y"]))
        return trainer.step_apart(batches)

    found = [float(step()) for _ in range(8)]
    whole = parallel.Synchronous(loss, START, optim.sgd(0.1), NAMES[:2], shard, threads=1)
    rows = [np.arange(10 * k, 10 * k + 10) % 50 for k in range(8)]
    batches = [tuple(x[np.r_[r[::2], r[1::2]]] for x in BATCH) for r in rows]
    np.testing.assert_allclose(found, [float(whole(batch)) for batch in batches], rtol=1e-12)
    with pytest.raises(GraphError, match="2 devices take as many batches, got 1"):
        trainer.step_apart([BATCH])


def test_bad_arguments() -> None:
    for devices, problem in (([], "one device or more"), (["cpu:0", "cpu:0"], "of them once")):
        with pytest.raises(GraphError, match=problem):
            parallel.Synchronous(loss, START, optim.sgd(), devices)
    for shard in ("state", 1, None):
        with pytest.raises(GraphError, match="shard is True, False or"):
            parallel.Synchronous(loss, START, optim.sgd(), NAMES, shard)  # type: ignore[arg-type]
    clipped = optim.adam().clipped(1.0)
    with pytest.raises(GraphError, match="cannot be sharded"):
        parallel.Synchronous(loss, START, clipped, NAMES, shard=True)
    parallel.Synchronous(loss, START, clipped, NAMES[:2])(BATCH)
    trainer = parallel.Synchronous(loss, START, optim.sgd(), NAMES)
    with pytest.raises(GraphError, match="3 row"):
        trainer((BATCH[0][:3], BATCH[1][:3]))
