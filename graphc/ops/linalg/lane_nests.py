"""Stacks of small matrices, one in each lane of a vector.

    parallel for block of matrices:  vector for i in block:   every element is a value of its own

All steps are written out.  What one matrix does and its neighbours do not, such as exchanging
rows, is chosen by masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from graphc.errors import INDEFINITE, SINGULAR
from graphc.ir.op import Loops
from graphc.ir.sizes import hint_of
from graphc.ir.types import DType, Type, leaves
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import copy_sign, fma, maximum, minimum, sqrt, where
from graphc.ops.linalg.solve_nest import OUT_OF_RANGE
from graphc.ops.record.arguments import Applied, ReadAt, Write
from graphc.ops.reduce.cumulative import unravel
from graphc.ops.tuning import tuned

BLOCK = 64  # matrices of a unit
MOST = 128  # multiply-adds of a solution: the code grows with them
Matrix = list[list[Expr]]


def lane_units(node: Applied) -> int:
    """Blocks of matrices along the last axis of a stack, times all others."""
    *outer, count, _, _ = node.inputs[0].type.dims
    return math.prod(outer) * -(-count // BLOCK)


class Lanes:
    """Loops over a stack; `matrix` writes what happens to one of it."""

    most = 6  # rows and columns: code grows with their product
    index: tuple[Any, ...]  # in the stack
    lane: Any  # in the block
    number: Any  # among all matrices of it

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.scratch = scratch
        self.element = node.inputs[0].type.dtype
        self.m, self.n = node.inputs[0].type.dims[-2:]

    @classmethod
    def fits(cls, node: Applied) -> bool:
        """Are there many matrices, of few elements each, one after another?"""
        dims = node.inputs[0].type.dims
        small = all(isinstance(extent, int) and 0 < extent <= cls.most for extent in dims[-2:])
        return len(dims) > 2 and small and hint_of(dims[-3]) >= tuned.lane_matrices

    @classmethod
    def workspace(cls, node: Applied) -> tuple[tuple[DType, int], ...]:
        return ()

    def nest(self) -> None:
        with self.b.loop(lane_units(self.node), "parallel") as unit:
            self.block(unit)

    def block(self, unit: Expr) -> None:
        """What happens to the matrices of a unit."""
        with self.lanes(unit):
            self.matrix()

    @contextmanager
    def lanes(self, unit: Expr) -> Iterator[None]:
        """A loop over the matrices of a unit."""
        *outer, count, _, _ = self.node.inputs[0].type.dims
        blocks = -(-count // BLOCK)
        *parts, block = unravel(unit, (*outer, blocks))
        start = block * BLOCK
        with self.b.loop(minimum(start + BLOCK, count), "vector", start) as i:
            self.index, self.lane = (*parts, i), i - start
            self.number = (unit // blocks) * count + i if outer else i
            yield

    def matrix(self) -> None:
        raise NotImplementedError

    def load(self, operand: int, rows: int, columns: int) -> Matrix:
        """A matrix of an operand."""
        first = self.number * (rows * columns)
        cells = [self.read(operand, first + k) for k in range(rows * columns)]
        return [cells[k * columns : (k + 1) * columns] for k in range(rows)]

    def row(self, operand: int, count: int) -> list[Expr]:
        return self.load(operand, 1, count)[0]

    def give(self, values: Matrix, *number: int) -> None:
        """A matrix of the result with this number."""
        for r, row in enumerate(values):
            for c, value in enumerate(row):
                self.write((*self.index, self.b.integer(r), self.b.integer(c)), value, *number)

    def constant(self, value: float) -> Expr:
        return self.b.const(value, self.element)


def in_lanes(lanes: type[Lanes] | None, loops: Loops) -> Callable[[Applied], Loops]:
    """The loops of a node: small matrices in lanes, others as they are."""
    if lanes is None:
        return lambda node: loops
    small = Loops(lambda *given: lanes(*given).nest(), lane_units, lanes.workspace)
    return lambda node: small if lanes.fits(node) else loops


class LaneLU(Lanes):
    """Gaussian elimination; the first of the largest elements of a column becomes its pivot."""

    most = 8  # compiled in a quarter of a second

    def matrix(self) -> None:
        b, n = self.b, self.n
        self.rows = self.load(0, n, n)
        self.order = [b.integer(k) for k in range(n)]
        self.sign = self.constant(1)
        for step in range(n):
            self.exchange(step)
            self.eliminate(step)
        self.give(self.rows, 0)
        for k, place in enumerate(self.order):
            self.write((*self.index, b.integer(k)), place, 1)
        self.write(self.index, self.sign, 2)

    def exchange(self, step: int) -> None:
        """Row `step` and the one with the largest element below change places."""
        rows, order = self.rows, self.order
        upper, place = rows[step], order[step]
        for row, chosen in self.largest(step).items():
            rows[step] = [where(chosen, y, x) for x, y in zip(rows[step], rows[row], strict=True)]
            rows[row] = [where(chosen, x, y) for x, y in zip(upper, rows[row], strict=True)]
            order[step], order[row] = (
                where(chosen, order[row], order[step]),
                where(chosen, place, order[row]),
            )
            self.sign = where(chosen, -self.sign, self.sign)

    def largest(self, step: int) -> dict[int, Expr]:
        """For each row below whether its element is the first of the largest ones."""
        peak, chosen = abs(self.rows[step][step]), dict[int, Expr]()
        for row in range(step + 1, self.n):
            size = abs(self.rows[row][step])
            larger = size > peak
            peak = where(larger, size, peak)
            chosen = {other: known & ~larger for other, known in chosen.items()} | {row: larger}
        return chosen

    def eliminate(self, step: int) -> None:
        """Multiples of row `step` off those below; without a pivot they stay as they are."""
        upper = self.rows[step]
        pivot = upper[step]
        some = pivot != 0
        for lower in self.rows[step + 1 :]:
            factor = lower[step] = where(some, lower[step] / pivot, lower[step])
            for k in range(step + 1, self.n):
                lower[k] = where(some, fma(-factor, upper[k], lower[k]), lower[k])


class LaneCholesky(Lanes):
    """The lower triangle of a symmetric matrix; what lies above the diagonal is not read."""

    most = 12  # compiled in a tenth of a second: no rows are exchanged

    def matrix(self) -> None:
        n, zero = self.n, self.constant(0)
        rows = self.load(0, n, n)
        for column in range(n):
            for row in range(column, n):
                for known in range(column):
                    factor = -rows[column][known]
                    rows[row][column] = fma(factor, rows[row][known], rows[row][column])
            pivot = rows[column][column]
            self.b.fail(~(pivot > 0), INDEFINITE)
            root = rows[column][column] = sqrt(pivot)
            for lower in rows[column + 1 :]:
                lower[column] = lower[column] / root
        self.give(
            [[x if c <= r else zero for c, x in enumerate(row)] for r, row in enumerate(rows)]
        )


class LaneSolve(Lanes):
    """Both triangular systems of packed factors, of which each has the other's transpose."""

    @classmethod
    def fits(cls, node: Applied) -> bool:
        rows, width = node.type.dims[-2:]
        return super().fits(node) and isinstance(width, int) and 0 < rows * rows * width <= MOST

    def matrix(self) -> None:
        b, n, turned = self.b, self.n, self.node.attrs["transposed"]
        width = self.node.type.dims[-1]
        packed, order = self.load(0, n, n), self.row(1, n)
        for k, place in enumerate(order):
            b.fail(packed[k][k] == 0, SINGULAR)
            b.fail((place < 0) | (place >= n), OUT_OF_RANGE)
            for other in order[:k] if turned else ():
                b.fail(place == other, OUT_OF_RANGE)
        if turned:
            packed = [list(column) for column in zip(*packed, strict=True)]
        sides = self.load(2, n, width)
        given = sides if turned else [picked(order[r], sides) for r in range(n)]
        made = solved(packed, given, range(n), not turned)
        made = solved(packed, made, range(n - 1, -1, -1), turned)
        if turned:
            made = [placed(order, made, r) for r in range(n)]
        self.give(made)


