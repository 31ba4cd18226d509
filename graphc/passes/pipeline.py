"""The pipeline: the table of contents of the compiler.

`STAGES` lists every rewrite in order, what it runs on and what holds from there on; those
predicates are checked again after every later stage, so an error names the pass that broke it.

A stage is named by what it does, in a verb or in the field's own word (`cse`, `remat`); three of
the first by what they settle: `trace`, `state`, `gradient`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import groupby
from typing import NamedTuple

from graphc.base.garbage_collection import collector_paused
from graphc.base.hints import meant
from graphc.base.record import replace
from graphc.codegen.table.check_memory_plan import every_value_is_found
from graphc.config import Config
from graphc.errors import UNCOMPUTABLE, GraphError, GraphHint, VerifyError, uncomputable
from graphc.ir import verify
from graphc.ir.channels import channels_paired, no_deadlock
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.regions import map_inside
from graphc.ir.size_answers import by_example
from graphc.passes.admit_dump import admit_dump
from graphc.passes.normalise.rules import on_gpus_alone
from graphc.passes.normalise.state import state_is_threaded
from graphc.passes.reasons import collecting
from graphc.passes.stage import Check, Keeps, Over, Stage, Stages, cycle, has
from graphc.passes.validation import (
    Sample,
    check_contract,
    check_expressions,
    contract_of,
    round_trip,
)
from graphc.passes.value_numbers import ValueNumbers

STAGES = (
    Stage("normalise.trace"),
    Stage("normalise.bind_sizes", keeps=Keeps.BITS, binds=True, renews=True),
    Stage(
        "pipelining.expand_pipelines",
        Over.REGIONS,
        about=has("in_stages"),
        ensures=(verify.no_pipelines,),
    ),
    Stage("normalise.state", keeps=Keeps.BITS, ensures=(state_is_threaded,)),
    *cycle(
        Stage(
            "normalise.gradient",
            about=has("asks_gradient"),
            keeps=Keeps.BITS,
            ensures=(verify.no_gradients,),
        ),
        Stage("normalise.vmap", about=has("lanes"), ensures=(verify.no_lanes,)),
        Stage("normalise.flatten", about=has("once", "makes_tuple"), keeps=Keeps.BITS),
    ),
    Stage("normalise.outline", about=has("phased"), keeps=Keeps.BITS, ensures=(verify.no_phased,)),
    # Nothing follows in a graph that this cuts: each of its phases goes on from here.
    Stage(
        "normalise.cut_phases",
        Over.WHOLE,
        keeps=Keeps.BITS,
        renews=True,
        breaks=(state_is_threaded,),
    ),
    Stage("normalise.bind_sizes", keeps=Keeps.BITS, binds=True, renews=True, name="bind_counts"),
    Stage(
        "normalise.choose_integers",
        Over.REGIONS,
        about=has("matrix_product", "convolution", "pools"),
        optional=True,
    ),
    Stage("normalise.choose_digits", Over.REGIONS, about=has("few_bits"), optional=True),
    Stage("normalise.fold", Over.REGIONS, keeps=Keeps.BITS, optional=True),
    Stage("normalise.trim", Over.REGIONS, about=has("convolution"), optional=True),
    Stage("normalise.fold_batch_norm", Over.REGIONS, about=has("convolution"), optional=True),
    Stage("normalise.choose_attention", Over.WHOLE, asked=on_gpus_alone, optional=True),
    *cycle(
        Stage("normalise.expand", ensures=(verify.no_composites,)),
        Stage("normalise.simplify", Over.REGIONS, optional=True),
        Stage(
            "normalise.write_through",
            Over.REGIONS,
            about=has("writes_slice"),
            keeps=Keeps.BITS,
            optional=True,
        ),
        Stage(
            "normalise.forward_writes", about=has("writes_slice"), keeps=Keeps.BITS, optional=True
        ),
        Stage(
            "normalise.join_writes",
            Over.REGIONS,
            about=has("writes_slice"),
            keeps=Keeps.BITS,
            optional=True,
        ),
        Stage("normalise.sink", about=has("branch", "loop"), keeps=Keeps.BITS, optional=True),
        Stage("loops.accumulate_after_loop", Over.REGIONS, about=has("counted"), optional=True),
        Stage("normalise.push_strides", Over.REGIONS, about=has("convolution"), optional=True),
        Stage(
            "normalise.choose_convolution", Over.REGIONS, about=has("convolution"), optional=True
        ),
        Stage("normalise.choose_pooling", Over.REGIONS, about=has("pools"), optional=True),
    ),
    *cycle(
        Stage("normalise.dce", Over.REGIONS, keeps=Keeps.EXPRESSIONS),
        Stage(
            "normalise.prune",
            Over.REGIONS,
            about=has("branch", "loop", "makes_last"),
            keeps=Keeps.BITS,
        ),
        Stage(
            "normalise.cse",
            Over.REGIONS,
            keeps=Keeps.EXPRESSIONS,
            ensures=(verify.no_duplicates,),
            optional=True,
        ),
        Stage("normalise.straighten_reductions", Over.REGIONS, optional=True),
        Stage("loops.merge_dots", Over.REGIONS, about=has("matrix_product"), optional=True),
        Stage("loops.batch_scan_dots", Over.REGIONS, about=has("counted"), optional=True),
        Stage("loops.hoist_transposes", Over.REGIONS, about=has("loop"), optional=True),
        Stage("loops.hoist", Over.REGIONS, about=has("loop"), keeps=Keeps.BITS, optional=True),
    ),
    Stage("normalise.recognise_attention", Over.WHOLE, asked=on_gpus_alone, optional=True),
    Stage(
        "normalise.narrow_products",
        Over.WHOLE,
        asked=lambda config: config.precision != "f32",
        keeps=Keeps.PRECISION,
        breaks=(verify.no_duplicates,),  # zeros around what is rounded
    ),
    Stage("normalise.put_channels_last", Over.REGIONS, about=has("convolution"), optional=True),
    # It decides in which order numbers are added; a part of a bucket may be what there is already.
    Stage(
        "devices.merge_collectives",
        Over.REGIONS,
        about=has("collective"),
        breaks=(verify.no_duplicates,),
    ),
    Stage(
        "devices.route_collectives",
        Over.REGIONS,
        about=has("collective"),
        ensures=(verify.no_collectives,),
        breaks=(verify.no_duplicates,),  # what is cut may have been cut before
    ),
    Stage(
        "memory.remat",
        asked=lambda config: config.memory_limit is not None,
        keeps=Keeps.EXPRESSIONS,
        searches=True,
    ),
    Stage(
        "fusion.propose_groups",
        asked=lambda config: len(config.devices) > 1,
        keeps=Keeps.EXPRESSIONS,
        optional=True,
    ),
    Stage(
        "placement.constrain",
        Over.WHOLE,
        asked=lambda config: bool(config.constraints),
        keeps=Keeps.EXPRESSIONS,
    ),
    Stage(
        "placement.place",
        Over.WHOLE,
        keeps=Keeps.EXPRESSIONS,
        ensures=(verify.every_node_placed,),
        breaks=(verify.no_duplicates,),  # what had different constraints meets on one device
    ),
    Stage(
        "normalise.cse",
        Over.REGIONS,
        keeps=Keeps.EXPRESSIONS,
        ensures=(verify.no_duplicates,),
        optional=True,
        name="cse_placed",
    ),
    Stage(
        "devices.partition",
        Over.WHOLE,
        keeps=Keeps.EXPRESSIONS,
        ensures=(verify.one_device_per_graph, channels_paired, no_deadlock),
    ),
    Stage(
        "devices.compress",
        Over.PROGRAM,
        asked=lambda config: config.shortens,
        keeps=Keeps.PRECISION,
    ),
    Stage("devices.schedule", Over.PROGRAM, keeps=Keeps.EXPRESSIONS),
    Stage("normalise.dce", Over.REGIONS, keeps=Keeps.EXPRESSIONS, name="dce_scheduled"),
    Stage("fusion.advance_updates", Over.REGIONS, keeps=Keeps.EXPRESSIONS, optional=True),
    Stage(
        "fusion.split_casts",
        Over.REGIONS,
        about=has("casts"),
        keeps=Keeps.EXPRESSIONS,
        optional=True,
        breaks=(verify.no_duplicates,),
    ),
    Stage(
        "fusion.decompose_gemv",
        Over.REGIONS,
        about=has("matrix_product"),
        optional=True,
        breaks=(verify.no_duplicates,),
    ),
    Stage(
        "fusion.recompute",
        Over.REGIONS,
        keeps=Keeps.EXPRESSIONS,
        optional=True,
        breaks=(verify.no_duplicates,),
    ),
    Stage("fusion.mark_prologues", Over.REGIONS, keeps=Keeps.EXPRESSIONS),
    Stage("fusion.fuse", Over.REGIONS, keeps=Keeps.EXPRESSIONS, ensures=(verify.only_kernels,)),
    Stage("fusion.share_kernels", keeps=Keeps.EXPRESSIONS, optional=True),
    Stage("tiling.block", Over.REGIONS),
    Stage("tiling.block_images", Over.REGIONS),
    Stage("tiling.transpose_outputs", Over.REGIONS, about=has("permutes")),
    Stage("tiling.stage_sums", Over.REGIONS, keeps=Keeps.EXPRESSIONS),
    Stage("memory.pack_constants", Over.REGIONS, optional=True, breaks=(verify.no_duplicates,)),
    Stage("memory.add_workspace", Over.REGIONS, keeps=Keeps.EXPRESSIONS),
    Stage(
        "memory.plan",
        keeps=Keeps.EXPRESSIONS,
        ensures=(verify.every_buffer_assigned, every_value_is_found),
    ),
)
# What a graph says about memory is not believed: it is made anew from here.
FIRST_OF_MEMORY = "add_workspace"
RENAMED = {  # stages of earlier versions, whose dumps may lie about
    "tile": "add_workspace",
    "scratch": "add_workspace",
    "dot_merger": "merge_dots",
    "early_updates": "advance_updates",
    "gemv": "decompose_gemv",
    "prologues": "mark_prologues",
    "image_blocks": "block_images",
    "output_transpose": "transpose_outputs",
    "cluster": "propose_groups",
    "pack": "pack_constants",
    "channels_last": "put_channels_last",
}
MOST_ROUNDS = 50  # of a cycle


class Note(str):
    """What a stage did, for people; `reasons` lists its decisions as (node id, text)."""

    reasons: tuple[tuple[int, str], ...] = ()


NO_CHANGE = Note("no change")


class StageResult(NamedTuple):
    """The output of one stage, how long it took and what it did."""

    name: str
    value: Stages
    seconds: float
    note: Note


def run(
    graph: Stages,
    config: Config,
    after: str | None = None,
    traced_seconds: float = 0.0,
    runner: Callable[[StageResult, Iterable[Stage], Config], Run] | None = None,
    until: str = "plan",
    sizes: Mapping[str, int] | None = None,
) -> list[StageResult]:
    """Every stage's output, the graph itself first and the planned program last.

    `after` names the stage whose output the graph is: only later stages run, its cycle anew, and
    those that give memory (see `admit_dump`); `until` names the last that runs.  `runner` makes
    another kind of Run, that looks on.  `sizes` are those that its symbols stand for.
    Raises GraphError for input that cannot be compiled and VerifyError, naming the pass, for a bug.
    """
    first = stage_named(after) if after else 0
    start = start_after(first)
    with collector_paused():
        graph = admit_dump(graph)
        given = StageResult(STAGES[first].name, graph, traced_seconds, Note(f"{len(graph)} nodes"))
        made = (runner or Run)(given, STAGES[:start], config)
        for stages in turns(STAGES[start : stage_named(until) + 1], config.opt > 0):
            made.settle([bound(s, sizes) for s in stages] if sizes else stages)
    return made.records if first < stage_named(FIRST_OF_MEMORY) else made.records[1:]


@cache
def turns(stages: tuple[Stage, ...], optional: bool) -> tuple[tuple[Stage, ...], ...]:
    """The stages that are asked for, those of a cycle together."""
    asked = [stage for stage in stages if optional or not stage.optional]
    return tuple(tuple(of) for _, of in groupby(asked, key=lambda s: s.cycle or s.name))


def bound(stage: Stage, sizes: Mapping[str, int]) -> Stage:
    """The stage for these sizes, if it binds."""
    return replace(stage, rewrite=partial(stage.run, sizes=sizes)) if stage.binds else stage


def start_after(first: int) -> int:
    """The position of the stage to begin with for the output of a stage."""
    if STAGES[first].cycle:
        return next(k for k, stage in enumerate(STAGES) if stage.cycle == STAGES[first].cycle)
    if STAGES[first].name == "mark_prologues":
        return first  # what it has marked is not believed, either
    return min(first + 1, stage_named(FIRST_OF_MEMORY))


class Run:
    """Running stages: the records so far, and the promises that must hold from now on."""

    def __init__(self, given: StageResult, done: Iterable[Stage], config: Config) -> None:
        self.config = config
        self.records = [given]
        self.value = given.value
        self.known: set[Node] = set()
        self.promises = [c for s in done for c in s.ensures if not skipped(s, config)]
        with _judging(given.name):
            self.verify(given.name)
        self.begin()

    def begin(self) -> None:
        """Note what later stages have to keep."""
        self.contract = contract_of(self.value)
        self.numbers = ValueNumbers()
        self.sample = Sample(self.value, self.config) if self.config.verify >= 4 else None

    def settle(self, stages: Sequence[Stage]) -> None:
        """Run a stage, or those of a cycle, and hold it to what it ensures."""
        if stages[0].cycle:
            self.settle_cycle(stages)
        else:
            self.step(stages[0], again=False)
        for stage in stages:
            if stage.ensures:
                with _judging(stage.name):
                    self.check(stage.name, stage.ensures)
                self.promises += stage.ensures

    def settle_cycle(self, stages: Sequence[Stage]) -> None:
        """Run stages in turn until none changes anything.

        In later rounds a stage is on record only if it changed something.
        """
        left: list[Stages | None] = [None] * len(stages)  # what each has left as it was
        for number in range(MOST_ROUNDS):
            for k, stage in enumerate(stages):
                before = self.value
                if left[k] is not before:
                    self.step(stage, again=number > 0)
                if self.value is before:
                    left[k] = before
            if all(found is self.value for found in left):
                return
        names = ", ".join(stage.name for stage in stages)
        raise GraphError(f"{names} do not settle", hint="an expansion is recursive")

    def step(self, stage: Stage, again: bool) -> None:
        """Run one stage, write down what it did, and verify it."""
        made = step(stage, self.value, self.config)
        changed = made.value is not self.value
        if changed or not again:
            self.records.append(made)
        if changed:
            before, self.value = self.value, made.value
            self.promises = [check for check in self.promises if check not in stage.breaks]
            with _judging(stage.name):
                self.verify(stage.name)
                self.validate(stage, before)

    def verify(self, name: str) -> None:
        """Check the structure of what a stage made, and the promises of earlier ones if it made or
        dropped a node."""
        if self.config.verify == 0:
            return
        seen = verify.verify(self.value, self.known)
        if self.config.verify >= 3:
            round_trip(self.value)
        promises, self.known = () if seen == self.known else self.promises, seen
        self.check(name, promises)

    def validate(self, stage: Stage, before: Stages) -> None:
        """Check that the stage has kept what it says, as far as that is asked for."""
        if stage.renews:
            self.begin()
        elif self.config.verify >= 2:
            contract = self.contract if stage.name != "state" else self.contract.ports_alone()
            self.contract = check_contract(contract, self.value)
            self.prove(stage, before)
            if self.sample is not None:
                exactly = stage.keeps in (Keeps.EXPRESSIONS, Keeps.BITS)
                self.sample.check(self.value, before if exactly else None)

    def prove(self, stage: Stage, before: Stages) -> None:
        """Check without running anything that values are the expressions that they were."""
        if stage.keeps is Keeps.EXPRESSIONS:
            check_expressions(self.numbers, before, self.value)

    def check(self, name: str, promises: Iterable[Check]) -> None:
        """Check promises behind the stage of that name, if those are to be checked."""
        if self.config.verify >= 2:
            for predicate in promises:
                predicate(self.value)


class _judging:
    """Sizes are those at hand meanwhile, and errors name the stage that made what is wrong."""

    __slots__ = ("name", "sizes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.sizes = by_example()

    def __enter__(self) -> None:
        self.sizes.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.sizes.__exit__()
        if isinstance(error, VerifyError):
            error.message = f"after {self.name}: {error.message}"


def skipped(stage: Stage, config: Config) -> bool:
    return stage.optional and config.opt == 0


def step(stage: Stage, before: Stages, config: Config) -> StageResult:
    """Run one stage and write down what it did."""
    if not stage.concerns(before, config):
        return StageResult(stage.name, before, 0.0, NO_CHANGE)
    started = time.perf_counter()
    with collecting() as reasons:
        try:
            value = _applied(stage, before, config)
        except UNCOMPUTABLE as error:
            raise uncomputable(f"the stage {stage.name}", error) from error
    note = NO_CHANGE
    if value is not before or reasons.count or reasons.summary:
        counts = f"{len(before)} -> {len(value)} nodes" if value is not before else "no change"
        note = Note(f"{counts}; {reasons.summary}" if reasons.summary else counts)
        note.reasons = tuple(reasons.lines)
    return StageResult(stage.name, value, time.perf_counter() - started, note)


def apply(stage: Stage, value: Stages, config: Config) -> Stages:
    """Run a stage on what it is a function of, if it concerns that."""
    return _applied(stage, value, config) if stage.concerns(value, config) else value


def _applied(stage: Stage, value: Stages, config: Config) -> Stages:
    if stage.over is Over.PROGRAM:
        return stage.run(value, config)
    if stage.over is Over.WHOLE:
        return value if isinstance(value, Program) else stage.run(value, config)
    if isinstance(value, Program):
        return value.map(lambda graph: _on_graph(stage, graph, config.for_device(graph.device)))
    return _on_graph(stage, value, config.for_device(value.device))


def _on_graph(stage: Stage, graph: Graph, config: Config) -> Graph:
    if stage.over is Over.REGIONS and graph.nesting:
        graph = map_inside(graph, lambda region: _on_graph(stage, region, config))
    if stage.searches:
        return stage.run(graph, config, planned)  # type: ignore[return-value]
    return stage.run(graph, config)  # type: ignore[return-value]


def planned(graph: Graph, config: Config) -> Graph:
    """What the stages behind `schedule` make of the graph of a device: kernels in memory."""
    for stage in STAGES[stage_named("schedule") + 1 :]:
        if not skipped(stage, config):
            graph = apply(stage, graph, config)  # type: ignore[assignment]
    return graph


@cache
def positions_of(stages: tuple[Stage, ...]) -> dict[str, int]:
    """Where each name stands."""
    return {stage.name: k for k, stage in enumerate(stages)}


def stage_named(name: str) -> int:
    """Position of a stage; an earlier name of it gets a hint. Raises GraphError."""
    positions = positions_of(STAGES)
    if name in RENAMED:
        warnings.warn(f"the stage {name} is called {RENAMED[name]} now", GraphHint, stacklevel=2)
    known = RENAMED.get(name, name)
    if known in positions:
        return positions[known]
    hint = meant(name, positions) or f"stages: {', '.join(positions)}"
    raise GraphError(f"there is no stage {name!r}", hint=hint)
