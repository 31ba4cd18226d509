"""How runs on a GPU end early: failures, crashes, Ctrl-C, cancelled runs, lost devices, forks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from fake_cuda import CHIP, FakeCuda, Status, fake
from gpu_programs import ALONE, DOUBLE, FAIL, LESS, NBYTES, WHOLE, X, check, image, pair, twice

from graphc.base.record import replace
from graphc.errors import GraphError, RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.devices.multi_device import MultiDeviceExecutable, disconnect, reconnect
from graphc.runtime.load.program import Origin
from graphc.runtime.load.table import ARENA, TableBuilder

__all__ = ["fake"]


@pytest.mark.parametrize("waits", ["0", "1"])
def test_a_kernel_that_crashes(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, waits: str) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", waits)
    executable = twice(CHIP, origins={0: Origin("%3 = gather(%1, %2)", "model.py", 8)})
    function = "cuLaunchKernel" if waits == "1" else "cuStreamSynchronize"
    fake.failing[function] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(RunError, match="a kernel has crashed on gpu:0") as found:
        executable(X)
    assert found.value.location == (("model.py", 8) if waits == "1" else None)
    fake.failing.clear()


def test_a_failed_send_does_not_leave(fake: FakeCuda) -> None:
    """What a GPU sends after a kernel has failed is not received."""
    table = TableBuilder()
    table.call(FAIL, [], **ALONE)
    table.call(DOUBLE, [(2, 0), (ARENA, 0)], **WHOLE)
    table.send(NBYTES, 0, (ARENA, 0))
    table.wait(NBYTES, 1, (3, 0))
    table.end()
    whole = pair(CHIP, ("gpu:0", "cpu:0")).image
    channels = whole.channels[:2]
    other = TableBuilder()
    other.wait(NBYTES, 0, (ARENA, 0))
    other.call(3, [])  # fails, should it get here
    other.send(NBYTES, 1, (ARENA, 0))
    other.end()

    second = replace(
        whole.others[0], table=other.finish(), words=np.array([3]), origins={}, registers=0
    )
    first = image(CHIP, table, [1], channels=channels, others=(second,))
    for _ in range(3):
        with pytest.raises(RunError, match=r"out of range.*on gpu:0"):
            MultiDeviceExecutable(first)(X)


def test_cancelled_runs(fake: FakeCuda) -> None:
    executable = endless()
    with amid(fake, executable.cancel), pytest.raises(RunError, match="cancelled"):
        executable(X)
    np.testing.assert_array_equal(executable(100 * X).shape, X.shape)


def test_a_forked_child_refuses(fake: FakeCuda) -> None:
    executable = twice(CHIP)
    executable(X)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            executable(X)
            text = "it ran"
        except GraphError as error:
            text = str(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert b"a forked process cannot use the GPU of its parent" in os.read(reader, 4096)
    np.testing.assert_array_equal(executable(X), 2 * X + 1)


def endless() -> Executable:
    """A loop that ends when its first argument is 100 or more."""
    table = TableBuilder()
    top = table.call(LESS, [(2, 0), (ARENA, 0)], params=0, **ALONE)
    leave = table.branch((ARENA, 0))
    table.jump(top)
    table.patch(leave, table.position)
    table.end()
    return Executable(image(CHIP, table, [100]))


@contextmanager
def amid(fake: FakeCuda, action: Callable[..., object], *arguments: object) -> Iterator[None]:
    """Do something from another thread while what never ends by itself runs: it has called the
    driver often by then, or gone round.  Nothing is done if it ended before that."""
    begun, ended = len(fake.calls) + fake.rounds + 300, threading.Event()

    def act() -> None:
        while len(fake.calls) + fake.rounds < begun and not ended.is_set():
            time.sleep(0.001)
        if not ended.is_set():
            action(*arguments)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_ctrl_c(fake: FakeCuda) -> None:
    for executable in (endless(), pair(CHIP, ("cpu:0", "gpu:0"), rounds=1 << 20)):
        with pytest.raises(KeyboardInterrupt), amid(fake, os.kill, os.getpid(), signal.SIGINT):
            executable(X)
        check(twice(CHIP), 2 * X + 1)


def test_lost_devices(fake: FakeCuda) -> None:
    long, short = (pair(CHIP, ("cpu:0", "gpu:0"), rounds=n) for n in (1 << 20, 1))
    with amid(fake, disconnect, "gpu:0"), pytest.raises(RunError, match="device gpu:0 was lost"):
        long(X)
    with pytest.raises(RunError, match="device gpu:0 is gone"):
        short(X)
    reconnect("gpu:0")
    check(short, 2 * X + 1)
