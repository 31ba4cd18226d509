"""Subgraph: the part of a graph that some fetches need, cut at the edges that are fed.

    a ──> c ──> f          fetch f:0, feed b       a ──> c ──> f
    b ───┘                ────────────────>        b* ──┘           b* is a parameter now
    d ──> b    c ──> e

An edge is one output of a node, (node id, port).  Only backward reachability is computed, in one
sweep over the list: a node runs when a fetch or target needs its value, or when something that
runs comes after what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from graphc.base.record import record
from graphc.ir.graph import Builder, Graph, Node, node_effect
from graphc.ir.op import OPS, Effect
from graphc.ir.types import AnyType, TupleType

Edge = tuple[int, int]


def outputs(node: Node) -> int:
    """How many edges leave a node."""
    return len(node.type.elements) if isinstance(node.type, TupleType) else 1


def edge_of(node: Node) -> Edge:
    """The edge a tensor stands on: an `item` stands on that of the node it reads."""
    if node.op.traits.item:
        return node.inputs[0].id, node.attrs["index"]
    return node.id, 0


def edges_of(node: Node) -> list[Edge]:
    """Every edge of a node."""
    if isinstance(node.type, TupleType):
        return [(node.id, port) for port in range(outputs(node))]
    return [edge_of(node)]


@record(frozen=True)
class Subgraph:
    """Part of a graph and the fed edges that became its parameters, in order."""

    graph: Graph
    feeds: tuple[Edge, ...]


@record(frozen=True)
class Needs:
    """What a sweep found: flags by node id, and for each parameter that is needed but not fed the
    first node that reads it (None when it is fetched itself)."""

    live: list[bool]
    missing: dict[Node, Node | None]


def is_write(node: Node) -> bool:
    """Whether what comes after a node needs it to have run, though it reads no value of it."""
    return node_effect(node) > Effect.READ


def needs(
    graph: Graph,
    roots: Iterable[int],
    fed: Mapping[Edge, str],
    done: Sequence[bool] | None = None,
    waits: Callable[[Node], bool] = is_write,
) -> Needs:
    """The nodes that must run for the `roots` (ids), given fed edges and nodes that are `done`.

    `waits` says which of the nodes that a needed one comes after are needed, too.
    """
    live = [False] * graph.next_id
    for id in roots:
        live[id] = True
    readers: dict[int, Node] = {}
    for node in reversed(graph.nodes):
        if not live[node.id]:
            continue
        if (done is not None and done[node.id]) or is_fed(node, fed):
            live[node.id] = False
            continue
        for source in node.inputs:
            live[source.id] = True
            readers[source.id] = node
        for source in node.after:
            live[source.id] = live[source.id] or waits(source)
    wanted = [p for p in graph.params if live[p.id] and (p.id, 0) not in fed]
    return Needs(live, {p: readers.get(p.id) for p in wanted})


def is_fed(node: Node, fed: Mapping[Edge, str]) -> bool:
    """Whether every output of a node is fed, so that it need not run."""
    edges = edges_of(node)
    return bool(edges) and all(edge in fed for edge in edges)


def subgraph(
    graph: Graph, fetches: Mapping[str, Edge], fed: Mapping[Edge, str], live: Sequence[bool]
) -> Subgraph:
    """The live nodes as a graph: fetches are its results, fed edges that are read its parameters.

    `fetches` names the results and `fed` the parameters.  Ids and the names of nodes are kept.
    """
    return _Copier(graph, fed, live).run(fetches)


class _Copier(Builder):
    """Copies the live nodes; `params` are the fed edges that one of them reads."""

    def __init__(self, graph: Graph, fed: Mapping[Edge, str], live: Sequence[bool]) -> None:
        super().__init__(graph.next_id)
        self.graph = graph
        self.live = live
        self.mapped: dict[int, Node] = {}
        self.items: dict[Edge, Node] = {}  # the first `item` that reads an edge
        self.whole: dict[int, Node] = {}  # tuples put together again after a part was fed
        read = self.read_edges(fed)
        self.params = {
            edge: self.param(edge, read[edge], fed[edge]) for edge in fed if edge in read
        }

    def read_edges(self, fed: Mapping[Edge, str]) -> dict[Edge, Node]:
        """The fed edges that live nodes read, each with the node it was read as."""
        read: dict[Edge, Node] = {}
        for node in self.graph.nodes:
            if self.live[node.id]:
                sources = node.inputs if not node.op.traits.item else ()
                for source in sources:
                    read.update((edge, source) for edge in edges_of(source) if edge in fed)
        return read

    def param(self, edge: Edge, node: Node, name: str) -> Node:
        if node.op.traits.parameter:
            return node
        kind: AnyType = node.type
        id = node.id
        if isinstance(kind, TupleType) or node.op.traits.item:
            id, self.next_id = self.next_id, self.next_id + 1
        if isinstance(kind, TupleType):
            kind = kind.elements[edge[1]]
        op = OPS["param"]
        return Node(id, op, (), op.coerce({"name": name}), kind, loc=node.loc)

    def run(self, fetches: Mapping[str, Edge]) -> Subgraph:
        wanted = set(fetches.values())
        for node in self.graph.nodes:
            is_result = node.op.traits.item and edge_of(node) in wanted
            if self.live[node.id] or (is_result and node.inputs[0].id in self.mapped):
                made = self.copy(node)
                self.nodes.append(made)
                self.mapped[node.id] = made
                if node.op.traits.item:
                    self.items.setdefault(edge_of(node), made)
        results = tuple([self.result(edge) for edge in fetches.values()])
        params = tuple(self.params.values())
        own = {p.id: p.attrs["name"] for p in params}
        names = self.graph.names.items()
        graph = self.graph.replace(
            params=params,
            nodes=self.nodes,
            results=results,
            result_names=tuple(fetches),
            names={n: id for n, id in names if id in self.mapped or own.get(id, n) != n},
            next_id=self.next_id,
        )
        return Subgraph(graph, tuple(self.params))

    def copy(self, node: Node) -> Node:
        inputs = tuple([self.operand(source, node) for source in node.inputs])
        after = tuple([self.mapped[n.id] for n in node.after if n.id in self.mapped])
        if inputs == node.inputs and after == node.after:
            return node
        return node.replace(inputs=inputs, after=after)

    def operand(self, source: Node, reader: Node) -> Node:
        if not isinstance(source.type, TupleType):
            return self.params.get(edge_of(source)) or self.mapped[source.id]
        if reader.op.traits.item:
            return self.mapped[source.id]
        return self.put_together(source)

    def put_together(self, source: Node) -> Node:
        """A tuple that is read as a whole, with its fed parts in their places."""
        edges = edges_of(source)
        if not any(edge in self.params for edge in edges):
            return self.mapped[source.id]
        if source.id not in self.whole:
            parts = [self.params.get(edge) or self.item(edge) for edge in edges]
            self.whole[source.id] = self.emit(OPS["tuple"], parts, loc=source.loc)
        return self.whole[source.id]

    def item(self, edge: Edge) -> Node:
        if edge not in self.items:
            source = self.mapped[edge[0]]
            self.items[edge] = self.emit(OPS["item"], (source,), {"index": edge[1]}, loc=source.loc)
        return self.items[edge]

    def result(self, edge: Edge) -> Node:
        node = self.mapped[edge[0]]
        return self.item(edge) if isinstance(node.type, TupleType) else node
