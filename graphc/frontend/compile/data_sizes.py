"""Sizes that the data decides: a graph in stages, each of which knows what the one before counted.

A size that only a run can tell is a symbol (`FunctionTrace.counts`).  A node's stage is the first
one in which all sizes that it depends on are known; what another stage needs is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphc.config import Config
from graphc.errors import GraphError
from graphc.frontend.compile.engine import Built, build
from graphc.frontend.compile.open_sizes import FEWEST
from graphc.frontend.compile.specialise import specialise
from graphc.frontend.trace.trace import Traced
from graphc.ir.graph import Graph, Node
from graphc.ir.op import OPS, Effect
from graphc.ir.sizes import Scope, Size
from graphc.ir.types import BOOL, Type, leaves, tensor
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.open import Shapes
from graphc.runtime.call.staged import StagedExecutable, Step
from graphc.runtime.load.program import Image


def build_counted(traced: Traced, config: Config) -> Built:
    """Compile a graph with sizes that its runs count.

    Raises GraphError for one that reads or writes variables, or calls Python.
    """
    stages = _Stages(traced)
    programs = [_Program(graph, stages.scope, config) for graph in stages.graphs()]
    built = [program.built[0] for program in programs]
    steps = [
        Step(each, takes, counts)
        for each, (takes, counts) in zip(programs, stages.steps, strict=True)
    ]
    whole = StagedExecutable(traced.graph.name, steps, stages.gives)
    records = tuple(record for each in built for record in each.stages)
    last = built[-1]
    made = Built(records, last.image, last.kernels, last.threads)
    made.seconds = traced.seconds + sum(each.seconds for each in built)
    made.build_seconds = sum(each.build_seconds for each in built)
    made.run_by(whole)
    return made


class _Program:
    """The compilations of a stage: one more for sizes for which a decision does not hold."""

    def __init__(self, graph: Graph, known: Scope, config: Config) -> None:
        self.graph, self.known, self.config = graph, known, config
        self.built = [build_stage(graph, known, config, {})]
        self.exact: dict[Shapes, Executable] = {}
        self.closed = not self.built[0].is_open

    @property
    def image(self) -> Image:
        return self.built[0].image

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
            self.built.append(build_stage(self.graph, self.known, self.config, examples))
            found = self._serving(shapes)
        if found is None:  # nothing, or one element, may be a special case
            self.built.append(build(specialise(self.graph, examples), self.config))
            self.exact[shapes] = self.built[-1].executable
            found = self.exact[shapes]
        return found

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


def build_stage(graph: Graph, known: Scope, config: Config, examples: Mapping[str, int]) -> Built:
    """Compile one stage: sizes that were counted before it stay open."""
    kinds = [leaf for p in graph.params for leaf in leaves(p.type)]
    extents = [d for kind in kinds if isinstance(kind, Type) for d in kind.shape]
    names = {name for d in extents if isinstance(d, Size) for name in d.symbols()}
    if not names:
        return build(graph, config)
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
    return build(opened, config)


class _Stages:
    """The stages of a graph.

    `steps` has for each which values it takes and how many counts it makes; `gives` are the
    results.  Values are numbered: the parameters, then for each step the lengths that it counts and
    what it passes on.
    """

    def __init__(self, traced: Traced) -> None:
        self.graph = traced.graph
        self.counts = traced.counts
        scopes = [s.scope for n in self.graph.nodes for s in sizes_of(n)]
        self.scope = scopes[0] if scopes else Scope()
        self.level: dict[Node, int] = dict.fromkeys(self.graph.params, 0)
        for node in self.graph.nodes:
            self._check(node)
            self.level[node] = self._level_of(node)
        self.numbers: dict[Node, int] = {p: k for k, p in enumerate(self.graph.params)}
        self.lengths: dict[str, int] = {}
        self.used = len(self.graph.params)
        self.steps: list[tuple[tuple[int, ...], int]] = []
        self.gives: list[int] = []

    def _check(self, node: Node) -> None:
        if node.op.effect is not Effect.PURE or node.after:
            raise GraphError(
                f"{node.op.name} in a function whose data decides sizes",
                location=node.loc,
                hint="give the sizes (size=), or keep variables and printing outside of it",
            )

    def _level_of(self, node: Node) -> int:
        names = {name for size in sizes_of(node) for name in size.symbols()}
        counted = [self.level[self.counts[name]] + 1 for name in names if name in self.counts]
        return max([*counted, *(self.level[i] for i in node.inputs)], default=0)

    def graphs(self) -> Iterator[Graph]:
        """The graph of each stage."""
        last = max((self.level[r] for r in self.graph.results), default=0)
        for level in range(last + 1):
            yield self._stage(level, level == last)
        self.gives = [self.numbers[r] for r in self.graph.results]

    def _stage(self, level: int, is_last: bool) -> Graph:
        counts = {n: node for n, node in self.counts.items() if self.level[node] == level}
        passed = [n for n in self._needed_later(level) if n not in self.numbers]
        results = [*([] if is_last else counts.values()), *passed]
        nodes = self._nodes_behind(results)
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
            mapped[node] = node.replace(inputs=tuple(mapped[i] for i in node.inputs))
            inner.append(mapped[node])
        self.steps.append((tuple(takes), 0 if is_last else len(counts)))
        for name in () if is_last else counts:
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

    def _number(self) -> int:
        self.used += 1
        return self.used - 1

    def _needed_later(self, level: int) -> list[Node]:
        """Values of a stage that results are, or later stages read; constants are made again."""
        found = [r for r in self.graph.results if self.level[r] == level]
        for node in self.graph.nodes:
            if self.level[node] > level:
                found += [i for i in node.inputs if self.level[i] == level and i.inputs]
        return list(dict.fromkeys(found))

    def _nodes_behind(self, results: list[Node]) -> list[Node]:
        """What computes the results from what is known."""
        seen: set[Node] = set()
        pending = list(results)
        while pending:
            node = pending.pop()
            if node not in seen and node not in self.numbers:
                seen.add(node)
                pending += node.inputs
        return [node for node in self.graph.nodes if node in seen]


def param(number: int, name: str, kind: object) -> Node:
    """A parameter of a stage."""
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
