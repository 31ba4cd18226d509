"""What each kind of layer of Keras does: the table that the files beside this one fill.

    maker(settings, weights) -> function        the function has the arguments of the layer's call
    operator(**settings)     -> function        the same for functions of keras.ops in a model

A setting that a maker does not ask for must be one that inference does not depend on
(WITHOUT_EFFECT), or not be set; others are refused.  So a maker asks for all before it returns.

A function that has an argument `mask` is given the masks of its first argument, one that has
`query_mask` those of `query`, as in Keras; what it returns as Masked has a mask from then on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import field
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from graphc.base.record import record
from graphc.formats.keras_weights import stored_array
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]
Settings = Mapping[str, Any]
Function = Callable[..., Any]
T = TypeVar("T")


class Unsupported(Exception):
    """A setting of a layer that cannot be imported; the message says which."""


class Heeded(Mapping[str, Any]):
    """Settings that know which of them were asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._asked = settings, set[str]()

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name)
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def check(self) -> None:
        """Raise Unsupported for a setting that nobody asked for and that may matter."""
        for name, value in self._settings.items():
            known = name in self._asked or WITHOUT_EFFECT.fullmatch(name)
            if not known and value is not None and value is not False:
                raise Unsupported(f"{name}={value!r}"[:80])


def heeding(settings: Settings, make: Callable[[Settings], T]) -> T:
    """What is made of settings. Raises Unsupported for one that it does not heed."""
    told = Heeded(settings)
    made = make(told)
    told.check()
    return made


@record(frozen=True)
class Masked:
    """A value [batch, time, ...] and which of its steps count: bool [batch, time], or None."""

    value: Any
    mask: Any


@record
class Seen:
    """The bytes of arrays, and the layers that stand in several places, by kind and number."""

    nbytes: int = 0
    layers: dict[Any, Layer] = field(default_factory=dict)


class Weights:
    """A group of a file of weights: its arrays, and the groups in it.

    element   the type that arrays of real numbers are cast to, None to leave them
    seen      what was read of the whole file
    """

    def __init__(self, group: Any, element: Any = None, seen: Seen | None = None) -> None:
        self._group, self._element, self._seen = group, element, Seen() if seen is None else seen

    def cast_to(self, element: Any) -> Weights:
        return Weights(self._group, element, self._seen)

    def child(self, name: str) -> Weights:
        held = self._group is not None and name in self._group
        return Weights(self._group[name] if held else None, self._element, self._seen)

    def once(self, entry: Settings, make: Callable[[], Layer]) -> Layer:
        """The layer of an entry, made where it stands first if it is shared: there its weights
        are."""
        key = entry["class_name"], entry.get("shared_object_id")
        if key[1] is None:
            return make()
        known = self._seen.layers
        if key not in known:
            known[key] = make()
        return known[key]

    @property
    def arrays(self) -> list[Array]:
        """In the order in which the layer made them. Raises ValueError for what lies elsewhere."""
        held = self.child("vars")._group
        return [] if held is None else [self._array(held[k]) for k in sorted(held, key=int)]

    def _array(self, data: Any) -> Array:
        self._seen.nbytes += getattr(data, "nbytes", 0)  # an array may be linked to many layers
        check_within("model_bytes", self._seen.nbytes, f"layers have {self._seen.nbytes} bytes")
        array = stored_array(data)
        real = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
        wanted = self._element if real and self._element is not None else array.dtype
        return array.astype(wanted, copy=False)


Maker = Callable[[Settings, Weights], "Function | Layer"]
Operator = Callable[..., Function]
M = TypeVar("M", bound=Maker)
MAKERS: dict[str, Maker] = {}
# Settings that inference does not depend on, or that the shapes of weights tell.
WITHOUT_EFFECT = re.compile(
    r".*_(initializer|regularizer|constraint)|class_name|element|name|trainable|dtype|seed|"
    r"momentum|synchronized|(recurrent_)?dropout|lora_(rank|alpha)|renorm_(clipping|momentum)|"
    r"unit_forget_bias|power_iterations|unroll|use_cudnn|implementation|flash_attention|"
    r"gptq_unpacked_column_size|fill_(mode|value)|factor|bounding_box_format|batch_(input_)?shape|"
    r"units|filters|kernel_size|rank|depth_multiplier|use_bias|bias_axes|shared_axes|"
    r"input_(dim|length)|output_(dim|shape)|num_heads|num_(query|key_value)_heads|"
    r"(key|value|head)_dim"
)
KEEPS_MASK: set[str] = set()  # kinds whose results have the mask of what they read
OPERATORS: dict[str, Operator] = {}
_ROOMS = ("keras", "tf_keras")


def is_own(entry: Settings) -> bool:
    """Whether the class of an entry is not one of Keras, although it may have the name of one."""
    kind, room = entry["class_name"], entry.get("module")
    elsewhere = room is not None and str(room).split(".")[0] not in _ROOMS
    return elsewhere or entry.get("registered_name") not in (None, kind)


def kind_of(entry: Settings) -> str:
    """The class of an entry. Raises Unsupported for one that is not of Keras."""
    if is_own(entry):
        raise Unsupported(f"{str(entry['class_name'])[:60]} is a class of one's own")
    return str(entry["class_name"])


def layers(*names: str, keeps_mask: bool = False) -> Callable[[M], M]:
    """Enter a maker for kinds of layers."""

    def enter(maker: M) -> M:
        MAKERS.update(dict.fromkeys(names, maker))
        KEEPS_MASK.update(names if keeps_mask else ())
        return maker

    return enter


@record(frozen=True)
class Layer:
    """A layer as a function.

    element     of the real numbers that it computes with; None for functions of keras.ops, which
                take what they are given
    keeps_mask  its result has the mask of its first argument
    count       of calls of layers that one call of it makes, those of models in it, too
    """

    call: Function
    element: Any = None
    keeps_mask: bool = False
    count: int = 1


def expect(settings: Settings, **values: Any) -> None:
    """Raise Unsupported for a setting that is there and has another value."""
    for name, value in values.items():
        if settings.get(name, value) != value:
            raise Unsupported(f"{name}={settings[name]!r}"[:80])


def one_of(settings: Settings, name: str, known: Container[Any], default: Any) -> Any:
    """A setting. Raises Unsupported unless it is known."""
    found = settings.get(name, default)
    if found not in known:
        raise Unsupported(f"{name}={found!r}"[:80])
    return found


def some(settings: Settings, weights: Weights, least: int, most: int) -> list[Array]:
    """The arrays of a layer. Raises Unsupported unless it has as many as it takes."""
    arrays = weights.arrays
    if not arrays:
        raise Unsupported("no weights in the file, which has those of a shared layer once")
    if not least <= len(arrays) <= most:
        raise Unsupported(f"{len(arrays)} weights for {least} to {most}")
    return arrays


def each(value: Any, count: int) -> tuple[int, ...]:
    """One int for every axis, from one or from a list of them."""
    return tuple(value) if isinstance(value, list | tuple) else (value,) * count


def rank_of(x: Any) -> int:
    return len(x.shape)


def as_real(x: Any, element: Any) -> Any:
    """Whole numbers as reals of a type, as in products with weights; reals as they are."""
    kind = np.dtype(x.dtype)
    real = kind.kind in "fc" or kind == ml_dtypes.bfloat16
    return x if real else f.astype(x, element)
