"""The gradient of attention on tensor cores, in two passes that each store what they alone make.

    queries  a block has queries, and passes over keys and values: scores, weights p as in the
             forward pass, ds = p (ct values - drops), to_q += ds keys.  It notes of every query the
             top of its scores, 1 / the sum of its weights, and drops, the sum of ct result.
    keys     a block has keys and values, and passes over queries and cotangents: scores and weights
             the other way round, to_v += p ct, ds as before, to_k += ds queries.

Scores are made anew in both, and are never in memory (Dao, FlashAttention-2, 2023; there one pass
adds to the cotangents of queries from many blocks, in whatever order).  Two pieces of what is
passed over lie in shared memory at any time.
"""

from __future__ import annotations

from graphc.codegen.gpu.attention.matrix import PAD, MatrixAttention
from graphc.codegen.gpu.attention.plan import FRAGMENTS, Cut, Gradient, padded
from graphc.codegen.gpu.attention.source import NOTHING, Place
from graphc.codegen.gpu.contraction.text import plus, times
from graphc.codegen.gpu.contraction.tile_choice import ceiling

NOTES = ("top", "part", "drop")  # of every query, in the workspace


class _Pass(MatrixAttention):
    """What both have in common: pairs of pieces in shared memory."""

    def __init__(self, given: Gradient, cut: Cut, names: list[str]) -> None:
        super().__init__(given.forward, cut, names, False)
        self.given = given
        self.sides |= {"ct": given.ct, "made": given.made}
        # Rows that see nothing are the mean of all values, whose scores do not count.
        made = given.forward
        self.blind = made.mask is not None or (made.causal and made.queries > made.keys)

    def pair(self, names: tuple[str, str], rows: int, whole: int) -> dict[str, Place]:
        """A piece of each, one behind the other."""
        found, begin = {}, 0
        for name in names:
            width = self.extent(name)
            wide = padded(width)
            found[name] = Place(begin, width, wide, rows, wide + PAD, whole)
            begin += rows * (wide + PAD)
        return found

    @property
    def size(self) -> int:
        """Elements of a pair of pieces."""
        return sum(place.lines * place.lead for place in self.places.values())

    @property
    def elements(self) -> int:
        return 2 * self.size

    def zeros(self) -> None:
        for place in self.places.values():
            for begin in (place.begin, place.begin + self.size):
                if place.used > place.width:
                    given = ", ".join(map(str, place._replace(begin=begin)[:5]))
                    self.out.line(f"zero_lines(memory, {given}, thread, {self.cut.threads})")

    def turn(self, number: str, first: str, pieces: int) -> None:
        """Wait for a pair, and have the next one come where the one before lay."""
        line = self.out.line
        line("wait_for_copies()")
        line("cuda.syncthreads()")
        line(f"later = {self.size} - now")

        def following() -> None:
            for name in self.places:
                self.copy(name, first, "later")

        self.out.block(f"if {number} + 1 < {pieces}:", following)

    def begin_copies(self, first: str) -> None:
        for name in self.places:
            self.copy(name, first)
        self.out.line("now = np.int64(0)")

    def score(self, rows: str, name: str) -> str:
        """Products of rows in registers with a piece."""
        begin, _, _, count, lead, _ = self.places[name]
        given = f"{rows}, memory, {plus('now', begin)}, lane, {count // 8}, {lead}, 1"
        return f"scores_{self.made.element}({given})"

    def weighed(self, total: str, weights: str, name: str) -> str:
        begin, _, _, _, lead, _ = self.places[name]
        given = f"{total}, {weights}, memory, {plus('now', begin)}, lane, {lead}, 1"
        return f"{total} = weigh_{self.made.element}({given})"

    def notes(self, name: str) -> str:
        """Where in the workspace what is noted of the queries of a head begins."""
        queries = self.made.heads * self.made.queries
        return plus(NOTES.index(name) * queries, times("head", self.made.queries))

    def store(self, name: str, total: str, first: str, count: int) -> None:
        side = getattr(self.given, name)
        width = self.made.depth if name == "v" else self.made.width
        base = self.addresses.of(f"head_of_to_{name}", side.heads, "head")
        start = plus(side.offset, base, times(first, side.row))
        ends = f"far, {count} - {first}, {width}, {FRAGMENTS}, 4"
        self.out.line(f"store_{side.element}(a{side.buffer}, {start}, {side.row}, {total}, {ends})")


