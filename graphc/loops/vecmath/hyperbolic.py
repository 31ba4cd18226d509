"""sinh, cosh, tanh, the inverse hyperbolic functions and the softplus family."""

from __future__ import annotations

import math

from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, sqrt, where
from graphc.loops.vecmath.exponential import (
    EXP2_32,
    EXP2_64,
    exp_falling,
    exp_parts,
    scale_once,
    scale_twice,
)
from graphc.loops.vecmath.logarithm import log1p
from graphc.loops.vecmath.vocabulary import Real, function, split

# (sinh(x) - x) / x**3 in x**2 for |x| <= 1; errors of sinh 2**-25.32 and 2**-61.77
_SINH_32 = (0.1666671633720398, 0.008330270648002625, 0.00020373340521473438)
_SINH_64 = (
    0.16666666666666669,
    0.008333333333332912,
    0.00019841269841593394,
    2.7557319106767997e-06,
    2.505213099587118e-08,
    1.6056659474806632e-10,
    7.776588182477287e-13,
)
# x**3 / (x - tanh(x)) in x**2 for |x| <= 0.9 and 0.7; errors of tanh 2**-29.9 and 2**-55.9
_TANH_32 = (3.0, 1.1999965906143188, -0.005700361914932728, 0.0002320432395208627)
_TANH_64 = (
    3.000000000000022,
    1.1999999999988198,
    -0.0057142856931188014,
    0.00025396807425412805,
    -1.220285342439368e-05,
    5.96726053858928e-07,
    -2.689926926328565e-08,
)
# (2 atanh(s) - 2 s) / s**3 in s**2 for s <= 1/3; errors 2**-27.73 and 2**-59.41
_LOG1P_32 = (0.666664183139801, 0.40021437406539917, 0.28003019094467163, 0.2800684869289398)
_LOG1P_64 = (
    0.6666666666666631,
    0.4000000000015594,
    0.2857142854800554,
    0.22222223961071336,
    0.18181744204257236,
    0.1538655449802513,
    0.13301038219592992,
    0.12105624714124828,
    0.08341911113720647,
    0.17015586795396684,
)


def _half_exp(r: Real, size: Expr) -> Expr:
    """exp(size) / 2 for size >= 0, without overflowing before the result does."""
    bounded = r.at_most(size, 91.0 if r.single else 712.0)
    p, bits = exp_parts(r, bounded, 2 * r.format.bias - 1)
    return scale_twice(r, p, bits)


@function
def sinh(x: Expr) -> Expr:
    """x + x**3 P(x**2) up to 1, then h - 1/(4h) with h = exp(|x|) / 2."""
    r = Real(x)
    size = abs(x)
    square = x * x
    tail = square * r.polynomial(square, _SINH_32 if r.single else _SINH_64)
    half = _half_exp(r, size)
    far = half - 0.25 / half
    return r.with_sign(where(size < 1.0, fma(tail, size, size), far), x)


@function
def cosh(x: Expr) -> Expr:
    r = Real(x)
    half = _half_exp(r, abs(x))
    return half + 0.25 / half


@function
def tanh(x: Expr) -> Expr:
    """x (1 - x**2 / P(x**2)) near zero, 1 - 2 / (exp(2|x|) + 1) elsewhere, by one division."""
    r = Real(x)
    size, square = abs(x), x * x
    is_far = size >= r.pick(0.9, 0.7)  # NaN is not
    e = _exp_twice(r, r.at_most(size, 10.0 if r.single else 22.0))
    below = where(is_far, e + 1.0, r.polynomial(square, _TANH_32 if r.single else _TANH_64))
    lacking = where(is_far, 2.0, square) / below
    most = where(is_far, 1.0, size)
    return r.with_sign(fma(-most, lacking, most), x)


def _exp_twice(r: Real, size: Expr) -> Expr:
    """exp(2 size) as a power of two, for tanh: 1 + exp(2 size) loses what is rounded here."""
    high, low = split("2.885390081777926814719849362003784069277", r.dtype)  # 2 / ln2
    bits, n = r.round_scaled(size, high)
    fraction = fma(size, high, -n)
    fraction = fraction if r.single else fma(size, low, fraction)
    tail = r.polynomial(fraction, EXP2_32 if r.single else EXP2_64)
    return scale_once(r, fma(fraction, fma(fraction, tail, math.log(2.0)), 1.0), bits)


def _log1p_or_log_twice(r: Real, size: Expr, argument: Expr) -> Expr:
    """log(1 + argument), or log(2 size) where `size` is so large that the argument may overflow."""
    large = size > r.pick(2.0**26, 2.0**56)
    value = log1p.body(where(large, size, argument))
    return where(large, value + math.log(2.0), value)


@function
def asinh(x: Expr) -> Expr:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))), a = |x|."""
    r = Real(x)
    size = abs(x)
    square = x * x
    root = sqrt(fma(x, x, 1.0))
    argument = size + square / (root + 1.0)
    return r.with_sign(_log1p_or_log_twice(r, size, argument), x)


@function
def acosh(x: Expr) -> Expr:
    """log1p(t + sqrt(t (t + 2))), t = x - 1."""
    r = Real(x)
    t = x - 1.0
    argument = t + sqrt(t * (t + 2.0))
    value = _log1p_or_log_twice(r, x, argument)
    return where(x < 1.0, math.nan, value)


@function
def atanh(x: Expr) -> Expr:
    """log1p(2 a / (1 - a)) / 2, a = |x|."""
    r = Real(x)
    size = abs(x)
    argument = (size + size) / (1.0 - size)
    return r.with_sign(log1p.body(argument) * 0.5, x)


def _log1p_exp(r: Real, x: Expr) -> Expr:
    """log(1 + exp(x)) for x <= 0, from 2 atanh(s) with s = e / (2 + e) <= 1/3."""
    e = exp_falling(r, x)
    s = e / (e + 2.0)
    z = s * s
    tail = r.polynomial(z, _LOG1P_32 if r.single else _LOG1P_64)
    return fma(s * z, tail, s + s)


@function
def logaddexp(x: Expr, y: Expr) -> Expr:
    """max + log1p(exp(-|x - y|)); equal arguments apart, for infinities."""
    r = Real(x)
    difference = x - y
    larger = where(difference > 0.0, x, y)
    value = larger + _log1p_exp(r, -abs(difference))
    return where(x == y, x + math.log(2.0), value)


@function
def softplus(x: Expr) -> Expr:
    """log(1 + exp(x))."""
    r = Real(x)
    return r.at_least(x, 0.0) + _log1p_exp(r, -abs(x))


@function
def log_sigmoid(x: Expr) -> Expr:
    """-log(1 + exp(-x))."""
    return -softplus.body(-x)
