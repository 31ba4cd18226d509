"""Loop IR to readable Python that Numba accepts: what the dump shows, and the CUDA emitter's start.

    def k0(a0, a1, lo, hi):
        for i0 in range(lo, hi):  # parallel
            r0 = np.float64(0.0)
            for i1 in range(1024):  # vector
                r0 += np.float64(a0[at(i0 * 1024 + i1)])
            a1[at(i0)] = np.float32(r0)
        return 0

The arguments are one-dimensional arrays, `params` where the kernel has any, the range of parallel
units, and the run's cancel flag where a loop is so long that it looks at it.  f16 and bf16 arrays
are passed as uint16 views; per-thread scratch as the slice of the calling thread.  Identifiers come
from counters only.  Values used once are written in place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from graphc.codegen.nest_walk import Functions, Statements, Values, body_of
from graphc.codegen.python.helpers import helper_text, number, storage, storage_dtype
from graphc.codegen.python.scalar import ADD, ATOM, LOOSE, MULTIPLY, Text, spell
from graphc.ir.types import F64, DType
from graphc.loops.facts import SumPlan, index_range, looks, loop_range
from graphc.loops.nest import (
    Assign,
    Declare,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Prefetch,
    Register,
    Routine,
    Scalars,
    Statement,
    Store,
    Update,
    expressions,
    postorder,
    walk,
)

__all__ = ["HEADER", "Functions", "emit", "storage", "storage_dtype"]

HEADER = """\
import numpy as np
from numba import njit

from graphc.codegen.numba.intrinsics import fma

