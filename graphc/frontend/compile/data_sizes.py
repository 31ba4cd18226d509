"""Sizes that the data decides: a program for each phase, which knows what the one before counted.

A size that only a run can tell is a symbol (`FunctionTrace.counts`).  The stages up to `cut_phases`
see the graph as a whole, those behind it one phase at a time.  What a trace has decided by an
example of such a size is checked as soon as a run has counted it; for other counts the function is
traced again.

    y = x[x > 0]          phase 0    mask, places, count0
    if len(y) > 9: ...    checked    count0 > 9
    v.assign(y.sum())     phase 1    y, its sum, and in the last phase what variables are assigned
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphc.base.record import replace
from graphc.codegen.table.holes import Openings
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.build import Built, build, stages_of
from graphc.frontend.compile.open_sizes import FEWEST, can_be_open
from graphc.frontend.trace.trace import Traced
from graphc.ir.graph import Graph, Node
from graphc.ir.sizes import Scope, Size, hint_of
from graphc.ir.specialise import specialise
from graphc.ir.types import Dim, Dimension, Type, leaves, substitute
from graphc.ops.reference.interpreter import State, interpret
from graphc.passes.normalise.cut_phases import COUNTED, DECIDED, ancestors
from graphc.passes.pipeline import StageResult
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.open_executable import Shapes
from graphc.runtime.call.phased_executable import PhasedExecutable, Refused, Step
from graphc.runtime.load.program import Image, Slot
from graphc.runtime.load.size_formulas import Formulas

CUT = "cut_phases"  # the last stage of the whole; each phase goes through those behind it


class Counted(Built):
    """A compilation in phases, which serves all sizes of its arguments that it is for."""

    phased: PhasedExecutable
    programs: list[_Program]

    def save(self, path: str | Path, text: str, key: bytes | None = None) -> None:
        """As `Built.save`: the file has programs for no and for one element, too."""
        from graphc.runtime.files.gcx_writer import save_phases

        self.complete()
        save_phases(self.phased, path, text, key=key)

    def complete(self) -> None:
        """Compile each phase for no and for one element, too."""
        for program in self.programs:
            program.complete()

    @property
    def is_open(self) -> bool:
        return False

    @property
    def formulas(self) -> Formulas | None:
        """Those of its arguments."""
        made = self.phased.formulas
        count = len(self.phased.given)
        known = [g for g in made.guards if all(k < count for _, m in g.polynomial for k in m)]
        return replace(made, guards=tuple(known))

    def bound(self, shapes: Shapes) -> Built | None:
        return self if self.phased.is_for(shapes) else None

    def symbols_of(self, shapes: Shapes) -> dict[str, int]:
        return {}  # its graph stays open

    def refusal(self, shapes: Shapes) -> str:
        return self.phased.formulas.broken_by(self.phased.symbols_of(shapes))


def is_for(traced: Traced, counts: Mapping[str, int]) -> bool:
    """Whether nothing that was decided while tracing is otherwise for these counts."""
    for guard in traced.scope.guards.values() if traced.scope is not None else ():
        if guard.difference.symbols() <= counts.keys() and not guard.is_met(counts):
            return False
    return True


def build_counted(traced: Traced, config: Config) -> Counted:
    """Compile a graph with sizes that its runs count. Raises GraphError, also for devices and
    backends that take no open sizes."""
    if not can_be_open(config):
        raise GraphError(
            f"{traced.graph.name} has sizes that its data decides: that is for CPUs, through LLVM",
            location=next(iter(traced.counts.values())).loc,
            hint="give the sizes (size=)",
        )
    whole = in_phases(traced, config)
    if config.dump is not None:
        from graphc.frontend.files.dump import write_stages

        write_stages(config.dump, whole)
    phases = _Phases(traced, graph_of(whole))
    programs = [_Program(graph, phases.scope, config) for graph in phases.graphs]
    built = [program.built[0] for program in programs]
    last = built[-1]
    records = (*whole, *(record for each in built for record in each.stages))
    made = Counted(records, last.image, last.kernels, last.threads)
    made.seconds = traced.seconds + sum(each.seconds for each in built)
    made.build_seconds = sum(each.build_seconds for each in built)
    made.programs = programs
    made.phased = phases.executable(programs, config.memory_limit)
    made.run_by(made.phased)
    return made


def counts_of(so_far: Traced, config: Config, arrays: Sequence[Any]) -> dict[str, int]:
    """What a run counts before an error of tracing; nothing is written or printed."""
    whole = graph_of(in_phases(so_far, config, "flatten", checks=so_far.counts))
    counting = whole.results[len(whole.results) - len(so_far.counts) :]
    alone = only(whole, counting)
    phases = _Phases(so_far, graph_of(stages_of(alone, config, stage="flatten", until=CUT)))
    programs = [_Program(graph, phases.scope, config) for graph in phases.graphs]
    phases.gives = list(phases.lengths.values())
    try:
        lengths = phases.executable(programs).run(arrays)
    except Refused as other:
        return other.counts
    return {name: len(length) for name, length in zip(phases.lengths, lengths, strict=True)}


def numbers_of(
    traced: Traced, config: Config, arrays: Sequence[Any], sizes: Mapping[str, int], state: State
) -> dict[str, int]:
    """These sizes of arguments, and what a run counts, by the reference interpreter."""
    graph, made = graph_of(in_phases(traced, config, "flatten")), dict(sizes)
    for name, count in zip(traced.counts, graph.results[len(traced.graph.results) :], strict=True):
        part = specialise(only(graph, (count,)), made)
        (found,) = interpret(part, arrays, state=dict(state))
        made[name] = int(found)
    return made


def only(graph: Graph, results: tuple[Node, ...]) -> Graph:
    """What computes these results, and nothing else; only those that count stay marked."""
    needed = ancestors(results)
    nodes = [node for node in graph.nodes if node in needed]
    return graph.replace(nodes=nodes, results=results, result_names=(), names={})


def in_phases(
    traced: Traced, config: Config, until: str = CUT, checks: Iterable[str] = ()
) -> tuple[StageResult, ...]:
    """The stages of the whole graph, with what it counts as its last results.

    Sizes by which tracing has decided are checked by a run, and so are those of `checks`.
    """
    assert traced.scope is not None
    decided = {n for guard in traced.scope.guards.values() for n in guard.difference.symbols()}
    marks = {COUNTED + name: frozenset([node.id]) for name, node in traced.counts.items()}
    for name in traced.counts:
        if name in decided or name in checks:
            marks[DECIDED + name] = marks[COUNTED + name]
    graph = traced.graph.replace(
        results=(*traced.graph.results, *traced.counts.values()),
        result_names=(*traced.graph.result_names, *traced.counts),
        marks=marks,
    )
    return stages_of(graph, config, traced.seconds, until=until)


def graph_of(stages: Sequence[StageResult]) -> Graph:
    """What the last stage made."""
    graph = stages[-1].value
    assert isinstance(graph, Graph)
    return graph


class _Program:
    """The compilations of a phase: one more for sizes for which a decision does not hold."""

    def __init__(self, graph: Graph, known: Scope, config: Config) -> None:
        self.graph, self.known, self.config = graph, known, config
        self.built = [build_phase(graph, known, config, {})]
        self.exact: dict[Shapes, Executable] = {}
        self.closed = not self.built[0].is_open

    @property
    def image(self) -> Image:
        return self.built[0].image

    @property
    def images(self) -> list[Image]:
        return [each.image for each in self.built]

    @property
    def stack_bytes(self) -> int:
        return sum(each.stack_bytes for each in self.built)

    def of(self, arrays: Sequence[Any]) -> Executable:
        """What runs these arrays. Raises GraphError."""
        if self.closed:
            return self.built[0].executable
        shapes = tuple(tuple(a.shape) for a in arrays)
        found = self._serving(shapes)
        if found is None:
            examples = {
                repr(extent): size
                for param, shape in zip(self.graph.params, shapes, strict=True)
                for extent, size in zip(shape_of(param), shape, strict=True)
                if repr(extent) in self.known.symbols
            }
            self.built.append(build_phase(self.graph, self.known, self.config, examples))
            found = self._serving(shapes)
        if found is None:  # nothing, or one element, may be a special case
            self.built.append(build(self.graph, self.config, stage=CUT, sizes=examples))
            self.exact[shapes] = self.built[-1].executable
            found = self.exact[shapes]
        return found

    def complete(self) -> None:
        """Compile for no and for one element of each size, where what there is is not for them."""
        if self.closed:
            return
        symbols = {name: self.known.symbols[name] for name in sorted(symbols_in(self.graph))}
        usual = {name: size.hint for name, size in symbols.items()}
        for name in symbols:
            for few in (0, 1):
                binding = {**usual, name: few}
                kinds = [substitute(param.type, binding) for param in self.graph.params]
                shapes = tuple([kind.dims for kind in kinds if isinstance(kind, Type)])
                if self._may_be(binding) and self._serving(shapes) is None:
                    made = build_phase(self.graph, self.known, self.config, {}, {name: few})
                    self.built.append(made)

    def _may_be(self, binding: Mapping[str, int]) -> bool:
        """Whether Python decided nothing otherwise while it was traced."""
        guards = self.known.guards.values()
        return all(g.is_met(binding) for g in guards if g.difference.symbols() <= binding.keys())

    def _serving(self, shapes: Shapes) -> Executable | None:
        for each in self.built:
            found = each.opened.bound(shapes) if each.is_open else None
            if found is not None:
                return found
        return self.exact.get(shapes)

    def cancel(self) -> None:
        for each in self.built:
            (each.opened if each.is_open else each.executable).cancel()


def shape_of(node: Node) -> tuple[Dimension, ...]:
    assert isinstance(node.type, Type)
    return node.type.shape


def build_phase(
    graph: Graph,
    known: Scope,
    config: Config,
    examples: Mapping[str, int],
    fixed: Mapping[str, int] | None = None,
) -> Built:
    """Compile one phase: sizes that were counted before it stay open but for those that are
    `fixed`."""
    fixed = fixed or {}
    names = symbols_in(graph) - fixed.keys()
    scope = Scope()
    binding = {
        name: scope.symbol(name, max(examples.get(name, known.symbols[name].hint), FEWEST))
        for name in sorted(names)
    }
    for guard in known.guards.values():  # what Python decided while it was traced
        if guard.difference.symbols() <= names:
            scope.decide(guard.difference.value(binding), guard.relation, guard.where)
    return build(graph, config, stage=CUT, sizes={**binding, **fixed})


def symbols_in(graph: Graph) -> set[str]:
    """The symbols in the shapes of parameters."""
    kinds = [leaf for p in graph.params for leaf in leaves(p.type)]
    extents = [d for kind in kinds if isinstance(kind, Type) for d in kind.shape]
    return {name for d in extents if isinstance(d, Dim | Size) for name in d.symbols()}


class _Phases:
    """The phases of a graph that is cut: calls, one after the other.

    `steps` has for each which values it takes and what it counts; `gives` are the results.  Values
    are numbered: the parameters, the lengths that arguments say, then for each step the lengths
    that it counts and what it passes on.
    """

    def __init__(self, traced: Traced, graph: Graph) -> None:
        assert traced.scope is not None
        self.graph = graph
        self.scope = traced.scope
        self.counts = traced.counts
        self.numbers: dict[Node, int] = {p: k for k, p in enumerate(graph.params)}
        self.used = len(graph.params)
        self.lengths: dict[str, int] = {}
        self.steps: list[tuple[tuple[int, ...], tuple[str, ...]]] = []
        self.graphs: list[Graph] = []
        unknown = {*self.counts, *self.scope.inner}
        self.told(name for name in self.scope.symbols if name not in unknown)
        for node in graph.nodes:
            if node.regions:
                self.graphs.append(node.regions[0])
                self.step(node)
        self.gives = [self.numbers[r] for r in graph.results]

    def told(self, names: Iterable[str]) -> None:
        for name in names:
            self.lengths[name] = self.used
            self.used += 1

    def step(self, call: Node) -> None:
        """Note what a call takes, and number what it gives."""
        takes = tuple([self.number_of(node) for node in call.inputs])
        parts = [n for n in self.graph.nodes if n.op.traits.item and n.inputs[0] is call] or [call]
        counted = {
            id: name for name in self.counts for id in self.graph.marks.get(COUNTED + name, ())
        }
        counts = tuple([counted[part.id] for part in parts if part.id in counted])
        self.told(counts)
        for part in parts:
            if part.id not in counted:
                self.numbers[part] = self.used
                self.used += 1
        self.steps.append((takes, counts))

    def number_of(self, node: Node) -> int:
        """The number of an operand: of a value, or of an array that is as long as a size."""
        if node in self.numbers:
            return self.numbers[node]
        (extent,) = node.attrs["dims"]
        (name,) = extent.symbols()
        return self.lengths[name]

    def executable(
        self, programs: Sequence[_Program], memory_limit: int | None = None
    ) -> PhasedExecutable:
        """What runs the programs of the phases."""
        steps = [
            Step(program, takes, counts)
            for program, (takes, counts) in zip(programs, self.steps, strict=True)
        ]
        shapes = [shape_of(param) for param in self.graph.params]
        lengths = [(self.scope.symbols[name],) for name in self.counts]
        formulas = Openings(self.scope).finish([*shapes, *lengths])
        lines = {name: node.loc for name, node in self.counts.items()}
        params = [slot_of(p.attrs["name"], p) for p in self.graph.params]
        graph = self.graph
        results = [slot_of(n, r) for n, r in zip(graph.result_names, graph.results, strict=True)]
        rest = steps, self.gives, formulas, lines
        return PhasedExecutable(graph.name, params, results, *rest, memory_limit)


def slot_of(name: str, node: Node) -> Slot:
    """What is shown of a parameter or result."""
    assert isinstance(node.type, Type)
    return Slot(name, node.type.dtype.name, tuple(map(hint_of, node.type.shape)))
