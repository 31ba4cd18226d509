"""Triangular solves as loops: panels of many right sides, or few right sides one by one.

The systems lie in scratch, turned if it is the transposed ones that are to be solved, so that there
is one lower and one upper solve.  A panel of rows is solved for, then taken off the other rows:

    for each panel:   rows of the panel: minus those solved, over the diagonal
                      other rows -= matrix[other rows, panel] @ solved
"""

from __future__ import annotations

from typing import Any

from graphc.errors import SINGULAR
from graphc.ir.types import I64, DType
from graphc.loops.nest import Expr
from graphc.ops.linalg.factor_nests import (
    Span,
    Square,
    Workspace,
    matrices,
    padded,
    pitch,
    square_workspace,
)
from graphc.ops.record.arguments import Applied
from graphc.ops.tuning import tuned

OUT_OF_RANGE = 1  # the status of an index


class Solve(Square):
    """Both triangular systems of packed factors, of which each has the other's transpose."""

    def nest(self) -> None:
        b, n = self.b, self.n
        self.right, self.seen = self.scratch
        self.width, turned = self.node.type.dims[-1], self.node.attrs["transposed"]
        self.stride = pitch(*self.sides(self.node))
        self.one_by_one = self.width <= tuned.solved_alone
        with b.loop(matrices(self.node), "parallel") as unit:
            if turned:
                self.every_row_once(unit)
            with b.loop(n, "vector") as row:
                pivot = self.read(0, b.affine([(unit, n * n), (row, n + 1)]))
                b.fail(pivot == self.zero(), SINGULAR)
            self.fill(unit, turned)
            self.right_sides(unit, turned)
            self.lower(unit_diagonal=not turned)
            self.upper(unit_diagonal=turned)
            self.results(unit, turned)

    @staticmethod
    def sides(node: Applied) -> tuple[int, DType]:
        """Elements and type of a row of right sides, or of one of few right sides."""
        *_, n, width = node.type.dims
        return (padded(n) if width <= tuned.solved_alone else width), node.type.dtype

    def place(self, row: Any, column: Any) -> Any:
        """Where an element of the right sides lies: few of them are stored side by side."""
        if self.one_by_one:
            row, column = column, row
        return self.b.affine([(row, self.stride)], column)

    def every_row_once(self, unit: Expr) -> None:
        """The order of rows is a permutation: every row of the result is written."""
        b, n = self.b, self.n
        with b.loop(n, "vector") as row:
            b.store(self.seen, row, b.integer(0))
        with b.loop(n) as row:
            place = self.order(unit, row)
            b.fail(b.load(self.seen, place) != 0, OUT_OF_RANGE)
            b.store(self.seen, place, b.integer(1))

    def order(self, unit: Any, row: Any) -> Any:
        """The row of the system that became row `row` of the factors."""
        b, n = self.b, self.n
        place = self.b.register(self.read(1, b.affine([(unit, n), (row, 1)])))
        outside = [b.read(place) < 0, b.read(place) >= n]
        b.fail(b.op("or", *outside), OUT_OF_RANGE)
        return b.read(place)

    def right_sides(self, unit: Expr, turned: bool) -> None:
        b, n, width, sides = self.b, self.n, self.width, self.right
        with b.loop(n) as row:
            source = row if turned else self.order(unit, row)
            start = b.affine([(unit, n * width), (source, width)])
            with b.loop(width, "vector") as column:
                value = self.read(2, start + column)
                b.store(sides, self.place(row, column), value)
        with b.loop(self.size, "serial", n) as row, b.loop(width, "vector") as column:
            b.store(sides, self.place(row, column), self.zero())

    def results(self, unit: Expr | int, turned: bool) -> None:
        b, sides = self.b, self.right
        with b.loop(self.n) as row:
            target = self.order(unit, row) if turned else row
            with b.loop(self.width, "vector") as column:
                value = b.load(sides, self.place(row, column))
                self.write(self.index(unit, target, column), value)

    def lower(self, unit_diagonal: bool) -> None:
        b, size = self.b, self.size
        if self.one_by_one:
            with b.loop(size) as row:
                self.one_row(row, (b.integer(0), row), unit_diagonal)
            return
        with b.loop(size // self.depth) as panel:
            first = panel * self.depth
            with b.loop(self.depth) as step:
                row = first + step
                with b.loop(step) as above:
                    self.take_off(row, first + above)
                self.divide(row, unit_diagonal)
            self.take_panel_off(first, (first + self.depth, b.integer(size)))

    def upper(self, unit_diagonal: bool) -> None:
        b, size, depth = self.b, self.size, self.depth
        if self.one_by_one:
            with b.loop(size) as turn:
                row = size - 1 - turn
                self.one_row(row, (row + 1, b.integer(size)), unit_diagonal)
            return
        with b.loop(size // depth) as turn:
            first = b.integer(size - depth) - turn * depth
            with b.loop(depth) as step:
                row = first + (depth - 1) - step
                with b.loop(step) as below:
                    self.take_off(row, b.affine([(below, 1), (row, 1)], 1))
                self.divide(row, unit_diagonal)
            self.take_panel_off(first, (b.integer(0), first))

    def one_row(self, row: Expr, known: Span, unit_diagonal: bool) -> None:
        """Solve for element `row` of each right side, given others."""
        b, sides = self.b, self.right
        with b.loop(self.width) as column:
            total = b.register(self.zero())
            with b.loop(known[1], "vector", known[0]) as k:
                term = self.get(row, k) * b.load(sides, self.place(k, column))
                b.update(total, "add", term)
            here = self.place(row, column)
            left = b.load(sides, here) - b.read(total)
            b.store(sides, here, left if unit_diagonal else left / self.get(row, row))

    def take_off(self, row: Any, other: Any) -> None:
        columns = self.b.integer(0), self.b.integer(self.width)
        self.eliminate(self.right, self.stride, row, other, self.get(row, other), columns)

    def take_panel_off(self, first: Expr | int, rows: Span) -> None:
        """From other rows, what the rows of a solved panel contribute."""
        b, sides = self.b, self.right
        columns = b.integer(0), b.integer(self.width)
        self.subtract(
            rows,
            columns,
            lambda r, k: self.get(r, first + k),
            lambda k, c: b.load(sides, self.place(first + k, c)),
            sides,
            self.stride,
        )

    def divide(self, row: Expr, unit_diagonal: bool) -> None:
        if unit_diagonal:
            return
        b, sides = self.b, self.right
        pivot = b.register(self.get(row, row))
        with b.loop(self.width, "vector") as column:
            here = self.place(row, column)
            b.store(sides, here, b.load(sides, here) / b.read(pivot))


def solve_workspace(node: Applied) -> Workspace:
    """The padded matrix, right sides, and a mark for each row."""
    *_, n, width = node.type.dims
    rows = width if width <= tuned.solved_alone else padded(n)
    sides = (node.type.dtype, rows * pitch(*Solve.sides(node)))
    return (*square_workspace(node), sides, (I64, n if node.attrs["transposed"] else 0))
