"""Jobs that several threads do at once: the caller, and helpers that live as long as the jobs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from graphc.codegen.tuning import tuned
from graphc.runtime.devices.device import processors

T = TypeVar("T")


def together(jobs: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """What the jobs return, in order. Up to `threads` threads take one after the other, no more
    than there are processors.

    Raises what the first job that fails raises; later ones may not have been started. An interrupt
    waits for no job: helpers finish the one they have and take no other.
    """
    waiting = deque(enumerate(jobs))
    results: dict[int, T] = {}
    failures: dict[int, Exception] = {}

    def work() -> None:
        while waiting:
            try:
                number, job = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                results[number] = job()
            except Exception as problem:  # noqa: BLE001 - raised below, in the caller
                failures[number] = problem
                waiting.clear()

    helpers = _started(work, min(threads, len(jobs), tuned.compile_threads, processors()) - 1)
    try:
        work()
        for helper in helpers:
            helper.join()
    finally:
        waiting.clear()
    if failures:
        raise failures[min(failures)]
    return [results[number] for number in range(len(jobs))]


def _started(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """Threads that do this, as many as the system grants."""
    helpers = []
    try:
        for _ in range(count):
            helper = threading.Thread(target=work, name="graphc compiler")
            helper.start()
            helpers.append(helper)
    except RuntimeError:  # the caller does the work of those that there are not
        pass
    return helpers
