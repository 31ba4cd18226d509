"""advance_updates: what is updated is so as soon as nobody needs the old value.

    ... dw = x^T dy ...  dv = ...        w' = w - rate * dw       v' = v - rate * dv
    ... dw = x^T dy   w' = w - rate * dw   ...   dv = ...   v' = v - rate * dv

A training step lists its updates last.  Issued there, every gradient would wait for the last one;
issued early, an update runs in the kernel that makes its gradient, and no gradient is stored at
all.  An update, and the gradient with it, runs behind the last reader of what it may overwrite.
"""

from __future__ import annotations

from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Contraction, Effect, Reduction, Scalar
from graphc.ir.rewrites import permitted
from graphc.ir.types import Type
from graphc.passes.reasons import summarise
from graphc.passes.tuning import tuned


def advance_updates(graph: Graph, config: Config) -> Graph:
    """The graph with updates moved up in the order of its nodes."""
    if not config.merges:
        return graph
    made = len(graph.results) + sum(n.op.effect is Effect.WRITE for n in graph.nodes)
    if made < 2:
        return graph  # nothing to wait for
    order = _Order(graph)
    for node in graph.nodes:
        if isinstance(node.op.lower, Contraction | Reduction):
            order.advance(node)
    if not order.moved:
        return graph
    nodes = sorted(graph.nodes, key=lambda n: (order.turn[n], order.position[n]))
    summarise(f"{order.moved} updates moved up to their gradients")
    return graph.replace(nodes=nodes)


def is_given(node: Node) -> bool:
    """Does the value come from outside: a parameter or a variable's?"""
    return node.op.traits.parameter or node.op.effect is Effect.READ


class _Order:
    """When every node is issued: `turn` is the position of the node it comes right after."""

    def __init__(self, graph: Graph) -> None:
        self.position = {node: k for k, node in enumerate(graph.nodes)}
        self.position |= dict.fromkeys(graph.params, -1)
        self.turn = dict(self.position)
        self.results = set(graph.results)
        self.moved = 0
        self.readers: dict[Node, list[Node]] = {}
        for node in graph.nodes:
            for source in dict.fromkeys((*node.inputs, *node.after)):
                self.readers.setdefault(source, []).append(node)

    def advance(self, gradient: Node) -> None:
        """Move what only makes new values of a gradient and of given ones up to the gradient."""
        readers = self.readers.get(gradient, ())
        if not readers or gradient in self.results:
            return
        update = self.update_of(gradient)
        if (
            max((self.position[n] for n in update), default=0) - self.position[gradient]
            <= tuned.far_reader
        ):
            return
        helpers = self.helpers_of(update, gradient)
        if helpers is None:
            return
        nodes = update | helpers
        if not self.takes_place(nodes, gradient):
            return
        first = max(self.turn[gradient], self.ready(nodes))
        if first < min(self.position[node] for node in update) and permitted(gradient):
            self.turn |= dict.fromkeys((gradient, *update), first)
            self.turn |= {node: min(self.turn[node], first) for node in helpers}
            self.moved += 1

    def update_of(self, gradient: Node) -> dict[Node, None]:
        """All that is made of a gradient, if it is made element by element; else nothing."""
        found: dict[Node, None] = {}
        pending = list(self.readers[gradient])
        while pending:
            node = pending.pop()
            if node in found or node.op.effect is Effect.WRITE:
                continue
            if len(found) == tuned.early_update_nodes or not is_plain(node, gradient):
                return {}
            found[node] = None
            pending += self.readers.get(node, ())
        return found

    def helpers_of(self, update: dict[Node, None], gradient: Node) -> dict[Node, None] | None:
        """What an update computes of given values besides; None if it waits for anything else."""
        found: dict[Node, None] = {}
        pending = [n for node in update for n in node.inputs if n is not gradient]
        while pending:
            node = pending.pop()
            if node in found or node in update or is_given(node):
                continue
            plain = node.op.traits.constant or is_plain(node, gradient)
            if len(found) == tuned.early_update_nodes or not plain:
                return None
            found[node] = None
            pending += node.inputs
        return found

    def takes_place(self, update: dict[Node, None], gradient: Node) -> bool:
        """Are there no more new values than given ones that they can replace, or the gradient?"""
        given = {n for node in update for n in node.inputs if is_given(n)}
        made = [n for n in update if n in self.results or self.is_assigned(n)]
        counts = (sum(n.type is gradient.type for n in nodes) for nodes in (made, given))
        return next(counts) <= max(1, next(counts))

    def is_assigned(self, node: Node) -> bool:
        return any(n.op.effect is Effect.WRITE for n in self.readers.get(node, ()))

    def ready(self, update: dict[Node, None]) -> int:
        """When the last other reader of what an update may overwrite is issued."""
        last = -1
        kinds = {node.type for node in update if node in self.results or self.is_assigned(node)}
        pending = [n for node in update for n in node.inputs if is_given(n)]
        pending = [n for n in pending if n.type in kinds]
        seen: set[Node] = set()
        while pending:
            for reader in self.readers.get(pending.pop(), ()):
                if reader not in update and reader not in seen:
                    seen.add(reader)
                    last = max(last, self.end(reader))
                    pending += [reader] if is_view(reader) else []
        return last

    def end(self, reader: Node) -> int:
        """When the last element-wise node is issued that may run in the kernel of a reader."""
        last, pending, seen = self.turn[reader], [reader], {reader}
        while pending and len(seen) < tuned.early_update_nodes:
            node = pending.pop()
            for n in self.readers.get(node, ()):
                near = self.position[n] - self.position[node] <= tuned.far_reader
                if near and isinstance(n.op.lower, Scalar) and n not in seen:
                    seen.add(n)
                    pending.append(n)
                    last = max(last, self.turn[n])
        return last


def is_plain(node: Node, gradient: Node) -> bool:
    """Is the node element-wise and no larger than the gradient?"""
    if not isinstance(node.type, Type) or not isinstance(gradient.type, Type) or node.after:
        return False
    return isinstance(node.op.lower, Scalar) and node.nbytes <= gradient.nbytes


def is_view(node: Node) -> bool:
    return isinstance(node.op.lower, Alias | Compute)
