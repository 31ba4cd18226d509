"""Graphs as rows of small numbers, which the page reads back (`assets/data.js`).

    [id, op, type, [inputs], [file, line], attributes, [after], place, [regions]]

Names are positions in one list of strings, zeros at the end of a row are left out.  A stage is what
differs from the one before it: its new rows, and its order as runs of the former order.  A region
is written once, however many kernels have it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from graphc.ir.graph import Graph, Node, Program
from graphc.ir.place import Buffer
from graphc.ir.text import attrs_text

MOST_CHARACTERS = 300  # of the attributes of a node
Row = list[Any]


def graphs_of(value: Graph | Program) -> tuple[Graph, ...]:
    """One graph per device."""
    return value.graphs if isinstance(value, Program) else (value,)


class Rows:
    """Stages as rows; `strings` and `regions` are what the rows of all of them point into."""

    def __init__(self) -> None:
        self.strings: list[str] = [""]
        self.regions: list[dict[str, Any]] = []
        self._positions: dict[str, int] = {"": 0}
        self._known: dict[Any, int] = {}  # strings of types, attributes and places
        self._region_of: dict[str, int] = {}
        self._regions_seen: dict[Graph, int] = {}
        self._before: list[dict[int, tuple[Node, Row]]] = []
        self._orders: list[list[int]] = []

    def string(self, text: str) -> int:
        """The position of a string, which is 0 for an empty one."""
        found = self._positions.get(text)
        if found is None:
            found = self._positions[text] = len(self.strings)
            self.strings.append(text)
        return found

    def stage(self, value: Graph | Program) -> list[dict[str, Any]]:
        """What a stage made: for each device what differs from the stage before."""
        graphs = graphs_of(value)
        if len(graphs) != len(self._before):  # all devices had one graph, or there was none
            first = self._before[0] if self._before else {}
            order = self._orders[0] if self._orders else []
            self._before, self._orders = [first] * len(graphs), [order] * len(graphs)
        return [self._graph(number, graph) for number, graph in enumerate(graphs)]

    def _graph(self, number: int, graph: Graph) -> dict[str, Any]:
        before, rows, changed = self._before[number], {}, []
        everything = (*graph.params, *graph.nodes)
        for node in everything:
            old = before.get(node.id)
            row = old[1] if old is not None and old[0] is node else self.row(node)
            rows[node.id] = node, row
            if old is None or old[1] != row:
                changed.append(row)
        order = [node.id for node in everything]
        made = {
            "name": graph.name,
            "device": graph.device.short if graph.device is not None else "",
            "params": len(graph.params),
            "order": runs(self._orders[number], order),
            "rows": changed,
            "results": [node.id for node in graph.results],
            "names": [[name, id] for name, id in graph.names.items()],
        }
        self._before[number], self._orders[number] = rows, order
        return made

    def row(self, node: Node) -> Row:
        """A node as a row."""
        file, line = node.loc or ("", 0)
        place = "" if isinstance(node.place, Buffer) or node.place is None else str(node.place)
        row: Row = [
            node.id,
            self.string(node.op.name),
            self._text(node.type, str),
            [n.id for n in node.inputs],
            [self.string(file), line] if line else 0,
            self._attributes(node),
            [n.id for n in node.after] or 0,
            self.string(place),
            [self.region(region) for region in node.regions] or 0,
        ]
        while row[-1] == 0:
            row.pop()
        return row

    def region(self, graph: Graph) -> int:
        """The position of a region."""
        found = self._regions_seen.get(graph)
        if found is not None:
            return found
        made = {
            "params": [self.row(node) for node in graph.params],
            "nodes": [self.row(node) for node in graph.nodes],
            "results": [node.id for node in graph.results],
        }
        key = json.dumps(made)
        if key not in self._region_of:
            self._region_of[key] = len(self.regions)
            self.regions.append(made)
        self._regions_seen[graph] = self._region_of[key]
        return self._region_of[key]

    def _attributes(self, node: Node) -> int:
        if node.op.traits.parameter:
            return self.string(node.attrs["name"])
        if not node.op.attrs:
            return 0
        found = self._known.get(node.attrs)
        if found is None:
            text = attrs_text(node.op, node)[2:-1]
            cut = text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " ..."
            found = self._known[node.attrs] = self.string(cut)
        return found

    def _text(self, value: Any, text_of: Any) -> int:
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self.string(text_of(value))
        return found


def runs(before: list[int], after: Iterable[int]) -> list[int]:
    """An order by another one: `start, count` for a run of that, `-1 - id` for what is not in it.

    >>> runs([7, 8, 9], [7, 8, 5, 9])
    [0, 2, -6, 2, 1]
    """
    positions: Mapping[int, int] = {id: position for position, id in enumerate(before)}
    made: list[int] = []
    expected = -1  # the position that would make the latest run longer
    for id in after:
        position = positions.get(id)
        if position is None:
            made.append(-1 - id)
            expected = -1
        elif position == expected:
            made[-1] += 1
            expected += 1
        else:
            made += [position, 1]
            expected = position + 1
    return made
