"""From a fused region to a loop kernel.

Rows (the innermost axis is reduced, or nothing is): one pass over the row per level of reductions.

    parallel for o in kept:                  softmax: phase 0   max
        for level p:                                  phase 1   e = exp(x - max), staged; sum
            for r in reduced: fold, stage, store      phase 2   e / sum

Columns (the innermost axis is kept): a block of columns is folded at once, rows in the outer loop.

    parallel for block of columns:
        for r in reduced:  for c in block:  acc[c] = acc[c] + x[r, c]
        for c in block: store finish(acc[c])

Buffers of the kernel: region parameters, results, then scratch ("work").  A value that is costly and needed
in more than one pass is staged in scratch (or in the result buffer it goes to anyway).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from graphc.codegen.evaluate import (
    Element,
    Elements,
    flat_index,
    load_element,
    split_index,
    store_element,
    tensor_type,
    to_compute,
    to_storage,
)
from graphc.codegen.loops import Buffer, Expr, Kernel, Register, Scalars
from graphc.codegen.space import Axes, Space, space_of
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Reduction, Scalar
from graphc.ir.types import F32, F64, I32, I64, BOOL, DType
from graphc.ops.registry import Pair

BLOCK = 4096  # elements per unit of a single long loop
COLUMNS = 512  # columns folded at once
STAGE_FLOPS = 8.0  # a value of so many flops is staged rather than computed in two passes
STAGE_LIMIT = 1 << 16  # elements of a staged row
GRAIN_ELEMENTS = 16384  # work that pays for waking a thread


class LoopLowering:
    """Builds the kernel of one region; `lower` is the entry."""

    def __init__(self, region: Graph, name: str, strict: bool) -> None:
        self.region = region
        self.name = name
        self.strict = strict
        self.b = Scalars()
        self.elements = Elements(self.b)
        self.space: Space = space_of(region)
        self.buffers: list[Buffer] = []
        self.outputs: dict[int, list[Buffer]] = {}
        self.registers: dict[int, list[Register]] = {}
        self.units = 1
        self.elements_per_unit = 1

    # -- buffers

    def buffer(self, element: DType, size: int, mode: str) -> Buffer:
        factor = 2 if element.is_complex else 1
        made = Buffer(len(self.buffers), element.real, size * factor, mode)
        self.buffers.append(made)
        return made

    def declare(self) -> None:
        for param in self.region.params:
            if tensor_type(param).dtype is not None:
                kind = tensor_type(param)
                self.elements.bind_buffer(param, self.buffer(kind.dtype, kind.size, "in"))
        for result in self.region.results:
            kind = tensor_type(result)
            made = self.buffer(kind.dtype, kind.size, "out")
            self.outputs.setdefault(result.id, []).append(made)

    # -- the kernel

    def lower(self) -> Kernel:
        self.declare()
        if self.is_columns():
            self.columns()
        else:
            self.rows()
        return Kernel(
            self.name, tuple(self.buffers), 0, self.b.body, units=self.units, strict=self.strict
        )

    def is_columns(self) -> bool:
        """The innermost loop is over a kept axis, and every fold can run on a block of them."""
        loops = self.space.loops
        reductions = self.reductions()
        return (
            bool(reductions)
            and bool(loops)
            and not loops[-1].reduced
            and any(loop.reduced for loop in loops)
            and all(can_fold_columns(n) for n in reductions)
        )

    def reductions(self) -> list[Node]:
        return [n for n in self.region.nodes if isinstance(n.op.lower, Reduction)]

    # -- rows

    def rows(self) -> None:
        space, b = self.space, self.b
        kept = [loop for loop in space.loops if not loop.reduced]
        inner = [loop for loop in space.loops if loop.reduced]
        if not self.reductions():
            inner, kept = kept[-1:], kept[:-1]
        self.units = product(loop.extent for loop in kept)
        self.elements_per_unit = product(loop.extent for loop in inner)
        if not kept and not self.reductions() and self.elements_per_unit > BLOCK:
            self.blocks(inner[0])
            return
        with ExitStack() as stack:
            values: dict[int, Expr] = {}
            if self.units > 1:
                unit = stack.enter_context(b.loop(self.units, "parallel"))
                parts = split_index(b, unit, tuple(loop.extent for loop in kept))
                values = {loop.place: p for loop, p in zip(kept, parts, strict=True)}
            self.row(values, inner)

    def blocks(self, loop: Axes) -> None:
        """One long loop in blocks, so that it can be split among threads."""
        b = self.b
        self.units, self.elements_per_unit = -(-loop.extent // BLOCK), BLOCK
        with b.loop(self.units, "parallel") as unit:
            start = b.mul(unit, b.integer(BLOCK))
            stop = b.op("min", b.add(start, b.integer(BLOCK)), b.integer(loop.extent))
            with b.loop(stop, "vector", start) as i:
                self.store_full({loop.place: i}, list(self.region.results))

    def row(self, values: dict[int, Expr], inner: list[Axes]) -> None:
        """All passes over one row, then what is left once per row."""
        levels = levels_of(self.region)
        full = [r for r in unique(self.region.results) if self.space.is_full(r)]
        reductions = self.reductions()
        last = max([levels[r.id] for r in full] + [levels[n.inputs[0].id] for n in reductions], default=-1)
        staged = self.staged(levels, full, reductions)
        for level in range(last + 1):
            folds = [n for n in reductions if levels[n.inputs[0].id] == level]
            stores = [r for r in full if levels[r.id] == level]
            stage = [n for n in staged if levels[n.id] == level]
            self.one_pass(values, inner, folds, stores, stage)
        rest = [r for r in unique(self.region.results) if not self.space.is_full(r)]
        for result in rest:
            index = self.space.index(self.b, values, tensor_type(result).dims)
            self.store(result, index)

    def staged(self, levels: dict[int, int], full: list[Node], reductions: list[Node]) -> list[Node]:
        """Costly full values that more than one pass needs, in order."""
        if product(loop.extent for loop in self.space.loops if loop.reduced) > STAGE_LIMIT:
            return []
        passes: dict[int, set[int]] = {}
        roots = [(r, levels[r.id]) for r in full]
        roots += [(n.inputs[0], levels[n.inputs[0].id]) for n in reductions]
        pending = list(roots)
        while pending:
            node, level = pending.pop()
            seen = passes.setdefault(node.id, set())
            if level in seen or node.op.name == "param" or not self.space.is_full(node):
                continue
            seen.add(level)
            pending.extend((source, level) for source in node.inputs)
        return [
            n for n in self.region.nodes
            if len(passes.get(n.id, ())) > 1 and flops_per_element(n) >= STAGE_FLOPS
        ]  # fmt: skip

    def one_pass(
        self, values: dict[int, Expr], inner: list[Axes], folds: list[Node], stores: list[Node],
        stage: list[Node],
    ) -> None:  # fmt: skip
        """Fold, stage and store everything that is ready at one level in one sweep over the row."""
        if not (folds or stores or stage):
            return
        b = self.b
        for node in folds:
            self.start(node)
        indexed = any(is_indexed(n) for n in folds)
        buffers = {n.id: self.stage_buffer(n) for n in stage}
        with ExitStack() as stack:
            inside = dict(values)
            for k, loop in enumerate(inner):
                kind = "vector" if k == len(inner) - 1 and not indexed else "serial"
                inside[loop.place] = stack.enter_context(b.loop(loop.extent, kind))
            index = self.space.index(b, inside, self.space.full)
            for node in stage:
                self.stage(node, buffers[node.id], index, inside)
            for node in folds:
                self.fold(node, index)
            self.store_full(inside, stores)
        for node in stage:
            self.bind_staged(node, buffers[node.id], inside)
        for node in folds:
            self.bind_folded(node)

    # -- staging

    def stage_buffer(self, node: Node) -> Buffer:
        kind = tensor_type(node)
        size = product(loop.extent for loop in self.space.loops if loop.reduced)
        return self.buffer(kind.dtype, size, "work")

    def row_position(self, values: dict[int, Expr]) -> Expr:
        """The position inside the row, from the variables of the reduced axes."""
        position = self.b.integer(0)
        for loop in self.space.loops:
            if loop.reduced:
                position = self.b.add(
                    self.b.mul(position, self.b.integer(loop.extent)), values[loop.place]
                )
        return position

    def stage(self, node: Node, buffer: Buffer, index: tuple[Expr, ...], values: dict[int, Expr]) -> None:
        value = self.elements.at(node, index)
        store_element(self.b, buffer, self.row_position(values), value)
        self.elements.bind(node, lambda _: value)

    def bind_staged(self, node: Node, buffer: Buffer, values: dict[int, Expr]) -> None:
        places = [loop for loop in self.space.loops if loop.reduced]

        def read(index: tuple[Expr, ...]) -> Element:
            inside = {loop.place: index[loop.place] for loop in places}
            return load_element(self.b, buffer, self.row_position(inside), tensor_type(node).dtype)

        self.elements.bind(node, read)

    # -- folding

    def start(self, node: Node) -> None:
        """Declare the accumulators of a reduction."""
        b, lower = self.b, reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        self.registers[node.id] = [b.register(v) for v in initial(b, lower, element)]

    def fold(self, node: Node, index: tuple[Expr, ...]) -> None:
        b, lower = self.b, reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        registers = self.registers[node.id]
        value = prepared(b, lower, self.elements.at(node.inputs[0], index), element)
        if is_indexed(node):
            self.fold_indexed(lower, registers, value, index[node.attrs["axes"][0]])
        elif not isinstance(value, Pair):
            b.update(registers[0], lower.combine, value)
        elif lower.combine == "add":
            b.update(registers[0], "add", value.re)
            b.update(registers[1], "add", value.im)
        else:
            # Registers are read where a statement uses them: both parts are computed before either is set.
            total = combined(b, lower, Pair(*(b.read(r) for r in registers)), value)
            imaginary = b.register(total.im)
            b.assign(registers[0], total.re)
            b.assign(registers[1], b.read(imaginary))

    def fold_indexed(
        self, lower: Reduction, registers: list[Register], value: Expr, position: Expr
    ) -> None:
        b = self.b
        best = b.read(registers[0])
        better = b.compare("gt" if lower.combine == "argmax" else "lt", value, best)
        if value.dtype.is_float:
            fresh = b.op("and", b.compare("ne", value, value), b.compare("eq", best, best))
            better = b.op("or", better, fresh)
        # The position first: both look at the best value so far.
        b.assign(registers[1], b.select(better, position, b.read(registers[1])))
        b.assign(registers[0], b.select(better, value, best))

    def bind_folded(self, node: Node) -> None:
        """From here on the reduction is read from its accumulators, finished."""
        b, registers = self.b, self.registers[node.id]
        values = [b.read(r) for r in registers]
        made = self.finished(node, values[1:] if is_indexed(node) else values)
        self.elements.bind(node, lambda _: made)

    def finished(self, node: Node, values: list[Expr]) -> Element:
        b, lower, kind = self.b, reduction_of(node), tensor_type(node)
        total: Any = Pair(*values) if len(values) == 2 else values[0]
        source = tensor_type(node.inputs[0])
        count = product(source.dims[a] for a in node.attrs["axes"])
        if lower.finish is not None:
            total = lower.finish(b, total, count, source.dtype)
        if not isinstance(total, Pair):
            total = b.cast(total, kind.dtype.compute)
        return to_storage(b, total, kind.dtype)

    # -- storing

    def store_full(self, values: dict[int, Expr], results: list[Node]) -> None:
        for result in unique(results):
            self.store(result, self.space.index(self.b, values, tensor_type(result).dims))

    def store(self, result: Node, index: tuple[Expr, ...]) -> None:
        value = self.elements.at(result, index)
        position = flat_index(self.b, index, tensor_type(result).dims)
        for buffer in self.outputs[result.id]:
            store_element(self.b, buffer, position, value)

    # -- columns

    def columns(self) -> None:
        space, b = self.space, self.b
        kept = [loop for loop in space.loops if not loop.reduced]
        reduced = [loop for loop in space.loops if loop.reduced]
        line = kept.pop()
        blocks = -(-line.extent // COLUMNS)
        self.units = product(loop.extent for loop in kept) * blocks
        self.elements_per_unit = min(COLUMNS, line.extent) * product(r.extent for r in reduced)
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
        made = self.finished(node, loads)
        self.elements.bind(node, lambda _: made)


# ------------------------------------------------------------------------------------ small rules


def product(extents: Any) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def unique(nodes: Any) -> list[Node]:
    return list(dict.fromkeys(nodes))


def reduction_of(node: Node) -> Reduction:
    assert isinstance(node.op.lower, Reduction)
    return node.op.lower


def is_indexed(node: Node) -> bool:
    return reduction_of(node).combine in ("argmax", "argmin")


def can_fold_columns(node: Node) -> bool:
    return not is_indexed(node)


def levels_of(region: Graph) -> dict[int, int]:
    """For each node how many reductions must be complete before one element of it is known."""
    levels = {p.id: 0 for p in region.params}
    for node in region.nodes:
        level = max((levels[n.id] for n in node.inputs), default=0)
        levels[node.id] = level + isinstance(node.op.lower, Reduction)
    return levels


def flops_per_element(node: Node) -> float:
    if not isinstance(node.op.lower, Scalar) or node.op.cost is None:
        return 0.0
    size = tensor_type(node).size
    return node.op.cost(node)[0] / size if size else 0.0


def initial(b: Scalars, lower: Reduction, element: DType) -> list[Expr]:
    """The start values of the accumulators."""
    accumulator = lower.accumulator(element)
    if lower.combine in ("argmax", "argmin"):
        kind = I32 if element is BOOL else element.compute
        return [b.const(lower.identity(element), kind), b.const(0, I64)]
    if accumulator.is_complex:
        start = complex(lower.identity(element))
        return [b.const(part, accumulator.real) for part in (start.real, start.imag)]
    return [b.const(lower.identity(element), accumulator)]


def prepared(b: Scalars, lower: Reduction, value: Element, element: DType) -> Element:
    """An element as it is folded: in the accumulator's type, after `prepare`."""
    value = to_compute(b, value, element)
    if lower.combine in ("argmax", "argmin"):
        return b.cast(value, I32) if element is BOOL else value
    if lower.prepare is not None:
        value = lower.prepare(b, value)
    accumulator = lower.accumulator(element)
    if isinstance(value, Pair):
        return Pair(b.cast(value.re, accumulator.real), b.cast(value.im, accumulator.real))
    if accumulator.is_complex:
        return Pair(b.cast(value, accumulator.real), b.const(0.0, accumulator.real))
    return b.cast(value, accumulator)


def combined(b: Scalars, lower: Reduction, x: Pair, y: Pair) -> Pair:
    """Fold two complex partial results."""
    if lower.combine == "add":
        return Pair(b.add(x.re, y.re), b.add(x.im, y.im))
    assert lower.combine == "mul"
    re = b.sub(b.mul(x.re, y.re), b.mul(x.im, y.im))
    return Pair(re, b.add(b.mul(x.re, y.im), b.mul(x.im, y.re)))


def lower_loops(region: Graph, name: str, *, strict: bool = False) -> tuple[Kernel, int]:
    """The loop kernel of a region and the grain (units worth a thread of their own)."""
    lowering = LoopLowering(region, name, strict)
    kernel = lowering.lower()
    grain = max(1, GRAIN_ELEMENTS // max(lowering.elements_per_unit, 1))
    return kernel, grain


Rule = Callable[..., Element]