class QueryPass(_Pass):
    """Writes the kernel for queries."""

    @property
    def places(self) -> dict[str, Place]:
        return self.pair(("k", "v"), self.cut.keys, self.made.keys)

    @property
    def results(self) -> int:
        return padded(self.made.width) // 2

    def kernel(self) -> None:
        line, made = self.out.line, self.made
        line(f"# {made.heads} heads, {made.queries} queries of {made.keys} keys")
        line(f"# tiles of {self.cut.rows} x {self.cut.keys}, {self.cut.threads} threads")
        self.allocate()
        line("thread = np.int64(cuda.threadIdx.x)")
        self.place_of_block()
        self.place_of_thread()
        self.zeros()
        self.begin_copies("j0")
        self.queries()
        line(f"cts = {self.registers('ct', 'i', made.queries)}")
        line(f"drops = row_products(cts, {self.registers('made', 'i', made.queries)}, {self.kind})")
        line("drops = row_sums(drops, 4)")
        line(f"top = repeat({NOTHING}, 2)")
        line("sums = repeat(np.float32(0), 2)")
        line(f"total = repeat(np.float32(0), {self.results})")
        self.loop()
        self.finish()

    @property
    def kind(self) -> int:
        return 0 if self.made.element.name == "bf16" else 1

    def piece(self) -> None:
        line = self.out.line
        line(f"j0 = piece * {self.cut.keys}")
        self.turn("piece", f"j0 + {self.cut.keys}", self.pieces)
        line(f"s = {self.score('rows', 'k')}")
        self.scores()
        self.softmax()
        line(f"d = {self.score('cts', 'v')}")
        line(f"d = slopes(p, d, drops, {FRAGMENTS})")
        if self.blind:
            self.hide("d", "np.float32(0)", "np.float32(0)")
        line(self.weighed("total", "d", "k"))
        line("piece += 1")
        line("now = later")
        if self.made.causal:
            self.go_on()

    def finish(self) -> None:
        line, made = self.out.line, self.made
        line("part = shares(row_sums(sums, 4))")
        line(f"total = times(rescaled(total, part, {FRAGMENTS}), np.float32({made.scale!r}))")
        self.store("q", "total", "i", made.queries)

        def note() -> None:
            for name, values in zip(NOTES, ("least", "part", "drops"), strict=True):
                start = plus(self.notes(name), "i")
                ends = f"np.int64(0), {made.queries} - i, 1, {FRAGMENTS}, 1"
                line(f"store_f32(work, {start}, 1, {values}, {ends})")

        line("least = or_zero(top)")
        self.out.block("if lane % 4 == 0:", note)


class KeyPass(_Pass):
    """Writes the kernel for keys and values: rows of its scores are keys, columns queries."""

    @property
    def places(self) -> dict[str, Place]:
        return self.pair(("q", "ct"), self.cut.keys, self.made.queries)

    @property
    def steps(self) -> int:
        """Pieces of queries."""
        return ceiling(self.made.queries, self.cut.keys)

    def kernel(self) -> None:
        line, made, cut = self.out.line, self.made, self.cut
        high = ceiling(made.keys, cut.rows)
        line(f"# {made.heads} heads, {made.keys} keys of {made.queries} queries")
        line(f"# tiles of {cut.rows} x {cut.keys}, {cut.threads} threads")
        self.allocate()
        line("thread = np.int64(cuda.threadIdx.x)")
        line("block = np.int64(cuda.blockIdx.x)")
        line(f"head = block // {high}")
        line(f"j0 = block % {high} * {cut.rows}" if high > 1 else "j0 = np.int64(0)")
        line("lane, warp = thread % 32, thread // 32")
        line("j = j0 + warp * 16 + lane // 4  # the other row is 8 below")
        line("near = far = lane % 4 * 2")
        self.heads()
        first = "0"
        if made.causal and not self.blind:
            first = f"max(j0 - {self.shift}, 0) // {cut.keys}"
        line(f"step = np.int64({first})")
        line(f"i0 = step * {cut.keys}")
        self.zeros()
        self.begin_copies("i0")
        line(f"keys = {self.registers('k', 'j', made.keys)}")
        line(f"values = {self.registers('v', 'j', made.keys)}")
        line(f"to_k = repeat(np.float32(0), {padded(made.width) // 2})")
        line(f"to_v = repeat(np.float32(0), {padded(made.depth) // 2})")
        self.out.block(f"while step < {self.steps}:", self.piece)
        line(f"to_k = times(to_k, np.float32({made.scale!r}))")
        self.store("k", "to_k", "j", made.keys)
        self.store("v", "to_v", "j", made.keys)

    def piece(self) -> None:
        line, made, cut = self.out.line, self.made, self.cut
        line(f"i0 = step * {cut.keys}")
        self.turn("step", f"i0 + {cut.keys}", self.steps)
        line("i = i0 + near  # the thread's first column")
        for name in NOTES:
            given = f"work, {plus(self.notes(name), 'i')}, {made.queries} - i, {cut.keys // 8}"
            line(f"{name}s = columns_of({given})")
        line(f"s = {self.score('keys', 'q')}")
        if not self.raw:
            line(f"s = times(s, np.float32({self.factor!r}))")
        self.hide("s", self.hidden, NOTHING)
        factor = f"np.float32({self.factor!r})" if self.raw else "None"
        line(f"p = column_powers(s, tops, parts, {factor})")
        line(self.weighed("to_v", "p", "ct"))
        line(f"d = {self.score('values', 'ct')}")
        line("d = column_slopes(p, d, drops)")
        if self.blind:
            self.hide("d", "np.float32(0)", "np.float32(0)")
        line(self.weighed("to_k", "d", "q"))
        line("step += 1")
        line("now = later")

    def hide(self, values: str, hidden: str, nothing: str) -> None:
        line, made, cut = self.out.line, self.made, self.cut
        shape = f"{FRAGMENTS}, 4"
        if made.mask is not None:
            side = made.mask
            start = plus("mask", f"i * {side.row}", f"j * {side.column}")
            ends = f"{made.keys - 1} - j, {side.column}, {made.queries - 1} - i, {side.row}"
            given = f"{values}, a{side.buffer}, {start}, {ends}, {hidden}, {shape}"
            line(f"{values} = mask_{side.element}({given})")
        if made.causal:
            first = f"j - {self.shift} - i" if self.shift else "j - i"
            self.out.block(
                f"if {plus('i0', self.shift)} < j0 + {cut.rows - 1}:",
                lambda: line(f"{values} = from_on({values}, {first}, {hidden}, {shape})"),
            )
