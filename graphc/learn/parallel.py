"""`gc.parallel`: one model on several devices, or several steps at once.

    grads = gc.parallel.replicate(gc.value_and_grad(loss), ["cpu:0", "cpu:1"])
    value, gradients = grads(params, batch)     # inside a compiled function of both devices

`replicate` is synchronous data parallelism, `on` puts a layer on a device (model parallelism),
`Asynchronous` trains with a client thread per replica and `concurrent` keeps several steps of one
function in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import accumulate, groupby, pairwise
from typing import Any

from graphc.errors import GraphError, TraceError, TypeRuleError
from graphc.frontend.session.variable import Variable
from graphc.frontend.trace.placement import colocate, device
from graphc.frontend.trace.tree import TreeDef, flatten, leaf_names, unflatten
from graphc.ir.types import Dim
from graphc.learn.asynchronous import Asynchronous, AsynchronousRun
from graphc.learn.inflight import Flight, concurrent
from graphc.learn.nn.layer import Layer, as_layer
from graphc.learn.trees import matched
from graphc.ops.record.families import require
from graphc.ops.record.value import Value, current
from graphc.ops.record.value import functions as f
from graphc.record import record

__all__ = [
    "Asynchronous",
    "AsynchronousRun",
    "Flight",
    "On",
    "concurrent",
    "join",
    "on",
    "replicate",
    "sizes",
    "split",
]

Model = Callable[..., Any]


# ------------------------------------------------------------------------------------ batches


def sizes(rows: int, parts: int) -> tuple[int, ...]:
    """How many rows each part of a batch has: equal numbers, the last part may have fewer.

    There are fewer parts where there is nothing left for them: (3, 3, 3, 1) for 10 rows in 4 parts,
    (1, 1, 1) for 3 in 8.  Raises GraphError unless parts > 0.
    """
    if parts < 1:
        raise GraphError(f"a batch is split into one part or more, got {parts}")
    each = max(1, -(-rows // parts))
    return tuple(min(each, rows - start) for start in range(0, max(rows, 1), each))


def split(batch: Any, parts: int) -> list[Any]:
    """The parts of a batch, any nesting of arrays that have equal first axes; see `sizes`.

    Raises TypeRuleError for a leaf that is no array, and for different numbers of rows.
    """
    leaves, tree = flatten(batch, keep_order=True)
    return _pieces(batch, sizes(_rows(leaves, tree), parts))


def _pieces(batch: Any, lengths: Sequence[int]) -> list[Any]:
    leaves, tree = flatten(batch, keep_order=True)
    starts = accumulate(lengths, initial=0)
    return [unflatten(tree, [leaf[a:b] for leaf in leaves]) for a, b in pairwise(starts)]


def join(parts: Sequence[Any]) -> Any:
    """The batch that `split` has taken apart."""
    return _combined(parts, f.concatenate)


def _rows(leaves: Sequence[Any], tree: TreeDef) -> int:
    """The length of the first axis of all arrays of a batch."""
    names = [name or "the batch" for name in leaf_names(tree)]
    for name, leaf in zip(names, leaves):
        if not (hasattr(leaf, "shape") and hasattr(leaf, "__getitem__")):
            kind = type(leaf).__name__
            raise TypeRuleError(f"a batch is made of arrays, but {name} is of type {kind}")
        require(len(leaf.shape) > 0, f"{name} is a number: a batch has its rows along axis 0")
        require(not isinstance(leaf.shape[0], Dim), f"the number of rows of {name} is not known")
    lengths = {name: int(leaf.shape[0]) for name, leaf in zip(names, leaves)}
    require(len(lengths) > 0, "the batch has no arrays")
    shown = ", ".join(f"{name} has {n}" for name, n in list(lengths.items())[:6])
    require(len(set(lengths.values())) == 1, f"the arrays differ in their rows: {shown}")
    return next(iter(lengths.values()))


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
    found = (devices,) if isinstance(devices, str) else tuple(devices)
    count = len(found) if replicas is None else replicas
    ways = (combine,) if isinstance(combine, str) else tuple(combine)
    if not found or count < 1:
        raise GraphError("replicate takes one device or more, and one replica or more")
    if unknown := [way for way in ways if way not in _WAYS]:
        raise GraphError(f"results are combined by {', '.join(_WAYS)}, not by {unknown[0]!r}")

    def replicated(params: Any, batch: Any) -> Any:
        shares = _shares(batch, count, found)
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
    parts = sizes(_rows(leaves, tree), count)
    homes = [number * len(devices) // len(parts) for number in range(len(parts))]
    if len(parts) < len(devices):
        homes = list(range(len(parts)))
    found, start = [], 0
    for home, group in groupby(zip(homes, parts), key=lambda pair: pair[0]):
        own = tuple(size for _, size in group)
        rows = [_cut(leaf, start, start + sum(own)) for leaf in leaves]
        found.append(_Share(devices[home], unflatten(tree, rows), own, parts[0]))
        start += sum(own)
    return found


def _cut(leaf: Any, start: int, stop: int) -> Any:
    """Rows of an array, taken where the array is: the others need not travel."""
    if start == 0 and stop == leaf.shape[0]:
        return leaf
    if current() is None or not isinstance(leaf, Value | Variable):
        return leaf[start:stop]
    with device(None), colocate(leaf):
        return leaf[start:stop]


def _on_device(function: Model, params: Any, share: _Share, ways: tuple[str, ...]) -> Any:
    """The results of a device's replicas, combined as far as they can be there."""
    with device(share.device):
        parts = _pieces(share.batch, share.sizes) if len(share.sizes) > 1 else [share.batch]
        made = [function(params, part) for part in parts]
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
        return _combined(made, lambda leaves: change(leaves, ways[0]))
    if not isinstance(made[0], tuple) or len(made[0]) != len(ways):
        raise TraceError(
            f"there are {len(ways)} ways to combine, for a function that returns "
            f"{len(made[0]) if isinstance(made[0], tuple) else 'no'} results"
            f"{'' if isinstance(made[0], tuple) else ' in a tuple'}"
        )
    return tuple(
        _combined(column, partial(_call_with, change, way)) for column, way in zip(zip(*made), ways)
    )


def _call_with(change: Callable[[Sequence[Any], str], Any], way: str, leaves: Sequence[Any]) -> Any:
    return change(leaves, way)


def _combined(trees: Sequence[Any], combine: Callable[[Sequence[Any]], Any]) -> Any:
    """One tree out of several of one structure."""
    if not trees:
        raise GraphError("there are no parts to combine")
    first, structure = flatten(trees[0], keep_order=True)
    rest = [matched(structure, tree, "results of another part") for tree in trees[1:]]
    return unflatten(structure, [combine(row) for row in zip(first, *rest)])


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
            return self.layer.init(key, dtype)

    def state(self, dtype: Any = "f32") -> Any:
        return self.layer.state(dtype)

    def apply(
        self, params: Any, x: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        with device(self.device):
            return self.layer.apply(params, x, state, key=key, training=training)


def on(name: str, layer: Any) -> On:
    """A layer, or a function of one array, on a device: `on("cpu:1", gc.nn.LSTM(8, 8))`.

    Raises TraceError for what is no layer; GraphError for a bad device name where it is traced.
    """
    return On(name, as_layer(layer))
