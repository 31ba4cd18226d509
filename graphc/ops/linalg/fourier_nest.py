"""The Fourier transform of a row in one kernel: two sets of shorter transforms, side by side.

The row of n = a b numbers is an a x b matrix; parts lie in planes of their own:

    planes [a, b]  --transforms of length a, down the columns, the last pass times w_n**(r s)-->
           [b, a]  --turned, transforms of length b, down the columns-->  the result, in order

A transform down the columns takes every column at once: its innermost loops run along rows of
memory.  It is Stockham's, of radices up to 8 and of primes: pass after pass goes from one pair of
planes to the other, and nothing has to be put in order at the end.  With `run` numbers in a row,
m = length / r and w = w_length:

    to[r j + t] = w**(j t) * sum over q of  from[j + m q] w_r**(q t)        runs are r times longer

A radix of up to 13 is written out; a longer one is a loop over t, which takes t and r - t together.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import Any

from graphc.ir.types import I32, I64, DType
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import Pair
from graphc.ops.record.arguments import Applied, ReadAt, Write
from graphc.ops.reduce.cumulative import unravel

MOST_COLUMNS = 32  # that are transformed together
STRIP = 16  # columns of planes that are turned at a time
RADICES = (8, 4, 2, 3, 5, 7, 11, 13)  # that are written out
MOST_RADIX = 61  # a transform that is a convolution takes less time than a longer one


def bits_of(element: DType) -> DType:
    """The integers of which two have the bits of a complex number."""
    return I32 if element.itemsize == 8 else I64


def radices(n: int) -> list[int] | None:
    """Short factors of n whose product is n, the longest primes last; None where there are none."""
    found = []
    for radix in (*RADICES, *range(RADICES[-1] + 2, MOST_RADIX + 1, 2)):
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return found if n == 1 else None


def sides(n: int) -> tuple[int, int]:
    """a and b with a b = n, as close to each other as they may be."""
    a = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    return a, n // a


def butterfly(values: Sequence[Pair]) -> list[Pair]:
    """The transform of a few numbers, written out."""
    n = len(values)
    if n == 1:
        return list(values)
    if n % 2 == 0:
        even, odd = butterfly(values[::2]), butterfly(values[1::2])
        odd = [_turned(x, k, n) for k, x in enumerate(odd)]
        return [e + o for e, o in zip(even, odd)] + [e - o for e, o in zip(even, odd)]
    return _odd(values)


def _turned(x: Pair, k: int, n: int) -> Pair:
    """x times exp(-2 pi i k / n)."""
    if k == 0:
        return x
    if 4 * k == n:
        return Pair(x.im, -x.re)
    root = cmath.exp(-2j * math.pi * k / n)
    if 8 * k in (n, 3 * n):
        half = math.sqrt(0.5)
        first, second = x.re + x.im, x.im - x.re
        return (
            Pair(first * half, second * half) if 8 * k == n else Pair(second * half, -first * half)
        )
    return Pair(x.re * root.real - x.im * root.imag, x.re * root.imag + x.im * root.real)


def _odd(values: Sequence[Pair]) -> list[Pair]:
    """An odd count: sums and differences of the q-th from either end share their products."""
    n, first, half = len(values), values[0], len(values) // 2
    pairs = [(values[q], values[n - q]) for q in range(1, half + 1)]
    sums, gaps = [x + y for x, y in pairs], [x - y for x, y in pairs]
    made = [first] * n
    for x in sums:
        made[0] = made[0] + x
    for k in range(1, half + 1):
        even, odd = first, None
        for q in range(1, half + 1):
            angle = 2 * math.pi * (q * k % n) / n
            c, s = math.cos(angle), math.sin(angle)
            x, y = sums[q - 1], gaps[q - 1]
            even = Pair(even.re + x.re * c, even.im + x.im * c)
            turned = Pair(y.im * s, y.re * -s)
            odd = turned if odd is None else odd + turned
        assert odd is not None
        made[k], made[n - k] = even + odd, even - odd
    return made


class Transform:
    """Writes the loops of one row.  Operand 1 holds w_n**k, and behind that w_n**(r s)."""

    inverse = False

    def __init__(
        self, b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
    ) -> None:
        self.b, self.node, self.read, self.write = b, node, read, write
        self.planes, self.others = (scratch[0], scratch[1]), (scratch[2], scratch[3])
        self.dims = node.inputs[0].type.dims
        self.n = scratch[0].size

    def row(self, unit: Expr) -> None:
        self.load(unit)
        first, second = sides(self.n)
        if first > 1:
            self.columns(first, second, between=True)
            self.transpose(first, second)
        self.columns(second, first)
        self.give(unit)

    def load(self, unit: Expr) -> None:
        b, n = self.b, self.n
        with b.loop(n, "vector") as k:
            self.put(k, self.swapped(self.read(0, b.affine([(unit, n)], k))))

    def give(self, unit: Expr) -> None:
        with self.b.loop(self.n, "vector") as k:
            self.write(self.index(unit, k), self.swapped(self.get(k)))

    def index(self, unit: Expr, place: Expr) -> tuple[Expr, ...]:
        return (*unravel(unit, self.dims[:-1]), place)

    def transpose(self, rows: int, columns: int) -> None:
        """The planes turned, a strip of columns at a time: vectors of rows are shuffled."""
        b, strips = self.b, columns // STRIP
        with b.loop(strips) as strip:
            self.turn_strip(strip * STRIP, STRIP, rows, columns)
        self.turn_strip(b.integer(strips * STRIP), columns % STRIP, rows, columns)
        self.planes, self.others = self.others, self.planes

    def turn_strip(self, first: Expr, wide: int, rows: int, columns: int) -> None:
        b = self.b
        with b.loop(rows if wide else 0, "vector") as row:
            for column in (first + k for k in range(wide)):
                value = self.get(b.affine([(row, columns)], column))
                self.put(b.affine([(column, rows)], row), value, self.others)

    def swapped(self, value: Pair) -> Pair:
        """With the parts of what comes and goes exchanged a transform is its inverse."""
        return Pair(value.im, value.re) if self.inverse else value

    def get(self, at: Expr) -> Pair:
        return Pair(*(self.b.load(plane, at) for plane in self.planes))

    def put(self, at: Expr, value: Pair, planes: tuple[Buffer, Buffer] | None = None) -> None:
        for plane, part in zip(planes or self.planes, (value.re, value.im), strict=True):
            self.b.store(plane, at, part)

    def turn(self, at: Expr) -> Pair:
        element = self.planes[0].dtype
        return Pair(*(self.read(1, at * 2 + part).bitcast(element) for part in range(2)))

    def columns(self, count: int, run: int, between: bool = False) -> None:
        """Transforms of `count` numbers, `run` of them side by side; times the roots in between."""
        rest = count
        for radix in radices(count) or ():
            once = self.once if radix in RADICES else self.once_long
            once(radix, rest, run, between and rest == radix)
            self.planes, self.others = self.others, self.planes
            rest, run = rest // radix, run * radix

    def once(self, radix: int, length: int, run: int, between: bool = False) -> None:
        """One pass over the planes."""
        b, m = self.b, length // radix
        with b.loop(m) as j:
            step = self.n // length
            factors = [self.held(b.affine([(j, t * step)])) for t in range(1, radix)]
            with b.loop(run, "vector") as e:
                places = (b.affine([(j, run)], e + q * m * run) for q in range(radix))
                made = butterfly([self.get(at) for at in places])
                for t, value in enumerate(made):
                    at = b.affine([(j, radix * run)], e + t * run)
                    twiddle = factors[t - 1] if t and m > 1 else None
                    self.put_turned(at, value, twiddle, between)

    def once_long(self, radix: int, length: int, run: int, between: bool = False) -> None:
        """One pass of an odd radix in two loops: first sums and differences of the q-th from either
        end take their places, then each pair of results is made of all of them (see `_odd`)."""
        b, m, half = self.b, length // radix, radix // 2
        with b.loop(m) as j:
            first = j * run
            with b.loop(run, "vector") as e:
                total = self.kept(self.get(first + e))
                for q in range(1, half + 1):
                    ends = [first + e + k * m * run for k in (q, radix - q)]
                    x, y = (self.kept(self.get(at)) for at in ends)
                    self.put(ends[0], x + y)
                    self.put(ends[1], x - y)
                    total = total + (x + y)
                self.put_turned(first * radix + e, total, None, between)
            with b.loop(half + 1, start=1) as t:
                roots = [self.held((t * q % radix) * (self.n // radix)) for q in range(1, half + 1)]
                ways = (t, radix - t)
                twiddles = [self.held(j * way * (self.n // length)) for way in ways if m > 1]
                with b.loop(run, "vector") as e:
                    even, odd = self.get(first + e), None
                    for q, root in enumerate(roots, 1):
                        x, y = (self.get(first + e + k * m * run) for k in (q, radix - q))
                        c, s = map(b.read, root)
                        even = Pair(even.re + x.re * c, even.im + x.im * c)
                        turned = Pair(y.im * s, y.re * s)
                        odd = turned if odd is None else odd + turned
                    assert odd is not None
                    odd = Pair(-odd.re, odd.im)  # a root holds minus the sine
                    for way, value, twiddle in zip(
                        ways, (even + odd, even - odd), twiddles or (None, None), strict=True
                    ):
                        at = first * radix + way * run + e
                        self.put_turned(at, value, twiddle, between)

    def kept(self, value: Pair) -> Pair:
        """The value as it is now: what it was loaded from may be overwritten."""
        registers = [self.b.register(part) for part in (value.re, value.im)]
        return Pair(*map(self.b.read, registers))

    def held(self, at: Expr) -> tuple[Any, Any]:
        """Registers with a root of unity."""
        value = self.turn(at)
        return self.b.register(value.re), self.b.register(value.im)

    def put_turned(
        self, at: Expr, value: Pair, twiddle: tuple[Any, Any] | None, between: bool
    ) -> None:
        """Store a result of a pass, times the roots that it is to be turned by."""
        if twiddle is not None:
            value = value * Pair(*map(self.b.read, twiddle))
        if between:
            value = value * self.turn(at + self.n)
        self.put(at, value, self.others)


class OfNumbers(Transform):
    """Of complex numbers, in one direction or the other."""

    def __init__(self, b: Scalars, node: Applied, *rest: Any) -> None:
        super().__init__(b, node, *rest)
        self.inverse = node.attrs["inverse"]


def block_of(columns: int) -> int:
    """How many columns next to each other are transformed together: a divisor of their count."""
    return max(d for d in range(1, min(columns, MOST_COLUMNS) + 1) if columns % d == 0)


class OfColumns(OfNumbers):
    """Of the columns of a matrix, some side by side: one pass of `columns` after another."""

    def __init__(self, b: Scalars, node: Applied, *rest: Any) -> None:
        super().__init__(b, node, *rest)
        self.n, self.wide = self.dims[-2:]
        self.block = block_of(self.wide)

    def row(self, unit: Expr) -> None:
        """One block of columns."""
        b, blocks = self.b, self.wide // self.block
        lead, first = unit // blocks, (unit % blocks) * self.block
        with b.loop(self.n) as row, b.loop(self.block, "vector") as e:
            at = b.affine([(lead, self.n * self.wide), (row, self.wide)], first + e)
            self.put(b.affine([(row, self.block)], e), self.swapped(self.read(0, at)))
        self.columns(self.n, self.block)
        with b.loop(self.n) as row, b.loop(self.block, "vector") as e:
            value = self.swapped(self.get(b.affine([(row, self.block)], e)))
            self.write((*unravel(lead, self.dims[:-2]), row, first + e), value)


class OfReals(Transform):
    """Of 2 m real numbers, as one of m complex ones z_k = x_2k + i x_2k+1, whose result Z gives

    X_k = E + w_2m**k O    E = (Z_k + conj(Z_m-k)) / 2,  O = (Z_k - conj(Z_m-k)) / 2i
    """

    def load(self, unit: Expr) -> None:
        b, m = self.b, self.n
        with b.loop(m, "vector") as k:
            at = b.affine([(unit, 2 * m), (k, 2)])
            self.put(k, Pair(self.read(0, at), self.read(0, at + 1)))

    def give(self, unit: Expr) -> None:
        b, m = self.b, self.n
        first = self.get(b.integer(0))
        zero = b.const(0.0, first.re.dtype)
        ends = [Pair(first.re + first.im, zero), Pair(first.re - first.im, zero)]
        for place, value in zip((0, m), ends, strict=True):
            self.write(self.index(unit, b.integer(place)), value)
        with b.loop(m, "vector", 1) as k:
            z, other = self.get(k), self.get(m - k)
            even = Pair((z.re + other.re) * 0.5, (z.im - other.im) * 0.5)
            odd = Pair((z.im + other.im) * 0.5, (other.re - z.re) * 0.5)
            self.write(self.index(unit, k), even + odd * self.turn(k + 2 * m))


class ToReals(Transform):
    """The inverse of `OfReals`, not scaled: Z_k = E + i O, E = X_k + conj(X_m-k),
    O = (X_k - conj(X_m-k)) / w_2m**k.  The imaginary parts of the first and the last are not read.
    """

    inverse = True

    def load(self, unit: Expr) -> None:
        b, m = self.b, self.n
        first, last = (self.read(0, b.affine([(unit, m + 1)], at)) for at in (0, m))
        start = Pair(first.re + last.re, first.re - last.re)
        self.put(b.integer(0), self.swapped(start))
        with b.loop(m, "vector", 1) as k:
            x = self.read(0, b.affine([(unit, m + 1)], k))
            other = self.read(0, b.affine([(unit, m + 1)], m - k))
            turn = self.turn(k + 2 * m)
            odd = Pair(x.re - other.re, x.im + other.im) * Pair(turn.re, -turn.im)
            value = Pair(x.re + other.re - odd.im, x.im - other.im + odd.re)
            self.put(k, self.swapped(value))

    def give(self, unit: Expr) -> None:
        with self.b.loop(self.n, "vector") as k:
            value = self.swapped(self.get(k))
            self.write(self.index(unit, k * 2), value.re)
            self.write(self.index(unit, k * 2 + 1), value.im)
