"""Vector loops over rows: elements a stride apart are loaded along the rows and turned."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from effort import crossed, few
from emitted_kernels import HOST, by_llvm, fresh
from loop_evaluator import Evaluator

from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm import target as targets
from graphc.codegen.llvm.interleave import Strided, exchanges, factors, runs
from graphc.ir.types import BOOL, F16, F32, F64, I8, I32, DType
from graphc.loops.nest import Buffer, Kernel, Scalars

NARROW = targets.named("x86-64-v3" if "x86" in HOST.triple else "neoverse-n1")
TARGETS = {"masks or not": HOST, "no masks": NARROW}
# (stride, places that are read, stride, places that are written)
SHAPES = [
    (2, (0, 1), 2, (0, 1)),
    (4, (0, 1, 2, 3), 3, (0, 1, 2)),
    (3, (0, 1, 2), 16, tuple(range(16))),
    (7, (1, 2, 3, 4, 5), 5, (0, 1, 2, 3, 4)),
    (40, tuple(range(3, 39)), 36, tuple(range(36))),
    (100, (0, 1, 2, 3, 50, 51, 52), 7, tuple(range(7))),
    (4, tuple(range(4)), 9, (2, 3, 4, 5)),
    (1, (0,), 12, tuple(range(12))),
]


def row_kernel(dtype: DType, count: int, shape: tuple, block: int) -> Kernel:
    """out[s*i + q] = what is read of row i at some place, or the larger of two of them."""
    stride, read, step, written = shape
    b = Scalars()
    source = Buffer(0, dtype, count * stride + 64, "in")
    sink = Buffer(1, dtype, count * step + 64, "out")
    with b.loop(-(-count // block), "parallel") as unit:
        start = unit * block
        stop = b.op("min", start + block, b.integer(count))
        with b.loop(stop, "vector", start) as i:
            values = [b.load(source, i * stride + place) for place in read]
            for k, place in enumerate(written):
                value = values[k % len(values)]
                if k >= len(values) and dtype.kind not in "b" and dtype is not F16:
                    value = b.op("max", value, values[(3 * k + 1) % len(values)])
                b.store(sink, i * step + place, value)
    return Kernel("k0", (source, sink), 0, b.body, -(-count // block))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "target"), crossed(SHAPES, TARGETS))
def test_rows_are_turned_on_their_way(shape: tuple, target: str) -> None:
    """What lies between and behind the elements that are written stays as it was."""
    for dtype in few([F32, F64, I32, I8, F16, BOOL], 2, shape[0]):
        check_rows(dtype, shape, target)


def check_rows(dtype: DType, shape: tuple, target: str) -> None:
    for count in few([1, 3, 8, 16, 17, 31, 32, 64, 100, 129], 3, shape[0] + dtype.itemsize):
        kernel = row_kernel(dtype, count, shape, 64)
        assert count < 32 or targets.LEFT not in llvm.emit(kernel, TARGETS[target])
        data = np.random.default_rng(count).integers(0, 100, kernel.buffers[0].size)
        arrays = [data.astype(dtype.numpy), np.ones(kernel.buffers[1].size, dtype.numpy)]
        expected, got = fresh(arrays), fresh(arrays)
        Evaluator(kernel, expected, ()).run(0, kernel.units)
        assert by_llvm(kernel, target=TARGETS[target])(got, 0, kernel.units) == 0
        np.testing.assert_array_equal(got[1], expected[1])


def test_the_same_number_in_every_row() -> None:
    b = Scalars()
    sink = Buffer(0, F32, 150, "out")
    with b.loop(50, "vector") as i:
        for k in range(3):
            b.store(sink, i * 3 + k, b.const(k - 1.0, F32))
    got = [np.zeros(150, np.float32)]
    assert by_llvm(Kernel("k0", (sink,), 0, b.body))(got, 0, 1) == 0
    np.testing.assert_array_equal(got[0].reshape(50, 3), [[-1, 0, 1]] * 50)


def test_what_of_a_row_is_loaded_together() -> None:
    for places in ([0, 1, 2, 3], [5, 6, 7, 8, 9], list(range(40)), [0, 1, 2, 3, 8, 9, 10, 11]):
        for stride in (4, 5, 41, 64):
            for lanes in (4, 8, 16):
                chunks = Strided(stride, tuple(places)).chunks(lanes)
                covered = [c.first + k for c in chunks for k in range(c.count)]
                assert covered == places
                assert all(c.count <= c.width <= max(lanes, stride) for c in chunks)
    assert runs([1, 2, 4, 7, 8]) == [(1, 2), (4, 1), (7, 2)]
    assert all(math.prod(factors(n)) == n for n in range(1, 200))


def test_loops_that_gain_nothing_are_left_to_llvm() -> None:
    """Of a stride with a single element read a vector would hold little that is wanted; machines
    with masks gather it."""
    b = Scalars()
    source, sink = Buffer(0, F32, 500, "in"), Buffer(1, F32, 100, "out")
    with b.loop(100, "vector") as i:
        b.store(sink, i, b.load(source, i * 5))
    narrow = targets.named("x86-64-v3")
    assert targets.LEFT in llvm.emit(Kernel("k0", (source, sink), 0, b.body), narrow)


@pytest.mark.parametrize(
    ("bits", "lanes"), [(16, 8), (32, 2), (32, 4), (32, 8), (32, 16), (64, 2), (64, 4)]
)
def test_exchanges_turn_rows_and_turn_them_back(lanes: int, bits: int) -> None:
    """Of vectors that hold rows one after another they make one vector for each column."""
    for width in (w for w in (2, 4, 8, 16) if w <= lanes):
        rows = np.arange(lanes * width).reshape(width, lanes)
        columns = rows.reshape(lanes, width).T
        np.testing.assert_array_equal(exchanged(rows, bits, along=False), columns)
        np.testing.assert_array_equal(exchanged(columns, bits, along=True), rows)


def exchanged(vectors: np.ndarray, bits: int, along: bool) -> np.ndarray:
    width, lanes = vectors.shape
    made = list(vectors)
    steps, order = exchanges(lanes, width, bits, along)
    for slot, move in steps:
        for low in (k for k in range(width) if not k >> slot & 1):
            both = np.concatenate([made[low], made[low | 1 << slot]])
            made[low], made[low | 1 << slot] = (both[list(o)] for o in move.orders())
    return np.array([made[place] for place in order])


def test_a_square_of_rows_is_turned_by_one_exchange_for_each_bit() -> None:
    for lanes, along in itertools.product((4, 8), (False, True)):
        assert 1 << len(exchanges(lanes, lanes, 256 // lanes, along)[0]) == lanes
