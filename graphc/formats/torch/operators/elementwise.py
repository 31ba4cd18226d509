"""Element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.formats.deciding_values import refuse
from graphc.formats.torch.promotion import (
    as_float,
    cast,
    category,
    common,
    dtype_of,
    is_float,
    promoted,
)
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.frontend.trace import views
from graphc.frontend.trace.tracer import Tracer
from graphc.ops.record.value import functions as f

# Operators of one array that one public function computes as it is, and those of floats alone.
_SAME = {
    "abs": "abs",
    "absolute": "abs",
    "neg": "negative",
    "_neg_view": "negative",
    "negative": "negative",
    "bitwise_not": "invert",
    "logical_not": "logical_not",
    "relu": "relu",
    "square": "square",
    "ceil": "ceil",
    "floor": "floor",
    "trunc": "trunc",
    "fix": "trunc",
    "isnan": "isnan",
    "isinf": "isinf",
    "isfinite": "isfinite",
    "signbit": "signbit",
    "relu6": "relu6",
}
_FLOAT = {
    "acos": "arccos", "acosh": "arccosh", "arccos": "arccos", "asin": "arcsin", "asinh": "arcsinh",
    "arcsin": "arcsin", "atan": "arctan", "arctan": "arctan", "atanh": "arctanh", "cos": "cos",
    "arccosh": "arccosh", "arcsinh": "arcsinh", "arctanh": "arctanh",
    "cosh": "cosh", "sin": "sin", "sinh": "sinh", "tan": "tan", "tanh": "tanh", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "log": "log", "log10": "log10", "log1p": "log1p",
    "log2": "log2", "sqrt": "sqrt", "reciprocal": "reciprocal", "erf": "erf",
    "erfc": "erfc", "erfinv": "erfinv",
    "lgamma": "lgamma", "special_gammaln": "lgamma", "digamma": "digamma",
    "special_psi": "digamma", "i0": "i0", "sinc": "sinc",
    "deg2rad": "deg2rad", "rad2deg": "rad2deg", "silu": "silu", "mish": "mish", "selu": "selu",
    "log_sigmoid": "log_sigmoid",
    "softsign": "softsign",
}  # fmt: skip


def _same(name: str) -> Callable[..., Any]:
    return lambda x: getattr(f, name)(x)


def _of_floats(name: str) -> Callable[..., Any]:
    return lambda x: getattr(f, name)(as_float(x))


for _operator, _name in _SAME.items():
    aten(_operator)(_same(_name))
for _operator, _name in _FLOAT.items():
    aten(_operator)(_of_floats(_name))

# Operators of two arrays in their common type.
_PAIRS = {
    "mul": "multiply", "multiply": "multiply", "maximum": "maximum", "minimum": "minimum",
    "fmax": "fmax", "fmin": "fmin", "fmod": "fmod", "remainder": "remainder",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
    "__lshift__": "left_shift", "__rshift__": "right_shift", "gcd": "gcd", "lcm": "lcm",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "not_equal": "not_equal", "less": "less", "less_equal": "less_equal",
    "greater": "greater", "greater_equal": "greater_equal",
    "nextafter": "nextafter", "logaddexp": "logaddexp", "logaddexp2": "logaddexp2",
}  # fmt: skip
_FLOAT_PAIRS = {"atan2": "arctan2", "arctan2": "arctan2", "hypot": "hypot", "copysign": "copysign"}


def _pair(name: str, floats: bool) -> Callable[..., Any]:
    return lambda x, other: getattr(f, name)(*promoted(x, other, floats=floats))


for _operator, _name in _PAIRS.items():
    aten(_operator)(_pair(_name, False))
for _operator, _name in _FLOAT_PAIRS.items():
    aten(_operator)(_pair(_name, True))
for _operator in ("and", "or", "xor"):
    aten(f"logical_{_operator}")(
        lambda x, other, _name=f"logical_{_operator}": getattr(f, _name)(x, other)
    )


def scaled(x: Any, factor: Any) -> Any:
    """x times a number, in the type of x."""
    return x if factor == 1 else f.multiply(x, cast(factor, dtype_of(x)))


@aten("add")
def add(x: Any, other: Any, alpha: Any = 1) -> Any:
    one, two = promoted(x, other)
    if dtype_of(one).kind == "b":
        return f.logical_or(one, two) if alpha else one
    return f.add(one, scaled(two, alpha))


@aten("sub", "subtract")
def sub(x: Any, other: Any, alpha: Any = 1) -> Any:
    one, two = promoted(x, other)
    return f.subtract(one, scaled(two, alpha))


@aten("rsub")
def rsub(x: Any, other: Any, alpha: Any = 1) -> Any:
    return sub(other, x, alpha)


@aten("div", "divide", "true_divide")
def div(x: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return f.divide(*promoted(x, other, floats=True))
    one, two = promoted(x, other)
    if rounding_mode == "floor":
        return f.floor_divide(one, two)
    refuse(rounding_mode == "trunc", f"no rounding {rounding_mode!r}")
    if is_float(one):
        return f.trunc(f.divide(one, two))
    return f.divide(f.subtract(one, f.fmod(one, two)), two).astype(dtype_of(one))


@aten("floor_divide")
def floor_divide(x: Any, other: Any) -> Any:
    return f.floor_divide(*promoted(x, other))


@aten("pow")
def power(x: Any, exponent: Any) -> Any:
    if isinstance(exponent, int | float) and exponent == 2:
        return f.square(cast(x, common(x, exponent)))
    return f.power(*promoted(x, exponent))


aten("float_power")(lambda x, exponent: f.float_power(x, exponent))


@aten("clamp", "clip")
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    kind = common(x, min, max)
    made = cast(x, kind)
    made = made if min is None else f.maximum(made, cast(min, kind))
    return made if max is None else f.minimum(made, cast(max, kind))


@aten("hardtanh")
def hardtanh(x: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    return cast(clamp(x, min_val, max_val), dtype_of(x))


aten("clamp_min")(lambda x, min: clamp(x, min))
aten("clamp_max")(lambda x, max: clamp(x, None, max))


@aten("round")
def round_(x: Any, decimals: int = 0) -> Any:
    return cast(f.round(x, decimals) if decimals else f.rint(x), dtype_of(x))


@aten("frac")
def frac(x: Any) -> Any:
    return f.subtract(x, f.trunc(x))


@aten("where")
def where(condition: Any, x: Any, other: Any) -> Any:
    return f.where(condition, *promoted(x, other))


@aten("lerp")
def lerp(x: Any, end: Any, weight: Any) -> Any:
    """Counted from the end that is nearer, as in PyTorch: with a weight of 1 it is reached."""
    share, whole = cast(weight, dtype_of(x)), cast(1, dtype_of(x))
    way = f.subtract(end, x)
    from_x = f.add(x, f.multiply(way, share))
    from_end = f.subtract(end, f.multiply(way, f.subtract(whole, share)))
    if isinstance(weight, int | float):
        return from_x if abs(weight) < 0.5 else from_end
    return f.where(f.less(f.abs(share), cast(0.5, share.dtype)), from_x, from_end)


@aten("fma", space="prims")
def fma(a: Any, b: Any, c: Any) -> Any:
    return f.add(f.multiply(a, b), c)


@aten("addcmul")
def addcmul(x: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    one, a, b = promoted(x, tensor1, tensor2)
    return f.add(one, scaled(f.multiply(a, b), value))


@aten("addcdiv")
def addcdiv(x: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    one, a, b = promoted(x, tensor1, tensor2, floats=True)
    return f.add(one, scaled(f.divide(a, b), value))


@aten("xlogy")
def xlogy(x: Any, other: Any) -> Any:
    one, two = promoted(x, other, floats=True)
    zero = f.logical_and(f.equal(one, 0), f.logical_not(f.isnan(two)))
    return f.where(zero, np.zeros((), dtype_of(one)), f.multiply(one, f.log(two)))


@aten("logit")
def logit(x: Any, eps: float | None = None) -> Any:
    held = as_float(x) if eps is None else clamp(as_float(x), eps, 1 - eps)
    return f.log(f.divide(held, f.subtract(1, held)))


@aten("nan_to_num")
def nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    return f.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@aten("heaviside")
def heaviside(x: Any, values: Any) -> Any:
    return f.heaviside(*promoted(x, values))


@aten("isclose")
def isclose(
    x: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    return f.isclose(x, other, rtol, atol, equal_nan)


@aten("polygamma")
def polygamma(n: int, x: Any) -> Any:
    return f.polygamma(n, as_float(x))


# ------------------------------------------------------------------------------------ activations


@aten("gelu")
def gelu(x: Any, approximate: str = "none") -> Any:
    return f.gelu(x, tanh=approximate == "tanh")


@aten("elu")
def elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    low = scaled(f.expm1(scaled(f.minimum(x, 0), input_scale)), alpha)
    return scaled(f.where(f.greater(x, 0), x, low), scale)


@aten("celu")
def celu(x: Any, alpha: Any = 1.0) -> Any:
    low = f.multiply(f.expm1(f.divide(f.minimum(x, 0), alpha)), cast(alpha, dtype_of(x)))
    return f.add(f.maximum(x, 0), low)


@aten("leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    return f.leaky_relu(x, slope=float(negative_slope))


@aten("prelu", "_prelu_kernel")
def prelu(x: Any, weight: Any) -> Any:
    column = (1, -1, *[1] * (x.ndim - 2)) if x.ndim > 1 else (-1,)
    slope = f.reshape(weight, column) if weight.ndim <= 1 else weight
    return f.where(f.greater(x, 0), x, f.multiply(x, slope))


@aten("softplus")
def softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    wide = scaled(x, beta)
    made = f.softplus(wide)
    made = made if beta == 1 else f.divide(made, cast(beta, dtype_of(x)))
    return f.where(f.greater(wide, cast(threshold, dtype_of(x))), x, made)


@aten("hardsigmoid")
def hardsigmoid(x: Any) -> Any:
    return f.divide(clamp(f.add(x, 3), 0, 6), cast(6, dtype_of(x)))


@aten("hardswish")
def hardswish(x: Any) -> Any:
    return f.multiply(x, hardsigmoid(x))


@aten("threshold")
def threshold(x: Any, threshold: Any, value: Any) -> Any:
    kind = dtype_of(x)
    return f.where(f.greater(x, cast(threshold, kind)), x, cast(value, kind))


@aten("hardshrink")
def hardshrink(x: Any, lambd: Any = 0.5) -> Any:
    return f.where(f.greater(f.abs(x), cast(lambd, dtype_of(x))), x, np.zeros((), dtype_of(x)))


@aten("softshrink")
def softshrink(x: Any, lambd: Any = 0.5) -> Any:
    away = f.maximum(f.subtract(f.abs(x), cast(lambd, dtype_of(x))), 0)
    return f.multiply(f.sign(x), away)


@aten("tanhshrink")
def tanhshrink(x: Any) -> Any:
    return f.subtract(x, f.tanh(x))


@aten("glu")
def glu(x: Any, dim: int = -1) -> Any:
    return f.glu(x, dim)


@aten("log_sigmoid_forward")
def log_sigmoid_forward(x: Any) -> Any:
    return f.log_sigmoid(x), f.zeros((0,), x.dtype)


# ------------------------------------------------------------------------------------ casts


def element_of(dtype: Element | None, default: Any) -> Any:
    """The NumPy type that an argument names."""
    if dtype is None:
        return default
    if not isinstance(dtype, Element):
        raise GraphError(f"{dtype!r} is no element type")
    if dtype.name.startswith("float8"):
        raise GraphError(f"elements of {dtype.name} are not supported")
    if dtype.name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype.name)


@aten("to.dtype", "to.dtype_layout", "to.device", "_to_copy", "type_as", "to.other")
def to(x: Any, dtype: Element | None = None, other: Any = None, copy: bool = False) -> Any:
    kind = dtype_of(other) if other is not None else element_of(dtype, dtype_of(x))
    return cast(x, kind)


@aten("convert_element_type", space="prims")
def convert_element_type(a: Any, dtype: Element) -> Any:
    return cast(a, element_of(dtype, None))


@aten("clone", "contiguous")
def clone(x: Any) -> Any:
    return x.copy() if isinstance(x, Tracer) else x


@aten(
    "detach", "alias", "lift_fresh", "lift", "positive", "resolve_conj", "resolve_neg", views=True
)
def alias(x: Any) -> Any:
    return x


@aten("copy")
def copy(x: Any, src: Any) -> Any:
    return f.broadcast_to(cast(src, dtype_of(x)), x.shape)


@aten("fill")
def fill(x: Any, value: Any) -> Any:
    return f.broadcast_to(cast(value, dtype_of(x)), x.shape)


@aten("zero")
def zero(x: Any) -> Any:
    return f.zeros(x.shape, x.dtype)


@aten("frexp")
@aten("frexp", space="prims")
def frexp(x: Any) -> Any:
    return f.frexp(x)


@aten("rsqrt")
def rsqrt(x: Any) -> Any:
    x = as_float(x)
    return f.reciprocal(f.sqrt(x)) if dtype_of(x).kind == "c" else f.rsqrt(x)


@aten("sigmoid", "special_expit")
def sigmoid(x: Any) -> Any:
    x = as_float(x)
    if dtype_of(x).kind == "c":
        return f.reciprocal(f.add(f.exp(f.negative(x)), cast(1, dtype_of(x))))
    return f.sigmoid(x)


@aten("sign", "sgn")
def sign(x: Any) -> Any:
    """0 of NaN, as PyTorch has it."""
    if dtype_of(x).kind == "b":
        return x
    made = f.sign(x)
    return f.where(f.isnan(x), cast(0, dtype_of(x)), made) if category(dtype_of(x)) == 2 else made


@aten("complex")
def complex_(real: Any, imag: Any) -> Any:
    return f.complex(real, imag)


aten("real")(lambda x: f.real(x))
aten("imag")(lambda x: f.imag(x))
aten("conj", "_conj", "conj_physical", "_conj_physical")(lambda x: f.conj(x))


@aten("angle")
def angle(x: Any) -> Any:
    """Of a real number pi below zero (which -0.0 is not), NaN for NaN, and else 0."""
    if dtype_of(x).kind == "c":
        return f.angle(x)
    x = as_float(x)
    none, half = cast(0, dtype_of(x)), cast(np.pi, dtype_of(x))
    return f.where(f.isnan(x), x, f.where(f.less(x, none), half, none))


def _parts(x: Any) -> Any:
    return f.stack([f.real(x), f.imag(x)], -1)


def _of_parts(x: Any) -> Any:
    return f.complex(f.getitem(x, (..., 0)), f.getitem(x, (..., 1)))


@aten("view_as_real", views=True)
def view_as_real(x: Any) -> Any:
    return views.followed(x, _parts, lambda _, written: _of_parts(written))


@aten("view_as_complex", views=True)
def view_as_complex(x: Any) -> Any:
    return views.followed(x, _of_parts, lambda _, written: _parts(written))


@aten("polar")
def polar(abs: Any, angle: Any) -> Any:
    return f.complex(f.multiply(abs, f.cos(angle)), f.multiply(abs, f.sin(angle)))
