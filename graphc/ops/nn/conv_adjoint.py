"""What convolution differentiates into: three sums of products that are one another's adjoints.

    conv            y[n, o, p] = sum over c, k of   x[n, c, p*s + k*d] * w[o, c, k]
    conv_weights    w[o, c, k] = sum over n, p of   x[n, c, p*s + k*d] * y[n, o, p]
    spread          x[n, c, q] = sum over o, p, k with p*s + k*d = q of  y[n, o, p] * w[o, c, k]

The last is a convolution again.  In steps of s the results q = s*j + r of each phase r are made of
every s-th weight, so the phases are channels of one convolution of y, dealt out afterwards:

    weights  k:  0 1 2 3 4        phase 0:  0 2 4        x  q:  0 1 2 3 4 5 ...   (s = 2)
                                  phase 1:  1 3 -           r:  0 1 0 1 0 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.op import POSITIVE, Attr, Contraction, Op, Sample
from graphc.ir.types import AnyType, Dimension, Type, definitely_different, tensor
from graphc.ops.autodiff.adjoints import fitted
from graphc.ops.linalg.matmul import (
    Dims,
    accumulable,
    contract,
    contraction_cost,
    contraction_types,
)
from graphc.ops.record.arguments import Applied, Array, ArrayLike
from graphc.ops.record.batching import Lanes, moved, reshaped
from graphc.ops.record.dims import row_major_strides, samples_of, shape_of
from graphc.ops.record.families import REAL, define, require
from graphc.ops.record.value import Value, emit, functions
from graphc.ops.shape.manipulation import flip
from graphc.ops.shape.padding import pad_zeros
from graphc.ops.shape.shape import reshape, transpose
from graphc.ops.shape.slicing import slice_axis
from graphc.ops.tuning import tuned

Ints = tuple[int, ...]
STEPS = (
    Attr("stride", "ints", within=POSITIVE),
    Attr("dilation", "ints", within=POSITIVE),
    Attr("groups", "int", 1, within=POSITIVE),
)

# ------------------------------------------------------------------------------------ to weights


def _infer_weights(
    y: AnyType, x: AnyType, *, stride: Ints, dilation: Ints, groups: int, window: Ints
) -> Type:
    y, x = contraction_types("conv_weights", y, x)
    spatial = x.rank - 2
    require(1 <= spatial <= 3 and y.rank == x.rank, f"conv_weights takes two images, not {y}, {x}")
    require(
        len(stride) == len(dilation) == len(window) == spatial,
        f"conv_weights: {spatial} strides, dilations and extents of the window needed",
    )
    outputs, inputs = y.shape[1], x.shape[1]
    whole = isinstance(outputs, int) and isinstance(inputs, int)
    require(
        whole and outputs % groups == inputs % groups == 0,  # type: ignore[operator]
        f"conv_weights: channels of {y} and {x} do not divide into {groups} groups",
    )
    same = not definitely_different(x.shape[0], y.shape[0])
    for n, p, k, s, d in zip(x.shape[2:], y.shape[2:], window, stride, dilation):
        spare = n - ((p - 1) * s + (k - 1) * d + 1)
        same = same and not (isinstance(spare, int) and spare < 0)
    require(same, f"conv_weights: windows of {window} at {y} do not fit {x}")
    return tensor(x.dtype, (outputs, inputs // groups, *window))  # type: ignore[operator]


def _weights_dims(node: Applied) -> Dims:
    y, x = (n.type.dims for n in node.inputs)
    w = node.type.dims
    stride, dilation, groups = (node.attrs[k] for k in ("stride", "dilation", "groups"))
    at_y, at_x, at_w = map(row_major_strides, (y, x, w))
    out = w[0] // groups
    found: Dims = []
    if groups > 1:
        found.append(("batch", groups, out * at_y[1], w[1] * at_x[1], out * at_w[0]))
    found.append(("m", out, at_y[1], 0, at_w[0]))
    found.append(("n", w[1], 0, at_x[1], at_w[1]))
    found += [("n", w[a], 0, dilation[a - 2] * at_x[a], at_w[a]) for a in range(2, len(x))]
    found.append(("k", y[0], at_y[0], at_x[0], 0))
    found += [("k", y[a], at_y[a], stride[a - 2] * at_x[a], 0) for a in range(2, len(x))]
    return found


def _weights_reference(
    y: Array, x: Array, stride: Ints, dilation: Ints, groups: int, window: Ints
) -> Any:
    outputs, inputs = y.shape[1] // groups, x.shape[1] // groups
    count = math.prod(y.shape[2:])
    split_y = accumulable(y).reshape(len(y), groups, outputs, count)
    made = np.zeros((groups, outputs, inputs, *window), split_y.dtype)
    for place in np.ndindex(*window):
        part = accumulable(x)
        for axis, (k, p, s, d) in enumerate(zip(place, y.shape[2:], stride, dilation), 2):
            part = np.take(part, k * d + s * np.arange(p), axis)
        part = part.reshape(len(x), groups, inputs, count)
        made[(..., *place)] = np.einsum("ngop,ngcp->goc", split_y, part, optimize=True)
    return made.reshape(groups * outputs, inputs, *window).astype(x.dtype)


def _weights_gradient(
    ct: Value, result: Value, y: Value, x: Value, *, window: Ints, **step: Any
) -> tuple[Any, Any]:
    """Both adjoints; elements of x that no window reaches get zeros."""
    reached = _reached(x, y, window, step["stride"], step["dilation"])
    return emit("conv", reached, ct, **step), spread(y, ct, shape_of(x)[2:], **step)


def _reached(x: Value, y: Value, window: Ints, stride: Ints, dilation: Ints) -> Any:
    """x without what lies beyond the last window of y."""
    extents = zip(shape_of(y)[2:], window, stride, dilation)
    for axis, (p, k, s, d) in enumerate(extents, 2):
        x = slice_axis(x, axis, 0, (p - 1) * s + (k - 1) * d + 1)
    return x


def _samples() -> list[Sample]:
    def attrs(window: Ints, **given: object) -> dict[str, Any]:
        ones = (1,) * len(window)
        return {"window": window, "stride": ones, "dilation": ones, "groups": 1, **given}

    return samples_of(
        [
            ([(2, 4, 5, 5), (2, 3, 7, 6)], attrs((3, 2))),
            ([(1, 6, 4), (1, 4, 9)], attrs((2,), stride=(2,), groups=2)),
            ([(2, 3, 5, 6), (2, 3, 9, 8)], attrs((3, 3), groups=3, dilation=(2, 1))),
            ([(1, 3, 4, 2, 2), (1, 2, 5, 6, 7)], attrs((2, 3, 2), stride=(1, 2, 3))),
        ],
        [
            ([(2, 4, 6, 5), (2, 3, 7, 6)], attrs((3, 2))),
            ([(1, 5, 4), (1, 4, 9)], attrs((2,), groups=2)),
            ([(2, 4, 5), (1, 3, 7)], attrs((3,))),
            ([(2, 4, 5), (2, 3, 7)], attrs((3, 3))),
        ],
        dtypes=REAL,
        tolerance=8.0,
    )()


def channels(x: Value) -> Value:
    """Lanes that stand before the channels as further channels: [N, lanes, C, ...]."""
    return reshaped(x, (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]))


def lanes_of_channels(y: Value, size: Dimension) -> Value:
    """The reverse: [N, lanes * C, ...] as [lanes, N, C, ...]."""
    count: Any = y.shape[1]
    return moved(reshaped(y, (y.shape[0], size, count // size if size else 0, *y.shape[2:])), 1, 0)


def _batch_weights(op: Op, lanes: Lanes, y: Value, x: Value, **attrs: Any) -> Any:
    """Every lane is a group, or as many as it has."""
    y, x = lanes.spread((y, x))
    outputs, groups = y.shape[2], lanes.size * attrs.pop("groups")
    made = to_weights(channels(moved(y, 0, 1)), channels(moved(x, 0, 1)), groups=groups, **attrs)
    return reshaped(made, (lanes.size, outputs, *made.shape[1:]))


conv_weights_op = define(
    "conv_weights",
    batch=_batch_weights,
    infer=_infer_weights,
    reference=_weights_reference,
    lower=Contraction(_weights_dims),
    attrs=(*STEPS, Attr("window", "ints", within=POSITIVE)),
    dtypes=REAL,
    gradient=_weights_gradient,
    cost=contraction_cost,
    samples=_samples,
    doc="The sum, over images and places, of y[N, O, *places] times what the windows of "
    "x[N, C, *spatial] hold there: the gradient of `conv` to its weights.",
)


def to_weights(y: Any, x: Value, window: Ints, stride: Ints, dilation: Ints, groups: int) -> Any:
    """The gradient of `conv` to its weights, where groups are narrow as plain sums of products."""
    outputs, inputs = shape_of(y)[1] // groups, shape_of(x)[1] // groups  # type: ignore[operator]
    if groups == 1 or outputs * inputs * math.prod(window) > tuned.weight_sums:
        return emit(
            "conv_weights", y, x, window=window, stride=stride, dilation=dilation, groups=groups
        )
    element = y.element
    y, x = (functions.astype(a, element.compute) for a in (y, x))
    split_y = reshape(y, (shape_of(y)[0], groups, outputs, 1, *shape_of(y)[2:]))
    split_x = reshape(x, (shape_of(x)[0], groups, 1, inputs, *shape_of(x)[2:]))
    sums = []
    for place in np.ndindex(*window):
        read = split_x
        for axis, (k, p, s, d) in enumerate(zip(place, shape_of(y)[2:], stride, dilation), 4):
            read = slice_axis(read, axis, k * d, k * d + (p - 1) * s + 1, s)
        # Siblings that read the same array: one kernel makes all of these sums.
        over = (0, *range(4, 4 + len(window)))
        sums.append(functions.sum(functions.multiply(split_y, read), axis=over))
    made = reshape(functions.stack(sums, -1), (groups * outputs, inputs, *window))
    return functions.astype(made, element)


# ------------------------------------------------------------------------------------ to images


def spread(
    y: ArrayLike, w: Value, extents: Sequence[Dimension], stride: Ints, dilation: Ints, groups: int
) -> Any:
    """The gradient of `conv` to x of these spatial extents: the adjoint of reading windows."""
    count = len(stride)
    for a, (s, d) in enumerate(zip(stride, dilation)):
        if s > 1 and d > 1:  # phases would need a dilation each: zeros between places instead
            spaces = [0] * (2 + count)
            spaces[2 + a] = s - 1
            y = pad_zeros(y, [(0, 0)] * (2 + count), tuple(spaces))
            stride = (*stride[:a], 1, *stride[a + 1 :])
    window: Any = shape_of(w)[2:]
    phases = tuple(min(s, k) for s, k in zip(stride, window))
    taps = tuple(-(-k // r) for k, r in zip(window, phases))
    around = [((t - 1) * d,) * 2 for t, d in zip(taps, dilation)]
    made = contract(
        "conv",
        pad_zeros(y, [(0, 0), (0, 0), *around]),
        _by_phase(w, phases, taps, groups),
        stride=(1,) * count,
        dilation=dilation,
        groups=groups,
    )
    return fitted(_dealt_out(made, phases, stride), extents)


def _by_phase(w: ArrayLike, phases: Ints, taps: Ints, groups: int) -> Any:
    """Weights [O, C, *window] as [C * phases, O, *taps] of each group, the taps reversed."""
    count = len(phases)
    outputs, inputs, *window = map(int, shape_of(w))  # type: ignore[arg-type]
    filled = [(0, t * r - k) for t, r, k in zip(taps, phases, window)]
    parts = pad_zeros(w, [(0, 0), (0, 0), *filled])
    split = (e for pair in zip(taps, phases) for e in pair)
    parts = reshape(parts, (groups, outputs // groups, inputs, *split))
    places = range(3, 3 + 2 * count)
    parts = flip(parts, tuple(places[::2]))
    parts = transpose(parts, (0, 2, *places[1::2], 1, *places[::2]))
    channels = groups * inputs * math.prod(phases)
    return reshape(parts, (channels, outputs // groups, *taps))


def _dealt_out(x: Value, phases: Ints, stride: Ints) -> Any:
    """Channels [C * phases] of images as neighbours along the spatial axes."""
    count = len(phases)
    images, channels, *extents = shape_of(x)
    if max(phases) == 1:
        none: list[tuple[int, int]] = [(0, 0)] * (2 + count)
        return pad_zeros(x, none, (0, 0, *(s - 1 for s in stride)))
    inner = channels // math.prod(phases)  # type: ignore[operator]
    x = reshape(x, (images, inner, *phases, *extents))
    # Phases beyond the window hold zeros.
    missing = [(0, s - r) for s, r in zip(stride, phases)]
    order = [axis for a in range(count) for axis in (2 + count + a, 2 + a)]
    x = pad_zeros(x, [(0, 0), (0, 0), *missing, *[(0, 0)] * count])
    return reshape(
        transpose(x, (0, 1, *order)), (images, inner, *(n * s for n, s in zip(extents, stride)))
    )
