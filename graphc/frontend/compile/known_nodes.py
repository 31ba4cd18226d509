"""Which values of a graph are as in the run that failed, where some arguments are gone since."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.graph import Graph, Node
from graphc.ir.regions import choosers, operands_of


def known_nodes(graph: Graph, gone: Sequence[bool]) -> set[Node]:
    """The nodes, those of regions among them, whose values no parameter that is gone decides.

    `gone` says it of each parameter. A node in several regions, or in one that is run for several
    operands, is known if it is in all of them; one that a region may not come to is not.
    """
    found = _Nodes()
    found.spread(graph, gone)
    return found.seen - found.unknown


class _Nodes:
    def __init__(self) -> None:
        self.seen: set[Node] = set()
        self.unknown: set[Node] = set()

    def spread(self, graph: Graph, gone: Sequence[bool]) -> list[bool]:
        """Which results are unknown, as these parameters are."""
        self.seen.update(graph.params, graph.nodes)
        self.unknown.update(p for p, is_gone in zip(graph.params, gone, strict=True) if is_gone)
        for node in graph.nodes:
            if any(self.inside(node)) if node.regions else not self.unknown.isdisjoint(node.inputs):
                self.unknown.add(node)
        return [result in self.unknown for result in graph.results]

    def inside(self, node: Node) -> list[bool]:
        """Which operands of a node with regions are unknown; those inside are noted."""
        gone = [operand in self.unknown for operand in operands_of(node)]
        traits, inputs = node.op.traits, [i in self.unknown for i in node.inputs]
        is_chosen = traits.branch and not any(inputs[: choosers(node)])
        if traits.counted:
            self.carried(node, gone)
        elif is_chosen or traits.once or traits.lanes:
            for region in node.regions:
                self.spread(region, gone[: len(region.params)])
        elif any(inputs):  # whether it is run, how often or on what is not told by the operands
            self.leave(node)
        else:
            for region in node.regions:
                self.spread(region, [False] * len(region.params))
        return inputs

    def leave(self, node: Node) -> None:
        """All nodes of its regions are unknown, however deep."""
        for region in node.regions:
            self.unknown.update(region.params, region.nodes)
            for inner in region.nodes:
                self.leave(inner)

    def carried(self, node: Node, gone: list[bool]) -> None:
        """What is unknown of the body of a loop, when one trip has given it to the next."""
        (body,), carries = node.regions, node.attrs["carries"]
        while True:
            made = self.spread(body, gone)[:carries]
            carried = [was or now for was, now in zip(gone, made)]
            if carried == gone[:carries]:
                return
            gone[:carries] = carried
