"""asin, acos, atan, atan2.

asin(x) = x + x**3 P(x**2) up to 1/2; beyond, with z = (1 - |x|) / 2, asin(x) = pi/2 - 2
asin(sqrt(z)). atan2 divides the smaller magnitude by the larger and unfolds the octants; atan
turns over at 1.
"""

from __future__ import annotations

import math

from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, sqrt, where
from graphc.loops.vecmath.vocabulary import Real, function, split

_PI = "3.141592653589793238462643383279502884197"
_HALF_PI = "1.570796326794896619231321691639751442099"

# (asin(x) - x) / x**3 in x**2 for |x| <= 1/2; errors of asin 2**-27.61 and 2**-55.89
_ASIN_32 = (
    0.16666752099990845,
    0.07495306432247162,
    0.04546976834535599,
    0.024180814623832703,
    0.04216630384325981,
)
_ASIN_64 = (
    0.16666666666665403,
    0.07500000000338596,
    0.044642856826946,
    0.030381959196438716,
    0.022371756573685078,
    0.017359727721946886,
    0.013885002415354808,
    0.01217078043510969,
    0.006521032072237413,
    0.01954767976861108,
    -0.016255340229116802,
    0.03193398872768304,
)
# (atan(x) - x) / x**3 in x**2 for |x| <= 1; errors of atan 2**-28.50 and 2**-56.25
_ATAN_32 = (
    -0.33333298563957214,
    0.1999852955341339,
    -0.14264015853405,
    0.10950878262519836,
    -0.0839928537607193,
    0.05788065120577812,
    -0.03109574317932129,
    0.010867682285606861,
    -0.00178250833414495,
)
_ATAN_64 = (
    -0.3333333333333307,
    0.1999999999995173,
    -0.14285714282581863,
    0.11111111007012932,
    -0.09090906999697795,
    0.07692279771071713,
    -0.06666403291913332,
    0.05880522170698486,
    -0.05253489066711804,
    0.04722208544049347,
    -0.04218847929630013,
    0.0366345330421536,
    -0.02989120466400777,
    0.021968177305992917,
    -0.013883823099169803,
    0.007183942821038103,
    -0.0028780956090115476,
    0.0008287886759295673,
    -0.00015158586214240237,
    1.3164897502379976e-05,
)


def _asin_core(r: Real, x: Expr, z: Expr) -> Expr:
    """asin(x) for 0 <= x <= 1/2 and z = x**2."""
    return fma(x * z, r.polynomial(z, _ASIN_32 if r.single else _ASIN_64), x)


def _folded_asin(r: Real, x: Expr) -> tuple[Expr, Expr]:
    """(folded, s): s = asin(|x|), or where `folded` holds asin(sqrt((1 - |x|) / 2))."""
    size = abs(x)
    folded = size > 0.5
    half = fma(size, -0.5, 0.5)
    z = where(folded, half, x * x)
    return folded, _asin_core(r, where(folded, sqrt(half), size), z)


@function
def asin(x: Expr) -> Expr:
    r = Real(x)
    folded, core = _folded_asin(r, x)
    high, low = split(_HALF_PI, r.dtype)
    far = fma(core, -2.0, low) + high
    return r.with_sign(where(folded, far, core), x)


@function
def acos(x: Expr) -> Expr:
    """pi/2 - asin(x) in the middle, 2 s or pi - 2 s at the ends."""
    r = Real(x)
    folded, core = _folded_asin(r, x)
    negative = x < 0.0
    half_high, half_low = split(_HALF_PI, r.dtype)
    high, low = split(_PI, r.dtype)
    middle = r.c(half_high) - (r.flip(core, r.sign_of(x)) - half_low)
    twice = core + core
    end = where(negative, r.c(high) - (twice - low), twice)
    return where(folded, end, middle)


def _atan_core(r: Real, x: Expr) -> Expr:
    """atan(x) for |x| <= 1."""
    z = x * x
    return fma(x * z, r.polynomial(z, _ATAN_32 if r.single else _ATAN_64), x)


def _quarter_minus(r: Real, x: Expr) -> Expr:
    """pi/2 - x."""
    high, low = split(_HALF_PI, r.dtype)
    return r.c(high) - (x - low)


@function
def atan(x: Expr) -> Expr:
    r = Real(x)
    size = abs(x)
    steep = size > 1.0
    core = _atan_core(r, where(steep, 1.0 / size, size))
    return r.with_sign(where(steep, _quarter_minus(r, core), core), x)


@function
def atan2(y: Expr, x: Expr) -> Expr:
    r = Real(x)
    across, along = abs(x), abs(y)
    steep = along > across
    small, large = where(steep, across, along), where(steep, along, across)
    ratio = small / large
    # Both zero count as 0 / 1, both infinite as 1 / 1.
    ratio = where(large == 0.0, 0.0, ratio)
    ratio = where(small == math.inf, 1.0, ratio)
    core = _atan_core(r, ratio)
    angle = where(steep, _quarter_minus(r, core), core)
    high, low = split(_PI, r.dtype)
    left = r.bits(x) < 0
    angle = where(left, r.c(high) - (angle - low), angle)
    unordered = (x != x) | (y != y)
    return where(unordered, x + y, r.with_sign(angle, y))
