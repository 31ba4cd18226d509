"""Attention on tensor cores, for f16 and bf16: a warp has 16 queries, in its registers."""

from __future__ import annotations

from graphc.codegen.gpu.attention.plan import FRAGMENTS, WARP_ROWS, Attention, Cut, padded
from graphc.codegen.gpu.attention.source import AttentionSource, Place
from graphc.codegen.gpu.contraction.text import plus, times
from graphc.codegen.gpu.contraction.tile_choice import WARP

PAD = 8  # elements between lines, so that columns lie in many banks


class MatrixAttention(AttentionSource):
    """Writes the kernel of a tile of fragments."""

    lanes = 4

    def __init__(self, made: Attention, cut: Cut, names: list[str], simulated: bool) -> None:
        super().__init__(made, cut, names, simulated)
        self.squares = cut.rows * WARP // (cut.threads * WARP_ROWS)
        self.near = self.far = FRAGMENTS * self.squares
        self.held = 2 * self.squares

    @property
    def places(self) -> dict[str, Place]:
        made, count = self.made, self.cut.keys
        wide, deep = padded(made.width), padded(made.depth)
        begin = count * (wide + PAD)
        return {
            "k": Place(0, made.width, wide, count, wide + PAD, made.keys),
            "v": Place(begin, made.depth, deep, count, deep + PAD, made.keys),
        }

    @property
    def elements(self) -> int:
        last = self.places["v"]
        return last.begin + last.lines * last.lead

    def place_of_thread(self) -> None:
        line = self.out.line
        line(f"lane, warp = thread % {WARP}, thread // {WARP}")
        line(f"i = i0 + warp * {WARP_ROWS * self.squares} + lane // 4  # further ones 8 below")
        line("near = far = lane % 4 * 2")

    def queries(self) -> None:
        self.out.line(f"rows = {self.registers('q', 'i', self.made.queries)}")

    def registers(self, name: str, first: str, count: int) -> str:
        """The lane's part of rows as left operands."""
        side, parts = self.sides[name], []
        for below in range(0, WARP_ROWS * self.squares, WARP_ROWS):
            rows = [f"min({plus(first, n)}, {count - 1})" for n in (below, below + 8)]
            starts = ", ".join(plus(name, times(row, side.row)) for row in rows)
            given = f"a{side.buffer}, {starts}, {side.column}, lane, {self.extent(name)}"
            parts.append(f"rows_of({given})")
        return " + ".join(parts)

    @property
    def results(self) -> int:
        return padded(self.made.depth) // 2 * self.squares

    def products(self) -> None:
        begin, _, _, count, lead, _ = self.places["k"]
        given = f"rows, memory, {begin}, lane, {count // 8}, {lead}, {self.squares}"
        self.out.line(f"s = scores_{self.made.element}({given})")

    def weigh(self) -> None:
        begin, _, _, _, lead, _ = self.places["v"]
        given = f"total, p, memory, {begin}, lane, {lead}, {self.squares}"
        self.out.line(f"total = weigh_{self.made.element}({given})")
