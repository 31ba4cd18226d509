"""Depthwise convolution of images that hold the channels of a pixel side by side.

    result[n, p, c] = sum over k of  x[n, p * stride + k * dilation - low, c] * w[k, c]

A strip of rows is copied between zeros; a vector is some channels of a pixel.  Neighbouring results
are summed together, as they read the same weights, and in steps of one most of the same pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.ir.op import EXTENT, POSITIVE, Attr, Loops, Range
from graphc.ir.traits import Traits
from graphc.ir.types import F32, I8, U8, AnyType, Type, tensor
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import minimum
from graphc.ops.linalg.matmul import contraction_types
from graphc.ops.nn.conv import Ints
from graphc.ops.nn.conv_windows import FLOATS, conv_windows_op
from graphc.ops.nn.window_strips import WindowStrips
from graphc.ops.record.arguments import Applied, Array, ReadAt, Write
from graphc.ops.record.batching import lane_by_lane
from graphc.ops.record.dims import samples_of, tensor_type
from graphc.ops.record.families import define, require
from graphc.ops.tuning import tuned

TOGETHER = 8  # results whose sums are made at once, in registers
MOST_UNROLLED = 256  # products of those in a row of windows
MOST_CHANNELS = 64  # that are copied together: a window of them stays in the first level
LANES = 16
LEAST_STRIPS = 2


@record(frozen=True)
class StripShape(WindowStrips):
    """Strips of images with channels last, some channels at a time."""

    AXES = slice(2)

    @property
    def channels(self) -> int:
        """Those of a block, of which strips have more rows: whole vectors, as many in each if that
        can be.
        """
        count = self.x[3]
        if count <= MOST_CHANNELS:
            return count
        even = [k for k in range(LANES, MOST_CHANNELS + 1, LANES) if count % k == 0]
        share = -(-count // -(-count // MOST_CHANNELS))
        return even[-1] if even and even[-1] * 2 > MOST_CHANNELS else -(-share // LANES) * LANES

    @property
    def blocks(self) -> int:
        return -(-self.x[3] // self.channels)

    @property
    def line(self) -> int:
        """Elements of a row of the copy."""
        return self.span(self.out[1], 1) * self.channels

    @property
    def rows(self) -> int:
        """Rows of results in a strip, about as many in each. A single image has several strips:
        threads then have rows of it, as they do of products, and read what they made themselves.
        """
        room = max(0, tuned.window_strip_of_pixels // self.line - self.span(1, 0))
        most = room // self.stride[0] + 1
        most = min(most, -(-self.out[0] // LEAST_STRIPS)) if self.x[0] == 1 else most
        return -(-self.out[0] // -(-self.out[0] // most))

    @property
    def together(self) -> int:
        """Results of a row that are summed together, about as many each time."""
        most = min(TOGETHER, self.out[1], max(1, MOST_UNROLLED // self.window[1]))
        return -(-self.out[1] // -(-self.out[1] // most))


def _infer(
    x: AnyType, w: AnyType, *, stride: Ints, dilation: Ints, low: Ints, out: Ints, zero: int
) -> Type:
    if isinstance(x, Type) and x.dtype in (I8, U8):
        x = tensor(F32, x.shape)
    x, w = contraction_types("conv_windows_last", x, w)
    require(
        (x.rank, w.rank) == (4, 3) and x.dims[3] == w.dims[2],
        f"conv_windows_last takes x[N, H, W, C] and w[h, w, C], got {x}, {w}",
    )
    require(
        all(len(part) == 2 for part in (stride, dilation, low, out)),
        "conv_windows_last has two spatial axes",
    )
    require(0 not in (*x.dims, *w.dims, *out), f"conv_windows_last of {x} and {w}: nothing to sum")
    return tensor(x.dtype, (x.dims[0], *out, x.dims[3]))


def _reference(
    x: Array, w: Array, stride: Ints, dilation: Ints, low: Ints, out: Ints, zero: int
) -> Any:
    attrs = {"stride": stride, "dilation": dilation, "low": low, "out": out, "zero": zero}
    images, weights = np.moveaxis(x, 3, 1), np.moveaxis(w, 2, 0)[:, None]
    made = conv_windows_op.reference(images, weights, groups=x.shape[3], **attrs)
    return np.moveaxis(made, 1, 3)


class _Strips:
    """Strips of rows of images."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        (self.copy,) = scratch
        self.shape = StripShape.of(node)

    def nest(self) -> None:
        b, shape, low = self.b, self.shape, self.node.attrs["low"]
        with b.loop(_units(self.node), "parallel") as unit:
            rest, self.first = unit // shape.blocks, unit % shape.blocks * shape.channels
            image, row = rest // shape.strips, rest % shape.strips * shape.rows
            self.width: Expr | int = shape.channels
            if shape.x[3] % shape.channels:
                self.width = minimum(b.integer(shape.channels), shape.x[3] - self.first)
            with b.loop(shape.lines) as line:
                self.copy_in(image, row * shape.stride[0] + line - low[0], line)
            with b.loop(shape.rows) as line:
                here = row + line
                with b.when(here < shape.out[0]):
                    self.sum_row(image, here, line)

    def copy_in(self, image: Expr, source: Expr, line: Expr) -> None:
        """A row of x between zeros, or a row of zeros."""
        b, shape, zero = self.b, self.shape, self.node.attrs["zero"]
        columns = shape.line // shape.channels
        first = min(self.node.attrs["low"][1], columns)
        used = max(0, min(shape.x[2], columns - first))
        inside = (source >= 0) & (source < shape.x[1])
        with b.when(inside):
            self.clear(line, 0, first)
            start = b.affine([(image, shape.x[1]), (source, 1)]) * shape.x[2]
            run = used if shape.blocks == 1 else 1  # pixels that lie side by side
            with b.loop(used // max(1, run)) as column, b.loop(self.width * run, "vector") as c:
                value = self.read(0, (start + column) * shape.x[3] + self.first + c)
                value = value.cast(self.copy.dtype)
                value = value - b.const(float(zero), self.copy.dtype) if zero else value
                to = b.affine([(line, columns), (column, 1)], first) * shape.channels + c
                b.store(self.copy, to, value)
            self.clear(line, first + used, columns)
        with b.when((source < 0) | (source >= shape.x[1])):
            self.clear(line, 0, columns)

    def clear(self, line: Expr, start: int, end: int) -> None:
        """Zeros in columns of a row."""
        b, shape = self.b, self.shape
        if start < end:
            with b.loop((end - start) * shape.channels, "vector") as q:
                zero = b.const(0.0, self.copy.dtype)
                to = b.affine([(line, shape.line), (q, 1)], start * shape.channels)
                b.store(self.copy, to, zero)

    def sum_row(self, image: Expr, row: Expr, line: Expr) -> None:
        """A row of results, some together, and what is left of them."""
        b, shape = self.b, self.shape
        whole, rest = divmod(shape.out[1], shape.together)
        with b.loop(whole) as part:
            self.sum_up((image, row, part * shape.together), line, shape.together)
        if rest:
            self.sum_up((image, row, b.integer(shape.out[1] - rest)), line, rest)

    def sum_up(self, place: tuple[Expr, Expr, Expr], line: Expr, count: int) -> None:
        """So many neighbouring results, all channels of them."""
        b, shape, channels = self.b, self.shape, self.shape.channels
        (down, right), (rows, columns) = shape.dilation, shape.stride
        pitch, across = shape.line // channels, shape.window[1]
        with b.loop(self.width, "vector") as c:
            corner = b.affine([(line, rows * pitch), (place[2], columns)]) * channels + c
            # Zero would make +0 of products that are all -0.
            sums = [b.register(b.const(-0.0, self.copy.dtype)) for _ in range(count)]
            with b.loop(shape.window[0], "within") as i:
                here = corner + i * (down * pitch * channels)
                first = self.first + c + i * (across * shape.x[3])
                for j in range(across):
                    weight = self.read(1, first + j * shape.x[3]).cast(self.copy.dtype)
                    for k, total in enumerate(sums):
                        shift = (k * columns + j * right) * channels
                        part = b.load(self.copy, here + shift) * weight
                        b.assign(total, b.read(total) + part)
            for k, total in enumerate(sums):
                value = b.read(total).cast(self.node.type.dtype)
                self.write((*place[:2], place[2] + k, self.first + c), value)


def _units(node: Applied) -> int:
    shape = StripShape.of(node)
    return shape.x[0] * shape.blocks * shape.strips


def _workspace(node: Applied) -> Any:
    shape = StripShape.of(node)
    element = tensor_type("conv_windows_last", node.type).dtype.compute
    return ((element, shape.lines * shape.line),)


def _attrs(**given: object) -> dict[str, Any]:
    return {"stride": (1, 1), "dilation": (1, 1), "low": (0, 0), **given}


conv_windows_last_op = define(
    "conv_windows_last",
    batch=lane_by_lane,
    infer=_infer,
    reference=_reference,
    lower=Loops(lambda *given: _Strips(*given).nest(), _units, _workspace),
    attrs=(
        Attr("stride", "ints", within=POSITIVE),
        Attr("dilation", "ints", within=POSITIVE),
        Attr("low", "ints", within=EXTENT),
        Attr("out", "dims", within=EXTENT),
        Attr("zero", "int", 0, within=Range(-128, 255)),
    ),
    dtypes=FLOATS,
    differentiable=False,
    cost=conv_windows_op.cost,
    samples=samples_of(
        [
            ([(2, 9, 11, 3), (3, 3, 3)], _attrs(low=(1, 1), out=(9, 11))),
            ([(1, 8, 7, 20), (3, 2, 20)], _attrs(stride=(2, 3), low=(1, 2), out=(4, 3))),
            ([(1, 11, 9, 5), (2, 3, 5)], _attrs(dilation=(2, 3), low=(0, 3), out=(9, 5))),
            ([(1, 90, 40, 16), (5, 5, 16)], _attrs(out=(91, 37), low=(3, 0))),
            ([(1, 2, 2, 4), (9, 9, 4)], _attrs(out=(2, 2), low=(4, 4))),
            ([(1, 9, 6, 80), (3, 3, 80)], _attrs(low=(1, 1), out=(9, 6))),
            ([(2, 9, 6, 80), (3, 3, 80)], _attrs(low=(1, 1), out=(9, 6))),
        ],
        [([(2, 9, 11, 3), (3, 3, 4)], _attrs(out=(9, 11)))],
        dtypes=FLOATS,
        tolerance=8.0,
    ),
    traits=Traits(windows=True, channels_last=True),
    doc="A depthwise convolution of x[N, H, W, C] with w[h, w, C], with `low` zeros before x (and "
    "as many after as `out` results need) in one op. An x of i8 or u8 is widened, less `zero`.",
)
