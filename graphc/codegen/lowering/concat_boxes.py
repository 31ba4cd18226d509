"""A stored result that is made of boxes, each a copy from one operand (concat).

    parallel for piece:
        when piece == 0:  for i: vector for j:  out[i, j]      = a[i, j]
        when piece == 1:  for i: vector for j:  out[i, j + 10] = b[i, j]

Every piece is walked by its own loops, so no element asks which piece it belongs to.  Pieces that
lie side by side in the rows of the result are put there row by row, so that a thread's rows are its
own; rows of a few elements one in each lane of a vector:

    parallel for block of rows:  for i:  vector for j: out[i, j] = a[i, j];  vector for j: ...
    parallel for block of rows:  vector for i:  out[i, 0] = a[i];  out[i, 1] = b[i]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from graphc.codegen.lowering.evaluate import flat_index, split_index, store_element, tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Compute
from graphc.ir.sizes import alike, hint_of
from graphc.loops.nest import Expr
from graphc.loops.scalars import minimum


def pieces_of(region: Graph) -> list[tuple[int, tuple[int, ...]]] | None:
    """The pieces of a region's single result: (operand, offset), or None if it has none."""
    if len(region.results) != 1:
        return None
    lower = region.results[0].op.lower
    if not isinstance(lower, Compute) or lower.pieces is None:
        return None
    found = lower.pieces(region.results[0])
    return found if 1 < len(found) <= tuned.concat_pieces else None


class Pieces(Nest):
    """Lowers a region whose result is put together from its operands."""

    def body(self) -> None:
        b, result = self.b, self.region.results[0]
        found = pieces_of(self.region)
        assert found is not None
        if self.makes_short_rows(found):
            self.rows(result, found)
            return
        if shared := self.shared_axes(found):
            self.side_by_side(result, found, shared)
            return
        self.units = len(found)
        self.elements_per_unit = tensor_type(result).size // len(found)
        with b.loop(self.units, "parallel") as unit:
            for number, (operand, offset) in enumerate(found):
                with b.when(unit == number):
                    self.copy(result, result.inputs[operand], offset)

    def shared_axes(self, found: list[tuple[int, tuple[int, ...]]]) -> int:
        """The first axes along which every piece is as long as the result; none where these make a
        single row."""
        result = self.region.results[0]
        whole = tensor_type(result).dims
        kinds = [tensor_type(result.inputs[operand]).dims for operand, _ in found]
        shared = 0
        last = len(whole) - 1
        while shared < last and all(alike(d[: shared + 1], whole[: shared + 1]) for d in kinds):
            shared += 1
        return shared if hint_of(math.prod(whole[:shared])) > 1 else 0

    def side_by_side(
        self, result: Node, found: list[tuple[int, tuple[int, ...]]], shared: int
    ) -> None:
        b, outer = self.b, tensor_type(result).dims[:shared]
        rows, width = math.prod(outer), math.prod(tensor_type(result).dims[shared:])
        length = max(1, tuned.row_block // max(1, hint_of(width)))
        self.units, self.elements_per_unit = -(-rows // length), length * width
        with b.loop(self.units, "parallel") as unit:
            start = unit * length
            with b.loop(minimum(start + length, rows), "serial", start) as row:
                place = split_index(b, row, outer)
                for operand, offset in found:
                    self.copy(result, result.inputs[operand], offset, place)

    def makes_short_rows(self, found: list[tuple[int, tuple[int, ...]]]) -> bool:
        """Are pieces put side by side along the last axis, which they make no longer than a vector
        of many?"""
        dims = tensor_type(self.region.results[0]).dims
        few = isinstance(dims[-1], int) and 1 < dims[-1] <= tuned.tile_side
        beside = not any(any(offset[:-1]) for _, offset in found)
        return len(dims) > 1 and few and beside and hint_of(dims[-2]) >= tuned.row_products

    def rows(self, result: Node, found: list[tuple[int, tuple[int, ...]]]) -> None:
        b, whole = self.b, tensor_type(result).dims
        *outer, row, width = whole
        length = tuned.row_block // width
        extents = (*outer, -(-row // length))
        self.units, self.elements_per_unit = math.prod(extents), length * width
        with b.loop(self.units, "parallel") as unit:
            *parts, block = split_index(b, unit, extents)
            start = block * length
            with b.loop(minimum(start + length, row), "vector", start) as i:
                for operand, offset in found:
                    source = result.inputs[operand]
                    for k in range(tensor_type(source).dims[-1]):
                        value = self.elements.at(source, (*parts, i, b.integer(k)))
                        place = (*parts, i, b.integer(offset[-1] + k))
                        for buffer in self.outputs[result.id]:
                            store_element(b, buffer, flat_index(b, place, whole), value)

    def copy(
        self, result: Node, source: Node, offset: tuple[int, ...], outer: Sequence[Expr] = ()
    ) -> None:
        """One loop per wide axis of the piece behind the place on its outer ones."""
        b = self.b
        dims, whole = tensor_type(source).dims, tensor_type(result).dims
        wide = [axis for axis in range(len(outer), len(dims)) if dims[axis] != 1]
        index: list[Expr] = [*outer, *[b.integer(0)] * (len(dims) - len(outer))]
        with ExitStack() as stack:
            for axis in wide:
                kind = "vector" if axis == wide[-1] else "serial"
                index[axis] = stack.enter_context(b.loop(dims[axis], kind))
            value = self.elements.at(source, tuple(index))
            shifted = [i + o for i, o in zip(index, offset, strict=True)]
            # An axis of extent 1 in the piece may be wide in the result.
            position = flat_index(b, tuple(shifted), whole)
            for buffer in self.outputs[result.id]:
                store_element(b, buffer, position, value)
