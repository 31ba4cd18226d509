"""Complex arithmetic on pairs of real expressions.

Formulas are the textbook ones with the guards that keep them from overflowing early: division after
Smith (1962), absolute value by scaling, square root from the half-angle formula.
"""

from __future__ import annotations

import math
from typing import Any

from graphc.ops.registry import Pair
from graphc.ops.scalars import both, choose, copy_sign, either, is_nan, is_zero, like


def mul(b: Any, x: Pair, y: Pair) -> Pair:
    re = b.sub(b.mul(x.re, y.re), b.mul(x.im, y.im))
    return Pair(re, b.add(b.mul(x.re, y.im), b.mul(x.im, y.re)))


def scale(b: Any, x: Pair, factor: Any) -> Pair:
    return Pair(b.mul(x.re, factor), b.mul(x.im, factor))


def div(b: Any, x: Pair, y: Pair) -> Pair:
    """Smith's algorithm: divide by the larger part of y first."""
    real_larger = b.compare("ge", b.op("abs", y.re), b.op("abs", y.im))
    large, small = b.select(real_larger, y.re, y.im), b.select(real_larger, y.im, y.re)
    ratio = b.div(small, large)
    whole = b.div(like(b, large, 1), b.fma(small, ratio, large))
    re = b.select(real_larger, b.fma(x.im, ratio, x.re), b.fma(x.re, ratio, x.im))
    im = b.select(real_larger, b.fma(b.neg(x.re), ratio, x.im), b.sub(b.mul(x.im, ratio), x.re))
    quotient = Pair(b.mul(re, whole), b.mul(im, whole))
    by_zero = Pair(b.div(x.re, large), b.div(x.im, large))
    made: Pair = choose(b, is_zero(b, large), by_zero, quotient)
    return made


def absolute(b: Any, x: Pair) -> Any:
    return b.call("hypot", x.re, x.im)


def angle(b: Any, x: Pair) -> Any:
    return b.call("atan2", x.im, x.re)


def conj(b: Any, x: Pair) -> Pair:
    return Pair(x.re, b.neg(x.im))


def reciprocal(b: Any, x: Pair) -> Pair:
    return div(b, Pair(like(b, x.re, 1), like(b, x.re, 0)), x)


def square(b: Any, x: Pair) -> Pair:
    return mul(b, x, x)


def sign(b: Any, x: Pair) -> Pair:
    """x / |x|, and 0 for 0."""
    size = absolute(b, x)
    zero = like(b, size, 0)
    unit = Pair(b.div(x.re, size), b.div(x.im, size))
    made: Pair = choose(b, is_zero(b, size), Pair(zero, zero), unit)
    return made


def exp(b: Any, x: Pair) -> Pair:
    """exp(re) (cos(im) + i sin(im)); a zero imaginary part stays zero beside infinity."""
    size = b.call("exp", x.re)
    sine = b.select(is_zero(b, x.im), x.im, b.mul(size, b.call("sin", x.im)))
    return Pair(b.mul(size, b.call("cos", x.im)), sine)


def log(b: Any, x: Pair) -> Pair:
    return Pair(log_absolute(b, x), angle(b, x))


def log_absolute(b: Any, x: Pair) -> Any:
    """log |x|, by log1p near the unit circle, where the rounded |x| has lost the digits."""
    re, im = b.op("abs", x.re), b.op("abs", x.im)
    large, small = b.op("max", re, im), b.op("min", re, im)
    one = like(b, large, 1)
    excess = b.fma(small, small, b.mul(b.sub(large, one), b.add(large, one)))
    near = b.mul(like(b, large, 0.5), b.call("log1p", excess))
    close = both(
        b,
        b.compare("gt", large, like(b, large, 0.5)),
        b.compare("lt", large, like(b, large, 2)),
    )
    return b.select(close, near, b.call("log", absolute(b, x)))


def log_base(base: float) -> Any:
    """log to another base: the natural one, scaled."""
    return lambda b, x: scale(b, log(b, x), like(b, x.re, 1 / math.log(base)))


def exp_base(base: float) -> Any:
    return lambda b, x: exp(b, scale(b, x, like(b, x.re, math.log(base))))


def sqrt(b: Any, x: Pair) -> Pair:
    """t = sqrt((|re| + |x|) / 2): the result is (t, im / 2t) or, for re < 0, (|im| / 2t, +-t)."""
    half = like(b, x.re, 0.5)
    root = b.op("sqrt", b.fma(half, b.op("abs", x.re), b.mul(half, absolute(b, x))))
    other = b.div(b.mul(half, b.op("abs", x.im)), root)
    other = b.select(is_zero(b, root), like(b, root, 0), other)
    left = b.compare("lt", x.re, like(b, x.re, 0))
    re, im = b.select(left, other, root), b.select(left, root, other)
    infinite = like(b, x.re, math.inf)
    wide = b.compare("eq", b.op("abs", x.im), infinite)
    return Pair(b.select(wide, infinite, re), copy_sign(b, b.select(wide, infinite, im), x.im))


