"""Node, Graph, Program and the two ways to make them: Builder (append) and Rewriter (copy with
changes).

    Graph   params    nodes (topological order = issue order)        results
            %0 %1     %2 = add(%0, %1)   %3 = tanh(%2)  ...          %3

A node is one value.  It is never changed after construction and compared by identity; a pass
copies the list and replaces what it must.  `id` is a stable name kept across rewrites, so stage
diffs stay small and side tables can be lists indexed by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any

from graphc.base.refusing import refusing
from graphc.errors import UNCOMPUTABLE, GraphError, TypeRuleError, uncomputable
from graphc.ir.op import Attrs, Effect, Op, traits_of
from graphc.ir.rewrites import stoppable
from graphc.ir.sizes import hint_of
from graphc.ir.types import AnyType, Type

Location = tuple[str, int]


class Node:
    """One value of a graph.

    id       stable name, unique in its graph          attrs    interned, typed by the op's schema
    op       its record in the op table                type     inferred by the op's rule
    inputs   the nodes it reads                        place    None, Constraint, Device or Buffer
    after    nodes that must run first (no data)       regions  closed sub-graphs of region ops
    loc      (file, line) of the user's code
    """

    __slots__ = ("after", "attrs", "id", "inputs", "loc", "op", "place", "regions", "type")

    def __init__(
        self,
        id: int,
        op: Op,
        inputs: tuple[Node, ...],
        attrs: Attrs,
        type: AnyType,
        *,
        after: tuple[Node, ...] = (),
        place: Any = None,
        regions: tuple[Graph, ...] = (),
        loc: Location | None = None,
    ) -> None:
        self.id = id
        self.op = op
        self.inputs = inputs
        self.after = after
        self.attrs = attrs
        self.type = type
        self.place = place
        self.regions = regions
        self.loc = loc

    def replace(self, **changes: Any) -> Node:
        """A copy of the node with some fields changed; the id is kept."""
        return Node(
            changes.get("id", self.id),
            changes.get("op", self.op),
            changes.get("inputs", self.inputs),
            changes.get("attrs", self.attrs),
            changes.get("type", self.type),
            after=changes.get("after", self.after),
            place=changes.get("place", self.place),
            regions=changes.get("regions", self.regions),
            loc=changes.get("loc", self.loc),
        )

    def __repr__(self) -> str:
        if self.op.traits.parameter:
            name = self.attrs["name"]
            return f"%{self.id} {name if name.isprintable() else repr(name)}: {self.type}"
        inside = ", ".join(f"%{n.id}" for n in self.inputs)
        return f"%{self.id} = {self.op.name}({inside}) : {self.type}"

    @property
    def nbytes(self) -> int:
        """Bytes of its value, for the sizes at hand; 0 where that is no array of a known size."""
        known = isinstance(self.type, Type) and self.type.is_static
        return hint_of(self.type.nbytes) if known else 0  # type: ignore[union-attr]

    def summary(self) -> str:
        """The node as messages name it: a fused one with the ops that it is made of."""
        if not self.op.traits.kernel:
            return repr(self)
        inside = [n.op.name for region in self.regions for n in region.nodes]
        made = list(dict.fromkeys(name for name in inside if name not in _UNTOLD)) or inside
        more = f" and {len(made) - 6} more" if len(made) > 6 else ""
        return f"{self!r} of {', '.join(made[:6])}{more}"

    def describe(self) -> tuple[str, ...]:
        """The node and its inputs with their types, for error messages."""
        return (repr(self), *(f"  {n!r}" for n in self.inputs[:6]))


_MOST_COMPARED = 200  # nodes that two computations are told to be the same by
_UNTOLD = frozenset(["const", "item", "tuple", "broadcast", "reshape"])  # they compute nothing


class Graph:
    """A named list of nodes with parameters and results.

    `nodes` excludes the params.  `names` maps names given by the user to node ids; a name survives
    the merging of its node.  `marks` say of which nodes (by id) something holds that one pass has
    found out for a later one.  `result_names` and the params' name attribute name the ports of a
    saved graph.
    """

    __slots__ = (
        "__weakref__",
        "_nesting",
        "_ops",
        "_traits",
        "device",
        "marks",
        "name",
        "names",
        "next_id",
        "nodes",
        "params",
        "result_names",
        "results",
    )

    @refusing
    def __init__(
        self,
        name: str,
        params: tuple[Node, ...],
        nodes: list[Node],
        results: tuple[Node, ...],
        *,
        result_names: tuple[str, ...] = (),
        names: Mapping[str, int] | None = None,
        marks: Mapping[str, frozenset[int]] | None = None,
        next_id: int = 0,
        device: Any = None,
    ) -> None:
        self.name = name
        self.params = params
        self.nodes = nodes
        self.results = results
        self.result_names = result_names or tuple(str(i) for i in range(len(results)))
        self.names = dict(names or {})
        self.marks = dict(marks or {})
        self.device = device
        self.next_id = next_id or 1 + max((n.id for n in (*params, *nodes)), default=-1)
        self._ops: frozenset[Op] | None = None
        self._nesting: frozenset[Op] | None = None
        self._traits: frozenset[str] | None = None

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields changed."""
        names = (
            "name",
            "params",
            "nodes",
            "results",
            "result_names",
            "names",
            "marks",
            "next_id",
            "device",
        )
        fields = {key: changes.get(key, getattr(self, key)) for key in names}
        return Graph(
            fields.pop("name"),
            fields.pop("params"),
            fields.pop("nodes"),
            fields.pop("results"),
            **fields,
        )

    @property
    def ops(self) -> frozenset[Op]:
        """The ops of its nodes and of all that is in their regions."""
        if self._ops is None:
            found = {node.op for node in self.nodes}
            for node in self.nodes:
                for region in node.regions:
                    found |= region.ops
            self._ops = frozenset(found)
        return self._ops

    @property
    def traits(self) -> frozenset[str]:
        """The names of the traits of its ops: whether a stage concerns it is one look at them."""
        if self._traits is None:
            self._traits = frozenset[str]().union(*map(traits_of, self.ops))
        return self._traits

    @property
    def nesting(self) -> frozenset[Op]:
        """The ops of its nodes that have regions."""
        if self._nesting is None:
            self._nesting = frozenset([node.op for node in self.nodes if node.regions])
        return self._nesting

    @property
    def effect(self) -> Effect:
        """The strongest effect of its nodes."""
        return max((node_effect(n) for n in self.nodes), default=Effect.PURE)

    @property
    def signature(self) -> tuple[tuple[AnyType, ...], tuple[AnyType, ...]]:
        """The types of the parameters and of the results."""
        return tuple(p.type for p in self.params), tuple(r.type for r in self.results)

    def __len__(self) -> int:
        return len(self.nodes)

    def __bool__(self) -> bool:
        return True  # that of the identity has no nodes, and is one all the same

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.params)} params, {len(self.nodes)} nodes>"


