"""What simulated GPUs compute, and how they tell that a kernel is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threads import at_once

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("greenlet", reason="greenlet is not installed")

from graphc.gpu import kernel_simulator
from graphc.gpu.kernel_simulator import cuda
from graphc.runtime.cuda.simulated_driver import Simulator

ORDERS: dict[str, Callable[..., None]] = {
    "drawn": kernel_simulator.drawn,
    "first first": lambda threads, chance: threads.sort(key=lambda thread: thread.index.x),
    "last first": lambda threads, chance: threads.reverse(),
}


@pytest.fixture(params=ORDERS)
def any_order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_simulator, "order", ORDERS[request.param])


def turned(x: Any, y: Any, barrier: bool) -> None:
    """Each block turns its part around."""
    thread, start = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.x
    shared = cuda.shared.array(8, np.float32)
    shared[thread] = x[start + thread]
    if barrier:
        cuda.syncthreads()
    y[start + thread] = shared[cuda.blockDim.x - 1 - thread]


@pytest.mark.usefixtures("any_order")
def test_a_barrier_that_lacks_is_named() -> None:
    x = np.arange(16, dtype=np.float32)
    y = np.zeros_like(x)
    cuda.jit(turned)[2, 8](x, y, True)
    assert np.array_equal(y, x.reshape(2, 8)[:, ::-1].reshape(-1))
    with pytest.raises(RuntimeError, match="no barrier in between"):
        cuda.jit(turned)[2, 8](x, y, False)


@pytest.mark.usefixtures("any_order")
@pytest.mark.parametrize("last", ["write", "read"])
@pytest.mark.parametrize("others", ["write", "read"])
def test_threads_touch_one_element(others: str, last: str) -> None:
    """All may read it, or one may write and read it."""

    def kernel() -> None:
        thread, shared = cuda.threadIdx.x, cuda.shared.array(4, np.int32)
        if (last if thread == 2 else others) == "write":
            shared[1:3] = thread
            assert shared[2] == thread
        else:
            assert len(shared[2:4]) == 2

    cuda.jit(kernel)[2, 1]()
    if others == last == "read":
        cuda.jit(kernel)[2, 3]()
    else:
        with pytest.raises(RuntimeError, match=r"element [12] of shared memory"):
            cuda.jit(kernel)[2, 3]()


@pytest.mark.usefixtures("any_order")
def test_the_first_reader_does_not_write_what_others_have_read() -> None:
    readers: list[int] = []

    def kernel() -> None:
        thread, shared = cuda.threadIdx.x, cuda.shared.array(1, np.int32)
        readers.append(thread)
        assert shared[0] == -1
        cuda.shfl_xor_sync(0, thread, 1)  # its partner has read, too
        if thread == readers[0]:
            shared[0] = thread

    with pytest.raises(RuntimeError, match="element 0 of shared memory"):
        cuda.jit(kernel)[1, 4]()


@pytest.mark.usefixtures("any_order")
def test_global_memory_shows_the_order() -> None:
    """What one thread writes and another one reads depends on who is first."""

    def kernel(x: Any, seen: Any) -> None:
        x[cuda.threadIdx.x] = 1
        seen[cuda.threadIdx.x] = x[7 - cuda.threadIdx.x]

    seen = np.zeros(8)
    cuda.jit(kernel)[1, 8](np.zeros(8), seen)
    assert seen.sum() == 4


@pytest.mark.usefixtures("any_order")
def test_threads_meet() -> None:
    """Barriers in loops, votes, lanes of a warp, and threads that end early."""

    def kernel(sums: Any, votes: Any, passed: Any) -> None:
        thread = cuda.threadIdx.x
        shared = cuda.shared.array(8, np.int64)
        shared[thread] = thread
        for step in (4, 2, 1):
            cuda.syncthreads()
            if thread < step:
                shared[thread] += shared[thread + step]
        cuda.syncthreads()
        sums[thread] = shared[0]
        votes[thread] = cuda.syncthreads_count(thread % 3 == 0)
        if thread >= 4:
            return
        passed[thread] = cuda.shfl_xor_sync(0xFF, thread, 1) * 10 + cuda.shfl_xor_sync(0xFF, 7, 2)
        cuda.syncthreads()
        cuda.atomic.add(sums, 0, 1)
        cuda.atomic.max(sums, 1, thread)
        cuda.atomic.min(sums, 2, thread)

    sums, votes, passed = (np.zeros(8, np.int64) for _ in range(3))
    cuda.jit(kernel)[1, 8](sums, votes, passed)
    assert sums.tolist() == [28 + 4, 28, 0, 28, 28, 28, 28, 28]
    assert votes.tolist() == [3] * 8
    assert passed.tolist() == [17, 7, 37, 27, 0, 0, 0, 0]


@pytest.mark.usefixtures("any_order")
@pytest.mark.parametrize("calls", [0, 1])
def test_lanes_that_have_ended_pass_nothing(calls: int) -> None:
    def kernel() -> None:
        for call in range(2):
            if cuda.threadIdx.x == 2 and call == calls:
                return
            cuda.shfl_xor_sync(0xF, 1, 1)

    with pytest.raises(RuntimeError, match="thread 2 has ended and passes nothing"):
        cuda.jit(kernel)[1, 4]()


@pytest.mark.parametrize("place", [-1, np.int32(-1), slice(-2, 8)])
@pytest.mark.parametrize("write", [False, True])
def test_nothing_lies_before_a_pointer(place: Any, write: bool) -> None:
    def kernel(x: Any) -> None:
        if write:
            x[place] = 1
        else:
            x[place]

    with pytest.raises(IndexError, match="lies before the memory"):
        cuda.jit(kernel)[1, 1](np.zeros(8))


def test_arrays_of_one_place_differ_by_their_types() -> None:
    def helper(kind: Any, count: int) -> Any:
        return cuda.shared.array(count, kind)

    def kernel(found: list[Any]) -> None:
        found += [helper(np.float32, 4), helper(np.int64, 4), helper(np.int64, 8)]
        found.append(helper(np.float32, 4))

    found: list[Any] = []
    cuda.jit(kernel)[1, 1](found)
    kinds = [(str(each.array.dtype), len(each.array)) for each in found]
    assert kinds == [("float32", 4), ("int64", 4), ("int64", 8), ("float32", 4)]
    assert found[0] is found[3]


def test_orders_differ_and_repeat() -> None:
    def kernel(seen: Any) -> None:
        for _ in range(2):
            seen.append(cuda.grid(1))
            cuda.syncthreads()

    launches: list[list[int]] = [[], []]
    for seen in launches:
        cuda.jit(kernel)[2, 8](seen)
    assert launches[0] == launches[1]
    rounds = np.reshape(launches[0], (4, 8)) % 8
    assert len({tuple(turns) for turns in rounds.tolist()}) == 4
    assert (np.sort(rounds) == np.arange(8)).all()


def test_memory_of_a_block_is_full_of_nan() -> None:
    def kernel(made: Any) -> None:
        shared = cuda.shared.array((2, 3), np.float32).view(np.float32)
        local = cuda.local.array(4, np.float64)
        made.append(np.isnan(shared).all() and np.isnan(local).all())
        cuda.syncthreads()
        shared[:], local[:] = 0, 0

    made: list[bool] = []
    cuda.jit(kernel)[3, 2](made)
    assert made == [True] * 6


def parted(x: Any) -> None:
    if cuda.threadIdx.x == 2:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


def deserted(x: Any) -> None:
    if cuda.threadIdx.x == 2:
        cuda.shfl_xor_sync(0xF, 1.0, 1)
    cuda.syncthreads()


@pytest.mark.parametrize("kernel", [parted, deserted], ids=lambda kernel: kernel.__name__)
def test_threads_that_never_meet(kernel: Callable[..., None]) -> None:
    with pytest.raises(RuntimeError, match="wait for different things"):
        cuda.jit(kernel)[1, 4](None)


def test_failures_name_the_thread() -> None:
    def kernel(x: Any) -> None:
        cuda.syncthreads()
        x[cuda.grid(1)] = 1

    x = np.zeros(7)
    with pytest.raises(IndexError) as found:
        cuda.jit(kernel)[2, 4](x)
    assert found.value.__notes__ == ["in thread 3 of block 1 of (2, 4)"]
    cuda.jit(kernel)[1, 4](x)  # whoever waited then is gone


def test_greenlet_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "greenlet.py").write_text("raise ImportError('absent')")
    done = subprocess.run(
        [sys.executable, "-c", "import graphc.gpu"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}", "NUMBA_ENABLE_CUDASIM": "1"},
    )
    assert "GraphError: simulated GPUs need greenlet" in done.stderr, done.stderr
    assert "pip install 'graphc[simulator]'" in done.stderr


def test_one_launch_at_a_time() -> None:
    x = np.zeros(64)
    y = np.zeros((8, 64))

    def launch(number: int) -> None:
        for _ in range(5):
            cuda.jit(turned)[8, 8](x + np.arange(64) + number, y[number], True)

    threads = [threading.Thread(target=launch, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = np.arange(64).reshape(8, 8)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(y, wanted + np.arange(8)[:, None])


@pytest.mark.slow
def test_threads_allocate_and_free_memory_at_once() -> None:
    device = Simulator(0)
    held = [device.allocate(1) for _ in range(2_000)]  # a walk over them takes many turns

    def work(_: int) -> None:
        address = device.allocate(64)
        assert device._view("uint8", 64, address).size == 64
        device.free(address)

    at_once(*[work] * 4, times=100)
    assert device.starts == sorted(held)
