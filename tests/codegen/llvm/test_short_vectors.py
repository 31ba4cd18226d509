"""Short vector loops: in serial ones they are vectors, and nothing is left to LLVM's vectoriser."""

from __future__ import annotations

import emitted_kernels
import numpy as np
import pytest
from effort import crossed

from graphc.codegen.llvm.kernel import emit
from graphc.codegen.llvm.target import LEFT, named
from graphc.ir.types import I32
from graphc.loops.nest import Buffer, Kernel, Scalars


def copies(rows: int, count: int, kind: str) -> Kernel:
    """The first elements of rows of 20, each times what it is the row of."""
    b = Scalars()
    given, made = Buffer(0, I32, 40 * rows, "in"), Buffer(1, I32, 2 * count * rows, "out")
    with b.loop(2, "parallel") as part, b.loop(rows, kind) as row:
        at = part * rows + row
        with b.loop(count, "vector") as i:
            value = b.load(given, at * 20 + i) * row.cast(I32)
            b.store(made, at * count + i, value)
    return Kernel("k0", (given, made), 0, b.body, 2)


@pytest.mark.parametrize(
    ("count", "kind"), crossed([1, 3, 4, 5, 7, 8, 16, 17], ["serial", "vector"])
)
def test_short_vector_loops_are_those_of_the_evaluator(count: int, kind: str) -> None:
    given = np.random.default_rng(count).integers(-99, 99, 40 * 6).astype(np.int32)
    emitted_kernels.check(copies(6, count, kind), [given, np.zeros(12 * count, np.int32)])


@pytest.mark.parametrize("count", [4, 7, 8, 16])
def test_in_serial_loops_they_are_vectors(count: int) -> None:
    text = emit(copies(36, count, "serial"), named("x86-64-v4"))
    assert LEFT not in text
    assert text.count("masked.store.") + text.count("store <") == 1


@pytest.mark.parametrize(("cpu", "count"), [("x86-64-v4", 3), ("x86-64-v3", 7)])
def test_what_fills_no_vector_is_left(cpu: str, count: int) -> None:
    assert LEFT in emit(copies(36, count, "serial"), named(cpu))
