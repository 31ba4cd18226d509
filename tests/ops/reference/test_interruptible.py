"""Long calls of NumPy in the reference engine do not keep Ctrl-C and time limits waiting."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

import graphc as gc
from graphc.cli.common import seconds_limited
from graphc.errors import LimitError
from graphc.ops.reference import interpreter
from graphc.ops.reference.interpreter import interpret
from graphc.ops.reference.interruptible import interruptible, is_long
from graphc.ops.tuning import tuned

LONG = tuned.long_call


def by_signal() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.mark.parametrize("interrupt", [by_signal, _thread.interrupt_main])
def test_an_interrupt_ends_the_wait_for_a_call_that_hears_none(
    interrupt: Callable[[], None],
) -> None:
    started, released = threading.Event(), threading.Event()

    def deaf() -> None:
        started.set()
        released.wait()

    def press() -> None:
        started.wait()
        interrupt()

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(deaf)
    released.set()


def test_results_errors_and_how_numpy_treats_errors_are_those_of_the_call() -> None:
    assert interruptible(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError), np.errstate(all="ignore"):
        interruptible(divmod, 7, 0)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        interruptible(np.divide, 1.0, 0.0)


def test_a_time_limit_ends_a_long_call() -> None:
    released = threading.Event()
    with pytest.raises(LimitError, match="time limit of"), seconds_limited(0.01):
        interruptible(released.wait)
    released.set()


def test_large_operands_and_large_results_make_a_call_long(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def noting(function: Callable[..., object], *args: object, **kwargs: object) -> object:
        called.append(function)
        return function(*args, **kwargs)

    monkeypatch.setattr(interpreter, "interruptible", noting)
    for made, is_found in (
        (gc.compile(lambda x: np.sort(x)).graph(x := np.ones(LONG)), True),
        (gc.compile(lambda x: np.sort(x)).graph(y := np.ones(9)), False),
        (gc.compile(lambda k: gc.random.bits(k, (LONG,))).graph(k := np.array([1, 2], "u4")), True),
    ):
        called.clear()
        interpret(made, [{LONG: x, 9: y, 2: k}[made.params[0].type.size]])
        assert bool(called) == is_found
    assert is_long([np.ones(LONG)], 0) and is_long([], LONG) and not is_long([1, None], 1)
