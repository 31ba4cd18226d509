"""One LLVM module as text, and what the writers of kernels and of math functions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphc.codegen.llvm_scalar import INSTRUCTIONS, TYPES, literal
from graphc.codegen.loop_facts import Range, index_range
from graphc.codegen.loops import Expr, Scalars
from graphc.codegen.target import Target
from graphc.errors import GraphError
from graphc.ir.types import DType

Functions = Mapping[str, Callable[..., Expr]]


class Module:
    """Collects function texts and numbers metadata."""

    def __init__(self, target: Target, functions: Functions | None = None) -> None:
        self.target = target
        self.functions = functions
        self.parts: list[str] = []
        self.metadata: list[str] = []
        self.notes: dict[str, str] = {}
        self.math: dict[tuple[str, DType], str] = {}

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

    def math_function(self, name: str, dtype: DType, count: int) -> str:
        """The symbol of a math function over one type, written when first asked for."""
        key = (name, dtype)
        if key not in self.math:
            self.math[key] = f"@vm.{name}.{dtype}"
            self.parts.append(FunctionWriter(self).math(self.math[key], name, dtype, count))
        return self.math[key]

    def builder(self, name: str) -> Callable[..., Expr]:
        if self.functions is None:
            from graphc.codegen.vecmath import FUNCTIONS

            self.functions = FUNCTIONS
        if name not in self.functions:
            raise GraphError(f"no math function named {name}")
        return self.functions[name]

    def text(self) -> str:
        bits = self.target.vector_bits
        plain = '"no-builtins"'  # no calls of memset or libm appear by themselves
        attributes = [
            f'attributes #0 = {{ nounwind mustprogress {plain} "prefer-vector-width"="{bits}" }}',
            f"attributes #1 = {{ alwaysinline nounwind willreturn memory(none) {plain} }}",
        ]
        return "\n".join([*self.parts, *attributes, *self.metadata, ""])


class FunctionWriter:
    """Writes the body of one LLVM function: numbered values, and which expression has which name.

    An expression is written where it is first needed and known from there to the end of its scope.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.half = module.target.half
        self.contract = ""
        self.zeros = False
        self.lines: list[str] = []
        self.values: dict[Expr, str] = {}
        self.scopes: list[list[Expr]] = []
        self.ranges: dict[Expr, Range | None] = {}
        self.count = 0

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def emit(self, text: str) -> str:
        name = self.fresh("%v")
        self.lines.append(f"  {name} = {text}")
        return name

    def range(self, expr: Expr) -> Range | None:
        return index_range(expr, self.ranges)

    def value(self, root: Expr) -> str:
        """The name of an expression's value, after writing whatever of it is not known yet."""
        found = self.values.get(root)
        if found is not None:
            return found
        pending = [root]
        while pending:
            expr = pending[-1]
            missing = [a for a in expr.args if a not in self.values]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            if expr not in self.values:
                self.remember(expr, self.write(expr, [self.values[a] for a in expr.args]))
        return self.values[root]

    def remember(self, expr: Expr, name: str) -> None:
        self.values[expr] = name
        if self.scopes:
            self.scopes[-1].append(expr)

    def write(self, expr: Expr, operands: list[str]) -> str:
        if expr.op == "const":
            return literal(expr.data, expr.dtype)
        if expr.op == "call":
            return self.call(expr, operands)
        return INSTRUCTIONS[expr.op](self, expr, operands)

    def call(self, expr: Expr, operands: list[str]) -> str:
        symbol = self.module.math_function(expr.data, expr.dtype, len(operands))
        kind = TYPES[expr.dtype.name]
        return self.emit(f"call {kind} {symbol}({', '.join(f'{kind} {o}' for o in operands)})")

    def math(self, symbol: str, name: str, dtype: DType, count: int) -> str:
        """A math function as an LLVM function that is always inlined."""
        scalars = Scalars()
        arguments = [scalars.make("arg", dtype, (), i) for i in range(count)]
        self.values.update({a: f"%x{i}" for i, a in enumerate(arguments)})
        result = self.value(self.module.builder(name)(scalars, *arguments))
        kind = TYPES[dtype.name]
        formal = ", ".join(f"{kind} %x{i}" for i in range(count))
        head = f"define internal {kind} {symbol}({formal}) #1 {{"
        return "\n".join([head, *self.lines, f"  ret {kind} {result}", "}"])
