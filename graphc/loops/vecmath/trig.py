"""sin, cos, tan with full accuracy over the whole range of both float types.

Reduction: |x| = (q + f) pi/2 with |f| <= 1/2 needs |x| * 2/pi modulo 4.  Bits of 2/pi whose
product with x is a multiple of 4 are left out beforehand, so only a window of 2/pi that depends on
the exponent of x takes part (Payne and Hanek 1983).

* f32 works in f64: a quarter of the exponent range selects three pieces of 2/pi.  A piece of 29
  bits times the 24 bits of x is exact, so the products can be reduced modulo 4 without error.
* f64 works in integers: 192 bits of 2/pi, moved to the exponent of x, times the 53-bit significand
  modulo 2**192; the top two bits are the quadrant, the next 124 the fraction.

Of vectors that hold no large argument three products with parts of pi/2 do the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from graphc.ir.types import F32, F64, I32, I64, U64
from graphc.loops.nest import Expr
from graphc.loops.scalars import floor, fma, rare, rint, where
from graphc.loops.vecmath.vocabulary import Pair, Real, function, split

_PI = "3.141592653589793238462643383279502884197"
_HALF_PI = "1.57079632679489661923132169163975144209858469968755291"

NEAR = 2.0**15  # where pi/2 in three parts is exact enough

# The bits of 2/pi of weights 2**(24-32j) .. 2**(-4-32j), the next 29, the next 53, for |x| <
# 2**(32(j+1)).
_WINDOWS_32 = tuple(
    tuple(float.fromhex(piece) for piece in row.split())
    for row in (
        "0x1.4p-1 0x1.7cc1b7p-7 0x1.391054a7f09d5p-34",
        "0x1.f306dc8p-9 0x1.c882a53p-37 0x1.f09d5f47d4d37p-66",
        "0x1.1054a7cp-42 0x1.84eafa3p-69 0x1.d4d377036d8a5p-98",
        "0x1.3abe8f8p-75 0x1.4d37702p-102 0x1.6d8a5664f10e4p-130",
    )
)
# The binary digits of 2/pi behind 55 zeros.
_WORDS_64 = (
    0x0000000000000145,
    0xF306DC9C882A53F8,
    0x4EAFA3EA69BB81B6,
    0xC52B3278872083FC,
    0xA2C757BD778AC36E,
    0x48DC74849BA5C00C,
    0x925DD413A32439FC,
    0x3BD63962534E7DD1,
    0x046BEA5D768909D3,
    0x38E04D68BEFC8273,
    0x23AC7306A673E939,
    0x08BF177BF250763F,
    0xF12FFFBC0B301FDE,
    0x5E2316B414DA3EDA,
    0x6CFD9E4F96136E9E,
    0x8C7ECD3CBFD45AEA,
    0x4F758FD7CBE2F67A,
    0x0E73EF14A525D4D7,
    0xF6BF623F1ABA10AC,
)
# (sin(r) - r) / r**3 in r**2 for |r| <= pi/4; errors of sin 2**-27.9 and 2**-57.9
_SIN_32 = (-0.16666655242443085, 0.008332189172506332, -0.00019518285989761353)
_SIN_64 = (
    -0.1666666666666663,
    0.00833333333332184,
    -0.00019841269829358975,
    2.755731353891303e-06,
    -2.505073450139093e-08,
    1.5895443364097132e-10,
)
# (cos(r) - 1 + r**2 / 2) / r**4 in r**2 for |r| <= pi/4; errors of cos 2**-33.0 and 2**-63.9
_COS_32 = (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05)
_COS_64 = (
    0.041666666666666595,
    -0.001388888888887334,
    2.4801587288999603e-05,
    -2.7557314216052274e-07,
    2.0875705230537117e-09,
    -1.1358739262128197e-11,
)


def _modulo_4(r: Real, x: Expr) -> Expr:
    """x - 4 rint(x / 4), exactly."""
    return fma(rint(x * 0.25), -4.0, x)


def _reduce_32(size: Expr) -> tuple[Expr, Expr]:
    """(q as i32, r as f32) with size = q pi/2 + r."""
    wide = Real(size, F64)
    x = size.cast(F64)
    pieces = [wide.c(piece) for piece in _WINDOWS_32[0]]
    for step, window in enumerate(_WINDOWS_32[1:], 1):
        beyond = size >= 2.0 ** (32 * step)
        pieces = [where(beyond, new, old) for new, old in zip(window, pieces, strict=True)]
    first = _modulo_4(wide, x * pieces[0])
    second = _modulo_4(wide, x * pieces[1])
    bits, n = wide.round_scaled(fma(x, pieces[2], first + second), 1.0)
    fraction = fma(x, pieces[2], first - n + second)
    return bits.cast(I32), (fraction * (math.pi / 2)).cast(F32)


def _window_64(position: Expr) -> list[Expr]:
    """Three u64 words of the digits from bit `position` (0..1023) on."""
    words = [position.like(word) for word in _WORDS_64]
    for step, keep in ((8, 11), (4, 7), (2, 5), (1, 4)):
        taken = (position & (64 * step)) != 0
        words = [where(taken, words[k + step], words[k]) for k in range(keep)]
    left = position & 63
    right = left ^ 63
    # A shift by 64 - left in two steps, so that no count reaches 64.
    return [(words[k] << left) | (words[k + 1] >> 1 >> right) for k in range(3)]


def _high_product(x: Expr, y: Expr) -> Expr:
    """The upper 64 bits of the product of two u64 values, y < 2**63."""
    mask = x.like(0xFFFFFFFF)
    x_high, x_low = x >> 32, x & mask
    y_high, y_low = y >> 32, y & mask
    carry = (x_low * y_low) >> 32
    middle = x_high * y_low + carry
    other = x_low * y_high + (middle & mask)
    high = x_high * y_high + (middle >> 32)
    return high + (other >> 32)


def _reduce_64(size: Expr) -> tuple[Expr, Expr, Expr]:
    """(q as i64, r, low) with size = q pi/2 + r + low."""
    r = Real(size)
    bits = size.bitcast(U64)
    exponent = bits >> 52
    significand = (bits & (2**52 - 1)) | 2**52
    # Digit 0 of the window has weight 2 after multiplying by the significand.
    position = exponent - 1022
    last = exponent == 2046
    position = where(last, 1023, position)
    significand = where(last, significand + significand, significand)
    first, second, third = _window_64(position)
    tail = _high_product(third, significand)
    low = second * significand + tail
    carry = (low < tail).cast(U64)
    high = first * significand + _high_product(second, significand)
    high = high + carry
    quadrant = (high + 2**61) >> 62
    whole = ((high << 2) | (low >> 62)).cast(I64)
    upper = (whole & -2048).cast(F64)
    top, lost = r.quick_sum(upper, (whole & 2047).cast(F64))
    below = ((low << 2) >> 1).cast(I64)
    fraction_low = fma(below.cast(F64), 2.0**-63, lost)
    pi_high, pi_low = (part * 2.0**-64 for part in split(_HALF_PI, F64))
    rest, rest_low = r.two_product(top, r.c(pi_high))
    rest_low = fma(fraction_low, r.c(pi_high), fma(top, pi_low, rest_low))
    near = size <= math.pi / 4
    zero = whole.like(0)
    rest = where(near, size, rest)
    rest = where(size < math.inf, rest, math.nan)
    return (where(near, zero, quadrant.cast(I64)), rest, where(near, 0.0, rest_low))


def _reduce_near(r: Real, size: Expr) -> tuple[Expr, Expr, Expr]:
    """(q, r, low) with size = q pi/2 + r + low, for what is less than NEAR (Cody and Waite 1980).

    The first difference is exact; what rounding the second one loses is kept.
    """
    left, parts = Fraction(_HALF_PI), []
    for _ in range(3):
        parts.append(split(left, r.dtype)[0])
        left -= Fraction(parts[-1])
    q, n = r.round_scaled(size, 2 / math.pi)
    first = fma(n, -parts[0], size)
    product, product_low = r.two_product(n, r.c(parts[1]))
    rest = first - product
    back = rest - first
    lost = first - (rest - back) - (product + back)
    return q, rest, fma(n, -parts[2], lost - product_low)


def _sin_cos_32(r: Real, x: Expr, low: Expr | None = None) -> Pair:
    z = x * x
    tail = x * z if low is None else fma(x * z, r.polynomial(z, _SIN_32), low)
    sine = fma(tail, r.polynomial(z, _SIN_32), x) if low is None else tail + x
    cosine = fma(z, fma(z, r.polynomial(z, _COS_32), -0.5), 1.0)
    return sine, cosine


def _sin_cos_64(r: Real, x: Expr, low: Expr, sharp: bool = False) -> Pair:
    """The `sharp` cosine knows what rounding x**2 has lost."""
    z = x * x
    half = z * 0.5
    cube = x * r.polynomial(z, _SIN_64)
    sine = x + fma(z, fma(low, -0.5, cube), low)
    near_one = 1.0 - half
    lost = 1.0 - near_one - half
    lost = fma(fma(x, x, -z), -0.5, lost) if sharp else lost
    rest = fma(z * z, r.polynomial(z, _COS_64), fma(-x, low, lost))
    return sine, near_one + rest


def _by_quadrant(
    x: Expr, finish: Callable[[Real, Expr, Expr, Expr], Expr], sharp: bool = True
) -> Expr:
    """finish(q, sin(f pi/2), cos(f pi/2)) for |x| = (q + f) pi/2."""
    r, size = Real(x), abs(x)
    q, rest, low = _reduce_near(r, size)
    if r.single:
        near = finish(r, q, *_sin_cos_32(r, rest, low))
        q, rest = _reduce_32(size)
        far = finish(r, q, *_sin_cos_32(r, rest))
    else:
        near = finish(r, q, *_sin_cos_64(r, rest, low, sharp))
        q, rest, low = _reduce_64(size)
        far = finish(r, q, *_sin_cos_64(r, rest, low, sharp))
    return rare(~(size < NEAR), far, near)


def _odd(q: Expr) -> Expr:
    return (q & 1) != 0


def _sign_from_bit_1(r: Real, q: Expr) -> Expr:
    """The sign bit where bit 1 of q is set."""
    return (q & 2) << (r.format.bits.bits - 2)


@function
def sin(x: Expr) -> Expr:
    def finish(r: Real, q: Expr, sine: Expr, cosine: Expr) -> Expr:
        sign = _sign_from_bit_1(r, q) ^ r.sign_of(x)
        return r.flip(where(_odd(q), cosine, sine), sign)

    return _by_quadrant(x, finish)


@function
def cos(x: Expr) -> Expr:
    def finish(r: Real, q: Expr, sine: Expr, cosine: Expr) -> Expr:
        return r.flip(where(_odd(q), sine, cosine), _sign_from_bit_1(r, q + 1))

    return _by_quadrant(x, finish)


@function
def tan(x: Expr) -> Expr:
    """sin / cos, turned to -cos / sin in odd quadrants."""

    def finish(r: Real, q: Expr, sine: Expr, cosine: Expr) -> Expr:
        odd = _odd(q)
        value = where(odd, cosine, sine) / where(odd, -sine, cosine)
        return r.flip(value, r.sign_of(x))

    return _by_quadrant(x, finish, sharp=False)


def sin_cos_pi(r: Real, x: Expr) -> Pair:
    """(sin(pi x), cos(pi x)), exact zeros included; errors are relative to the result."""
    size = r.at_most(abs(x), 2.0 ** (r.format.mantissa + 2))  # beyond, all are even integers
    n = rint(size + size)
    fraction = fma(n, -0.5, size)
    high, low = split(_PI, r.dtype)
    angle, rest = r.two_product(fraction, r.c(high))
    rest = fma(fraction, low, rest)
    if r.single:
        sine, cosine = _sin_cos_32(r, angle + rest)
    else:
        sine, cosine = _sin_cos_64(r, angle, rest)
    # n modulo 4, in a float: n may be beyond any integer type.
    quarter = n - floor(n * 0.25) * 4.0
    odd = (quarter == 1.0) | (quarter == 3.0)
    lower = quarter >= 2.0
    left = (quarter == 1.0) | (quarter == 2.0)
    sine, cosine = where(odd, cosine, sine), where(odd, sine, cosine)
    sine = r.flip(where(lower, -sine, sine), r.sign_of(x))
    return sine, where(left, -cosine, cosine)


@function
def sinc(x: Expr) -> Expr:
    """sin(pi x) / (pi x), 1 at zero and 0 at infinity."""
    r = Real(x)
    sine, _ = sin_cos_pi(r, x)
    value = sine / (x * math.pi)
    tiny = abs(x) < r.pick(2.0**-20, 2.0**-40)
    return where(tiny, r.c(1.0), where(abs(x) == math.inf, 0.0, value))
