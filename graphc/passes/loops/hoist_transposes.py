"""hoist_transposes: invariant matrices are turned the way products in loops read them.

    loop: y = a w^T        ->       loop: t = w^T;  y = a t

A product reads the operand that gives its result's columns row by row; across its rows it has to
collect them anew in every turn.  The transpose is an invariant: `hoist` takes it out of the loop.
"""

from __future__ import annotations

from collections.abc import Container

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, map_regions, rebuild
from graphc.ir.op import OPS
from graphc.ir.regions import holds_kernels
from graphc.ir.types import Type
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def hoist_transposes(graph: Graph, config: Config) -> Graph:
    """The graph with transposed invariants in loops for products that read across their rows."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if not node.op.traits.loop:
            return None
        first = node.attrs["carries"] + node.attrs.get("scanned", 0)
        made = map_regions(node, lambda region: straightened(region, region.params[first:]))
        if made is node:
            return None
        explain(node.id, "an invariant is transposed once, not read across its rows")
        r.nodes.append(made)
        return made

    return rebuild(graph, rewrite) if any(map(holds_kernels, graph.nodes)) else graph


def straightened(region: Graph, invariants: Container[Node]) -> Graph:
    """The region with einsums over transposed invariants instead of such that read across rows."""

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.name != "einsum":
            return None
        inputs, terms = list(node.inputs), letters(node)
        for k, operand in enumerate(node.inputs):
            order = better_order(terms[k], terms[2])
            if operand in invariants and order != terms[k] and is_large(operand):
                perm = tuple(terms[k].index(letter) for letter in order)
                inputs[k] = r.emit(OPS["transpose"], (operand,), {"perm": perm})
                terms[k] = order
        if tuple(inputs) == node.inputs:
            return None
        return r.emit(node.op, inputs, {"equation": f"{terms[0]},{terms[1]}->{terms[2]}"})

    return rebuild(region, rewrite)


def letters(node: Node) -> list[str]:
    """The letters of both operands and of the result of an einsum."""
    inputs, _, result = node.attrs["equation"].partition("->")
    return [*inputs.split(","), result]


def better_order(term: str, result: str) -> str:
    """The letters of an operand with the result's last one at the end, if it is one of them and a
    letter that is summed stands there."""
    if not result or result[-1] not in term or term[-1] in result:
        return term
    return "".join(letter for letter in term if letter != result[-1]) + result[-1]


def is_large(node: Node) -> bool:
    return (
        isinstance(node.type, Type)
        and node.type.is_static
        and node.nbytes >= tuned.hoisted_transpose
    )


def is_read_across(node: Node, reader: Node) -> bool:
    """Is the node a transpose that gives the columns of a product?"""
    if not node.op.traits.permutes or not is_large(node):
        return False
    if node.attrs["perm"][-1] == len(node.attrs["perm"]) - 1:
        return False
    if reader.op.name == "matmul":
        return reader.inputs[1] is node
    if reader.op.name != "einsum":
        return False
    terms = letters(reader)
    return any(n is node and terms[2][-1:] in terms[k][-1:] for k, n in enumerate(reader.inputs))
