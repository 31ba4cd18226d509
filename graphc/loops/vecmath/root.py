"""rsqrt, cbrt, hypot."""

from __future__ import annotations

import math

from graphc.ir.types import F64
from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, rare, sqrt, where
from graphc.loops.vecmath.vocabulary import Real, function


@function
def rsqrt(x: Expr) -> Expr:
    r = Real(x)
    return r.c(1.0) / sqrt(x)


def _inverse_cbrt(r: Real, x: Expr) -> Expr:
    """x**(-1/3) to nearly full precision, for a positive normal x.

    Start: bits(y) = constant - bits(x) / 3 is within 3.5 %; a third of the upper half of the bits
    is enough.  Then twice y (1 + h/3 + 2 h**2 / 9) with h = 1 - x y**3, which cubes the error.
    """
    half = r.format.bits.bits // 2
    third = (r.bits(x) >> half) * ((1 << half) // 3)
    y = r.from_bits((0x54A1AB13 if r.single else 0x553EE978D4FDF400) - third)
    for _ in range(2):
        cube = y * y * y
        h = fma(-x, cube, 1.0)
        y = fma(y, h * fma(h, 2.0 / 9.0, 1.0 / 3.0), y)
    return y


@function
def cbrt(x: Expr) -> Expr:
    """x y**2 with y = x**(-1/3), and one correction by the residue x - c**3."""
    r = Real(x)
    size = abs(x)
    small = size < r.format.tiny
    steps = 24 if r.single else 54
    scaled = where(small, size * 2.0**steps, size)
    y = _inverse_cbrt(r, scaled)
    square = y * y
    c = scaled * square
    residue = fma(-(c * c), c, scaled)
    c = fma(residue, square * (1.0 / 3.0), c)
    c = where(small, c * 2.0 ** (-steps // 3), c)
    # 0, inf and NaN are their own roots.
    regular = (size > 0.0) & (size < math.inf)
    return r.with_sign(where(regular, c, size), x)


@function
def hypot(x: Expr, y: Expr) -> Expr:
    """sqrt(x**2 + y**2) where that is far from the ends of the format, and of zeros; else f32 in
    f64, f64 relative to the larger operand. inf wins over NaN."""
    r = Real(x)
    infinity = r.c(math.inf)
    size_x, size_y = abs(x), abs(y)
    if r.single:
        wide_x, wide_y = x.cast(F64), y.cast(F64)
        careful = sqrt(fma(wide_x, wide_x, wide_y * wide_y)).cast(x.dtype)
    else:
        careful = _hypot_by_ratio(r, size_x, size_y)
    infinite = (size_x == infinity) | (size_y == infinity)
    careful = where(infinite, infinity, careful)
    total = fma(x, x, y * y)
    # What a square loses below the format is less than a rounding of such a sum.
    least, most = (2.0**-100, 2.0**126) if r.single else (2.0**-960, 2.0**1022)
    usual = ((total >= least) & (total <= most)) | (size_x + size_y == 0.0)
    return rare(~usual, careful, sqrt(total))


def _hypot_by_ratio(r: Real, x: Expr, y: Expr) -> Expr:
    """large sqrt(1 + (small / large)**2), for operands that are not negative."""
    swap = y > x
    large, small = where(swap, y, x), where(swap, x, y)
    ratio = small / large
    value = large * sqrt(fma(ratio, ratio, 1.0))
    return where(large == 0.0, small, value)
