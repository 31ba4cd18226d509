"""Loops as lanes share them: every lane has columns of its own, and folds them where rows are
folded.

    parallel for block of columns:
        vector for c in block:                 neighbouring lanes read neighbouring elements
            r0 = identity
            for r in reduced:  r0 = r0 + x[r, c]
            store finish(r0)
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.rows import Rows
from graphc.codegen.lowering.space import Axes
from graphc.ir.graph import Node
from graphc.loops.nest import Expr
from graphc.loops.scalars import minimum


class LongRows(Rows):
    """Rows that a group of lanes folds; only a row that fits shared memory is staged."""

    asks = False

    def staged(
        self, levels: dict[int, int], full: list[Node], reductions: list[Node]
    ) -> list[Node]:
        length = math.prod(loop.extent for loop in self.space.loops if loop.reduced)
        found, room = [], tuned.staged_bytes
        for node in super().staged(levels, full, reductions):
            room -= length * tensor_type(node).dtype.itemsize
            if room >= 0:
                found.append(node)
        return found


class Columns(Rows):
    """Groups that fold an outer axis or none: a column is a row, or an element, of one lane."""

    def body(self) -> None:
        space, b = self.space, self.b
        self.registers = {}
        kept = [loop for loop in space.loops if not loop.reduced]
        reduced = [loop for loop in space.loops if loop.reduced]
        line = kept.pop()
        width = tuned.fold_columns if reduced else tuned.line_block * self.turns(line)
        blocks = -(-line.extent // width)
        self.units = math.prod(loop.extent for loop in kept) * blocks
        with ExitStack() as stack:
            values: dict[int, Expr] = {}
            start, stop = b.integer(0), b.integer(line.extent)
            if self.units > 1:
                unit = stack.enter_context(b.loop(self.units, "parallel"))
                *parts, block = split_index(b, unit, (*(k.extent for k in kept), blocks))
                values = {loop.place: part for loop, part in zip(kept, parts, strict=True)}
                if blocks > 1:
                    start = block * width
                    stop = (
                        start + width
                        if blocks * width == line.extent
                        else minimum(start + width, stop)
                    )
            values[line.place] = stack.enter_context(b.loop(stop, "vector", start))
            if reduced:
                self.row(values, reduced)
            else:
                self.store_full(values, self.region.results)

    def turns(self, line: Axes) -> int:
        """How often a lane takes elements of a unit: what few operands have there is read at once.

        Enough units have to be left to fill the chip.
        """
        block, full = tuned.line_block, math.prod(self.space.full)
        read = sum(tensor_type(p).size == full for p in self.region.params)
        turns = tuned.line_turns
        while turns > 1 and (
            line.extent % (block * turns)
            or full < block * turns * tuned.line_units
            or 4 * turns * read > tuned.early_elements
        ):
            turns //= 2
        return turns

    def staged(
        self, levels: dict[int, int], full: list[Node], reductions: list[Node]
    ) -> list[Node]:
        """Nothing: scratch memory is shared by the lanes."""
        return []
