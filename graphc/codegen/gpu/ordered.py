"""Ordered rows and columns of a GPU: every lane of the order is a thread, its sums in registers.

    vector for l in 0..256:
        r = -0
        for k in 0..4:  r = r + x[256 * k + l]        neighbouring threads read neighbours
        lane[l] = r
    vector for l in 0..128:  lane[l] = lane[l] + lane[l + 128]         and so on

The order is that of `lowering.ordered`; only the loops trade places.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from graphc.codegen.gpu.columns import Columns, LongRows
from graphc.codegen.lowering.evaluate import split_index, tensor_type
from graphc.codegen.lowering.folds import initial, is_carried, prepared, reduction_of
from graphc.codegen.lowering.ordered import LANES, NEUTRAL, STRETCH, Ordered, has_order
from graphc.codegen.lowering.space import Axes
from graphc.ir.graph import Node
from graphc.ir.types import DType
from graphc.loops.nest import Expr, Register
from graphc.loops.scalars import Pair, minimum


class OrderedRows(LongRows, Ordered):
    """Rows that are folded in the order that every machine keeps.

    A product of complex numbers takes a row in one go, and sums beside it as `Ordered` makes them.
    """

    sums: dict[int, list[Register]]  # of the elements of a stretch, or all

    def apart(self) -> bool:
        return any(map(is_carried, self.reductions()))

    @contextmanager
    def sweep(
        self, values: dict[int, Expr], inner: list[Axes], folds: list[Node]
    ) -> Iterator[dict[int, Expr]]:
        """Loops over the elements of every lane; then the lanes' totals."""
        nodes = [node for node in folds if has_order(node)]
        if not nodes or self.apart():
            with super().sweep(values, inner, folds) as inside:
                yield inside
            return
        b = self.b
        with b.loop(min(LANES, self.row_length), "vector") as lane:
            self.sums = {n.id: [self.neutral_sum(n, k) for k in self.parts(n)] for n in nodes}
            kept = {
                n.id: [self.neutral_sum(n, a.dtype) for a in self.lanes[n.id]]
                for n in nodes
                if self.in_stretches(n)
            }
            with ExitStack() as stack:
                position = self.elements_of_lane(lane, kept, stack)
                parts = split_index(b, position, tuple(loop.extent for loop in inner))
                places = {loop.place: p for loop, p in zip(inner, parts, strict=True)}
                yield {**values, **places}
            for node in nodes:
                registers = kept.get(node.id, self.sums[node.id])
                for buffer, register in zip(self.lanes[node.id], registers, strict=True):
                    b.store(buffer, lane, b.read(register))
        self.fold_lanes(nodes)

    def elements_of_lane(
        self, lane: Expr, kept: dict[int, list[Register]], stack: ExitStack
    ) -> Expr:
        """Open the loops over what a lane adds; the position in the row."""
        b = self.b
        if self.row_length <= LANES:
            return lane
        rest = self.row_length + LANES - 1 - lane
        if self.row_length % LANES == 0:
            rest = b.integer(self.row_length)
        count = rest // LANES
        if self.row_length <= STRETCH:
            step = stack.enter_context(b.loop(count))
            return step * LANES + lane
        stretch = stack.enter_context(b.loop(-(-self.row_length // STRETCH)))
        stack.callback(self.keep_stretch, kept)
        first = stretch * (STRETCH // LANES)
        stop = minimum(count - first, STRETCH // LANES)
        step = stack.enter_context(b.loop(stop))
        return (first + step) * LANES + lane

    def keep_stretch(self, kept: dict[int, list[Register]]) -> None:
        """Add the sums of a stretch to those of the stretches before; they begin anew."""
        b = self.b
        for number, totals in kept.items():
            for total, part in zip(totals, self.sums[number], strict=True):
                b.update(total, "add", b.read(part).cast(total.dtype))
                b.assign(part, b.const(NEUTRAL["add"], part.dtype))

    # -- folding

    def parts(self, node: Node) -> list[DType]:
        """The types that a lane adds elements in."""
        kind = tensor_type(node.inputs[0]).dtype
        return [v.dtype for v in initial(self.b, reduction_of(node), kind)]

    def in_stretches(self, node: Node) -> bool:
        kinds = [buffer.dtype for buffer in self.lanes[node.id]]
        return kinds != self.parts(node)

    def neutral_sum(self, node: Node, kind: DType) -> Register:
        return self.b.register(self.neutral(node, kind))

    def start(self, node: Node) -> None:
        if not has_order(node) or self.apart():
            super().start(node)
            return
        kinds, count = self.parts(node), min(LANES, self.row_length)
        if self.row_length > STRETCH:
            kinds = [self.held(node, kind) for kind in kinds]
        self.lanes[node.id] = [self.buffer(kind, count, "work") for kind in kinds]

    def fold(self, node: Node, index: tuple[Expr, ...]) -> None:
        if not has_order(node) or self.apart():
            super().fold(node, index)
            return
        b, lower, source = self.b, reduction_of(node), node.inputs[0]
        value = prepared(b, lower, self.elements.at(source, index), tensor_type(source).dtype)
        parts = [value.re, value.im] if isinstance(value, Pair) else [value]
        for register, part in zip(self.sums[node.id], parts, strict=True):
            b.update(register, lower.combine, part)


class WideColumns(Columns):
    """Columns whose sums the loop IR itself carries in f64, as the columns of a CPU do."""

    wide = True
