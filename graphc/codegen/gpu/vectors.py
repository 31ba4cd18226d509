"""Loops whose lanes take four neighbouring elements at once, read and written as one vector each.

    for i1 in range(lane * 4, 1024, 1024):  # vector, by 4
        v0_0, v0_1, v0_2, v0_3 = load4(a0, i0 * 1024 + i1)
        ...
        store4(a1, i0 * 1024 + i1, w0_0, w0_1, w0_2, w0_3)

What is read under a condition is read so if the condition is one for all four of them.  A vector
must lie at a multiple of its size.  Memory that a kernel is given begins so if its own
size is such a multiple: it lies in an arena, or is a slice of a row of slices of this size.
"""

from __future__ import annotations

from math import gcd

from graphc.base.record import record
from graphc.codegen.lowering.ordered import LANES
from graphc.ir.types import I64
from graphc.loops.facts import trip_count
from graphc.loops.nest import (
    Assign,
    Declare,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Store,
    Update,
    expressions,
    postorder,
)

WIDTH = 4


@record(frozen=True)
class Vectors:
    """The loads and stores of a loop that are made four at a time. `guards` are the conditions
    under which loads are made, if any."""

    loads: tuple[Expr, ...]
    stores: tuple[Store, ...]
    guards: dict[Expr, Expr]


def vectors_of(loop: For, kernel: Kernel, near: frozenset[int]) -> Vectors | None:
    """How a loop reads and writes vectors; None if it cannot or has nothing to gain."""
    if kernel.strict and trips(loop) <= LANES:
        return None  # the lanes of an ordered sum are for as many threads
    start, stop = position(loop.start, loop.variable), position(loop.stop, loop.variable)
    if start is None or stop is None or start[1] % WIDTH or stop[1] % WIDTH:
        return None
    guarded = loads_of(loop)
    if guarded is None:
        return None
    buffers = {b.index: b for b in kernel.buffers}

    def fits(buffer: int, index: Expr) -> bool | None:
        """Whether an access is a vector; None if it prevents vectors."""
        found = position(index, loop.variable)
        if buffer in near or (found is not None and found[0] == 0):
            return False
        size = buffers[buffer].size * buffers[buffer].dtype.itemsize
        aligned = size % (WIDTH * buffers[buffer].dtype.itemsize) == 0
        small = buffers[buffer].dtype.kind != "b" and buffers[buffer].dtype.itemsize in (2, 4)
        return (
            True if found and found[0] == 1 and not found[1] % WIDTH and aligned and small else None
        )

    loads = {e: fits(e.data[0], e.args[0]) for e in guarded}
    stores = {s: fits(s.buffer.index, s.index) for s in loop.body if isinstance(s, Store)}
    found = [*loads.values(), *stores.values()]
    if None in found or True not in found:
        return None
    return Vectors(
        tuple(e for e, fit in loads.items() if fit),
        tuple(s for s, fit in stores.items() if fit),
        {e: guard for e, guard in guarded.items() if guard is not None},
    )


def loads_of(loop: For) -> dict[Expr, Expr | None] | None:
    """The loads of a loop, each with the condition under which it is made, which is one for every
    four iterations; None where a statement is not made for four at a time."""
    found: dict[Expr, Expr | None] = {}
    for statement in loop.body:
        guard = statement.condition if isinstance(statement, If) else None
        if guard is not None and not same_for_all(guard, loop):
            return None
        inner = statement.body if isinstance(statement, If) else [statement]
        kinds = Declare | Update | Fail | (Store if guard is None else Assign)
        if not all(isinstance(each, kinds) for each in inner):
            return None
        roots = [e for each in inner for e in expressions(each)]
        for expr in postorder(roots if guard is None else [*roots, guard]):
            if expr.op == "load" and found.setdefault(expr, guard) is not guard:
                if guard is not None and found[expr] is not None:
                    return None
                found[expr] = None
    return found


def same_for_all(condition: Expr, loop: For) -> bool:
    """Is a condition one for every four iterations, the first of which is a multiple of four?"""
    inside = {s.register.index for s in loop.body if isinstance(s, Declare)}
    if any(
        e.op == "load" or (e.op == "reg" and e.data[0] in inside) for e in postorder([condition])
    ):
        return False
    if not depends(condition, loop.variable):
        return True
    if condition.op in ("and", "or", "not"):
        return all(same_for_all(part, loop) for part in condition.args)
    if condition.op not in ("lt", "ge") or condition.args[0].dtype is not I64:
        return False
    left, right = (position(part, loop.variable) for part in condition.args)
    if left is None or right is None or left[1] % WIDTH or right[1] % WIDTH:
        return False
    return (left[0], right[0]) == (1, 0)


def position(expr: Expr, variable: Expr) -> tuple[int, int] | None:
    """(how far one step of the variable goes, a divisor of the rest: 0 if that is 0), or None."""
    match expr.op:
        case "const":
            return 0, abs(int(expr.data))
        case "var" if expr is variable:
            return 1, 0
        case "add" | "sub" | "min" | "max" | "mul":
            pass
        case _:
            return None if depends(expr, variable) else (0, 1)
    left, right = (position(a, variable) for a in expr.args)
    if left is None or right is None:
        return None
    if expr.op == "mul":
        if left[0] and right[0]:
            return None
        factor = right if right[0] == 0 else left
        other = left if factor is right else right
        if other[0] and expr.args[1 if factor is right else 0].op != "const":
            return None
        return other[0] * factor[1], other[1] * factor[1]
    if expr.op in ("min", "max"):
        return None if left[0] or right[0] else (0, gcd(left[1], right[1]))
    return left[0] + (right[0] if expr.op == "add" else -right[0]), gcd(left[1], right[1])


def trips(loop: For) -> int:
    """Iterations at most; many where only the run knows."""
    count = exact_trips(loop)
    if count is not None:
        return count
    if loop.stop.op == "min":  # a block of a longer loop: its length, or that added to the start
        ends = [a for a in loop.stop.args if a.op == "add"] or [loop.stop]
        lengths = [int(x.data) for a in ends for x in a.args if x.op == "const"]
        if lengths:
            return max(lengths)
    return 1 << 10


def exact_trips(loop: For) -> int | None:
    """Iterations of a loop that has the same number of them wherever it starts."""
    count = trip_count(loop)
    if count is None and loop.stop.op == "add":
        for start, length in (loop.stop.args, loop.stop.args[::-1]):
            if start is loop.start and length.op == "const":
                return int(length.data)
    return count


def depends(expr: Expr, variable: Expr) -> bool:
    return any(e is variable for e in postorder([expr]))
