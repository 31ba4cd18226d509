"""Complex arithmetic on pairs of real expressions.

Formulas are the textbook ones with the guards that keep them from overflowing early: division after
Smith (1962), absolute value by scaling, square root from the half-angle formula.
"""

from __future__ import annotations

import math
from typing import Any

from graphc.ir.types import F64
from graphc.loops.scalars import (
    Pair,
    both,
    choose,
    copy_sign,
    either,
    is_nan,
    is_negative,
    is_zero,
    like,
)


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
    """exp(re) (cos(im) + i sin(im)), with the special values of C: a zero imaginary part stays zero
    beside infinity and NaN, and exp(-inf) is 0 in every direction."""
    size, factor = _scaled_exp(b, x.re)
    cosine = b.mul(b.mul(size, b.call("cos", x.im)), factor)
    sine = b.mul(b.mul(size, b.call("sin", x.im)), factor)
    undirected = both(b, is_infinite(b, x.re), b.op("not", finite(b, x.im)))
    re = b.select(undirected, size, cosine)
    flat = either(b, is_zero(b, x.im), both(b, undirected, is_negative(b, x.re)))
    return Pair(re, b.select(flat, copy_sign(b, like(b, x.im, 0), x.im), sine))


def _scaled_exp(b: Any, x: Any) -> tuple[Any, Any]:
    """exp(x) as a product of two, the first of which does not overflow before a cosine makes the
    whole small enough again."""
    shift = 512 if x.dtype is F64 else 64
    far = b.compare("gt", x, like(b, x, shift))
    size = b.call("exp", b.select(far, b.sub(x, like(b, x, shift)), x))
    return size, b.select(far, like(b, x, math.exp(shift)), like(b, x, 1))


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
    shrunk, shift = _shrunk(b, x)
    far = b.call("log", absolute(b, shrunk))
    far = b.add(far, b.select(shift, like(b, large, math.log(4)), like(b, large, 0)))
    return b.select(close, near, far)


def _shrunk(b: Any, x: Pair) -> tuple[Pair, Any]:
    """A quarter of x if |x| might overflow, else x; and which of the two it is."""
    most = b.op("max", b.op("abs", x.re), b.op("abs", x.im))
    shift = b.compare("gt", most, like(b, most, 2.0 ** (1021 if most.dtype is F64 else 125)))
    factor = b.select(shift, like(b, most, 0.25), like(b, most, 1))
    return scale(b, x, factor), shift


def log_base(base: float) -> Any:
    """log to another base: the natural one, scaled."""
    return lambda b, x: scale(b, log(b, x), like(b, x.re, 1 / math.log(base)))


def exp_base(base: float) -> Any:
    return lambda b, x: exp(b, scale(b, x, like(b, x.re, math.log(base))))


def sqrt(b: Any, x: Pair) -> Pair:
    """t = sqrt((|re| + |x|) / 2): the result is (t, im / 2t) or, for re < 0, (|im| / 2t, +-t)."""
    half, (shrunk, shift) = like(b, x.re, 0.5), _shrunk(b, x)
    root = b.op("sqrt", b.fma(half, b.op("abs", shrunk.re), b.mul(half, absolute(b, shrunk))))
    root = b.select(shift, b.add(root, root), root)
    other = b.div(b.mul(half, b.op("abs", x.im)), root)
    other = b.select(is_zero(b, root), like(b, root, 0), other)
    left = b.compare("lt", x.re, like(b, x.re, 0))
    re, im = b.select(left, other, root), b.select(left, root, other)
    infinite = like(b, x.re, math.inf)
    wide = b.compare("eq", b.op("abs", x.im), infinite)
    return Pair(b.select(wide, infinite, re), copy_sign(b, b.select(wide, infinite, im), x.im))


def sin(b: Any, x: Pair) -> Pair:
    return _turned(sinh, b, x)


def cos(b: Any, x: Pair) -> Pair:
    return cosh(b, Pair(b.neg(x.im), x.re))


def sinh(b: Any, x: Pair) -> Pair:
    """sinh(re) cos(im) + i cosh(re) sin(im), with the special values of C."""
    steep, even, factor = _hyperbolic_pair(b, x.re)
    re = b.mul(b.mul(steep, b.call("cos", x.im)), factor)
    fixed = either(b, is_zero(b, x.re), is_infinite(b, x.re))
    re = b.select(both(b, is_nan(b, re), fixed), b.op("abs", steep), re)
    im = b.mul(b.mul(even, b.call("sin", x.im)), factor)
    return Pair(re, b.select(is_zero(b, x.im), x.im, im))


