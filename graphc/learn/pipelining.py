"""Pipeline parallelism: a model in stages on several devices, a batch in chunks on its way through.

    step = gc.parallel.pipeline(loss, ["cpu:0", "cpu:1"], chunks=8)
    value, gradients = step(params, batch)          # alone, or inside a compiled function

It takes any function: what is traced is cut, not a list of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from graphc.errors import GraphError
from graphc.frontend.compile.decorator import compile as compiled
from graphc.frontend.trace.placement import device
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.frontend.transforms.piped import Options, Piped, Schedule, piped
from graphc.frontend.transforms.piped import schedule as schedule
from graphc.learn.batches import combined, cut_rows, rows_of, sizes
from graphc.ops.random.random import fold_in
from graphc.ops.record.value import current
from graphc.ops.record.value import functions as f

WAYS = ("mean", "sum", "concatenate")


class Pipeline:
    """A function that is run in stages: made by `gc.parallel.pipeline`.

    (params, batch, ...) -> (value, gradients), or ((value, aux), gradients) with `has_aux`.
    """

    def __init__(
        self, function: Callable[..., Any], chunks: int, ways: tuple[str, ...], options: Options
    ) -> None:
        self.function = function
        self.chunks = chunks
        self.ways = ways
        self.options = options
        self.__name__ = f"piped_{getattr(function, '__name__', 'function')}"
        self._compiled: Any = None

    def __call__(self, params: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        if current() is None:
            if self._compiled is None:
                self._compiled = compiled(self._traced, devices=list(self.options.devices))
            return self._compiled(params, batch, *rest, **named)
        return self._traced(params, batch, *rest, **named)

    def _traced(self, params: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        leaves, tree = flatten(batch, keep_order=True)
        rows = rows_of(leaves, tree)
        lengths = sizes(rows, self.chunks)
        shares = [length / rows if rows else 1.0 for length in lengths]
        calls = []
        start = 0
        for number, length in enumerate(lengths):
            part = unflatten(tree, [cut_rows(leaf, start, start + length) for leaf in leaves])
            calls.append(((params, part, *rest), self._own(named, number)))
            start += length
        weights = shares if self.ways[0] == "mean" else [1.0] * len(shares)
        made = piped(self.function, calls, lengths, weights, self.options)
        value = self._combined(made, shares)
        return (value, made.gradients) if self.options.trains else value

    def _own(self, named: dict[str, Any], number: int) -> dict[str, Any]:
        """The keyword arguments of a chunk: its own random numbers, if there are any."""
        if named.get("key") is None:
            return named
        return {**named, "key": fold_in(named["key"], number)}

    def _combined(self, made: Piped, shares: Sequence[float]) -> Any:
        """The results of the batch, out of those of all chunks, on the device of the last stage."""
        last = self.options.devices[made.table.home[-1]]
        with device(last):
            if not self.options.trains:
                return _over_chunks(made.results, self.ways[0], shares)
            values, extras = zip(*made.results)
            value = _over_chunks(values, self.ways[0], shares)
            if not self.options.has_aux:
                return value
            return value, _over_chunks(extras, self.ways[-1], shares)


def _over_chunks(parts: Sequence[Any], way: str, shares: Sequence[float]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if way == "concatenate":
        return combined(parts, lambda leaves: f.concatenate(list(leaves)))
    if way == "mean":
        return combined(parts, lambda leaves: reduce(f.add, map(f.multiply, leaves, shares)))
    return combined(parts, lambda leaves: reduce(f.add, leaves))


def pipeline(
    function: Callable[..., Any],
    devices: Sequence[str],
    chunks: int = 8,
    schedule: str | Schedule = "1f1b",
    checkpoint: str = "except_last",
    balance: str = "time",
    stages: int | Sequence[str] | None = None,
    has_aux: bool = False,
    combine: str | Sequence[str] = "mean",
    gradients: bool = True,
) -> Pipeline:
    """function(params, batch) and its gradient by params, in stages on several devices.

    devices     stage s runs on device s, or s modulo their number
    chunks      into how many parts the batch is split (see `sizes`)
    schedule    "gpipe", "1f1b", "interleaved", "zb-h1", or one of your own: see `schedule`
    checkpoint  whose forward passes are run once more instead of being kept: those of "always" all
                chunks, of all "except_last", or "never"
    balance     what is made equal where nothing says where to cut: "time" or "bytes"
    stages      their number, or names of values (`gc.name`) that end one each; by default a stage
                begins wherever the function enters another `gc.device`, and without any there is
                one for each device, two for "interleaved"
    has_aux     the function returns (value, aux)
    combine     how the value is combined over chunks, or how value and aux are: "mean" weights by
                rows, "sum", "concatenate" (aux)
    gradients   False: function(params, batch) alone, with results of any nesting, which are
                combined by "concatenate" unless `combine` is given

    Further arguments are given to every chunk as they are; of a `key=`, each chunk has its own,
    `gc.random.fold_in(key, number)`.  With chunks=1, checkpoint="never" it is plain model
    parallelism.  Raises GraphError for bad arguments and, when called, TypeRuleError for a bad
    batch.
    """
    found = (devices,) if isinstance(devices, str) else tuple(devices)
    ways = (combine,) if isinstance(combine, str) else tuple(combine)
    if not found or chunks < 1:
        raise GraphError("pipeline takes one device or more, and one chunk or more")
    if unknown := [way for way in ways if way not in WAYS]:
        raise GraphError(f"results are combined by {', '.join(WAYS)}, not by {unknown[0]!r}")
    if gradients and (len(ways) > 2 or ways[0] == "concatenate"):
        raise GraphError("a value with gradients is combined by mean or sum, and aux by one way")
    names = stages if isinstance(stages, int | None) else tuple(stages)
    options = Options(found, schedule, checkpoint, balance, names, has_aux, gradients)
    return Pipeline(function, chunks, ways, options)
