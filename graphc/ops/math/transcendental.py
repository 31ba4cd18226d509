"""Exponential, logarithmic, trigonometric, hyperbolic and special functions.

Integers promote to the float type NumPy computes them in (i8 to f16, i16 to f32, wider to f64).
References of functions NumPy lacks are independent of the kernels: `math` and series in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.types import F64, DType
from graphc.loops import complex_math, vecmath
from graphc.loops.nest import Expr
from graphc.loops.scalars import maximum, over_pairs, where
from graphc.ops.record.arguments import Array
from graphc.ops.record.derivatives import Rule, over, over_nonzero, polynomial, times
from graphc.ops.record.families import COMPLEX, FLOATS, elementwise, float_of
from graphc.ops.record.value import Value, element_of, functions

Table = tuple[tuple[Any, ...], ...]
f = functions
_LN2, _LN10 = math.log(2), math.log(10)

# --------------------------------------------------------------------------------- NumPy's families


def _inverse_root(x: Value, *others: Value) -> Any:
    """1 / sqrt(product); of complex numbers root by root, which keeps to the principal branch."""
    if element_of(x)[0].is_complex:
        return f.reciprocal(math.prod(map(f.sqrt, others), start=f.sqrt(x)))
    return f.rsqrt(math.prod(others, start=x))


def _asin_slope(x: Value, y: Value) -> Any:
    return _inverse_root(1 - x, 1 + x)


def _acos_slope(x: Value, y: Value) -> Any:
    return -_inverse_root(1 - x, 1 + x)


def _asinh_slope(x: Value, y: Value) -> Any:
    return _inverse_root(x * x + 1)


def _acosh_slope(x: Value, y: Value) -> Any:
    return _inverse_root(x - 1, x + 1)


def _atanh_inverse_slope(x: Value, y: Value) -> Any:
    return (1 - x) * (1 + x)


def _expm1(x: Array) -> Any:
    """NumPy's, but exp(x) - 1 for complex numbers far from 0, where NumPy's limits are NaN."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    made, whole, far = np.array(np.expm1(x)), np.exp(x), ~(np.abs(x.real) < 64)
    np.copyto(made.real, whole.real - 1, where=far)
    np.copyto(made.imag, whole.imag, where=far)
    return made


# op name, NumPy function, complex expression or None, domain of the samples, tolerance, gradient
_UNARY: Table = (
    ("exp", np.exp, complex_math.exp, (-4.0, 4.0), 1, times(lambda x, y: y)),
    ("exp2", np.exp2, complex_math.exp_base(2), (-4.0, 4.0), 2, times(lambda x, y: y * _LN2)),
    ("expm1", np.expm1, complex_math.expm1, (-4.0, 4.0), 2, times(lambda x, y: y + 1)),
    ("log", np.log, complex_math.log, (0.01, 9.0), 2, over(lambda x, y: x)),
    ("log2", np.log2, complex_math.log_base(2), (0.01, 9.0), 2, over(lambda x, y: x * _LN2)),
    ("log10", np.log10, complex_math.log_base(10), (0.01, 9.0), 2, over(lambda x, y: x * _LN10)),
    ("log1p", np.log1p, complex_math.log1p, (-0.9, 9.0), 2, over(lambda x, y: x + 1)),
    ("sin", np.sin, complex_math.sin, (-9.0, 9.0), 2, times(lambda x, y: f.cos(x))),
    ("cos", np.cos, complex_math.cos, (-9.0, 9.0), 2, times(lambda x, y: -f.sin(x))),
    ("tan", np.tan, complex_math.tan, (-1.5, 1.5), 8, times(lambda x, y: y * y + 1)),
    ("asin", np.arcsin, complex_math.asin, (-1.0, 1.0), 2, times(_asin_slope)),
    ("acos", np.arccos, complex_math.acos, (-1.0, 1.0), 2, times(_acos_slope)),
    ("atan", np.arctan, complex_math.atan, (-9.0, 9.0), 2, over(lambda x, y: x * x + 1)),
    ("sinh", np.sinh, complex_math.sinh, (-4.0, 4.0), 2, times(lambda x, y: f.cosh(x))),
    ("cosh", np.cosh, complex_math.cosh, (-4.0, 4.0), 2, times(lambda x, y: f.sinh(x))),
    ("tanh", np.tanh, complex_math.tanh, (-4.0, 4.0), 2, times(lambda x, y: 1 - y * y)),
    ("asinh", np.arcsinh, complex_math.asinh, (-9.0, 9.0), 2, times(_asinh_slope)),
    ("acosh", np.arccosh, complex_math.acosh, (1.0, 9.0), 2, times(_acosh_slope)),
    ("atanh", np.arctanh, complex_math.atanh, (-0.99, 0.99), 2, over(_atanh_inverse_slope)),
    ("cbrt", np.cbrt, None, (-9.0, 9.0), 2, over(lambda x, y: y * y * 3)),
)

