"""Threads that take turns after nearly every instruction of Python."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def at_once(*works: Callable[[int], object], times: int = 1) -> None:
    """Begin each piece of work in a thread of its own, all in one moment; each is given 0, 1, ...
    Raises what the first of them that fails raises."""
    start = threading.Barrier(len(works))

    def work(job: Callable[[int], object]) -> None:
        start.wait()
        for number in range(times):
            job(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(works)) as pool:
            for made in [pool.submit(work, job) for job in works]:
                made.result()
    finally:
        sys.setswitchinterval(interval)
