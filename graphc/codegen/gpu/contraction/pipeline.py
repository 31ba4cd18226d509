"""Pieces of operands that are copied to shared memory in the background, several of them at a time.

    piece   0  1  2  3  4  5  6
                  |  |     |          of `stages` pieces in shared memory one is multiplied, and
    multiplied ---+  +-----+ copied   those after it are on their way; one barrier for each

A copy writes shared memory without passing through registers (`cp.async`, from sm_80 on).
"""

from __future__ import annotations

from functools import partial

from graphc.codegen.gpu.contraction.block import BlockSource, Run
from graphc.codegen.gpu.contraction.copies import Copies
from graphc.codegen.gpu.contraction.text import plus
from graphc.codegen.python.helpers import storage


class Pipeline(BlockSource):
    """How the kernels of tiles with `stages` bring their pieces."""

    start = "0"  # where the pieces begin in shared memory
    background = False  # whether `multiply` starts products that go on during copies

    @property
    def behind(self) -> int:
        """Pieces before the one that is multiplied of which products may go on."""
        return 0

    @property
    def ahead(self) -> int:
        """Pieces that are under way while one is multiplied."""
        return int(self.cut.tile.stages) - 1 - self.behind

    def fetch_runs(self, runs: list[Run]) -> None:
        """Copy the elements of places: one branch for all, or each would take its turns."""
        if not self.wide:
            self.copies_of(runs, aligned=False)
            return
        self.out.block("if aligned:", partial(self.copies_of, runs, aligned=True))
        self.out.block("else:", partial(self.copies_of, runs, aligned=False))

    def inside(self, copies: Copies, number: int, inside: str) -> str:
        """Those beyond the last row or column are not read: all blocks would wait for that one."""
        if copies.count % copies.extent == 0:
            return inside
        row = f"in_{copies.side.name}{number}"
        return f"({row} and {inside})" if inside else row

    def copies_of(self, runs: list[Run], aligned: bool) -> None:
        for side, _, at, inside, where in runs:
            given = f"memory, {where}, a{side.buffer}, {at}, {side.width}, {aligned}"
            self.out.line(f"copy({given}, {inside or True})")

    @property
    def wide(self) -> list[str]:
        """Names for whether the operands lie so that several elements can be copied at once."""
        sides = (copies.side for copies in (self.a, self.b))
        return [f"aligned_{side.name}" for side in sides if side.width > 1]

    def sums(self) -> None:
        line = self.out.line
        line(f"total = repeat({storage(self.accumulator)}(0), {self.held})")
        first, last = self.span()
        if self.wide:
            line(f"aligned = {' and '.join(self.wide)}")
        line(f"now = later = {self.start}")
        self.out.block(
            f"for coming in range({first}, {plus(first, self.ahead)}):", lambda: self.early(last)
        )
        if self.has_tables:
            self.tables(f"({plus(first, self.ahead)})")
        self.out.block(f"for piece in range({first}, {last}):", lambda: self.turn(last))
        self.end()
        line("cuda.syncthreads()")

    def early(self, last: str) -> None:
        """Start to copy one of the first pieces."""
        if self.has_tables:
            self.tables("coming")
            self.out.line("cuda.syncthreads()")
        self.copy_coming(last)

    def copy_coming(self, last: str) -> None:
        """Start to copy the piece `coming`, if there is one, and turn to the place of the next."""
        self.out.block(f"if coming < {last}:", lambda: self.fetch("coming", "later"))
        self.out.line("commit_copies()")
        self.advance("later")

    def advance(self, name: str) -> None:
        line, whole = self.out.line, int(self.cut.tile.stages) * self.piece
        line(f"{name} += {self.piece}")
        again = partial(line, f"{name} = {self.start}")
        self.out.block(f"if {name} == {plus(self.start, whole)}:", again)

    def turn(self, last: str) -> None:
        """Multiply a piece; the barrier shows that it is there, and that another has been read."""
        line = self.out.line
        line(f"wait_for_groups({self.ahead - 1})")
        self.shown()
        line("cuda.syncthreads()")
        if self.background:
            self.multiply()
        line(f"coming = piece + {self.ahead}")
        self.copy_coming(last)
        if self.has_tables:
            self.tables("(coming + 1)")
        if not self.background:
            self.multiply()
        self.advance("now")

    def shown(self) -> None:
        """What a thread does before the barrier that shows its copies."""

    def end(self) -> None:
        """Wait for the sums."""
