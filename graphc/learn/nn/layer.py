"""What a layer is, and how layers are put together.

A layer holds sizes and options only.  Its parameters are a pytree that the user holds:

    model = gc.nn.Sequential(gc.nn.Dense(200, 100), gc.nn.relu, gc.nn.Dense(100, 3))
    params = model.init(gc.random.key(0))
    y = model(params, x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import GraphError, TraceError
from graphc.frontend.trace.hooks import seen
from graphc.ir.sizes import Size
from graphc.ir.types import Dim
from graphc.ops.random import random
from graphc.ops.record.value import Factor
from graphc.ops.record.value import functions as f


class Layer:
    """Base of all layers.  A layer of one's own defines `init` and `forward`.

    init(key, dtype) -> params                 first values of what is trained
    state(dtype) -> state                      first values of what is kept but not trained
    forward(params, x) -> y                    the layer itself
    apply(params, x, state, key=, training=)   -> (y, new state): with running statistics, dropout
    layer(params, x, ...)                      apply without the new state
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """The fields that differ from their defaults: Dense(200, 100)."""
        fields: tuple[str, ...] = getattr(self, "__match_args__", ())
        defaults = getattr(self, "_defaults", {})
        shown = []
        for name in fields:
            value = getattr(self, name)
            if name not in defaults:
                shown.append(getattr(value, "__name__", repr(value)))
            elif value != defaults[name]:
                shown.append(f"{name}={getattr(value, '__name__', repr(value))}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def init(self, key: Any, dtype: Any = "f32") -> Any:
        """First values of the parameters; None for a layer that has none."""
        return None

    def state(self, dtype: Any = "f32") -> Any:
        """First values of what is kept but not trained; None for a layer that keeps nothing."""
        return None

    def forward(self, params: Any, x: Any) -> Any:
        """The result for x."""
        raise TraceError(
            f"{type(self).__name__} defines neither forward nor apply",
            hint="write `def forward(self, params, x)`",
        )

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        """(result, new state). `key` is for random layers, `training` switches them on."""
        return seen(self.forward)(params, x), state

    @refusing
    def __call__(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> Any:
        """The result alone."""
        return seen(self.apply)(params, x, state, key=key, training=training)[0]


def require_sizes(layer: Layer, *names: str) -> None:
    """Refuse sizes of a layer that are no whole numbers from 1 on. Raises GraphError."""
    for name in names:
        value = getattr(layer, name)
        is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if isinstance(value, Dim | Size) or (is_number and value > 0):
            continue
        kind = type(layer).__name__
        raise GraphError(f"{kind}: {name} must be a whole number from 1 on, got {value!r:.80}")


def parameter(params: Any, name: str, layer: Layer) -> Any:
    """One array of a layer's parameters. Raises TraceError when it is not there."""
    if isinstance(params, dict) and name in params:
        return params[name]
    found = ", ".join(map(str, params)) if isinstance(params, dict) else type(params).__name__
    raise TraceError(
        f"{layer!r} has a parameter {name}; what it was given is: {found}",
        hint="parameters come from init(key) of the same layer",
    )


def product(x: Any, weight: Any) -> Any:
    """x @ weight, of which the weight may be one of few bits."""
    return x @ weight if isinstance(weight, Factor) else f.matmul(x, weight)


def biased(x: Any, params: dict[str, Any]) -> Any:
    """x plus the bias along its last axis, where the parameters have one."""
    return f.add(x, params["bias"]) if "bias" in params else x


@record(frozen=True)
class Function(Layer):
    """A function of one array as a layer without parameters."""

    function: Callable[[Any], Any]

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def forward(self, params: Any, x: Any) -> Any:
        return seen(self.function)(x)


def as_layer(part: Any) -> Layer:
    """A layer as it is; any other function as one without parameters. Raises TraceError."""
    if isinstance(part, Layer):
        return part
    if isinstance(part, type) or not callable(part):
        raise TraceError(
            f"a model is made of layers and functions, not of {part!r}",
            hint="write gc.nn.Dense(200, 100), with its sizes",
        )
    return Function(part)


class Sequential(Layer):
    """Layers and functions of one array, each fed with the result of the one before.

    Parameters and state are lists with one entry per part, None for parts that have none.
    """

    __slots__ = ("layers",)

    def __init__(self, *layers: Any) -> None:
        self.layers = tuple(map(as_layer, layers))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.layers))})"

    def init(self, key: Any, dtype: Any = "f32") -> list[Any]:
        return [seen(layer.init)(k, dtype) for layer, k in zip(self.layers, self._keys(key))]

    def state(self, dtype: Any = "f32") -> list[Any] | None:
        made = [seen(layer.state)(dtype) for layer in self.layers]
        return None if all(part is None for part in made) else made

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        owned = self._parts(params, "parameters")
        states = self._parts([None] * len(self.layers) if state is None else state, "states")
        made = []
        for layer, own, kept, k in zip(self.layers, owned, states, self._keys(key)):
            x, kept = seen(layer.apply)(own, x, kept, key=k, training=training)
            made.append(kept)
        return x, None if state is None else made

    def _keys(self, key: Any) -> list[Any]:
        count = len(self.layers)
        return [None if key is None else random.fold_in(key, k) for k in range(count)]

    def _parts(self, parts: Any, what: str) -> Any:
        if not isinstance(parts, list | tuple) or len(parts) != len(self.layers):
            found = len(parts) if isinstance(parts, list | tuple) else type(parts).__name__
            raise TraceError(f"{what} of a model of {len(self.layers)} parts: found {found}")
        return parts


class Residual(Sequential):
    """x + Sequential(*layers)(x)."""

    __slots__ = ()

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        made, kept = super().apply(params, x, state, key=key, training=training)
        return f.add(x, made), kept
