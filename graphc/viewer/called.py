"""The nodes that steps come from, also inside of loops and branches."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.base.record import record
from graphc.codegen.table.steps import origin_of
from graphc.ir.graph import Graph, Node, Program
from graphc.ir.regions import holds_kernels
from graphc.passes.placement.cost import rounds_of
from graphc.runtime.load.program import Origin
from graphc.viewer.rows import graphs_of


@record(frozen=True)
class Called:
    """A node, the ids of the nodes that it is inside of, and how often a run comes by."""

    node: Node
    outside: tuple[int, ...]
    rounds: int

    @property
    def path(self) -> int | list[int]:
        """Its id, behind those of the nodes it is inside of: ids are unique within a region."""
        return [*self.outside, self.node.id] if self.outside else self.node.id


def called_nodes(value: Graph | Program) -> dict[tuple[str, Origin], Called]:
    """The nodes of a program by device and origin, which is what steps and events know of them."""
    return {
        (graph.device.short if graph.device is not None else "", origin_of(found.node)): found
        for graph in graphs_of(value)
        for found in _inside(graph, (), 1)
    }


def _inside(graph: Graph, outside: tuple[int, ...], rounds: int) -> Iterator[Called]:
    for node in graph.nodes:
        yield Called(node, outside, rounds)
        if holds_kernels(node):
            for region in node.regions:
                yield from _inside(region, (*outside, node.id), rounds * rounds_of(node))
