"""Rows that lanes keep in registers: what several passes over a row read is read once, and what one
pass leaves for the next never goes to shared memory.

    for k in range(4):  i1 = lane * 4 + k * 1024       a lane has the same elements in every pass,
        h0[4 * k + 0..3] = load4(x, row + i1); fold    and their number is known
    for k in range(4):
        a2[4 * k + 0..3] = exp(h0[4 * k + 0..3] - r0)  an array whose places are all known when the
    for k in range(4):                                 loops are written out lies in registers
        store4(y, row + i1, a2[4 * k + 0..3] / r1)
"""

from __future__ import annotations

from typing import Any

from graphc.base.record import record
from graphc.codegen.gpu.tuning import tuned
from graphc.codegen.gpu.vectors import WIDTH, exact_trips, vectors_of
from graphc.loops.nest import Expr, For, If, Kernel, Statement, Store, expressions, postorder, walk


@record(frozen=True)
class Held:
    """The passes over a row, by the variables of their loops, each of so many turns; the numbers of
    what they read more than once, and the scratch buffers in which every lane reads what it wrote.
    """

    passes: frozenset[Expr]
    turns: int
    loads: dict[Any, int]
    own: frozenset[int]


def held_rows(kernel: Kernel, lanes: int) -> Held | None:
    """What lanes keep of a row; None if that is nothing."""
    work = frozenset(b.index for b in kernel.buffers if b.mode == "work")
    if lanes == 1 or kernel.strict:
        return None
    for body in bodies(kernel.body):
        loops = [s for s in body if isinstance(s, For) and s.kind == "vector"]
        turns, rest = divmod(exact_trips(loops[0]) or 1, lanes * WIDTH) if loops else (0, 1)
        alike = [s for s in loops if exact_trips(s) == turns * lanes * WIDTH and starts_at_0(s)]
        alike = [s for s in alike if vectors_of(s, kernel, work) is not None]
        if rest or len(alike) < 2 or turns > tuned.written_turns:
            continue
        own = {b for b in work if all_own(kernel, alike, b)}
        room = tuned.held_elements // (turns * WIDTH) - len(own)
        read = repeated_loads(kernel, alike)[: max(0, room)]
        if room >= 0 and (own or read):
            numbers = {key: number for number, key in enumerate(read)}
            return Held(frozenset(s.variable for s in alike), turns, numbers, frozenset(own))
    return None


def bodies(body: list[Statement]) -> list[list[Statement]]:
    """The lists of statements around outermost vector loops."""
    found = [body]
    for statement in body:
        if isinstance(statement, For) and statement.kind != "vector":
            found += bodies(statement.body)
    return found


def starts_at_0(loop: For) -> bool:
    return loop.start.op == "const" and loop.start.data == 0


def all_own(kernel: Kernel, loops: list[For], buffer: int) -> bool:
    """Is every access to a buffer at the variable of one of the loops, under no condition?"""
    inside = sum(accesses(s, buffer, loop.variable) for loop in loops for s in loop.body)
    everywhere = sum(accesses(s, buffer, None) for s in walk(kernel.body))
    return inside == everywhere


def accesses(statement: Statement, buffer: int, index: Expr | None) -> int:
    """How often a statement itself reads or writes a buffer, at one index or at all."""
    if isinstance(statement, If | For) and index is not None:
        return 0
    found = [
        e.args[0]
        for e in postorder(expressions(statement))
        if e.op == "load" and e.data[0] == buffer
    ]
    if isinstance(statement, Store) and statement.buffer.index == buffer:
        found.append(statement.index)
    return sum(index is None or place is index for place in found)


def repeated_loads(kernel: Kernel, loops: list[For]) -> list[Any]:
    """What more than one of the loops reads in vectors from memory that the kernel only reads.

    A narrow element takes a register as a wide one does, but half the time to be read again.
    """
    only_read = {b.index for b in kernel.buffers if b.mode == "in" and b.dtype.itemsize >= 4}
    work = frozenset(b.index for b in kernel.buffers if b.mode == "work")
    counts: dict[Any, int] = {}
    for loop in loops:
        found = vectors_of(loop, kernel, work)
        if found is None:
            continue
        for load in found.loads:
            if load.data[0] in only_read and load not in found.guards:
                key = key_of(load, loop.variable)
                counts[key] = counts.get(key, 0) + 1
    return [key for key, count in counts.items() if count > 1]


def key_of(load: Expr, variable: Expr) -> Any:
    """What is alike for loads of one element by loops with variables of their own."""

    def key(expr: Expr) -> Any:
        if expr is variable:
            return "here"
        if expr.op in ("var", "reg"):
            return id(expr)
        data = expr.data[0] if expr.op == "load" else expr.data
        args = [key(arg) for arg in expr.args]
        if expr.op in ("add", "mul"):  # which are ordered by when their operands were made
            args.sort(key=repr)
        return expr.op, expr.dtype.name, data, *args

    return key(load)
