"""`gc.parallel`: one model on several devices, or several steps at once.

    grads = gc.parallel.replicate(gc.value_and_grad(loss), ["cpu:0", "cpu:1"])
    value, gradients = grads(params, batch)     # inside a compiled function of both devices

`replicate` is synchronous data parallelism, `pipeline` sends chunks of a batch through the stages
of a model, `on` puts a layer on a device (model parallelism), `Asynchronous` trains with a client
thread per replica and `concurrent` keeps several steps of one function in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import groupby
from typing import Any

from graphc.base.record import record
from graphc.errors import TraceError
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.placement import device
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.learn.arguments import count, function_of, refuse, team, ways_of
from graphc.learn.asynchronous import Asynchronous, AsynchronousRun
from graphc.learn.batches import combined, cut_rows, join, pieces, rows_of, sizes, split
from graphc.learn.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    reduce_scatter,
    reduce_to,
)
from graphc.learn.inflight import Flight, concurrent
from graphc.learn.nn.layer import Layer, as_layer
from graphc.learn.pipelining import Pipeline, pipeline, schedule
from graphc.learn.synchronous import Synchronous
from graphc.ops.record.value import functions as f

__all__ = [
    "Asynchronous",
    "AsynchronousRun",
    "Flight",
    "On",
    "Pipeline",
    "Synchronous",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "concurrent",
    "join",
    "on",
    "pipeline",
    "reduce_scatter",
    "reduce_to",
    "replicate",
    "schedule",
    "sizes",
    "split",
]

Model = Callable[..., Any]


# ------------------------------------------------------------------------------------ replicas


def replicate(
    function: Model,
    devices: Sequence[str],
    replicas: int | None = None,
    combine: str | Sequence[str] = "mean",
) -> Model:
    """function(params, batch) on all devices at once, each replica with its part of the batch.

    devices    device d runs a run of neighbouring replicas; results are combined on the first one
    replicas   into how many parts the batch is split (see `sizes`); by default one per device
    combine    "mean" weights each result by its rows, which is right for means over a batch and
               their gradients; "sum" and "concatenate" say what they do.  A sequence holds one for
               each entry of the tuple that the function returns.

    The result is to be compiled for these devices, alone or in a larger step.  The parameters and
    one slice of the batch go to each device, and one combined result comes back from it, however
    many replicas it has.  On plain arrays it runs one replica after the other.
    Raises GraphError for bad arguments and, when called, TypeRuleError for a bad batch.
    """
    found = team(devices, "replicate")
    parts = len(found) if replicas is None else count(replicas, "replicas")
    ways = ways_of(combine, [*_WAYS])
    function_of(function, "replicate")

    def replicated(params: Any, batch: Any) -> Any:
        shares = _shares(batch, parts, found)
        made = [_on_device(function, params, share, ways) for share in shares]
        rows = sum(sum(share.sizes) for share in shares)
        weight = shares[0].whole / rows if rows else 1.0
        with device(found[0]):
            return _finished(made, ways, weight)

    replicated.__name__ = f"replicated_{getattr(function, '__name__', 'function')}"
    return replicated


@record(frozen=True)
class _Share:
    """What one device gets: rows of the batch, the sizes of its replicas, and a whole part."""

    device: str
    batch: Any
    sizes: tuple[int, ...]
    whole: int


def _shares(batch: Any, count: int, devices: Sequence[str]) -> list[_Share]:
    """Neighbouring parts of the batch for each device, cut where the batch is."""
    leaves, tree = flatten(batch, keep_order=True)
    parts = sizes(rows_of(leaves, tree), count)
    homes = [number * len(devices) // len(parts) for number in range(len(parts))]
    if len(parts) < len(devices):
        homes = list(range(len(parts)))
    found, start = [], 0
    for home, group in groupby(zip(homes, parts), key=lambda pair: pair[0]):
        own = tuple(size for _, size in group)
        rows = [cut_rows(leaf, start, start + sum(own)) for leaf in leaves]
        found.append(_Share(devices[home], unflatten(tree, rows), own, parts[0]))
        start += sum(own)
    return found


def _on_device(function: Model, params: Any, share: _Share, ways: tuple[str, ...]) -> Any:
    """The results of a device's replicas, combined as far as they can be there."""
    with device(share.device):
        parts = pieces(share.batch, share.sizes) if len(share.sizes) > 1 else [share.batch]
        made = [seen(function)(params, part) for part in parts]
        if share.sizes[-1] != share.whole:
            made[-1] = _each(made[-1], ways, lambda x, way: _weighted(x, way, share))
        return _reduced(made, ways)


