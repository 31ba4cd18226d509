"""The vocabulary the vector math functions are written in.

`Real` wraps the expression builder for one float type: literals, polynomials, bit tricks.
Everything is branch-free and made of primitive expression ops, so each emitter computes the same
bits.  Two laws the emitters must keep: `add` and `sub` of floats are never reassociated, and `fma`
rounds once.  Contracting a multiplication and an addition, as CUDA's compilers do, changes last
bits but no error bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from graphc.ir.types import F32, F64, I32, I64, U32, U64, DType
from graphc.loops.nest import Expr, Scalars
from graphc.record import record

Pair = tuple[Expr, Expr]  # an unevaluated sum high + low


@record(frozen=True)
class Format:
    """The numbers of one IEEE format. `bits` and `unsigned` are the integer types of its width."""

    dtype: DType
    bits: DType
    unsigned: DType
    mantissa: int
    bias: int
    tiny: float  # smallest normal
    largest: float

    @property
    def sign(self) -> int:
        """The integer with only the sign bit set."""
        return -(1 << (self.bits.bits - 1))


FORMATS = {
    F32: Format(F32, I32, U32, 23, 127, 2.0**-126, float.fromhex("0x1.fffffep127")),
    F64: Format(F64, I64, U64, 52, 1023, 2.0**-1022, float.fromhex("0x1.fffffffffffffp1023")),
}


class Real:
    """Short spellings for building expressions of one float type."""

    def __init__(self, builder: Scalars, dtype: DType) -> None:
        self.b = builder
        self.format = FORMATS[dtype]
        self.dtype = dtype
        self.single = dtype is F32

    # -- literals

    def c(self, value: float) -> Expr:
        """A float literal of this type."""
        return self.b.const(value, self.dtype)

    def k(self, value: int) -> Expr:
        """A literal of the signed integer type of the same width."""
        return self.b.const(value, self.format.bits)

    def pick(self, single: float, double: float) -> Expr:
        return self.c(single if self.single else double)

    # -- arithmetic

    def add(self, x: Expr, y: Expr) -> Expr:
        return self.b.add(x, y)

    def sub(self, x: Expr, y: Expr) -> Expr:
        return self.b.sub(x, y)

    def mul(self, x: Expr, y: Expr) -> Expr:
        return self.b.mul(x, y)

    def div(self, x: Expr, y: Expr) -> Expr:
        return self.b.div(x, y)

    def fma(self, x: Expr, y: Expr, z: Expr) -> Expr:
        return self.b.fma(x, y, z)

    def neg(self, x: Expr) -> Expr:
        return self.b.neg(x)

    def abs(self, x: Expr) -> Expr:
        return self.b.op("abs", x)

    def polynomial(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """c0 + c1 x + c2 x^2 ... by Horner's rule."""
        total = self.c(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, self.c(coefficient))
        return total

    # -- choice

    def where(self, condition: Expr, x: Expr, y: Expr) -> Expr:
        return self.b.select(condition, x, y)

    def lt(self, x: Expr, y: Expr) -> Expr:
        return self.b.compare("lt", x, y)

    def gt(self, x: Expr, y: Expr) -> Expr:
        return self.b.compare("gt", x, y)

    def eq(self, x: Expr, y: Expr) -> Expr:
        return self.b.compare("eq", x, y)

    def at_most(self, x: Expr, bound: float) -> Expr:
        """min(x, bound), one machine instruction; NaN stays NaN."""
        limit = self.c(bound)
        return self.where(self.lt(limit, x), limit, x)

    def at_least(self, x: Expr, bound: float) -> Expr:
        """max(x, bound), one machine instruction; NaN stays NaN."""
        limit = self.c(bound)
        return self.where(self.gt(limit, x), limit, x)

    # -- bits

    def bits(self, x: Expr) -> Expr:
        return self.b.bitcast(x, self.format.bits)

    def from_bits(self, bits: Expr) -> Expr:
        return self.b.bitcast(bits, self.dtype)

    def shift_left(self, x: Expr, count: int) -> Expr:
        return self.b.op("shl", x, self.b.const(count, x.dtype))

    def shift_right(self, x: Expr, count: int) -> Expr:
        return self.b.op("shr", x, self.b.const(count, x.dtype))

    def sign_of(self, x: Expr) -> Expr:
        """The sign bit of x, as an integer."""
        return self.b.op("and", self.bits(x), self.k(self.format.sign))

    def flip(self, x: Expr, sign: Expr) -> Expr:
        """x with its sign flipped where the integer `sign` has the sign bit."""
        return self.from_bits(self.b.op("xor", self.bits(x), sign))

    def with_sign(self, x: Expr, like: Expr) -> Expr:
        """x >= 0 with the sign of `like`."""
        return self.from_bits(self.b.op("or", self.bits(x), self.sign_of(like)))

    def power_of_two(self, exponent: Expr) -> Expr:
        """2**exponent for an integer exponent whose result is a normal number."""
        f = self.format
        return self.from_bits(self.shift_left(self.b.add(exponent, self.k(f.bias)), f.mantissa))

    def scale(self, x: Expr, exponent: Expr) -> Expr:
        """x * 2**exponent for about |exponent| <= 2 * bias, in two steps so that it rounds once."""
        half = self.shift_right(exponent, 1)
        rest = self.b.sub(exponent, half)
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(rest))

    # -- error-free transformations: the pair returned is the exact sum or product

    def two_sum(self, x: Expr, y: Expr) -> Pair:
        total = self.add(x, y)
        z = self.sub(total, x)
        low = self.add(self.sub(x, self.sub(total, z)), self.sub(y, z))
        return total, low

    def quick_sum(self, x: Expr, y: Expr) -> Pair:
        """As two_sum where |x| >= |y| or x = 0."""
        total = self.add(x, y)
        return total, self.sub(y, self.sub(total, x))

    def two_product(self, x: Expr, y: Expr) -> Pair:
        product = self.mul(x, y)
        return product, self.fma(x, y, self.neg(product))

    # -- the round-to-integer trick

    def round_scaled(self, x: Expr, factor: float, bias: int = 0) -> Pair:
        """(bits, n): n = rint(x * factor) as a float, and an integer whose low bits are n + bias.

        Adding 1.5 * 2**mantissa leaves the integer in the low bits of the sum; |n| stays well below
        2**(mantissa - 2).
        """
        shift = self.c(1.5 * 2.0**self.format.mantissa + bias)
        shifted = self.fma(x, self.c(factor), shift)
        return self.bits(shifted), self.sub(shifted, shift)


def split(value: str | Fraction, dtype: DType) -> tuple[float, float]:
    """A constant given by 40 decimal digits as high + low, high being its rounded value."""
    exact = Fraction(value)
    precision = FORMATS[dtype].mantissa + 1
    exponent = math.frexp(float(exact))[1]
    unit = Fraction(2) ** (exponent - precision)
    high = float(round(exact / unit) * unit)
    return high, float(exact - Fraction(high))
