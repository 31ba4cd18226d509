"""Placement: the golden toy, constraints and their conflicts, the search, size."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from effort import rounds

import graphc as gc
from benchmarks.placement import gaps, random_problem, wide_graph
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir import verify
from graphc.ir.graph import Graph
from graphc.ir.op import OPS
from graphc.ir.place import Device, device_of, parse_device
from graphc.passes import pipeline
from graphc.passes.placement.assignment import assignments, evaluate, lower_bound
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.gap import brute_force, gap_of
from graphc.passes.placement.greedy import greedy
from graphc.passes.placement.improve import improve, local_search
from graphc.passes.placement.measured import Measured, store
from graphc.passes.placement.place import place
from graphc.passes.placement.simulate import simulate
from graphc.passes.reasons import collecting
from graphc.runtime.devices.registry import Link, Rates, register_device

MICRO = 1e-6
TWO = ["cpu:0", "cpu:1"]
X = gc.spec((64, 64), "f32")


def config(devices: list[str] = TWO, **options: object) -> Config:
    return Config.create(devices=devices, **options)


def devices_of(graph: Graph) -> dict[str, str]:
    """The device of each op (of the last node of that op)."""
    return {n.op.name: device_of(n.place).short for n in graph.nodes if n.place}


def stage(function: object, *specs: object, after: str = "place", **options: object) -> Any:
    """What a function is after a stage on two devices."""
    found = gc.compile(function, devices=TWO, **options).graph(*specs)
    for record in pipeline.STAGES:
        found = pipeline.apply(record, found, config(**options))
        if record.name == after:
            return found
    raise AssertionError(after)


# ------------------------------------------------------------------------------------ the toy

TOY = """gir 1
graph @toy(%0 x: f32[8]) {
  %1 = tanh(%0) : f32[8]
  %2 = exp(%1) : f32[8]
  return
}
"""
SECONDS = {
    "tanh(f32[8]) -> f32[8]": {"toycpu": 10 * MICRO, "toygpu": 2 * MICRO},
    "exp(f32[8]) -> f32[8]": {"toycpu": 1 * MICRO, "toygpu": 4 * MICRO},
}


@pytest.mark.parametrize(("transfer", "last", "makespan"), [(5, "toygpu:0", 6), (1, "toycpu:0", 4)])
@pytest.mark.parametrize("search", [0.0, 0.5])
def test_toy_of_the_white_paper(tmp_path, transfer, last, makespan, search) -> None:
    for name in ("toycpu", "toygpu"):
        register_device(name, Rates(1e12, 1e12, 0.0), Link(transfer * MICRO, 1e18))
    costs = tmp_path / "costs.json"
    store(Measured({}, SECONDS), costs)
    given = config(["toygpu:0", "toycpu:0"], costs=str(costs), opt=0, place_seconds=search)
    with collecting() as reasons:
        made = place(gc.parse(TOY), given)
    assert devices_of(made) == {"tanh": "toygpu:0", "exp": last}
    cost = CostModel(map(parse_device, given.devices), SECONDS)
    assert simulate(made, cost).makespan == pytest.approx(makespan * MICRO)
    first, second = (dict(reasons.lines)[k] for k in (1, 2))
    late = {5: "toycpu:0 8 us", 1: "toygpu:0 6 us"}[transfer]
    assert first == f"on toygpu:0, done at 2 us; rejected toycpu:0 {10 + transfer} us"
    assert second == f"on {last}, done at {makespan} us; rejected {late}"


# ------------------------------------------------------------------------------------ constraints


def test_device_blocks_constrain_what_is_traced_inside() -> None:
    def f(x):
        with gc.device("cpu:1"):
            y = np.tanh(x)
        return np.exp(y)

    graph = gc.compile(f, devices=TWO).graph(X)
    assert [str(n.place) for n in graph.nodes] == ["?/device:cpu:1", "None"]
    assert devices_of(stage(f, X))["tanh"] == "cpu:1"


def test_inner_blocks_add_to_outer_ones_and_none_lifts_them() -> None:
    def f(x):
        with gc.device("/job:localhost/device:cpu:1"):
            with gc.device("/task:3"):
                y = np.tanh(x)
            with gc.device("cpu:0"):
                y = np.exp(y)
            with gc.device(None):
                y = np.sin(y)
            return np.cos(y)

    places = {n.op.name: str(n.place) for n in gc.compile(f).graph(X).nodes}
    assert places == {
        "tanh": "?/job:localhost/task:3/device:cpu:1",
        "exp": "?/job:localhost/device:cpu:0",
        "sin": "None",
        "cos": "?/job:localhost/device:cpu:1",
    }


def test_three_forms_of_the_white_paper() -> None:
    weights = gc.Variable(np.ones((64, 64), np.float32), name="variable13")
    devices = ["cpu:0", "/job:worker/task:17/device:cpu:2", "sim:3"]

    def f(x):
        with gc.device("sim"):
            x = np.tanh(x)
        with gc.device("/job:worker/task:17"):
            x = np.exp(x)
            y = x @ weights
        with gc.colocate(weights):
            return np.sin(x) + np.sum(y)

    graph = gc.compile(f, devices=devices, opt=0).graph(X)
    placed = place(graph, config(devices, opt=0))
    found = {n.op.name: str(n.place) for n in placed.nodes}
    assert found["tanh"] == "/job:localhost/device:sim:3"
    assert found["exp"] == found["matmul"] == "/job:worker/task:17/device:cpu:2"
    assert found["sin"] == found["read"] == found["add"]


def test_conflicts_name_both_nodes_both_constraints_and_both_lines() -> None:
    def f(x):
        with gc.device("cpu:0"):
            a = np.tanh(x)
        with gc.device("cpu:1"):
            b = np.exp(x)
        gc.colocate(a, b)
        return a + b

    with pytest.raises(GraphError) as caught:
        stage(f, X)
    text = str(caught.value)
    first = f.__code__.co_firstlineno
    assert "%1 must run on /device:cpu:0 and %2 on /device:cpu:1" in text
    assert "'g0'" in text
    for node, spec, line in (("tanh", "cpu:0", 2), ("exp", "cpu:1", 4)):
        (shown,) = (t for t in text.split("\n") if f"{node}(%0)" in t)
        assert f"/device:{spec}" in shown and f"test_place.py:{first + line}" in shown
    assert devices_of(stage(f, X, soft_placement=True)).keys() >= {"tanh", "exp"}


def test_colocation_goes_through_chains_and_groups_that_meet() -> None:
    def f(x):
        a, b, c, d = np.tanh(x), np.exp(x), np.sin(x), np.cos(x)
        gc.colocate(a, b)
        gc.colocate(c, d)
        gc.colocate(b, [c])
        with gc.device("cpu:1"):
            e = d + 1
        gc.colocate(d, e)
        return a @ b @ c @ e

    found = devices_of(stage(f, X))
    assert {found[name] for name in ("tanh", "exp", "sin", "cos", "add")} == {"cpu:1"}


@pytest.mark.parametrize("devices", [["cpu:0"], TWO])
def test_unavailable_devices_are_errors_unless_placement_is_soft(devices: list[str]) -> None:
    def f(x):
        with gc.device("gpu"):
            return np.tanh(x)

    graph = gc.compile(f).graph(X)
    with pytest.raises(GraphError, match=r"%1 must run on /device:gpu, but the device list"):
        place(graph, config(devices))
    with collecting() as reasons:
        place(graph, config(devices, soft_placement=True))
    assert any("soft placement" in text for _, text in reasons.lines)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (["cpu:0", "npu:0"], "no device of type 'npu'"),
        (["cpu:0", "cpu:64"], "no device cpu:64"),
        (["cpu:0", "cpu:0"], "twice"),
    ],
)
def test_device_lists_are_checked(devices: list[str], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        place(gc.compile(np.tanh).graph(X), config(devices))


def test_names_that_are_no_devices_are_errors_with_the_line() -> None:
    def f(x):
        with gc.device("cpu 1"):
            return np.tanh(x)

    with pytest.raises(GraphError, match=r"(?s)'cpu 1' is not a device name.*test_place.py"):
        gc.compile(f).graph(X)


def test_constraints_from_text_are_obeyed() -> None:
    text = gc.show(gc.compile(lambda x: np.exp(np.tanh(x))).graph(X), locations=False)
    text = text.replace("tanh(%0) : f32[64,64]", "tanh(%0) : f32[64,64] @?/device:cpu:1~pair")
    text = text.replace("exp(%1) : f32[64,64]", "exp(%1) : f32[64,64] @?~pair")
    assert gc.show(gc.parse(text)) == text
    assert set(devices_of(place(gc.parse(text), config())).values()) == {"cpu:1"}


# ------------------------------------------------------------------------------------ the rest


def test_gradients_run_where_their_forward_nodes_do() -> None:
    def f(x):
        with gc.device("cpu:1"):
            y = np.tanh(x)
        return np.sum(np.exp(y))

    placed = stage(gc.grad(f), X)
    homes = {n.op.name: device_of(n.place).short for n in placed.nodes if n.loc}
    assert homes["tanh"] == "cpu:1"
    line = next(n.loc for n in placed.nodes if n.op.name == "tanh")
    assert {device_of(n.place).short for n in placed.nodes if n.loc == line} == {"cpu:1"}


def test_loops_whose_layers_are_constrained_apart_have_no_place_of_their_own() -> None:
    def f(x):
        def body(carry, _):
            a, b = carry
            with gc.device("cpu:0"):
                a = np.tanh(a @ a)
            with gc.device("cpu:1"):
                b = np.tanh(a @ b)
            return (a, b), np.sum(b)

        (_, b), sums = gc.scan(body, (x, x), np.arange(4))
        return b, sums

    placed = stage(f, X)
    (scan,) = (n for n in placed.nodes if n.op.name == "scan")
    assert scan.place is None
    inside = [device_of(n.place).short for n in scan.regions[0].nodes if n.op.name == "matmul"]
    assert inside == ["cpu:0", "cpu:1"]
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
    check_stages(f, x)


def check_stages(function: object, *arrays: np.ndarray) -> None:
    """Every stage up to schedule gives the reference's result, prints and parses."""
    from graphc.ops.reference.interpreter import interpret

    graph = gc.compile(function, devices=TWO).graph(*arrays)
    wanted = interpret(graph, arrays)
    for record in pipeline.STAGES:
        graph = pipeline.apply(record, graph, config())
        assert gc.show(gc.parse(gc.show(graph))) == gc.show(graph)
        for made, want in zip(interpret(graph, arrays), wanted, strict=True):
            np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)
        if record.name == "schedule":
            return


