"""What an update writes when its result lies where the array to be updated lies.

    for i: vector for j:  x[start + i, j] = updates[i, j]           the rest of x is as it was

The whole result takes a pass over the array; a loop that fills it would take one in every turn.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from graphc.codegen.lowering.evaluate import flat_index, store_element, tensor_type
from graphc.codegen.lowering.nest import Nest
from graphc.ir.graph import Graph
from graphc.ir.op import Alias, Compute
from graphc.ir.sizes import Size
from graphc.loops.nest import Expr


def patched_param(region: Graph) -> int | None:
    """The number of the parameter that a region's only result is but for some elements."""
    result = region.results[0]
    lower = result.op.lower
    if len(region.results) > 1 or not isinstance(lower, Compute) or lower.position is None:
        return None
    source = result.inputs[0]
    reads = [n for node in region.nodes for n in node.inputs]
    while isinstance(source.op.lower, Alias) and reads.count(source) == 1:
        source = source.inputs[0]  # the same bytes under another shape
    alone = source in region.params and reads.count(source) == 1
    return region.params.index(source) if alone else None


class Patch(Nest):
    """Lowers the update of a region whose result and patched parameter share their memory."""

    def body(self) -> None:
        b, result = self.b, self.region.results[0]
        lower, updates = result.op.lower, result.inputs[1]
        assert isinstance(lower, Compute)
        assert lower.position is not None
        dims = tensor_type(updates).dims
        wide = [axis for axis, extent in enumerate(dims) if extent != 1]
        self.units = dims[wide[0]] if wide else 1
        self.elements_per_unit = math.prod(dims[axis] for axis in wide[1:])
        index: list[Expr] = [b.integer(0)] * len(dims)
        read = self.elements.reader_of(result)
        with ExitStack() as stack:  # computed positions are checked before anything is written
            if isinstance(self.units, Size):
                stack.enter_context(b.when(b.integer(self.units) != 0))
            if self.units:
                lower.position(b, result, read, tuple(index))
        with ExitStack() as stack:
            outer = stack.enter_context(b.loop(self.units, "parallel"))
            for axis in wide:
                kind = "vector" if axis == wide[-1] else "serial"
                inner = axis != wide[0]
                index[axis] = stack.enter_context(b.loop(dims[axis], kind)) if inner else outer
            value = self.elements.at(updates, tuple(index))
            place = lower.position(b, result, read, tuple(index))
            position = flat_index(b, place, tensor_type(result).dims)
            for buffer in self.outputs[result.id]:
                store_element(b, buffer, position, value)
