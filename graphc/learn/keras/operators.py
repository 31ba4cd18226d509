"""Functions of keras.ops in a model: `x * 2`, `keras.ops.mean(x, axis=1)`.

Their settings are what they were made with, their arguments what they are called with. Numbers of
several kinds give reals of the width that the reals among them have.

    maker(axis=-1) -> function    its arguments are the settings that it heeds, with what Keras has
                                  where a file does not say; `wrappers.operator` refuses others
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from graphc.learn.keras.activations import ACTIVATIONS, rectified
from graphc.learn.keras.norms import FUZZ, normalised
from graphc.learn.keras.table import OPERATORS, Function, Unsupported
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

_REALS = {"bfloat16": ml_dtypes.bfloat16, "float": np.float32, "int": np.int32}


def operators(*names: str) -> Callable[[Any], Any]:
    """Enter a maker for classes of keras.ops."""

    def enter(maker: Any) -> Any:
        OPERATORS.update(dict.fromkeys(names, maker))
        return maker

    return enter


def _kind(x: Any) -> str:
    """b i f, of a number or an array."""
    if isinstance(x, bool | int | float):
        return {bool: "b", int: "i", float: "f"}[type(x)]
    element = np.dtype(x.dtype)
    return "f" if element == ml_dtypes.bfloat16 else element.kind.replace("u", "i")


def alike(*values: Any) -> list[Any]:
    """Whole numbers among reals as reals of the same width; numbers alone in Keras's widths."""
    arrays = [x for x in values if hasattr(x, "dtype")]
    reals = [x for x in arrays if _kind(x) == "f"]
    some = any(_kind(x) == "f" for x in values)
    if not arrays:
        kinds = {_kind(x) for x in values}
        element = np.float32 if some else np.int32 if "i" in kinds else np.bool_
        return [np.asarray(x, element) for x in values]
    if not some:
        whole = any(_kind(x) == "i" for x in values if not hasattr(x, "dtype"))
        return [_number(x) if whole and hasattr(x, "dtype") else x for x in values]
    element = reals[0].dtype if reals else np.float32
    return [f.astype(x, element) if hasattr(x, "dtype") and _kind(x) != "f" else x for x in values]


def _real(x: Any) -> Any:
    return x if _kind(x) == "f" else f.astype(x, np.float32)


def _as_reals(*values: Any) -> list[Any]:
    return [_real(x) if hasattr(x, "dtype") else x for x in alike(*values)]


def _number(x: Any) -> Any:
    return f.astype(x, np.int32) if hasattr(x, "dtype") and _kind(x) == "b" else x


def _element(name: Any) -> Any:
    return np.dtype(_REALS.get(str(name), str(name)))


# ---------------------------------------------------------------------------------- one by one

_REAL = (  # of reals, under NumPy's names
    *("Sqrt", "Exp", "Log", "Log1p", "Log2", "Log10", "Expm1", "Exp2", "Sin", "Cos", "Tan"),
    *("Tanh", "Sinh", "Cosh", "Arcsin", "Arccos", "Arctan", "Arcsinh", "Arccosh", "Arctanh"),
    *("Erf", "Rsqrt", "Erfinv", "Floor", "Ceil", "Reciprocal"),
)
_ANY = {
    "Absolute": "abs",
    "Abs": "abs",
    "Negative": "negative",
    "Sign": "sign",
    "LogicalNot": "logical_not",
    "Isnan": "isnan",
    "Isfinite": "isfinite",
    "Isinf": "isinf",
}
_TWO = {
    "Add": "add",
    "Subtract": "subtract",
    "Multiply": "multiply",
    "Power": "power",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "FloorDivide": "floor_divide",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "less",
    "LessEqual": "less_equal",
    "Equal": "equal",
    "NotEqual": "not_equal",
    "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or",
    "LogicalXor": "logical_xor",
    "Matmul": "matmul",
    "Dot": "dot",
}
_ACTIVATIONS = {
    "Relu": "relu",
    "Relu6": "relu6",
    "Sigmoid": "sigmoid",
    "Mish": "mish",
    "Silu": "silu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Selu": "selu",
    "HardSigmoid": "hard_sigmoid",
    "HardSilu": "hard_silu",
    "LogSigmoid": "log_sigmoid",
    "HardTanh": "hard_tanh",
    "TanhShrink": "tanh_shrink",
    "SparsePlus": "sparse_plus",
    "SparseSigmoid": "sparse_sigmoid",
}


def _one(name: str, prepare: Function) -> Callable[[], Function]:
    return lambda: lambda x: getattr(f, name)(prepare(x))


def _two(name: str) -> Callable[[], Function]:
    return lambda: lambda x1, x2: getattr(f, name)(*alike(x1, x2))


def _activation(name: str) -> Callable[[], Function]:
    return lambda: lambda x: ACTIVATIONS[name](x)


