"""The frame of a kernel for attention: one pass over keys and values with an online softmax.

    a block's queries      for piece of keys:     scores = queries keys         (values come)
    +------+                                      top, sums, total as if the new top had been
    | q    |                                          known from the start
    +------+                                      total += 2 ** (scores - top) values
                                                                                (next keys come)

Nothing of the size queries x keys is ever in memory (Dao, FlashAttention-2, 2023).  Keys and
values pass through shared memory, for all rows of the block.  How threads multiply is a
subclass's.

What causal attention hides from all rows of a block is left out, unless some row sees nothing but
what is hidden: it is the mean of all values then, and the block goes on to the end.

Where few queries leave processors idle, blocks share the keys of a tile: each stores its total,
and what that is relative to; a second launch puts them together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple

from graphc.codegen.gpu.attention.plan import Attention, Cut, Side
from graphc.codegen.gpu.contraction.text import Addresses, Lines, plus, times
from graphc.codegen.gpu.contraction.tile_choice import ceiling
from graphc.codegen.python.helpers import storage
from graphc.ir.types import BOOL, DType
from graphc.ops.nn.attention_scores import HIDDEN

LOG2E = 1.4426950408889634
NOTHING = "np.float32(-np.inf)"
DECLARED = 48 << 10  # bytes of shared memory that a kernel may declare


class Place(NamedTuple):
    """Where rows go in shared memory: `begin` of the first line, elements of a row, elements of a
    line that are read, how many lines there are and how far they are apart; `whole` rows in all."""

    begin: int
    width: int
    used: int
    lines: int
    lead: int
    whole: int


class Copier(NamedTuple):
    """How the threads of a block copy rows: `run` neighbours at once."""

    name: str
    side: Side
    place: Place
    run: int
    threads: int

    @property
    def chunks(self) -> int:
        """Copies of a row."""
        return self.place.width // self.run

    @property
    def step(self) -> int:
        """Lines that are copied at once; 0 where a line takes several turns."""
        return self.threads // self.chunks

    @property
    def limit(self) -> str:
        """Which threads copy in each turn; nothing for all of them."""
        chunks, lines = self.chunks, self.place.lines
        if not self.step:
            return f"at < {lines * chunks}" if lines * chunks % self.threads else ""
        even = lines % self.step == 0 and self.step * chunks == self.threads
        return "" if even else f"line < {lines} and thread < {self.step * chunks}"

    @property
    def number(self) -> int:
        """Turns of a thread."""
        if self.step:
            return ceiling(self.place.lines, self.step)
        return ceiling(self.place.lines * self.chunks, self.threads)


class AttentionSource(ABC):
    """Writes the kernel of one cut.

    Tuples of scores and of results have the shapes `near` and `far` (see `device`);
    `lanes` share a row, and a thread has `held` rows.
    """

    near: int
    far: int
    lanes: int
    held: int

    def __init__(self, made: Attention, cut: Cut, names: list[str], simulated: bool) -> None:
        self.made, self.cut, self.names, self.simulated = made, cut, names, simulated
        self.addresses, self.out = Addresses(), Lines()
        found = {name: getattr(made, name) for name in ("q", "k", "v", "mask", "result")}
        self.sides: dict[str, Side] = {n: side for n, side in found.items() if side is not None}
        self.pieces = ceiling(made.keys, cut.keys)
        # Scores are logarithms of base 2 where nothing is added to them.
        self.adds = made.mask is not None and made.mask.element is not BOOL
        self.factor = made.scale * (1 if self.adds else LOG2E)
        # Products that are in the order of scores become scores in the exponent.
        self.raw = not self.adds and 0 < self.factor <= 1
        hidden = -(2.0**127) if self.raw else HIDDEN  # by any factor it is no rounded number
        self.hidden = f"np.float32({hidden!r})"
        self.lowest = f"np.float32({hidden * (self.factor if self.raw else 1)!r})"

    @property
    @abstractmethod
    def elements(self) -> int:
        """Elements of shared memory."""

    @property
    def element(self) -> DType:
        """Of shared memory."""
        return self.made.element

    @property
    def shared(self) -> int:
        """Bytes of shared memory that are more than a kernel may declare."""
        nbytes = self.elements * self.element.itemsize
        return nbytes if nbytes > DECLARED else 0

    def allocate(self) -> None:
        """Declare shared memory."""
        count = 0 if self.shared else self.elements
        aligned = "" if self.simulated else ", alignment=16"
        self.out.line(f"memory = cuda.shared.array({count}, {storage(self.element)}{aligned})")

    @abstractmethod
    def place_of_thread(self) -> None:
        """Name the thread's first row `i` and its first columns: of scores `near`, of results
        `far`."""

    @abstractmethod
    def queries(self) -> None:
        """See that the block's queries are at hand: in registers or in shared memory."""

    @abstractmethod
    def products(self) -> None:
        """Name the products of the queries with the piece of keys `s`."""

    def pass_on(self) -> None:  # noqa: B027  for weights that stay where they are
        """Show the weights `p` to who needs them."""

    @abstractmethod
    def weigh(self) -> None:
        """Add values by weight to `total`."""

    @property
    @abstractmethod
    def results(self) -> int:
        """Results of a thread."""

    @property
    def exponent(self) -> float:
        """What makes logarithms of base 2 of what tops are."""
        return LOG2E if self.adds else 1.0

    def text(self) -> str:
        head = f"def kernel({', '.join([*self.names, 'status', 'row'])}):"
        self.out.block(head, self.kernel)
        return "\n".join([*self.addresses.functions, "", *self.out.lines, ""])

    def kernel(self) -> None:
        line, made = self.out.line, self.made
        parts = f" in {self.cut.splits} parts" if self.cut.splits > 1 else ""
        line(f"# {made.heads} heads, {made.queries} queries of {made.keys} keys{parts}")
        line(f"# tiles of {self.cut.rows} x {self.cut.keys}, {self.cut.threads} threads")
        self.allocate()
        line("thread = np.int64(cuda.threadIdx.x)")
        self.place_of_block()
        self.place_of_thread()
        self.zeros()
        self.copy("k", "j0")
        self.queries()
        line(f"top = repeat({NOTHING}, {self.held})")
        line(f"sums = repeat(np.float32(0), {self.held})")
        line(f"total = repeat(np.float32(0), {self.results})")
        self.loop()
        self.finish()

    # -- places

    def place_of_block(self) -> None:
        """Blocks of one head run together; of causal ones those with the most keys first."""
        line, made, cut = self.out.line, self.made, self.cut
        high = ceiling(made.queries, cut.rows)
        line("block = np.int64(cuda.blockIdx.x)")
        if cut.splits > 1:
            line(f"split = block % {cut.splits}")
            line(f"block = block // {cut.splits}")
        line(f"head = block // {high}")
        number = f"({high - 1} - block % {high})" if made.causal else f"block % {high}"
        line(f"i0 = {number} * {cut.rows}" if high > 1 else "i0 = np.int64(0)")
        self.heads()
        self.ends()

    def heads(self) -> None:
        """Where the head's part of each operand begins."""
        for name, side in self.sides.items():
            base = self.addresses.of(f"head_of_{name}", side.heads, "head")
            self.out.line(f"{name} = {plus(side.offset, base)}")
        for name in self.places:
            self.begin(name)

    def ends(self) -> None:
        """Which pieces of keys the block takes."""
        line, made, cut = self.out.line, self.made, self.cut
        last = str(self.pieces)
        if made.causal:
            seen = plus("i0", cut.rows + self.shift)
            last = f"min({self.pieces}, max(({seen} + {cut.keys - 1}) // {cut.keys}, 1))"
        if cut.splits > 1:
            share = ceiling(self.pieces, cut.splits)
            line(f"piece = split * {share}")
            last = f"min(piece + {share}, {last})"
        else:
            line("piece = np.int64(0)")
        line(f"last = np.int64({last})")
        line(f"j0 = piece * {cut.keys}")

    def extent(self, name: str) -> int:
        """Elements of a row."""
        return self.made.depth if name in ("v", "ct", "made") else self.made.width

    def run(self, name: str) -> int:
        """Neighbours that are copied at once."""
        run = self.sides[name].run
        while self.extent(name) % run:
            run //= 2
        return run

    # -- from memory to shared memory

    @property
    @abstractmethod
    def places(self) -> dict[str, Place]:
        """Where the rows of keys and values go."""

    def zeros(self) -> None:
        """What no copy writes of lines that are longer than rows."""
        for place in self.places.values():
            if place.used > place.width:
                given = ", ".join(map(str, place[:5]))
                self.out.line(f"zero_lines(memory, {given}, thread, {self.cut.threads})")

    def copier(self, name: str) -> Copier:
        return Copier(name, self.sides[name], self.places[name], self.run(name), self.cut.threads)

    def begin(self, name: str) -> None:
        """Name where the thread's part of a piece lies and goes."""
        copier = self.copier(name)
        line = self.out.line
        if self.run(name) > 1:
            line(f"aligned_{name} = is_aligned(a{copier.side.buffer})")
        if copier.step:
            chunks = copier.chunks
            line(f"line_{name}, column = thread // {chunks}, thread % {chunks} * {copier.run}")
            line(f"from_{name} = {plus(name, times('column', copier.side.column))}")
            begin = plus(copier.place.begin, f"line_{name} * {copier.place.lead}", "column")
            line(f"to_{name} = {begin}")

    def copy(self, name: str, first: str, further: str = "") -> None:
        """Copy the rows from `first` on to shared memory, in the background; `further` on than the
        first piece.  One branch for all: each would wait for the others."""
        copier, out = self.copier(name), self.out
        if copier.run == 1:
            self.copies(copier, first, further, aligned=False)
            return
        for head, aligned in ((f"if aligned_{name}:", True), ("else:", False)):
            out.block(head, partial(self.copies, copier, first, further, aligned))

    def copies(self, copier: Copier, first: str, further: str, aligned: bool) -> None:
        name, side, place, out = copier.name, copier.side, copier.place, self.out
        ragged = place.whole % place.lines != 0
        row = plus(first, "line")
        near = f"min({row}, {place.whole - 1})" if ragged else f"({row})"
        source = plus(name, times(near, side.row), times("column", side.column))
        where = plus(place.begin, f"line * {place.lead}", "column", further)
        if copier.step:
            source = plus(f"from_{name}", times(near, side.row))
            where = plus(f"to_{name}", further, f"n * {copier.step * place.lead}")
        inside = f"{row} < {place.whole}" if ragged else "True"
        given = f"memory, {where}, a{side.buffer}, {source}, {copier.run}, {aligned}, {inside}"

        def one() -> None:
            if not copier.step:
                chunks = copier.chunks
                out.line(f"line, column = at // {chunks}, at % {chunks} * {copier.run}")
            out.line(f"copy({given})")

        def turn() -> None:
            if copier.step:
                out.line(f"line = line_{name} + n * {copier.step}")
            else:
                out.line(f"at = thread + n * {copier.threads}")
            out.block(f"if {copier.limit}:", one) if copier.limit else one()

        out.block(f"for n in range({copier.number}):", turn)

    # -- the pass over keys

    @property
    def shift(self) -> int:
        """Query i sees keys up to i + shift."""
        return self.made.keys - self.made.queries

    def loop(self) -> None:
        self.out.block("while piece < last:", self.piece)
        self.out.line("wait_for_copies()")

    def piece(self) -> None:
        line, cut = self.out.line, self.cut
        line(f"j0 = piece * {cut.keys}")
        line("wait_for_copies()")
        line("cuda.syncthreads()")
        self.copy("v", "j0")
        self.products()
        self.scores()
        self.softmax()
        self.pass_on()
        line("wait_for_copies()")
        line("cuda.syncthreads()")
        self.out.block(f"if piece + 1 < {self.pieces}:", lambda: self.copy("k", f"j0 + {cut.keys}"))
        self.weigh()
        line("piece += 1")
        if self.made.causal and cut.splits == 1:
            self.go_on()

    def softmax(self) -> None:
        """Weights of the scores, as if the largest so far were the largest of all; what was summed
        up before changes with that."""
        line = self.out.line
        factor = f"np.float32({self.factor!r})" if self.raw else "None"
        power = f"np.float32({LOG2E})" if self.adds else "None"
        weights = f"scaled_powers(s, least, {factor}" if self.raw else f"powers(s, least, {power}"
        line("before = top")
        line(f"top = row_maxima(s, top, {factor}, {self.near}, {self.lanes})")
        line("least = or_zero(top)")
        line(f"p = {weights}, {self.near})")
        line(f"change = powers(before, least, {power}, {self.near})")
        line(f"sums = added(rescaled(sums, change, {self.near}), p, {self.near})")
        line(f"total = rescaled(total, change, {self.far})")

    def go_on(self) -> None:
        """To the end, where a row has seen nothing but what is hidden."""
        line = self.out.line
        blind = " or ".join(f"top[{k}] <= {self.lowest}" for k in range(self.held))

        def unseen() -> None:
            line(f"blind = {blind}")
            self.out.block(
                "if cuda.syncthreads_count(np.int32(blind)) > 0:",
                lambda: line(f"last = np.int64({self.pieces})"),
            )

        self.out.block(f"if piece == last and last < {self.pieces}:", unseen)

    def scores(self) -> None:
        """From products to scores: the factor, and what masks do."""
        if not self.raw:
            self.out.line(f"s = times(s, np.float32({self.factor!r}))")
        self.out.line("j = j0 + near  # the thread's first column")
        self.hide("s", self.hidden, NOTHING)

    def hide(self, values: str, hidden: str, nothing: str) -> None:
        """Put something else in the place of what masks hide, and of keys that are not there."""
        line, made, cut = self.out.line, self.made, self.cut
        shape = f"{self.near}, {self.lanes}"
        if made.mask is not None:
            side = made.mask
            start = plus("mask", f"i * {side.row}", f"j * {side.column}")
            ends = f"{made.queries - 1} - i, {side.row}, {made.keys - 1} - j, {side.column}"
            given = f"{values}, a{side.buffer}, {start}, {ends}, {hidden}, {shape}"
            line(f"{values} = mask_{side.element}({given})")
        if made.causal:
            last = f"{plus('i', self.shift)} - j"
            self.out.block(
                f"if j0 + {cut.keys - 1} > {plus('i0', self.shift)}:",
                lambda: line(f"{values} = up_to({values}, {last}, 1, {hidden}, {shape})"),
            )
        if made.keys % cut.keys:
            last_key = f"{made.keys - 1} - j"
            self.out.block(
                f"if j0 + {cut.keys} > {made.keys}:",
                lambda: line(f"{values} = up_to({values}, {last_key}, 0, {nothing}, {shape})"),
            )

    # -- results

    def finish(self) -> None:
        line, made, side = self.out.line, self.made, self.made.result
        line(f"sums = row_sums(sums, {self.lanes})")
        ends = f"far, {made.queries} - i, {made.depth}, {self.far}, {self.lanes}"
        if self.cut.splits > 1:
            self.store_part(ends)
            return
        line(f"total = rescaled(total, shares(sums), {self.far})")
        start = plus("result", times("i", side.row))
        line(f"store_{made.element}(a{side.buffer}, {start}, {side.row}, total, {ends})")

    def store_part(self, ends: str) -> None:
        """Totals of all splits, then their tops, then their sums."""
        line, made, rows = self.out.line, self.made, self.made.heads * self.made.queries
        line(f"place = (split * {made.heads} + head) * {made.queries} + i")
        line(f"store_f32(work, place * {made.depth}, {made.depth}, total, {ends})")
        first = self.cut.splits * rows * made.depth
        end = f"np.int64(0), {made.queries} - i, 1, {self.far}, 1"

        def one_number() -> None:
            for k, values in enumerate(("top", "sums")):
                where = plus(first + k * self.cut.splits * rows, "place")
                line(f"store_f32(work, {where}, 1, {values}, {end})")

        self.out.block(f"if thread % {self.lanes} == 0:", one_number)


