"""Recv scheduling: golden numbers, never slower, less memory, a reason for each decision."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from device_graphs import CPUS, at_random, checked, config, count, parted, same, spread, traced
from device_programs import branch, loop
from effort import examples
from graphs import arguments, random_graphs
from hypothesis import given
from hypothesis import strategies as st
from schedule_cases import HERE, MICRO, THERE, Drawn, Fixed, eight_transfers

import graphc as gc
from graphc.ir.channels import spanning
from graphc.ir.graph import Graph, Node, Program, Rewriter, rebuild
from graphc.ir.parse import parse
from graphc.ir.rewrites import counting
from graphc.ir.text import show
from graphc.passes import pipeline
from graphc.passes.devices.recv_slack import holds, windows
from graphc.passes.devices.schedule import explanation, scheduled
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.simulate import simulate
from graphc.passes.reasons import duration

X = np.linspace(-2, 2, 4, dtype=np.float32)


@pytest.mark.parametrize(("links", "buffers"), [("parallel", 8), ("pair", 5), ("serial", 5)])
def test_eight_transfers_to_a_chain(links: str, buffers: int) -> None:
    """G4: the peak of received buffers falls from 8 (5 on one link) to 2, the makespan stays."""
    program = eight_transfers()
    free = simulate(program, Fixed(add=10), links=links)
    plan = scheduled(program, Fixed(add=10), links)
    assert free.received[CPUS[0]] == buffers
    assert plan.before.received[CPUS[0]] == buffers
    assert plan.after.received[CPUS[0]] == 2
    for timeline in (free, plan.before, plan.after):
        assert timeline.makespan == pytest.approx(85 * MICRO)
    assert simulate(plan.program, Fixed(add=10), links=links).makespan == pytest.approx(85 * MICRO)
    assert len(plan.taken) == 6
    assert "6 of 8 recvs held back; makespan 85 us -> 85 us" in plan.summary()
    checked(plan.program)
    state = {("main", f"v{k}"): np.full(1024, k, np.float32) for k in range(8)}
    same(program, plan.program, [], state=state)


def test_a_schedule_can_be_stopped_at_any_rewrite() -> None:
    """Devices reordered first, then recvs held back: each is a rewrite with an ordinal."""
    program, cost = eight_transfers(), Fixed(add=10)
    state = {("main", f"v{k}"): np.full(1024, k, np.float32) for k in range(8)}
    with counting() as rewrites:
        whole = scheduled(program, cost)
    assert [n.op.name for n in rewrites.nodes if n.op.name == "recv"] == ["recv"] * 6
    moved = len(rewrites.nodes) - 6
    for limit in range(len(rewrites.nodes) + 1):
        with counting(limit):
            plan = scheduled(program, cost)
        kept = rewrites.nodes[moved:limit]
        assert [hold.window.recv.id for hold in plan.taken] == [recv.id for recv in kept]
        checked(plan.program)
        same(program, plan.program, [], state=state)
    assert show(plan.program) == show(whole.program)


def test_no_kernel_holds_what_a_recv_waits_for_and_what_reads_it() -> None:
    plan = scheduled(eight_transfers(), Fixed(add=10))
    records = pipeline.run(plan.program, config(verify=3), after="schedule")
    fused = next(r.value for r in records if r.name == "fuse")
    assert sum(len(n.after) for n in fused.graphs[0].nodes if n.op.name == "recv") == 6
    state = {("main", f"v{k}"): np.full(1024, k, np.float32) for k in range(8)}
    same(plan.program, fused, [], state=state)


def test_a_kernel_does_not_wait_for_what_only_its_reader_needs() -> None:
    """A product is not fused with the sum of it and what another device computes meanwhile."""

    def f(x, w, v):
        with gc.device("cpu:0"):
            a = np.tanh(x @ w)
        with gc.device("cpu:1"):
            b = np.tanh(x @ v)
        with gc.device("cpu:0"):
            return a + b

    square = gc.spec((64, 64), "f32")
    stages = gc.compile(f, devices=["cpu:0", "cpu:1"]).stages(square, square, square)
    fused = next(value for name, value, _, _ in stages if name == "fuse")
    order = [n.attrs.get("kind", n.op.name) for n in fused.graphs[0].nodes]
    assert order == ["send", "send", "contract", "recv", "loop"]


def test_no_recv_waits_for_a_view() -> None:
    """Views are made where they are read; here they cost time, so that they end in the windows."""
    held = 0
    for seed in range(8):

        def f(x, seed=seed):
            draw, values = random.Random(seed), [x, np.sin(x)]
            for _ in range(20):
                a, b = draw.choice(values[-6:]), draw.choice(values[-6:])
                values.append(draw.choice((a.T, a.reshape(16).reshape(4, 4), a * b, np.tanh(a))))
            return values[-1] + values[-2]

        graph = traced(f, np.ones((4, 4), "f4"))
        plan = scheduled(parted(at_random(graph, seed, 3), 3), Drawn(seed, 3))
        waited = {n.op.name for g in plan.program.graphs for r in g.nodes for n in r.after}
        held += len(plan.taken)
        assert not waited & {"transpose", "reshape"}
        pipeline.run(plan.program, config(3, verify=3), after="schedule")
    assert held


def test_no_slack_no_delay() -> None:
    """A chain that crosses at every node leaves nothing to hold back."""
    graph = traced(lambda x: np.tanh(np.sin(np.tanh(np.sin(x)))), X)
    program = parted(spread(graph, lambda n: CPUS[n.op.name == "tanh"]))
    plan = scheduled(program, Fixed(sin=10, tanh=10))
    assert all(window.slack == 0 for window in windows(program, plan.before))
    assert plan.taken == []
    assert plan.program is program
    assert all("begins at once" in explanation(hold, False) for hold in plan.holds)


def test_the_analysis_edits_nothing() -> None:
    program = eight_transfers()
    timeline = simulate(program, Fixed(add=10), in_order=True)
    texts = [graph.nodes.copy() for graph in program.graphs]
    found = holds(program, timeline, windows(program, timeline))
    assert texts == [graph.nodes for graph in program.graphs]
    assert sum(hold.kernel is not None for hold in found) == 6


def late_first() -> Program:
    """cpu:1 stands before a value that comes late, though it has other work."""
    lines = (
        f"%1 = tanh(%0) : f32[4] {HERE}",
        f"%2 = sin(%1) : f32[4] {THERE}",
        f"%3 = cos(%0) : f32[4] {THERE}",
        f"%4 = add(%2, %3) : f32[4] {THERE}",
    )
    graph = parse("graph @g(%0 x: f32[4]) {\n" + "\n".join(lines) + "\nreturn %4\n}\n")
    assert isinstance(graph, Graph)
    return parted(graph)


def test_what_is_ready_first_is_issued_first() -> None:
    program = late_first()
    plan = scheduled(program, Fixed(tanh=50, sin=10, cos=40))
    assert plan.before.makespan == pytest.approx((50 + 5 + 10 + 40 + 5) * MICRO)
    assert plan.after.makespan == pytest.approx((50 + 5 + 10 + 5) * MICRO)
    order = [n.op.name for n in plan.program.graphs[1].nodes]
    assert order.index("cos") < order.index("sin")
    same(program, plan.program, [X])


@examples(27)
@given(
    random_graphs(most=25),
    st.integers(0, 10**6),
    st.integers(2, 4),
    st.sampled_from(("pair", "parallel", "serial")),
)
def test_never_slower_never_more_memory_never_stuck(
    graph: Graph, seed: int, devices: int, links: str
) -> None:
    program = parted(at_random(graph, seed, devices), devices)
    cost = Drawn(seed, devices)
    plan = scheduled(program, cost, links)
    checked(plan.program)
    before = simulate(program, cost, links=links, in_order=True)
    after = simulate(plan.program, cost, links=links, in_order=True)
    assert after.makespan <= before.makespan * (1 + 1e-9)
    free = plan.program.map(without_after)
    loose = simulate(free, cost, links=links, in_order=True)
    assert sum(after.peak.values()) <= sum(loose.peak.values())
    same(program, plan.program, arguments(graph, seed))


def without_after(graph: Graph) -> Graph:
    """The graph with nothing that holds its recvs back."""
    return rebuild(graph, lambda node, r: released(node, r) if node.op.name == "recv" else None)


def released(node: Node, r: Rewriter) -> Node:
    made = node.replace(after=())
    r.nodes.append(made)
    return made


def test_loops_over_devices_are_ordered_and_stay_alive() -> None:
    def f(x, y):
        return (*branch(*loop(x, y)), np.sin(x))

    graph = traced(f, X, X + 3)
    for seed in range(12):
        program = parted(at_random(graph, seed, 3), 3)
        plan = scheduled(program, CostModel(CPUS[:3]))
        checked(plan.program)
        assert len(plan.inside) == sum(len(n.regions) for n in first_parts(program))
        assert plan.after.makespan <= plan.before.makespan * (1 + 1e-9)
        same(program, plan.program, [X, X + 3])


def first_parts(program: Program) -> list[Node]:
    """One part of each op that spans devices."""
    parts = spanning(program.graphs).values()
    return [found[0] for found in {id(found): found for found in parts}.values()]


def test_a_loop_body_is_issued_by_what_is_ready() -> None:
    def f(x):
        def body(i, s):
            a, b = s
            far = np.tanh(a)
            return np.sin(far) * b, np.cos(b)

        return gc.fori(0, 9, body, gc.fori(0, 9, body, (x, x)))

    graph = traced(f, X)
    program = parted(spread(graph, lambda n: CPUS[n.op.name != "tanh"]))
    cost = Fixed(tanh=50, sin=10, cos=40, mul=1)
    plan = scheduled(program, cost)
    for _, body in plan.inside:
        assert body.before.makespan == pytest.approx((5 + 50 + 5 + 10 + 1 + 40) * MICRO)
        assert body.after.makespan == pytest.approx((5 + 50 + 5 + 10 + 1) * MICRO)
    # the second loop reads the first: its parts are other nodes once those of the first are
    assert plan.before.makespan - plan.after.makespan == pytest.approx(2 * 9 * 40 * MICRO)
    same(program, plan.program, [X])


def test_every_stage_prints_parses_runs_and_says_why() -> None:
    graph = traced(lambda x: np.tanh(x @ x.T).sum(0) * np.sin(x)[:, 0], np.ones((4, 4), "f4"))
    given = at_random(graph, 4, 2)
    records = pipeline.run(given, config(verify=3, compress=True), after="place")
    value = np.arange(16, dtype=np.float32).reshape(4, 4) / 8
    named = {r.name: r for r in records}
    same(given, named["partition"].value, [value])
    same(named["compress"].value, named["schedule"].value, [value])
    note = named["schedule"].note
    assert "recvs held back; makespan" in note and "peak live bytes cpu:0" in note
    assert len(note.reasons) == count(named["partition"].value, "recv")


def test_one_device_is_left_alone() -> None:
    graph = traced(np.tanh, X)
    program = Program("g", (graph,))
    stage = pipeline.STAGES[pipeline.stage_named("schedule")]
    assert pipeline.apply(stage, program, config(1)) is program
    assert pipeline.apply(stage, graph, config(1)) is graph


def test_place_and_schedule_speak_of_one_makespan() -> None:
    x, w = np.ones((64, 256), np.float32), np.ones((256, 256), np.float32)

    def f(x, w):
        with gc.device("cpu:0"):
            a = np.tanh(x @ w + 1) * x
        with gc.device("cpu:1"):
            b = np.exp(a @ w) + a
            return b / b.sum(axis=1, keepdims=True)

    notes = {r.name: r.note for r in gc.compile(f, devices=["cpu:0", "cpu:1"]).stages(x, w)}
    (placed,) = (text for _, text in notes["place"].reasons if text.startswith("makespan"))
    found = re.search(r"makespan (\S+ \ws) -> (\S+ \ws);", notes["schedule"])
    assert found and placed.startswith(f"makespan {found[2]}, ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 us"),
        (2.1e-22, "0 us"),
        (8e-6, "8 us"),
        (0.0130312, "13.03 ms"),
        (1.5, "1.5 s"),
        (86400, "86,400 s"),
    ],
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text
