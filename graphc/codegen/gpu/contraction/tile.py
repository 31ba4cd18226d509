"""Tiles of sums in the registers of threads, for every type: the products of a contraction.

a thread's sums: tall x wide, in runs of `vector` rows and columns, so that reads of shared
memory take 16 bytes and the lanes of a warp meet in no bank

      columns            the warp's 4 x 8 threads
    x x . . x x . .        0  1  2  3  4  5  6  7
    x x . . x x . .        8  9 ...
    . . . . . . . .
    x x . . x x . .      rows
"""

from __future__ import annotations

from graphc.codegen.gpu.contraction.block import BlockSource
from graphc.codegen.gpu.contraction.copies import Copies
from graphc.codegen.gpu.contraction.pipeline import Pipeline
from graphc.codegen.gpu.contraction.text import plus, times
from graphc.codegen.gpu.contraction.tile_choice import Side, vector_of
from graphc.codegen.gpu.tuning import tuned

WARP, WARP_DOWN, WARP_ACROSS = 32, 4, 8


class TileSource(BlockSource):
    """Writes the kernel of a `Tile`."""

    def copies(self, a: Side, b: Side) -> tuple[Copies, Copies]:
        first = Copies(a, self.cut, 0, self.accumulator)
        return first, Copies(b, self.cut, first.elements, self.accumulator)

    @property
    def vector(self) -> int:
        return vector_of(self.accumulator)

    @property
    def held(self) -> int:
        return int(self.cut.tile.tall * self.cut.tile.wide)

    @property
    def runs(self) -> tuple[int, int]:
        """Runs of rows and of columns that a thread's sums lie in."""
        tile = self.cut.tile
        return -(-tile.tall // self.vector), -(-tile.wide // self.vector)

    @property
    def run(self) -> tuple[int, int]:
        """Rows and columns of a run."""
        tile = self.cut.tile
        return min(tile.tall, self.vector), min(tile.wide, self.vector)

    @property
    def parts(self) -> int:
        return self.runs[0]

    @property
    def pieces(self) -> int:
        """Those in shared memory."""
        return 2

    @property
    def needed(self) -> int:
        tile = self.cut.tile
        size = max(self.pieces * self.piece, tile.rows // self.parts * tile.columns)
        return int(size * self.accumulator.itemsize)

    def allocate(self) -> None:
        self.declare("memory", self.accumulator)
        self.out.line("sums = memory")

    def place_of_thread(self) -> None:
        """The thread's rows and columns in the tile: warps are 4 x 8 threads where that fits."""
        line, tile = self.out.line, self.cut.tile
        if tile.across % WARP_ACROSS or tile.down % WARP_DOWN:
            down, across = f"thread // {tile.across}", f"thread % {tile.across}"
        else:
            warps = tile.across // WARP_ACROSS
            line(f"lane, warp = thread % {WARP}, thread // {WARP}")
            down = plus(f"warp // {warps} * {WARP_DOWN}", f"lane // {WARP_ACROSS}")
            across = plus(
                f"warp % {warps} * {WARP_ACROSS}" if warps > 1 else 0, f"lane % {WARP_ACROSS}"
            )
        line(f"down = {times(f'({down})', self.run[0])}")
        line(f"across = {times(f'({across})', self.run[1])}")

    @property
    def written(self) -> int:
        """Multiply-adds that are written one after another."""
        return int(tuned.written_steps)

    def multiply(self) -> None:
        tile = self.cut.tile
        steps = tile.depth
        while steps * tile.tall * tile.wide > self.written:
            steps //= 2
        if steps == tile.depth:
            for k in range(steps):
                self.products(str(k), k)
            return

        def body() -> None:
            for k in range(steps):
                self.products(plus("k", k), k)

        self.out.block(f"for k in range(0, {tile.depth}, {steps}):", body)

    def products(self, k: str, number: int) -> None:
        """One step of k for all sums of a thread."""
        line, tile = self.out.line, self.cut.tile
        loop = k != str(number)
        for name, copies, place, runs, run, extent in (
            ("x", self.a, "down", self.runs[0], self.run[0], tile.rows),
            ("y", self.b, "across", self.runs[1], self.run[1], tile.columns),
        ):
            step = f"({k}) * {copies.lead}" if loop else number * copies.lead
            start = plus("now", place, step, copies.start)
            line(f"{name} = read(memory, {start}, {runs}, {extent // runs}, {run})")
        line("total = outer(total, x, y)")

    def row(self, e: str) -> str:
        chunk = self.cut.tile.rows // self.parts
        part = f"part * {chunk}" if self.parts > 1 else 0
        return plus(part, f"{e} // {self.cut.tile.columns}")

    def exchange(self) -> None:
        """A run of every thread's rows."""
        line, tile = self.out.line, self.cut.tile
        high, wide = self.run
        for row in range(high):
            for run in range(self.runs[1]):
                first = row * tile.wide + run * wide
                where = plus(
                    f"(down + {row}) * {tile.columns}" if row else f"down * {tile.columns}",
                    "across",
                    run * (tile.columns // self.runs[1]),
                )
                line(f"write(sums, {where}, total[{first}:{first + wide}])")
        if self.runs[0] > 1:
            used = high * tile.wide
            line(f"total = total[{used}:] + total[:{used}]")


class PipelinedTile(Pipeline, TileSource):
    """The same with pieces that are copied in the background: elements of the type of sums.

    What lies along k in memory is turned on its way, element by element.
    """

    def copies(self, a: Side, b: Side) -> tuple[Copies, Copies]:
        turned = (side._replace(width=1) if side.along == "k" else side for side in (a, b))
        return super().copies(*turned)

    @property
    def is_alone(self) -> bool:
        return self.held > tuned.copied_sums

    @property
    def pieces(self) -> int:
        return int(self.cut.tile.stages)

    @property
    def written(self) -> int:
        return int(tuned.copied_steps)