def _as_it_is(x: Any) -> Any:
    return x


OPERATORS |= {name: _one(name.lower(), _real) for name in _REAL}
OPERATORS |= {name: _one(known, _as_it_is) for name, known in _ANY.items()}
OPERATORS |= {"Square": _one("square", _number)}
OPERATORS |= {name: _two(known) for name, known in _TWO.items()}
OPERATORS |= {name: _activation(known) for name, known in _ACTIVATIONS.items()}
OPERATORS |= {"ReLU": rectified}


@operators("TrueDivide", "Divide")
def divide() -> Function:
    return lambda x1, x2: f.divide(*_as_reals(x1, x2))


@operators("Arctan2")
def arctan2() -> Function:
    def call(x1: Any, x2: Any) -> Any:
        """A real number is an array of f32 here, whatever it meets."""
        pair = (np.asarray(x, np.float32) if isinstance(x, float) else x for x in (x1, x2))
        return f.arctan2(*_as_reals(*pair))

    return call


@operators("Mod")
def mod() -> Function:
    def call(x1: Any, x2: Any) -> Any:
        if _kind(x1) == _kind(x2) == "b":
            x1, x2 = _number(x1), _number(x2)
        return f.mod(*alike(x1, x2))

    return call


@operators("Elu")
def elu(alpha: float = 1.0) -> Function:
    return lambda x: f.elu(x, alpha)


@operators("LeakyRelu")
def leaky_relu(negative_slope: float = 0.2) -> Function:
    return lambda x: f.leaky_relu(_real(x), negative_slope)


@operators("Gelu")
def gelu(approximate: bool = True) -> Function:
    return lambda x: f.gelu(x, tanh=bool(approximate))


@operators("Softmax")
def softmax(axis: int = -1) -> Function:
    return lambda x: f.softmax(x, axis)


@operators("LogSoftmax")
def log_softmax(axis: int = -1) -> Function:
    return lambda x: f.log_softmax(x, axis)


@operators("Sparsemax")
def sparsemax(axis: int = -1) -> Function:
    return lambda x: ACTIVATIONS["sparsemax"](x, axis)


@operators("Clip")
def clip(x_min: Any, x_max: Any) -> Function:
    return lambda x: f.clip(_number(x), x_min, x_max)


@operators("Cast")
def cast(dtype: str) -> Function:
    return lambda x: f.astype(x, _element(dtype))


@operators("Where")
def where() -> Function:
    return lambda condition, x1, x2: f.where(condition, *alike(x1, x2))


@operators("Identity")
def identity() -> Function:
    return lambda x: x


@operators("ZerosLike")
def zeros_like(dtype: str | None = None) -> Function:
    return lambda x: f.zeros_like(x, dtype=None if dtype is None else _element(dtype))


@operators("OnesLike")
def ones_like(dtype: str | None = None) -> Function:
    return lambda x: f.ones_like(x, dtype=None if dtype is None else _element(dtype))


# ---------------------------------------------------------------------------------- sums


