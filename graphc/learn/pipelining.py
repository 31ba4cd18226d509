"""Pipeline parallelism: a model in stages on several devices, a batch in chunks on its way through.

    step = gc.parallel.pipeline(loss, ["cpu:0", "cpu:1"], chunks=8)
    value, gradients = step(params, batch)          # alone, or inside a compiled function

It takes any function: what is traced is cut, not a list of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np

from graphc.base.record import replace
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.decorator import CompiledFunction
from graphc.frontend.compile.signature import Literals
from graphc.frontend.trace.tree import flatten, unflatten
from graphc.frontend.transforms.on_arrays import NUMBERS
from graphc.frontend.transforms.piped import (
    BALANCES,
    CHECKPOINTS,
    Options,
    Piece,
    Piped,
    Planned,
    Schedule,
    chosen,
    piped,
    planned,
)
from graphc.frontend.transforms.piped import schedule as schedule
from graphc.learn.arguments import one_of, team, ways_of
from graphc.learn.batches import combined, cut_rows, rows_of, sizes
from graphc.ops.random.random import fold_in
from graphc.ops.record.value import current
from graphc.ops.record.value import functions as f

WAYS = ("mean", "sum", "concatenate")


class Pipeline:
    """A function that is run in stages: made by `gc.parallel.pipeline`.

    (params, batch, ...) -> (value, gradients), or ((value, aux), gradients) with `has_aux`.
    `planned` is what the last trace has decided, and its timeline by the cost model.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        chunks: int,
        ways: tuple[str, ...],
        options: Options,
        has_aux: bool,
    ) -> None:
        self.function = function
        self.chunks = chunks
        self.ways = ways
        self.options = options
        self.has_aux = has_aux
        self.__name__ = f"piped_{getattr(function, '__name__', 'function')}"
        self._compiled: Any = None
        self._last: tuple[Piped, Sequence[Any]] | None = None
        self._planned: Planned | None = None

    @property
    def planned(self) -> Planned | None:
        """Made when it is asked for: tracing need not wait for it."""
        if self._planned is None and self._last is not None:
            made, found = self._last
            config = Config.create(devices=self.options.groups[0])
            self._planned = replace(planned(made.region, made.attrs, config), choices=found)
        return self._planned

    def __call__(self, params: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        if current() is None:
            if self._compiled is None:
                devices = tuple(dict.fromkeys(chain(*self.options.groups)))
                config, numbers = Config.create(devices=devices), Literals(_left_alone)
                self._compiled = CompiledFunction(self._traced, config, literals=numbers)
            return self._compiled(params, batch, *rest, **named)
        return self._traced(params, batch, *rest, **named)

    def _traced(self, params: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        leaves, tree = flatten(batch, keep_order=True)
        rows = rows_of(leaves, tree)
        if self.options.stages == "auto":
            rows = int(rows)  # the best way is that of a number

        def call(start: int, length: int, number: int) -> Any:
            part = unflatten(tree, [cut_rows(leaf, start, start + length) for leaf in leaves])
            return (params, part, *rest), self._own(named, number)

        options, chunks, found = self._choice(call, rows)
        pieces: list[Piece] = []
        start = 0
        for group, whole in enumerate(sizes(rows, len(options.groups))):
            for length in sizes(whole, chunks):
                weight = length / rows if rows and self.ways[0] == "mean" else 1.0
                pieces.append(Piece(call(start, length, len(pieces)), length, weight, group))
                start += length
        made = piped(self.function, pieces, options, self.has_aux)
        self._last, self._planned = (made, found), None
        value = self._combined(made, [piece.rows / rows if rows else 1.0 for piece in pieces])
        return (value, made.gradients) if self.options.trains else value

    def _choice(
        self, call: Callable[[int, int, int], Any], rows: int
    ) -> tuple[Options, int, Sequence[Any]]:
        """How it is run: as asked, or the best way there is."""
        if self.options.stages != "auto":
            return self.options, self.chunks, ()
        whole = sizes(rows, len(self.options.groups))[0]
        length = sizes(whole, self.chunks)[0]
        share = length / whole if whole else 1.0
        first = call(0, length, 0)
        found = chosen(self.function, first, share, max(whole, 1), self.options, self.has_aux)
        best = found[0]
        options = replace(
            self.options,
            stages=best.stages,
            schedule=best.schedule,
            checkpoint=best.checkpoint,
            balance=best.balance,
            memory_limit=None,
        )
        return options, best.chunks, found

    def _own(self, named: dict[str, Any], number: int) -> dict[str, Any]:
        """The keyword arguments of a chunk: its own random numbers, if there are any."""
        if named.get("key") is None:
            return named
        return {**named, "key": fold_in(named["key"], number)}

    def _combined(self, made: Piped, shares: Sequence[float]) -> Any:
        """The results of the batch, out of those of all chunks."""
        if not self.options.trains:
            return _over_chunks(made.results, self.ways[0], shares)
        values, extras = zip(*made.results)
        value = _over_chunks(values, self.ways[0], shares)
        if not self.has_aux:
            return value
        leaves, tree = flatten(_over_chunks(extras, self.ways[-1], shares))
        return value, unflatten(tree, [made.whole.get(k, x) for k, x in enumerate(leaves)])


def _left_alone(argument: str) -> tuple[type, ...]:
    """The numbers that stay Python numbers: those of further arguments."""
    return () if argument in ("params", "batch") else NUMBERS


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
    devices: Sequence[str] | Sequence[Sequence[str]],
    chunks: int = 8,
    schedule: str | Schedule = "1f1b",
    checkpoint: str = "except_last",
    balance: str = "time",
    stages: int | str | Sequence[str] | None = None,
    has_aux: bool = False,
    combine: str | Sequence[str] = "mean",
    gradients: bool = True,
    memory_limit: float | None = None,
) -> Pipeline:
    """function(params, batch) and its gradient by params, in stages on several devices.

    devices     stage s runs on device s, or s modulo their number; several sequences of devices are
                as many pipelines, each with its part of the batch (data parallelism)
    chunks      into how many parts the batch of a pipeline is split (see `sizes`)
    schedule    "gpipe", "1f1b", "interleaved", "zb-h1", or one of your own: see `schedule`
    checkpoint  whose forward passes are run once more instead of being kept: those of "always" all
                chunks, of all "except_last", or "never"
    balance     what is made equal where nothing says where to cut: "time" or "bytes"
    stages      their number, or names of values (`gc.name`) that end one each; by default a stage
                begins wherever the function enters another `gc.device`, and without any there is
                one for each device, two for "interleaved".  "auto" simulates all numbers of stages
                and chunks, schedules and checkpoints, and takes the fastest: `planned` says why
    has_aux     the function returns (value, aux)
    combine     how the value is combined over chunks, or how value and aux are: "mean" weights by
                rows, "sum", "concatenate" (aux)
    gradients   False: function(params, batch) alone, with results of any nesting, which are
                combined by "mean" unless `combine` is given
    memory_limit  the most bytes that a device may need by `planned.bytes`: what is cut or chosen is
                the fastest within them

    Further arguments are given to every chunk as they are; of a `key=`, each chunk has its own,
    `gc.random.fold_in(key, number)`.  With chunks=1, checkpoint="never" it is plain model
    parallelism.  Raises GraphError for bad arguments and, when called, TypeRuleError for a bad
    batch.
    """
    groups = _groups(devices)
    ways = ways_of(combine, WAYS)
    if not callable(function):
        raise GraphError(f"pipeline takes a function, got {type(function).__name__}")
    if not all(groups) or not groups or not _is_count(chunks):
        raise GraphError("pipeline takes one device or more, and one chunk or more")
    if gradients and (len(ways) > 2 or ways[0] == "concatenate"):
        raise GraphError("a value with gradients is combined by mean or sum, and aux by one way")
    one_of(checkpoint, CHECKPOINTS, "checkpoint is")
    one_of(balance, BALANCES, "stages are balanced by")
    names = _stages(stages)
    if not isinstance(memory_limit, int | float | np.number | None) or not (memory_limit or 1) > 0:
        raise GraphError(f"memory_limit is a number of bytes, not {memory_limit!r:.80}")
    if memory_limit is not None and not gradients:
        raise GraphError("memory_limit is for pipelines with gradients")
    options = Options(groups, schedule, checkpoint, balance, names, gradients)
    options = replace(options, memory_limit=memory_limit)
    return Pipeline(function, chunks, ways, options, has_aux)


def _is_count(number: Any) -> bool:
    """Is it a whole number from 1?"""
    return isinstance(number, int | np.integer) and int(number) > 0


def _stages(stages: Any) -> int | str | tuple[str, ...] | None:
    """The number of stages, their names or "auto". Raises GraphError for anything else."""
    if stages is None or stages == "auto" or _is_count(stages):
        return stages  # type: ignore[no-any-return]
    listed = isinstance(stages, Sequence) and not isinstance(stages, str)
    if listed and all(isinstance(name, str) for name in stages):
        return tuple(stages)
    raise GraphError(f'stages are a number from 1, names or "auto", not {stages!r}')


def _groups(devices: Sequence[str] | Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The devices of each pipeline. Raises GraphError where they are of different numbers."""
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        return (team(devices, "pipeline"),)
    groups = [group for group in devices if not isinstance(group, str)]
    if not groups:
        return (team(devices, "pipeline"),)
    teams = tuple(team(group, "pipeline") for group in groups)
    if len(groups) != len(devices) or len({*map(len, teams)}) > 1:
        raise GraphError(
            "several pipelines have devices of equal number",
            hint='for example [["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]]',
        )
    return teams
