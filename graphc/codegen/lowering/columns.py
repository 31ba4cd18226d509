"""Columns: an outer axis is reduced and the innermost is kept. A block of columns is folded at
once.

    parallel for block of columns:
        for c in block: acc[c] = identity
        for r in reduced, some at a time:
            for c in block:  acc[c] = acc[c] + x[r, c] + x[r + 1, c] ..
        for c in block: store finish(acc[c])

f32 sums of many rows are folded in f64, so that they lose nothing.  Several rows at a time save
loads and stores of accumulators, and memory is fetched from several places at once: rows of a block
of few columns are too short for the processor to fetch ahead along them.  The order of a sum is
that of the rows.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.gemm.hardware import cache_size
from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.folds import (
    combined,
    finished,
    initial,
    is_carried,
    prepared,
    reduction_of,
)
from graphc.codegen.lowering.nest import Nest, unique
from graphc.codegen.lowering.rows import flops_per_element
from graphc.codegen.lowering.space import Axes, Space
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Compute
from graphc.ir.sizes import Size, either, least
from graphc.ir.types import F32, F64, DType
from graphc.loops.nest import Buffer, Expr, Scalars
from graphc.loops.scalars import Pair, minimum


def streams(region: Graph, space: Space) -> list[Node]:
    """The operands and results of full size."""
    return [n for n in (*region.params, *unique(region.results)) if space.is_full(n)]


def block_columns(region: Graph, space: Space) -> int:
    """The columns that are folded at once: many where memory is waited for, which is fetched ahead
    along long rows; else as many as leave the first cache to what is read.
    """
    nbytes = sum(tensor_type(n).nbytes for n in streams(region, space))
    is_far = not isinstance(nbytes, Size) and nbytes >= tuned.fold_far
    return tuned.far_columns if is_far else tuned.fold_columns


def is_chosen(node: Node) -> bool:
    """Is an element computed at length, or one piece's of several, which is asked for each row?"""
    lower = node.op.lower
    return isinstance(lower, Compute) and (not lower.cheap or lower.pieces is not None)


