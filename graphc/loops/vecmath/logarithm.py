"""log, log2, log10, log1p.

Reduction: x = 2**e m with m in [sqrt(1/2), sqrt(2)), f = m - 1 exactly, log(m) = f + w with w about
-f**2 / 2.  f32 takes w from one polynomial in f; f64 from the series in s = f / (2 + f), where
log(1 + f) = 2 atanh(s) and 2 s = f - s f.
"""

from __future__ import annotations

import math

from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, where
from graphc.loops.vecmath.vocabulary import Real, function, split

_LN2 = "0.6931471805599453094172321214581765680755"
_LOG10_2 = "0.3010299956639811952137388947244930267682"
_LOG2_E = "1.442695040888963407359924681001892137427"
_LOG10_E = "0.4342944819032518276511289189166050822944"

# (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2); error of log 2**-27.3
_LOG_32 = (
    0.3333333134651184,
    -0.250008225440979,
    0.20001260936260223,
    -0.16623330116271973,
    0.14200939238071442,
    -0.13159574568271637,
    0.12767146527767181,
    -0.07643219083547592,
)
# (2 atanh(s) - 2 s) / s**3 in s**2; error of log 2**-59.5
_LOG_64 = (
    0.6666666666666734,
    0.3999999999941642,
    0.2857142874211102,
    0.2222219859387807,
    0.18183563548886078,
    0.15314064378305525,
    0.1479586162249645,
)


def log_tail(r: Real, f: Expr) -> Expr:
    """w with log(1 + f) = f + w, for sqrt(1/2) <= 1 + f <= sqrt(2)."""
    square = f * f
    if r.single:
        return square * fma(f, r.polynomial(f, _LOG_32), -0.5)
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    return fma(s, fma(z, r.polynomial(z, _LOG_64), half), -half)


def exponent_of(r: Real, x: Expr) -> Expr:
    """The integer e with x / 2**e in [sqrt(1/2), sqrt(2)), for a positive normal x."""
    base = r.c(math.sqrt(0.5)).bitcast(r.format.bits)
    return (r.bits(x) - base) >> r.format.mantissa


def reduce(r: Real, x: Expr) -> tuple[Expr, Expr]:
    """(e as a float, f) with x = 2**e (1 + f), for a positive finite x, denormals included."""
    small = x < r.format.tiny
    steps = r.format.mantissa + 2
    x = where(small, x * 2.0**steps, x)
    e = exponent_of(r, x)
    m = r.from_bits(r.bits(x) - (e << r.format.mantissa))
    offset = where(small, r.c(-float(steps)), 0.0)
    return e.cast(r.dtype) + offset, m - 1.0


def reduce_normal(r: Real, x: Expr) -> tuple[Expr, Expr]:
    """The same for a normal x."""
    e = exponent_of(r, x)
    return e.cast(r.dtype), r.from_bits(r.bits(x) - (e << r.format.mantissa)) - 1.0


def _edges(r: Real, x: Expr, result: Expr, zero: float) -> Expr:
    """A logarithm's ends: `zero` gives -inf, less gives NaN, +inf and NaN give themselves."""
    result = where(x < math.inf, result, x)
    pole = where(x == zero, r.c(-math.inf), math.nan)
    return where(x <= zero, pole, result)


@function
def log(x: Expr) -> Expr:
    r = Real(x)
    e, f = reduce(r, x)
    return _edges(r, x, natural_log(r, e, f), 0.0)


def natural_log(r: Real, e: Expr, f: Expr) -> Expr:
    """log(2**e (1 + f))."""
    high, low = split(_LN2, r.dtype)
    rest = fma(e, r.c(low), log_tail(r, f))
    return fma(e, r.c(high), f + rest)


@function
def log2(x: Expr) -> Expr:
    r = Real(x)
    e, f = reduce(r, x)
    return _edges(r, x, e + _scaled(r, f, _LOG2_E, r.c(0.0)), 0.0)


@function
def log10(x: Expr) -> Expr:
    r = Real(x)
    e, f = reduce(r, x)
    high, low = split(_LOG10_2, r.dtype)
    part = _scaled(r, f, _LOG10_E, e * low)
    return _edges(r, x, fma(e, high, part), 0.0)


def _scaled(r: Real, f: Expr, factor: str, rest: Expr) -> Expr:
    """log(1 + f) * factor + rest, with the factor in two parts: f carries most of the value."""
    high, low = split(factor, r.dtype)
    rest = fma(f, r.c(low), fma(log_tail(r, f), high, rest))
    return fma(f, high, rest)


@function
def log1p(x: Expr) -> Expr:
    """1 + x = 2**e (1 + f), f = x 2**-e + (2**-e - 1) from x itself: no digits of x are lost."""
    r = Real(x)
    total = x + 1.0
    e = exponent_of(r, total)
    bits = e << r.format.mantissa
    scale = r.from_bits(r.bits(r.c(1.0)) - bits)
    m = r.from_bits(r.bits(total) - bits)
    exact = fma(scale, x, scale - 1.0)
    f = where(x > r.pick(2.0**40, 2.0**80), m - 1.0, exact)
    result = _edges(r, x, natural_log(r, e.cast(r.dtype), f), -1.0)
    return r.with_sign(result, x)
