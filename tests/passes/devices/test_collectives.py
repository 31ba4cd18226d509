"""Collectives: what NumPy makes of them, the same bits for all, how messages go and how many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc import parallel
from graphc.errors import GraphError
from graphc.ir.graph import Program
from graphc.passes.placement.measured import Measured, load, store
from graphc.runtime.devices.registry import Link

rng = np.random.default_rng(0)
NAMES = [f"cpu:{k}" for k in range(8)]
SHAPES = [(), (1,), (0, 3), (7,), (12, 5), (24, 4000)]


def made_on(devices: list[str], values: Any) -> list[Any]:
    """Each value computed on its device."""
    made = []
    for name, value in zip(devices, values, strict=True):
        with gc.device(name):
            made.append(value * 2)
    return made


def every_collective(devices: list[str], shape: tuple[int, ...]) -> Any:
    def function(values: Any) -> Any:
        given = made_on(devices, values)
        made = {way: parallel.all_reduce(given, devices, way) for way in ("sum", "mean", "max")}
        made["broadcast"] = parallel.broadcast(given[-1], devices)
        made["one"] = [parallel.reduce_to(given, devices, "min")]
        if shape:
            made["gather"] = parallel.all_gather(given, devices)
        if shape and shape[0] % len(devices) == 0:
            made["scatter"] = parallel.reduce_scatter(given, devices)
            made["exchange"] = parallel.all_to_all(given, devices)
        return made

    return function


def arrays(count: int, shape: tuple[int, ...], kind: str = "f4") -> list[Any]:
    return [rng.standard_normal(shape).astype(kind) for _ in range(count)]


def programs(run: Any, *arguments: Any) -> dict[str, Any]:
    return {record.name: record for record in run.stages(*arguments)}


def sent(program: Program) -> list[Any]:
    return [n for graph in program.graphs for n in graph.nodes if n.op.traits.send]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_numpy_agrees(count: int) -> None:
    """Every collective on several shapes, one of them empty, by trees and by rings."""
    devices = NAMES[:count]
    for shape in SHAPES:
        values = arrays(count, shape)
        function = every_collective(devices, shape)
        got = gc.compile(function, devices=devices, threads=1)(values)
        wanted = function(values)
        for name, results in wanted.items():
            for one, other in zip(got[name], results, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)
        for name in ("sum", "mean", "max", "broadcast", "gather"):
            assert len({np.asarray(found).tobytes() for found in got.get(name, [0])}) == 1


@pytest.mark.parametrize("devices", [["cpu:0"] * 3, ["cpu:1", "cpu:0", "cpu:1", "cpu:0"]])
def test_a_device_may_come_several_times(devices: list[str]) -> None:
    values = arrays(len(devices), (12, 40))
    function = every_collective(devices, (12, 40))
    got = gc.compile(function, devices=["cpu:0", "cpu:1"], threads=1)(values)
    for name, wanted in function(values).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_ring_sends_its_share_of_the_bytes(count: int) -> None:
    devices, values = NAMES[:count], arrays(count, (count, 30_000))

    def function(values: Any) -> Any:
        return [x.sum() for x in parallel.all_reduce(made_on(devices, values), devices)]

    run = gc.compile(function, devices=devices, threads=1)
    found = programs(run, values)
    (reason,) = (text for _, text in found["route_collectives"].note.reasons)
    assert "by a ring" in reason
    rows = [n for n in sent(found["partition"].value) if n.inputs[0].type.size == 30_000]
    assert len(rows) == 2 * (count - 1) * count
    each = {name: sum(str(n.place).endswith(name) for n in rows) for name in devices}
    assert set(each.values()) == {2 * (count - 1)}


def test_measured_links_between_tasks_decide(tmp_path: Path) -> None:
    """A job whose messages take long sums by trees what others sum by rings; within a task, and in
    other jobs, nothing changes."""
    slow = Link(1e-3, 1e9)
    store(Measured({}, {}, links={"far": slow}), tmp_path / "costs.json")
    assert load(tmp_path / "costs.json").links == {"far": slow}
    values = arrays(3, (30_000,))

    def taken(devices: list[str]) -> str:
        run = gc.compile(
            lambda *values: parallel.all_reduce(list(values), devices),
            devices=devices,
            costs=str(tmp_path / "costs.json"),
        )
        return str(programs(run, *values)["route_collectives"].note.reasons)

    assert "by a ring" in taken([f"/job:near/task:{k}/device:cpu:0" for k in range(3)])
    assert "by a tree" in taken([f"/job:far/task:{k}/device:cpu:0" for k in range(3)])
    assert "by a ring" in taken([f"/job:far/task:0/device:cpu:{k}" for k in range(3)])
    kept = {"format": 1, "devices": {}, "seconds": {}}
    kept["links"] = {"far": {"latency": 1, "bandwidth": 0}}
    (tmp_path / "costs.json").write_text(json.dumps(kept))
    with pytest.raises(GraphError, match="cannot read measured costs"):
        load(tmp_path / "costs.json")


def test_a_tree_takes_few_rounds() -> None:
    values = arrays(8, (3,))

    def function(values: Any) -> Any:
        return parallel.all_reduce(made_on(NAMES, values), NAMES)[0]

    run = gc.compile(function, devices=NAMES, threads=1)
    found = programs(run, values)
    assert "by a tree" in str(found["route_collectives"].note.reasons)
    adds = [n for n in found["route_collectives"].value.nodes if n.op.name == "add"]
    assert len(adds) == 7
    at_first = [n for n in adds if str(n.place.spec).endswith("cpu:0")]
    assert len(at_first) == 3  # of pairs, of pairs of pairs, of all


def test_small_sums_share_messages() -> None:
    """Those that come one after the other are one; a large one, and one that waits, are not."""
    devices, values = NAMES[:2], arrays(2, (64,))
    large = arrays(2, (200_000,))

    def function(values: Any, large: Any) -> Any:
        first = [parallel.all_reduce([x * k for x in values], devices) for k in range(6)]
        big = parallel.all_reduce(large, devices)
        later = parallel.all_reduce([first[0][0], first[1][1]], devices, "sum")
        return first, big[1], later

    run = gc.compile(function, devices=devices, threads=1)
    found = programs(run, values, large)
    assert "6 sums over devices in 1 bucket" in found["merge_collectives"].note
    left = [n for n in found["merge_collectives"].value.nodes if n.op.traits.collective]
    assert [n.inputs[0].type.size for n in left] in ([384, 200_000, 64], [200_000, 384, 64])
    got, wanted = run(values, large), function(values, large)
    for one, other in zip(got[0], wanted[0], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(got[1], wanted[1])
    np.testing.assert_array_equal(got[2], wanted[2])


@pytest.mark.parametrize("mode", [True, "nearest", "saturate"])
@pytest.mark.parametrize("size", [4, 90_000])
def test_all_have_the_same_bits_where_transfers_are_short(mode: Any, size: int) -> None:
    """What goes on is rounded once for all; what is returned is whole, and crosses so."""
    devices, values = NAMES[:3], arrays(3, (size,))

    def function(values: Any) -> Any:
        total = parallel.all_reduce(made_on(devices, values), devices)
        gathered = parallel.all_gather(made_on(devices, values), devices)
        made = []
        for name, one, two in zip(devices, total, gathered, strict=True):
            with gc.device(name):
                made.append((one * one, two * two))
        return made

    run = gc.compile(function, devices=devices, threads=1, compress=mode)
    got = run(values)
    for part in zip(*got):
        assert len({found.tobytes() for found in part}) == 1
    np.testing.assert_allclose(got[0][0], function(values)[0][0], rtol=0.1, atol=0.2)

    def whole(values: Any) -> Any:
        return parallel.all_reduce(made_on(devices, values), devices)

    returned = gc.compile(whole, devices=devices, threads=1, compress=mode)(values)
    assert len({found.tobytes() for found in returned}) == 1


def test_gradients_are_collectives() -> None:
    devices, values = NAMES[:2], arrays(2, (4, 3), "f8")
    weights = arrays(12, (4, 3), "f8")

    def loss(values: Any) -> Any:
        total, parts = 0.0, iter(weights)
        for made in (
            parallel.all_reduce(values, devices, "mean"),
            parallel.all_to_all(values, devices),
            parallel.broadcast(values[1], devices),
        ):
            total = total + sum((x * next(parts) * x).sum() for x in made)
        cut = parallel.reduce_scatter(values, devices)
        total = total + sum((x * x * next(parts)[:2]).sum() for x in cut)
        back = parallel.all_gather(cut, devices)
        one = parallel.reduce_to(values, devices)
        return total + (back[1] * next(parts)).sum() + (one**2).sum()

    slopes = gc.compile(gc.grad(loss), devices=devices, threads=1)(values)
    rows = np.concatenate([np.ravel(s) for s in slopes])
    at, step = np.concatenate([np.ravel(v) for v in values]), 1e-5

    def near(point: Any) -> Any:
        return loss([point[:12].reshape(4, 3), point[12:].reshape(4, 3)])

    wanted = [(near(at + step * e) - near(at - step * e)) / (2 * step) for e in np.eye(24)]
    np.testing.assert_allclose(rows, wanted, rtol=1e-6, atol=1e-7)


def test_lanes_and_loops() -> None:
    """Under vmap the lanes go together; in a loop there is one sum in each round."""
    devices, values = NAMES[:2], arrays(2, (5, 4, 3))

    def one(a: Any, b: Any) -> Any:
        cut = parallel.reduce_scatter([a, b], devices)
        return parallel.all_gather(cut, devices)[1], parallel.all_to_all([a, b], devices)

    got = gc.compile(gc.vmap(one), devices=devices, threads=1)(*values)
    wanted = [one(a, b) for a, b in zip(*values)]
    np.testing.assert_allclose(got[0], np.stack([w[0] for w in wanted]), rtol=1e-6)
    np.testing.assert_allclose(got[1], np.stack([np.stack(w[1]) for w in wanted], 1))

    def looped(a: Any, b: Any) -> Any:
        def body(k: Any, held: Any) -> Any:
            return [x * 0.5 for x in parallel.all_reduce(made_on(devices, held), devices)]

        return gc.fori(0, 3, body, [a, b])

    got = gc.compile(looped, devices=devices, threads=1)(*values)
    np.testing.assert_allclose(got[0], 4 * (values[0] + values[1]), rtol=1e-6)
    assert got[0].tobytes() == got[1].tobytes()


def test_open_sizes_go_by_trees() -> None:
    devices = NAMES[:3]

    def function(values: Any) -> Any:
        return parallel.all_reduce(values, devices), parallel.all_gather(values, devices)

    run = gc.compile(function, devices=devices, sizes={f"values.{k}": ("n", 2) for k in range(3)})
    for rows in (0, 1, 70):
        values = arrays(3, (rows, 2))
        got, wanted = run(values), function(values)
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6)
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-6)


def test_bad_arguments() -> None:
    two = [np.ones(4, "f4")] * 2
    with pytest.raises(GraphError, match="there are 3 values for 2 device"):
        parallel.all_reduce([*two, two[0]], NAMES[:2])
    with pytest.raises(GraphError, match="one device or more"):
        parallel.broadcast(two[0], [])
    with pytest.raises(GraphError, match="not by 'median'"):
        parallel.all_reduce(two, NAMES[:2], "median")
    with pytest.raises(GraphError, match="do not divide by 3"):
        parallel.reduce_scatter([np.ones(4)] * 3, NAMES[:3])
    with pytest.raises(GraphError, match="structure"):
        parallel.all_reduce([{"a": two[0]}, two[0]], NAMES[:2])
    with pytest.raises(GraphError, match="one type"):
        parallel.all_reduce([np.ones(4), np.ones(5)], NAMES[:2])
    with pytest.raises(GraphError, match="not a device name"):
        parallel.all_reduce(two, ["cpu:0", "no device"])
    with pytest.raises(GraphError, match="device list holds only"):
        gc.compile(lambda v: parallel.all_reduce(v, ["cpu:0", "cpu:5"]), devices=NAMES[:2])(two)
