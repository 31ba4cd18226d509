"""Models as calls of layers: from their configuration, nested models and all.

    {"layers": [...], "input_layers": ..., "output_layers": ...}  ->  Call, in the order they run

A result is (layer, which call of it, which part of what the call gave); steps that do not count
travel beside it as its mask.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.formats.keras_weights import MALFORMED
from graphc.learn.keras.table import Layer, Masked, Settings, Unsupported, Weights
from graphc.learn.keras.wrappers import MODELS, wrapped
from graphc.limits import check_within
from graphc.ops.record.value import current
from graphc.ops.record.value import functions as f

SHOWN = 9
Node = tuple[str, int]


class Refused(Exception):
    """Layers that cannot be imported, a line for each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.lines = lines


@record(frozen=True)
class Read:
    """A result in the arguments of a call."""

    name: str
    node: int
    part: int


@record(frozen=True)
class Call:
    """One call of a layer; `args` and `keywords` hold Reads and constants, nested."""

    name: str
    node: int
    layer: Layer
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def reads(self) -> set[Node]:
        held = _leaves((self.args, self.keywords))
        return {(read.name, read.node) for read in held if isinstance(read, Read)}

    def of(self, made: Mapping[Node, tuple[Masked, ...]]) -> tuple[Masked, ...]:
        """What it makes of earlier results. Raises GraphError where its settings do not fit."""
        try:
            return self._parts(made)
        except MALFORMED as error:
            problem = f"the layer {self.name[:60]!r} cannot be called so: {error}"
            raise GraphError(problem[:200]) from None

    def _parts(self, made: Mapping[Node, tuple[Masked, ...]]) -> tuple[Masked, ...]:
        values, masks = (
            partial(_filled, made=made, wanted=wanted, element=self.layer.element)
            for wanted in ("value", "mask")
        )
        names = [*inspect.signature(self.layer.call).parameters]
        args, keywords = tuple(map(values, self.args)), dict(values(self.keywords))
        known = {**dict(zip(names, map(masks, self.args))), **masks(self.keywords)}
        told = {**dict(zip(names, self.args)), **self.keywords}
        tensors = [name for name, arg in told.items() if any(map(_is_tensor, _leaves(arg)))]
        keywords |= _masks(names, keywords, {name: known[name] for name in tensors})
        found = self.layer.call(*args, **keywords)
        parts = found if isinstance(found, tuple | list) else (found,)
        kept = keywords.get("mask", known.get(names[0])) if self.layer.keeps_mask else None
        return tuple(part if isinstance(part, Masked) else Masked(part, kept) for part in parts)


def _place(call: Call) -> tuple[str, int]:
    """What nodes of a call have for the line of a program: the layer, and which call of it."""
    return call.name, call.node + 1


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, Read | np.ndarray)


