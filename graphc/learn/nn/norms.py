"""Normalising layers around the ops of the same names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from graphc.base.record import record
from graphc.errors import TraceError
from graphc.frontend.trace.batch_statistics import is_chunk, of_whole_batch
from graphc.learn.nn.layer import Layer, parameter, require_sizes
from graphc.ops.record.families import normalise_axis, require
from graphc.ops.record.value import as_value, element_of
from graphc.ops.record.value import functions as f


def _weighted(shares: Sequence[float], parts: Sequence[Any]) -> Any:
    return reduce(f.add, map(f.multiply, parts, shares))


def _shape(width: int | tuple[int, ...]) -> tuple[int, ...]:
    return (width,) if isinstance(width, int) else tuple(width)


@record(frozen=True)
class LayerNorm(Layer):
    """gc.layer_norm over the trailing axes, whose extents are `width`."""

    width: Any
    epsilon: float = 1e-5
    bias: bool = True

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        made = {"weight": f.ones(_shape(self.width), dtype)}
        return {**made, "bias": f.zeros(_shape(self.width), dtype)} if self.bias else made

    def forward(self, params: Any, x: Any) -> Any:
        axes = tuple(range(-len(_shape(self.width)), 0))
        weight = parameter(params, "weight", self)
        return f.layer_norm(x, weight, params.get("bias"), axes, self.epsilon)


@record(frozen=True)
class RMSNorm(Layer):
    """gc.rms_norm over the trailing axes, whose extents are `width`."""

    width: Any
    epsilon: float = 1e-5

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        return {"weight": f.ones(_shape(self.width), dtype)}

    def forward(self, params: Any, x: Any) -> Any:
        axes = tuple(range(-len(_shape(self.width)), 0))
        return f.rms_norm(x, parameter(params, "weight", self), axis=axes, epsilon=self.epsilon)


@record(frozen=True)
class BatchNorm(Layer):
    """gc.batch_norm per channel, with running statistics (Ioffe and Szegedy, 2015).

    Training normalises with the statistics of the batch and moves the running ones towards them:
    running = (1 - momentum) * running + momentum * batch, as in PyTorch (Keras calls 1 - momentum
    momentum), with the unbiased variance.  Otherwise the running ones are used.  In a pipeline
    each chunk is normalised by its own statistics, and the running ones move once for the batch.
    """

    channels: int
    momentum: float = 0.1
    epsilon: float = 1e-5
    axis: int = 1

    def __post_init__(self) -> None:
        require_sizes(self, "channels")

    def init(self, key: Any, dtype: Any = "f32") -> dict[str, Any]:
        shape = (self.channels,)
        return {"weight": f.ones(shape, dtype), "bias": f.zeros(shape, dtype)}

    def state(self, dtype: Any = "f32") -> dict[str, Any]:
        shape = (self.channels,)
        return {"mean": f.zeros(shape, dtype), "variance": f.ones(shape, dtype)}

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        if state is None:
            raise TraceError(
                f"{self!r} keeps running statistics, and was given none",
                hint="state = model.state(); y, state = model.apply(params, x, state, "
                "training=True)",
            )
        mean, variance = (parameter(state, name, self) for name in ("mean", "variance"))
        if training:
            mean, variance, state = self._of_batch(as_value(x), state)
        weight, bias = parameter(params, "weight", self), params.get("bias")
        y = f.batch_norm(x, mean, variance, weight, bias, self.axis, self.epsilon)
        return y, state

    def _of_batch(self, x: Any, state: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        place = normalise_axis(self.axis, len(x.shape), "BatchNorm")
        others = tuple(k for k in range(len(x.shape)) if k != place)
        extents = [x.shape[k] for k in others]
        known = all(isinstance(extent, int) for extent in extents)
        require(
            not known or math.prod(extents) > 1,
            f"{self!r} cannot train on one value per channel: x has shape {list(x.shape)}",
        )
        x = f.astype(x, element_of(x)[0].compute)
        mean, variance = f.mean(x, others), f.var(x, others)
        if is_chunk():
            return mean, variance, self._deferred(mean, variance, state, math.prod(extents))
        batch = {"mean": mean, "variance": f.var(x, others, ddof=1)}
        return mean, variance, {name: self._moved(state[name], batch[name]) for name in state}

    def _deferred(self, mean: Any, variance: Any, state: dict[str, Any], elements: int) -> Any:
        """The running statistics after all chunks (Chan et al., 1979, for the variance)."""
        names = ("mean", "variance")
        element = element_of(state["mean"])[0]

        def finish(shares: Any, chunks: Any, running: Any) -> list[Any]:
            parts = [[f.astype(part, element) for part in chunk] for chunk in chunks]
            middle = _weighted(shares, [mean for mean, _ in parts])
            apart = [f.add(v, f.square(f.subtract(mean, middle))) for mean, v in parts]
            count = elements / shares[0]
            spread = f.multiply(_weighted(shares, apart), count / (count - 1))
            return [self._moved(old, new) for old, new in zip(running, (middle, spread))]

        moved = of_whole_batch(finish, (mean, variance), [state[name] for name in names])
        return dict(zip(names, moved))

    def _moved(self, running: Any, batch: Any) -> Any:
        element = element_of(running)[0]
        batch = f.multiply(f.astype(batch, element), self.momentum)
        return f.add(f.multiply(running, 1.0 - self.momentum), batch)
