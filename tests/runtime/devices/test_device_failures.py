"""What happens to a program of several devices when one of them fails, is lost or is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from device_programs import X, made, there_and_back
from project import environment

import graphc as gc
from graphc.codegen.tuning import tuned
from graphc.errors import RunError
from graphc.runtime.devices import multi_device as cluster
from graphc.runtime.devices.multi_device import MultiDeviceExecutable


def pick(x: Any, index: Any) -> Any:
    with gc.device("cpu:1"):
        y = np.tanh(x)[index]
    with gc.device("cpu:0"):
        return y @ x


def test_the_first_failure_stops_all_devices_and_names_the_place() -> None:
    good, bad = np.arange(32), np.full(32, 99)
    found = made(pick, X, good)
    wanted = found.run([X, good])[0]
    for _ in range(10):
        with pytest.raises(RunError, match="out of range") as caught:
            found(X, bad)
        assert "cpu:1" in str(caught.value) and os.path.basename(__file__) in str(caught.value)
        np.testing.assert_array_equal(found.run([X, good])[0], wanted)


def chain(x: Any, index: Any) -> Any:
    """Three devices wait for the fourth, one for the other."""
    with gc.device("cpu:3"):
        for _ in range(30):
            x = np.tanh(x @ x)
        x = x[index]
    for device in ("cpu:2", "cpu:1", "cpu:0"):
        with gc.device(device):
            x = np.exp(x @ x)
    return x


def test_a_failure_wakes_every_waiting_device_and_leaves_no_thread() -> None:
    size = 300
    x = np.full((size, size), 1 / size, "f4")
    good, bad = np.arange(size), np.full(size, size)
    found = made(chain, x, good, devices=[f"cpu:{k}" for k in range(4)])
    wanted = found.run([x, good])[0]
    threads = count_threads()
    for _ in range(20):
        with pytest.raises(RunError, match=r"out of range \(on cpu:3\)"):
            found.run([x, bad])
    np.testing.assert_array_equal(found.run([x, good])[0], wanted)
    while count_threads() > threads:  # what was joined may be listed for a moment
        time.sleep(0.01)


def count_threads() -> int:
    """The threads of this process, where the system tells."""
    tasks = "/proc/self/task"
    return len(os.listdir(tasks)) if os.path.exists(tasks) else 0


def endless(x: Any, go_on: Any) -> Any:
    with gc.device("cpu:1"):
        y = gc.while_loop(
            lambda s: go_on > s[1], lambda s: (np.tanh(s[0]), s[1] * 1), (x, go_on - 1)
        )
    with gc.device("cpu:0"):
        return y[0] + 1


def stopped(found: Any, arguments: list[Any], stop: Any, words: str) -> None:
    """A run that takes long or never ends, stopped by another thread."""
    errors: list[RunError] = []

    def run() -> None:
        with pytest.raises(RunError) as caught:
            found.run(arguments)
        errors.append(caught.value)

    runner = threading.Thread(target=run)
    runner.start()
    while runner.is_alive():  # what is stopped before it has begun goes on
        stop()
        runner.join(0.05)
    assert words in str(errors[0])


def ends(found: MultiDeviceExecutable) -> None:
    assert found.run([X, np.int32(np.iinfo(np.int32).min)])[0].shape == X.shape


def test_a_cancelled_run() -> None:
    found = made(endless, X, np.int32(1))
    for _ in range(3):
        stopped(found, [X, np.int32(1)], found.cancel, "cancelled")
        ends(found)


def test_a_device_that_disappears() -> None:
    found = made(endless, X, np.int32(1))
    ends(found)
    stopped(found, [X, np.int32(1)], lambda: cluster.disconnect("cpu:1"), "device cpu:1 was lost")
    try:
        for _ in range(2):  # nor does the native entry, whose time it was to take over, run it
            with pytest.raises(RunError, match="device cpu:1 is gone"):
                found(X, np.array(np.iinfo(np.int32).min, np.int32))
    finally:
        cluster.reconnect("cpu:1")
    ends(found)


NO_THREADS = """
import mmap, resource
import numpy as np
from device_programs import X, made, there_and_back
from graphc.errors import RunError
found = made(there_and_back, X)
found.give(found.begin([X])[0])
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), hard))
taken = []  # what other threads have given back since the size was read: less than a stack is left
try:
    while True:
        taken.append(mmap.mmap(-1, 1 << 22))
except OSError:
    pass
try:
    found.run([X])
except RunError as error:
    assert "no thread can be started for device cpu:1" in str(error), error
else:
    raise SystemExit("it ran")
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
assert np.isfinite(found.run([X])[0]).all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_thread_for_a_device() -> None:
    command = [sys.executable, "-c", NO_THREADS]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_gets_workers_of_its_own() -> None:
    found = made(there_and_back, X)
    wanted = found.run([X])[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(found.run([X])[0], wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(found.run([X])[0], wanted)


LONG = np.full((5000, 5000), 1e-3, "f4")  # the square takes a second and more, of processor time


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_kernel_is_cancelled_between_its_parts(threads: int) -> None:
    def f(x: Any, y: Any) -> Any:
        return (x @ y).sum()

    x, y = np.hstack([LONG] * 3), np.vstack([LONG] * 3)
    found = gc.compile(f, threads=threads).executable(x, y)
    stopped(found, [x, y], found.cancel, "cancelled")


@pytest.mark.slow
def test_a_failure_beside_a_long_kernel_is_known_at_once() -> None:
    def f(x: Any, y: Any, index: Any) -> Any:
        with gc.device("cpu:1"):
            product = (x @ y).sum()
        with gc.device("cpu:0"):
            row = x[index]
        return product, row

    found = made(f, x := np.hstack([LONG] * 3), y := np.vstack([LONG] * 3), np.array([1]))
    with pytest.raises(RunError, match=r"out of range \(on cpu:0\)"):
        found.run([x, y, np.array([9999])])


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_in_parts_give_the_same_bits(threads: int, monkeypatch: Any) -> None:
    from graphc.codegen import kernels
    from graphc.runtime.load.table import CALL, rows

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 700, 700)).astype("f4")

    def f(x: Any, w: Any) -> Any:
        return np.tanh(x @ w + 1), np.sort(x, axis=1), np.exp(x).sum(axis=0)

    monkeypatch.setattr(kernels, "_SPECS", {})
    whole = gc.compile(f, threads=threads)(x, w)
    monkeypatch.setattr(kernels, "_SPECS", {})
    monkeypatch.setattr(tuned, "long_kernel", 0.0)
    monkeypatch.setattr(tuned, "poll_seconds", 1e-6)
    run = gc.compile(f, threads=threads)
    words = run.executable(x, w).image.table.tolist()
    calls = [words[row + 4] for row in rows(words) if words[row] == CALL]
    polls = [word >> 32 for word in calls if word & 0xFFFFFFFF]  # of kernels that can be split
    assert len([p for p in polls if p]) >= 3
    assert polls.count(0) <= 1, "only what folds the parts of the sums is short enough"
    for one, other in zip(whole, run(x, w)):
        np.testing.assert_array_equal(one, other)
