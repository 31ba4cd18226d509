"""The pipeline: the table of contents of the compiler.

`STAGES` lists every pass in order with what holds from there on; those predicates are checked again after
every later stage, so an error names the pass that broke it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from graphc.config import Config
from graphc.errors import GraphError, VerifyError
from graphc.ir import verify
from graphc.ir.graph import Graph, Node, Program
from graphc.passes.cluster import cluster
from graphc.passes.cse import cse
from graphc.passes.dce import dce
from graphc.passes.fold import fold
from graphc.passes.fuse import fuse
from graphc.passes.partition import partition
from graphc.passes.place import place
from graphc.passes.plan import plan
from graphc.passes.reasons import collecting
from graphc.passes.schedule import schedule
from graphc.passes.simplify import simplify
from graphc.passes.tile import tile

Stages = Graph | Program
Check = Callable[[Stages], None]


@dataclass(frozen=True)
class Stage:
    """One pass: a function of its own name; `ensures` holds from here on. Skipped at opt=0 if optional."""

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
    Stage(fold, optional=True),
    Stage(simplify, ensures=(verify.no_composites,)),
    Stage(dce),
    Stage(cse, ensures=(verify.no_duplicates,), optional=True),
    Stage(cluster, optional=True),
    Stage(place, ensures=(verify.every_node_placed,)),
    Stage(partition, ensures=(verify.one_device_per_graph, verify.channels_paired)),
    Stage(schedule),
    Stage(fuse, ensures=(verify.only_kernels,)),
    Stage(tile),
    Stage(plan, ensures=(verify.every_buffer_assigned, verify.no_overlap_while_live)),
)


class Record(NamedTuple):
    """What one stage did: its output, its time, and a note for people."""

    name: str
    value: Stages
    seconds: float
    note: str
    reasons: tuple[tuple[int, str], ...] = ()
    changed: bool = True


def run(graph: Graph, config: Config, start: str | None = None) -> list[Record]:
    """Every stage's output, the planned program last. `start` skips the stages before that name.

    Raises GraphError for input that cannot be compiled and VerifyError, naming the pass, for a bug.
    """
    records: list[Record] = []
    value: Stages = graph
    known: set[Node] = set()
    checks: list[Check] = []
    with garbage_collection_paused():
        for stage in STAGES:
            before = value
            started = time.perf_counter()
            with collecting() as reasons:
                if not (stage.optional and config.opt == 0):
                    value = apply(stage, value, config)
            seconds = time.perf_counter() - started
            checks += [c for c in stage.ensures if not (stage.optional and config.opt == 0)]
            if value is not before or not records:
                known = check(stage.name, value, known, checks, config.verify)
            note = f"{len(before)} -> {len(value)} nodes"
            lines = tuple(reasons.lines)
            records.append(Record(stage.name, value, seconds, note, lines, value is not before))
    return records


def apply(stage: Stage, value: Stages, config: Config) -> Stages:
    """Run a stage on a graph or on every graph of a program."""
    if isinstance(value, Program):
        if stage.name in _BEFORE_PARTITION:
            return value
        return value.map(lambda graph: stage.run(graph, config))  # type: ignore[arg-type, return-value]
    return stage.run(value, config)


_BEFORE_PARTITION = frozenset(("place", "partition"))


def check(
    name: str, value: Stages, known: set[Node], checks: list[Check], level: int
) -> set[Node]:
    """Verify a stage's output at the given level; an error names the stage."""
    if level == 0:
        return known
    try:
        seen = verify.verify(value, known)
        for predicate in checks if level >= 2 else ():
            predicate(value)
        if level >= 3:
            round_trip(value)
    except VerifyError as error:
        error.message = f"after {name}: {error.message}"
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


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """The cyclic collector costs two to four times the pass itself on a million small objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def stage_named(name: str) -> int:
    """Position of a stage. Raises GraphError."""
    for position, stage in enumerate(STAGES):
        if stage.name == name:
            return position
    raise GraphError(
        f"there is no stage {name!r}", hint=f"stages: {', '.join(s.name for s in STAGES)}"
    )
