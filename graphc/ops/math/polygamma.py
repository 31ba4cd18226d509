"""polygamma: the derivatives of digamma, of any order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir.op import Attr, Range, Sample, Scalar
from graphc.ir.types import AnyType, Type
from graphc.loops import vecmath
from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, rint, where
from graphc.ops.record.arguments import Array, ArrayLike
from graphc.ops.record.derivatives import polynomial, times
from graphc.ops.record.families import (
    FLOATS,
    define,
    elementwise_cost,
    elementwise_samples,
    elementwise_type,
    float_of,
    require,
    wide,
)
from graphc.ops.record.value import element_of, emit_promoted, functions, public

HIGHEST = 20  # (order + 1)! must be a finite f32
_SHIFT = 10
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _tail_terms(order: int) -> list[float]:
    """B(2j) / (2j)! (order + 2j - 1)! / order! for j = 1, 2, ..."""
    return [
        number / math.factorial(2 * j) * math.factorial(order + 2 * j - 1) / math.factorial(order)
        for j, number in enumerate(_BERNOULLI, 1)
    ]


def _cotangent_slope(order: int) -> list[float]:
    """The coefficients of a polynomial P with P(cot x) the derivative of cot x of this order.

    P' times -(1 + cot(x)**2) gives the next.
    """
    made = [0.0, 1.0]
    for _ in range(order):
        slope = [k * c for k, c in enumerate(made)][1:]
        made = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return made


# -------------------------------------------------------------------------------------- expression


def _horner(x: Expr, coefficients: list[float]) -> Any:
    made = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        made = fma(made, x, coefficient)
    return made


def _to_power(x: Expr, exponent: int) -> Any:
    made = x
    for _ in range(exponent - 1):
        made = made * x
    return made


def _right_half(x: Expr, order: int) -> Any:
    """(-1)**(order + 1) order! zeta(order + 1, x) for x >= 0: ten terms of the sum, the rest by
    Euler and Maclaurin (Abramowitz and Stegun 6.4.10 to 6.4.12)."""
    one, total = x.like(1), x.like(0)
    for step in range(_SHIFT):
        inverse = one / (x + step)
        total = total + _to_power(inverse, order + 1)
    inverse = one / (x + _SHIFT)
    square = inverse * inverse
    series = square * _horner(square, _tail_terms(order))
    series = fma(inverse, 0.5, 1 / order) + series
    total = fma(_to_power(inverse, order), series, total)
    return total * ((-1) ** (order + 1) * math.factorial(order))


def _polygamma(x: Expr, *, order: int) -> Any:
    """Left of 0 by reflection: (-1)**n polygamma(n, 1 - x) - pi d^n/dx^n cot(pi x)."""
    left = x < 0
    mirrored = where(left, 1 - x, abs(x))  # -0 is 0, where XLA adds no 0 either
    right = _right_half(mirrored, order)
    angle = (x - rint(x)) * math.pi
    cotangent = vecmath.cos(angle) / vecmath.sin(angle)
    turned = _horner(cotangent, _cotangent_slope(order))
    turned = turned * -(math.pi ** (order + 1))
    return where(left, fma(right, (-1) ** order, turned), right)


def _reference(x: Array, order: int) -> Any:
    """The sum itself over 60 terms, then two of the series; in f64."""
    given, x = np.asarray(x).dtype, np.asarray(x, np.float64)
    at = np.where(x < 0, 1 - x, x)
    end = at + 60
    right = sum((at + k) ** -(order + 1.0) for k in range(60))
    right = right + end**-order * (1 / order + 0.5 / end + (order + 1) / (12 * end**2))
    right = right - end ** (-order - 4.0) * (order + 1) * (order + 2) * (order + 3) / 720
    right = (-1) ** (order + 1) * math.factorial(order) * right
    turned = polynomial(1 / np.tan(np.pi * (x - np.rint(x))), _cotangent_slope(order))
    left = (-1) ** order * right - np.pi ** (order + 1) * turned
    return np.where(x < 0, left, right).astype(given)


# ------------------------------------------------------------------------------------------ the op


def _infer(x: AnyType, *, order: int) -> Type:
    require(1 <= order <= HIGHEST, f"polygamma of order {order}", hint=f"1 to {HIGHEST} are known")
    return elementwise_type("polygamma", (x,), 1, FLOATS)


def _samples() -> list[Sample]:
    right = [
        Sample(sample.operands, {"order": order}, sample.good, sample.tolerance)
        for order in (1, 2, 3, 4)
        for sample in elementwise_samples(1, FLOATS, (0.5, 9.0), 32.0)
    ]
    left = np.array([-0.5, -0.25, -1.3, -2.6, -3.75])
    return [
        *right,
        Sample((left,), {"order": 1}, tolerance=32.0),
        Sample((left,), {"order": 2}, tolerance=256.0),
        Sample((left,), {"order": 0}, good=False),
    ]


define(
    "polygamma",
    infer=_infer,
    reference=wide(_reference),
    lower=Scalar(_polygamma),
    attrs=(Attr("order", "int", within=Range(1, HIGHEST)),),
    dtypes=FLOATS,
    gradient=times(lambda x, y, order: functions.polygamma(order + 1, x)),
    cost=elementwise_cost(150),
    samples=_samples,
    doc="The derivative of digamma of this order (1 to 20).",
)


@public()
def polygamma(n: int, x: ArrayLike) -> Any:
    """The n-th derivative of digamma, n = 0 to 20 (digamma itself for 0).

    Raises TypeRuleError for another n or complex x.
    """
    if n == 0:
        return functions.digamma(x)
    return emit_promoted("polygamma", x, element=float_of(element_of(x)[0]), order=n)
