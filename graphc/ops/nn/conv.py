"""Convolution over one to three spatial axes: a contraction that reads x through shifted strides.

The `conv` node itself has no padding; the public functions put an explicit `pad` node in front.

    result[n, o, p] = sum over c, k of  x[n, c, p * stride + k * dilation] * w[o, c, k]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import Contraction, Op, Sample
from graphc.ir.sizes import Size
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Dim, Dimension, Type, definitely_different, tensor
from graphc.ops.linalg.matmul import (
    Dims,
    accumulable,
    contract,
    contraction_cost,
    contraction_types,
)
from graphc.ops.nn.conv_adjoint import STEPS, channels, lanes_of_channels, spread, to_weights
from graphc.ops.record.arguments import Applied, Array
from graphc.ops.record.batching import Lanes, moved, reshaped
from graphc.ops.record.dims import rank_of, row_major_strides, samples_of, shape_of
from graphc.ops.record.families import REAL, define, require
from graphc.ops.record.value import Value, emit, public
from graphc.ops.shape.padding import pad_zeros
from graphc.ops.shape.slicing import slice_axis

Ints = tuple[int, ...]

# ------------------------------------------------------------------------------------ windows


def per_axis(value: Any, count: int, name: str) -> Ints:
    """An int or a sequence as one int per spatial axis. Raises TypeRuleError."""
    made = (int(value),) * count if isinstance(value, int | np.integer) else tuple(map(int, value))
    require(len(made) == count, f"{name} {value} does not fit {count} spatial axes")
    return made


def window_extent(extent: Dimension, window: int, stride: int, name: str) -> Dimension:
    """Positions of a window on an axis. Raises TypeRuleError when the window does not fit."""
    room = extent - window
    if isinstance(room, Dim):
        steps = room if stride == 1 else room.divide(stride)
        require(steps is not None, f"{name}: {room} does not divide by the stride {stride}")
        assert steps is not None
        return steps + 1
    require(room >= 0, f"{name}: a window of {window} does not fit an axis of extent {extent}")
    return room // stride + 1


def resolve_padding(
    padding: Any, dims: Sequence[Dimension], window: Ints, stride: Ints
) -> list[Any]:
    """(low, high) per spatial axis from an int, ints, pairs, "valid" or "same".

    "same" gives ceil(extent / stride) positions, the odd element on the high side.
    """
    count = len(dims)
    if padding == "valid":
        return [(0, 0)] * count
    if padding == "same":
        return [_same_pair(*axis) for axis in zip(dims, window, stride)]
    if isinstance(padding, str):
        raise TypeRuleError(f"padding must be 'same', 'valid' or ints, got {padding!r}")
    if isinstance(padding, int | np.integer):
        return [(int(padding),) * 2] * count
    require(len(padding) == count, f"padding {padding} does not fit {count} spatial axes")
    return [
        (int(p),) * 2 if isinstance(p, int | np.integer) else (int(p[0]), int(p[1]))
        for p in padding
    ]


def _same_pair(extent: Dimension, window: int, stride: int) -> tuple[int, int]:
    if stride == 1:
        total = window - 1
    elif isinstance(extent, Dim):
        raise TypeRuleError(
            f"padding 'same' with stride {stride} needs a known extent, not {extent}"
        )
    else:
        total = max((-(-extent // stride) - 1) * stride + window - extent, 0)
    return total // 2, total - total // 2


# ------------------------------------------------------------------------------------ the op


def _infer_conv(x: AnyType, w: AnyType, *, stride: Ints, dilation: Ints, groups: int) -> Type:
    x, w = contraction_types("conv", x, w)
    spatial = x.rank - 2
    require(1 <= spatial <= 3 and w.rank == x.rank, f"conv takes N C spatial arrays, got {x}, {w}")
    require(
        len(stride) == len(dilation) == spatial, f"conv: {spatial} strides and dilations needed"
    )
    if definitely_different(x.shape[1], w.shape[1] * groups):
        raise TypeRuleError(
            f"conv: {x} has {x.shape[1]} channels but {w} takes {w.shape[1]} in {groups} group(s)",
            hint="weights are (channels out, channels in / groups, *window)",
        )
    out = w.shape[0]
    require(
        isinstance(out, Dim) or out % groups == 0,
        f"conv: {out} output channels do not divide into {groups} groups",
    )
    kernel = tensor(w.dtype, w.shape[2:]).dims
    require(min(kernel) > 0, f"conv: windows of {w} are empty")
    extents = (
        window_extent(n, (k - 1) * d + 1, s, "conv")
        for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation)
    )
    return tensor(x.dtype, (x.shape[0], out, *extents))


def _conv_dims(node: Applied) -> Dims:
    x, w = (n.type.dims for n in node.inputs)
    y = node.type.dims
    stride, dilation, groups = (node.attrs[k] for k in ("stride", "dilation", "groups"))
    at_x, at_w, at_y = map(row_major_strides, (x, w, y))
    out = w[0] // groups
    found: Dims = []
    if groups > 1:
        found.append(("batch", groups, w[1] * at_x[1], out * at_w[0], out * at_y[1]))
    found.append(("m", x[0], at_x[0], 0, at_y[0]))
    found += [("m", y[a], stride[a - 2] * at_x[a], 0, at_y[a]) for a in range(2, len(x))]
    found.append(("n", out, 0, at_w[0], at_y[1]))
    found.append(("k", w[1], at_x[1], at_w[1], 0))
    found += [("k", w[a], dilation[a - 2] * at_x[a], at_w[a], 0) for a in range(2, len(x))]
    return found


def _conv_reference(x: Array, w: Array, stride: Ints, dilation: Ints, groups: int) -> Any:
    spatial = x.ndim - 2
    reach = tuple((k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation))
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(accumulable(x), reach, axes)
    steps = (*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    windows = windows[(slice(None), slice(None), *steps)]
    split_x = windows.reshape(x.shape[0], groups, w.shape[1], *windows.shape[2:])
    split_w = accumulable(w).reshape(groups, len(w) // groups, *w.shape[1:])
    place, offset = "abc"[:spatial], "pqr"[:spatial]
    equation = f"ngz{place}{offset},gyz{offset}->ngy{place}"
    made = np.einsum(equation, split_x, split_w, optimize=True)
    return made.reshape(x.shape[0], w.shape[0], *made.shape[3:]).astype(x.dtype)


def _conv_samples() -> list[Sample]:
    def attrs(spatial: int, **given: object) -> dict[str, Any]:
        return {"stride": (1,) * spatial, "dilation": (1,) * spatial, "groups": 1, **given}

    return samples_of(
        [
            ([(2, 3, 7, 6), (4, 3, 3, 2)], attrs(2)),
            ([(1, 4, 9), (6, 2, 3)], attrs(1, stride=(2,), groups=2)),
            ([(2, 3, 9, 8), (3, 1, 3, 3)], attrs(2, groups=3, dilation=(2, 1))),
            ([(1, 2, 5, 6, 7), (3, 2, 2, 3, 2)], attrs(3, stride=(1, 2, 3))),
            ([(2, 3, 5, 5), (4, 3, 1, 1)], attrs(2, stride=(2, 2))),
        ],
        [
            ([(2, 3, 7), (4, 2, 3)], attrs(1)),
            ([(2, 3, 2), (4, 3, 3)], attrs(1)),
            ([(2, 4, 7), (3, 2, 3)], attrs(1, groups=2)),
            ([(2, 3, 7), (4, 3, 3)], attrs(1, stride=(0,))),
            ([(2, 3), (4, 3)], attrs(1)),
        ],
        dtypes=REAL,
        tolerance=8.0,
    )()


def _conv_gradient(ct: Value, result: Value, x: Value, w: Value, **step: Any) -> tuple[Any, Any]:
    window = w.type.dims[2:]
    return spread(ct, w, shape_of(x)[2:], **step), to_weights(ct, x, window, **step)


def _batch_conv(
    op: Op, lanes: Lanes, x: Value, w: Value, *, stride: Ints, dilation: Ints, groups: int
) -> Any:
    """Lanes of images are images; lanes of weights are channels, and with both they are groups."""
    attrs: dict[str, Any] = {"stride": stride, "dilation": dilation}
    if not lanes.mapped[1]:
        count = x.shape[1]
        made = emit(op, reshaped(x, (lanes.size * count, *x.shape[2:])), w, groups=groups, **attrs)
        return reshaped(made, (lanes.size, count, *made.shape[1:]))
    if groups == 1 and not lanes.mapped[0]:
        made = emit(op, x, reshaped(w, (lanes.size * w.shape[1], *w.shape[2:])), groups=1, **attrs)
        return lanes_of_channels(made, lanes.size)
    x, w = lanes.spread((x, w))
    flat = reshaped(w, (lanes.size * w.shape[1], *w.shape[2:]))
    made = emit(op, channels(moved(x, 0, 1)), flat, groups=lanes.size * groups, **attrs)
    return lanes_of_channels(made, lanes.size)


conv_op = define(
    "conv",
    batch=_batch_conv,
    infer=_infer_conv,
    reference=_conv_reference,
    lower=Contraction(_conv_dims),
    attrs=STEPS,
    dtypes=REAL,
    gradient=_conv_gradient,
    cost=contraction_cost,
    samples=_conv_samples,
    traits=Traits(convolution=True),
    doc="Convolution (correlation, as in neural networks) of x[N, C, *spatial] with "
    "w[O, C / groups, *window], without padding.",
)

# ------------------------------------------------------------------------------------ functions


def _spatial(x: Value, w: Value, name: str) -> int:
    count = rank_of(x) - 2
    require(
        1 <= count <= 3 and rank_of(w) == count + 2,
        f"{name} takes x[N, C, *spatial] and w of the same rank, got shapes "
        f"{list(shape_of(x))} and {list(shape_of(w))}",
    )
    return count


@public(name="conv")
def conv(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Convolution of x[N, C, *spatial] with w[O, C / groups, *window] over 1 to 3 spatial axes.

    padding is an int, one int or (low, high) pair per axis, "same" or "valid"; x is padded with 0.
    """
    count = _spatial(x, w, "conv")
    stride, dilation = per_axis(stride, count, "stride"), per_axis(dilation, count, "dilation")
    reach = tuple((int(k) - 1) * d + 1 for k, d in zip(shape_of(w)[2:], dilation))  # type: ignore[arg-type]
    pairs = resolve_padding(padding, shape_of(x)[2:], reach, stride)
    padded = pad_zeros(x, [(0, 0), (0, 0), *pairs])
    return contract("conv", padded, w, stride=stride, dilation=dilation, groups=groups)


