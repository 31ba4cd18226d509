"""Vector loops with elements anywhere in memory: an address for each lane."""

from __future__ import annotations

from graphc.codegen.llvm.lanes import VectorWriter
from graphc.codegen.llvm.scalar import MEMORY, TYPES
from graphc.codegen.llvm.vector_facts import ScatteredFacts
from graphc.loops.nest import Buffer, Expr


class ScatteredWriter(VectorWriter):
    """Writes values of one loop, some of which may be gathered or scattered."""

    def write(self, expr: Expr) -> str:
        if expr.op in ("idiv", "irem") and not self.facts.fixed(expr):
            return self.shifted(expr)
        return super().write(expr)

    def shifted(self, expr: Expr) -> str:
        """A quotient or a rest by a power of two; that of a negative number is rounded up to zero,
        as if it was less by one than the divisor."""
        x, by = self.value(expr.args[0]), int(expr.args[1].data)
        kind, bits = TYPES[expr.dtype.name], by.bit_length() - 1
        known = self.range(expr.args[0])
        raised = x
        if expr.dtype.kind == "i" and (known is None or known[0] < 0):
            signs = self.emit(f"ashr {kind} {x}, {expr.dtype.bits - 1}")
            raised = self.emit(f"add {kind} {x}, {self.emit(f'and {kind} {signs}, {by - 1}')}")
        if expr.op == "idiv":
            shift = "ashr" if expr.dtype.kind == "i" else "lshr"
            return self.emit(f"{shift} {kind} {raised}, {bits}")
        whole = self.emit(f"and {kind} {raised}, {-by}")
        return self.emit(f"sub {kind} {x}, {whole}")

    def is_anywhere(self, index: Expr) -> bool:
        return isinstance(self.facts, ScatteredFacts) and self.facts.is_anywhere(index)

    def load(self, expr: Expr) -> str:
        if not self.is_anywhere(expr.args[0]):
            return super().load(expr)
        return self.gather(self.kernel.kernel.buffers[expr.data[0]], expr.args[0])

    def store(self, buffer: Buffer, index: Expr, value: str) -> None:
        if self.is_anywhere(index):
            self.scatter(buffer, index, value)
        else:
            super().store(buffer, index, value)

    def places(self, buffer: Buffer, index: Expr) -> str:
        """The addresses of all lanes."""
        step = self.facts.stride(index)
        if step is None:
            return self.addresses(buffer, *self.apart(buffer, index))
        away = ", ".join(f"i64 {step * lane}" for lane in range(self.lanes))
        return self.addresses(buffer, self.pointer(buffer, index), f"<{away}>")

    def apart(self, buffer: Buffer, index: Expr) -> tuple[str, str]:
        """An address that all lanes share, and how many elements away from it each of them is."""
        base = self.kernel.pointer(buffer)
        while index.op == "add" and any(map(self.facts.fixed, index.args)):
            x, y = index.args
            shared, index = (x, y) if self.facts.fixed(x) else (y, x)
            first, kind = self.fixed(shared), MEMORY[buffer.dtype.name]
            with self.ahead():
                base = self.kernel.emit(f"getelementptr {kind}, ptr {base}, i64 {first}")
        return base, self.value(index)

    def addresses(self, buffer: Buffer, base: str, away: str) -> str:
        kind, lanes = MEMORY[buffer.dtype.name], self.lanes
        text = f"getelementptr {kind}, ptr {base}, <{lanes} x i64> {away}"
        return f"<{lanes} x ptr> {self.kernel.emit(text)}, i32 {buffer.dtype.itemsize}"

    def gather(self, buffer: Buffer, index: Expr) -> str:
        """An element for each lane."""
        k, kind = self.kernel, self.kind(buffer.dtype, MEMORY)
        if not k.gathers and self.facts.stride(index) is None:
            return self.singles(buffer, index)
        name = f"@llvm.masked.gather.{self.suffix(MEMORY[buffer.dtype.name])}.v{self.lanes}p0"
        rest = f"<{self.lanes} x i1> {self.mask or 'splat (i1 true)'}, {kind} poison"
        return k.emit(f"call {kind} {name}({self.places(buffer, index)}, {rest}){k.access(buffer)}")

    def singles(self, buffer: Buffer, index: Expr) -> str:
        """The same by a load for each lane that there certainly is. Others that a mask leaves out
        load the first element of the buffer: branches around them would cost more.
        """
        k, kind, count = self.kernel, MEMORY[buffer.dtype.name], self.lanes
        if self.mask and not self.is_guarded and self.at.isdigit() and self.total.isdigit():
            count = int(self.total) - int(self.at) - self.copy * self.lanes
        if self.mask and count >= self.lanes:
            base = k.pointer(buffer)
            away = self.emit(f"select i1 {self.mask}, i64 {self.value(index)}, i64 0")
        else:
            base, away = self.apart(buffer, index)
        made, size, note = "poison", buffer.dtype.itemsize, k.access(buffer)
        wide = f"<{self.lanes} x {kind}>"
        for lane in range(min(count, self.lanes)):
            one = k.emit(f"extractelement <{self.lanes} x i64> {away}, i64 {lane}")
            where = k.emit(f"getelementptr {kind}, ptr {base}, i64 {one}")
            loaded = k.emit(f"load {kind}, ptr {where}, align {size}{note}")
            made = k.emit(f"insertelement {wide} {made}, {kind} {loaded}, i64 {lane}")
        return made

    def scatter(self, buffer: Buffer, index: Expr, value: str) -> None:
        """Store an element of each lane."""
        k, given = self.kernel, self.operand(buffer.dtype, value, MEMORY)
        mask = f"<{self.lanes} x i1> {self.mask or 'splat (i1 true)'}"
        name = f"@llvm.masked.scatter.{self.suffix(MEMORY[buffer.dtype.name])}.v{self.lanes}p0"
        rest = f"{self.places(buffer, index)}, {mask}"
        k.lines.append(f"  call void {name}({given}, {rest}){k.access(buffer)}")
