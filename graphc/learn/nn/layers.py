"""Layers without time: dense, convolution, embedding, pooling, dropout, flatten."""

from __future__ import annotations

import math
from typing import Any

from graphc.base.record import record
from graphc.errors import TraceError
from graphc.frontend.trace.hooks import seen
from graphc.ir.types import dtype as as_dtype
from graphc.learn.nn.init import Initialiser, glorot_uniform, uniform
from graphc.learn.nn.layer import Layer, biased, parameter, product, require_sizes
from graphc.ops.random import random
from graphc.ops.record.dims import shape_of
from graphc.ops.record.families import require
from graphc.ops.record.value import Factor, as_value, element_of
from graphc.ops.record.value import functions as f

GLOROT = glorot_uniform()
SMALL = uniform(0.05)


@record(frozen=True)
class Dense(Layer):
    """x @ weight + bias over the last axis; weight is [inputs, outputs] (PyTorch: transposed)."""

    inputs: int
    outputs: int
    bias: bool = True
    weights: Initialiser = GLOROT

    def __post_init__(self) -> None:
        require_sizes(self, "inputs", "outputs")

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        made = {"weight": seen(self.weights)(key, (self.inputs, self.outputs), as_dtype(dtype))}
        if self.bias:
            made["bias"] = f.zeros((self.outputs,), dtype)
        return made

    def forward(self, params: Any, x: Any) -> Any:
        return biased(product(x, parameter(params, "weight", self)), params)


@record(frozen=True)
class Conv(Layer):
    """Convolution of x[batch, inputs, *spatial]; weight is [outputs, inputs / groups, *window].

    `window` is one int per spatial axis, or one int for a square one over two axes.  Strides,
    padding and dilation are those of gc.conv.
    """

    inputs: int
    outputs: int
    window: Any
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    bias: bool = True
    weights: Initialiser = GLOROT

    def __post_init__(self) -> None:
        require_sizes(self, "inputs", "outputs", "groups")

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the window, one for each spatial axis."""
        return (self.window,) * 2 if isinstance(self.window, int) else tuple(self.window)

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        even = self.groups > 0 and self.inputs % self.groups == 0
        require(even, f"{self.inputs} channels do not divide into {self.groups} groups")
        shape = (self.outputs, self.inputs // self.groups, *self.extents)
        made = {"weight": seen(self.weights)(key, shape, as_dtype(dtype))}
        if self.bias:
            made["bias"] = f.zeros((self.outputs,), dtype)
        return made

    def forward(self, params: Any, x: Any) -> Any:
        weight = parameter(params, "weight", self)
        y = f.conv(x, weight, self.stride, self.padding, self.dilation, self.groups)
        if "bias" not in params:
            return y
        return f.add(y, f.reshape(params["bias"], (-1,) + (1,) * (len(y.shape) - 2)))


@record(frozen=True)
class Embedding(Layer):
    """Rows of a table [count, width] chosen by integers. Others than 0..count-1 are an error."""

    count: int
    width: int
    weights: Initialiser = SMALL

    def __post_init__(self) -> None:
        require_sizes(self, "count", "width")

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        return {"weight": seen(self.weights)(key, (self.count, self.width), as_dtype(dtype))}

    def forward(self, params: Any, x: Any) -> Any:
        kind = element_of(x)[0]
        require(kind.is_integer, f"an embedding is looked up by integers, not by {kind}")
        table = parameter(params, "weight", self)
        return table[x] if isinstance(table, Factor) else f.take(table, x, axis=0)


def dropout(x: Any, rate: float, key: Any) -> Any:
    """x with elements set to 0 with probability `rate`, the others divided by 1 - rate."""
    require(0.0 <= rate < 1.0, f"a dropout rate of {rate} is not in 0..1")
    x = as_value(x)
    kept = random.bernoulli(key, 1.0 - rate, x.shape)
    return f.where(kept, f.multiply(x, 1.0 / (1.0 - rate)), f.zeros_like(x))


@record(frozen=True)
class Dropout(Layer):
    """dropout() while training, with the key of the call; the identity otherwise."""

    rate: float = 0.5

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        if not training or self.rate == 0.0:
            return x, state
        if key is None:
            raise TraceError(
                f"{self!r} needs a random key while training",
                hint="model(params, x, key=gc.random.fold_in(key, step), training=True)",
            )
        return dropout(x, self.rate, key), state


@record(frozen=True)
class Flatten(Layer):
    """[batch, ...] to [batch, everything else]."""

    def forward(self, params: Any, x: Any) -> Any:
        batch, *rest = shape_of(x) or (None,)
        require(batch is not None, "flatten takes [batch, ...], not a single number")
        return f.reshape(x, (batch, math.prod(rest)))


@record(frozen=True)
class MaxPool(Layer):
    """The maximum over windows of x[batch, channels, *spatial] (see gc.max_pool)."""

    window: Any
    stride: Any = None
    padding: Any = 0

    def forward(self, params: Any, x: Any) -> Any:
        return f.max_pool(x, self.window, self.stride, self.padding)


@record(frozen=True)
class AvgPool(Layer):
    """The mean over windows of x[batch, channels, *spatial] (see gc.avg_pool)."""

    window: Any
    stride: Any = None
    padding: Any = 0

    def forward(self, params: Any, x: Any) -> Any:
        return f.avg_pool(x, self.window, self.stride, self.padding)
