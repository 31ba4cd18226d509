"""The remainder of floats, exact for every quotient: C's fmod.

f32 is computed in f64, where a rounded quotient leaves a rest 2**50 times smaller: six rounds.  In
f64 the quotient may have 2098 bits.  With x = p 2**i and y = m 2**j, where p and m are integers, it
leaves 2**j times p 2**(i-j) modulo m.  That power is squared together five times; residues stay
within -m/2 .. m/2, so that their sums are exact, and an fma gives what a product has lost.
"""

from __future__ import annotations

import math
from typing import Any

from graphc.ir.types import F64, U64
from graphc.loops.scalars import both, copy_sign, either, is_negative, is_zero, like
from graphc.record import record

_SQUARINGS = 5  # 2**(2098 >> 5) has an exact residue after two divisions
_MAGIC = 0x433 << 52  # the bits of 2**52, whose last bits count in ones


@record(frozen=True)
class _Modulus:
    """Arithmetic modulo a whole number below 2**53, in f64."""

    b: Any
    modulus: Any
    inverse: Any

    def residue(self, value: Any) -> Any:
        """Of a whole number of up to 53 bits times a power of two, below 2**85.

        A quotient that is rounded to nearest leaves a rest that f64 holds, 2**52 times smaller.
        """
        b = self.b
        for _ in range(2):
            value = self.less(b.op("rint", b.div(value, self.modulus)), value)
        return value

    def less(self, times: Any, value: Any) -> Any:
        return self.b.fma(self.b.neg(times), self.modulus, value)

    def nearest(self, value: Any) -> Any:
        return self.less(self.b.op("rint", self.b.mul(value, self.inverse)), value)

    def product(self, x: Any, y: Any) -> Any:
        b = self.b
        whole = b.mul(x, y)
        lost = b.fma(x, y, b.neg(whole))
        return self.nearest(b.add(self.nearest(self.nearest(whole)), lost))


def _number(b: Any, bits: Any) -> Any:
    """A whole number below 2**52 as f64."""
    return b.sub(b.bitcast(either(b, bits, like(b, bits, _MAGIC)), F64), b.const(2.0**52, F64))


def _parts(b: Any, size: Any) -> tuple[Any, Any]:
    """p and i of a size p 2**(i - 1075), both as f64."""
    bits = b.bitcast(size, U64)
    exponent = _number(b, b.op("shr", bits, like(b, bits, 52)))
    fraction = _number(b, both(b, bits, like(b, bits, (1 << 52) - 1)))
    normal = b.compare("gt", exponent, like(b, exponent, 0))
    hidden = b.select(normal, like(b, exponent, 2.0**52), like(b, exponent, 0))
    return b.add(fraction, hidden), b.op("max", exponent, like(b, exponent, 1))


def _power_of_two(b: Any, exponent: Any) -> Any:
    """2**exponent for a whole exponent, as f64: its last bits become the exponent."""
    bits = b.bitcast(b.add(exponent, like(b, exponent, 2.0**52 + 1023)), U64)
    return b.bitcast(b.op("shl", bits, like(b, bits, 52)), F64)


def _halves(b: Any, value: Any, digits: int) -> tuple[Any, Any]:
    """floor(value / 2**digits) and the rest."""
    high = b.op("floor", b.mul(value, like(b, value, 2.0**-digits)))
    return high, b.sub(value, b.mul(high, like(b, value, 2.0**digits)))


def _left_f64(b: Any, size: Any, unit: Any) -> Any:
    (whole, high), (divisor, low) = _parts(b, size), _parts(b, unit)
    field = _Modulus(b, divisor, b.div(like(b, divisor, 1), divisor))
    distance = b.op("max", b.sub(high, low), like(b, high, 0))
    distance, rest = _halves(b, distance, _SQUARINGS)
    power = field.residue(_power_of_two(b, distance))
    for _ in range(_SQUARINGS):
        power = field.product(power, power)
    left = field.product(power, field.residue(b.mul(whole, _power_of_two(b, rest))))
    left = b.select(is_negative(b, left), b.add(left, divisor), left)
    half, _ = _halves(b, b.sub(low, like(b, low, 1075)), 1)  # no one power reaches as far
    left = b.mul(left, _power_of_two(b, half))
    return b.mul(left, _power_of_two(b, b.sub(b.sub(low, like(b, low, 1075)), half)))


def _left_f32(b: Any, size: Any, unit: Any) -> Any:
    left, divisor = b.cast(size, F64), b.cast(unit, F64)
    field = _Modulus(b, divisor, b.div(like(b, divisor, 1), divisor))
    for _ in range(6):
        left = field.nearest(left)
    left = b.select(is_negative(b, left), b.add(left, divisor), left)
    return b.cast(left, size.dtype)


def float_remainder(b: Any, x: Any, y: Any) -> Any:
    """What is left of x after taking away y as often as it fits, with the sign of x.

    NaN for an infinite x and for y = 0; x itself for an infinite y.
    """
    size, unit = b.op("abs", x), b.op("abs", y)
    left = (_left_f64 if x.dtype is F64 else _left_f32)(b, size, unit)
    left = b.select(b.compare("lt", size, unit), size, left)
    legal = both(b, b.compare("lt", size, like(b, x, math.inf)), b.op("not", is_zero(b, y)))
    legal = both(b, legal, b.compare("eq", y, y))
    return copy_sign(b, b.select(legal, left, like(b, x, math.nan)), x)
