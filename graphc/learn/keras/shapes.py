"""Layers that move elements, pass them on, or merge several inputs."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.learn.keras.images import is_first
from graphc.learn.keras.norms import normalised
from graphc.learn.keras.table import Function, Masked, Settings, Weights, layers, rank_of
from graphc.ops.record.value import functions as f

_RANDOM = ("Flip", "Rotation", "Zoom", "Contrast", "Brightness", "Translation", "Height", "Width")


@layers("Dropout", "GaussianNoise", "GaussianDropout", "AlphaDropout", keeps_mask=True)
@layers("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", keeps_mask=True)
@layers("ActivityRegularization", "Identity", keeps_mask=True)
@layers(*(f"Random{name}" for name in _RANDOM))
def identity(settings: Settings, weights: Weights) -> Function:
    dict(settings)  # heeds them all: what they say holds in training alone
    return lambda inputs: inputs


@layers("Flatten")
def flatten(settings: Settings, weights: Weights) -> Function:
    first = is_first(settings)

    def call(inputs: Any) -> Any:
        if first and rank_of(inputs) > 2:
            inputs = f.moveaxis(inputs, 1, -1)
        return f.reshape(inputs, (inputs.shape[0], -1))

    return call


@layers("Reshape")
def reshape(settings: Settings, weights: Weights) -> Function:
    wanted = settings["target_shape"]
    return lambda inputs: f.reshape(inputs, (inputs.shape[0], *wanted))


@layers("Permute")
def permute(settings: Settings, weights: Weights) -> Function:
    axes = (0, *settings["dims"])
    return lambda inputs: f.transpose(inputs, axes)


@layers("RepeatVector")
def repeat_vector(settings: Settings, weights: Weights) -> Function:
    count = settings["n"]
    return lambda inputs: f.repeat(f.expand_dims(inputs, 1), count, axis=1)


@layers("Concatenate")
def concatenate(settings: Settings, weights: Weights) -> Function:
    axis = settings.get("axis", -1)

    def call(inputs: Any, mask: Any = None) -> Any:
        made = f.concatenate(list(inputs), axis)
        if mask is None:
            return made
        masks = [_for_elements(*pair) for pair in zip(inputs, mask, strict=True)]
        return Masked(made, f.any(f.concatenate(masks, axis), axis=-1))

    return call


def _for_elements(x: Any, mask: Any) -> Any:
    if mask is not None and rank_of(mask) == rank_of(x):
        return mask
    if mask is None:
        return f.ones_like(x, dtype=np.bool_)
    return f.logical_or(f.expand_dims(mask, -1), f.zeros_like(x, dtype=np.bool_))


@layers("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")
def merge(settings: Settings, weights: Weights) -> Function:
    name = settings["class_name"].lower()
    both = getattr(f, "add" if name == "average" else name)

    def call(inputs: Any, mask: Any = None) -> Any:
        most = max(map(rank_of, inputs))  # what has fewer axes gets others behind that of the batch
        grown = [f.expand_dims(p, tuple(range(1, most - rank_of(p) + 1))) for p in inputs]
        masks = [None] * len(inputs) if mask is None else list(mask)
        if name in ("multiply", "maximum", "minimum"):
            kept = [_of_elements(*pair) for pair in zip(grown, masks, strict=True)]
            made = (_product if name == "multiply" else partial(_extreme, both))(grown, kept)
        else:
            made = reduce(both, grown)
        made = f.divide(made, len(inputs)) if name == "average" else made
        return Masked(made, _either(masks))

    return call


def _of_elements(x: Any, mask: Any) -> Any:
    """The mask of steps [batch, time ...] for elements [batch, time ..., width]."""
    if mask is None or rank_of(mask) + 1 == rank_of(x):
        return None if mask is None else f.expand_dims(mask, -1)
    raise GraphError("values with masks are merged where these have one axis less than they")


def _product(values: list[Any], masks: list[Any]) -> Any:
    """What does not count is 1, and 0 where nothing does."""
    ones = (x if m is None else f.where(m, x, f.ones_like(x)) for x, m in zip(values, masks))
    made, some = reduce(f.multiply, ones), _either(masks)
    return made if some is None else f.where(some, made, f.zeros_like(made))


def _extreme(both: Function, values: list[Any], masks: list[Any]) -> Any:
    """In place of what does not count stands what the others have made."""
    made, kept = values[0], masks[0]
    for x, mask in zip(values[1:], masks[1:]):
        part = x if mask is None else f.where(mask, x, made)
        made = both(made if kept is None else f.where(kept, made, part), part)
        kept = _either([kept, mask])
    return made


def _either(masks: Any) -> Any:
    """Steps count that count in one of them; all do where one has no mask."""
    made, *rest = masks
    for mask in rest:
        made = None if made is None or mask is None else f.logical_or(made, mask)
    return made


@layers("Dot")
def dot(settings: Settings, weights: Weights) -> Function:
    """Products of two inputs, example by example, summed over one axis of each."""
    given = settings["axes"]
    wanted = tuple(given) if isinstance(given, list) else (given, given)
    normalises = bool(settings.get("normalize"))

    def call(inputs: Any) -> Any:
        axes = [axis % rank_of(x) for axis, x in zip(wanted, inputs, strict=True)]
        x, y = inputs
        if normalises:
            x, y = normalised(x, axes[0]), normalised(y, axes[1])
        x, y = f.moveaxis(x, axes[0], -1), f.moveaxis(y, axes[1], 1)
        outer = (*x.shape[:-1], *y.shape[2:])
        left = f.reshape(x, (x.shape[0], -1, x.shape[-1]))
        made = f.matmul(left, f.reshape(y, (*y.shape[:2], -1)))
        return f.reshape(made, outer if len(outer) > 1 else (*outer, 1))

    return call
