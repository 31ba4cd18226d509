"""Rows: the innermost axis is reduced, or nothing is. One pass over the row per level of
reductions.

    parallel for o in kept:                  softmax: pass 0    max
        for level p:                                  pass 1    e = exp(x - max), staged; sum
            for r in reduced: fold, stage, store      pass 2    e / sum

A value that is costly and needed in more than one pass is staged in scratch.  Of far rows the pass
that computes costly values finds the extremes of the next row meanwhile (`extremes_ahead`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from graphc.codegen.gemm.hardware import cache_size
from graphc.codegen.lowering.evaluate import (
    Element,
    load_element,
    split_index,
    store_element,
    tensor_type,
)
from graphc.codegen.lowering.folds import (
    combined,
    finished,
    initial,
    is_carried,
    prepared,
    reduction_of,
)
from graphc.codegen.lowering.nest import Nest, unique
from graphc.codegen.lowering.space import Axes
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Reduction, Scalar
from graphc.ir.sizes import Size, hint_of
from graphc.ir.types import F32, F64, DType
from graphc.loops.nest import Buffer, Expr, Register
from graphc.loops.scalars import Pair, minimum

LANES = 4  # of the shortest vector that is written


class Rows(Nest):
    """Lowers element-wise groups and groups whose innermost axis is reduced."""

    registers: dict[int, list[Register]]
    wide = False  # whether the loop IR itself says that sums of f32 are carried in f64
    unit: Expr | None = None  # the number of the row
    far: tuple[tuple[Buffer, int], ...] = ()  # what is asked for, how many rows ahead
    asks = True  # whether the last pass asks for anything
    asking = False  # whether this pass does
    ahead: tuple[tuple[Node, Register], ...] = ()  # extremes of the row with the number `ready`
    ready: Register

    def body(self) -> None:
        space, b = self.space, self.b
        self.registers = {}
        kept = [loop for loop in space.loops if not loop.reduced]
        inner = [loop for loop in space.loops if loop.reduced]
        if not self.reductions():
            inner, kept = kept[-1:], kept[:-1]
        if not self.reductions() and self.are_short(inner, kept):
            self.short_rows(kept[:-1], kept[-1], inner[0])
            return
        self.units = math.prod(loop.extent for loop in kept)
        self.elements_per_unit = math.prod(loop.extent for loop in inner)
        if (
            not kept
            and not self.reductions()
            and (
                isinstance(self.elements_per_unit, Size) or self.elements_per_unit > tuned.row_block
            )
        ):
            self.blocks(inner[0])
            return
        with ExitStack() as stack:
            values: dict[int, Expr] = {}
            if self.units != 1:
                self.expect(self.extremes_ahead(inner))
                unit = self.unit = stack.enter_context(b.loop(self.units, "parallel"))
                self.far = self.far_rows(inner)
                parts = split_index(b, unit, tuple(loop.extent for loop in kept))
                values = {loop.place: p for loop, p in zip(kept, parts, strict=True)}
            self.row(values, inner)

    def are_short(self, inner: list[Axes], kept: list[Axes]) -> bool:
        """Are rows so short that to find the place of each takes as long as they do?"""
        if len(kept) < 2:
            return False
        line, rows = inner[0].extent, kept[-1].extent
        if isinstance(line, Size) or isinstance(rows, Size) or self.are_far(inner):
            return False
        return line <= tuned.short_line and (line >= LANES or self.are_in_lanes(rows, line))

    def are_in_lanes(self, rows: int, line: int) -> bool:
        """Do the same elements of several rows make a vector?"""
        nodes = self.region.nodes
        plain = all(isinstance(n.op.lower, Scalar) or n.op.traits.reshapes for n in nodes)
        return plain and (line < LANES or rows >= tuned.rows_of_unit)

    def short_rows(self, kept: list[Axes], rows: Axes, line: Axes) -> None:
        """A block of rows of a few elements, or of all there are with one place before them. One
        element after the other of all rows, each in a lane, or one row after the other.
        """
        b = self.b
        most = max(1, tuned.row_block // line.extent)
        blocks = -(-rows.extent // most)
        extents = (*(loop.extent for loop in kept), blocks)
        self.units = math.prod(extents)
        self.elements_per_unit = min(most, rows.extent) * line.extent
        with b.loop(self.units, "parallel") as unit:
            *parts, block = split_index(b, unit, extents)
            values = {loop.place: p for loop, p in zip(kept, parts, strict=True)}
            start = block * most if blocks > 1 else b.integer(0)
            stop = minimum(start + most, rows.extent) if blocks > 1 else b.integer(rows.extent)
            if self.are_in_lanes(rows.extent, line.extent):
                with b.loop(stop, "vector", start) as row:
                    for k in range(line.extent):
                        inside = {**values, rows.place: row, line.place: b.integer(k)}
                        self.store_full(inside, self.region.results)
                return
            with b.loop(stop, "serial", start) as row, b.loop(line.extent, "vector") as i:
                self.store_full({**values, rows.place: row, line.place: i}, self.region.results)

    def blocks(self, loop: Axes) -> None:
        """One long loop in blocks, so that it can be split among threads."""
        b = self.b
        self.units, self.elements_per_unit = -(-loop.extent // tuned.row_block), tuned.row_block
        with b.loop(self.units, "parallel") as unit:
            start = unit * tuned.row_block
            stop = minimum(start + tuned.row_block, loop.extent)
            with b.loop(stop, "vector", start) as i:
                self.store_full({loop.place: i}, self.region.results)

    def far_rows(self, inner: list[Axes]) -> tuple[tuple[Buffer, int], ...]:
        """Operands and results whose rows follow each other in memory and come from afar.

        Processors fetch along a page by themselves, but with every row a new page begins, and
        what they have not asked for by then is waited for: the first pass needs all of a row.
        Costly values take longer than that, and of long rows little is new pages.
        """
        if not self.are_far(inner) or self.costly():
            return ()
        found = []
        for node in self.whole():
            nbytes = max(1, hint_of(inner[0].extent)) * tensor_type(node).dtype.itemsize
            if nbytes > tuned.ahead_in:
                return ()
            sources = [self.elements.buffers[node.id]] if node in self.region.params else []
            found += [(buffer, -(-tuned.ahead_in // nbytes)) for buffer in sources]
            found += [(b, -(-tuned.ahead_out // nbytes)) for b in self.outputs.get(node.id, ())]
        return tuple(found)

    def whole(self) -> list[Node]:
        """Operands and results that have an element for each of the space."""
        return [
            n
            for n in (*self.region.params, *unique(self.region.results))
            if self.space.is_full(n) and not tensor_type(n).dtype.is_complex
        ]

    def are_far(self, inner: list[Axes]) -> bool:
        """Do rows lie whole in memory, one after another, and come from afar?"""
        if not self.asks or len(inner) != 1 or inner[0] is not self.space.loops[-1]:
            return False
        return sum(n.nbytes for n in self.whole()) >= tuned.far_share * cache_size(3)

    def costly(self) -> list[Node]:
        full = filter(self.space.is_full, self.region.nodes)
        return [n for n in full if flops_per_element(n) >= tuned.staged_flops]

    def extremes_ahead(self, inner: list[Axes]) -> list[Node]:
        """What the first pass finds, if it is all extremes and the second one computes for long.

        Then the second pass finds that of the next row, and memory is read while it computes.
        """
        levels, known = levels_of(self.region), self.reductions()
        first, second = ([n for n in known if levels[n.inputs[0].id] == k] for k in (0, 1))
        extremes = all(reduction_of(n).combine in ("min", "max") for n in first)
        alone = all(levels[n.id] for n in (*self.read_per_element(), *self.region.results))
        worth = self.are_far(inner) and second and {levels[n.id] for n in self.costly()} == {1}
        return first if extremes and alone and worth else []

    def expect(self, nodes: list[Node]) -> None:
        """Declare, before the loop over rows, what passes from one to the next."""
        b = self.b
        if nodes:
            self.ready = b.register(b.integer(-1))
        for node in nodes:
            self.start(node)
        self.ahead = tuple((node, self.registers[node.id][0]) for node in nodes)

    def find_first(self, values: dict[int, Expr], inner: list[Axes]) -> None:
        """The extremes of this row, unless they are known from the row before."""
        b, nodes = self.b, [node for node, _ in self.ahead]
        assert self.unit is not None
        with b.when(b.read(self.ready) != self.unit):
            for node in nodes:
                self.start(node)
            with self.sweep(values, inner, nodes) as inside:
                for node in nodes:
                    self.fold(node, self.space.index(b, inside, self.space.full))
            self.pass_on(self.unit)
        for node, register in self.ahead:
            self.registers[node.id] = [b.register(b.read(register))]
            self.bind_folded(node)

    def pass_on(self, unit: Expr) -> None:
        """What was just found are the extremes of that row."""
        b = self.b
        for node, register in self.ahead:
            b.assign(register, b.read(self.registers[node.id][0]))
        b.assign(self.ready, unit)

    def next_row(self, inside: dict[int, Expr], inner: list[Axes]) -> tuple[Expr, ...]:
        """The index of this element in the next row, or in the last one."""
        b = self.b
        assert self.unit is not None
        unit = minimum(self.unit + 1, self.units - 1)
        kept = [loop for loop in self.space.loops if not loop.reduced]
        parts = split_index(b, unit, tuple(loop.extent for loop in kept))
        values = {loop.place: part for loop, part in zip(kept, parts, strict=True)}
        values |= {loop.place: inside[loop.place] for loop in inner}
        return self.space.index(b, values, self.space.full)

    def row(self, values: dict[int, Expr], inner: list[Axes]) -> None:
        """All passes over one row, then what is left once per row."""
        levels = levels_of(self.region)
        full = [r for r in unique(self.region.results) if self.space.is_full(r)]
        reductions = self.reductions()
        last = max(
            [levels[r.id] for r in full] + [levels[n.inputs[0].id] for n in reductions], default=-1
        )
        staged = self.staged(levels, full, reductions)
        once = self.read_per_element()
        for level in range(last + 1):
            folds = [n for n in reductions if levels[n.inputs[0].id] == level]
            stores = [r for r in full if levels[r.id] == level]
            stage = [n for n in staged if levels[n.id] == level]
            self.hoist(values, [n for n in once if levels[n.id] == level])
            if level == 0 and self.ahead:
                self.find_first(values, inner)
                continue
            self.asking = 0 < level == last and bool(self.far) and not folds
            self.one_pass(values, inner, folds, stores, stage, level == 1)
        rest = [r for r in unique(self.region.results) if not self.space.is_full(r)]
        for result in rest:
            index = self.space.index(self.b, values, tensor_type(result).dims)
            self.store(result, index)

    def read_per_element(self) -> list[Node]:
        """Values of one row that its elements read: computed before the pass, not in it."""
        read = {n for r in self.region.nodes if self.space.is_full(r) for n in r.inputs}
        return [
            n
            for n in self.region.nodes
            if n in read
            and isinstance(n.op.lower, Scalar)
            and not self.space.is_full(n)
            and tensor_type(n).dtype.compute is tensor_type(n).dtype
            and not tensor_type(n).dtype.is_complex
        ]

    def hoist(self, values: dict[int, Expr], nodes: list[Node]) -> None:
        for node in nodes:
            index = self.space.index(self.b, values, tensor_type(node).dims)
            made = self.b.read(self.b.register(self.elements.at(node, index)))
            self.elements.bind_value(node, made)

    def staged(
        self, levels: dict[int, int], full: list[Node], reductions: list[Node]
    ) -> list[Node]:
        """Costly full values that more than one pass needs, in order."""
        row = math.prod(loop.extent for loop in self.space.loops if loop.reduced)
        if hint_of(row) > tuned.staged_row:
            return []
        passes: dict[int, set[int]] = {}
        roots = [(r, levels[r.id]) for r in full]
        roots += [(n.inputs[0], levels[n.inputs[0].id]) for n in reductions]
        pending = list(roots)
        while pending:
            node, level = pending.pop()
            seen = passes.setdefault(node.id, set())
            if level in seen or node.op.traits.parameter or not self.space.is_full(node):
                continue
            seen.add(level)
            pending.extend((source, level) for source in node.inputs)
        return [
            n
            for n in self.region.nodes
            if len(passes.get(n.id, ())) > 1 and flops_per_element(n) >= tuned.staged_flops
        ]

    def one_pass(
        self,
        values: dict[int, Expr],
        inner: list[Axes],
        folds: list[Node],
        stores: list[Node],
        stage: list[Node],
        second: bool = False,
    ) -> None:
        """Fold, stage and store everything that is ready at one level in one sweep over the row.

        The second pass also folds what is found a row ahead.
        """
        if not (folds or stores or stage):
            return
        ahead = [node for node, _ in self.ahead if second]
        for node in (*folds, *ahead):
            self.start(node)
        buffers = {n.id: self.stage_buffer(n) for n in stage}
        with self.sweep(values, inner, folds) as inside:
            index = self.space.index(self.b, inside, self.space.full)
            for node in stage:
                self.stage(node, buffers[node.id], index, inside)
            for node in folds:
                self.fold(node, index)
            for node in ahead:
                self.fold(node, self.next_row(inside, inner))
            self.store_full(inside, stores)
        if ahead and self.unit is not None:
            self.pass_on(self.unit + 1)
        for node in stage:
            self.bind_staged(node, buffers[node.id])
        for node in folds:
            self.bind_folded(node)

    @contextmanager
    def sweep(
        self, values: dict[int, Expr], inner: list[Axes], folds: list[Node]
    ) -> Iterator[dict[int, Expr]]:
        """Loops over a row; the index variables inside of them."""
        innermost = "serial" if any(map(is_carried, folds)) else "vector"
        with ExitStack() as stack:
            inside = dict(values)
            for loop in inner:
                kind = innermost if loop is inner[-1] else "serial"
                opened = self.strips(loop, kind) if self.asking else self.b.loop(loop.extent, kind)
                inside[loop.place] = stack.enter_context(opened)
            yield inside

    @contextmanager
    def strips(self, loop: Axes, kind: str) -> Iterator[Expr]:
        """A loop over a row in equal parts; before each, its place in rows to come is asked for."""
        b, size = self.b, tuned.strip
        if self.unit is None or loop.extent % size:
            with b.loop(loop.extent, kind) as i:
                yield i
            return
        with b.loop(loop.extent // size) as part:
            start = part * size
            for buffer, rows in self.far:
                place = (self.unit + rows) * loop.extent
                b.prefetch(buffer, place + start, size)
            with b.loop(size, kind) as i:
                yield start + i

    # -- staging

    def stage_buffer(self, node: Node) -> Buffer:
        kind = tensor_type(node)
        size = math.prod(loop.extent for loop in self.space.loops if loop.reduced)
        return self.buffer(kind.dtype, size, "work")

    def row_position(self, values: dict[int, Expr]) -> Expr:
        """The position inside the row, from the variables of the reduced axes."""
        position = self.b.integer(0)
        for loop in self.space.loops:
            if loop.reduced:
                position = position * loop.extent + values[loop.place]
        return position

    def stage(
        self, node: Node, buffer: Buffer, index: tuple[Expr, ...], values: dict[int, Expr]
    ) -> None:
        value = self.elements.at(node, index)
        store_element(self.b, buffer, self.row_position(values), value)
        self.elements.bind_value(node, value)

    def bind_staged(self, node: Node, buffer: Buffer) -> None:
        places = [loop for loop in self.space.loops if loop.reduced]

        def read(index: tuple[Expr, ...]) -> Element:
            inside = {loop.place: index[loop.place] for loop in places}
            return load_element(self.b, buffer, self.row_position(inside), tensor_type(node).dtype)

        self.elements.bind(node, read)

    # -- folding

    def held(self, node: Node, accumulator: DType) -> DType:
        """The type that an accumulator of a reduction is carried in."""
        wide = self.wide and accumulator is F32 and reduction_of(node).combine == "add"
        return F64 if wide else accumulator

    def start(self, node: Node) -> None:
        """Declare the accumulators of a reduction."""
        b, lower = self.b, reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        with b.owned(node.id):
            firsts = initial(b, lower, element)
            held = [v.cast(self.held(node, v.dtype)) for v in firsts]
            self.registers[node.id] = [b.register(value) for value in held]

    def fold(self, node: Node, index: tuple[Expr, ...]) -> None:
        b, lower = self.b, reduction_of(node)
        element = tensor_type(node.inputs[0]).dtype
        registers = self.registers[node.id]
        with b.owned(node.id):
            value = prepared(b, lower, self.elements.at(node.inputs[0], index), element)
        if not isinstance(value, Pair):
            b.update(registers[0], lower.combine, value.cast(registers[0].dtype))
        elif lower.combine == "add":
            for register, part in zip(registers, (value.re, value.im), strict=True):
                b.update(register, "add", part.cast(register.dtype))
        else:
            # Registers are read where a statement uses them: both parts are computed before either
            # is set.
            total = combined(b, lower, Pair(*(b.read(r) for r in registers)), value)
            imaginary = b.register(total.im)
            b.assign(registers[0], total.re)
            b.assign(registers[1], b.read(imaginary))

    def bind_folded(self, node: Node) -> None:
        """From here on the reduction is read from its accumulators, finished."""
        b = self.b
        element = tensor_type(node.inputs[0]).dtype
        kinds = [v.dtype for v in initial(b, reduction_of(node), element)]
        pairs = zip(self.registers[node.id], kinds, strict=True)
        with b.owned(node.id):
            made = finished(b, node, [b.read(r).cast(kind) for r, kind in pairs])
            parts = [made.re, made.im] if isinstance(made, Pair) else [made]
            if any(
                part.op != "reg" for part in parts
            ):  # finished once per row, not once per reader
                parts = [b.read(b.register(part)) for part in parts]
        self.elements.bind_value(node, Pair(*parts) if len(parts) == 2 else parts[0])


def levels_of(region: Graph) -> dict[int, int]:
    """For each node how many reductions must be complete before one element of it is known."""
    levels = {p.id: 0 for p in region.params}
    for node in region.nodes:
        level = max((levels[n.id] for n in node.inputs), default=0)
        levels[node.id] = level + isinstance(node.op.lower, Reduction)
    return levels


def flops_per_element(node: Node) -> float:
    size = hint_of(tensor_type(node).size)
    return node.op.estimate(node)[0] / size if size and isinstance(node.op.lower, Scalar) else 0.0