def _weighted(x: Any, way: str, share: _Share) -> Any:
    """A mean over a shorter part counts less than one over a whole part."""
    return f.multiply(x, share.sizes[-1] / share.whole) if way == "mean" else x


def _finished(made: Sequence[Any], ways: tuple[str, ...], weight: float) -> Any:
    """One result out of those of all devices; `weight` is the share of a whole part."""

    def scaled(x: Any, way: str) -> Any:
        return f.multiply(x, weight) if way == "mean" and weight != 1 else x

    return _each(_reduced(made, ways), ways, scaled)


def _each(result: Any, ways: tuple[str, ...], change: Callable[[Any, str], Any]) -> Any:
    """`change` of every array and of the way in which it is combined."""
    return _by_way([result], ways, lambda leaves, way: change(leaves[0], way))


def _reduced(made: Sequence[Any], ways: tuple[str, ...]) -> Any:
    return _by_way(made, ways, lambda leaves, way: _WAYS[way](leaves))


def _by_way(
    made: Sequence[Any], ways: tuple[str, ...], change: Callable[[Sequence[Any], str], Any]
) -> Any:
    if len(ways) == 1:
        return combined(made, lambda leaves: change(leaves, ways[0]))
    if not isinstance(made[0], tuple) or len(made[0]) != len(ways):
        raise TraceError(
            f"there are {len(ways)} ways to combine, for a function that returns "
            f"{len(made[0]) if isinstance(made[0], tuple) else 'no'} results"
            f"{'' if isinstance(made[0], tuple) else ' in a tuple'}"
        )
    return tuple(
        combined(column, partial(_call_with, change, way)) for column, way in zip(zip(*made), ways)
    )


def _call_with(change: Callable[[Sequence[Any], str], Any], way: str, leaves: Sequence[Any]) -> Any:
    return change(leaves, way)


def _sum(leaves: Sequence[Any]) -> Any:
    return reduce(f.add, leaves)


def _concatenate(leaves: Sequence[Any]) -> Any:
    return f.concatenate(list(leaves)) if len(leaves) > 1 else leaves[0]


_WAYS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "mean": _sum,  # scaled once at the end
    "sum": _sum,
    "concatenate": _concatenate,
}


# ------------------------------------------------------------------------------------ layers


@record(frozen=True)
class On(Layer):
    """A layer whose nodes, and those of its gradient, run on one device."""

    device: str
    layer: Layer

    def init(self, key: Any, dtype: Any = "f32") -> Any:
        with device(self.device):
            return seen(self.layer.init)(key, dtype)

    def state(self, dtype: Any = "f32") -> Any:
        return seen(self.layer.state)(dtype)

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        with device(self.device):
            made, kept = seen(self.layer.apply)(params, x, state, key=key, training=training)
            return made, kept


def on(name: str, layer: Any) -> On:
    """A layer, or a function of one array, on a device: `on("cpu:1", gc.nn.LSTM(8, 8))`.

    Raises TraceError for what is no layer; GraphError for a bad device name where it is traced.
    """
    if not isinstance(name, str):
        raise refuse(f"a layer is put on a device by its name, got {name!r:.80}", 'write "cpu:1"')
    return On(name, as_layer(layer))
