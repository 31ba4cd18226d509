"""Models of Keras 3 from their .keras files: configuration, weights, and no Keras.

    model.keras   config.json        layers, and which reads which   -> Call, in the order they run
                  model.weights.h5   arrays under the kinds of layers -> the layers of gc.nn

    gc.load("model.keras")(images)   arrays as Keras has them: [batch, height, width, channels]

What runs is inference: dropout and its like pass everything on.  A file is data: nothing in it is
imported, and layers that are not of the table below are refused by name, all of them at once.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.formats.kinds import Kind
from graphc.formats.model import ImportedModel
from graphc.learn.nn.attention import MultiHeadAttention
from graphc.learn.nn.keras import MALFORMED, PARTS, _arrays, opened_weights
from graphc.learn.nn.layers import Conv, Dense, Embedding
from graphc.learn.nn.norms import BatchNorm, LayerNorm, RMSNorm
from graphc.learn.nn.recurrent import GRU, LSTM
from graphc.limits import check_within
from graphc.ops.record.value import functions as f
from graphc.runtime.files.stable_file import OpenFile

Array = np.ndarray[Any, Any]
Settings = Mapping[str, Any]
Function = Callable[..., Any]
Maker = Callable[[Settings, list[Array]], Function]
SHOWN = 9


class Unsupported(Exception):
    """A setting of a layer that cannot be imported; the message says which."""


# ------------------------------------------------------------------------------------ layers


MAKERS: dict[str, Maker] = {}


def layers(*names: str) -> Callable[[Maker], Maker]:
    """Enter a maker (settings, weights) -> function of the layer's inputs, for kinds of layers."""

    def enter(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(names, maker))
        return maker

    return enter


def expect(settings: Settings, **values: Any) -> None:
    """Raise Unsupported for a setting that is there and has another value."""
    for name, value in values.items():
        if settings.get(name, value) != value:
            raise Unsupported(f"{name}={settings[name]!r}"[:80])


_PLAIN = ("relu", "sigmoid", "tanh", "gelu", "silu", "elu", "selu", "softplus", "mish")


def _public(name: str, x: Any) -> Any:
    return getattr(f, name)(x)


ACTIVATIONS: dict[str, Function] = {
    "linear": lambda x: x,
    "exponential": lambda x: f.exp(x),
    "relu6": lambda x: f.clip(x, 0, 6),
    "hard_sigmoid": lambda x: f.divide(f.clip(f.add(x, 3), 0, 6), 6),
    "softmax": lambda x: f.softmax(x, -1),
    "log_softmax": lambda x: f.log_softmax(x, -1),
    "leaky_relu": lambda x: f.leaky_relu(x, 0.2),
    "swish": lambda x: f.silu(x),
    "softsign": lambda x: f.divide(x, f.add(f.abs(x), 1)),
    **{name: partial(_public, name) for name in _PLAIN},
}


def activation(settings: Settings, name: str = "activation") -> Function:
    found = settings.get(name) or "linear"
    if not isinstance(found, str) or found not in ACTIVATIONS:
        raise Unsupported(f"{name}={found!r}"[:80])
    return ACTIVATIONS[found]


def with_weights(layer: Any, weights: list[Array]) -> Function:
    """A layer of gc.nn with weights in the order of Keras."""
    part = PARTS[type(layer)]
    if not part.least <= len(weights) <= len(part.names):
        raise Unsupported(f"{len(weights)} weights for {part.least} to {len(part.names)}")
    params, state = part.load(layer, *weights)
    return lambda x: layer(params, x, state)


def rank_of(x: Any) -> int:
    return len(x.shape)


def channels_first(settings: Settings, function: Function) -> Function:
    """A function of [batch, channels, *spatial] for images as the settings say that they lie."""
    if settings.get("data_format", "channels_last") == "channels_first":
        return function

    def moved(x: Any) -> Any:
        return f.moveaxis(function(f.moveaxis(x, -1, 1)), 1, -1)

    return moved


@layers("Dense")
def dense(settings: Settings, weights: list[Array]) -> Function:
    inputs, outputs = weights[0].shape
    layer = with_weights(Dense(inputs, outputs, len(weights) == 2), weights)
    after = activation(settings)
    return lambda x: after(layer(x))


