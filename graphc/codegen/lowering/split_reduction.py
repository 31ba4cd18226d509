"""One long outer axis is reduced, in parts, and few columns are folded many rows at a time.

    x: f32[n, 8], seen as f32[n / 4, 32]         parallel for part of the rows:
    (a vector holds several rows)                    for r in part: for l in 0..32:
                                                         acc[part, l] = acc[part, l] + x[r, l]
                                                 for l:  acc[0, l] = sum of acc[:, l]
                                                 for c:  fold acc[0, c], acc[0, 8 + c] ..,
                                                         rows that are left, finish, store

What follows the parts is a kernel of its own, which runs when all of them are there.  How many
there are depends on the shape alone, and so does the order of sums.  Rows that are folded together
lie far apart in their part: of neighbours the processor fetches half as much.  A fold of all
elements is one column, of which each part is read in a row and folded in registers: nothing is
fetched as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import lcm, prod

from graphc.codegen.lowering.columns import Columns, block_columns
from graphc.codegen.lowering.evaluate import (
    Element,
    flat_index,
    load_element,
    split_index,
    store_element,
    tensor_type,
)
from graphc.codegen.lowering.folds import initial, prepared, reduction_of
from graphc.codegen.lowering.nest import unique
from graphc.codegen.lowering.rows import levels_of
from graphc.codegen.lowering.space import Axes, Space
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Alias, Compute, Reduction
from graphc.ir.sizes import Size, greatest, hint_of, least
from graphc.ir.types import I64
from graphc.loops.nest import Buffer, Expr, Kernel
from graphc.loops.scalars import minimum


def is_tall(region: Graph, space: Space, strict: bool) -> bool:
    """Whether a fold of outer axes, or of all, gains by parts or by several rows in a vector."""
    reductions = [n for n in region.nodes if isinstance(n.op.lower, Reduction)]
    reduced = [loop for loop in space.loops if loop.reduced]
    if strict or len(reduced) != 1 or not reductions or 0 in space.full:
        return False
    if any(tensor_type(n.inputs[0]).dtype.is_complex for n in reductions):
        return False
    if space.loops[-1].reduced and (len(space.loops) > 1 or not is_one_level(region, space)):
        return False
    shape = Shape(region, space)
    return shape.rows > 1 or shape.parts > 1


def is_one_level(region: Graph, space: Space) -> bool:
    """No element depends on what is folded."""
    levels = levels_of(region)
    full = [n for n in region.results if space.is_full(n)]
    full += [n.inputs[0] for n in region.nodes if isinstance(n.op.lower, Reduction)]
    return not any(levels[n.id] for n in full)


class Shape:
    """How a tall fold is cut: `rows` of an array side by side, and into how many `parts`."""

    def __init__(self, region: Graph, space: Space) -> None:
        kept = [loop for loop in space.loops if not loop.reduced]
        (self.tall,) = (loop for loop in space.loops if loop.reduced)
        self.is_whole = not kept
        self.line = kept.pop() if kept else Axes(0, 0, 1, -1, False)
        self.kept = kept
        width = self.line.extent
        self.most = block_columns(region, space)  # columns of a block
        self.blocks = -(-width // self.most)
        beside = space.loops[-2:] == (self.tall, self.line)
        few = (
            not isinstance(width, Size)
            and self.blocks == 1
            and width < tuned.tall_columns
            and width % tuned.tall_vector
            and hint_of(self.tall.extent) * width >= tuned.tall_elements
        )
        is_seen_as_wider = few and beside and is_plain(region, space)
        self.rows = rows_together(width, widest(region)) if is_seen_as_wider else 1
        self.columns = prod(loop.extent for loop in kept) * self.blocks
        elements = hint_of(self.tall.extent) * min(hint_of(width), self.most)
        columns = max(1, hint_of(self.columns))
        self.parts = max(1, min(tuned.tall_parts // columns, elements // tuned.tall_part))


def widest(region: Graph) -> int:
    """Bytes of the widest element that is folded."""
    folds = (n for n in region.nodes if isinstance(n.op.lower, Reduction))
    return max(tensor_type(n.inputs[0]).dtype.itemsize for n in folds)


def rows_together(width: int, itemsize: int) -> int:
    """Rows that are taken as one: enough lanes, and no more than is fetched in order."""
    lanes = lcm(width, tuned.tall_vector)
    wanted = min(tuned.tall_lanes, tuned.tall_bytes // itemsize)
    return -(-wanted // lanes) * lanes // width


def is_plain(region: Graph, space: Space) -> bool:
    """Every operand has all elements, one for each column, or a single one."""
    kept = (
        tuple(1 if k in space.reduced else e for k, e in enumerate(space.full)),
        tuple(e for k, e in enumerate(space.full) if k not in space.reduced),
    )
    shown = {n for n in region.nodes if isinstance(n.op.lower, Alias | Compute)}
    reached = set(region.params)
    for node in region.nodes:
        if not reached.isdisjoint(node.inputs):
            reached.add(node)
    return shown.isdisjoint(reached) and all(
        space.is_full(p) or tensor_type(p).dims in kept or tensor_type(p).size == 1
        for p in region.params
    )


class Tall(Columns):
    """Lowers groups that fold one long axis; nothing but the finished folds is read afterwards."""

    shape: Shape
    work: dict[int, list[Buffer]]
    tables: dict[int, Buffer]  # of operands with one element per column: one per lane
    inside: Buffer | None = None  # which of its rows a lane belongs to, if anything asks
    positions: dict[Expr, Expr]  # where the element of a row in this lane lies

    def lower(self) -> Kernel:
        self.declare()
        self.shape = shape = Shape(self.region, self.space)
        self.lanes = least(shape.most, shape.line.extent) * shape.rows
        self.count = 1 if shape.is_whole else self.rows_at_once(self.lanes)
        self.groups = shape.tall.extent // (self.count * shape.rows)
        self.each = greatest(1, -(-self.groups // shape.parts))
        parts = shape.parts
        if not isinstance(self.groups, Size):
            parts = max(1, -(-self.groups // self.each))
        self.units = shape.columns * parts
        self.elements_per_unit = self.each * self.count * self.lanes
        self.declare_scratch(parts)
        with self.units_of(self.units) as unit:
            column, part = split_index(self.b, unit, (shape.columns, parts))
            self.fold_part(column, unit, part, parts)
            if parts == 1:
                self.finish(column, unit, parts)
        if parts == 1:
            return self.kernel(self.b.body, self.units)
        first, self.b.body = self.b.body, []
        with self.units_of(shape.columns) as column:
            self.finish(column, column * parts, parts)
        return self.kernel(first, self.units, self.kernel(self.b.body, shape.columns))

    def declare_scratch(self, parts: int) -> None:
        """Accumulators of a unit, or of all units side by side where another kernel reads them."""
        self.stride = -(-self.lanes // tuned.tall_vector) * tuned.tall_vector
        mode, copies = ("work", 1) if parts == 1 else ("inout", self.units)
        self.work = {
            n.id: [self.buffer(kind, self.stride * copies, mode) for kind in self.held(n)]
            for n in self.reductions()
        }
        self.tables, self.positions = {}, {}
        if self.shape.rows == 1:
            return
        if any(isinstance(n.op.lower, Compute) for n in self.region.nodes):
            self.inside = self.buffer(I64, self.lanes, "work")
        for param in self.region.params:
            kind = tensor_type(param)
            if not self.space.is_full(param) and kind.size > 1:
                self.tables[param.id] = self.buffer(kind.dtype, self.lanes, "work")

    @contextmanager
    def units_of(self, count: int) -> Iterator[Expr]:
        if count == 1:
            yield self.b.integer(0)
            return
        with self.b.loop(count, "parallel") as unit:
            yield unit

    def place(self, column: Expr) -> tuple[dict[int, Expr], tuple[Expr, Expr]]:
        """The indices of the kept axes, and the columns from and to which a block goes."""
        b, shape = self.b, self.shape
        extents = (*(loop.extent for loop in shape.kept), shape.blocks)
        *parts, block = split_index(b, column, extents)
        values = {loop.place: p for loop, p in zip(shape.kept, parts, strict=True)}
        if shape.blocks == 1:
            return values, (b.integer(0), b.integer(shape.line.extent))
        start = block * shape.most
        stop = minimum(start + shape.most, shape.line.extent)
        return values, (start, stop)

    def begin(self, unit: Expr) -> None:
        """Accumulators of this unit from here on."""
        private = self.work and next(iter(self.work.values()))[0].mode == "work"
        self.first = self.b.integer(0) if private else unit * self.stride

    # -- one part

    def fold_part(self, column: Expr, unit: Expr, part: Expr, parts: int) -> None:
        b, shape = self.b, self.shape
        values, (start, stop) = self.place(column)
        self.begin(unit)
        low = part * self.each
        high = minimum(low + self.each, self.groups)
        bounds = (low, high) if parts > 1 else (b.integer(0), b.integer(self.groups))
        if shape.is_whole:
            self.fold_in_a_row(*bounds)
            return
        lanes = b.integer(self.lanes) if shape.rows > 1 else stop - start
        self.start_columns((b.integer(0), lanes), self.work)
        if shape.rows > 1:
            self.spread(values)
        apart = bounds[1] - bounds[0]
        with b.loop(bounds[1], "serial", bounds[0]) as group:
            if shape.rows == 1:
                first = bounds[0] * self.count + (group - bounds[0])
                places = [first + apart * k for k in range(self.count)]
                rows = [{**values, shape.tall.place: place} for place in places]
                self.fold_rows(rows, shape.line, (start, stop), self.work)
            else:
                self.fold_lanes(values, group * self.count)

    def fold_in_a_row(self, start: Expr, stop: Expr) -> None:
        """Fold elements from one to another in registers, and keep what they come to."""
        b, registers = self.b, {}
        full = [r for r in unique(self.region.results) if self.space.is_full(r)]
        for node in self.reductions():
            (first,) = initial(b, reduction_of(node), tensor_type(node.inputs[0]).dtype)
            registers[node.id] = b.register(first)
        with b.loop(stop, "vector", start) as i:
            at = {self.shape.tall.place: i}
            index = self.space.index(b, at, self.space.full)
            for node in self.reductions():
                lower, source = reduction_of(node), node.inputs[0]
                element = tensor_type(source).dtype
                value = prepared(b, lower, self.elements.at(source, index), element)
                b.update(registers[node.id], lower.combine, value)
            self.store_full(at, full)
        for node in self.reductions():
            (buffer,) = self.work[node.id]
            b.store(buffer, self.first, b.read(registers[node.id]).cast(buffer.dtype))

    def spread(self, values: dict[int, Expr]) -> None:
        """Have what columns read once for every lane, and operands read by lanes."""
        b, shape = self.b, self.shape
        width = b.integer(shape.line.extent)
        with b.loop(shape.rows) as row, b.loop(width, "vector") as c:
            lane = row * width + c
            if self.inside is not None:
                b.store(self.inside, lane, row)
            for param in self.region.params:
                if (table := self.tables.get(param.id)) is not None:
                    at = {**values, shape.line.place: c}
                    index = self.space.index(b, at, tensor_type(param).dims)
                    store_element(b, table, lane, self.elements.at(param, index))

    def fold_lanes(self, values: dict[int, Expr], first: Expr) -> None:
        b, shape = self.b, self.shape
        full = [r for r in unique(self.region.results) if self.space.is_full(r)]
        with b.loop(self.lanes, "vector") as lane:
            self.read_lanes(lane)
            rows = []
            for k in range(self.count):
                step = first + k
                start = step * shape.rows
                at = {**values, shape.tall.place: start}
                position = self.position(at) + lane
                if self.inside is not None:
                    within = b.load(self.inside, lane)
                    start = start + within
                    lane_start = within * shape.line.extent
                    at = {**at, shape.tall.place: start, shape.line.place: lane - lane_start}
                self.positions[start] = position
                rows.append(at)
            for node in self.reductions():
                indices = [self.space.index(b, at, self.space.full) for at in rows]
                self.fold_column(node, self.work[node.id], indices, self.first + lane)
            for at in rows:
                self.store_full(at, full)
        self.read_columns()

    def rows_at_once(self, width: int) -> int:
        """Few lanes store accumulators and load them again right away, many wait for memory."""
        return (
            1
            if self.is_costly()
            else tuned.fold_rows
            if len(self.streams()) == 1
            else tuned.fold_rows_of_many
        )

    def fold_column(
        self, node: Node, buffers: list[Buffer], indices: list[tuple[Expr, ...]], slot: Expr
    ) -> None:
        """What lies in one lane is folded in halves, f32 in f32, and enters its accumulator."""
        if len(indices) == 1:
            super().fold_column(node, buffers, indices, slot)
            return
        b, lower, (buffer,) = self.b, reduction_of(node), buffers
        element = tensor_type(node.inputs[0]).dtype
        values = [
            prepared(b, lower, self.elements.at(node.inputs[0], index), element)
            for index in indices
        ]
        while len(values) > 1:
            odd = values[len(values) // 2 * 2 :]
            pairs = zip(values[:-1:2], values[1::2], strict=True)
            values = [b.op(lower.combine, *pair) for pair in pairs] + odd
        total = b.op(lower.combine, b.load(buffer, slot), values[0].cast(buffer.dtype))
        b.store(buffer, slot, total)

    def position(self, values: dict[int, Expr]) -> Expr:
        index = self.space.index(self.b, values, self.space.full)
        return flat_index(self.b, index, self.space.full)

    def read_lanes(self, lane: Expr) -> None:
        """Bind the operands to what lies in this lane."""
        for param in self.region.params:
            if self.space.is_full(param):
                self.elements.bind(param, self.reader_of_full(param))
            elif (table := self.tables.get(param.id)) is not None:
                kind = tensor_type(param).dtype
                self.elements.bind_value(param, load_element(self.b, table, lane, kind))

    def reader_of_full(self, param: Node) -> Callable[[tuple[Expr, ...]], Element]:
        buffer, kind = self.elements.buffers[param.id], tensor_type(param).dtype
        place = self.shape.tall.place
        return lambda index: load_element(self.b, buffer, self.positions[index[place]], kind)

    def read_columns(self) -> None:
        """Bind the operands to their own elements again."""
        for param in self.region.params:
            self.elements.bind_buffer(param, self.elements.buffers[param.id])
        self.positions = {}

    def store(self, result: Node, index: tuple[Expr, ...]) -> None:
        if not (self.positions and self.space.is_full(result)):
            super().store(result, index)
            return
        value = self.elements.at(result, index)
        for buffer in self.outputs[result.id]:
            store_element(self.b, buffer, self.positions[index[self.shape.tall.place]], value)

    # -- all parts

    def finish(self, column: Expr, unit: Expr, parts: int) -> None:
        """Fold the parts, the rows of a lane and the rows that are left; store what is found."""
        b, shape = self.b, self.shape
        values, bounds = self.place(column)
        self.begin(unit)
        if parts > 1:
            with b.loop(parts, "serial", 1) as part:
                self.fold_onto(self.lanes, part * self.stride)
        rows = shape.rows
        while rows > 1:
            half = rows // 2
            rows -= half
            self.fold_onto(half * shape.line.extent, b.integer(rows * shape.line.extent))
        folded = self.groups * self.count * shape.rows
        if folded != shape.tall.extent:
            with b.loop(shape.tall.extent, "serial", folded) as row:
                at = {**values, shape.tall.place: row}
                self.fold_rows([at], shape.line, bounds, self.work)
        self.store_columns(values, shape.line, bounds, self.work)

    def fold_onto(self, count: int, distance: Expr) -> None:
        """Fold accumulators with those that lie a distance behind them."""
        b = self.b
        with b.loop(count, "vector") as k:
            here = self.first + k
            for node in self.reductions():
                for buffer in self.work[node.id]:
                    totals = b.load(buffer, here), b.load(buffer, here + distance)
                    b.store(buffer, here, b.op(reduction_of(node).combine, *totals))
