"""Runs that call LAPACK: the wait for them can be interrupted, their frames cannot be taken."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import RunError
from graphc.ops import tuning as ops_tuning
from graphc.runtime.call import library_runs
from graphc.runtime.load.layouts import FrameWords
from graphc.runtime.tuning import tuned

X = np.random.default_rng(0).standard_normal((40, 40))


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "library_bytes", 0)
    monkeypatch.setattr(ops_tuning.tuned, "alone_elements", 0)


def factors(x: Any) -> Any:
    return tuple(np.linalg.qr(x))


def test_runs_of_large_programs_alone_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gc.compile(factors).executable(X)
    assert library_runs.is_apart(found.image)
    monkeypatch.setattr(tuned, "library_bytes", found.image.arena_bytes + 1)
    assert not library_runs.is_apart(found.image)
    assert not library_runs.is_apart(gc.compile(lambda x: x @ x).executable(X).image)


@pytest.mark.parametrize(
    ("shape", "alone"), [((20, 20), True), ((4096, 2), True), ((64, 64), True), ((65, 65), False)]
)
def test_small_matrices_are_left_to_native_code(
    shape: tuple[int, int], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenBLAS takes no second thread for them, whatever its number is."""
    monkeypatch.setattr(ops_tuning.tuned, "alone_elements", 8192)
    found = gc.compile(factors, sizes="exact").executable(np.ones(shape))
    assert library_runs.shares_library(found.image) is not alone


def test_routines_compute_on_the_thread_that_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of threads is NumPy's, too: the last run that ends puts it back."""
    count, seen = [6], []

    def change(number: int) -> None:
        count[0] = number

    monkeypatch.setattr(library_runs, "thread_count", lambda: (lambda: count[0], change))
    with library_runs.on_one_thread:
        seen.append(count[0])
        with library_runs.on_one_thread:
            seen.append(count[0])
        seen.append(count[0])
    assert seen == [1, 1, 1] and count == [6]
    found = gc.compile(factors).executable(X)
    monkeypatch.setattr(
        found.part, "go", lambda frame, go=found.part.go: seen.append(count[0]) or go(frame)
    )
    found(X)
    assert seen[3:] == [1] and count == [6]
    with pytest.raises(RunError, match="does not converge"):
        gc.compile(lambda x: np.linalg.eigvalsh(x))(np.full((40, 40), np.nan))
    assert count == [6]


def test_a_library_without_threads_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_runs, "thread_count", lambda: None)
    for made, wanted in zip(gc.compile(factors)(X), np.linalg.qr(X)):
        np.testing.assert_allclose(made, wanted, atol=1e-12)


def test_results_and_errors_are_those_of_other_runs() -> None:
    for made, wanted in zip(gc.compile(factors)(X), np.linalg.qr(X)):
        np.testing.assert_allclose(made, wanted, atol=1e-12)
    with pytest.raises(RunError, match="does not converge"):
        gc.compile(lambda x: np.linalg.eigvalsh(x))(np.full((40, 40), np.nan))


def test_an_interrupt_ends_the_wait_and_not_the_use_of_the_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = gc.compile(factors).executable(X)
    begun, go_on = threading.Event(), threading.Event()

    def walk(frame: Any) -> int:
        begun.set()
        go_on.wait()
        return 0

    monkeypatch.setattr(found, "_go", walk)
    main = threading.main_thread().ident
    assert main is not None
    sender = threading.Thread(
        target=lambda: (begun.wait(), signal.pthread_kill(main, signal.SIGINT))
    )
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        found.run([X])
    sender.join()
    (frame,) = found.frames
    run = frame.apart
    assert run is not None
    assert library_runs.goes_on()
    assert frame.words[FrameWords.in_use]
    assert frame.words[FrameWords.cancel], "the run stops behind the routine"
    assert frame.arrays, "what it reads and writes is kept"

    monkeypatch.undo()  # another run meanwhile has another frame
    np.testing.assert_allclose(found.run([X])[0], np.linalg.qr(X)[0], atol=1e-12)
    go_on.set()
    run.join()
    assert not library_runs.goes_on()
    assert not frame.words[FrameWords.in_use]
    assert frame.apart is None
    assert not frame.arrays


def test_other_threads_walk_by_themselves() -> None:
    compiled, made = gc.compile(factors), []
    thread = threading.Thread(target=lambda: made.append(compiled(X)))
    thread.start()
    thread.join()
    np.testing.assert_allclose(made[0][0], np.linalg.qr(X)[0], atol=1e-12)