def picked(place: Expr, rows: Matrix) -> list[Expr]:
    """The row with this number."""
    made = rows[0]
    for number, row in enumerate(rows[1:], 1):
        made = [where(place == number, y, x) for x, y in zip(made, row, strict=True)]
    return made


def placed(order: list[Expr], rows: Matrix, number: int) -> list[Expr]:
    """The row that goes to this place."""
    made = rows[0]
    for place, row in zip(order[1:], rows[1:], strict=True):
        made = [where(place == number, y, x) for x, y in zip(made, row, strict=True)]
    return made


def solved(matrix: Matrix, sides: Matrix, order: range, unit_diagonal: bool) -> Matrix:
    """Rows of a triangular system in this order, each less those before it."""
    made = list(map(list, sides))
    for at, row in enumerate(order):
        for known in order[:at]:
            factor = -matrix[row][known]
            made[row] = [fma(factor, x, y) for x, y in zip(made[known], made[row], strict=True)]
        if not unit_diagonal:
            made[row] = [value / matrix[row][row] for value in made[row]]
    return made


class LaneQR(Lanes):
    """Householder's reflections, with the signs of LAPACK's geqrf and orgqr."""

    @classmethod
    def fits(cls, node: Applied) -> bool:
        return super().fits(node) and not node.inputs[0].type.dtype.is_complex

    def matrix(self) -> None:
        *q, r = (kind.dims[-2:] for kind in leaves(self.node.type) if isinstance(kind, Type))
        rows = self.load(0, self.m, self.n)
        reflections = [self.reflect(rows, k) for k in range(min(self.m, self.n))]
        zero = self.constant(0)
        upper = [[rows[i][k] if i <= k else zero for k in range(r[1])] for i in range(r[0])]
        self.give(upper, *range(1, 1 + len(q)))
        for dims in q:
            self.give(self.product(reflections, dims), 0)

    def product(self, reflections: list[tuple[Expr, list[Expr]]], dims: Sequence[int]) -> Matrix:
        """The columns of the orthonormal factor."""
        zero, one = self.constant(0), self.constant(1)
        unit = [[one if i == k else zero for k in range(dims[1])] for i in range(dims[0])]
        for k, (factor, below) in reversed(list(enumerate(reflections))):
            apply(factor, below, unit, k, range(k, dims[1]))
        return unit

    def reflect(self, rows: Matrix, step: int) -> tuple[Expr, list[Expr]]:
        """Make zeros below the diagonal of a column: the factor of the reflection and its vector,
        whose first element is 1."""
        first, below = rows[step][step], [row[step] for row in rows[step + 1 :]]
        if not below:
            return self.constant(0), below
        size = reduce(maximum, map(abs, below))
        none = size == 0
        scale = where(none, self.constant(1), maximum(size, abs(first)))
        squares = sum_of([(x / scale) * (x / scale) for x in (first, *below)])
        end = copy_sign(scale * sqrt(squares), -first)
        end = where(none, first, end)
        factor = where(none, 0, (end - first) / where(none, self.constant(1), end))
        divisor = where(none, self.constant(1), first - end)
        vector = [x / divisor for x in below]
        apply(factor, vector, rows, step, range(step + 1, self.n))
        rows[step][step] = end
        return factor, vector


def apply(factor: Expr, below: list[Expr], rows: Matrix, step: int, columns: range) -> None:
    """A reflection of these columns of rows from `step` on."""
    for k in columns:
        lower = [row[k] for row in rows[step + 1 :]]
        total = rows[step][k]
        for x, y in zip(below, lower, strict=True):
            total = fma(x, y, total)
        total = factor * total
        rows[step][k] = rows[step][k] - total
        for row, x in zip(rows[step + 1 :], below, strict=True):
            row[k] = fma(-x, total, row[k])


def sum_of(terms: list[Expr]) -> Expr:
    return reduce(lambda x, y: x + y, terms)
