"""Complex arithmetic on pairs of real expressions.

Formulas are the textbook ones with the guards that keep them from overflowing early: division after
Smith (1962), absolute value by scaling, square root from the half-angle formula.
"""

from __future__ import annotations

import math
from typing import Any

from graphc.ir.types import F64
from graphc.loops import scalars, vecmath
from graphc.loops.scalars import Pair, copy_sign, fma, is_nan, maximum, minimum, where


def scale(x: Pair, factor: Any) -> Pair:
    return Pair(x.re * factor, x.im * factor)


def div(x: Pair, y: Pair) -> Pair:
    """Smith's algorithm: divide by the larger part of y first."""
    real_larger = abs(y.re) >= abs(y.im)
    large, small = where(real_larger, y.re, y.im), where(real_larger, y.im, y.re)
    ratio = small / large
    whole = large.like(1) / fma(small, ratio, large)
    re = where(real_larger, fma(x.im, ratio, x.re), fma(x.re, ratio, x.im))
    im = where(real_larger, fma(-x.re, ratio, x.im), x.im * ratio - x.re)
    quotient = Pair(re * whole, im * whole)
    by_zero = Pair(x.re / large, x.im / large)
    made: Pair = where(large == 0, by_zero, quotient)
    return made


def absolute(x: Pair) -> Any:
    return vecmath.hypot(x.re, x.im)


def angle(x: Pair) -> Any:
    return vecmath.atan2(x.im, x.re)


def conj(x: Pair) -> Pair:
    return Pair(x.re, -x.im)


def reciprocal(x: Pair) -> Pair:
    return div(Pair(x.re.like(1), x.re.like(0)), x)


def sign(x: Pair) -> Pair:
    """x / |x|, and 0 for 0."""
    size = absolute(x)
    zero = size.like(0)
    unit = Pair(x.re / size, x.im / size)
    made: Pair = where(size == 0, Pair(zero, zero), unit)
    return made


def exp(x: Pair) -> Pair:
    """exp(re) (cos(im) + i sin(im)), with the special values of C: a zero imaginary part stays zero
    beside infinity and NaN, and exp(-inf) is 0 in every direction."""
    size, factor = _scaled_exp(x.re)
    cosine = size * vecmath.cos(x.im) * factor
    sine = size * vecmath.sin(x.im) * factor
    undirected = is_infinite(x.re) & ~finite(x.im)
    re = where(undirected, size, cosine)
    flat = (x.im == 0) | (undirected & (x.re < 0))
    return Pair(re, where(flat, copy_sign(x.im.like(0), x.im), sine))


def _scaled_exp(x: Any) -> tuple[Any, Any]:
    """exp(x) as a product of two, the first of which does not overflow before a cosine makes the
    whole small enough again."""
    shift = 512 if x.dtype is F64 else 64
    far = x > shift
    size = vecmath.exp(where(far, x - shift, x))
    return size, where(far, x.like(math.exp(shift)), 1)


def log(x: Pair) -> Pair:
    return Pair(log_absolute(x), angle(x))


def log_absolute(x: Pair) -> Any:
    """log |x|, by log1p near the unit circle, where the rounded |x| has lost the digits."""
    re, im = abs(x.re), abs(x.im)
    large, small = maximum(re, im), minimum(re, im)
    one = large.like(1)
    excess = fma(small, small, (large - one) * (large + one))
    near = large.like(0.5) * vecmath.log1p(excess)
    close = (large > 0.5) & (large < 2)
    shrunk, shift = _shrunk(x)
    far = vecmath.log(absolute(shrunk))
    far = far + where(shift, large.like(math.log(4)), 0)
    return where(close, near, far)


def _shrunk(x: Pair) -> tuple[Pair, Any]:
    """A quarter of x if |x| might overflow, else x; and which of the two it is."""
    most = maximum(abs(x.re), abs(x.im))
    shift = most > 2.0 ** (1021 if most.dtype is F64 else 125)
    factor = where(shift, most.like(0.25), 1)
    return scale(x, factor), shift


def log_base(base: float) -> Any:
    """log to another base: the natural one, scaled."""
    return lambda x: scale(log(x), x.re.like(1 / math.log(base)))


def exp_base(base: float) -> Any:
    return lambda x: exp(scale(x, x.re.like(math.log(base))))


def sqrt(x: Pair) -> Pair:
    """t = sqrt((|re| + |x|) / 2): the result is (t, im / 2t) or, for re < 0, (|im| / 2t, +-t)."""
    half, (shrunk, shift) = x.re.like(0.5), _shrunk(x)
    root = scalars.sqrt(fma(half, abs(shrunk.re), half * absolute(shrunk)))
    root = where(shift, root + root, root)
    other = half * abs(x.im) / root
    other = where(root == 0, 0, other)
    left = x.re < 0
    re, im = where(left, other, root), where(left, root, other)
    infinite = x.re.like(math.inf)
    wide = abs(x.im) == infinite
    return Pair(where(wide, infinite, re), copy_sign(where(wide, infinite, im), x.im))


