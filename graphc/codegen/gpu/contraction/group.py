"""Tiles of sums by groups of four warps: f16 and bf16 products that sm_90 multiplies with `wgmma`,
and f32 ones in tf32 where that is asked for.

A group has 64 rows of the tile and all its columns.  It starts the products of a piece and turns to
copies while they go on; those of the piece before end meanwhile, so one piece more is in use.
"""

from __future__ import annotations

from graphc.codegen.gpu.contraction.copies import Copies
from graphc.codegen.gpu.contraction.matrix import HIGH, WIDE
from graphc.codegen.gpu.contraction.pipeline import Pipeline
from graphc.codegen.gpu.contraction.swizzle import Swizzled
from graphc.codegen.gpu.contraction.text import plus
from graphc.codegen.gpu.contraction.tile_choice import ATOM, GROUP_ROWS, WARP, Side
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.python.helpers import storage
from graphc.ir.types import F32

PAD = 8  # sums between rows: a warp's rows lie in different banks


class GroupSource(Pipeline):
    """Writes the kernel of a `Group`."""

    start, background, parts = "base", True, 1

    @property
    def behind(self) -> int:
        return int(self.cut.tile.behind)

    def copies(self, a: Side, b: Side) -> tuple[Copies, Copies]:
        self.element = a.element
        first = Swizzled(a, self.cut, 0, a.element)
        return first, Swizzled(b, self.cut, first.elements, b.element)

    @property
    def held(self) -> int:
        return int(self.cut.tile.columns * HIGH // WARP)

    @property
    def is_alone(self) -> bool:
        """Those of f32 hold places of copies, too."""
        most = tuned.copied_sums if self.element is F32 else tuned.resident_sums
        return self.held > most

    @property
    def lead(self) -> int:
        """Sums from row to row."""
        return int(self.cut.tile.columns + PAD)

    @property
    def needed(self) -> int:
        tile = self.cut.tile
        pieces = tile.stages * self.piece * self.element.itemsize
        return int(ATOM + max(pieces, tile.rows * self.lead * self.accumulator.itemsize))

    def allocate(self) -> None:
        self.declare("sums", self.accumulator)
        self.out.line(f"memory = sums.view({storage(self.element)})")
        self.out.line("base = first_atom(memory)")

    def place_of_thread(self) -> None:
        self.out.line(f"lane, warp = thread % {WARP}, thread // {WARP}")

    def begin(self, copies: Copies) -> None:
        super().begin(copies)
        assert isinstance(copies, Swizzled)
        self.out.line(f"at_{copies.side.name} = {copies.first_place()}")

    def shown(self) -> None:
        self.out.line("show_copies()")

    def multiply(self) -> None:
        a = plus("now", f"warp // 4 * {GROUP_ROWS * self.a.lead}")
        given = f"total, memory, {a}, {plus('now', self.b.start)}, thread"
        ways = f"{int(self.a.upright)}, {int(self.b.upright)}"
        kind = "tf32" if self.element is F32 else self.element
        self.out.line(f"total = group_products_{kind}({given}, {ways})")

    def advance(self, name: str) -> None:
        if name == "now":
            self.out.line(f"wait_for_products({self.behind})")
        super().advance(name)

    def end(self) -> None:
        self.out.line("total = settled(total)")

    def exchange(self) -> None:
        line = self.out.line
        line(f"at = (warp * {HIGH} + lane // 4) * {self.lead} + lane % 4 * 2")
        for fragment in range(self.cut.tile.columns // WIDE):
            for half in range(2):
                first = 4 * fragment + 2 * half
                where = plus("at", half * 8 * self.lead + fragment * WIDE)
                line(f"write(sums, {where}, total[{first}:{first + 2}])")

    def place(self, e: str) -> str:
        columns = self.cut.tile.columns
        return f"{e} // {columns} * {self.lead} + {e} % {columns}"

    def row(self, e: str) -> str:
        return f"{e} // {self.cut.tile.columns}"
