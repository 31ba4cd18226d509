"""Tiles in shared memory: an element-wise group that reads an operand across the grain.

The result is written along the last loop, and some operand lies along another one, `across`:

    parallel for tile of (a, z):
        vector for e in tile:  tile[z, a] = x[z, a]         neighbouring lanes read neighbours
        vector for e in tile:  out[a, z] = tile[z, a]       and write neighbours
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import and_

from graphc.codegen.gpu.columns import Columns
from graphc.codegen.gpu.multi_pass import rebuilt, substituted
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.evaluate import split_index
from graphc.codegen.lowering.space import Axes
from graphc.codegen.lowering.tiles import crossing_loop
from graphc.loops.nest import Declare, Expr, For, If, Store, expressions, postorder

WORD = 4  # bytes of a bank of shared memory


class TurnedTiles(Columns):
    """Lowers a group over tiles of its last loop and the one that crosses it."""

    def body(self) -> None:
        across = crossing_loop(self.region, self.space)
        if across is None or not self.tiled(across, self.space.loops[-1]):
            self.b.body.clear()
            super().body()

    def tiled(self, across: Axes, last: Axes) -> bool:
        """Write the loops, if tiles serve: where nothing is read under a condition."""
        space, b = self.space, self.b
        itemsize = max(buffer.dtype.itemsize for buffer in self.buffers)
        low, wide = tuned.turned_side, tuned.turned_side * max(1, min(2, WORD // itemsize))
        sides = {across.place: wide, last.place: low}
        outer = [loop for loop in space.loops if loop not in (across, last)]
        extents = [loop.extent for loop in outer]
        extents += [-(-loop.extent // sides[loop.place]) for loop in (across, last)]
        self.units = math.prod(extents)
        with b.loop(self.units, "parallel") as unit:
            *parts, row, column = split_index(b, unit, tuple(extents))
            starts = {across.place: row * wide, last.place: column * low}
            around = {loop.place: p for loop, p in zip(outer, parts, strict=True)}
            with self.sweep_tile((across, last), starts, sides) as (spot, here):
                self.store_full(around | here, self.region.results)
            writing = b.body.pop()
            assert isinstance(writing, For)
            loads = crossing_loads(writing, here[across.place], here[last.place])
            pitches = [wide + max(1, WORD // load.dtype.itemsize) for load in loads]
            room = [low * p * x.dtype.itemsize for p, x in zip(pitches, loads, strict=True)]
            if not loads or sum(room) > tuned.turned_bytes:
                return False
            moved: dict[Expr, Expr] = {}
            with self.sweep_tile((last, across), starts, sides) as (place, there):
                mapping = {here[p]: there[p] for p in here}
                for load, pitch in zip(loads, pitches, strict=True):
                    tile = self.buffer(load.dtype, low * pitch, "work")
                    b.store(tile, place // wide * pitch + place % wide, rebuilt(load, mapping))
                    moved[load] = b.load(tile, spot % low * pitch + spot // low)
            body = substituted(writing.body, moved)
            b.body.append(For(writing.variable, writing.start, writing.stop, "vector", body))
        return True

    @contextmanager
    def sweep_tile(
        self, loops: tuple[Axes, Axes], starts: dict[int, Expr], sides: dict[int, int]
    ) -> Iterator[tuple[Expr, dict[int, Expr]]]:
        """A loop over the elements of a tile, neighbours along the second of two loops: the number
        of the element, and where it lies."""
        b, (slow, fast) = self.b, loops
        row = sides[fast.place]
        with b.loop(sides[slow.place] * row, "vector") as spot:
            here = {
                slow.place: b.read(b.register(starts[slow.place] + spot // row)),
                fast.place: b.read(b.register(starts[fast.place] + spot % row)),
            }
            ragged = [loop for loop in loops if loop.extent % sides[loop.place]]
            if not ragged:
                yield spot, here
                return
            inside = [here[loop.place] < loop.extent for loop in ragged]
            with b.when(reduce(and_, inside)):
                yield spot, here


def crossing_loads(loop: For, a: Expr, z: Expr) -> list[Expr]:
    """The loads that lie along `a` and not along `z`; none where a condition may skip some, other
    than the one that the tile ends."""
    body = loop.body
    if isinstance(body[-1], If):
        body = [*body[:-1], *body[-1].body]
    if not all(isinstance(s, Declare | Store) for s in body):
        return []
    loads = [e for e in postorder([e for s in body for e in expressions(s)]) if e.op == "load"]

    def crosses(position: Expr) -> bool:
        along, over = step(position, a), step(position, z)
        return along in (-1, 1) and over is not None and abs(over) > 1

    return [load for load in loads if crosses(load.args[0])]


def step(expr: Expr, leaf: Expr) -> int | None:
    """How far an index goes with each step of one of its leaves; None if that is not constant."""
    if expr is leaf:
        return 1
    if not any(e is leaf for e in postorder([expr])):
        return 0
    if expr.op not in ("add", "sub", "mul"):
        return None
    x, y = expr.args
    left, right = step(x, leaf), step(y, leaf)
    if left is None or right is None:
        return None
    if expr.op == "mul":
        factor = x if right else y
        return (left + right) * int(factor.data) if factor.op == "const" else None
    return left + right if expr.op == "add" else left - right
