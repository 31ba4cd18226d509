"""pow with the special cases of C99 annex F: 2**(y log2|x|), the logarithm in twice the precision.

log2|x| = e + 2/ln2 (s + s**3/3 + s**5 Q(s**2)), s = f / (2 + f), 1 + f = |x| / 2**e.  The first
two terms are pairs high + low: the result's error is about |y log2 x| times the logarithm's
relative error, so a plain logarithm would lose 7 (f32) or 10 (f64) bits.
"""

from __future__ import annotations

import math
from fractions import Fraction

from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, rint, shortcut, where
from graphc.loops.vecmath.exponential import exp2_bounds, exp2_parts, scale_once, scale_twice
from graphc.loops.vecmath.logarithm import reduce, reduce_normal
from graphc.loops.vecmath.vocabulary import Pair, Real, function, split

_TWO_LOG2_E = "2.885390081777926814719849362003784274854"

# 2/ln2 (atanh(s) - s - s**3/3) / s**5 in s**2; errors of log2 2**-35.2 and 2**-64.8
_TAIL_32 = (0.5770801901817322, 0.41184988617897034, 0.3378220200538635)
_TAIL_64 = (
    0.577078016355618,
    0.4121985830919392,
    0.3205989022738789,
    0.26230770108226903,
    0.22198400045658145,
    0.19125508217723713,
    0.19038630108776805,
)


def _pair_product(r: Real, x: Pair, y: Pair) -> Pair:
    high, low = r.two_product(x[0], y[0])
    return high, fma(x[0], y[1], fma(x[1], y[0], low))


def log2_pair(r: Real, x: Expr, normal: bool = False) -> Pair:
    """log2 of a positive finite x, which may be known to be normal, as high + low."""
    e, f = (reduce_normal if normal else reduce)(r, x)
    total, total_low = r.quick_sum(r.c(2.0), f)
    inverse = 1.0 / total
    s = f * inverse
    left = fma(-s, total_low, fma(-s, total, f))
    pair = s, left * inverse
    square = _pair_product(r, pair, pair)
    tail = square[0] * r.polynomial(square[0], _TAIL_32 if r.single else _TAIL_64)
    third, third_low = split(Fraction(_TWO_LOG2_E) / 3, r.dtype)
    factor, factor_low = r.quick_sum(r.c(third), tail)
    bracket = _pair_product(r, square, (factor, factor_low + third_low))
    lead, lead_low = split(_TWO_LOG2_E, r.dtype)
    bracket_high, bracket_low = r.quick_sum(r.c(lead), bracket[0])
    bracket_low = bracket_low + (bracket[1] + lead_low)
    product = _pair_product(r, pair, (bracket_high, bracket_low))
    high, low = r.quick_sum(e, product[0])
    return high, low + product[1]


def _magnitude(r: Real, x: Expr, y: Expr) -> Expr:
    """x**y for a positive finite x."""
    high, low = log2_pair(r, x)
    z = y * high
    rest = fma(y, low, fma(y, high, -z))
    # Beyond the clamp the rest may be NaN, and does not matter.
    bounded = exp2_bounds(r, z)
    rest = where(z == bounded, rest, 0.0)
    p, bits = exp2_parts(r, bounded, rest)
    return scale_twice(r, p, bits)


@function
def pow(x: Expr, y: Expr) -> Expr:
    """Where a vector's x and results are positive normal numbers nothing else is asked."""
    r = Real(x)
    high, low = log2_pair(r, x, normal=True)
    z = y * high
    rest = fma(y, low, fma(y, high, -z))
    usual = scale_once(r, *exp2_parts(r, z, rest, biases=0))
    plain = (x >= r.format.tiny) & (x < math.inf) & (abs(z) < r.format.bias - 1.0)
    return shortcut(~plain, _pow_to_the_ends(x, y), usual)


def _pow_to_the_ends(x: Expr, y: Expr) -> Expr:
    """The same bits, and every special case."""
    r = Real(x)
    zero, one, infinity = r.c(0.0), r.c(1.0), r.c(math.inf)
    size = abs(x)
    result = _magnitude(r, size, y)
    # |x| is 0 or inf: the result is 0 or inf, whichever side of 0 the exponent is on.
    edge = (size == zero) | (size == infinity)
    grows = (size > one) ^ (y < zero)
    result = where(edge, where(grows, infinity, zero), result)
    whole = rint(y) == y
    half = y * 0.5
    odd = whole & (rint(half) != half)
    bits = r.bits(x)
    negative = bits < 0
    result = r.flip(result, where(odd & negative, bits.like(r.format.sign), 0))
    invalid = (x < zero) & ~whole
    finite = size < infinity
    result = where(invalid & finite, math.nan, result)
    unordered = (x != x) | (y != y)
    result = where(unordered, x + y, result)
    # 1**y, x**0 and (-1)**(+-inf) are 1, for NaN too.
    unit = (x == one) | (y == zero)
    unit = unit | ((size == one) & (abs(y) == infinity))
    return where(unit, one, result)
