"""Pipelined gradients: a function of a chunk becomes the region of a `pipeline` node.

    loss ── trace ──> region          chunks of a batch ──> operands

The stage `expand_pipelines` cuts it and puts it in the order of a schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.trace.batch_statistics import Pending, in_chunks
from graphc.frontend.trace.hooks import seen
from graphc.frontend.trace.region import (
    Operands,
    Region,
    closed,
    emit_closed,
    enclosing,
    trace_region,
)
from graphc.frontend.trace.tree import flatten, leaf_names, unflatten
from graphc.frontend.transforms.grad import given_arguments, gradient_tree, loss_region, under
from graphc.ir.graph import Graph
from graphc.ir.place import parse_device
from graphc.ops.control.pipelined import BALANCES as BALANCES
from graphc.ops.control.pipelined import CHECKPOINTS as CHECKPOINTS
from graphc.ops.control.pipelined import Layout
from graphc.ops.record.value import Value, lift
from graphc.passes.pipelining.cells import prepare
from graphc.passes.pipelining.choose import Choice, choices
from graphc.passes.pipelining.decide import Options as Options
from graphc.passes.pipelining.decide import Planned as Planned
from graphc.passes.pipelining.decide import is_table
from graphc.passes.pipelining.decide import planned as planned
from graphc.passes.pipelining.timetable import Timetable, parse_timetable, timetable
from graphc.passes.placement.measured import cost_model

Call = tuple[tuple[Any, ...], dict[str, Any]]
Schedule = Timetable
OWN = "key"  # the keyword that every chunk has a value of its own for


@record(frozen=True, eq=False)
class Piece:
    """A chunk of a batch: the arguments of its call (parameters first, then the chunk), its rows,
    what its loss counts, and which pipeline it goes through."""

    call: Call
    rows: int
    weight: float | Value
    group: int = 0


@record(frozen=True, eq=False)
class Piped:
    """What was traced: the results for every chunk, gradients (None unless it trains), and what the
    node is made of."""

    results: list[Any]
    gradients: Any
    whole: dict[int, Value]  # by leaf of what is beside the loss: its value for the whole batch
    region: Graph
    attrs: Mapping[str, Any]


def piped(
    function: Callable[..., Any], pieces: Sequence[Piece], options: Options, has_aux: bool
) -> Piped:
    """Trace the function on chunks, once for each length, as a node that runs all of them."""
    shapes: dict[int, _Shape] = {}
    for piece in pieces:
        if piece.rows not in shapes:
            shapes[piece.rows] = _Shape(function, piece.call, options.trains, has_aux)
    first = shapes[pieces[0].rows]
    captured, graphs = closed([shape.region for shape in shapes.values()])
    layout = Layout(tuple(first.own), len(graphs[0].params), len(pieces))
    operands = layout.joined([[*first.operands(piece), *captured] for piece in pieces])
    if options.trains:
        operands += [first.cotangent(piece) for piece in pieces]
    numbers = {rows: number for number, rows in enumerate(shapes)}
    attrs = {
        **options.attrs,
        "counts": [sum(p.group == k for p in pieces) for k in range(len(options.groups))],
        "shapes": [numbers[piece.rows] for piece in pieces],
        "own": first.own,
        "wrt": first.wrt,
    }
    made = emit_closed("pipeline", operands, graphs, **attrs)
    width = len(first.region.types)
    rows = [made[k * width : (k + 1) * width] for k in range(len(pieces))]
    total = sum(piece.rows for piece in pieces)
    whole = first.whole(rows, [piece.rows / total for piece in pieces] if total else [1.0])
    gradients = first.gradients(made[len(pieces) * width :]) if options.trains else None
    values = [shapes[piece.rows].results(row) for piece, row in zip(pieces, rows)]
    return Piped(values, gradients, whole, graphs[0], attrs)


def chosen(
    function: Callable[..., Any],
    call: Call,
    share: float,
    most_chunks: int,
    options: Options,
    has_aux: bool,
) -> list[Choice]:
    """The ways to run a function in stages, the best one first; `call` is of a chunk that is this
    share of a batch."""
    shape = _Shape(function, call, options.trains, has_aux)
    region = closed([shape.region])[1][0]
    devices = tuple(map(parse_device, options.groups[0]))
    cost = cost_model(devices, Config.create(devices=options.groups[0]))
    loss = prepare(region, shape.wrt, shape.own)
    return choices(loss, cost, devices, share, most_chunks, options.memory_limit)


# ------------------------------------------------------------------------------------ chunks


class _Shape:
    """The function traced on a chunk of one size."""

    def __init__(
        self, function: Callable[..., Any], call: Call, trains: bool, has_aux: bool
    ) -> None:
        self.function = function
        self.noted: list[tuple[list[int | None], Pending]] = []  # with leaves of aux
        self.has_aux = has_aux and trains
        args, kwargs = call
        if trains:
            noted = self.noting(function) if has_aux else function
            traced = loss_region(noted, 0, has_aux, args, kwargs, once=False)
            self.region, given, self.keys, self.wrt = traced
        else:
            given = given_arguments(function, [0], args, kwargs)
            self.region, self.keys, self.wrt = _forward_region(function, given), [], []
        self.given = given
        paths = leaf_names(given.tree)
        self.own = [
            number
            for number, position in enumerate(given.positions)
            if under(paths[position], 1) or under(paths[position], OWN)
        ]

    def noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which returns what it has noted for the whole batch, too."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with in_chunks() as pending:
                made = seen(function)(*args, **kwargs)
            if not isinstance(made, tuple) or len(made) != 2:
                return made
            value, aux = made
            leaves = flatten(aux)[0]
            place = {leaf.node: k for k, leaf in enumerate(leaves) if isinstance(leaf, Value)}
            self.noted = [([place.get(v.node) for v in p.values], p) for p in pending]
            return value, (aux, [[p.parts, p.steady] for p in pending])

        return call

    def results(self, row: Sequence[Value]) -> Any:
        """What the function has returned for a chunk."""
        made = unflatten(self.region.tree, row)
        return (made[0], made[1][0]) if self.has_aux else made

    def whole(self, rows: Sequence[Sequence[Value]], shares: Sequence[float]) -> dict[int, Value]:
        """What was left for the whole batch, by leaf of what is beside the loss."""
        if not self.noted:
            return {}
        extras = [unflatten(self.region.tree, row)[1][1] for row in rows]
        found: dict[int, Value] = {}
        for number, (places, pending) in enumerate(self.noted):
            parts = [extra[number][0] for extra in extras]
            made = pending.finish(shares, parts, extras[0][number][1])
            found |= {at: value for at, value in zip(places, made) if at is not None}
        return found

    def operands(self, piece: Piece) -> list[Value]:
        """The arguments of the call of a chunk."""
        args, kwargs = piece.call
        return given_arguments(self.function, [0], args, kwargs).values

    def cotangent(self, piece: Piece) -> Value:
        """That of the loss of a chunk."""
        return lift(piece.weight, enclosing(), self.region.types[0].dtype)

    def gradients(self, made: Sequence[Value]) -> Any:
        """The gradients in the nesting of the parameters."""
        return gradient_tree(self.given, self.keys[0], dict(zip(self.wrt, made, strict=True)))


def _forward_region(function: Callable[..., Any], given: Operands) -> Region:
    def call(tracers: list[Any]) -> Any:
        positional, named = given.rebuilt(tracers)
        return seen(function)(*positional, **named)

    return trace_region(getattr(function, "__name__", "f"), given.parameters, call)


MOST = 1 << 16  # stages, chunks and devices of a schedule


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
    if is_table(text):
        return parse_timetable(text).checkpointed(checkpoint)
    numbers = (stages, chunks, 1 if devices is None else devices)
    if not all(isinstance(number, int) and number <= MOST for number in numbers):
        raise GraphError(
            f"the schedule {text!r} is for a number of stages and of chunks, at most {MOST}",
            hint='write for example gc.parallel.schedule("1f1b", stages=2, chunks=4)',
        )
    assert stages is not None
    assert chunks is not None
    homes = [stage % (devices or stages) for stage in range(stages)]
    return timetable(text, stages, chunks, homes).checkpointed(checkpoint)
