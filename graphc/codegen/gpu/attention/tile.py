"""Attention with sums in the registers of threads, for f32.

    scores: a thread has rows below each other and columns `lanes` apart
    results: the same rows, and runs of four columns

Queries, keys and values lie in shared memory as in memory, row by row; four steps of a product are
read at once.  Weights pass through shared memory, key by key, between threads that share rows.
"""

from __future__ import annotations

from graphc.codegen.gpu.attention.plan import Attention, Cut
from graphc.codegen.gpu.attention.source import AttentionSource, Place
from graphc.codegen.gpu.contraction.text import plus
from graphc.codegen.gpu.contraction.tile_choice import ceiling

RUN = 4  # elements of a line that are read at once: 16 bytes


class TileAttention(AttentionSource):
    """Writes the kernel of a tile of sums."""

    def __init__(self, made: Attention, cut: Cut, names: list[str], simulated: bool) -> None:
        super().__init__(made, cut, names, simulated)
        self.near, self.far, self.lanes, self.held = cut.tall, -cut.tall, cut.lanes, cut.tall
        self.lead_p = cut.rows + RUN

    @property
    def columns(self) -> int:
        """Columns of the results of a block, some of them perhaps zeros."""
        run = RUN * self.cut.lanes
        return run * ceiling(self.made.depth, run)

    @property
    def places(self) -> dict[str, Place]:
        """Lines are apart so that a column of them lies in many banks."""
        made, cut, found, begin = self.made, self.cut, {}, 0
        wide = RUN * ceiling(made.width, RUN)
        apart = 2 * RUN * ceiling(wide, 2 * RUN) + RUN
        for name, *place in (
            ("q", made.width, wide, cut.rows, apart, made.queries),
            ("k", made.width, wide, cut.keys, apart, made.keys),
            ("v", made.depth, self.columns, cut.keys, self.columns + RUN, made.keys),
        ):
            found[name] = Place(begin, *place)
            begin += found[name].lines * found[name].lead
        return found

    @property
    def weights(self) -> int:
        """Where weights begin in shared memory."""
        last = self.places["v"]
        return last.begin + last.lines * last.lead

    @property
    def elements(self) -> int:
        return self.weights + self.cut.keys * self.lead_p

    def place_of_thread(self) -> None:
        line, cut = self.out.line, self.cut
        line(f"down, near = thread // {cut.lanes} * {cut.tall}, thread % {cut.lanes}")
        line("i = i0 + down")
        line(f"far = near * {RUN}")

    def queries(self) -> None:
        self.copy("q", "i0")

    @property
    def results(self) -> int:
        return self.cut.tall * self.columns // self.cut.lanes

    def products(self) -> None:
        line, cut = self.out.line, self.cut
        wide = cut.keys // cut.lanes
        line(f"s = repeat(np.float32(0), {cut.tall * wide})")

        rows, keys = self.places["q"], self.places["k"]

        def step() -> None:
            line(f"y = read(memory, down * {rows.lead} + c, {cut.tall}, {rows.lead}, {RUN})")
            at = plus(keys.begin, f"near * {keys.lead}", "c")
            line(f"x = read(memory, {at}, {wide}, {cut.lanes * keys.lead}, {RUN})")
            line(f"s = dots(s, x, y, {RUN})")

        self.out.block(f"for c in range(0, {rows.used}, {RUN}):", step)

    def pass_on(self) -> None:
        line, cut = self.out.line, self.cut
        for number in range(cut.keys // cut.lanes):
            at = plus(self.weights, f"(near + {number * cut.lanes}) * {self.lead_p}", "down")
            part = f"p[{number * cut.tall}:{(number + 1) * cut.tall}]"
            for first in range(0, cut.tall, RUN):
                some = part if cut.tall <= RUN else f"{part}[{first}:{first + RUN}]"
                line(f"write(memory, {plus(at, first)}, {some})")

    def weigh(self) -> None:
        line, cut = self.out.line, self.cut
        run, values = min(cut.tall, RUN), self.places["v"]

        def step() -> None:
            at = plus(self.weights, f"key * {self.lead_p}", "down")
            line(f"x = read(memory, {at}, {cut.tall // run}, {run}, {run})")
            at = plus(values.begin, f"key * {values.lead}", "far")
            runs = self.columns // (RUN * cut.lanes)
            line(f"y = read(memory, {at}, {runs}, {RUN * cut.lanes}, {RUN})")
            line("total = outer(total, x, y)")

        self.out.block(f"for key in range({cut.keys}):", step)