def _masks(
    names: Sequence[str], keywords: Mapping[str, Any], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """The masks that a function has arguments for and was not given, from those of its tensors:
    as in Keras, `mask` where there is one tensor, `x_mask` for each x where there are several."""
    if len(tensors) == 1:
        made = dict(zip(["mask"], tensors.values()))
    else:
        made = {f"{name}_mask": mask for name, mask in tensors.items()}
    return {
        name: mask
        for name, mask in made.items()
        if name in names and name not in keywords and any(m is not None for m in _leaves(mask))
    }


def _filled(value: Any, made: Mapping[Node, tuple[Masked, ...]], wanted: str, element: Any) -> Any:
    """A structure with what its Reads stand for; masks alone have None for constants."""
    if isinstance(value, Read):
        part = made[value.name, value.node][value.part]
        return part.mask if wanted == "mask" else _cast(part.value, element)
    again = partial(_filled, made=made, wanted=wanted, element=element)
    if isinstance(value, list | tuple):
        return [again(part) for part in value]
    if isinstance(value, dict):
        return {key: again(part) for key, part in value.items()}
    return None if wanted == "mask" else value


def _cast(x: Any, element: Any) -> Any:
    """Reals as those that a layer computes with."""
    kind = np.dtype(x.dtype)
    real = kind.kind == "f" or kind == ml_dtypes.bfloat16
    return f.astype(x, element) if element is not None and real and kind != element else x


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    else:
        yield value


@record(frozen=True)
class Network:
    """A model: what it reads, the calls, and what it returns."""

    inputs: Mapping[str, Settings]  # in order; the settings of their layers
    calls: tuple[Call, ...]
    outputs: tuple[Read, ...]
    names: tuple[str, ...]  # of the outputs

    @property
    def count(self) -> int:
        """Of calls of layers, those of models within it, too."""
        return sum(call.layer.count for call in self.calls)

    def run(self, given: Mapping[str, Masked]) -> tuple[Masked, ...]:
        made: dict[Node, tuple[Masked, ...]] = {(name, 0): (x,) for name, x in given.items()}
        trace = current()
        for call in self.calls:
            if trace is not None and trace.locate is not None:
                trace.locate = partial(_place, call)
            made[call.name, call.node] = call.of(made)
        try:
            return tuple(made[read.name, read.node][read.part] for read in self.outputs)
        except IndexError:
            raise GraphError("a result of the model is no part of what a layer returns") from None

    def call(self, inputs: Any, mask: Any = None) -> tuple[Masked, ...]:
        """As a layer of another model."""
        if isinstance(inputs, dict):
            inputs = [inputs[name] for name in self.inputs]
            mask = None if mask is None else [mask[name] for name in self.inputs]
        values = inputs if isinstance(inputs, list | tuple) else [inputs]
        masks = mask if isinstance(mask, list | tuple) else [mask] * len(values)
        parts = [Masked(*pair) for pair in zip(values, masks, strict=True)]
        return self.run(dict(zip(self.inputs, parts, strict=True)))


# ------------------------------------------------------------------------------------ reading


def network(kind: str, settings: Settings, weights: Weights) -> Network:
    """A model from its configuration and weights. Raises Refused, and ValueError and its like for
    what makes no sense."""
    entries = settings["layers"]
    check_within("imported_nodes", len(entries), f"a model has {len(entries)} layers")
    refused: list[str] = []
    made = [
        (entry, _layer(entry, held, refused))
        for entry, held in zip(entries, _held(entries, weights.child("layers")), strict=True)
    ]
    if refused:
        raise Refused(refused)
    if kind == "Sequential":
        return _sequence(settings, made)
    found = _graph(settings, made, refused)
    if refused:
        raise Refused(refused)
    return found


def _model(kind: str) -> Callable[[Settings, Weights], Layer]:
    def maker(settings: Settings, weights: Weights) -> Layer:
        found = network(kind, settings, weights)
        return Layer(found.call, count=found.count)

    return maker


MODELS |= {kind: _model(kind) for kind in ("Sequential", "Functional")}


def _held(entries: Sequence[Settings], weights: Weights) -> Iterator[Weights]:
    """The weights of each layer: groups are called by kinds, and numbered among those of one."""
    seen: dict[str, int] = {}
    for entry in entries:
        kind = str(entry["class_name"])
        kind = {"GroupQueryAttention": "GroupedQueryAttention"}.get(kind, kind)
        title = re.sub(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", kind).lower()
        count = seen[title] = seen.get(title, -1) + 1
        yield weights.child(f"{title}_{count}" if count else title)


def _layer(entry: Settings, weights: Weights, refused: list[str]) -> Layer | None:
    kind, name = str(entry["class_name"]), str(entry["config"].get("name"))
    title = f"{kind[:60]} (layer {name[:60]!r})"
    if kind == "InputLayer":
        return None
    try:
        return wrapped(entry, weights)
    except Refused as problem:
        refused += [f"{title}: {line}" for line in problem.lines]
    except Unsupported as problem:
        refused.append(f"{title}: {problem}" if str(problem) else title)
    except MALFORMED as problem:
        refused.append(f"{title}: its weights or settings make no sense: {problem}"[:200])
    except GraphError as problem:
        refused.append(f"{title}: {problem}"[:200])
    return None


def _sequence(settings: Settings, made: list[tuple[Settings, Any]]) -> Network:
    first = made[0][0]
    if first["class_name"] == "InputLayer":
        name, told = str(first["config"]["name"]), first["config"]
        made = made[1:]
    else:
        name, told = "input", {"batch_shape": settings["build_input_shape"]}
    if told.get("batch_shape"):  # its batch may be that of the call that built the layers
        told = {**told, "batch_shape": [None, *told["batch_shape"][1:]]}
    calls, last = [], Read(name, 0, 0)
    for entry, layer in made:
        calls.append(Call(str(entry["config"]["name"]), 0, layer, (last,), {}))
        last = Read(calls[-1].name, 0, 0)
    return Network({name: told}, tuple(calls), (last,), (last.name,))


def _graph(settings: Settings, made: list[tuple[Settings, Any]], refused: list[str]) -> Network:
    told, waiting = {}, []
    entries = {str(entry["name"]): entry for entry, _ in made}
    for (name, entry), (_, layer) in zip(entries.items(), made, strict=True):
        if entry["class_name"] == "InputLayer":
            told[name] = entry["config"]
            continue
        for k, node in enumerate(entry["inbound_nodes"]):
            call = Call(name, k, layer, *_arguments(node))
            refused += _misfits(entry, call)
            waiting.append(call)
    inputs, outputs = (_named(settings[f"{side}_layers"]) for side in ("input", "output"))
    outputs = [(key, _from_first(read, entries)) for key, read in outputs]
    calls = _sorted(waiting, {(name, 0) for name in told})
    if {read.name for _, read in inputs} != set(told):
        raise ValueError("inputs are no layers of the model")
    if not {(r.name, r.node) for _, r in outputs} <= {(n, 0) for n in told} | {
        (c.name, c.node) for c in calls
    }:
        raise ValueError("results are no layers of the model")
    return Network(
        {read.name: told[read.name] for _, read in inputs},
        calls,
        tuple(read for _, read in outputs),
        tuple(key or read.name for key, read in outputs),
    )


def _from_first(read: Read, entries: Mapping[str, Settings]) -> Read:
    """Results of the whole count the calls of a nested functional model from 1."""
    nested = entries[read.name]["class_name"] == "Functional"
    return Read(read.name, read.node - nested, read.part)


def _arguments(node: Settings) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a layer is called with; False and None are what every layer takes them for."""
    keywords = {
        name: decoded(value)
        for name, value in node["kwargs"].items()
        if value is not None and value is not False
    }
    return tuple(map(decoded, node["args"])), keywords


def _misfits(entry: Settings, call: Call) -> list[str]:
    """What the layer is called with that its function has no argument for."""
    try:
        inspect.signature(call.layer.call).bind(*call.args, **call.keywords)
    except TypeError as problem:
        known = inspect.signature(call.layer.call).parameters
        strange = [f"{k}={v!r}" for k, v in call.keywords.items() if k not in known]
        told = ", ".join(strange) or str(problem)
        return [
            f"{str(entry['class_name'])[:60]} (layer {call.name[:60]!r}): called with {told}"[:200]
        ]
    return []


def decoded(value: Any) -> Any:
    """An argument: results as Reads, slices, arrays, and structures of them."""
    if isinstance(value, list):
        return [decoded(part) for part in value]
    if not isinstance(value, dict):
        return value
    kind, told = value.get("class_name"), value.get("config", {})
    if kind == "__keras_tensor__":
        name, node, part = told["keras_history"]
        return Read(str(name), int(node), int(part))
    if kind == "__slice__":
        return slice(*(decoded(told[name]) for name in ("start", "stop", "step")))
    if kind == "__ellipsis__":
        return ...
    if kind in ("__numpy__", "__tensor__"):
        return np.asarray(told["value"], told["dtype"])
    if kind is not None:
        raise GraphError(f"an argument that is {str(kind)[:60]!r} cannot be imported")
    return {str(key): decoded(part) for key, part in value.items()}


def _named(value: Any) -> list[tuple[str, Read]]:
    """Results of layers, each with its key where they are in a dictionary: ["x", 0, 0], or
    several of them in lists and dictionaries, whose keys are in order."""
    if isinstance(value, dict):
        return [(str(key), read) for key in sorted(value) for _, read in _named(value[key])]
    if value and isinstance(value[0], str):
        name, node, part = value
        return [("", Read(name, int(node), int(part)))]
    return [pair for part in value for pair in _named(part)]


def _sorted(waiting: Sequence[Call], known: set[Node]) -> tuple[Call, ...]:
    """Calls in an order in which everything is made before it is read."""
    readers: dict[Node, list[Call]] = {}
    missing: dict[Node, int] = {}
    ready = list(known)
    made: list[Call] = []
    for call in waiting:
        missing[call.name, call.node] = len(call.reads)
        for key in call.reads:
            readers.setdefault(key, []).append(call)
        if not call.reads:
            made.append(call)
            ready.append((call.name, call.node))
    while ready:
        for call in readers.get(ready.pop(), ()):
            missing[call.name, call.node] -= 1
            if not missing[call.name, call.node]:
                made.append(call)
                ready.append((call.name, call.node))
    if len(made) != len(waiting):
        raise ValueError("its layers read one another in a circle, or what is not there")
    return tuple(made)
