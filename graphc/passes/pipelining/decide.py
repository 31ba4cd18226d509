"""decide: where a loss is cut into stages, and when what runs.

What the user has asked for goes with the node of a pipeline as its attributes; what he left open
is decided here, by the cost model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph, Node
from graphc.ir.place import parse_device
from graphc.passes.pipelining import cut
from graphc.passes.pipelining.cells import Cells, Loss, cells_of, parts_of, prepare
from graphc.passes.pipelining.choose import (
    Choice,
    StageCost,
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

BOUNDS = 9  # of bytes that are tried, where the fastest stages do not fit


@record(frozen=True)
class Options:
    """How a function is piped: see `gc.parallel.pipeline`. `groups` are the devices of each of
    several pipelines that share a batch."""

    groups: tuple[tuple[str, ...], ...]
    schedule: str | Timetable = "1f1b"
    checkpoint: str = "except_last"
    balance: str = "time"
    stages: int | str | tuple[str, ...] | None = None
    trains: bool = True
    fenced: bool = True
    memory_limit: float | None = None  # bytes of a device

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the op `pipeline`; `options_of` reads them."""
        by_name = isinstance(self.stages, tuple)
        return {
            "devices": [name for group in self.groups for name in group],
            "schedule": words_of(self.schedule),
            "checkpoint": self.checkpoint,
            "balance": self.balance,
            "stages": None if by_name else self.stages,
            "ends": self.stages if by_name else (),
            "trains": self.trains,
            "fenced": self.fenced,
            "memory_limit": self.memory_limit,
        }


def options_of(attrs: Mapping[str, Any]) -> Options:
    """What the attributes of a `pipeline` ask for. Raises GraphError for a bad schedule."""
    devices, width = attrs["devices"], len(attrs["devices"]) // len(attrs["counts"])
    groups = tuple(devices[k : k + width] for k in range(0, len(devices), width))
    name, *words = attrs["schedule"] or ("",)
    rows = [f"device {k} | {row}" for k, row in enumerate(" ".join(words).split("|")[1:])]
    return Options(
        groups,
        parse_timetable("\n".join([f"schedule {name}", *rows])) if words else name,
        attrs["checkpoint"],
        attrs["balance"],
        attrs["ends"] or attrs["stages"],
        attrs["trains"],
        attrs["fenced"],
        attrs["memory_limit"],
    )


def losses_of(regions: Sequence[Graph], attrs: Mapping[str, Any]) -> list[Loss]:
    """The regions of a `pipeline`, ready to be cut."""
    return [prepare(region, attrs["wrt"], attrs["own"]) for region in regions]


def words_of(schedule: str | Timetable) -> tuple[str, ...]:
    """A name, or a name and the actions of each device after a `|`."""
    given = _given_table(schedule)
    if given is None:
        return (str(schedule),)
    return ("custom", *(word for row in given.rows for word in ("|", *map(str, row))))


def _given_table(schedule: str | Timetable) -> Timetable | None:
    """The user's own schedule."""
    if isinstance(schedule, Timetable):
        return check_timetable(schedule)
    return parse_timetable(schedule) if is_table(schedule) else None


def is_table(text: str) -> bool:
    """Is the text a schedule, and not the name of one?"""
    if not isinstance(text, str):
        raise GraphError(f"a schedule is a name or a text, got {type(text).__name__}")
    return any(mark in text for mark in " \n|")


# ------------------------------------------------------------------------------------ deciding


class Plan:
    """Where a loss is cut, and when what runs."""

    def __init__(self, loss: Loss, options: Options, chunks: int, config: Config) -> None:
        self.loss = loss
        self.options = options
        self.chunks = chunks
        self.working = cut.working(loss)
        if not self.working:
            raise GraphError("nothing in the function depends on the batch")
        self.given = _given_table(options.schedule)
        self.gap: float | None = None
        self.devices = tuple(map(parse_device, options.groups[0]))
        self.cost = cost_model(self.devices, config)
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
        table = self.given or timetable(
            str(options.schedule), stages, chunks, self.homes, options.trains
        )
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


# ------------------------------------------------------------------------------------ telling


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


def planned(region: Graph, attrs: Mapping[str, Any], config: Config) -> Planned:
    """What a pipeline is going to do, by its first region."""
    plan = Plan(losses_of([region], attrs)[0], options_of(attrs), attrs["counts"][0], config)
    return plan.planned(plan.cells(plan.loss))


def check_bytes(needed: Sequence[int], limit: float | None) -> None:
    """Raise GraphError where a device would need more than the limit."""
    most = max(needed)
    if limit is not None and most > limit:
        raise GraphError(
            f"device {needed.index(most)} of the pipeline needs about {most:,} bytes, and "
            f"memory_limit allows {limit:,.0f}",
            hint='take more stages or chunks, or checkpoint="always"',
        )