def cosh(b: Any, x: Pair) -> Pair:
    """cosh(re) cos(im) + i sinh(re) sin(im), with the special values of C."""
    steep, even, factor = _hyperbolic_pair(b, x.re)
    re = b.mul(b.mul(even, b.call("cos", x.im)), factor)
    re = b.select(both(b, is_nan(b, re), is_infinite(b, x.re)), even, re)
    im = b.mul(b.mul(steep, b.call("sin", x.im)), factor)
    flat = both(b, is_nan(b, im), either(b, is_zero(b, x.re), is_zero(b, x.im)))
    zero = b.mul(copy_sign(b, like(b, im, 0), x.re), copy_sign(b, like(b, im, 1), x.im))
    return Pair(re, b.select(flat, zero, im))


def _hyperbolic_pair(b: Any, x: Any) -> tuple[Any, Any, Any]:
    """sinh(x), cosh(x) and a factor of both, which keeps them from overflowing early."""
    size = b.op("abs", x)
    part, factor = _scaled_exp(b, size)
    far = b.compare("gt", size, like(b, x, 512 if x.dtype is F64 else 64))
    half = b.mul(part, like(b, x, 0.5))
    near = b.select(far, like(b, x, 1), x)
    steep = b.select(far, copy_sign(b, half, x), b.call("sinh", near))
    return steep, b.select(far, half, b.call("cosh", near)), factor


def tanh(b: Any, x: Pair) -> Pair:
    """(sinh(re) cosh(re) + i sin(im) cos(im)) / (sinh(re)^2 + cos(im)^2).

    For |re| > 20 the squares would overflow early: the result is +-1 + 4i sin cos exp(-2|re|), and
    at infinity +-1 + 0i without a direction, too.
    """
    sine, cosine = b.call("sin", x.im), b.call("cos", x.im)
    size = b.op("abs", x.re)
    bounded = b.op("min", size, like(b, size, 20))
    s, c = copy_sign(b, b.call("sinh", bounded), x.re), b.call("cosh", bounded)
    under = b.fma(s, s, b.mul(cosine, cosine))
    product = b.mul(sine, cosine)
    endless = is_infinite(b, size)
    decay = b.call("exp", b.mul(like(b, size, -2), size))
    tail = b.mul(b.mul(like(b, size, 4), product), decay)
    tail = b.select(both(b, endless, is_nan(b, product)), decay, tail)
    directed = either(b, endless, b.op("not", is_nan(b, product)))
    far = both(b, b.compare("gt", size, like(b, size, 20)), directed)
    re = b.select(far, copy_sign(b, like(b, size, 1), x.re), b.div(b.mul(s, c), under))
    re = b.select(is_zero(b, x.re), x.re, re)
    im = b.select(far, tail, b.div(product, under))
    return Pair(re, b.select(is_zero(b, x.im), x.im, im))


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
    """exp(re) cos(im) - 1 = expm1(re) cos(im) - 2 sin(im/2)^2; beyond |re| = 64 exp(x) - 1."""
    half = b.call("sin", b.mul(like(b, x.im, 0.5), x.im))
    drop = b.mul(like(b, x.im, -2), b.mul(half, half))
    re = b.fma(b.call("expm1", x.re), b.call("cos", x.im), drop)
    whole = exp(b, x)
    far = b.compare("gt", b.op("abs", x.re), like(b, x.re, 64))
    return Pair(b.select(far, b.sub(whole.re, like(b, x.re, 1)), re), whole.im)


def log1p(b: Any, x: Pair) -> Pair:
    """log |1 + x| = log1p(2 re + re^2 + im^2) / 2 where that is small, log of 1 + x elsewhere."""
    one = like(b, x.re, 1)
    shifted = Pair(b.add(one, x.re), x.im)
    excess = b.fma(x.im, x.im, b.mul(x.re, b.add(x.re, like(b, x.re, 2))))
    near = b.mul(like(b, x.re, 0.5), b.call("log1p", excess))
    small = b.compare("lt", b.op("abs", excess), like(b, x.re, 0.5))
    return Pair(b.select(small, near, log_absolute(b, shifted)), angle(b, shifted))


_LARGE = 2.0**30  # from here on 1 is lost beside the square of a number, in f32 and in f64


def asin(b: Any, x: Pair) -> Pair:
    re, im, _ = _arc(b, x)
    return Pair(re, im)


def acos(b: Any, x: Pair) -> Pair:
    _, im, re = _arc(b, x)
    return Pair(re, b.neg(im))


def acosh(b: Any, x: Pair) -> Pair:
    """i acos(x) or -i acos(x), whichever lies on the right."""
    _, im, re = _arc(b, x)
    return Pair(b.op("abs", im), copy_sign(b, re, x.im))


def asinh(b: Any, x: Pair) -> Pair:
    return _turned(asin, b, x)


def atan(b: Any, x: Pair) -> Pair:
    return _turned(atanh, b, x)


