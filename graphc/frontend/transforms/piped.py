"""Pipelined gradients: a function of chunks, cut into stages and traced in the order of a schedule.

    loss ── trace ──> region ── cut ──> stages ── cells ──> forward, backward ── assemble ──> nodes

What is traced is plain nodes with constraints of place, so everything after the trace stage is as
for any program of several devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.trace.calls import seen
from graphc.frontend.trace.region import Operands, Region, closed, enclosing, trace_region
from graphc.frontend.trace.tree import leaf_names, unflatten
from graphc.frontend.transforms.grad import (
    chosen_leaves,
    given_arguments,
    gradient_tree,
    loss_region,
    under,
)
from graphc.ir.graph import Node
from graphc.ir.place import Constraint, Device, parse_device, parse_spec
from graphc.ops.record.value import Trace, Value, lift
from graphc.passes.pipelining import cut
from graphc.passes.pipelining.assemble import Chunk, assemble
from graphc.passes.pipelining.cells import Cells, Loss, cells_of, parts_of, prepare
from graphc.passes.pipelining.timetable import (
    Timetable,
    check_timetable,
    parse_timetable,
    timetable,
)
from graphc.passes.placement.measured import cost_model
from graphc.record import record

Call = tuple[tuple[Any, ...], dict[str, Any]]
Schedule = Timetable
OWN = "key"  # the keyword that every chunk has a value of its own for


@record(frozen=True)
class Options:
    """How a function is piped: see `gc.parallel.pipeline`."""

    devices: tuple[str, ...]
    schedule: str | Timetable = "1f1b"
    checkpoint: str = "except_last"
    balance: str = "time"
    stages: int | tuple[str, ...] | None = None
    has_aux: bool = False
    trains: bool = True
    fenced: bool = True


@record(frozen=True, eq=False)
class Piped:
    """What was traced: the results for every chunk, gradients (None unless it trains), schedule."""

    results: list[Any]
    gradients: Any
    table: Timetable


def piped(
    function: Callable[..., Any],
    calls: Sequence[Call],
    lengths: Sequence[int],
    weights: Sequence[float],
    options: Options,
) -> Piped:
    """Trace the calls of all chunks in the order of a schedule.

    `calls` has the arguments of every chunk: parameters first, then the chunk; `lengths` its rows.
    Chunks of equal length are traced once.  `weights` are what the loss of each counts.
    """
    trace = enclosing()
    shapes: dict[int, _Shape] = {}
    for length, call in zip(lengths, calls):
        if length not in shapes:
            shapes[length] = _Shape(function, call, options)
    first = shapes[lengths[0]]
    stages = _staged(first.loss, options, len(calls))
    cells = {n: _cells(shape, first, stages, options) for n, shape in shapes.items()}
    chunks = [
        shapes[n].chunk(cells[n], call, weight, trace)
        for n, call, weight in zip(lengths, calls, weights)
    ]
    places = [Constraint(parse_spec(name)) for name in options.devices]
    results, sums = assemble(trace, stages.table, chunks, places, options.fenced)
    values = [
        unflatten(shapes[n].region.tree, [trace.wrap(node) for node in row])
        for n, row in zip(lengths, results)
    ]
    found = {number: trace.wrap(node) for number, node in sums.items()}
    gradients = first.gradients(found, trace) if options.trains else None
    return Piped(values, gradients, stages.table)


# ------------------------------------------------------------------------------------ chunks


class _Shape:
    """The function traced on a chunk of one size."""

    def __init__(self, function: Callable[..., Any], call: Call, options: Options) -> None:
        self.function = function
        args, kwargs = call
        if options.trains:
            self.region, given, self.keys = loss_region(function, 0, options.has_aux, args, kwargs)
            self.wrt = chosen_leaves(given, self.keys)
        else:
            given = given_arguments(function, [0], args, kwargs)
            self.region, self.keys, self.wrt = _forward_region(function, given), [], []
        self.given = given
        captured, graphs = closed((self.region,))
        self.captured = captured
        paths = leaf_names(given.tree)
        own = [
            number
            for number, position in enumerate(given.positions)
            if under(paths[position], 1) or under(paths[position], OWN)
        ]
        self.loss: Loss = prepare(graphs[0], self.wrt, own)

    def chunk(self, cells: Sequence[Cells], call: Call, weight: float, trace: Trace) -> Chunk:
        """What the assembly needs of one chunk of this size."""
        args, kwargs = call
        given = given_arguments(self.function, [0], args, kwargs)
        nodes = [lift(value, trace).node for value in (*given.values, *self.captured)]
        params, seed = self.loss.graph.params, None
        if self.wrt:
            seed = trace.constant(np.asarray(weight, self.region.types[0].dtype.numpy)).node
        operands = dict(zip(params, nodes, strict=True))
        names = {params[k]: k for k in self.wrt}
        return Chunk(cells, operands, self.loss.graph.results, seed, names)

    def gradients(self, found: dict[int, Value], trace: Trace) -> Any:
        """The gradients in the nesting of the parameters; zeros where none arrived."""
        for number in self.wrt:
            if number not in found:
                kind = self.given.values[number].type
                found[number] = lift(np.zeros(kind.dims, kind.dtype.numpy), trace)
        return gradient_tree(self.given, self.keys[0], found)


def _forward_region(function: Callable[..., Any], given: Operands) -> Region:
    def call(tracers: list[Any]) -> Any:
        positional, named = given.rebuilt(tracers)
        return seen(function)(*positional, **named)

    return trace_region(getattr(function, "__name__", "f"), given.parameters, call)


# ------------------------------------------------------------------------------------ stages


@record(frozen=True, eq=False)
class _Stages:
    """Where the first shape is cut, and when what runs."""

    stage: dict[Node, int]
    table: Timetable


def _staged(loss: Loss, options: Options, chunks: int) -> _Stages:
    devices = tuple(map(parse_device, options.devices))
    if not cut.working(loss):
        raise GraphError("nothing in the function depends on the batch")
    given = _given_table(options)
    asked = cut.by_device(loss, devices) if options.stages is None else None
    if asked is not None:
        stage, homes = asked
        count = len(homes)
    else:
        stage, count = _balanced(loss, options, devices, given)
        homes = [number % len(devices) for number in range(count)]
    table = given or timetable(str(options.schedule), count, chunks, homes, options.trains)
    return _Stages(stage, _fitting(table, count, chunks, options))


def _given_table(options: Options) -> Timetable | None:
    """The user's own schedule."""
    if isinstance(options.schedule, Timetable):
        return check_timetable(options.schedule)
    is_text = any(mark in options.schedule for mark in " \n|")
    return parse_timetable(options.schedule) if is_text else None


