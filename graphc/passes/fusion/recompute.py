"""recompute: element-wise values are computed anew where another kernel reads them.

    kernel 1:  h = x w + b   a = h * h   t = tanh(a)   y = h * t     stores y, and h a t for later
    kernel 2:  ... h ... a ... t ...                                 reads h a t

A backward pass reads most of what an activation computes on its way.  All of it follows from few
values, here h alone; to store and load the others takes longer than to compute them twice.

For every group of nodes that will be a kernel, what other kernels read is a cut through the group.
The cut is moved back, node by node, wherever that does not make it larger.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphc.codegen.lowering.space import dims_of
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, rebuild, swept
from graphc.ir.op import Scalar
from graphc.ir.sizes import hint_of
from graphc.ir.types import Type
from graphc.ops.math.comparison import compares_values
from graphc.passes.fusion.can_fuse import COPY, Group, Groups, Sources, groups_of
from graphc.passes.reasons import explain
from graphc.passes.tuning import tuned


def recompute(graph: Graph, config: Config) -> Graph:
    """The graph with copies of the nodes that are better computed again, marked as such."""
    kinds = {node.type: node for node in graph.nodes}  # one node of each type
    most = max((node.nbytes for node in kinds.values()), default=0)
    if not config.merges or most * tuned.group_nodes <= tuned.recompute_bytes:
        return graph  # no kernel stores enough
    made, copies = with_copies(graph, groups_of(graph, config))
    if not copies:
        return graph
    return swept(made).replace(marks=graph.marks | {COPY: frozenset(copies)})


def with_copies(graph: Graph, groups: Groups) -> tuple[Graph, set[int]]:
    """The graph with copies of nodes, and their ids; the originals may be dead then."""
    made: set[Node] = set()  # all that copies are made of
    weight: dict[Node, int] = {}  # of each value that is not stored: how many nodes make a copy
    for cut in _Reading(graph, groups).cuts():
        nodes = len(cut.made) + sum(weight.get(n, 0) for one in cut.made for n in one.inputs)
        if nodes <= tuned.recompute_nodes and cut.pays():
            made |= cut.made.keys()
            weight |= dict.fromkeys(cut.dropped(), nodes)
            explain(cut.members[-1].id, f"{len(cut.dropped())} values are computed where read")
    if not weight:
        return graph, set()
    by_id = {node.id: node for node in graph.nodes}
    copies = _Copies(groups, made)

    def rewrite(node: Node, r: Rewriter) -> Node | None:
        old = by_id[node.id]
        group = groups.of(old)
        moved = [n for n in old.inputs if n in weight and groups.of(n) is not group]
        if not moved or not isinstance(old.op.lower, Scalar):
            return None
        inputs = tuple(copies.of(n, group, r) if n in moved else r.new(n) for n in old.inputs)
        replaced = node.replace(inputs=inputs)
        r.nodes.append(replaced)
        return replaced

    return rebuild(graph, rewrite), {node.id for node in copies.known.values()}


class _Copies:
    """Copies of nodes, one for the readers in each group."""

    def __init__(self, groups: Groups, made: set[Node]) -> None:
        self.groups, self.made = groups, made
        self.known: dict[tuple[Group | None, Node], Node] = {}

    def of(self, node: Node, group: Group | None, r: Rewriter) -> Node:
        needed: set[Node] = set()
        pending = [node]
        while pending:
            one = pending.pop()
            if one in self.made and one not in needed and (group, one) not in self.known:
                needed.add(one)
                pending += one.inputs
        for one in sorted(needed, key=self.groups.order):
            inputs = tuple(self.known.get((group, n)) or r.new(n) for n in one.inputs)
            copy = one.replace(id=r.next_id, inputs=inputs)
            self.known[group, one] = copy
            r.next_id += 1
            r.nodes.append(copy)
        return self.known[group, node]


class _Reading:
    """Who reads what from other groups: `must` be in memory, or `may` be computed again."""

    def __init__(self, graph: Graph, groups: Groups) -> None:
        self.groups = groups
        self.must: set[Node] = set()
        self.may: dict[Group, Sources] = {}
        for node in graph.nodes:
            self.visit(node)
        for result in graph.results:
            self.must.update(groups.bases(result))

    def visit(self, node: Node) -> None:
        groups = self.groups
        if groups.is_view(node):
            self.must.update(groups.bases(node))
            return
        plain = isinstance(node.op.lower, Scalar) and not compares_values(node)
        own = groups.of(node)
        self.must.update(node.after)
        for source in node.inputs:
            group = groups.of(source)
            if groups.is_view(source) or group is None or group is own:
                continue
            if plain and own is not None and own.kind in ("loop", "contract"):
                self.may.setdefault(group, {})[source] = None
            else:
                self.must.add(source)

    def cuts(self) -> Iterable[_Cut]:
        """Those of groups that come first, first."""
        for group in sorted(self.may, key=lambda group: group.stage):
            values = self.may[group]
            wanted = [n for n in values if n not in self.must]
            if sum(n.nbytes for n in wanted) > tuned.recompute_bytes:
                yield _Cut(group, wanted, self)


class _Cut:
    """What of a group is stored so that the values that others read follow from it."""

    def __init__(self, group: Group, wanted: list[Node], reading: _Reading) -> None:
        self.group, self.wanted, self.reading = group, wanted, reading
        self.members = sorted(group.nodes, key=reading.groups.order)
        self.stored: Sources = dict.fromkeys(wanted)
        self.made: Sources = {}
        for node in reversed(self.members):
            if node in self.stored and self.follows(node):
                more = self.needs(node)
                if sum(n.nbytes for n in more) <= node.nbytes:
                    del self.stored[node]
                    self.made[node] = None
                    self.stored |= dict.fromkeys(more)
        while self.advance():
            pass

    def follows(self, node: Node) -> bool:
        """Is the node element-wise, on operands that a reader elsewhere can have too?"""
        groups = self.reading.groups
        if not isinstance(node.op.lower, Scalar) or node.after or dims_of(node) != self.group.full:
            return False
        views = [n for n in node.inputs if groups.is_view(n)]
        return all(groups.of(base) is not self.group for v in views for base in groups.bases(v))

    def inside(self, node: Node) -> bool:
        """Does the node exist only within the group unless it is stored for this?"""
        return self.reading.groups.of(node) is self.group and node not in self.reading.must

    def needs(self, node: Node) -> list[Node]:
        """What would have to be stored besides to compute the node again."""
        found = dict.fromkeys(n for n in node.inputs if self.inside(n))
        return [n for n in found if n not in self.stored and n not in self.made]

    def advance(self) -> bool:
        """Store what one node makes of a stored value instead, if nothing else reads that."""
        for node in self.stored:
            readers = [n for n in self.made if node in n.inputs]
            if node in self.wanted or len(readers) != 1 or readers[0].nbytes > node.nbytes:
                continue
            del self.stored[node], self.made[readers[0]]
            self.stored[readers[0]] = None
            return True
        return False

    def dropped(self) -> list[Node]:
        return [n for n in self.wanted if n in self.made]

    def pays(self) -> bool:
        """Does the cut save an array for every node that takes long?"""
        heavy = filter(is_heavy, self.made)
        values = (self.wanted, self.stored, heavy)
        before, after, least = (sum(hint_of(n.nbytes) for n in found) for found in values)
        return bool(self.made) and before - after >= max(tuned.recompute_bytes, least)


def is_heavy(node: Node) -> bool:
    if node.op.cost is None or not isinstance(node.type, Type):
        return False
    elements: int = hint_of(node.type.size)
    return node.op.estimate(node)[0] > tuned.recompute_flops * elements
