"""Pieces: a stored result that is made of boxes, each a copy from one operand (concat).

    parallel for piece:
        when piece == 0:  for i: vector for j:  out[i, j]      = a[i, j]
        when piece == 1:  for i: vector for j:  out[i, j + 10] = b[i, j]

Every piece is walked by its own loops, so no element asks which piece it belongs to.
"""

from __future__ import annotations

from contextlib import ExitStack

from graphc.codegen.lowering.evaluate import flat_index, store_element, tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph, Node
from graphc.ir.op import Compute
from graphc.loops.nest import Expr


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
        self.units = len(found)
        self.elements_per_unit = tensor_type(result).size // len(found)
        with b.loop(self.units, "parallel") as unit:
            for number, (operand, offset) in enumerate(found):
                with b.when(unit == number):
                    self.copy(result, result.inputs[operand], offset)

    def copy(self, result: Node, source: Node, offset: tuple[int, ...]) -> None:
        """One loop per wide axis of the piece."""
        b = self.b
        dims, whole = tensor_type(source).dims, tensor_type(result).dims
        wide = [axis for axis, extent in enumerate(dims) if extent != 1]
        index: list[Expr] = [b.integer(0)] * len(dims)
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