class Program:
    """One graph per device, in device order. Feeds and results belong to the first graph, whose
    signature is the program's; the others have no params and no results and talk through
    channels."""

    __slots__ = ("_traits", "graphs", "name")

    @refusing
    def __init__(self, name: str, graphs: tuple[Graph, ...]) -> None:
        self.name = name
        self.graphs = graphs
        self._traits: frozenset[str] | None = None

    @property
    def ops(self) -> frozenset[Op]:
        """The ops of all of its graphs."""
        return frozenset[Op]().union(*(graph.ops for graph in self.graphs))

    @property
    def traits(self) -> frozenset[str]:
        """The names of the traits of its ops."""
        if self._traits is None:
            self._traits = frozenset[str]().union(*(graph.traits for graph in self.graphs))
        return self._traits

    @property
    def params(self) -> tuple[Node, ...]:
        """The parameters, which its first graph takes."""
        return self.graphs[0].params

    @property
    def results(self) -> tuple[Node, ...]:
        """The results, which its first graph returns."""
        return self.graphs[0].results

    def map(self, function: Callable[[Graph], Graph]) -> Program:
        """Apply a graph pass to every graph; the same object when nothing changed."""
        made = tuple([function(g) for g in self.graphs])
        unchanged = all(map(is_, made, self.graphs))
        return self if unchanged else Program(self.name, made)

    def __len__(self) -> int:
        return sum(len(g) for g in self.graphs)

    def __bool__(self) -> bool:
        return True


def node_effect(node: Node) -> Effect:
    """The effect of a node: its op's, or the strongest in its regions."""
    effect = node.op.effect
    for region in node.regions:
        effect = max(effect, region.effect)
    return effect


class Builder:
    """Appends typed nodes to a list. Used by the tracer, the reader and every pass that makes
    nodes.
    """

    def __init__(self, next_id: int = 0) -> None:
        self.nodes: list[Node] = []
        self.next_id = next_id
        self.loc: Location | None = None
        self.place: Any = None

    def emit(
        self,
        op: Op,
        inputs: Iterable[Node],
        attrs: Mapping[str, Any] | None = None,
        *,
        after: tuple[Node, ...] = (),
        regions: tuple[Graph, ...] = (),
        loc: Location | None = None,
        place: Any = None,
    ) -> Node:
        """Append a node; its type is inferred. Raises TypeRuleError with the user's line."""
        inputs = tuple(inputs)
        loc = loc or self.loc
        try:
            coerced = op.coerce(attrs or {})
            kind = infer(op, tuple(n.type for n in inputs), coerced, regions)
        except GraphError as error:
            lines = tuple(f"operand {k}: {n!r}" for k, n in enumerate(inputs[:6]))
            raise error.at(loc, lines) from None
        node = Node(
            self.next_id,
            op,
            inputs,
            coerced,
            kind,
            after=after,
            regions=regions,
            loc=loc,
            place=place if place is not None else self.place,
        )
        self.next_id += 1
        self.nodes.append(node)
        return node


