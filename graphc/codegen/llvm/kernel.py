"""Loop IR to LLVM IR text: the CPU product route.

`emit` writes one kernel, `emit_module` many kernels that share their math functions.  The text is
meant to be easy for LLVM: bottom-tested loops, one induction variable each, no aliasing between
buffers, wrap-free index arithmetic where bounds prove it, and vector instructions (`vector`).
LLVM's loop vectoriser gets the loops that are too irregular for that.

Sums.  An `add` update of an f32 register is carried in f64: chunks of 256 terms are summed in
f32, a few terms to a lane, and their totals in f64.  An f64 register is summed in a tree of
chunks:

    for i in 0..n:  r += v        ==>      for c in 0..n step 1024:        (levels of 32 above that)
                                               p = 0
                                               for i in c..min(c + 1024, n):  p += v
                                               r += p

`strict` kernels sum in order in the register's own type.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from graphc.base.record import replace
from graphc.codegen.llvm import scalar as llvm_scalar
from graphc.codegen.llvm.loops import LoopWriter, mask_of
from graphc.codegen.llvm.module import Module, Slot
from graphc.codegen.llvm.scalar import MEMORY, TYPES
from graphc.codegen.llvm.shared_indices import SharedIndices
from graphc.codegen.llvm.short_rows import InLanes, ShortRows, short_rows
from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.vector import vector_loops
from graphc.codegen.llvm.vector_facts import (
    VectorFacts,
    count_of,
    facts_of,
    has_masks,
    shape_of,
    split,
)
from graphc.codegen.nest_walk import Functions, Statements
from graphc.codegen.tuning import tuned
from graphc.errors import GraphError
from graphc.ir.sizes import Size
from graphc.ir.types import F64, DType
from graphc.loops.facts import (
    SumPlan,
    dissolves,
    gathers_nearby,
    looks,
    loop_range,
    step_of,
    work_stride,
)
from graphc.loops.nest import (
    Assign,
    Buffer,
    Declare,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Prefetch,
    Register,
    Routine,
    Statement,
    Store,
    Update,
    expressions,
    postorder,
    walk,
)

LINE = 64  # bytes
FEWEST = 4  # iterations of a loop that is written as one vector
CANCELLED = -1  # the status of a kernel that saw the cancel flag


def emit(kernel: Kernel, target: Target, functions: Functions | None = None) -> str:
    """LLVM IR text of a module that holds this kernel alone."""
    return emit_module([kernel], target, functions)


def emit_module(
    kernels: Iterable[Kernel], target: Target, functions: Functions | None = None
) -> str:
    """LLVM IR text of one module: every kernel, and each math function it uses once."""
    module = Module(target, functions)
    for kernel in kernels:
        module.add(KernelWriter(module, kernel).text())
    return module.text()


def versions_of(kernel: Kernel, target: Target) -> list[str]:
    """What there are versions of in a kernel, for one of which a call decides by its sizes."""
    writer = KernelWriter(Module(target), kernel)
    writer.text()
    return list(dict.fromkeys(writer.versions))


class KernelWriter(Statements[str], LoopWriter):
    """Writes one kernel. Registers are stack slots, which SROA turns into values."""

    def __init__(self, module: Module, kernel: Kernel, vectors: bool = True) -> None:
        super().__init__(module)
        self.in_vectors = vectors
        self.follow(kernel)
        self.contract = "" if kernel.strict or kernel.exact else " contract"
        self.loose = "" if kernel.strict else " reassoc contract"
        self.zeros = kernel.strict
        self.entry: list[str] = []
        self.pointers: dict[int, str] = {}
        self.slots: dict[int, Slot] = {}
        self.sums = SumPlan(kernel)
        self.looks = looks(kernel)
        self.aliases: dict[int, str] = {}
        self.status = ""  # slot that collects failures inside a vector loop
        self.around: list[str] = []  # the kinds of the loops that are being written
        self.flag = ""  # the address of the cancel flag, where a loop looks at it
        self.sizes = {size: number for number, size in enumerate(kernel.sizes)}
        self.short: ShortRows | None = None  # the version that is being written
        self.versions: list[str] = []  # of which rows there are any, in words
        self.head: list[str] = []  # of the version that is being written, and the masks made there
        self.masks: dict[tuple[str, int], str] = {}
        self.row_bits: dict[tuple[Any, ...], tuple[str, ...]] = {}  # by what they depend on
        self.known_facts: dict[int, VectorFacts | None] = {}
        self.gathers = not (module.target.slow_gathers and gathers_nearby(kernel))
        self.shared = SharedIndices()

    def text(self) -> str:
        self.block(self.kernel.body)
        if self.left and self.in_vectors:  # LLVM's pipeline runs anyway: it gets all loops
            return KernelWriter(self.module, self.kernel, vectors=False).text()
        head = (
            f"define i32 @{self.kernel.name}(ptr noalias readonly %bufs,"
            f" ptr noalias readonly %params, i64 %lo, i64 %hi, i64 %thread) {self.group()} {{"
        )
        start = "  br label %body\nbody:"
        return "\n".join([head, *self.entry, start, *self.lines, "  ret i32 0", "}"])

    def group(self) -> str:
        """The attributes of the kernel."""
        if self.gathers:
            return "#0"
        self.module.single_loads = True
        return "#2"

    # -- values

    def at_entry(self, text: str) -> str:
        name = self.fresh("%e")
        self.entry.append(f"  {name} = {text}")
        return name

    def write(self, expr: Expr) -> str:
        match expr.op:
            case "load":
                return self.load(expr, self.values[expr.args[0]])
            case "reg":
                return self.read(expr.data[0])
            case "param":
                # Loaded at entry: a value cached there is valid everywhere.
                slot = self.at_entry(f"getelementptr inbounds i64, ptr %params, i64 {expr.data}")
                return self.at_entry(f"load i64, ptr {slot}, align 8")
            case "size":
                return self.size(expr.data)
            case "var":
                raise GraphError(f"loop variable i{expr.data} is used outside its loop")
        return super().write(expr)

    def size(self, size: Size) -> str:
        """A number that is known when arrays come: behind the params, or the words of the core."""
        start, words = self.kernel.params, "%params"
        if self.kernel.sizes_at is not None:
            place = self.at_entry(f"getelementptr inbounds i64, ptr %params, i64 {start}")
            start, words = self.kernel.sizes_at, self.at_entry(f"load ptr, ptr {place}, align 8")
        number = start + self.sizes[size]
        slot = self.at_entry(f"getelementptr inbounds i64, ptr {words}, i64 {number}")
        return self.at_entry(f"load i64, ptr {slot}, align 8")

    def pointer(self, buffer: Buffer) -> str:
        found = self.pointers.get(buffer.index)
        if found is None:
            slot = self.at_entry(f"getelementptr inbounds i64, ptr %bufs, i64 {buffer.index}")
            found = self.at_entry(f"load ptr, ptr {slot}, align 8")
            if buffer.mode == "work":
                stride = work_stride(buffer)
                factor = self.size(stride) if isinstance(stride, Size) else stride
                offset = self.at_entry(f"mul nuw nsw i64 %thread, {factor}")
                found = self.at_entry(f"getelementptr inbounds i8, ptr {found}, i64 {offset}")
            self.pointers[buffer.index] = found
        return found

    def access(self, buffer: Buffer) -> str:
        """The metadata that says: no other buffer of this kernel overlaps this one."""
        if not self.aliases:
            self.aliases = self.module.scopes(len(self.kernel.buffers))
        if not self.groups:
            return self.aliases[buffer.index]
        # Groups of several loops are listed in a node of their own.
        group = self.groups[0] if len(self.groups) == 1 else self.module.note(*self.groups)
        return f"{self.aliases[buffer.index]}, !llvm.access.group {group}"

    def address(self, buffer: Buffer, index: str) -> str:
        kind = MEMORY[buffer.dtype.name]
        return self.emit(f"getelementptr inbounds {kind}, ptr {self.pointer(buffer)}, i64 {index}")

    def load(self, expr: Expr, index: str) -> str:
        buffer = self.kernel.buffers[expr.data[0]]
        kind = MEMORY[buffer.dtype.name]
        where = self.address(buffer, index)
        size, note = buffer.dtype.itemsize, self.access(buffer)
        loaded = self.emit(f"load {kind}, ptr {where}, align {size}{note}")
        return self.emit(f"icmp ne i8 {loaded}, 0") if buffer.dtype.kind == "b" else loaded

    # -- registers

    def storage(self, register: Register) -> DType:
        """The type that a register is carried in."""
        return F64 if register.index in self.sums.wide else register.dtype

    def slot(self, register: Register, storage: DType | None = None) -> str:
        storage = storage or self.storage(register)
        name = self.at_entry(f"alloca {TYPES[storage.name]}")
        self.slots[register.index] = (name, register.dtype, storage)
        return name

    def read(self, index: int) -> str:
        name, dtype, storage = self.slots[index]
        loaded = self.emit(f"load {TYPES[storage.name]}, ptr {name}")
        return llvm_scalar.cast(self, loaded, storage, dtype)

    def set(self, register: Register, value: str) -> None:
        name, dtype, storage = self.slots[register.index]
        self.set_slot(name, storage, llvm_scalar.cast(self, value, dtype, storage))

    def set_slot(self, slot: str, dtype: DType, value: str) -> None:
        self.lines.append(f"  store {TYPES[dtype.name]} {value}, ptr {slot}")

    def update(self, register: Register, combine: str, value: str) -> None:
        name, dtype, storage = self.slots[register.index]
        kind = TYPES[storage.name]
        value = llvm_scalar.cast(self, value, dtype, storage)
        now = self.emit(f"load {kind}, ptr {name}")
        self.set_slot(name, storage, self.combine(combine, storage, now, value))

    # -- statements

    def statement(self, statement: Statement) -> None:
        match statement:
            case For():
                self.loop(statement)
                return
            case If():
                self.when(statement)
                return
        values = [self.value(e) for e in expressions(statement)]
        match statement:
            case Declare(register=register):
                self.slot(register)
                self.set(register, values[0])
            case Assign(register=register):
                self.set(register, values[0])
            case Update(register=register, combine=combine):
                self.update(register, combine, values[0])
            case Store(buffer=buffer):
                self.store(buffer, *values)
            case Prefetch(buffer=buffer, count=count):
                self.prefetch(buffer, values[0], count)
            case Routine(name=name, places=places):
                self.routine(name, [b for b, _ in places], values)
            case Fail(code=code):
                self.fail(values[0], code)

    def store(self, buffer: Buffer, index: str, value: str) -> None:
        if buffer.dtype.kind == "b":
            value = self.emit(f"zext i1 {value} to i8")
        where = self.address(buffer, index)
        kind, size = MEMORY[buffer.dtype.name], buffer.dtype.itemsize
        note = self.access(buffer)
        self.lines.append(f"  store {kind} {value}, ptr {where}, align {size}{note}")

    def prefetch(self, buffer: Buffer, index: str, count: int) -> None:
        """A hint per line, at its last element: the first one may lie in the line before."""
        kind, size, write = MEMORY[buffer.dtype.name], buffer.dtype.itemsize, buffer.mode != "in"
        for start in range(0, count, LINE // size):
            last = self.emit(f"add nsw i64 {index}, {min(start + LINE // size, count) - 1}")
            where = self.emit(f"getelementptr {kind}, ptr {self.pointer(buffer)}, i64 {last}")
            hint = f"ptr {where}, i32 {int(write)}, i32 3, i32 1"
            self.lines.append(f"  call void @llvm.prefetch.p0({hint})")

    def routine(self, name: str, buffers: list[Buffer], indices: list[str]) -> None:
        places = map(self.address, buffers, indices)
        symbol = self.module.routine(name, len(indices))
        self.lines.append(f"  call void {symbol}({', '.join(f'ptr {p}' for p in places)})")

    def fail(self, condition: str, code: int) -> None:
        if not self.status:
            self.leave(condition, str(code))
            return
        # A loop with an exit inside does not vectorise: keep the highest code, leave after it.
        now = self.emit(f"load i32, ptr {self.status}")
        seen = self.emit(f"select i1 {condition}, i32 {code}, i32 0")
        worst = self.emit(f"call i32 @llvm.umax.i32(i32 {now}, i32 {seen})")
        self.lines.append(f"  store i32 {worst}, ptr {self.status}")

    def leave(self, condition: str, code: str) -> None:
        out, on = self.fresh("fail"), self.fresh("go")
        rare = self.module.note('!"branch_weights"', "i32 1", "i32 1048575")
        self.lines.append(f"  br i1 {condition}, label %{out}, label %{on}, !prof {rare}")
        self.lines += [f"{out}:", f"  ret i32 {code}", f"{on}:"]

    def when(self, statement: If) -> None:
        then, done = self.fresh("then"), self.fresh("done")
        condition = self.value(statement.condition)
        self.lines += [f"  br i1 {condition}, label %{then}, label %{done}", f"{then}:"]
        self.block(statement.body)
        self.lines += [f"  br label %{done}", f"{done}:"]

    # -- loops

    def loop(self, statement: For) -> None:
        rows = self.rows_of(statement)
        if rows is None:
            self.one_loop(statement)
        else:
            self.by_length(statement, rows)

    def rows_of(self, statement: For) -> ShortRows | None:
        """The rows in a loop of which there may be a version for each length that is short."""
        if not self.sizes or self.short is not None or not self.in_vectors or self.groups:
            return None
        return short_rows(statement, self.kernel, self.module.target, self.facts)

    def granules(self, loop: For) -> int:
        """The vectors of a row, of the shortest kind, where that is known; else 0."""
        return self.short.vectors_of(loop) if self.short is not None else 0

    def row_mask(self, loop: For, at: int, lanes: int) -> str:
        """The mask of a vector of a short row."""
        (bits,) = self.short_row_bits(loop, at, lanes)
        return self.kept_mask(bits, lanes)

    def kept_mask(self, bits: str, lanes: int) -> str:
        """The mask of bits that are known at entry, made at the head of the version that is being
        written: there are registers for masks, and none of them is needed for much else."""
        key = bits, lanes
        if key not in self.masks:
            lines, self.lines = self.lines, self.head
            self.masks[key] = mask_of(self, bits, lanes)
            self.lines = lines
        return self.masks[key]

    def short_row_bits(
        self, loop: For, at: int, lanes: int, step: int = 1, reach: int = 1
    ) -> tuple[str, ...]:
        """Bits of the vectors that the iterations of a short row from `at` take, made once, at
        entry: each takes up to `reach` elements, and is `step` from the one before."""
        start, stop = self.value(loop.start), self.value(loop.stop)
        key = start, stop, at, lanes, step, reach
        if key not in self.row_bits:
            left = self.at_entry(f"sub nsw i64 {stop}, {start}")
            if at:
                left = self.at_entry(f"sub nsw i64 {left}, {at}")
            if step > 1:
                left = self.at_entry(f"mul nsw i64 {left}, {step}")
            if reach != step:
                left = self.at_entry(f"add nsw i64 {left}, {reach - step}")
            most = (lanes - 1) * step + reach
            left = self.at_entry(f"call i64 @llvm.smin.i64(i64 {left}, i64 {most})")
            left = self.at_entry(f"sub nsw i64 64, {left}")
            bits = self.at_entry(f"lshr i64 -1, {left}")
            parts = [
                bits,
                *(self.at_entry(f"lshr i64 {bits}, {n * lanes}") for n in range(1, step)),
            ]
            if step > 1:
                parts = [self.at_entry(f"and i64 {part}, {(1 << lanes) - 1}") for part in parts]
            self.row_bits[key] = tuple(parts)
        return self.row_bits[key]

    def facts(self, loop: For) -> VectorFacts | None:
        if id(loop) not in self.known_facts:
            self.known_facts[id(loop)] = facts_of(
                loop, self.kernel, self.changes, has_masks(self.module.target)
            )
        return self.known_facts[id(loop)]

    def by_length(self, statement: For, rows: ShortRows) -> None:
        """A version of a loop for each length that fits in lanes, for each number of vectors that a
        short row has, and one for all.
        """
        self.compute_ahead(statement)  # what a version computes is not known to other loops
        start, stop = self.value(rows.row.start), self.value(rows.row.stop)
        total = self.emit(f"sub nsw i64 {stop}, {start}")
        more = self.emit(f"add nsw i64 {total}, {rows.granule - 1}")
        vectors = self.emit(f"ashr i64 {more}, {rows.granule.bit_length() - 1}")
        self.versions.append(rows.text)
        name = self.fresh("")
        cases = " ".join(f"i64 {v.count}, label %lanes{v.count}_{name}" for v in rows.in_lanes)
        self.lines.append(f"  switch i64 {total}, label %longer{name} [ {cases} ]")
        for version in rows.in_lanes:
            self.lines.append(f"lanes{version.count}_{name}:")
            self.in_lanes(version)
            self.lines.append(f"  br label %past{name}")
        cases = " ".join(f"i64 {n}, label %rows{n}_{name}" for n in range(1, rows.most + 1))
        self.lines.append(f"longer{name}:")
        self.lines.append(f"  switch i64 {vectors}, label %rows0_{name} [ {cases} ]")
        for n in range(rows.most + 1):
            self.lines.append(f"rows{n}_{name}:")
            self.short = replace(rows, vectors=n)
            self.version(statement)
            self.lines.append(f"  br label %past{name}")
        self.short = None
        self.lines.append(f"past{name}:")

    def in_lanes(self, version: InLanes) -> None:
        """The loop over rows of one length: what is summed has few terms."""
        sums, self.sums = self.sums, version.sums
        self.known_facts[id(version.loop)] = version.facts
        self.version(version.loop)
        self.sums = sums

    def version(self, statement: For) -> None:
        """A loop behind a branch: what it computes is not known after it."""
        self.scopes.append([])
        self.head, self.masks = [], {}
        place = len(self.lines)
        self.one_loop(statement)
        self.lines[place:place] = self.head
        for expr in self.scopes.pop():
            self.values.pop(expr, None)

    def one_loop(self, statement: For) -> None:
        start, stop = self.value(statement.start), self.value(statement.stop)
        dissolved = statement.kind != "parallel" and dissolves(statement, bool(self.groups))
        dissolved = dissolved and not self.is_one_vector(statement)
        plain = dissolved or self.groups or not self.in_vectors
        vectors = None if plain else self.facts(statement)
        self.compute_ahead(statement)
        self.forget(statement)  # later iterations see what earlier ones wrote
        if statement.kind == "parallel":
            if self.around:
                raise GraphError("a parallel loop must be outermost")
            start, stop = (
                bound if start == "0" else self.emit(f"add nsw i64 {start}, {bound}")
                for bound in ("%lo", "%hi")
            )
        self.ranges[statement.variable] = loop_range(statement, self.ranges)
        outer_status = self.status
        grouped = statement.kind == "vector" and vectors is None
        if grouped:
            self.groups.append(self.module.note(distinct=True))
        collects = (statement.kind == "vector" or vectors is not None) and not outer_status
        if collects and any(isinstance(s, Fail) for s in walk(statement.body)):
            self.status = self.at_entry("alloca i32")
            self.lines.append(f"  store i32 0, ptr {self.status}")
        self.around.append(statement.kind)
        if dissolved:
            self.copies(statement)
        else:
            steps = step_of(statement, self.sums)
            every = self.looks.get(statement.variable)
            count = None if statement.kind == "parallel" else count_of(statement, self.range)
            self.chunks(statement, start, stop, steps, vectors, count, every)
        self.around.pop()
        if grouped:
            self.groups.pop()
        if self.status != outer_status:
            worst = self.emit(f"load i32, ptr {self.status}")
            self.leave(self.emit(f"icmp ne i32 {worst}, 0"), worst)
            self.status = outer_status

    def is_one_vector(self, loop: For) -> bool:
        """Is a short loop better written as a vector than as many statements?

        In a serial loop it is: that would have no loop inside, and LLVM would get all the kernel.
        So are functions, copies of which are long, but not sums, which are made across rows.
        """
        facts = self.facts(loop) if self.in_vectors and not self.groups else None
        count = count_of(loop, self.range) or 0
        if facts is None or count < FEWEST:
            return False
        long = count >= tuned.long_line and facts.weight >= tuned.call_weight
        sums = (s for s in walk(self.kernel.body) if isinstance(s, Update))
        good = self.around[-1:] == ["serial"] or (long and not any(sums))
        return good and shape_of(facts, self.module.target, count) is not None

    def compute_ahead(self, statement: For) -> None:
        """Compute ahead of a loop which indices, or parts of them, all of its iterations share.

        The passes of LLVM that would do it are not run where no loop is left to it.
        """
        for expr in self.shared.indices(statement.body, self.values):
            self.value(expr)

    def copies(self, statement: For) -> None:
        """A short loop as one copy of its body per iteration."""
        for i in range(int(statement.start.data), int(statement.stop.data)):
            self.iteration(statement, str(i))

    def iteration(self, statement: For, i: str) -> None:
        self.values[statement.variable] = i
        self.block(statement.body)
        del self.values[statement.variable]

    def chunks(
        self,
        statement: For,
        start: str,
        stop: str,
        steps: tuple[int, ...],
        vectors: VectorFacts | None,
        count: int | None,
        every: int | None = None,
    ) -> None:
        """The loop itself, under one loop per chunk size, each with partial sums of its own.

        With `every` it looks at the cancel flag after about so many iterations.
        """
        if every is not None and (not steps or steps[0] <= every):
            self.watched(statement, start, stop, steps, vectors, every)
            return
        if not steps:
            if vectors is not None:
                start = vector_loops(self, vectors, start, stop, count)
            kind = "rest" if vectors is not None else statement.kind
            single = partial(reads_back_in_branches, statement)
            if start != stop:
                self.counted(start, stop, 1, kind, partial(self.iteration, statement), single)
            return
        even = count is not None and count % steps[0] == 0
        short = self.granules(statement)

        def chunk(first: str) -> None:
            last = self.emit(f"add nsw i64 {first}, {steps[0]}")
            if short:
                last = stop
            elif not even:
                last = self.emit(f"call i64 @llvm.smin.i64(i64 {last}, i64 {stop})")
            narrow = self.sums.narrow.get(statement.variable, [])
            summed = narrow or self.sums.partial[statement.variable]
            saved = {k: self.slots[k] for k in summed}
            for index, (_, dtype, storage) in saved.items():
                kind = dtype if narrow else storage
                self.set_slot(self.slot(Register(index, dtype), kind), kind, "-0.0")
            inner = steps[0] if even else None
            self.chunks(statement, first, last, steps[1:], vectors, inner, every)
            for index, outer in saved.items():
                total = self.read(index)
                self.slots[index] = outer
                self.update(Register(index, outer[1]), "add", total)

        if short:
            chunk(start)
        else:
            self.counted(start, stop, steps[0], "serial", chunk)

    def watched(
        self,
        statement: For,
        start: str,
        stop: str,
        steps: tuple[int, ...],
        vectors: VectorFacts | None,
        every: int,
    ) -> None:
        """A very long loop in parts, after each of which the kernel may be stopped."""
        length = every // steps[0] * steps[0] if steps else every

        def part(first: str) -> None:
            last = self.emit(f"add nsw i64 {first}, {length}")
            last = self.emit(f"call i64 @llvm.smin.i64(i64 {last}, i64 {stop})")
            self.chunks(statement, first, last, steps, vectors, None)
            now = self.emit(f"load atomic i64, ptr {self.cancel_flag()} monotonic, align 8")
            self.leave(self.emit(f"icmp ne i64 {now}, 0"), str(CANCELLED))

        self.counted(start, stop, length, "serial", part)

    def cancel_flag(self) -> str:
        """Its address, which lies before those of the buffers."""
        if not self.flag:
            slot = self.at_entry("getelementptr inbounds i64, ptr %bufs, i64 -1")
            self.flag = self.at_entry(f"load ptr, ptr {slot}, align 8")
        return self.flag


def reads_back_in_branches(loop: For) -> bool:
    """Does a loop load backwards what only some of its iterations load?

    Where AVX-512 permutes 16-bit elements, LLVM makes one instruction of such a load and its
    reversal, which reads the lanes that are masked out as well, beyond the array.
    """
    branches = [s for s in walk(loop.body) if isinstance(s, If)]
    inside = [e for branch in branches for s in walk(branch.body) for e in expressions(s)]
    loads = [e for e in postorder(inside, set()) if e.op == "load"]
    return any(split(e.args[0])[0].get(loop.variable, 0) < 0 for e in loads)
