"""Which rewrite makes a result differ, or the compiler crash: first the stage, then the rewrite.

    trace ── simplify ── cse ── ... ── plan ── kernels ── run
      =         =         x
                          └ 40 rewrites: the first 20? = 30? x 25? = 27? x 26? x

Every stage is interpreted, and the first wrong one is halved.

A stage whose rewrites cannot be left out one by one is blamed for the first value that differs from
what the stage before it computes; and where all stages are right and the run is wrong, kernels are
run one by one, on the values that the interpreter gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphc.base.garbage_collection import collector_paused
from graphc.base.record import record, replace
from graphc.base.refusing import refusing
from graphc.config import Config
from graphc.errors import GraphError, LimitError, RunError, TypeRuleError, VerifyError
from graphc.frontend.compile.memory_check import check_memory
from graphc.frontend.diagnosis.kernels import run_compiled, wrong_kernels
from graphc.frontend.files.loaded_graph import LoadedGraph
from graphc.ir import verify
from graphc.ir.graph import Graph, Location, Node, Program
from graphc.ir.rewrites import Rewrites, counting
from graphc.ir.verify import graphs_of, with_blocks
from graphc.passes import pipeline
from graphc.passes.compare import Difference, difference, first_difference, kind_of, message_of
from graphc.passes.pipeline import stage_named
from graphc.passes.rounding import roundings
from graphc.passes.stage import Over, Stage
from graphc.passes.trial import ORDERS, Stages, Trial, disagreement, require_settled
from graphc.runtime.files.gcx_function import Loaded

Wanted = dict[str, Any]
Wrong = Difference | Exception
KERNELS = "codegen"  # what is blamed for kernels that do not compute what their graph says
RUNTIME = "runtime"  # and for running them
EARLY = ("normalise", "loops", "placement")  # folders of stages that may refuse a graph


@record(frozen=True)
class Culprit:
    """What makes a result differ (`symptom` is "differs") or the compiler crash ("crashes").

    stage       the pass; "codegen" for a kernel that does not compute what its graph says, and
                "runtime" where every kernel alone does
    rewrite     the ordinal of the rewrite among the `rewrites` of the stage, from 1; 0 where they
                cannot be left out one by one
    node        the node that was rewritten, or whose value differs first; None if none is known
    reason      what the stage noted about that node
    difference  the first value that differs
    error       the message of a crash
    runs        how often something was interpreted or run to find it
    """

    stage: str
    symptom: str
    rewrite: int = 0
    rewrites: int = 0
    node: Node | None = None
    reason: str = ""
    difference: Difference | None = None
    error: str = ""
    runs: int = 0

    @property
    def location(self) -> Location | None:
        """File and line of the user's code."""
        return self.node.loc if self.node is not None else None

    def __str__(self) -> str:
        did = "makes a result differ" if self.symptom == "differs" else "crashes"
        lines = [f"{self.stage} {did}"]
        if self.rewrite:
            why = f": {self.reason}" if self.reason else ""
            lines[0] += f", by rewrite {self.rewrite} of {self.rewrites}{why}"
        if self.node is not None:
            where = f"  {self.location[0]}:{self.location[1]}" if self.location else ""
            lines.append(f"  {self.node.summary()}{where}")
        if self.difference is not None:
            lines.append(f"  {self.difference}")
        if self.error:
            lines += [f"  {line}" for line in self.error.splitlines()[:6]]
        return "\n".join(lines)


def culprit(trial: Trial, wanted: Wanted | None = None) -> Culprit | None:
    """What makes a trial differ from what is wanted (without a word: from what the reference
    interpreter makes of the graph), or crash; None if nothing does.

    Raises GraphError where the trial is wrong itself: arguments that do not fit, a limit.
    """
    with collector_paused():
        return _Search(trial, wanted).find()


