"""fuse: every group of nodes becomes one `fused` node with a closed region, one kernel each; which
nodes make a group `can_fuse` decides.

Views (transposes, slices, broadcasts, reshapes) are copied into the region of each reader, where
lowering folds them into strides.  Groups are issued in an order that respects every edge and stays
close to the order of the nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import cache
from typing import Any

from graphc.codegen.lowering.operands import can_fold_view, read_of
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import last_reads, live_bytes
from graphc.ir.op import OPS, Alias, Attrs, Compute, Contraction, Library, Loops, Scalar
from graphc.ir.regions import talks
from graphc.ir.sizes import hint_of
from graphc.ir.types import leaves, tuple_type
from graphc.passes.fusion.can_fuse import PROLOGUE, Group, Groups, groups_of, regrouped
from graphc.passes.fusion.widening import behind_views, narrow_type
from graphc.passes.reasons import collecting, explain
from graphc.passes.tuning import tuned


def fuse(graph: Graph, config: Config) -> Graph:
    """The graph with only fused, const, alias and structural nodes left.

    Siblings (nodes that run together for reading the same array) run one after another where the
    results of one would wait for the other when most bytes do.
    """
    found = _Attempt(graph, config)
    least = tuned.small_peak if config.memory_limit is None else 0
    if found.siblings and found.peak > least and found.at_peak():
        found = with_less_waiting(found)
    for reason in found.reasons.lines:
        explain(*reason)
    return found.made


def with_less_waiting(together: _Attempt) -> _Attempt:
    """The attempt with siblings apart that make the peak higher, those it takes and no others."""
    apart = together.again(frozenset(together.siblings))
    if apart.peak >= together.peak:
        return together
    found = together
    for _ in range(tuned.sibling_tries):
        more = found.at_peak()
        if not more or found.peak <= apart.peak:
            break
        found = found.again(found.alone | more)
    best = found if found.peak <= apart.peak else apart
    saved = f"{together.peak} bytes would wait at once, {best.peak} do now"
    best.reasons.lines += [(id, f"apart from its siblings: {saved}") for id in sorted(best.alone)]
    return best


class _Attempt:
    """The kernels of a graph with some nodes beside no sibling, and what waits in memory then."""

    def __init__(self, graph: Graph, config: Config, alone: frozenset[int] = frozenset()) -> None:
        """`alone` are the ids of the nodes."""
        self.given = graph, config
        self.alone = alone
        with collecting() as self.reasons:
            groups = regrouped(graph, config, alone, Groups) if alone else groups_of(graph, config)
            fuser = _Fuser(graph, groups)
            self.made = fuser.run()
        self.siblings = fuser.siblings
        self.waiting = live_bytes(self.made) if self.siblings or alone else []

    def again(self, alone: frozenset[int]) -> _Attempt:
        """The same with other nodes beside no sibling."""
        return _Attempt(*self.given, alone)

    @property
    def peak(self) -> int:
        return max(self.waiting)

    def at_peak(self) -> frozenset[int]:
        """The siblings whose kernels have results in memory where most bytes are."""
        at = self.waiting.index(self.peak)
        last = last_reads(self.made)
        kernels = {n.id for n in self.made.nodes[: at + 1] if last[n] >= at}
        return frozenset(id for id, kernel in self.siblings.items() if kernel in kernels)


def changed_by(node: Node) -> tuple[Node, ...]:
    """The operands that a node changes if they lie where its result does."""
    lower = node.op.lower
    if isinstance(lower, Compute | Library) and lower.updates:
        return node.inputs[:1]
    return node.inputs[: node.attrs["carries"]] if node.op.traits.loop else ()


def has_template(node: Node) -> bool:
    """Is there a kernel for the op, which reads by strides?"""
    return isinstance(node.op.lower, Loops) and bool(node.op.lower.template)


def nbytes(node: Node) -> int:
    return sum(hint_of(leaf.nbytes) for leaf in leaves(node.type))


class _Fuser:
    def __init__(self, graph: Graph, groups: Groups) -> None:
        self.groups = groups
        self.inside = graph.marks.get(PROLOGUE, frozenset())
        self.siblings: dict[int, int] = {}  # node -> the kernel that it runs in beside a sibling
        self.graph = graph
        self.mapped: list[Node | None] = [None] * graph.next_id
        self.next_id = graph.next_id
        self.nodes: list[Node] = []
        self.stored: set[int] = set()
        self.read_by: dict[int, list[Node]] = {}
        for param in graph.params:
            self.mapped[param.id] = param

    # -- which values must exist in memory

    def needed(self) -> list[Any]:
        """Units of work (groups and single nodes) in issue order."""
        units: dict[int, Any] = {}
        for node in self.graph.nodes:
            group = self.groups.of(node)
            if group is not None:
                units[id(group)] = group
            elif not self.groups.is_view(node):
                units[id(node)] = node
        self.forced: set[int] = set()
        self.updated_at = self.updates()
        for result in self.graph.results:
            self.force(result)
        for unit in list(units.values()):
            members = unit.nodes if isinstance(unit, Group) else [unit]
            issued = max(map(self.groups.order, members))
            for node in members:
                self.force_operands(node, isinstance(unit, Group), issued)
        for node in self.graph.nodes:
            if node.id in self.forced and self.groups.is_view(node):
                units[id(node)] = node
        return self.ordered(list(units.values()))

    def force(self, node: Node) -> None:
        """A view that has to be stored after all (a result, or read by a kernel that takes no
        views).
        """
        pending = [node]
        while pending:
            view = pending.pop()
            if self.groups.is_view(view) and view.id not in self.forced:
                self.forced.add(view.id)
                if isinstance(view.op.lower, Alias):
                    pending.extend(view.inputs)

    def force_operands(self, node: Node, grouped: bool, issued: int) -> None:
        """Force the views among the operands of a node that its kernel, which is issued then, does
        not read as views."""
        lower = node.op.lower
        for position, source in enumerate(node.inputs):
            if not self.groups.is_view(source) or source.id in self.forced:
                continue
            if (
                not grouped
                or (isinstance(lower, Library | Loops) and not self.strides(node, source))
                or (isinstance(lower, Contraction) and not self.reads(node, position))
                or (position and self.is_part_of_updated(node, source))
                or self.is_outlived(source, issued)
            ):
                self.force(source)

    def is_outlived(self, view: Node, issued: int) -> bool:
        """Is a view small, and read after the array has been updated? Read before, it lets the
        array be updated in place."""
        return any(
            self.updated_at.get(base, issued) < issued
            and nbytes(view) * tuned.update_share <= nbytes(base)
            for base in (self.groups.bases(view) if self.updated_at else ())
        )

    def updates(self) -> dict[Node, int]:
        """When each array that is updated, or carried into a loop, is so for the first time."""
        found: dict[Node, int] = {}
        for node in self.graph.nodes:
            for source in changed_by(node):
                while isinstance(source.op.lower, Alias):
                    source = source.inputs[0]
                found.setdefault(source, self.groups.order(node))
        return found

    def reads(self, node: Node, position: int) -> bool:
        """The same, if need be by storing what lies behind the cast that it makes itself: a join of
        narrow numbers is none of the views that it reads through.
        """
        cast = behind_views(node.inputs[position])
        if not self.folds(node, position) and narrow_type(cast) is not None:
            self.force(behind_views(cast.inputs[0]))
        return self.folds(node, position)

    def folds(self, node: Node, position: int) -> bool:
        """Can a contraction read an operand through its views, or compute what they show?"""
        return behind_views(node.inputs[position]).id in self.inside or can_fold_view(
            node, position, self.kept
        )

    def strides(self, node: Node, source: Node) -> bool:
        """Does a kernel that reads by strides read an operand through its views?"""
        return has_template(node) and read_of(source, self.kept) is not None

    def is_part_of_updated(self, node: Node, source: Node) -> bool:
        """Is a small operand of an update a view of the same array? Read before, the array may be
        updated in place.
        """
        arrays: set[Node] = set()
        while isinstance(lower := node.op.lower, Compute) and lower.position is not None:
            if not arrays and nbytes(source) * tuned.update_share > nbytes(node):
                return False
            node = node.inputs[0]
            arrays.add(node)
        return not arrays.isdisjoint(self.groups.bases(source))

    def stop(self, node: Node) -> bool:
        """Is the node in memory (so that reading it ends a chain of views)?"""
        return not self.groups.weights[node.id] or node.id in self.forced

    def kept(self, node: Node) -> bool:
        """Is the node in memory for sure? Scalar constants are copied into kernels instead."""
        return self.stop(node) and not self.groups.copies(node)

    # -- order

    def ordered(self, units: list[Any]) -> list[Any]:
        """Among ready units the one whose last node came first.

        Nothing is sent after a message was awaited that came later.
        """
        owner: dict[int, int] = {}
        for k, unit in enumerate(units):
            for node in unit.nodes if isinstance(unit, Group) else [unit]:
                owner[node.id] = k
        waits: list[set[int]] = []
        told: list[int] = []
        for k, unit in enumerate(units):
            before = {owner.get(source.id, k) for source in self.sources(unit)}
            if not isinstance(unit, Group) and talks(unit):
                if not unit.op.traits.send:
                    before.update(told)
                    told = []
                told.append(k)
            before.discard(k)
            waits.append(before)
        order_of = self.groups.order
        rank = [
            max(map(order_of, unit.nodes)) if isinstance(unit, Group) else order_of(unit)
            for unit in units
        ]
        return [units[k] for k in first_ready(waits, rank)]

    def sources(self, unit: Any) -> list[Node]:
        """The stored values a unit reads or waits for."""
        known = self.read_by.get(id(unit))
        if known is not None:
            return known
        nodes = unit.nodes if isinstance(unit, Group) else [unit]
        read = (source for node in nodes for source in (*node.inputs, *node.after))
        self.read_by[id(unit)] = found = self.behind(read)
        return found

    def behind(self, nodes: Iterable[Node]) -> list[Node]:
        """The values in memory that nodes are or show."""
        found, pending = [], list(nodes)
        while pending:
            source = pending.pop()
            if self.stop(source):
                found.append(source)
            else:
                pending.extend(source.inputs)
        return found

    # -- emission

    def run(self) -> Graph:
        outside = self.read_outside(units := self.needed())
        for unit in units:
            if isinstance(unit, Group):
                self.emit_group(unit.kind, unit.nodes, outside)
            elif self.groups.is_view(unit) and isinstance(unit.op.lower, Compute | Scalar):
                self.emit_group("loop", [unit], {unit.id})
            else:
                self.emit_single(unit)
        return self.finish()

    def read_outside(self, units: list[Any]) -> set[int]:
        """Ids of values that some other unit or the caller reads."""
        found = {r.id for r in self.graph.results}
        for unit in units:
            inside = {n.id for n in unit.nodes} if isinstance(unit, Group) else set()
            found.update(s.id for s in self.sources(unit) if s.id not in inside)
        return found

    def emit_single(self, node: Node) -> None:
        inputs, after = tuple(self.value(n) for n in node.inputs), self.waits([node])
        changed = (inputs, after) != (node.inputs, node.after)
        made = node.replace(inputs=inputs, after=after) if changed else node
        self.nodes.append(made)
        self.mapped[node.id] = made

    def waits(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """What nodes wait for: a view that is nowhere in memory is there when what it shows is."""
        after = [source for node in nodes for source in node.after]
        return tuple(dict.fromkeys(map(self.value, self.behind(after))))

    def value(self, node: Node) -> Node:
        found = self.mapped[node.id]
        assert found is not None, f"%{node.id} is not stored"
        return found

    def emit_group(self, kind: str, members: list[Node], outside: set[int]) -> None:
        members = sorted(members, key=self.groups.order)
        region = _Region(self)
        for node in members:
            region.copy(node)
        results = [n for n in members if n.id in outside] or members[-1:]
        graph = region.graph([region.inner[n.id] for n in results])
        op = OPS["fused"]
        kinds = tuple(r.type for r in results)
        last = members[-1]
        after = self.waits(members)
        fused = Node(
            results[0].id if len(results) == 1 else self.new_id(),
            op,
            tuple(region.operands),
            attributes("fused", "kind", kind),
            kinds[0] if len(kinds) == 1 else tuple_type(kinds),
            after=after,
            place=last.place,
            regions=(graph,),
            loc=last.loc,
        )
        self.nodes.append(fused)
        self.siblings |= {n.id: fused.id for n in members if n in self.groups.siblings}
        self.publish(fused, results)
        if len(members) > 1:
            ids = ", ".join(f"%{n.id}" for n in members[:8])
            explain(fused.id, f"{kind} kernel of {len(members)}: {ids}")

    def publish(self, fused: Node, results: list[Node]) -> None:
        if len(results) == 1:
            self.mapped[results[0].id] = fused
            return
        item = OPS["item"]
        for k, result in enumerate(results):
            attrs = attributes("item", "index", k)
            made = Node(
                result.id, item, (fused,), attrs, result.type, place=result.place, loc=result.loc
            )
            self.nodes.append(made)
            self.mapped[result.id] = made

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def finish(self) -> Graph:
        graph = self.graph
        results = tuple(self.value(r) for r in graph.results)
        if self.nodes == graph.nodes and results == graph.results:
            return graph
        names = {
            name: made.id
            for name, id in graph.names.items()
            if (made := self.mapped[id]) is not None
        }
        self.drop_unread_constants(results)
        kept = {n.id for n in (*graph.params, *self.nodes)}
        names = {name: id for name, id in names.items() if id in kept}
        return graph.replace(
            nodes=self.nodes, results=results, names=names, marks={}, next_id=self.next_id
        )

    def drop_unread_constants(self, results: tuple[Node, ...]) -> None:
        """Scalars were copied into the regions; the originals are often not read any more."""
        read = {r.id for r in results}
        for node in self.nodes:
            read.update(n.id for n in node.inputs)
            read.update(n.id for n in node.after)
        self.nodes = [n for n in self.nodes if not n.op.traits.constant or n.id in read]


class _Region:
    """Copies members and the views they read into a closed graph with ids from 0."""

    def __init__(self, fuser: _Fuser) -> None:
        self.fuser = fuser
        self.inner: dict[int, Node] = {}
        self.params: list[Node] = []
        self.operands: list[Node] = []
        self.nodes: list[Node] = []
        self.members: list[Node] = []

    def copy(self, node: Node) -> None:
        """Append a member; its operands become params, inlined views or scalar constants."""
        # These kernels read arrays, so their scalar constants stay in memory.
        lower, copies = node.op.lower, self.fuser.groups.copies
        arrays, sums = isinstance(lower, Library | Loops), isinstance(lower, Contraction)
        arrays = arrays and not has_template(node)
        inputs = [
            self.stored(n) if arrays or (sums and copies(n)) else self.operand(n)
            for n in node.inputs
        ]
        self.append(node, tuple(inputs))

    def stored(self, node: Node) -> Node:
        return self.inner.get(node.id) or self.param(node)

    def append(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        made = Node(-1, node.op, inputs, node.attrs, node.type, regions=node.regions, loc=node.loc)
        self.nodes.append(made)
        self.inner[node.id] = made
        return made

    def operand(self, node: Node) -> Node:
        found = self.inner.get(node.id)
        if found is not None:
            return found
        if self.fuser.groups.copies(node):
            return self.append(node, ())
        if self.fuser.stop(node):
            return self.param(node)
        return self.view(node)

    def view(self, node: Node) -> Node:
        pending = [node]
        while pending:
            view = pending[-1]
            missing = [n for n in view.inputs if n.id not in self.inner and not self.fuser.stop(n)]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if view.id not in self.inner:
                self.append(view, tuple(self.operand(n) for n in view.inputs))
        return self.inner[node.id]

    def param(self, node: Node) -> Node:
        attrs = attributes("param", "name", f"p{len(self.params)}")
        made = Node(len(self.params), OPS["param"], (), attrs, node.type)
        self.params.append(made)
        self.operands.append(self.fuser.value(node))
        self.inner[node.id] = made
        return made

    def graph(self, results: list[Node]) -> Graph:
        """The region, ids numbered: params first, then nodes in order."""
        for position, node in enumerate(self.nodes):
            node.id = len(self.params) + position  # not shared with anybody yet
        return Graph("f", tuple(self.params), self.nodes, tuple(results))


def first_ready(waits: list[set[int]], rank: list[int]) -> list[int]:
    """Kahn's algorithm: what waits for nothing any more, by rank."""
    numbers = sorted(range(len(rank)), key=rank.__getitem__)
    if all(rank[j] < rank[k] for k, before in enumerate(waits) for j in before):
        return numbers
    readers: list[list[int]] = [[] for _ in waits]
    for k, before in enumerate(waits):
        for j in before:
            readers[j].append(k)
    ready = [(rank[k], k) for k in numbers if not waits[k]]  # sorted, so a heap
    order = []
    while ready:
        _, k = heapq.heappop(ready)
        order.append(k)
        for reader in readers[k]:
            waits[reader].discard(k)
            if not waits[reader]:
                heapq.heappush(ready, (rank[reader], reader))
    assert len(order) == len(waits), "fusion groups form a cycle"
    return order


@cache
def attributes(op: str, name: str, value: str | int) -> Attrs:
    """The Attrs of an op with one attribute; kernels repeat few of them very often."""
    return OPS[op].coerce({name: value})