def sin(b: Any, x: Pair) -> Pair:
    re = b.mul(b.call("sin", x.re), b.call("cosh", x.im))
    return Pair(re, b.mul(b.call("cos", x.re), b.call("sinh", x.im)))


def cos(b: Any, x: Pair) -> Pair:
    re = b.mul(b.call("cos", x.re), b.call("cosh", x.im))
    return Pair(re, b.neg(b.mul(b.call("sin", x.re), b.call("sinh", x.im))))


def sinh(b: Any, x: Pair) -> Pair:
    return _turned(sin, b, x)


def cosh(b: Any, x: Pair) -> Pair:
    return cos(b, Pair(b.neg(x.im), x.re))


def tanh(b: Any, x: Pair) -> Pair:
    """(sinh(re) cosh(re) + i sin(im) cos(im)) / (sinh(re)^2 + cos(im)^2).

    For |re| > 20 the squares would overflow early: the result is +-1 + 4i sin cos exp(-2|re|).
    """
    sine, cosine = b.call("sin", x.im), b.call("cos", x.im)
    size = b.op("abs", x.re)
    bounded = b.op("min", size, like(b, size, 20))
    s, c = copy_sign(b, b.call("sinh", bounded), x.re), b.call("cosh", bounded)
    under = b.fma(s, s, b.mul(cosine, cosine))
    product = b.mul(sine, cosine)
    decay = b.call("exp", b.mul(like(b, size, -2), size))
    far = b.compare("gt", size, like(b, size, 20))
    re = b.select(far, copy_sign(b, like(b, size, 1), x.re), b.div(b.mul(s, c), under))
    im = b.select(far, b.mul(b.mul(like(b, size, 4), product), decay), b.div(product, under))
    return Pair(re, im)


def tan(b: Any, x: Pair) -> Pair:
    return _turned(tanh, b, x)


def _turned(function: Any, b: Any, x: Pair) -> Pair:
    """f(i x) / i turns sinh into sin, tanh into tan and back; here as g(x) = -i f(i x) by parts."""
    made = function(b, Pair(b.neg(x.im), x.re))
    return Pair(made.im, b.neg(made.re))


def power(b: Any, x: Pair, y: Pair) -> Pair:
    """exp(y log x); 0**y is 0 for a positive real part of y, and x**0 is 1."""
    made: Pair = exp(b, mul(b, y, log(b, x)))
    zero, one = like(b, x.re, 0), like(b, x.re, 1)
    base_zero = both(b, is_zero(b, x.re), is_zero(b, x.im))
    positive = b.compare("gt", y.re, zero)
    made = choose(b, both(b, base_zero, positive), Pair(zero, zero), made)
    exponent_zero = both(b, is_zero(b, y.re), is_zero(b, y.im))
    made = choose(b, exponent_zero, Pair(one, zero), made)
    return made


def expm1(b: Any, x: Pair) -> Pair:
    """exp(re) cos(im) - 1 = expm1(re) cos(im) - 2 sin(im/2)^2."""
    half = b.call("sin", b.mul(like(b, x.im, 0.5), x.im))
    drop = b.mul(like(b, x.im, -2), b.mul(half, half))
    re = b.fma(b.call("expm1", x.re), b.call("cos", x.im), drop)
    return Pair(re, b.mul(b.call("exp", x.re), b.call("sin", x.im)))


def log1p(b: Any, x: Pair) -> Pair:
    """log |1 + x| = log1p(2 re + re^2 + im^2) / 2 where that is small, log of 1 + x elsewhere."""
    one = like(b, x.re, 1)
    shifted = Pair(b.add(one, x.re), x.im)
    excess = b.fma(x.im, x.im, b.mul(x.re, b.add(x.re, like(b, x.re, 2))))
    near = b.mul(like(b, x.re, 0.5), b.call("log1p", excess))
    small = b.compare("lt", b.op("abs", excess), like(b, x.re, 0.5))
    return Pair(b.select(small, near, log_absolute(b, shifted)), angle(b, shifted))


def any_nan(b: Any, x: Pair) -> Any:
    return either(b, is_nan(b, x.re), is_nan(b, x.im))


def any_infinite(b: Any, x: Pair) -> Any:
    infinite = like(b, x.re, math.inf)
    re, im = b.op("abs", x.re), b.op("abs", x.im)
    return either(b, b.compare("eq", re, infinite), b.compare("eq", im, infinite))


def finite(b: Any, x: Any) -> Any:
    """Neither NaN nor infinite, of a real: the comparison is false for NaN."""
    return b.compare("lt", b.op("abs", x), like(b, x, math.inf))


def equal(b: Any, x: Pair, y: Pair) -> Any:
    return both(b, b.compare("eq", x.re, y.re), b.compare("eq", x.im, y.im))


def not_equal(b: Any, x: Pair, y: Pair) -> Any:
    return either(b, b.compare("ne", x.re, y.re), b.compare("ne", x.im, y.im))


def all_finite(b: Any, x: Pair) -> Any:
    return both(b, finite(b, x.re), finite(b, x.im))
