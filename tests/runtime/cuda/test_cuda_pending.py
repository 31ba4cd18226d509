"""Calls whose arguments and results stay on a GPU: what they ask of the driver, how they fail."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from fake_cuda import CHIP, KERNELS, FakeCuda, Status, fake, floats
from gpu_programs import (
    ALONE,
    COUNT,
    DOUBLE,
    FAIL,
    INCREMENT,
    WHOLE,
    X,
    counter,
    image,
    twice,
    vector,
)

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.cuda.frame import RETRY
from graphc.runtime.load.program import Origin
from graphc.runtime.load.table import ARENA, TableBuilder
from graphc.runtime.tuning import tuned

__all__ = ["fake"]

PLACE = ("model.py", 12)


def there(value: Any = X) -> Any:
    return gc.to_device(np.asarray(value, np.float32), "gpu:0")


def picky(fake: FakeCuda) -> Executable:
    """2 x; a kernel fails where the first element is negative."""

    def fail(blocks: int, threads: int, x: int, code: int, status: int, row: int) -> None:
        if floats(x)[0] < 0:
            KERNEL(blocks, threads, code, status, row)

    KERNEL = fake.kernels["fail"]
    fake.kernels = {**fake.kernels, "fail": fail}
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (3, 0)], **WHOLE)
    row = table.call(FAIL, [(2, 0)], params=0, **ALONE)
    table.end()
    origins = {row: Origin("%7 = gather(%1, %2) : f32[1]", *PLACE)}
    return Executable(image(CHIP, table, [1], origins=origins))


def sums(count: int) -> Executable:
    """x0 + 1 of so many arguments."""
    table = TableBuilder()
    table.call(INCREMENT, [(2, 0), (2 + count, 0)], **WHOLE)
    table.end()
    params = tuple(vector(f"x{k}") for k in range(count))
    return Executable(image(CHIP, table, params=params))


# ------------------------------------------------------------------------------ what is called


@pytest.mark.parametrize("count", [1, 7])
def test_a_call_is_one_graph_and_waiting_is_one_call(fake: FakeCuda, count: int) -> None:
    """However many arguments there are; nothing is allocated, copied or fetched."""
    executable, given = sums(count), [there() for _ in range(count)]
    for _ in range(6):
        (y,) = executable.run_resident(given)
        y.wait()
    blocks = len(fake.device_memory)
    for _ in range(5):
        fake.calls.clear()
        (y,) = executable.run_resident(given)
        assert [name for name, _ in fake.calls] == [
            "cuCtxSetCurrent",
            "cuGraphLaunch",
            "cuEventRecord",
        ]
        fake.calls.clear()
        assert y.wait() is y and y.wait() is y
        assert [name for name, _ in fake.calls] == ["cuCtxSetCurrent", "cuEventSynchronize"]
        assert len(fake.device_memory) == blocks
    np.testing.assert_array_equal(y, X + 1)


def test_a_chain_does_not_wait(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many runs are launched ahead as there are frames; then the oldest is waited for."""
    monkeypatch.setattr(tuned, "pending", 3)
    executable, y = twice(CHIP), there()
    for k in range(12):
        fake.calls.clear()
        (y,) = executable.run_resident([y])
        assert fake.count("cuEventSynchronize") == (k >= 3)
        assert fake.count("cuStreamSynchronize") == 0
    assert len(executable._frames) == 3
    expected = X
    for _ in range(12):
        expected = 2 * expected + 1
    np.testing.assert_array_equal(y, expected)


def test_memory_of_results_that_nobody_reads_is_used_again(fake: FakeCuda) -> None:
    executable, x = twice(CHIP), there()
    for _ in range(20):
        (y,) = executable.run_resident([x])
    count = len(fake.device_memory)
    for _ in range(50):
        (y,) = executable.run_resident([x])
    assert len(fake.device_memory) == count
    np.testing.assert_array_equal(y, 2 * X + 1)


def test_plain_calls_come_behind(fake: FakeCuda) -> None:
    executable, x = twice(CHIP), there()
    made = [executable.run_resident([x])[0] for _ in range(3)]
    for y in made:
        np.testing.assert_array_equal(executable(y), 2 * (2 * X + 1) + 1)
    np.testing.assert_array_equal(executable(X), 2 * X + 1)