def _balanced(
    loss: Loss, options: Options, devices: Sequence[Device], given: Timetable | None
) -> tuple[dict[Node, int], int]:
    if isinstance(options.stages, tuple):
        return cut.by_names(loss, options.stages), len(options.stages) + 1
    usual = len(devices) * (2 if options.schedule == "interleaved" else 1)
    count = options.stages or (given.stages if given else min(usual, len(cut.together(loss))))
    cost = cost_model(devices, Config.create(devices=options.devices))
    return cut.by_count(loss, count, cost, options.balance), count


def _fitting(table: Timetable, stages: int, chunks: int, options: Options) -> Timetable:
    if (table.stages, table.chunks) != (stages, chunks) or table.devices > len(options.devices):
        raise GraphError(
            f"the schedule is for {table.stages} stages of {table.chunks} chunks on "
            f"{table.devices} devices; here are {stages} of {chunks} on {len(options.devices)}",
            hint="a batch with fewer rows than chunks has fewer chunks",
        )
    if table.trains != options.trains:
        raise GraphError("a schedule has backward passes if and only if gradients are asked for")
    return table if table.repeats else table.checkpointed(options.checkpoint)


def _cells(shape: _Shape, first: _Shape, stages: _Stages, options: Options) -> list[Cells]:
    """The cells of a shape, cut where the first shape is."""
    stage = stages.stage
    if shape is not first:
        theirs, own = cut.working(first.loss), cut.working(shape.loss)
        if [n.op for n in theirs] != [n.op for n in own]:
            raise GraphError(
                "the function computes something else for the last chunk, which is smaller",
                hint="choose chunks so that all are of one size, or do not branch on the size",
            )
        stage = {node: stages.stage[other] for node, other in zip(own, theirs)}
    parts = parts_of(shape.loss, stage, stages.table.stages)
    return cells_of(shape.loss, parts, options.trains)


def schedule(
    text: str,
    stages: int | None = None,
    chunks: int | None = None,
    devices: int | None = None,
    checkpoint: str = "never",
) -> Timetable:
    """A schedule by its name for a number of stages and chunks, or the schedule that a text is.

        device 0 | 0F0 0F1  .  0B0  .  0B1          one row for each device: 1F0 is stage 1 of chunk
        device 1 |  .  1F0 1B0 1F1 1B1  .           0, F forward, B backward, R forward once more,
                                                    I and W gradients of inputs and of weights

    Printed, it is such a grid, where every action takes a unit of time; the dots mean nothing.
    `devices` has stage s on device s modulo their number; `checkpoint` is as for `pipeline`.
    Raises GraphError for a schedule that nobody could run: it does something twice or not at all,
    or waits forever.
    """
    if any(mark in text for mark in " \n|"):
        return parse_timetable(text).checkpointed(checkpoint)
    if stages is None or chunks is None:
        raise GraphError(
            f"the schedule {text!r} is for a number of stages and of chunks",
            hint='write for example gc.parallel.schedule("1f1b", stages=2, chunks=4)',
        )
    homes = [stage % (devices or stages) for stage in range(stages)]
    return timetable(text, stages, chunks, homes).checkpointed(checkpoint)