def _arc(b: Any, x: Pair) -> tuple[Any, Any, Any]:
    """Real and imaginary part of asin(x), real part of acos(x): Kahan (1987), where no sum cancels.

    For large |x| (also infinite) the logarithm of 2 |x| and the angle are what is left.
    """
    one, zero = like(b, x.re, 1), like(b, x.re, 0)
    less = sqrt(b, Pair(b.sub(one, x.re), b.neg(x.im)))
    more = sqrt(b, Pair(b.add(one, x.re), x.im))
    across = b.fma(less.re, more.re, b.neg(b.mul(less.im, more.im)))
    height = b.call("asinh", b.fma(less.re, more.im, b.neg(b.mul(less.im, more.re))))
    opening = b.mul(like(b, x.re, 2), b.call("atan2", less.re, more.re))
    large, size = _log_twice(b, x)
    wide, up = b.select(large, b.op("abs", x.im), across), b.op("abs", x.im)
    re = b.select(is_zero(b, x.re), x.re, b.call("atan2", x.re, wide))
    opening = b.select(large, b.call("atan2", up, x.re), opening)
    opening = b.select(b.compare("eq", x.re, zero), like(b, x.re, math.pi / 2), opening)
    return re, b.select(large, copy_sign(b, size, x.im), height), opening


def _log_twice(b: Any, x: Pair) -> tuple[Any, Any]:
    """Whether |x| is large, and log(2 |x|), from a quarter of x, whose size does not overflow."""
    quarter = absolute(b, scale(b, x, like(b, x.re, 0.25)))
    large = b.compare("gt", quarter, like(b, x.re, _LARGE))
    return large, b.add(b.call("log", quarter), like(b, x.re, math.log(8)))


def atanh(b: Any, x: Pair) -> Pair:
    """log1p(4 |re| / ((1 - |re|)^2 + im^2)) / 4 + i atan2(2 im, (1 - |re|)(1 + |re|) - im^2) / 2.

    For large |x| it is 1 / x +- i pi / 2.  Beside 1 the squares would vanish: log(2 / |x - 1|) / 2.
    """
    one, re = like(b, x.re, 1), b.op("abs", x.re)
    rest = b.sub(one, re)
    under = b.fma(rest, rest, b.mul(x.im, x.im))
    size = b.mul(like(b, re, 0.25), b.call("log1p", b.div(b.mul(like(b, re, 4), re), under)))
    up = b.op("abs", x.im)
    beside = both(b, is_zero(b, rest), b.compare("lt", up, like(b, re, 2.0**-60)))
    near = b.mul(like(b, re, 0.5), b.sub(like(b, re, math.log(2)), b.call("log", up)))
    size = b.select(beside, near, size)
    turned = b.fma(rest, b.add(one, re), b.neg(b.mul(x.im, x.im)))
    angle_ = b.mul(like(b, re, 0.5), b.call("atan2", b.add(x.im, x.im), turned))
    large, inverse = _inverse_when_large(b, Pair(re, up))
    far = copy_sign(b, b.sub(like(b, re, math.pi / 2), inverse.im), x.im)
    far = b.select(is_nan(b, x.im), x.im, far)
    made = copy_sign(b, b.select(large, inverse.re, size), x.re)
    return Pair(b.select(is_zero(b, re), x.re, made), b.select(large, far, angle_))


def _inverse_when_large(b: Any, x: Pair) -> tuple[Any, Pair]:
    """Whether |x| is large, and then conj(1 / x), from a quarter of x; 0 of an infinite x."""
    quarter = scale(b, x, like(b, x.re, 0.25))
    size = absolute(b, quarter)

    def part(value: Any) -> Any:
        scaled = b.mul(b.div(b.div(value, size), size), like(b, size, 0.25))
        return b.select(is_infinite(b, size), like(b, size, 0), scaled)

    return b.compare("gt", size, like(b, size, _LARGE)), Pair(part(quarter.re), part(quarter.im))


def any_nan(b: Any, x: Pair) -> Any:
    return either(b, is_nan(b, x.re), is_nan(b, x.im))


def any_infinite(b: Any, x: Pair) -> Any:
    return either(b, is_infinite(b, x.re), is_infinite(b, x.im))


def is_infinite(b: Any, x: Any) -> Any:
    """Infinite, of a real."""
    return b.compare("eq", b.op("abs", x), like(b, x, math.inf))


def finite(b: Any, x: Any) -> Any:
    """Neither NaN nor infinite, of a real: the comparison is false for NaN."""
    return b.compare("lt", b.op("abs", x), like(b, x, math.inf))


def equal(b: Any, x: Pair, y: Pair) -> Any:
    return both(b, b.compare("eq", x.re, y.re), b.compare("eq", x.im, y.im))


def not_equal(b: Any, x: Pair, y: Pair) -> Any:
    return either(b, b.compare("ne", x.re, y.re), b.compare("ne", x.im, y.im))


def all_finite(b: Any, x: Pair) -> Any:
    return both(b, finite(b, x.re), finite(b, x.im))
