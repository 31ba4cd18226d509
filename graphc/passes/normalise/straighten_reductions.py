"""straighten_reductions: values are reduced along the axes as they lie in memory.

    y = x^T;  s = sum(|y - b|, axes=[1])      ->      s = sum(|x - b^T|, axes=[0])

A row of what is shown is a column of what is there: to fold a row fetches a line of memory for
each element, to fold columns reads many of them at once.  What else reads a value on the way gets
a transpose of it, as a softmax does: that fetches each line once.

    x: f32[500,512,2];  s = max(x, axes=[1])  ->      s = max(transpose(x, [0,2,1]), axes=[2])

Columns that are too few for a vector are folded as rows, whose elements lie a little apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.codegen.tuning import tuned as by_loops
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.literal import literal
from graphc.ir.op import OPS, Reduction, Scalar
from graphc.ir.readers import readers_of
from graphc.ir.sizes import alike, hint_of
from graphc.ir.types import Type
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned

FEW = 5  # columns, of which the lanes of half a vector of 256 bits are more
Perm = tuple[int, ...]
Turned = dict[Node, Perm]
Readers = Mapping[Node, Sequence[Node | None]]


def straighten_reductions(graph: Graph, config: Config) -> Graph:
    """The graph with reductions of transposed values over what is transposed; elements are taken
    in another order, which a strict one keeps."""
    if config.strict:
        return graph
    turned = turned_values(graph)
    if not any(is_reduced(node, turned) or has_few_columns(node) for node in graph.nodes):
        return graph
    readers = readers_of(graph)
    before = {node.id: node for node in graph.nodes}
    straight: dict[Node, Node] = {}  # values that are turned, as they lie in memory

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        old = before[node.id]
        if is_reduced(old, turned):
            explain(node.id, "in the order of memory, not as a transpose shows it")
            return reduced(node, turned[old.inputs[0]], straight[node.inputs[0]], r)
        if old in turned:
            made = straight[node] = straightened(node, turned[old], straight, r)
            if isinstance(old.op.lower, Scalar) and is_read_elsewhere(old, readers[old], turned):
                shown = r.emit(OPS["transpose"], (made,), {"perm": turned[old]})
                straight[shown] = made
                return shown
        elif has_few_columns(node):
            explain(node.id, "its few columns are folded as rows")
            return reduced_in_rows(node, r)
        return None

    return rebuild(graph, rewrite, each=False)


def is_reduced(node: Node, turned: Turned) -> bool:
    """Is it a reduction of such a value, over some axes, that reads memory in a row or by columns
    of a vector?"""
    if not isinstance(node.op.lower, Reduction) or not node.attrs["axes"] or node.after:
        return False
    perm = turned.get(node.inputs[0])
    if perm is None:
        return False
    dims = shape_of(node.inputs[0])
    axes = {perm[axis] for axis in node.attrs["axes"]}
    return not are_few_columns(node, [dims[perm.index(k)] for k in range(len(perm))], axes)


def has_few_columns(node: Node) -> bool:
    """Is it a reduction of columns that do not fill a vector, again and again?"""
    if not isinstance(node.op.lower, Reduction) or not node.attrs["axes"] or node.after:
        return False
    return are_few_columns(node, shape_of(node.inputs[0]), set(node.attrs["axes"]))


def are_few_columns(node: Node, dims: Sequence[Any], axes: set[int]) -> bool:
    """Do few elements lie side by side behind the axes that are folded? Of long columns, or of
    those of a whole matrix, many rows are taken together."""
    last = max(axes)
    beside = math.prod(hint_of(n) for n in dims[last + 1 :])
    folded = math.prod(hint_of(dims[axis]) for axis in axes)
    before = math.prod(hint_of(n) for n in dims) // max(beside * folded, 1)
    assert isinstance(node.op.lower, Reduction)
    adds = node.op.lower.combine == "add"
    few = tuned.summed_columns if adds else tuned.folded_columns
    if not 1 < beside < few or before <= 1 or beside * folded >= by_loops.tall_elements:
        return False
    if adds:
        return bool(folded >= tuned.summed_terms * (beside - 1))
    return bool(folded >= (tuned.folded_terms if beside < FEW else tuned.folded_terms_of_more))


# ------------------------------------------------------------------------------ which are turned


def turned_values(graph: Graph) -> Turned:
    """How values are turned that are transposes, or are computed from such element by element, of
    those on which reductions depend."""
    turned: Turned = {}
    if not any(node.op.traits.permutes for node in graph.nodes):
        return turned
    readers = readers_of(graph)
    for node in graph.nodes:
        if (perm := perm_of(node, turned, readers)) is not None:
            turned[node] = perm
    reduced: set[Node] = set()
    for node in reversed(graph.nodes):
        if is_reduced(node, turned) or node in reduced:
            reduced.update(n for n in node.inputs if n in turned)
    return {node: perm for node, perm in turned.items() if node in reduced}


def perm_of(node: Node, turned: Turned, readers: Readers) -> Perm | None:
    """How a value is turned, if that puts another axis last."""
    if node.after:
        return None
    if node.op.traits.permutes:
        perm = tuple(node.attrs["perm"])
        return None if perm[-1:] == (len(perm) - 1,) else perm
    if node.op.traits.slices:
        return turned.get(node.inputs[0])
    if not isinstance(node.op.lower, Scalar):
        return None
    whole = [n for n in node.inputs if is_whole(n, node) and not is_turned_here(n, readers[n])]
    perms = {turned.get(n) for n in whole}
    known = len(perms) == 1 and all(is_whole(n, node) or is_along(n, node) for n in node.inputs)
    return perms.pop() if known else None


def is_read_elsewhere(node: Node, readers: Sequence[Node | None], turned: Turned) -> bool:
    """Does anything need a value as it is shown?"""
    return any(n is None or n.after or not (n in turned or is_reduced(n, turned)) for n in readers)


def is_turned_here(node: Node, readers: Sequence[Node | None]) -> bool:
    """Is it a constant that nothing else reads, of which no second copy is left?"""
    return node.op.traits.constant and node.attrs["value"].has_data and len(readers) == 1


def is_whole(node: Node, like: Node) -> bool:
    """Has a value an element for each of another's?"""
    return alike(shape_of(node), shape_of(like))


