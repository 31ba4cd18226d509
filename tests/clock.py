"""What a call costs; other processes and what other tests left behind do not count."""

from __future__ import annotations

import time
from collections.abc import Callable

from graphc.collector import collector_paused


def cpu_seconds(call: Callable[[], object], tries: int = 3) -> float:
    """The least CPU time of the calling thread over some tries of a call, in seconds."""

    def once() -> float:
        with collector_paused():
            began = time.thread_time()
            call()
            return time.thread_time() - began

    return min(once() for _ in range(tries))
