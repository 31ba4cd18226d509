"""Singular values and eigenvalues of stacks of small matrices, one in each lane of a vector.

Jacobi's method: a rotation makes one pair of columns orthogonal, or one element off the diagonal
zero; a sweep does so for all pairs in turn, until none is far from it.  Sweeps of rows with angles
of at most 45 degrees converge (Forsythe and Henrici, 1960), at last quadratically.

    scratch   element 0 of all matrices of a block, then element 1 ...
    block     load -> sweep, as long as one of its matrices asks for another -> values in order
    sweep     for each pair of columns:  vector for matrix in block:  rotate

A NaN stops the run; an infinity makes the values of its matrix NaN, as it does in LAPACK.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import UNCONVERGED
from graphc.ir.types import DType
from graphc.loops.nest import Expr
from graphc.loops.scalars import bits_type, copy_sign, fma, is_nan, maximum, minimum, sqrt, where
from graphc.ops.linalg.lane_nests import BLOCK, Lanes, Matrix
from graphc.ops.record.arguments import Applied

SWEEPS = 40  # five to seven are needed


class Jacobi(Lanes):
    """What both methods have in common: sweeps over columns that lie in scratch."""

    most = 8

    @classmethod
    def fits(cls, node: Applied) -> bool:
        return super().fits(node) and not node.inputs[0].type.dtype.is_complex

    @classmethod
    def workspace(cls, node: Applied) -> tuple[tuple[DType, int], ...]:
        """The elements of all matrices, what each was divided by, and its squares in total."""
        m, n = node.inputs[0].type.dims[-2:]
        return ((node.inputs[0].type.dtype, (m * n + 2) * BLOCK),)

    @property
    def columns(self) -> int:
        return min(self.m, self.n)

    @property
    def length(self) -> int:
        """Elements of a column."""
        return max(self.m, self.n)

    def block(self, unit: Expr) -> None:
        b, one, zero = self.b, self.constant(1), self.constant(0)
        with self.lanes(unit):
            self.begin()
        going = b.register(one)
        with b.loop(SWEEPS), b.when(b.read(going) > 0):
            with self.pairs(unit) as pair:
                self.rotate(*pair)
            b.assign(going, zero)
            with self.pairs(unit) as pair:
                b.update(going, "max", where(self.is_far(*pair), one, zero))
        b.fail(b.read(going) > 0, UNCONVERGED)
        with self.lanes(unit):
            scale = self.scale()
            for k, value in enumerate(self.values()):
                self.write((*self.index, b.integer(k)), value * scale)

    @contextmanager
    def pairs(self, unit: Expr) -> Iterator[tuple[Expr, Expr]]:
        """A loop over pairs of columns, in all matrices of a unit."""
        first, loop = self.b.loop(self.columns - 1), self.b.loop
        with first as p, loop(self.columns, "serial", p + 1) as q, self.lanes(unit):
            yield p, q

    def begin(self) -> None:
        """Put matrices into scratch."""
        raise NotImplementedError

    def rotate(self, p: Expr, q: Expr) -> None:
        """Turn a pair of columns so that nothing is left between them."""
        raise NotImplementedError

    def is_far(self, p: Expr, q: Expr) -> Expr:
        """Is there more between them than rounding leaves?"""
        raise NotImplementedError

    def values(self) -> list[Expr]:
        """From the one that comes first on."""
        raise NotImplementedError

    def cell(self, column: Expr, k: Expr | int) -> Expr:
        b = self.b
        return b.affine([(column, self.length * BLOCK), (b.integer(k), BLOCK)], self.lane)

    def column(self, number: Expr) -> list[Expr]:
        """Its elements as they are now, whatever is stored later."""
        return [self.kept(self.cell(number, k)) for k in range(self.length)]

    def kept(self, place: Expr) -> Any:
        return self.settled(self.b.load(self.scratch[0], place))

    def settled(self, value: Expr) -> Any:
        return self.b.read(self.b.register(value))

    def keep(self, place: Expr, value: Expr) -> None:
        self.b.store(self.scratch[0], place, value)

    def scale(self) -> Any:
        """What the elements were divided by."""
        return self.kept(self.lane + self.m * self.n * BLOCK)

    def squares(self) -> Any:
        """The sum of all squares, which rotations leave as it is."""
        return self.kept(self.lane + (self.m * self.n + 1) * BLOCK)

    def admit(self, columns: Matrix) -> None:
        """Keep elements over a power of two, so that squares neither overflow nor vanish; stop at
        a NaN."""
        elements = [x for column in columns for x in column]
        for x in elements:
            self.b.fail(is_nan(x), UNCONVERGED)
        scale = self.settled(power_below(reduce(maximum, map(abs, elements))))
        factor = self.settled(self.constant(1) / scale)
        scaled = [self.settled(x * factor) for x in elements]
        for k, value in enumerate((*scaled, scale, dot(scaled, scaled))):
            self.keep(self.lane + k * BLOCK, value)

    @property
    def epsilon(self) -> float:
        return float(np.finfo(self.element.numpy).eps)

    def rotation(self, difference: Expr, product: Expr) -> Rotation:
        """The one that makes `product` vanish, where half the difference of the two on the diagonal
        is given.  Where the slope overflows there is nothing to do."""
        one = self.constant(1)
        some = product != 0
        slope = difference / where(some, product, one)
        t = copy_sign(one, slope) / (abs(slope) + sqrt(fma(slope, slope, one)))
        t = self.settled(where(some, t, 0))
        c = self.settled(one / sqrt(fma(t, t, one)))
        s = self.settled(t * c)
        return Rotation(t, s, self.settled(s / (c + 1)))


@record(frozen=True)
class Rotation:
    """By an angle of which the tangent, the sine and the tangent of its half are known."""

    tangent: Expr
    sine: Expr
    half: Expr

    def turned(self, x: Expr, y: Expr) -> tuple[Expr, Expr]:
        """Two elements of the columns; small angles change them by little, and round them once
        (Rutishauser, 1966)."""
        left = fma(-self.sine, fma(self.half, x, y), x)
        return left, fma(self.sine, fma(-self.half, y, x), y)


class LaneEigenvalues(Jacobi):
    """Symmetric matrices, of which the lower triangle is read and all elements are kept."""

    @classmethod
    def fits(cls, node: Applied) -> bool:
        """An element alone is its own eigenvalue, also if it is infinite."""
        return super().fits(node) and node.inputs[0].type.dims[-1] != 1

    def begin(self) -> None:
        rows, extents = self.load(0, self.n, self.n), range(self.n)
        self.admit([[rows[max(i, k)][min(i, k)] for i in extents] for k in extents])

    def rotate(self, p: Expr, q: Expr) -> None:
        left, right = self.column(p), self.column(q)
        on_p, on_q, product = self.ends(p, q)
        rotation = self.rotation(on_q * 0.5 - on_p * 0.5, product)
        for k, (x, y) in enumerate(zip(left, right, strict=True)):
            for number, value in zip((p, q), rotation.turned(x, y), strict=True):
                self.keep(self.cell(number, k), value)
                self.keep(self.cell(self.b.integer(k), number), value)
        for number, change, value in ((p, -rotation.tangent, on_p), (q, rotation.tangent, on_q)):
            self.keep(self.cell(number, number), fma(change, product, value))
        for row, column in ((p, q), (q, p)):
            self.keep(self.cell(column, row), self.constant(0))

    def ends(self, p: Expr, q: Expr) -> list[Expr]:
        """Both elements on the diagonal and the one between them."""
        return [self.kept(self.cell(*place)) for place in ((p, p), (q, q), (p, q))]

    def is_far(self, p: Expr, q: Expr) -> Any:
        return abs(self.kept(self.cell(p, q))) > sqrt(self.squares()) * self.epsilon

    def values(self) -> list[Expr]:
        b = self.b
        return in_order([self.kept(self.cell(b.integer(k), k)) for k in range(self.n)])


class LaneSingularValues(Jacobi):
    """Matrices of any shape, whose longer side becomes the columns (Hestenes, 1958)."""

    def begin(self) -> None:
        rows = self.load(0, self.m, self.n)
        self.admit([list(x) for x in zip(*rows, strict=True)] if self.m >= self.n else rows)

    def rotate(self, p: Expr, q: Expr) -> None:
        left, right = self.column(p), self.column(q)
        difference = dot(right, right) * 0.5 - dot(left, left) * 0.5
        rotation = self.rotation(difference, dot(left, right))
        for k, (x, y) in enumerate(zip(left, right, strict=True)):
            for number, value in zip((p, q), rotation.turned(x, y), strict=True):
                self.keep(self.cell(number, k), value)

    def is_far(self, p: Expr, q: Expr) -> Any:
        """As measured by the longer of both columns, and by the whole matrix: what is left between
        them is in the least values, which say of what rank a matrix is."""
        left, right = self.column(p), self.column(q)
        product, size = dot(left, right), maximum(dot(left, left), dot(right, right))
        return product * product > self.squares() * size * (2 * self.epsilon) ** 2

    def values(self) -> list[Expr]:
        columns = (self.column(self.b.integer(k)) for k in range(self.columns))
        return in_order([sqrt(dot(column, column)) for column in columns])[::-1]


def dot(x: Sequence[Expr], y: Sequence[Expr]) -> Expr:
    total = x[0] * y[0]
    for left, right in zip(x[1:], y[1:], strict=True):
        total = fma(left, right, total)
    return total


def in_order(values: list[Expr]) -> list[Expr]:
    """Values from the least on: neighbours change places, as often as there are values."""
    made = list(values)
    for turn in range(len(made)):
        for k in range(turn % 2, len(made) - 1, 2):
            x, y = made[k], made[k + 1]
            made[k], made[k + 1] = minimum(x, y), maximum(x, y)
    return made


def power_below(x: Expr) -> Expr:
    """The largest power of two up to a positive x: the exponent's bits alone."""
    bits, facts = bits_type(x.dtype), np.finfo(x.dtype.numpy)
    exponent = x.scalars.const(((1 << facts.iexp) - 1) << facts.nmant, bits)
    power = (x.bitcast(bits) & exponent).bitcast(x.dtype)
    return maximum(power, float(facts.tiny))
