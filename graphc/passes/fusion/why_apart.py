"""Why two nodes do not run in one kernel: the sweep of `groups`, with a note of each refusal."""

from __future__ import annotations

from typing import Any

from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Compute, Library, Loops, Reduction, Scalar
from graphc.passes.fusion.can_fuse import Group, Groups, Sources, regrouped

Edge = tuple[int, int]  # ids of a node and of one that reads it


def apart(graph: Graph, config: Config) -> Apart:
    """The groups of a graph, and why there are no fewer."""
    return regrouped(graph, config, frozenset(), Apart)


class Apart(Groups):
    """Groups that know why a node did not join those of its operands."""

    def __init__(self, *given: Any) -> None:
        self.refused: dict[Edge, str] = {}
        super().__init__(*given)

    def apart_from(self, node: Node, source: Node, group: Group) -> str:
        found = super().apart_from(node, source, group)
        if found:
            self.refused[source.id, node.id] = found
        return found

    def join(self, node: Node, sources: Sources, direct: Sources, behind: Sources) -> Group | None:
        chosen = super().join(node, sources, direct, behind)
        for source in sources:
            group = self.of(source)
            if group is None or group is chosen or (source.id, node.id) in self.refused:
                continue
            self.refused[source.id, node.id] = self._left_over(group, chosen, source in behind)
        return chosen

    def _left_over(self, group: Group, chosen: Group | None, behind: bool) -> str:
        """Why a group that the node fits in was not chosen, or not merged with the one that was."""
        if behind:
            return "it is read through a view, in another order than it is made in"
        if chosen is not None and (clash := self.clash(chosen, group)):
            return f"it runs beside another operand, and {clash}"
        return "each would have to run before the other: what lies between reads one of them"

    def operands(self, node: Node) -> list[Node]:
        """The stored values that a node reads, through views or not; a view reads none."""
        if self.is_view(node):
            return []
        return list(dict.fromkeys(base for source in node.inputs for base in self.bases(source)))

    def between(self, source: Node, node: Node) -> str:
        """Why a node runs in another kernel than one of its operands; "" if they share one, or if
        one of the two takes no kernel."""
        own, other = self.of(node), self.of(source)
        if own is None or other is None or own is other:
            return ""
        if not self.merge:
            return "every node is a kernel of its own (opt=0, or check_finite)"
        if node.after:
            return f"it waits until %{node.after[0].id} has run"
        for one, does in ((node, "reads from"), (source, "writes to")):
            if isinstance(one.op.lower, Library | Loops):
                return f"{one.op.name} is a kernel of its own, which {does} memory"
        if not isinstance(node.op.lower, Scalar | Reduction | Compute):
            return "a product reads its operands many times over: they have to be in memory"
        return self.refused.get((source.id, node.id), "it reads the value through a view")
