"""Convolution of images that hold the channels of a pixel side by side.

    result[n, p, o] = sum over k, c of  x[n, p * stride + k * dilation, c] * w[k, c, o]

Each window is runs of neighbours in memory, which tiles of products of pairs read where they lie.
The pass `put_channels_last` writes convolutions so; users have `conv`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import POSITIVE, Attr, Contraction, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Type, definitely_different, tensor
from graphc.ops.linalg.matmul import Dims, contraction_cost, contraction_types
from graphc.ops.nn.conv import Ints, conv_op, window_extent
from graphc.ops.record.arguments import Applied, Array
from graphc.ops.record.batching import lane_by_lane
from graphc.ops.record.dims import row_major_strides, samples_of
from graphc.ops.record.families import REAL, define, require


def _infer(x: AnyType, w: AnyType, *, stride: Ints, dilation: Ints) -> Type:
    x, w = contraction_types("conv_last", x, w)
    spatial = x.rank - 2
    require(
        1 <= spatial <= 3 and w.rank == x.rank == len(stride) + 2 == len(dilation) + 2,
        f"conv_last takes N spatial C arrays, and strides and dilations for each axis: {x}, {w}",
    )
    require(
        not definitely_different(x.shape[-1], w.shape[-2]),
        f"conv_last: {x} has {x.shape[-1]} channels but {w} takes {w.shape[-2]}",
    )
    window = tensor(w.dtype, w.shape[:-2]).dims
    require(min(window) > 0, f"conv_last: windows of {w} are empty")
    axes = zip(x.shape[1:-1], window, stride, dilation)
    extents = (window_extent(n, (k - 1) * d + 1, s, "conv_last") for n, k, s, d in axes)
    return tensor(x.dtype, (x.shape[0], *extents, w.shape[-1]))


def _dims(node: Applied) -> Dims:
    x, w = (n.type.dims for n in node.inputs)
    y = node.type.dims
    at_x, at_w, at_y = map(row_major_strides, (x, w, y))
    found: Dims = [("m", x[0], at_x[0], 0, at_y[0])]
    for axis, step in enumerate(node.attrs["stride"], 1):
        found.append(("m", y[axis], step * at_x[axis], 0, at_y[axis]))
    found.append(("n", w[-1], 0, at_w[-1], at_y[-1]))
    for axis, step in enumerate(node.attrs["dilation"], 1):
        found.append(("k", w[axis - 1], step * at_x[axis], at_w[axis - 1], 0))
    found.append(("k", w[-2], at_x[-1], at_w[-2], 0))
    return found


def _reference(x: Array, w: Array, stride: Ints, dilation: Ints) -> Any:
    images, weights = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
    made = conv_op.reference(images, weights, stride=stride, dilation=dilation, groups=1)
    return np.moveaxis(made, 1, -1)


def _samples() -> list[Sample]:
    def attrs(stride: Ints, dilation: Ints = ()) -> dict[str, Any]:
        return {"stride": stride, "dilation": dilation or (1,) * len(stride)}

    return samples_of(
        [
            ([(2, 7, 6, 4), (3, 2, 4, 5)], attrs((1, 1))),
            ([(1, 9, 3), (3, 3, 6)], attrs((2,))),
            ([(2, 9, 8, 3), (3, 3, 3, 2)], attrs((1, 1), (2, 1))),
            ([(1, 5, 6, 7, 2), (2, 3, 2, 2, 3)], attrs((1, 2, 3))),
            ([(2, 5, 5, 6), (1, 1, 6, 4)], attrs((2, 2))),
        ],
        [
            ([(2, 7, 3), (3, 2, 4)], attrs((1,))),
            ([(2, 2, 3), (3, 3, 4)], attrs((1,))),
            ([(2, 7, 3), (3, 3, 4)], attrs((0,))),
            ([(2, 3), (3, 4)], attrs((1,))),
        ],
        dtypes=REAL,
        tolerance=8.0,
    )()


conv_last_op = define(
    "conv_last",
    batch=lane_by_lane,
    infer=_infer,
    reference=_reference,
    lower=Contraction(_dims),
    attrs=(Attr("stride", "ints", within=POSITIVE), Attr("dilation", "ints", within=POSITIVE)),
    dtypes=REAL,
    differentiable=False,
    cost=contraction_cost,
    samples=_samples,
    traits=Traits(convolution=True, channels_last=True),
    doc="Convolution of x[N, *spatial, C] with w[*window, C, O], without padding.",
)
