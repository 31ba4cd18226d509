"""Kernels of sorting that need no vectors: rows of keys of every width, by digits and by insertion,
and places of what is true, on this machine and on the least one of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from linked_kernels import linked

import graphc as gc
from graphc.codegen.llvm.target import Target, host, named
from graphc.codegen.sorting.digits import Rows, digits_text, least_text, scratch_of
from graphc.codegen.sorting.looks import CANCELLED
from graphc.codegen.sorting.places import places_text
from graphc.ops.tuning import tuned
from graphc.tuning import chosen

HERE = host()
MACHINES = [HERE, named("x86-64")] if HERE.triple.startswith("x86") else [HERE]
GUARD = 16  # elements on both sides of a result that must stay as they are
SHORT = tuned.insertion_row
LENGTHS = (0, 1, 2, 3, SHORT, SHORT + 1, 100, 257, 4099)
BITS = (8, 16, 32, 64)


def run(
    kernel: Any,
    arrays: Sequence[np.ndarray],
    results: Sequence[tuple[int, Any]],
    params: Sequence[int],
    rows: tuple[int, int] = (0, 1),
    scratch: int = 0,
    is_cancelled: bool = False,
) -> tuple[int, list[np.ndarray]]:
    """The status and the results, of so many elements each."""
    room = [np.full(count + 2 * GUARD, 77, kind) for count, kind in results]
    work, flag = np.full(scratch + GUARD, 77, np.uint8), np.array([int(is_cancelled)])
    given = [flag, *arrays, *(r[GUARD:] for r in room), work]
    buffers, words = np.array([a.ctypes.data for a in given]), np.array(params)
    status = kernel(buffers.ctypes.data + 8, words.ctypes.data, *rows, 0)
    for made, (count, _) in zip(room, results, strict=True):
        assert (made[:GUARD] == 77).all() and (made[GUARD + count :] == 77).all()
    assert (work[scratch:] == 77).all()
    return status, [r[GUARD : GUARD + count] for r, (count, _) in zip(room, results, strict=True)]


def patterns(rng: np.random.Generator, bits: int, count: int) -> list[np.ndarray]:
    """Three rows of keys: few and many different ones, all equal, in order and against it, and such
    that agree in a byte."""
    kind, top = np.dtype(f"u{bits // 8}"), (1 << bits) - 1
    drawn = [rng.integers(0, most, (3, count), kind, endpoint=True) for most in (1, 9, top)]
    high = (drawn[2] >> bits // 2) << bits // 2
    ordered = np.sort(drawn[2])
    return [*drawn, high, ordered, ordered[:, ::-1].copy(), np.full_like(high, top)]


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: str(target.vector_bits))
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("positions", [False, True])
def test_rows_are_sorted_and_equal_keys_keep_their_order(
    target: Target, bits: int, positions: bool
) -> None:
    kind = Rows(bits, positions)
    kernel, rng = linked(digits_text(target, kind), target), np.random.default_rng(bits)
    for count in LENGTHS:
        for keys in patterns(rng, bits, count):
            params = count, scratch_of(kind, count)
            result = [(keys.size, np.int64 if positions else keys.dtype)]
            status, (made,) = run(kernel, [keys], result, params, (1, 3), params[1])
            assert status == 0
            want = np.argsort(keys, 1, "stable") if positions else np.sort(keys)
            np.testing.assert_array_equal(made.reshape(keys.shape)[1:], want[1:])
            assert (made[:count] == 77).all()


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: str(target.vector_bits))
@pytest.mark.parametrize("bits", BITS)
def test_the_least_keys_and_the_first_of_equal_ones(target: Target, bits: int) -> None:
    kernel, rng = linked(least_text(target, bits), target), np.random.default_rng(bits)
    for count in filter(None, LENGTHS):
        for keys in patterns(rng, bits, count):
            for wanted in {1, min(count, 5), count}:
                results = [(3 * wanted, keys.dtype), (3 * wanted, np.int64)]
                status, found = run(kernel, [keys], results, (count, wanted), (0, 3))
                assert status == 0
                best, places = (a.reshape(3, wanted) for a in found)
                want = np.argsort(keys, 1, "stable")[:, :wanted]
                np.testing.assert_array_equal(places, want)
                np.testing.assert_array_equal(best, np.take_along_axis(keys, want, 1))


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: str(target.vector_bits))
def test_places_of_what_is_true_fill_what_room_there_is(target: Target) -> None:
    kernel, rng = linked(places_text(target), target), np.random.default_rng(5)
    for count in (0, 1, 63, 64, 65, 300):
        for share in (0.0, 0.1, 0.5, 1.0):
            mask = rng.random(count) < share
            wanted = np.flatnonzero(mask)
            for size in {0, 1, len(wanted) // 2, len(wanted), len(wanted) + 70}:
                results = [(size, np.int64), (1, np.int64)]
                status, (places, found) = run(kernel, [mask], results, (count, size))
                assert status == 0 and found[0] == len(wanted)
                expected = np.zeros(size, np.int64)
                expected[: len(wanted)] = wanted[:size]
                np.testing.assert_array_equal(places, expected)


def test_loops_over_a_row_look_at_the_cancel_flag() -> None:
    keys = np.random.default_rng(9).integers(0, 99, (1, 5000)).astype(np.uint16)
    cases: list[tuple[str, list[tuple[int, Any]], tuple[int, int], int]] = []
    with chosen({"codegen.looked_bits": 1}):
        for positions in (False, True):
            kind = Rows(16, positions)
            params = 5000, scratch_of(kind, 5000)
            result = [(5000, np.int64 if positions else np.uint16)]
            cases.append((digits_text(HERE, kind), result, params, params[1]))
        results = [(7, np.uint16), (7, np.int64)]
        cases.append((least_text(HERE, 16), results, (5000, 7), 0))
    for text, results, params, scratch in cases:
        kernel = linked(text, HERE)
        for is_cancelled, status in ((True, CANCELLED), (False, 0)):
            found = run(kernel, [keys], results, params, (0, 1), scratch, is_cancelled)
            assert found[0] == status


def test_numba_sorts_nothing() -> None:
    x = np.random.default_rng(1).integers(-9, 9, (3, 300)).astype(np.int8)
    functions = [
        lambda x: np.sort(x, axis=1),
        lambda x: np.argsort(x, axis=1),
        lambda x: gc.topk(x, 70)[1],
        lambda x: gc.flatnonzero(x, size=9),
    ]
    for target in ("", *["cpu:x86-64"] * (len(MACHINES) > 1)):
        for function in functions:
            made = gc.compile(function, **({"target": target} if target else {}))
            made(x)
            texts = made._variants.newest.kernels.texts
            assert texts and all("define i32 @" in text for text in texts.values())
