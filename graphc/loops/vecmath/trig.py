"""sin, cos, tan with full accuracy over the whole range of both float types.

Reduction: |x| = (q + f) pi/2 with |f| <= 1/2 needs |x| * 2/pi modulo 4.  Bits of 2/pi whose
product with x is a multiple of 4 are left out beforehand, so only a window of 2/pi that depends on
the exponent of x takes part (Payne and Hanek 1983).

* f32 works in f64: a quarter of the exponent range selects three pieces of 2/pi.  A piece of 29
  bits times the 24 bits of x is exact, so the products can be reduced modulo 4 without error.
* f64 works in integers: 192 bits of 2/pi, moved to the exponent of x, times the 53-bit significand
  modulo 2**192; the top two bits are the quadrant, the next 124 the fraction.
"""

from __future__ import annotations

import math

from graphc.ir.types import F32, F64, I32, I64, U64
from graphc.loops.nest import Expr, Scalars
from graphc.loops.vecmath.base import Pair, Real, split

_PI = "3.141592653589793238462643383279502884197"
_HALF_PI = "1.570796326794896619231321691639751442099"

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
    return r.fma(r.b.op("rint", r.mul(x, r.c(0.25))), r.c(-4.0), x)


def _reduce_32(b: Scalars, size: Expr) -> tuple[Expr, Expr]:
    """(q as i32, r as f32) with size = q pi/2 + r."""
    wide = Real(b, F64)
    narrow = Real(b, F32)
    x = b.cast(size, F64)
    pieces = [wide.c(piece) for piece in _WINDOWS_32[0]]
    for step, window in enumerate(_WINDOWS_32[1:], 1):
        beyond = b.compare("ge", size, narrow.c(2.0 ** (32 * step)))
        pieces = [
            wide.where(beyond, wide.c(new), old) for new, old in zip(window, pieces, strict=True)
        ]
    first = _modulo_4(wide, wide.mul(x, pieces[0]))
    second = _modulo_4(wide, wide.mul(x, pieces[1]))
    bits, n = wide.round_scaled(wide.fma(x, pieces[2], wide.add(first, second)), 1.0)
    fraction = wide.fma(x, pieces[2], wide.add(wide.sub(first, n), second))
    return b.cast(bits, I32), b.cast(wide.mul(fraction, wide.c(math.pi / 2)), F32)


def _window_64(r: Real, position: Expr) -> list[Expr]:
    """Three u64 words of the digits from bit `position` (0..1023) on."""
    b = r.b

    def u(value: int) -> Expr:
        return b.const(value, U64)

    words = [u(word) for word in _WORDS_64]
    for step, keep in ((8, 11), (4, 7), (2, 5), (1, 4)):
        bit = b.op("and", position, u(64 * step))
        taken = b.compare("ne", bit, u(0))
        words = [r.where(taken, words[k + step], words[k]) for k in range(keep)]
    left = b.op("and", position, u(63))
    right = b.op("xor", left, u(63))
    # A shift by 64 - left in two steps, so that no count reaches 64.
    return [
        b.op("or", b.op("shl", words[k], left), b.op("shr", r.shift_right(words[k + 1], 1), right))
        for k in range(3)
    ]


def _high_product(r: Real, x: Expr, y: Expr) -> Expr:
    """The upper 64 bits of the product of two u64 values, y < 2**63."""
    b = r.b
    mask = b.const(0xFFFFFFFF, U64)
    x_high, x_low = r.shift_right(x, 32), b.op("and", x, mask)
    y_high, y_low = r.shift_right(y, 32), b.op("and", y, mask)
    carry = r.shift_right(b.mul(x_low, y_low), 32)
    middle = b.add(b.mul(x_high, y_low), carry)
    other = b.add(b.mul(x_low, y_high), b.op("and", middle, mask))
    high = b.add(b.mul(x_high, y_high), r.shift_right(middle, 32))
    return b.add(high, r.shift_right(other, 32))


def _reduce_64(b: Scalars, size: Expr) -> tuple[Expr, Expr, Expr]:
    """(q as i64, r, low) with size = q pi/2 + r + low."""
    r = Real(b, F64)
    bits = r.b.bitcast(size, U64)
    exponent = r.shift_right(bits, 52)
    significand = b.op("or", b.op("and", bits, b.const(2**52 - 1, U64)), b.const(2**52, U64))
    # Digit 0 of the window has weight 2 after multiplying by the significand.
    position = b.op("sub", exponent, b.const(1022, U64))
    last = b.compare("eq", exponent, b.const(2046, U64))
    position = r.where(last, b.const(1023, U64), position)
    significand = r.where(last, b.add(significand, significand), significand)
    first, second, third = _window_64(r, position)
    tail = _high_product(r, third, significand)
    low = b.add(b.mul(second, significand), tail)
    carry = b.cast(b.compare("lt", low, tail), U64)
    high = b.add(b.mul(first, significand), _high_product(r, second, significand))
    high = b.add(high, carry)
    quadrant = r.shift_right(b.add(high, b.const(2**61, U64)), 62)
    whole = b.cast(b.op("or", r.shift_left(high, 2), r.shift_right(low, 62)), I64)
    upper = b.cast(b.op("and", whole, b.const(-2048, I64)), F64)
    top, lost = r.quick_sum(upper, b.cast(b.op("and", whole, b.const(2047, I64)), F64))
    below = b.cast(r.shift_right(r.shift_left(low, 2), 1), I64)
    fraction_low = r.fma(b.cast(below, F64), r.c(2.0**-63), lost)
    pi_high, pi_low = (part * 2.0**-64 for part in split(_HALF_PI, F64))
    rest, rest_low = r.two_product(top, r.c(pi_high))
    rest_low = r.fma(fraction_low, r.c(pi_high), r.fma(top, r.c(pi_low), rest_low))
    near = b.compare("le", size, r.c(math.pi / 4))
    zero = b.const(0, I64)
    rest = r.where(near, size, rest)
    rest = r.where(r.lt(size, r.c(math.inf)), rest, r.c(math.nan))
    return (
        r.where(near, zero, b.cast(quadrant, I64)),
        rest,
        r.where(near, r.c(0.0), rest_low),
    )


