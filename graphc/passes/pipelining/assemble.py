"""assemble: the cells of all stages and chunks as one graph, in the order of a schedule.

    cpu:0  │ h0 = F(x0)   join │ h1 = F(barrier(x1, join))  ...
    cpu:1                      │ F(barrier(h0)) ...

What a cell does waits for the end of the cell before it in its row: it reads whatever depends on
the batch through a barrier that waits for a join of all that the other made.  So no pass and no
device runs two chunks at once, and what a chunk holds is freed before the next one takes memory.
Without the barriers the gradients are the same, and all chunks may be in memory together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from graphc.base.record import record
from graphc.ir.graph import Builder, Node, node_effect
from graphc.ir.op import OPS, Effect
from graphc.ir.types import Type
from graphc.ops.record.effects import accesses
from graphc.ops.record.value import Trace
from graphc.passes.pipelining.cells import Cells
from graphc.passes.pipelining.predict import predict
from graphc.passes.pipelining.timetable import Action, Timetable


@record(frozen=True, eq=False)
class Chunk:
    """One chunk: the cells of its size, what stands for the parameters of the region, the
    region's results, the cotangent of the first of them, and the names that parameters with a
    gradient have in all chunks."""

    cells: Sequence[Cells]
    operands: Mapping[Node, Node]
    results: Sequence[Node]
    seed: Node | None
    names: Mapping[Node, int]


@record(eq=False)
class _Row:
    """What a device has done: nodes that nothing in their cell reads, since the last join."""

    place: Any
    last: Action | None = None
    loose: list[Node] = field(default_factory=list)
    join: Node | None = None


def assemble(
    trace: Trace,
    table: Timetable,
    chunks: Sequence[Chunk],
    places: Sequence[Any],
    fenced: bool = True,
    after: tuple[Node, ...] = (),
) -> tuple[list[list[Node]], dict[int, Node]]:
    """Emit everything into a trace; returns the results of the region for every chunk, and the
    gradients of the parameters, summed over chunks, by name.

    `places` has the place of every row; `fenced` is False for no order but that of data.  What has
    effects waits for `after`.
    """
    made = _Assembly(trace, table, chunks, places, fenced, after)
    start = predict(table).start
    rank = {action: k for row in table.rows for k, action in enumerate(row)}
    for action in sorted(start, key=lambda a: (start[a], table.home[a.stage], rank[a])):
        made.do(action)
    return made.results(), made.gradients()


class _Assembly:
    def __init__(
        self,
        trace: Trace,
        table: Timetable,
        chunks: Sequence[Chunk],
        places: Sequence[Any],
        fenced: bool,
        after: tuple[Node, ...],
    ) -> None:
        self.trace = trace
        self.after = after
        self.builder: Builder = trace.builder
        self.table = table
        self.chunks = chunks
        self.fenced = fenced
        self.rows = [_Row(place) for place in places]
        self.values: list[dict[Node, Node]] = [dict(chunk.operands) for chunk in chunks]
        # What is the same for all chunks, by cells and stage; what is not, by stage and chunk.
        self.shared: dict[tuple[int, int], dict[Node, Node]] = {}
        self.made: dict[tuple[int, int], dict[Node, Node]] = {}
        self.cotangents: dict[tuple[int, Node], list[tuple[int, Node]]] = {}
        self.sums: dict[int, dict[int, Node]] = {}  # of gradients, by parameter and stage
        self.reads: dict[tuple[str, str], Node] = {}  # of variables

    # -- one action

    def do(self, action: Action) -> None:
        row = self.rows[self.table.home[action.stage]]
        forward = [Action(kind, action.stage, action.chunk) for kind in "FR"]
        goes_on = action.kind in "BI" and row.last is not None and row.last in forward
        fence = None if goes_on else self.join(row)
        first = len(self.builder.nodes)
        cell = _Cell(self, action, row.place, fence)
        if action.kind in "FR":
            cell.forward(again=action.kind == "R")
        else:
            cell.backward()
        row.last = action
        self.loosen(row, self.builder.nodes[first:], cell)

    def join(self, row: _Row) -> Node | None:
        """One value that is there when all is done that the row has done."""
        if not self.fenced:
            return None
        if row.loose:
            first = min(row.loose, key=lambda node: (node.nbytes, node.id))
            rest = [node for node in row.loose if node is not first]
            row.join = self.builder.emit(OPS["barrier"], (first, *rest), place=row.place)
            row.loose = []
        return row.join

    def loosen(self, row: _Row, nodes: Sequence[Node], cell: _Cell) -> None:
        """Note what a cell has made that nothing in it reads."""
        read = {n for node in nodes for n in node.inputs}
        row.loose = [n for n in row.loose if n not in read]
        row.loose += [n for n in cell.new if n not in read and isinstance(n.type, Type)]

    # -- what comes out

    def results(self) -> list[list[Node]]:
        return [
            [values[result] for result in chunk.results]
            for chunk, values in zip(self.chunks, self.values)
        ]

    def gradients(self) -> dict[int, Node]:
        """The sums of all stages, later stages first."""
        found = {}
        for name, by_stage in self.sums.items():
            ordered = [by_stage[stage] for stage in sorted(by_stage, reverse=True)]
            total = ordered[0]
            for other in ordered[1:]:
                total = self.builder.emit(OPS["add"], (total, other), place=self.rows[0].place)
            found[name] = total
        return found


class _Cell:
    """One action on its way into the graph."""

    def __init__(self, owner: _Assembly, action: Action, place: Any, fence: Node | None) -> None:
        self.owner = owner
        self.action = action
        self.place = place
        self.fence = fence
        self.chunk = owner.chunks[action.chunk]
        self.cells = self.chunk.cells[action.stage]
        self.shared = owner.shared.setdefault((id(self.cells), action.stage), {})
        self.kept = owner.made.setdefault((action.stage, action.chunk), {})
        self.mapped: dict[Node, Node] = {}
        self.waiting: dict[Node, Node] = {}  # values of other cells, behind the fence
        self.new: list[Node] = []

    # -- what it does

    def forward(self, again: bool = False) -> None:
        cells, values = self.cells, self.owner.values[self.action.chunk]
        for node, param in zip(cells.inputs, cells.params):
            fixed = param in cells.fixed
            self.mapped[param] = values[node] if fixed else self.behind(values[node])
        for node in cells.forward:
            if again and node_effect(node) is Effect.IO:
                self.mapped[node] = self.kept[node]
            elif not again or node in cells.again:
                self.emit(node)
        self.kept.update(self.mapped)
        if not again:
            values.update((node, self.value(made)) for node, made in cells.outputs.items())

    def backward(self) -> None:
        kind, cells = self.action.kind, self.cells
        if kind != "W":
            for node, param in cells.seeds.items():
                self.mapped[param] = self.cotangent(node)
        parts: dict[Node, list[Node]] = {}
        for node, made in cells.gradients.items():
            parts.setdefault(made, []).append(node)
        for made in cells.backward:
            if kind == "B" or (kind == "W") == (made in cells.weights):
                self.emit(made)
                self.arrived(parts.pop(made, ()), made)  # a product and its sum are one kernel
        for made, nodes in parts.items():
            self.arrived(nodes, made)
        self.kept.update(self.mapped)

    def arrived(self, nodes: Sequence[Node], made: Node) -> None:
        """The gradient of parameters and of values of earlier stages is there."""
        for node in nodes:
            name = self.chunk.names.get(node)
            if name is not None:
                if self.action.kind != "I":
                    self.accumulate(name, self.value(made))
            elif self.action.kind != "W":
                found = self.owner.cotangents.setdefault((self.action.chunk, node), [])
                found.append((self.action.stage, self.value(made)))

    def cotangent(self, node: Node) -> Node:
        """The sum of what reached a value, from later stages first."""
        found = sorted(self.owner.cotangents.pop((self.action.chunk, node), []), key=_stage)[::-1]
        parts = [self.behind(made) for _, made in found]
        if node is self.chunk.results[0] and self.chunk.seed is not None:
            parts.insert(0, self.chunk.seed)
        return self.total(parts)

    def accumulate(self, name: int, part: Node) -> None:
        sums = self.owner.sums.setdefault(name, {})
        before = sums.get(self.action.stage)
        sums[self.action.stage] = part if before is None else self.total([before, part])

    # -- nodes

    def total(self, parts: Sequence[Node]) -> Node:
        made = parts[0]
        for part in parts[1:]:
            made = self.owner.builder.emit(OPS["add"], (made, part), place=self.place)
            self.new.append(made)
        return made

    def emit(self, node: Node) -> None:
        fixed = node in self.cells.fixed
        target = self.shared if fixed else self.mapped
        if node in target:
            return
        touched = accesses(node.op, node.attrs, node.regions) if node_effect(node) else {}
        read = next(iter(touched)) if node.op.effect is Effect.READ else None
        if read is not None and read in self.owner.reads:
            target[node] = self.owner.reads[read]
            return
        builder, order = self.owner.builder, self.owner.trace.order
        inputs = tuple([self.value(n) for n in node.inputs])
        after = (*(self.value(n) for n in node.after), *order.before(touched))
        after = (*after, *self.owner.after) if touched else after
        made = node.replace(
            id=builder.next_id, inputs=inputs, after=tuple(dict.fromkeys(after)), place=self.place
        )
        builder.next_id += 1
        builder.nodes.append(made)
        target[node] = made
        if touched:
            order.note(touched, made)
        if read is not None:
            self.owner.reads[read] = made
        elif not fixed:
            self.new.append(made)

    def value(self, node: Node) -> Node:
        """What a node of the cells is in the graph."""
        found = self.mapped.get(node) or self.shared.get(node)
        if found is not None:
            return found
        kept = self.kept[node]
        return kept if node in self.cells.fixed else self.behind(kept)

    def behind(self, source: Node) -> Node:
        """A value of another cell, once the fence is passed."""
        if self.fence is None or not isinstance(source.type, Type):
            return source
        found = self.waiting.get(source)
        if found is None:
            barrier = OPS["barrier"]
            found = self.owner.builder.emit(barrier, (source, self.fence), place=self.place)
            self.waiting[source] = found
        return found


def _stage(entry: tuple[int, Node]) -> int:
    return entry[0]
