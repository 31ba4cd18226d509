"""exp, exp2, expm1 and the logistic function.

Reduction: x = n ln2 + r with ln2 in two parts and |r| <= ln2 / 2, exp(x) = 2**n exp(r).

Polynomials are weighted minimax fits (Remez exchange in 60 digits, coefficients rounded one after
another with the rest refitted); the comments give the largest relative error of the polynomial
alone.
"""

from __future__ import annotations

import math

from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, shortcut, where
from graphc.loops.vecmath.vocabulary import Pair, Real, function, split

_LN2 = "0.6931471805599453094172321214581765680755"
_LOG2E = 1.0 / math.log(2.0)
FALLING = 64  # exponents that results below 1 are raised by while they are computed

# (exp(r) - 1 - r) / r**2 on |r| <= ln2 / 2; errors of exp(r) 2**-28.2 and 2**-57.2
_EXP_32 = (
    0.4999999403953552,
    0.16666516661643982,
    0.04166810214519501,
    0.00836919154971838,
    0.0013838877202942967,
)
_EXP_64 = (
    0.5000000000000011,
    0.16666666666666344,
    0.04166666666652453,
    0.00833333333344042,
    0.001388888894621354,
    0.00019841269780670673,
    2.4801489299474485e-05,
    2.7557229793878803e-06,
    2.763194685039902e-07,
    2.5142323231381365e-08,
)
# (exp(r) - 1 - r) / r**2 on |r| <= ln2 / 2; errors of expm1(r) 2**-31.0 and 2**-56.9
_EXPM1_32 = (
    0.5,
    0.1666666567325592,
    0.04166646674275398,
    0.008333642967045307,
    0.0013935047900304198,
    0.0001966450217878446,
)
_EXPM1_64 = (
    0.5000000000000001,
    0.1666666666666667,
    0.041666666666648214,
    0.008333333333318739,
    0.0013888888897439406,
    0.00019841269908320248,
    2.4801571432784492e-05,
    2.7557209513307804e-06,
    2.7570055074867294e-07,
    2.512470608493787e-08,
    1.7197884579060401e-09,
)
# (2**r - 1 - r ln2) / r**2 on |r| <= 1/2; errors of 2**r 2**-28.2 and 2**-56.2
EXP2_32 = (
    0.24022647738456726,
    0.055503614246845245,
    0.009618483483791351,
    0.0013390592066571116,
    0.0001533745089545846,
)
EXP2_64 = (
    0.24022650695910122,
    0.05550410866481906,
    0.009618129107596001,
    0.0013333558146723132,
    0.00015403530458003666,
    1.5252733876707263e-05,
    1.3215433399737422e-06,
    1.0177920385820519e-07,
    7.074304705982373e-09,
    4.491450370803231e-10,
)


def exp_parts(r: Real, x: Expr, bias: int, low: Expr | None = None) -> Pair:
    """(p, bits) with exp(x) = p 2**n, n + bias in the low bits of the integer; |x| < 2000.

    With `low`, small beside x, it is exp(x + low), and what rounding r lost is added back too:
    0.75 ulp instead of 1.
    """
    ln2, ln2_low = split(_LN2, r.dtype)
    bits, n = r.round_scaled(x, _LOG2E, bias)
    first = fma(n, -ln2, x)
    second = None if low is None else fma(n, -ln2_low, low)
    rest = fma(n, -ln2_low, first) if second is None else first + second
    tail = r.polynomial(rest, _EXP_32 if r.single else _EXP_64)
    square = rest * rest
    if second is None:
        return fma(square, tail, rest) + 1.0, bits
    lost = second - (rest - first)
    return fma(square, tail, lost) + rest + 1.0, bits


def scale_twice(r: Real, p: Expr, bits: Expr) -> Expr:
    """p 2**n where the low bits of the integer hold n + 2 bias, |n| < 2 bias.

    2**n is applied as two normal powers of two, the first multiplication is exact: overflow and
    denormals come out rounded once.  The left shift drops the bits above the exponent field.
    """
    half = bits >> 1
    first = r.from_bits(half << r.format.mantissa)
    second = r.from_bits((bits - half) << r.format.mantissa)
    return p * first * second


def exp_falling(r: Real, x: Expr) -> Expr:
    """exp for an argument that is not above zero; the bits are those of `exp`.

    2**(n + 64) is a normal number even where the result is denormal or zero, and its product is
    exact: only the step back rounds.
    """
    p, bits = exp_parts(r, r.at_least(x, exp_lower_bound(r)), r.format.bias + FALLING)
    s = r.from_bits(bits << r.format.mantissa)
    return p * s * 2.0**-FALLING


