"""Short spellings for the gradient rules of element-wise ops.

A rule takes the cotangent `ct` of a result y = f(x, ...), the result and the operands, and gives
one cotangent per operand.  Where f is complex the cotangent of x is ct * conj(f'(x)): conj is the
identity on reals, so most rules are written once for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.value import Value, functions

Rule = Callable[..., Sequence[Any]]


def times(derivative: Callable[..., Any]) -> Rule:
    """The rule of a function of one variable: `derivative(x, y, **attrs)` is f'(x), y = f(x)."""

    def rule(ct: Value, y: Value, x: Value, **attrs: object) -> tuple[Any]:
        return (ct * functions.conj(derivative(x, y, **attrs)),)

    return rule


def over(inverse: Callable[..., Any]) -> Rule:
    """The rule of a function of one variable, from `inverse(x, y)` = 1 / f'(x)."""

    def rule(ct: Value, y: Value, x: Value) -> tuple[Any]:
        return (ct / functions.conj(inverse(x, y)),)

    return rule


def where_true(condition: ArrayLike, ct: ArrayLike) -> Any:
    """The cotangent where the condition holds, else 0 (a NaN or infinity elsewhere is dropped)."""
    return functions.where(condition, ct, 0)


def over_nonzero(ct: Value, size: Value) -> Any:
    """ct / size, and ct itself where the size is 0: what multiplies it is 0 there, as the
    derivative of |x| is."""
    return ct / functions.where(size == 0, 1, size)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 x + c2 x**2 + ... after Horner."""
    *rest, made = coefficients
    for coefficient in reversed(rest):
        made = made * x + coefficient
    return made
