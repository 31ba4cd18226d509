"""Activation functions of one variable: scalar expressions, so they fuse into whatever makes x.

Definitions follow the papers and the names the large frameworks use; integers promote to f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import FINITE, Attr, Range
from graphc.loops import vecmath
from graphc.loops.nest import Expr
from graphc.loops.scalars import fma, maximum, minimum, where
from graphc.ops.math.transcendental import f64_of_integers, in_f64
from graphc.ops.record.arguments import Array, ArrayLike, Tensor
from graphc.ops.record.derivatives import Rule, over, times, where_true
from graphc.ops.record.families import FLOATS, REAL, elementwise, normalise_axis, require
from graphc.ops.record.value import Value, as_value, functions, public

f = functions
_erf = in_f64(math.erf)

# -------------------------------------------------------------------------------------- expressions


def _positive_part(x: Expr) -> Any:
    return maximum(x, 0)


def _hinge(x: Expr, positive: Expr, negative: Expr) -> Any:
    """`positive` above 0, else `negative` (also for NaN)."""
    return where(x > 0, positive, negative)


def _clipped(x: Expr, low: float, high: float) -> Any:
    return minimum(maximum(x, low), high)


def _exponential_part(x: Expr, alpha: float) -> Any:
    return x.like(alpha) * vecmath.expm1(x)


def _celu(x: Expr, *, alpha: float) -> Any:
    scaled = x * (1 / alpha)
    return _hinge(x, x, _exponential_part(scaled, alpha))


_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _selu(x: Expr) -> Any:
    return x.like(_SELU_SCALE) * _hinge(x, x, _exponential_part(x, _SELU_ALPHA))


def _gelu(x: Expr, *, tanh: bool) -> Any:
    """x Phi(x) (Hendrycks and Gimpel, 2016), Phi exact by erf or approximated by tanh."""
    half, one = x * 0.5, x.like(1)
    if not tanh:
        return half * (one + vecmath.erf(x * math.sqrt(0.5)))
    cube = x * x * x
    inner = x.like(math.sqrt(2 / math.pi)) * fma(cube, 0.044715, x)
    return half * (one + vecmath.tanh(inner))


def _hard_sigmoid(x: Expr) -> Any:
    return _clipped(x + 3, 0, 6) * (1 / 6)


def _softsign(x: Expr) -> Any:
    return x / (x.like(1) + abs(x))


# --------------------------------------------------------------------------------------- references


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that computes in f64."""

    def reference(x: Array, **attrs: object) -> Any:
        return function(np.asarray(x, np.float64), **attrs)

    return reference


def _sigmoid_of(x: Tensor) -> Any:
    return np.exp(-np.logaddexp(0, -x))


def _celu_of(x: Tensor, alpha: float) -> Any:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


def _gelu_of(x: Tensor, tanh: bool) -> Any:
    if tanh:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / np.sqrt(2)))


# -------------------------------------------------------------------------------------- derivatives

# Rules read x alone or the result alone where they can: the other need not be kept.


def _hinge_rule(positive: float, negative: Callable[..., Any]) -> Rule:
    """ct times `positive` above 0, else times `negative(y, **attrs)`; the result has x's sign if
    the attribute alpha is positive."""

    def rule(ct: Value, y: Value, x: Value, **attrs: Any) -> tuple[Any]:
        tested = y if attrs.get("alpha", 1.0) > 0 else x
        above = ct if positive == 1 else ct * positive
        return (f.where(tested > 0, above, ct * negative(y, **attrs)),)

    return rule


def _leaky_rule(ct: Value, y: Value, x: Value, *, slope: float) -> tuple[Any]:
    return (f.where((y if slope > 0 else x) > 0, ct, ct * slope),)


def _within(low: float, high: float, slope: float = 1.0) -> Rule:
    """The slope strictly between two values of x, else 0."""

    def rule(ct: Value, y: Value, x: Value) -> tuple[Any]:
        inside = f.logical_and(x > low, x < high)
        return (where_true(inside, ct if slope == 1 else ct * slope),)

    return rule


def _gelu_slope(x: Expr, y: Expr, *, tanh: bool) -> Any:
    """Phi(x) + x phi(x); products start from the factor that is small where x is large."""
    if not tanh:
        bell = f.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi)
        return (f.erf(x * math.sqrt(0.5)) + 1) * 0.5 + x * bell
    scale = math.sqrt(2 / math.pi)
    t = f.tanh((x * x * x * 0.044715 + x) * scale)
    rest = (1 - t * t) * x
    return ((rest * x * x * (3 * 0.044715) + rest) * scale + t + 1) * 0.5


