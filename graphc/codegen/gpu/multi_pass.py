"""Few long rows: a kernel for each pass over them, with many groups to a row.

    for r in row: r0 = r0 + x[r]         phase 0   each part of the row:  part0[p] = its own sum
    for r in row: r1 = r1 + f(x[r], r0)  phase 1   r0 = sum of part0;     part1[p] = its own sum
    y = g(r0, r1)                        last      r0, r1 = sums of the parts;  y = g(r0, r1)

One group of lanes per row would leave most of a GPU idle.  Columns are cut alike: there every lane
has a column and its parts are runs of rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.base.record import record
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.thread_map import loaded, shared_sums
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.gpu.vectors import trips
from graphc.ir.types import I64, DType
from graphc.loops.facts import trip_count
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
    walk,
)


@record(frozen=True)
class Rows:
    """The row loops of a kernel: `unit` numbers the rows, or blocks of `width` columns around
    `column`; `body` holds the passes and what comes between them."""

    unit: Expr
    units: int
    column: For | None
    width: int
    body: list[Statement]

    @property
    def passes(self) -> list[For]:
        return [s for s in self.body if isinstance(s, For)]


def phases(kernel: Kernel, chip: Chip) -> tuple[Kernel, ...]:
    """The kernel, or kernels to run in its place in this order.

    Buffers beyond those of the kernel hold parts: one of the kernels writes them, later ones read.
    """
    rows = rows_of(kernel)
    if rows is None or kernel.strict or any(b.mode == "work" for b in kernel.buffers):
        return (kernel,)
    parts = parts_of(rows, chip)
    if parts < 2 or not all(map(may_be_cut, rows.passes)):
        return (kernel,)
    return Phases(kernel, rows, parts).kernels()


def rows_of(kernel: Kernel) -> Rows | None:
    """The rows of a kernel; None where its loops have another shape."""
    unit, units, body = number(0), 1, kernel.body
    if len(body) == 1 and isinstance(body[0], For) and body[0].kind == "parallel":
        unit, units, body = body[0].variable, kernel.units, body[0].body
    if any(s.kind == "parallel" for s in walk(body) if isinstance(s, For)):
        return None
    column, width = None, 1
    if len(body) == 1 and isinstance(body[0], For) and body[0].kind == "vector":
        inner = body[0].body
        if any(isinstance(s, For) for s in inner):
            column, width, body = body[0], trips(body[0]), inner
    if not any(isinstance(s, For) and sums_of(s) for s in body):
        return None
    return Rows(unit, units, column, width, body)


def sums_of(loop: For) -> dict[int, str]:
    """The registers that a pass makes, with how: declared before it and only updated in it."""
    inside = {s.register.index for s in walk(loop.body) if isinstance(s, Declare)}
    updates = {s.register.index for s in walk(loop.body) if isinstance(s, Update)}
    found = shared_sums(loop, shared=True)
    return found if updates - inside == set(found) else {}


def may_be_cut(loop: For) -> bool:
    """May parts of a pass run apart, in any order?"""
    declared = {s.register.index for s in walk(loop.body) if isinstance(s, Declare)}
    changed = {s.register.index for s in walk(loop.body) if isinstance(s, Update | Assign)}
    return trip_count(loop) is not None and changed - declared == set(sums_of(loop))


def parts_of(rows: Rows, chip: Chip) -> int:
    """How many parts a row is cut into; 1 where rows alone fill the chip."""
    shortest = min(trip_count(loop) or 1 for loop in rows.passes)
    if rows.column is not None:
        threads = chip.blocks * chip.threads // 4
        return min(threads // max(1, rows.units * rows.width), shortest // tuned.column_part)
    elements = min(map(elements_of, rows.passes))
    return min(
        chip.blocks // 4 // max(1, rows.units),
        elements // (tuned.row_part * chip.threads),
        shortest,
    )


def elements_of(loop: For) -> int:
    """Iterations of a nest, where they are known."""
    inner = [elements_of(s) for s in loop.body if isinstance(s, For)]
    return (trip_count(loop) or 1) * max(inner, default=1)


class Phases:
    """Writes the kernels for rows that are cut into parts."""

    def __init__(self, kernel: Kernel, rows: Rows, parts: int) -> None:
        self.kernel = kernel
        self.rows = rows
        self.parts = parts
        self.part = Expr("var", I64, (), fresh(kernel), -1)  # numbers the parts that are read
        self.both = Expr("var", I64, (), fresh(kernel) + 1, -1)  # numbers row and part at once
        self.buffers = list(kernel.buffers)
        self.places: dict[int, Buffer] = {}  # register -> where its parts lie

    def kernels(self) -> tuple[Kernel, ...]:
        made = [self.phase(k) for k in range(len(self.rows.passes))]
        if any(isinstance(s, Store | Fail | If) for s in self.rows.body):
            made.append(self.last())
        return tuple(made)

    def phase(self, number_of_pass: int) -> Kernel:
        """One pass over a part of every row."""
        body: list[Statement] = []
        loop = self.rows.passes[number_of_pass]
        for statement in self.rows.body:
            if statement is loop:
                break
            if isinstance(statement, For):
                body += self.combined(statement)
            elif isinstance(statement, Declare | Assign):
                body.append(statement)
        here = binary("irem", self.both, number(self.parts))
        body.append(self.cut(loop, here))
        for index in sums_of(loop):
            dtype = self.dtype_of(index)
            buffer = Buffer(
                len(self.buffers), dtype, self.rows.units * self.rows.width * self.parts, "out"
            )
            self.buffers.append(buffer)
            self.places[index] = buffer
            value = Expr("reg", dtype, (), (index, -1), -1)
            body.append(Store(buffer, self.position(here), value))
        unit = binary("idiv", self.both, number(self.parts))
        return self.made(body, self.both, self.rows.units * self.parts, {self.rows.unit: unit})

    def last(self) -> Kernel:
        """What is done once per row, after all passes."""
        body: list[Statement] = []
        for statement in self.rows.body:
            body += self.combined(statement) if isinstance(statement, For) else [statement]
        return self.made(body, self.rows.unit, self.rows.units, {})

    def cut(self, loop: For, here: Expr) -> For:
        """A pass over one part."""
        first, stop = int(loop.start.data), int(loop.stop.data)
        chunk = -(-(stop - first) // self.parts)
        chunk = -(-chunk // 4) * 4 if chunk >= 16 else chunk  # so that vectors stay whole
        start = binary("add", number(first), binary("mul", here, number(chunk)))
        end = binary("add", start, number(chunk))
        if chunk * self.parts != stop - first:
            end = binary("min", end, number(stop))
        return For(loop.variable, start, end, loop.kind, loop.body)

    def combined(self, loop: For) -> list[Statement]:
        """A pass that has been made: its registers from their parts."""
        body: list[Statement] = []
        for index, combine in sums_of(loop).items():
            place, dtype = self.places[index], self.dtype_of(index)
            load = Expr("load", dtype, (self.position(self.part),), (place.index, None), -1)
            body.append(Update(Register(index, dtype), combine, load))
        kind = "vector" if self.rows.column is None else "serial"
        return [For(self.part, number(0), number(self.parts), kind, body)] if body else []

    def position(self, part: Expr) -> Expr:
        """Where a part of this row or column lies."""
        rows = self.rows
        place = binary("mul", rows.unit, number(rows.width))
        if rows.column is not None:
            offset = binary("sub", rows.column.variable, rows.column.start)
            place = binary("add", place, offset)
        return binary("add", binary("mul", part, number(rows.units * rows.width)), place)

    def dtype_of(self, index: int) -> DType:
        found = (s.register for s in self.rows.body if isinstance(s, Declare))
        return next(r.dtype for r in found if r.index == index)

    def made(
        self, body: list[Statement], variable: Expr, units: int, mapping: Mapping[Expr, Expr]
    ) -> Kernel:
        """A kernel over so many units, with only the buffers it uses."""
        column = self.rows.column
        if column is not None:
            body = [For(column.variable, column.start, column.stop, "vector", body)]
        body = substituted(body, dict(mapping))
        if variable.op == "var" and units > 1:
            body = [For(variable, number(0), number(units), "parallel", body)]
        elif variable.op == "var":
            body = substituted(body, {variable: number(0)})
        used = {s.buffer.index for s in walk(body) if isinstance(s, Store)} | loaded(body)
        buffers = tuple(
            Buffer(b.index, b.dtype, b.size, "out" if writes(body, b.index) else "in")
            for b in self.buffers
            if b.index in used
        )
        whole = self.kernel
        return Kernel(whole.name, buffers, 0, body, units, whole.strict, whole.notes, whole.exact)


def fresh(kernel: Kernel) -> int:
    """A number that no loop variable has."""
    return 1 + max((s.variable.data for s in walk(kernel.body) if isinstance(s, For)), default=-1)


def number(value: int) -> Expr:
    return Expr("const", I64, (), value, -1)


def binary(op: str, x: Expr, y: Expr) -> Expr:
    """Index arithmetic; products and sums with 0 and 1 vanish."""
    values = [a.data if a.op == "const" else None for a in (x, y)]
    if op == "mul" and 0 in values:
        return number(0)
    if (op in ("mul", "idiv") and values[1] == 1) or (op in ("add", "sub") and values[1] == 0):
        return x
    if (op == "mul" and values[0] == 1) or (op == "add" and values[0] == 0):
        return y
    return Expr(op, I64, (x, y), None, -1)


def writes(body: list[Statement], buffer: int) -> bool:
    return any(isinstance(s, Store) and s.buffer.index == buffer for s in walk(body))


def rebuilt(root: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """An expression with others in the place of some; `mapping` grows by what was rebuilt."""
    pending = [root]
    while pending:
        now = pending[-1]
        missing = [a for a in now.args if a not in mapping]
        if missing and now not in mapping:
            pending.extend(missing)
            continue
        pending.pop()
        if now not in mapping:
            args = tuple(mapping[a] for a in now.args)
            same = all(a is b for a, b in zip(args, now.args, strict=True))
            mapping[now] = now if same else Expr(now.op, now.dtype, args, now.data, now.number)
    return mapping[root]


def substituted(body: list[Statement], mapping: dict[Expr, Expr]) -> list[Statement]:
    """The statements with expressions replaced; `mapping` grows by what was rebuilt."""
    if not mapping:
        return body

    def expr(root: Expr) -> Expr:
        return rebuilt(root, mapping)

    def statement(s: Statement) -> Statement:
        match s:
            case Declare(register=register, value=value):
                return Declare(register, expr(value))
            case Assign(register=register, value=value):
                return Assign(register, expr(value))
            case Update(register=register, combine=combine, value=value):
                return Update(register, combine, expr(value))
            case Store(buffer=buffer, index=index, value=value):
                return Store(buffer, expr(index), expr(value))
            case Prefetch(buffer=buffer, index=index, count=count):
                return Prefetch(buffer, expr(index), count)
            case Routine(name=name, places=places):
                return Routine(name, tuple((buffer, expr(index)) for buffer, index in places))
            case Fail(condition=condition, code=code):
                return Fail(expr(condition), code)
            case If(condition=condition, body=inner):
                return If(expr(condition), [statement(i) for i in inner])
            case For(variable=variable, start=start, stop=stop, kind=kind, body=inner):
                made = [statement(i) for i in inner]
                return For(variable, expr(start), expr(stop), kind, made)

    return [statement(s) for s in body]
