"""Values, memory and registers in the vector instructions of one loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from graphc.codegen.llvm import scalar as llvm_scalar
from graphc.codegen.llvm.module import FunctionWriter, Slot, neutral, widened
from graphc.codegen.llvm.scalar import INSTRUCTIONS, MEMORY, TYPES, literal
from graphc.codegen.llvm.vector_facts import Shape, Term, VectorFacts, split
from graphc.ir.types import DType
from graphc.loops.nest import Buffer, Expr, Register

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
        self.known: list[dict[Expr, str]] = []
        self.firsts: dict[Expr, str] = {}
        self.splats: dict[Expr, str] = {}
        self.pointers: dict[tuple[int, frozenset[tuple[Term, int]]], tuple[str, int]] = {}
        self.slots: dict[tuple[int, int], Slot] = {}
        self.sums: dict[tuple[int, int], str] = {}

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
            return self.splat(expr)
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
            if not self.at.isdigit():
                base = self.offset(buffer, base, self.at)
            found = base, constant
            if known:
                self.pointers[key] = found
        base, origin = found
        away = constant - origin + self.copy * self.lanes
        away += int(self.at) if self.at.isdigit() else 0
        return self.offset(buffer, base, str(away)) if away else base

    def offset(self, buffer: Buffer, base: str, count: str) -> str:
        kind = MEMORY[buffer.dtype.name]
        return self.kernel.emit(f"getelementptr inbounds {kind}, ptr {base}, i64 {count}")

    def load(self, expr: Expr) -> str:
        k = self.kernel
        buffer = k.kernel.buffers[expr.data[0]]
        where, kind = self.pointer(buffer, expr.args[0]), self.kind(buffer.dtype, MEMORY)
        size, note = buffer.dtype.itemsize, k.access(buffer)
        if self.mask and not buffer.loose:
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
        if self.mask and not buffer.loose:
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
