"""cut_phases: where the data decides sizes, a phase ends where one is counted that others need.

    %3 = sum(%2) : i64[]    mark count.n = %3         %9 = call(%0) {name="phase0"} { ... %3, %2 }
    %4 = nonzero(%2) {size=n}                   ->    %10, %11 = its items    mark count.n = %10
    return %4                                         %13 = call(%11, %12) {name="phase1"} { %4 }

A node's phase is the first one in which all sizes that it depends on are known, and behind the
check of what Python has decided by a count.  What later phases need is passed on.  A phase is told
a size by an array of that length (%12), of which no element is read.  Variables are read where they
are used, and assigned in the last phase.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import numpy as np

from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph, Node, node_effect
from graphc.ir.literal import literal
from graphc.ir.op import OPS, Effect
from graphc.ir.sizes import Size, scope_of
from graphc.ir.types import AnyType, Dim, Dimension, StackType, Type, leaves, symbol

COUNTED = "count."  # and a size's name: marks the node that counts it
DECIDED = "decided."  # marks it, too, where a decision of tracing depends on the size


def cut_phases(graph: Graph, config: Config) -> Graph:
    """The graph as calls, one after the other; its last results are the counted sizes, as marked.

    Raises GraphError for messages between devices.
    """
    return _Cut(graph).run() if counted_sizes(graph) else graph


def counted_sizes(graph: Graph) -> tuple[str, ...]:
    """The names of the sizes that a graph counts."""
    return tuple([m.removeprefix(COUNTED) for m in graph.marks if m.startswith(COUNTED)])


def ancestors(results: Iterable[Node], known: Container[Node] = ()) -> set[Node]:
    """Nodes, and what they are computed from but for what is known."""
    seen, pending = set[Node](), list(results)
    while pending:
        node = pending.pop()
        if node not in seen and node not in known:
            seen.add(node)
            pending += node.inputs
    return seen


class _Cut:
    """The phases of a graph. `made` are the nodes outside of them that stand for its own."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        names = counted_sizes(graph)
        given = len(graph.results) - len(names)
        self.given = graph.results[:given]
        self.counts = dict(zip(names, graph.results[given:], strict=True))
        for node in graph.nodes:
            check(node)
        self.effects = [node for node in graph.nodes if node_effect(node) > Effect.READ]
        self.decided = [n for name, n in self.counts.items() if DECIDED + name in graph.marks]
        self.level: dict[Node, int] = dict.fromkeys(graph.params, 0)
        self.find_levels()
        ends = (*self.given, *self.effects, *self.decided)
        self.last = max((self.level[n] for n in ends), default=0)
        self.level |= {n: self.last for n in self.effects if n.op.effect is Effect.WRITE}
        self.builder = Builder(graph.next_id)
        self.made: dict[Node, Node] = {p: p for p in graph.params}
        self.sizes = extents(graph)
        self.told: dict[str, Node] = {}  # by the name of a size that is known: an array as long
        self.marks: dict[str, frozenset[int]] = {}

    def find_levels(self) -> None:
        """Find the phase of each node: what does not help to count waits until all that Python
        decided by counts is known to hold; for other counts it may be an error."""
        for node in self.graph.nodes:
            self.level[node] = self.level_of(node)
        known = max((self.level[node] + 1 for node in self.decided), default=0)
        counting = ancestors(self.decided)
        for node in self.graph.nodes if known else ():
            self.level[node] = max(self.level_of(node), 0 if node in counting else known)

    def level_of(self, node: Node) -> int:
        names = {name for size in sizes_of(node) for name in size.symbols()}
        counted = [self.level[self.counts[name]] + 1 for name in names if name in self.counts]
        return max([*counted, *(self.level[i] for i in node.inputs)], default=0)

    def run(self) -> Graph:
        """The graph of calls."""
        self.tell(name for name in self.sizes if name not in self.counts)
        for level in range(self.last + 1):
            self.phase(level)
        return self.graph.replace(
            nodes=self.builder.nodes,
            results=tuple(self.made[r] for r in self.given),
            result_names=self.graph.result_names[: len(self.given)],
            names={},
            marks=self.marks,
            next_id=self.builder.next_id,
        )

    def tell(self, names: Iterable[str]) -> None:
        """Make an array for each of these sizes, which are known from here on."""
        for name in names:
            value = {"value": literal(np.zeros((), np.bool_))}
            false = self.builder.emit(OPS["const"], (), value)
            dims = {"dims": (self.sizes.get(name, symbol(name)),)}
            self.told[name] = self.builder.emit(OPS["broadcast"], (false,), dims)

    def phase(self, level: int) -> None:
        """Call what can be computed with the sizes that are known, and note what it counts."""
        counts = {
            name: node
            for name, node in self.counts.items()
            if self.level[node] == level and (level < self.last or node in self.decided)
        }
        passed = [node for node in self.read_later(level) if node not in self.made]
        results = [*counts.values(), *passed]
        effects = [node for node in self.effects if self.level[node] == level]
        inside = ancestors([*results, *effects], self.made)
        self.check_again(inside, level)
        nodes = [node for node in self.graph.nodes if node in inside]
        region, inputs = self.region(nodes, results)
        call = self.builder.emit(
            OPS["call"], inputs, {"name": f"phase{level}"}, after=self.before, regions=(region,)
        )
        made = self.parts(call, len(results))
        self.marks |= {COUNTED + n: frozenset([one.id]) for n, one in zip(counts, made)}
        self.made |= dict(zip(passed, made[len(counts) :], strict=True))
        self.tell(counts)

    @property
    def before(self) -> tuple[Node, ...]:
        """The call of the phase before."""
        return tuple([n for n in self.builder.nodes if n.regions][-1:])

    def region(self, nodes: list[Node], results: list[Node]) -> tuple[Graph, tuple[Node, ...]]:
        """The graph of a phase, and what it is called with."""
        known = [n for n in (*(i for n in nodes for i in n.inputs), *results) if n in self.made]
        inputs = {old: self.made[old] for old in known}
        params = {old: param(made.id, f"v{made.id}", old.type) for old, made in inputs.items()}
        told = [param(one.id, name, one.type) for name, one in self.told.items()]
        mapped = dict(params)
        for node in nodes:
            mapped[node] = node.replace(
                inputs=tuple(mapped[i] for i in node.inputs),
                after=tuple(mapped[a] for a in node.after if a in mapped),
            )
        graph = Graph(
            self.graph.name,
            (*params.values(), *told),
            [mapped[node] for node in nodes],
            tuple(mapped[r] for r in results),
            next_id=self.builder.next_id,
        )
        return graph, (*inputs.values(), *self.told.values())

    def parts(self, call: Node, count: int) -> list[Node]:
        """The results of a call."""
        if count == 1:
            return [call]
        return [self.builder.emit(OPS["item"], (call,), {"index": k}) for k in range(count)]

    def read_later(self, level: int) -> list[Node]:
        """Values of a phase that results are, or later phases read; constants are made again, and
        variables are read again, and loops run again of which stacks are read: those are no arrays.
        """
        found = [r for r in self.given if self.level[r] == level]
        for node in self.graph.nodes:
            if self.level[node] > level:
                found += [i for i in node.inputs if self.level[i] == level and i.inputs]
        return [n for n in dict.fromkeys(found) if not isinstance(n.type, StackType)]

    def check_again(self, nodes: Iterable[Node], level: int) -> None:
        """Raise GraphError for what would be done again that may be done once."""
        for node in nodes:
            if self.level[node] < level and node_effect(node) > Effect.READ:
                raise GraphError(
                    f"the gradient of a {node.op.name} that is seen from outside, before the data"
                    " decides a size",
                    location=node.loc,
                    hint="print, assert and assign outside of the loop, or give the sizes (size=)",
                )


