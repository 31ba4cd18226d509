"""The tiled kernel of a contraction as readable source.

        columns of B, through shared memory            a thread's sums: tall x wide, in runs of
          +--------------------+                       `vector` rows and columns, so that reads of
          |  depth x columns   |                       shared memory take 16 bytes and the lanes of
          +--------------------+                       a warp meet in no bank
     +--+ +--------------------+
     |A | |      x x    x x    |  rows        for piece of k:   fetch the next piece to registers
     |  | |      x x    x x    |                                multiply and add this one
     +--+ +--------------------+                                store the next beside it, wait

Two pieces lie in shared memory at any time.  Finished sums pass through shared memory once more, so
that neighbouring threads write neighbouring results, whatever else `finish` reads and writes.
"""

from __future__ import annotations

from graphc.codegen.cuda.contract_plan import WIDEST, Cut, Side, Tile, sides_of, vector_of
from graphc.codegen.cuda.contract_text import Addresses, Lines, bare, deliver, plus, times, widened
from graphc.codegen.lowering.contraction import Form
from graphc.codegen.source_helpers import storage
from graphc.ir.types import DType

LINES = 512  # multiply-adds of a thread up to which the steps of a piece are written one by one
BAND = 8  # tiles above each other that run together, so that they share columns of B
WARP, WARP_DOWN, WARP_ACROSS = 32, 4, 8
LINE = {"a": "row", "b": "column"}  # what the operands' outer dims are


class Copies:
    """One operand's way from memory to shared memory: which thread takes which elements.

    A thread takes `places`, (along outer, along k) from its first one on, `width` elements each.
    """

    def __init__(
        self, side: Side, extent: int, cut: Cut[Tile], accumulator: DType, start: int
    ) -> None:
        self.side, self.extent, self.cut = side, extent, cut
        self.depth, self.threads = cut.tile.depth, cut.tile.threads
        self.lead = extent + WIDEST // accumulator.itemsize
        self.start = start
        self.count = cut.m if side.name == "a" else cut.n
        self.tile = cut.tile.rows if side.name == "a" else cut.tile.columns

    @property
    def elements(self) -> int:
        """Shared memory that one piece takes."""
        return self.lead * self.depth

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


