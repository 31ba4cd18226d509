"""Element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from graphc.formats.deciding_values import known, refuse
from graphc.formats.encoded_values import (
    CARRIED,
    STRINGS,
    Narrow,
    Text,
    common_form,
    laid_bare,
    text_of,
)
from graphc.formats.narrow_types import rounded
from graphc.formats.onnx.reader import element_name
from graphc.formats.onnx.table import FIRST, MICROSOFT, operator
from graphc.ops.record.value import functions as f

# Operators that one public function computes as it is.
_SAME = {
    "Abs": "abs", "Acos": "arccos", "Acosh": "arccosh", "Add": "add", "And": "logical_and",
    "Asin": "arcsin", "Asinh": "arcsinh", "Atan": "arctan", "Atanh": "arctanh",
    "BitwiseAnd": "bitwise_and", "BitwiseNot": "invert", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Equal": "equal",
    "Erf": "erf", "Exp": "exp", "Floor": "floor", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "IsNaN": "isnan", "Less": "less",
    "LessOrEqual": "less_equal", "Log": "log", "Mish": "mish", "Mul": "multiply",
    "Neg": "negative", "Not": "logical_not", "Or": "logical_or", "Reciprocal": "reciprocal",
    "Relu": "relu", "Round": "rint", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt",
    "Sub": "subtract", "Tan": "tan", "Tanh": "tanh", "Xor": "logical_xor",
}  # fmt: skip


def _same(name: str) -> Callable[..., Any]:
    return lambda *operands: getattr(f, name)(*operands)


_BROADCAST = ("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "Less")


def _aligned(function: Callable[..., Any]) -> Callable[..., Any]:
    """How two arrays met before opset 7: the axes of the second one follow `axis` of the first."""

    def apply(
        a: Any, b: Any, *, axis: int | None = None, broadcast: int = 0, consumed_inputs: Any = None
    ) -> Any:
        if broadcast and axis is not None:
            after = a.ndim - (axis % max(a.ndim, 1)) - b.ndim
            b = f.reshape(b, (*b.shape, *[1] * max(after, 0)))
        return function(a, b)

    return apply


for _operator, _name in _SAME.items():
    operator(_operator, since=7 if _operator in _BROADCAST else 1)(_same(_name))
    if _operator in _BROADCAST:
        operator(_operator)(_aligned(_same(_name)))


def is_signed_integer(x: Any) -> bool:
    return bool(np.dtype(x.dtype).kind == "i")


def is_integer(x: Any) -> bool:
    return np.dtype(x.dtype).kind in "iu"


def truncated_division(a: Any, b: Any) -> Any:
    """The quotient of integers, rounded towards zero."""
    quotient = f.floor_divide(a, b)
    if not is_signed_integer(quotient):
        return quotient
    rest = f.subtract(a, f.multiply(quotient, b))
    differ = f.astype(f.not_equal(f.less(a, 0), f.less(b, 0)), quotient.dtype)
    # A product, so that nobody asks whether the rest of a size, which has no sign, is zero.
    up = f.not_equal(f.multiply(differ, rest), 0)
    return f.add(quotient, f.astype(up, quotient.dtype))


@operator("Div", since=7)
def divide(a: Any, b: Any) -> Any:
    return truncated_division(a, b) if is_integer(a) else f.divide(a, b)


operator("Div")(_aligned(divide))


@operator("Mod")
def mod(a: Any, b: Any, *, fmod: int = 0) -> Any:
    return f.fmod(a, b) if fmod else f.remainder(a, b)


@operator("Pow", since=7)
def power(a: Any, b: Any) -> Any:
    if is_integer(a) and is_integer(b):
        return f.astype(f.power(f.astype(a, np.int64), f.astype(b, np.int64)), a.dtype)
    wide = np.promote_types(a.dtype, b.dtype) if a.dtype != b.dtype else a.dtype
    return f.astype(f.power(f.astype(a, wide), f.astype(b, wide)), a.dtype)


operator("Pow")(_aligned(power))


def _folded(name: str) -> Callable[..., Any]:
    return lambda *operands: reduce(getattr(f, name), operands)


for _operator, _name in {"Max": "maximum", "Min": "minimum", "Sum": "add"}.items():
    operator(_operator)(_folded(_name))


@operator("Mean")
def mean(*operands: Any) -> Any:
    return f.divide(reduce(f.add, operands), np.asarray(len(operands), operands[0].dtype))


@operator("BitShift")
def bit_shift(x: Any, count: Any, *, direction: str) -> Any:
    refuse(direction in ("LEFT", "RIGHT"), f"no direction {direction!r}")
    width = np.dtype(x.dtype).itemsize * 8
    inside = f.less(count, np.asarray(width, x.dtype))
    shift = f.left_shift if direction == "LEFT" else f.right_shift
    if direction == "RIGHT" and is_signed_integer(x):
        return shift(x, f.where(inside, count, np.asarray(width - 1, x.dtype)))
    amount = f.where(inside, count, np.zeros((), x.dtype))
    return f.where(inside, shift(x, amount), np.zeros((), x.dtype))


@operator("IsInf")
def is_inf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    infinite = f.isinf(x)
    if not detect_negative:
        infinite = f.logical_and(infinite, f.greater(x, 0))
    return infinite if detect_positive else f.logical_and(infinite, f.less(x, 0))


@operator("Identity", moves=FIRST)
def identity(x: Any) -> Any:
    return x


@operator("Where", moves=slice(1, 3))
def where(condition: Any, x: Any, y: Any) -> Any:
    return f.where(condition, x, y)


@operator("Equal", since=19, carried=True)
def equal(a: Any, b: Any) -> Any:
    if not isinstance(a, Text) or not isinstance(b, Text):
        return f.equal(a, b)
    if None in a.words:  # two strings that the file does not name are equal or not
        b.spelled()
    form = common_form([a, b])
    return f.equal(laid_bare(a, form), laid_bare(b, form))


@operator("Clip", since=11)
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    made = x if low is None else f.maximum(x, low)
    return made if high is None else f.minimum(made, high)


@operator("Clip")
def clip_attributes(x: Any, *, min: float | None = None, max: float | None = None) -> Any:
    low, high = (None if v is None else np.asarray(v, x.dtype) for v in (min, max))
    return clip(x, low, high)


@operator("Dropout", since=12)
def dropout(
    x: Any, ratio: Any = None, training: Any = None, *, seed: int | None = None, call: Any = None
) -> Any:
    from graphc.formats.onnx.operators.random import drop_out

    return drop_out(x, ratio, training, seed, call)


@operator("Dropout")
def dropout_inference(x: Any, *, ratio: float = 0.5, call: Any, is_test: int = 0) -> Any:
    return (x, f.ones_like(x, dtype=bool)) if call.wants(1) else x


# ------------------------------------------------------------------------------------ activations


def _scaled(x: Any, value: float) -> Any:
    """A number of the file in the type of x."""
    return np.asarray(value, x.dtype)


@operator("Elu")
def elu(x: Any, *, alpha: float = 1.0) -> Any:
    return f.where(f.less(x, 0), f.multiply(_scaled(x, alpha), f.expm1(f.minimum(x, 0))), x)


@operator("Celu")
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    low = f.multiply(f.expm1(f.divide(f.minimum(x, 0), _scaled(x, alpha))), _scaled(x, alpha))
    return f.add(f.maximum(x, 0), low)


@operator("Selu")
def selu(
    x: Any, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813
) -> Any:
    return f.multiply(elu(x, alpha=alpha), _scaled(x, gamma))


@operator("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    return f.where(f.less(x, 0), f.multiply(x, _scaled(x, alpha)), x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return f.where(f.greater(x, _scaled(x, alpha)), x, _scaled(x, 0))


@operator("PRelu")
def prelu_by_channel(x: Any, slope: Any, *, consumed_inputs: Any = None) -> Any:
    if slope.ndim == 1 and x.ndim > 2:
        slope = f.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    return prelu(x, slope)


@operator("PRelu", since=7)
def prelu(x: Any, slope: Any) -> Any:
    return f.where(f.less(x, 0), f.multiply(x, slope), x)


@operator("HardSigmoid")
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    line = f.add(f.multiply(x, _scaled(x, alpha)), _scaled(x, beta))
    return f.maximum(f.minimum(line, _scaled(x, 1)), _scaled(x, 0))


@operator("HardSwish")
def hard_swish(x: Any) -> Any:
    return f.multiply(x, hard_sigmoid(x, alpha=1 / 6, beta=0.5))


@operator("Swish")
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return f.multiply(x, f.sigmoid(f.multiply(x, _scaled(x, alpha))))


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    return swish(x, alpha=alpha)


@operator("Shrink")
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    low = f.where(f.less(x, _scaled(x, -lambd)), f.add(x, _scaled(x, bias)), _scaled(x, 0))
    return f.where(f.greater(x, _scaled(x, lambd)), f.subtract(x, _scaled(x, bias)), low)


@operator("Gelu", since=20)
@operator("Gelu", domain=MICROSOFT)
def gelu(x: Any, *, approximate: str = "none") -> Any:
    half = f.multiply(x, _scaled(x, 0.5))
    if approximate == "tanh":
        cubed = f.multiply(f.multiply(x, x), x)
        inner = f.add(x, f.multiply(cubed, _scaled(x, 0.044715)))
        inner = f.multiply(inner, _scaled(x, math.sqrt(2 / math.pi)))
        return f.multiply(half, f.add(f.tanh(inner), _scaled(x, 1)))
    inner = f.erf(f.multiply(x, _scaled(x, math.sqrt(0.5))))
    return f.multiply(half, f.add(inner, _scaled(x, 1)))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Any, bias: Any = None) -> Any:
    return gelu(x if bias is None else f.add(x, bias), approximate="tanh")


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(x: Any, bias: Any) -> Any:
    return gelu(f.add(x, bias))


# ------------------------------------------------------------------------------------ casts


def cast_to(x: Any, element: str, saturate: bool = True) -> Any:
    """x in an element type of the format, by its name."""
    if isinstance(x, Text):
        return x if element in STRINGS else _parsed(x, element)
    plain = x.value if isinstance(x, Narrow) else x
    if element in STRINGS:
        array = known(plain)
        made = np.empty(array.shape, object)
        made.reshape(-1)[:] = [_printed(number) for number in array.reshape(-1)]
        return text_of(made)
    if element in CARRIED:
        return Narrow(rounded(plain, element, saturate), element)
    target = np.dtype(element) if element != "bfloat16" else element
    return f.astype(plain, target)


def _parsed(text: Text, element: str) -> Any:
    """Numbers that strings spell."""
    words = text.spelled()
    refuse(not any("_" in word for word in words), "a string that is no number")
    kind = np.dtype(element)
    if kind.kind in "iu":
        return text.through(np.array([int(word) for word in words], kind), kind)
    return text.through(np.array([float(word) for word in words], kind), kind)


def _printed(number: Any) -> str:
    """A number as the format spells it: the fewest digits that tell it apart."""
    return str(number.item() if number.dtype.kind in "biu" else number)


@operator("Cast", carried=True)
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return cast_to(x, element_name(to), bool(saturate))


@operator("CastLike", carried=True)
def cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    if isinstance(like, Text):
        return cast_to(x, "string")
    element = like.element if isinstance(like, Narrow) else str(like.dtype)
    return cast_to(x, element, bool(saturate))


@operator("BitCast")
def bit_cast(x: Any, *, to: int) -> Any:
    element = element_name(to)
    refuse(not isinstance(x, Narrow) and element not in CARRIED, "narrow types are not recast")
    if "bool" in (element, str(x.dtype)):  # a byte that is 0 or 1
        return f.astype(x, np.dtype(element))
    return f.view(x, element)