@pytest.mark.slow
def test_every_stage_runs_in_the_reference_interpreter() -> None:
    def f(x, w):
        left, right = np.tanh(x @ w), np.sin(x @ w.T * 2)
        return (left @ right.T).sum(1), right[0]

    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((256, 256)).astype(np.float32) / 16 for _ in range(2)]
    check_stages(f, *arrays)


def test_views_and_constants_are_made_where_they_are_read() -> None:
    big = np.ones((64, 64), np.float32)

    def f(x):
        with gc.device("cpu:1"):
            a = np.tanh(x.T @ big)
        with gc.device("cpu:0"):
            b = np.tanh(x.T @ big)
        with gc.device("cpu:1"):
            return a + b

    placed = stage(f, X)
    views = [device_of(n.place).short for n in placed.nodes if n.op.name == "transpose"]
    assert sorted(views) == TWO
    cost = CostModel(map(parse_device, TWO))
    moved = [(t.node.op.name, t.target.short) for t in simulate(placed, cost).transfers]
    assert sorted(moved) == [("add", "cpu:0"), ("param", "cpu:1"), ("tanh", "cpu:1")]


def test_independent_branches_are_spread_and_small_ones_are_not() -> None:
    def f(x, w):
        left, right = x, x
        for _ in range(6):
            left, right = np.tanh(left @ w), np.sin(right @ w)
        return left + right

    large, small = gc.spec((512, 512), "f32"), gc.spec((8, 8), "f32")
    used = {device_of(n.place).short for n in stage(f, large, large).nodes}
    assert used == set(TWO)
    assert {device_of(n.place).short for n in stage(f, small, small).nodes} == {"cpu:0"}