@refusing
def bisect(
    model: Any,
    arguments: Mapping[str, Any] | Sequence[Any],
    *,
    against: Mapping[str, Any] | None = None,
    **options: Any,
) -> Culprit | None:
    """The stage and the rewrite that make a result of a graph wrong, or crash; None if none does.

    model      a Graph (of `f.graph(...)` or `gc.parse`), or what `gc.load` returns
    arguments  one array per parameter, in order or by name
    against    options of `gc.compile` to compare with instead of the interpreter
    options    options of `gc.compile`

    Every stage is run by the reference interpreter, the rewrites of the first wrong one are halved,
    and where all are right the kernels are run one by one; variables have their values back
    afterwards.  Raises GraphError for a graph or arguments that are wrong themselves.

        found = gc.bisect(f.graph(x, w), [x, w])
        print(found)
    """
    trial = trial_of(model, arguments, Config.create(**options))
    other = Config.create(**{**options, **against}) if against else None
    return culprit(trial, wanted_with(trial, other) if other is not None else None)


def trial_of(model: Any, arguments: Mapping[str, Any] | Sequence[Any], config: Config) -> Trial:
    """What is to be tried. Raises GraphError for arguments that do not fit."""
    loaded = model.whole if isinstance(model, Loaded) else model
    if not isinstance(loaded, LoadedGraph):
        if not isinstance(model, Graph | Program):
            raise GraphError(
                f"bisect takes a graph, got {type(model).__name__}",
                hint="f.graph(x) with arrays as arguments, gc.parse(text) or gc.load(path)",
            )
        loaded = LoadedGraph(model, config)
    named = isinstance(arguments, Mapping)
    values = loaded.arrange((), dict(arguments)) if named else loaded.arrange(tuple(arguments), {})
    arrays = [np.array(a) for a in loaded.check(values)]
    value = loaded.bound_to(arrays)
    check_memory(value, every_node=True)
    config = replace(config, verify=max(config.verify, 2), dump=None)
    return Trial(value, arrays, loaded.variable_values(), config, loaded.stage)


def wanted_with(trial: Trial, config: Config) -> Wanted:
    """What a trial computes when it is compiled with other options."""
    return run_compiled(replace(trial, config=config))


class _Blamed(Exception):
    """A stage did something wrong: what it was given, and what it made (None if it crashed)."""

    def __init__(self, stage: Stage, before: Stages, made: Stages | None, found: Wrong) -> None:
        self.stage, self.before, self.made, self.found = stage, before, made, found


class _Watched(pipeline.Run):
    """Runs stages, and looks at what each of them makes; `judge` says what is wrong about it."""

    def __init__(self, judge: Callable[[str, Stages], Difference | None], *given: Any) -> None:
        self.judge = judge
        self.stage, self.before = pipeline.STAGES[0], given[0].value
        super().__init__(*given)

    def step(self, stage: Stage, again: bool) -> None:
        self.stage, self.before = stage, self.value
        try:
            super().step(stage, again)
        except Exception as error:
            if is_refusal(error, stage):
                raise
            raise _Blamed(stage, self.before, None, error) from error
        if self.value is self.before:
            return
        try:
            found: Wrong | None = self.judge(stage.name, self.value)
        except Exception as error:  # noqa: BLE001  that is what is looked for
            found = error
        if found is not None:
            raise _Blamed(stage, self.before, self.value, found)

    def prove(self, stage: Stage, before: Stages) -> None:
        """Nothing: the first value that differs tells more than that an expression does."""

    def check(self, name: str, promises: Any) -> None:
        try:
            super().check(name, promises)
        except VerifyError as error:
            if len(self.records) == 1:
                raise  # what was given is wrong
            stage = pipeline.STAGES[stage_named(name)]
            raise _Blamed(stage, self.before, None, error) from error


def is_refusal(error: Exception, stage: Stage | None = None) -> bool:
    """Does the compiler say that what it was given is wrong, and not that it is?

    Once a graph is partitioned only limits are left to refuse it.
    """
    if stage is not None and stage.over is not Over.WHOLE and stage.folder not in EARLY:
        return isinstance(error, LimitError)
    return isinstance(error, GraphError) and not isinstance(
        error, VerifyError | TypeRuleError | RunError
    )


