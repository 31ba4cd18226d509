"""Calls written out: the nodes of a called graph take the place of the `call`, names included."""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, Rewriter, inline, rebuild
from graphc.ir.op import OPS


def give_name(names: dict[str, int], name: str, id: int) -> None:
    """Enter a name; where it is taken by another node a number is appended: h, h_1, ..."""
    title, number = name, 0
    while names.setdefault(title, id) != id:
        number += 1
        title = f"{name}_{number}"


def open_calls(graph: Graph) -> Graph:
    """The graph without `call` nodes; the same object if it has none."""
    inside: list[tuple[str, int]] = []

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.name != "call":
            return None
        region = open_calls(node.regions[0])
        copies = {p.id: source.id for p, source in zip(region.params, node.inputs, strict=True)}
        copies |= {inner.id: r.next_id + k for k, inner in enumerate(region.nodes)}
        inside.extend((name, copies[id]) for name, id in region.names.items())
        results = inline(r, region, node.inputs, node.after)
        return results[0] if len(results) == 1 else r.emit(OPS["tuple"], results)

    made = rebuild(graph, rewrite)
    if inside:
        names = {p.attrs["name"]: p.id for p in made.params} | made.names
        for name, id in inside:
            give_name(names, name, id)
        own = {p.id: p.attrs["name"] for p in made.params}
        made = made.replace(names={n: id for n, id in names.items() if own.get(id) != n})
    return made
