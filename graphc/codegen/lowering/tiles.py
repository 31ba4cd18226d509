"""Tiles: an element-wise group that reads an operand across the grain (a stored transpose).

The store runs along the last loop, some load along another one.  Walking both in small tiles uses
every cache line that is fetched:

    parallel for tile of (a, z):
        for a in tile:  vector for z in tile:  out[a, z] = x[z, a]
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.lowering.evaluate import Elements, split_index, tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.lowering.operands import affine
from graphc.codegen.lowering.space import Axes, Space
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph
from graphc.ir.op import Reduction
from graphc.ir.sizes import hint_of
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
                and hint_of(loop.extent) >= tuned.tile_least
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
        last = space.loops[-1]
        outer = [loop for loop in space.loops if loop not in (across, last)]
        tiles = (-(-across.extent // tuned.tile_side), -(-last.extent // tuned.tile_side))
        extents = (*(loop.extent for loop in outer), *tiles)
        self.units, self.elements_per_unit = math.prod(extents), tuned.tile_side * tuned.tile_side
        with ExitStack() as stack:
            unit = stack.enter_context(b.loop(self.units, "parallel"))
            *parts, row, column = split_index(b, unit, extents)
            values = {loop.place: p for loop, p in zip(outer, parts, strict=True)}
            for loop, tile, kind in ((across, row, "serial"), (last, column, "vector")):
                start = tile * tuned.tile_side
                stop = minimum(start + tuned.tile_side, loop.extent)
                values[loop.place] = stack.enter_context(b.loop(stop, kind, start))
            for result in dict.fromkeys(self.region.results):
                self.store(result, space.index(b, values, tensor_type(result).dims))
