"""gradient: `grad` nodes become the forward and backward graphs they stand for, innermost first.

The chain rule itself is `ops/autodiff/vjp.py`; every node it makes takes the line and the placement
constraint of the forward node whose rule made it, and the stage's reasons name both.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.op import OPS
from graphc.limits import exceeded, limit
from graphc.ops.autodiff.vjp import expand_grad
from graphc.ops.record.value import Trace, tracing
from graphc.passes.reasons import explain

FEW = 200  # nodes that any graph counts as


def gradient(graph: Graph, config: Config) -> Graph:
    """The graph without `grad` nodes.

    Raises GraphError, with the user's line, where an op on the path has no gradient rule, and
    LimitError where gradients of gradients grow beyond all measure.
    """
    if not any(node.regions for node in graph.nodes):
        return graph
    return _expand(graph, limit("gradient_growth") * max(_count(graph), FEW), False)


def _count(graph: Graph) -> int:
    """The nodes of a graph, regions included."""
    pending, total = [graph], 0
    while pending:
        found = pending.pop()
        total += len(found.nodes)
        pending += [region for node in found.nodes for region in node.regions]
    return total


def _expand(graph: Graph, most: int, in_lanes: bool) -> Graph:
    """Inside of a `vmap`, gradients through loops of unknown length are left to it; and outside, a
    `vmap` is expanded before what is differentiated around it."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        inside = in_lanes or node.op.traits.lanes
        made = map_regions(node, lambda region: _expand(region, most, inside))
        region = made.regions[0] if made.regions else None
        if node.op.traits.asks_gradient and region is not None and not _left(region, in_lanes):
            result = expanded(made, r)
            if len(r.nodes) > most:
                raise exceeded("gradient_growth", f"gradients make {len(r.nodes)} nodes of a few")
            return result
        if made is not node:
            r.nodes.append(made)
            return made
        return None

    return rebuild(graph, rewrite)


def _left(region: Graph, in_lanes: bool) -> bool:
    """Does it wait for a `vmap` in it, or around it for a loop of unknown length in it?"""
    return "lanes" in region.traits or (in_lanes and "tested" in region.traits)


def expanded(node: Node, r: Rewriter) -> Node:
    trace = Trace(r)
    with tracing(trace):
        made = expand_grad(trace, node, [trace.wrap(n) for n in node.inputs], explain_rule)
    return r.emit(OPS["tuple"], [value.node for value in made])


def explain_rule(made: Node, forward: Node) -> None:
    """Note which forward node and rule a gradient node comes from."""
    explain(made.id, f"gradient of %{forward.id} by the rule of {forward.op.name}")
