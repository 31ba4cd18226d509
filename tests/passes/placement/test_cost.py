"""The cost model: static and measured seconds, regions, transfers, what is only guessed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.measure_devices import observe
from graphc.ir.graph import Graph, Node
from graphc.ir.place import parse_device
from graphc.ir.types import F32, tensor, tuple_type
from graphc.passes.placement.cost import CostModel, key_of
from graphc.passes.placement.measured import _FIELDS, Measured, cost_model, load, of_runs, store
from graphc.passes.placement.place import place
from graphc.passes.reasons import collecting
from graphc.passes.tuning import tuned
from graphc.runtime.devices.registry import Kind, Link, Rates, kind_of, register_device

CPU, OTHER, NULL = (parse_device(name) for name in ("unit:0", "unit:1", "null:0"))
X = gc.spec((8, 8), "f32")


@pytest.fixture(autouse=True)
def unit() -> None:
    """A device that does one flop, moves two bytes and needs 100 seconds to start a kernel."""
    register_device("unit", Rates(1.0, 2.0, 100.0), Link(7.0, 4.0))


def only(function: object, *specs: object, op: str = "") -> Node:
    graph = gc.compile(function).graph(*specs)
    return next(n for n in graph.nodes if n.op.name == op) if op else graph.nodes[-1]


def test_a_kernel_takes_the_longer_of_arithmetic_and_memory() -> None:
    cost = CostModel((CPU,))
    product = only(lambda x: x @ x, X)
    assert cost.compute(product, CPU) == 2 * 8**3 + 100
    added = only(lambda x: x + x, X)
    assert cost.compute(added, CPU) == 3 * 256 / 2 + 100
    moved = only(lambda x: x.T, X)
    assert cost.compute(moved, CPU) == 2 * 256 / 2 + 100
    assert all(map(cost.exact, (product, added, moved)))


def test_views_and_constants_cost_nothing_and_neither_does_the_null_device() -> None:
    cost = CostModel((CPU, NULL))
    assert cost.compute(only(lambda x: x.reshape(64), X), CPU) == 0
    assert cost.compute(only(lambda x: x + np.ones((8, 8), np.float32), X, op="const"), CPU) == 0
    assert cost.compute(only(lambda x: x @ x, X), NULL) == 0


def test_transfers_take_latency_and_bytes_over_bandwidth() -> None:
    cost = CostModel((CPU, OTHER))
    kind = tensor(F32, (8,))
    assert cost.transfer(kind, CPU, CPU) == 0
    assert cost.transfer(kind, CPU, OTHER) == 7 + 32 / 4
    assert cost.transfer(tuple_type((kind, kind)), CPU, OTHER) == 7 + 64 / 4
    assert cost.transfer(kind, CPU, NULL) == 7 + 32 / 4


def test_regions_add_up_as_often_as_they_run() -> None:
    cost = CostModel((CPU,))
    one = cost.compute(only(lambda x: np.tanh(x), X), CPU)
    scan = only(
        lambda x: gc.scan(lambda c, s: (np.tanh(c), None), x, np.arange(5))[0], X, op="scan"
    )
    assert cost.compute(scan, CPU) == pytest.approx(5 * one)
    assert cost.exact(scan)
    loop = only(lambda x: gc.while_loop(lambda v: v[0, 0] < 1, np.tanh, x), X, op="while")
    assert cost.compute(loop, CPU) >= tuned.guessed_rounds * one
    assert not cost.exact(loop)
    branches = (lambda v: np.tanh(np.exp(v)), lambda v: v)
    branch = only(lambda x: gc.cond(x[0, 0] > 0, *branches, x), X, op="cond")
    longest = sum(cost.compute(n, CPU) for n in branch.regions[0].nodes)
    assert cost.compute(branch, CPU) == longest and not cost.exact(branch)


def test_symbolic_shapes_are_not_exact() -> None:
    graph = gc.parse("gir 1\ngraph @g(%0 x: f32[N]) {\n  %1 = tanh(%0) : f32[N]\n  return %1\n}\n")
    cost = CostModel((CPU,))
    assert cost.compute(graph.nodes[0], CPU) == 100 and not cost.exact(graph.nodes[0])


def test_what_is_guessed_shows_in_the_reasons() -> None:
    def f(x):
        with gc.device("cpu:1"):
            return gc.while_loop(lambda v: v[0, 0] < 1, np.tanh, x)

    with collecting() as reasons:
        place(gc.compile(f).graph(X), Config.create(devices=["cpu:0", "cpu:1"]))
    texts = [text for _, text in reasons.lines]
    assert any("(inaccurate)" in text for text in texts)
    assert any("1 costs are inaccurate" in text for text in texts)


# ------------------------------------------------------------------------------------ measured


def fused(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == "fused"]


def test_measured_seconds_take_the_place_of_static_ones() -> None:
    node = only(lambda x: x @ x, X)
    assert key_of(node) == "matmul(f32[8,8],f32[8,8]) -> f32[8,8]"
    cost = CostModel((CPU, OTHER), {key_of(node): {"unit": 3.5}})
    assert cost.compute(node, CPU) == cost.compute(node, OTHER) == 3.5
    assert CostModel((CPU,), {key_of(node): {"cpu": 3.5}}).compute(node, CPU) == 1124


def test_kernels_are_told_apart_by_what_they_compute() -> None:
    def kernel(function):
        run = gc.compile(function)
        return fused(run.stages(np.ones((8, 8), np.float32))[-1].value.graphs[0])[0]

    keys = {key_of(kernel(f)) for f in (np.tanh, np.exp, lambda x: np.tanh(x), np.tanh)}
    assert len(keys) == 2
    sums = [only(lambda x, axis=axis: x.sum(axis=axis), X, op="sum") for axis in (0, 1)]
    assert len(set(map(key_of, sums))) == 2


def test_the_table_holds_the_medians_of_what_was_measured(tmp_path) -> None:
    from graphc.frontend.files.loaded_graph import LoadedGraph

    graph = gc.compile(lambda x: np.tanh(x @ x) @ x).graph(gc.spec((256, 256), "f32"))
    built = LoadedGraph(graph, Config.create(threads=1)).build()
    x, path = np.ones((256, 256), np.float32), tmp_path / "costs.json"
    observed: dict[str, list[float]] = {}
    for _ in range(tuned.measured_runs + 3):
        found = observe(built, [x], rounds=1)
        store(found, path)
        for key, row in found.seconds.items():
            observed.setdefault(key, []).append(row["cpu"])
    cost = cost_model([parse_device("cpu:0")], Config.create(costs=str(path)))
    kernels = fused(built.program.graphs[0])
    assert len(kernels) == 2
    for node in kernels:
        seconds = cost.compute(node, parse_device("cpu:0"))
        assert seconds == pytest.approx(np.median(observed[key_of(node)][-tuned.measured_runs :]))
    plain = cost_model([parse_device("cpu:0")], Config.create())
    assert plain.measured == {}


def test_costs_are_medians_of_the_latest_runs(tmp_path) -> None:
    path, key = tmp_path / "costs.json", ("a", "cpu")
    rng = np.random.default_rng(0)
    for seconds in (9e-6, *(5e-6 * (1 + rng.exponential(0.05, 2 * tuned.measured_runs)))):
        store(of_runs({key: [float(seconds)]}), path)
    store(of_runs({key: [1.0] * 5}), path)  # five runs that something disturbed
    found = load(path)
    runs = found.runs["a"]["cpu"]
    assert runs.count == 2 * tuned.measured_runs + 6 and len(runs.latest) == tuned.measured_runs
    assert found.seconds["a"]["cpu"] == np.median(runs.latest) == pytest.approx(5e-6, rel=0.1)
    text = path.read_text()
    store(of_runs({}), path)
    assert path.read_text() == text
    store(Measured({}, {"a": {"cpu": 3e-6}}), path)  # what is given stands until there are runs
    assert load(path).seconds == {"a": {"cpu": 3e-6}} and not load(path).runs
    store(of_runs({key: [4e-6]}), path)
    assert load(path).seconds == {"a": {"cpu": 4e-6}} and load(path).runs["a"]["cpu"].count == 1


def test_a_profile_keeps_what_kernels_cost_and_placement_reads_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    x = np.ones((64, 64), np.float32)

    def f(x):
        return np.tanh(x @ x + 1) * 2

    found = gc.profile(gc.compile(f), x, runs=5)
    stored = load(tmp_path / "costs.json")
    assert stored.runs == found.runs and all(r["cpu"].count == 5 for r in found.runs.values())
    gc.profile(gc.compile(f), x, runs=2)
    assert all(r["cpu"].count == 7 for r in load(tmp_path / "costs.json").runs.values())
    two = {"devices": ["cpu:0", "cpu:1"], "costs": "measured"}
    (line,) = (line for line in reasons_of(f, x, **two) if "done at" in line)
    key = next(k for k in found.seconds if "matmul" in k and "tanh" in k)
    store(Measured({}, {key: {"cpu": 0.25}}), tmp_path / "costs.json")
    (later,) = (line for line in reasons_of(f, x, **two) if "done at" in line)
    assert "done at 250 ms" in later and later != line
    gc.compile(f).save(tmp_path / "f.gir", x)
    assert gc.profile(gc.load(tmp_path / "f.gir"), x, runs=1).seconds.keys() == found.seconds.keys()
    for bad in (lambda: gc.profile(f, x), lambda: gc.profile(gc.compile(f), x, runs=0)):
        with pytest.raises(GraphError, match=r"(?s)profile takes|runs must be.*test_cost.py"):
            bad()


def test_kernels_of_loops_are_profiled(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))

    def f(x):
        def body(_, c):
            with gc.device("cpu:1"):
                c = np.tanh(c @ c)
            with gc.device("cpu:0"):
                return np.exp(-c)

        return gc.fori(0, 3, body, x)

    found = gc.profile(gc.compile(f, devices=["cpu:0", "cpu:1"]), np.ones((32, 32), np.float32))
    text = str(sorted(found.seconds))
    assert "matmul(f32[32,32],f32[32,32])" in text and "exp(f32[32,32])" in text


def reasons_of(function: object, *arrays: object, **options: object) -> list[str]:
    records = gc.compile(function, **options).stages(*arrays)
    return [text for r in records if r.name == "place" for _, text in r.note.reasons]


def test_stored_costs_are_merged_and_read_back(tmp_path) -> None:
    path = tmp_path / "costs.json"
    kind = Kind("cpu", Rates(1e9, 2e9, 3e-7), Link(4e-6, 5e9))
    store(Measured({"cpu": kind}, {"a": {"cpu": 1e-6}}), path)
    store(Measured({}, {"a": {"gpu": 2e-6}, "b": {"cpu": 3e-6}}), path)
    found = load(path)
    assert found.kinds["cpu"] == kind
    assert found.seconds == {"a": {"cpu": 1e-6, "gpu": 2e-6}, "b": {"cpu": 3e-6}}
    cost = CostModel([parse_device("cpu:0")], found.seconds, found.kinds)
    assert cost.rates(parse_device("cpu:0")) == kind.rates


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", json.dumps({"format": 2, "devices": {}, "seconds": {}}),
     json.dumps({"format": 1, "devices": {"cpu": {"flops": -1}}, "seconds": {}}),
     json.dumps({"format": 1, "devices": {}, "seconds": {"a": {"cpu": "x"}}}),
     json.dumps({"format": 1, "devices": {}, "seconds": {"a": {"cpu": 10**400}}}), "[" * 100_000,
     json.dumps({"format": 1, "devices": {"cpu": dict.fromkeys(_FIELDS, 0)}, "seconds": {}}),
     json.dumps({"format": 1, "devices": {}, "seconds": {},
                 "runs": {"a": {"cpu": {"count": math.inf, "latest": [1.0]}}}}),
     json.dumps({"format": 1, "devices": {}, "seconds": {},
                 "runs": {"a": {"cpu": {"count": 1, "latest": []}}}})],
)  # fmt: skip
def test_damaged_files_are_errors_or_as_good_as_none(tmp_path, text) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(GraphError, match="cannot read measured costs"):
        load(path)
    assert load(path, missing=True).seconds == {}
    with pytest.raises(GraphError, match="cannot read measured costs"):
        load(tmp_path / "none.json")


def test_rates_of_types_that_another_program_registered_do_no_harm(tmp_path) -> None:
    path = tmp_path / "costs.json"
    kind = Kind("elsewhere", Rates(1e9, 2e9, 3e-7), Link(4e-6, 5e9))
    store(Measured({"elsewhere": kind}, {}), path)
    store(Measured({}, {"a": {"cpu": 1e-6}}), path)
    assert load(path).kinds == {"elsewhere": kind}
    x = np.ones(8, np.float32)
    np.testing.assert_array_equal(gc.compile(lambda x: x + 1, costs=str(path))(x), x + 1)


def test_links_that_no_machine_has_are_not_read(tmp_path: Path) -> None:
    cpu, file = kind_of("cpu"), tmp_path / "costs.json"
    rates, good = Rates(2e11, 1e10, 1e-6), Link(2e-6, 9e9)
    for link in (good, Link(1e-9, 9e9), Link(2e-6, 1e15), Link(0.0, 1e29)):
        store(Measured({"cpu": Kind("cpu", rates, link)}, {}, links={"worker": link}), file)
        found = load(file)
        assert found.links == ({"worker": link} if link is good else {})
        assert found.kinds["cpu"].rates == rates
        assert found.kinds["cpu"].link == (link if link is good else cpu.link)
