"""fold_batch_norm: a convolution by constants takes the constants of the batch norm behind it.

    batch_norm(conv(x, w) + b, mean, variance, weight, bias)

        ->  conv(x, w * s) + ((b - mean) * s + bias)      s = weight / sqrt(variance + epsilon)

What is left for each element is one addition.  The sum was rounded before its mean was taken, so
what differs is rounding of the same size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild
from graphc.ir.literal import literal
from graphc.ir.op import OPS
from graphc.ir.readers import live_readers
from graphc.ir.types import AnyType, Type
from graphc.passes.reasons import explain

Array = np.ndarray[Any, Any]


def fold_batch_norm(graph: Graph, config: Config) -> Graph:
    """The graph with batch norms in the weights of the convolutions that they alone read."""
    if not any(map(is_constant_norm, graph.nodes)):
        return graph
    readers = live_readers(graph)

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        made = folded(node, readers, r) if is_constant_norm(node) else None
        if made is not None:
            explain(node.id, "batch norm is in the weights")
        return made

    return rebuild(graph, rewrite)


def is_constant_norm(node: Node) -> bool:
    """Is a node a batch norm, by constants, of numbers that it does not widen?"""
    if node.op.name != "batch_norm" or node.after or not isinstance(node.type, Type):
        return False
    plain = node.type.dtype.compute is node.type.dtype
    return plain and all(n.op.traits.constant for n in node.inputs[1:])


def folded(norm: Node, readers: list[int], r: Rewriter) -> Node | None:
    """The convolution by other weights, and what is added to it.

    None where others read it, where its weights are no constants or do not vary by channel alone,
    or where what is made of them is not finite.
    """
    conv, added = norm.inputs[0], None
    if conv.op.name == "add" and readers[conv.id] == 1 and not conv.after:
        conv, added = conv.inputs
    if not conv.op.traits.convolution or readers[conv.id] != 1 or conv.after:
        return None
    weights = conv.inputs[1]
    beside = [n for n in (*norm.inputs[1:], added) if n is not None]
    values = [found for n in beside if (found := by_channel(n, norm.type)) is not None]
    if not weights.op.traits.constant or len(values) < len(beside):
        return None
    bias = values.pop() if added is not None else np.zeros(1)
    with np.errstate(all="ignore"):
        scale, shift = affine(*values, bias=bias, epsilon=norm.attrs["epsilon"])
        first = weights.attrs["value"].array
        scaled = first * scale.reshape(-1, *(1,) * (first.ndim - 1))
    made = [array.astype(first.dtype) for array in (scaled, shift)]
    if not all(np.isfinite(array).all() for array in made):
        return None
    shifts = made[1].reshape(1, -1, *(1,) * (first.ndim - 2))
    wide, addend = (r.emit(OPS["const"], (), {"value": literal(v)}) for v in (made[0], shifts))
    return r.emit(OPS["add"], (r.emit(conv.op, (conv.inputs[0], wide), conv.attrs), addend))


def by_channel(node: Node, whole: AnyType) -> Array | None:
    """The elements of a constant that varies along axis 1 of `whole` alone; else None."""
    if not node.op.traits.constant or not isinstance(whole, Type):
        return None
    array = node.attrs["value"].array
    shape = (*(1,) * (whole.rank - array.ndim), *array.shape)
    return array.reshape(-1).astype(np.float64) if array.size == shape[1] else None


def affine(
    mean: Array,
    variance: Array,
    weight: Array | float = 1.0,
    bias_after: Array | float = 0.0,
    *,
    bias: Array,
    epsilon: float,
) -> tuple[Array, Array]:
    """What a batch norm multiplies a sum by, and what it adds to that, if `bias` is to be added to
    the sum before."""
    scale = weight / np.sqrt(variance + epsilon)
    return scale, (bias - mean) * scale + bias_after