def test_small_arrays_of_the_host_are_sent_along(fake: FakeCuda) -> None:
    """In one copy, of what they are when the call is made."""
    table = TableBuilder()
    table.call(INCREMENT, [(2, 0), (6, 0)], **WHOLE)
    table.call(INCREMENT, [(4, 0), (7, 0)], **WHOLE)
    table.end()
    params = (vector("a"), vector("w"), vector("b"), vector("none", 0))
    executable = Executable(image(CHIP, table, params=params, results=params[:2]))
    weights, none, made = there(), np.zeros(0, np.float32), []
    a, b = X.copy(), np.zeros(2 * COUNT, np.float32)[::2]
    for k in range(80):
        a[:], b[:] = k, -k
        fake.calls.clear()
        made.append(executable.run_resident([a, weights, b, none]))
        assert k < 60 or fake.count("cuMemcpyAsync") == 3  # there, and two results that are kept
    for k, (y, z) in enumerate(made):
        np.testing.assert_array_equal(y, np.full(COUNT, k + 1))
        np.testing.assert_array_equal(z, np.full(COUNT, 1 - k))
    large = Executable(image(CHIP, table, params=(vector("x", 1 << 13),) * 4, results=params[:2]))
    assert large.launch([np.zeros(1 << 13, np.float32)] * 4) is None, "it may change at once"


# ------------------------------------------------------------------------------ who waits


def test_who_reads_waits(fake: FakeCuda) -> None:
    executable, other, x = twice(CHIP), twice(CHIP, device="gpu:1"), there()
    wanted = 2 * X + 1
    np.testing.assert_array_equal(np.asarray(executable.run_resident([x])[0]), wanted)
    assert executable.run_resident([x])[0][1] == wanted[1]
    np.testing.assert_array_equal(executable.run_resident([x])[0].copied().numpy(), wanted)
    np.testing.assert_array_equal(other(executable.run_resident([x])[0]), 2 * wanted + 1)
    for export in (lambda y: y.__dlpack__(), lambda y: y.__cuda_array_interface__):
        (y,) = executable.run_resident([x])
        assert not y.pending.is_over
        fake.calls.clear()
        export(y)
        assert fake.count("cuEventSynchronize") == 1
    step = gc.compile(lambda x: x * 2, devices=["cpu:0"])
    np.testing.assert_array_equal(step(executable.run_resident([x])[0]), 2 * wanted)


def test_programs_that_change_something_are_waited_for(fake: FakeCuda, home: Any) -> None:
    table = TableBuilder()
    table.call(INCREMENT, [(4, 0), (4, 0)], **WHOLE)
    table.call(INCREMENT, [(2, 0), (3, 0)], **WHOLE)
    table.end()
    executable = Executable(image(CHIP, table, variables=(counter(home),)))
    assert not executable.is_left and executable.launch([there()]) is None
    (y,) = executable.run_resident([there()])
    assert y.pending is None
    assert twice(CHIP).launch([gc.to_device(X, "gpu:1")]) is None
    assert twice(CHIP).launch([there(np.zeros(3))]) is None
    assert twice(CHIP).launch([X.astype(np.float64)]) is None
    assert twice(CHIP).launch([]) is None


# ------------------------------------------------------------------------------ what goes wrong


def test_the_result_of_a_failed_run_says_so(fake: FakeCuda) -> None:
    """That of no other run, before it or after it, and as often as it is read."""
    executable, good, bad = picky(fake), there(), there(-X)
    for order in ([0, 1, 0], [1, 0, 1, 1, 0, 0, 0, 0, 1], [1] * 5, [0] * 4 + [1]):
        made = [executable.run_resident([(good, bad)[which]])[0] for which in order]
        for which, y in zip(order, made, strict=True):
            for _ in range(2 * which):
                with pytest.raises(RunError, match="out of range") as found:
                    np.asarray(y)
                assert found.value.location == PLACE
            if not which:
                np.testing.assert_array_equal(y, 2 * X)


def test_what_is_made_of_it_fails_alike(fake: FakeCuda) -> None:
    first, then, x = picky(fake), twice(CHIP), there(-X)
    (y,) = first.run_resident([x])
    (z,) = then.run_resident([y])
    for _ in range(10):
        (z,) = then.run_resident([z])
    (other,) = then.run_resident([there()])
    with pytest.raises(RunError, match="out of range") as found:
        z.wait()
    assert found.value.location == PLACE
    np.testing.assert_array_equal(other, 2 * X + 1)
    for call in (then.run_resident, then.run, then.launch):
        with pytest.raises(RunError, match="out of range"):
            call([y])