class Columns(Nest):
    """Lowers groups that fold an outer axis; nothing but the finished folds is read afterwards."""

    first: Expr  # where the accumulators of a block begin

    def body(self) -> None:
        space, b = self.space, self.b
        self.first = b.integer(0)
        kept = [loop for loop in space.loops if not loop.reduced]
        reduced = [loop for loop in space.loops if loop.reduced]
        line = kept.pop()
        most = block_columns(self.region, space)
        blocks = -(-line.extent // most)
        self.units = math.prod(loop.extent for loop in kept) * blocks
        width = least(most, line.extent)
        self.elements_per_unit = width * math.prod(r.extent for r in reduced)
        folds = self.reductions()
        work = {n.id: self.accumulators(n, width) for n in folds}
        with ExitStack() as stack:
            values: dict[int, Expr] = {}
            start, stop = b.integer(0), b.integer(line.extent)
            if self.units != 1:
                unit = stack.enter_context(b.loop(self.units, "parallel"))
                extents = (*(loop.extent for loop in kept), blocks)
                *parts, block = split_index(b, unit, extents)
                values = {loop.place: p for loop, p in zip(kept, parts, strict=True)}
                start = block * most
                stop = minimum(start + most, line.extent)
            self.column_block(values, line, reduced, (start, stop), work)

    def accumulators(self, node: Node, width: int) -> list[Buffer]:
        """Memory for the folds of a block, with room for the whole vector that the last columns
        are part of: a masked store would keep the load of the next row waiting.
        """
        room = (tuned.fold_columns if isinstance(width, Size) else width) + tuned.most_lanes
        return [self.buffer(kind, room, "work", loose=True) for kind in self.held(node)]

    def held(self, node: Node) -> list[DType]:
        """The types of the accumulators of a reduction."""
        lower = reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        kinds = [v.dtype for v in initial(Scalars(), lower, element)]
        widens = lower.combine == "add" and self.is_long()
        return [F64 if k is F32 and widens else k for k in kinds]

    def is_long(self) -> bool:
        """Do columns have more rows than f32 adds up without a loss worth its doubled traffic?"""
        rows = math.prod(loop.extent for loop in self.space.loops if loop.reduced)
        return isinstance(rows, Size) or rows > tuned.narrow_rows

    def column_block(
        self,
        values: dict[int, Expr],
        line: Axes,
        reduced: list[Axes],
        bounds: tuple[Expr, Expr],
        work: dict[int, list[Buffer]],
    ) -> None:
        b = self.b
        self.start_columns(bounds, work)
        with ExitStack() as stack:
            inside = dict(values)
            for loop in reduced[:-1]:
                inside[loop.place] = stack.enter_context(b.loop(loop.extent))
            last = reduced[-1]
            count, spare = self.rows_at_once(line.extent), self.spare_bytes()
            if not isinstance(last.extent, Size):
                count = max(1, min(count, last.extent))
            if not isinstance(spare, Size) and spare <= 0:
                count = 1
            whole = (
                either(spare, last.extent - last.extent % count, 0) if count > 1 else last.extent
            )
            with b.loop(whole // count) as step:
                first = step * count
                rows = [{**inside, last.place: first + k} for k in range(count)]
                self.fold_rows(rows, line, bounds, work)
            if whole != last.extent:
                with b.loop(last.extent, "serial", whole) as r:
                    self.fold_rows([{**inside, last.place: r}], line, bounds, work)
        self.store_columns(values, line, bounds, work)

    def start_columns(self, bounds: tuple[Expr, Expr], work: dict[int, list[Buffer]]) -> None:
        b, (start, stop) = self.b, bounds
        with b.loop(stop, "vector", start) as c:
            slot = self.first + (c - start)
            for node in self.reductions():
                element = tensor_type(node.inputs[0]).dtype
                firsts = initial(b, reduction_of(node), element)
                for buffer, first in zip(work[node.id], firsts, strict=True):
                    b.store(buffer, slot, first.cast(buffer.dtype))

    def store_columns(
        self,
        values: dict[int, Expr],
        line: Axes,
        bounds: tuple[Expr, Expr],
        work: dict[int, list[Buffer]],
    ) -> None:
        """Finish the folds of a block, and store what depends on them alone."""
        b, (start, stop) = self.b, bounds
        with b.loop(stop, "vector", start) as c:
            slot = self.first + (c - start)
            for node in self.reductions():
                self.bind_column(node, work[node.id], slot)
            inside = {**values, line.place: c}
            for result in unique(self.region.results):
                if not self.space.is_full(result):
                    dims = tensor_type(result).dims
                    self.store(result, self.space.index(b, inside, dims))

    def rows_at_once(self, width: int) -> int:
        """Rows that one pass over a block folds, where that pays.

        Folds that compute more than they load gain nothing.  The accumulators of a block of one or
        two whole vectors lie in registers anyway.
        """
        if self.strict or self.is_costly() or width in tuned.register_columns:
            return 1
        return tuned.fold_rows if len(self.streams()) == 1 else tuned.fold_rows_of_many

    def spare_bytes(self) -> int:
        """Bytes beyond those from which on it pays to fold several rows: where memory is waited
        for, of simple folds earlier.
        """
        streams = self.streams()
        if not streams:
            return 1  # rows are read where their places say, which the processor waits for
        kinds = [tensor_type(n).dtype for n in streams]
        simple = all(reduction_of(n).combine == "add" for n in self.reductions())
        simple = simple and all(k.itemsize >= 4 and not k.is_complex for k in kinds)
        far = int(tuned.fold_large * cache_size(3))
        fewest = tuned.fold_small if simple else max(far, tuned.fold_small)
        return sum(tensor_type(n).nbytes for n in streams) - fewest

    def streams(self) -> list[Node]:
        return streams(self.region, self.space)

    def is_costly(self) -> bool:
        full = [n for n in self.region.nodes if self.space.is_full(n)]
        return any(is_chosen(n) or flops_per_element(n) >= tuned.staged_flops for n in full)

    def fold_rows(
        self,
        rows: list[dict[int, Expr]],
        line: Axes,
        bounds: tuple[Expr, Expr],
        work: dict[int, list[Buffer]],
    ) -> None:
        """Fold a block of some rows, and store what of them is stored in full."""
        b, (start, stop) = self.b, bounds
        full = [r for r in unique(self.region.results) if self.space.is_full(r)]
        with b.loop(stop, "vector", start) as c:
            places = [{**row, line.place: c} for row in rows]
            for node in self.reductions():
                indices = [self.space.index(b, p, self.space.full) for p in places]
                slot = self.first + (c - start)
                self.fold_column(node, work[node.id], indices, slot)
            for place in places:
                self.store_full(place, full)

    def fold_column(
        self, node: Node, buffers: list[Buffer], indices: list[tuple[Expr, ...]], slot: Expr
    ) -> None:
        """One element of a column after the other enters its accumulators."""
        b, lower = self.b, reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        rows: list[list[Expr]] = []
        for index in indices:
            value = prepared(b, lower, self.elements.at(node.inputs[0], index), element)
            parts = [value.re, value.im] if isinstance(value, Pair) else [value]
            rows.append([p.cast(buffer.dtype) for p, buffer in zip(parts, buffers, strict=True)])
        totals = [b.load(buffer, slot) for buffer in buffers]
        for parts in rows:
            if len(parts) == 2:
                total = combined(b, lower, Pair(*totals), Pair(*parts))
                totals = [total.re, total.im]
            else:
                totals = [b.op(lower.combine, totals[0], parts[0])]
        if is_carried(node):  # both parts are computed before either is stored
            totals = [b.read(b.register(total)) for total in totals]
        for buffer, new in zip(buffers, totals, strict=True):
            b.store(buffer, slot, new)

    def bind_column(self, node: Node, buffers: list[Buffer], slot: Expr) -> None:
        lower = reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        kinds = [v.dtype for v in initial(self.b, lower, element)]
        loads = [
            self.b.load(buffer, slot).cast(kind)
            for buffer, kind in zip(buffers, kinds, strict=True)
        ]
        made = finished(self.b, node, loads)
        self.elements.bind_value(node, made)


class OrderedColumns(Columns):
    """Columns that are rounded as on every other device: their f32 sums in f64, however few."""

    def is_long(self) -> bool:
        return True