# ------------------------------------------------------------------------------------ the search


@pytest.mark.slow
def test_search_is_within_five_percent_of_brute_force() -> None:
    count = rounds(150)
    rows = list(gaps(seed=1, count=count))
    first, searched, used, bound = zip(*rows)
    assert max(searched) <= 0.05 and max(used) <= 0.05
    assert sum(searched) / count < 0.001 < sum(first) / count
    assert max(bound) <= 1e-9 and min(*first, *searched, *used) >= -1e-9


def test_search_gives_the_same_placement_every_time() -> None:
    draw = random.Random(5)
    problem = random_problem(draw)
    first = evaluate(problem, greedy(problem)[0])
    found = [local_search(problem, first, 1.0).where for _ in range(2)]
    assert found[0] == found[1]


def test_gaps_are_told_against_the_best_or_a_bound() -> None:
    problem = random_problem(random.Random(9))
    run = improve(problem, evaluate(problem, greedy(problem)[0]), 1.0)
    assert gap_of(problem, run).exact
    assert gap_of(problem, run).best == brute_force(problem).makespan
    loose = gap_of(problem, run, tasks=1)
    assert not loose.exact and loose.best == lower_bound(problem) <= run.makespan
    assert assignments(problem) > 1


@pytest.mark.slow
def test_large_graphs_are_spread_over_all_devices() -> None:
    given = config([f"sim:{k}" for k in range(8)], place_seconds=0.2)
    assert len({n.place for n in place(wide_graph(6_000), given).nodes}) == 8


def test_one_device_takes_the_short_way() -> None:
    graph = wide_graph(6_000)
    given = config(["cpu:1"])
    placed = place(graph, given)
    assert {n.place for n in placed.nodes} == {Device("localhost", None, "cpu", 1)}
    assert [n.id for n in placed.nodes] == [n.id for n in graph.nodes]
    assert placed.nodes[0].op in OPS.values()


def test_chains_of_views_are_copied_to_every_device_that_reads_them() -> None:
    def f(x):
        view = x.T.reshape(32, 128)
        with gc.device("cpu:1"):
            left = np.tanh(view)
        with gc.device("cpu:0"):
            right = np.exp(view)
        return left.sum() + right.sum()

    placed = stage(f, X)
    verify.verify(placed)
    homes = [(n.op.name, device_of(n.place).short) for n in placed.nodes]
    for op in ("transpose", "reshape"):
        assert sorted(home for name, home in homes if name == op) == TWO
    x = np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096
    check_stages(f, x)
