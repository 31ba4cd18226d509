"""Sizes that the data decides: a graph in phases, each of which knows what the one before counted.

A size that only a run can tell is a symbol (`FunctionTrace.counts`).  The stages up to `flatten`
see the graph as a whole, those behind it one phase at a time.  A node's phase is the first one in
which all sizes that it depends on are known; what another phase needs is passed on.  What a trace
has decided by an example of such a size is checked as soon as a run has counted it; for other
counts the function is traced again.

    y = x[x > 0]          phase 0    mask, places, count0
    if len(y) > 9: ...    checked    count0 > 9
    v.assign(y.sum())     phase 1    y, its sum, and in the last phase what variables are assigned
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphc.codegen.table.holes import Openings
from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.engine import Built, build, stages_of
from graphc.frontend.compile.open_sizes import FEWEST, can_be_open
from graphc.frontend.compile.specialise import specialise
from graphc.frontend.trace.trace import Traced
from graphc.ir.graph import Graph, Node, node_effect
from graphc.ir.op import OPS, Effect
from graphc.ir.sizes import Scope, Size, hint_of
from graphc.ir.types import BOOL, Type, leaves, tensor
from graphc.ops.reference.interpreter import State, interpret
from graphc.passes.normalise.flatten import COUNTED
from graphc.passes.pipeline import Record
from graphc.record import replace
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.open_executable import Shapes
from graphc.runtime.call.phased_executable import PhasedExecutable, Refused, Step
from graphc.runtime.load.program import Image, Slot
from graphc.runtime.load.size_formulas import Formulas

LAST_WHOLE = "flatten"  # the last stage before the cut; each phase goes through those behind it


class Counted(Built):
    """A compilation in phases, which serves all sizes of its arguments that it is for."""

    phased: PhasedExecutable
    programs: list[_Program]

    def save(self, path: str | Path, text: str, key: bytes | None = None) -> None:
        """As `Built.save`: the file has programs for no and for one element, too."""
        from graphc.runtime.files.gcx_files import save_phases

        for program in self.programs:
            program.complete()
        save_phases(self.phased, path, text, key=key)

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
    whole = flat(traced, config)
    if config.dump is not None:
        from graphc.frontend.files.dump import write_stages

        write_stages(config.dump, whole)
    phases = _Phases(traced, whole_of(whole))
    programs = [_Program(graph, phases.scope, config) for graph in phases.graphs()]
    built = [program.built[0] for program in programs]
    last = built[-1]
    records = (*whole, *(record for each in built for record in each.stages))
    made = Counted(records, last.image, last.kernels, last.threads)
    made.seconds = traced.seconds + sum(each.seconds for each in built)
    made.build_seconds = sum(each.build_seconds for each in built)
    made.programs = programs
    made.phased = phases.executable(programs)
    made.run_by(made.phased)
    return made


def counts_of(so_far: Traced, config: Config, arrays: Sequence[Any]) -> dict[str, int]:
    """What a run counts before an error of tracing; nothing is written or printed."""
    phases = _Phases(so_far, whole_of(flat(so_far, config)), has_effects=False)
    programs = [_Program(graph, phases.scope, config) for graph in phases.graphs()]
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
    graph, made = whole_of(flat(traced, config)), dict(sizes)
    for name, count in zip(traced.counts, graph.results[len(traced.graph.results) :], strict=True):
        seen = ancestors([count])
        nodes = [node for node in graph.nodes if node in seen]
        part = graph.replace(nodes=nodes, results=(count,), result_names=(), names={}, marks={})
        (found,) = interpret(specialise(part, made), arrays, state=dict(state))
        made[name] = int(found)
    return made


def flat(traced: Traced, config: Config) -> tuple[Record, ...]:
    """The stages before the cut, of the graph with what it counts as its last results."""
    counts = tuple(traced.counts.values())
    graph = traced.graph.replace(
        results=(*traced.graph.results, *counts),
        result_names=(),
        marks={COUNTED: frozenset(node.id for node in counts)},
    )
    return stages_of(graph, config, traced.seconds, until=LAST_WHOLE)


def whole_of(stages: Sequence[Record]) -> Graph:
    """The graph that is cut."""
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
                for extent, size in zip(dims_of(param), shape, strict=True)
                if isinstance(extent, Size) and extent is self.known.symbols.get(repr(extent))
            }
            self.built.append(build_phase(self.graph, self.known, self.config, examples))
            found = self._serving(shapes)
        if found is None:  # nothing, or one element, may be a special case
            exact = specialise(self.graph, examples)
            self.built.append(build(exact, self.config, stage=LAST_WHOLE))
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
                extents = map(dims_of, self.graph.params)
                shapes = tuple(tuple(_number(d, binding) for d in dims) for dims in extents)
                if self._may_be(binding) and self._serving(shapes) is None:
                    fixed = specialise(self.graph, {**symbols, name: few})
                    self.built.append(build_phase(fixed, self.known, self.config, {}))

    def _may_be(self, binding: Mapping[str, int]) -> bool:
        """Whether Python decided nothing otherwise while it was traced."""
        guards = self.known.guards.values()
        return all(g.is_met(binding) for g in guards if g.difference.symbols() <= binding.keys())

    def _serving(self, shapes: Shapes) -> Executable | None:
        for each in self.built:
            found = each.bound(shapes) if each.is_open else None
            if found is not None:
                return found.executable
        return self.exact.get(shapes)

    def cancel(self) -> None:
        for each in self.built:
            (each.opened if each.is_open else each.executable).cancel()


def dims_of(node: Node) -> tuple[int, ...]:
    assert isinstance(node.type, Type)
    return node.type.dims


def build_phase(graph: Graph, known: Scope, config: Config, examples: Mapping[str, int]) -> Built:
    """Compile one phase: sizes that were counted before it stay open."""
    names = symbols_in(graph)
    if not names:
        return build(graph, config, stage=LAST_WHOLE)
    scope = Scope()
    binding = {
        name: scope.symbol(name, max(examples.get(name, known.symbols[name].hint), FEWEST))
        for name in sorted(names)
    }
    for guard in known.guards.values():  # what Python decided while it was traced
        if guard.difference.symbols() <= names:
            scope.decide(guard.difference.value(binding), guard.relation)
    opened = specialise(graph, binding)
    scope.typing = False
    return build(opened, config, stage=LAST_WHOLE)


def symbols_in(graph: Graph) -> set[str]:
    """The symbols in the shapes of parameters."""
    kinds = [leaf for p in graph.params for leaf in leaves(p.type)]
    extents = [d for kind in kinds if isinstance(kind, Type) for d in kind.shape]
    return {name for d in extents if isinstance(d, Size) for name in d.symbols()}


def _number(extent: int, binding: Mapping[str, int]) -> int:
    return extent.value(binding) if isinstance(extent, Size) else extent


class _Phases:
    """The phases of a graph.

    `steps` has for each which values it takes and what it counts; `gives` are the
    results.  Values are numbered: the parameters, then for each step the lengths that it counts and
    what it passes on.  Variables are read where they are used and assigned in the last phase.
    """

    def __init__(self, traced: Traced, graph: Graph, has_effects: bool = True) -> None:
        assert traced.scope is not None
        self.graph = graph
        self.scope = traced.scope
        self.given = graph.results[: len(traced.graph.results)]
        self.names = traced.graph.result_names
        self.counts = dict(zip(traced.counts, graph.results[len(self.given) :], strict=True))
        for node in graph.nodes:
            self._check(node)
        effects = [node for node in graph.nodes if node_effect(node) > Effect.READ]
        self.effects = effects if has_effects else []
        guards = self.scope.guards.values()
        decided = {name for guard in guards for name in guard.difference.symbols()}
        asked = [self.counts[name] for name in decided if name in self.counts]
        if not has_effects:
            asked = list(self.counts.values())
        self.level = self._levels(asked)
        self.last = max((self.level[n] for n in (*self.given, *self.effects, *asked)), default=0)
        self.level |= {n: self.last for n in self.effects if n.op.effect is Effect.WRITE}
        self.asked = asked
        self.numbers: dict[Node, int] = {p: k for k, p in enumerate(graph.params)}
        self.used = len(graph.params)
        own = (name for name in self.scope.symbols if name not in self.counts)
        self.lengths = {name: self._number() for name in own}
        self.steps: list[tuple[tuple[int, ...], tuple[str, ...]]] = []
        self.gives: list[int] = []

    def _check(self, node: Node) -> None:
        if node_effect(node) is Effect.COMM:
            raise GraphError(
                f"{node.op.name} in a function whose data decides sizes",
                location=node.loc,
                hint="give the sizes (size=), or keep messages between devices outside of it",
            )

    def _levels(self, asked: Sequence[Node]) -> dict[Node, int]:
        """The phase of each node: what does not help to count waits until it is known that all that
        Python decided by what is `asked` for holds; for other counts it may be an error."""
        level = self.level = dict.fromkeys(self.graph.params, 0)
        for node in self.graph.nodes:
            level[node] = self._level_of(node)
        known = max((level[node] + 1 for node in asked), default=0)
        counting = ancestors(asked)
        for node in self.graph.nodes if known else ():
            level[node] = max(self._level_of(node), 0 if node in counting else known)
        return level

    def _level_of(self, node: Node) -> int:
        names = {name for size in sizes_of(node) for name in size.symbols()}
        counted = [self.level[self.counts[name]] + 1 for name in names if name in self.counts]
        return max([*counted, *(self.level[i] for i in node.inputs)], default=0)

    def graphs(self) -> Iterator[Graph]:
        """The graph of each phase."""
        for level in range(self.last + 1):
            yield self._phase(level, level == self.last)
        self.gives = [self.numbers[r] for r in self.given]

    def _phase(self, level: int, is_last: bool) -> Graph:
        counts = {
            name: node
            for name, node in self.counts.items()
            if self.level[node] == level and (not is_last or node in self.asked)
        }
        passed = [n for n in self._needed_later(level) if n not in self.numbers]
        results = [*counts.values(), *passed]
        effects = [node for node in self.effects if self.level[node] == level]
        nodes = self._nodes_behind([*results, *effects])
        made, takes, mapped = [], [], dict[Node, Node]()
        next_id = self.graph.next_id
        outside = dict.fromkeys(i for n in (*nodes, *results) for i in (*n.inputs, n))
        for value in outside:
            if value in self.numbers:
                takes.append(self.numbers[value])
                made.append(param(next_id, f"v{self.numbers[value]}", value.type))
                mapped[value] = made[-1]
                next_id += 1
        for name, number in self.lengths.items():
            takes.append(number)
            made.append(param(next_id, name, tensor(BOOL, (self.scope.symbols[name],))))
            next_id += 1
        inner = []
        for node in nodes:
            inputs = tuple(mapped[i] for i in node.inputs)
            after = tuple(mapped[a] for a in node.after if a in mapped)
            mapped[node] = node.replace(inputs=inputs, after=after)
            inner.append(mapped[node])
        self.steps.append((tuple(takes), tuple(counts)))
        for name in counts:
            self.lengths[name] = self._number()
        for node in passed:
            self.numbers[node] = self._number()
        return Graph(
            self.graph.name,
            tuple(made),
            inner,
            tuple(mapped[r] for r in results),
            result_names=tuple(str(k) for k in range(len(results))),
            names={},
            next_id=next_id,
        )

    def executable(self, programs: Sequence[_Program]) -> PhasedExecutable:
        """What runs the programs of the phases."""
        steps = [
            Step(program, takes, counts)
            for program, (takes, counts) in zip(programs, self.steps, strict=True)
        ]
        shapes = [dims_of(param) for param in self.graph.params]
        lengths = [(self.scope.symbols[name],) for name in self.counts]
        formulas = Openings(self.scope).finish([*shapes, *lengths])
        lines = {name: node.loc for name, node in self.counts.items()}
        params = [slot_of(p.attrs["name"], p) for p in self.graph.params]
        results = [slot_of(n, r) for n, r in zip(self.names, self.given, strict=True)]
        rest = steps, self.gives, formulas, lines
        return PhasedExecutable(self.graph.name, params, results, *rest)

    def _number(self) -> int:
        self.used += 1
        return self.used - 1

    def _needed_later(self, level: int) -> list[Node]:
        """Values of a phase that results are, or later phases read; constants are made again, and
        variables are read again."""
        found = [r for r in self.given if self.level[r] == level]
        for node in self.graph.nodes:
            if self.level[node] > level:
                found += [i for i in node.inputs if self.level[i] == level and i.inputs]
        return list(dict.fromkeys(found))

    def _nodes_behind(self, results: list[Node]) -> list[Node]:
        """What computes the results from what is known."""
        seen = ancestors(results, self.numbers)
        return [node for node in self.graph.nodes if node in seen]


def ancestors(results: Sequence[Node], known: Container[Node] = ()) -> set[Node]:
    """Nodes, and what they are computed from but for what is known."""
    seen: set[Node] = set()
    pending = list(results)
    while pending:
        node = pending.pop()
        if node not in seen and node not in known:
            seen.add(node)
            pending += node.inputs
    return seen


def slot_of(name: str, node: Node) -> Slot:
    """What is shown of a parameter or result."""
    assert isinstance(node.type, Type)
    return Slot(name, node.type.dtype.name, tuple(map(hint_of, node.type.shape)))


def param(number: int, name: str, kind: object) -> Node:
    """A parameter of a phase."""
    op = OPS["param"]
    return Node(number, op, (), op.coerce({"name": name}), kind)  # type: ignore[arg-type]


def sizes_of(node: Node) -> Iterator[Size]:
    """The sizes that a node's type and attributes, and its regions, depend on."""
    for leaf in leaves(node.type):
        if isinstance(leaf, Type):
            yield from (d for d in leaf.shape if isinstance(d, Size))
    for value in node.attrs.values_dict.values():
        parts = value if isinstance(value, tuple) else (value,)
        yield from (d for d in parts if isinstance(d, Size))
    for region in node.regions:
        for inner in (*region.params, *region.nodes):
            yield from sizes_of(inner)
