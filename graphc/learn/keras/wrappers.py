"""Layers made of a layer: how an entry of a configuration becomes one, and TimeDistributed.

{"class_name": "Dense", "config": {...}} + its weights  ->  Layer
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from graphc.base.record import replace
from graphc.errors import GraphError
from graphc.learn.keras.table import (
    KEEPS_MASK,
    MAKERS,
    OPERATORS,
    Function,
    Layer,
    Masked,
    Settings,
    Unsupported,
    Weights,
    heeding,
    kind_of,
    layers,
    rank_of,
)
from graphc.ops.record.value import functions as f

MODELS: dict[str, Callable[[Settings, Weights], Layer]] = {}  # which `network` fills
_OF_OPERATORS = ("keras.src.ops", "keras.src.activations")
_PRECISIONS = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64")},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


def wrapped(entry: Settings, weights: Weights) -> Layer:
    """The layer of an entry. Raises Unsupported, with what cannot be imported."""
    kind = kind_of(entry)
    return weights.once(entry, lambda: _made(kind, entry, weights))


def _made(kind: str, entry: Settings, weights: Weights) -> Layer:
    settings = dict(entry["config"])
    if str(entry.get("module")).startswith(_OF_OPERATORS):
        return Layer(operator(kind, settings))
    if kind in MODELS:
        return MODELS[kind](settings, weights)
    if kind not in MAKERS:
        raise Unsupported("")
    element = _element(settings)
    told = {**settings, "class_name": kind, "element": element}
    held = weights.cast_to(element)
    made = heeding(told, lambda asked: MAKERS[kind](asked, held))
    if isinstance(made, Layer):
        return replace(made, element=element, keeps_mask=kind in KEEPS_MASK)
    return Layer(made, element, kind in KEEPS_MASK)


def operator(kind: str, settings: Settings) -> Function:
    """A function of keras.ops. Raises Unsupported for one that is not known, and for a setting
    that its maker has no argument for, unless it is one that is not set."""
    if kind not in OPERATORS:
        raise Unsupported("a function of keras.ops that is not known")
    known = inspect.signature(OPERATORS[kind]).parameters
    for name, value in settings.items():
        if name not in known and name != "name" and value is not None and value is not False:
            raise Unsupported(f"{name}={value!r}"[:80])
    return OPERATORS[kind](**{name: settings[name] for name in known if name in settings})


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
def time_distributed(settings: Settings, weights: Weights) -> Layer:
    """One layer for every step: steps are as many examples more, and so is what a mask says of
    what they hold."""
    layer = wrapped(settings["layer"], weights.child("layer"))
    heeds = "mask" in inspect.signature(layer.call).parameters

    def call(inputs: Any, mask: Any = None) -> Any:
        batch, time, *rest = inputs.shape
        told = {}
        if heeds and mask is not None:
            if rank_of(mask) < 3:
                raise GraphError("a mask of whole steps for a layer that has a mask of its own")
            told["mask"] = f.reshape(mask, (-1, *mask.shape[2:]))
        found = layer.call(f.reshape(inputs, (-1, *rest)), **told)
        (part,) = found if isinstance(found, tuple) else (found,)
        made = part.value if isinstance(part, Masked) else part
        return f.reshape(made, (batch, time, *made.shape[1:]))

    return Layer(call, count=layer.count)
