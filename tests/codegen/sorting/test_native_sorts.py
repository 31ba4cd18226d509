"""Kernels of sorting in LLVM's vectors, called as the walker calls them, on AVX-512 and on AVX2."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.llvm.target import Target, host, named, optimise_and_object
from graphc.codegen.sorting.looks import CANCELLED
from graphc.codegen.sorting.order import order_text
from graphc.codegen.sorting.places import places_text
from graphc.codegen.sorting.quicksort import Sorter, rows_text, sort_text
from graphc.codegen.sorting.select import select_text
from graphc.runtime.load import load
from graphc.tuning import chosen

HERE = host()
MACHINES = [HERE] if HERE.vector_bits >= 256 else []
MACHINES += [named("x86-64-v3")] if HERE.vector_bits == 512 else []
CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)
GUARD = 16  # elements on both sides of a result that must stay as they are

pytestmark = pytest.mark.skipif(not MACHINES, reason="this machine has no vectors of 256 bits")


def linked(text: str, target: Target) -> Callable[..., int]:
    code = load.link(optimise_and_object([text], target), ["kernel"])
    call = CALL(code["kernel"])
    return lambda *given: call(*given) if code else 0  # the code lives as long as this


def run(
    kernel: Any, keys: np.ndarray, is_cancelled: bool = False, made: Any = None
) -> tuple[int, np.ndarray]:
    """The status and the sorted rows of a matrix, or what else is `made` of each key."""
    rows, count = keys.shape
    out = np.full(keys.size + 2 * GUARD, 77, made or keys.dtype)
    work = np.empty(count + 64, np.uint64)
    arrays = [np.array([int(is_cancelled)]), keys, out[GUARD:], work]
    buffers = np.array([a.ctypes.data for a in arrays])
    params = np.array([count, work.nbytes])
    status = kernel(buffers.ctypes.data + 8, params.ctypes.data, 0, rows, 0)
    assert (out[:GUARD] == 77).all()
    assert (out[GUARD + keys.size :] == 77).all()
    return status, out[GUARD : GUARD + keys.size].reshape(keys.shape)


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: target.cpu)
@pytest.mark.parametrize("bits", [32, 64])
def test_rows_of_every_length_and_pattern_are_sorted(target: Target, bits: int) -> None:
    kernel, rng = linked(sort_text(target, bits), target), np.random.default_rng(0)
    kind, top = np.dtype(f"u{bits // 8}"), (1 << bits) - 1
    for count in (*range(270), 511, 1000, 4099, 20_000):
        for most in (1, 30, top):
            keys = rng.integers(0, most, (2, count), kind, endpoint=True)
            keys[0, : count // 3] = top
            rng.shuffle(keys, axis=1)
            patterns = [keys]
            if count > 400:
                ordered = np.sort(keys)
                patterns += [ordered, ordered[:, ::-1].copy(), np.full_like(keys, most)]
                patterns.append(np.concatenate([ordered[:, ::2], ordered[:, 1::2][:, ::-1]], 1))
            for pattern in patterns:
                status, made = run(kernel, pattern)
                assert status == 0
                np.testing.assert_array_equal(made, np.sort(pattern))


@pytest.mark.parametrize("most", [0, 1 << 14])
@pytest.mark.parametrize("kind", ["f4", "i8"])
def test_short_rows_are_sorted_side_by_side_and_one_by_one(kind: str, most: int) -> None:
    rng = np.random.default_rng(11)
    with chosen({"codegen.lane_sorted_row": most}):
        sort = gc.compile(lambda x: np.sort(x, 1), sizes="exact")
        for count in (1, 2, 5, 16, 33):
            x = rng.integers(-9, 9, (37, count)).astype(kind)
            x[::5, 0] = np.nan if kind == "f4" else np.iinfo(kind).min
            np.testing.assert_array_equal(sort(x), np.sort(x, 1))


@pytest.mark.parametrize("opt", [0, 2])
def test_kernels_run_without_optimisation_too(opt: int) -> None:
    x = np.random.default_rng(4).standard_normal((3, 300))
    sort = gc.compile(lambda x: (np.sort(x, 1), np.argsort(x, 1), gc.topk(x, 4)[1]), opt=opt)
    made, places, best = sort(x)
    np.testing.assert_array_equal(made, np.sort(x, 1))
    np.testing.assert_array_equal(places, np.argsort(x, 1))
    np.testing.assert_array_equal(best, np.argsort(-x, 1)[:, :4])


@pytest.mark.parametrize("bits", [32, 64])
def test_a_heap_sorts_what_pivots_do_not_and_a_cancelled_run_stops(bits: int) -> None:
    kernel = linked(rows_text(Sorter(HERE, bits, patience=0), HERE.triple), HERE)
    keys = np.random.default_rng(1).integers(0, 500, (1, 1001)).astype(f"u{bits // 8}")
    status, made = run(kernel, keys)
    assert status == 0
    np.testing.assert_array_equal(made, np.sort(keys))
    assert run(kernel, keys, is_cancelled=True)[0] == CANCELLED


@pytest.mark.parametrize("bits", [32, 64])
def test_loops_over_a_row_look_at_the_cancel_flag(bits: int) -> None:
    """Those that a kernel comes to first; with a look in every second turn all are still right."""
    rng = np.random.default_rng(9)
    keys = rng.integers(0, 99, (1, 5000)).astype(f"u{bits // 8}")
    mask = rng.random(5000) < 0.3
    with chosen({"codegen.looked_bits": 1}):
        texts = [sort_text(HERE, bits), order_text(HERE, bits), select_text(HERE, bits, False)]
        heap = rows_text(Sorter(HERE, bits, patience=0), HERE.triple)
        sort, order, select, heaped, places = (
            linked(text, HERE) for text in (*texts, heap, places_text(HERE))
        )
    for kernel in (sort, heaped):
        np.testing.assert_array_equal(run(kernel, keys)[1], np.sort(keys))
    stable = np.argsort(keys, axis=1, kind="stable")
    np.testing.assert_array_equal(run(order, keys, made=np.int64)[1], stable)
    np.testing.assert_array_equal(selected(select, keys, 900)[1], stable[:, :900])
    found = np.zeros(5000, np.int64)
    for is_cancelled, status in ((1, CANCELLED), (0, 0)):
        arrays = [np.array([is_cancelled]), mask, found, np.zeros(1, np.int64)]
        buffers, params = np.array([a.ctypes.data for a in arrays]), np.array([5000, 5000])
        assert places(buffers.ctypes.data + 8, params.ctypes.data, 0, 1, 0) == status
    np.testing.assert_array_equal(found[: mask.sum()], np.flatnonzero(mask))
    for kernel, made in ((sort, None), (heaped, None), (order, np.int64)):
        assert run(kernel, keys, is_cancelled=True, made=made)[0] == CANCELLED
    arrays = [np.array([1]), keys, keys.copy(), found]
    buffers, params = np.array([a.ctypes.data for a in arrays]), np.array([5000, 900])
    assert select(buffers.ctypes.data + 8, params.ctypes.data, 0, 1, 0) == CANCELLED


def selected(kernel: Any, keys: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    rows, count = keys.shape
    best = np.full(rows * wanted + GUARD, 77, keys.dtype)
    places = np.full(rows * wanted + GUARD, 77)
    arrays = [np.zeros(1, np.int64), keys, best, places]
    buffers, params = np.array([a.ctypes.data for a in arrays]), np.array([count, wanted])
    assert kernel(buffers.ctypes.data + 8, params.ctypes.data, 0, rows, 0) == 0
    assert (best[rows * wanted :] == 77).all()
    assert (places[rows * wanted :] == 77).all()
    made = best, places
    return tuple(a[: rows * wanted].reshape(rows, wanted) for a in made)  # type: ignore[return-value]


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: target.cpu)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("is_short", [False, True])
def test_the_least_keys_and_the_first_of_equal_ones_are_selected(target, bits, is_short) -> None:
    kernel = linked(select_text(target, bits, is_short), target)
    rng, kind, top = np.random.default_rng(2), np.dtype(f"u{bits // 8}"), (1 << bits) - 1
    for count in (1, 3, 15, 16, 63, 64, 65, 129, 700, 3001):
        for most in (0, 3, 40, top):
            keys = top - rng.integers(0, most, (2, count), kind, endpoint=True)
            for rows in (keys, np.sort(keys)[:, ::-1].copy(), np.sort(keys)):
                for wanted in {1, min(count, 7), min(count, 16 if is_short else 900)}:
                    places = np.argsort(rows, axis=1, kind="stable")[:, :wanted]
                    best, found = selected(kernel, rows, wanted)
                    np.testing.assert_array_equal(found, places)
                    np.testing.assert_array_equal(best, np.take_along_axis(rows, places, 1))


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: target.cpu)
@pytest.mark.parametrize("bits", [32, 64])
def test_equal_keys_keep_their_order_however_wide_they_are(target: Target, bits: int) -> None:
    kernel, rng = linked(order_text(target, bits), target), np.random.default_rng(3)
    kind, top = np.dtype(f"u{bits // 8}"), (1 << bits) - 1
    for count in (*range(40), 255, 1000, 20_011):
        few = rng.integers(0, 9, (2, count), kind)
        near = rng.integers(0, 200, (2, count), kind)
        wide = rng.integers(0, top, (2, count), kind, endpoint=True)
        ends = np.where(rng.integers(0, 2, (2, count), bool), top - few, near).astype(kind)
        for keys in (few, top - near, wide, wide >> 20 << 20, ends, np.full_like(few, top)):
            status, places = run(kernel, keys, made=np.int64)
            assert status == 0
            np.testing.assert_array_equal(places, np.argsort(keys, axis=1, kind="stable"))


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: target.cpu)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("keys_of_a_group", "crowded"), [(1, 1 << 20), (50, 1 << 20), (50, 1)])
def test_words_are_grouped_by_leading_bits(target, bits, keys_of_a_group, crowded) -> None:
    rng, kind, top = np.random.default_rng(6), np.dtype(f"u{bits // 8}"), (1 << bits) - 1
    numbers = {"grouped_row": 64, "group_keys": keys_of_a_group, "crowded_groups": crowded}
    with chosen({f"codegen.{name}": value for name, value in numbers.items()}):
        kernel = linked(order_text(target, bits), target)
    for count in (64, 65, 200, 1025, 5000):
        wide = rng.integers(0, top, (2, count), kind, endpoint=True)
        near = top - rng.integers(0, 1 << 10, (2, count), kind, endpoint=True)
        skewed = wide >> rng.integers(0, bits, (2, count)).astype(kind)
        most_agree = np.where(rng.random((2, count)) < 0.9, kind.type(5), wide)
        equal = np.full_like(wide, 7)
        for keys in (wide, near, near >> 1, skewed, most_agree, equal, np.sort(wide), wide >> 20):
            status, places = run(kernel, keys, made=np.int64)
            assert status == 0
            np.testing.assert_array_equal(places, np.argsort(keys, axis=1, kind="stable"))


@pytest.mark.parametrize("target", MACHINES, ids=lambda target: target.cpu)
def test_places_of_true_elements_fill_what_room_there_is(target: Target) -> None:
    kernel, rng = linked(places_text(target), target), np.random.default_rng(5)
    for count in (0, 1, 31, 32, 64, 65, 127, 1000):
        for share in (0.0, 0.02, 0.5, 1.0):
            mask = rng.random(count) < share
            wanted = np.flatnonzero(mask)
            for size in {0, 1, len(wanted) // 2, len(wanted), len(wanted) + 70}:
                places, found = np.full(size + GUARD, 77), np.zeros(1, np.int64)
                arrays = [np.zeros(1, np.int64), mask, places, found]
                buffers = np.array([a.ctypes.data for a in arrays])
                params = np.array([count, size])
                assert kernel(buffers.ctypes.data + 8, params.ctypes.data, 0, 1, 0) == 0
                assert found[0] == len(wanted)
                expected = np.zeros(size, np.int64)
                expected[: len(wanted)] = wanted[:size]
                np.testing.assert_array_equal(places[:size], expected)
                assert (places[size:] == 77).all()
