"""Which nodes run in one kernel: the analysis behind `propose_groups` and `fuse`.

One forward sweep.  Every group has a *stage*; an edge between two groups always leads to a higher
stage, so the groups form no cycle however they grow:

    stage(group) > stage of every group it reads from

A node joins the groups of its operands when shapes allow, merging them; a group that blocks the
way and has no reader yet is raised to a later stage first.  Views (index maps) belong to no group:
each reader inlines them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from graphc.base.record import record
from graphc.codegen.lowering import row_epilogue
from graphc.codegen.lowering.space import dims_of
from graphc.codegen.table.donation import is_named
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Contraction, Effect, Library, Loops, Reduction, Scalar
from graphc.ir.regions import talks
from graphc.ir.rewrites import is_counting, permitted
from graphc.ir.types import Type
from graphc.passes.devices.recv_sets import recv_sets
from graphc.passes.fusion.widening import widening_casts
from graphc.passes.tuning import tuned

# Marks of a graph that decide what runs together (see `Graph.marks`).
COPY = "copy"  # computed again for its readers: runs beside them, not beside what it reads
PROLOGUE = "prologue"  # contractions compute it themselves

Dims = tuple[int, ...]
Sources = dict[Node, None]  # an ordered set


@record(eq=False)
class Group:
    """Nodes that become one kernel. `full` is the iteration shape, `reduced` its folded axes."""

    kind: str
    stage: int
    full: Dims
    nodes: list[Node]
    reduced: frozenset[int] | None = None
    closed: bool = False
    read: bool = False  # some node outside reads it
    operands: set[int] = field(default_factory=set)  # what it reads from outside
    merged: Group | None = None

    @property
    def keep(self) -> Dims:
        reduced = self.reduced or frozenset()
        return tuple(1 if k in reduced else e for k, e in enumerate(self.full))

    @property
    def drop(self) -> Dims:
        reduced = self.reduced or frozenset()
        return tuple(e for k, e in enumerate(self.full) if k not in reduced)

    def fields(self) -> tuple[Any, ...]:
        """All of it, to be restored."""
        known = self.kind, self.stage, self.nodes.copy(), self.reduced, self.read
        return *known, self.operands.copy(), self.merged

    def restore(self, fields: tuple[Any, ...]) -> None:
        """Be as before."""
        self.kind, self.stage, self.nodes, self.reduced, self.read = fields[:5]
        self.operands, self.merged = fields[5:]

    def columns(self) -> bool:
        """The innermost wide axis is kept while another is folded: only folds, no second pass."""
        wide = [k for k, e in enumerate(self.full) if e != 1]
        return bool(self.reduced) and bool(wide) and wide[-1] not in (self.reduced or ())


class Groups:
    """The groups of a graph: `of(node)` is the group of a node or None."""

    def __init__(
        self,
        graph: Graph,
        merge: bool,
        apart: Container[int] = (),
        rows: bool = False,
        inside: frozenset[Node] = frozenset(),
        alone: Container[int] = (),
        owned: Container[Node] = (),
    ) -> None:
        """`apart` are ids of nodes that run beside their readers, not beside what they read.
        `rows`: contractions may finish whole rows, to reduce them there and then. `inside` are
        nodes that contractions compute themselves. `alone` are ids of nodes that join no sibling.
        `owned` are parameters that may be overwritten.
        """
        self.merge = merge
        self.rows = rows
        self.apart = apart
        self.group: list[Group | None] = [None] * graph.next_id
        self.weights: list[int] = [0] * graph.next_id
        self.stages: list[int] = [0] * graph.next_id
        self.position: list[int] = [0] * graph.next_id
        self.reader: list[Group | None] = [None] * graph.next_id  # the last group that reads it
        self.patches = overwriting(graph, owned) if merge else frozenset()
        self.told = -1  # the last stage of a message so far
        self.recv_sets = recv_sets(graph)
        self.inside = inside | widening_casts(graph) if merge else inside
        self.alone = alone
        self.siblings: set[Node] = set()  # nodes that joined a group for what both read
        self.all: list[Group] = []
        self.held = held_scalars(graph)
        for position, node in enumerate(graph.nodes):
            self.position[node.id] = position
            self.visit(node)

    def order(self, node: Node) -> int:
        """Position of a node in the graph (ids need not be in order)."""
        return self.position[node.id]

    def copies(self, node: Node) -> bool:
        """Is the node a number that kernels hold themselves?"""
        return is_scalar(node) and node.attrs in self.held

    def of(self, node: Node) -> Group | None:
        return current(self.group[node.id])

    def is_view(self, node: Node) -> bool:
        """Inlined by its readers instead of being stored."""
        return self.weights[node.id] > 0

    # -- the sweep

    def visit(self, node: Node) -> None:
        lower = node.op.lower
        cheap = isinstance(lower, Compute) and lower.cheap and self.merge and inlines(node)
        if isinstance(lower, Alias) or cheap or node in self.inside:
            if not self.visit_view(node):
                self.place(node)
        elif isinstance(lower, Scalar | Reduction | Contraction | Compute | Library | Loops):
            self.place(node)
        elif node.inputs or node.after or talks(node):
            self.outside(node, node.inputs)

    def visit_view(self, node: Node) -> bool:
        weight = 1 + sum(self.weights[n.id] for n in node.inputs)
        plain = not node.op.traits.opaque and not node.after and self.merge
        if not plain or weight > tuned.view_weight:
            if isinstance(node.op.lower, Alias):
                self.outside(node, node.inputs)
                return True
            return False
        self.weights[node.id] = weight
        self.stages[node.id] = self.stage_after(self.bases(node))
        for base in self.bases(node):
            if (group := self.of(base)) is not None:
                group.read = True
        return True

    def outside(self, node: Node, inputs: Iterable[Node]) -> None:
        """A node that no kernel contains; what it reads must be stored."""
        stage = self.stage_after(self.needed((*inputs, *node.after)))
        if talks(node):  # what comes from other devices may be the answer to what was sent before
            stage = stage if node.op.traits.send else max(stage, self.told + 1)
            self.told = max(self.told, stage)
        self.stages[node.id] = stage

    def needed(self, nodes: Iterable[Node]) -> list[Node]:
        """The stored values behind some nodes, which something beside their groups waits for."""
        found = [base for node in nodes for base in self.bases(node)]
        for group in filter(None, map(self.of, found)):
            group.read = True
        return found

    def bases(self, node: Node) -> list[Node]:
        """The stored values that reading a node reads."""
        if not self.weights[node.id]:
            return [node]
        found: list[Node] = []
        pending = list(node.inputs)
        while pending:
            source = pending.pop()
            if self.weights[source.id]:
                pending.extend(source.inputs)
            else:
                found.append(source)
        return found

    def stage_after(self, nodes: Iterable[Node]) -> int:
        groups = ((n, self.of(n)) for n in nodes)
        return max((1 + (g.stage if g else self.stages[n.id]) for n, g in groups), default=0)

    # -- placing a node in a group

    def place(self, node: Node) -> None:
        weights = self.weights
        direct = dict.fromkeys(node.inputs)
        sources: Sources = direct
        behind: Sources = {}  # what is read through views
        if any(weights[n.id] for n in direct):
            views = [n for n in direct if weights[n.id]]
            behind = dict.fromkeys(base for view in views for base in self.bases(view))
            direct = {n: None for n in direct if not weights[n.id]}
            sources = direct | behind
        chosen: Group | None = None
        if self.merge and not node.after and node.op.effect is Effect.PURE:
            before = self.around(sources) if is_counting() else []
            chosen = self.join(node, sources, direct, behind) or self.sibling(node, sources)
            if chosen is not None and not permitted(node):
                chosen = None
                self.siblings.discard(node)
                for changed, fields in before:
                    changed.restore(fields)
        if chosen is None:
            chosen = self.fresh(node, sources)
            self.all.append(chosen)
        self.group[node.id] = chosen
        for source in sources:
            self.reader[source.id] = chosen
            if (group := self.of(source)) is chosen:
                continue
            if group is not None:
                group.read = True
            if group is not None or not self.copies(source):
                chosen.operands.add(source.id)

    def around(self, sources: Sources) -> list[tuple[Group, tuple[Any, ...]]]:
        """The groups that a node may change when it joins one, and what they are before."""
        found = {g for s in sources for g in (self.of(s), current(self.reader[s.id]))}
        return [(group, group.fields()) for group in found if group is not None]

    def fresh(self, node: Node, sources: Sources) -> Group:
        lower = node.op.lower
        stage = self.stage_after([*sources, *self.needed(node.after)])
        if isinstance(lower, Reduction):
            axes = frozenset(node.attrs["axes"])
            return Group("loop", stage, dims_of(node.inputs[0]), [node], axes)
        kind = "contract" if isinstance(lower, Contraction) else "loop"
        kind = "nest" if isinstance(lower, Loops) else kind
        full = dims_of(node) if isinstance(node.type, Type) else ()
        if isinstance(lower, Library):
            return Group("library", stage, full, [node], closed=True)
        # An update in place runs alone: only what changes is written.
        alone = not inlines(node) or node in self.patches
        alone = alone or (isinstance(lower, Loops) and bool(lower.template))
        return Group(kind, stage, full, [node], closed=alone)

    def join(self, node: Node, sources: Sources, direct: Sources, behind: Sources) -> Group | None:
        """The group that the node can join, after merging and raising groups as needed."""
        chosen: Group | None = None
        for group in self.candidates(node, direct, behind):
            if chosen is None:
                chosen = group if self.raise_over((group,), sources) else None
            elif self.mergeable(chosen, group):
                self.unite(chosen, group, sources)
        if chosen is not None:
            self.add(chosen, node)
        return chosen

    def add(self, group: Group, node: Node) -> None:
        if isinstance(node.op.lower, Reduction) and group.reduced is None:
            group.reduced = frozenset(node.attrs["axes"])
        group.nodes.append(node)

    def sibling(self, node: Node, sources: Sources) -> Group | None:
        """A group that reads the same large operand just before: one sweep serves both."""
        if not isinstance(node.op.lower, Scalar | Reduction) or node.id in self.alone:
            return None
        for source in sources:
            group = current(self.reader[source.id])
            if group is None or group.kind != "loop" or dims_of(source) != group.full:
                continue
            if any(self.of(s) is group for s in sources):
                continue  # it reads the group's own result, perhaps through a view
            near = self.order(node) - self.order(group.nodes[-1]) <= tuned.sibling_distance
            near = near and self.together(node, group)
            if near and self.fits(node, group) and self.raise_over((group,), sources):
                self.add(group, node)
                self.siblings.add(node)
                return group
        return None

    def candidates(self, node: Node, direct: Sources, behind: Sources) -> list[Group]:
        """Groups of operands whose loops the node fits in, latest stage first."""
        found: list[Group] = []
        for source in direct:
            group = self.of(source)
            if (
                group is not None
                and group not in found
                and not self.apart_from(node, source, group)
            ):
                found.append(group)
        if behind and found:
            # A view of a group's value reads it from memory, so that group cannot hold the reader.
            hidden = {self.of(s) for s in behind}
            found = [g for g in found if g not in hidden]
        return sorted(found, key=lambda g: -g.stage)

    def apart_from(self, node: Node, source: Node, group: Group) -> str:
        """Why a node cannot run in the loops of an operand; nothing if it can."""
        if self.waits(node, source):
            return "it is read much later, and more bytes would wait until then"
        if not self.together(node, group):
            return "one would wait for a message that only the other needs"
        return self.obstacle(node, group)

    def waits(self, node: Node, source: Node) -> bool:
        """Does running the node beside its operand only make more bytes wait for later readers?

        A backward pass computes much from forward values alone; what is no smaller than they are is
        computed where it is read.
        """
        if node.id in self.apart:
            return source.id not in self.apart
        far = self.order(node) - self.order(source) > tuned.far_reader
        return far and not smaller(node, source)

    def together(self, node: Node, group: Group) -> bool:
        """Would neither wait for a message that only the other needs?"""
        return self.recv_sets[node.id] == self.recv_sets[group.nodes[0].id]

    def raise_over(self, inside: tuple[Group, ...], sources: Sources) -> bool:
        """Make the groups' stage exceed that of every other source; False if a reader forbids
        it.
        """
        needed = max([g.stage for g in inside])
        for source in sources:
            group = self.of(source)
            if group not in inside:
                stage = self.stages[source.id] if group is None else group.stage
                needed = max(needed, stage + 1)
        for g in inside:
            if g.stage < needed and g.read:
                return False
        for g in inside:
            g.stage = needed
        return True

    def unite(self, group: Group, other: Group, sources: Sources) -> None:
        """Merge two groups of equal stage: at one stage no path leads from one to the other."""
        if self.connected(group, other) or not self.raise_over((group, other), sources):
            return
        other.merged = group
        group.nodes.extend(other.nodes)
        group.operands |= other.operands
        group.read |= other.read
        group.reduced = group.reduced if group.reduced is not None else other.reduced
        if other.kind != "loop":
            group.kind = other.kind

    def connected(self, group: Group, other: Group) -> bool:
        """Does one of the groups read the other directly?"""
        ids = {n.id for n in group.nodes}, {n.id for n in other.nodes}
        return bool(group.operands & ids[1]) or bool(other.operands & ids[0])

    # -- what fits

    def mergeable(self, a: Group, b: Group) -> bool:
        return not self.clash(a, b)

    def clash(self, a: Group, b: Group) -> str:
        """Why two groups are not merged; nothing if they can be."""
        if a.full != b.full:
            return "their loops have different extents"
        if a.closed or b.closed:
            return "one of them is a kernel of its own"
        plain = (a.kind == "loop") + (b.kind == "loop")
        if plain == 0 or (plain == 1 and not a.reduced is b.reduced is None):
            return "a kernel has one product, and its loops fold nothing else"
        if len(a.nodes) + len(b.nodes) > tuned.group_nodes:
            return "the kernel would be too long"
        if len(a.operands | b.operands) > tuned.group_operands:
            return "the kernel would read too many arrays"
        same = a.reduced == b.reduced or a.reduced is None or b.reduced is None
        return "" if same else "they fold different axes"

    def fits(self, node: Node, group: Group) -> bool:
        """May the node run inside the group's loops?"""
        return not self.obstacle(node, group)

    def obstacle(self, node: Node, group: Group) -> str:
        """What keeps a node out of a group's loops; nothing if it may run inside."""
        if group.closed:
            return "its operand is a kernel of its own"
        if len(group.nodes) >= tuned.group_nodes:
            return "the kernel would be too long"
        if len(group.operands) >= tuned.group_operands:
            return "the kernel would read too many arrays"
        lower = node.op.lower
        inside = [n for n in node.inputs if not self.weights[n.id] and self.of(n) is group]
        if isinstance(lower, Reduction):
            return self.obstacle_to_reduction(node, group, inside)
        if not isinstance(lower, Scalar):
            return "it does not compute element by element: what it reads has to be in memory"
        if self.fits_scalar(dims_of(node), group, inside):
            return ""
        return "its elements do not line up with the loops that make its operand"

    def obstacle_to_reduction(self, node: Node, group: Group, inside: list[Node]) -> str:
        axes = frozenset(node.attrs["axes"])
        if dims_of(node.inputs[0]) != group.full or not all(is_full(n, group) for n in inside):
            return "it does not fold what the loops of its operand make in each step"
        if not self.passes(group, axes):
            return "its operand is a product whose tiles do not hold what is folded"
        if group.reduced is None:
            return ""
        if group.reduced != axes:
            return "the kernel folds other axes already"
        late = group.columns() and self.depends(inside, group)
        return "it needs the end of a fold over columns, which is another pass" if late else ""

    def passes(self, group: Group, axes: frozenset[int]) -> bool:
        """May the group's loops pass over the same elements several times?"""
        if group.kind == "contract" and self.rows:
            return row_epilogue.finishes_rows(group.nodes, axes)
        return group.kind == "loop"

    def depends(self, inside: list[Node], group: Group) -> bool:
        """In a column group every fold must come before the first finished value is read."""
        folds = [self.order(n) for n in group.nodes if isinstance(n.op.lower, Reduction)]
        return bool(folds) and any(self.order(n) > min(folds) for n in inside)

    def fits_scalar(self, dims: Dims, group: Group, inside: list[Node]) -> bool:
        if dims == group.full and group.reduced is None:
            return all(dims_of(n) == group.full for n in inside)
        if group.reduced is None:
            return False
        if dims == group.full and not (group.columns() and dims != group.keep):
            return all(is_full(n, group) or aligned_row(n, group) for n in inside)
        if dims in (group.keep, group.drop):
            return all(dims_of(n) == dims and not is_full(n, group) for n in inside)
        return False


