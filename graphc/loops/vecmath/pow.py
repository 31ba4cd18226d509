"""pow with the special cases of C99 annex F: 2**(y log2|x|), the logarithm in twice the precision.

log2|x| = e + 2/ln2 (s + s**3/3 + s**5 Q(s**2)), s = f / (2 + f), 1 + f = |x| / 2**e.  The first
two terms are pairs high + low: the result's error is about |y log2 x| times the logarithm's
relative error, so a plain logarithm would lose 7 (f32) or 10 (f64) bits.
"""

from __future__ import annotations

import math
from fractions import Fraction

from graphc.loops.nest import Expr, Scalars
from graphc.loops.vecmath.base import Pair, Real, split
from graphc.loops.vecmath.exp import exp2_bounds, exp2_parts, scale_twice
from graphc.loops.vecmath.log import reduce

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
    return high, r.fma(x[0], y[1], r.fma(x[1], y[0], low))


def log2_pair(r: Real, x: Expr) -> Pair:
    """log2 of a positive finite x as high + low."""
    e, f = reduce(r, x)
    total, total_low = r.quick_sum(r.c(2.0), f)
    inverse = r.div(r.c(1.0), total)
    s = r.mul(f, inverse)
    left = r.fma(r.neg(s), total_low, r.fma(r.neg(s), total, f))
    pair = s, r.mul(left, inverse)
    square = _pair_product(r, pair, pair)
    tail = r.mul(square[0], r.polynomial(square[0], _TAIL_32 if r.single else _TAIL_64))
    third, third_low = split(Fraction(_TWO_LOG2_E) / 3, r.dtype)
    factor, factor_low = r.quick_sum(r.c(third), tail)
    bracket = _pair_product(r, square, (factor, r.add(factor_low, r.c(third_low))))
    lead, lead_low = split(_TWO_LOG2_E, r.dtype)
    bracket_high, bracket_low = r.quick_sum(r.c(lead), bracket[0])
    bracket_low = r.add(bracket_low, r.add(bracket[1], r.c(lead_low)))
    product = _pair_product(r, pair, (bracket_high, bracket_low))
    high, low = r.quick_sum(e, product[0])
    return high, r.add(low, product[1])


def _magnitude(r: Real, x: Expr, y: Expr) -> Expr:
    """x**y for a positive finite x."""
    high, low = log2_pair(r, x)
    z = r.mul(y, high)
    rest = r.fma(y, low, r.fma(y, high, r.neg(z)))
    # Beyond the clamp the rest may be NaN, and does not matter.
    bounded = exp2_bounds(r, z)
    rest = r.where(r.eq(z, bounded), rest, r.c(0.0))
    p, bits = exp2_parts(r, bounded, rest)
    return scale_twice(r, p, bits)


def pow(b: Scalars, x: Expr, y: Expr) -> Expr:
    r = Real(b, x.dtype)
    zero, one, infinity = r.c(0.0), r.c(1.0), r.c(math.inf)
    size = r.abs(x)
    result = _magnitude(r, size, y)
    # |x| is 0 or inf: the result is 0 or inf, whichever side of 0 the exponent is on.
    edge = b.op("or", r.eq(size, zero), r.eq(size, infinity))
    grows = b.op("xor", r.gt(size, one), r.lt(y, zero))
    result = r.where(edge, r.where(grows, infinity, zero), result)
    whole = r.eq(b.op("rint", y), y)
    half = r.mul(y, r.c(0.5))
    odd = b.op("and", whole, b.compare("ne", b.op("rint", half), half))
    negative = b.compare("lt", r.bits(x), r.k(0))
    result = r.flip(result, r.where(b.op("and", odd, negative), r.k(r.format.sign), r.k(0)))
    invalid = b.op("and", r.lt(x, zero), b.op("not", whole))
    finite = r.lt(size, infinity)
    result = r.where(b.op("and", invalid, finite), r.c(math.nan), result)
    unordered = b.op("or", b.compare("ne", x, x), b.compare("ne", y, y))
    result = r.where(unordered, r.add(x, y), result)
    # 1**y, x**0 and (-1)**(+-inf) are 1, for NaN too.
    unit = b.op("or", r.eq(x, one), r.eq(y, zero))
    unit = b.op("or", unit, b.op("and", r.eq(size, one), r.eq(r.abs(y), infinity)))
    return r.where(unit, one, result)