def sin(x: Pair) -> Pair:
    return _turned(sinh, x)


def cos(x: Pair) -> Pair:
    return cosh(Pair(-x.im, x.re))


def sinh(x: Pair) -> Pair:
    """sinh(re) cos(im) + i cosh(re) sin(im), with the special values of C."""
    steep, even, factor = _hyperbolic_pair(x.re)
    re = steep * vecmath.cos(x.im) * factor
    fixed = (x.re == 0) | is_infinite(x.re)
    re = where(is_nan(re) & fixed, abs(steep), re)
    im = even * vecmath.sin(x.im) * factor
    return Pair(re, where(x.im == 0, x.im, im))


def cosh(x: Pair) -> Pair:
    """cosh(re) cos(im) + i sinh(re) sin(im), with the special values of C."""
    steep, even, factor = _hyperbolic_pair(x.re)
    re = even * vecmath.cos(x.im) * factor
    re = where(is_nan(re) & is_infinite(x.re), even, re)
    im = steep * vecmath.sin(x.im) * factor
    flat = is_nan(im) & ((x.re == 0) | (x.im == 0))
    zero = copy_sign(im.like(0), x.re) * copy_sign(im.like(1), x.im)
    return Pair(re, where(flat, zero, im))


def _hyperbolic_pair(x: Any) -> tuple[Any, Any, Any]:
    """sinh(x), cosh(x) and a factor of both, which keeps them from overflowing early."""
    size = abs(x)
    part, factor = _scaled_exp(size)
    far = size > (512 if x.dtype is F64 else 64)
    half = part * 0.5
    near = where(far, 1, x)
    steep = where(far, copy_sign(half, x), vecmath.sinh(near))
    return steep, where(far, half, vecmath.cosh(near)), factor


def tanh(x: Pair) -> Pair:
    """(sinh(re) cosh(re) + i sin(im) cos(im)) / (sinh(re)^2 + cos(im)^2).

    For |re| > 20 the squares would overflow early: the result is +-1 + 4i sin cos exp(-2|re|), and
    at infinity +-1 + 0i without a direction, too.
    """
    sine, cosine = vecmath.sin(x.im), vecmath.cos(x.im)
    size = abs(x.re)
    bounded = minimum(size, 20)
    s, c = copy_sign(vecmath.sinh(bounded), x.re), vecmath.cosh(bounded)
    under = fma(s, s, cosine * cosine)
    product = sine * cosine
    endless = is_infinite(size)
    decay = vecmath.exp(-2 * size)
    tail = 4 * product * decay
    tail = where(endless & is_nan(product), decay, tail)
    directed = endless | ~is_nan(product)
    far = (size > 20) & directed
    re = where(far, copy_sign(size.like(1), x.re), s * c / under)
    re = where(x.re == 0, x.re, re)
    im = where(far, tail, product / under)
    return Pair(re, where(x.im == 0, x.im, im))


def tan(x: Pair) -> Pair:
    return _turned(tanh, x)


def _turned(function: Any, x: Pair) -> Pair:
    """f(i x) / i turns sinh into sin, tanh into tan and back; here as g(x) = -i f(i x) by parts."""
    made = function(Pair(-x.im, x.re))
    return Pair(made.im, -made.re)


def power(x: Pair, y: Pair) -> Pair:
    """exp(y log x); 0**y is 0 for a positive real part of y, and x**0 is 1."""
    made: Pair = exp(y * log(x))
    zero, one = x.re.like(0), x.re.like(1)
    base_zero = (x.re == 0) & (x.im == 0)
    positive = y.re > zero
    made = where(base_zero & positive, Pair(zero, zero), made)
    exponent_zero = (y.re == 0) & (y.im == 0)
    made = where(exponent_zero, Pair(one, zero), made)
    return made


def expm1(x: Pair) -> Pair:
    """exp(re) cos(im) - 1 = expm1(re) cos(im) - 2 sin(im/2)^2; beyond |re| = 64 exp(x) - 1."""
    half = vecmath.sin(0.5 * x.im)
    drop = x.im.like(-2) * (half * half)
    re = fma(vecmath.expm1(x.re), vecmath.cos(x.im), drop)
    whole = exp(x)
    far = abs(x.re) > 64
    return Pair(where(far, whole.re - 1, re), whole.im)


def log1p(x: Pair) -> Pair:
    """log |1 + x| = log1p(2 re + re^2 + im^2) / 2 where that is small, log of 1 + x elsewhere."""
    one = x.re.like(1)
    shifted = Pair(one + x.re, x.im)
    excess = fma(x.im, x.im, x.re * (x.re + 2))
    near = x.re.like(0.5) * vecmath.log1p(excess)
    small = abs(excess) < 0.5
    return Pair(where(small, near, log_absolute(shifted)), angle(shifted))


