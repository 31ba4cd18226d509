"""Activations by name, and the layers that are nothing else."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from graphc.learn.keras.table import (
    Function,
    Settings,
    Unsupported,
    Weights,
    heeding,
    kind_of,
    layers,
    rank_of,
)
from graphc.ops.record.value import functions as f

_SAME = (
    *("relu", "sigmoid", "tanh", "gelu", "silu", "elu", "selu", "softplus", "mish", "celu", "glu"),
    *("hard_silu", "log_sigmoid", "softmax", "log_softmax"),
)


def _public(name: str, x: Any, **settings: Any) -> Any:
    return getattr(f, name)(x, **settings)


def _shrunk(x: Any, kept: Any) -> Any:
    """`kept` where x lies beyond half a unit, else 0."""
    return f.where(f.greater(f.abs(x), 0.5), kept, f.zeros_like(x))


def sparsemax(x: Any, axis: int = -1) -> Any:
    """As Keras 3 computes it: of the largest elements their running sums, all of them, are added up
    where the nearest point of the simplex (Martins and Astudillo, 2016) takes the last alone."""
    rows = f.moveaxis(x, axis, -1)
    falling = f.negative(f.sort(f.negative(rows), axis=-1))
    sums = f.cumsum(falling, axis=-1)
    ranks = np.arange(1, rows.shape[-1] + 1).astype(rows.dtype)
    held = f.greater(f.subtract(falling, f.divide(f.subtract(sums, 1), ranks)), 0)
    count = f.astype(f.sum(f.astype(held, np.int32), axis=-1, keepdims=True), rows.dtype)
    total = f.sum(f.where(held, sums, f.zeros_like(sums)), axis=-1, keepdims=True)
    made = f.maximum(f.subtract(rows, f.divide(f.subtract(total, 1), count)), 0)
    return f.moveaxis(made, -1, axis)


def _sparse_plus(x: Any) -> Any:
    middle = f.multiply(f.square(f.add(x, 1)), 0.25)
    return f.where(f.less(x, 1), f.where(f.less_equal(x, -1), f.zeros_like(x), middle), x)


ACTIVATIONS: dict[str, Function] = {
    "linear": lambda x: x,
    "exponential": lambda x: f.exp(x),
    "relu6": lambda x: f.clip(x, 0, 6),
    "hard_sigmoid": lambda x: f.divide(f.clip(f.add(x, 3), 0, 6), 6),
    "leaky_relu": lambda x, negative_slope=0.2: f.leaky_relu(x, negative_slope),
    "swish": lambda x: f.silu(x),
    "hard_swish": lambda x: f.hard_silu(x),
    "softsign": lambda x: f.divide(x, f.add(f.abs(x), 1)),
    "hard_tanh": lambda x: f.clip(x, -1, 1),
    "hard_shrink": lambda x: _shrunk(x, x),
    "soft_shrink": lambda x: _shrunk(x, f.subtract(x, f.multiply(f.sign(x), 0.5))),
    "tanh_shrink": lambda x: f.subtract(x, f.tanh(x)),
    "sparse_plus": _sparse_plus,
    "sparse_sigmoid": lambda x: f.clip(f.multiply(f.add(x, 1), 0.5), 0, 1),
    "squareplus": lambda x: f.multiply(f.add(x, f.sqrt(f.add(f.square(x), 4))), 0.5),
    "sparsemax": sparsemax,
    **{name: partial(_public, name) for name in _SAME},
}


def activation(settings: Settings, name: str = "activation") -> Function:
    """The function that a setting names, or a layer that is given there."""
    found = settings.get(name) or "linear"
    if isinstance(found, dict) and found.get("class_name") in _LAYERS:
        maker = _LAYERS[kind_of(found)]
        return heeding(found["config"], lambda told: maker(told, Weights(None)))
    if not isinstance(found, str) or found not in ACTIVATIONS:
        raise Unsupported(f"{name}={found!r}"[:80])
    return ACTIVATIONS[found]


@layers("Activation", keeps_mask=True)
def activation_layer(settings: Settings, weights: Weights) -> Function:
    return activation(settings)


@layers("ReLU", keeps_mask=True)
def relu(settings: Settings, weights: Weights) -> Function:
    names = ("negative_slope", "max_value", "threshold")
    return rectified(**{name: settings[name] for name in names if name in settings})


def rectified(
    negative_slope: float | None = 0.0, max_value: Any = None, threshold: float | None = 0.0
) -> Function:
    """x from the threshold on, at most the maximum; a line of the slope below it."""
    slope, start = negative_slope or 0.0, threshold or 0.0

    def call(inputs: Any) -> Any:
        above = inputs if max_value is None else f.clip(inputs, 0, max_value)
        if not slope and not start:
            return f.relu(above)
        below = f.multiply(f.subtract(inputs, start), slope)
        return f.where(f.greater(inputs, start), above, below)

    return call


@layers("LeakyReLU", keeps_mask=True)
def leaky_relu(settings: Settings, weights: Weights) -> Function:
    slope = settings.get("negative_slope", 0.3)
    return lambda inputs: f.leaky_relu(inputs, slope)


@layers("ELU", keeps_mask=True)
def elu(settings: Settings, weights: Weights) -> Function:
    alpha = settings.get("alpha", 1.0)
    return lambda inputs: f.elu(inputs, alpha)


@layers("PReLU", keeps_mask=True)
def prelu(settings: Settings, weights: Weights) -> Function:
    (slopes,) = weights.arrays

    def call(inputs: Any) -> Any:
        below = f.multiply(slopes, f.minimum(inputs, 0))
        return f.add(f.maximum(inputs, 0), below)

    return call


@layers("Softmax", keeps_mask=True)
def softmax(settings: Settings, weights: Weights) -> Function:
    axis = settings.get("axis", -1)
    axes = tuple(axis) if isinstance(axis, list) else (axis,)

    def call(inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return _softmax(inputs, axes)
        kept = mask if rank_of(mask) == rank_of(inputs) else _behind(mask, inputs)
        low = f.full_like(inputs, np.finfo(np.float16).min if _is_half(inputs) else -3e38)
        return f.where(kept, _softmax(f.where(kept, inputs, low), axes), f.zeros_like(inputs))

    return call


def _is_half(x: Any) -> bool:
    return bool(np.dtype(x.dtype) == np.float16)


def _behind(mask: Any, x: Any) -> Any:
    """A mask with axes before it, as NumPy broadcasts."""
    return f.reshape(mask, (*(1,) * (rank_of(x) - rank_of(mask)), *mask.shape))


def _softmax(x: Any, axes: tuple[int, ...]) -> Any:
    if len(axes) == 1:
        return f.softmax(x, axes[0])
    made = f.exp(f.subtract(x, f.max(x, axis=axes, keepdims=True)))
    return f.divide(made, f.sum(made, axis=axes, keepdims=True))


_LAYERS = {"ReLU": relu, "LeakyReLU": leaky_relu, "ELU": elu, "Softmax": softmax}
