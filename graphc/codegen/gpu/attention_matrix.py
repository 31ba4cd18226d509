"""Attention on tensor cores, for f16 and bf16: a warp has 16 queries, in its registers."""

from __future__ import annotations

from graphc.codegen.gpu.attention_plan import WARP_ROWS, padded
from graphc.codegen.gpu.attention_source import AttentionSource, Place
from graphc.codegen.gpu.contract_plan import WARP
from graphc.codegen.gpu.contract_text import plus, times

PAD = 8  # elements between lines, so that columns lie in many banks


class MatrixAttention(AttentionSource):
    """Writes the kernel of a tile of fragments."""

    near, far, lanes, held = 0, 0, 4, 2

    @property
    def places(self) -> dict[str, Place]:
        made, count = self.made, self.cut.keys
        wide, deep = padded(made.width), padded(made.depth)
        begin = count * (wide + PAD)
        return {
            "k": Place(0, made.width, wide, count, wide + PAD, made.keys),
            "v": Place(begin, made.depth, deep, count, deep + PAD, made.keys),
        }

    def allocate(self) -> None:
        last = self.places["v"]
        size = last.begin + last.lines * last.lead
        self.out.line(f"memory = cuda.shared.array({size}, np.uint16, alignment=16)")

    def place_of_thread(self) -> None:
        line = self.out.line
        line(f"lane, warp = thread % {WARP}, thread // {WARP}")
        line(f"i = i0 + warp * {WARP_ROWS} + lane // 4  # the other row is 8 below")
        line("near = far = lane % 4 * 2")

    def queries(self) -> None:
        made, side = self.made, self.made.q
        rows = [f"min({plus('i', below)}, {made.queries - 1})" for below in (0, 8)]
        starts = ", ".join(plus("q", times(row, side.row)) for row in rows)
        given = f"a{side.buffer}, {starts}, {side.column}, lane, {made.width}"
        self.out.line(f"rows = rows_of({given})")

    @property
    def results(self) -> int:
        return padded(self.made.depth) // 2

    def products(self) -> None:
        begin, _, _, count, lead, _ = self.places["k"]
        given = f"rows, memory, {begin}, lane, {count // 8}, {lead}"
        self.out.line(f"s = scores_{self.made.element}({given})")

    def weigh(self) -> None:
        begin, _, _, _, lead, _ = self.places["v"]
        given = f"total, p, memory, {begin}, lane, {lead}"
        self.out.line(f"total = weigh_{self.made.element}({given})")
