"""The native call entry: what it accepts, what it leaves to Python, reference counts."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from leaks import assert_nothing_is_left
from runtime_kernels import DOUBLE, INCREMENT, doubler, failing, image, vector

from graphc.errors import FeedError, LimitError, RunError
from graphc.runtime.call import entry, execute
from graphc.runtime.call.execute import Executable
from graphc.runtime.load.layouts import ContextWords
from graphc.runtime.load.program import Slot
from graphc.runtime.load.table import TableBuilder
from graphc.runtime.tuning import tuned
from graphc.seams import numpy

X = np.arange(8, dtype="f4")


def warm(executable: Executable) -> Executable:
    """Run until the native entry takes over."""
    zeros = [np.zeros(slot.shape, slot.dtype.replace("f32", "f4")) for slot in executable.params]
    for _ in range(3):
        executable.run(zeros)
    return executable


def two_results() -> Executable:
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (4, 0)], units=6)
    table.call(INCREMENT, [(3, 0), (5, 0)], units=4)
    table.end()
    params = [Slot("x", "f32", (2, 3)), vector("y", 4)]
    return warm(Executable(image(table, params, params)))


def test_first_calls_are_measured_then_the_entry_answers():
    executable = doubler()
    assert executable.entry(X) is None
    np.testing.assert_array_equal(executable(X), 2 * X + 1)
    warm(executable)
    y = executable.entry(X)
    assert type(y) is np.ndarray and y.dtype == np.float32 and y.flags.owndata
    np.testing.assert_array_equal(y, 2 * X + 1)


def test_several_results_come_as_a_tuple():
    executable = two_results()
    x = np.arange(6, dtype="f4").reshape(2, 3)
    y = np.arange(4, dtype="f4")
    outcome = executable.entry(x, y)
    assert type(outcome) is tuple
    np.testing.assert_array_equal(outcome[0], 2 * x)
    np.testing.assert_array_equal(outcome[1], y + 1)


def test_no_results_are_an_empty_tuple():
    table = TableBuilder()
    table.end()
    executable = warm(Executable(image(table, [], [])))
    assert executable.entry() == () and executable() == ()


class Subclass(np.ndarray):
    """An array that is not plain."""


@pytest.mark.parametrize(
    "argument",
    [
        X.astype("f8"),
        X.astype(">f4"),
        X.reshape(2, 4),
        X[:7],
        np.zeros(16, "f4")[::2],
        np.zeros(33, np.uint8)[1:].view("f4"),
        X.view(Subclass),
        np.float32(3),
        1.5,
        None,
        "text",
        [1.0] * 8,
    ],
)
def test_anything_not_plain_is_left_to_python(argument):
    assert warm(doubler()).entry(argument) is None


def test_wrong_number_of_arguments():
    executable = warm(doubler())
    assert executable.entry() is None and executable.entry(X, X) is None
    with pytest.raises(TypeError):
        executable.entry(x=X)
    with pytest.raises(FeedError):
        executable(X, X)


def test_call_falls_back_and_reports():
    executable = warm(doubler())
    np.testing.assert_array_equal(executable(X.view(Subclass)), 2 * X + 1)
    np.testing.assert_array_equal(executable(X.astype(">f4")), 2 * X + 1)
    with pytest.raises(FeedError, match="argument 'x' is f64"):
        executable(X.astype("f8"))


@pytest.mark.parametrize("status", [3, 9])
def test_failing_step(status):
    executable = failing(status)
    x = np.float32([1])
    executable._context[ContextWords.ready] = 1
    with pytest.raises(RunError):
        executable.run([x])
    assert executable._context[ContextWords.frames] == 1
    before = sys.getrefcount(x)
    for _ in range(100):
        with pytest.raises(RunError, match=r"model.py:12"):
            executable(x)
    assert sys.getrefcount(x) == before
    assert len(executable._frames) == 1


def test_negative_status_is_a_damaged_or_cancelled_run():
    executable = failing(-1)
    executable._context[ContextWords.ready] = 1
    for _ in range(2):
        with pytest.raises(RunError, match="cancelled"):
            executable(np.float32([1]))


def test_reference_counts_and_memory():
    executable = two_results()
    x, y = np.zeros((2, 3), "f4"), np.zeros(4, "f4")
    dtype = np.dtype("f4")
    executable.entry(x, y)

    def calls():
        for _ in range(10_000):
            executable.entry(x, y)
            executable.entry(x, x)

    assert_nothing_is_left(calls, (x, y, executable.entry))
    assert_nothing_is_left(calls, (None, dtype), references=100)


def test_results_too_large_for_memory_raise(monkeypatch):
    monkeypatch.setattr(entry, "LARGE", 1 << 62)  # results of such sizes are not for the entry
    table = TableBuilder()
    table.end()
    huge = Slot("y", "f32", (1 << 43,))
    executable = Executable(image(table, [], [vector("a", 2), huge]))
    executable._take().words[8] = 0
    executable._context[ContextWords.ready] = 1
    for _ in range(3):
        assert executable.entry() is None  # the Python path says what it is that has no room
        with pytest.raises(LimitError, match=r"y: f32\[8796093022208\]"):
            executable()
        with pytest.raises(LimitError):
            executable.run([])
    assert executable._frames[0].words[8] == 0


@pytest.mark.usefixtures("frozen")
def test_the_entry_outlives_its_executable():
    call = warm(doubler()).entry
    gc.collect()
    np.testing.assert_array_equal(call(X), 2 * X + 1)


@pytest.mark.parametrize("drop_gil", [0, 1])
def test_concurrent_calls(drop_gil):
    executable = warm(doubler(4096, grain=64, threads=2, repeat=5))
    executable._context[ContextWords.drop_gil] = drop_gil
    inputs = [np.full(4096, i, "f4") for i in range(12)]
    with ThreadPoolExecutor(12) as workers:
        for _ in range(20):
            for x, y in zip(inputs, workers.map(executable, inputs)):
                np.testing.assert_array_equal(y, 2 * x + 1)


def test_long_runs_drop_the_gil(monkeypatch):
    """Measured by a clock of ours: nobody knows how long a run takes on a busy machine."""
    for longer in (0, 1):
        ticks = itertools.count(step=tuned.gil_nanoseconds + longer)
        clock = SimpleNamespace(perf_counter_ns=ticks.__next__, monotonic_ns=lambda: 0)
        monkeypatch.setattr(execute, "time", clock)
        assert warm(doubler())._context[ContextWords.drop_gil] == longer
    table = TableBuilder()
    table.jump(table.position + 3)
    table.end()
    assert warm(Executable(image(table, [], [])))._context[ContextWords.drop_gil] == 1


@pytest.mark.slow
def test_fork():
    executable = warm(doubler(100_000, grain=100, threads=2))
    x = np.ones(100_000, "f4")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            executable(x)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                right = all((executable(x) == 3).all() for _ in range(20))
                os._exit(0 if right and executable.entry(x) is not None else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        worker.join()


def test_without_a_known_layout_calls_still_work(monkeypatch):
    monkeypatch.setattr(numpy, "arrays_are_known", lambda: False)
    executable = warm(doubler())
    assert executable.entry(X) is None
    np.testing.assert_array_equal(executable(X), 2 * X + 1)
