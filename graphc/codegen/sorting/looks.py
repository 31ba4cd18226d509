"""Loops that look at the cancel flag: a row may have any number of keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphc.codegen.llvm.writer import I64, RELAXED, Operand, Value, Writer
from graphc.codegen.tuning import tuned

CANCELLED = -1


def look(f: Writer, flag: Value) -> None:
    """Return CANCELLED if the run is cancelled."""
    with f.when(flag.load(I64, RELAXED) != 0):
        f.give(CANCELLED)


@contextmanager
def watched(f: Writer, flag: Value, start: Operand, stop: Operand) -> Iterator[Value]:
    """`for number in range(start, stop):`, which looks now and then.

    Short loops pay next to nothing for it: parts in a loop of their own would cost them 15 %.
    """
    last = (1 << tuned.looked_bits) - 1
    with f.loop(start, stop) as k:
        with f.when((k & last) == last):
            look(f, flag)
        yield k
