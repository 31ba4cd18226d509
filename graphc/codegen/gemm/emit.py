"""A small writer of LLVM IR text for the contraction core.

Operands are plain strings (or Python ints for constants), so a function body reads like the loop
nest it is. Mutable locals are stack slots; LLVM's SROA turns them into registers. Text is used
rather than `llvmlite.ir` objects because building it is several times faster, and the core is
compiled on a first call.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

Operand: TypeAlias = str | int


class Body:
    """One function under construction: straight-line helpers, loops, conditions, locals."""

    def __init__(
        self, name: str, arguments: Sequence[tuple[str, str]], result: str = "void"
    ) -> None:
        """Start `result name(arguments)`; each argument is (type, name) and is read as `%name`."""
        self.name = name
        self.result = result
        self.arguments = arguments
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.count = 0

    # -- raw emission ---------------------------------------------------------------------------

    def new(self, text: str) -> str:
        """Append an instruction that has a value and return the name of the value."""
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def do(self, text: str) -> None:
        """Append an instruction without a value."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Start a basic block."""
        self.lines.append(f"{name}:")

    def text(self, linkage: str, attributes: str) -> str:
        """The finished function definition."""
        signature = ", ".join(f"{kind} %{name}" for kind, name in self.arguments)
        head = f"define {linkage} {self.result} @{self.name}({signature}) {attributes} {{"
        return "\n".join([head, "entry:", *self.slots, *self.lines, "}", ""])

    # -- integers and pointers ------------------------------------------------------------------

    def add(self, a: Operand, b: Operand) -> str:
        """64-bit sum."""
        return self.new(f"add i64 {a}, {b}")

    def sub(self, a: Operand, b: Operand) -> str:
        """64-bit difference."""
        return self.new(f"sub i64 {a}, {b}")

    def mul(self, a: Operand, b: Operand) -> str:
        """64-bit product."""
        return self.new(f"mul i64 {a}, {b}")

    def div(self, a: Operand, b: Operand) -> str:
        """Quotient of two non-negative integers."""
        return self.new(f"udiv i64 {a}, {b}")

    def rem(self, a: Operand, b: Operand) -> str:
        """Remainder of two non-negative integers."""
        return self.new(f"urem i64 {a}, {b}")

    def least(self, a: Operand, b: Operand) -> str:
        """The smaller of two integers."""
        return self.new(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def test(self, relation: str, a: Operand, b: Operand) -> str:
        """Compare two integers (`eq`, `ne`, `slt`, ...)."""
        return self.new(f"icmp {relation} i64 {a}, {b}")

    def both(self, a: str, b: str) -> str:
        """Conjunction of two conditions."""
        return self.new(f"and i1 {a}, {b}")

    def negate(self, condition: str) -> str:
        """Negation of a condition."""
        return self.new(f"xor i1 {condition}, true")

    def choose(self, condition: str, kind: str, a: Operand, b: Operand) -> str:
        """`a` where the condition holds, else `b`."""
        return self.new(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def at(self, pointer: str, index: Operand, kind: str = "i8") -> str:
        """Address of element `index` of an array of `kind` (bytes unless told)."""
        return self.new(f"getelementptr {kind}, ptr {pointer}, i64 {index}")

    def load(self, kind: str, pointer: str, align: int) -> str:
        """Load a value of `kind`."""
        return self.new(f"load {kind}, ptr {pointer}, align {align}")

    def store(self, kind: str, value: Operand, pointer: str, align: int) -> None:
        """Store a value of `kind`."""
        self.do(f"store {kind} {value}, ptr {pointer}, align {align}")

    def word(self, table: str, index: Operand) -> str:
        """Read entry `index` of a table of 64-bit integers."""
        return self.load("i64", self.at(table, index, "i64"), 8)

    def put(self, table: str, index: Operand, value: Operand) -> None:
        """Write entry `index` of a table of 64-bit integers."""
        self.store("i64", value, self.at(table, index, "i64"), 8)

    # -- locals and control ---------------------------------------------------------------------

    def slot(self, kind: str, extent: int = 1) -> str:
        """Reserve stack space for `extent` values of `kind` and return its address."""
        self.count += 1
        self.slots.append(f"  %s{self.count} = alloca {kind}, i64 {extent}, align 64")
        return f"%s{self.count}"

    def local(self, kind: str, value: Operand) -> "Local":
        """A mutable local variable with an initial value."""
        variable = Local(self, kind)
        variable.set(value)
        return variable

    @contextmanager
    def loop(self, start: Operand, stop: Operand, step: Operand = 1) -> Iterator[str]:
        """`for index in range(start, stop, step)` for a positive step."""
        index = self.local("i64", start)
        with self.during(lambda: self.test("slt", index.get(), stop)):
            current = index.get()
            yield current
            index.advance(self.add(current, step))

    @contextmanager
    def during(self, condition: Callable[[], str]) -> Iterator[None]:
        """`while condition():`; the condition is emitted at the head of the loop."""
        self.count += 1
        tag = self.count
        self.do(f"br label %head{tag}")
        self.label(f"head{tag}")
        self.do(f"br i1 {condition()}, label %body{tag}, label %exit{tag}")
        self.label(f"body{tag}")
        yield
        self.do(f"br label %head{tag}")
        self.label(f"exit{tag}")

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """`if condition:`."""
        self.count += 1
        tag = self.count
        self.do(f"br i1 {condition}, label %then{tag}, label %done{tag}")
        self.label(f"then{tag}")
        yield
        self.do(f"br label %done{tag}")
        self.label(f"done{tag}")


class Local:
    """A mutable variable of a function body, kept in a stack slot until LLVM promotes it."""

    def __init__(self, body: Body, kind: str) -> None:
        self.body = body
        self.kind = kind
        self.place = body.slot(kind)

    def get(self) -> str:
        """Its value at this point."""
        return self.body.new(f"load {self.kind}, ptr {self.place}")

    def set(self, value: Operand) -> None:
        """Assign it."""
        self.body.do(f"store {self.kind} {value}, ptr {self.place}")

    def advance(self, value: str) -> None:
        """Assign its value for the next iteration of a loop.

        It is one of which LLVM knows nothing: loop strength reduction, which takes as long as half
        of code generation, then finds no work.
        """
        self.set(self.body.new(f'call {self.kind} asm "", "=r,0"({self.kind} {value})'))
