"""Ordered: rows whose sums and products are made in one order, on whatever machine.

Element i of a row, counted in row-major order over all reduced axes, belongs to lane i mod 256. A
lane adds its elements one after another; at the end the lanes are folded in halves:

    for k in 0..4:  vector for l in 0..256:  lane[l] = lane[l] + x[256 * k + l]
                    vector for l in 0..128:  lane[l] = lane[l] + lane[l + 128]
                    vector for l in 0..64:   lane[l] = lane[l] + lane[l + 64]         and so on

Of every 4096 elements, from the first on, a lane adds its 16 f32 in f32; the totals of these, and
halves, are added in f64.  Lanes that a short row does not reach take no part.  The order depends on
the shape of the row alone: not on vectors, threads, what else the kernel computes, or how axes are
merged.  Minima, maxima and integers need no order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from graphc.codegen.lowering.evaluate import tensor_type
from graphc.codegen.lowering.folds import initial, is_carried, prepared, reduction_of
from graphc.codegen.lowering.rows import Rows
from graphc.codegen.lowering.space import Axes
from graphc.ir.graph import Node
from graphc.ir.types import DType
from graphc.loops.nest import Buffer, Expr
from graphc.loops.scalars import Pair, maximum, minimum

LANES = 256
STRETCH = 16 * LANES  # elements whose f32 are added in f32
NEUTRAL = {"add": -0.0, "mul": 1.0}  # x + -0.0 is x for every x, the zeros included


def has_order(node: Node) -> bool:
    """Does the result of a reduction depend on the order in which its elements are folded?"""
    source = tensor_type(node.inputs[0])
    accumulator = reduction_of(node).accumulator(source.dtype)
    floating = accumulator.is_float or accumulator.is_complex
    folds = reduction_of(node).combine in NEUTRAL and source.size > 0
    return folds and floating and not is_carried(node)


class Ordered(Rows):
    """Lowers groups whose innermost axis is reduced, or none is, with lanes in scratch memory."""

    wide = True
    lanes: dict[int, list[Buffer]]
    totals: dict[int, list[Buffer]]  # of lanes, over the stretches so far
    lane: Expr

    @property
    def row_length(self) -> int:
        return math.prod(loop.extent for loop in self.space.loops if loop.reduced)

    def body(self) -> None:
        self.lanes, self.totals = {}, {}
        super().body()

    @contextmanager
    def sweep(
        self, values: dict[int, Expr], inner: list[Axes], folds: list[Node]
    ) -> Iterator[dict[int, Expr]]:
        """Loops over a row, `self.lane` being the lane of the element; then the lanes' totals."""
        if not any(map(has_order, folds)):
            with super().sweep(values, inner, folds) as inside:
                yield inside
            return
        sums = [node for node in folds if has_order(node)]
        kind = "serial" if any(map(is_carried, folds)) else "vector"
        with ExitStack() as stack:
            inside = dict(values)
            for loop in inner[:-1]:
                inside[loop.place] = stack.enter_context(self.b.loop(loop.extent))
            if inner:
                self.row_end(inside, inner, sums, kind, stack)
            else:
                self.lane = self.b.integer(0)
            yield inside
        self.fold_lanes(sums)

    def row_end(
        self,
        inside: dict[int, Expr],
        inner: list[Axes],
        sums: list[Node],
        kind: str,
        stack: ExitStack,
    ) -> None:
        """The loops over the innermost axis: in blocks that begin with the first lane."""
        b, last = self.b, inner[-1]
        before = self.row_position({**inside, last.place: b.integer(0)})  # elements, so far
        extent, lanes = b.integer(last.extent), b.integer(LANES)
        if self.row_length <= LANES:
            i = stack.enter_context(b.loop(extent, kind))
            inside[last.place], self.lane = i, before + i
        elif len(inner) == 1 or last.extent % LANES == 0:
            block = stack.enter_context(b.loop(-(-last.extent // LANES)))
            start = block * lanes
            stop = minimum(extent - start, lanes) if last.extent % LANES else lanes
            self.begin_stretch(sums, before + start)
            self.lane = stack.enter_context(b.loop(stop, kind))
            inside[last.place] = start + self.lane
        else:
            after = before + extent
            stop = (after + (LANES - 1)) // lanes
            block = stack.enter_context(b.loop(stop, "serial", before // lanes))
            start = block * lanes
            self.begin_stretch(sums, start, before <= start)
            low = maximum(before, start) - start
            high = minimum(after - start, lanes)
            self.lane = stack.enter_context(b.loop(high, kind, low))
            inside[last.place] = start + self.lane - before

    # -- folding

    def start(self, node: Node) -> None:
        """Make the lanes of a reduction; those that are filled more than once begin neutral."""
        if not has_order(node):
            super().start(node)
            return
        b = self.b
        firsts = initial(b, reduction_of(node), tensor_type(node.inputs[0]).dtype)
        count = min(LANES, self.row_length)
        self.lanes[node.id] = [self.buffer(v.dtype, count, "work") for v in firsts]
        wide = [self.held(node, v.dtype) for v in firsts]
        if self.row_length > STRETCH and wide != [v.dtype for v in firsts]:
            self.totals[node.id] = [self.buffer(kind, count, "work") for kind in wide]
        if self.row_length > LANES:
            with b.loop(count, "vector") as lane:
                for buffer in (*self.lanes[node.id], *self.totals.get(node.id, ())):
                    b.store(buffer, lane, self.neutral(node, buffer.dtype))

    def neutral(self, node: Node, kind: DType) -> Expr:
        return self.b.const(NEUTRAL[reduction_of(node).combine], kind)

    def begin_stretch(self, nodes: list[Node], place: Expr, first: Expr | None = None) -> None:
        """At the first block of a stretch, keep what the lanes hold.

        `place` is the position of the block in the row; a block that is visited twice is new to
        the visit that is `first`.
        """
        b = self.b
        if not any(node.id in self.totals for node in nodes):
            return
        begins = place % STRETCH == 0
        with b.when(begins if first is None else begins & first):
            self.keep_lanes(nodes)

    def keep_lanes(self, nodes: list[Node]) -> None:
        """Add the lanes to their totals; they begin anew."""
        b = self.b
        with b.loop(LANES, "vector") as lane:
            for node in nodes:
                pairs = zip(self.lanes[node.id], self.totals.get(node.id, ()), strict=False)
                for lanes, total in pairs:
                    term = b.load(lanes, lane).cast(total.dtype)
                    b.store(total, lane, b.load(total, lane) + term)
                    b.store(lanes, lane, self.neutral(node, lanes.dtype))

    def fold(self, node: Node, index: tuple[Expr, ...]) -> None:
        if not has_order(node):
            super().fold(node, index)
            return
        b, lower, source = self.b, reduction_of(node), node.inputs[0]
        value = prepared(b, lower, self.elements.at(source, index), tensor_type(source).dtype)
        parts = [value.re, value.im] if isinstance(value, Pair) else [value]
        for buffer, part in zip(self.lanes[node.id], parts, strict=True):
            term = part
            if self.row_length > LANES:
                term = b.op(lower.combine, b.load(buffer, self.lane), term)
            b.store(buffer, self.lane, term)

    def fold_lanes(self, nodes: list[Node]) -> None:
        """Combine the lanes of all sums of a pass, the upper half with the lower."""
        b, count = self.b, min(LANES, self.row_length)
        if any(node.id in self.totals for node in nodes):
            self.keep_lanes(nodes)
            self.lanes |= {n.id: self.totals[n.id] for n in nodes if n.id in self.totals}
        while count > 1:
            half = 1 << (count - 1).bit_length() - 1
            moved = {n.id: [self.halves(n, a, half) for a in self.lanes[n.id]] for n in nodes}
            moves = [
                (reduction_of(node).combine, lanes, target)
                for node in nodes
                for lanes, target in zip(self.lanes[node.id], moved[node.id], strict=True)
            ]
            with b.loop(count - half, "vector") as lane:
                for combine, lanes, target in moves:
                    upper = b.load(lanes, lane + half)
                    pair = (x.cast(target.dtype) for x in (b.load(lanes, lane), upper))
                    b.store(target, lane, b.op(combine, *pair))
            others = [(lanes, target) for _, lanes, target in moves if lanes is not target]
            if others and count < 2 * half:
                with b.loop(half, "vector", count - half) as lane:
                    for lanes, target in others:
                        b.store(target, lane, b.load(lanes, lane).cast(target.dtype))
            self.lanes |= moved
            count = half
        for node in nodes:
            self.registers[node.id] = [b.register(b.load(a, 0)) for a in self.lanes[node.id]]

    def halves(self, node: Node, lanes: Buffer, count: int) -> Buffer:
        """Where sums of two lanes lie: in the first of them, if it holds their type."""
        kind = self.held(node, lanes.dtype)
        return lanes if kind is lanes.dtype else self.buffer(kind, count, "work")
