"""How the threads of a block bring a piece of an operand to shared memory."""

from __future__ import annotations

from graphc.codegen.gpu.contraction.text import plus, times
from graphc.codegen.gpu.contraction.tile_choice import WIDEST, Cut, Side
from graphc.ir.types import DType


class Copies:
    """One operand's way from memory to shared memory: which thread takes which elements.

    A thread takes `places`, (along outer, along k) from its first one on, `width` elements each.
    Shared memory holds a piece from `start` on as lines along outer or, if `upright`, along k; a
    line takes `lead` elements, 16 bytes more than it has, so that columns lie in many banks.
    """

    def __init__(
        self, side: Side, cut: Cut, start: int, element: DType, upright: bool = False
    ) -> None:
        self.side, self.start, self.upright = side, start, upright
        self.depth: int = cut.tile.depth
        self.threads: int = cut.tile.threads
        self.count: int = cut.m if side.name == "a" else cut.n
        self.extent: int = cut.tile.rows if side.name == "a" else cut.tile.columns
        self.lead: int = (self.depth if upright else self.extent) + WIDEST // element.itemsize

    @property
    def elements(self) -> int:
        """Shared memory that one piece takes."""
        return self.lead * (self.extent if self.upright else self.depth)

    @property
    def has_table(self) -> bool:
        """Do offsets of steps of k take divisions?"""
        steps = self.side.terms.steps
        return len(steps) > 1 and any(stride for _, stride in steps)

    @property
    def table_type(self) -> str:
        farthest = sum((extent - 1) * abs(stride) for extent, stride in self.side.terms.steps)
        return "np.int32" if farthest < 1 << 31 else "np.int64"

    def where(self, base: str, outer: int, step: int) -> str:
        """Where in shared memory an element of the thread goes."""
        name, lead = self.side.name, self.lead
        apart = (
            (f"outer_{name}", f"step_{name}") if self.upright else (f"step_{name}", f"outer_{name}")
        )
        inside = outer * lead + step if self.upright else step * lead + outer
        return plus(base, self.start + inside, f"{apart[0]} * {lead}", apart[1])

    def write(self, base: str, outer: int, step: int, value: str) -> str:
        """The statement that stores elements that were read at once."""
        where = self.where(base, outer, step)
        if self.side.width == 1 or self.upright == (self.side.along == "k"):
            return f"write(memory, {where}, {value})"
        return f"write_column(memory, {where}, {self.lead}, {value})"

    def reach(self, along: str) -> int:
        """Elements that a read takes along a direction."""
        return self.side.width if self.side.along == along else 1

    @property
    def line(self) -> int:
        """Reads that lie along one line of the direction that lanes run along."""
        length = self.extent if self.side.along == "outer" else self.depth
        return length // self.side.width

    @property
    def places(self) -> list[tuple[int, ...]]:
        side, threads, line = self.side, self.threads, self.line
        number = self.extent * self.depth // side.width // threads
        made: list[tuple[int, ...]]
        if line <= threads:
            made = [(0, p * (threads // line)) for p in range(number)]
        else:
            chunks = line // threads
            made = [(p % chunks * threads * side.width, p // chunks) for p in range(number)]
        return [place[::-1] for place in made] if side.along == "k" else made

    def first(self) -> tuple[str, str]:
        """Where a thread's first element lies, along outer and along k."""
        width, line = self.side.width, self.line
        if line == 1:
            run, other = "0", "thread"
        elif line >= self.threads:
            run, other = times("thread", width), "0"
        else:
            run, other = times(f"thread % {line}", width), f"thread // {line}"
        return (run, other) if self.side.along == "outer" else (other, run)
