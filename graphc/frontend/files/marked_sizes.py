"""Sizes in the text of a graph that no argument says, and what tracing has decided by sizes.

A mark names them; its nodes compute nothing else:

    %5 = sum(%4) : i64[]                        a run counts it
    %40 = extent() {extent=n-1} : i64[]
    %41 = extent() {extent=2} : i64[]
    %42 = extent() {extent=count0-9} : i64[]
    mark count.count0 = %5                      count0 is what %5 is
    mark floor.size0 = %40, %41                 size0 is (n - 1) // 2
    mark positive = %42                         the graph is for runs with count0 > 9

A formula has one of `arithmetic.KINDS`, and its parts in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import TYPE_CHECKING, Any

from graphc.base.garbage_collection import collector_paused
from graphc.base.size_arithmetic import KINDS
from graphc.errors import FeedError, GraphError
from graphc.frontend.compile.open_sizes import NEEDS_NUMBERS, USUAL, scope_of
from graphc.frontend.compile.signature import parameter_type
from graphc.frontend.trace.spec import symbols_of
from graphc.frontend.trace.trace import Traced
from graphc.frontend.trace.tree import flatten
from graphc.ir.graph import Builder, Graph, Location, Node, Program, infer
from graphc.ir.op import OPS
from graphc.ir.place import Buffer, Place, Region
from graphc.ir.regions import scheduled_graphs
from graphc.ir.sizes import (
    USUAL_COUNT,
    Scope,
    Size,
    either,
    extent_of,
    greatest,
    hint_of,
    is_open,
    least,
    parts_of,
    unknowns_behind,
)
from graphc.ir.sizes import scope_of as size_scope
from graphc.ir.specialise import specialise
from graphc.ir.types import (
    AnyType,
    Dimension,
    StackType,
    TupleType,
    Type,
    leaves,
    stack_type,
    substitute_dim,
    symbol,
    tensor,
    tuple_type,
)
from graphc.ir.unknowns import Atom, Guard
from graphc.ir.verify import graphs_of
from graphc.limits import check_within

if TYPE_CHECKING:
    from graphc.frontend.compile.decorator import CompiledFunction

COUNT = "count"
MOST_EXTENT = 2**63 - 1
RELATIONS = {  # the marks of decisions: how the extent compares with 0, and whether that is so
    "positive": (">", True),
    "not_positive": (">", False),
    "zero": ("==", True),
    "not_zero": ("==", False),
}
_FORMULAS: dict[str, Callable[..., Any]] = {
    "floor": lambda over, by: over // by,
    "max": greatest,
    "min": least,
    "choice": either,
    "parts": parts_of,
    "extent": extent_of,
}


# ----------------------------------------------------------------------------------------- writing


def text_graph(
    function: CompiledFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Graph:
    """The traced graph of a function as text holds it: sizes that are no polynomials of those of
    the arguments are marked. Raises what tracing raises."""
    signature, _ = function._signature(args, kwargs)
    names = sorted(symbols_of(filter(None, map(parameter_type, signature.keys))))
    plain = None
    try:
        variant = function._traced(args, kwargs)
        plain = None if counts_sizes(variant.traced) else variant.graph
        if plain is not None and not (names and _may_be_short(plain)):
            return plain
    except (*NEEDS_NUMBERS, AttributeError):  # it asks what only a number has
        if not names:
            raise
    try:
        with function._variants.lock, collector_paused():
            scope = scope_of(dict.fromkeys(names, USUAL))
            scope.for_any = True
            made = with_marks(function._variants.trace(signature, "", scope).traced)
        require_readable(made)
        return made
    except NEEDS_NUMBERS:
        if plain is None:
            raise
        return plain  # for as many elements as its slices want


def require_readable(graph: Graph) -> None:
    """Raises GraphError, with the user's line, for a node whose type nobody can tell from text:
    without formulas a reader infers them all."""
    if any("." in mark for mark in graph.marks):
        return
    for node in (node for g in scheduled_graphs(graph) for node in g.nodes):
        try:
            infer(node.op, tuple(n.type for n in node.inputs), node.attrs, node.regions)
        except GraphError as error:
            raise GraphError(
                f"{node.op.name} cannot be saved for any size: {error.message}",
                location=node.loc,
                hint="say a number for what it needs: gc.spec((5,), ...)",
            ) from error


def counts_sizes(traced: Traced) -> bool:
    """Whether a run counts sizes, all of it or a body."""
    return bool(traced.counts or (traced.scope is not None and traced.scope.inner))


def _may_be_short(graph: Graph) -> bool:
    """Whether a slice wants more elements than there are for some sizes, where NumPy clamps it."""
    for node in (node for g in scheduled_graphs(graph) for node in g.nodes):
        if node.op is not OPS["slice"]:
            continue
        given, kind = node.attrs.values_dict, node.inputs[0].type
        assert isinstance(kind, Type)
        bounds = given["starts"], given["stops"], given["steps"], kind.shape
        for start, stop, step, extent in zip(*bounds, strict=True):
            low, high = (start, stop) if step > 0 else (stop + 1, start + 1)
            if not all(map(_never_negative, (low, high - low, extent - high))):
                return True
    return False


def _never_negative(extent: Dimension) -> bool:
    """Whether it is at least 0, whatever its symbols stand for."""
    return extent >= 0 if isinstance(extent, int) else all(c >= 0 for _, c in extent.terms)


def with_marks(traced: Traced) -> Graph:
    """The graph of a trace with open sizes as text holds it. Raises GraphError for a size that
    text has no words for."""
    assert traced.scope is not None
    counts = {f"{COUNT}.{name}": frozenset([n.id]) for name, n in traced.counts.items()}
    graph = traced.graph.replace(marks=counts)
    made = SizeMarks(traced.scope, graph.next_id).marked(graph)
    assert isinstance(made, Graph)
    return made


def marking(stages: Sequence[Graph | Program]) -> Callable[[Graph | Program], Graph | Program]:
    """What makes of each of these stages, that leave sizes open, the one that text holds."""
    graphs = [graph for stage in stages for graph in graphs_of(stage)]
    kinds = (k for graph in graphs for n in (*graph.params, *graph.nodes) for k in leaves(n.type))
    scope = size_scope(d for kind in kinds if isinstance(kind, Type) for d in kind.shape)
    if scope is None:
        return lambda stage: stage
    return SizeMarks(scope, max(graph.next_id for graph in graphs)).marked


class SizeMarks:
    """Names for the unknowns of a scope, and the nodes that say what they are.

    `marked` may be asked about one graph after the other, as stages make them of each other: a
    size has one name in all of them, and one node says what it is.  `first_id` is above their ids.
    """

    def __init__(self, scope: Scope, first_id: int) -> None:
        self.scope = scope
        self.builder = Builder(first_id)
        self.names: dict[Atom, str] = {}
        self.formulas: dict[str, tuple[str, list[Node]]] = {}  # its kind and parts, by name
        self.decided: dict[Guard, Node] = {}
        self.used: set[str] = set()
        self.counted: set[str] = set()  # by the regions of the graph

    def marked(self, value: Graph | Program) -> Graph | Program:
        """The graph, or program, with names in the place of sizes, and what they are marked."""
        self.used, self.counted = set(), set()
        first, *others = map(self.closed, graphs_of(value))
        marks, nodes = self.marks()
        noted = first.replace(
            nodes=[*first.nodes, *nodes],
            marks={**first.marks, **marks},
            next_id=self.builder.next_id,
        )
        return Program(value.name, (noted, *others)) if isinstance(value, Program) else noted

    def marks(self) -> tuple[dict[str, frozenset[int]], list[Node]]:
        """Marks of the decisions, and of the formulas in use; and their nodes."""
        found: dict[str, list[Node]] = {}
        for guard in self.scope.guards.values():
            if guard.difference.symbols() & self.scope.inner - self.counted:
                continue  # it is that of a program of its own
            if guard not in self.decided:
                self.decided[guard] = self.extent(guard.difference, guard.where)
            kind = next(k for k, v in RELATIONS.items() if v == (guard.relation, guard.holds))
            found.setdefault(kind, []).append(self.decided[guard])
        decided = [node for nodes in found.values() for node in nodes]
        for name in self.behind(self.used.union(*map(_named, decided))):
            kind, parts = self.formulas[name]
            found[f"{kind}.{name}"] = parts
        nodes = {node.id: node for parts in found.values() for node in parts}
        marks = {mark: frozenset(node.id for node in parts) for mark, parts in found.items()}
        return marks, [nodes[id] for id in sorted(nodes)]

    def behind(self, names: set[str]) -> list[str]:
        """Those of the names that stand for formulas, and the ones that these are made of."""
        found: dict[str, None] = {}
        pending = sorted(names, reverse=True)
        while pending:
            name = pending.pop()
            if name in self.formulas and name not in found:
                found[name] = None
                pending += [other for node in self.formulas[name][1] for other in _named(node)]
        return list(found)

    def closed(self, graph: Graph) -> Graph:
        """The graph, or region, with names in the place of sizes."""
        params = tuple(p.replace(type=self.type(p.type), place=self.place(p)) for p in graph.params)
        mapped = dict(zip(graph.params, params, strict=True))
        for node in graph.nodes:
            self.counted |= counted_within(node)
            attrs = {name: self.value(value) for name, value in node.attrs.values_dict.items()}
            mapped[node] = node.replace(
                attrs=node.op.coerce(attrs),
                type=self.type(node.type),
                inputs=tuple(mapped[i] for i in node.inputs),
                after=tuple(mapped[a] for a in node.after),
                regions=tuple(map(self.closed, node.regions)),
                place=self.place(node),
            )
        return graph.replace(
            params=params,
            nodes=[mapped[node] for node in graph.nodes],
            results=tuple(mapped[r] for r in graph.results),
        )

    def place(self, node: Node) -> Place | None:
        """Where its value lies."""
        place: Place | None = node.place
        if not isinstance(place, Buffer):
            return place
        scratch = self.memory(place.scratch) if place.scratch is not None else None
        return Buffer(place.device, tuple(map(self.memory, place.regions)), scratch)

    def memory(self, region: Region) -> Region:
        return Region(region.base, self.value(region.offset), self.value(region.nbytes))

    def value(self, value: Any) -> Any:
        """The value of an attribute."""
        if isinstance(value, tuple) and is_open(value):
            return tuple(map(self.value, value))
        if isinstance(value, Size):
            return self.dimension(value)
        return self.type(value) if isinstance(value, Type | TupleType | StackType) else value

    def type(self, kind: AnyType) -> AnyType:
        if isinstance(kind, TupleType):
            return tuple_type(map(self.type, kind.elements))
        if isinstance(kind, StackType):
            element = self.type(kind.element)
            assert isinstance(element, Type)
            return stack_type(element)
        if not is_open(kind.shape):
            return kind
        return tensor(kind.dtype, map(self.value, kind.shape))

    def dimension(self, size: Size) -> Dimension:
        """The size over names."""
        for atom in unknowns_behind(size, self.names):
            self.names[atom] = self.name(atom)
        self.used |= {self.names[atom] for monomial, _ in size.terms for atom in monomial}
        total: Dimension = 0
        for monomial, coefficient in size.terms:
            product: Dimension = coefficient
            for atom in monomial:
                product = product * symbol(self.names[atom])
            total = total + product
        return total

    def name(self, atom: Atom) -> str:
        """The name of an unknown, of which all parts have names."""
        if atom.kind == "symbol":
            return atom.name
        name = next(n for k in range(len(self.names) + 1) if (n := f"size{k}") not in self.taken())
        self.formulas[name] = atom.kind, [self.extent(part) for part in atom.args]
        return name

    def taken(self) -> set[str]:
        return {*self.scope.symbols, *self.names.values()}

    def extent(self, size: int | Size, where: Location | None = None) -> Node:
        extent = self.dimension(size) if isinstance(size, Size) else size
        return self.builder.emit(OPS["extent"], (), {"extent": extent}, loc=where)


def counted_within(node: Node) -> set[str]:
    """The sizes that the region of a node counts, and nobody else knows."""
    return {*node.attrs["counts"]} if node.op.traits.phased else set()


def _named(node: Node) -> set[str]:
    """The names in what an `extent` says."""
    return extent_symbols(node.attrs["extent"])


# ----------------------------------------------------------------------------------------- reading


class MarkedSizes:
    """What the marks of a graph say: which sizes its runs count, and which are formulas.

    `graph` is without the nodes that are there for the marks alone.  A program's are in its first.
    """

    def __init__(self, value: Graph | Program) -> None:
        graph, *others = graphs_of(value)
        by_id = {node.id: node for node in graph.nodes}
        self.counts: dict[str, int] = {}  # the node of each
        self.formulas: dict[str, tuple[str, tuple[Dimension, ...]]] = {}
        self.decisions: list[tuple[str, Dimension, Location | None]] = []
        graphs = [each for part in graphs_of(value) for each in scheduled_graphs(part)]
        every = (node for each in graphs for node in each.nodes)
        self.inner = sorted(set().union(*map(counted_within, every)))  # what only regions know
        spare: set[int] = set()
        for mark, ids in graph.marks.items():
            kind, _, name = mark.partition(".")
            nodes = [by_id[id] for id in sorted(ids) if id in by_id]
            if kind == COUNT and name:
                self.counts[name] = self._count(graph, mark, nodes)
            elif (kind in KINDS and name) or kind in RELATIONS:
                extents = tuple(self._extent(graph, mark, node) for node in nodes)
                spare |= ids
                if kind in RELATIONS:
                    places = zip(extents, nodes, strict=True)
                    self.decisions += [(kind, extent, node.loc) for extent, node in places]
                elif len(extents) < KINDS[kind][0]:
                    raise _wrong(graph, mark)
                else:
                    self.formulas[name] = kind, extents
        used = {node for n in graph.nodes for node in (*n.inputs, *n.after)} | {*graph.results}
        gone = {id for id in spare if by_id[id] not in used}
        kept = [node for node in graph.nodes if node.id not in gone]
        first = graph.replace(nodes=kept) if gone else graph
        program = isinstance(value, Program)
        self.graph = Program(value.name, (first, *others)) if program else first

    def __bool__(self) -> bool:
        return bool(self.counts or self.formulas or self.decisions)

    def _count(self, graph: Graph, mark: str, nodes: Sequence[Node]) -> int:
        if len(nodes) != 1 or repr(nodes[0].type) != "i64[]":
            raise _wrong(graph, mark)
        return nodes[0].id

    def _extent(self, graph: Graph, mark: str, node: Node) -> Dimension:
        extent: Dimension | None = node.attrs.values_dict.get("extent")
        if extent is None:
            raise _wrong(graph, mark)
        return extent

    def known(self, binding: Mapping[str, Any]) -> dict[str, Any]:
        """The sizes that arguments say, and those that formulas make of them. Raises GraphError for
        a formula of something else, FeedError where the graph is not for these sizes."""
        made = dict(binding)
        if self.inner and (self.formulas or self.decisions):
            scope = size_scope(made.values()) or Scope()
            scope.inner |= {*self.inner}
            made |= {n: scope.symbol(n, USUAL_COUNT) for n in self.inner}
        for name in self._order(made):
            kind, extents = self.formulas[name]
            parts: list[Any] = [_value(extent, made) for extent in extents]
            made[name] = _FORMULAS[kind](*parts) if is_open(parts) else KINDS[kind][1](parts)
        for kind, extent, where in self.decisions:
            relation, holds = RELATIONS[kind]
            if extent_symbols(extent) <= made.keys():
                self._decide(_value(extent, made), relation, holds, where, extent)
        return made

    def _order(self, made: Mapping[str, Any]) -> list[str]:
        """The formulas, each after those that it is made of."""
        behind = {
            name: set().union(*map(extent_symbols, extents)) - made.keys()
            for name, (_, extents) in self.formulas.items()
        }
        for name, needed in behind.items():
            if not needed <= behind.keys():
                raise GraphError(f"no argument says what {name} is")
        try:
            return list(TopologicalSorter(behind).static_order())
        except CycleError as cycle:
            raise GraphError(f"the size {cycle.args[1][0]} is made of itself") from None

    def _decide(
        self, value: Any, relation: str, holds: bool, where: Location | None, extent: Dimension
    ) -> None:
        if isinstance(value, Size):
            guard = Guard(value, relation, holds, where)
            value.scope.learn(value.scope.guards.setdefault((value, relation), guard))
        number = hint_of(value)
        is_so = (number > 0 if relation == ">" else number == 0) is holds
        if not is_so:
            sign = {(">", True): ">", (">", False): "<=", ("==", True): "=", ("==", False): "!="}
            raise FeedError(
                f"the graph was traced for sizes with {extent} {sign[relation, holds]} 0",
                location=where,
                hint="the function itself is traced again where that is not so",
            )

    def traced(self, binding: Mapping[str, Any], scope: Scope) -> Traced:
        """The graph with sizes of a scope in the place of names."""
        assert isinstance(self.graph, Graph)
        counts = {name: scope.symbol(name, USUAL_COUNT) for name in self.counts}
        graph = specialise(self.graph, self.known({**binding, **counts}))
        by_id = {node.id: node for node in graph.nodes}
        nodes = {name: by_id[id] for name, id in self.counts.items()}
        return Traced(graph, flatten(())[1], 0.0, nodes, scope)


NO_SIZES = MarkedSizes(Graph("", (), [], ()))


def extent_symbols(extent: Dimension) -> set[str]:
    """The names in a dimension."""
    return set() if isinstance(extent, int) else extent.symbols()


def _value(extent: Dimension, made: Mapping[str, Any]) -> Any:
    """An extent with values in the place of names. Raises GraphError for what no array can have:
    a file may square a size again and again."""
    if isinstance(extent, int):
        return extent
    for monomial, _ in extent.terms:
        terms = prod(len(v.terms) for name in monomial if isinstance(v := made[name], Size))
        check_within("dimension_terms", terms, f"{extent} with other formulas put in")
    value = substitute_dim(extent, made)
    if abs(hint_of(value)) > MOST_EXTENT:
        raise GraphError(f"{extent} is more than an array can have of anything")
    return value


def _wrong(graph: Graph, mark: str) -> GraphError:
    return GraphError(f"{graph.name}: the mark {mark} has nodes that are not what it says")