def infer(
    op: Op, types: tuple[AnyType, ...], attrs: Attrs, regions: tuple[Graph, ...] = ()
) -> AnyType:
    """The result type of an op on these operand types; region ops also look at their regions."""
    try:
        if not op.regions and not regions:
            return op.result_type(types, attrs)
        return _infer_with_regions(op, types, attrs, regions)
    except UNCOMPUTABLE as error:
        raise uncomputable(f"the type of {op.name}", error) from error


def _infer_with_regions(
    op: Op, types: tuple[AnyType, ...], attrs: Attrs, regions: tuple[Graph, ...]
) -> AnyType:
    if not op.regions:
        raise TypeRuleError(f"{op.name} takes no region")
    if op.regions > 0 and len(regions) != op.regions:
        raise TypeRuleError(f"{op.name} takes {op.regions} region(s), got {len(regions)}")
    return op.infer(*types, regions=regions, **attrs.values_dict)


class Rewriter(Builder):
    """Copies a graph node by node; see `rebuild`.

    `mapped[id]` is the node that stands for the old node of that id.  Nodes emitted while an old
    node is rewritten take its location and place.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.next_id)
        self.graph = graph
        self.mapped: list[Node | None] = [None] * graph.next_id
        self.changed = False
        for param in graph.params:
            self.mapped[param.id] = param

    def new(self, old: Node) -> Node:
        """What an old node has become."""
        found = self.mapped[old.id]
        assert found is not None, f"%{old.id} is used before it is defined"
        return found

    def copy(self, node: Node) -> Node:
        """The node with its inputs replaced by what they have become; itself if none changed."""
        mapped = self.mapped
        inputs = node.inputs
        for old in inputs:
            if mapped[old.id] is not old:
                inputs = tuple([self.new(n) for n in inputs])
                break
        after = node.after
        if after:
            kept = tuple(dict.fromkeys(self.new(n) for n in after))
            after = kept if kept != after else after
        if inputs is node.inputs and after is node.after:
            return node
        return node.replace(inputs=inputs, after=after)

    def finish(self) -> Graph:
        """The rewritten graph, or the very same object when nothing changed."""
        graph = self.graph
        results = tuple(self.new(n) for n in graph.results)
        if not self.changed and results == graph.results and self.nodes == graph.nodes:
            return graph
        names = {}
        for name, id in graph.names.items():
            target = self.mapped[id] if id < len(self.mapped) else None
            if target is not None:
                names[name] = target.id
        return graph.replace(nodes=self.nodes, results=results, names=names, next_id=self.next_id)


def rebuild(
    graph: Graph, rewrite: Callable[[Node, Rewriter], Node | None], *, each: bool = True
) -> Graph:
    """Copy a graph through `rewrite(node, rewriter)`, called in order with inputs already mapped.

    The function returns None to keep the node, or the node that stands for it from here on: one it
    emitted or an earlier one.  The result is the same object when nothing changed.  Each node that
    is replaced is a rewrite that a stage may be stopped at (see `rewrites`), if `each`: not where
    replacing some nodes and not others would change what the graph computes.
    """
    r = Rewriter(graph)
    rewrite = stoppable(rewrite) if each else rewrite
    for old in graph.nodes:
        node = r.copy(old)
        r.loc, r.place = node.loc, node.place
        try:
            made = rewrite(node, r)
        except UNCOMPUTABLE as error:  # one place for every pass: the node is known here
            raise uncomputable(old.op.name, error).at(old.loc, old.describe()) from error
        if made is None:
            r.nodes.append(node)
            r.mapped[old.id] = node
            r.changed |= node is not old
        else:
            r.mapped[old.id] = made
            r.changed = True
    return r.finish()


def inline(
    builder: Builder, region: Graph, inputs: Sequence[Node], after: tuple[Node, ...] = ()
) -> list[Node]:
    """Append a copy of a region's nodes that reads `inputs`; returns what its results became.

    Nodes without a line or place take the builder's; all wait for `after`.
    """
    inner: dict[int, Node] = {p.id: n for p, n in zip(region.params, inputs, strict=True)}
    for old in region.nodes:
        made = old.replace(
            id=builder.next_id,
            inputs=tuple([inner[n.id] for n in old.inputs]),
            after=(*(inner[n.id] for n in old.after), *after),
            place=old.place or builder.place,
            loc=old.loc or builder.loc,
        )
        builder.next_id += 1
        builder.nodes.append(made)
        inner[old.id] = made
    return [inner[n.id] for n in region.results]


def is_same(one: Node, other: Node) -> bool:
    """Whether two nodes are the same computation of the same values, as far as that soon shows."""
    pairs = [(one, other)]
    for count, (a, b) in enumerate(pairs):
        if a is b:
            continue
        alike = a.op is b.op and a.attrs == b.attrs and a.type == b.type and not a.regions
        if not alike or a.op.effect is not Effect.PURE or a.op.traits.parameter:
            return False
        pairs.extend(zip(a.inputs, b.inputs, strict=True))
        if count > _MOST_COMPARED:
            return False
    return True


def map_regions(node: Node, function: Callable[[Graph], Graph]) -> Node:
    """Apply a graph function to every region of a node; the same node when nothing changed."""
    if not node.regions:
        return node
    regions = tuple(function(r) for r in node.regions)
    unchanged = all(a is b for a, b in zip(regions, node.regions, strict=True))
    return node if unchanged else node.replace(regions=regions)


Reads = tuple[tuple[Node, ...], tuple[Node, ...]]  # what a node reads, and what it waits for


def map_nodes(graph: Graph, function: Callable[[Node, Reads], Node]) -> Graph:
    """The graph with `function(node, reads)` in place of every parameter and node, in order.

    `reads` are the nodes that stand for those that the node reads and waits for.
    """
    mapped: dict[Node, Node] = {}
    for node in (*graph.params, *graph.nodes):
        inputs = tuple([mapped[n] for n in node.inputs])
        after = tuple([mapped[n] for n in node.after])
        mapped[node] = function(node, (inputs, after))
    return graph.replace(
        params=tuple(mapped[p] for p in graph.params),
        nodes=[mapped[n] for n in graph.nodes],
        results=tuple(mapped[r] for r in graph.results),
    )


def unread(graph: Graph) -> list[Node]:
    """The nodes that neither results nor effects need, last ones first.

    To be waited for makes none needed but those with effects.
    """
    live = [False] * graph.next_id
    for result in graph.results:
        live[result.id] = True
    dead = []
    for node in reversed(graph.nodes):
        if not live[node.id] and node_effect(node) <= Effect.READ:
            dead.append(node)
            continue
        live[node.id] = True
        for source in node.inputs:
            live[source.id] = True
        for source in node.after:
            live[source.id] = live[source.id] or node_effect(source) > Effect.READ
    return dead


def without(graph: Graph, dead: Sequence[Node]) -> Graph:
    """The graph without nodes that nothing reads; nothing waits for them any more."""
    if not dead:
        return graph
    gone = {node.id for node in dead}
    mapped: dict[Node, Node] = {p: p for p in graph.params}
    nodes = []
    for node in graph.nodes:
        if node.id in gone:
            continue
        made = node
        if any(mapped[n] is not n for n in node.inputs) or node.after:
            after = tuple(mapped[n] for n in node.after if n.id not in gone)
            inputs = tuple(mapped[n] for n in node.inputs)
            if inputs != node.inputs or after != node.after:
                made = node.replace(inputs=inputs, after=after)
        mapped[node] = made
        nodes.append(made)
    names = {name: id for name, id in graph.names.items() if id not in gone}
    results = tuple(mapped[r] for r in graph.results)
    return graph.replace(nodes=nodes, results=results, names=names)


def swept(graph: Graph) -> Graph:
    """The graph without what nothing needs: what a rewrite leaves behind, it takes away."""
    return without(graph, unread(graph))


def canonical(graph: Graph) -> Graph:
    """Ids renumbered from 0, names and locations dropped: for cache keys and equality."""
    mapped: dict[int, Node] = {}
    for index, param in enumerate(graph.params):
        attrs = param.op.coerce({"name": f"p{index}"})
        mapped[param.id] = param.replace(id=index, attrs=attrs, loc=None)
    nodes = []
    for node in graph.nodes:
        made = node.replace(
            id=len(mapped),
            inputs=tuple(mapped[n.id] for n in node.inputs),
            after=tuple(mapped[n.id] for n in node.after),
            regions=tuple(canonical(r) for r in node.regions),
            loc=None,
        )
        mapped[node.id] = made
        nodes.append(made)
    params = tuple(mapped[p.id] for p in graph.params)
    return Graph("g", params, nodes, tuple(mapped[r.id] for r in graph.results))
