"""flatten: where the data decides sizes, regions that run once become nodes of the graph.

    %1, %2 = call(%0) { nonzero ... count }  mark count.n = %2       ->       %3 = nonzero(%0) ...

A size is known from where it is counted on, and only between nodes of one graph can that be cut
(`cut_phases`).  Other graphs keep their regions: `expand` inlines them later.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, inline, rebuild
from graphc.ops.autodiff.vjp import tupled
from graphc.passes.normalise.cut_phases import counted_sizes


def flatten(graph: Graph, config: Config) -> Graph:
    """The graph without regions that run once, if it counts sizes; gradients are left."""
    if not counted_sizes(graph):
        return graph
    return rebuild(graph, flattened)


def flattened(node: Node, r: Rewriter) -> Node | None:
    if node.op.traits.once and not node.op.traits.asks_gradient:
        return tupled(r, inline(r, node.regions[0], node.inputs, node.after), node)
    if node.op.traits.item and node.inputs[0].op.traits.makes_tuple:
        item: Node = node.inputs[0].inputs[node.attrs["index"]]
        return item
    return None
