"""vmap: a function on one slice becomes the same function on all slices at once, innermost first.

    vmap(x[8,3], w[3]) { mul(x[3], w[3]) }      ->      mul(x[8,3], w[3])

What an op becomes stands in its record; `ops/batching/batch_region.py` walks a region.  A
gradient inside is expanded by `gradient` before, unless a loop of unknown length is in it.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.op import OPS
from graphc.ir.types import TupleType
from graphc.ops.batching.vmap import batched
from graphc.ops.record.value import Trace, tracing
from graphc.passes.reasons import explain


def vmap(graph: Graph, config: Config) -> Graph:
    """The graph without `vmap` nodes but those around a gradient that comes first.

    Raises GraphError, with the user's line, where an op cannot differ from slice to slice.
    """
    if not any(node.regions for node in graph.nodes):
        return graph

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = map_regions(node, lambda region: vmap(region, config))
        if made.op.traits.lanes and not waits(made.regions[0]):
            return expanded(made, r)
        if made is node:
            return None
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite)


def waits(region: Graph) -> bool:
    """Is there a gradient in it that is to be expanded first?"""
    return any(
        any(map(waits, node.regions))
        or (node.op.traits.asks_gradient and "tested" not in node.regions[0].traits)
        for node in region.nodes
    )


def expanded(node: Node, r: Rewriter) -> Node:
    trace = Trace(r)
    attrs = node.attrs.values_dict
    with tracing(trace):
        values = [trace.wrap(source) for source in node.inputs]
        try:
            made = batched(trace, node.regions[0], values, note=explain_lane, **attrs)
        except GraphError as error:
            raise error.at(node.loc) from None
    results = [value.node for value in made]
    return r.emit(OPS["tuple"], results) if isinstance(node.type, TupleType) else results[0]


def explain_lane(made: Node, lane: Node) -> None:
    """Note which node of one lane a node comes from."""
    in_turn = made.op.traits.counted and not lane.op.traits.counted
    how = "lane by lane, in a loop" if in_turn else "for all lanes"
    explain(made.id, f"%{lane.id}, {lane.op.name}, {how}")
