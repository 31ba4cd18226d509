"""Tiles: an element-wise group that reads an operand across the grain (a stored transpose).

The store runs along the last loop, some load along another one.  Walking both in small tiles uses
every cache line that is fetched.  All elements of a tile's columns are written out, so that they
are loaded along a and turned in registers:

    parallel for tile of (a, z):
        vector for z in tile:  out[a, z] = x[z, a];  out[a + 1, z] = x[z, a + 1] ..

What is open or costs much is written once, in a loop over a.
"""

from __future__ import annotations

import math

from graphc.codegen.llvm.interleave import SHORTEST
from graphc.codegen.lowering.evaluate import Elements, split_index, tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.lowering.operands import affine
from graphc.codegen.lowering.space import Axes, Space
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph
from graphc.ir.op import Reduction
from graphc.ir.sizes import hint_of, is_open
from graphc.ir.types import I64
from graphc.loops.nest import Buffer, Expr, Scalars, postorder
from graphc.loops.scalars import minimum


def crossing_loop(region: Graph, space: Space) -> Axes | None:
    """The loop along which some operand is contiguous while it is strided along the last one."""
    loops = space.loops
    folds = any(isinstance(n.op.lower, Reduction) for n in region.nodes)
    if folds or len(loops) < 2 or hint_of(loops[-1].extent) < tuned.tile_least:
        return None
    b = Scalars()
    variables = {loop.place: b.make("var", I64, (), k) for k, loop in enumerate(loops)}
    last = variables[loops[-1].place]
    for position in positions(region, space, b, variables):
        terms = affine(position)
        if terms is None or abs(terms.get(last, 0)) < 2:
            continue
        for loop in loops[:-1]:
            if (
                abs(terms.get(variables[loop.place], 0)) == 1
                and hint_of(loop.extent) >= tuned.tile_across
            ):
                return loop
    return None


def positions(region: Graph, space: Space, b: Scalars, variables: dict[int, Expr]) -> list[Expr]:
    """The index of every load that one element of every result needs."""
    elements = Elements(b)
    for number, param in enumerate(region.params):
        kind = tensor_type(param)
        if kind.dtype.is_complex:
            return []
        elements.bind_buffer(param, Buffer(number, kind.dtype, kind.size, "in"))
    roots = []
    for result in region.results:
        made = elements.at(result, space.index(b, variables, tensor_type(result).dims))
        if not isinstance(made, Expr):
            return []
        roots.append(made)
    return [e.args[0] for e in postorder(roots) if e.op == "load"]


class Tiles(Nest):
    """Lowers a group over tiles of its last loop and the one that crosses it."""

    def body(self) -> None:
        space, b = self.space, self.b
        across = crossing_loop(self.region, space)
        assert across is not None
        self.across, self.last = across, space.loops[-1]
        outer = [loop for loop in space.loops if loop not in (across, self.last)]
        widths = self.widths()
        side, length = (widths[0], tuned.tile_length) if widths else (tuned.tile_side,) * 2
        tiles = (-(-self.last.extent // length), len(widths) or -(-across.extent // side))
        extents = (*(loop.extent for loop in outer), *tiles)
        self.units, self.elements_per_unit = math.prod(extents), side * length
        with b.loop(self.units, "parallel") as unit:
            *parts, row, column = split_index(b, unit, extents)
            self.values = {loop.place: p for loop, p in zip(outer, parts, strict=True)}
            start = row * length
            along = start, minimum(start + length, self.last.extent)
            if not widths:
                self.loops(column * side, along)
            elif widths[0] == widths[-1]:
                self.copies(column * side, side, along)
            else:
                for width, here in (
                    (side, column < len(widths) - 1),
                    (widths[-1], column == len(widths) - 1),
                ):
                    with b.when(here):
                        self.copies(column * side, width, along)

    def widths(self) -> list[int]:
        """How many elements along the crossing loop each tile writes out; empty if it loops."""
        across, side = self.across.extent, tuned.tile_side
        flops = sum(n.op.estimate(n)[0] for n in self.region.nodes)
        size = math.prod(self.space.full)
        if is_open((across, size)) or flops > tuned.tile_flops * size:
            return []
        full, rest = divmod(across, side)
        if full and 0 < rest < SHORTEST:
            return [*[side] * (full - 1), side + rest]
        return [*[side] * full, rest] if rest else [side] * full

    def loops(self, first: Expr, along: tuple[Expr, Expr]) -> None:
        """A tile in two loops."""
        stop = minimum(first + tuned.tile_side, self.across.extent)
        with (
            self.b.loop(stop, "serial", first) as a,
            self.b.loop(along[1], "vector", along[0]) as z,
        ):
            self.element(a, z)

    def copies(self, first: Expr, width: int, along: tuple[Expr, Expr]) -> None:
        """A tile in one loop, with as many elements in an iteration as it is wide."""
        with self.b.loop(along[1], "vector", along[0]) as z:
            for k in range(width):
                self.element(first + k, z)

    def element(self, a: Expr, z: Expr) -> None:
        values = self.values | {self.across.place: a, self.last.place: z}
        self.store_full(values, self.region.results)
