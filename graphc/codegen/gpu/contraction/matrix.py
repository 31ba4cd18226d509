"""Tiles of sums on tensor cores: f16 and bf16 products that are added in f32.

A warp multiplies fragments: 16 x 16 of A with 16 x 8 of B, four sums of each product per lane.

          k                 n            Shared memory holds an operand as lines along k, or across
     +--------+           +----+         them, as it lies in memory: `ldmatrix` turns what is not as
   m | 16x16  |         k |16x8|         the tensor cores want it.
     +--------+           +----+
"""

from __future__ import annotations

from graphc.codegen.gpu.contraction.copies import Copies
from graphc.codegen.gpu.contraction.pipeline import Pipeline
from graphc.codegen.gpu.contraction.text import plus
from graphc.codegen.gpu.contraction.tile_choice import WARP, Side

HIGH, WIDE, DEEP = 16, 8, 16  # a fragment of the result, and its products


class MatrixSource(Pipeline):
    """Writes the kernel of a `Matrix`."""

    def copies(self, a: Side, b: Side) -> tuple[Copies, Copies]:
        self.element = a.element
        first = Copies(a, self.cut, 0, a.element, a.along == "k")
        return first, Copies(b, self.cut, first.elements, b.element, b.along == "k")

    @property
    def fragments(self) -> tuple[int, int]:
        """Fragments of a warp, down and across."""
        return self.cut.tile.high // HIGH, self.cut.tile.wide // WIDE

    @property
    def held(self) -> int:
        down, across = self.fragments
        return down * across * HIGH * WIDE // WARP

    @property
    def parts(self) -> int:
        return self.fragments[0]

    @property
    def needed(self) -> int:
        tile = self.cut.tile
        pieces = tile.stages * self.piece * self.element.itemsize
        return int(max(pieces, tile.rows // self.parts * tile.columns * self.accumulator.itemsize))

    def allocate(self) -> None:
        self.declare("sums", self.accumulator)
        self.out.line("memory = sums.view(np.uint16)")

    def place_of_thread(self) -> None:
        """The warp's part of the tile, and the lane's sums in a fragment: two, and two below."""
        line, tile = self.out.line, self.cut.tile
        line(f"lane, warp = thread % {WARP}, thread // {WARP}")
        line(f"down, across = warp // {tile.across}, warp % {tile.across} * {tile.wide}")

    def multiply(self) -> None:
        tile, (down, across) = self.cut.tile, self.fragments
        for k in range(0, tile.depth, DEEP):
            starts = []
            for copies, place in ((self.a, f"down * {tile.high}"), (self.b, "across")):
                if copies.upright:
                    starts.append(plus("now", f"{place} * {copies.lead}", copies.start + k))
                else:
                    starts.append(plus("now", place, copies.start + k * copies.lead))
            ways = f"{self.way(self.a)}, {self.way(self.b)}"
            given = f"total, memory, {starts[0]}, {starts[1]}, lane, {down}, {across}, {ways}"
            self.out.line(f"total = products_{self.element}({given})")

    def way(self, copies: Copies) -> str:
        """How far lines are apart, and whether they run along k."""
        return f"{copies.lead}, {int(copies.upright)}"

    def exchange(self) -> None:
        """A fragment's rows of every warp."""
        line, tile = self.out.line, self.cut.tile
        _, across = self.fragments
        line(f"at = (down * {HIGH} + lane // 4) * {tile.columns} + across + lane % 4 * 2")
        for fragment in range(across):
            for half in range(2):
                first = 4 * fragment + 2 * half
                where = plus("at", half * 8 * tile.columns + fragment * WIDE)
                line(f"write(sums, {where}, total[{first}:{first + 2}])")
        if self.parts > 1:
            line(f"total = total[{4 * across}:] + total[: {4 * across}]")

    def row(self, e: str) -> str:
        tile = self.cut.tile
        inside = f"{e} // {tile.columns}"
        part = f"part * {HIGH}" if self.parts > 1 else 0
        if tile.down == 1:
            return plus(part, inside)
        return plus(f"{inside} // {HIGH} * {tile.high}", part, f"{inside} % {HIGH}")
