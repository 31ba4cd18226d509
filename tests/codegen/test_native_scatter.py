"""scatter as LLVM IR, called as the walker calls it, in vectors of every length."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import crossed, rounds

import graphc as gc
from graphc.codegen.llvm.target import Target, host, named, optimise_and_object
from graphc.codegen.scatter import OUT_OF_RANGE, Scatter, scatter_text
from graphc.codegen.sorting.looks import CANCELLED
from graphc.ir.types import dtype
from graphc.ops.index.scatter import STORED, STRIDE, UPDATES, scatter_op
from graphc.ops.record.families import INTEGERS
from graphc.ops.record.value import emit
from graphc.runtime.load import load

HERE = host()
LESSER = ("x86-64", "x86-64-v3") if HERE.triple.startswith("x86") else ()
MACHINES = [HERE, *(m for m in map(named, LESSER) if m.vector_bits < HERE.vector_bits)]
CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)
GUARD = 64  # elements on both sides of a result that must stay as they are
POSITIONS = [name for name in INTEGERS if name != "u64"]
CASES = [
    (name, mode)
    for name in STORED
    for mode in UPDATES
    if mode == "set" or dtype(name).kind in "iuf" or (mode == "add" and dtype(name).is_complex)
]


def linked(kind: Scatter, target: Target) -> Callable[..., int]:
    text = scatter_text(target, kind)
    code = load.link(optimise_and_object([text], target), ["kernel"])
    call = CALL(code["kernel"])
    return lambda *given: call(*given) if code else 0  # the code lives as long as this


def run(
    kernel: Any,
    x: np.ndarray,
    index: np.ndarray,
    updates: np.ndarray,
    drop: bool = False,
    part: tuple[int, int] = (0, 1),
    in_place: bool = False,
    is_cancelled: bool = False,
) -> tuple[int, np.ndarray]:
    """The status and the result, of rows lo..hi of which the others stay zero."""
    room = np.zeros(x.size + 2 * GUARD, x.dtype)
    out = room[GUARD : GUARD + x.size].reshape(x.shape)
    if in_place:
        out[:] = x
    given = out if in_place else x.copy()
    flag = np.array([int(is_cancelled)])
    arrays = [flag, given, index, updates, out]
    buffers = np.array([a.ctypes.data for a in arrays])
    width = x.size // max(1, len(x))
    params = np.array([len(x), width, index.size, int(drop)])
    status = kernel(buffers.ctypes.data + 8, params.ctypes.data, *part, 0)
    assert not room[:GUARD].any()
    assert not room[GUARD + x.size :].any()
    return status, out


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Elements of a type; among floats some that are NaN, infinite and negative zeros."""
    element = dtype(name)
    if element.kind in "fc":
        parts = rng.standard_normal((*shape, 2 if element.is_complex else 1))
        odd = rng.random(parts.shape) < 0.1
        parts[odd] = rng.choice([np.nan, np.inf, -np.inf, -0.0], int(odd.sum()))
        made = parts.astype(element.real.numpy).view(element.numpy)
        return np.ascontiguousarray(made.reshape(shape))
    top = 1 if name == "bool" else min(100, int(np.iinfo(element.numpy).max))
    low = -top if element.kind == "i" else 0
    return rng.integers(low, top, shape, endpoint=True).astype(element.numpy)


@pytest.mark.parametrize(("case", "target"), crossed(CASES, MACHINES))
def test_equals_the_reference(case: tuple[str, str], target: Target) -> None:
    name, mode = case
    rng = np.random.default_rng(CASES.index(case))
    for turn in range(rounds(1)):
        index_type = POSITIONS[(CASES.index(case) + turn) % len(POSITIONS)]
        for is_narrow in (True, False):
            kernels = [
                linked(Scatter(dtype(name), dtype(index_type), mode, is_narrow, shared), target)
                for shared in (False, True)
            ]
            for rows, count in ((1, 3), (20, 0), (20, 75), (70, 11)):
                width = 1 if is_narrow else int(rng.integers(0, 70))
                low = -rows if index_type.startswith("i") else 0
                index = rng.integers(low, rows, count).astype(dtype(index_type).numpy)
                check(kernels, rng, name, mode, width, rows, index)