def test_a_crash_is_found_by_who_waits(fake: FakeCuda) -> None:
    executable, x = twice(CHIP), there()
    (y,) = executable.run_resident([x])
    fake.failing["cuEventSynchronize"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(RunError, match="a kernel has crashed on gpu:0"):
        y.wait()
    fake.failing.clear()
    for _ in range(4):
        executable.run_resident([x])[0].wait()
    for function in ("cuGraphLaunch", "cuEventRecord", "cuCtxSetCurrent"):
        fake.failing[function] = Status.CUDA_ERROR_INVALID_VALUE
        with pytest.raises(RunError, match=r"gpu:0 .*refuses .*INVALID_VALUE"):
            executable.run_resident([x])
        fake.failing.clear()
        np.testing.assert_array_equal(executable.run_resident([x])[0], 2 * X + 1)


def test_threads_read_what_others_have_launched(fake: FakeCuda) -> None:
    executable, wrong = twice(CHIP), []
    start = there()

    def work() -> None:
        for _ in range(8):
            made = [executable.run_resident([start])[0] for _ in range(3)]
            shared.extend(made)
            wrong.extend(y for y in shared[-4:] if (np.asarray(y) != 2 * X + 1).any())

    shared: list[Any] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(shared) == 4 * 8 * 3


def test_a_forked_child_cannot_wait(fake: FakeCuda) -> None:
    executable, x = twice(CHIP), there()
    (y,) = executable.run_resident([x])
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            y.wait()
            text = "it waited"
        except GraphError as error:
            text = str(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert b"a forked process cannot use the GPU of its parent" in os.read(reader, 4096)
    np.testing.assert_array_equal(y, 2 * X + 1)


def donating(fake: FakeCuda) -> Executable:
    """2 x in the place of x, and z + 1; a kernel fails where the first element of z is negative."""

    def fail(blocks: int, threads: int, z: int, code: int, status: int, row: int) -> None:
        if floats(z)[0] < 0:
            KERNEL(blocks, threads, code, status, row)

    KERNEL = KERNELS["fail"]
    fake.kernels = {**fake.kernels, "fail": fail}
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (2, 0)], **WHOLE)
    table.call(INCREMENT, [(3, 0), (5, 0)], **WHOLE)
    table.call(FAIL, [(3, 0)], params=0, **ALONE)
    table.end()
    pair = (vector("x"), vector("z"))
    return Executable(image(CHIP, table, [1], donated=(0, -1), params=pair, results=pair))


def test_donated_arrays_follow_from_run_to_run(fake: FakeCuda) -> None:
    executable, x, z = donating(fake), there(), there(X + 5)
    assert x[0] == 1
    before = x.copied()
    (sum_before,) = twice(CHIP).run_resident([x])  # reads it before it is written
    for _ in range(6):
        y, z = executable.run_resident([x, z])
        assert y is x and not y.pending.is_over
    np.testing.assert_array_equal(x, 64 * X)
    np.testing.assert_array_equal(z, X + 11)
    np.testing.assert_array_equal(sum_before, 2 * X + 1)
    np.testing.assert_array_equal(before, X)
    y, z = executable.run_resident([x, x])
    assert y is not x, "it is an argument twice: a copy is written"
    np.testing.assert_array_equal(z, 64 * X + 1)
    np.testing.assert_array_equal(y, 128 * X)
    y, _ = executable.run_resident([x, there(-X)])
    y, z = executable.run_resident([y, there()])
    for array in (x, y, z):
        with pytest.raises(RunError, match="out of range"):
            array.wait()


@pytest.mark.parametrize("count", [4, 1 << 14])
def test_results_that_are_all_kept_have_a_graph(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Each lies elsewhere: after some runs it is a copy of what the frame has."""
    table = TableBuilder()
    units = {"units": count // 4, "grain": 4}
    table.call(DOUBLE, [(2, 0), (ARENA, 0)], **units)
    table.call(INCREMENT, [(ARENA, 0), (3, 0)], **units)
    table.end()
    slots = {"params": (vector("x", count),), "results": (vector("y", count),)}
    executable = Executable(image(CHIP, table, arena_bytes=4 * count, **slots))
    start = np.arange(count, dtype=np.float32)
    made, given = [], [there(start + k) for k in range(3)]
    for k in range(80):
        if k == 60:
            fake.calls.clear()
        made.extend(executable.run_resident([given[k % 3]]))
    assert fake.count("cuLaunchKernel") == fake.count("cuGraphInstantiate") == 0
    assert fake.count("cuGraphLaunch") == 20 and fake.count("cuMemcpyAsync") <= 40
    for k, y in enumerate(made):
        np.testing.assert_array_equal(y, 2 * (start + k % 3) + 1)
    monkeypatch.setattr(tuned, "unknown_places", 1)  # few addresses again, which are tried again
    for _ in range(2 * RETRY):
        fake.calls.clear()
        executable.run_resident([given[0]])[0].wait()
        (y,) = executable.run_resident([given[1]])
        y.wait()
    assert fake.count("cuMemcpyAsync") == 0
    np.testing.assert_array_equal(y, 2 * start + 3)