def _axis(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


def _sums(name: str, prepare: Function) -> Callable[..., Function]:
    def made(axis: Any = None, keepdims: bool = False) -> Function:
        told = {"axis": _axis(axis), "keepdims": bool(keepdims)}
        return lambda x: getattr(f, name)(prepare(x), **told)

    return made


def _extremes(name: str) -> Callable[..., Function]:
    def made(axis: Any = None, keepdims: bool = False, initial: Any = None) -> Function:
        inner = _sums(name, _as_it_is)(axis, keepdims)
        further = f.maximum if name == "max" else f.minimum
        return inner if initial is None else lambda x: further(inner(x), initial)

    return made


def _places(name: str) -> Callable[..., Function]:
    def made(axis: Any = None, keepdims: bool = False) -> Function:
        inner = _sums(name, _as_it_is)(axis, keepdims)
        return lambda x: f.astype(inner(x), np.int32)

    return made


def _totals(name: str) -> Callable[..., Function]:
    """Sums and products have the type of their elements, whole numbers 32 bits at least."""

    def made(axis: Any = None, keepdims: bool = False, dtype: str | None = None) -> Function:
        def call(x: Any) -> Any:
            element = _wide(x.dtype) if dtype is None else _element(dtype)
            inner = _sums(name, lambda x: f.astype(x, element))(axis, keepdims)
            return f.astype(inner(x), element)

        return call

    return made


def _wide(element: Any) -> Any:
    element = np.dtype(element)
    if element.kind not in "biu" or element.itemsize > 2:
        return element
    return np.dtype(np.uint32 if element.kind == "u" else np.int32)


OPERATORS |= {name: _sums(name.lower(), _real) for name in ("Mean", "Var", "Std")}
OPERATORS |= {name: _sums(name.lower(), _as_it_is) for name in ("Any", "All")}
OPERATORS |= {name: _extremes("max") for name in ("Max", "Amax")}
OPERATORS |= {name: _extremes("min") for name in ("Min", "Amin")}
OPERATORS |= {name: _totals(name.lower()) for name in ("Sum", "Prod")}
OPERATORS |= {name: _places(name.lower()) for name in ("Argmax", "Argmin")}


@operators("Logsumexp")
def logsumexp(axis: Any = None, keepdims: bool = False) -> Function:
    return lambda x: f.logsumexp(_real(x), axis=_axis(axis), keepdims=bool(keepdims))


@operators("Cumsum")
def cumsum(axis: int | None = None, dtype: str | None = None) -> Function:
    def call(x: Any) -> Any:
        x = _number(x if dtype is None else f.astype(x, _element(dtype)))
        return f.astype(f.cumsum(x, axis=axis), x.dtype)

    return call


@operators("Normalize")
def normalize(axis: Any = -1, order: Any = 2, epsilon: float | None = None) -> Function:
    if order != 2:
        raise Unsupported(f"order={order!r}"[:80])
    return lambda x: normalised(_real(x), _axis(axis), FUZZ if epsilon is None else epsilon)


def _axes(axis: Any) -> tuple[int, ...]:
    return tuple(axis) if isinstance(axis, list) else (axis,)


@operators("LayerNorm")
def layer_norm(axis: Any = -1, epsilon: float | None = None) -> Function:
    fuzz = FUZZ if epsilon is None else epsilon
    return lambda x, gamma=None, beta=None: f.layer_norm(x, gamma, beta, _axes(axis), fuzz)


@operators("RMSNorm")
def rms_norm(axis: Any = -1, epsilon: float | None = None) -> Function:
    fuzz = FUZZ if epsilon is None else epsilon
    return lambda x, scale=None: f.rms_norm(x, scale, axis=_axes(axis), epsilon=fuzz)


# ---------------------------------------------------------------------------------- shapes


@operators("Reshape")
def reshape(newshape: Any) -> Function:
    return lambda x: f.reshape(x, tuple(-1 if n is None else n for n in newshape))


@operators("Transpose")
def transpose(axes: Any = None) -> Function:
    return lambda x: f.transpose(x, None if axes is None else tuple(axes))


@operators("Concatenate")
def concatenate(axis: int = 0) -> Function:
    return lambda xs: f.concatenate(alike(*xs), axis)


@operators("Stack")
def stack(axis: int = 0) -> Function:
    return lambda xs: f.stack(alike(*xs), axis)


@operators("Split")
def split(indices_or_sections: Any, axis: int = 0) -> Function:
    return lambda x: tuple(f.split(x, indices_or_sections, axis=axis))


@operators("Squeeze")
def squeeze(axis: Any = None) -> Function:
    return lambda x: f.squeeze(x, _axis(axis))


@operators("ExpandDims")
def expand_dims(axis: Any) -> Function:
    return lambda x: f.expand_dims(x, _axis(axis))


@operators("Swapaxes")
def swapaxes(axis1: int, axis2: int) -> Function:
    return lambda x: f.swapaxes(x, axis1, axis2)


@operators("Moveaxis")
def moveaxis(source: Any, destination: Any) -> Function:
    return lambda x: f.moveaxis(x, source, destination)


@operators("Flip")
def flip(axis: Any = None) -> Function:
    return lambda x: f.flip(x, _axis(axis))


@operators("Repeat")
def repeat(repeats: Any, axis: int | None = None) -> Function:
    if isinstance(repeats, list):
        check_within("folded_elements", sum(repeats), f"{sum(repeats)} repeats of elements")
    return lambda x: f.repeat(x, repeats, axis=axis)


@operators("Tile")
def tile(repeats: Any) -> Function:
    return lambda x: f.tile(x, repeats)


@operators("Pad")
def pad(pad_width: Any, mode: str = "constant") -> Function:
    def call(x: Any, constant_values: Any = None) -> Any:
        told = {} if constant_values is None else {"constant_values": constant_values}
        return f.pad(x, pad_width, mode, **told)

    return call


@operators("BroadcastTo")
def broadcast_to(shape: Any) -> Function:
    return lambda x: f.broadcast_to(x, tuple(shape))


@operators("Take")
def take(axis: int | None = None) -> Function:
    return lambda x, indices: f.take(x, indices, axis=axis)


@operators("OneHot")
def one_hot(num_classes: int, axis: int = -1, dtype: str | None = None) -> Function:
    return lambda x: f.one_hot(x, num_classes, _element(dtype or "float32"), axis)


@operators("Einsum")
def einsum(subscripts: str) -> Function:
    return lambda *operands: f.einsum(subscripts, *alike(*operands))


@operators("GetItem")
def getitem() -> Function:
    return lambda x, key: f.getitem(x, tuple(key) if isinstance(key, list) else key)
