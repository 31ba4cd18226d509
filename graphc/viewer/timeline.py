"""When everything runs: as the cost model simulates it, and as a traced run measured it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.errors import GraphError
from graphc.ir.graph import Graph, Program
from graphc.passes.placement.cost import CostModel
from graphc.passes.placement.simulate import simulate
from graphc.viewer.called import called_nodes

if TYPE_CHECKING:
    from graphc.runtime.observe.trace import Trace

MOST_EVENTS = 200_000


def simulated(program: Graph | Program, costs: CostModel) -> dict[str, Any]:
    """The simulated run: [device, start, end, node] of what keeps a device busy, and
    [source, target, start, end, node, bytes] of every message; seconds."""
    try:
        found = simulate(program, costs, in_order=True)
    except GraphError:  # a cost that cannot be known
        return {}
    numbers = {device: number for number, device in enumerate(costs.devices)}
    events = [
        [numbers[device], found.start[node], found.end[node], node.id]
        for device, nodes in found.nodes.items()
        for node in nodes
    ]
    messages = [
        [numbers[t.source], numbers[t.target], t.start, t.end, (t.recv or t.node).id, t.nbytes]
        for t in found.transfers
    ]
    return {
        "devices": [device.short for device in costs.devices],
        "events": events[:MOST_EVENTS],
        "messages": messages[:MOST_EVENTS],
        "seconds": found.makespan,
        "guessed": len(found.inaccurate),
    }


def measured(run: Trace, program: Graph | Program) -> dict[str, Any]:
    """A traced run: [device, kind, start, end, node, what] of every event; a node is its
    id, behind those of the loops that it is inside of, or -1 for none."""
    paths = {key: called.path for key, called in called_nodes(program).items()}
    events = [
        [
            event.device,
            event.kind,
            event.start,
            event.end,
            paths.get((run.devices[event.device], event.origin), -1) if event.origin else -1,
            event.name,
        ]
        for event in run.events[:MOST_EVENTS]
    ]
    return {"devices": run.devices, "events": events, "seconds": run.seconds}
