"""Convolution of few channels at a time: depthwise and narrow grouped ones, as plain loops.

A strip of rows of one group is copied between zeros, split by what is left of a row or column
modulo the stride.  Then every element that a window reads lies a constant away from the result it
counts for, and whole strips run as one loop, a few dead columns included:

    sums[p] = sum over c, i, j of  w[c, i, j] * plane(c, i*d % s, j*d % s)[p + shift(i, j)]

Where rows are short or windows large, channels of a depthwise convolution lie side by side instead
(`conv_lanes`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.ir.op import EXTENT, POSITIVE, Attr, Loops, Range
from graphc.ir.sizes import greatest, least
from graphc.ir.traits import Traits
from graphc.ir.types import F32, I8, U8, AnyType, Type, tensor
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.ops.linalg.matmul import accumulable, contraction_types
from graphc.ops.nn.conv_lanes import ChannelsInLanes, LaneShape, in_lanes
from graphc.ops.record.arguments import Applied, Array, ReadAt, Tensor, Write
from graphc.ops.record.batching import lane_by_lane
from graphc.ops.record.dims import samples_of, tensor_type
from graphc.ops.record.families import define, require
from graphc.ops.tuning import tuned

Ints = tuple[int, ...]
MOST_UNROLLED = 512  # products of a result, and phases of the channels it is made of
FLOATS = ("f32", "f64", "f16", "bf16")


@record(frozen=True)
class Shape:
    """Extents of a convolution and of its strips."""

    x: Ints
    w: Ints
    out: Ints
    stride: Ints
    dilation: Ints
    groups: int

    @property
    def shared(self) -> int:
        """Output channels of a group that are summed together."""
        most = max(1, tuned.window_terms // (self.w[1] * self.w[2] * self.w[3]))
        count = self.w[0] // self.groups
        return max(k for k in range(1, min(most, 4) + 1) if count % k == 0)

    def over(self, axis: int) -> int:
        """Rows or columns of a plane beyond those of the result."""
        return (self.w[2 + axis] - 1) * self.dilation[axis] // self.stride[axis]

    @property
    def pitch(self) -> int:
        return self.out[1] + self.over(1)

    @property
    def rows(self) -> int:
        """Rows of results in a strip."""
        area = self.pitch * self.stride[0] * self.stride[1] * self.w[1]
        most: int = greatest(1, tuned.window_strip // area - self.over(0))
        return -(-self.out[0] // -(-self.out[0] // most))

    @property
    def plane(self) -> int:
        """Elements of a plane."""
        return (self.rows + self.over(0)) * self.pitch

    @property
    def strips(self) -> int:
        return -(-self.out[0] // self.rows)

    def place(self, channel: int, i: int, j: int) -> int:
        """Where element (i, j) of the window of result 0 lies in scratch memory."""
        (down, right), (rows, columns) = self.dilation, self.stride
        phase = i * down % rows * columns + j * right % columns
        start = (channel * rows * columns + phase) * self.plane
        return start + i * down // rows * self.pitch + j * right // columns


def _shape(node: Any) -> Shape:
    x, w = (n.type.dims for n in node.inputs)
    stride, dilation, groups = (node.attrs[k] for k in ("stride", "dilation", "groups"))
    return Shape(x, w, node.attrs["out"], stride, dilation, groups)


def _infer(
    x: AnyType,
    w: AnyType,
    *,
    stride: Ints,
    dilation: Ints,
    groups: int,
    low: Ints,
    out: Ints,
    zero: int,
) -> Type:
    if isinstance(x, Type) and x.dtype in (I8, U8):
        x = tensor(F32, x.shape)
    x, w = contraction_types("conv_windows", x, w)
    require(x.rank == w.rank == 4, f"conv_windows takes arrays of rank 4, got {x}, {w}")
    require(
        all(len(part) == 2 for part in (stride, dilation, low, out)),
        "conv_windows has two spatial axes",
    )
    require(x.size * w.size * math.prod(out) > 0, f"conv_windows of {x} and {w}: nothing to sum up")
    require(
        x.dims[1] == w.dims[1] * groups and w.dims[0] % groups == 0,
        f"conv_windows: {groups} groups do not divide {x} and {w}",
    )
    require(
        fits_unrolled(w.dims, stride),
        f"conv_windows: windows of {w} in steps of {list(stride)} are too many to be written out",
    )
    return tensor(x.dtype, (x.dims[0], w.dims[0], *out))


def fits_unrolled(w: Ints, stride: Ints) -> bool:
    """Are the products of a result, and the phases of its channels, few enough to be unrolled?"""
    return w[1] * max(w[2] * w[3], math.prod(stride)) <= MOST_UNROLLED


def _reference(
    x: Array, w: Array, stride: Ints, dilation: Ints, groups: int, low: Ints, out: Ints, zero: int
) -> Any:
    x = x.astype(w.dtype) - w.dtype.type(zero)
    split_w = accumulable(w).reshape(groups, -1, *w.shape[1:])
    made: Any = 0
    for window in itertools.product(*map(range, w.shape[2:])):
        part = accumulable(x)
        for axis, (k, n, s, d, z) in enumerate(zip(window, out, stride, dilation, low), 2):
            part = _read(part, axis, np.arange(n) * s + k * d - z)
        part = part.reshape(len(x), groups, -1, *out)
        made = made + np.einsum("ngzab,gyz->ngyab", part, split_w[:, :, :, window[0], window[1]])
    return made.reshape(len(x), -1, *out).astype(x.dtype)


def _read(x: Tensor, axis: int, places: Any) -> Any:
    """The elements at these places of an axis, zeros where there is none."""
    inside = (places >= 0) & (places < x.shape[axis])
    made = np.take(x, np.where(inside, places, 0), axis)
    return np.where(inside.reshape((-1, *(1,) * (x.ndim - axis - 1))), made, x.dtype.type(0))


class _Windows:
    """One strip of one group of one image."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.planes, self.sums = scratch
        self.shape = _shape(node)
        self.element = self.planes.dtype

    def nest(self) -> None:
        b, shape = self.b, self.shape
        with b.loop(_units(self.node), "parallel") as unit:
            strip = unit % shape.strips
            rest = unit // shape.strips
            image = rest // shape.groups
            group = rest % shape.groups
            row = strip * shape.rows
            with b.loop(self.planes.size, "vector") as i:
                b.store(self.planes, i, b.const(0.0, self.element))
            self.copy_in(rest, row)
            outputs = shape.w[0] // shape.groups
            with b.loop(outputs // shape.shared) as block:
                first = b.affine([(group, outputs), (block, shape.shared)])
                self.sum_up(first)
                self.copy_out(image, first, row)

    def copy_in(self, matrix: Any, row: Expr) -> None:
        """The strip's rows of x, phase by phase."""
        b, shape = self.b, self.shape
        (down, right), low = shape.stride, self.node.attrs["low"]
        lines = shape.rows + shape.over(0)
        for channel, above, phase in itertools.product(
            range(shape.w[1]), range(down), range(right)
        ):
            # Column q of this phase is column right * q + phase - low of x.
            first = max(0, -(-(low[1] - phase) // right))
            last = least(shape.pitch, -(-(shape.x[3] + low[1] - phase) // right))
            plane = (channel * down + above) * right + phase
            with b.loop(lines) as line:
                source = b.affine([(row, down), (line, down)], above - low[0])
                inside = (source >= 0) & (source < shape.x[2])
                with b.when(inside), b.loop(last, "vector", first) as q:
                    start = b.affine([(matrix, shape.w[1])], channel)
                    start = b.affine([(start, shape.x[2]), (source, 1)])
                    start = b.affine([(start, shape.x[3]), (q, right)], phase - low[1])
                    value = self.read(0, start).cast(self.element)
                    if self.node.attrs["zero"]:
                        value = value - b.const(float(self.node.attrs["zero"]), self.element)
                    to = b.affine([(line, shape.pitch), (q, 1)], plane * shape.plane)
                    b.store(self.planes, to, value)

    def sum_up(self, first: Expr) -> None:
        """Sums of a few output channels over the whole strip, dead columns included."""
        b, shape = self.b, self.shape
        _, channels, height, width = shape.w
        size = channels * height * width
        with b.loop(shape.rows * shape.pitch, "vector") as p:
            totals: list[Any] = [None] * shape.shared
            windows = itertools.product(range(channels), range(height), range(width))
            for number, window in enumerate(windows):
                value = b.load(self.planes, p + shape.place(*window))
                for k in range(shape.shared):
                    weight = self.read(1, b.affine([(first, size)], k * size + number))
                    part = value * weight.cast(self.element)
                    totals[k] = part if totals[k] is None else totals[k] + part
            for k, total in enumerate(totals):
                b.store(self.sums, p + k * shape.rows * shape.pitch, total)

    def copy_out(self, image: Expr, first: Expr, row: Expr) -> None:
        """Live columns to the result."""
        b, shape = self.b, self.shape
        kind = self.node.type.dtype
        with b.loop(shape.shared) as k, b.loop(shape.rows) as line:
            here = row + line
            with b.when(here < shape.out[0]):
                start = b.affine([(k, shape.rows), (line, 1)])
                start = start * shape.pitch
                with b.loop(shape.out[1], "vector") as column:
                    value = b.load(self.sums, start + column)
                    self.write((image, first + k, here, column), value.cast(kind))


def _nest(b: Scalars, node: Applied, *given: Any) -> None:
    (ChannelsInLanes if in_lanes(node) else _Windows)(b, node, *given).nest()


def _units(node: Applied) -> int:
    if in_lanes(node):
        return LaneShape.of(node).units
    shape = _shape(node)
    return shape.x[0] * shape.groups * shape.strips


def _workspace(node: Applied) -> Any:
    element = tensor_type("conv_windows", node.type).dtype.compute
    if in_lanes(node):
        return tuple((element, size) for size in LaneShape.of(node).scratch)
    shape = _shape(node)
    planes = shape.w[1] * shape.stride[0] * shape.stride[1]
    return (
        (element, planes * shape.plane + shape.pitch),
        (element, shape.shared * shape.rows * shape.pitch),
    )


def _attrs(**given: object) -> dict[str, Any]:
    return {"stride": (1, 1), "dilation": (1, 1), "groups": 1, "low": (0, 0), **given}


conv_windows_op = define(
    "conv_windows",
    batch=lane_by_lane,
    infer=_infer,
    reference=_reference,
    lower=Loops(_nest, _units, _workspace),
    attrs=(
        Attr("stride", "ints", within=POSITIVE),
        Attr("dilation", "ints", within=POSITIVE),
        Attr("groups", "int", within=POSITIVE),
        Attr("low", "ints", within=EXTENT),
        Attr("out", "dims", within=EXTENT),
        Attr("zero", "int", 0, within=Range(-128, 255)),
    ),
    dtypes=FLOATS,
    differentiable=False,
    cost=lambda node: (
        2.0 * node.type.size * node.inputs[1].type.size / node.inputs[1].type.dims[0],
        float(sum(n.type.nbytes for n in node.inputs) + node.type.nbytes),
    ),
    samples=samples_of(
        [
            ([(2, 3, 9, 11), (3, 1, 3, 3)], _attrs(groups=3, low=(1, 1), out=(9, 11))),
            ([(1, 4, 8, 7), (6, 2, 3, 2)], _attrs(groups=2, stride=(2, 3), low=(1, 2), out=(4, 3))),
            (
                [(1, 2, 11, 9), (8, 2, 2, 3)],
                _attrs(stride=(3, 2), dilation=(2, 3), low=(0, 3), out=(4, 5)),
            ),
            ([(1, 1, 90, 40), (1, 1, 3, 3)], _attrs(out=(91, 38), low=(2, 0))),
            ([(2, 32, 7, 6), (32, 1, 3, 3)], _attrs(groups=32, low=(1, 1), out=(7, 6))),
            (
                [(1, 16, 11, 23), (16, 1, 3, 2)],
                _attrs(groups=16, stride=(3, 2), dilation=(1, 2), low=(2, 3), out=(5, 12)),
            ),
            ([(1, 16, 40, 41), (16, 1, 5, 5)], _attrs(groups=16, low=(2, 0), out=(40, 37))),
        ],
        [([(2, 3, 9, 11), (4, 1, 3, 3)], _attrs(groups=3, out=(9, 11)))],
        dtypes=FLOATS,
        tolerance=8.0,
    ),
    traits=Traits(windows=True),
    doc="A convolution of few channels a group, as `conv`, with `low` zeros before x (and as many "
    "after as `out` results need) in one op. An x of i8 or u8 is widened, less `zero`.",
)
