"""Which parts of indices all iterations of a loop share: they are computed ahead of it.

for i1 in 0..64:  a1[64*i0 + i1] = a0[(i0 + 3) * 64 + i1]      64*i0 and (i0 + 3) * 64
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from graphc.ir.types import I64
from graphc.loops.nest import Expr, For, If, Statement, expressions, postorder

_ALWAYS_KNOWN = ("const", "size", "param")
_MOVED = ("add", "sub", "mul", "min", "max")  # ahead of loops, and quotients by what is known


class Inside(NamedTuple):
    """What statements compute: values that are not always known, operands first, and which of them
    are no part of another one's value.
    """

    body: list[Statement]  # which stays as long as what it is known by
    values: dict[Expr, None]
    roots: set[Expr]


class SharedIndices:
    """Answers for the loops of one kernel: what is inside a loop is put together once, of what is
    inside the loops in it.
    """

    def __init__(self) -> None:
        self._inside: dict[int, Inside] = {}  # by the identity of the body

    def indices(self, body: list[Statement], known: Container[Expr]) -> list[Expr]:
        """The largest parts of indices that each iteration of this body would compute anew from
        what is known ahead of it.
        """
        inside, differs, parts = self._of(body), set[Expr](), list[Expr]()
        for expr in inside.values:
            args = expr.args
            made_here = expr.op == "load" or not args or not differs.isdisjoint(args)
            if made_here and expr not in known:
                differs.add(expr)
                parts += [arg for arg in args if arg not in differs]
            elif expr in inside.roots:
                parts.append(expr)
        return [expr for expr in parts if expr.dtype is I64 and _moves(expr)]

    def _of(self, body: list[Statement]) -> Inside:
        found = self._inside.get(id(body))
        if found is None:
            found = self._inside[id(body)] = Inside(body, {}, set())
            seen: set[Expr] = set()
            for statement in body:
                roots = expressions(statement)
                new = [e for e in postorder(roots, seen) if e.op not in _ALWAYS_KNOWN]
                found.values.update(dict.fromkeys(new))
                found.roots.update(roots)
                if isinstance(statement, For | If):
                    inner = self._of(statement.body)
                    found.values.update(inner.values)
                    found.roots.update(inner.roots)
                    seen.update(inner.values)
        return found


def _moves(expr: Expr) -> bool:
    """It may be computed where the loop would not have been: a divisor from data may be 0."""
    by_known = expr.op in ("idiv", "irem") and expr.args[1].op in ("const", "size")
    return expr.op in _MOVED or by_known
