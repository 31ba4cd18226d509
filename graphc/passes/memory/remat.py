"""remat: with a memory limit, values that wait long for their readers are computed again instead.

    x ─> a ─> b ─> c ─> ... ─> c' ─> b' ─> a'        a, b, c wait for the backward pass
    x ─> a ─> b ─> c ─> ... ─> c'  a² ─> b' ─> a'    b is dropped: its reader gets a copy of b

Which values wait is seen at the position where most bytes do.  Along the order of computation every
value that fits into the budget of a segment is dropped, and the one that fills it is kept (Chen et
al., Training Deep Nets with Sublinear Memory Cost, algorithm 3).  More and more values are given to
this until the planned memory is within the limit: those that wait longest first, and what takes a
contraction to compute last.  A copy reads its operands through barriers that wait for what its
reader waits for, so that no later pass merges it with the original or moves it forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import field

from graphc.base.record import record
from graphc.config import Config
from graphc.ir.graph import Graph, Node, Rewriter, node_effect, swept
from graphc.ir.liveness import planned_bytes
from graphc.ir.op import OPS, Alias, Compute, Contraction, Effect, Library, Reduction, Scalar
from graphc.ir.place import parse_device
from graphc.ir.readers import readers_of
from graphc.ir.types import Type
from graphc.ops.math.comparison import compares_values
from graphc.passes.placement.one_device import placed
from graphc.passes.reasons import collecting, explain
from graphc.passes.tuning import tuned


def remat(graph: Graph, config: Config, planned: Callable[[Graph, Config], Graph]) -> Graph:
    """The graph whose planned memory is within `config.memory_limit`, or the nearest that was
    found; the same graph where there is no limit.

    A search: it runs the rest of the pipeline, `planned`, on whatever it tries.
    """
    limit = config.memory_limit
    if limit is None:
        return graph
    needed = bytes_of(graph, config, planned)
    for _ in range(tuned.drop_rounds):
        if needed <= limit:
            return graph
        best = graph
        for waiting, budget in choices(graph):
            made = swept(recomputing(graph, waiting, budget))
            found = bytes_of(made, config, planned)
            if found < needed:
                best, needed = made, found
            if needed <= limit:
                return best
        if best is graph:
            return graph
        graph = best
    return graph


def bytes_of(graph: Graph, config: Config, planned: Callable[[Graph, Config], Graph]) -> int:
    """What the memory limit counts, for the program that this graph becomes."""
    device = parse_device(config.devices[0])
    with collecting():  # it stays on one device for this only, whatever its constraints
        alone = placed(graph, device, soft=True).replace(device=device)
        return planned_bytes(planned(alone, config))


# ---------------------------------------------------------------------------------------- waiting


@record(eq=False)
class Waiting:
    """The values that wait across a position: made before it, read after it."""

    graph: Graph
    turn: int
    position: list[int]
    values: list[Node] = field(default_factory=list)

    kept: set[Node] = field(default_factory=set)  # those that are not dropped in any case

    @property
    def nbytes(self) -> int:
        return sum(n.nbytes for n in self.values)

    def only(self, values: list[Node]) -> Waiting:
        """Some of them; the others are kept."""
        kept = set(self.values).difference(values)
        return Waiting(self.graph, self.turn, self.position, values, kept)


def choices(graph: Graph) -> Iterable[tuple[Waiting, int]]:
    """What to drop, from cheap to dear: the values that may go, and the bytes of a segment."""
    waiting = waiting_values(graph)
    for may_copy in (is_cheap, is_pure):
        may_drop = values_from(waiting, may_copy)
        for share in tuned.dropped_shares if may_drop else ():
            values = may_drop[: math.ceil(share * len(may_drop))]
            chosen = waiting.only(values)
            for factor in tuned.segment_counts:
                segments = max(1, round(factor * math.sqrt(len(values))))
                yield chosen, -(-chosen.nbytes // segments)


def waiting_values(graph: Graph) -> Waiting:
    """The values that wait at the position where most bytes do."""
    position = [-1] * graph.next_id
    for k, node in enumerate(graph.nodes):
        position[node.id] = k
    readers = readers_of(graph)
    change = [0] * (len(graph.nodes) + 1)
    last = {}
    for node in graph.nodes:
        reads = [reader for reader in readers[node] if reader is None or node in reader.inputs]
        if reads and None not in reads and not node.op.traits.constant:
            last[node] = max(position[reader.id] for reader in reads if reader is not None)
            change[position[node.id]] += node.nbytes
            change[last[node]] -= node.nbytes
    turn = most = total = 0
    for k, difference in enumerate(change):
        total += difference
        if total > most:
            turn, most = k, total
    values = [n for n, end in last.items() if position[n.id] < turn < end and n.nbytes]
    return Waiting(graph, turn, position, values)


def is_pure(node: Node) -> bool:
    """Can the node be computed again?  Its operands wait behind barriers, which take arrays; what
    has none cannot be told to wait."""
    made_by_kernels = Scalar | Compute | Reduction | Contraction | Library | Alias
    return (
        bool(node.inputs)
        and all(isinstance(n.type, Type) for n in node.inputs)
        and isinstance(node.op.lower, made_by_kernels)
        and not node.op.traits.opaque
        and not compares_values(node)
        and node_effect(node) is Effect.PURE
    )


def is_given(node: Node) -> bool:
    """Is the node there without being computed or passed?"""
    return not node.inputs and not node.op.traits.parameter


def is_cheap(node: Node) -> bool:
    return is_pure(node) and not isinstance(node.op.lower, Contraction | Library)


def values_from(waiting: Waiting, may_copy: Callable[[Node], bool]) -> list[Node]:
    """The waiting values that follow from others, or from arguments, by copies of such nodes.

    What is compared later with another value is not dropped: see `compares_values`.
    """
    there = set(waiting.values)
    made: set[Node] = set()
    for node in waiting.graph.nodes[: waiting.turn + 1]:
        sources = (n for n in node.inputs if waiting.position[n.id] >= 0)
        plain = not node.inputs or may_copy(node)
        if plain and all(n in made or n in there for n in sources):
            made.add(node)
    late = waiting.graph.nodes[waiting.turn + 1 :]
    compared = {n for node in late if compares_values(node) for n in node.inputs}
    return [n for n in waiting.values if n in made and n.inputs and n not in compared]


# ---------------------------------------------------------------------------------------- dropping


def dropped_values(waiting: Waiting, budget: int) -> set[Node]:
    """All but one value of every segment of `budget` bytes."""
    dropped, filled = set(), 0
    for node in waiting.values:
        filled += node.nbytes
        if filled > budget:
            filled = 0
        else:
            dropped.add(node)
    return dropped


def recomputing(graph: Graph, waiting: Waiting, budget: int) -> Graph:
    """The graph whose late readers of dropped values read copies."""
    return _Recompute(graph, waiting, dropped_values(waiting, budget)).run()


class _Recompute(Rewriter):
    """Copies a graph; `copies` holds what stands for a value after the turn."""

    def __init__(self, graph: Graph, waiting: Waiting, dropped: set[Node]) -> None:
        super().__init__(graph)
        self.position, self.turn = waiting.position, waiting.turn
        self.dropped = dropped
        self.kept = waiting.kept.union(waiting.values) - dropped
        self.copies: dict[int, Node] = {}
        self.latest: Node | None = None

    def run(self) -> Graph:
        for node in self.graph.nodes:
            late = self.position[node.id] > self.turn
            made = self.copy(node)
            if late and any(n in self.dropped for n in node.inputs):
                trigger = self.trigger_of(node)
                if trigger is not None:  # else nothing has run since the turn
                    made = made.replace(inputs=self.inputs_of(node, trigger))
            self.nodes.append(made)
            self.mapped[node.id] = made
            if late and isinstance(made.type, Type) and not made.op.traits.constant:
                self.latest = made
        self.changed = True
        return self.finish()

    def trigger_of(self, reader: Node) -> Node | None:
        """What copies for a late reader wait for: something that it reads, or comes after."""
        # A stack is linear: nothing but its one reader may wait for it.
        late = [
            n for n in reader.inputs if self.position[n.id] > self.turn and isinstance(n.type, Type)
        ]
        return self.new(late[0]) if late else self.latest

    def inputs_of(self, reader: Node, trigger: Node) -> tuple[Node, ...]:
        """What a late reader reads, after making copies of that and of what it is made from."""
        needed: set[Node] = set()
        pending = [n for n in reader.inputs if n in self.dropped]
        while pending:
            node = pending.pop()
            if node not in needed and node.id not in self.copies:
                needed.add(node)
                pending.extend(n for n in node.inputs if self.gone(n))
        for node in sorted(needed, key=lambda n: self.position[n.id]):
            self.copies[node.id] = self.again(node, trigger)
        return tuple(self.copies[n.id] if n in self.dropped else self.new(n) for n in reader.inputs)

    def gone(self, node: Node) -> bool:
        """Is a value no longer there after the turn, so that a copy of it is needed?"""
        return node in self.dropped or (
            self.position[node.id] >= 0
            and node not in self.kept
            and is_pure(node)
            and self.position[node.id] <= self.turn
            and node not in self.graph.results
        )

    def again(self, node: Node, trigger: Node) -> Node:
        """A copy of a node.  Constants wait for nothing, unless the node reads nothing else."""
        alone = all(map(is_given, node.inputs))
        inputs = []
        for source in node.inputs:
            if source.id in self.copies:
                inputs.append(self.copies[source.id])
            elif is_given(source) and not alone:
                inputs.append(self.new(source))
            else:
                inputs.append(self.behind(source, trigger))
        explain(self.next_id, f"%{node.id} is computed again")
        after = tuple(self.new(n) for n in node.after)
        return self.emit(
            node.op,
            inputs,
            node.attrs,
            after=after,
            regions=node.regions,
            loc=node.loc,
            place=node.place,
        )

    def behind(self, source: Node, trigger: Node) -> Node:
        return self.emit(
            OPS["barrier"], (self.new(source), trigger), loc=source.loc, place=source.place
        )
