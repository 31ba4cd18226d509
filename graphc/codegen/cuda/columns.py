"""Columns: an outer axis is reduced and the innermost is kept. Every lane folds its own column.

parallel for block of columns:
    vector for c in block:                 neighbouring lanes read neighbouring elements
        r0 = identity
        for r in reduced:  r0 = r0 + x[r, c]
        store finish(r0)
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.loops import Expr
from graphc.codegen.lowering.evaluate import split_index
from graphc.codegen.lowering.rows import Rows
from graphc.ir.graph import Node

COLUMNS = 256  # columns of a unit


class Columns(Rows):
    """Lowers groups that fold an outer axis: a column is a row that one lane folds."""

    def body(self) -> None:
        space, b = self.space, self.b
        self.registers = {}
        kept = [loop for loop in space.loops if not loop.reduced]
        reduced = [loop for loop in space.loops if loop.reduced]
        line = kept.pop()
        blocks = -(-line.extent // COLUMNS)
        self.units = math.prod(loop.extent for loop in kept) * blocks
        with ExitStack() as stack:
            values: dict[int, Expr] = {}
            start, stop = b.integer(0), b.integer(line.extent)
            if self.units > 1:
                unit = stack.enter_context(b.loop(self.units, "parallel"))
                *parts, block = split_index(b, unit, (*(k.extent for k in kept), blocks))
                values = {loop.place: part for loop, part in zip(kept, parts, strict=True)}
                if blocks > 1:
                    start = b.mul(block, b.integer(COLUMNS))
                    stop = b.op("min", b.add(start, b.integer(COLUMNS)), stop)
            values[line.place] = stack.enter_context(b.loop(stop, "vector", start))
            self.row(values, reduced)

    def staged(
        self, levels: dict[int, int], full: list[Node], reductions: list[Node]
    ) -> list[Node]:
        """Nothing: scratch memory is shared by the lanes."""
        return []
