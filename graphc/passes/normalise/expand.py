"""expand: composite ops become the nodes they are made of, calls the body of what they call.

    %3 = softmax(%0) {axis=1}       ->       %3 = max(%0)  %4 = sub(%0, %3)  %5 = exp(%4) ...

What stood for several results is read where each of them is now.
"""

from __future__ import annotations

from typing import Any

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node, Rewriter, inline, map_regions, rebuild
from graphc.ir.op import OPS, Composite
from graphc.ir.place import Constraint
from graphc.ops.record.value import Trace, Value, tracing
from graphc.passes.reasons import explain

MOST_ROUNDS = 50


def expand(graph: Graph, config: Config) -> Graph:
    """The graph without composite ops and calls, also in regions.

    Raises GraphError for what is made of itself.
    """

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.traits.call:
            return inlined(node, r)
        if isinstance(node.op.lower, Composite):
            return written_out(node, r)
        if node.op.traits.item and node.inputs[0].op.traits.makes_tuple:
            item: Node = node.inputs[0].inputs[node.attrs["index"]]
            return item
        made = map_regions(node, lambda region: expand(region, config))
        if made is node:
            return None
        r.nodes.append(made)
        return made

    for _ in range(MOST_ROUNDS):
        if not any(map(is_expandable, graph.nodes)):
            return graph
        made = rebuild(graph, rewrite)
        if made is graph:
            return graph
        graph = made
    raise GraphError(f"@{graph.name} does not settle", hint="an expansion is recursive")


def is_expandable(node: Node) -> bool:
    """May there be anything to do about a node?"""
    if node.op.traits.item:
        return node.inputs[0].op.traits.makes_tuple
    return bool(node.regions) or isinstance(node.op.lower, Composite)


def written_out(node: Node, r: Rewriter) -> Node:
    """A composite op as the nodes it is made of."""
    assert isinstance(node.op.lower, Composite)
    trace = Trace(r)
    with tracing(trace):
        values = [trace.wrap(n) for n in node.inputs]
        held = {"regions": node.regions} if node.op.regions else {}
        made = node.op.lower.expand(*values, **held, **node.attrs.values_dict)
    explain(node.id, f"{node.op.name} written out")
    result = gather(made, trace)
    if result.type is not node.type:
        raise AssertionError(f"{node!r} expands to {result.type}")
    return result


def gather(made: Any, trace: Trace) -> Node:
    if isinstance(made, Value):
        return made.node
    nodes = tuple(v.node for v in made)
    return trace.builder.emit(OPS["tuple"], nodes)


def inlined(node: Node, r: Rewriter) -> Node:
    """A call as a copy of its region."""
    region = own_groups(node.regions[0], f"_{node.id}")
    results = inline(r, region, node.inputs, node.after)
    explain(node.id, f"@{node.attrs['name']} inlined")
    return results[0] if len(results) == 1 else r.emit(OPS["tuple"], results)


def own_groups(region: Graph, suffix: str) -> Graph:
    """The region with colocation groups of its own: two calls need not be on one device.

    Groups of variables, whose names have a dot, are the same everywhere.
    """

    def rename(node: Node, r: Rewriter) -> Node | None:
        made = map_regions(node, lambda inner: own_groups(inner, suffix))
        place = node.place
        if isinstance(place, Constraint) and place.group:
            renamed = [g if "." in g else g + suffix for g in place.groups]
            made = made.replace(place=Constraint(place.spec).beside(*renamed))
        if made is node:
            return None
        r.nodes.append(made)
        return made

    return rebuild(region, rename)