class _Search:
    """One search; `runs` counts what was interpreted and run."""

    def __init__(self, trial: Trial, wanted: Wanted | None) -> None:
        self.trial = trial
        self.runs = 1
        reference = trial.interpret(trial.value)
        self.wanted = reference if wanted is None else wanted
        # A graph of somebody else may lack edges itself: then only its own order counts.
        settled = disagreement(trial, trial.value, reference) is None
        self.orders = ORDERS if settled else 1

    def find(self) -> Culprit | None:
        stages: list[pipeline.StageResult] = []
        try:
            stages = self.stages()
            return self.compiled(stages[-1].value)
        except _Blamed as blamed:
            if isinstance(blamed.found, Difference) and blamed.made is not None:
                require_settled(self.trial, self.trial.interpret(blamed.made), self.wanted)
            return replace(self.rewrite(blamed), runs=self.runs)

    def stages(self, judge: Any = None) -> list[pipeline.StageResult]:
        """All stages. Raises _Blamed for the first that is wrong."""
        trial = self.trial
        runner = partial(_Watched, judge or self.judge)
        return pipeline.run(trial.value, trial.config, trial.stage, runner=runner)

    def judge(self, name: str, value: Stages) -> Difference | None:
        self.runs += 1
        return disagreement(self.trial, value, self.wanted, self.orders)

    # -- the rewrite of a stage

    def rewrite(self, blamed: _Blamed) -> Culprit:
        """The rewrite of a stage that is at fault: the smallest number of them that is too many."""
        found, node, value = blamed.found, None, None
        if isinstance(found, Difference):
            value, result = found, Culprit(blamed.stage.name, "differs")
        else:
            node = node_of(found, blamed.before, blamed.made)
            result = Culprit(blamed.stage.name, "crashes", error=message_of(found))
        rewrites, reasons = self.counted(blamed)
        total = len(rewrites.nodes)
        if total and self.is_bad(blamed, total) and not self.is_bad(blamed, 0):
            number = self.halved(partial(self.is_bad, blamed), total)
            node = rewrites.nodes[number - 1]
            result = replace(result, rewrite=number, rewrites=total)
        if blamed.made is not None and value is not None:
            first, differs = self.first_value(blamed.before, blamed.made)
            node, value = node or first, differs or value
        reason = next((text for id, text in reasons if node is not None and id == node.id), "")
        return replace(result, node=node, reason=reason, difference=value)

    def counted(self, blamed: _Blamed) -> tuple[Rewrites, tuple[tuple[int, str], ...]]:
        """All rewrites of a stage, as far as it comes, and what it notes."""
        with counting() as rewrites:
            try:
                made = pipeline.step(blamed.stage, blamed.before, self.trial.config)
            except Exception:  # noqa: BLE001  that is what is looked for
                return rewrites, ()
        return rewrites, made.note.reasons

    def halved(self, is_bad: Callable[[int], bool], total: int) -> int:
        """The smallest number that is bad, if 0 is not and `total` is."""
        good, bad = 0, total
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if is_bad(middle) else (middle, bad)
        return bad

    def is_bad(self, blamed: _Blamed, limit: int) -> bool:
        """Are so many rewrites of a stage too many?"""
        self.runs += 1
        try:
            value = partly(blamed.stage, blamed.before, self.trial.config, limit)
            if value is not blamed.before:
                verify.verify(value)
                for promise in () if blamed.stage.cycle else blamed.stage.ensures:
                    promise(value)
            return disagreement(self.trial, value, self.wanted, self.orders) is not None
        except Exception:  # noqa: BLE001  that is what is looked for
            return True

    def first_value(self, before: Stages, after: Stages) -> tuple[Node | None, Difference | None]:
        """The first node of a stage that computes something else than before it."""
        self.runs += 2
        try:
            wanted, made = self.trial.values(before), self.trial.values(after)
        except Exception:  # noqa: BLE001  what cannot be interpreted has no values
            return None, None
        moved, _ = roundings(after)
        for graph in graphs_of(after):
            for node in graph.nodes:
                pair = made.get(node.id), wanted.get(node.id)
                found = difference(f"%{node.id}", *pair, moved[node])
                if found is not None:
                    new = (n for n in node.inputs if n.id in made and n.id not in wanted)
                    return next(new, node), found
        return None, None

    # -- kernels

    def compiled(self, value: Stages) -> Culprit | None:
        """The kernel that is at fault, if what is compiled does not compute what its graph says."""
        self.runs += 1
        try:
            made = run_compiled(self.trial)
            differs = first_difference(made, self.wanted, self.trial.tolerances)
            if differs is None:
                return None
            require_settled(self.trial, made, self.wanted)
            result = Culprit(RUNTIME, "differs", difference=differs)
        except Exception as error:
            if is_refusal(error):
                raise
            node = node_of(error, value)
            result = Culprit(RUNTIME, "crashes", node=node, error=message_of(error))
        kernels = sum(n.op.traits.kernel for graph in with_blocks(value) for n in graph.nodes)
        for number, node, wrong in wrong_kernels(self.trial, value):
            self.runs += 1
            if wrong is not None:
                result = replace(result, stage=KERNELS, node=node, rewrite=number, rewrites=kernels)
                if isinstance(wrong, Difference):
                    result = replace(result, difference=wrong)
                break
        return replace(result, runs=self.runs)


