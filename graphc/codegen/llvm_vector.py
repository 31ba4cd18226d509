"""Vector loops of a kernel as vector instructions.

LLVM's loop vectoriser costs more than everything else it does for a kernel, and needs most of its
pipeline to run first.  A loop that `VectorFacts` finds simple is written as what it would make of
it:

    i of 0..count, a whole number of vectors at a time:     what is the same for all i: ahead of it
        a vector per value, sums in a vector per register
    the sums of the lanes

The last vector of other counts is cut by a mask where the machine has masks, and a scalar loop does
the rest where it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from graphc.codegen import llvm_scalar
from graphc.codegen.llvm_loops import advanced, lane_mask
from graphc.codegen.llvm_module import FunctionWriter, Slot, neutral, widened
from graphc.codegen.llvm_scalar import INSTRUCTIONS, MEMORY, TYPES, literal
from graphc.codegen.loop_facts import loop_range
from graphc.codegen.loops import (
    Assign,
    Buffer,
    Declare,
    Expr,
    Fail,
    For,
    Register,
    Statement,
    Store,
    Update,
    expressions,
)
from graphc.codegen.vector_facts import Shape, VectorFacts, shape_of, split
from graphc.ir.types import BOOL, DType

if TYPE_CHECKING:
    from graphc.codegen.llvm import KernelWriter


class VectorLoop(FunctionWriter):
    """Writes one loop; `kernel` writes what is scalar.

    Addresses are those of the first iteration plus `at`, the number of iterations before this one.
    """

    def __init__(self, kernel: KernelWriter, facts: VectorFacts, shape: Shape) -> None:
        super().__init__(kernel.module, shape.lanes)
        self.kernel, self.facts, self.shape = kernel, facts, shape
        self.contract, self.zeros, self.loose = kernel.contract, kernel.zeros, kernel.loose
        self.ranges = kernel.ranges
        self.before: list[str] = []
        self.start, self.total, self.at = "0", "0", "0"
        self.copy, self.mask = 0, ""  # whose turn it is
        self.masks = [""] * shape.copies
        self.known: list[dict[Expr, str]] = [{} for _ in self.masks]
        self.firsts: dict[Expr, str] = {}
        self.splats: dict[Expr, str] = {}
        self.pointers: dict[tuple[int, frozenset[tuple[Expr, int]]], tuple[str, int]] = {}
        self.slots: dict[tuple[int, int], Slot] = {}
        self.sums: dict[tuple[int, int], str] = {}

    # -- the loop

    def loop(self, start: str, stop: str, count: int | None) -> None:
        """All iterations from start to stop; how many there are, where that is known."""
        k, name = self.kernel, self.kernel.fresh("")
        step = self.shape.lanes * self.shape.copies
        self.start = start
        k.lines += [f"  br label %before{name}", f"before{name}:"]
        if count is None:
            runs = k.emit(f"icmp slt i64 {start}, {stop}")
            k.lines.append(f"  br i1 {runs}, label %ahead{name}, label %end{name}")
        else:
            k.lines.append(f"  br label %ahead{name}")
        k.lines.append(f"ahead{name}:")
        self.total = k.emit(f"sub nsw i64 {stop}, {start}") if count is None else str(count)
        outer, k.lines = k.lines, []
        once = count is not None and count <= step
        self.at = "0" if once else f"%i{name}"
        k.scopes.append([])
        if self.shape.masked:
            at = None if once else self.at
            self.masks = [
                lane_mask(k, self.total, at, self.lanes, copy * self.lanes)
                for copy in range(self.shape.copies)
            ]
        self.block(self.facts.loop.body)
        body, k.lines = k.lines, outer
        k.lines += self.before
        k.lines += body if once else self.looped(name, body, step)
        for register, combine in self.facts.carried.items():
            self.collect(register, combine)
        for expr in k.scopes.pop():
            k.values.pop(expr, None)
        k.lines += [f"  br label %end{name}", f"end{name}:"]

    def looped(self, name: str, body: list[str], step: int) -> list[str]:
        return [
            f"  br label %loop{name}",
            f"loop{name}:",
            f"  %i{name} = phi i64 [ 0, %ahead{name} ], [ %n{name}, %loop{name} ]",
            *body,
            *advanced(name, step, final=True),
            f"  %c{name} = icmp slt i64 %n{name}, {self.total}",
            f"  br i1 %c{name}, label %loop{name}, label %done{name}",
            f"done{name}:",
        ]

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

    def emit(self, text: str) -> str:
        return self.kernel.emit(widened(text, self.lanes))

    def operand(self, dtype: DType, value: str, kinds: dict[str, str] = TYPES) -> str:
        """A vector with its type in front."""
        return widened(f"{kinds[dtype.name]} {value}", self.lanes)

    def kind(self, dtype: DType, kinds: dict[str, str] = TYPES) -> str:
        return widened(kinds[dtype.name], self.lanes)

    def operands(self, expr: Expr) -> tuple[Expr, ...]:
        return () if expr.op == "load" or self.facts.fixed(expr) else expr.args

    def write(self, expr: Expr, operands: list[str]) -> str:
        if self.facts.fixed(expr):
            return self.splat(expr)
        match expr.op:
            case "load":
                return self.load(expr)
            case "reg":
                return self.read(expr.data[0])
            case "var":
                return self.number(expr)
        return super().write(expr, operands)

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

    def spread(self, kind: str, value: str) -> str:
        k, wide = self.kernel, widened(kind, self.lanes)
        one = k.emit(f"insertelement {wide} poison, {kind} {value}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return k.emit(f"shufflevector {wide} {one}, {wide} poison, {zeros}")

    def number(self, variable: Expr) -> str:
        """A loop variable as a value: the loop's own counts on from lane to lane."""
        if variable is not self.facts.loop.variable:
            return self.kernel.values[variable]
        first = self.kernel.emit(f"add nsw i64 {self.start}, {self.at}")
        ahead = self.copy * self.lanes
        lanes = ", ".join(f"i64 {ahead + lane}" for lane in range(self.lanes))
        wide = self.kind(variable.dtype)
        return self.kernel.emit(f"add nsw {wide} {self.spread('i64', first)}, <{lanes}>")

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
        k, known = self.kernel, self.facts.known(index)
        terms, constant = split(index)
        key = (buffer.index, frozenset(terms.items()))
        found = self.pointers.get(key)
        if found is None:
            first = self.first(index)
            with self.ahead() if known else nullcontext():
                base = k.address(buffer, first)
            if self.at != "0":
                base = self.offset(buffer, base, self.at)
            found = base, constant
            if known:
                self.pointers[key] = found
        base, origin = found
        away = constant - origin + self.copy * self.lanes
        return self.offset(buffer, base, str(away)) if away else base

    def offset(self, buffer: Buffer, base: str, count: str) -> str:
        kind = MEMORY[buffer.dtype.name]
        return self.kernel.emit(f"getelementptr inbounds {kind}, ptr {base}, i64 {count}")

    def load(self, expr: Expr) -> str:
        k = self.kernel
        buffer = k.kernel.buffers[expr.data[0]]
        where, kind = self.pointer(buffer, expr.args[0]), self.kind(buffer.dtype, MEMORY)
        size, note = buffer.dtype.itemsize, k.access(buffer)
        if self.mask:
            name = f"@llvm.masked.load.{self.suffix(MEMORY[buffer.dtype.name])}.p0"
            mask = f"<{self.lanes} x i1> {self.mask}, {kind} poison"
            loaded = k.emit(f"call {kind} {name}(ptr {where}, i32 {size}, {mask}){note}")
        else:
            loaded = k.emit(f"load {kind}, ptr {where}, align {size}{note}")
        return self.emit(f"icmp ne i8 {loaded}, 0") if buffer.dtype.kind == "b" else loaded

    def store(self, buffer: Buffer, index: Expr, value: str) -> None:
        k = self.kernel
        if buffer.dtype.kind == "b":
            value = self.emit(f"zext i1 {value} to i8")
        where, given = self.pointer(buffer, index), self.operand(buffer.dtype, value, MEMORY)
        size, note = buffer.dtype.itemsize, k.access(buffer)
        if self.mask:
            name = f"@llvm.masked.store.{self.suffix(MEMORY[buffer.dtype.name])}.p0"
            rest = f"ptr {where}, i32 {size}, <{self.lanes} x i1> {self.mask}"
            k.lines.append(f"  call void {name}({given}, {rest}){note}")
        else:
            k.lines.append(f"  store {given}, ptr {where}, align {size}{note}")

    # -- registers

    def read(self, index: int) -> str:
        slot, dtype, storage = self.slots[index, self.copy]
        loaded = self.kernel.emit(f"load {self.kind(storage)}, ptr {slot}")
        return llvm_scalar.cast(self, loaded, storage, dtype)

    def set(self, register: Register, value: str) -> None:
        slot, dtype, storage = self.slots[register.index, self.copy]
        self.set_slot(slot, storage, llvm_scalar.cast(self, value, dtype, storage))

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
        else:
            _, dtype, storage = self.kernel.slots[index]
            slot, mask = self.carried(index, combine, storage), self.mask
        value = llvm_scalar.cast(self, value, dtype, storage)
        now = self.kernel.emit(f"load {self.kind(storage)}, ptr {slot}")
        made = self.combine(combine, storage, now, value)
        if mask:
            kind = TYPES[storage.name]
            made = self.emit(f"select i1 {mask}, {kind} {made}, {kind} {now}")
        self.set_slot(slot, storage, made)

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

    # -- statements

    def turns(self) -> Iterator[None]:
        """Each copy after the other."""
        for copy, (mask, values) in enumerate(zip(self.masks, self.known, strict=True)):
            self.copy, self.mask, self.values = copy, mask, values
            yield

    def block(self, body: Sequence[Statement]) -> None:
        """Write statements, each for all copies, in a scope of their own."""
        outer = [set(values) for values in self.known]
        for statement in body:
            self.statement(statement)
            written = self.kernel.changes.writes(statement)
            for values in self.known:
                for expr in [e for e in values if self.kernel.changes.needs(e) & written]:
                    del values[expr]
        for values, before in zip(self.known, outer, strict=True):
            for expr in values.keys() - before:
                del values[expr]

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, For):
            self.copies(statement)
        elif isinstance(statement, Fail) and self.facts.fixed(statement.condition):
            value = self.fixed(statement.condition)
            with self.ahead():
                self.kernel.fail(value, statement.code)
        else:
            root = expressions(statement)[-1]
            values = [self.value(root) for _ in self.turns()]
            for value, _ in zip(values, self.turns(), strict=True):
                self.finish(statement, value)

    def finish(self, statement: Statement, value: str) -> None:
        """What one copy does with the value of its statement."""
        match statement:
            case Declare(register=register):
                self.declare(register, value)
            case Assign(register=register):
                self.set(register, value)
            case Update(register=register, combine=combine):
                self.update(register, combine, value)
            case Store(buffer=buffer, index=index):
                self.store(buffer, index, value)
            case Fail(code=code):
                if self.mask:
                    value = self.emit(f"and i1 {value}, {self.mask}")
                self.kernel.fail(self.kernel.emit(self.across("or", BOOL, value)), code)

    def copies(self, statement: For) -> None:
        """A short loop as one copy of its body per iteration."""
        variable, k = statement.variable, self.kernel
        self.ranges[variable] = loop_range(statement, self.ranges)
        for i in range(int(statement.start.data), int(statement.stop.data)):
            k.values[variable] = str(i)
            self.block(statement.body)
            del k.values[variable]


def vector_loops(
    kernel: KernelWriter, facts: VectorFacts, start: str, stop: str, count: int | None
) -> str:
    """Write a loop as far as vectors reach; what is left begins where the answer says."""
    shape = shape_of(facts, kernel.module.target, count)
    if shape is None:
        return start
    kernel.loops += 1
    step = shape.lanes * shape.copies
    if shape.masked or (count is not None and count % step == 0):
        VectorLoop(kernel, facts, shape).loop(start, stop, count)
        return stop
    whole = str(count // step * step) if count is not None else ""
    if not whole:
        many = kernel.emit(f"sub nsw i64 {stop}, {start}")
        many = kernel.emit(f"call i64 @llvm.smax.i64(i64 {many}, i64 0)")
        whole = kernel.emit(f"and i64 {many}, {-step}")
    middle = kernel.emit(f"add nsw i64 {start}, {whole}")
    VectorLoop(kernel, facts, shape).loop(start, middle, int(whole) if count else None)
    return middle
