"""Request: what a run of a session asks for, from names to edges, with every mistake explained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import FeedError
from graphc.frontend.session.session_graph import Growing
from graphc.frontend.trace.tree import TreeDef, flatten, unflatten, unique_names
from graphc.ir.graph import Node
from graphc.ir.subgraph import Edge, Subgraph, edges_of, is_fed, needs, subgraph

Names = str | Sequence[str]


@record(frozen=True)
class Request:
    """The edges of a run.

    `tree` nests the values of `fetches`; `feeds` are the fed edges in the order given and `given`
    the names they were given by; `targets` are node ids.
    """

    tree: TreeDef
    fetches: tuple[Edge, ...]
    feeds: tuple[Edge, ...]
    given: tuple[str, ...]
    targets: tuple[int, ...]


def request_of(
    growing: Growing, fetches: Any, feeds: Iterable[str] = (), targets: Names = ()
) -> Request:
    """The request that names denote. Raises FeedError for one that makes no sense."""
    tree, fetched = fetches_of(growing, fetches)
    fed = feeds_of(growing, feeds)
    nodes = [growing.node(name) for name in as_names(targets)]
    if not fetched and not nodes:
        raise FeedError(
            "nothing is fetched and there is no target",
            hint='s.run("name", feeds) fetches a value, targets=["name"] runs for the effect',
        )
    for edge in fetched:
        if edge in fed:
            raise _conflict(growing, edge, f"{growing.title(edge)!r} is both fed and fetched")
    for node in nodes:
        if is_fed(node, fed):
            raise _conflict(growing, edges_of(node)[0], f"target {node!r} is fed: it would not run")
    return Request(tree, fetched, tuple(fed), tuple(fed.values()), tuple(n.id for n in nodes))


def as_names(names: Names) -> tuple[str, ...]:
    """Names of nodes in a tuple. Raises FeedError for anything else."""
    if isinstance(names, str):
        return (names,)
    is_list = isinstance(names, Iterable) and not isinstance(names, np.ndarray)
    if not is_list or not all(isinstance(name, str) for name in names):
        raise FeedError(f"targets are names of nodes, got {names!r:.80}")
    return tuple(names)


def fetches_of(growing: Growing, fetches: Any) -> tuple[TreeDef, tuple[Edge, ...]]:
    """The edges of a nesting of names and how their values nest: a node with several results
    becomes a tuple."""
    leaves, tree = flatten(fetches, keep_order=True)
    found = [growing.edges(leaf) for leaf in leaves]
    if any(len(edges) > 1 for edges in found):
        places = [0 if len(edges) == 1 else (0,) * len(edges) for edges in found]
        tree = flatten(unflatten(tree, places), keep_order=True)[1]
    return tree, tuple(edge for edges in found for edge in edges)


def feeds_of(growing: Growing, feeds: Iterable[str]) -> dict[Edge, str]:
    """The fed edges in order, each with the name it was given by."""
    fed: dict[Edge, str] = {}
    for name in as_names(feeds):  # type: ignore[arg-type]
        edge = growing.edge(name)
        if edge in fed:
            raise _conflict(
                growing, edge, f"one tensor is fed twice: as {fed[edge]!r} and {name!r}"
            )
        fed[edge] = name
    return fed


def _conflict(growing: Growing, edge: Edge, message: str) -> FeedError:
    node = growing.by_id[edge[0]]
    error = FeedError(message)
    error.at(node.loc, node.describe())
    return error


def pruned_for(growing: Growing, request: Request) -> Subgraph:
    """The graph that runs for a request. Raises FeedError for a placeholder that is not fed."""
    graph = growing.graph()
    fed = {edge: growing.title(edge) for edge in request.feeds}
    roots = [edge[0] for edge in request.fetches]
    found = needs(graph, (*roots, *request.targets), fed)
    if found.missing:
        raise unfed(found.missing, "not fed")
    names = unique_names([growing.title(edge) for edge in request.fetches])
    return subgraph(graph, dict(zip(names, request.fetches)), fed, found.live)


def unfed(missing: dict[Node, Node | None], how: str) -> FeedError:
    """The error for placeholders that are needed: which they are and who needs the first."""
    first, reader = next(iter(missing.items()))
    names = ", ".join(repr(p.attrs["name"]) for p in list(missing)[:8])
    needed = f", needed by {reader!r}" if reader is not None else ", and it is fetched"
    message = f"placeholder {names} is {how}" if len(missing) == 1 else f"{names} are {how}"
    error = FeedError(
        message + needed, hint=f"feeds={{{first.attrs['name']!r}: an array {first.type}}}"
    )
    error.at((reader or first).loc)
    return error
