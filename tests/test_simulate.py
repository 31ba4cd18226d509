"""The event simulator: golden timelines, waits, memory, order."""

from __future__ import annotations

import pytest

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.graph import Graph
from graphc.ir.place import parse_device
from graphc.passes.cost import CostModel
from graphc.passes.events import NEVER, NO_RESOURCE, Tasks, run
from graphc.passes.simulate import simulate
from graphc.passes.timeline import Timeline

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


def eight_transfers() -> Graph:
    """G4: eight values of cpu:0, read one by one by a chain on cpu:1."""
    lines = ["gir 1", "graph @g(%0 x: f32[1024] @/job:localhost/device:cpu:0) {"]
    for k in range(8):
        lines.append(f"  %{k + 1} = tanh(%0) : f32[1024] @/job:localhost/device:cpu:0")
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
