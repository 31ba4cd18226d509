"""Several steps at once from threads of their own; the first failure stops the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphc.base.record import record
from graphc.learn.arguments import count, function_of, refuse

GRACE_SECONDS, GLANCE_SECONDS = 1.0, 0.05
MOST_THREADS = 4096


@record(frozen=True)
class Flight:
    """What `concurrent` has done: results in the order of the arguments, and how long it took."""

    results: tuple[Any, ...]
    seconds: float

    @property
    def per_second(self) -> float:
        """Throughput: steps per second."""
        return len(self.results) / self.seconds


def concurrent(
    function: Callable[..., Any], arguments: Iterable[Sequence[Any]], in_flight: int = 2
) -> Flight:
    """function(*a) for every `a` of `arguments`, up to `in_flight` of them at any time.

    A compiled function runs without the GIL and with a frame of its own for each step in flight, so
    results are those of one call after the other.  Steps that leave cores idle gain throughput.
    Raises what the first failing step raises, once those in flight are over or a second later.
    """
    function_of(function, "concurrent")
    count(in_flight, "steps in flight", MOST_THREADS)
    if not isinstance(arguments, Iterable):
        raise refuse("the arguments are a sequence of tuples, one for each call")
    source, lock = enumerate(arguments), threading.Lock()
    found: dict[int, Any] = {}
    stopped = threading.Event()

    def client() -> None:
        while not stopped.is_set():
            with lock:
                number, given = next(source, (-1, ()))
            if number < 0:
                return
            if not isinstance(given, Sequence) or isinstance(given, str):
                raise refuse(f"the arguments of call {number} are no tuple: {given!r:.80}")
            found[number] = function(*given)

    start = time.perf_counter()
    together([client] * in_flight, stopped.set)
    seconds = time.perf_counter() - start
    return Flight(tuple(found[k] for k in range(len(found))), seconds)


def together(tasks: Sequence[Callable[[], None]], stop: Callable[[], object]) -> None:
    """Run every task in a thread of its own and wait for all.

    The first failure calls `stop`, which has to make the other tasks end, and is raised when they
    have; tasks that hang, waiting for data for example, are not waited for longer than a second.
    An interrupt of the thread that waits calls `stop`, too.
    """
    failures: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread that waits
            failures.append(error)
            stop()

    threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in tasks]
    try:
        for thread in threads:
            thread.start()
        _wait(threads, failures)
    except BaseException:
        stop()
        raise
    if failures:
        raise failures[0]


def _wait(threads: Sequence[threading.Thread], failures: Sequence[BaseException]) -> None:
    grace = GRACE_SECONDS
    for thread in threads:
        while thread.is_alive() and grace > 0:
            thread.join(GLANCE_SECONDS)
            grace -= GLANCE_SECONDS if failures else 0
