"""Vector loops that gather, scatter and do some statements in some iterations only: random ones, on
machines whose gathers are fast and on those that load one by one, against the direct evaluator.

The pages beside what is read are closed: a lane that has no business there ends the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import rounds
from emitted_kernels import HOST, by_llvm, fresh, same_numbers
from guarded_arrays import guarded
from loop_evaluator import Evaluator

import graphc as gc
from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm import target as targets
from graphc.ir.types import F32, F64, I8, I32, I64, DType
from graphc.loops.nest import Buffer, Expr, Kernel, Scalars
from graphc.loops.scalars import where

COUNTS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 50, 64, 100, 129, 257]
HAS_MASKS = HOST.vector_bits == 512
MACHINES = {"this one": HOST}
if HAS_MASKS:
    MACHINES["fast gathers"] = targets.named("x86-64-v4")
TABLE = 300
ELSEWHERE = 1 << 40  # an index that no buffer has


class Drawn:
    """A random kernel over rows, and arrays for it."""

    def __init__(self, seed: int, dtype: DType) -> None:
        self.rng, self.dtype, self.b = np.random.default_rng(seed), dtype, Scalars()
        self.count = int(self.rng.choice(COUNTS))
        self.rows = int(self.rng.integers(1, 4))
        self.buffers: list[Buffer] = []
        self.arrays: list[Any] = []
        total = self.rows * self.count
        self.table = self.buffer(self.drawn(TABLE), dtype)
        self.places = self.buffer(self.rng.integers(0, TABLE, total), I64)
        self.narrow = self.buffer(self.rng.integers(0, 100, total).astype(np.int32), I32)
        self.order = self.buffer(self.permutations(total), I64)
        self.data = self.buffer(self.drawn(total), dtype)
        self.length = self.buffer(np.array([self.count]), I64)
        self.step = int(self.rng.integers(5, 9))
        self.spread = self.buffer(self.drawn(total * self.step), dtype)
        self.sinks = [self.buffer(self.drawn(total), dtype, "out") for _ in range(2)]
        self.apart = self.buffer(self.drawn(total * self.step), dtype, "out")
        self.sums = self.buffer(self.drawn(self.rows), dtype, "out")

    def drawn(self, count: int) -> np.ndarray:
        return self.rng.integers(-9, 9, count).astype(self.dtype.numpy)

    def permutations(self, total: int) -> np.ndarray:
        """For each row the places of its own elements, in another order."""
        rows = np.arange(total).reshape(self.rows, self.count)
        return self.rng.permuted(rows, axis=1).reshape(-1)

    def buffer(self, array: np.ndarray, dtype: DType, mode: str = "in") -> Buffer:
        made = Buffer(len(self.buffers), dtype, len(array), mode)
        self.buffers.append(made)
        self.arrays.append(array)
        return made

    def value(self, i: Expr, at: Expr) -> Expr:
        """Something of an iteration, which lies at `at` of all."""
        b, kind = self.b, self.rng.integers(8)
        if kind == 0:
            return b.load(self.table, b.load(self.places, at))
        if kind == 1:
            return b.load(self.table, b.load(self.narrow, at).cast(I64) + 150)
        if kind == 2:
            return b.load(self.spread, at * self.step + int(self.rng.integers(self.step)))
        if kind == 3:  # by powers of two; of numbers below zero, too
            by = 1 << int(self.rng.integers(1, 4))
            less = i - int(self.rng.integers(0, 200))
            place = less // by if self.rng.integers(2) else less % by * 3
            return b.load(self.table, b.op("abs", place))
        if kind == 4:
            return b.load(self.table, where(b.load(self.places, at) > 40, i * 0 + 7, i % 4))
        if kind == 5:
            return b.load(self.data, at) * 2
        return b.load(self.data, at)

    def condition(self, i: Expr, at: Expr) -> Expr:
        b, kind = self.b, self.rng.integers(4)
        if kind == 0:
            return i < int(self.rng.integers(self.count + 1))
        if kind == 1:
            return b.load(self.data, at) > 0
        if kind == 2:
            return (i >= self.count // 3) & (i < 2 * self.count // 3)
        return b.load(self.places, at) < 150

    def guarded_value(self, i: Expr, at: Expr) -> Expr:
        """A value that is there where the condition around it holds, and nowhere else."""
        b = self.b
        part = int(self.rng.integers(0, self.count))
        holds = i >= part
        made = b.register(b.const(3, self.dtype))
        with b.when(holds):
            b.assign(made, b.load(self.table, (i - part) % 256))
            if self.rng.integers(2):
                away = where(holds, b.load(self.places, at), ELSEWHERE)
                b.assign(made, b.read(made) + b.load(self.table, away))
            if self.rng.integers(2):
                b.update(made, "max", b.load(self.data, at))
        return b.read(made)

    def kernel(self) -> Kernel:
        b = self.b
        with b.loop(self.rows, "parallel") as row:
            total = b.register(b.const(0, self.dtype))
            stop = b.integer(self.count) if self.rng.integers(2) else b.load(self.length, 0)
            with b.loop(stop, "vector") as i:
                at = i + row * self.count
                self.body(total, i, at)
            b.store(self.sums, row, b.read(total))
        return Kernel("k0", tuple(self.buffers), 0, b.body, self.rows)

    def body(self, total: Any, i: Expr, at: Expr) -> None:
        b = self.b
        value = self.value(i, at) + self.value(i, at)
        if self.rng.integers(2):
            value = value + self.guarded_value(i, at)
        b.update(total, "add", value)
        b.store(self.sinks[0], at, value)
        b.store(self.apart, at * self.step + 2, self.value(i, at))
        with b.when(self.condition(i, at)):
            b.store(self.sinks[1], b.load(self.order, at), self.value(i, at))
            if self.rng.integers(2):
                b.update(total, "add", self.value(i, at))
            if self.rng.integers(2):
                with b.when(self.condition(i, at)):
                    b.store(self.apart, at * self.step + 3, value)


def compared(kernel: Kernel, arrays: list[Any], target: targets.Target) -> None:
    expected = fresh(arrays)
    status = Evaluator(kernel, expected, ()).run(0, kernel.units)
    code = by_llvm(kernel, target=target)
    for side in ("before", "behind"):
        got = [guarded(array, side) for array in arrays]
        assert code(got, 0, kernel.units) == status
        for buffer in () if status else kernel.buffers:
            assert same_numbers(expected[buffer.index], got[buffer.index], buffer.dtype), buffer


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [F32, F64, I32, I64], ids=str)
def test_random_loops(dtype: DType, machine: str) -> None:
    target = MACHINES[machine]
    for seed in range(rounds(6)):
        drawn = Drawn(seed, dtype)
        kernel = drawn.kernel()
        is_short = drawn.count <= 2  # which is no loop
        assert is_short or (targets.LEFT in llvm.emit(kernel, target)) == (not HAS_MASKS)
        compared(kernel, drawn.arrays, target)


@pytest.mark.parametrize("machine", MACHINES)
def test_failures_of_some_iterations(machine: str) -> None:
    """The first and the last lane, and those of every copy; the highest code is what a run gives,
    as of other vector loops."""
    for count in COUNTS:
        for place in {0, count // 2, count - 1, None}:
            b = Scalars()
            table, index = Buffer(0, F32, 64, "in"), Buffer(1, I64, count, "in")
            sink = Buffer(2, F32, count, "out")
            with b.loop(count, "vector") as i:
                at = b.load(index, i)
                b.fail(at >= 64, 7)
                b.store(sink, i, b.load(table, b.op("min", at, b.integer(63))))
            places = np.arange(count) % 64
            if place is not None:
                places[place] = 64
            kernel = Kernel("k0", (table, index, sink), 0, b.body)
            arrays = [np.arange(64, dtype=np.float32), places, np.zeros(count, np.float32)]
            compared(kernel, arrays, MACHINES[machine])


def left(write: Any, dtype: DType = F32) -> bool:
    """Whether a loop over `source` and `sink` is left to LLVM."""
    b = Scalars()
    source, sink = Buffer(0, dtype, 999, "in"), Buffer(1, dtype, 999, "out")
    with b.loop(40, "vector") as i:
        write(b, i, source, sink)
    return targets.LEFT in llvm.emit(Kernel("k0", (source, sink), 0, b.body), HOST)


@pytest.mark.skipif(not HAS_MASKS, reason="everything of the kind is left to LLVM here")
def test_what_masks_do_not_reach_is_left_to_llvm() -> None:
    """Bytes from anywhere, quotients by other numbers; under a condition what is the same in all
    iterations, rows backwards and elements that lie a few apart."""
    assert not left(lambda b, i, x, y: b.store(y, i * 9, b.load(x, i * 7)))
    assert left(lambda b, i, x, y: b.store(y, i, b.load(x, i * 7)), I8)
    assert left(lambda b, i, x, y: b.store(y, i * 7, b.load(x, i)), I8)
    assert not left(lambda b, i, x, y: b.store(y, i, b.load(x, i // 4)))
    assert left(lambda b, i, x, y: b.store(y, i, b.load(x, i // 3)))

    def some(write: Any) -> bool:
        def guarded_write(b: Scalars, i: Expr, x: Buffer, y: Buffer) -> None:
            with b.when(i < 9):
                write(b, i, x, y)

        return left(guarded_write)

    assert not some(lambda b, i, x, y: b.store(y, i, b.load(x, i)))
    assert some(lambda b, i, x, y: b.store(y, i, b.load(x, b.integer(5))))
    assert some(lambda b, i, x, y: b.store(y, i, b.load(x, 50 - i)))
    assert some(lambda b, i, x, y: b.store(y, i, b.load(x, i * 2)))
    assert some(lambda b, i, x, y: b.fail(i > 5, 3))


def test_parts_of_a_softmax_that_lie_side_by_side() -> None:
    """Each element of a sum comes from one of three arrays."""
    rng = np.random.default_rng(3)
    parts = [rng.standard_normal((1, 20, n)).astype(np.float32) for n in (160, 40, 10)]

    def softmax(*parts: Any) -> Any:
        x = np.concatenate(parts, axis=2)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    np.testing.assert_allclose(gc.compile(softmax)(*parts), softmax(*parts), rtol=2e-6)