def _silu_slope(x: ArrayLike, y: ArrayLike) -> Any:
    gate = f.sigmoid(x)
    return gate + x * gate * (1 - gate)


def _mish_slope(x: ArrayLike, y: ArrayLike) -> Any:
    t = f.tanh(f.softplus(x))
    return t + x * f.sigmoid(x) * (1 - t * t)


def _hard_swish_rule(ct: Value, y: Value, x: Value) -> tuple[Any]:
    return (f.where(x >= 3, ct, where_true(x > -3, ct * (x * (1 / 3) + 0.5))),)


# ---------------------------------------------------------------------------------------- the table

# name, expression, reference in f64, gradient rule, attributes, other names
_ALPHA = (Attr("alpha", "float", 1.0, within=FINITE),)
_SCALE = (Attr("alpha", "float", 1.0, within=Range(2.0**-100, 2.0**100)),)  # 1 / alpha is an f32
_TABLE: tuple[tuple[Any, ...], ...] = (
    (*("relu6", lambda x: _clipped(x, 0, 6), lambda x: np.clip(x, 0, 6)), *(_within(0, 6), (), ())),
    (
        "leaky_relu",
        lambda x, slope: _hinge(x, x, x * slope),
        lambda x, slope: np.where(x > 0, x, slope * x),
        *(_leaky_rule, (Attr("slope", "float", 0.01, within=FINITE),), ()),
    ),
    (
        "elu",
        lambda x, alpha: _hinge(x, x, _exponential_part(x, alpha)),
        lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
        *(_hinge_rule(1, lambda y, alpha: y + alpha), _ALPHA, ()),
    ),
    ("celu", _celu, _celu_of, _hinge_rule(1, lambda y, alpha: y / alpha + 1), _SCALE, ()),
    (
        "selu",
        _selu,
        lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(x)),
        *(_hinge_rule(_SELU_SCALE, lambda y: y + _SELU_SCALE * _SELU_ALPHA), (), ()),
    ),
    ("gelu", _gelu, _gelu_of, times(_gelu_slope), (Attr("tanh", "bool", False),), ()),
    (
        *("silu", lambda x: x * vecmath.sigmoid(x), lambda x: x * _sigmoid_of(x)),
        *(times(_silu_slope), (), ("swish",)),
    ),
    (
        "mish",
        lambda x: x * vecmath.tanh(vecmath.softplus(x)),
        lambda x: x * np.tanh(np.logaddexp(x, 0)),
        *(times(_mish_slope), (), ()),
    ),
    (
        *("softplus", vecmath.softplus, lambda x: np.logaddexp(x, 0)),
        *(times(lambda x, y: f.sigmoid(x)), (), ()),
    ),
    (
        *("log_sigmoid", vecmath.log_sigmoid, lambda x: -np.logaddexp(-x, 0)),
        *(times(lambda x, y: f.sigmoid(-x)), (), ()),
    ),
    (
        *("softsign", _softsign, lambda x: x / (1 + np.abs(x))),
        *(over(lambda x, y: f.square(f.absolute(x) + 1)), (), ()),
    ),
    (
        *("hard_sigmoid", _hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
        *(_within(-3, 3, 1 / 6), (), ()),
    ),
    (
        *("hard_swish", lambda x: x * _hard_sigmoid(x)),
        *(lambda x: x * np.clip(x + 3, 0, 6) / 6, _hard_swish_rule, (), ("hard_silu",)),
    ),
)

elementwise(
    "relu",
    _positive_part,
    lambda x: np.maximum(x, 0),
    dtypes=REAL,
    doc="max(x, 0).",
    gradient=lambda ct, y, x: (where_true(y > 0, ct),),
)

for _name, _expression, _reference, _rule, _attrs, _others in _TABLE:
    elementwise(
        _name,
        _expression,
        _wide(_reference),
        dtypes=FLOATS,
        promote=f64_of_integers,
        attrs=_attrs,
        flops=30,
        tolerance=4,
        domain=(-8.0, 8.0),
        aliases=_others,
        gradient=_rule,
    )


@public()
def glu(x: Any, axis: int = -1) -> Any:
    """a * sigmoid(b) with a and b the two halves of x along `axis`."""
    x = as_value(x)
    place = normalise_axis(axis, len(x.shape), "glu")
    extent = x.shape[place]
    require(extent % 2 == 0, f"glu halves axis {place}, whose extent {extent} is odd")
    gate, value = functions.split(x, 2, axis=place)[::-1]
    return functions.multiply(value, functions.sigmoid(gate))