class TileSource:
    """Writes the kernel for one cut."""

    def __init__(
        self, form: Form, cut: Cut[Tile], accumulator: DType, buffers: tuple[int, int],
        names: list[str], simulated: bool,
    ) -> None:  # fmt: skip
        self.cut, self.accumulator, self.names, self.simulated = cut, accumulator, names, simulated
        self.vector = vector_of(accumulator)
        a, b = sides_of(form, buffers, cut)
        self.a = Copies(a, cut.tile.rows, cut, accumulator, 0)
        self.b = Copies(b, cut.tile.columns, cut, accumulator, self.a.elements)
        self.piece = self.a.elements + self.b.elements
        self.addresses = Addresses()
        self.out = Lines()

    # -- the parts of a tile

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
    def chunk(self) -> int:
        """Rows of the tile whose sums are finished together: a run of every thread."""
        return self.cut.tile.rows // self.runs[0]

    @property
    def shared(self) -> int:
        """Elements of shared memory."""
        return max(2 * self.piece, self.chunk * self.cut.tile.columns)

    def text(self, finish: list[str]) -> str:
        """The functions and the kernel; `finish` are the texts that define that function."""
        self.out.block(f"def kernel({', '.join([*self.names, 'status', 'row'])}):", self.kernel)
        return "\n".join([*self.addresses.functions, *finish, "", *self.out.lines, ""])

    def kernel(self) -> None:
        line, cut = self.out.line, self.cut
        line(
            f"# {cut.batch} x {cut.m} x {cut.n} sums of {cut.k} products, {cut.splits} parts each;"
        )
        line(f"# tiles of {cut.tile.rows} x {cut.tile.columns}, {cut.tile.threads} threads")
        aligned = "" if self.simulated else f", alignment={WIDEST}"
        line(f"memory = cuda.shared.array({self.shared}, {storage(self.accumulator)}{aligned})")
        line("thread = np.int64(cuda.threadIdx.x)")
        self.place_of_block()
        self.place_of_thread()
        for copies in (self.a, self.b):
            self.begin(copies)
        self.sums()
        self.finish()

    def place_of_block(self) -> None:
        """Which tile this is: bands of rows, so that blocks that run together share operands."""
        line, cut = self.out.line, self.cut
        high, wide = cut.tiles
        band = next(size for size in (BAND, 4, 2, 1) if high % size == 0)
        line("block = np.int64(cuda.blockIdx.x)")
        if cut.splits > 1:
            line(f"split = block // {cut.batch * high * wide}")
            line(f"block = block % {cut.batch * high * wide}")
        line(f"batch = block // {high * wide}")
        line(f"block = block % {high * wide}")
        if wide > 1:
            down = plus(
                times(f"block // {band * wide}", band), f"block % {band}" if band > 1 else 0
            )
            across = f"block % {band * wide} // {band}" if band > 1 else f"block % {wide}"
        else:
            down, across = "block", "0"
        line(f"i0 = {times(f'({down})' if '+' in down else down, cut.tile.rows)}")
        line(f"j0 = {times(across, cut.tile.columns)}")

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

    def begin(self, copies: Copies) -> None:
        """Names for what of an operand a thread copies."""
        line, side, name = self.out.line, copies.side, copies.side.name
        outer, steps = copies.first()
        line(f"outer_{name}, step_{name} = {outer}, {steps}")
        if side.width > 1:
            line(f"aligned_{name} = is_aligned(a{side.buffer})")
        base = plus(side.offset, self.addresses.of(f"batch_{name}", side.terms.batch, "batch"))
        for number, (shift, _) in self.distinct(copies, 0):
            where = plus("i0" if name == "a" else "j0", f"outer_{name}", shift)
            if copies.count % copies.tile:
                where = f"min({where}, {copies.count - copies.reach('outer')})"
            else:
                where = f"({where})"
            made = self.addresses.of(f"outer_of_{name}", side.terms.outer, where)
            line(f"{LINE[name]}{number} = {plus(base, made)}")

    def distinct(self, copies: Copies, which: int) -> list[tuple[int, tuple[int, ...]]]:
        """The places that differ along outer (0) or k (1), numbered."""
        found: dict[int, tuple[int, ...]] = {}
        for place in copies.places:
            found.setdefault(place[which], place)
        return list(enumerate(found.values()))

    # -- from memory to shared memory

    def fetch(self, piece: str) -> None:
        """Read a piece of both operands into registers."""
        line, cut = self.out.line, self.cut
        ragged = cut.k % (cut.tile.depth)
        line(f"k0 = {times(piece, cut.tile.depth)}")
        for copies in (self.a, self.b):
            side, name = copies.side, copies.side.name
            offsets = {}
            for number, (_, step) in self.distinct(copies, 1):
                where = f"({plus('k0', f'step_{name}', step)})"
                if ragged:
                    line(f"k_{name}{number} = {where[1:-1]}")
                    where = f"min(k_{name}{number}, {cut.k - copies.reach('k')})"
                made = self.addresses.of(f"steps_of_{name}", side.terms.steps, where)
                if made:
                    line(f"s_{name}{number} = {bare(made)}")
                offsets[step] = number, f"s_{name}{number}" if made else ""
            rows = {place[0]: number for number, place in self.distinct(copies, 0)}
            aligned = f"aligned_{name}" if side.width > 1 else "True"
            for number, (outer, step) in enumerate(copies.places):
                index = plus(f"{LINE[name]}{rows[outer]}", offsets[step][1])
                value = f"load(a{side.buffer}, {index}, {side.width}, {aligned})"
                if ragged:
                    value = f"keep(k_{name}{offsets[step][0]} < {cut.k}, {value})"
                line(f"x_{name}{number} = {value}")

    def store(self, start: str) -> None:
        """Put the piece in registers into shared memory, as sums need it."""
        for copies in (self.a, self.b):
            side, name, lead = copies.side, copies.side.name, copies.lead
            for number, (outer, step) in enumerate(copies.places):
                where = plus(
                    start, copies.start + step * lead + outer, f"step_{name} * {lead}",
                    f"outer_{name}",
                )  # fmt: skip
                value = widened(side.element, self.accumulator, f"x_{name}{number}")
                if side.along == "k" and side.width > 1:
                    self.out.line(f"write_column(memory, {where}, {lead}, {value})")
                else:
                    self.out.line(f"write(memory, {where}, {value})")

    # -- sums

    def sums(self) -> None:
        line, cut = self.out.line, self.cut
        line(f"total = repeat({storage(self.accumulator)}(0), {cut.tile.tall * cut.tile.wide})")
        first, last = "0", str(cut.pieces)
        if cut.splits > 1:
            share = -(-cut.pieces // cut.splits)
            line(f"first = split * {share}")
            line(f"last = min(first + {share}, {cut.pieces})")
            first, last = "first", "last"
        self.fetch(first)
        self.store("")
        line("cuda.syncthreads()")
        line("now = 0")
        self.out.block(
            f"for piece in range({plus(first, 1)}, {plus(last, 1)}):", lambda: self.step(last)
        )

    def step(self, last: str) -> None:
        """Multiply the piece in shared memory while the next one is under way."""
        line = self.out.line
        self.out.block(f"if piece < {last}:", lambda: self.fetch("piece"))
        self.multiply()
        line(f"now = {self.piece} - now")
        self.out.block(f"if piece < {last}:", lambda: self.store("now"))
        line("cuda.syncthreads()")

    def multiply(self) -> None:
        tile = self.cut.tile
        steps = tile.depth
        while steps * tile.tall * tile.wide > LINES:
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

    # -- results

    def finish(self) -> None:
        parts, line = self.runs[0], self.out.line
        if parts == 1:
            self.finish_part("i0")
            return

        def body() -> None:
            self.finish_part(f"i0 + part * {self.chunk}")
            line("cuda.syncthreads()")

        self.out.block(f"for part in range({parts}):", body)

    def finish_part(self, start: str) -> None:
        """Exchange a run of every thread's rows, and finish them in the order of the result."""
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
                line(f"write(memory, {where}, total[{first}:{first + wide}])")
        if self.runs[0] > 1:
            used = high * tile.wide
            line(f"total = total[{used}:] + total[:{used}]")
        line("cuda.syncthreads()")

        def give() -> None:
            line(deliver(self.cut, self.names, "memory[e]"))

        def element() -> None:
            line(f"i = {start} + e // {tile.columns}")
            line(f"j = j0 + e % {tile.columns}")
            checks = [
                f"{x} < {n}"
                for x, n, t in (("i", self.cut.m, tile.rows), ("j", self.cut.n, tile.columns))
                if n % t
            ]
            if checks:
                self.out.block(f"if {' and '.join(checks)}:", give)
            else:
                give()

        size = self.chunk * tile.columns
        self.out.block(f"for e in range(thread, {size}, {tile.threads}):", element)
