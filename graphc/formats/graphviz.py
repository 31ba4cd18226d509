"""Graphs in the language of Graphviz: `graphc convert model.gir -o model.dot && dot -Tsvg ...`.

Each region lies in a box of its own, and what it belongs to points to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import PurePath

from graphc.errors import printable
from graphc.ir.graph import Graph, Node
from graphc.limits import check_within

_HEAD = """digraph {
  rankdir=TB
  node [shape=box, style="rounded,filled", fillcolor=white, fontname=sans, fontsize=10]
  edge [arrowsize=0.6, fontname=sans, fontsize=8]
"""


def graphviz(graph: Graph) -> str:
    """The text of a graph. Raises LimitError for regions that nest too deep."""
    return f"{_HEAD}  label={quoted(graph.name)}\n{''.join(_region(graph, count(), 1))}}}\n"


def quoted(text: str) -> str:
    """A text as a label that shows it as it is: it has no escapes or entities of its own."""
    plain = printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


def _region(graph: Graph, numbers: Iterator[int], depth: int) -> Iterator[str]:
    """The lines of the nodes of a graph, and of those in it."""
    check_within("region_depth", depth, f"regions nest {depth} deep")
    space = "  " * depth
    names = {node: f"n{next(numbers)}" for node in (*graph.params, *graph.nodes)}
    given = {id: name for name, id in graph.names.items()}
    results = set(graph.results)
    for node, name in names.items():
        bold = ", penwidth=2" if node in results else ""
        colour = ', fillcolor="#e8f0fe"' if node.op.traits.parameter else ""
        yield f"{space}{name} [label={_label(node, given.get(node.id))}{bold}{colour}]\n"
        for source in node.inputs:
            yield f"{space}{names[source]} -> {name}\n"
        for source in node.after:
            yield f"{space}{names[source]} -> {name} [style=dashed]\n"
        for region in node.regions:
            inside = next(numbers)
            yield f"{space}subgraph cluster_{inside} {{\n{space}  label={quoted(region.name)}\n"
            yield f'{space}  r{inside} [label="", shape=point]\n'
            yield from _region(region, numbers, depth + 1)
            yield f"{space}}}\n{space}{name} -> r{inside} [style=dotted]\n"


def _label(node: Node, name: str | None) -> str:
    """What a node computes, its type and the user's line, one below the other."""
    own = node.attrs["name"] if node.op.traits.parameter else node.op.name
    parts = [own if name is None or name == own else f"{name}: {own}", str(node.type)]
    if node.loc is not None:
        parts.append(f"{PurePath(node.loc[0]).name}:{node.loc[1]}")
    return '"' + "\\n".join(quoted(part)[1:-1] for part in parts) + '"'
