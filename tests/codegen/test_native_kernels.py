"""gcd, occurrences and sparse_adjoint as LLVM IR, called as the walker calls them, in vectors of
every length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from effort import rounds
from linked_kernels import linked

import graphc as gc
from graphc.codegen.gcd import gcd_text
from graphc.codegen.llvm.target import Target, host, named
from graphc.codegen.occurrences import OUT_OF_RANGE, SCRATCH, occurrences_text
from graphc.codegen.sorting.looks import CANCELLED
from graphc.codegen.sparse_adjoint import WRONG, Adjoint, adjoint_text
from graphc.ir.types import dtype
from graphc.ops.index.scatter import STRIDE
from graphc.ops.linalg.sparse import sparse_adjoint
from graphc.ops.record.families import INTEGERS
from graphc.ops.reduce.occurrences import FEW, TABLES, occurrences_op

HERE = host()
LESSER = ("x86-64", "x86-64-v3") if HERE.triple.startswith("x86") else ()
MACHINES = [HERE, *(m for m in map(named, LESSER) if m.vector_bits < HERE.vector_bits)]
GUARD = 64  # elements on both sides of a result that must stay as they are


def run(
    kernel: Any,
    arrays: Sequence[np.ndarray],
    shape: tuple[int, ...],
    element: Any,
    params: Sequence[int] = (),
    part: tuple[int, int] = (0, 1),
    scratch: int = 0,
    is_cancelled: bool = False,
) -> tuple[int, np.ndarray]:
    """The status and the result, which is full of sevens before."""
    count = int(np.prod(shape))
    room = np.full(count + 2 * GUARD, 7, element)
    out = room[GUARD : GUARD + count].reshape(shape)
    work = np.full(scratch + GUARD, 7, np.uint8)
    flag = np.array([int(is_cancelled)])
    buffers = np.array([a.ctypes.data for a in (flag, *arrays, out, work)])
    words = np.array([*params, 0])
    status = kernel(buffers.ctypes.data + 8, words.ctypes.data, *part, 0)
    around = np.concatenate([room[:GUARD], room[GUARD + count :], work[scratch:]])
    assert (around == 7).all()
    return status, out


@pytest.mark.parametrize("name", ["i64", "u64"])
def test_gcd_of_all_magnitudes(name: str) -> None:
    kernel = linked(gcd_text(HERE, name == "i64"), HERE)
    limits = np.iinfo(dtype(name).numpy)
    rng = np.random.default_rng(0)
    odd = np.array([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], limits.dtype)
    for turn in range(rounds(5)):
        bits = rng.integers(0, 64, 2).astype(limits.dtype)
        x, y = (rng.integers(limits.min, limits.max, 300, limits.dtype) >> b for b in bits)
        common = rng.integers(1, 1000, 300).astype(limits.dtype)
        with np.errstate(over="ignore"):
            x, y = x * common, y * common
        if not turn:
            x[:36], y[:36] = np.repeat(odd, 6), np.tile(odd, 6)
        status, made = run(kernel, (x, y), (300,), limits.dtype, part=(3, 290))
        assert status == 0
        np.testing.assert_array_equal(made[3:290], np.gcd(x, y)[3:290])
        assert (made[:3] == 7).all() and (made[290:] == 7).all()


@pytest.mark.parametrize("name", INTEGERS)
def test_occurrences_in_few_and_many_counters(name: str) -> None:
    kernel = linked(occurrences_text(HERE, dtype(name)), HERE)
    rng = np.random.default_rng(INTEGERS.index(name))
    limits = np.iinfo(dtype(name).numpy)
    for size in (0, 1, 5, FEW, FEW + 1, 3 * FEW):
        for count in (0, 1, TABLES - 1, TABLES, 203, *[STRIDE + 5] * (size == 5)):
            inside = rng.integers(0, max(1, min(size, int(limits.max))), count)
            x = inside.astype(limits.dtype)
            params = count, size, 0
            status, made = run(kernel, (x,), (size,), np.int64, params, scratch=SCRATCH)
            assert status == (OUT_OF_RANGE if count and not size else 0)
            if size:
                np.testing.assert_array_equal(made, np.bincount(x, minlength=size))
            any_ = rng.integers(limits.min, limits.max, count, limits.dtype, endpoint=True)
            x = np.where(rng.random(count) < 0.5, x, any_)
            want = occurrences_op.reference(x, size, True)
            params = count, size, 1
            status, made = run(kernel, (x,), (size,), np.int64, params, scratch=SCRATCH)
            assert status == 0
            np.testing.assert_array_equal(made, want)
            params = count, size, 0
            status, _ = run(kernel, (x,), (size,), np.int64, params, scratch=SCRATCH)
            assert (status == OUT_OF_RANGE) == (want.sum() < count)


def drawn(rng: np.random.Generator, rows: int, columns: int, places: str) -> tuple[Any, ...]:
    """Which blocks each row has, some more than once and some rows none."""
    ends = np.sort(rng.integers(0, 40, rows + 1))
    ends[0] = 0
    kind = dtype(places).numpy
    return rng.integers(0, columns, ends[-1]).astype(kind), ends.astype(kind)


@pytest.mark.parametrize("target", MACHINES, ids=lambda m: str(m.vector_bits))
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_sparse_adjoint(name: str, target: Target) -> None:
    rng = np.random.default_rng(3)
    for places in ("i32", "i64", "u8"):
        element, index = dtype(name), dtype(places)
        kernel = linked(adjoint_text(target, Adjoint(element, index, index)), target)
        for width in (0, 1, 3, 16, 37):
            p, q, rows, columns = (int(n) for n in rng.integers(1, 5, 4))
            indices, ends = drawn(rng, rows, columns, places)
            data = rng.integers(-4, 5, (len(indices), p, q)).astype(element.numpy)
            y = rng.integers(-4, 5, (rows * p, width)).astype(element.numpy)
            want = sparse_adjoint.reference(data, indices, ends, y, columns)
            params = rows, columns, p, q, width, len(indices)
            given, shape = (data, indices, ends, y), (columns * q, width)
            for lo, hi in ((0, width), (0, width // 2), (width // 3, width)):
                status, made = run(kernel, given, shape, element.numpy, params, (lo, hi))
                assert status == 0
                np.testing.assert_array_equal(made[:, lo:hi], want[:, lo:hi])
                assert (made[:, :lo] == 7).all() and (made[:, hi:] == 7).all()


def test_a_bad_sparse_matrix_is_refused() -> None:
    kernel = linked(adjoint_text(HERE, Adjoint(dtype("f32"), dtype("i32"), dtype("i32"))), HERE)
    data, y = np.ones((4, 1, 1), np.float32), np.ones((3, 2), np.float32)
    columns, ends = np.array([0, 1, 2, 1], np.int32), np.array([0, 2, 2, 4], np.int32)
    params = 3, 3, 1, 1, 2, 4
    assert run(kernel, (data, columns, ends, y), (3, 2), np.float32, params, (0, 2))[0] == 0
    for place, value in ((0, -1), (3, 3), (2, 2**31 - 1)):
        wrong = columns.copy()
        wrong[place] = value
        found = run(kernel, (data, wrong, ends, y), (3, 2), np.float32, params, (0, 2))
        assert found[0] == WRONG
    for bad in ([1, 2, 2, 4], [0, 2, 2, 3], [0, 3, 2, 4], [0, 5, 2, 4], [0, -1, 2, 4]):
        given = data, columns, np.array(bad, np.int32), y
        assert run(kernel, given, (3, 2), np.float32, params, (0, 2))[0] == WRONG


def test_they_look_at_the_flag() -> None:
    counting = linked(occurrences_text(HERE, dtype("i64")), HERE)
    x = np.zeros(9, np.int64)
    for size in (3, 0):
        options = {"scratch": SCRATCH, "is_cancelled": True}
        assert run(counting, (x,), (size,), np.int64, (9, size, 1), **options)[0] == CANCELLED
    adjoint = linked(adjoint_text(HERE, Adjoint(dtype("f32"), dtype("i32"), dtype("i32"))), HERE)
    given = (
        np.ones((4, 1, 1), np.float32),
        np.zeros(4, np.int32),
        np.array([0, 4], np.int32),
        np.ones((1, 2), np.float32),
    )
    params = 1, 3, 1, 1, 2, 4
    found = run(adjoint, given, (3, 2), np.float32, params, (0, 2), is_cancelled=True)
    assert found[0] == CANCELLED


def test_numba_compiles_none_of_them() -> None:
    indices, indptr = np.array([0, 2, 1]), np.array([0, 2, 3])

    def adjoint(data: Any, y: Any) -> Any:
        return gc.sparse.csr(data, indices, indptr, (2, 4)).T @ y

    x = np.arange(30)
    for function, arguments in (
        (gc.compile(np.gcd), (x, x[::-1].copy())),
        (gc.compile(lambda x: np.bincount(x, minlength=40)), (x,)),
        (gc.compile(adjoint), (np.ones(3, np.float32), np.ones((2, 5), np.float32))),
    ):
        function(*arguments)
        texts = function._variants.newest.kernels.texts
        assert texts and all("\ndefine " in text for text in texts.values())
