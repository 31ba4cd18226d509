"""Values, memory and registers in the vector instructions of one loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from graphc.codegen.llvm import scalar as llvm_scalar
from graphc.codegen.llvm.interleave import Chunk, Shuffles, Strided
from graphc.codegen.llvm.loops import mask_of
from graphc.codegen.llvm.module import FunctionWriter, Slot, neutral, vector_suffix, widened
from graphc.codegen.llvm.scalar import INSTRUCTIONS, MEMORY, TYPES, literal
from graphc.codegen.llvm.vector_facts import Comb, Place, RowFacts, Shape, VectorFacts
from graphc.codegen.nest_walk import Readers
from graphc.ir.types import DType
from graphc.loops.nest import Buffer, Expr, Register, Store

if TYPE_CHECKING:
    from graphc.codegen.llvm.kernel import KernelWriter


class VectorWriter(FunctionWriter):
    """Writes values of one loop; `kernel` writes what is scalar.

    Addresses are those of the first iteration plus `at`, the number of iterations before this one.
    """

    def __init__(self, kernel: KernelWriter, facts: VectorFacts, shape: Shape) -> None:
        super().__init__(kernel.module, shape.lanes)
        self.kernel, self.facts, self.shape = kernel, facts, shape
        self.contract, self.zeros, self.loose = kernel.contract, kernel.zeros, kernel.loose
        self.ranges = kernel.ranges
        self.before: list[str] = []
        self.start, self.at = "0", "0"
        self.total = ""  # iterations, where some of a vector's lanes may lie behind the last
        self.full = 0  # iterations that there certainly are
        self.copy, self.mask = 0, ""  # whose turn it is
        self.first_copy = 0
        self.masks: list[str] = []
        self.is_guarded = False  # by a condition, which masks hold besides what lanes there are
        self.known: list[dict[Expr, str]] = []
        self.readers = Readers(kernel.changes)
        self.firsts: dict[Expr, str] = {}
        self.splats: dict[Expr, str] = {}
        self.straight = False  # the loop is no loop: all its vectors are written out
        self.fixed_places: dict[Place, tuple[str, int]] = {}
        self.moving: dict[Place, tuple[str, int]] = {}  # in one turn of an inner loop
        self.pointers: dict[Place, tuple[str, int]] = {}
        self.turned: dict[Place, dict[int, str]] = {}  # by constant: what is loaded or waits
        self.chunks: dict[Place, tuple[Chunk, ...]] = {}
        self.slots: dict[tuple[int, int], Slot] = {}
        self.sums: dict[tuple[int, int], str] = {}
        self.failures: dict[int, str] = {}  # by code: the slot of the lanes that have failed

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """What is written meanwhile comes before the loop."""
        k = self.kernel
        inside, k.lines = k.lines, self.before
        try:
            yield
        finally:
            k.lines = inside

    # -- values

    def remember(self, expr: Expr, name: str) -> None:
        super().remember(expr, name)
        self.readers.add(expr)

    def fresh(self, prefix: str) -> str:
        return self.kernel.fresh(prefix)

    def text_lines(self) -> list[str]:
        return self.kernel.lines

    def operand(self, dtype: DType, value: str, kinds: dict[str, str] = TYPES) -> str:
        """A vector with its type in front."""
        return widened(f"{kinds[dtype.name]} {value}", self.lanes)

    def kind(self, dtype: DType, kinds: dict[str, str] = TYPES) -> str:
        return widened(kinds[dtype.name], self.lanes)

    def operands(self, expr: Expr) -> tuple[Expr, ...]:
        return () if expr.op == "load" or self.facts.fixed(expr) else super().operands(expr)

    def write(self, expr: Expr) -> str:
        if self.facts.fixed(expr):
            beside = self.straight and expr.op == "load" and expr.dtype.kind != "b"
            return self.splat_beside(expr) if beside else self.splat(expr)
        match expr.op:
            case "load":
                return self.load(expr)
            case "reg":
                return self.read(expr.data[0])
            case "var":
                return self.number(expr)
        return super().write(expr)

    def fixed(self, expr: Expr) -> str:
        """The scalar of what is the same in all iterations."""
        with self.ahead():
            return self.kernel.value(expr)

    def splat(self, expr: Expr) -> str:
        if expr.op == "const":
            return literal(expr.data, expr.dtype)
        found = self.splats.get(expr)
        if found is None:
            value, kind = self.fixed(expr), TYPES[expr.dtype.name]
            with self.ahead():
                found = self.splats[expr] = self.spread(kind, value)
        return found

    def splat_beside(self, load: Expr) -> str:
        """What is loaded for all lanes where it is used: a loop that runs once may need more of it
        than there are registers.
        """
        k, index = self.kernel, load.args[0]
        buffer = k.kernel.buffers[load.data[0]]
        terms, constant = self.facts.terms(index)
        place = buffer.index, terms
        if place not in self.fixed_places:
            with self.ahead():
                self.fixed_places[place] = k.address(buffer, k.value(index)), constant
        base, origin = self.fixed_places[place]
        where = self.offset(buffer, base, str(constant - origin)) if constant != origin else base
        return self.spread_from(buffer, where)

    def spread(self, kind: str, value: str) -> str:
        k, wide = self.kernel, widened(kind, self.lanes)
        one = k.emit(f"insertelement {wide} poison, {kind} {value}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return k.emit(f"shufflevector {wide} {one}, {wide} poison, {zeros}")

    def number(self, variable: Expr) -> str:
        """A loop variable as a value: the loop's own counts on from lane to lane."""
        if variable is not self.facts.loop.variable:
            turn = self.kernel.values[variable]
            return turn if turn.isdigit() else self.spread("i64", turn)
        first = self.kernel.emit(f"add nsw i64 {self.start}, {self.at}")
        ahead = self.copy * self.lanes
        lanes = ", ".join(f"i64 {ahead + lane}" for lane in range(self.lanes))
        wide = self.kind(variable.dtype)
        return self.kernel.emit(f"add nsw {wide} {self.spread('i64', first)}, <{lanes}>")

    def rare(self, expr: Expr, condition: str, usual: str) -> str:
        known = {place: dict(columns) for place, columns in self.turned.items()}
        made = super().rare(expr, condition, usual)
        self.turned = known  # what was loaded behind the branch is not there after it
        return made

    # -- memory

    def first(self, index: Expr) -> str:
        """An index in the first iteration."""
        if index is self.facts.loop.variable:
            return self.start
        if self.facts.fixed(index):
            return self.fixed(index)
        if index.op == "var":
            return self.kernel.values[index]
        known = self.facts.known(index)
        if known and index in self.firsts:
            return self.firsts[index]
        operands = [self.first(a) for a in index.args]
        if index.op == "add" and "0" in operands:
            return operands[operands[0] == "0"]
        with self.ahead() if known else nullcontext():
            made = INSTRUCTIONS[index.op](self.kernel, index, operands)
        if known:
            self.firsts[index] = made
        return made

    def pointer(self, buffer: Buffer, index: Expr) -> str:
        """Where the elements of this vector begin; accesses a constant apart share an address."""
        k, known, step = self.kernel, self.facts.known(index), self.facts.stride(index) or 1
        terms, constant = self.facts.terms(index)
        key = (buffer.index, terms)
        found = self.pointers.get(key)
        if found is None:
            first = self.first(index)
            with self.ahead() if known else nullcontext():
                base = self.offset(buffer, k.pointer(buffer), first)
            if not self.at.isdigit():
                base = self.offset(buffer, base, self.times(self.at, step))
            found = base, constant
            if known:
                self.pointers[key] = found
        base, origin = found
        away = constant - origin + self.copy * self.lanes * step
        away += int(self.at) * step if self.at.isdigit() else 0
        return self.offset(buffer, base, str(away)) if away else base

    def offset(self, buffer: Buffer, base: str, count: str) -> str:
        """An address so many elements on. Under a condition the first lane may be outside."""
        kind, inside = MEMORY[buffer.dtype.name], "" if self.is_guarded else " inbounds"
        return self.kernel.emit(f"getelementptr{inside} {kind}, ptr {base}, i64 {count}")

    def times(self, number: str, step: int) -> str:
        return number if step == 1 else self.kernel.emit(f"mul nsw i64 {number}, {step}")

    def load(self, expr: Expr) -> str:
        k = self.kernel
        buffer, step = k.kernel.buffers[expr.data[0]], self.facts.stride(expr.args[0])
        if step == 0:
            return self.for_all(buffer, expr.args[0])
        if step not in (1, -1):
            if isinstance(self.facts, RowFacts):
                return self.load_apart(buffer, expr.args[0], self.facts.loaded)
            self.comb(buffer, self.facts.comb(expr))
            return self.values[expr]
        where = self.pointer(buffer, expr.args[0])
        loaded = self.in_a_row(buffer, where) if step == 1 else self.backwards(buffer, where)
        return self.emit(f"icmp ne i8 {loaded}, 0") if buffer.dtype.kind == "b" else loaded

    def for_all(self, buffer: Buffer, index: Expr) -> str:
        """One element for all lanes, of a place that an inner loop moves."""
        terms, constant = self.facts.terms(index)
        place = buffer.index, terms
        if place not in self.moving:
            self.moving[place] = self.kernel.address(buffer, self.first(index)), constant
        base, origin = self.moving[place]
        where = self.offset(buffer, base, str(constant - origin)) if constant != origin else base
        return self.spread_from(buffer, where)

    def spread_from(self, buffer: Buffer, where: str) -> str:
        kind, size = MEMORY[buffer.dtype.name], buffer.dtype.itemsize
        k = self.kernel
        return self.spread(
            kind, k.emit(f"load {kind}, ptr {where}, align {size}{k.access(buffer)}")
        )

    def in_a_row(self, buffer: Buffer, where: str) -> str:
        """The elements from an address on."""
        return self.part_of(buffer, where, 0, "" if self.runs_over(buffer) else self.mask)

    def runs_over(self, buffer: Buffer) -> bool:
        """Whether lanes without an iteration may take what they like of a buffer."""
        return buffer.loose and not self.is_guarded

    def backwards(self, buffer: Buffer, where: str) -> str:
        """The elements down from an address: those up to it in a row, reversed."""
        where = self.offset(buffer, where, str(1 - self.lanes))
        mask = self.reversed("i1", self.mask) if self.mask else ""
        kind = MEMORY[buffer.dtype.name]
        return self.reversed(kind, self.part_of(buffer, where, 0, mask))

    def reversed(self, kind: str, vector: str) -> str:
        return self.shuffled(kind, vector, self.lanes, range(self.lanes)[::-1])

    def store(self, buffer: Buffer, index: Expr, value: str) -> None:
        k = self.kernel
        if buffer.dtype.kind == "b":
            value = self.emit(f"zext i1 {value} to i8")
        if isinstance(self.facts, RowFacts) and self.facts.stride(index) != 1:
            self.store_apart(buffer, index, value, self.facts.stored)
            return
        where, given = self.pointer(buffer, index), self.operand(buffer.dtype, value, MEMORY)
        size, note = buffer.dtype.itemsize, k.access(buffer)
        if self.mask and not self.runs_over(buffer):
            name = f"@llvm.masked.store.{self.suffix(MEMORY[buffer.dtype.name])}.p0"
            rest = f"ptr {where}, i32 {size}, <{self.lanes} x i1> {self.mask}"
            k.lines.append(f"  call void {name}({given}, {rest}){note}")
        else:
            k.lines.append(f"  store {given}, ptr {where}, align {size}{note}")

    # -- memory of which iterations take what lies a few elements apart: rows of it, in vectors that
    #    are shuffled
    #
    #    a0 a1 a2 a3  a4 a5 a6 a7      <->      a0 a2 a4 a6  a1 a3 a5 a7

    def comb(self, buffer: Buffer, comb: Comb) -> None:
        """Load all that is taken of a row."""
        step, kind = comb.step, MEMORY[buffer.dtype.name]
        where = self.pointer(buffer, comb.first.args[0])
        masks = self.row_masks(step, comb.reach)
        row = self.joined(kind, [self.part_of(buffer, where, n, m) for n, m in enumerate(masks)])
        width = self.lanes << (step - 1).bit_length()
        for tooth, expr in comb.teeth:
            made = self.shuffled(kind, row, width, [tooth + step * n for n in range(self.lanes)])
            if buffer.dtype.kind == "b":
                made = self.emit(f"icmp ne i8 {made}, 0")
            self.remember(expr, made)

    def part_of(self, buffer: Buffer, where: str, number: int, mask: str) -> str:
        """A vector of a row, if it is not cut off as a whole."""
        k, kind = self.kernel, self.kind(buffer.dtype, MEMORY)
        size, note = buffer.dtype.itemsize, k.access(buffer)
        at = self.offset(buffer, where, str(number * self.lanes)) if number else where
        if not mask:
            return k.emit(f"load {kind}, ptr {at}, align {size}{note}")
        name = f"@llvm.masked.load.{self.suffix(MEMORY[buffer.dtype.name])}.p0"
        return k.emit(
            f"call {kind} {name}(ptr {at}, i32 {size}, <{self.lanes} x i1> {mask},"
            f" {kind} poison){note}"
        )

    def weave(self, stores: Sequence[Store], values: Sequence[str]) -> None:
        """Store a row of which every element is given."""
        k, buffer, lanes = self.kernel, stores[0].buffer, self.lanes
        kind, size, step = MEMORY[buffer.dtype.name], buffer.dtype.itemsize, len(stores)
        if buffer.dtype.kind == "b":
            values = [self.emit(f"zext i1 {value} to i8") for value in values]
        where, parts = self.pointer(buffer, stores[0].index), self.woven(kind, values)
        for number, (part, mask) in enumerate(zip(parts, self.row_masks(step, step), strict=True)):
            at = self.offset(buffer, where, str(number * lanes)) if number else where
            given, note = f"{widened(kind, lanes)} {part}", k.access(buffer)
            if mask:
                name = f"@llvm.masked.store.{self.suffix(kind)}.p0"
                rest = f"ptr {at}, i32 {size}, <{lanes} x i1> {mask}"
                k.lines.append(f"  call void {name}({given}, {rest}){note}")
            else:
                k.lines.append(f"  store {given}, ptr {at}, align {size}{note}")

    def woven(self, kind: str, values: Sequence[str]) -> list[str]:
        """Vectors that hold the first elements of all, then the second ones: of a power of two of
        them by halves, each step of which takes two.
        """
        lanes, step = self.lanes, len(values)
        if step & (step - 1):
            row, width = self.joined(kind, values), lanes << (step - 1).bit_length()
            places = [k * lanes + lane for lane in range(lanes) for k in range(step)]
            starts = range(0, step * lanes, lanes)
            return [self.shuffled(kind, row, width, places[at : at + lanes]) for at in starts]
        if step == 1:
            return list(values)
        made = []
        for pair in zip(self.woven(kind, values[::2]), self.woven(kind, values[1::2]), strict=True):
            both = self.joined(kind, pair)
            places = [k * lanes + lane for lane in range(lanes) for k in range(2)]
            made += [
                self.shuffled(kind, both, 2 * lanes, half)
                for half in (places[:lanes], places[lanes:])
            ]
        return made

    def joined(self, kind: str, parts: Sequence[str]) -> str:
        """Vectors as one, of a power of two of elements."""
        width, names = self.lanes, list(parts)
        while len(names) > 1:
            names += ["poison"] * (len(names) % 2)
            places = ", ".join(f"i32 {n}" for n in range(2 * width))
            pairs = zip(names[::2], names[1::2], strict=True)
            given = (", ".join(widened(f"{kind} {x}", width) for x in pair) for pair in pairs)
            names = [
                self.kernel.emit(f"shufflevector {two}, <{2 * width} x i32> <{places}>")
                for two in given
            ]
            width *= 2
        return names[0]

    def shuffled(self, kind: str, row: str, width: int, places: Sequence[int]) -> str:
        """These elements of a vector that is so wide."""
        wide, chosen = widened(kind, width), ", ".join(f"i32 {n}" for n in places)
        return self.kernel.emit(
            f"shufflevector {wide} {row}, {wide} poison, <{len(places)} x i32> <{chosen}>"
        )

    def row_masks(self, step: int, reach: int) -> list[str]:
        """Which elements of each vector of a row there certainly are: up to the `reach` of the last
        iteration."""
        k, lanes = self.kernel, self.lanes
        most, known = (lanes - 1) * step + reach, self.at.isdigit() and self.total.isdigit()
        if self.mask and not known and self.at.isdigit() and k.granules(self.facts.loop):
            at = int(self.at) + self.copy * lanes
            return [
                k.kept_mask(part, lanes)
                for part in k.short_row_bits(self.facts.loop, at, lanes, step, reach)
            ]
        if self.mask and not known:
            done = int(self.at) + self.copy * lanes if self.at.isdigit() else self.at
            left = k.emit(f"sub nsw i64 {self.total}, {done}")
            left = k.emit(f"add nsw i64 {self.times(left, step)}, {reach - step}")
            left = k.emit(f"call i64 @llvm.smin.i64(i64 {left}, i64 {most})")
            bits = k.emit(f"lshr i64 -1, {k.emit(f'sub nsw i64 64, {left}')}")
            parts = [k.emit(f"lshr i64 {bits}, {n * lanes}") for n in range(step)]
            parts = [k.emit(f"and i64 {part}, {(1 << lanes) - 1}") for part in parts]
            return [mask_of(k, part, lanes) for part in parts]
        count = most
        if self.mask:
            trips = int(self.total) - int(self.at) - self.copy * lanes
            count = min(count, (trips - 1) * step + reach)
        whole = count // lanes
        known_bits = [str((1 << max(0, min(lanes, count - n * lanes))) - 1) for n in range(step)]
        return ["" if n < whole else mask_of(k, b, lanes) for n, b in enumerate(known_bits)]

    # -- elements of rows

    def chunk_at(self, place: Place, constant: int, rows: dict[Place, Strided]) -> Chunk:
        """The part of a row that an index with this constant lies in."""
        if place not in self.chunks:
            self.chunks[place] = rows[place].chunks(self.lanes)
        return next(c for c in self.chunks[place] if c.first <= constant < c.first + c.count)

    def rows_at(self, buffer: Buffer, index: Expr, chunk: Chunk, stride: int) -> list[str]:
        """Where this chunk begins in each row; of dense rows, where each vector does."""
        at = self.at if stride == 1 else self.kernel.emit(f"mul nsw i64 {self.at}, {stride}")
        with self.ahead():
            base = self.kernel.address(buffer, self.first(index))
        base = self.offset(buffer, base, at)
        away, constant = self.lanes if chunk.dense else stride, self.facts.terms(index)[1]
        count = chunk.width if chunk.dense else self.lanes
        return [
            self.offset(buffer, base, str(chunk.first - constant + k * away)) for k in range(count)
        ]

    def shuffles(self, buffer: Buffer) -> Shuffles:
        return Shuffles(self.emit_one, MEMORY[buffer.dtype.name], self.lanes)

    def load_apart(self, buffer: Buffer, index: Expr, rows: dict[Place, Strided]) -> str:
        """An element of each row: all of its chunk is loaded and turned when it is first asked."""
        terms, constant = self.facts.terms(index)
        place = buffer.index, terms
        chunk = self.chunk_at(place, constant, rows)
        known = self.turned.setdefault(place, {})
        if constant not in known:
            stride = rows[place].stride
            wheres = self.rows_at(buffer, index, chunk, stride)
            shuffles, parts = self.shuffles(buffer), [self.piece(buffer, w, chunk) for w in wheres]
            if not chunk.dense:
                each = self.lanes // chunk.width
                groups = [parts[k : k + each] for k in range(0, self.lanes, each)]
                parts = [shuffles.joined(group, chunk.width) for group in groups]
            columns = shuffles.across(parts)[: chunk.count]
            known.update((chunk.first + k, column) for k, column in enumerate(columns))
        loaded = known[constant]
        return self.emit(f"icmp ne i8 {loaded}, 0") if buffer.dtype.kind == "b" else loaded

    def piece(self, buffer: Buffer, where: str, chunk: Chunk) -> str:
        """What one row has of a chunk."""
        k, kind = self.kernel, MEMORY[buffer.dtype.name]
        width = self.lanes if chunk.dense else chunk.width
        size, note = buffer.dtype.itemsize, k.access(buffer)
        if not chunk.dense and chunk.count < width:
            name = f"@llvm.masked.load.{vector_suffix(kind, width)}.p0"
            mask = f"<{width} x i1> {_first_of(chunk.count, width)}, <{width} x {kind}> poison"
            return k.emit(f"call <{width} x {kind}> {name}(ptr {where}, i32 {size}, {mask}){note}")
        return k.emit(f"load <{width} x {kind}>, ptr {where}, align {size}{note}")

    def store_apart(
        self, buffer: Buffer, index: Expr, value: str, rows: dict[Place, Strided]
    ) -> None:
        """An element of each row: its chunk is turned and stored when all of it has come."""
        terms, constant = self.facts.terms(index)
        place = buffer.index, terms
        chunk = self.chunk_at(place, constant, rows)
        waiting = self.turned.setdefault(place, {})
        literal = not value.startswith("%")  # of all lanes: shuffles take vectors
        given = self.operand(buffer.dtype, value, MEMORY)
        waiting[constant] = self.kernel.emit(f"freeze {given}") if literal else value
        wanted = range(chunk.first, chunk.first + chunk.count)
        if not all(k in waiting for k in wanted):
            return
        columns = [waiting.pop(k) for k in wanted]
        columns += [columns[-1]] * (chunk.width - chunk.count)
        shuffles = self.shuffles(buffer)
        parts = shuffles.along(columns)
        if not chunk.dense:
            starts = range(0, self.lanes, chunk.width)
            parts = [shuffles.part(p, s, chunk.width) for p in parts for s in starts]
        stride = rows[place].stride
        for where, row in zip(self.rows_at(buffer, index, chunk, stride), parts, strict=True):
            self.store_piece(buffer, where, chunk, row)

    def store_piece(self, buffer: Buffer, where: str, chunk: Chunk, row: str) -> None:
        k, kind = self.kernel, MEMORY[buffer.dtype.name]
        width = self.lanes if chunk.dense else chunk.width
        size, note = buffer.dtype.itemsize, k.access(buffer)
        given = f"<{width} x {kind}> {row}"
        if not chunk.dense and chunk.count < width:
            name = f"@llvm.masked.store.{vector_suffix(kind, width)}.p0"
            mask = f"<{width} x i1> {_first_of(chunk.count, width)}"
            k.lines.append(f"  call void {name}({given}, ptr {where}, i32 {size}, {mask}){note}")
        else:
            k.lines.append(f"  store {given}, ptr {where}, align {size}{note}")

    # -- registers

    def read(self, index: int) -> str:
        slot, dtype, storage = self.slots[index, self.copy]
        loaded = self.kernel.emit(f"load {self.kind(storage)}, ptr {slot}")
        return llvm_scalar.cast(self, loaded, storage, dtype)

    def set(self, register: Register, value: str) -> None:
        slot, dtype, storage = self.slots[register.index, self.copy]
        value = llvm_scalar.cast(self, value, dtype, storage)
        if self.is_guarded:
            now = self.kernel.emit(f"load {self.kind(storage)}, ptr {slot}")
            value = self.kept(storage, value, now)
        self.set_slot(slot, storage, value)

    def kept(self, storage: DType, made: str, now: str) -> str:
        """What was made in the lanes of the mask, what was there before in the others."""
        kind = TYPES[storage.name]
        return self.emit(f"select i1 {self.mask}, {kind} {made}, {kind} {now}")

    def set_slot(self, slot: str, storage: DType, value: str) -> None:
        self.kernel.lines.append(f"  store {self.operand(storage, value)}, ptr {slot}")

    def declare(self, register: Register, value: str) -> None:
        storage = self.kernel.storage(register)
        slot = self.kernel.at_entry(f"alloca {self.kind(storage)}")
        self.slots[register.index, self.copy] = slot, register.dtype, storage
        self.set(register, value)

    def update(self, register: Register, combine: str, value: str) -> None:
        """A register of the body is combined lane by lane, one of outside in a vector of sums."""
        index, mask = register.index, ""
        if (index, self.copy) in self.slots:
            slot, dtype, storage = self.slots[index, self.copy]
            mask = self.mask if self.is_guarded else ""
        else:
            _, dtype, storage = self.kernel.slots[index]
            slot, mask = self.carried(index, combine, storage), self.mask
        value = llvm_scalar.cast(self, value, dtype, storage)
        now = self.kernel.emit(f"load {self.kind(storage)}, ptr {slot}")
        made = self.combine(combine, storage, now, value)
        self.set_slot(slot, storage, self.kept(storage, made, now) if mask else made)

    def carried(self, index: int, combine: str, storage: DType) -> str:
        """The slot of this copy's sums, which starts with what changes nothing."""
        slot = self.sums.get((index, self.copy))
        if slot is None:
            slot = self.kernel.at_entry(f"alloca {self.kind(storage)}")
            self.sums[index, self.copy] = slot
            with self.ahead():
                self.set_slot(slot, storage, neutral(combine, storage))
        return slot

    def collect(self, index: int, combine: str) -> None:
        """Combine the lanes and copies of a register with what it was before the loop."""
        k = self.kernel
        slot, _, storage = k.slots[index]
        wide = self.kind(storage)
        first, *others = (s for (register, _), s in self.sums.items() if register == index)
        total = k.emit(f"load {wide}, ptr {first}")
        for other in others:
            value = k.emit(f"load {wide}, ptr {other}")
            total = self.combine(combine, storage, total, value)
        value = k.emit(self.across(combine, storage, total))
        now = k.emit(f"load {TYPES[storage.name]}, ptr {slot}")
        k.set_slot(slot, storage, k.combine(combine, storage, now, value))


def _first_of(count: int, width: int) -> str:
    """A mask of the first lanes."""
    return f"<{', '.join(f'i1 {int(lane < count)}' for lane in range(width))}>"
