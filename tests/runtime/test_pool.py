"""The thread pool: equal results, concurrent callers, fork, the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from project import environment
from runtime_kernels import FAIL_WITH, WHO_RAN, doubler, image

from graphc.errors import GraphError, RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.devices import device
from graphc.runtime.load.program import Slot
from graphc.runtime.load.table import TableBuilder


def test_concurrent_callers_get_their_own_arena():
    executable = doubler(4096, grain=64, threads=2, repeat=20)
    inputs = [np.full(4096, i, "f4") for i in range(12)]
    with ThreadPoolExecutor(12) as workers:
        for _ in range(10):
            for x, result in zip(inputs, workers.map(lambda x: executable.run([x]), inputs)):
                np.testing.assert_array_equal(result[0], 2 * x + 1)
    assert len(executable._frames) <= 8


def test_two_threads_equal_one():
    x = np.random.default_rng(0).standard_normal(100_003).astype("f4")
    one = doubler(x.size, grain=1000, threads=1).run([x])[0]
    two = doubler(x.size, grain=1000, threads=2)
    for _ in range(50):
        np.testing.assert_array_equal(two.run([x])[0], one)


def test_units_are_split_into_a_partition_that_threads_do_not_change():
    table = TableBuilder()
    table.call(WHO_RAN, [(2, 0)], units=1000, grain=10)
    table.end()
    plan = image(table, [], [Slot("marks", "i64", (1001,))], threads=4)
    executable = Executable(plan, threads=4)
    seen: list[int] = []
    while len(seen) < 200 or 8 not in seen:  # in the end a worker is idle, however busy others are
        (marks,) = executable.run([])
        position, parts = 0, 0
        while position < 1000:
            position, parts = int(marks[position]) - 1, parts + 1
        assert position == 1000 and parts in (1, 8), "whole only while the machine is busy"
        seen.append(parts)


def test_failing_status_from_a_worker():
    table = TableBuilder()
    table.call(FAIL_WITH, [], units=1000, grain=1, params=0)
    table.end()
    executable = Executable(image(table, [], [], words=[3], threads=2), threads=2)
    for _ in range(20):
        with pytest.raises(RunError):
            executable.run([])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's scheduler")
@pytest.mark.skipif(device.default_threads() < 2, reason="needs two cores")
def test_a_worker_wakes_on_another_core_and_may_use_all_of_its_own_afterwards():
    """Woken here, it would wait for the caller: it is moved for a moment, and its set restored."""
    executable = doubler(1 << 22, grain=100, threads=2)
    x = np.ones(1 << 22, "f4")
    executable.run([x])
    cores = cores_of_threads()
    here, own = threading.get_native_id(), os.sched_getaffinity(0)
    try:
        for core in sorted(own)[:2] * 3:
            os.sched_setaffinity(0, {core})
            time.sleep(0.02)
            executable.run([x])
            found = cores_of_threads()
            assert found.pop(here) == {core}
            assert found.items() <= cores.items()
    finally:
        os.sched_setaffinity(0, own)
    (result,) = executable.run([x])
    assert (result == 3).all()


def cores_of_threads() -> dict[int, set[int]]:
    """The cores that each thread of this process may use; some that others started may end now."""
    found = {}
    for task in map(int, os.listdir("/proc/self/task")):
        with suppress(ProcessLookupError):
            found[task] = os.sched_getaffinity(task)
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pool_works_in_a_forked_child():
    executable = doubler(100_000, grain=100, threads=2)
    x = np.ones(100_000, "f4")
    executable.run([x])
    child = os.fork()
    if child == 0:
        right = bool((executable.run([x])[0] == 3).all())
        os._exit(0 if right and executable.support.threads == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_fork_while_another_thread_runs():
    executable = doubler(100_000, grain=100, threads=2, repeat=50)
    x = np.ones(100_000, "f4")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            executable.run([x])

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if (executable.run([x])[0] == 3).all() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        worker.join()


EXIT = """
import sys
import numpy as np
from runtime_kernels import doubler
doubler(1000, grain=10, threads=2).run([np.zeros(1000, "f4")])
"""


@pytest.mark.slow
@pytest.mark.parametrize("linker", ["", "llvm"])
def test_process_ends_cleanly_while_workers_spin(linker):
    command = [sys.executable, "-c", EXIT]
    for _ in range(3):
        done = subprocess.run(command, env=environment(GRAPHC_LINKER=linker), check=False)
        assert done.returncode == 0


def test_default_threads_reads_the_environment(monkeypatch):
    monkeypatch.setenv("GRAPHC_THREADS", "3")
    assert device.default_threads() == 3
    monkeypatch.setenv("GRAPHC_THREADS", "many")
    with pytest.raises(GraphError, match="GRAPHC_THREADS"):
        device.default_threads()
    monkeypatch.setenv("GRAPHC_THREADS", "0")
    assert device.default_threads() >= 1
