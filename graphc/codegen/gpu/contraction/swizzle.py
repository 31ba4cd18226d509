"""Pieces of operands in shared memory as `wgmma` wants them: lines of 128 bytes, swizzled.

    line 0   0 1 2 3 4 5 6 7      the 16 bytes at place p of line l lie at place p ^ l % 8, so that
    line 1   1 0 3 2 5 4 7 6      eight lines have the same place in different banks
    line 2   2 3 0 1 6 7 4 5

A line runs along k if the operand does in memory, else across it; then the lines of the first 64
elements come first, those of the next 64 after them, and so on.  Lines of f32 always run along k:
what does not in memory, or not by 16 bytes, is copied element by element.
"""

from __future__ import annotations

from graphc.codegen.gpu.contraction.copies import Copies
from graphc.codegen.gpu.contraction.text import plus
from graphc.codegen.gpu.contraction.tile_choice import LINE, WIDEST, Cut, Side
from graphc.ir.types import F32, DType

PLACES = 8  # in a line, and lines until the order repeats


class Swizzled(Copies):
    """One operand's way to shared memory; reads take 16 bytes."""

    def __init__(self, side: Side, cut: Cut, start: int, element: DType) -> None:
        upright = side.along == "k" or element is F32
        if element is F32 and (side.along != "k" or side.width * F32.itemsize != WIDEST):
            side = side._replace(width=1)
        super().__init__(side, cut, start, element, upright)
        self.lead = LINE // element.itemsize
        self.width = WIDEST // element.itemsize

    @property
    def elements(self) -> int:
        return self.extent * self.depth

    def first_place(self) -> str:
        """Where a thread's first read goes."""
        name, lead, width = self.side.name, self.lead, self.width
        outer, step = f"outer_{name}", f"step_{name}"
        if self.upright:
            return f"{outer} * {lead} + {self.along_line(step)}"
        place = f"({outer} // {width} % {PLACES} ^ {step} % {PLACES}) * {width}"
        return f"{outer} // {lead} * {self.depth * lead} + {step} * {lead} + {place}"

    def along_line(self, step: str, shift: int = 0) -> str:
        """Where in its line along k an element lies, of the thread's line or one some lines on."""
        width, line = self.width, f"outer_{self.side.name}"
        line = f"({line} + {shift})" if shift % PLACES else line
        inside = f" + {step} % {width}" if self.side.width == 1 else ""
        return f"({step} // {width} ^ {line} % {PLACES}) * {width}{inside}"

    def where(self, base: str, outer: int, step: int) -> str:
        """The same for another place."""
        name, lines = self.side.name, outer if self.upright else step
        start = self.start + lines * self.lead
        if lines % PLACES == 0 and not (self.upright and step):
            return plus(base, start, f"at_{name}")
        assert self.upright, "the order of places would differ"
        inside = self.along_line(f"(step_{name} + {step})", outer)
        return plus(base, start, f"outer_{name} * {self.lead}", inside)
