"""Pairs of rows: a fold over what a value of one row and a value of another make, as in distances.

    parallel for block of rows of y, one to a lane, and block of rows of x:
        turned[k, lane] = y[lane, k]
        for x0 .. x3 in block:                              sqrt(sum((x[:, None] - y) ** 2, -1))
            for some k at a time:
                total0[lane] += (x0[k] - turned[k, lane]) ** 2 ..     some vectors for each of x0 ..

A fold along the rows would load both of its operands for every step, and add up lanes at the end.
The last blocks begin where they end with the last row: some pairs are computed twice, so results
lie nowhere that the kernel reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from graphc.codegen.gemm.hardware import host_target
from graphc.codegen.lowering.evaluate import broadcast_index, split_index, tensor_type
from graphc.codegen.lowering.folds import finished, initial, prepared, reduction_of
from graphc.codegen.lowering.nest import Nest, unique
from graphc.codegen.lowering.space import Axes, Space, dims_of, space_of
from graphc.codegen.lowering.split_reduction import is_one_level
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Reduction, Scalar
from graphc.ir.types import F32, F64, DType
from graphc.loops.nest import Buffer, Expr
from graphc.loops.scalars import minimum


def pairs_rows(region: Graph, space: Space) -> bool:
    """Does every value that is folded come from a row of one operand and a row of another?"""
    folds = [n for n in region.nodes if isinstance(n.op.lower, Reduction)]
    sizes = [loop.extent for loop in space.loops]
    if not folds or len(sizes) != 3 or not all(isinstance(size, int) for size in sizes):
        return False
    down, right, inner = space.loops
    kinds = {tensor_type(n).dtype for n in (*folds, *filter(space.is_full, region.nodes))}
    return (
        (down.reduced, right.reduced, inner.reduced) == (False, False, True)
        and kinds in ({F32}, {F64})
        and down.extent >= max(tuned.pairs_least, tuned.pair_group)
        and right.extent >= max(tuned.pairs_least, _lanes(*kinds))
        and inner.extent >= tuned.pair_strip
        and not any(map(space.is_full, (*region.params, *region.results)))
        and all(isinstance(n.op.lower, Scalar) for n in region.nodes if space.is_full(n))
        and is_one_level(region, space)
        and len(turned(region, space)) == 1
    )


def repeats_pairs(region: Graph) -> bool:
    """May the loop kernel of a region compute some of its results twice?"""
    return pairs_rows(region, space_of(region))


def _lanes(kind: DType) -> int:
    return host_target().vector // kind.itemsize


def vectors_of(extent: int, lanes: int) -> int:
    """Of how many vectors a block of so many rows consists: blocks overlap as little as may be."""
    most = tuned.pair_vectors if host_target().registers > 16 else tuned.pair_vectors // 2
    blocks = -(-extent // (lanes * most))
    return min(-(-extent // (lanes * blocks)), extent // lanes)


def turned(region: Graph, space: Space) -> list[Node]:
    """What full values read of the rows that lie in lanes."""
    _, right, inner = space.loops
    full = [n for n in region.nodes if space.is_full(n)]
    full += [n.inputs[0] for n in region.nodes if isinstance(n.op.lower, Reduction)]
    read = unique(source for n in full for source in n.inputs if not space.is_full(source))
    return [n for n in read if _runs_along(n, right, space) and _runs_along(n, inner, space)]


def _runs_along(node: Node, axes: Axes, space: Space) -> bool:
    dims, missing = dims_of(node), len(space.full) - len(dims_of(node))
    return any(dims[k - missing] != 1 for k in range(max(axes.first, missing), axes.last + 1))


class RowPairs(Nest):
    """Lowers such folds and what follows from them."""

    def body(self) -> None:
        b, (down, right, inner) = self.b, self.space.loops
        self.down, self.right, self.inner = down, right, inner
        (self.source,) = turned(self.region, self.space)
        kind = tensor_type(self.source).dtype
        self.lanes = _lanes(kind)
        self.vectors = vectors_of(right.extent, self.lanes)
        self.wide = self.lanes * self.vectors
        self.copy = self.buffer(kind, inner.extent * self.wide, "work")
        self.totals = {n.id: self.sums(n) for n in self.reductions()}
        parts, together = -(-down.extent // tuned.pairs_rows), tuned.pair_group
        rows = -(-down.extent // (parts * together)) * together
        extents = parts, -(-right.extent // self.wide)
        self.units, self.elements_per_unit = extents[0] * extents[1], rows * self.wide
        with b.loop(self.units, "parallel") as unit:
            part, block = split_index(b, unit, extents)
            column = minimum(block * self.wide, right.extent - self.wide)
            self.turn(column)
            with b.loop(rows // together) as group:
                row = minimum(part * rows + group * together, down.extent - together)
                self.group(row, column)

    def sums(self, node: Node) -> Buffer:
        """Room for the totals of a group of rows."""
        lower, kind = reduction_of(node), self.accumulator(node)
        wide = lower.combine == "add" and self.inner.extent > tuned.pair_narrow
        return self.buffer(F64 if wide else kind, tuned.pair_group * self.wide, "work")

    def accumulator(self, node: Node) -> DType:
        return reduction_of(node).accumulator(tensor_type(node.inputs[0]).dtype)

    def turn(self, column: Expr) -> None:
        """Copy the rows of the lanes, so that elements at the same place lie side by side."""
        for first, count in self.strips(tuned.pair_strip):
            for start in self.starts:
                with self.b.loop(self.lanes, "vector") as lane:
                    for step in range(count):
                        self.turn_one(column, start + lane, first + step)

    def turn_one(self, column: Expr, lane: Expr, k: Expr) -> None:
        values = {self.right.place: column + lane, self.inner.place: k}
        index = self.space.index(self.b, values, self.space.full)
        index = broadcast_index(self.b, index, dims_of(self.source))
        self.b.store(self.copy, k * self.wide + lane, self.elements.at(self.source, index))

    @property
    def starts(self) -> range:
        """Where the vectors of a block begin."""
        return range(0, self.wide, self.lanes)

    def group(self, row: Expr, column: Expr) -> None:
        """All pairs of some rows with those of the lanes."""
        b, places = self.b, list(product(range(tuned.pair_group), self.starts))
        with b.loop(self.lanes, "vector") as lane:
            for node, place in product(self.reductions(), places):
                b.store(self.totals[node.id], self.slot(place, lane), self.start(node))
        for first, count in self.strips(tuned.pair_steps):
            with b.loop(self.lanes, "vector") as lane:
                self.fold(row, column + lane, lane, [first + step for step in range(count)])
        with b.loop(self.lanes, "vector") as lane:
            for number, start in places:
                values = {self.down.place: row + number, self.right.place: column + start + lane}
                self.finish(values, self.slot((number, start), lane))

    def strips(self, most: int) -> Iterator[tuple[Expr, int]]:
        """The places of a row, so many at a time; and those that are left."""
        extent = self.inner.extent
        with self.b.loop(extent // most) as strip:
            yield strip * most, most
        if extent % most:
            yield self.b.integer(extent - extent % most), extent % most

    def slot(self, place: tuple[int, int], lane: Expr) -> Expr:
        number, start = place
        return lane + (number * self.wide + start)

    def start(self, node: Node) -> Expr:
        (start,) = initial(self.b, reduction_of(node), tensor_type(node.inputs[0]).dtype)
        return start.cast(self.totals[node.id].dtype)

    def fold(self, row: Expr, column: Expr, lane: Expr, steps: list[Expr]) -> None:
        """Some steps of all pairs, one step after the other."""
        b, folds = self.b, self.reductions()
        kinds = {n.id: tensor_type(n.inputs[0]).dtype for n in folds}
        keys = list(product(folds, range(tuned.pair_group), self.starts))
        sums = {
            key: b.register(initial(b, reduction_of(key[0]), kinds[key[0].id])[0]) for key in keys
        }
        for k, start in product(steps, self.starts):
            self.elements.bind_value(self.source, b.load(self.copy, k * self.wide + start + lane))
            for node, number in product(folds, range(tuned.pair_group)):
                lower, register = reduction_of(node), sums[node, number, start]
                values = {self.down.place: row + number, self.right.place: column + start}
                index = self.space.index(b, {**values, self.inner.place: k}, self.space.full)
                element = self.elements.at(node.inputs[0], index)
                value = prepared(b, lower, element, kinds[node.id])
                b.assign(register, b.op(lower.combine, b.read(register), value))
        for (node, *place), register in sums.items():
            buffer, slot = self.totals[node.id], self.slot((place[0], place[1]), lane)
            part = b.read(register).cast(buffer.dtype)
            b.store(buffer, slot, b.op(reduction_of(node).combine, b.load(buffer, slot), part))

    def finish(self, values: dict[int, Expr], slot: Expr) -> None:
        """What follows from the totals of one row."""
        for node in self.reductions():
            total = self.b.load(self.totals[node.id], slot).cast(self.accumulator(node))
            self.elements.bind_value(node, finished(self.b, node, [total]))
        self.store_full(values, self.region.results)
