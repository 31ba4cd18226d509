"""Winograd's minimal filtering (Lavin and Gray, arXiv:1509.09308), as three ops.

A tile of m x m results needs a x a elements of x, a = m + 2 for 3x3 windows.  With small constant
matrices B, G and A, and * for products element by element,

    result tile = A' ( sum over channels of  (G w G') * (B' x B) ) A

so each of the a * a points of a tile is a matrix product over channels, and 9 products per result
have become a * a / (m * m): 2.25 for m = 4.  For 5x5 windows and m = 2, 25 become 9.

    x[N, C, H, W] -> winograd_input  -> [C, a*a, tiles] --+
    w[K, C, 3, 3] -> winograd_weight -> [a*a, K, C] ------+-> einsum -> [K, a*a, tiles]
                                                   winograd_output -> [N, K, H', W']

An infinity or a NaN of x reaches every result of its tiles, as a NaN.

Zeros around x are part of the input transform.  Both transforms go through a strip of tiles in
three loops over scratch memory that stays in the first cache level; tiles lie along vector lanes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphc.ir.op import EXTENT, Attr, Loops, Range
from graphc.ir.sizes import Size, greatest, least
from graphc.ir.traits import Traits
from graphc.ir.types import F32, AnyType, Type, tensor
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import minimum
from graphc.ops.nn.winograd_tiles import INPUT, OUTPUT, WEIGHT, Matrix, Strips, by_pairs, by_parity
from graphc.ops.record.arguments import Applied, Array, ReadAt, Write
from graphc.ops.record.batching import lane_by_lane
from graphc.ops.record.dims import samples_of, tensor_type
from graphc.ops.record.families import define, require, require_dtype

Ints = tuple[int, ...]
WINDOWS = 4096  # of weights whose points are computed at once: as f64 they fit a cache
EVEN = Attr("even", "int", 1, within=Range(1, 64))
SHAPE = (Attr("tile", "int", 4, within=Range(2, 4)), Attr("window", "int", 3, within=Range(3, 5)))


def _f32(name: str, kind: AnyType, rank: int, tile: int, window: int) -> Type:
    kind = tensor_type(name, kind)
    require(kind.rank == rank, f"{name} takes an array of rank {rank}, got {kind}")
    require_dtype(name, kind, ("f32",))
    require((tile, window) in WEIGHT, f"{name}: no tiles of {tile} results for windows of {window}")
    return kind


def _array(matrix: Matrix) -> Any:
    return np.array([[float(value) for value in row] for row in matrix])


# ------------------------------------------------------------------------------------ input


def _infer_input(x: AnyType, *, tile: int, window: int, low: Ints, out: Ints, even: int) -> Type:
    x = _f32("winograd_input", x, 4, tile, window)
    require(len(low) == len(out) == 2, "winograd_input has two spatial axes")
    require(x.size * math.prod(out) > 0, f"winograd_input of {x}: nothing to transform")
    images, channels, _, _ = x.dims
    strips = Strips(tile, window, images, out[0], out[1], even)
    return tensor(x.dtype, (channels, strips.reach**2, strips.stored))


def _input_reference(x: Array, tile: int, window: int, low: Ints, out: Ints, even: int) -> Any:
    images, channels = x.shape[:2]
    strips = Strips(tile, window, images, out[0], out[1], even)
    size = strips.reach
    reach = [tile * (n - 1) + size for n in (strips.down, strips.across)]
    padded = np.zeros((images, channels, *reach))
    rows, columns = (max(0, min(n, r - z)) for n, r, z in zip(x.shape[2:], reach, low))
    padded[:, :, low[0] : low[0] + rows, low[1] : low[1] + columns] = x[:, :, :rows, :columns]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    matrix = _array(INPUT[size])
    made = np.einsum("pi,nctuij,qj->cpqntu", matrix, windows[:, :, ::tile, ::tile], matrix)
    made = made.reshape(channels, size**2, strips.tiles).astype(x.dtype)
    return np.pad(made, ((0, 0), (0, 0), (0, strips.stored - strips.tiles)))


class _Input:
    """The input transform of one strip of one channel."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.low = node.attrs["low"]
        self.strips = _input_strips(node)
        self.m, self.a = self.strips.m, self.strips.reach
        self.padded, self.half, self.full = scratch
        self.places, self.plane = self.strips.places, self.strips.plane

    def nest(self) -> None:
        b = self.b
        with b.loop(_input_units(self.node), "parallel") as unit:
            channel, image, row = self.strips.split(b, unit)
            with self.in_planes(self.m) as i:
                b.store(self.padded, i, b.const(0.0, F32))
            self.copy_rows(channel, image, row)
            self.along_rows()
            self.along_columns()
            self.copy_out(channel, image, row)
            spare = self.strips.stored - self.strips.tiles
            if isinstance(spare, Size) or spare:
                self.clear_spare(channel, unit)

    def copy_rows(self, channel: Expr, image: Expr, row: Expr) -> None:
        """Rows of x between zeros; row r of a strip goes to plane r % m at line r / m."""
        b, strips, m = self.b, self.strips, self.m
        _, channels, height, width = self.node.inputs[0].type.dims
        pitch = m * strips.line
        kept = greatest(0, least(width, pitch - self.low[1]))
        with b.loop(strips.group) as k, b.loop(strips.lines) as line, b.loop(m) as plane:
            above = b.affine([(row, m), (line, m), (plane, 1)], -self.low[0])
            inside = strips.held((above >= 0) & (above < height), image + k)
            with b.when(inside):
                start = b.affine([(image, channels), (k, channels), (channel, 1)])
                start = b.affine([(start, height * width), (above, width)])
                to = b.affine([(k, strips.lines), (line, 1)])
                to = b.affine([(to, pitch), (plane, m * self.plane)], self.low[1])
                with b.loop(kept, "vector") as column:
                    value = self.read(0, start + column)
                    b.store(self.padded, to + column, value)

    def along_rows(self) -> None:
        """B' along every row: neighbours become one element each of as many planes."""
        b, m = self.b, self.m
        with self.in_planes(1) as v:
            start = v * m
            values = [b.load(self.padded, start + j) for j in range(self.a)]
            for j, value in enumerate(by_parity(INPUT[self.a], values)):
                b.store(self.half, v + j * m * self.plane, value)

    @contextmanager
    def in_planes(self, each: int) -> Iterator[Expr]:
        """All of the m planes, `each` elements a tile: one loop where nothing lies between them."""
        b, m, size = self.b, self.m, each * self.places
        if not self.strips.spaced:
            with b.loop(m * size, "vector") as i:
                yield i
        else:
            with b.loop(m) as plane, b.loop(size, "vector") as i:
                yield b.affine([(plane, each * self.plane), (i, 1)])

    def along_columns(self) -> None:
        """B' down the columns: row i of a tile lies in plane i % m, i / m lines further on."""
        b, m, a = self.b, self.m, self.a
        line = self.strips.line
        with b.loop(a) as j, b.loop(self.places - self.strips.dead * line, "vector") as v:
            start = b.affine([(j, m * self.plane), (v, 1)])
            shifts = ((i % m) * self.plane + i // m * line for i in range(a))
            values = [b.load(self.half, start + shift) for shift in shifts]
            target = b.affine([(j, self.plane), (v, 1)])
            for i, value in enumerate(by_parity(INPUT[self.a], values)):
                b.store(self.full, target + i * a * self.plane, value)

    def copy_out(self, channel: Expr, image: Expr, row: Expr) -> None:
        """Live tiles to the result."""
        b, strips = self.b, self.strips
        with b.loop(strips.group) as k, b.loop(strips.rows) as line:
            here = row + line
            with b.when(strips.held(here < strips.down, image + k)):
                first = strips.tile(b, image + k, here)
                start = b.affine([(k, strips.lines), (line, 1)])
                start = start * strips.line
                with b.loop(self.a**2) as point:
                    source = b.affine([(point, self.plane), (start, 1)])
                    with b.loop(strips.across, "vector") as t:
                        value = b.load(self.full, source + t)
                        self.write((channel, point, first + t), value)

    def clear_spare(self, channel: Expr, unit: Expr) -> None:
        """The first strip of a channel writes the tiles that no image has."""
        b, strips = self.b, self.strips
        first = unit % strips.count == 0
        spare = strips.stored - strips.tiles
        with b.when(first), b.loop(self.a**2) as point, b.loop(spare, "vector") as t:
            place = strips.tiles + t
            self.write((channel, point, place), b.const(0.0, F32))


def _input_strips(node: Applied) -> Strips:
    attrs = node.attrs
    images, out = node.inputs[0].type.dims[0], attrs["out"]
    return Strips(attrs["tile"], attrs["window"], images, out[0], out[1], attrs["even"])


def _input_units(node: Applied) -> int:
    return node.type.dims[0] * _input_strips(node).count


def _input_workspace(node: Applied) -> Any:
    strips = _input_strips(node)
    m, a, plane = strips.m, strips.reach, strips.plane
    return ((F32, m * m * plane + a), (F32, a * m * plane), (F32, a * a * plane))


winograd_input_op = define(
    "winograd_input",
    batch=lane_by_lane,
    infer=_infer_input,
    reference=_input_reference,
    lower=Loops(lambda *given: _Input(*given).nest(), _input_units, _input_workspace),
    attrs=(*SHAPE, Attr("low", "ints", within=EXTENT), Attr("out", "dims", within=EXTENT), EVEN),
    dtypes=("f32",),
    differentiable=False,
    cost=lambda node: (3.0 * node.type.size, 2.0 * node.type.nbytes),
    samples=samples_of(
        [
            ([(2, 3, 9, 11)], {"low": (1, 1), "out": (9, 11)}),
            ([(4, 2, 3, 2)], {"tile": 2, "low": (0, 1), "out": (2, 2)}),
            ([(1, 1, 150, 20)], {"low": (2, 0), "out": (151, 18)}),
            ([(2, 2, 9, 11)], {"tile": 2, "window": 5, "low": (2, 1), "out": (9, 9)}),
            ([(2, 1, 32, 32)], {"tile": 2, "low": (1, 1), "out": (32, 32)}),
            ([(1, 2, 9, 11)], {"low": (1, 1), "out": (9, 11), "even": 8}),
        ],
        [([(2, 3, 9)], {"low": (1,), "out": (9,)})],
        dtypes=("f32",),
        tolerance=40.0,
    ),
    doc="The input side of a convolution by Winograd's method: tiles of x[N, C, H, W] with "
    "`low` zeros before it (and as many after as `out` results need) as [C, points, tiles].",
    traits=Traits(wide=True),  # the output side takes differences of the products
)

# ------------------------------------------------------------------------------------ weights


def _infer_weight(w: AnyType, *, tile: int) -> Type:
    kind = tensor_type("winograd_weight", w)
    w = _f32("winograd_weight", w, 4, tile, kind.dims[-1] if kind.rank else 0)
    require(w.shape[2] == w.shape[3], f"winograd_weight takes square windows, got {w}")
    return tensor(w.dtype, ((tile + w.dims[3] - 1) ** 2, *w.shape[:2]))


def _weight_reference(w: Array, tile: int) -> Any:
    matrix = _array(WEIGHT[tile, w.shape[3]])
    both = np.kron(matrix, matrix)
    windows = w.reshape(-1, w.shape[2] * w.shape[3])
    made = np.empty((len(both), len(windows)), w.dtype)
    for start in range(0, len(windows), WINDOWS):
        some = slice(start, start + WINDOWS)
        made[:, some] = both @ windows[some].T.astype(np.float64)
    return made.reshape(len(made), *w.shape[:2])


def _weight_nest(
    b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
) -> None:
    size = node.inputs[0].type.dims[3]
    matrix = WEIGHT[node.attrs["tile"], size]
    _, outputs, inputs = node.type.dims
    with b.loop(outputs, "parallel") as k, b.loop(inputs, "vector") as c:
        start = b.affine([(k, inputs * size**2), (c, size**2)])
        window = [read(0, start + i) for i in range(size**2)]
        rows = [by_parity(matrix, window[i : i + size]) for i in range(0, size**2, size)]
        for j in range(len(matrix)):
            for i, value in enumerate(by_parity(matrix, [row[j] for row in rows])):
                write((b.integer(i * len(matrix) + j), k, c), value)


winograd_weight_op = define(
    "winograd_weight",
    batch=lane_by_lane,
    infer=_infer_weight,
    reference=_weight_reference,
    lower=Loops(_weight_nest, lambda node: node.type.dims[1]),
    attrs=SHAPE[:1],
    dtypes=("f32",),
    differentiable=False,
    cost=lambda node: (3.0 * node.type.size, 2.0 * node.type.nbytes),
    samples=samples_of(
        [([(5, 3, 3, 3)], {}), ([(2, 150, 3, 3)], {"tile": 2}), ([(2, 5, 5, 5)], {"tile": 2})],
        [([(5, 3, 3, 2)], {}), ([(5, 3, 3, 3)], {"tile": 3})],
        dtypes=("f32",),
        tolerance=4.0,
    ),
    doc="The weight side of a convolution by Winograd's method: w[K, C, 3, 3] as [points, K, C].",
)

# ------------------------------------------------------------------------------------ output


def _infer_output(
    sums: AnyType, *, tile: int, window: int, images: int, out: Ints, even: int
) -> Type:
    sums = _f32("winograd_output", sums, 3, tile, window)
    require(len(out) == 2, "winograd_output has two spatial axes")
    require(images * math.prod(out) > 0, "winograd_output of no results")
    strips = Strips(tile, window, images, out[0], out[1], even)
    require(
        sums.shape[1:] == (strips.reach**2, strips.stored),
        f"winograd_output of {images} images of {list(out)} takes "
        f"[K, {strips.reach**2}, {strips.stored}], got {sums}",
    )
    return tensor(sums.dtype, (images, sums.shape[0], *out))


def _output_reference(
    sums: Array, tile: int, window: int, images: int, out: Ints, even: int
) -> Any:
    matrix, strips = (
        _array(OUTPUT[tile, window]),
        Strips(tile, window, images, out[0], out[1], even),
    )
    split = (
        sums[:, :, : strips.tiles]
        .astype(np.float64)
        .reshape(len(sums), strips.reach, strips.reach, images, strips.down, strips.across)
    )
    made = np.einsum("ip,kpqntu,jq->nktiuj", matrix, split, matrix)
    made = made.reshape(images, len(sums), strips.down * tile, strips.across * tile)
    return made[:, :, : out[0], : out[1]].astype(sums.dtype)


class _Output:
    """The output transform of one strip of one channel."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.strips = _output_strips(node)
        self.m, self.a = self.strips.m, self.strips.reach
        self.matrix = OUTPUT[self.m, self.strips.window]
        self.half, self.rows = scratch
        self.places, self.plane = _output_places(self.strips), _output_plane(self.strips)

    def nest(self) -> None:
        b, strips = self.b, self.strips
        with b.loop(_output_units(self.node), "parallel") as unit:
            channel, image, row = strips.split(b, unit)
            count = b.integer(self.places)
            if not strips.fills_strips:
                count = minimum(count, strips.left(image, row))
            first = b.affine(
                [(channel, self.a**2 * strips.stored), (strips.tile(b, image, row), 1)]
            )
            self.along_rows(first, count)
            self.along_columns(count)
            self.copy_out(channel, image, row)

    def along_rows(self, first: Expr, count: Expr) -> None:
        """A' along the rows of points."""
        b, m, a = self.b, self.m, self.a
        tiles = self.strips.stored
        with b.loop(a) as i, b.loop(count, "vector") as t:
            start = b.affine([(i, a * tiles), (first, 1), (t, 1)])
            values = [self.read(0, start + j * tiles) for j in range(a)]
            target = b.affine([(i, m * self.plane), (t, 1)])
            for j, value in enumerate(by_pairs(self.matrix, values)):
                b.store(self.half, target + j * self.plane, value)

    def along_columns(self, count: Expr) -> None:
        """A' down the columns; result row i of every tile goes to line i."""
        b, m, a = self.b, self.m, self.a
        with b.loop(count, "vector") as t:
            made = []
            for j in range(m):
                places = (b.integer((i * m + j) * self.plane) for i in range(a))
                values = [b.load(self.half, t + place) for place in places]
                made.append(by_pairs(self.matrix, values))
            for i in range(m):
                start = b.affine([(t, m)], i * m * self.plane)
                for j in range(m):
                    b.store(self.rows, start + j, made[j][i])

    def copy_out(self, channel: Expr, image: Expr, row: Expr) -> None:
        """Rows of results, without what tiles have beyond the edges."""
        b, strips, m = self.b, self.strips, self.m
        height, width = self.node.attrs["out"]
        with b.loop(strips.group) as k, b.loop(strips.rows) as line, b.loop(m) as i:
            here = b.affine([(row, m), (line, m), (i, 1)])
            with b.when(strips.held(here < height, image + k)):
                start = b.affine([(k, strips.rows * strips.across), (line, strips.across)])
                start = b.affine([(start, m), (i, m * self.plane)])
                with b.loop(width, "vector") as column:
                    value = b.load(self.rows, start + column)
                    self.write((image + k, channel, here, column), value)


def _output_strips(node: Applied) -> Strips:
    attrs = node.attrs
    out, even = attrs["out"], attrs["even"]
    return Strips(attrs["tile"], attrs["window"], attrs["images"], out[0], out[1], even)


def _output_places(strips: Strips) -> int:
    return strips.group * strips.rows * strips.across


def _output_plane(strips: Strips) -> int:
    return strips.plane if strips.spaced else _output_places(strips)


def _output_units(node: Applied) -> int:
    return node.type.dims[1] * _output_strips(node).count


def _output_workspace(node: Applied) -> Any:
    strips = _output_strips(node)
    m, plane = strips.m, _output_plane(strips)
    return ((F32, strips.reach * m * plane), (F32, m * m * plane))


winograd_output_op = define(
    "winograd_output",
    batch=lane_by_lane,
    infer=_infer_output,
    reference=_output_reference,
    lower=Loops(lambda *given: _Output(*given).nest(), _output_units, _output_workspace),
    attrs=(*SHAPE, Attr("images", "dim", within=EXTENT), Attr("out", "dims", within=EXTENT), EVEN),
    dtypes=("f32",),
    differentiable=False,
    cost=lambda node: (8.0 * node.type.size, 4.0 * node.type.nbytes),
    samples=samples_of(
        [
            ([(3, 36, 18)], {"images": 2, "out": (9, 11)}),
            ([(2, 16, 4)], {"tile": 2, "images": 4, "out": (2, 1)}),
            ([(1, 36, 190)], {"images": 1, "out": (151, 18)}),
            ([(2, 36, 25)], {"tile": 2, "window": 5, "images": 1, "out": (9, 9)}),
            ([(1, 16, 528)], {"tile": 2, "images": 2, "out": (32, 32)}),
            ([(2, 36, 16)], {"images": 1, "out": (9, 11), "even": 8}),
        ],
        [([(3, 36, 17)], {"images": 2, "out": (9, 11)})],
        dtypes=("f32",),
        tolerance=60.0,
    ),
    doc="The output side of a convolution by Winograd's method: sums [K, points, tiles] as "
    "[N, K, *out].",
)