for _name, _function, _complex, _domain, _tolerance, _rule in _UNARY:
    elementwise(
        _name,
        over_pairs(getattr(vecmath, _name), _complex),
        _expm1 if _name == "expm1" else _function,
        _function,
        dtypes=FLOATS + COMPLEX if _complex else FLOATS,
        promote=float_of,
        flops=20,
        domain=_domain,
        tolerance=_tolerance,
        gradient=_rule,
        public_name=_function.__name__,
        aliases=() if _name == _function.__name__ else (_name,),
    )


def _logaddexp2(x: Expr, y: Expr) -> Any:
    """max(x, y) + log2(1 + 2**-|x - y|); equal operands (also infinite ones) add 1."""
    small = vecmath.exp2(-abs(x - y))
    grown = vecmath.log1p(small) * (1 / math.log(2))
    same = x + 1
    return where(x == y, same, maximum(x, y) + grown)


def _share_rule(scale: float) -> Rule:
    """The rule of log(e**x + e**y) in units of 1 / scale: each operand gets its share of the sum.

    Two equal infinities share equally.
    """

    def rule(ct: Value, total: Value, x: Value, y: Value) -> tuple[Any, Any]:
        ahead = (x - y) * scale
        ahead = f.where(f.isnan(ahead), 0, ahead)
        return ct * f.sigmoid(ahead), ct * f.sigmoid(-ahead)

    return rule


def _atan2_rule(ct: Value, angle: Value, y: Value, x: Value) -> tuple[Any, Any]:
    scaled = over_nonzero(ct, x * x + y * y)
    return scaled * x, -scaled * y


def _hypot_rule(ct: Value, size: Value, x: Value, y: Value) -> tuple[Any, Any]:
    scaled = over_nonzero(ct, size)
    return scaled * x, scaled * y


def _scaled(factor: float) -> Callable[..., Any]:
    return lambda x: x * factor


def _scaled_rule(factor: float) -> Rule:
    return lambda ct, y, x: (ct * factor,)


def _sinc(x: Expr) -> Any:
    """sin(pi x) / (pi x); NumPy gives NaN at infinity, where the limit is 0."""
    return where(complex_math.finite(x), vecmath.sinc(x), x - x)


# sinc(x) = sum of (-1)**k (pi x)**(2k) / (2k + 1)!: its derivative divided by x, in powers of x**2
_SINC_SLOPE = [
    (-1) ** k * 2 * k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(1, 13)
]


def _sinc_slope(x: Expr, y: Expr) -> Any:
    """(cos(pi x) - sinc(x)) / x, by its series near 0, where the difference has no digits left."""
    near = f.absolute(x) < 0.5
    small, large = f.where(near, x, 0), f.where(near, 1, x)
    series = small * polynomial(small * small, _SINC_SLOPE)
    return f.where(near, series, (f.cos(large * math.pi) - f.sinc(large)) / large)


def f64_of_integers(element: DType) -> DType:
    """What NumPy functions written in Python give for integers: f64."""
    return element if element.kind in "fc" else F64


_REAL: dict[str, Any] = {"dtypes": FLOATS, "promote": float_of}
elementwise(
    "atan2",
    vecmath.atan2,
    np.arctan2,
    np.arctan2,
    arity=2,
    public_name="arctan2",
    aliases=("atan2",),
    flops=30,
    tolerance=2,
    gradient=_atan2_rule,
    **_REAL,
)
elementwise(
    "hypot",
    vecmath.hypot,
    np.hypot,
    np.hypot,
    arity=2,
    flops=10,
    tolerance=2,
    gradient=_hypot_rule,
    **_REAL,
)
elementwise(
    "logaddexp",
    vecmath.logaddexp,
    np.logaddexp,
    np.logaddexp,
    arity=2,
    flops=45,
    commutative=True,
    tolerance=4,
    gradient=_share_rule(1.0),
    **_REAL,
)
elementwise(
    "logaddexp2",
    _logaddexp2,
    np.logaddexp2,
    np.logaddexp2,
    arity=2,
    flops=45,
    commutative=True,
    tolerance=4,
    gradient=_share_rule(_LN2),
    **_REAL,
)
for _name, _function, _other, _factor in (
    ("degrees", np.degrees, np.rad2deg, 180 / math.pi),
    ("radians", np.radians, np.deg2rad, math.pi / 180),
):
    elementwise(
        _name,
        _scaled(_factor),
        _function,
        _function,
        _other,
        tolerance=2,
        gradient=_scaled_rule(_factor),
        aliases=(_other.__name__,),
        **_REAL,
    )
