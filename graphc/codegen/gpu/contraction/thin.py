"""Contractions of few rows: a stream of one operand, with its sums in the registers of a block.

    along k        32 lanes read neighbours along k of the thread's columns    B[j, k] in memory
    along columns  32 lanes read neighbours along j, eight groups share k      B[k, j] in memory

A block takes all rows, so that B is read once; the lanes' parts of a sum are added in a tree.
"""

from __future__ import annotations

from functools import partial

from graphc.codegen.gemm.form import Groups, Loop, normalise, total
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.contraction.text import (
    Addresses,
    Lines,
    bare,
    deliver,
    plus,
    times,
    widened,
)
from graphc.codegen.gpu.contraction.tile_choice import (
    WIDEST,
    Cut,
    Terms,
    Thin,
    ceiling,
    filled,
    has_groups,
    nearer,
    neighbours,
    operand,
    possible_splits,
)
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.lowering.contraction import Form
from graphc.codegen.python.helpers import storage
from graphc.ir.types import DType

THREADS, WARP = 256, 32
PAD = 1


def thin_cut(form: Form, chip: Chip, splits: int | None = None) -> Cut | None:
    """The cut of a contraction with few rows or few columns; None if it has many of both."""
    groups = normalise(form.normal(), chip.warp)
    if total(groups.m) > total(groups.n):
        groups = exchanged(groups)
    sizes = (total(groups.batch), total(groups.m), total(groups.n), total(groups.k))
    _, m, _, k = sizes
    few = tuned.thin_groups if has_groups(form, chip) else tuned.thin_rows
    if m > few or k < tuned.thin_steps:
        return None
    shape = shape_of(form, groups, sizes, chip)
    parts = splits or enough_splits(shape, sizes, chip)
    return Cut(groups, shape, filled(parts, k, shape.depth), *sizes)


def enough_splits(shape: Thin, sizes: tuple[int, ...], chip: Chip) -> int:
    """The fewest parts that keep the machine busy, or the most there can be."""
    blocks = sizes[0] * ceiling(sizes[2], shape.columns)
    possible = tuple(possible_splits(shape, sizes, chip))
    return next((p for p in possible if blocks * p >= 2 * tuned.processors), possible[-1])


def exchanged(groups: Groups) -> Groups:
    """The same contraction with rows as columns."""

    def turn(loops: list[Loop]) -> list[Loop]:
        return [loop._replace(a=loop.b, b=loop.a) for loop in loops]

    batch, m, n, k = (turn(g) for g in (groups.batch, groups.n, groups.m, groups.k))
    return Groups(batch, m, n, k, not groups.swapped)