@layers("Conv1D", "Conv2D", "Conv3D")
def conv(settings: Settings, weights: list[Array]) -> Function:
    *window, inputs, outputs = weights[0].shape
    groups, padding = settings.get("groups", 1), settings.get("padding", "valid")
    spread = settings.get("dilation_rate", 1)
    if padding == "causal":
        (step,) = spread if isinstance(spread, list) else (spread,)
        padding = [((window[0] - 1) * step, 0)]
    layer = Conv(
        *(inputs * groups, outputs, tuple(window), _each(settings.get("strides", 1))),
        *(padding, _each(spread), groups, len(weights) == 2),
    )
    after, inner = activation(settings), with_weights(layer, weights)
    return channels_first(settings, lambda x: after(inner(x)))


def _each(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@layers("Embedding")
def embedding(settings: Settings, weights: list[Array]) -> Function:
    expect(settings, mask_zero=False)
    count, width = weights[0].shape
    inner = with_weights(Embedding(count, width), weights)
    return lambda x: inner(f.astype(x, np.int32) if np.dtype(x.dtype).kind == "f" else x)


@layers("LayerNormalization", "RMSNormalization")
def layer_norm(settings: Settings, weights: list[Array]) -> Function:
    expect(settings, scale=True, rms_scaling=False)
    axes, epsilon = settings.get("axis", -1), settings.get("epsilon", 1e-3)
    whole = list(range(-weights[0].ndim, 0))
    if "center" not in settings:  # the keyword that only the other one has
        return _last(axes, whole, with_weights(RMSNorm(weights[0].shape, epsilon), weights))
    layer = LayerNorm(weights[0].shape, epsilon, bool(settings["center"]))
    return _last(axes, whole, with_weights(layer, weights))


def _last(axes: Any, whole: list[int], function: Function) -> Function:
    """A function over the trailing axes, where these are they."""
    given = axes if isinstance(axes, list) else [axes]

    def checked(x: Any) -> Any:
        rank = rank_of(x)
        if sorted(a % rank for a in given) != [a % rank for a in whole]:
            raise GraphError(f"a norm over the axes {given} of {rank}: only the last can be")
        return function(x)

    return checked


@layers("BatchNormalization")
def batch_norm(settings: Settings, weights: list[Array]) -> Function:
    expect(settings, center=True, scale=True, renorm=False)
    axis = settings.get("axis", -1)
    (place,) = axis if isinstance(axis, list) else (axis,)
    layer = BatchNorm(weights[0].size, epsilon=settings.get("epsilon", 1e-3), axis=place)
    return with_weights(layer, weights)


def _recurrent(settings: Settings) -> None:
    expect(settings, activation="tanh", recurrent_activation="sigmoid", return_state=False)
    expect(settings, go_backwards=False, stateful=False, time_major=False)


@layers("GRU")
def gru(settings: Settings, weights: list[Array]) -> Function:
    _recurrent(settings)
    inputs, hidden = weights[0].shape[0], weights[1].shape[0]
    sequences, after = bool(settings.get("return_sequences")), settings.get("reset_after", True)
    return with_weights(GRU(inputs, hidden, sequences, reset_after=after), weights)


@layers("LSTM")
def lstm(settings: Settings, weights: list[Array]) -> Function:
    _recurrent(settings)
    inputs, hidden = weights[0].shape[0], weights[1].shape[0]
    return with_weights(LSTM(inputs, hidden, bool(settings.get("return_sequences"))), weights)


@layers("MultiHeadAttention")
def attention(settings: Settings, weights: list[Array]) -> Function:
    """Queries, values and, where they are others, keys, as Keras orders them."""
    expect(settings, output_shape=None, attention_axes=[1], use_gate=False, sliding_window=None)
    width, heads, part = weights[0].shape
    expect({"key_dim": part, "value_dim": settings.get("value_dim")}, key_dim=width // heads)
    expect(settings, value_dim=part)
    layer, causal = (
        MultiHeadAttention(width, heads, causal, bias=len(weights) == 8) for causal in (False, True)
    )
    params, _ = PARTS[MultiHeadAttention].load(layer, *weights)

    def attend(query: Any, value: Any, key: Any = None, use_causal_mask: bool = False) -> Any:
        if key is not None and key is not value:
            raise GraphError("attention whose keys are made of another sequence than its values")
        return (causal if use_causal_mask else layer).attend(params, query, value)

    return attend


@layers(*(f"{kind}Pooling{k}D" for kind in ("Max", "Average") for k in (1, 2, 3)))
def pooling(settings: Settings, weights: list[Array]) -> Function:
    window = _each(settings["pool_size"])
    window = (window,) if isinstance(window, int) else window
    stride = _each(settings.get("strides") or window)
    given = settings.get("padding", "valid")
    largest = settings["class_name"].startswith("Max")

    def pool(x: Any) -> Any:
        pads = _same(x.shape[2:], window, stride) if given == "same" else 0
        if largest:
            return f.max_pool(x, window, stride, pads)
        return f.avg_pool(x, window, stride, pads, count_include_pad=False)

    return channels_first(settings, pool)


def _same(extents: Any, window: Any, stride: Any) -> list[tuple[int, int]]:
    """Padding that leaves as many results as there are strides in the extents."""
    steps = (stride,) * len(window) if isinstance(stride, int) else stride
    made = []
    for extent, size, step in zip(extents, window, steps, strict=True):
        if not isinstance(extent, int):
            raise GraphError("padding='same' of a pool needs the sizes of images")
        more = max((-(-extent // step) - 1) * step + size - extent, 0)
        made.append((more // 2, more - more // 2))
    return made


@layers(*(f"Global{kind}Pooling{k}D" for kind in ("Max", "Average") for k in (1, 2, 3)))
def global_pooling(settings: Settings, weights: list[Array]) -> Function:
    reduce = f.max if "Max" in settings["class_name"] else f.mean
    first = settings.get("data_format", "channels_last") == "channels_first"

    def pool(x: Any) -> Any:
        axes = tuple(range(2, rank_of(x)) if first else range(1, rank_of(x) - 1))
        return reduce(x, axis=axes, keepdims=bool(settings.get("keepdims")))

    return pool


@layers("Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise", "GaussianDropout")
@layers("ActivityRegularization", "InputLayer")
def identity(settings: Settings, weights: list[Array]) -> Function:
    return lambda x: x


@layers("Activation")
def activation_layer(settings: Settings, weights: list[Array]) -> Function:
    return activation(settings)


@layers("ReLU")
def relu(settings: Settings, weights: list[Array]) -> Function:
    expect(settings, negative_slope=0.0, threshold=0.0)
    most = settings.get("max_value")
    return lambda x: f.relu(x) if most is None else f.clip(x, 0, most)


@layers("LeakyReLU")
def leaky_relu(settings: Settings, weights: list[Array]) -> Function:
    return lambda x: f.leaky_relu(x, settings.get("negative_slope", 0.3))


@layers("Softmax")
def softmax(settings: Settings, weights: list[Array]) -> Function:
    axis = settings.get("axis", -1)
    if not isinstance(axis, int):
        raise Unsupported(f"axis={axis}")
    return lambda x: f.softmax(x, axis)


@layers("Flatten")
def flatten(settings: Settings, weights: list[Array]) -> Function:
    expect(settings, data_format="channels_last")
    return lambda x: f.reshape(x, (x.shape[0], -1))


@layers("Reshape")
def reshape(settings: Settings, weights: list[Array]) -> Function:
    return lambda x: f.reshape(x, (x.shape[0], *settings["target_shape"]))


@layers("Permute")
def permute(settings: Settings, weights: list[Array]) -> Function:
    return lambda x: f.transpose(x, (0, *settings["dims"]))


@layers("Rescaling")
def rescaling(settings: Settings, weights: list[Array]) -> Function:
    scale, offset = (np.asarray(settings.get(k, v)) for k, v in (("scale", 1), ("offset", 0)))
    return lambda x: f.add(f.multiply(x, scale.astype("f4")), offset.astype("f4"))


@layers("Concatenate")
def concatenate(settings: Settings, weights: list[Array]) -> Function:
    return lambda *parts: f.concatenate(list(parts), settings.get("axis", -1))


@layers("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Average")
def merge(settings: Settings, weights: list[Array]) -> Function:
    name = settings["class_name"].lower()
    both = getattr(f, "add" if name == "average" else name)

    def merged(*parts: Any) -> Any:
        most = max(map(rank_of, parts))  # what has fewer axes gets others behind that of the batch
        grown = (f.expand_dims(p, tuple(range(1, most - rank_of(p) + 1))) for p in parts)
        made = next(grown)
        for part in grown:
            made = both(made, part)
        return f.divide(made, len(parts)) if name == "average" else made

    return merged


# ------------------------------------------------------------------------------------ the model


@record(frozen=True)
class Call:
    """One call of a layer: what it makes under which name, of what."""

    result: tuple[str, int]
    function: Function
    inputs: tuple[tuple[str, int], ...]

    def of(self, made: Mapping[tuple[str, int], Any]) -> Any:
        """What it makes of earlier results. Raises GraphError where its settings do not fit."""
        try:
            return self.function(*(made[key] for key in self.inputs))
        except MALFORMED as error:
            problem = f"the layer {self.result[0][:60]!r} cannot be called so: {error}"
            raise GraphError(problem[:200]) from None


@record(frozen=True)
class KerasFile:
    """What a file holds, as something that can be traced."""

    title: str
    kinds: Mapping[str, Kind]
    calls: tuple[Call, ...]
    outputs: tuple[tuple[str, int], ...]

    @property
    def result_names(self) -> tuple[str, ...]:
        made = [name for name, _ in self.outputs]
        return tuple(f"{name}_{k}" if made.count(name) > 1 else name for k, name in enumerate(made))

    @property
    def node_count(self) -> int:
        return len(self.calls)

    def results(self, feeds: Mapping[str, Any]) -> list[Any]:
        made = {(name, 0): value for name, value in feeds.items()}
        for call in self.calls:
            made[call.result] = call.of(made)
        return [made[key] for key in self.outputs]


class KerasModel(ImportedModel):
    """A model from a .keras file. Raises GraphError that lists what cannot be imported."""

    def __init__(self, file: KerasFile, config: Config | None = None) -> None:
        super().__init__(file, config)


def load(path: str | PathLike[str], **options: Any) -> KerasModel:
    """A .keras file as a callable: `gc.load("model.keras")(x)`, options as for gc.compile.

    It takes arrays as Keras does, in order or by the names of its input layers, and returns those
    of its output layers in a dict.  Needs h5py.  Raises GraphError for a file that is missing or
    damaged, and one that lists every layer that cannot be imported.
    """
    return KerasModel(read(Path(path)), Config.create(**options))


def read(path: Path) -> KerasFile:
    """The layers and weights of a .keras file. Raises GraphError."""
    if importlib.util.find_spec("h5py") is None:
        raise GraphError("reading models of Keras needs h5py", hint="pip install 'graphc[keras]'")
    source = OpenFile(path)
    check_within("model_bytes", source.size, f"{path.name} has {source.size} bytes")
    try:
        data = io.BytesIO(source.read(0, source.size).tobytes())
        with zipfile.ZipFile(data) as archive:
            told = json.loads(_member(archive, "config.json"))
            weights = _member(archive, "model.weights.h5")
        with opened_weights(weights, path.name) as file:
            return _Model(path.name, told, file).file()
    except (*MALFORMED, RecursionError) as error:
        raise GraphError(
            f"{path.name} holds no model of Keras 3", details=(str(error)[:200],)
        ) from None


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    check_within("model_bytes", info.file_size, f"{name} unpacks to {info.file_size} bytes")
    return archive.read(info)


class _Model:
    """Reads the configuration; what cannot be imported is collected."""

    def __init__(self, name: str, told: Settings, weights: Any) -> None:
        self.name, self.told, self.weights = name, told, weights
        self.refused: list[str] = []
        self.seen: dict[str, int] = {}

    def file(self) -> KerasFile:
        kind, settings = self.told["class_name"], self.told["config"]
        if kind not in ("Sequential", "Functional"):
            raise GraphError(
                f"{self.name} holds a model of the class {str(kind)[:60]!r}",
                hint="Sequential and Functional models can be imported; others say in Python what "
                "they do",
            )
        entries = settings["layers"]
        check_within("imported_nodes", len(entries), f"{self.name} has {len(entries)} layers")
        made = [(entry, self._function(entry)) for entry in entries]
        if self.refused:
            more = len(self.refused) - SHOWN
            rest = (f"and {more} more",) if more > 0 else ()
            raise GraphError(
                f"{self.name} has {len(self.refused)} layers that cannot be imported",
                details=(*self.refused[:SHOWN], *rest),
            )
        if kind == "Sequential":
            return self._sequence(settings, made)
        return self._graph(settings, made)

    def _function(self, entry: Settings) -> Function | None:
        kind, settings = entry["class_name"], dict(entry["config"])
        arrays = self._weights(str(kind))
        title = f"{str(kind)[:60]} (layer {str(settings.get('name'))[:60]!r})"
        # keras.ops names functions as layers are named: x * 2.0 is a Multiply of one operand
        own = "ops" not in str(entry.get("module")).split(".")
        own = own and entry.get("registered_name") in (None, kind)
        if kind not in MAKERS or not own:
            self.refused.append(title)
            return None
        try:
            return MAKERS[kind]({**settings, "class_name": kind}, arrays)
        except Unsupported as problem:
            self.refused.append(f"{title}: {problem}")
        except (IndexError, ValueError, TypeError, KeyError, GraphError) as problem:
            self.refused.append(f"{title}: its weights or settings make no sense: {problem}"[:200])
        return None

    def _weights(self, kind: str) -> list[Array]:
        """Those of the next layer of a kind, whose groups are numbered in order."""
        title = re.sub(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", kind).lower()
        count = self.seen[title] = self.seen.get(title, -1) + 1
        group = f"{title}_{count}" if count else title
        held = self.weights.get("layers", {})
        return _arrays(held[group]) if group in held else []

    def _sequence(self, settings: Settings, made: list[tuple[Settings, Any]]) -> KerasFile:
        first = made[0][0]
        if first["class_name"] == "InputLayer":
            name, kind = str(first["config"]["name"]), _kind(first["config"])
            made = made[1:]
        else:
            name, kind = "input", _kind({"batch_shape": settings["build_input_shape"]})
        calls, last = [], (name, 0)
        for entry, function in made:
            result = (str(entry["config"]["name"]), 0)
            calls.append(Call(result, function, (last,)))
            last = result
        return KerasFile(str(settings.get("name", "model")), {name: kind}, tuple(calls), (last,))

    def _graph(self, settings: Settings, made: list[tuple[Settings, Any]]) -> KerasFile:
        kinds, waiting = {}, []
        for entry, function in made:
            name = str(entry["name"])
            if entry["class_name"] == "InputLayer":
                kinds[name] = _kind(entry["config"])
            else:
                for k, node in enumerate(entry["inbound_nodes"]):
                    inputs = tuple(_tensors([node["args"], _shown(node["kwargs"])]))
                    called = _as_called(entry["class_name"], function, node["kwargs"])
                    waiting.append(Call((name, k), called, inputs))
        order = [name for name, *_ in _keys(settings["input_layers"])]
        calls = _sorted(waiting, {(name, 0) for name in kinds})
        outputs = tuple((name, k) for name, k, _ in _keys(settings["output_layers"]))
        if set(order) != set(kinds) or not set(outputs) <= {c.result for c in calls}:
            raise ValueError("inputs or results are no layers of the model")
        title = str(settings.get("name", "model"))
        return KerasFile(title, {name: kinds[name] for name in order}, calls, outputs)


def _shown(keywords: Settings) -> list[Any]:
    """Tensors among keywords; a mask would change what a layer does."""
    if any(name.endswith("mask") and [*_tensors(value)] for name, value in keywords.items()):
        raise GraphError("a layer of it is called with a mask, which cannot be imported")
    order = ("query", "value", "key")
    return [
        keywords[name] for name in (*order, *sorted(keywords.keys() - order)) if name in keywords
    ]


def _as_called(kind: str, function: Function, keywords: Settings) -> Function:
    """The function of a call whose keywords say more than what it reads."""
    told = {k: v for k, v in keywords.items() if v not in (None, False) and not [*_tensors(v)]}
    if kind == "MultiHeadAttention" and told.pop("use_causal_mask", None):
        function = partial(function, use_causal_mask=True)
    for name in told:
        raise GraphError(f"a layer of it is called with {name}={told[name]!r}"[:120])
    return function


def _tensors(value: Any) -> Iterator[tuple[str, int]]:
    """The results that the arguments of a call name."""
    if isinstance(value, list):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            name, node, part = value["config"]["keras_history"]
            if part:
                raise ValueError(f"result {part} of {name}")
            yield str(name), int(node)
        else:
            yield from _tensors(list(value.values()))


def _keys(value: Any) -> list[Any]:
    """One key, or several: ["x", 0, 0] or [["x", 0, 0], ["y", 0, 0]]."""
    return [value] if value and isinstance(value[0], str) else list(value)


def _sorted(waiting: Sequence[Call], known: set[tuple[str, int]]) -> tuple[Call, ...]:
    """Calls in an order in which everything is made before it is read."""
    readers: dict[tuple[str, int], list[Call]] = {}
    missing: dict[tuple[str, int], int] = {}
    for call in waiting:
        missing[call.result] = len(set(call.inputs))
        for key in set(call.inputs):
            readers.setdefault(key, []).append(call)
    made: list[Call] = []
    ready = list(known)
    while ready:
        for call in readers.get(ready.pop(), ()):
            missing[call.result] -= 1
            if not missing[call.result]:
                made.append(call)
                ready.append(call.result)
    if len(made) != len(waiting):
        raise ValueError("its layers read one another in a circle, or what is not there")
    return tuple(made)


def _kind(settings: Settings) -> Kind:
    shape = settings.get("batch_shape") or settings["batch_input_shape"]
    if settings.get("sparse") or settings.get("ragged"):
        raise GraphError("a sparse or ragged input cannot be imported")
    dims: list[int | str | None] = [None if d is None else int(d) for d in shape]
    first = dims[0] if dims else None
    return Kind(
        "tensor",
        str(settings.get("dtype") or "float32"),
        ("batch" if first is None else first, *dims[1:]) if dims else (),
    )