elementwise(
    "sinc",
    _sinc,
    np.sinc,
    np.sinc,
    dtypes=FLOATS,
    promote=f64_of_integers,
    flops=25,
    tolerance=4,
    gradient=times(_sinc_slope),
)

# -------------------------------------------------------------------------------- special functions


def in_f64(function: Callable[[float], float]) -> Callable[..., Any]:
    """A NumPy reference from a function of one Python float: f64 inside, the operand's type out."""
    mapped = np.frompyfunc(function, 1, 1)

    def reference(x: Array) -> Any:
        x = np.asarray(x)
        made = mapped(x.astype(np.float64))
        return np.asarray(made, np.float64).astype(x.dtype)

    return reference


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


def _digamma(x: float) -> float:
    """Reflection below 0, recurrence up to 10, then the asymptotic series (Abramowitz 6.3.18)."""
    if math.isnan(x) or x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.copysign(math.inf, -x) if x == 0 else math.nan
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * (x - math.floor(x)))
    shift = 0.0
    while x < 10:
        shift -= 1 / x
        x += 1
    if math.isinf(x):
        return x
    square = 1 / (x * x)
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    series = 0.0
    for term in reversed(terms):
        series = (series + term) * square
    return math.log(x) - 0.5 / x - series + shift


def _erfinv(y: float) -> float:
    """Newton's method on erf, on erfc near the ends, from Winitzki's approximation."""
    if not abs(y) < 1 or y == 0:
        return math.copysign(math.inf, y) if abs(y) == 1 else (y if y == 0 else math.nan)
    size = abs(y)
    tail = math.log1p(-size * size)
    middle = 2 / (math.pi * 0.147) + tail / 2
    x = math.sqrt(math.sqrt(middle * middle - tail / 0.147) - middle)
    for _ in range(4):
        missing = math.erfc(x) - (1 - size) if size > 0.5 else size - math.erf(x)
        slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        step = missing / slope
        x += step / (1 - x * step)  # Halley's correction
    return math.copysign(x, y)


def _sigmoid(x: float) -> float:
    small = math.exp(-abs(x))
    return 1 / (1 + small) if x >= 0 else small / (1 + small) if x < 0 else math.nan


def _bell(x: Expr) -> Any:
    """The derivative of erf: 2 / sqrt(pi) exp(-x**2)."""
    return f.exp(-(x * x)) * (2 / math.sqrt(math.pi))


_SPECIAL: Table = (
    ("erf", in_f64(math.erf), (-4.0, 4.0), 2, times(lambda x, y: _bell(x)), "The error function."),
    (
        *("erfc", in_f64(math.erfc), (-4.0, 4.0), 8, times(lambda x, y: -_bell(x))),
        "1 - erf(x), without cancellation.",
    ),
    (
        *("erfinv", in_f64(_erfinv), (-0.99, 0.99), 8, over(lambda x, y: _bell(y))),
        "The inverse of erf on (-1, 1).",
    ),
    (
        *("lgamma", in_f64(_lgamma), (0.1, 9.0), 16, times(lambda x, y: f.digamma(x))),
        "log |gamma(x)|.",
    ),
    (
        *("digamma", in_f64(_digamma), (0.1, 9.0), 32, times(lambda x, y: f.polygamma(1, x))),
        "The derivative of lgamma.",
    ),
    (
        *("sigmoid", in_f64(_sigmoid), (-9.0, 9.0), 2, times(lambda x, y: y * (1 - y))),
        "1 / (1 + exp(-x)).",
    ),
)

for _name, _reference, _domain, _tolerance, _rule, _doc in _SPECIAL:
    elementwise(
        _name,
        getattr(vecmath, _name),
        _reference,
        promote=float_of,
        dtypes=FLOATS,
        flops=30,
        domain=_domain,
        tolerance=_tolerance,
        doc=_doc,
        gradient=_rule,
        aliases=("expit",) if _name == "sigmoid" else (),
    )