@public(name="conv_transpose")
def conv_transpose(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """The adjoint of conv with respect to x: w is (channels in, channels out / groups, *window).

    Spatial extents become (extent - 1) * stride - 2 * padding + reach + output_padding.
    """
    count = _spatial(x, w, "conv_transpose")
    stride, dilation = per_axis(stride, count, "stride"), per_axis(dilation, count, "dilation")
    extra = per_axis(output_padding, count, "output_padding")
    positive = min(groups, *stride, *dilation) > 0
    require(positive, "conv_transpose: strides, dilations and groups are positive")
    inputs, given = shape_of(x)[1], shape_of(w)[0]
    require(
        not definitely_different(inputs, given) and int(given) % groups == 0,  # type: ignore[arg-type]
        f"conv_transpose: {inputs} channels do not fit weights for {given} in {groups} group(s)",
    )
    reach = tuple((int(k) - 1) * d + 1 for k, d in zip(shape_of(w)[2:], dilation))  # type: ignore[arg-type]
    pairs = resolve_padding(padding, shape_of(x)[2:], reach, (1,) * count)
    extents = [(n - 1) * s + r + e for n, s, r, e in zip(shape_of(x)[2:], stride, reach, extra)]
    left = [n - low - high for n, (low, high) in zip(extents, pairs)]
    fits = all(isinstance(n, Size) or n > 0 for n in left)
    require(fits, "conv_transpose: the padding leaves no elements")
    made = spread(x, w, extents, stride, dilation, groups)
    for axis, ((low, high), extent) in enumerate(zip(pairs, extents), 2):
        made = slice_axis(made, axis, low, extent - high)
    return made