def overwriting(graph: Graph, owned: Container[Node]) -> frozenset[Node]:
    """The updates of arrays that nobody reads afterwards, so that they may lie where those lie."""
    updates = {
        n: array_of(n)
        for n in graph.nodes
        if isinstance(n.op.lower, Compute) and n.op.lower.updates
    }
    if not updates:
        return frozenset()
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        for source in node.inputs:
            last[source] = node
            if isinstance(source.op.lower, Alias):
                last[array_of_alias(source)] = node
    results = set(map(array_of_alias, graph.results))
    return frozenset(
        node
        for node, array in updates.items()
        if last[array] is node and array not in results and (is_stored(array) or array in owned)
    )


def is_stored(node: Node) -> bool:
    """Does a node make an array of its own, which no reader computes for itself?"""
    lower = node.op.lower
    return bool(node.inputs) and not (isinstance(lower, Compute) and lower.cheap)


def array_of(update: Node) -> Node:
    """The array that an update changes."""
    return array_of_alias(update.inputs[0])


def array_of_alias(node: Node) -> Node:
    while isinstance(node.op.lower, Alias):
        node = node.inputs[0]
    return node


def current(group: Group | None) -> Group | None:
    """What the group has been merged into."""
    while group is not None and group.merged is not None:
        group = group.merged
    return group


