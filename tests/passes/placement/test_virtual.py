"""Programs run on virtual clocks: the same ticks as the simulation, the same bits as ever."""

from __future__ import annotations

import random

import numpy as np
import pytest
from device_graphs import at_random, config, parted, shuffled
from effort import examples
from graphs import arguments, random_graphs
from hypothesis import given
from hypothesis import strategies as st
from schedule_cases import Drawn, Fixed, eight_transfers

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.channels import spanning
from graphc.ir.graph import Graph, Program
from graphc.ops.reference.interpreter import State, interpret
from graphc.passes import pipeline
from graphc.passes.devices.schedule import scheduled
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.simulate import Costs, simulate
from graphc.passes.placement.virtual import Executed, execute

MICRO = 1e-6
LINKS = ("pair", "parallel", "serial")


def agree(
    program: Program,
    arrays: list[np.ndarray],
    cost: Costs,
    links: str = "pair",
    state: State | None = None,
) -> Executed:
    """The executed program, after a comparison with its simulation without any tolerance."""
    found = execute(program, arrays, cost, links=links, state=dict(state or {}))
    said = simulate(program, cost, links=links, in_order=True)
    params = {node for graph in program.graphs for node in graph.params}
    assert found.start == {n: at for n, at in said.start.items() if n not in params}
    assert found.end == {n: at for n, at in said.end.items() if n not in params}
    assert found.makespan == said.makespan
    for got, want in zip(found.results, interpret(program, arrays, state=dict(state or {}))):
        np.testing.assert_array_equal(got, want)
    return found


@pytest.mark.slow
@examples(50)
@given(random_graphs(most=25), st.integers(0, 10**6), st.integers(2, 4), st.sampled_from(LINKS))
def test_random_programs_tick_as_they_are_simulated(
    graph: Graph, seed: int, devices: int, links: str
) -> None:
    program = parted(at_random(graph, seed, devices), devices)
    cost, arrays = Drawn(seed, devices), arguments(graph, seed)
    before = agree(program, arrays, cost, links)
    after = agree(scheduled(program, cost, links).program, arrays, cost, links)
    assert after.makespan <= before.makespan * (1 + 1e-9)
    agree(shuffled(program, random.Random(seed)), arrays, cost, links)
    agree(program, arrays, CostModel([g.device for g in program.graphs]), links)


@pytest.mark.parametrize("links", LINKS)
def test_eight_transfers_to_a_chain(links: str) -> None:
    program = eight_transfers()
    state = {("main", f"v{k}"): np.full(1024, k, np.float32) for k in range(8)}
    found = agree(program, [], Fixed(add=10), links, state)
    assert found.makespan == pytest.approx(85 * MICRO)
    np.testing.assert_array_equal(found.results[0], np.full(1024, 28, np.float32))


def test_variables_and_loops_of_one_device_run_on_its_clock() -> None:
    v = gc.Variable(np.ones(4, np.float32), name="on_the_clock")

    def f(x):
        with gc.device("cpu:1"):
            y = gc.fori(0, 3, lambda i, c: np.tanh(c) + v, x)
        v.assign(x * 2)
        return y + v

    x = np.arange(4, dtype=np.float32)
    graph = gc.compile(f, devices=["cpu:0", "cpu:1"]).graph(x)
    program = next(r.value for r in pipeline.run(graph, config()) if r.name == "partition")
    state = {("main", "on_the_clock"): np.ones(4, np.float32)}
    agree(program, [x], CostModel([g.device for g in program.graphs]), state=state)


def test_what_cannot_be_run_is_an_error() -> None:
    program = eight_transfers()
    here, there = program.graphs
    sends = [n for n in there.nodes if n.op.name == "send"]
    mute = there.replace(nodes=[n for n in there.nodes if n is not sends[0]])
    state = {("main", f"v{k}"): np.zeros(1024, np.float32) for k in range(8)}
    stuck = Program("stuck", (here, mute))
    with pytest.raises(GraphError, match=r"%\d+ waits forever for a value of another device"):
        execute(stuck, [], Fixed(add=10), state=state)
    with pytest.raises(GraphError, match="links are"):
        execute(program, [], Fixed(), links="many", state=state)


def chased(x):
    def body(i, c):
        with gc.device("cpu:1"):
            c = np.tanh(c)
        with gc.device("cpu:0"):
            return np.exp(c)

    return gc.fori(0, 3, body, x)


def until(x):
    def body(c):
        with gc.device("cpu:1"):
            c = c * 2
        with gc.device("cpu:0"):
            return c + 1

    return gc.while_loop(lambda c: c[0] < 100, body, x)


def chosen(x):
    def left(a):
        with gc.device("cpu:1"):
            a = np.tanh(a)
        with gc.device("cpu:0"):
            return a * 2

    return gc.cond(x[0] < 1, left, lambda a: a, x)


@pytest.mark.parametrize("function", [chased, until, chosen])
@pytest.mark.parametrize("links", LINKS)
def test_ops_that_span_devices_run_on_several_clocks(function, links: str) -> None:
    def f(x):
        with gc.device("cpu:1"):
            x = np.sin(x) + 1
        y = function(x)
        with gc.device("cpu:1"):
            z = np.cos(x)
        return y, z, function(y)

    x = np.linspace(0, 1, 4, dtype=np.float32)
    graph = gc.compile(f, devices=["cpu:0", "cpu:1"]).graph(x)
    stages = {r.name: r.value for r in pipeline.run(graph, config())}
    assert spanning(stages["partition"].graphs)
    for name in ("partition", "schedule"):
        program = stages[name]
        found = agree(program, [x], CostModel([g.device for g in program.graphs]), links)
        for parts in spanning(program.graphs).values():
            assert len({found.start[part] for part in parts}) == 1
