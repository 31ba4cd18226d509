"""Norms, and layers that scale by known numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.learn.keras.table import (
    Array,
    Function,
    Layer,
    Settings,
    Weights,
    as_real,
    expect,
    layers,
    rank_of,
)
from graphc.learn.keras.wrappers import wrapped
from graphc.ops.record.value import functions as f

FUZZ = 1e-7  # what Keras calls epsilon()


def _axes(axis: int | list[int], rank: int) -> list[int]:
    return [a % rank for a in (axis if isinstance(axis, list) else [axis])]


def _affine(settings: Settings, weights: Weights) -> tuple[Array | None, Array | None, list[Array]]:
    """(scale, centre, the other arrays)."""
    arrays = weights.arrays
    scale = arrays.pop(0) if settings.get("scale", True) else None
    return scale, arrays.pop(0) if settings.get("center", True) else None, arrays


@layers("BatchNormalization", keeps_mask=True)
def batch_norm(settings: Settings, weights: Weights) -> Function:
    expect(settings, renorm=False)
    scale, centre, (mean, variance) = _affine(settings, weights)
    axis, epsilon = settings.get("axis", -1), settings.get("epsilon", 1e-3)

    def call(inputs: Any, mask: Any = None) -> Any:
        """Which steps count matters to the moments of training alone."""
        (place,) = _axes(axis, rank_of(inputs))
        return f.batch_norm(inputs, mean, variance, scale, centre, place, epsilon)

    return call


@layers("LayerNormalization", "RMSNormalization", keeps_mask=True)
def layer_norm(settings: Settings, weights: Weights) -> Function:
    expect(settings, rms_scaling=False)
    axis, epsilon = settings.get("axis", -1), settings.get("epsilon", 1e-3)
    if settings["class_name"] == "RMSNormalization":
        scale, centre, norm = *_affine({"center": False}, weights)[:2], f.rms_norm
    else:
        scale, centre, norm = *_affine(settings, weights)[:2], f.layer_norm

    def call(inputs: Any) -> Any:
        axes = _axes(axis, rank_of(inputs))
        last = list(range(-len(axes), 0))
        moved = f.moveaxis(inputs, axes, last)
        biases = {} if centre is None else {"bias": centre}
        made = norm(moved, scale, axis=tuple(last), epsilon=epsilon, **biases)
        return f.moveaxis(made, last, axes)

    return call


@layers("GroupNormalization", keeps_mask=True)
def group_norm(settings: Settings, weights: Weights) -> Function:
    scale, centre, _ = _affine(settings, weights)
    groups, epsilon = settings["groups"], settings.get("epsilon", 1e-3)
    given = settings.get("axis", -1)

    def call(inputs: Any) -> Any:
        (axis,) = _axes(given, rank_of(inputs))
        count = inputs.shape[axis] if groups == -1 else groups
        return f.group_norm(inputs, count, scale, centre, axis, epsilon)

    return call


def normalised(x: Any, axis: Any, fuzz: float = FUZZ) -> Any:
    """x with a sum of squares of 1 along axes."""
    total = f.sum(f.square(x), axis=axis, keepdims=True)
    return f.multiply(x, f.minimum(f.divide(1, f.sqrt(total)), 1 / fuzz))


@layers("UnitNormalization", keeps_mask=True)
def unit_norm(settings: Settings, weights: Weights) -> Function:
    axis = settings.get("axis", -1)
    return lambda inputs: normalised(inputs, tuple(_axes(axis, rank_of(inputs))), 1e-12)


@layers("SpectralNormalization")
def spectral_norm(settings: Settings, weights: Weights) -> Layer:
    """The kernel was divided by its norm while training."""
    return wrapped(settings["layer"], weights.child("layer"))


@layers("Normalization", keeps_mask=True)
def normalization(settings: Settings, weights: Weights) -> Function:
    """Less the mean, by the standard deviation, of each place along some axes."""
    if settings.get("mean") is not None:
        mean, variance = (np.asarray(settings[k], np.float32) for k in ("mean", "variance"))
    else:
        mean, variance, *_ = weights.arrays
    spread = np.maximum(np.sqrt(variance), np.asarray(FUZZ, variance.dtype))
    inverse, axis = bool(settings.get("invert")), settings.get("axis", -1)

    def call(inputs: Any) -> Any:
        rank = rank_of(inputs)
        kept = () if axis is None else _axes(axis, rank)
        shape = [inputs.shape[k] if k in kept else 1 for k in range(rank)]
        middle, width = (a.reshape(() if a.size == 1 else shape) for a in (mean, spread))
        x = as_real(inputs, mean.dtype)
        if inverse:
            return f.add(f.multiply(x, width), middle)
        return f.divide(f.subtract(x, middle), width)

    return call


@layers("Rescaling", keeps_mask=True)
def rescaling(settings: Settings, weights: Weights) -> Function:
    scale, offset = (np.asarray(settings.get(k, v)) for k, v in (("scale", 1), ("offset", 0)))
    element = settings["element"]

    def call(inputs: Any) -> Any:
        x = f.astype(inputs, element)
        return f.add(f.multiply(x, scale.astype(element)), offset.astype(element))

    return call
