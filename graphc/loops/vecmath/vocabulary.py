"""The vocabulary the vector math functions are written in.

`Real` knows one float type: literals, polynomials, bit tricks.  `@function` makes a function that
other expressions call, and enters it into the table.
Everything is branch-free and made of primitive expression ops, so each emitter computes the same
bits.  Two laws the emitters must keep: `add` and `sub` of floats are never reassociated, and `fma`
rounds once.  Contracting a multiplication and an addition, as CUDA's compilers do, changes last
bits but no error bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from graphc.base.record import record
from graphc.ir.types import F32, F64, I32, I64, U32, U64, DType
from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, where

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


class Function:
    """A math function: of expressions, a call by name; `body` is what it computes.

    The body takes operands of one float type and gives an expression of that type made of primitive
    ops; `docs/ulp.md` has the errors.
    """

    def __init__(self, body: Callable[..., Expr]) -> None:
        self.body = body
        self.name = body.__name__

    def __call__(self, *operands: Expr) -> Expr:
        return operands[0].scalars.call(self.name, *operands)


FUNCTIONS: dict[str, Callable[..., Expr]] = {}  # what each computes, by name


def function(body: Callable[..., Expr]) -> Function:
    """Enter a math function into the table."""
    FUNCTIONS[body.__name__] = body
    return Function(body)


class Real:
    """The vocabulary for one float type, which is that of x unless given."""

    def __init__(self, x: Expr, dtype: DType | None = None) -> None:
        self.scalars = x.scalars
        self.dtype = dtype or x.dtype
        self.format = FORMATS[self.dtype]
        self.single = self.dtype is F32

    def c(self, value: float) -> Expr:
        """A float literal of this type."""
        return self.scalars.const(value, self.dtype)

    def pick(self, single: float, double: float) -> float:
        return single if self.single else double

    def polynomial(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """c0 + c1 x + c2 x^2 ... by Horner's rule."""
        total = self.c(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = fma(total, x, coefficient)
        return total

    def at_most(self, x: Expr, bound: float) -> Expr:
        """min(x, bound), one machine instruction; NaN stays NaN."""
        limit = self.c(bound)
        return where(limit < x, limit, x)

    def at_least(self, x: Expr, bound: float) -> Expr:
        """max(x, bound), one machine instruction; NaN stays NaN."""
        limit = self.c(bound)
        return where(limit > x, limit, x)

    # -- bits

    def bits(self, x: Expr) -> Expr:
        return x.bitcast(self.format.bits)

    def from_bits(self, bits: Expr) -> Expr:
        return bits.bitcast(self.dtype)

    def sign_of(self, x: Expr) -> Expr:
        """The sign bit of x, as an integer."""
        return self.bits(x) & self.format.sign

    def flip(self, x: Expr, sign: Expr) -> Expr:
        """x with its sign flipped where the integer `sign` has the sign bit."""
        return self.from_bits(self.bits(x) ^ sign)

    def with_sign(self, x: Expr, like: Expr) -> Expr:
        """x >= 0 with the sign of `like`."""
        return self.from_bits(self.bits(x) | self.sign_of(like))

    # -- error-free transformations: the pair returned is the exact sum or product

    def quick_sum(self, x: Expr, y: Expr) -> Pair:
        """For |x| >= |y| or x = 0."""
        total = x + y
        return total, y - (total - x)

    def two_product(self, x: Expr, y: Expr) -> Pair:
        product = x * y
        return product, fma(x, y, -product)

    # -- the round-to-integer trick

    def round_scaled(self, x: Expr, factor: float, bias: int = 0) -> Pair:
        """(bits, n): n = rint(x * factor) as a float, and an integer whose low bits are n + bias.

        Adding 1.5 * 2**mantissa leaves the integer in the low bits of the sum; |n| stays well below
        2**(mantissa - 2).
        """
        shift = self.c(1.5 * 2.0**self.format.mantissa + bias)
        shifted = fma(x, factor, shift)
        return self.bits(shifted), shifted - shift


def split(value: str | Fraction, dtype: DType) -> tuple[float, float]:
    """A constant given by 40 decimal digits as high + low, high being its rounded value."""
    exact = Fraction(value)
    precision = FORMATS[dtype].mantissa + 1
    exponent = math.frexp(float(exact))[1]
    unit = Fraction(2) ** (exponent - precision)
    high = float(round(exact / unit) * unit)
    return high, float(exact - Fraction(high))