def check(node: Node) -> None:
    """Raise GraphError for a message between devices."""
    if node_effect(node) is Effect.COMM:
        raise GraphError(
            f"{node.op.name} in a function whose data decides sizes",
            location=node.loc,
            hint="give the sizes (size=), or keep messages between devices outside of it",
        )


def param(number: int, name: str, kind: AnyType) -> Node:
    """A parameter of a phase."""
    op = OPS["param"]
    return Node(number, op, (), op.coerce({"name": name}), kind)


def extents(graph: Graph) -> dict[str, Dimension]:
    """The sizes of a graph by name: each as an extent that is nothing else."""
    found = [size for node in (*graph.params, *graph.nodes) for size in sizes_of(node)]
    scope = scope_of(found)
    if scope is not None:
        return {name: s for name, s in scope.symbols.items() if name not in scope.inner}
    return {name: symbol(name) for size in found for name in sorted(size.symbols())}


def sizes_of(node: Node) -> Iterator[Dim | Size]:
    """The sizes that a node's type and attributes, and its regions, depend on."""
    for leaf in leaves(node.type):
        if isinstance(leaf, Type):
            yield from (d for d in leaf.shape if isinstance(d, Dim | Size))
    for value in node.attrs.values_dict.values():
        parts = value if isinstance(value, tuple) else (value,)
        yield from (d for d in parts if isinstance(d, Dim | Size))
    for region in node.regions:
        for inner in (*region.params, *region.nodes):
            yield from sizes_of(inner)
