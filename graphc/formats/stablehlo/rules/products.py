"""Products: matrices, equations, convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.stablehlo.writer import Value, Writer, in_other_ops, rule, type_of
from graphc.ir.graph import Node
from graphc.ir.types import tensor
from graphc.ops.linalg.few_bits import unpacked
from graphc.ops.record.value import emit
from graphc.ops.record.value import functions as f


def _product(
    w: Writer,
    a: Value,
    b: Value,
    batch: tuple[Sequence[int], Sequence[int]],
    summed: tuple[Sequence[int], Sequence[int]],
) -> Value:
    """A general product: its axes are those of the batch, then what is left of a, then of b."""
    left = [d for k, d in enumerate(a.dims) if k not in (*batch[0], *summed[0])]
    right = [d for k, d in enumerate(b.dims) if k not in (*batch[1], *summed[1])]
    dims = (*(a.dims[k] for k in batch[0]), *left, *right)
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {list(batch[0])}, "
        f"rhs_batching_dimensions = {list(batch[1])}, "
        f"lhs_contracting_dimensions = {list(summed[0])}, "
        f"rhs_contracting_dimensions = {list(summed[1])}>"
    )
    exact = "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
    wide = a.dtype.compute if a.dtype.is_float else a.dtype
    made = w.op(
        "dot_general",
        a,
        b,
        to=tensor(wide, dims),
        dot_dimension_numbers=numbers,
        precision_config=exact,
    )
    return w.cast(made, a.dtype)


@rule("matmul")
def matmul(w: Writer, node: Node, a: Value, b: Value) -> Value:
    kind = type_of(node)
    stack = kind.dims[:-2]
    a, b = (w.spread(x, (*stack, *x.dims[-2:])) for x in (a, b))
    axes = tuple(range(len(stack)))
    rank = len(stack)
    return w.cast(_product(w, a, b, (axes, axes), ((rank + 1,), (rank,))), kind.dtype)


@rule("einsum")
def einsum(w: Writer, node: Node, a: Value, b: Value) -> Value:
    """Letters of both that stay are the batch; those that go are summed."""
    kind, (given, out) = type_of(node), node.attrs["equation"].split("->")
    first, second = given.split(",")
    kept = [c for c in first if c in second and c in out]
    gone = [c for c in first if c in second and c not in out]

    def axes(letters: Sequence[str]) -> Any:
        return tuple(tuple(side.index(c) for c in letters) for side in (first, second))

    made = _product(w, a, b, axes(kept), axes(gone))
    order = [
        *kept,
        *(c for c in first if c not in (*kept, *gone)),
        *(c for c in second if c not in (*kept, *gone)),
    ]
    permutation = tuple(order.index(c) for c in out)
    return w.op("transpose", w.cast(made, kind.dtype), to=kind, permutation=permutation)  # type: ignore[no-any-return]


@rule("conv")
def conv(w: Writer, node: Node, x: Value, weight: Value) -> Value:
    kind, spatial = type_of(node), len(type_of(node).dims) - 2
    axes = ", ".join(map(str, range(spatial)))
    tail = f", {axes}" if spatial else ""
    numbers = f"#stablehlo.conv<[b, f{tail}]x[o, i{tail}]->[b, f{tail}]>"
    padding = f"dense<0> : tensor<{spatial}x2xi64>"
    wide = kind.dtype.compute if kind.dtype.is_float else kind.dtype
    made = w.op(
        "convolution",
        x,
        weight,
        to=tensor(wide, kind.dims),
        window_strides=node.attrs["stride"],
        padding=padding,
        lhs_dilation=(1,) * spatial,
        rhs_dilation=node.attrs["dilation"],
        window_reversal=f"array<i1{': ' if spatial else ''}{', '.join(['false'] * spatial)}>",
        dimension_numbers=numbers,
        feature_group_count=node.attrs["groups"],
        batch_group_count=1,
        precision_config="[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]",
    )
    return w.cast(made, kind.dtype)


@in_other_ops("conv_weights")
def conv_weights(y: Any, x: Any, window: Any, stride: Any, dilation: Any, groups: int) -> Any:
    """A convolution again: images are its channels, strides its dilations.

    w[o, c, k] = sum over n, p of x[n, c, p s + k d] y[n, o, p]:   x as [c, n, ...], y as [o, n, p]
    """
    images, channels, *extents = x.shape
    split = f.reshape(x, (images, groups, channels // groups, *extents))
    turned = f.transpose(split, (2, 1, 0, *(k + 3 for k in range(len(extents)))))
    stacked = f.reshape(turned, (channels // groups, groups * images, *extents))
    flipped = f.swapaxes(y, 0, 1)
    made = emit("conv", stacked, flipped, stride=dilation, dilation=stride, groups=groups)
    cut = made[(slice(None), slice(None), *(slice(0, n) for n in window))]
    return f.swapaxes(cut, 0, 1)


@rule("cholesky")
def cholesky(w: Writer, node: Node, a: Value) -> Value:
    """Its lower triangle alone is what is meant."""
    made = w.op("cholesky", a, to=a.type, lower=True)
    size = a.dims[-1]
    below = w.spread(w.constant(np.tri(size, dtype=bool)), a.dims)
    return w.op("select", below, made, w.full(0, a.type), to=a.type)  # type: ignore[no-any-return]


@in_other_ops("packed_matmul")
def packed_matmul(x: Any, words: Any, scales: Any, bits: int, columns: int, exponent: int) -> Any:
    """The matrix is widened: the format has no numbers as this op lays them out."""
    dense = unpacked(words, scales, bits, exponent)[:, :columns]
    return x @ f.astype(dense, x.dtype)
