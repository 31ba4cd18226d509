"""The event simulator: golden timelines, waits, memory, order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.op import OPS
from graphc.ir.place import parse_device
from graphc.passes.devices.partition import partition
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.events import NEVER, NO_RESOURCE, Tasks, run
from graphc.passes.placement.place import place
from graphc.passes.placement.simulate import simulate
from graphc.passes.placement.timeline import Timeline

MICRO = 1e-6
CPU0, CPU1 = parse_device("cpu:0"), parse_device("cpu:1")


class Fixed(CostModel):
    """Every node of an op takes so many microseconds, every transfer five."""

    def __init__(self, **seconds: float) -> None:
        super().__init__((CPU0, CPU1))
        self.given = seconds

    def compute(self, node, device):
        return self.given.get(node.op.name, 0.0) * MICRO

    def transfer(self, kind, source, target):
        return 5 * MICRO


def eight_transfers() -> Any:
    """G4: eight values of cpu:0, read one by one by a chain on cpu:1."""
    lines = ["gir 1", "graph @g(%0 x: f32[1024] @/job:localhost/device:cpu:0) {"]
    lines += [f"  %{k + 1} = tanh(%0) : f32[1024] @/job:localhost/device:cpu:0" for k in range(8)]
    for k in range(8):
        left = f"%{k + 8}" if k else "%1"
        lines.append(f"  %{k + 9} = add({left}, %{k + 1}) : f32[1024] @/job:localhost/device:cpu:1")
    return gc.parse("\n".join([*lines, "  return %16", "}"]))


def microseconds(timeline: Timeline) -> float:
    return round(timeline.makespan / MICRO, 6)


@pytest.mark.parametrize(("links", "buffers"), [("parallel", 8), ("pair", 5), ("serial", 5)])
def test_eight_transfers_to_a_chain(links: str, buffers: int) -> None:
    found = simulate(eight_transfers(), Fixed(add=10), links=links, returns=False)
    assert microseconds(found) == 85
    assert found.received[CPU1] == buffers
    assert found.busy(CPU1) == pytest.approx(80 * MICRO)
    assert len(found.transfers) == 8
    (wait,) = found.waits()
    assert (wait.device, wait.source, wait.cause.op.name) == (CPU1, CPU0, "tanh")


def test_results_come_home_unless_the_caller_keeps_them() -> None:
    graph = eight_transfers()
    cost = Fixed(add=10)
    home = simulate(graph, cost, links="parallel")
    assert microseconds(home) == 90
    assert home.transfers[-1].target == CPU0 and home.transfers[-1].nbytes == 4096


def test_a_value_travels_once_for_each_device() -> None:
    text = """gir 1
graph @g(%0 x: f32[8] @/job:localhost/device:cpu:0) {
  %1 = tanh(%0) : f32[8] @/job:localhost/device:cpu:0
  %2 = exp(%1) : f32[8] @/job:localhost/device:cpu:1
  %3 = sin(%1) : f32[8] @/job:localhost/device:cpu:1 after %1
  %4 = cos(%1) : f32[8] @/job:localhost/device:cpu:0
  return %4
}
"""
    found = simulate(gc.parse(text), Fixed(tanh=1, exp=2, sin=3, cos=4))
    assert [(t.node.id, t.target) for t in found.transfers] == [(1, CPU1)]
    assert microseconds(found) == 11  # 1 + 5 for the transfer, then 2 and 3 on one device
    assert [n.op.name for n in found.nodes[CPU1]] == ["exp", "sin"]


def test_programs_of_a_graph_take_as_long_as_the_graph() -> None:
    graph = eight_transfers()
    program = partition(graph, Config.create(devices=["cpu:0", "cpu:1"]))
    cost = Fixed(add=10, tanh=1)
    for links in ("pair", "parallel", "serial"):
        whole, parts = (simulate(value, cost, links=links) for value in (graph, program))
        assert parts.makespan == pytest.approx(whole.makespan)
        assert len(parts.transfers) == len(whole.transfers) == 9
        assert all(t.recv is not None for t in parts.transfers)
        assert parts.received == whole.received


def test_in_order_devices_wait_where_the_order_says() -> None:
    text = """gir 1
