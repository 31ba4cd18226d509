"""decompose_gemv: products of vectors are made in loops.

    %4 = mul(%1, %2) : f32[n,k]                     %4 = mul(%1, %2)
    %5 = transpose(%4) : f32[k,n]             ->    %5 = mul(%0, %4)          one kernel: %4 is
    %6 = matmul(%0, %5) : f32[1,n]                  %6 = sum(%5) over k       computed, not stored

What every element of is needed once is computed while it is multiplied.  Dot products of many pairs
of vectors, or of long ones, and products of a vector with many short rows are faster as loops too:
they are long loops, split among threads, where a product has work for a few columns at a time.
Products of fewer multiplications than it takes to set up a contraction are loops of any form:

    %3 = matmul(%0, %1) : f32[m,n]        ->        %3 = mul(%0 as [m,k,1], %1 as [1,k,n])
                                                    %4 = sum(%3) over k
"""

from __future__ import annotations

import string
from collections import Counter
from functools import reduce
from math import prod

from graphc.codegen.lowering.evaluate import tensor_type
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.op import OPS, Contraction, Reduction, Scalar
from graphc.ir.sizes import Size, hint_of
from graphc.ir.types import F32, F64, Type
from graphc.passes.fusion.widening import widening_casts
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def decompose_gemv(graph: Graph, config: Config) -> Graph:
    """The graph with sums of element-wise products for products of vectors where these pay."""
    products = [n for n in graph.nodes if n.op.traits.matrix_product and is_real(n)]
    if not products or config.backend != "llvm" or config.strict or not config.merges:
        return graph
    readers = Counter(n for node in graph.nodes for n in (*node.inputs, *node.after))
    readers.update(graph.results)
    widened = widening_casts(graph)
    alone = {n.id for n, count in readers.items() if count == 1 and n not in widened}

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        if node.op.name == "einsum" and is_real(node):
            made = pairs(node, r) or small(node, r)
        elif node.op.name == "matmul" and is_real(node):
            made = vectors(node, r, alone) or small(node, r)
        else:
            return None
        if made is not None:
            explain(node.id, "its products are summed in a loop")
        return made

    made = rebuild(graph, rewrite)
    return graph if made is graph else swept(made)


def is_real(node: Node) -> bool:
    kinds = [n.type for n in (node, *node.inputs)]
    plain = all(isinstance(k, Type) and k.is_static and k.dtype in (F32, F64) for k in kinds)
    return plain and not node.after and tensor_type(node).size > 0


def pairs(node: Node, r: Rewriter) -> Node | None:
    """einsum of two arrays with the same axes: `ab,ab->a`."""
    left, right, result = terms_of(node)
    if left != right or len(set(left)) < len(left) or len(result) == len(left):
        return None
    if result != "".join(letter for letter in left if letter in result) or not result:
        return None
    axes = tuple(k for k, letter in enumerate(left) if letter not in result)
    return added(r, node.inputs[0], node.inputs[1], axes)


def vectors(node: Node, r: Rewriter, alone: set[int]) -> Node | None:
    """matmul where the rows of the left operand, or the columns of the right one, are single."""
    a, b = node.inputs
    (*_, m, k), (*outer, _, n) = tensor_type(a).dims, tensor_type(b).dims
    dims = tensor_type(node).dims
    if k == 1 and dims[:-2] == tuple(outer):
        return r.emit(OPS["mul"], (a, b))
    if is_wide(k, n) and not b.op.traits.permutes:
        return outer_products(node, r, k)
    if 1 not in (m, n) or k == 1:
        return None
    if m == n == 1 and (prod(dims) > 1 or hint_of(k) >= tuned.long_dot):
        return dots(node, r)
    for matrix, vector, right in ((b, a, True), (a, b, False)):
        if (tensor_type(vector).dims[-2 if right else -1]) != 1:
            continue
        source, turned = behind_transpose(matrix)
        if is_computed(source, alone, matrix) and tensor_type(matrix).dims[:-2] == dims[:-2]:
            return summed(r, node, source, vector, turned is right)
    flat = prod(tensor_type(b).dims) == k and not a.op.traits.permutes
    if n == 1 and hint_of(k) <= tuned.short_row and flat and hint_of(prod(dims)) >= tuned.many_rows:
        return added(r, a, across(r, b), (-1,))
    return None


def small(node: Node, r: Rewriter) -> Node | None:
    """A contraction of few multiplications. Its columns, if there are several, stay innermost."""
    dims = tensor_type(node).dims
    first, second, result = terms_of(node)
    extents = dict(zip(first, tensor_type(node.inputs[0]).dims, strict=True))
    # A letter that is summed stands in both operands: types refuse one that a single operand has.
    summed = "".join(letter for letter in first if letter not in result)
    loops = (*dims, *(extents[letter] for letter in summed))
    is_open = any(isinstance(extent, Size) for extent in loops)
    if not dims or is_open or prod(loops) > tuned.small_product:
        return None
    place = len(result) - (dims[-1] > 1)
    order = result[:place] + summed + result[place:]
    a, b = (
        laid_out(r, x, term, order) for x, term in zip(node.inputs, (first, second), strict=True)
    )
    made = r.emit(OPS["mul"], (a, b))
    if not summed:
        return made
    axes = tuple(range(place, place + len(summed)))
    return r.emit(OPS["sum"], (made,), {"axes": axes, "keepdims": False})


