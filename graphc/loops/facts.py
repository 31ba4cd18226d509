"""Facts about a kernel that emitters share: index bounds, what changes, how sums are carried."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from graphc.ir.sizes import Size, bounds_of, hint_of
from graphc.ir.types import F32, F64, MAX_ELEMENTS
from graphc.loops.nest import (
    Assign,
    Buffer,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Register,
    Routine,
    Statement,
    Store,
    Update,
    expressions,
    postorder,
    walk,
)
from graphc.loops.tuning import tuned

Range = tuple[int, int]
_LIMIT = 2**62  # exact bounds stay well inside i64
_NOTHING = frozenset[str]()


def work_bytes(buffer: Buffer) -> int:
    """Bytes of scratch, in whole cache lines."""
    return -(-buffer.size * buffer.dtype.itemsize // 64) * 64


def bytes_of_threads(buffer: Buffer, threads: int) -> int:
    """Bytes of the scratch of so many threads."""
    return work_stride(buffer) * (threads - 1) + work_bytes(buffer)


def work_stride(buffer: Buffer) -> int:
    """Bytes from the scratch of one thread to that of the next: whole cache lines, and some apart.

    What a processor fetches ahead at the end of a thread's scratch would otherwise be lines that
    the next thread is writing, which that one then has to ask for again, each time.
    """
    return work_bytes(buffer) + -(-tuned.thread_gap // 64) * 64


# ------------------------------------------------------------------------------------ index bounds


def _add(x: Range, y: Range) -> Range | None:
    return x[0] + y[0], x[1] + y[1]


def _sub(x: Range, y: Range) -> Range | None:
    return x[0] - y[1], x[1] - y[0]


def _mul(x: Range, y: Range) -> Range | None:
    ends = [a * b for a in x for b in y]
    return min(ends), max(ends)


def _idiv(x: Range, y: Range) -> Range | None:
    return (x[0] // y[1], x[1] // y[0]) if x[0] >= 0 and y[0] > 0 else None


def _irem(x: Range, y: Range) -> Range | None:
    return (0, min(x[1], y[1] - 1)) if x[0] >= 0 and y[0] > 0 else None


def _min(x: Range, y: Range) -> Range | None:
    return min(x[0], y[0]), min(x[1], y[1])


def _max(x: Range, y: Range) -> Range | None:
    return max(x[0], y[0]), max(x[1], y[1])


_RULES: dict[str, Callable[[Range, Range], Range | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "idiv": _idiv,
    "irem": _irem,
    "min": _min,
    "max": _max,
}


def index_range(expr: Expr, known: dict[Expr, Range | None]) -> Range | None:
    """Bounds of an i64 expression over loop variables and literals, None where there are none.

    `known` holds the bounds of the loop variables and remembers what was found.
    """
    pending = [] if expr in known else [expr]
    while pending:
        inner = pending[-1]
        unknown = [a for a in inner.args if a not in known]
        if unknown:
            pending += unknown
        else:
            known[pending.pop()] = _bounds(inner, known)
    return known[expr]


def _bounds(expr: Expr, known: dict[Expr, Range | None]) -> Range | None:
    found: Range | None = None
    if expr.op == "size":
        low = bounds_of(expr.data)[0]
        found = -MAX_ELEMENTS if low is None else low, MAX_ELEMENTS
    elif expr.op == "const" and expr.dtype.kind in "iu":
        found = (expr.data, expr.data)
    elif expr.dtype.name == "i64" and expr.op in _RULES:
        x, y = (known[a] for a in expr.args)
        found = _RULES[expr.op](x, y) if x is not None and y is not None else None
    inside = found is not None and found[0] >= -_LIMIT and found[1] <= _LIMIT
    return found if inside else None


def loop_range(loop: For, known: dict[Expr, Range | None]) -> Range | None:
    """Bounds of a loop variable inside the loop."""
    start, stop = index_range(loop.start, known), index_range(loop.stop, known)
    if start is None or stop is None or stop[1] <= start[0]:
        return None
    return start[0], stop[1] - 1


def trip_count(loop: For) -> int | None:
    """Iterations of a loop with literal bounds."""
    if loop.start.op != "const" or loop.stop.op != "const":
        return None
    return max(0, int(loop.stop.data) - int(loop.start.data))


def extent_of(loop: For) -> int | Size | None:
    """Iterations of a loop whose bounds are literals or open sizes."""
    if not {loop.start.op, loop.stop.op} <= {"const", "size"}:
        return None
    extent: int | Size = loop.stop.data - loop.start.data
    return extent if isinstance(extent, Size) else max(0, int(extent))


def dissolves(loop: For, in_vector: bool) -> bool:
    """Whether a short loop is written as one copy of its body per iteration.

    Only an innermost loop becomes vector code, so windows and short rows must not be loops, unless
    they say that they may.
    """
    asked = in_vector and loop.kind != "within"
    return _copies([loop]) <= (tuned.unrolled_in_vector if asked else tuned.unrolled_outside)


def _copies(body: list[Statement]) -> float:
    """Statements that are left when every loop is unrolled; no number is enough for a long one."""
    total: float = 0
    for statement in body:
        match statement:
            case For():
                count = trip_count(statement)
                if count is None or count > tuned.unrolled_turns:
                    return math.inf
                total += count * _copies(statement.body) if count else 0
            case If():
                total += 1 + _copies(statement.body)
            case _:
                total += 1
    return total


# ------------------------------------------------------------------------------------ gathers


def gathers_nearby(kernel: Kernel) -> bool:
    """Does a kernel read places that it has found in memory, all of them of a small table?"""
    found: dict[Expr, bool] = {}  # whether a value depends on what was read
    sizes = {b.index: b.size for b in kernel.buffers}
    reaches = []
    for expr in postorder(
        root for statement in walk(kernel.body) for root in expressions(statement)
    ):
        found[expr] = expr.op in ("load", "reg") or any(map(found.__getitem__, expr.args))
        if expr.op == "load" and found[expr.args[0]]:
            size = sizes[expr.data[0]]
            most = size * expr.dtype.itemsize if isinstance(size, int) else math.inf
            reaches.append(min(most, _reach(expr, found)))
    return bool(reaches) and max(reaches) <= tuned.near_table


def _reach(load: Expr, found: Mapping[Expr, bool]) -> float:
    """Bytes among which a load from a place that was found picks an element."""
    total: float = load.dtype.itemsize
    pending = [load.args[0]]
    while pending:
        index = pending.pop()
        if found[index]:
            if index.op in ("add", "sub"):
                pending += index.args
            else:
                total *= _choices(index)
    return total


def _choices(index: Expr) -> float:
    """How many values a place can have, times the step from one to the next, if it is clamped."""
    if index.op == "mul":
        steps = [int(arg.data) for arg in index.args if arg.op == "const"]
        rest = [arg for arg in index.args if arg.op != "const"]
        return abs(steps[0]) * _choices(rest[0]) if steps and rest else math.inf
    low, high, inner = -math.inf, math.inf, index
    while inner.op in ("min", "max"):
        ends = [int(arg.data) for arg in inner.args if arg.op == "const"]
        if not ends:
            break
        low, high = (low, min(high, ends[0])) if inner.op == "min" else (max(low, ends[0]), high)
        inner = next(arg for arg in inner.args if arg.op != "const")
    return high - low + 1


# ------------------------------------------------------------------------------------ long loops


def calls_routines(kernel: Kernel) -> bool:
    """Does a kernel call LAPACK, which only code that LLVM makes does?"""
    return any(isinstance(statement, Routine) for statement in walk(kernel.body))


def unit_work(kernel: Kernel) -> int:
    """Scalar operations of one unit, at most, or 0 if all units together take no time to speak of.

    Loops whose bounds come late count as one turn.
    """
    known: dict[Expr, Range | None] = {}
    inside = _inside(kernel.body, known)
    if _work(inside, known, lambda _: 1) * hint_of(kernel.units) <= tuned.brief_work:
        return 0
    return _work(inside, known, _weight)


def looks(kernel: Kernel) -> dict[Expr, int]:
    """Where a unit that takes long looks at the cancel flag: iterations of the loop in between.

    Empty for nearly every kernel: units are small, and the walker looks in between.
    """
    known: dict[Expr, Range | None] = {}
    inside = _inside(kernel.body, known)
    found: dict[Expr, int] = {}
    if _work(inside, known, lambda _: 1) > tuned.brief_work:
        _place_looks(inside, known, found)
    return found


def _inside(body: list[Statement], known: dict[Expr, Range | None]) -> list[Statement]:
    """What one unit runs."""
    made: list[Statement] = []
    for statement in body:
        if isinstance(statement, For) and statement.kind == "parallel":
            known[statement.variable] = loop_range(statement, known)
            made += statement.body
        else:
            made.append(statement)
    return made


def _work(
    body: list[Statement], known: dict[Expr, Range | None], weigh: Callable[[Statement], int]
) -> int:
    total = 0
    for statement in body:
        match statement:
            case For():
                total += _turns(statement, known) * _work(statement.body, known, weigh)
            case If():
                total += 1 + _work(statement.body, known, weigh)
            case _:
                total += weigh(statement)
    return total


def _turns(loop: For, known: dict[Expr, Range | None]) -> int:
    """The most iterations of a loop, 1 if nothing is known."""
    known[loop.variable] = loop_range(loop, known)
    if loop.stop.op == "size":
        return tuned.later_growth * hint_of(loop.stop.data)  # type: ignore[no-any-return]
    ends = loop.stop.args if loop.stop.op == "min" else (loop.stop,)
    spans = [span for end in ends if (span := _span(loop.start, end, known)) is not None]
    return max(0, min(spans)) if spans else 1


def _span(start: Expr, stop: Expr, known: dict[Expr, Range | None]) -> int | None:
    """Most that `stop` exceeds `start` by; exact if it is the start and something more."""
    if stop.op == "add" and any(arg is start for arg in stop.args):
        more = index_range(stop.args[stop.args[0] is start], known)
        return more[1] if more is not None else None
    first, last = index_range(start, known), index_range(stop, known)
    return last[1] - first[0] if first is not None and last is not None else None


def _weight(statement: Statement) -> int:
    """Scalar operations; a load from a place that was loaded itself may wait for memory."""
    inner = postorder(expressions(statement))
    loaded: set[Expr] = set()
    total = 1
    for expr in inner:
        depends = any(arg in loaded for arg in expr.args)
        if depends or expr.op == "load":
            loaded.add(expr)
        is_slow = expr.op == "call" or (expr.op == "load" and depends)
        total += tuned.call_work if is_slow else 1
    return total


def _place_looks(
    body: list[Statement], known: dict[Expr, Range | None], found: dict[Expr, int]
) -> None:
    for statement in body:
        if isinstance(statement, If):
            _place_looks(statement.body, known, found)
        if not isinstance(statement, For):
            continue
        turns, inner = _turns(statement, known), _work(statement.body, known, _weight) + 1
        if inner > tuned.look_work and statement.kind != "vector":
            _place_looks(statement.body, known, found)
        elif inner * turns > tuned.look_work:
            found[statement.variable] = max(
                tuned.look_work // inner // tuned.look_step * tuned.look_step, tuned.look_step
            )


# ------------------------------------------------------------------------------------ changes


class Changes:
    """Which values a statement makes stale: those that read a register or buffer it writes."""

    def __init__(self, kernel: Kernel) -> None:
        self._fixed = {b.index for b in kernel.buffers if b.mode == "in"}
        self._needs: dict[Expr, frozenset[str]] = {}
        self._writes: dict[int, frozenset[str]] = {}

    def needs(self, expr: Expr) -> frozenset[str]:
        """The registers and written buffers that a value was computed from."""
        found = self._needs.get(expr)
        if found is None:
            found = _NOTHING
            for arg in expr.args:
                found = found | more if (more := self.needs(arg)) else found
            if expr.op == "reg":
                found |= {f"r{expr.data[0]}"}
            elif expr.op == "load" and expr.data[0] not in self._fixed:
                found |= {f"a{expr.data[0]}"}
            self._needs[expr] = found
        return found

    def writes(self, statement: Statement) -> frozenset[str]:
        """The registers and buffers that a statement, or anything inside it, sets."""
        match statement:
            case Declare(register=register) | Assign(register=register) | Update(register=register):
                return frozenset((repr(register),))
            case Store(buffer=buffer):
                return frozenset((repr(buffer),))
            case Routine(places=places):
                return frozenset(repr(buffer) for buffer, _ in places)
            case For(body=body) | If(body=body):
                found = self._writes.get(id(statement))
                if found is None:
                    found = frozenset[str]().union(*(self.writes(s) for s in body))
                    self._writes[id(statement)] = found
                return found
        return frozenset()


# ------------------------------------------------------------------------------------ sums


class SumPlan:
    """Which registers are summed how.

    `wide`: f32 registers carried in f64.  `partial[variable]`: f64 registers that the loop over
    that variable sums in chunks, `narrow[variable]`: wide registers whose chunks are summed in f32;
    the loop must neither read nor assign them.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.wide: set[int] = set()
        self.partial: dict[Expr, list[int]] = {}
        self.narrow: dict[Expr, list[int]] = {}
        self._declared: dict[int, int] = {}
        if not kernel.strict:
            self._visit(kernel.body, [])

    def _visit(self, body: list[Statement], loops: list[For]) -> None:
        for statement in body:
            match statement:
                case Declare(register=register):
                    self._declared[register.index] = len(loops)
                case Update(register=register, combine="add") if register.dtype.kind == "f":
                    self._sum(register, loops[self._declared.get(register.index, 0) :])
                case For():
                    self._visit(statement.body, [*loops, statement])
                    self._keep_private(statement)
                case If():
                    self._visit(statement.body, loops)

    def _sum(self, register: Register, crossed: list[For]) -> None:
        total = 1
        for loop in crossed:
            total *= trip_count(loop) or tuned.f32_terms + 1
        if register.dtype is F32 and crossed and total > tuned.f32_terms:
            self.wide.add(register.index)
            found = self.narrow.setdefault(crossed[-1].variable, [])
            if register.index not in found:
                found.append(register.index)
        if register.dtype is F64:
            for loop in crossed:
                found = self.partial.setdefault(loop.variable, [])
                if register.index not in found:
                    found.append(register.index)

    def _keep_private(self, loop: For) -> None:
        """Drop registers whose running value the loop looks at or sets."""
        for table in (self.partial, self.narrow):
            if table.get(loop.variable):
                seen = _observed(loop.body)
                table[loop.variable] = [r for r in table[loop.variable] if r not in seen]
        if self.partial.get(loop.variable):
            self.narrow.pop(loop.variable, None)  # one kind of chunk per loop