def _sin_cos_32(r: Real, x: Expr) -> Pair:
    z = r.mul(x, x)
    sine = r.fma(r.mul(x, z), r.polynomial(z, _SIN_32), x)
    cosine = r.fma(z, r.fma(z, r.polynomial(z, _COS_32), r.c(-0.5)), r.c(1.0))
    return sine, cosine


def _sin_cos_64(r: Real, x: Expr, low: Expr) -> Pair:
    z = r.mul(x, x)
    half = r.mul(z, r.c(0.5))
    cube = r.mul(x, r.polynomial(z, _SIN_64))
    sine = r.add(x, r.fma(z, r.fma(low, r.c(-0.5), cube), low))
    near_one = r.sub(r.c(1.0), half)
    lost = r.sub(r.sub(r.c(1.0), near_one), half)
    rest = r.fma(r.mul(z, z), r.polynomial(z, _COS_64), r.fma(r.neg(x), low, lost))
    return sine, r.add(near_one, rest)


def _quadrant_sin_cos(r: Real, x: Expr) -> tuple[Expr, Expr, Expr]:
    """(q, sin(f pi/2), cos(f pi/2)) for |x| = (q + f) pi/2."""
    size = r.abs(x)
    if r.single:
        q, rest = _reduce_32(r.b, size)
        return q, *_sin_cos_32(r, rest)
    q, rest, low = _reduce_64(r.b, size)
    return q, *_sin_cos_64(r, rest, low)


def _odd(r: Real, q: Expr) -> Expr:
    return r.b.compare("ne", r.b.op("and", q, r.k(1)), r.k(0))


def _sign_from_bit_1(r: Real, q: Expr) -> Expr:
    """The sign bit where bit 1 of q is set."""
    return r.shift_left(r.b.op("and", q, r.k(2)), r.format.bits.bits - 2)


def sin(b: Scalars, x: Expr) -> Expr:
    r = Real(b, x.dtype)
    q, sine, cosine = _quadrant_sin_cos(r, x)
    value = r.where(_odd(r, q), cosine, sine)
    return r.flip(value, b.op("xor", _sign_from_bit_1(r, q), r.sign_of(x)))


def cos(b: Scalars, x: Expr) -> Expr:
    r = Real(b, x.dtype)
    q, sine, cosine = _quadrant_sin_cos(r, x)
    value = r.where(_odd(r, q), sine, cosine)
    return r.flip(value, _sign_from_bit_1(r, b.add(q, r.k(1))))


def tan(b: Scalars, x: Expr) -> Expr:
    """sin / cos, turned to -cos / sin in odd quadrants."""
    r = Real(b, x.dtype)
    q, sine, cosine = _quadrant_sin_cos(r, x)
    odd = _odd(r, q)
    value = r.div(r.where(odd, cosine, sine), r.where(odd, r.neg(sine), cosine))
    return r.flip(value, r.sign_of(x))


def sin_cos_pi(r: Real, x: Expr) -> Pair:
    """(sin(pi x), cos(pi x)), exact zeros included; errors are relative to the result."""
    size = r.at_most(r.abs(x), 2.0 ** (r.format.mantissa + 2))  # beyond, all are even integers
    n = r.b.op("rint", r.add(size, size))
    fraction = r.fma(n, r.c(-0.5), size)
    high, low = split(_PI, r.dtype)
    angle, rest = r.two_product(fraction, r.c(high))
    rest = r.fma(fraction, r.c(low), rest)
    if r.single:
        sine, cosine = _sin_cos_32(r, r.add(angle, rest))
    else:
        sine, cosine = _sin_cos_64(r, angle, rest)
    # n modulo 4, in a float: n may be beyond any integer type.
    quarter = r.sub(n, r.mul(r.b.op("floor", r.mul(n, r.c(0.25))), r.c(4.0)))
    odd = r.b.op("or", r.eq(quarter, r.c(1.0)), r.eq(quarter, r.c(3.0)))
    lower = r.b.compare("ge", quarter, r.c(2.0))
    left = r.b.op("or", r.eq(quarter, r.c(1.0)), r.eq(quarter, r.c(2.0)))
    sine, cosine = r.where(odd, cosine, sine), r.where(odd, sine, cosine)
    sine = r.flip(r.where(lower, r.neg(sine), sine), r.sign_of(x))
    return sine, r.where(left, r.neg(cosine), cosine)


def sinc(b: Scalars, x: Expr) -> Expr:
    """sin(pi x) / (pi x), 1 at zero and 0 at infinity."""
    r = Real(b, x.dtype)
    sine, _ = sin_cos_pi(r, x)
    value = r.div(sine, r.mul(x, r.c(math.pi)))
    tiny = r.lt(r.abs(x), r.pick(2.0**-20, 2.0**-40))
    return r.where(tiny, r.c(1.0), r.where(r.eq(r.abs(x), r.c(math.inf)), r.c(0.0), value))
