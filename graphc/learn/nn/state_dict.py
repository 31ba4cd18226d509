"""Weights of PyTorch into the layers of gc.nn, from a module, its state_dict or a safetensors file,
and back.

torch.nn.Sequential(Linear(8, 32), ReLU())    {"0.weight": [32, 8], "0.bias": [32]}
nn.Sequential(nn.Dense(8, 32), nn.relu)       [{"weight": [8, 32], "bias": [32]}, None]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import CheckpointError
from graphc.frontend.trace.trace import FunctionTrace
from graphc.learn.nn import layouts
from graphc.learn.nn.attention import MultiHeadAttention
from graphc.learn.nn.layer import Layer, Sequential
from graphc.learn.nn.layers import Conv, Dense, Embedding
from graphc.learn.nn.norms import BatchNorm, LayerNorm, RMSNorm
from graphc.learn.nn.recurrent import GRU, LSTM
from graphc.ops.random import random
from graphc.ops.record.value import tracing
from graphc.runtime.files.tensors import read_tensors

Arrays = Mapping[str, Any]
SHOWN = 9


@record(frozen=True)
class Part:
    """What a kind of layer is in PyTorch.

    names    of its weights, those that may be absent last, from `required` on
    params   makes the layer's parameters of the weights, in this order
    back     makes the weights of the parameters, under these names but for suffixes
    state    names of running statistics, and what the layer calls them
    """

    names: tuple[str, ...]
    required: int
    params: Callable[..., Any]
    back: Callable[[Any], Mapping[str, Any]]
    state: Mapping[str, str] | None = None


def _alike(weight: Any, bias: Any = None) -> dict[str, Any]:
    return {"weight": weight} if bias is None else {"weight": weight, "bias": bias}


_PLAIN = ("weight", "bias")
_TIME = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
_STATISTICS = {"running_mean": "mean", "running_var": "variance"}
_HEADS = ("in_proj_weight", "out_proj.weight", "in_proj_bias", "out_proj.bias")
PARTS: dict[type[Layer], Part] = {
    Dense: Part(_PLAIN, 1, layouts.dense_from_torch, layouts.dense_to_torch),
    Conv: Part(_PLAIN, 1, _alike, dict),
    Embedding: Part(("weight",), 1, _alike, dict),
    LayerNorm: Part(_PLAIN, 1, _alike, dict),
    RMSNorm: Part(("weight",), 1, _alike, dict),
    BatchNorm: Part(_PLAIN, 2, _alike, dict, _STATISTICS),
    LSTM: Part(_TIME, 2, layouts.lstm_from_torch, layouts.lstm_to_torch),
    GRU: Part(_TIME, 2, layouts.gru_from_torch, layouts.gru_to_torch),
    MultiHeadAttention: Part(_HEADS, 2, layouts.attention_from_torch, layouts.attention_to_torch),
}


@refusing
def load_state_dict(layer: Layer, weights: Any, names: Any = "") -> tuple[Any, Any]:
    """(parameters, state) of a layer from weights of PyTorch: a module, its state_dict or the path
    of a .safetensors file.

    `names` says what PyTorch calls the layer ("encoder.0"); for a Sequential it may be a list with
    an entry for each part (None for one without weights), by default parts are called by their
    places, as those of torch.nn.Sequential are.  Dense, recurrent and attention weights are
    transposed; every shape is checked.  Raises CheckpointError that lists weights that are
    missing, of another shape, or left over.
    """
    source = _Source(_arrays(weights))
    made = source.load(layer, names)
    source.require_whole(names)
    return made


@refusing
def state_dict(layer: Layer, params: Any, state: Any = None, name: str = "") -> dict[str, Any]:
    """The weights of a layer as arrays under PyTorch's names: what load_state_dict takes.

    `name` is what PyTorch calls the layer.  An LSTM with one bias gets a second one of zeros.
    """
    prefix = f"{name}." if name else ""
    if isinstance(layer, Sequential):
        states = [None] * len(layer.layers) if state is None else state
        each = enumerate(zip(layer.layers, params, states, strict=True))
        parts = [state_dict(*part, name=f"{prefix}{k}") for k, part in each]
        return {key: array for held in parts for key, array in held.items()}
    part = next((PARTS[kind] for kind in type(layer).__mro__ if kind in PARTS), None)
    if part is None:
        return {}
    plain = {key.replace(".", "_").removesuffix("_l0"): key for key in part.names}
    made = {prefix + plain[key]: np.asarray(value) for key, value in part.back(params).items()}
    for theirs, own in (part.state or {}).items():
        if state is not None:
            made[prefix + theirs] = np.asarray(state[own])
    return made


def _arrays(weights: Any) -> Arrays:
    if isinstance(weights, str | PathLike):
        return read_tensors(Path(weights))
    held = weights.state_dict() if hasattr(weights, "state_dict") else weights
    if not isinstance(held, Mapping):
        raise CheckpointError(
            f"weights are a module, a state_dict or a path, not {type(weights).__name__}"
        )
    return {str(name): _array(value) for name, value in held.items()}


def _array(value: Any) -> Any:
    """A tensor or array as an array."""
    if isinstance(value, np.ndarray):
        return value
    held = value.detach().cpu() if hasattr(value, "detach") else value
    if str(getattr(held, "dtype", "")) == "torch.bfloat16":
        import ml_dtypes

        return np.asarray(held.float()).astype(ml_dtypes.bfloat16)
    return np.asarray(held)


class _Source:
    """Weights by their names, and what was wrong with them so far."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.used: set[str] = set()
        self.wrong: list[str] = []

    def load(self, layer: Layer, names: Any) -> tuple[Any, Any]:
        if isinstance(layer, Sequential):
            return self._sequence(layer, names)
        part = next((PARTS[kind] for kind in type(layer).__mro__ if kind in PARTS), None)
        if part is None:
            return None, layer.state()
        prefix = f"{names}." if names else ""
        found = [self._take(prefix + name, k < part.required) for k, name in enumerate(part.names)]
        state = None
        if part.state is not None:
            state = {own: self._take(prefix + n, True) for n, own in part.state.items()}
            self.used.add(f"{prefix}num_batches_tracked")
        if any(value is None for value in found[: part.required]):
            return None, state
        params = part.params(*found)
        self.wrong += shape_troubles(layer, params, state, str(names or layer))
        return params, state

    def _sequence(self, layer: Sequential, names: Any) -> tuple[Any, Any]:
        given = names
        if isinstance(names, str):
            given = [f"{names}.{k}" if names else str(k) for k in range(len(layer.layers))]
        if len(given) != len(layer.layers):
            raise CheckpointError(f"{len(given)} names for {len(layer.layers)} parts")
        made = [
            (None, part.state()) if name is None else self.load(part, name)
            for part, name in zip(layer.layers, given)
        ]
        states = [state for _, state in made]
        whole = None if all(state is None for state in states) else states
        return [params for params, _ in made], whole

    def _take(self, name: str, required: bool) -> Any:
        self.used.add(name)
        if name not in self.arrays and required:
            self.wrong.append(f"{name} is missing")
        return self.arrays.get(name)

    def require_whole(self, names: Any) -> None:
        """Raise CheckpointError for what is missing, does not fit, or is left over."""
        prefix = f"{names}." if isinstance(names, str) and names else ""
        within = (name for name in self.arrays if name.startswith(prefix))
        left = [] if isinstance(names, list | tuple) else sorted(set(within) - self.used)
        wrong = [*sorted(self.wrong), *(f"{name} is not wanted" for name in left)]
        if wrong:
            more = (f"and {len(wrong) - SHOWN} more",) if len(wrong) > SHOWN else ()
            raise CheckpointError(
                "the weights do not fit the layer",
                details=(*wrong[:SHOWN], *more),
                hint="names= says what PyTorch calls the parts",
            )


def shape_troubles(layer: Layer, params: Any, state: Any, title: str = "") -> list[str]:
    """What of parameters and state has another shape than the layer's own."""
    scratch = FunctionTrace()
    scratch.locate = None
    with tracing(scratch):
        wanted = layer.init(random.key(0)), layer.state()
    each = zip(wanted, (params, state))
    pairs = [pair for pair in each if pair[0] is not None]
    return [text for pair in pairs for text in _differences(title or repr(layer), *pair)]


def _differences(title: str, wanted: Any, given: Any) -> list[str]:
    if isinstance(wanted, dict) and isinstance(given, dict):
        names = sorted(wanted.keys() | given.keys())
        inner = [_differences(f"{title}: {n}", wanted.get(n), given.get(n)) for n in names]
        return [text for texts in inner for text in texts]
    shapes = [None if v is None else tuple(v.shape) for v in (wanted, given)]
    two_biases = None not in shapes and shapes[1] == (2, *(shapes[0] or ()))
    if shapes[0] == shapes[1] or two_biases:
        return []
    texts = ["nothing" if shape is None else str(list(shape)) for shape in shapes]
    return [f"{title} is {texts[1]}, wanted is {texts[0]}"]