graph @g(%0 x: f32[8] @/job:localhost/device:cpu:0) {
  %1 = tanh(%0) : f32[8] @/job:localhost/device:cpu:1
  %2 = exp(%1) : f32[8] @/job:localhost/device:cpu:0
  %3 = sin(%0) : f32[8] @/job:localhost/device:cpu:0
  return %2, %3
}
"""
    cost = Fixed(tanh=10, exp=1, sin=7)
    assert microseconds(simulate(gc.parse(text), cost)) == 21
    late = simulate(gc.parse(text), cost, in_order=True)
    assert microseconds(late) == 28
    (wait,) = (w for w in late.waits() if w.device == CPU0)
    assert (wait.start, wait.source, wait.cause.op.name) == (0.0, CPU1, "tanh")


def test_live_bytes_count_what_is_held_and_what_waits_to_leave() -> None:
    text = """gir 1
graph @g(%0 x: f32[256] @/job:localhost/device:cpu:0) {
  %1 = tanh(%0) : f32[256] @/job:localhost/device:cpu:0
  %2 = reshape(%1) {dims=[16,16]} : f32[16,16] @/job:localhost/device:cpu:0
  %3 = exp(%2) : f32[16,16] @/job:localhost/device:cpu:1
  %4 = sin(%3) : f32[16,16] @/job:localhost/device:cpu:1
  return %4
}
"""
    found = simulate(gc.parse(text), Fixed(tanh=1, exp=1, sin=1), returns=False)
    assert found.peak == {CPU0: 1024, CPU1: 2048}
    assert found.received == {CPU1: 1}


def test_guessed_costs_are_listed() -> None:
    def f(x):
        return gc.while_loop(lambda v: np.sum(v) < 10, lambda v: v + 1, x)

    graph = place(gc.compile(f).graph(np.ones(4, np.float32)), Config.create())
    found = simulate(graph, CostModel((CPU0,)))
    assert not found.exact
    assert "while" in [n.op.name for n in found.inaccurate]


def test_nodes_without_a_place_and_messages_without_a_sender_are_errors() -> None:
    with pytest.raises(GraphError, match="%0 has no device"):
        simulate(gc.compile(np.tanh).graph(gc.spec((4,), "f32")), Fixed())
    with pytest.raises(GraphError, match="links are"):
        simulate(eight_transfers(), Fixed(), links="many")
    recv = OPS["recv"]
    attrs = recv.coerce({"channel": "c0", "from": str(CPU0), "type": None})
    node = Node(0, recv, (), attrs, recv.result_type((), attrs), place=CPU1)
    program = Program("p", (Graph("p", (), [node], (), device=CPU1),))
    with pytest.raises(GraphError, match="no send belongs to a recv"):
        simulate(program, Fixed())


def test_tasks_in_a_circle_never_start() -> None:
    tasks = Tasks()
    free, first, second = tasks.add(2.0), tasks.add(1.0, 0), tasks.add(1.0, NO_RESOURCE)
    tasks.edge(first, second)
    tasks.edge(second, first)
    start, end = run(tasks)
    assert (start[free], end[free]) == (0.0, 2.0)
    assert start[first] == start[second] == end[first] == NEVER


def test_a_busy_resource_takes_the_first_task_that_is_ready() -> None:
    tasks = Tasks()
    blocker = tasks.add(3.0, 0)
    late, early = tasks.add(1.0, 0), tasks.add(1.0, 0)
    trigger = tasks.add(2.0, 1)
    tasks.edge(trigger, late)
    start, end = run(tasks)
    assert [start[blocker], start[late], start[early]] == [0.0, 3.0, 4.0]
    assert max(end) == 5.0
