"""Pipelined gradients: a function of chunks, cut into stages and traced in the order of a schedule.

    loss ── trace ──> region ── cut ──> stages ── cells ──> forward, backward ── assemble ──> nodes

What is traced is plain nodes with constraints of place, so everything after the trace stage is as
for any program of several devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.trace.batch_statistics import Pending, in_chunks
from graphc.frontend.trace.calls import seen
from graphc.frontend.trace.colocation import root_of
from graphc.frontend.trace.placement import device
from graphc.frontend.trace.region import Operands, Region, closed, enclosing, trace_region
from graphc.frontend.trace.tree import flatten, leaf_names, unflatten
from graphc.frontend.transforms.grad import (
    chosen_leaves,
    given_arguments,
    gradient_tree,
    loss_region,
    under,
)
from graphc.ir.graph import Node
from graphc.ir.op import OPS
from graphc.ir.place import Constraint, parse_device, parse_spec
from graphc.ops.record.value import Trace, Value, lift
from graphc.passes.pipelining import cut
from graphc.passes.pipelining.assemble import Chunk, assemble
from graphc.passes.pipelining.cells import Cells, Loss, cells_of, parts_of, prepare
from graphc.passes.pipelining.choose import (
    Choice,
    StageCost,
    choices,
    device_bytes,
    predicted,
    reasons,
    stage_cost,
)
from graphc.passes.pipelining.predict import Prediction
from graphc.passes.pipelining.timetable import (
    Timetable,
    check_timetable,
    parse_timetable,
    timetable,
)
from graphc.passes.placement.measured import cost_model
from graphc.passes.reasons import duration
from graphc.record import record

Call = tuple[tuple[Any, ...], dict[str, Any]]
Schedule = Timetable
COPIES = 4  # of a node at most for each chunk: forward, once more, and in both halves backward
BOUNDS = 9  # of bytes that are tried, where the fastest stages do not fit
OWN = "key"  # the keyword that every chunk has a value of its own for


@record(frozen=True)
class Options:
    """How a function is piped: see `gc.parallel.pipeline`. `groups` are the devices of each of
    several pipelines that share a batch."""

    groups: tuple[tuple[str, ...], ...]
    schedule: str | Timetable = "1f1b"
    checkpoint: str = "except_last"
    balance: str = "time"
    stages: int | str | tuple[str, ...] | None = None
    has_aux: bool = False
    trains: bool = True
    fenced: bool = True
    memory_limit: float | None = None  # bytes of a device


@record(frozen=True, eq=False)
class Piece:
    """A chunk of a batch: the arguments of its call (parameters first, then the chunk), its rows,
    what its loss counts, and which pipeline it goes through."""

    call: Call
    rows: int
    weight: float
    group: int = 0


@record(frozen=True, eq=False)
class Piped:
    """What was traced: the results for every chunk, gradients (None unless it trains), and the
    device of the last stage."""

    results: list[Any]
    gradients: Any
    last: str
    whole: dict[int, Value]  # by leaf of what is beside the loss: its value for the whole batch
    planned: Planned


@record(frozen=True, eq=False)
class Planned:
    """What a pipeline does and what it would take by the cost model: print it.

    schedule      of the first pipeline
    costs         of each stage for its first chunk
    prediction    the timeline of the schedule with these costs
    bytes         what each device would need
    gap           by how much the slowest stage may be slower than necessary (0.1 is 10 %); None
                  where the user has said where to cut
    """

    schedule: Timetable
    costs: Sequence[StageCost]
    gap: float | None = None
    choices: Sequence[Choice] = ()

    @property
    def prediction(self) -> Prediction:
        return predicted(self.schedule, self.costs)

    @property
    def bytes(self) -> list[int]:
        return device_bytes(self.schedule, self.costs)

    def __str__(self) -> str:
        lines = [str(self.schedule), "", str(self.prediction), ""]
        for stage, each in enumerate(self.costs):
            back = each.seconds["B"]
            lines.append(
                f"stage {stage}: forward {duration(each.seconds['F'])}, backward {duration(back)}, "
                f"{each.params:,} bytes of parameters, {each.inputs + each.inside:,} for each chunk"
            )
        lines += [f"device {k}: about {n:,} bytes" for k, n in enumerate(self.bytes)]
        if self.gap is not None:
            lines.append(f"the slowest stage is within {self.gap:.1%} of the fastest there can be")
        return "\n".join([*lines, "", reasons(self.choices)] if self.choices else lines)


def piped(function: Callable[..., Any], pieces: Sequence[Piece], options: Options) -> Piped:
    """Trace the calls of all chunks in the order of a schedule; chunks of equal length are traced
    once."""
    trace = enclosing()
    root_of(trace).copies += len(pieces) * COPIES
    shapes: dict[int, _Shape] = {}
    for piece in pieces:
        if piece.rows not in shapes:
            shapes[piece.rows] = _Shape(function, piece.call, options)
    first = shapes[pieces[0].rows]
    plan = Plan(first.loss, options, sum(piece.group == 0 for piece in pieces))
    cells = {n: plan.cells(shape.loss) for n, shape in shapes.items()}
    rows: list[list[Value]] = []
    sums: dict[int, list[Node]] = {}
    for number, devices in enumerate(options.groups):
        own = [piece for piece in pieces if piece.group == number]
        if own:
            chunks = [shapes[p.rows].chunk(cells[p.rows], p, trace) for p in own]
            places = [Constraint(parse_spec(name)) for name in devices]
            made, found = assemble(trace, plan.table(len(own)), chunks, places, options.fenced)
            rows += [[trace.wrap(node) for node in row] for row in made]
            for parameter, node in found.items():
                sums.setdefault(parameter, []).append(node)
    last = options.groups[0][plan.homes[-1]]
    with device(last):
        total = sum(piece.rows for piece in pieces)
        whole = first.whole(rows, [piece.rows / total for piece in pieces] if total else [1.0])
    gradients = first.gradients(sums, trace) if options.trains else None
    values = [shapes[piece.rows].results(row) for piece, row in zip(pieces, rows)]
    planned = plan.planned(cells[pieces[0].rows])
    _check_bytes(planned.bytes, options.memory_limit)
    return Piped(values, gradients, last, whole, planned)


def _check_bytes(needed: Sequence[int], limit: float | None) -> None:
    most = max(needed)
    if limit is not None and most > limit:
        raise GraphError(
            f"device {needed.index(most)} of the pipeline needs about {most:,} bytes, and "
            f"memory_limit allows {limit:,.0f}",
            hint='take more stages or chunks, or checkpoint="always"',
        )


def chosen(
    function: Callable[..., Any], call: Call, share: float, most_chunks: int, options: Options
) -> list[Choice]:
    """The ways to run a function in stages, the best one first; `call` is of a chunk that is this
    share of a batch."""
    loss = _Shape(function, call, options).loss
    devices = tuple(map(parse_device, options.groups[0]))
    cost = cost_model(devices, Config.create(devices=options.groups[0]))
    return choices(loss, cost, devices, share, most_chunks, options.memory_limit)


# ------------------------------------------------------------------------------------ chunks


class _Shape:
    """The function traced on a chunk of one size."""

    def __init__(self, function: Callable[..., Any], call: Call, options: Options) -> None:
        self.function = function
        self.noted: list[tuple[list[int | None], Pending]] = []  # with leaves of aux
        self.trains = options.trains
        self.has_aux = options.has_aux and options.trains
        args, kwargs = call
        if options.trains:
            noted = self.noting(function) if options.has_aux else function
            traced = loss_region(noted, 0, options.has_aux, args, kwargs, once=False)
            self.region, given, self.keys = traced
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

    def chunk(self, cells: Sequence[Cells], piece: Piece, trace: Trace) -> Chunk:
        """What the assembly needs of one chunk of this size."""
        args, kwargs = piece.call
        given = given_arguments(self.function, [0], args, kwargs)
        nodes = [lift(value, trace).node for value in (*given.values, *self.captured)]
        params, seed = self.loss.graph.params, None
        if self.trains:
            seed = trace.constant(np.asarray(piece.weight, self.region.types[0].dtype.numpy)).node
        operands = dict(zip(params, nodes, strict=True))
        names = {params[k]: k for k in self.wrt}
        return Chunk(cells, operands, self.loss.graph.results, seed, names)

    def gradients(self, sums: dict[int, list[Node]], trace: Trace) -> Any:
        """The gradients in the nesting of the parameters, summed over pipelines where those of the
        first are; zeros where none arrived."""
        found: dict[int, Value] = {}
        for number in self.wrt:
            if number in sums:
                total = sums[number][0]
                for node in sums[number][1:]:
                    total = trace.builder.emit(OPS["add"], (total, node), place=total.place)
                found[number] = trace.wrap(total)
            else:
                kind = self.given.values[number].type
                found[number] = lift(np.zeros(kind.dims, kind.dtype.numpy), trace)
        return gradient_tree(self.given, self.keys[0], found)


def _forward_region(function: Callable[..., Any], given: Operands) -> Region:
    def call(tracers: list[Any]) -> Any:
        positional, named = given.rebuilt(tracers)
        return seen(function)(*positional, **named)

    return trace_region(getattr(function, "__name__", "f"), given.parameters, call)


# ------------------------------------------------------------------------------------ stages


class Plan:
    """Where a loss is cut, and when what runs."""

    def __init__(self, loss: Loss, options: Options, chunks: int) -> None:
        self.loss = loss
        self.options = options
        self.chunks = chunks
        self.working = cut.working(loss)
        if not self.working:
            raise GraphError("nothing in the function depends on the batch")
        self.given = _given_table(options.schedule)
        self.gap: float | None = None
        self.devices = tuple(map(parse_device, options.groups[0]))
        self.cost = cost_model(self.devices, Config.create(devices=options.groups[0]))
        asked = cut.by_device(loss, self.devices) if options.stages is None else None
        if asked is not None:
            self.stage, self.homes = asked
        else:
            self.homes = [number % len(self.devices) for number in range(self.count())]
            self.stage = self.balanced()
            if not isinstance(options.stages, tuple) and not self.fits():
                self.stage = self.with_fewer_bytes()

    def count(self) -> int:
        """How many stages there are, where the function does not say where they begin."""
        stages, schedule = self.options.stages, self.options.schedule
        if isinstance(stages, tuple):
            return len(stages) + 1
        usual = len(self.devices) * (2 if schedule == "interleaved" else 1)
        known = self.given.stages if self.given else None
        return int(stages or known or min(usual, len(cut.together(self.loss))))

    def balanced(self, **bounds: Any) -> dict[Node, int]:
        loss, options = self.loss, self.options
        if isinstance(options.stages, tuple):
            return cut.by_names(loss, options.stages)
        found = cut.by_count(loss, len(self.homes), self.cost, options.balance, **bounds)
        self.stage, self.gap = found
        return self.stage

    def fits(self) -> bool:
        limit = self.options.memory_limit
        return limit is None or max(self.planned(self.cells(self.loss)).bytes) <= limit

    def with_fewer_bytes(self) -> dict[Node, int]:
        """The fastest stages that fit, of those that are bounded by fewer and fewer bytes."""
        loss, count = self.loss, len(self.homes)
        held = max(map(self.table(self.chunks).held, range(count)))
        even, _ = cut.by_count(loss, count, self.cost, "bytes", held=held)
        most, least = (cut.most_bytes(loss, stage, held) for stage in (self.stage, even))
        for bound in np.linspace(most, least, BOUNDS):
            self.balanced(limit=float(bound), held=held)
            if self.fits():
                break
        return self.stage

    def planned(self, cells: Sequence[Cells]) -> Planned:
        """What it would take with stages of these cells."""
        costs = [stage_cost(self.loss, each, self.cost, self.devices[0]) for each in cells]
        return Planned(self.table(self.chunks), costs, self.gap)

    def table(self, chunks: int) -> Timetable:
        """The schedule of a number of chunks. Raises GraphError where the user's own is for
        another."""
        options, stages = self.options, len(self.homes)
        name = str(options.schedule)
        table = self.given or timetable(name, stages, chunks, self.homes, options.trains)
        most = len(options.groups[0])
        if (table.stages, table.chunks) != (stages, chunks) or table.devices > most:
            raise GraphError(
                f"the schedule is for {table.stages} stages of {table.chunks} chunks on "
                f"{table.devices} devices; here are {stages} of {chunks} on {most}",
                hint="a batch with fewer rows than chunks has fewer chunks",
            )
        if table.trains != options.trains:
            raise GraphError(
                "a schedule has backward passes if and only if gradients are asked for"
            )
        return table if table.repeats else table.checkpointed(options.checkpoint)

    def cells(self, loss: Loss) -> list[Cells]:
        """The cells of the loss of chunks of some size, cut where the first one is."""
        stage = self.stage
        if loss is not self.loss:
            own = cut.working(loss)
            if [n.op for n in own] != [n.op for n in self.working]:
                raise GraphError(
                    "the function computes something else for the last chunk, which is smaller",
                    hint="choose chunks so that all are of one size, or do not branch on the size",
                )
            stage = {node: self.stage[other] for node, other in zip(own, self.working)}
        return cells_of(loss, parts_of(loss, stage, len(self.homes)), self.options.trains)


def _given_table(schedule: str | Timetable) -> Timetable | None:
    """The user's own schedule."""
    if isinstance(schedule, Timetable):
        return check_timetable(schedule)
    return parse_timetable(schedule) if _is_table(schedule) else None


def _is_table(text: str) -> bool:
    if not isinstance(text, str):
        raise GraphError(f"a schedule is a name or a text, got {type(text).__name__}")
    return any(mark in text for mark in " \n|")


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
    if _is_table(text):
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
