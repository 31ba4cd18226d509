"""Columns: an outer axis is reduced and the innermost is kept. A block of columns is folded at
once.

    parallel for block of columns:
        for c in block: acc[c] = identity
        for r in reduced:  for c in block:  acc[c] = acc[c] + x[r, c]
        for c in block: store finish(acc[c])

f32 sums are folded in f64, so that long columns lose nothing.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.loops import Buffer, Expr, Scalars
from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.folds import combined, finished, initial, prepared, reduction_of
from graphc.codegen.lowering.nest import Nest, unique
from graphc.codegen.lowering.space import Axes
from graphc.ir.graph import Node
from graphc.ir.types import F32, F64
from graphc.ops.registry import Pair

COLUMNS = 512  # columns folded at once


class Columns(Nest):
    """Lowers groups that fold an outer axis; nothing but the finished folds is read afterwards."""

    def body(self) -> None:
        space, b = self.space, self.b
        kept = [loop for loop in space.loops if not loop.reduced]
        reduced = [loop for loop in space.loops if loop.reduced]
        line = kept.pop()
        blocks = -(-line.extent // COLUMNS)
        self.units = math.prod(loop.extent for loop in kept) * blocks
        self.elements_per_unit = min(COLUMNS, line.extent) * math.prod(r.extent for r in reduced)
        width = min(COLUMNS, line.extent)
        folds = self.reductions()
        work = {n.id: self.accumulators(n, width) for n in folds}
        with ExitStack() as stack:
            values: dict[int, Expr] = {}
            start, stop = b.integer(0), b.integer(line.extent)
            if self.units > 1:
                unit = stack.enter_context(b.loop(self.units, "parallel"))
                extents = (*(loop.extent for loop in kept), blocks)
                *parts, block = split_index(b, unit, extents)
                values = {loop.place: p for loop, p in zip(kept, parts, strict=True)}
                start = b.mul(block, b.integer(COLUMNS))
                stop = b.op("min", b.add(start, b.integer(COLUMNS)), b.integer(line.extent))
            self.column_block(values, line, reduced, (start, stop), work)

    def accumulators(self, node: Node, width: int) -> list[Buffer]:
        lower = reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        kinds = [v.dtype for v in initial(Scalars(), lower, element)]
        wide = [F64 if k is F32 and lower.combine == "add" else k for k in kinds]
        return [self.buffer(k, width, "work") for k in wide]

    def column_block(
        self, values: dict[int, Expr], line: Axes, reduced: list[Axes],
        bounds: tuple[Expr, Expr], work: dict[int, list[Buffer]],
    ) -> None:  # fmt: skip
        b, (start, stop) = self.b, bounds
        folds = self.reductions()
        with b.loop(stop, "vector", start) as c:
            slot = b.sub(c, start)
            for node in folds:
                element = tensor_type(node.inputs[0]).dtype
                firsts = initial(b, reduction_of(node), element)
                for buffer, first in zip(work[node.id], firsts, strict=True):
                    b.store(buffer, slot, b.cast(first, buffer.dtype))
        full = [r for r in unique(self.region.results) if self.space.is_full(r)]
        with ExitStack() as stack:
            inside = dict(values)
            for loop in reduced:
                inside[loop.place] = stack.enter_context(b.loop(loop.extent))
            with b.loop(stop, "vector", start) as c:
                inside[line.place] = c
                index = self.space.index(b, inside, self.space.full)
                for node in folds:
                    self.fold_column(node, work[node.id], index, b.sub(c, start))
                self.store_full(inside, full)
        with b.loop(stop, "vector", start) as c:
            slot = b.sub(c, start)
            for node in folds:
                self.bind_column(node, work[node.id], slot)
            inside = {**values, line.place: c}
            for result in unique(self.region.results):
                if not self.space.is_full(result):
                    dims = tensor_type(result).dims
                    self.store(result, self.space.index(b, inside, dims))

    def fold_column(
        self, node: Node, buffers: list[Buffer], index: tuple[Expr, ...], slot: Expr
    ) -> None:
        b, lower = self.b, reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        value = prepared(b, lower, self.elements.at(node.inputs[0], index), element)
        parts = [value.re, value.im] if isinstance(value, Pair) else [value]
        parts = [b.cast(p, buffer.dtype) for p, buffer in zip(parts, buffers, strict=True)]
        olds = [b.load(buffer, slot) for buffer in buffers]
        if len(parts) == 2:
            total = combined(b, lower, Pair(*olds), Pair(*parts))
            totals = [total.re, total.im]
        else:
            totals = [b.op(lower.combine, olds[0], parts[0])]
        for buffer, new in zip(buffers, totals, strict=True):
            b.store(buffer, slot, new)

    def bind_column(self, node: Node, buffers: list[Buffer], slot: Expr) -> None:
        lower = reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        kinds = [v.dtype for v in initial(self.b, lower, element)]
        loads = [
            self.b.cast(self.b.load(buffer, slot), kind)
            for buffer, kind in zip(buffers, kinds, strict=True)
        ]
        made = finished(self.b, node, loads)
        self.elements.bind_value(node, made)
