"""The arena over time: which value lies where, from which step to which."""

from __future__ import annotations

from typing import Any

from graphc.ir.graph import Graph, Program
from graphc.ir.liveness import arena_intervals, peak_bytes
from graphc.ir.place import Buffer
from graphc.viewer.rows import graphs_of


def memory(program: Graph | Program) -> list[dict[str, Any]]:
    """For each device of a planned program its arena's size, the number of steps, and
    [node, first step, last step, offset, bytes, 1 for workspace] of all that lies in it."""
    return [_arena(graph) for graph in graphs_of(program) if _is_planned(graph)]


def _arena(graph: Graph) -> dict[str, Any]:
    blocks = []
    for first, last, offset, nbytes, node in arena_intervals(graph):
        assert isinstance(node.place, Buffer)
        scratch = node.place.scratch
        is_scratch = node.op.traits.workspace or (
            scratch is not None and (scratch.offset, scratch.nbytes) == (offset, nbytes)
        )
        blocks.append(
            [node.id, first, min(last, len(graph.nodes)), offset, nbytes, int(is_scratch)]
        )
    return {
        "device": graph.device.short if graph.device is not None else "",
        "bytes": peak_bytes(graph),
        "steps": [node.id for node in graph.nodes],
        "blocks": blocks,
    }


def _is_planned(graph: Graph) -> bool:
    return all(isinstance(node.place, Buffer) for node in graph.nodes)
