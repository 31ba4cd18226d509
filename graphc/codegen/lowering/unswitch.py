"""What a vector loop asks in every iteration, though the answer stays the same, is asked before it.

    for j:  if i < 24:   r = a[i, j]           if i < 24:      for j:  y[i, j] = a[i, j]
            if i >= 24:  r = b[i - 24, j]  ->  if not i < 24:  for j:  y[i, j] = b[i - 24, j]
            y[i, j] = r

Inside the loop it would be a mask of all lanes or of none; a read that a mask of none keeps from
memory that is not there takes a processor hundreds of cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from graphc.base.record import replace
from graphc.codegen.tuning import tuned
from graphc.loops.nest import Expr, For, If, Statement, postorder, walk

_CHANGING = ("load", "reg")


class Test(NamedTuple):
    """A comparison by the numbers of its operands; `x >= y` is `x < y` that does not hold."""

    op: str
    args: tuple[int, ...]


def unswitched(body: list[Statement]) -> list[Statement]:
    """Statements whose vector loops ask nothing that could be asked before them, as far as that
    takes few versions of a loop."""
    made: list[Statement] = []
    for statement in body:
        match statement:
            case For(kind="vector"):
                versions = _versions(statement, tuned.loop_versions)
                made += [statement] if versions is None else versions
            case For() | If():
                made.append(replace(statement, body=unswitched(statement.body)))
            case _:
                made.append(statement)
    return made


def _versions(loop: For, most: int) -> list[Statement] | None:
    """A loop for each answer to what it asks of the loops around it; None for more than `most`."""
    if not loop.body:
        return []
    if most == 0:
        return None
    asked = next(_asked(loop), None)
    if asked is None:
        return [loop]
    condition, test = asked
    is_so = test.op == condition.op
    made: list[Statement] = []
    for holds, outer in ((is_so, condition), (not is_so, ~condition)):
        versions = _versions(replace(loop, body=_known(loop.body, test, holds)), most)
        if versions is None:
            return None
        most -= sum(isinstance(s, For) and s.variable is loop.variable for s in walk(versions))
        made += [If(outer, versions)] if versions else []
    return made


def _asked(loop: For) -> Iterator[tuple[Expr, Test]]:
    """The parts of conditions in a loop that depend on nothing inside."""
    inside = {loop.variable, *(s.variable for s in walk(loop.body) if isinstance(s, For))}
    for statement in walk(loop.body):
        if isinstance(statement, If):
            for part in _parts(statement.condition):
                reached = [*postorder([part])]
                if inside.isdisjoint(reached) and not any(e.op in _CHANGING for e in reached):
                    yield part, _test(part)


def _parts(condition: Expr) -> Iterator[Expr]:
    """What has to hold, all of it."""
    if condition.op == "and":
        for each in condition.args:
            yield from _parts(each)
    else:
        yield condition


def _test(part: Expr) -> Test:
    numbers = tuple(arg.number for arg in part.args) or (part.number,)
    return Test("lt" if part.op == "ge" else part.op, numbers)


def _known(body: list[Statement], test: Test, holds: bool) -> list[Statement]:
    """Statements where the answer to a test is known."""
    made: list[Statement] = []
    for statement in body:
        match statement:
            case If():
                made += _decided(statement, test, holds)
            case For():
                made.append(replace(statement, body=_known(statement.body, test, holds)))
            case _:
                made.append(statement)
    return made


def _decided(statement: If, test: Test, holds: bool) -> list[Statement]:
    """What is left of a branch: nothing, its body, or fewer questions."""
    left: Expr | None = None
    for part in _parts(statement.condition):
        if _test(part) != test:
            left = part if left is None else left & part
        elif holds != (part.op == test.op):
            return []
    body = _known(statement.body, test, holds)
    return body if left is None else [If(left, body)]
