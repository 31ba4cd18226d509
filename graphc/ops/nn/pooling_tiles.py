"""Pooling over windows that lie side by side: a plane at a time, in loops over long rows.

    x   a b c d      first down the windows, row by row      then across, over the whole plane
        e f g h      max(a,e) max(b,f) max(c,g) max(d,h)     max(ae,bf)  max(cg,dh)

Planes of a network's later layers are small: a loop over one row of results is too short for
vectors, one over a plane is not.  `tile_choose` is the gradient of the largest or smallest: the
number of each window at the place of its choice, and zeros elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphc.ir.op import POSITIVE, Attr, Loops
from graphc.ir.types import I32, AnyType, Type, tensor
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import is_nan, where
from graphc.ops.nn.conv import Ints
from graphc.ops.record.arguments import Applied, Array, ReadAt, Write
from graphc.ops.record.batching import lane_by_lane
from graphc.ops.record.dims import samples_of, tensor_type
from graphc.ops.record.families import FLOATS, define, require, require_dtype


def _infer(name: str, x: AnyType, window: Ints) -> Type:
    """The type of the pooled x[N, C, H, W]; what no whole window is left of is not pooled."""
    x = tensor_type(name, x)
    require_dtype(name, x, FLOATS)
    fits = x.rank == 4 and len(window) == 2 and x.is_static
    require(fits, f"{name} takes x[N, C, H, W] and a window of two extents, got {x}")
    require(x.size > 0, f"{name} of {x}: there are no windows")
    require(
        math.prod(window) <= MOST_IN_WINDOW,
        f"{name}: a window of {list(window)} has more than {MOST_IN_WINDOW} elements",
    )
    return tensor(x.dtype, (*x.dims[:2], x.dims[2] // window[0], x.dims[3] // window[1]))


class _Planes:
    """A nest over the planes of x; `lines[k]` is row k of every window, one after the other."""

    def __init__(self, b: Scalars, node: Applied, read: ReadAt, write: Write) -> None:
        self.b, self.read, self.write = b, read, write
        self.kind, (self.down, self.across) = node.attrs["kind"], node.attrs["window"]
        self.images, self.channels, self.height, self.width = node.inputs[0].type.dims
        self.element = node.type.dtype
        self.lines = self.height // self.down
        self.columns = self.width // self.across
        self.used = self.columns * self.across
        self.results = self.lines * self.columns

    def plane(self) -> Any:
        return self.b.loop(self.images * self.channels, "parallel")

    def place(self, plane: Expr) -> tuple[Any, Any]:
        count = self.b.integer(self.channels)
        return plane // count, plane % count

    def row(self, plane: Expr, line: Expr, k: int) -> Any:
        """Where row k of a line of windows begins in x."""
        terms = [(plane, self.height * self.width), (line, self.down * self.width)]
        return self.b.affine(terms, k * self.width)

    def value(self, start: Expr, column: Expr) -> Any:
        return self.read(0, start + column).cast(self.element.compute)

    def combined(self, values: Iterator[Any]) -> Any:
        total = next(values)
        for value in values:
            total = self.b.op("add" if self.kind == "sum" else self.kind, total, value)
        return total

    def pool(self, scratch: Sequence[Buffer]) -> None:
        b, (rows,) = self.b, scratch
        across = b.integer(self.columns)
        with self.plane() as plane:
            with b.loop(self.lines) as line:
                to = line * self.used
                starts = [self.row(plane, line, k) for k in range(self.down)]
                with b.loop(self.used, "vector") as j:
                    total = self.combined(self.value(start, j) for start in starts)
                    b.store(rows, to + j, total)
            place = self.place(plane)
            with b.loop(self.results, "vector") as t:
                taken = (b.load(rows, b.affine([(t, self.across)], k)) for k in range(self.across))
                total = self.combined(taken).cast(self.element)
                self.write((*place, t // across, t % across), total)

    def choose(self, scratch: Any) -> None:
        b, (rows, chosen) = self.b, scratch
        size = self.lines * self.width
        with self.plane() as plane:
            with b.loop(self.lines) as line:
                to = line * self.width
                for k in range(self.down):
                    start = self.row(plane, line, k)
                    with b.loop(self.width, "vector") as j:
                        b.store(rows, b.affine([(to, 1), (j, 1)], k * size), self.value(start, j))
            with b.loop(self.results, "vector") as t:
                self.choose_one(rows, chosen, plane, t)
            place = self.place(plane)
            with b.loop(self.lines) as line:
                to = line * self.width
                for k in range(self.down):
                    row = b.affine([(line, self.down)], k)
                    with b.loop(self.width, "vector") as j:
                        made = b.load(chosen, b.affine([(to, 1), (j, 1)], k * size))
                        self.write((*place, row, j), made.cast(self.element))

    def choose_one(self, rows: Any, chosen: Any, plane: Expr, t: Expr) -> None:
        """The first of equal ones is chosen; a NaN wins."""
        b, order = self.b, "gt" if self.kind == "max" else "lt"
        size = self.lines * self.width
        starts = [k * size + j for k in range(self.down) for j in range(self.across)]
        places = [b.affine([(t, self.across)], start) for start in starts]
        best, found = b.load(rows, places[0]), b.const(0, I32)
        for number, place in enumerate(places[1:], 1):
            value = b.load(rows, place)
            first_nan = is_nan(value) & (best == best)
            better = b.compare(order, value, best) | first_nan
            best = where(better, value, best)
            found = where(better, number, found)
        given = self.read(1, b.affine([(plane, self.results), (t, 1)]))
        given = given.cast(self.element.compute)
        zero = b.const(0, self.element.compute)
        for number, place in enumerate(places):
            hit = found == number
            b.store(chosen, place, where(hit, given, zero))


def _count(node: Applied) -> int:
    return math.prod(node.inputs[0].type.dims[:2])


def _split(x: Any, window: Ints) -> Any:
    """A view of x[N, C, H, W] as [N, C, H', W', window]."""
    down, across = window
    height, width = (
        extent // size * size for extent, size in zip(x.shape[2:], window, strict=True)
    )
    images, channels = x.shape[:2]
    split = x[:, :, :height, :width].reshape(
        images, channels, height // down, down, width // across, across
    )
    return split.transpose(0, 1, 2, 4, 3, 5).reshape(
        images, channels, height // down, width // across, down * across
    )


def _pool_reference(x: Array, kind: str, window: Ints) -> Any:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    combine: Any = {"max": np.max, "min": np.min, "sum": np.sum}[kind]
    return combine(_split(wide, window), axis=-1).astype(x.dtype)


def _choose_reference(x: Array, numbers: Array, kind: str, window: Ints) -> Any:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    place = (np.argmax if kind == "max" else np.argmin)(_split(wide, window), axis=-1)
    hit = place[..., None] == np.arange(math.prod(window))
    made = np.where(hit, numbers[..., None], numbers.dtype.type(0))
    images, channels, lines, columns = numbers.shape
    apart = made.reshape(images, channels, lines, columns, *window).transpose(0, 1, 2, 4, 3, 5)
    return np.ascontiguousarray(apart.reshape(x.shape))


def _infer_choose(x: AnyType, numbers: AnyType, *, kind: str, window: Ints) -> Type:
    pooled = _infer("tile_choose", x, window)
    _, _, height, width = tensor_type("tile_choose", x).dims
    whole = height % window[0] == width % window[1] == 0
    require(whole, f"tile_choose: windows of {list(window)} do not tile {x}")
    require(numbers is pooled, f"tile_choose of {x} takes numbers of type {pooled}, got {numbers}")
    return tensor_type("tile_choose", x)


def _plane_buffers(node: Applied, count: int, rows: int) -> Any:
    _, _, height, width = node.inputs[0].type.dims
    size = height // node.attrs["window"][0] * width * rows
    return ((node.type.dtype.compute, size),) * count


MOST_IN_WINDOW = 64  # elements, which are written out one by one
WINDOW = Attr("window", "ints", within=POSITIVE)

tile_pool_op = define(
    "tile_pool",
    batch=lane_by_lane,
    infer=lambda x, *, kind, window: _infer("tile_pool", x, window),
    reference=_pool_reference,
    lower=Loops(
        lambda b, node, read, write, scratch: _Planes(b, node, read, write).pool(scratch),
        _count,
        lambda node: _plane_buffers(node, 1, 1),
    ),
    attrs=(Attr("kind", "str", choices=("max", "min", "sum")), WINDOW),
    dtypes=FLOATS,
    differentiable=False,
    cost=lambda node: (float(node.inputs[0].type.size), 2.0 * node.inputs[0].type.nbytes),
    samples=samples_of(
        [
            ([(2, 3, 6, 10)], {"kind": "max", "window": (2, 2)}),
            ([(1, 2, 9, 4)], {"kind": "min", "window": (3, 1)}),
            ([(2, 1, 4, 70)], {"kind": "sum", "window": (1, 5)}),
            ([(2, 3, 5, 10)], {"kind": "max", "window": (2, 3)}),
        ],
        [([(3, 5, 10)], {"kind": "max", "window": (2, 2)})],
        dtypes=FLOATS,
        tolerance=2.0,
    ),
    doc="The maximum, minimum or sum over windows of x[N, C, H, W] that lie side by side.",
)

tile_choose_op = define(
    "tile_choose",
    batch=lane_by_lane,
    infer=_infer_choose,
    reference=_choose_reference,
    lower=Loops(
        lambda b, node, read, write, scratch: _Planes(b, node, read, write).choose(scratch),
        _count,
        lambda node: _plane_buffers(node, 2, node.attrs["window"][0]),
    ),
    attrs=(Attr("kind", "str", choices=("max", "min")), WINDOW),
    dtypes=FLOATS,
    differentiable=False,
    cost=lambda node: (8.0 * node.type.size, 3.0 * node.type.nbytes),
    samples=samples_of(
        [
            ([(2, 3, 6, 10), (2, 3, 3, 5)], {"kind": "max", "window": (2, 2)}),
            ([(1, 2, 9, 4), (1, 2, 3, 4)], {"kind": "min", "window": (3, 1)}),
            ([(2, 1, 4, 70), (2, 1, 4, 14)], {"kind": "max", "window": (1, 5)}),
        ],
        [([(2, 3, 6, 10), (2, 3, 3, 4)], {"kind": "max", "window": (2, 2)})],
        dtypes=FLOATS,
    ),
    doc="The numbers of windows of x[N, C, H, W] that lie side by side, each at the place of its "
    "window's largest or smallest element, and zeros elsewhere.",
)
