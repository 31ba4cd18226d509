"""Layers made of a layer: how an entry of a configuration becomes one, and TimeDistributed.

{"class_name": "Dense", "config": {...}} + its weights  ->  Layer
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from graphc.base.record import record
from graphc.learn.keras.table import (
    KEEPS_MASK,
    MAKERS,
    OPERATORS,
    Function,
    Masked,
    Settings,
    Unsupported,
    Weights,
    layers,
)
from graphc.ops.record.value import functions as f

MODELS: dict[str, Callable[[Settings, Weights], Function]] = {}  # which `network` fills
_OF_OPERATORS = ("keras.src.ops", "keras.src.activations")
_PRECISIONS = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64")},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@record(frozen=True)
class Layer:
    """A layer as a function.

    element     of the real numbers that it computes with; None for functions of keras.ops, which
                take what they are given
    keeps_mask  its result has the mask of its first argument
    """

    call: Function
    element: Any = None
    keeps_mask: bool = False


def wrapped(entry: Settings, weights: Weights) -> Layer:
    """The layer of an entry. Raises Unsupported, with what cannot be imported."""
    kind, settings = str(entry["class_name"]), dict(entry["config"])
    weights = weights.of(entry)
    if str(entry.get("module")).startswith(_OF_OPERATORS):
        if kind not in OPERATORS:
            raise Unsupported("a function of keras.ops that is not known")
        return Layer(OPERATORS[kind](settings))
    if entry.get("registered_name") not in (None, kind):
        raise Unsupported("a class of one's own")
    if kind in MODELS:
        return Layer(MODELS[kind](settings, weights))
    if kind not in MAKERS:
        raise Unsupported("")
    element = _element(settings)
    told = {**settings, "class_name": kind, "element": element}
    call = MAKERS[kind](told, weights.cast_to(element))
    return Layer(call, element, kind in KEEPS_MASK)


def _element(settings: Settings) -> Any:
    """What a layer computes with: its policy says so, mixed or not."""
    policy = settings.get("dtype") or "float32"
    told = policy["config"] if isinstance(policy, dict) else {"name": policy}
    name = str(told.get("name") or told.get("mode"))
    plain = name.removeprefix("mixed_")
    if plain in _PRECISIONS:
        return _PRECISIONS[plain]
    if "name" in told and np.dtype(plain).kind in "iub":
        return _PRECISIONS["float32"]
    raise Unsupported(f"weights of the precision {name!r}"[:80])


@layers("TimeDistributed", keeps_mask=True)
def time_distributed(settings: Settings, weights: Weights) -> Function:
    """One layer for every step: steps are as many examples more."""
    layer = wrapped(settings["layer"], weights.child("layer"))

    def call(inputs: Any) -> Any:
        batch, time, *rest = inputs.shape
        found = layer.call(f.reshape(inputs, (-1, *rest)))
        (part,) = found if isinstance(found, tuple) else (found,)
        made = part.value if isinstance(part, Masked) else part
        return f.reshape(made, (batch, time, *made.shape[1:]))

    return call
