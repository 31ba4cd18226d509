"""Loops within vector loops: all lanes run them side by side, whatever they read and write."""

from __future__ import annotations

import emitted_kernels
import numpy as np
import pytest
from effort import crossed

from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm import target as targets
from graphc.ir.types import I32
from graphc.loops.nest import Buffer, Kernel, Scalars


def nest(count: int, turns: int) -> Kernel:
    """r[i] and s[i] over turns t: sums of what lies along lanes, for all of them, and of both.
    Some is asked for that lies behind all of it."""
    b = Scalars()
    along = Buffer(0, I32, turns * count, "in")
    for_all = Buffer(1, I32, 3 * turns + 1, "in")
    sums = Buffer(2, I32, 2 * count, "out")
    with b.loop(2, "parallel") as part, b.loop(count, "vector") as i:
        r = b.register(b.load(for_all, part))
        s = b.register(b.load(along, i))
        with b.loop(turns, "within") as t:
            b.prefetch_behind(b.load(along, t * count), 1 << 20, 16)
            x = b.load(along, t * count + i)
            b.assign(r, b.read(r) * 3 + x * b.load(for_all, t * 3 + part))
            b.assign(s, b.read(s) ^ (b.load(for_all, t * 3 + 1) + b.read(r)))
        b.assign(r, b.read(r) + b.load(along, i))
        b.store(sums, part * count + i, b.read(r) + b.read(s))
    return Kernel("k0", (along, for_all, sums), 0, b.body, 2)


@pytest.mark.parametrize(("count", "turns"), crossed([5, 16, 32, 37], [1, 3, 70]))
def test_loops_within_vector_loops_are_those_of_the_evaluator(count: int, turns: int) -> None:
    rng = np.random.default_rng(count + turns)
    given = [rng.integers(-99, 99, n).astype(np.int32) for n in (turns * count, 3 * turns + 1)]
    kernel = nest(count, turns)
    emitted_kernels.check(kernel, [*given, np.zeros(2 * count, np.int32)])
    text = llvm.emit(kernel, targets.host())
    assert "call void @llvm.prefetch" in text and targets.LEFT not in text
