"""What cannot be imported is refused at once, all of it, before anything is traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.formats.onnx.records import File, Node, Subgraph
from graphc.formats.onnx.schemas import is_function
from graphc.formats.onnx.table import find
from graphc.limits import check_within

SHOWN = 9


def nodes_of(graph: Subgraph) -> Iterator[Node]:
    """The nodes of a graph and of the graphs in their attributes."""
    for node in graph.nodes:
        yield node
        for inner in node.graphs():
            yield from nodes_of(inner)


def words_of(file: File) -> set[str]:
    """All strings that the file names: in constants and in attributes."""
    found: set[str] = set()
    for graph in (file.graph, *file.functions.values()):
        values: list[Any] = list(graph.constants.values())
        for node in nodes_of(graph):
            values += node.attributes.values()
            values += [value for each in node.graphs() for value in each.constants.values()]
        for value in values:
            found |= _words(value)
    check_within("folded_elements", len(found), f"{file.name} names {len(found)} strings")
    return found


def _words(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, np.ndarray):
        return set(value.reshape(-1).tolist()) if value.dtype == object else set()
    return set(value) if isinstance(value, tuple) and value and isinstance(value[0], str) else set()


def unsupported(file: File) -> list[Node]:
    """The nodes whose operators have no rule here."""
    import graphc.formats.onnx.operators  # noqa: F401  (fills the table)

    found: dict[tuple[str, str, int], Node] = {}
    for graph in (file.graph, *file.functions.values()):
        for node in nodes_of(graph):
            key = node.domain, node.op, node.version
            own = (node.domain, node.op, node.overload) in file.functions
            if not own and key not in found and find(*key) is None and not is_function(node):
                found[key] = node
    return list(found.values())


def require_supported(file: File) -> None:
    """Raise GraphError that lists every operator without a rule."""
    count = sum(1 for _ in nodes_of(file.graph))
    check_within("text_lines", count, f"{file.name} has {count} nodes")
    missing = unsupported(file)
    if missing:
        more = [f"and {len(missing) - SHOWN} more"] if len(missing) > SHOWN else []
        raise GraphError(
            f"{file.name} holds {len(missing)} operator(s) that cannot be imported",
            details=(*(node.title for node in missing[:SHOWN]), *more),
        )
