"""Growing: the graph of a session. It is only ever appended to, and its edges are found by name.

"h"      the value named h, or all results of a node with several
"h:1"    result 1 of the node named h
"%7"     the node of that number, as the session's graph prints it
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from graphc.errors import FeedError, GraphError
from graphc.frontend.trace.spec import symbols_of
from graphc.ir.graph import Builder, Graph, Node
from graphc.ir.op import OPS
from graphc.ir.specialise import specialise
from graphc.ir.subgraph import Edge, edge_of, edges_of, outputs
from graphc.ir.types import Dim, TupleType, Type, symbol
from graphc.runtime.files.gcx_function import nest

_PORT = re.compile(r"(.+):(\d{1,9})", re.DOTALL)
_NUMBERED = re.compile(r"%(\d{1,18})")


class Growing:
    """The parameters, nodes and names that a session has so far."""

    def __init__(self) -> None:
        self.params: list[Node] = []
        self.builder = Builder()
        self.names: dict[str, int] = {}
        self.by_id: dict[int, Node] = {}
        self.titles: dict[int, str] = {}  # the first name of a node
        self.edge_titles: dict[Edge, str] = {}  # and of a tensor

    def graph(self) -> Graph:
        """All of it; the list of nodes is shared, so use it before the next `extend`."""
        own = {p.id: p.attrs["name"] for p in self.params}
        return Graph(
            "session",
            tuple(self.params),
            self.builder.nodes,
            (),
            names={name: id for name, id in self.names.items() if own.get(id) != name},
            next_id=self.builder.next_id,
        )

    # -------------------------------------------------------------------------------- names

    def node(self, text: Any) -> Node:
        """The node that a name without port means. Raises FeedError with near names."""
        return self._find(text)[0]

    def edges(self, text: Any) -> list[Edge]:
        """The edges that a name means: one, or all those of a node with several results.

        Raises FeedError for an unknown name, a port out of range and a node without outputs.
        """
        node, port = self._find(text)
        count = outputs(node)
        if count == 0:
            raise FeedError(
                f"{text} has no output", hint=f"to run it for its effect, use targets=[{text!r}]"
            ).at(node.loc, node.describe())
        if port is not None and port >= count:
            ports = ", ".join(f"{_stem(text)}:{k}" for k in range(min(count, 6)))
            raise FeedError(
                f"{text}: port {port} is out of range, {_stem(text)} has {count} output(s)",
                hint=f"it has {ports}" + (", ..." if count > 6 else ""),
            ).at(node.loc, node.describe())
        made = edges_of(node) if port is None else [edges_of(node)[port]]
        kinds = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        for kind in kinds if port is None else (kinds[port],):
            if not isinstance(kind, Type):
                raise FeedError(f"{text} is a {kind}, not a tensor").at(node.loc, node.describe())
        return made

    def edge(self, text: Any) -> Edge:
        """The one edge that a name means."""
        found = self.edges(text)
        if len(found) > 1:
            raise FeedError(
                f"{text} has {len(found)} outputs; one of them must be chosen",
                hint=f"write {text}:0 for the first",
            ).at(self.node(text).loc, self.node(text).describe())
        return found[0]

    def title(self, edge: Edge) -> str:
        """How an edge is called in messages and as a parameter."""
        if edge in self.edge_titles:
            return self.edge_titles[edge]
        node = self.by_id[edge[0]]
        name = self.titles.get(node.id, f"%{node.id}")
        return f"{name}:{edge[1]}" if isinstance(node.type, TupleType) else name

    def titles_of(self, fetches: Iterable[Edge], targets: Iterable[int]) -> str:
        """What a run is called in the ledger."""
        names = [*map(self.title, fetches), *(self.titles.get(id, f"%{id}") for id in targets)]
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

    def _find(self, text: Any) -> tuple[Node, int | None]:
        if not isinstance(text, str):
            raise FeedError(
                f"a value is named by a str, got {type(text).__name__}",
                hint="'h' or 'h:0' for a name, '%7' for a node of that number",
            )
        if text in self.names:
            return self.by_id[self.names[text]], None
        split = _PORT.fullmatch(text)
        stem = split[1] if split else text
        port = int(split[2]) if split else None
        id = self.names.get(stem)
        if id is None and (numbered := _NUMBERED.fullmatch(stem)):
            id = int(numbered[1])
        if id is None or id not in self.by_id:
            raise self._unknown(stem)
        return self.by_id[id], port

    def _unknown(self, name: str) -> GraphError:
        for node in self.builder.nodes:
            if any(_has_name(region, name) for region in node.regions):
                return FeedError(
                    f"{name!r} is a value inside {node!r}, which is run as a whole",
                    hint="return it from the loop body or branch to fetch it",
                ).at(node.loc)
        near = difflib.get_close_matches(name, self.names, 3)
        listed = ", ".join(list(self.names)[:12]) + (", ..." if len(self.names) > 12 else "")
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {listed}"
        return FeedError(
            f"there is no node named {name!r}",
            hint=hint if self.names else "extend it with a graph first",
        )

    # -------------------------------------------------------------------------------- growing

    def extend(self, graph: Graph, inputs: Mapping[str, str], scope: str) -> Any:
        """Append a graph; what its results are called here, nested as a call nests them.

        The session is unchanged if this raises GraphError.
        """
        bound = self._bound(graph, inputs)
        graph = self._specialised(graph, bound)
        prefix = f"{scope}/" if scope else ""
        names = self._new_names(graph, bound, prefix)
        mapped = self._append(graph, bound, prefix)
        for name, id in names.items():
            self._call(name, mapped[id])
        results = [mapped[result.id] for result in graph.results]
        return nest(graph.result_names, [self._fetch(node) for node in results])

    def _bound(self, graph: Graph, inputs: Mapping[str, str]) -> dict[str, Edge]:
        own = [p.attrs["name"] for p in graph.params]
        for name in inputs:
            if name not in own:
                near = difflib.get_close_matches(name, own, 1)
                raise FeedError(
                    f"inputs binds {name!r}, which is no parameter of {graph.name}",
                    hint=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(own)}",
                )
        return {name: self.edge(source) for name, source in inputs.items()}

    def _specialised(self, graph: Graph, bound: Mapping[str, Edge]) -> Graph:
        """The graph with the symbols that its bound parameters fix replaced by what they are."""
        binding: dict[str, Any] = {}  # a number, or another dimension
        for param in graph.params:
            if _is(param, bound) and isinstance(param.type, Type):
                _unify(param.type, self._type(bound[param.attrs["name"]]), binding)
        if any(extent != symbol(name) for name, extent in binding.items()):
            for name in symbols_of(p.type for p in graph.params) - binding.keys():
                binding[name] = symbol(name)
            graph = specialise(graph, binding)
        for param in graph.params:
            name = param.attrs["name"]
            if name in bound and param.type != self._type(bound[name]):
                edge = bound[name]
                node = self.by_id[edge[0]]
                raise FeedError(
                    f"{graph.name} takes {name}: {param.type}, "
                    f"but {self.title(edge)} is {self._type(edge)}"
                ).at(node.loc, node.describe())
        return graph

    def _type(self, edge: Edge) -> Type:
        kind = self.by_id[edge[0]].type
        kind = kind.elements[edge[1]] if isinstance(kind, TupleType) else kind
        assert isinstance(kind, Type)
        return kind

    def _new_names(self, graph: Graph, bound: Mapping[str, Edge], prefix: str) -> dict[str, int]:
        """The names a graph brings along. Raises FeedError for one that is taken."""
        made = {prefix + p.attrs["name"]: p.id for p in graph.params if not _is(p, bound)}
        made |= {prefix + name: id for name, id in graph.names.items() if prefix + name not in made}
        for k, (name, result) in enumerate(zip(graph.result_names, graph.results)):
            if name != str(k):
                made.setdefault(prefix + name, result.id)
        for name in made:
            if name in self.names:
                taken = self.by_id[self.names[name]]
                wanted = name.removeprefix(prefix)
                is_param = wanted in {p.attrs["name"] for p in graph.params}
                bind_it = f"inputs={{{wanted!r}: {name!r}}} reads the one that is there; "
                raise FeedError(
                    f"the session already has a node named {name!r}",
                    hint=(bind_it if is_param else "") + 'scope="b" puts the new names under "b/"',
                ).at(taken.loc, taken.describe())
        return made

    def _append(self, graph: Graph, bound: Mapping[str, Edge], prefix: str) -> dict[int, Node]:
        """Copies of the nodes under new numbers, which stay the same in an empty session."""
        first = self.builder.next_id
        self.builder.next_id += graph.next_id
        mapped: dict[int, Node] = {}
        for param in graph.params:
            name = param.attrs["name"]
            if name in bound:
                mapped[param.id] = self._value(bound[name])
                continue
            attrs = param.op.coerce({"name": prefix + name})
            made = param.replace(id=first + param.id, attrs=attrs)
            self.params.append(made)
            mapped[param.id] = self.by_id[made.id] = made
        for node in graph.nodes:
            made = node.replace(
                id=first + node.id,
                inputs=tuple([mapped[n.id] for n in node.inputs]),
                after=tuple([mapped[n.id] for n in node.after]),
            )
            self.builder.nodes.append(made)
            mapped[node.id] = self.by_id[made.id] = made
        return mapped

    def _value(self, edge: Edge) -> Node:
        """The tensor on an edge; a port of a node with several results is read by an `item`."""
        node = self.by_id[edge[0]]
        if not isinstance(node.type, TupleType):
            return node
        made = self.builder.emit(OPS["item"], (node,), {"index": edge[1]}, loc=node.loc)
        self.by_id[made.id] = made
        return made

    def _call(self, name: str, node: Node) -> None:
        self.names[name] = node.id
        self.titles.setdefault(node.id, name)
        if isinstance(node.type, Type):
            self.edge_titles.setdefault(edge_of(node), name)

    def _fetch(self, node: Node) -> str:
        return self.titles.get(node.id) or self.title(edge_of(node))


def _is(param: Node, bound: Iterable[str]) -> bool:
    return param.attrs["name"] in bound


def _has_name(graph: Graph, name: str) -> bool:
    """Whether a value of a region, or of a region in it, has this name."""
    inner = (region for node in graph.nodes for region in node.regions)
    return name in graph.names or any(_has_name(region, name) for region in inner)


def _stem(text: str) -> str:
    split = _PORT.fullmatch(text)
    return split[1] if split else text


def _unify(kind: Type, given: Type, binding: dict[str, Any]) -> None:
    """Note what the dimensions of a parameter that are plain symbols stand for."""
    for extent, size in zip(kind.shape, given.shape):
        names = extent.symbols() if isinstance(extent, Dim) else ()
        for name in names:
            if extent == symbol(name):
                binding.setdefault(name, size)