def node_of(error: Exception, *values: Stages | None) -> Node | None:
    """The node that an error is about."""
    details = error.details if isinstance(error, GraphError) else ()
    named = re.match(r"%(\d+) = ", details[0]) if details else None
    nodes = (n for value in values if value is not None for n in candidates(value))
    return next((n for n in nodes if named and n.id == int(named[1])), None)


def partly(stage: Stage, before: Stages, config: Any, limit: int) -> Stages:
    """What a stage makes of a graph with its first rewrites only."""
    with counting(limit):
        return pipeline.step(stage, before, config).value


class _Reached(Exception):
    """What a stage has made with some of its rewrites only."""

    def __init__(self, value: Stages) -> None:
        self.value = value


def after_rewrites(
    value: Stages,
    config: Config,
    name: str,
    limit: int,
    after: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Stages:
    """What a stage makes of a graph with so many of its rewrites, when it runs for the first time.

    `sizes` are what its symbols stand for.
    Raises GraphError where there is no such stage behind the one that the graph is the output of.
    """
    wanted = pipeline.STAGES[stage_named(name)].name

    class Stopping(pipeline.Run):
        def step(self, stage: Stage, again: bool) -> None:
            if stage.name == wanted:
                raise _Reached(partly(stage, self.value, self.config, limit))
            super().step(stage, again)

    try:
        pipeline.run(value, config, after, runner=Stopping, sizes=sizes)
    except _Reached as reached:
        return reached.value
    raise GraphError(f"{wanted} does not run behind {after or 'trace'} with these options")


# ------------------------------------------------------------------------------------ again


def same(trial: Trial, known: Culprit) -> bool:
    """Does another trial fail at the same stage in the same way?  Only that stage is looked at."""
    search = _Search(trial, None)

    def judge(name: str, value: Stages) -> Difference | None:
        return search.judge(name, value) if name == known.stage else None

    late = known.stage in (KERNELS, RUNTIME)
    stage, found = known.stage, None  # type: tuple[str, Wrong | None]
    try:
        with collector_paused():
            search.stages(judge)
            if late:
                found = first_difference(run_compiled(trial), search.wanted, trial.tolerances)
    except _Blamed as blamed:
        stage, found = blamed.stage.name, blamed.found
    except Exception as error:  # noqa: BLE001  that is what is looked for
        found = None if is_refusal(error) or not late else error
    if isinstance(found, Exception):
        alike = kind_of(message_of(found)) == kind_of(known.error)
        return known.symptom == "crashes" and stage == known.stage and alike
    return found is not None and known.symptom == "differs" and stage == known.stage


def candidates(value: Stages) -> Iterator[Node]:
    """The nodes outside of regions, in order."""
    for graph in graphs_of(value):
        yield from graph.nodes
