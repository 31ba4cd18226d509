"""Factorisations as loops over panels, in scratch memory.

The algorithms are LAPACK's getrf and potrf, right-looking.  A panel of `depth` columns is
factorised turned by 90 degrees, so that a column is contiguous.  Then one product takes it off the
rest, a few rows and a few of the panel's columns at a time, which stay in registers:

    +---+----------+
    |   |  right   |     right = inverse(top of panel) @ right
    | p +----------+
    | a |          |
    | n |   rest   |     rest -= panel @ right
    | e |          |
    | l |          |
    +---+----------+

Scratch is padded with rows and columns of a unit matrix to whole panels.  A row takes an odd number
of cache lines: a power of two would put its neighbours on one another in the first cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import INDEFINITE
from graphc.ir.types import I64, DType
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import fma, minimum, sqrt, where
from graphc.ops.record.arguments import Applied, ReadAt, Write
from graphc.ops.reduce.cumulative import unravel
from graphc.ops.tuning import tuned

ROWS, TERMS = 4, 4  # of the product, at a time
WHOLE = 16  # columns below the diagonal are taken by that many
LINE = 64  # bytes of a cache line

Workspace = tuple[tuple[DType, int], ...]
Place = Callable[[Any, Any], Any]
Span = tuple[Any, Any]  # start and stop


def matrices(node: Applied) -> int:
    return math.prod(node.inputs[0].type.dims[:-2])


def depth_of(n: int) -> int:
    """Columns of a panel: a multiple of ROWS and of TERMS."""
    return max(ROWS, min(tuned.panel // ROWS * ROWS, -(-n // ROWS) * ROWS))


def padded(n: int) -> int:
    return -(-n // depth_of(n)) * depth_of(n)


def pitch(count: int, element: DType) -> int:
    """Elements from one row of `count` to the next."""
    lines = -(-count * element.itemsize // LINE)
    return (lines // 2 * 2 + 1) * LINE // element.itemsize  # an odd number of lines


class Square:
    """Loops over one n x n matrix in scratch, `size` x `size` with its padding."""

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.matrix, self.scratch = scratch[0], scratch[1:]
        self.element = node.inputs[0].type.dtype
        self.n = node.inputs[0].type.dims[-1]
        self.depth, self.size = depth_of(self.n), padded(self.n)
        self.pitch = pitch(self.size, self.element)

    def at(self, row: Expr, column: Expr) -> Any:
        return self.b.affine([(row, self.pitch)], column)

    def get(self, row: Any, column: Any) -> Any:
        return self.b.load(self.matrix, self.at(row, column))

    def put(self, row: Expr, column: Expr, value: Expr) -> None:
        self.b.store(self.matrix, self.at(row, column), value)

    def zero(self) -> Any:
        return self.b.const(0.0, self.element)

    def index(self, unit: Any, *inside: Any) -> tuple[Any, ...]:
        """The index of an element of matrix `unit` of the stack."""
        return (*unravel(unit, self.node.inputs[0].type.dims[:-2]), *inside)

    def fill(self, unit: Expr, turned: bool = False, lower: bool = False) -> None:
        """Operand 0 in scratch, or its transpose, or its lower triangle; the rest a unit matrix."""
        b, n = self.b, self.n
        with b.loop(n) as row:
            start = b.affine([(unit, n * n), (row, n)])
            with b.loop(row + 1 if lower else n, "vector") as column:
                value = self.read(0, start + column)
                self.put(*((column, row) if turned else (row, column)), value)
        if self.size == n:
            return
        with b.loop(self.size) as row:
            first = where(row < n, b.integer(n), 0)
            with b.loop(self.size, "vector", first) as column:
                self.put(row, column, self.zero())
            with b.when(row >= n):
                self.put(row, row, b.const(1.0, self.element))

    def subtract(
        self,
        rows: Span,
        columns: Span,
        factor: Place,
        right: Place,
        to: Any,
        stride: int,
        lower: bool = False,
    ) -> None:
        """to[r, c] -= sum of factor(r, k) * right(k, c) over the columns k of a panel.

        `lower` leaves out what lies above the diagonal, rows and columns being the same.
        """
        b = self.b
        start, stop = columns
        with b.loop(_ceiling(stop - start, tuned.product_block)) as block:
            left = b.affine([(block, tuned.product_block)], start)
            row = left if lower else rows[0]
            with b.loop(_ceiling(rows[1] - row, ROWS)) as group:
                top = b.affine([(group, ROWS)], row)
                end = b.affine([(_ceiling(top - left, WHOLE), WHOLE)], WHOLE)
                end = minimum(left + end, stop) if lower else stop
                end = minimum(end, left + tuned.product_block)
                with b.loop(self.depth // TERMS) as some:
                    terms = [b.affine([(some, TERMS)], k) for k in range(TERMS)]
                    few = [top + r for r in range(ROWS)]
                    self.rank(few, terms, (left, end), factor, right, to, stride)

    def rank(
        self,
        rows: list[Any],
        terms: list[Any],
        columns: Span,
        factor: Place,
        right: Place,
        to: Any,
        stride: int,
    ) -> None:
        """The product of a few rows and terms: factors are kept, columns pass by."""
        b = self.b
        kept = [[b.register(-factor(r, k)) for k in terms] for r in rows]
        with b.loop(columns[1], "vector", columns[0]) as column:
            passing = [b.register(right(k, column)) for k in terms]
            places = [b.affine([(r, stride)], column) for r in rows]
            totals = [b.register(b.load(to, place)) for place in places]
            for total, factors in zip(totals, kept, strict=True):
                for f, value in zip(factors, passing, strict=True):
                    b.assign(total, fma(b.read(f), b.read(value), b.read(total)))
            for place, total in zip(places, totals, strict=True):
                b.store(to, place, b.read(total))

    def eliminate(
        self, to: Any, stride: int, target: Expr, source: Expr, factor: Expr, columns: Span
    ) -> None:
        """Row `target` of an array minus a multiple of row `source`."""
        b = self.b
        kept = b.register(-factor)
        with b.loop(columns[1], "vector", columns[0]) as column:
            here, there = (b.affine([(row, stride)], column) for row in (target, source))
            b.store(to, here, fma(b.read(kept), b.load(to, there), b.load(to, here)))


class Panels(Square):
    """Factorisation, panel by panel: `pivot` works on one column of the turned panel."""

    def factorise(self, unit: Expr) -> None:
        b, depth = self.b, self.depth
        with b.loop(self.size // depth) as panel:
            first = panel * depth
            self.turn(first, inwards=True)
            with b.loop(depth) as step:
                self.pivot(first, step)
            self.turn(first, inwards=False)
            self.update(first, first + depth)

    def turn(self, first: Expr, inwards: bool) -> None:
        """The panel from the matrix to where its columns are rows, or back."""
        b = self.b
        with b.loop(self.size, "serial", first) as row, b.loop(self.depth) as step:
            here, there = self.at(row, first + step), self.at(step, row)
            if inwards:
                b.store(self.panel, there, b.load(self.matrix, here))
            else:
                b.store(self.matrix, here, b.load(self.panel, there))

    @property
    def panel(self) -> Any:
        return self.scratch[0]

    def of_panel(self, row: Expr, step: Expr) -> Any:
        return self.b.load(self.panel, self.at(step, row))

    def pivot(self, first: Expr, step: Expr) -> None:
        raise NotImplementedError

    def update(self, first: Expr, after: Expr) -> None:
        raise NotImplementedError


class LU(Panels):
    """Gaussian elimination; the largest element of a column becomes its pivot."""

    def nest(self) -> None:
        b, n = self.b, self.n
        order = self.scratch[1]
        with b.loop(matrices(self.node), "parallel") as unit:
            self.fill(unit)
            with b.loop(self.size, "vector") as row:
                b.store(order, row, row)
            self.sign = b.register(b.const(1.0, self.element))
            self.factorise(unit)
            with b.loop(n) as row, b.loop(n, "vector") as column:
                self.write(self.index(unit, row, column), self.get(row, column))
            with b.loop(n, "vector") as row:
                self.write(self.index(unit, row), b.load(order, row), 1)
            self.write(self.index(unit), b.read(self.sign), 2)

    def pivot(self, first: Expr, step: Expr) -> None:
        b = self.b
        row = first + step
        best = self.greatest(row, step)
        with b.when(b.read(best) != row):
            self.exchange(row, b.read(best))
        pivot = b.register(self.of_panel(row, step))
        following = row + 1
        with b.when(b.read(pivot) != self.zero()):
            with b.loop(self.size, "vector", following) as below:
                scaled = self.of_panel(below, step) / b.read(pivot)
                b.store(self.panel, self.at(step, below), scaled)
            columns = following, b.integer(self.size)
            with b.loop(self.depth, "serial", step + 1) as other:
                factor = self.of_panel(row, other)
                self.eliminate(self.panel, self.pitch, other, step, factor, columns)

    def greatest(self, row: Expr, step: Expr) -> Any:
        """The first row from `row` on with the largest magnitude; `row` itself if one is NaN."""
        b = self.b
        peak, place = b.register(self.zero()), b.register(b.integer(self.size))
        with b.loop(self.size, "vector", row) as below:
            b.update(peak, "max", abs(self.of_panel(below, step)))
        with b.loop(self.size, "vector", row) as below:
            reached = abs(self.of_panel(below, step)) == b.read(peak)
            b.update(place, "min", where(reached, below, self.size))
        found = b.read(place) < self.size
        b.assign(place, where(found, b.read(place), row))
        return place

    def exchange(self, row: Expr, other: Expr) -> None:
        b = self.b
        self.swap(self.matrix, self.size, lambda k: (self.at(row, k), self.at(other, k)))
        self.swap(self.panel, self.depth, lambda k: (self.at(k, row), self.at(k, other)))
        self.swap(self.scratch[1], 1, lambda k: (row, other))
        b.assign(self.sign, -b.read(self.sign))

    def swap(self, buffer: Any, count: int, places: Callable[[Any], tuple[Any, Any]]) -> None:
        b = self.b
        with b.loop(count, "vector") as k:
            here, there = places(k)
            x, y = b.register(b.load(buffer, here)), b.register(b.load(buffer, there))
            b.store(buffer, here, b.read(y))
            b.store(buffer, there, b.read(x))

    def update(self, first: Expr | int, after: Expr | int) -> None:
        b = self.b
        columns = after, b.integer(self.size)
        with b.when(after < columns[1]):
            with b.loop(self.depth, "serial", 1) as step, b.loop(step) as above:
                target, source = first + step, first + above
                factor = self.get(target, source)
                self.eliminate(self.matrix, self.pitch, target, source, factor, columns)
            self.subtract(
                columns,
                columns,
                lambda r, k: self.get(r, first + k),
                lambda k, c: self.get(first + k, c),
                self.matrix,
                self.pitch,
            )


class Cholesky(Panels):
    """The lower triangle of a symmetric matrix; what lies above the diagonal is never read."""

    def nest(self) -> None:
        b, n = self.b, self.n
        with b.loop(matrices(self.node), "parallel") as unit:
            self.fill(unit, lower=True)
            self.factorise(unit)
            with b.loop(n) as row, b.loop(n, "vector") as column:
                shown = column <= row
                value = where(shown, self.get(row, column), self.zero())
                self.write(self.index(unit, row, column), value)

    def pivot(self, first: Expr, step: Expr) -> None:
        b = self.b
        row = first + step
        pivot = b.register(self.of_panel(row, step))
        b.fail(~(b.read(pivot) > self.zero()), INDEFINITE)
        root = b.register(sqrt(b.read(pivot)))
        b.store(self.panel, self.at(step, row), b.read(root))
        following = row + 1
        with b.loop(self.size, "vector", following) as below:
            scaled = self.of_panel(below, step) / b.read(root)
            b.store(self.panel, self.at(step, below), scaled)
        with b.loop(self.depth, "serial", step + 1) as other:
            begin = first + other
            factor, columns = self.of_panel(begin, step), (begin, b.integer(self.size))
            self.eliminate(self.panel, self.pitch, other, step, factor, columns)

    def update(self, first: Expr | int, after: Expr | int) -> None:
        columns = after, self.b.integer(self.size)
        place = self.of_panel
        self.subtract(
            columns, columns, place, lambda k, c: place(c, k), self.matrix, self.pitch, lower=True
        )


def _ceiling(count: Any, step: int) -> Any:
    return (count + (step - 1)) // step


def square_workspace(node: Applied) -> Workspace:
    """The padded matrix."""
    kind = node.inputs[0].type
    size = padded(kind.dims[-1])
    return ((kind.dtype, size * pitch(size, kind.dtype)),)


def panel_workspace(node: Applied) -> Workspace:
    """The padded matrix and a turned panel."""
    kind = node.inputs[0].type
    panel = depth_of(kind.dims[-1]) * pitch(padded(kind.dims[-1]), kind.dtype)
    return (*square_workspace(node), (kind.dtype, panel))


def lu_workspace(node: Applied) -> Workspace:
    """The same, and the order of the rows."""
    return (*panel_workspace(node), (I64, padded(node.inputs[0].type.dims[-1])))
