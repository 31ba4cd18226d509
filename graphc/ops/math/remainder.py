"""The remainder of floats, exact for every quotient: C's fmod.

A quotient below 2**53 that is rounded and cut is right or one too large, and f64 holds what it
leaves.  All others are rare.  f32 is computed in f64, where a rounded quotient leaves a rest 2**50
times smaller: six rounds.  In f64 the quotient may have 2098 bits.  With x = p 2**i and y = m 2**j,
where p and m are integers, it leaves 2**j times p 2**(i-j) modulo m.  That power is squared
together five times; residues stay within -m/2 .. m/2, so that their sums are exact, and an fma
gives what a product has lost.
"""

from __future__ import annotations

import math
from typing import Any

from graphc.base.record import record
from graphc.ir.types import F64, U64
from graphc.loops.nest import Expr
from graphc.loops.scalars import copy_sign, floor, fma, maximum, rare, rint, trunc, where

_SQUARINGS = 5  # 2**(2098 >> 5) has an exact residue after two divisions
_MAGIC = 0x433 << 52  # the bits of 2**52, whose last bits count in ones


@record(frozen=True, eq=False)
class _Modulus:
    """Arithmetic modulo a whole number below 2**53, in f64."""

    modulus: Expr
    inverse: Expr

    def residue(self, value: Expr) -> Any:
        """Of a whole number of up to 53 bits times a power of two, below 2**85.

        A quotient that is rounded to nearest leaves a rest that f64 holds, 2**52 times smaller.
        """
        for _ in range(2):
            value = self.less(rint(value / self.modulus), value)
        return value

    def less(self, times: Expr, value: Expr) -> Any:
        return fma(-times, self.modulus, value)

    def nearest(self, value: Expr) -> Any:
        return self.less(rint(value * self.inverse), value)

    def product(self, x: Expr, y: Expr) -> Any:
        whole = x * y
        lost = fma(x, y, -whole)
        return self.nearest(self.nearest(self.nearest(whole)) + lost)


def _number(bits: Expr) -> Any:
    """A whole number below 2**52 as f64."""
    return (bits | _MAGIC).bitcast(F64) - 2.0**52


def _scaled_parts(size: Expr) -> tuple[Any, Any]:
    """p and i of a size p 2**(i - 1075), both as f64."""
    bits = size.bitcast(U64)
    exponent = _number(bits >> 52)
    fraction = _number(bits & ((1 << 52) - 1))
    normal = exponent > 0
    hidden = where(normal, exponent.like(2.0**52), 0)
    return fraction + hidden, maximum(exponent, 1)


def _power_of_two(exponent: Expr) -> Any:
    """2**exponent for a whole exponent, as f64: its last bits become the exponent."""
    bits = (exponent + (2.0**52 + 1023)).bitcast(U64)
    return (bits << 52).bitcast(F64)


def _halves(value: Expr, digits: int) -> tuple[Any, Any]:
    """floor(value / 2**digits) and the rest."""
    high = floor(value * 2.0**-digits)
    return high, value - high * 2.0**digits


def _left_f64(size: Expr, unit: Expr) -> Any:
    (whole, high), (divisor, low) = _scaled_parts(size), _scaled_parts(unit)
    field = _Modulus(divisor, 1 / divisor)
    distance = maximum(high - low, 0)
    distance, rest = _halves(distance, _SQUARINGS)
    power = field.residue(_power_of_two(distance))
    for _ in range(_SQUARINGS):
        power = field.product(power, power)
    left = field.product(power, field.residue(whole * _power_of_two(rest)))
    left = where(left < 0, left + divisor, left)
    half, _ = _halves(low - 1075, 1)  # no one power reaches as far
    left = left * _power_of_two(half)
    return left * _power_of_two(low - 1075 - half)


def _left_f32(left: Expr, divisor: Expr) -> Any:
    field = _Modulus(divisor, 1 / divisor)
    for _ in range(6):
        left = field.nearest(left)
    return where(left < 0, left + divisor, left)


def float_remainder(x: Expr, y: Expr) -> Any:
    """What is left of x after taking away y as often as it fits, with the sign of x.

    NaN for an infinite x and for y = 0; x itself for an infinite y.
    """
    size, unit = abs(x), abs(y)
    wide, divisor = size.cast(F64), unit.cast(F64)
    quotient = trunc(wide / divisor)
    near = fma(-quotient, divisor, wide)
    near = where(near < 0, near + divisor, near)
    far = (_left_f64 if x.dtype is F64 else _left_f32)(wide, divisor)
    left = rare(quotient >= 2.0**53, far, near).cast(x.dtype)
    left = where(size < unit, size, left)
    legal = (size < math.inf) & ~(y == 0)
    legal = legal & (y == y)
    return copy_sign(where(legal, left, math.nan), x)
