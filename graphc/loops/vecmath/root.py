"""rsqrt, cbrt, hypot."""

from __future__ import annotations

import math

from graphc.ir.types import F64
from graphc.loops.nest import Expr, Scalars
from graphc.loops.vecmath.base import Real


def rsqrt(b: Scalars, x: Expr) -> Expr:
    r = Real(b, x.dtype)
    return r.div(r.c(1.0), b.op("sqrt", x))


def _inverse_cbrt(r: Real, x: Expr) -> Expr:
    """x**(-1/3) to nearly full precision, for a positive normal x.

    Start: bits(y) = constant - bits(x) / 3 is within 3.5 %; a third of the upper half of the bits
    is enough.  Then twice y (1 + h/3 + 2 h**2 / 9) with h = 1 - x y**3, which cubes the error.
    """
    half = r.format.bits.bits // 2
    third = r.b.mul(r.shift_right(r.bits(x), half), r.k((1 << half) // 3))
    y = r.from_bits(r.b.sub(r.k(0x54A1AB13 if r.single else 0x553EE978D4FDF400), third))
    for _ in range(2):
        cube = r.mul(r.mul(y, y), y)
        h = r.fma(r.neg(x), cube, r.c(1.0))
        y = r.fma(y, r.mul(h, r.fma(h, r.c(2.0 / 9.0), r.c(1.0 / 3.0))), y)
    return y


def cbrt(b: Scalars, x: Expr) -> Expr:
    """x y**2 with y = x**(-1/3), and one correction by the residue x - c**3."""
    r = Real(b, x.dtype)
    size = r.abs(x)
    small = r.lt(size, r.c(r.format.tiny))
    steps = 24 if r.single else 54
    scaled = r.where(small, r.mul(size, r.c(2.0**steps)), size)
    y = _inverse_cbrt(r, scaled)
    square = r.mul(y, y)
    c = r.mul(scaled, square)
    residue = r.fma(r.neg(r.mul(c, c)), c, scaled)
    c = r.fma(residue, r.mul(square, r.c(1.0 / 3.0)), c)
    c = r.where(small, r.mul(c, r.c(2.0 ** (-steps // 3))), c)
    # 0, inf and NaN are their own roots.
    regular = b.op("and", r.gt(size, r.c(0.0)), r.lt(size, r.c(math.inf)))
    return r.with_sign(r.where(regular, c, size), x)


def hypot(b: Scalars, x: Expr, y: Expr) -> Expr:
    """sqrt(x**2 + y**2); f32 in f64, f64 relative to the larger operand. inf wins over NaN."""
    r = Real(b, x.dtype)
    infinity = r.c(math.inf)
    size_x, size_y = r.abs(x), r.abs(y)
    if r.single:
        wide_x, wide_y = b.cast(x, F64), b.cast(y, F64)
        total = b.fma(wide_x, wide_x, b.mul(wide_y, wide_y))
        value = b.cast(b.op("sqrt", total), x.dtype)
    else:
        value = _hypot_by_ratio(r, size_x, size_y)
    infinite = b.op("or", r.eq(size_x, infinity), r.eq(size_y, infinity))
    return r.where(infinite, infinity, value)


def _hypot_by_ratio(r: Real, x: Expr, y: Expr) -> Expr:
    """large sqrt(1 + (small / large)**2), for operands that are not negative."""
    swap = r.gt(y, x)
    large, small = r.where(swap, y, x), r.where(swap, x, y)
    ratio = r.div(small, large)
    value = r.mul(large, r.b.op("sqrt", r.fma(ratio, ratio, r.c(1.0))))
    return r.where(r.eq(large, r.c(0.0)), small, value)
