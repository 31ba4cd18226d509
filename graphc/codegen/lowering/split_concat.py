"""An element-wise group that reads arrays put together or padded, one part after another.

An element that asks which piece it lies in is read through a mask, or gathered.  So every axis is
cut where the answer changes, and each part has loops of its own that do not ask:

    parallel for i:                         y = x + concatenate([a, b], axis=1)
        vector for j in 0..4:   y[i, j] = x[i, j] + a[i, j]
        vector for j in 4..10:  y[i, j] = x[i, j] + b[i, j - 4]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise, product

from graphc.codegen.lowering.evaluate import Elements, split_index, tensor_type
from graphc.codegen.lowering.nest import Nest, unique
from graphc.codegen.lowering.operands import Terms, affine
from graphc.codegen.lowering.space import Axes, Space
from graphc.codegen.tuning import tuned
from graphc.ir.graph import Graph
from graphc.ir.op import Reduction
from graphc.ir.sizes import Size, at_most, hint_of
from graphc.ir.types import I64
from graphc.loops.nest import Buffer, Expr, If, Scalars, postorder, walk
from graphc.loops.scalars import maximum, minimum

Segment = tuple[int, int]  # start and stop


def sections_of(region: Graph, space: Space) -> list[list[Segment]] | None:
    """The segments of every loop, or None if no loop is cut, or into too many."""
    folds = any(isinstance(n.op.lower, Reduction) for n in region.nodes)
    if folds or not space.loops:
        return None
    cuts = _cuts(region, space)
    segments = [
        _segments(loop.extent, found) for loop, found in zip(space.loops, cuts, strict=True)
    ]
    return segments if 1 < count_of(segments) <= tuned.concat_sections else None


def _segments(extent: int, cuts: set[int]) -> list[Segment]:
    """A loop between its cuts, or whole where sizes decide which of them comes first."""
    ordered = dict.fromkeys((0, *sorted(cuts, key=hint_of), extent))
    if not all(at_most(*pair) for pair in pairwise(ordered)):
        ordered = dict.fromkeys((0, extent))
    return list(pairwise(ordered))


def count_of(segments: list[list[Segment]] | None) -> int:
    return math.prod(map(len, segments or ()))


def _cuts(region: Graph, space: Space) -> list[set[int]]:
    """Where along each loop a condition that guards a read changes."""
    b = Scalars()
    variables = [b.make("var", I64, (), k) for k in range(len(space.loops))]
    elements = Elements(b)
    for number, param in enumerate(region.params):
        kind = tensor_type(param)
        factor = 2 if kind.dtype.is_complex else 1
        elements.bind_buffer(param, Buffer(number, kind.dtype.real, kind.size * factor, "in"))
    values = {loop.place: v for loop, v in zip(space.loops, variables, strict=True)}
    for result in unique(region.results):
        elements.at(result, space.index(b, values, tensor_type(result).dims))
    extents = {v: loop.extent for v, loop in zip(variables, space.loops, strict=True)}
    found: list[set[int]] = [set() for _ in variables]
    conditions = [s.condition for s in walk(b.body) if isinstance(s, If)]
    for test in postorder(conditions):
        terms = affine(b.sub(*test.args)) if test.op in ("lt", "ge") else None
        terms = {} if terms is None else terms
        cut = -terms.pop(None, 0)
        for k, (variable, loop) in enumerate(zip(variables, space.loops, strict=True)):
            step = _step_that_decides(terms, cut, variable, extents)
            if step == 0 or at_most(cut, 0) or at_most(loop.extent * step, cut):
                continue
            found[k].add(cut if step == 1 else cut // step)
            if step > 1 and -(-cut // step) < loop.extent:  # the line in which the answer changes
                found[k].add(-(-cut // step))
    return found


def _step_that_decides(
    terms: Terms, cut: int | Size, variable: Expr, extents: Mapping[Expr, int | Size]
) -> int:
    """The factor of a variable that decides whether the sum of the terms is below the cut, in all
    of its lines but at most one, as the others do not reach its next step; 0 where it does not."""
    step = terms.get(variable, 0)
    rest = {v: factor for v, factor in terms.items() if v is not None and v is not variable}
    if not rest:
        return int(step == 1)
    numbers = [cut, step, *rest.values(), *(extents[other] for other in rest)]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return 0
    most = sum(factor * (extents[other] - 1) for other, factor in rest.items())
    return step if most < step else 0


class Sections(Nest):
    """Lowers a group whose `sections_of` are more than one."""

    def body(self) -> None:
        b, segments = self.b, sections_of(self.region, self.space)
        assert segments is not None
        *outer, last = self.space.loops
        self.units = math.prod(loop.extent for loop in outer)
        self.elements_per_unit = last.extent
        if not outer and (isinstance(last.extent, Size) or last.extent > tuned.row_block):
            self.units, self.elements_per_unit = -(-last.extent // tuned.row_block), tuned.row_block
        with ExitStack() as stack:
            unit = b.integer(0)
            if self.units != 1:
                unit = stack.enter_context(b.loop(self.units, "parallel"))
            if not outer:
                self.line({}, last, segments[-1], unit * tuned.row_block)
                return
            parts = split_index(b, unit, tuple(loop.extent for loop in outer))
            values = {loop.place: p for loop, p in zip(outer, parts, strict=True)}
            for chosen in product(*segments[:-1]):
                with ExitStack() as section:
                    self.enter(section, outer, values, chosen)
                    self.line(values, last, segments[-1])

    def enter(
        self,
        section: ExitStack,
        outer: list[Axes],
        values: dict[int, Expr],
        chosen: tuple[Segment, ...],
    ) -> None:
        """Open the section in which every outer index lies in its segment."""
        b = self.b
        for loop, (start, stop) in zip(outer, chosen, strict=True):
            index = values[loop.place]
            for limit, test in ((start, "ge"), (stop, "lt")):
                if limit not in (0, loop.extent):
                    section.enter_context(b.when(b.compare(test, index, b.integer(limit))))
            b.known[index] = start, stop - 1

    def line(
        self,
        values: dict[int, Expr],
        last: Axes,
        segments: list[Segment],
        block: Expr | None = None,
    ) -> None:
        """The segments of the last loop, or what of them lies in a block of it."""
        b = self.b
        for start, stop in segments:
            first, end = b.integer(start), b.integer(stop)
            if block is not None:
                first = maximum(first, block)
                end = minimum(end, block + tuned.row_block)
            with b.loop(end, "vector", first) as i:
                b.known[i] = start, stop - 1
                self.elements.memo.clear()
                self.store_full({**values, last.place: i}, self.region.results)