def is_along(node: Node, whole: Node) -> bool:
    """Is an operand broadcast along axes that it has, or a number?"""
    return len(shape_of(node)) in (0, len(shape_of(whole)))


def shape_of(node: Node) -> tuple[Any, ...]:
    assert isinstance(node.type, Type)
    return node.type.shape


# ---------------------------------------------------------------------------- as they lie in memory


def straightened(node: Node, perm: Perm, straight: dict[Node, Node], r: Rewriter) -> Node:
    """A turned value as it lies in memory."""
    if node.op.traits.permutes:
        return node.inputs[0]
    if node.op.traits.slices:
        back = [perm.index(axis) for axis in range(len(perm))]
        attrs = {name: tuple(value[k] for k in back) for name, value in node.attrs.items()}
        return r.emit(node.op, (straight[node.inputs[0]],), attrs)
    inputs = [straight[n] if n in straight else turned_back(n, perm, r) for n in node.inputs]
    return r.emit(node.op, inputs, node.attrs)


def turned_back(node: Node, perm: Perm, r: Rewriter) -> Node:
    """A constant, or an operand that is broadcast, with its axes in the order of memory."""
    if not shape_of(node):
        return node
    if node.op.traits.permutes and tuple(node.attrs["perm"]) == perm:
        return node.inputs[0]
    back = tuple(perm.index(axis) for axis in range(len(perm)))
    if node.op.traits.constant and node.attrs["value"].has_data:
        assert isinstance(node.type, Type)
        turned = np.ascontiguousarray(node.attrs["value"].array.transpose(back))
        return r.emit(OPS["const"], (), {"value": literal(turned, node.type.dtype)})
    return r.emit(OPS["transpose"], (node,), {"perm": back})


def reduced_in_rows(node: Node, r: Rewriter) -> Node:
    """A reduction of its operand with the axes that are folded behind the others."""
    (source,), axes = node.inputs, node.attrs["axes"]
    kept = [axis for axis in range(len(shape_of(source))) if axis not in axes]
    turned = r.emit(OPS["transpose"], (source,), {"perm": (*kept, *axes)})
    last = tuple(range(len(kept), len(kept) + len(axes)))
    made = r.emit(node.op, (turned,), {**node.attrs, "axes": last})
    if not node.attrs["keepdims"]:
        return made
    order = [*kept, *axes]
    back = tuple(order.index(axis) for axis in range(len(order)))
    return r.emit(OPS["transpose"], (made,), {"perm": back})


def reduced(node: Node, perm: Perm, source: Node, r: Rewriter) -> Node:
    """The reduction of a value in the order of memory, with its axes as they were asked for."""
    axes = tuple(sorted(perm[axis] for axis in node.attrs["axes"]))
    made = r.emit(node.op, (source,), {**node.attrs, "axes": axes})
    order = perm
    if not node.attrs["keepdims"]:
        kept = [axis for axis in perm if axis not in axes]
        order = tuple(sorted(kept).index(axis) for axis in kept)
    if list(order) == sorted(order):
        return made
    return r.emit(OPS["transpose"], (made,), {"perm": order})