def terms_of(node: Node) -> tuple[str, str, str]:
    """The letters of both operands and the result of a contraction. An axis of one element that a
    matmul repeats has the letter of the axis that it is repeated along.
    """
    if "equation" in node.attrs:
        operands, _, result = node.attrs["equation"].partition("->")
        first, _, second = operands.partition(",")
        return first, second, result
    letters = string.ascii_letters[: tensor_type(node).rank + 1]
    outer, (m, n, k) = letters[:-3], tuple(letters[-3:])
    ranks = [tensor_type(x).rank - 2 for x in node.inputs]
    return (
        outer[len(outer) - ranks[0] :] + m + k,
        outer[len(outer) - ranks[1] :] + k + n,
        outer + m + n,
    )


def is_wide(terms: int, columns: int) -> bool:
    """Are rows so long, and sums so short, that storing them is most of a product's work?"""
    if isinstance(terms, Size) or isinstance(columns, Size):
        return False
    return 1 < terms <= tuned.few_terms and columns >= tuned.many_columns


def outer_products(node: Node, r: Rewriter, count: int) -> Node:
    """A product as a sum of so many outer ones: each element is written once, whole."""
    terms = []
    for k in range(count):
        column, row = (part(r, x, axis, k) for x, axis in zip(node.inputs, (-1, -2), strict=True))
        terms.append(r.emit(OPS["mul"], (column, row)))
    return reduce(lambda total, term: r.emit(OPS["add"], (total, term)), terms)


def part(r: Rewriter, node: Node, axis: int, k: int) -> Node:
    """The place k of an axis, which is kept."""
    stops = list(tensor_type(node).dims)
    starts = [0] * len(stops)
    starts[axis], stops[axis] = k, k + 1
    cut = {"starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * len(stops)}
    return r.emit(OPS["slice"], (node,), cut)


def summed(r: Rewriter, node: Node, matrix: Node, vector: Node, rows: bool) -> Node:
    """A product of a vector and a matrix that is summed along its rows, or down its columns."""
    outer, k = tensor_type(vector).dims[:-2], prod(tensor_type(vector).dims[-2:])
    vector = shaped(r, vector, (*outer, 1, k) if rows else (*outer, k, 1))
    made = added(r, matrix, vector, (-1 if rows else -2,))
    return shaped(r, made, tensor_type(node).dims)


def dots(node: Node, r: Rewriter) -> Node:
    """Products of pairs of vectors; a single pair is a sum over all of an array."""
    a, b = node.inputs
    if tensor_type(node).size > 1:
        return added(r, a, across(r, b), (-1,))
    size = (tensor_type(a).size,)
    return shaped(r, added(r, shaped(r, a, size), shaped(r, b, size), (0,)), tensor_type(node).dims)


def added(r: Rewriter, x: Node, y: Node, axes: tuple[int, ...]) -> Node:
    product = r.emit(OPS["mul"], (x, y))
    rank = tensor_type(product).rank
    kept = {"axes": tuple(axis % rank for axis in axes), "keepdims": axes[0] < 0}
    return r.emit(OPS["sum"], (product,), kept)


def across(r: Rewriter, column: Node) -> Node:
    """A matrix of one column as one of one row."""
    *outer, k, _ = tensor_type(column).dims
    return shaped(r, column, (*outer, 1, k))


def laid_out(r: Rewriter, node: Node, term: str, order: str) -> Node:
    """An operand with its axes in an order, and axes of one element for those that it has not."""
    perm = tuple(sorted(range(len(term)), key=lambda axis: order.index(term[axis])))
    if perm != tuple(range(len(term))):
        node = r.emit(OPS["transpose"], (node,), {"perm": perm})
    extents = dict(zip((term[axis] for axis in perm), tensor_type(node).dims, strict=True))
    return shaped(r, node, tuple(extents.get(letter, 1) for letter in order))


def shaped(r: Rewriter, node: Node, dims: tuple[int, ...]) -> Node:
    """The same elements in another shape, by one reshape at the most."""
    while node.op.traits.reshapes and not node.after and tensor_type(node).dims != dims:
        node = node.inputs[0]
    if tensor_type(node).dims == dims:
        return node
    return r.emit(OPS["reshape"], (node,), {"dims": dims})


def behind_transpose(node: Node) -> tuple[Node, bool]:
    """What a node shows with its last two axes exchanged, and whether it does so."""
    rank = tensor_type(node).rank
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    if node.op.traits.permutes and node.attrs["perm"] == swapped and not node.after:
        return node.inputs[0], True
    return node, False


def is_computed(node: Node, alone: set[int], shown: Node) -> bool:
    """An element-wise value that one product reads and no other kernel makes on its way."""
    if (
        not {node.id, shown.id} <= alone
        or node.nbytes < tuned.computed_operand * tensor_type(node).dtype.itemsize
    ):
        return False
    pending, seen = [node], {node}
    while pending:
        value = pending.pop()
        if not isinstance(value.op.lower, Scalar) or len(seen) > tuned.computed_steps:
            return False
        for source in value.inputs:
            if isinstance(source.op.lower, Scalar | Contraction | Reduction) and source not in seen:
                seen.add(source)
                pending.append(source)
    return not node.after