def is_full(node: Node, group: Group) -> bool:
    return dims_of(node) == group.full and not isinstance(node.op.lower, Reduction)


def aligned_row(node: Node, group: Group) -> bool:
    """A once-per-row value that broadcasts against full values along the right axes."""
    return dims_of(node) == group.keep or dims_of(node) == ()


def smaller(node: Node, source: Node) -> bool:
    return node.nbytes < source.nbytes


def is_scalar(node: Node) -> bool:
    """A constant of one element and no dimensions."""
    return node.op.traits.constant and node.attrs["value"].type.shape == ()


def held_scalars(graph: Graph) -> Container[Any]:
    """The numbers that kernels hold themselves, which makes their code simpler.

    In a graph with a great many each kernel would differ from the next by its numbers alone. There
    they are read from memory, but for those that are read all over it: limits, zeros and ones.
    """
    reads = Counter(n.attrs for node in graph.nodes for n in node.inputs if is_scalar(n))
    if len(reads) <= tuned.kernel_scalars:
        return reads
    least = reads.total() / tuned.kernel_scalars if tuned.kernel_scalars else math.inf
    return {number for number, count in reads.items() if count > least}


def inlines(node: Node) -> bool:
    """Readers of a result put together from many operands would ask for each which one it is."""
    lower = node.op.lower
    return not (
        isinstance(lower, Compute) and lower.pieces and len(node.inputs) > tuned.inlined_concat
    )


