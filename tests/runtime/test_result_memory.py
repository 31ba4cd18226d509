"""Large results lie in memory that earlier ones have left, and in none that is still in use."""

from __future__ import annotations

import gc as collector
import mmap
import resource
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.base.garbage_collection import collector_paused
from graphc.runtime.call import memory
from graphc.runtime.call.memory import LARGE, address_of, result_array
from graphc.runtime.tuning import tuned

F32 = np.dtype(np.float32)
ROWS = LARGE // 4096
pytestmark = pytest.mark.skipif(not memory._REUSES, reason="the system takes no pages back")


@pytest.fixture(autouse=True)
def nothing_left(frozen: None) -> Iterator[None]:
    """Nor do results of earlier tests become free meanwhile."""
    collector.collect()
    memory._left.clear()
    with collector_paused():
        yield
    memory._left.clear()


def left() -> list[int]:
    return sorted(size for size, blocks in memory._left.items() for _ in blocks)


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    first = result_array((ROWS, 1024), F32)
    start, view = address_of(first), first[5:].reshape(-1)[3:]
    view[:] = 7.0
    del first
    assert left() == []
    other = result_array((ROWS, 1024), F32)
    assert address_of(other) != start
    other[:] = 0.0
    assert view.min() == 7.0
    column = view[::64]
    del view
    assert left() == []
    del column
    assert left() == [LARGE]
    assert address_of(result_array((2 * ROWS, 512), F32)) == start


def test_another_size_takes_the_place_of_what_is_left() -> None:
    both = [result_array((ROWS, 1024), F32) for _ in range(2)]
    del both
    assert left() == [LARGE, LARGE]
    larger = result_array((ROWS + 1, 1024), F32)
    assert left() == []
    del larger
    assert left() == [LARGE + 4096]


def test_few_blocks_are_kept() -> None:
    many = [result_array((ROWS, 1024), F32) for _ in range(tuned.kept_results + 3)]
    del many
    assert left() == [LARGE] * tuned.kept_results


def test_small_results_are_plain_arrays() -> None:
    made = result_array((ROWS - 1, 1024), F32)
    assert made.flags.owndata
    del made
    assert left() == []


def test_memory_that_is_held_without_an_array_is_in_use() -> None:
    made: Any = result_array((ROWS, 1024), F32)
    start = address_of(made)
    held = [np.frombuffer(made.base, np.float32), memoryview(made), np.from_dlpack(made)]
    del made
    while held:
        collector.collect()
        assert address_of(result_array((ROWS, 1024), F32)) != start
        held.pop()  # what points past the array to its memory is the last to go
    assert start in {address_of(each) for each in [result_array((ROWS, 1024), F32) for _ in "ab"]}


@pytest.mark.parametrize("advice", ["MADV_HUGEPAGE", "MADV_FREE"])
def test_a_system_that_takes_no_advice(advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, advice, 9999)
    for _ in range(2):
        made = result_array((ROWS, 1024), F32)
        made[:] = 1.0
        del made
    assert left() == ([] if advice == "MADV_FREE" else [LARGE])


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_nothing_is_kept_where_address_space_is_limited(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {getattr(resource, kind): (1 << 45, resource.RLIM_INFINITY)}
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits.get(which, unlimited))
    made = result_array((ROWS, 1024), F32)
    del made
    assert left() == []


def test_a_result_that_fits_nowhere() -> None:
    with pytest.raises(MemoryError):
        result_array((1 << 50,), F32)


def test_calls_use_one_block_after_another() -> None:
    doubled = gc.compile(lambda x: x * 2)
    x = np.arange(ROWS * 1024, dtype=np.float32).reshape(ROWS, 1024)
    starts = set()
    for turn in range(6):
        made = doubled(x + np.float32(turn))
        starts.add(address_of(made))
        np.testing.assert_array_equal(made[::97], (x[::97] + np.float32(turn)) * 2)
        assert made.flags.writeable
        assert made.flags.c_contiguous
        del made
    assert len(starts) == 1
    kept = [doubled(x), doubled(x + 1)]
    assert address_of(kept[0]) != address_of(kept[1])
    np.testing.assert_array_equal(kept[1] - kept[0], np.full_like(x, 2.0))


def test_threads_never_share_a_block() -> None:
    wrong: list[Any] = []

    def take(number: int) -> None:
        for _ in range(20):
            made = result_array((ROWS, 1024), F32)
            made[::512, 0] = number
            wrong.extend(made[::512, 0][made[::512, 0] != number])
            del made

    threads = [threading.Thread(target=take, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(left()) <= 4
