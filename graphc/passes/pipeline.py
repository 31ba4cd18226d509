"""The pipeline: the table of contents of the compiler.

`STAGES` lists every pass in order with what holds from there on; those predicates are checked
again after every later stage, so an error names the pass that broke it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from graphc.codegen.table.contents import every_value_is_found
from graphc.collector import collector_paused
from graphc.config import Config
from graphc.errors import UNCOMPUTABLE, GraphError, VerifyError, uncomputable
from graphc.hints import meant
from graphc.ir import verify
from graphc.ir.channels import channels_paired, no_deadlock
from graphc.ir.graph import Graph, Node, Program
from graphc.passes.devices.compress import compress
from graphc.passes.devices.partition import partition
from graphc.passes.devices.schedule import schedule
from graphc.passes.fusion.cluster import cluster
from graphc.passes.fusion.fuse import fuse
from graphc.passes.loops.hoist import hoist
from graphc.passes.memory.pack import pack
from graphc.passes.memory.plan import plan
from graphc.passes.memory.received import received
from graphc.passes.memory.remat import remat
from graphc.passes.normalise.cse import cse
from graphc.passes.normalise.dce import dce
from graphc.passes.normalise.fold import fold
from graphc.passes.normalise.gradient import gradient
from graphc.passes.normalise.simplify import simplify
from graphc.passes.normalise.state import state, state_is_threaded
from graphc.passes.placement.place import place
from graphc.passes.reasons import collecting
from graphc.passes.tiling.tile import scratched, tile
from graphc.record import record

Stages = Graph | Program
Check = Callable[[Stages], None]


@record(frozen=True)
class Stage:
    """One pass: a function of its own name; `ensures` holds from here on. Skipped at opt=0 if
    optional.
    """

    run: Callable[..., Stages]
    ensures: tuple[Check, ...] = ()
    optional: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__


def trace(graph: Graph, config: Config) -> Graph:
    """The graph as it was traced or read."""
    return graph


STAGES = (
    Stage(trace),
    Stage(state, ensures=(state_is_threaded,)),
    Stage(gradient, ensures=(verify.no_gradients,)),
    Stage(fold, optional=True),
    Stage(simplify, ensures=(verify.no_composites,)),
    Stage(dce),
    Stage(cse, ensures=(verify.no_duplicates,), optional=True),
    Stage(hoist, optional=True),
    Stage(remat),
    Stage(cluster, optional=True),
    Stage(place, ensures=(verify.every_node_placed,)),
    Stage(partition, ensures=(verify.one_device_per_graph, channels_paired, no_deadlock)),
    Stage(compress),
    Stage(schedule),
    Stage(fuse, ensures=(verify.only_kernels,)),
    Stage(tile),
    Stage(pack, optional=True),
    Stage(plan, ensures=(verify.every_buffer_assigned, every_value_is_found)),
)


class Note(str):
    """What a stage did, for people; `reasons` lists its decisions as (node id, text)."""

    reasons: tuple[tuple[int, str], ...] = ()


class Record(NamedTuple):
    """The output of one stage, how long it took and what it did."""

    name: str
    value: Stages
    seconds: float
    note: Note


def run(
    graph: Stages, config: Config, after: str | None = None, traced_seconds: float = 0.0
) -> list[Record]:
    """Every stage's output, the graph itself first and the planned program last.

    `after` names the stage whose output the graph is: only later stages run, and `plan`, because
    what a graph says about memory is not believed (see `received`).  Raises GraphError for input
    that cannot be compiled and VerifyError, naming the pass, for a bug.
    """
    first = stage_named(after) if after else 0
    done = STAGES[: min(first + 1, len(STAGES) - 1)]
    checks = [c for s in done for c in s.ensures if not skipped(s, config)]
    with collector_paused():
        graph = received(graph)
        known = check(done[-1], graph, set(), checks, config.verify)
        if first >= stage_named("tile"):
            graph = apply(Stage(scratched), graph, config)
        records = [Record(STAGES[first].name, graph, traced_seconds, Note(f"{len(graph)} nodes"))]
        for stage in STAGES[len(done) :]:
            if skipped(stage, config):
                continue
            before = records[-1].value
            records.append(step(stage, before, config))
            changed = records[-1].value is not before
            known = check(stage, records[-1].value, known, checks, config.verify, changed)
            checks += stage.ensures
    return records if first < len(STAGES) - 1 else records[1:]


def skipped(stage: Stage, config: Config) -> bool:
    return stage.optional and config.opt == 0


def step(stage: Stage, before: Stages, config: Config) -> Record:
    """Run one stage and write down what it did."""
    started = time.perf_counter()
    with collecting() as reasons:
        try:
            value = apply(stage, before, config)
        except UNCOMPUTABLE as error:
            raise uncomputable(f"the stage {stage.name}", error) from error
    counts = f"{len(before)} -> {len(value)} nodes" if value is not before else "no change"
    note = Note(f"{counts}; {reasons.summary}" if reasons.summary else counts)
    note.reasons = tuple(reasons.lines)
    return Record(stage.name, value, time.perf_counter() - started, note)


def apply(stage: Stage, value: Stages, config: Config) -> Stages:
    """Run a stage on a graph, on every graph of a program, or on a program as a whole."""
    if isinstance(value, Program) and stage.name not in _OF_PROGRAMS:
        if stage.name in _BEFORE_PARTITION:
            return value
        return value.map(lambda graph: stage.run(graph, config))  # type: ignore[arg-type, return-value]
    return stage.run(value, config)


_BEFORE_PARTITION = frozenset(("place", "partition"))
_OF_PROGRAMS = frozenset(("compress", "schedule"))


def check(
    stage: Stage, value: Stages, known: set[Node], checks: list[Check], level: int,
    changed: bool = True,
) -> set[Node]:  # fmt: skip
    """Verify a stage's output at the given level; an error names the stage.

    What did not change was verified before; only the stage's own promises are new.

    The promises of earlier stages are checked again when the stage made or dropped a node.
    """
    if level == 0:
        return known
    try:
        seen = verify.verify(value, known) if changed else known
        promises = stage.ensures if seen == known else (*checks, *stage.ensures)
        for predicate in promises if level >= 2 else ():
            predicate(value)
        if level >= 3:
            round_trip(value)
    except VerifyError as error:
        error.message = f"after {stage.name}: {error.message}"
        raise
    return seen


def round_trip(value: Stages) -> None:
    """print(parse(print(g))) == print(g)."""
    from graphc.ir.parse import parse
    from graphc.ir.text import literals, show

    text = show(value)
    tensors = {found.digest: found.array for found in literals(value)}
    if show(parse(text, tensors)) != text:
        raise VerifyError("the text form does not round-trip")


def stage_named(name: str) -> int:
    """Position of a stage. Raises GraphError."""
    for position, stage in enumerate(STAGES):
        if stage.name == name:
            return position
    names = [stage.name for stage in STAGES]
    hint = meant(name, names) or f"stages: {', '.join(names)}"
    raise GraphError(f"there is no stage {name!r}", hint=hint)