# ------------------------------------------------------------------------------------ of a graph

G = TypeVar("G", bound=Groups)

_known: WeakKeyDictionary[Graph, tuple[object, Groups]] = WeakKeyDictionary()


def groups_of(graph: Graph, config: Config) -> Groups:
    """The groups of a graph as its marks say; stages that change nothing share them."""
    if is_counting():
        return regrouped(graph, config, frozenset(), Groups)
    options = config.merges, finishes_rows(config), config.donate
    found = _known.get(graph)
    if found is None or found[0] != options:
        found = _known[graph] = options, regrouped(graph, config, frozenset(), Groups)
    return found[1]


def regrouped(graph: Graph, config: Config, alone: frozenset[int], kind: type[G]) -> G:
    """The same, where the nodes of these ids join no sibling; `kind` is what they are kept in."""
    marked = graph.marks.get(PROLOGUE, frozenset())
    return kind(
        graph,
        config.merges,
        graph.marks.get(COPY, frozenset()),
        finishes_rows(config),
        frozenset(node for node in graph.nodes if node.id in marked) if marked else frozenset(),
        alone,
        owned(graph, config),
    )


def owned(graph: Graph, config: Config) -> frozenset[Node]:
    """The parameters that may be overwritten: arguments that the caller gives away, and all that
    comes into a region, which has no device of its own."""
    if graph.device is None:
        return frozenset(graph.params)
    return frozenset(p for p in graph.params if is_named(p.attrs["name"], config.donate))


def finishes_rows(config: Config) -> bool:
    """May contractions finish whole rows, and compute what they read?"""
    return config.backend == "llvm" and not config.parity
