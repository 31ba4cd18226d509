"""Why a gradient is there or not: the edges of a region at which the chain rule stops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.ir.graph import Graph, Node
from graphc.ops.autodiff.vjp import active_nodes, has_gradient, prepared

MOST_CUTS = 5


def reaching(region: Graph, results: Sequence[int]) -> list[bool]:
    """By id: is the value read, directly or not, by one of these results?"""
    found = [False] * region.next_id
    for number in results:
        found[region.results[number].id] = True
    for node in reversed(region.nodes):
        if found[node.id]:
            for source in node.inputs:
                found[source.id] = True
    return found


def flows(region: Graph, wrt: int, results: Sequence[int]) -> bool:
    """Does a gradient flow from one of these results to a parameter?"""
    region = prepared(region, {wrt}, None)
    return _connected(region, active_nodes(region, (wrt,)), results)


def _connected(region: Graph, active: list[bool], results: Sequence[int]) -> bool:
    return any(active[region.results[k].id] for k in results)


def explain_path(region: Graph, wrt: int, results: Sequence[int]) -> str:
    """One line: that the gradient of a parameter flows, or which edge cuts its path."""
    region = prepared(region, {wrt}, None)
    param, found = region.params[wrt], reaching(region, results)
    if not has_gradient(param.type):
        return f"no gradient: it is {param.type}, and only floats have one"
    if not found[param.id]:
        return "no gradient: the result does not depend on it"
    active = active_nodes(region, (wrt,))
    if _connected(region, active, results):
        return "flows"
    cuts = list(_cuts(region, active, found))
    more = f"; and {len(cuts) - MOST_CUTS} more" if len(cuts) > MOST_CUTS else ""
    return "no gradient: " + "; ".join(cuts[:MOST_CUTS]) + more


def _cuts(region: Graph, active: list[bool], found: list[bool]) -> Iterator[str]:
    """The edges on a path of data at which activity ends."""
    for node in region.nodes:
        sources = [n for n in node.inputs if active[n.id]]
        if sources and found[node.id] and not active[node.id]:
            where = f" ({node.loc[0]}:{node.loc[1]})" if node.loc else ""
            yield f"the path is cut at %{sources[0].id} -> {node!r}{where}: {_reason(node)}"


def _reason(node: Node) -> str:
    if node.op.name == "stop_gradient":
        return "gc.stop_gradient"
    if not has_gradient(node.type):
        return "its result is no float"
    return f"{node.op.name} has no gradient"
