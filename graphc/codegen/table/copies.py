"""Kernels that only lay arrays one after another in memory: rows of copies, nothing to compile."""

from __future__ import annotations

from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute
from graphc.ir.sizes import is_open
from graphc.ir.types import Type


def copied_by(node: Node) -> tuple[tuple[int, int], ...]:
    """(operand, bytes) of each copy that a node's kernel is, in order; none if it computes."""
    copies = node.op.traits.kernel and node.attrs["kind"] == "loop"
    return (pieces_of(node.regions[0]) if copies else None) or ()


def pieces_of(region: Graph) -> tuple[tuple[int, int], ...] | None:
    """(param, bytes) of each piece, in order; None for a region that computes or reorders."""
    result = region.results[0]
    if len(region.results) != 1 or not lies_in_order(result):
        return None
    pieces = []
    for source in map(base, result.inputs):
        number = next((k for k, p in enumerate(region.params) if p is source), None)
        if number is None or not isinstance(source.type, Type):
            return None
        pieces.append((number, source.type.nbytes))
    return tuple(piece for piece in pieces if piece[1])


def lies_in_order(node: Node) -> bool:
    """Is the node a small concat whose operands follow each other in memory?"""
    if node.op.name != "concat" or not isinstance(node.type, Type) or not node.type.is_static:
        return False
    if is_open(node.type.dims):
        return False
    outer = node.type.dims[: node.attrs["axis"]]
    return all(extent == 1 for extent in outer) and 0 < node.type.nbytes <= tuned.copied_bytes


def is_copied(node: Node) -> bool:
    """Will a concat be rows of copies, whatever it is fused with? No operand is then computed."""
    sources = map(base, node.inputs)
    return lies_in_order(node) and not any(isinstance(n.op.lower, Compute) for n in sources)


def base(node: Node) -> Node:
    """What a value is another shape of."""
    while isinstance(node.op.lower, Alias):
        node = node.inputs[0]
    return node