_LARGE = 2.0**30  # from here on 1 is lost beside the square of a number, in f32 and in f64


def asin(x: Pair) -> Pair:
    re, im, _ = _arc(x)
    return Pair(re, im)


def acos(x: Pair) -> Pair:
    _, im, re = _arc(x)
    return Pair(re, -im)


def acosh(x: Pair) -> Pair:
    """i acos(x) or -i acos(x), whichever lies on the right."""
    _, im, re = _arc(x)
    return Pair(abs(im), copy_sign(re, x.im))


def asinh(x: Pair) -> Pair:
    return _turned(asin, x)


def atan(x: Pair) -> Pair:
    return _turned(atanh, x)


def _arc(x: Pair) -> tuple[Any, Any, Any]:
    """Real and imaginary part of asin(x), real part of acos(x): Kahan (1987), where no sum cancels.

    For large |x| (also infinite) the logarithm of 2 |x| and the angle are what is left.
    """
    one, zero = x.re.like(1), x.re.like(0)
    less = sqrt(Pair(one - x.re, -x.im))
    more = sqrt(Pair(one + x.re, x.im))
    across = fma(less.re, more.re, -(less.im * more.im))
    height = vecmath.asinh(fma(less.re, more.im, -(less.im * more.re)))
    opening = x.re.like(2) * vecmath.atan2(less.re, more.re)
    large, size = _log_twice(x)
    wide, up = where(large, abs(x.im), across), abs(x.im)
    re = where(x.re == 0, x.re, vecmath.atan2(x.re, wide))
    opening = where(large, vecmath.atan2(up, x.re), opening)
    opening = where(x.re == zero, math.pi / 2, opening)
    return re, where(large, copy_sign(size, x.im), height), opening


def _log_twice(x: Pair) -> tuple[Any, Any]:
    """Whether |x| is large, and log(2 |x|), from a quarter of x, whose size does not overflow."""
    quarter = absolute(scale(x, x.re.like(0.25)))
    large = quarter > _LARGE
    return large, vecmath.log(quarter) + math.log(8)


def atanh(x: Pair) -> Pair:
    """log1p(4 |re| / ((1 - |re|)^2 + im^2)) / 4 + i atan2(2 im, (1 - |re|)(1 + |re|) - im^2) / 2.

    For large |x| it is 1 / x +- i pi / 2.  Beside 1 the squares would vanish: log(2 / |x - 1|) / 2.
    """
    one, re = x.re.like(1), abs(x.re)
    rest = one - re
    under = fma(rest, rest, x.im * x.im)
    size = re.like(0.25) * vecmath.log1p(4 * re / under)
    up = abs(x.im)
    beside = (rest == 0) & (up < 2.0**-60)
    near = re.like(0.5) * (re.like(math.log(2)) - vecmath.log(up))
    size = where(beside, near, size)
    turned = fma(rest, one + re, -(x.im * x.im))
    angle_ = re.like(0.5) * vecmath.atan2(x.im + x.im, turned)
    large, inverse = _inverse_when_large(Pair(re, up))
    far = copy_sign(math.pi / 2 - inverse.im, x.im)
    far = where(is_nan(x.im), x.im, far)
    made = copy_sign(where(large, inverse.re, size), x.re)
    return Pair(where(re == 0, x.re, made), where(large, far, angle_))


def _inverse_when_large(x: Pair) -> tuple[Any, Pair]:
    """Whether |x| is large, and then conj(1 / x), from a quarter of x; 0 of an infinite x."""
    quarter = scale(x, x.re.like(0.25))
    size = absolute(quarter)

    def part(value: Any) -> Any:
        scaled = value / size / size * 0.25
        return where(is_infinite(size), 0, scaled)

    return size > _LARGE, Pair(part(quarter.re), part(quarter.im))


def any_nan(x: Pair) -> Any:
    return is_nan(x.re) | is_nan(x.im)


def any_infinite(x: Pair) -> Any:
    return is_infinite(x.re) | is_infinite(x.im)


def is_infinite(x: Any) -> Any:
    """Infinite, of a real."""
    return abs(x) == math.inf


def finite(x: Any) -> Any:
    """Neither NaN nor infinite, of a real: the comparison is false for NaN."""
    return abs(x) < math.inf


def equal(x: Pair, y: Pair) -> Any:
    return (x.re == y.re) & (x.im == y.im)


def not_equal(x: Pair, y: Pair) -> Any:
    return (x.re != y.re) | (x.im != y.im)


def all_finite(x: Pair) -> Any:
    return finite(x.re) & finite(x.im)
