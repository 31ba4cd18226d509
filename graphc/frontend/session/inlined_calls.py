"""Opened: a graph as a session keeps it, in which what was called or differentiated can be fed,
fetched and run in part.

    y = call(x) { h = tanh(x) ... }       h = tanh(x)   ...     the names of the region included
    g = grad(w) { h = ... ; loss }        h = ...; loss; the backward graph, which reads this very h

A region with effects stays as it is: what waits for it waits for all of it.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.frontend.trace.trace import give_name
from graphc.ir.graph import Graph, Node, Rewriter, inline, node_effect, rebuild
from graphc.ir.op import OPS, Effect
from graphc.ir.verify import merge_key
from graphc.passes.normalise.gradient import gradient


def opened(graph: Graph, config: Config) -> Graph:
    """The graph with `call` and `grad` nodes written out; the same object if it has none.

    Ids and names of its other nodes are kept.  Raises GraphError where a gradient rule is missing.
    """
    made = written_out(graph)
    grads = [node for node in made.nodes if node.op.traits.asks_gradient]
    if grads and all(map(_is_pure, grads)):
        made = written_out(gradient(made, config))
    return made if made is graph else _merged(made, graph.next_id)


def written_out(graph: Graph) -> Graph:
    """The graph with a copy of every called region in place of the `call`.

    A differentiated region is copied beside its `grad` if values in it have names.
    """
    inside: list[tuple[str, int]] = []

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        is_call = node.op.traits.once and not node.op.traits.asks_gradient
        if not node.op.traits.once or not _is_pure(node):
            return None
        region = written_out(node.regions[0])
        if not is_call and not region.names:
            return None
        operands = node.inputs[: len(region.params)]
        copies = {p.id: source.id for p, source in zip(region.params, operands, strict=True)}
        copies |= {inner.id: r.next_id + k for k, inner in enumerate(region.nodes)}
        inside.extend((name, copies[id]) for name, id in region.names.items())
        results = inline(r, region, operands, node.after)
        if not is_call:
            r.changed = True
            return None
        return results[0] if len(results) == 1 else r.emit(OPS["tuple"], results)

    return _with_names(rebuild(graph, rewrite), inside)


def _is_pure(node: Node) -> bool:
    return node_effect(node) is Effect.PURE


def _with_names(graph: Graph, inside: list[tuple[str, int]]) -> Graph:
    if not inside:
        return graph
    own = {p.attrs["name"]: p.id for p in graph.params}
    names = own | graph.names
    for name, id in inside:
        give_name(names, name, id)
    return graph.replace(names={n: id for n, id in names.items() if own.get(n) != id})


def _merged(graph: Graph, first: int) -> Graph:
    """The graph in which nodes from number `first` on are merged into earlier equal ones, and
    items of their tuples are what the tuples are made of.

    Nodes that were there before stay apart, equal or not: each can be fed.
    """
    table: dict[object, Node] = {}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        source = node.inputs[0] if node.op.traits.item else None
        if source is not None and source.op.traits.makes_tuple and source.id >= first:
            port: int = node.attrs["index"]
            return source.inputs[port]
        if node.regions or node.op.traits.distinct or not _is_pure(node):
            return None
        known = table.setdefault(merge_key(node), node)
        return known if known is not node and node.id >= first else None

    return rebuild(graph, rewrite)