def exp_lower_bound(r: Real) -> float:
    """An argument below which exp rounds to zero."""
    return -104.5 if r.single else -746.0


def scale_once(r: Real, p: Expr, bits: Expr) -> Expr:
    """p 2**n where the low bits of the integer hold n and the result is normal, which no NaN is:
    an integer is added to the exponent, beside the multiplications that there are."""
    return r.from_bits(r.bits(p) + (bits << r.format.mantissa))


@function
def exp(x: Expr) -> Expr:
    """Where all results of a vector are normal their powers of two are applied at once."""
    r = Real(x)
    usual = scale_once(r, *exp_parts(r, x, 0))
    return shortcut(~(abs(x) < r.pick(87.0, 708.0)), _exp_to_the_ends(r, x), usual)


def _exp_to_the_ends(r: Real, x: Expr) -> Expr:
    """The same bits, and overflow and denormals."""
    bounded = r.at_least(r.at_most(x, 89.0 if r.single else 710.0), exp_lower_bound(r))
    p, bits = exp_parts(r, bounded, 2 * r.format.bias)
    return scale_twice(r, p, bits)


@function
def exp_below_zero(x: Expr) -> Expr:
    """exp(x) for x <= 0 and NaN."""
    return exp_falling(Real(x), x)


def exp2_parts(r: Real, x: Expr, rest: Expr | None = None, biases: int = 2) -> Pair:
    """(p, bits) with 2**(x + rest) = p 2**n and n + 2 bias in the low bits; rest is tiny."""
    bits, n = r.round_scaled(x, 1.0, biases * r.format.bias)
    fraction = x - n
    fraction = fraction if rest is None else fraction + rest
    tail = r.polynomial(fraction, EXP2_32 if r.single else EXP2_64)
    linear = fraction * fraction * tail
    return fma(fraction, math.log(2.0), linear) + 1.0, bits


def exp2_bounds(r: Real, x: Expr) -> Expr:
    """x clamped to where 2**x is neither certainly zero nor certainly infinite."""
    f = r.format
    return r.at_least(r.at_most(x, f.bias + 2.0), -f.bias - f.mantissa - 3.0)


@function
def exp2(x: Expr) -> Expr:
    r = Real(x)
    p, bits = exp2_parts(r, exp2_bounds(r, x))
    return scale_twice(r, p, bits)


@function
def expm1(x: Expr) -> Expr:
    """2 (s (1 + r + t) - 1/2), s = 2**(n-1), t the small rest; summed from the large end."""
    r = Real(x)
    f = r.format
    high, low = split(_LN2, r.dtype)
    clamped = r.at_least(r.at_most(x, 89.0 if r.single else 710.0), -18.0 if r.single else -38.0)
    bits, n = r.round_scaled(clamped, _LOG2E, f.bias - 1)
    first = fma(n, -high, clamped)
    rest = fma(n, -low, first)
    lost = fma(n, r.c(-low), first - rest)
    tail = r.polynomial(rest, _EXPM1_32 if r.single else _EXPM1_64)
    tail = fma(rest * rest, tail, lost)
    s = r.from_bits(bits << f.mantissa)
    large = fma(s, tail, fma(s, rest, s - 0.5))
    # n = 0 apart: halving would lose bits of a denormal; the sign keeps expm1(-0) = -0.
    result = where(n == 0.0, rest + tail, large + large)
    return r.with_sign(result, x)


def exp_lacking(r: Real, x: Expr) -> Expr:
    """1 - exp(x) for -80 < x <= 0 of f32, to its own last place: 1 - 2**n - 2**n (exp(r) - 1)."""
    bits, n = r.round_scaled(x, _LOG2E, r.format.bias)
    rest = fma(n, -math.log(2.0), x)
    s = r.from_bits(bits << r.format.mantissa)
    return fma(-s, fma(rest * rest, r.polynomial(rest, _EXP_32), rest), 1.0 - s)


@function
def sigmoid(x: Expr) -> Expr:
    """With e = exp(-|x|) and q = e / (1 + e): 1 - q, or e - e q for negative x.

    Nothing overflows, tiny results are exact, and the rounding of 1 + e is damped by e.
    """
    r = Real(x)
    e = exp_falling(r, -abs(x))
    quotient = e / (e + 1.0)
    factor = where(x < 0.0, e, 1.0)
    return fma(-factor, quotient, factor)
