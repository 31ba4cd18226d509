"""Rows of an open length that happen to be a few elements long, one row in each lane of a vector.

For one length a loop over rows holds no more loops, and elements in scratch are registers:

    for i in rows:                                vector for i in rows:        of two elements
        for k in 0..m:  w[k] = exp(x[m*i + k])        w0 = exp(x[2*i]);  w1 = exp(x[2*i + 1])
                        r = r + w[k]                  r = r + w0;  r = r + w1
        for k in 0..m:  y[m*i + k] = w[k] / r         y[2*i] = w0 / r;  y[2*i + 1] = w1 / r
"""

from __future__ import annotations

from graphc.ir.sizes import Size
from graphc.loops.nest import (
    NOBODY,
    Assign,
    Declare,
    Expr,
    Fail,
    For,
    Kernel,
    Register,
    Scalars,
    Statement,
    Store,
    Update,
    walk,
)

_FOLDED = ("add", "sub", "mul", "idiv", "irem")


def rows_in_lanes(loop: For, kernel: Kernel, length: Size, count: int) -> For | None:
    """The loop over rows for the one length, without loops inside; None if that cannot be said."""
    return _Unrolled(kernel, length, count).loop(loop)


class _Unrolled:
    """Statements for one length: `known` says what became of an expression."""

    def __init__(self, kernel: Kernel, length: Size, count: int) -> None:
        self.buffers = kernel.buffers
        self.length, self.count = length, count
        self.b = Scalars()
        declared = (s.register.index for s in walk(kernel.body) if isinstance(s, Declare))
        self.b.counts["reg"] = 1 + max(declared, default=-1)
        self.known: dict[Expr, Expr] = {}
        self.scratch: dict[tuple[int, int], Register] = {}  # by buffer and place
        self.possible = True

    def loop(self, loop: For) -> For | None:
        variable = self.known[loop.variable] = self.variable(loop.variable)
        start, stop = self.expr(loop.start), self.expr(loop.stop)
        self.block(loop.body)
        made = For(variable, start, stop, loop.kind, self.b.body)
        return made if self.possible else None

    def variable(self, expr: Expr) -> Expr:
        return self.b.make("var", expr.dtype, (), expr.data)

    def block(self, body: list[Statement]) -> None:
        for statement in body:
            if self.possible:
                self.statement(statement)

    def statement(self, statement: Statement) -> None:
        match statement:
            case For():
                self.turns(statement)
            case Declare(register=register, value=value):
                self.b.body.append(Declare(register, self.expr(value)))
            case Assign(register=register, value=value):
                self.b.assign(register, self.expr(value))
            case Update(register=register, combine=combine, value=value):
                self.b.update(register, combine, self.expr(value))
            case Fail(condition=condition, code=code):
                self.b.body.append(Fail(self.expr(condition), code))
            case Store():
                self.store(statement)
            case _:
                self.possible = False

    def turns(self, loop: For) -> None:
        """Each iteration, with what it knows by itself."""
        start, stop = self.expr(loop.start), self.expr(loop.stop)
        self.possible &= start.op == stop.op == "const"
        around = self.known
        for turn in range(start.data, stop.data) if self.possible else ():
            self.known = {**around, loop.variable: self.b.integer(turn)}
            self.block(loop.body)
        self.known = around

    def store(self, store: Store) -> None:
        index, value, buffer = self.expr(store.index), self.expr(store.value), store.buffer
        if buffer.mode != "work":
            self.b.body.append(Store(buffer, index, value))
            return
        self.possible &= index.op == "const" and buffer.dtype.compute is buffer.dtype
        place = buffer.index, index.data
        if place in self.scratch:
            self.b.assign(self.scratch[place], value)
        else:
            self.scratch[place] = self.b.register(value)

    def expr(self, root: Expr) -> Expr:
        pending = [root]
        while pending:
            expr = pending[-1]
            missing = [a for a in expr.args if a not in self.known]
            if missing and expr not in self.known:
                pending += missing
                continue
            pending.pop()
            if expr not in self.known:
                self.b.own(_owner(expr))
                self.known[expr] = self.made(expr)
        return self.known[root]

    def made(self, expr: Expr) -> Expr:
        args = tuple(self.known[a] for a in expr.args)
        match expr.op:
            case "size":
                more = expr.data - self.length
                return self.b.integer(expr.data if isinstance(more, Size) else self.count + more)
            case "var":
                return self.variable(expr)
            case "reg":
                return self.b.read(Register(expr.data[0], expr.dtype))
            case "load":
                return self.load(expr, *args)
        if expr.op in _FOLDED:
            return self.b.op(expr.op, *args)
        return self.b.make(expr.op, expr.dtype, args, expr.data)

    def load(self, expr: Expr, index: Expr) -> Expr:
        buffer = self.buffers[expr.data[0]]
        if buffer.mode != "work":
            return self.b.load(buffer, index)
        register = self.scratch.get((buffer.index, index.data if index.op == "const" else -1))
        if register is None:
            self.possible = False
            return self.b.const(0, expr.dtype)
        return self.b.read(register)


def _owner(expr: Expr) -> int:
    owner = expr.builder.owner(expr) if expr.builder is not None else None
    return NOBODY if owner is None else owner
