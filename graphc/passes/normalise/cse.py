"""cse: nodes that compute the same thing become one (after Click, PLDI 1995).

The key holds the op, type, operands (sorted if commutative), `after` edges, attributes and place,
so two reads of one state between the same writes merge and nothing merges across devices but
constants, which are on every device once they have one.  Nodes with effects or regions and those
of `UNIQUE` ops never merge.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.op import Effect
from graphc.ir.verify import merge_key
from graphc.passes.reasons import explain


def cse(graph: Graph, config: Config) -> Graph:
    """The graph with duplicates merged into their first occurrence; names stay fetchable."""
    table: dict[object, Node] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.regions or node.op.effect > Effect.READ or node.op.traits.distinct:
            return None
        first = table.setdefault(merge_key(node), node)
        if first is node:
            return None
        explain(node.id, f"same as %{first.id}")
        return first

    return rebuild(graph, rewrite)
