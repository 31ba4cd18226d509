"""The walk over a loop nest that all emitters take: what to write, and what is known already.

a1[i0] = exp(a0[i0] - r1)     a0[i0], the difference, exp, then the store: operands first
a2[i0] = exp(a0[i0] - r1)     the value is known and not written again ...
r1 = ...                      ... until its scope ends, or a statement writes what it reads
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from graphc.errors import GraphError
from graphc.ir.types import DType
from graphc.loops.facts import Changes, Range
from graphc.loops.nest import ALWAYS, Expr, Kernel, Scalars, Statement, rare_operands

T = TypeVar("T")  # what names a value
# Where emitters are asked to tell which name stands for which expression, what they told.
told: ContextVar[list[tuple[Expr, Any]] | None] = ContextVar("told", default=None)
Functions = Mapping[str, Callable[..., Expr]]


def body_of(
    functions: Functions | None, name: str, kind: DType, count: int
) -> tuple[list[Expr], Expr]:
    """The arguments and the result of a math function over one type. Raises GraphError."""
    if functions is None:
        from graphc.loops import vecmath

        functions = vecmath.FUNCTIONS
    if name not in functions:
        raise GraphError(f"no math function named {name}")
    scalars = Scalars()
    arguments = [scalars.make("arg", kind, (), i) for i in range(count)]
    return arguments, functions[name](*arguments)


class Values(Generic[T]):
    """What an emitter knows of the function that it writes: which expression has which name.

    An expression is written where it is first needed and known from there to the end of its scope.
    """

    lanes = 1  # elements of a value

    def __init__(self) -> None:
        self.told = told.get()
        self.values: dict[Expr, T] = {}
        self.scopes: list[list[Expr]] = [[]]
        self.ranges: dict[Expr, Range | None] = {}

    def value(self, root: Expr) -> T:
        """An expression's name, after writing whatever of it is not known yet."""
        found = self.values.get(root)
        if found is not None:
            return found
        pending = [root]
        while pending:
            expr = pending[-1]
            missing = [a for a in self.operands(expr) if a not in self.values]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            if expr not in self.values:
                self.remember(expr, self.write(expr))
        return self.values[root]

    def operands(self, expr: Expr) -> tuple[Expr, ...]:
        """What has to be known before the expression is written."""
        if self.is_plain(expr):
            return (expr.args[1],)
        return rare_operands(expr) if expr.op == "rare" else expr.args

    def is_plain(self, expr: Expr) -> bool:
        """Is this a choice that is left out in code for one element?"""
        return expr.op == "rare" and expr.data == ALWAYS and self.lanes == 1

    def write(self, expr: Expr) -> T:
        """Write an expression whose operands are known."""
        raise NotImplementedError

    def remember(self, expr: Expr, name: T) -> None:
        if self.told is not None:
            self.told.append((expr, name))
        self.values[expr] = name
        self.scopes[-1].append(expr)


class Readers:
    """Known values by the registers and written buffers that they were computed from."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self.known: dict[str, list[Expr]] = {}

    def add(self, expr: Expr) -> None:
        for name in self.changes.needs(expr):
            self.known.setdefault(name, []).append(expr)

    def stale(self, statement: Statement) -> Iterator[Expr]:
        """Those that read what a statement writes: they have to be computed again."""
        for name in self.changes.writes(statement):
            yield from self.known.pop(name, ())


class Statements(Values[T]):
    """The walk over the statements of a kernel."""

    def follow(self, kernel: Kernel) -> None:
        """Begin a kernel."""
        self.kernel = kernel
        self.changes = Changes(kernel)
        self.readers = Readers(self.changes)

    def remember(self, expr: Expr, name: T) -> None:
        super().remember(expr, name)
        self.readers.add(expr)

    def forget(self, statement: Statement) -> None:
        """Values that read what the statement writes have to be computed again."""
        for expr in self.readers.stale(statement):
            self.values.pop(expr, None)

    def block(self, body: Sequence[Statement]) -> None:
        """Write statements in a scope of their own."""
        self.scopes.append([])
        for statement in body:
            self.statement(statement)
            self.forget(statement)
        for expr in self.scopes.pop():
            self.values.pop(expr, None)

    def statement(self, statement: Statement) -> None:
        raise NotImplementedError
