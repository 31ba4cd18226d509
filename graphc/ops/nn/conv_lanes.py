"""Depthwise convolution with channels side by side: each lane of a vector has one.

    planes[line, column, lane] = x[channel + lane, line, column]          squares are turned
    sums[k, lane] = sum over i, j of  w[i, j, lane] * planes[i, s * k + j, lane]
    result[channel + lane, row, column + k] = sums[k, lane]               and turned back

All lanes work however short rows are, no vector is read across two lines of the cache, and memory
is read in as many streams as there are lanes.  Two turns are the price, which windows that have
hardly a neighbour in a row do not make up for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from graphc.base.record import record
from graphc.ir.sizes import is_open
from graphc.ir.types import F32, F64, I8, U8
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.ops.nn.window_strips import WindowStrips
from graphc.ops.record.arguments import Applied, ReadAt, Write
from graphc.ops.tuning import tuned

LANES = 16, 8  # channels side by side: a vector or half of one, or several shorter ones
MOST_UNROLLED = 256  # products of a row of windows
TURNED = 8  # columns that are turned at a time
SHORTEST = 3  # elements side by side that are turned: fewer of a row are not worth a load
WHOLE = 16  # elements of an image with such rows that is turned at once
SET = 4096  # bytes: what lies so far apart shares a set of the first cache level


@record(frozen=True)
class LaneShape(WindowStrips):
    """Strips of images whose channels lie side by side in the copy."""

    AXES = slice(2, None)

    @property
    def lanes(self) -> int:
        """Channels that lie side by side."""
        return next(count for count in LANES if self.x[1] % count == 0)

    @property
    def pitch(self) -> int:
        return self.span(self.out[1], 1)

    @property
    def rows(self) -> int:
        lines = tuned.window_lines // (self.pitch * self.lanes)
        most = max(1, (lines - self.span(1, 0)) // self.stride[0] + 1)
        return -(-self.out[0] // -(-self.out[0] // most))

    @property
    def whole(self) -> bool:
        """Are images so small that all of a channel is turned at once?"""
        areas = math.prod(self.x[2:]), math.prod(self.out)
        return min(self.x[3], self.out[1]) < SHORTEST and max(areas) <= WHOLE

    @property
    def units(self) -> int:
        return self.x[0] * (self.x[1] // self.lanes) * self.strips

    @property
    def scratch(self) -> tuple[int, int, int]:
        """Elements of the planes of a strip, of the weights and of what is summed before it is
        turned: a row, or all."""
        planes, window = self.lines * self.pitch, math.prod(self.window)
        sums = math.prod(self.out) if self.whole else self.out[1]
        return planes * self.lanes, window * self.lanes, sums * self.lanes


class ChannelsInLanes:
    """One strip of some channels of an image."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.planes, self.weights, self.sums = scratch
        self.shape = LaneShape.of(node)
        self.lanes = self.shape.lanes
        self.element = self.planes.dtype

    def nest(self) -> None:
        b, shape = self.b, self.shape
        blocks = shape.x[1] // self.lanes
        with b.loop(shape.units, "parallel") as unit:
            row = unit % shape.strips * shape.rows
            rest = unit // shape.strips
            image, channel = rest // blocks, rest % blocks * self.lanes
            self.turn_weights(channel)
            if shape.whole:
                self.copy_image_in(image, channel)
            else:
                self.copy_in(image, channel, row)
            with b.loop(shape.rows) as line:
                here = row + line
                with b.when(here < shape.out[0]):
                    if shape.whole:
                        self.sum_up(line, line * shape.out[1])
                    else:
                        self.sum_up(line, b.integer(0))
                        self.copy_out(image, channel, here)
            if shape.whole:
                self.copy_image_out(image, channel)

    def parts(self, extent: int, most: int) -> Iterator[tuple[Expr, int]]:
        """Where parts of a row begin, and how many elements they have.

        Whole parts are turned in the fewest steps; what is left is no sliver of one.
        """
        whole, rest = divmod(extent, most)
        if whole and 0 < rest < SHORTEST:
            whole, rest = whole - 1, rest + most
        if whole:
            with self.b.loop(whole) as part:
                yield part * most, most
        start = whole * most
        for size in (rest,) if rest <= most else (-(-rest // 2), rest // 2):
            if size:
                yield self.b.integer(start), size
            start += size

    def overlapping(self, extent: int, size: int) -> Iterator[tuple[Expr, int]]:
        """The same for what may be written twice: all parts are as long, and one piece of code."""
        if 0 < extent <= size:
            yield self.b.integer(0), extent
        elif extent:
            with self.b.loop(-(-extent // size)) as part:
                start, last = part * size, self.b.integer(extent - size)
                yield (start if extent % size == 0 else self.b.op("min", start, last)), size

    def turn_weights(self, channel: Expr) -> None:
        """A row of each window at a time, or all of windows that have short ones."""
        b, size = self.b, math.prod(self.shape.window)
        row = self.shape.window[1] if self.shape.window[1] >= SHORTEST else size
        with b.loop(size // row) as i, b.loop(self.lanes, "vector") as lane:
            first = b.affine([(channel, size), (lane, size), (i, row)])
            for j in range(row):
                weight = self.read(1, first + j).cast(self.element)
                b.store(
                    self.weights,
                    b.affine([(i, row * self.lanes), (lane, 1)], j * self.lanes),
                    weight,
                )

    def copy_in(self, image: Expr, channel: Expr, row: Expr) -> None:
        """Lines of x between zeros, or lines of zeros."""
        b, shape, low = self.b, self.shape, self.node.attrs["low"]
        used = max(0, min(shape.x[3], shape.pitch - low[1]))
        with b.loop(shape.lines) as line:
            source = b.affine([(row, shape.stride[0]), (line, 1)], -low[0])
            inside = (source >= 0) & (source < shape.x[2])
            with b.when(inside):
                self.clear(line, 0, min(low[1], shape.pitch))
                self.copy_line(b.affine([(image, shape.x[1]), (channel, 1)]), source, line, used)
                self.clear(line, low[1] + used, shape.pitch)
            with b.when((source < 0) | (source >= shape.x[2])):
                self.clear(line, 0, shape.pitch)

    def clear(self, line: Expr, start: int, end: int) -> None:
        """Zeros in columns of a line."""
        b, shape = self.b, self.shape
        if start < end:
            with b.loop((end - start) * self.lanes, "vector") as i:
                where = b.affine([(line, shape.pitch * self.lanes), (i, 1)], start * self.lanes)
                b.store(self.planes, where, b.const(0.0, self.element))

    def copy_line(self, plane: Expr, source: Expr, line: Expr, used: int) -> None:
        """A line of each channel, turned."""
        b, shape = self.b, self.shape
        for start, count in self.overlapping(used, TURNED):
            to = b.affine([(line, shape.pitch), (start, 1)], self.node.attrs["low"][1])
            with b.loop(self.lanes, "vector") as lane:
                first = b.affine([(plane + lane, shape.x[2]), (source, 1)])
                first = b.affine([(first, shape.x[3]), (start, 1)])
                for k in range(count):
                    where = b.affine([(to, self.lanes), (lane, 1)], k * self.lanes)
                    b.store(self.planes, where, self.number(first + k))

    def copy_image_in(self, image: Expr, channel: Expr) -> None:
        """All of each channel between zeros, turned."""
        b, shape, low = self.b, self.shape, self.node.attrs["low"]
        with b.loop(self.planes.size, "vector") as i:
            b.store(self.planes, i, b.const(0.0, self.element))
        plane = b.affine([(image, shape.x[1]), (channel, 1)])
        rows = range(min(shape.x[2], shape.lines - low[0]))
        columns = range(min(shape.x[3], shape.pitch - low[1]))
        with b.loop(self.lanes, "vector") as lane:
            first = (plane + lane) * math.prod(shape.x[2:])
            for line, column in itertools.product(rows, columns):
                to = ((low[0] + line) * shape.pitch + low[1] + column) * self.lanes
                value = self.number(first + (line * shape.x[3] + column))
                b.store(self.planes, lane + to, value)

    def number(self, where: Expr) -> Expr:
        """An element of x, as it is summed up."""
        value: Expr = self.read(0, where).cast(self.element)
        zero = self.node.attrs["zero"]
        return self.b.sub(value, self.b.const(float(zero), self.element)) if zero else value

    def together(self) -> int:
        """Sums of a row that are made at once: as many as registers hold, or a few less if then
        less is summed up twice."""
        columns = self.shape.out[1]
        most = min(tuned.window_columns, max(1, MOST_UNROLLED // self.shape.window[1]))
        return min(range(most, most // 2, -1), key=lambda size: -(-columns // size) * size)

    def sum_up(self, line: Expr, to: Expr) -> None:
        """A row of sums from there on, so many columns at a time as registers hold with what they
        read."""
        b, shape = self.b, self.shape
        (down, right), (below, beside) = shape.dilation, shape.stride
        below_next, columns = down * shape.pitch * self.lanes, shape.window[1]
        for start, count in self.overlapping(shape.out[1], self.together()):
            first = b.affine([(line, below * shape.pitch), (start, beside)])
            with b.loop(self.lanes, "vector") as lane:
                # Zero would make +0 of products that are all -0.
                sums = [b.register(b.const(-0.0, self.element)) for _ in range(count)]
                with b.loop(shape.window[0], "within") as i:
                    for j in range(columns):
                        weight = b.affine([(i, columns * self.lanes), (lane, 1)], j * self.lanes)
                        weight = b.load(self.weights, weight)
                        for k, total in enumerate(sums):
                            shift = (j * right + k * beside) * self.lanes
                            where = b.affine(
                                [(first, self.lanes), (i, below_next), (lane, 1)], shift
                            )
                            part = b.load(self.planes, where) * weight
                            b.assign(total, b.read(total) + part)
                for k, total in enumerate(sums):
                    where = b.affine([(to + start, self.lanes), (lane, 1)], k * self.lanes)
                    b.store(self.sums, where, b.read(total))

    def copy_out(self, image: Expr, channel: Expr, here: Expr) -> None:
        b, kind = self.b, self.node.type.dtype
        for start, count in self.parts(self.shape.out[1], TURNED):
            with b.loop(self.lanes, "vector") as lane:
                for k in range(count):
                    where = b.affine([(start, self.lanes), (lane, 1)], k * self.lanes)
                    value = b.load(self.sums, where)
                    self.write((image, channel + lane, here, start + k), value.cast(kind))

    def copy_image_out(self, image: Expr, channel: Expr) -> None:
        b, kind = self.b, self.node.type.dtype
        with b.loop(self.lanes, "vector") as lane:
            for k, place in enumerate(itertools.product(*map(range, self.shape.out))):
                value = b.load(self.sums, lane + k * self.lanes).cast(kind)
                self.write((image, channel + lane, *map(b.integer, place)), value)


def in_lanes(node: Any) -> bool:
    """Should the channels of a convolution lie side by side?

    It has to be a depthwise one, of as many results as channels, with short rows, tiny images or
    windows of several columns. Rows of an open length are not known to be short, nor into how many
    parts they are cut.
    """
    x, w = (n.type for n in node.inputs)
    if w.dims[1] != 1 or w.dims[0] != node.attrs["groups"] or w.dims[0] % min(LANES):
        return False
    if x.dtype not in (F32, F64, I8, U8) or math.prod(w.dims[2:]) < SHORTEST:
        return False
    shape = LaneShape.of(node)
    if is_open((*shape.x[2:], *shape.out)):
        return False
    if shape.pitch * shape.span(1, 0) * shape.lanes > tuned.window_lines:
        return False
    if shape.whole:
        return True
    if min(shape.x[3], shape.out[1]) < SHORTEST:
        return False
    if any(
        math.prod(area) * x.dtype.itemsize % (SET // 2) == 0 for area in (shape.x[2:], shape.out)
    ):
        return False  # the rows of all lanes would evict one another
    short = shape.out[1] <= tuned.lane_row * shape.stride[1]
    return short or shape.window[0] * (shape.window[1] - 1) >= tuned.lane_shifts