helper = njit(error_model="numpy")
at = np.uint64  # Numba tests a signed index for being negative, which keeps loops from vectorising
"""
CANCELLED = -1  # the status of a kernel that saw the cancel flag
_LONG = 64  # a longer expression gets a name of its own


def emit(kernel: Kernel, functions: Functions | None = None, header: str = HEADER) -> str:
    """The kernel as a Python module: helpers, then a function of the kernel's name.

    `header` imports `np` and `fma` and defines the decorator `helper` and the index type `at`;
    CUDA passes its own.
    """
    library = Library(functions)
    body = KernelSource(library, kernel).text()
    return "\n".join([_needed(header, body + library.text()), *library.parts, body])


def _needed(header: str, text: str) -> str:
    """The header, importing what the text calls of what Numba does not offer."""
    names = ", ".join(name for name in ("fma", "stopped") if f"{name}(" in text)
    lines = [
        line.replace("import fma", f"import {names}")
        for line in header.splitlines(keepends=True)
        if names or not line.endswith("import fma\n")
    ]
    return "".join(lines).replace("\n\n\n", "\n\n")


class Library:
    """The helper functions that a module needs, each printed once, callees first."""

    def __init__(
        self, functions: Functions | None, writer: Callable[[Library], Source] | None = None
    ) -> None:
        self.functions = functions
        self.writer = writer or Source  # of the bodies of math functions
        self.known: set[str] = set()
        self.parts: list[str] = []

    def text(self) -> str:
        return "\n".join(self.parts)

    def helper(self, name: str) -> str:
        if name not in self.known:
            self.known.add(name)
            text, needs = helper_text(name)
            for other in needs:
                self.helper(other)
            self.parts.append(f"\n@helper{text}")
        return name

    def math(self, name: str, dtype: DType, count: int) -> str:
        """A math function as a Python helper."""
        symbol = f"{name}_{dtype}"
        if symbol not in self.known:
            self.known.add(symbol)
            _, result = body_of(self.functions, name, dtype, count)
            writer = self.writer(self)
            writer.count_uses([result])
            value = writer.atom(result, LOOSE)
            lines = [f"def {symbol}({', '.join(f'x{i}' for i in range(count))}):", *writer.lines]
            self.parts.append("\n@helper\n" + "\n".join([*lines, f"    return {value}", ""]))
        return symbol


class Source(Values[Text]):
    """Writes statements; names values that are used twice or are long to read."""

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library
        self.lines: list[str] = []
        self.indent = "    "
        self.uses: Counter[Expr] = Counter()
        self.names: Counter[str] = Counter()

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def count_uses(self, roots: Sequence[Expr], seen: set[Expr] | None = None) -> None:
        for root in roots:
            self.uses[root] += 1
        for expr in postorder(roots, seen):
            for argument in expr.args:
                self.uses[argument] += 1

    def is_index(self, expr: Expr) -> bool:
        """Is this an i64 expression whose bounds are known, so that it never wraps?"""
        return index_range(expr, self.ranges) is not None

    def at_least(self, expr: Expr) -> int | None:
        bounds = index_range(expr, self.ranges)
        return None if bounds is None else bounds[0]

    def atom(self, expr: Expr, tight: int = ATOM) -> str:
        """The expression as text that binds at least as tightly as asked for."""
        text, level = self.value(expr)
        return text if level >= tight else f"({text})"

    def remember(self, expr: Expr, text: Text) -> None:
        if not _simple(expr) and (self.uses[expr] > 1 or len(text[0]) > _LONG):
            prefix = "p" if self.is_index(expr) else "x" if expr.op == "load" else "t"
            name = f"{prefix}{self.names[prefix]}"
            self.names[prefix] += 1
            self.line(f"{name} = {text[0]}")
            text = (name, ATOM)
        super().remember(expr, text)

    def write(self, expr: Expr) -> Text:
        match expr.op:
            case "arg":
                return f"x{expr.data}", ATOM
            case "const":
                text = number(expr.data, expr.dtype)
                return text, MULTIPLY if text.startswith("-") else ATOM
            case "call":
                name = self.library.math(expr.data, expr.dtype, len(expr.args))
                return f"{name}({', '.join(self.atom(a, LOOSE) for a in expr.args)})", ATOM
            case "rare":
                return self.values[expr.args[1]] if self.is_plain(expr) else self.rare(expr)
        return spell(self, expr)

    def rare(self, expr: Expr) -> Text:
        """A choice as a statement: what is seldom chosen is computed only then."""
        condition, seldom, usual = expr.args
        name = f"t{self.names['t']}"
        self.names["t"] += 1
        self.line(f"{name} = {self.atom(usual, LOOSE)}")
        self.line(f"if {self.atom(condition, LOOSE)}:")
        self.indent += "    "
        known = set(self.values)
        self.line(f"{name} = {self.atom(seldom, LOOSE)}")
        for inside in self.values.keys() - known:
            del self.values[inside]
        self.indent = self.indent[:-4]
        return name, ATOM


class KernelSource(Statements[Text], Source):
    """Writes one kernel."""

    def __init__(self, library: Library, kernel: Kernel) -> None:
        super().__init__(library)
        self.follow(kernel)
        self.wide = SumPlan(kernel).wide
        self.registers: dict[int, DType] = {}
        self.every: dict[Expr, int] = {}  # iterations of a long loop between two looks
        seen: set[Expr] = set()
        for statement in walk(kernel.body):
            self.count_uses(expressions(statement), seen)

    def text(self) -> str:
        names = [repr(b) for b in self.kernel.buffers]
        names += ["params"] if self.kernel.params or self.kernel.sizes else []
        self.every = looks(self.kernel)
        names += ["lo", "hi", "cancelled"] if self.every else ["lo", "hi"]
        for note in self.kernel.notes:
            self.line("# " + re.sub(r"[^ -~]", "?", note))
        self.block(self.kernel.body)
        self.line("return 0")
        head = f"\ndef {self.kernel.name}({', '.join(names)}):"
        return "\n".join([head, *(f"    # {line}" for line in self.signature()), *self.lines, ""])

    def signature(self) -> list[str]:
        """What the buffers are, one comment line each."""
        lines = [f"{b}: {b.mode} {b.dtype}[{b.size}]" for b in self.kernel.buffers]
        first = self.kernel.params
        return lines + [f"params[{first + k}]: {size}" for k, size in enumerate(self.kernel.sizes)]

    # -- values

    def write(self, expr: Expr) -> Text:
        match expr.op:
            case "var":
                return f"i{expr.data}", ATOM
            case "param":
                return f"params[{expr.data}]", ATOM
            case "size":
                number = self.kernel.params + list(map(id, self.kernel.sizes)).index(id(expr.data))
                return f"params[{number}]", ATOM
            case "reg":
                name, dtype = f"r{expr.data[0]}", self.registers[expr.data[0]]
                wide = expr.data[0] in self.wide
                return (f"{storage(dtype)}({name})" if wide else name), ATOM
            case "load":
                return self.element(expr.data[0], expr.args[0]), ATOM
        return super().write(expr)

    def element(self, buffer: int, index: Expr) -> str:
        """One element of a buffer."""
        return f"a{buffer}[at({self.atom(index, LOOSE)})]"

    # -- statements

    def statement(self, statement: Statement) -> None:
        match statement:
            case Declare(register=register, value=value):
                self.registers[register.index] = register.dtype
                self.line(f"r{register.index} = {self.carried(register, value)}")
            case Assign(register=register, value=value):
                self.line(f"r{register.index} = {self.carried(register, value)}")
            case Update(register=register, combine=combine, value=value):
                self.update(register, combine, value)
            case Store(buffer=buffer, index=index, value=value):
                where = self.element(buffer.index, index)
                self.line(f"{where} = {self.atom(value, LOOSE)}")
            case Prefetch(buffer=buffer, index=index, count=count):
                self.line(f"# soon: {count} from {self.element(buffer.index, index)} on")
            case Routine(name=name, places=places):
                given = [f"a{b.index}[{self.atom(at, LOOSE)}:]" for b, at in places]
                self.line(f"{name}({', '.join(given)})  # of LAPACK: Numba cannot call it")
            case Fail(condition=condition, code=code):
                self.line(f"if {self.atom(condition, LOOSE)}:")
                self.line(f"    return {code}")
            case If(condition=condition, body=body):
                self.line(f"if {self.atom(condition, LOOSE)}:")
                self.inside(body)
            case For():
                self.loop(statement)

    def inside(self, body: Sequence[Statement]) -> None:
        self.indent += "    "
        before = len(self.lines)
        self.block(body)
        if len(self.lines) == before:
            self.line("pass")
        self.indent = self.indent[:-4]

    def carried(self, register: Register, value: Expr) -> str:
        """The value as the register holds it: f32 sums are carried in f64."""
        if register.index not in self.wide:
            return self.atom(value, LOOSE)
        if value.op == "const":
            return number(value.data, F64)
        return f"np.float64({self.atom(value, LOOSE)})"

    def update(self, register: Register, combine: str, value: Expr) -> None:
        name, dtype = f"r{register.index}", register.dtype
        if combine in ("add", "mul") and dtype.kind == "f":
            sign = "+" if combine == "add" else "*"
            self.line(f"{name} {sign}= {self.carried(register, value)}")
            return
        # Spell the combination as an expression over the register.
        b = Scalars()
        now = b.make("arg", F64 if register.index in self.wide else dtype, (), "now")
        right = b.make("arg", now.dtype, (), "value")
        made = Expr(combine, now.dtype, (now, right), None, -1)
        self.values[now] = (name, ATOM)
        self.values[right] = (self.carried(register, value), LOOSE)
        self.line(f"{name} = {spell(self, made)[0]}")
        del self.values[now], self.values[right]

    def loop(self, statement: For) -> None:
        bounds = self.bounds(statement)
        self.forget(statement)  # later iterations see what earlier ones wrote
        variable = statement.variable
        note = "" if statement.kind == "serial" else f"  # {statement.kind}"
        self.ranges[variable] = loop_range(statement, self.ranges)
        every = self.every.get(variable)
        if every is None:
            self.head(f"i{variable.data}", bounds, note)
            self.inside(statement.body)
        else:
            self.watched(statement, bounds, note, every)

    def watched(self, statement: For, bounds: tuple[str, ...], note: str, every: int) -> None:
        """A very long loop in parts, before each of which the kernel may be stopped."""
        name, stop = f"i{statement.variable.data}", bounds[-1]
        self.head(f"{name}_part", (*(bounds if len(bounds) > 1 else ("0", stop)), str(every)), "")
        self.indent += "    "
        self.line("if stopped(cancelled):")
        self.line(f"    return {CANCELLED}")
        self.head(name, (f"{name}_part", f"min({name}_part + {every}, {stop})"), note)
        self.inside(statement.body)
        self.indent = self.indent[:-4]

    def head(self, name: str, bounds: tuple[str, ...], note: str) -> None:
        """The line that a loop begins with."""
        self.line(f"for {name} in range({', '.join(bounds)}):{note}")

    def bounds(self, statement: For) -> tuple[str, ...]:
        """What a loop runs over, as arguments of `range`."""
        start, stop = self.atom(statement.start, ADD), self.atom(statement.stop, LOOSE)
        if statement.kind == "parallel":
            start, stop = (b if start == "0" else f"{start} + {b}" for b in ("lo", "hi"))
        return (stop,) if start == "0" else (start, stop)


def _simple(expr: Expr) -> bool:
    """Not worth a name: a leaf, or the product of two, as in `1024 * i0`."""
    return not expr.args or (expr.op == "mul" and not any(a.args for a in expr.args))
