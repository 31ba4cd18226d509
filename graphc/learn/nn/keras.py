"""Weights of Keras and TensorFlow into the layers of gc.nn, and back.

    Sequential([Dense, Dense])   layers/dense/vars/0, layers/dense_1/vars/0 ...     .weights.h5
                                 model/.../1/_kernel/.ATTRIBUTES/VARIABLE_VALUE     checkpoints
    nn.Sequential(Dense, Dense)  [{"weight": [in, out], "bias": [out]}, ...]

Layers are met in the order in which the model applies them.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import CheckpointError, GraphError
from graphc.formats.keras_weights import MALFORMED, opened_weights, require_h5py, stored_array
from graphc.formats.tensorflow.object_graph import read_by_path
from graphc.learn.nn import layouts
from graphc.learn.nn.attention import MultiHeadAttention
from graphc.learn.nn.layer import Layer, Sequential
from graphc.learn.nn.layers import Conv, Dense, Embedding
from graphc.learn.nn.norms import BatchNorm, LayerNorm, RMSNorm
from graphc.learn.nn.recurrent import GRU, LSTM
from graphc.learn.nn.state_dict import shape_troubles
from graphc.limits import check_within
from graphc.ops.record.value import functions as f
from graphc.runtime.files.stable_file import OpenFile

Array = np.ndarray[Any, Any]
_VARIABLE = "/.ATTRIBUTES/VARIABLE_VALUE"
_LISTED = re.compile(r"variables/(\d+)$")
_PLACE = re.compile(r"(?:^|/)(?:_operations|_layers|layer_with_weights-|layers)[/-]?(\d+)/(.*)")


@record(frozen=True)
class Part:
    """What a kind of layer is in Keras.

    title   how its groups in a file begin: dense, dense_1 ...
    names   of its weights in their order there, those that may be absent last
    least   how many there are at least
    load    (layer, *arrays) -> (parameters, state)
    dump    (layer, parameters, state) -> arrays by name
    """

    title: str
    names: tuple[str, ...]
    least: int
    load: Callable[..., tuple[Any, Any]]
    dump: Callable[..., dict[str, Any]]


def _through(made: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    return lambda layer, *arrays: (made(*arrays), None)


def _back(made: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    return lambda layer, params, state: made(params)


def _norm(weight: Any, bias: Any = None) -> dict[str, Any]:
    return {"weight": weight} if bias is None else {"weight": weight, "bias": bias}


def _norm_back(params: Any) -> dict[str, Any]:
    bias = {"beta": params["bias"]} if "bias" in params else {}
    return {"gamma": params["weight"], **bias}


def _batch_norm(layer: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> tuple[Any, Any]:
    return {"weight": gamma, "bias": beta}, {"mean": mean, "variance": variance}


def _batch_norm_back(layer: Any, params: Any, state: Any) -> dict[str, Any]:
    statistics = {"moving_mean": state["mean"], "moving_variance": state["variance"]}
    return {**_norm_back(params), **statistics}


_HEADS = ("query", "key", "value", "output")


def _attention(layer: Any, *arrays: Any) -> tuple[Any, Any]:
    """Keras keeps heads as an axis: kernels [width, heads, part], the last [heads, part, width]."""
    made = {}
    step = len(arrays) // 4
    for k, name in enumerate(_HEADS):
        kernel, *bias = arrays[k * step : (k + 1) * step]
        width = kernel.shape[-1] if name == "output" else kernel.shape[0]
        shape = (-1, width) if name == "output" else (width, -1)
        made[name] = {"weight": f.reshape(kernel, shape)}
        made[name] |= {"bias": f.reshape(bias[0], (-1,))} if bias else {}
    return made, None


def _attention_back(layer: Any, params: Any, state: Any) -> dict[str, Any]:
    made, part = {}, layer.width // layer.heads
    for name in _HEADS:
        kernel, bias = params[name]["weight"], params[name].get("bias")
        last = name == "output"
        made[f"{name}/kernel"] = f.reshape(
            kernel, (-1, part, layer.width) if last else (layer.width, -1, part)
        )
        if bias is not None:
            made[f"{name}/bias"] = bias if last else f.reshape(bias, (-1, part))
    return made


_DENSE, _TIME = ("kernel", "bias"), ("kernel", "recurrent_kernel", "bias")
_AFFINE = ("gamma", "beta")
_STATISTICS = (*_AFFINE, "moving_mean", "moving_variance")
_PROJECTIONS = tuple(f"{part}/{name}" for part in _HEADS for name in _DENSE)
PARTS: dict[type[Layer], Part] = {
    Dense: Part(
        "dense", _DENSE, 1, _through(layouts.dense_from_keras), _back(layouts.dense_to_keras)
    ),
    Conv: Part("conv", _DENSE, 1, _through(layouts.conv_from_keras), _back(layouts.conv_to_keras)),
    Embedding: Part(
        "embedding",
        ("embeddings",),
        1,
        _through(_norm),
        _back(lambda p: {"embeddings": p["weight"]}),
    ),
    LayerNorm: Part("layer_normalization", _AFFINE, 1, _through(_norm), _back(_norm_back)),
    RMSNorm: Part(
        "rms_normalization", ("scale",), 1, _through(_norm), _back(lambda p: {"scale": p["weight"]})
    ),
    BatchNorm: Part("batch_normalization", _STATISTICS, 4, _batch_norm, _batch_norm_back),
    LSTM: Part("lstm", _TIME, 2, _through(layouts.lstm_from_keras), _back(layouts.lstm_to_keras)),
    GRU: Part("gru", _TIME, 2, _through(layouts.gru_from_keras), _back(layouts.gru_to_keras)),
    MultiHeadAttention: Part("multi_head_attention", _PROJECTIONS, 4, _attention, _attention_back),
}


@refusing
def load_keras(layer: Layer, weights: Any) -> tuple[Any, Any]:
    """(parameters, state) of a layer from weights of Keras or TensorFlow.

    `weights` is what get_weights() of a Keras model gives (a list of arrays), or the path of a
    .keras or .weights.h5 file (which needs h5py), of a checkpoint (NAME.index) or of the folder of
    a SavedModel; no file needs TensorFlow.  Kernels become [outputs, inputs, *window], gates r z n,
    heads one axis; every shape is checked.  Images are [batch, channels, ...] here, so a Dense
    behind a Flatten of an image needs its rows in that order.  Raises CheckpointError that lists
    what is missing, left over or of another shape, GraphError for a file that is damaged.
    """
    leaves = [(part, PARTS[kind]) for part in _leaves(layer) if (kind := _kind(part))]
    groups = _groups(weights, leaves)
    wrong: list[str] = []
    made = iter(
        [_loaded(part, entry, found, wrong) for (part, entry), found in zip(leaves, groups)]
    )
    if len(groups) != len(leaves):
        wrong.append(f"{len(groups)} layers have weights, {len(leaves)} are wanted")
    if wrong:
        raise CheckpointError("the weights do not fit the layer", details=tuple(wrong[:9]))
    return _put(layer, made)


@refusing
def keras_weights(layer: Layer, params: Any, state: Any = None) -> list[Array]:
    """The weights of a layer in the order of set_weights() of the same Keras model."""
    if isinstance(layer, Sequential):
        states = [None] * len(layer.layers) if state is None else state
        each = zip(layer.layers, params, states, strict=True)
        return [array for part in each for array in keras_weights(*part)]
    kind = _kind(layer)
    if kind is None:
        return []
    made = PARTS[kind].dump(layer, params, state)
    return [np.asarray(made[name]) for name in PARTS[kind].names if name in made]


def _kind(layer: Layer) -> type[Layer] | None:
    return next((kind for kind in type(layer).__mro__ if kind in PARTS), None)


def _leaves(layer: Layer) -> Iterator[Layer]:
    if isinstance(layer, Sequential):
        for part in layer.layers:
            yield from _leaves(part)
    else:
        yield layer


def _loaded(layer: Layer, part: Part, arrays: list[Array], wrong: list[str]) -> tuple[Any, Any]:
    if not part.least <= len(arrays) <= len(part.names):
        wrong.append(f"{layer!r} takes {part.least} to {len(part.names)} arrays, got {len(arrays)}")
        return None, None
    try:
        made = part.load(layer, *arrays)
    except (GraphError, IndexError, ValueError):
        wrong.append(f"{layer!r}: shapes {[list(a.shape) for a in arrays]}")
        return None, None
    wrong += shape_troubles(layer, *made)
    return made


def _put(layer: Layer, made: Iterator[tuple[Any, Any]]) -> tuple[Any, Any]:
    """(parameters, state) of a layer from those of its parts that have weights."""
    if not isinstance(layer, Sequential):
        return next(made) if _kind(layer) else (None, layer.state())
    pairs = [_put(part, made) for part in layer.layers]
    states = [state for _, state in pairs]
    return [params for params, _ in pairs], None if all(s is None for s in states) else states


# ------------------------------------------------------------------------------------ sources


def _groups(weights: Any, leaves: Sequence[tuple[Layer, Part]]) -> list[list[Array]]:
    """The arrays of each layer with weights, in order."""
    if isinstance(weights, str | PathLike):
        path = Path(weights)
        if path.suffix in (".keras", ".h5"):
            return _of_h5(path, leaves)
        return _of_checkpoint(read_by_path(path), leaves)
    return _of_list(list(weights), leaves)


def _of_list(arrays: list[Array], leaves: Sequence[tuple[Layer, Part]]) -> list[list[Array]]:
    """get_weights() says nothing of layers: each takes as many as its own parameters are."""
    made = []
    for layer, part in leaves:
        bare = getattr(layer, "bias", True) is False
        count = (
            sum("bias" not in n and n != "beta" for n in part.names) if bare else len(part.names)
        )
        made.append(arrays[:count])
        del arrays[:count]
    return [*made, *([arrays] if arrays else [])]


def _of_checkpoint(
    variables: dict[str, Array], leaves: Sequence[tuple[Layer, Part]]
) -> list[list[Array]]:
    """Layers by their places, or a list of variables alone, as `export` of a Keras model writes;
    what an optimiser keeps is left out."""
    found: dict[int, dict[str, Array]] = {}
    for name, array in variables.items():
        match = _PLACE.search(name.removesuffix(_VARIABLE))
        if match and "optimizer" not in name and "OPTIMIZER" not in name:
            title = match[2].removeprefix("cell/").replace("_dense/", "/").lstrip("_")
            title = title.replace("/_", "/")
            found.setdefault(int(match[1]), {})[title] = array
    if not found:
        numbered = {int(m[1]): a for n, a in variables.items() if (m := _LISTED.match(n))}
        return _of_list(
            [
                a
                for _, a in sorted(numbered.items(), key=lambda pair: pair[0])
                if a.dtype.kind == "f"
            ],
            leaves,
        )
    orders = [*dict.fromkeys(part.names for part in PARTS.values())]
    made = []
    for place in sorted(found):
        names = next((o for o in orders if set(found[place]) <= set(o)), tuple(found[place]))
        made.append([found[place][name] for name in names if name in found[place]])
    return made


def _of_h5(path: Path, leaves: Sequence[tuple[Layer, Part]]) -> list[list[Array]]:
    """Groups are called by kinds of layers, and numbered among those of one kind."""
    require_h5py("reading weights of Keras")
    source = OpenFile(path)
    check_within("model_bytes", source.size, f"{path.name} has {source.size} bytes")
    data = source.read(0, source.size).tobytes()
    try:
        if path.suffix == ".keras":
            data = _member(data, path.name)
        with opened_weights(data, path.name) as file:
            return _numbered(file["layers"], leaves)
    except MALFORMED as error:
        raise GraphError(
            f"{path.name} holds no weights of Keras 3", details=(str(error)[:200],)
        ) from None


def _member(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info = archive.getinfo("model.weights.h5")
        check_within("model_bytes", info.file_size, f"{name} unpacks to {info.file_size} bytes")
        return archive.read(info)


def _numbered(layers: Any, leaves: Sequence[tuple[Layer, Part]]) -> list[list[Array]]:
    seen: dict[str, int] = {}
    made, used = [], set()
    for layer, part in leaves:
        title = f"conv{len(layer.extents)}d" if isinstance(layer, Conv) else part.title
        count = seen[title] = seen.get(title, -1) + 1
        name = f"{title}_{count}" if count else title
        used.add(name)
        made.append(_arrays(layers[name]) if name in layers else [])
    left = [name for name in layers if name not in used and _arrays(layers[name])]
    return [*made, *([] for _ in left)]


def _arrays(group: Any) -> list[Array]:
    """The weights of one layer: its own, or those of what it is made of."""
    inner = [f"{part}_dense" for part in _HEADS] if "query_dense" in group else ["cell"]
    groups = [group[name] for name in inner if name in group] or [group]
    made = []
    for each in groups:
        held = each.get("vars", {})
        made += [stored_array(held[name]) for name in sorted(held, key=int)]
    return made
