"""Functions of keras.ops in a model: `x * 2`, `keras.ops.mean(x, axis=1)`.

Their settings are what they were made with, their arguments what they are called with. Numbers of
several kinds give reals of the width that the reals among them have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from graphc.learn.keras.activations import ACTIVATIONS
from graphc.learn.keras.norms import FUZZ, normalised
from graphc.learn.keras.table import OPERATORS, Function, Settings, Unsupported
from graphc.ops.record.value import functions as f

_REALS = {"bfloat16": ml_dtypes.bfloat16, "float": np.float32, "int": np.int32}


def operators(*names: str) -> Callable[[Any], Any]:
    """Enter settings -> function for classes of keras.ops."""

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
    """Whole numbers among reals as reals of the same width."""
    arrays = [x for x in values if hasattr(x, "dtype")]
    reals = [x for x in arrays if _kind(x) == "f"]
    if not any(_kind(x) == "f" for x in values):
        return list(values)
    element = reals[0].dtype if reals else np.float32
    return [f.astype(x, element) if hasattr(x, "dtype") and _kind(x) != "f" else x for x in values]


def _real(x: Any) -> Any:
    return x if _kind(x) == "f" else f.astype(x, np.float32)


def _element(name: Any) -> Any:
    return np.dtype(_REALS.get(str(name), str(name)))


# ---------------------------------------------------------------------------------- one by one

_REAL = (  # of reals, under NumPy's names
    *("Sqrt", "Exp", "Log", "Log1p", "Log2", "Log10", "Expm1", "Exp2", "Sin", "Cos", "Tan"),
    *("Tanh", "Sinh", "Cosh", "Arcsin", "Arccos", "Arctan", "Arcsinh", "Arccosh", "Arctanh"),
    *("Erf", "Rsqrt", "Erfinv"),
)
_ANY = {
    "Absolute": "abs",
    "Abs": "abs",
    "Negative": "negative",
    "Square": "square",
    "Sign": "sign",
    "Floor": "floor",
    "Ceil": "ceil",
    "LogicalNot": "logical_not",
    "Isnan": "isnan",
    "Isfinite": "isfinite",
    "Isinf": "isinf",
    "Reciprocal": "reciprocal",
}
_TWO = {
    "Add": "add",
    "Subtract": "subtract",
    "Multiply": "multiply",
    "Power": "power",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mod": "mod",
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
    "Arctan2": "arctan2",
    "Matmul": "matmul",
    "Dot": "dot",
}
_ACTIVATIONS = {
    "Relu": "relu",
    "ReLU": "relu",
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
    "Sparsemax": "sparsemax",
}


def _one(name: str, prepare: Function) -> Callable[[Settings], Function]:
    return lambda settings: lambda x: getattr(f, name)(prepare(x))


def _two(name: str) -> Callable[[Settings], Function]:
    return lambda settings: lambda x1, x2: getattr(f, name)(*alike(x1, x2))


def _activation(name: str) -> Callable[[Settings], Function]:
    return lambda settings: lambda x: ACTIVATIONS[name](x)


OPERATORS |= {name: _one(name.lower(), _real) for name in _REAL}
OPERATORS |= {name: _one(known, lambda x: x) for name, known in _ANY.items()}
OPERATORS |= {name: _two(known) for name, known in _TWO.items()}
OPERATORS |= {name: _activation(known) for name, known in _ACTIVATIONS.items()}


@operators("TrueDivide", "Divide")
def divide(settings: Settings) -> Function:
    return lambda x1, x2: f.divide(
        *alike(*(_real(x) if hasattr(x, "dtype") else x for x in (x1, x2)))
    )


@operators("Elu")
def elu(settings: Settings) -> Function:
    return lambda x: f.elu(x, settings.get("alpha", 1.0))


@operators("LeakyRelu")
def leaky_relu(settings: Settings) -> Function:
    return lambda x: f.leaky_relu(x, settings.get("negative_slope", 0.2))


@operators("Gelu")
def gelu(settings: Settings) -> Function:
    approximate = bool(settings.get("approximate", True))
    return lambda x: f.gelu(x, approximate=approximate)


@operators("Softmax")
def softmax(settings: Settings) -> Function:
    return lambda x: f.softmax(x, settings.get("axis", -1))


@operators("LogSoftmax")
def log_softmax(settings: Settings) -> Function:
    return lambda x: f.log_softmax(x, settings.get("axis", -1))


@operators("Clip")
def clip(settings: Settings) -> Function:
    return lambda x: f.clip(x, settings["x_min"], settings["x_max"])


@operators("Cast")
def cast(settings: Settings) -> Function:
    return lambda x: f.astype(x, _element(settings["dtype"]))


@operators("Where")
def where(settings: Settings) -> Function:
    return lambda condition, x1, x2: f.where(condition, *alike(x1, x2))


@operators("Identity")
def identity(settings: Settings) -> Function:
    return lambda x: x


# ---------------------------------------------------------------------------------- sums


def _axis(settings: Settings) -> Any:
    axis = settings.get("axis")
    return tuple(axis) if isinstance(axis, list) else axis


def _sums(name: str, prepare: Function) -> Callable[[Settings], Function]:
    def made(settings: Settings) -> Function:
        told = {"axis": _axis(settings), "keepdims": bool(settings.get("keepdims"))}
        return lambda x: getattr(f, name)(prepare(x), **told)

    return made


def _places(name: str) -> Callable[[Settings], Function]:
    def made(settings: Settings) -> Function:
        told = {"axis": settings.get("axis"), "keepdims": bool(settings.get("keepdims"))}
        return lambda x: f.astype(getattr(f, name)(x, **told), np.int32)

    return made


def _same_width(name: str) -> Callable[[Settings], Function]:
    """Sums and products have the type of their elements, as in Keras."""
    inner = _sums(name, lambda x: f.astype(x, np.int32) if _kind(x) == "b" else x)
    return lambda settings: (
        lambda x: f.astype(inner(settings)(x), np.int32 if _kind(x) == "b" else x.dtype)
    )


OPERATORS |= {name: _sums(name.lower(), _real) for name in ("Mean", "Var", "Std")}
OPERATORS |= {name: _sums(name.lower(), lambda x: x) for name in ("Max", "Min", "Any", "All")}
OPERATORS |= {"Amax": _sums("max", lambda x: x), "Amin": _sums("min", lambda x: x)}
OPERATORS |= {name: _same_width(name.lower()) for name in ("Sum", "Prod")}
OPERATORS |= {name: _places(name.lower()) for name in ("Argmax", "Argmin")}


@operators("Logsumexp")
def logsumexp(settings: Settings) -> Function:
    axis, keeps = _axis(settings), bool(settings.get("keepdims"))
    return lambda x: f.logsumexp(_real(x), axis=axis, keepdims=keeps)


@operators("Cumsum")
def cumsum(settings: Settings) -> Function:
    axis = settings.get("axis")
    return lambda x: f.astype(f.cumsum(x, axis=axis), x.dtype)


@operators("Normalize")
def normalize(settings: Settings) -> Function:
    if settings.get("order", 2) != 2:
        raise Unsupported(f"order={settings['order']!r}"[:80])
    fuzz = settings.get("epsilon")
    return lambda x: normalised(x, settings.get("axis", -1), FUZZ if fuzz is None else fuzz)


@operators("LayerNorm", "RMSNorm")
def norm(settings: Settings) -> Function:
    if settings.get("rms_scaling"):
        raise Unsupported("rms_scaling=True")
    axes = settings.get("axis", -1)
    axis = tuple(axes) if isinstance(axes, list) else (axes,)
    fuzz = FUZZ if settings.get("epsilon") is None else settings["epsilon"]

    def layer_norm(x: Any, gamma: Any = None, beta: Any = None) -> Any:
        return f.layer_norm(x, gamma, beta, axis, fuzz)

    def rms_norm(x: Any, scale: Any = None) -> Any:
        return f.rms_norm(x, scale, axis=axis, epsilon=fuzz)

    return rms_norm if "rms_scaling" not in settings else layer_norm


# ---------------------------------------------------------------------------------- shapes


@operators("Reshape")
def reshape(settings: Settings) -> Function:
    wanted = [-1 if n is None else n for n in settings["newshape"]]
    return lambda x: f.reshape(x, tuple(wanted))


@operators("Transpose")
def transpose(settings: Settings) -> Function:
    axes = settings.get("axes")
    return lambda x: f.transpose(x, None if axes is None else tuple(axes))


@operators("Concatenate")
def concatenate(settings: Settings) -> Function:
    return lambda xs: f.concatenate(alike(*xs), settings.get("axis", 0))


@operators("Stack")
def stack(settings: Settings) -> Function:
    return lambda xs: f.stack(alike(*xs), settings.get("axis", 0))


@operators("Split")
def split(settings: Settings) -> Function:
    given = settings["indices_or_sections"]
    return lambda x: tuple(f.split(x, given, axis=settings.get("axis", 0)))


@operators("Squeeze")
def squeeze(settings: Settings) -> Function:
    return lambda x: f.squeeze(x, _axis(settings))


@operators("ExpandDims")
def expand_dims(settings: Settings) -> Function:
    return lambda x: f.expand_dims(x, _axis(settings))


@operators("Swapaxes")
def swapaxes(settings: Settings) -> Function:
    return lambda x: f.swapaxes(x, settings["axis1"], settings["axis2"])


@operators("Moveaxis")
def moveaxis(settings: Settings) -> Function:
    return lambda x: f.moveaxis(x, settings["source"], settings["destination"])


@operators("Flip")
def flip(settings: Settings) -> Function:
    return lambda x: f.flip(x, _axis(settings))


@operators("Repeat")
def repeat(settings: Settings) -> Function:
    return lambda x: f.repeat(x, settings["repeats"], axis=settings.get("axis"))


@operators("Tile")
def tile(settings: Settings) -> Function:
    return lambda x: f.tile(x, settings["repeats"])


@operators("Pad")
def pad(settings: Settings) -> Function:
    width, mode = settings["pad_width"], settings.get("mode", "constant")

    def call(x: Any, constant_values: Any = None) -> Any:
        told = {} if constant_values is None else {"constant_values": constant_values}
        return f.pad(x, width, mode, **told)

    return call


@operators("BroadcastTo")
def broadcast_to(settings: Settings) -> Function:
    return lambda x: f.broadcast_to(x, tuple(settings["shape"]))


@operators("Take")
def take(settings: Settings) -> Function:
    return lambda x, indices: f.take(x, indices, axis=settings.get("axis"))


@operators("OneHot")
def one_hot(settings: Settings) -> Function:
    count, element = settings["num_classes"], _element(settings.get("dtype") or "float32")
    return lambda x: f.one_hot(x, count, element, settings.get("axis", -1))


@operators("Einsum")
def einsum(settings: Settings) -> Function:
    return lambda *operands: f.einsum(settings["subscripts"], *alike(*operands))


@operators("GetItem")
def getitem(settings: Settings) -> Function:
    return lambda x, key: f.getitem(x, tuple(key) if isinstance(key, list) else key)