def joining(made: Attention, cut: Cut, names: list[str], step: int, factor: float) -> str:
    """The kernel that puts the parts of splits together."""
    out, rows = Lines(), made.heads * made.queries
    tops = cut.splits * rows * made.depth
    sums, side = tops + cut.splits * rows, made.result
    addresses = Addresses()
    base = addresses.of("head_of_result", side.heads, f"(own // {made.queries})")

    def element() -> None:
        line = out.line
        line(f"own, c = e // {made.depth}, e % {made.depth}")
        line(f"top = {NOTHING}")
        out.block(
            f"for part in range(own, {cut.splits * rows}, {rows}):",
            lambda: line(f"top = max(top, work[{tops} + part])"),
        )
        line("least = top if top > -np.inf else np.float32(0)")
        line("total, whole = np.float32(0), np.float32(0)")

        def add() -> None:
            line(f"share = power((work[{tops} + part] - least) * np.float32({factor!r}))")
            line(f"total += share * work[part * {made.depth} + c]")
            line(f"whole += share * work[{sums} + part]")

        out.block(f"for part in range(own, {cut.splits * rows}, {rows}):", add)
        place = plus(side.offset, base, times(f"(own % {made.queries})", side.row), "c")
        line(f"a{side.buffer}[{place}] = narrow_{made.element}(total / whole)")

    def body() -> None:
        out.line("thread = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x")
        out.block(f"for e in range(thread, {rows * made.depth}, {step}):", element)

    out.block(f"def kernel({', '.join([*names, 'status', 'row'])}):", body)
    return "\n".join([*addresses.functions, "", *out.lines, ""])
