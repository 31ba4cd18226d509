"""The words that scalar expressions are written with, beside their operators: choices, roundings,
signs and complex pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from graphc.base.record import record
from graphc.ir.types import BOOL, DTYPES, DType
from graphc.loops.nest import ALWAYS, Expr


@record(frozen=True, eq=False)
class Pair:
    """A complex scalar in the loop IR: two real expressions."""

    re: Expr
    im: Expr

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.re - other.re, self.im - other.im)

    def __neg__(self) -> Pair:
        return Pair(-self.re, -self.im)

    def __mul__(self, other: Pair) -> Pair:
        re = self.re * other.re - self.im * other.im
        return Pair(re, self.re * other.im + self.im * other.re)


Element = Expr | Pair  # one element of an array
Expression = Callable[..., Any]  # of elements, an element


def over_pairs(real: Expression, complex_: Expression | None) -> Expression:
    """An expression that takes real operands one way and complex pairs, if any, another."""
    if complex_ is None:
        return real
    return lambda *operands: (complex_ if isinstance(operands[0], Pair) else real)(*operands)


# ----------------------------------------------------------------------------------------- choices


@overload
def where(condition: Expr, x: Expr | float, y: Expr | float) -> Expr: ...
@overload
def where(condition: Expr, x: Pair, y: Pair) -> Pair: ...
def where(condition: Expr, x: Element | float, y: Element | float) -> Element:
    """x where the condition holds, else y; one of two reals may be a number."""
    if isinstance(x, Pair):
        assert isinstance(y, Pair)
        return Pair(where(condition, x.re, y.re), where(condition, x.im, y.im))
    assert not isinstance(y, Pair)
    like = x if isinstance(x, Expr) else y
    assert isinstance(like, Expr), "the type of two numbers is not known"
    return condition.scalars.select(condition, like.like(x), like.like(y))


def rare(condition: Expr, x: Expr, y: Expr) -> Expr:
    """`where` with an x that costs much and is seldom chosen: vectors skip it where they can."""
    return condition.scalars.op("rare", condition, x, y)


def shortcut(condition: Expr, x: Expr, y: Expr) -> Expr:
    """`rare` with an x that is right everywhere, with the bits of y where that is chosen: code for
    one element, which LLVM makes vectors of, has x alone."""
    return condition.scalars.make("rare", x.dtype, (condition, x, y), ALWAYS)


def minimum(x: Expr, y: Expr | float) -> Expr:
    return x.scalars.op("min", x, x.like(y))


def maximum(x: Expr, y: Expr | float) -> Expr:
    return x.scalars.op("max", x, x.like(y))


# ------------------------------------------------------------------------------------- arithmetic


def fma(x: Expr, y: Expr | float, z: Expr | float) -> Expr:
    """x * y + z, rounded once."""
    return x.scalars.op("fma", x, x.like(y), x.like(z))


def quads(x: Expr, y: Expr, z: Expr) -> Expr:
    """z + the four u8 of x times the four i8 of y, place by place: all are i32."""
    return x.scalars.op("quads", x, y, z)


def sqrt(x: Expr) -> Expr:
    return x.scalars.op("sqrt", x)


def floor(x: Expr) -> Expr:
    return x.scalars.op("floor", x)


def ceil(x: Expr) -> Expr:
    return x.scalars.op("ceil", x)


def trunc(x: Expr) -> Expr:
    return x.scalars.op("trunc", x)


def rint(x: Expr) -> Expr:
    return x.scalars.op("rint", x)


def popcount(x: Expr) -> Expr:
    return x.scalars.op("popcount", x)


# ------------------------------------------------------------------------------------- questions


def is_nan(x: Expr) -> Expr:
    return x != x


def not_zero(x: Element) -> Expr:
    """x != 0 as a bool; a complex number is zero when both parts are."""
    if isinstance(x, Pair):
        return not_zero(x.re) | not_zero(x.im)
    return x.cast(BOOL)


# ------------------------------------------------------------------------------------------ signs


def bits_type(element: DType) -> DType:
    """The signed integer type as wide as an element."""
    return DTYPES[f"i{element.bits}"]


def sign_bit(x: Expr) -> Expr:
    """True where the sign bit of a float is set, also for -0.0 and NaN."""
    return x.bitcast(bits_type(x.dtype)) < 0


def copy_sign(x: Expr, y: Expr) -> Expr:
    """The magnitude of x with the sign bit of y."""
    bits = bits_type(x.dtype)
    sign = x.scalars.const(-(1 << (bits.bits - 1)), bits)
    magnitude = abs(x).bitcast(bits)
    return (magnitude | (y.bitcast(bits) & sign)).bitcast(x.dtype)
