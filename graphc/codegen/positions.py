"""What kernels that go over positions share: numbers of any width, and parts between two looks at
the cancel flag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphc.codegen.llvm.writer import I64, Operand, Value, Writer
from graphc.codegen.sorting.looks import look
from graphc.ir.types import DType


def widening(element: DType) -> str:
    """The instruction that makes 64 bits of an integer."""
    return "sext" if element.kind == "i" else "zext"


def position(f: Writer, element: DType, start: Value, number: Operand) -> Value:
    """The integer of this number in an array, as 64 bits."""
    kind = f"i{element.bits}"
    at = start + number * element.itemsize
    given = f.new(kind, f"load {kind}, ptr {at.text}, align {element.itemsize}")
    return given if kind == I64 else given.cast(widening(element), I64)


@contextmanager
def parts(
    f: Writer, flag: Value, start: Operand, stop: Value, step: Operand
) -> Iterator[tuple[Value, Value]]:
    """Consecutive parts of start..stop; before each the run may have been cancelled."""
    with f.loop(0, (stop - start + step + -1) // step) as part:
        look(f, flag)
        first = part * step + start
        yield first, (first + step).least(stop)
