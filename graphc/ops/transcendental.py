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
from graphc.ops import complex_math
from graphc.ops.registry import COMPLEX, FLOATS, elementwise, float_of
from graphc.ops.scalars import call, like, over_pairs

Table = tuple[tuple[Any, ...], ...]

# --------------------------------------------------------------------------------- NumPy's families

# op name, NumPy function, complex expression or None, domain of the samples, tolerance
_UNARY: Table = (
    ("exp", np.exp, complex_math.exp, (-4.0, 4.0), 1),
    ("exp2", np.exp2, complex_math.exp_base(2), (-4.0, 4.0), 2),
    ("expm1", np.expm1, complex_math.expm1, (-4.0, 4.0), 2),
    ("log", np.log, complex_math.log, (0.01, 9.0), 2),
    ("log2", np.log2, complex_math.log_base(2), (0.01, 9.0), 2),
    ("log10", np.log10, complex_math.log_base(10), (0.01, 9.0), 2),
    ("log1p", np.log1p, complex_math.log1p, (-0.9, 9.0), 2),
    ("sin", np.sin, complex_math.sin, (-9.0, 9.0), 2),
    ("cos", np.cos, complex_math.cos, (-9.0, 9.0), 2),
    ("tan", np.tan, complex_math.tan, (-1.5, 1.5), 8),
    ("asin", np.arcsin, None, (-1.0, 1.0), 2),
    ("acos", np.arccos, None, (-1.0, 1.0), 2),
    ("atan", np.arctan, None, (-9.0, 9.0), 2),
    ("sinh", np.sinh, complex_math.sinh, (-4.0, 4.0), 2),
    ("cosh", np.cosh, complex_math.cosh, (-4.0, 4.0), 2),
    ("tanh", np.tanh, complex_math.tanh, (-4.0, 4.0), 2),
    ("asinh", np.arcsinh, None, (-9.0, 9.0), 2),
    ("acosh", np.arccosh, None, (1.0, 9.0), 2),
    ("atanh", np.arctanh, None, (-0.99, 0.99), 2),
    ("cbrt", np.cbrt, None, (-9.0, 9.0), 2),
)

for _name, _function, _complex, _domain, _tolerance in _UNARY:
    elementwise(
        _name, call(_name) if _complex is None else over_pairs(call(_name), _complex),
        _function, _function, dtypes=FLOATS + COMPLEX if _complex else FLOATS, promote=float_of,
        flops=20, domain=_domain, tolerance=_tolerance, public_name=_function.__name__,
        aliases=() if _name == _function.__name__ else (_name,),
    )  # fmt: skip


def _logaddexp2(b: Any, x: Any, y: Any) -> Any:
    """max(x, y) + log2(1 + 2**-|x - y|); equal operands (also infinite ones) add 1."""
    small = b.call("exp2", b.neg(b.op("abs", b.sub(x, y))))
    grown = b.mul(b.call("log1p", small), like(b, x, 1 / math.log(2)))
    same = b.add(x, like(b, x, 1))
    return b.select(b.compare("eq", x, y), same, b.add(b.op("max", x, y), grown))


def _scaled(factor: float) -> Callable[..., Any]:
    return lambda b, x: b.mul(x, like(b, x, factor))


def _sinc(b: Any, x: Any) -> Any:
    """sin(pi x) / (pi x); NumPy gives NaN at infinity, where the limit is 0."""
    return b.select(complex_math.finite(b, x), b.call("sinc", x), b.sub(x, x))


def f64_of_integers(element: DType) -> DType:
    """What NumPy functions written in Python give for integers: f64."""
    return element if element.kind in "fc" else F64


_REAL: dict[str, Any] = {"dtypes": FLOATS, "promote": float_of}
elementwise(
    "atan2", call("atan2"), np.arctan2, np.arctan2, arity=2, public_name="arctan2",
    aliases=("atan2",), flops=30, tolerance=2, **_REAL,
)  # fmt: skip
elementwise(
    "hypot", call("hypot"), np.hypot, np.hypot, arity=2, flops=10, tolerance=2, **_REAL,
)  # fmt: skip
elementwise(
    "logaddexp", call("logaddexp"), np.logaddexp, np.logaddexp, arity=2, flops=45,
    commutative=True, tolerance=4, **_REAL,
)  # fmt: skip
elementwise(
    "logaddexp2", _logaddexp2, np.logaddexp2, np.logaddexp2, arity=2,
    flops=45, commutative=True, tolerance=4, **_REAL,
)  # fmt: skip
elementwise(
    "degrees", _scaled(180 / math.pi), np.degrees, np.degrees, np.rad2deg, tolerance=2,
    aliases=("rad2deg",), **_REAL,
)  # fmt: skip
elementwise(
    "radians", _scaled(math.pi / 180), np.radians, np.radians, np.deg2rad, tolerance=2,
    aliases=("deg2rad",), **_REAL,
)  # fmt: skip
elementwise(
    "sinc", _sinc, np.sinc, np.sinc, dtypes=FLOATS, promote=f64_of_integers, flops=25,
    tolerance=4,
)  # fmt: skip

# -------------------------------------------------------------------------------- special functions


def in_f64(function: Callable[[float], float]) -> Callable[..., Any]:
    """A NumPy reference from a function of one Python float: f64 inside, the operand's type out."""
    mapped = np.frompyfunc(function, 1, 1)

    def reference(x: Any) -> Any:
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


_SPECIAL: Table = (
    ("erf", in_f64(math.erf), (-4.0, 4.0), 2, "The error function."),
    ("erfc", in_f64(math.erfc), (-4.0, 4.0), 8, "1 - erf(x), without cancellation."),
    ("erfinv", in_f64(_erfinv), (-0.99, 0.99), 8, "The inverse of erf on (-1, 1)."),
    ("lgamma", in_f64(_lgamma), (0.1, 9.0), 16, "log |gamma(x)|."),
    ("digamma", in_f64(_digamma), (0.1, 9.0), 32, "The derivative of lgamma."),
    ("sigmoid", in_f64(_sigmoid), (-9.0, 9.0), 2, "1 / (1 + exp(-x))."),
)

for _name, _reference, _domain, _tolerance, _doc in _SPECIAL:
    elementwise(
        _name, call(_name), _reference, promote=float_of, dtypes=FLOATS, flops=30, domain=_domain,
        tolerance=_tolerance, doc=_doc, aliases=("expit",) if _name == "sigmoid" else (),
    )  # fmt: skip