def _observed(body: list[Statement]) -> set[int]:
    found: set[int] = set()
    for statement in body:
        for expr in postorder(expressions(statement)):
            if expr.op == "reg":
                found.add(expr.data[0])
        match statement:
            case Assign(register=register):
                found.add(register.index)
            case Update(register=register, combine=combine) if combine != "add":
                found.add(register.index)
            case For() | If():
                found |= _observed(statement.body)
    return found


def _even_chunk(count: int | None) -> int:
    """At most `tuned.f32_chunk` terms; chunks that all have the same length need no remainders."""
    if count is None or count <= tuned.f32_chunk:
        return count or tuned.f32_chunk
    sizes = range(tuned.f32_chunk, tuned.f32_chunk // 2, -tuned.chunk_step)
    return next((size for size in sizes if count % size == 0), tuned.f32_chunk)


def step_of(loop: For, sums: SumPlan) -> tuple[int, ...]:
    """Chunk sizes for a loop that sums, largest first; empty for a plain loop."""
    if sums.narrow.get(loop.variable):
        return (_even_chunk(trip_count(loop)),)
    if not sums.partial.get(loop.variable):
        return ()
    count = trip_count(loop)
    if count is not None and count <= 4 * tuned.partial_sum:
        return ()
    steps = [tuned.partial_sum]
    while steps[-1] * tuned.partial_fan < (count or tuned.partial_sum * tuned.partial_fan + 1):
        steps.append(steps[-1] * tuned.partial_fan)
    return tuple(reversed(steps))