def shape_of(form: Form, groups: Groups, sizes: tuple[int, ...], chip: Chip) -> Thin:
    """How the threads of a block share columns and steps."""
    batch, m, n, k = sizes
    position, terms = operand(form, groups, "b")
    element = form.element
    offset = form.reads[position].offset
    most = WIDEST // element.itemsize
    steps = neighbours(element, offset, terms, 2, most)
    columns = neighbours(element, offset, terms, 1, min(most, power(tuned.thin_sums // m)))
    threads, warp = (THREADS, WARP) if not chip.simulated else (chip.threads, chip.threads // 2)
    if steps > columns or (steps == columns and (nearer(terms) or n == 1)):
        lanes = min(warp, power(ceiling(k, max(1, steps))))
        if batch * n < tuned.processors:
            lanes = threads  # too few columns to go round
        wide = power(
            min(
                tuned.thin_sums // m,
                4,
                max(1, batch * n * lanes // (2 * tuned.processors * threads)),
            )
        )
        return Thin(m, threads // lanes * wide, lanes, wide, max(1, steps), 2, "k")
    wide = max(1, columns)
    across = min(warp, power(ceiling(n, wide) * 2 - 1))
    return Thin(m, across * wide, threads // across, wide, 1, 4, "columns")


def power(count: int) -> int:
    """The largest power of two that is not above the count."""
    return 1 << max(1, count).bit_length() - 1


class ThinSource:
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
        self.form, self.cut, self.accumulator, self.names = form, cut, accumulator, names
        self.shape: Thin = cut.tile
        self.simulated = simulated
        self.buffers = buffers
        self.addresses, self.out = Addresses(), Lines()

    def text(self, finish: list[str]) -> str:
        """The functions and the kernel; `finish` are the texts that define that function."""
        self.out.block(f"def kernel({', '.join([*self.names, 'status', 'row'])}):", self.kernel)
        return "\n".join([*self.addresses.functions, *finish, "", *self.out.lines, ""])

    @property
    def sums(self) -> int:
        """Sums of a block, with what keeps the lanes' parts in different banks."""
        return int(self.shape.rows * self.shape.columns) + PAD

    @property
    def ragged(self) -> bool:
        """Do some lanes run over the end of k?"""
        return bool(self.cut.k % self.shape.depth)

    def kernel(self) -> None:
        line, cut, shape = self.out.line, self.cut, self.shape
        parts = f" in {cut.splits} parts" if cut.splits > 1 else ""
        line(f"# {cut.batch} x {cut.m} x {cut.n} sums of {cut.k} products{parts}")
        line(f"# {shape.columns} columns a block, {shape.lanes} of {shape.threads} threads to each")
        kind = storage(self.accumulator)
        line(f"memory = cuda.shared.array({shape.lanes * self.sums}, {kind})")
        line("thread = np.int64(cuda.threadIdx.x)")
        line("block = np.int64(cuda.blockIdx.x)")
        _, wide = cut.tiles
        if cut.splits > 1:
            line(f"split = block // {cut.batch * wide}")
            line(f"block = block % {cut.batch * wide}")
        line(f"batch, j0 = block // {wide}, block % {wide} * {shape.columns}")
        other = shape.threads // shape.lanes
        if shape.along == "k":
            line(f"lane, slot = thread % {shape.lanes}, thread // {shape.lanes}")
        else:
            line(f"lane, slot = thread // {other}, thread % {other}")
        self.begin()
        self.loop()
        self.finish()

    def side(self, name: str) -> tuple[int, DType, int, Terms]:
        """Buffer, element type, offset and dims of A or B."""
        position, terms = operand(self.form, self.cut.groups, name)
        element = self.form.element
        return self.buffers[position], element, self.form.reads[position].offset, terms

    def begin(self) -> None:
        """Where the rows of A and the thread's columns of B begin."""
        line, shape = self.out.line, self.shape
        for name in "ab":
            buffer, _, offset, terms = self.side(name)
            line(f"aligned_{name} = is_aligned(a{buffer})")
            base = plus(offset, self.addresses.of(f"batch_{name}", terms.batch, "batch"))
            line(f"base_{name} = {base}")
        _, _, _, terms = self.side("a")
        for r in range(shape.rows):
            line(f"row{r} = {plus('base_a', self.addresses.of('outer_of_a', terms.outer, str(r)))}")
        _, _, _, terms = self.side("b")
        for c in range(shape.wide if shape.along == "k" else 1):
            last = self.cut.n - (1 if shape.along == "k" else shape.wide)
            where = f"min({plus('j0', times('slot', shape.wide), c)}, {last})"
            made = self.addresses.of("outer_of_b", terms.outer, where)
            line(f"column{c} = {plus('base_b', made)}")

    def loop(self) -> None:
        """The lane's products."""
        line, cut, shape = self.out.line, self.cut, self.shape
        sums = shape.rows * shape.wide
        line(f"total = repeat({storage(self.accumulator)}(0), {sums})")
        first, last = "0", str(cut.k)
        if cut.splits > 1:
            share = ceiling(cut.pieces, cut.splits) * shape.depth
            line(f"first = split * {share}")
            line(f"last = min(first + {share}, {cut.k})")
            first, last = "first", "last"
        start = plus(first, times("lane", shape.run))

        def body() -> None:
            for turn in range(shape.unroll):
                self.step(turn)

        self.out.block(f"for k in range({start}, {last}, {shape.depth}):", body)

    def step(self, turn: int) -> None:
        """One read of every row and column, and their products."""
        line, shape = self.out.line, self.shape
        line(f"k{turn} = {plus('k', turn * shape.lanes * shape.run)}")
        at = f"k{turn}"
        if self.ragged and turn:
            line(f"inside{turn} = k{turn} < {self.cut.k}")
            line(f"k{turn} = min(k{turn}, {self.cut.k - shape.run})")
        x = " + ".join(self.read("a", f"row{r}", at, shape.run, "k") for r in range(shape.rows))
        if shape.along == "k":
            columns = range(shape.wide)
            y = " + ".join(self.read("b", f"column{c}", at, shape.run, "k") for c in columns)
        else:
            y = self.read("b", "column0", at, shape.wide, "columns")
        if self.ragged and turn:
            x, y = f"keep(inside{turn}, {x})", f"keep(inside{turn}, {y})"
        line(f"x{turn} = {x}")
        line(f"y{turn} = {y}")
        if shape.run == 1:
            line(f"total = outer(total, x{turn}, y{turn})")
        else:
            line(f"total = dots(total, x{turn}, y{turn}, {shape.run})")

    def read(self, name: str, base: str, at: str, count: int, along: str) -> str:
        """Neighbours along k or along the columns: at once if they lie in a row."""
        buffer, element, offset, terms = self.side(name)
        if along == "columns" or neighbours(element, offset, terms, 2, count) >= count:
            index = plus(base, self.addresses.of(f"steps_of_{name}", terms.steps, at))
            made = f"load(a{buffer}, {index}, {count}, aligned_{name})"
            return widened(element, self.accumulator, made)
        parts = []
        for number in range(count):
            where = f"({plus(at, number)})" if number else at
            index = plus(base, self.addresses.of(f"steps_of_{name}", terms.steps, where))
            parts.append(f"load(a{buffer}, {bare(index)}, 1, True)")
        return widened(element, self.accumulator, " + ".join(parts))

    def finish(self) -> None:
        """Add up the lanes' parts, the second half to the first, and hand on the sums."""
        line, cut, shape = self.out.line, self.cut, self.shape
        for r in range(shape.rows):
            where = plus(f"lane * {self.sums}", r * shape.columns, times("slot", shape.wide))
            part = f"total[{r * shape.wide}:{(r + 1) * shape.wide}]" if shape.rows > 1 else "total"
            line(f"write_column(memory, {where}, 1, {part})")
        step, fold = shape.lanes // 2, "memory[e] = plus((memory[e],), (memory[e + {}],))[0]"
        while step:
            line("cuda.syncthreads()")
            self.out.block(
                f"for e in range(thread, {step * self.sums}, {shape.threads}):",
                partial(line, fold.format(step * self.sums)),
            )
            step //= 2
        line("cuda.syncthreads()")

        def element() -> None:
            line(f"i, j = e // {shape.columns}, j0 + e % {shape.columns}")
            if cut.n % shape.columns:
                self.out.block(f"if j < {cut.n}:", give)
            else:
                give()

        def give() -> None:
            line(deliver(cut, self.names, "memory[e]"))

        size = shape.rows * shape.columns
        self.out.block(f"for e in range(thread, {size}, {shape.threads}):", element)
