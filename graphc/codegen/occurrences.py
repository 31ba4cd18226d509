"""occurrences as LLVM IR: neighbours count in tables of their own (`ops.reduce.occurrences`).

Of many counters there is one table, the result itself.
"""

from __future__ import annotations

from functools import cache

from graphc.codegen.llvm.target import Target
from graphc.codegen.llvm.writer import (
    I32,
    Module,
    Number,
    Pointer,
    Value,
    Writer,
    clear_bytes,
    native,
)
from graphc.codegen.positions import parts, position
from graphc.ir.types import DType
from graphc.ops.index.scatter import STRIDE
from graphc.ops.reduce.occurrences import FEW, TABLES

OUT_OF_RANGE = 1
SCRATCH = 8 * TABLES * (FEW + 1)


@cache
def occurrences_text(machine: Target, element: DType) -> str:
    """The kernel; its params are elements and counters, and whether those outside are dropped."""

    @native(I32, is_public=True, symbol="kernel")
    def kernel(
        f: Writer, bufs: Pointer, params: Pointer, lo: Number, hi: Number, thread: Number
    ) -> None:
        count, size, drop = (params[k] for k in range(3))
        x, out, scratch, flag = (bufs.pointer(k) for k in (0, 1, 2, -1))
        few = size <= FEW
        width = few.choose(size + 1, 0)  # of a table; the last counter is for what is outside
        tables = scratch + thread * SCRATCH
        outside = tables.at(few.choose(size, 0))

        def place(number: Value) -> Value:
            """Where an element counts."""
            given = position(f, element, x, number)
            return given.below(size).choose(given, size)

        def alone(at: Value) -> None:
            """Count in the result."""
            with f.when(at.below(size)):
                _count(out.at(at))
            with f.otherwise():
                _count(outside)

        clear_bytes(f, tables, few.choose(width * (8 * TABLES), 8))
        with parts(f, flag, 0, size, STRIDE) as (first, last):
            clear_bytes(f, out.at(first), (last - first) << 3)
        with parts(f, flag, 0, count, STRIDE) as (first, last):
            groups = (last - first) // TABLES
            with f.loop(0, groups) as group:
                start = first + group * TABLES
                places = [place(start + k) for k in range(TABLES)]
                with f.when(few):
                    for table, at in enumerate(places):
                        _count(tables.at(at + width * table))
                with f.otherwise():
                    for at in places:
                        alone(at)
            with f.loop(first + groups * TABLES, last) as k:
                alone(place(k))
        total = f.local(0)
        with f.when(few):
            with f.loop(0, size) as k:
                for table in range(TABLES):
                    out[k] = out[k] + tables[k + width * table]
            for table in range(TABLES):
                total += tables[size + width * table]
        with f.otherwise():
            total.set(tables[0])
        with f.when((total > 0) & (drop == 0)):
            f.give(OUT_OF_RANGE)
        f.give(0)

    return Module(machine.triple).text([kernel])


def _count(counter: Value) -> None:
    counter.store(counter.load() + 1)
