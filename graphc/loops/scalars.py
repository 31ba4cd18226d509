"""Short spellings for scalar expressions: literals of an operand's type, sign bits, complex pairs.

An expression is written once for a real operand; `over_pairs` adds the complex case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir.types import BOOL, DTYPES, DType
from graphc.record import record


@record(frozen=True)
class Pair:
    """A complex scalar in the loop IR: two real expressions."""

    re: Any
    im: Any


Expression = Callable[..., Any]


def binary(op: str) -> Expression:
    """The expression op of this name on two operands (or one, or three)."""
    return lambda b, *operands: b.op(op, *operands)


def call(name: str) -> Expression:
    """The vector math function of this name."""
    return lambda b, *operands: b.call(name, *operands)


def over_pairs(real: Expression, complex_: Expression) -> Expression:
    """An expression that takes real operands one way and complex pairs another."""
    return lambda b, *operands: (complex_ if isinstance(operands[0], Pair) else real)(b, *operands)


def part_by_part(real: Expression) -> Expression:
    """An expression that acts on the real and the imaginary parts alike (add, negative)."""

    def expression(b: Any, *operands: Any) -> Any:
        if not isinstance(operands[0], Pair):
            return real(b, *operands)
        return Pair(real(b, *(p.re for p in operands)), real(b, *(p.im for p in operands)))

    return expression


def like(b: Any, x: Any, value: float | int | bool) -> Any:
    """A literal of the type of x."""
    return b.const(value, x.dtype)


def is_nan(b: Any, x: Any) -> Any:
    return b.compare("ne", x, x)


def is_negative(b: Any, x: Any) -> Any:
    return b.compare("lt", x, like(b, x, 0))


def is_zero(b: Any, x: Any) -> Any:
    return b.compare("eq", x, like(b, x, 0))


def either(b: Any, x: Any, y: Any) -> Any:
    return b.op("or", x, y)


def both(b: Any, x: Any, y: Any) -> Any:
    return b.op("and", x, y)


def bits_type(element: DType) -> DType:
    """The signed integer type as wide as an element."""
    return DTYPES[f"i{element.bits}"]


def sign_bit(b: Any, x: Any) -> Any:
    """True where the sign bit of a float is set, also for -0.0 and NaN."""
    return is_negative(b, b.bitcast(x, bits_type(x.dtype)))


def copy_sign(b: Any, x: Any, y: Any) -> Any:
    """The magnitude of x with the sign bit of y."""
    bits = bits_type(x.dtype)
    sign = b.const(-(1 << (bits.bits - 1)), bits)
    magnitude = b.bitcast(b.op("abs", x), bits)
    return b.bitcast(either(b, magnitude, both(b, b.bitcast(y, bits), sign)), x.dtype)


def choose(b: Any, condition: Any, x: Any, y: Any) -> Any:
    """select on reals or, part by part, on pairs."""
    if isinstance(x, Pair):
        return Pair(b.select(condition, x.re, y.re), b.select(condition, x.im, y.im))
    return b.select(condition, x, y)


def not_zero(b: Any, x: Any) -> Any:
    """x != 0 as a bool; a complex number is zero when both parts are."""
    if isinstance(x, Pair):
        return either(b, not_zero(b, x.re), not_zero(b, x.im))
    return b.cast(x, BOOL)
