"""The frame of a kernel that computes a tile of a contraction per block, as readable source.

        a piece of B           for piece of k:   fetch the next piece to registers
          +--------+                             multiply and add this one
          +--------+                             store the next beside it, wait
     +--+ +--------+
     |A | |  tile  |           Two pieces lie in shared memory at any time.
     +--+ +--------+

Offsets of steps of k that take divisions are worked out once per block, a piece ahead, in tables.
How threads multiply is a subclass's: `tile` and `matrix`.  Finished sums pass
through shared memory once more, so that neighbouring threads write neighbouring results, whatever
else `finish` reads and writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple

from graphc.codegen.gpu.contraction.copies import Copies
from graphc.codegen.gpu.contraction.text import (
    Addresses,
    Lines,
    bare,
    deliver,
    plus,
    times,
    widened,
)
from graphc.codegen.gpu.contraction.tile_choice import WIDEST, Cut, Side, sides_of
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.contraction import Form
from graphc.codegen.python.helpers import storage
from graphc.ir.types import DType

DECLARED = 40 << 10  # bytes of shared memory that kernels declare; tables come beside them
TOGETHER = 4  # sums that a thread finishes one after another
LINE = {"a": "row", "b": "column"}  # what the operands' outer dims are


class Run(NamedTuple):
    """What a thread reads at once: where it lies in memory and goes in shared memory; zeros where
    it is not `inside`."""

    side: Side
    number: int
    at: str
    inside: str
    where: str


class BlockSource(ABC):
    """Writes the kernel for one cut."""

    def __init__(
        self,
        form: Form,
        cut: Cut,
        accumulator: DType,
        buffers: tuple[int, int],
        names: list[str],
        simulated: bool,
    ) -> None:
        self.cut, self.accumulator, self.names, self.simulated = cut, accumulator, names, simulated
        self.a, self.b = self.copies(*sides_of(form, buffers, cut))
        self.piece = self.a.elements + self.b.elements
        self.addresses = Addresses()
        self.out = Lines()

    @abstractmethod
    def copies(self, a: Side, b: Side) -> tuple[Copies, Copies]:
        """How the operands lie in shared memory."""

    @abstractmethod
    def allocate(self) -> None:
        """Name the shared memory: `memory` for pieces, `sums` for finished sums."""

    @abstractmethod
    def place_of_thread(self) -> None:
        """Name what the thread's sums are."""

    @property
    @abstractmethod
    def needed(self) -> int:
        """Bytes of shared memory, beside tables."""

    @property
    def shared(self) -> int:
        """Those that are asked for at launch: what there is too much of to be declared."""
        return self.needed if self.needed > DECLARED and not self.simulated else 0

    def declare(self, name: str, dtype: DType) -> None:
        """Name the shared memory as elements of a type."""
        count = 0 if self.shared else self.needed // dtype.itemsize
        aligned = "" if self.simulated else f", alignment={WIDEST}"
        self.out.line(f"{name} = cuda.shared.array({count}, {storage(dtype)}{aligned})")

    @property
    @abstractmethod
    def held(self) -> int:
        """Sums of a thread."""

    @property
    def is_alone(self) -> bool:
        """Do a block's registers fill a processor?"""
        return self.held > tuned.resident_sums

    def stored(self, element: DType, value: str) -> str:
        """Elements that were read, as shared memory holds them."""
        return widened(element, self.accumulator, value)

    @abstractmethod
    def multiply(self) -> None:
        """Multiply and add the piece that begins at `now`."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """Parts of the tile that are finished one after another."""

    @abstractmethod
    def exchange(self) -> None:
        """Write a part's sums to shared memory, and turn to the next part's."""

    @abstractmethod
    def row(self, e: str) -> str:
        """The row in the tile of number e of the part's sums."""

    def text(self, finish: list[str]) -> str:
        """The functions and the kernel; `finish` are the texts that define that function."""
        self.out.block(f"def kernel({', '.join([*self.names, 'status', 'row'])}):", self.kernel)
        return "\n".join([*self.addresses.functions, *finish, "", *self.out.lines, ""])

    def kernel(self) -> None:
        line, cut = self.out.line, self.cut
        parts = f" in {cut.splits} parts" if cut.splits > 1 else ""
        line(f"# {cut.batch} x {cut.m} x {cut.n} sums of {cut.k} products{parts}")
        line(f"# tiles of {cut.tile.rows} x {cut.tile.columns}, {cut.tile.threads} threads")
        self.allocate()
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
        band = next(size for size in (tuned.tile_band, 4, 2, 1) if high % size == 0)
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

    def begin(self, copies: Copies) -> None:
        """Names for what of an operand a thread copies."""
        line, side, name = self.out.line, copies.side, copies.side.name
        outer, steps = copies.first()
        line(f"outer_{name}, step_{name} = {outer}, {steps}")
        if copies.has_table:
            line(f"steps_{name} = cuda.shared.array({2 * copies.depth}, {copies.table_type})")
        if side.width > 1:
            line(f"aligned_{name} = is_aligned(a{side.buffer})")
        base = plus(side.offset, self.addresses.of(f"batch_{name}", side.terms.batch, "batch"))
        for number, (shift, _) in self.distinct(copies, 0):
            where = plus("i0" if name == "a" else "j0", f"outer_{name}", shift)
            if copies.count % copies.extent:
                last = copies.count - copies.reach("outer")
                line(f"in_{name}{number} = {where} <= {last}")
                where = f"min({where}, {last})"
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

    def fetch(self, piece: str, target: str) -> None:
        """Read a piece of both operands, on its way to `target` in shared memory."""
        cut = self.cut
        ragged = cut.k % (cut.tile.depth) != 0
        self.out.line(f"k0 = {times(piece, cut.tile.depth)}")
        runs = []
        for copies in (self.a, self.b):
            name = copies.side.name
            steps = self.steps(copies, ragged, piece)
            rows = {place[0]: number for number, place in self.distinct(copies, 0)}
            for number, (outer, step) in enumerate(copies.places):
                k, offset = steps[step]
                index = plus(f"{LINE[name]}{rows[outer]}", offset)
                inside = f"{k} < {cut.k}" if ragged else ""
                inside = self.inside(copies, rows[outer], inside)
                where = copies.where(target, outer, step)
                runs.append(Run(copies.side, number, index, inside, where))
        self.fetch_runs(runs)

    def inside(self, copies: Copies, number: int, inside: str) -> str:
        """Which elements are not zeros: those beyond the last row or column may be anything."""
        return inside

    def steps(self, copies: Copies, ragged: bool, piece: str) -> dict[int, tuple[str, str]]:
        """Names for the steps of k that a thread reads at, and for their offsets."""
        side, name, found = copies.side, copies.side.name, {}
        for number, (_, step) in self.distinct(copies, 1):
            where = f"({plus('k0', f'step_{name}', step)})"
            if ragged:
                self.out.line(f"k_{name}{number} = {where[1:-1]}")
                where = f"min(k_{name}{number}, {self.cut.k - copies.reach('k')})"
            if copies.has_table:
                half = f"({piece} & 1) * {copies.depth}"
                made = f"steps_{name}[{plus(half, f'step_{name}', step)}]"
            else:
                made = self.addresses.of(f"steps_of_{name}", side.terms.steps, where)
            if made:
                self.out.line(f"s_{name}{number} = {bare(made)}")
            found[step] = f"k_{name}{number}", f"s_{name}{number}" if made else ""
        return found

    def tables(self, piece: str) -> None:
        """Offsets of the steps of a piece, for all threads, where they take divisions."""
        cut, depth = self.cut, self.cut.tile.depth
        for copies in (self.a, self.b):
            if not copies.has_table:
                continue
            name, most = copies.side.name, cut.k - copies.reach("k")
            few = depth <= cut.tile.threads
            e = "thread" if few else "e"
            k = f"min({times(piece, depth)} + {e}, {most})"
            made = self.addresses.of(f"steps_of_{name}", copies.side.terms.steps, k)
            text = f"steps_{name}[({piece} & 1) * {depth} + {e}] = {made}"
            loop = f"for e in range(thread, {depth}, {cut.tile.threads}):"
            self.out.block(f"if thread < {depth}:" if few else loop, partial(self.out.line, text))

    def fetch_runs(self, runs: list[Run]) -> None:
        """Read the elements of places into registers."""
        for side, number, at, inside, _ in runs:
            aligned = f"aligned_{side.name}" if side.width > 1 else "True"
            value = f"load(a{side.buffer}, {at}, {side.width}, {aligned})"
            if inside:
                value = f"keep({inside}, {value})"
            self.out.line(f"x_{side.name}{number} = {value}")

    def store(self, target: str) -> None:
        """See that the piece is in shared memory, as sums need it."""
        for copies in (self.a, self.b):
            side, name = copies.side, copies.side.name
            for number, (outer, step) in enumerate(copies.places):
                value = self.stored(side.element, f"x_{name}{number}")
                self.out.line(copies.write(target, outer, step, value))

    # -- sums

    @property
    def has_tables(self) -> bool:
        return self.a.has_table or self.b.has_table

    def span(self) -> tuple[str, str]:
        """Names for the first piece of the block's sums and for the end of the last."""
        line, cut = self.out.line, self.cut
        if cut.splits == 1:
            return "0", str(cut.pieces)
        share = -(-cut.pieces // cut.splits)
        line(f"first = split * {share}")
        line(f"last = min(first + {share}, {cut.pieces})")
        return "first", "last"

    def sums(self) -> None:
        line = self.out.line
        line(f"total = repeat({storage(self.accumulator)}(0), {self.held})")
        first, last = self.span()
        if self.has_tables:
            self.tables(first)
            self.tables(f"({plus(first, 1)})" if first != "0" else "1")
            line("cuda.syncthreads()")
        self.fetch(first, "")
        self.store("")
        line("cuda.syncthreads()")
        line("now = 0")
        self.out.block(
            f"for piece in range({plus(first, 1)}, {plus(last, 1)}):", lambda: self.step(last)
        )

    def step(self, last: str) -> None:
        """Multiply the piece in shared memory while the next one is under way."""
        line = self.out.line
        line(f"later = {self.piece} - now")

        def fetch() -> None:
            self.fetch("piece", "later")
            self.tables("(piece + 1)")

        self.out.block(f"if piece < {last}:", fetch)
        self.multiply()
        self.out.block(f"if piece < {last}:", lambda: self.store("later"))
        line("now = later")
        line("cuda.syncthreads()")

    # -- results

    def finish(self) -> None:
        if self.parts == 1:
            self.finish_part()
            return

        def body() -> None:
            self.finish_part()
            self.out.line("cuda.syncthreads()")

        self.out.block(f"for part in range({self.parts}):", body)

    def finish_part(self) -> None:
        """Exchange a part of every thread's sums, and finish them in the order of the result.

        A thread reads several before it finishes the first: reads do not pass writes of results.
        """
        line, tile = self.out.line, self.cut.tile
        self.exchange()
        line("cuda.syncthreads()")
        size = tile.rows // self.parts * tile.columns
        together = next((n for n in (TOGETHER, 2) if size % (n * tile.threads) == 0), 1)

        def elements() -> None:
            for number in range(together):
                line(f"e{number} = {plus('e', number * tile.threads)}")
                line(f"x{number} = sums[{self.place(f'e{number}')}]")
            for number in range(together):
                self.finish_one(f"e{number}", f"x{number}")

        self.out.block(f"for e in range(thread, {size}, {together * tile.threads}):", elements)

    def place(self, e: str) -> str:
        """Where number e of the part's sums lies in shared memory."""
        return e

    def finish_one(self, e: str, value: str) -> None:
        line, cut, tile = self.out.line, self.cut, self.cut.tile
        line(f"i = i0 + {self.row(e)}")
        line(f"j = j0 + {e} % {tile.columns}")
        ends = (("i", cut.m, tile.rows), ("j", cut.n, tile.columns))
        checks = [f"{x} < {n}" for x, n, extent in ends if n % extent]
        give = partial(line, deliver(cut, self.names, value))
        self.out.block(f"if {' and '.join(checks)}:", give) if checks else give()
