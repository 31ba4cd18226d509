"""Pieces of operands in shared memory as `wgmma` wants them: lines of 128 bytes, swizzled.

    line 0   0 1 2 3 4 5 6 7      the 16 bytes at place p of line l lie at place p ^ l % 8, so that
    line 1   1 0 3 2 5 4 7 6      eight lines have the same place in different banks
    line 2   2 3 0 1 6 7 4 5

A line runs along k if the operand does in memory, else across it; then the lines of the first 64
elements come first, those of the next 64 after them, and so on.
"""

from __future__ import annotations

from graphc.codegen.gpu.contract_copies import Copies
from graphc.codegen.gpu.contract_plan import LINE, Cut, Side
from graphc.codegen.gpu.contract_text import plus
from graphc.ir.types import DType

PLACES = 8  # in a line, and lines until the order repeats


class Swizzled(Copies):
    """One operand's way to shared memory; reads take 16 bytes."""

    def __init__(self, side: Side, cut: Cut, start: int, element: DType) -> None:
        super().__init__(side, cut, start, element, side.along == "k")
        self.lead = LINE // element.itemsize

    @property
    def elements(self) -> int:
        return self.extent * self.depth

    def first_place(self) -> str:
        """Where a thread's first read goes."""
        name, lead, width = self.side.name, self.lead, self.side.width
        outer, step = f"outer_{name}", f"step_{name}"
        if self.upright:
            return f"{outer} * {lead} + ({step} // {width} ^ {outer} % {PLACES}) * {width}"
        place = f"({outer} // {width} % {PLACES} ^ {step} % {PLACES}) * {width}"
        return f"{outer} // {lead} * {self.depth * lead} + {step} * {lead} + {place}"

    def where(self, base: str, outer: int, step: int) -> str:
        """The same, for a place that is a whole number of repeated orders away."""
        lines = outer if self.upright else step
        assert lines % PLACES == 0, "the order of places would differ"
        return plus(base, self.start + lines * self.lead, f"at_{self.side.name}")
