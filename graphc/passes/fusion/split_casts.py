"""split_casts: a product of bytes has casts of its own, which it makes while it reads.

%2 = cast(%0) {dtype=i32}                  %2 = cast(%0) {dtype=i32}
%3 = sum(%2)                               %3 = sum(%2)
%5 = matmul(%2, %4)                  ->    %6 = cast(%0) {dtype=i32}
                                           %5 = matmul(%6, %4)

What only such products read is not stored (see `widening`); what something else reads as well would
be, four times as large, and the product would read that.
"""

from __future__ import annotations

from graphc.codegen.lowering.operands import BYTES, meet
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.op import Contraction
from graphc.passes.fusion.widening import behind_views, is_view, narrow_type, reads_narrow
from graphc.passes.reasons import explain


def split_casts(graph: Graph, config: Config) -> Graph:
    """The graph with a copy of every cast of bytes that products share with other readers."""
    if not config.merges:
        return graph
    shared = shared_casts(graph)
    if not shared:
        return graph
    made: dict[Node, Node] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not multiplies_bytes(node) or not any(behind_views(n).id in shared for n in node.inputs):
            return None
        explain(node.id, "widens its operands itself")
        inputs = tuple(copied(n, made, r) for n in node.inputs)
        return r.emit(node.op, inputs, node.attrs)

    return swept(rebuild(graph, rewrite))


def shared_casts(graph: Graph) -> frozenset[int]:
    """Ids of the casts that products of bytes read, and something else."""
    casts = {behind_views(n) for node in graph.nodes if multiplies_bytes(node) for n in node.inputs}
    if not casts:
        return frozenset()
    found = {behind_views(n).id for n in graph.results if behind_views(n) in casts}
    for node in graph.nodes:
        if is_view(node) and behind_views(node) in casts:
            continue
        if multiplies_bytes(node) and not node.after:
            continue
        for source in map(behind_views, (*node.inputs, *node.after)):
            if source in casts:
                found.add(source.id)
    return frozenset(found)


def multiplies_bytes(node: Node) -> bool:
    """Is a node a product of two casts of bytes that it can make itself?"""
    if not isinstance(node.op.lower, Contraction) or node.after:
        return False
    sources = [behind_views(n) for n in node.inputs]
    kinds = [narrow_type(n) for n in sources]
    return meet(*kinds) and kinds[0] in BYTES and all(reads_narrow(node, n) for n in sources)


def copied(operand: Node, made: dict[Node, Node], r: Rewriter) -> Node:
    """An operand from its cast on, once more."""
    if operand not in made:
        first = operand.inputs[0] if not is_view(operand) else copied(operand.inputs[0], made, r)
        made[operand] = r.emit(operand.op, (first,), operand.attrs)
    return made[operand]