def check(
    kernels: list[Any],
    rng: np.random.Generator,
    name: str,
    mode: str,
    width: int,
    rows: int,
    index: np.ndarray,
) -> None:
    """Whole, in place, in two parts; places outside of the rows are dropped or refused."""
    whole, shared = kernels
    x, updates = (drawn(rng, name, (n, width)) for n in (rows, len(index)))
    with np.errstate(all="ignore"):
        want = scatter_op.reference(x, index, updates, mode, False)
        for in_place in (False, True):
            status, made = run(whole, x, index, updates, in_place=in_place)
            assert status == 0
            np.testing.assert_array_equal(made, want)
        cut = rows // 2
        parts = [run(shared, x, index, updates, part=p)[1] for p in ((0, cut), (cut, rows))]
        np.testing.assert_array_equal(parts[0][:cut], want[:cut])
        np.testing.assert_array_equal(parts[1][cut:], want[cut:])
        assert not parts[0][cut:].any()
        assert not parts[1][:cut].any()
        if len(index):
            wild = index.copy()
            wild[rng.integers(len(index))] = rows
            want = scatter_op.reference(x, wild, updates, mode, True)
            np.testing.assert_array_equal(run(whole, x, wild, updates, drop=True)[1], want)
            status, made = run(whole, x, wild, updates, in_place=True)
            assert status == OUT_OF_RANGE
            np.testing.assert_array_equal(made, x)


def test_places_at_the_ends_of_their_type_are_outside() -> None:
    """None of them wraps round to a row."""
    x = np.zeros((5, 1), np.float32)
    for name in POSITIONS:
        kernel = linked(Scatter(dtype("f32"), dtype(name), "set", True, False), HERE)
        ends = np.iinfo(dtype(name).numpy)
        for outside in (ends.max, ends.min if ends.min else 5):
            index = np.array([1, outside] + [1] * 9).astype(dtype(name).numpy)
            status, made = run(kernel, x, index, np.ones((11, 1), np.float32), drop=True)
            assert (status, made.ravel().tolist()) == (0, [0, 1, 0, 0, 0])
            for at in (1, 10):  # in a vector, and behind the last one
                index = np.ones(11, dtype(name).numpy)
                index[at] = outside
                assert run(kernel, x, index, np.ones((11, 1), np.float32))[0] == OUT_OF_RANGE


def test_a_cancelled_run_stops() -> None:
    """Before the check, before the copy and before the updates, whichever comes first."""
    kernel = linked(Scatter(dtype("f32"), dtype("i64"), "add", False, False), HERE)
    x, updates = np.ones((9, 4), np.float32), np.ones((3, 4), np.float32)
    index = np.array([1, 2, 1])
    for drop in (False, True):
        for in_place in (False, True):
            given: Any = {"drop": drop, "in_place": in_place}
            assert run(kernel, x, index, updates, is_cancelled=True, **given)[0] == CANCELLED
            assert run(kernel, x, index, updates, **given)[0] == 0


def test_more_than_one_part_of_everything() -> None:
    """More positions, more bytes to copy and more elements to write than between two looks."""
    rng = np.random.default_rng(5)
    for width, count in ((1, STRIDE + 77), (STRIDE // 2 + 3, 5)):
        x = rng.integers(-9, 9, (9, width)).astype(np.float64)
        x = np.repeat(x, 1 if width > 1 else STRIDE // 4, axis=0)
        index = rng.integers(-len(x), len(x), count)
        updates = rng.integers(-9, 9, (count, width)).astype(np.float64)
        kernel = linked(Scatter(dtype("f64"), dtype("i64"), "add", width == 1, False), HERE)
        status, made = run(kernel, x, index, updates)
        assert status == 0
        np.testing.assert_array_equal(made, scatter_op.reference(x, index, updates, "add", False))


@pytest.mark.parametrize("opt", [0, 2])
def test_compiled_at_every_level(opt: int) -> None:
    x, u = np.arange(12.0).reshape(4, 3), np.ones((2, 3))
    for mode in UPDATES:
        fn = gc.compile(lambda x, i, u, m=mode: emit("scatter", x, i, u, mode=m), opt=opt)
        want = scatter_op.reference(x, np.array([3, -4]), u, mode, False)
        np.testing.assert_array_equal(fn(x, np.array([3, -4]), u), want)
