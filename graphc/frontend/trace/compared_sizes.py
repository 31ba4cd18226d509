"""Comparisons of sizes that each step of a loop finds anew: traced, unless Python asks for them.

gc.while_loop(lambda left: len(left) > 0, ...)     the run decides, in every step
if len(left) > 5:                                  Python decides while tracing, for all steps
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from graphc.frontend.trace.trace import FunctionTrace
from graphc.frontend.trace.tracer import Tracer
from graphc.ir.sizes import Size
from graphc.ops.record.value import Value, current, lift

Compare = Callable[[Any, Any], Any]


class SizeComparison(Tracer):
    """What the run finds; as a condition of Python's own, what it is for the example at hand."""

    __slots__ = ("answer",)

    def __init__(self, made: Value, answer: Callable[[], bool]) -> None:
        super().__init__(made.node, made.owner)
        self.answer = answer

    def __bool__(self) -> bool:
        return self.answer()


class ComparedSize:
    """A size as an operand of a comparison."""

    __slots__ = ("size",)
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, size: Size) -> None:
        self.size = size

    def _compare(self, compare: Compare, other: Any) -> Any:
        trace, size = current(), self.size
        assert trace is not None
        other = other.size if isinstance(other, ComparedSize) else other
        if not isinstance(other, int | float | Size):
            return compare(lift(size, trace), other)
        made = compare(lift(size, trace), lift(other, trace))
        return SizeComparison(made, lambda: compare(size, other))

    def __lt__(self, other: Any) -> Any:
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(operator.ge, other)

    def __eq__(self, other: object) -> Any:
        return self._compare(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compare(operator.ne, other)


def is_found_in_steps(operand: Any) -> bool:
    """Whether it is a size that the current body finds in each step."""
    if type(operand) is not Size:
        return False
    trace = current()
    if not isinstance(trace, FunctionTrace) or not trace.is_body:
        return False
    return not operand.symbols().isdisjoint(trace.counts)
