"""One LLVM module as text, and what the writers of kernels and of math functions share."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from graphc.codegen.llvm.scalar import INSTRUCTIONS, TYPES, intrinsic, literal, minmax
from graphc.codegen.llvm.target import Target
from graphc.codegen.nest_walk import Functions, Values, body_of, told
from graphc.ir.types import BOOL, DType
from graphc.loops.facts import Range, index_range
from graphc.loops.nest import Expr
from graphc.seams import lapack

Slot = tuple[str, DType, DType]  # a register's memory, its type and that of the memory
MathKey = tuple[str, DType, int, int]  # a math function: its name, type, arguments and lanes
SELDOM = "!seldom"  # stands in a text for what LLVM is told of a branch that is hardly ever taken

SINGLE_LOADS = "+prefer-no-gather"  # what LLVM is told of a machine with slow gathers
_KIND = r"(?P<kind>i\d+|half|float|double)"
_LITERAL = r"(?P<literal>-?\d[\w.]*|true|false)"
_SUFFIX = r"(?<=\.)(?P<suffix>f32|f64|i\d+)(?=\()"
_FLAG = r"(?P<flag>, i1 false\)$)"  # of an intrinsic: no value
_TOKENS = re.compile(rf"{_FLAG}|(?<![\w.%@#])(?:{_KIND}|{_LITERAL})(?![\w.])|{_SUFFIX}")
_NAMES = re.compile(r"(%\w+)")
_NAME = "%_"  # stands for any of them


def widened(text: str, lanes: int) -> str:
    """The text of an instruction over scalars as the same one over vectors.

    Types, names of functions and literals change; a literal has the type that was named last.
    """
    parts = _NAMES.split(text)
    parts[::2] = _widened(_NAME.join(parts[::2]), lanes).split(_NAME)
    return "".join(parts)


@lru_cache(maxsize=4096)  # but for its names an instruction is one of few
def _widened(text: str, lanes: int) -> str:
    last = ""

    def wide(match: re.Match[str]) -> str:
        nonlocal last
        found = match.group()
        if match["kind"]:
            last = found
            return f"<{lanes} x {found}>"
        if match["literal"]:
            return f"splat ({last} {found})"
        return f"v{lanes}{found}" if match["suffix"] else found

    return _TOKENS.sub(wide, text)


class Module:
    """Collects function texts and numbers metadata."""

    def __init__(self, target: Target, functions: Functions | None = None) -> None:
        self.target = target
        self.functions = functions
        self.parts: list[str] = []
        self.metadata: list[str] = []
        self.notes: dict[str, str] = {}
        self.math: dict[MathKey, str] = {}
        self.routines: dict[str, str] = {}
        self.single_loads = False  # a kernel of it has loads in the place of gathers

    def note(self, *items: str, distinct: bool = False, itself: bool = False) -> str:
        """The metadata node of these items. `itself`: distinct, and its own first item."""
        key = ", ".join(items)
        if not (distinct or itself) and key in self.notes:
            return self.notes[key]
        name = f"!{len(self.metadata)}"
        if distinct or itself:
            inside = f"{name}, {key}" if key and itself else name if itself else key
            self.metadata.append(f"{name} = distinct !{{{inside}}}")
            return name
        self.metadata.append(f"{name} = !{{{key}}}")
        self.notes[key] = name
        return name

    def scopes(self, count: int) -> dict[int, str]:
        """The metadata that says of each of so many buffers: no other one overlaps it."""
        domain = self.note(itself=True)
        made = [self.note(domain, itself=True) for _ in range(count)]
        others = [self.note(*(s for s in made if s is not own)) for own in made]
        return {
            k: f", !alias.scope {self.note(own)}, !noalias {rest}"
            for k, (own, rest) in enumerate(zip(made, others, strict=True))
        }

    def math_function(self, name: str, dtype: DType, count: int, lanes: int = 1) -> str:
        """The symbol of a math function over one type, written when first asked for."""
        key = (name, dtype, count, lanes)
        if key not in self.math:
            self.math[key] = f"@vm.{name}.{dtype}"
            known = self.functions is None and told.get() is None
            made = (math_text if known else math_text.__wrapped__)(self.target, self.functions, key)
            for called in made.calls:
                self.math_function(*called)
            self.add(made.text)
        return self.math[key]

    def add(self, text: str) -> None:
        """Add the text of a function."""
        if SELDOM in text:
            note = self.note('!"branch_weights"', "i32 1", "i32 1048575")
            text = text.replace(SELDOM, note)
        self.parts.append(text)

    def routine(self, name: str, count: int) -> str:
        """The symbol of a routine of LAPACK, which whoever loads the object finds."""
        symbol = f"@{lapack.PREFIX}{name}"
        self.routines[symbol] = f"declare void {symbol}({', '.join(['ptr'] * count)})"
        return symbol

    def text(self) -> str:
        bits = self.target.vector_bits
        plain = '"no-builtins"'  # no calls of memset or libm appear by themselves
        attributes = [
            f'attributes #0 = {{ nounwind mustprogress {plain} "prefer-vector-width"="{bits}" }}',
            f"attributes #1 = {{ alwaysinline nounwind willreturn memory(none) {plain} }}",
        ]
        if self.single_loads:
            cpu, features = self.target.cpu, f"{self.target.features},{SINGLE_LOADS}".lstrip(",")
            machine = f'"target-cpu"="{cpu}" "target-features"="{features}"'
            attributes.append(attributes[0].replace("#0", "#2").replace("}", f"{machine} }}"))
        return "\n".join([*self.parts, *self.routines.values(), *attributes, *self.metadata, ""])


_WHOLE_NUMBERS = {  # by the number of lanes: an intrinsic of x86, and its other operands
    4: ("sse2.cvttps2dq", ""),
    8: ("avx.cvtt.ps2dq.256", ""),
    16: ("avx512.mask.cvttps2dq.512", ", <16 x i32> zeroinitializer, i16 -1, i32 4"),
}


class FunctionWriter(Values[str]):
    """Writes the body of one LLVM function, with numbered values."""

    def __init__(self, module: Module, lanes: int = 1) -> None:
        super().__init__()
        self.module = module
        self.lanes = lanes  # elements of a value; its instructions are written as for one
        self.half = module.target.half
        self.contract = ""
        self.loose = ""  # the flags of updates
        self.zeros = False
        self.lines: list[str] = []
        self.count = 0

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def emit(self, text: str) -> str:
        return self.emit_one(self.wide(text))

    def wide(self, text: str) -> str:
        return text if self.lanes == 1 else widened(text, self.lanes)

    def whole_number(self, x: str) -> str | None:
        target, wide = self.module.target, f"<{self.lanes} x float> {x}"
        name, more = _WHOLE_NUMBERS.get(self.lanes, ("", ""))
        if not name or not target.triple.startswith("x86") or target.vector_bits < 32 * self.lanes:
            return None
        return self.emit_one(f"call <{self.lanes} x i32> @llvm.x86.{name}({wide}{more})")

    def quads(self, x: str, y: str, z: str) -> str | None:
        target, bits = self.module.target, 32 * self.lanes
        if not target.quads or target.vector_bits != bits:
            return None
        x, y, total = (widened(f"i32 {value}", self.lanes) for value in (x, y, z))
        four = f"<{4 * self.lanes} x i8>"
        x, y = (self.emit_one(f"bitcast {value} to {four}") for value in (x, y))
        call = f"call <{self.lanes} x i32> @llvm.x86.avx512.vpdpbusd.{bits}"
        return self.emit_one(f"{call}({total}, {four} {x}, {four} {y})")

    def brain(self, x: str) -> str | None:
        if self.lanes == 1 or not self.module.target.brain:
            return None
        made = self.emit_one(f"fptrunc <{self.lanes} x float> {x} to <{self.lanes} x bfloat>")
        return self.emit_one(f"bitcast <{self.lanes} x bfloat> {made} to <{self.lanes} x i16>")

    def range(self, expr: Expr) -> Range | None:
        return index_range(expr, self.ranges)

    def write(self, expr: Expr) -> str:
        if expr.op == "const":
            return literal(expr.data, expr.dtype)
        operands = [self.values[a] for a in self.operands(expr)]
        if expr.op == "call":
            return self.call(expr, operands)
        if self.is_plain(expr):
            return operands[0]
        if expr.op == "rare":
            return self.rare(expr, *operands[:2])
        return INSTRUCTIONS[expr.op](self, expr, operands)

    def call(self, expr: Expr, operands: list[str]) -> str:
        symbol = self.module.math_function(expr.data, expr.dtype, len(operands), self.lanes)
        kind = TYPES[expr.dtype.name]
        return self.emit(f"call {kind} {symbol}({', '.join(f'{kind} {o}' for o in operands)})")

    def rare(self, expr: Expr, condition: str, usual: str) -> str:
        """A choice behind a branch, which is taken where the condition holds in some lane."""
        name, known, lines = self.fresh(""), set(self.values), self.text_lines()
        kind = TYPES[expr.dtype.name]
        # Lanes behind the last element hold nothing that a branch may look at.
        some = chosen = self.emit(f"freeze i1 {condition}")
        if self.lanes > 1:
            some = self.emit_one(self.across("or", BOOL, chosen))
        lines += [f"  br label %ask{name}", f"ask{name}:"]
        lines += [f"  br i1 {some}, label %rare{name}, label %go{name}, !prof {SELDOM}"]
        lines.append(f"rare{name}:")
        seldom = self.value(expr.args[1])
        picked = self.emit(f"select i1 {chosen}, {kind} {seldom}, {kind} {usual}")
        for inside in self.values.keys() - known:
            del self.values[inside]
        lines += [f"  br label %end{name}", f"end{name}:", f"  br label %go{name}", f"go{name}:"]
        ways = f"[ {usual}, %ask{name} ], [ {picked}, %end{name} ]"
        return self.emit_one(f"phi {self.wide(kind)} {ways}")

    def text_lines(self) -> list[str]:
        """Where this function's text goes."""
        return self.lines

    def emit_one(self, text: str) -> str:
        """`emit` for an instruction that is written for all lanes already."""
        name = self.fresh("%v")
        self.text_lines().append(f"  {name} = {text}")
        return name

    def math(self, symbol: str, name: str, dtype: DType, count: int) -> str:
        """A math function as an LLVM function that is always inlined."""
        arguments, made = body_of(self.module.functions, name, dtype, count)
        self.values.update({a: f"%x{i}" for i, a in enumerate(arguments)})
        result = self.value(made)
        kind = TYPES[dtype.name]
        formal = ", ".join(f"{kind} %x{i}" for i in range(count))
        head = f"define internal {self.wide(f'{kind} {symbol}({formal})')} #1 {{"
        return "\n".join([head, *self.lines, f"  ret {self.wide(f'{kind} {result}')}", "}"])

    def combine(self, op: str, dtype: DType, now: str, value: str) -> str:
        """A register's value after an update; the type is that of its slot."""
        kind = TYPES[dtype.name]
        if op in ("min", "max"):
            if dtype.kind == "f":
                # The sign of a zero is left open, as in NumPy: that halves the instructions.
                return intrinsic(self, f"{op}imum", dtype, (now, value), " nsz")
            return minmax(self, op, dtype, (now, value))
        if dtype.kind == "f":
            return self.emit(f"f{op}{self.loose} {kind} {now}, {value}")
        return self.emit(f"{op} {kind} {now}, {value}")

    def suffix(self, kind: str) -> str:
        """What an intrinsic over vectors of this type has in its name."""
        return vector_suffix(kind, self.lanes)

    def across(self, combine: str, dtype: DType, vector: str) -> str:
        """The instruction that combines all lanes."""
        kind = TYPES[dtype.name]
        given = f"{widened(kind, self.lanes)} {vector}"
        flags = ""
        if dtype.kind == "f" and combine in ("min", "max"):
            name, flags = f"f{combine}imum", " nsz"
        elif dtype.kind == "f":
            start = "-0.0" if combine == "add" else "1.0"
            name, flags, given = f"f{combine}", self.loose, f"{kind} {start}, {given}"
        elif combine in ("min", "max") and dtype.kind != "b":
            name = f"{'s' if dtype.kind == 'i' else 'u'}{combine}"
        else:
            name = {"min": "and", "max": "or"}.get(combine, combine)
        symbol = f"@llvm.vector.reduce.{name}.{self.suffix(kind)}"
        return f"call{flags} {kind} {symbol}({given})"


class MathText(NamedTuple):
    """The text of a math function, and the others that it calls."""

    text: str
    calls: tuple[MathKey, ...]


@cache
def math_text(target: Target, functions: Functions | None, key: MathKey) -> MathText:
    """The text of a math function, the same in every module."""
    alone = Module(target, functions)
    name, dtype, count, lanes = key
    text = FunctionWriter(alone, lanes).math(f"@vm.{name}.{dtype}", name, dtype, count)
    return MathText(text, tuple(alone.math))


def vector_suffix(kind: str, lanes: int) -> str:
    return f"v{lanes}{({'float': 'f32', 'double': 'f64'}).get(kind, kind)}"


def neutral(combine: str, dtype: DType) -> str:
    """What changes nothing when it is combined."""
    if dtype.kind == "f":
        value = {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": -float("inf")}[combine]
        return literal(value.hex(), dtype)
    lowest = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    ends = {"min": lowest ^ -1, "max": lowest, "and": -1, "mul": 1}
    return literal(ends.get(combine, 0), dtype)
