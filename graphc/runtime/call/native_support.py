"""The native support functions of a process: step-table walker, thread pool, teams, call entry.

The object code comes with the first image that is loaded (codegen emits it); every later image of
the same interface version shares it, so that a process has one pool.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable

from graphc.errors import GraphError
from graphc.forks import fork_safe_lock
from graphc.runtime.devices.device import MOST_THREADS
from graphc.runtime.load import load
from graphc.runtime.load.layouts import CallWords
from graphc.runtime.tuning import tuned
from graphc.seams.cpython import keep_for_ever

SYMBOLS = (
    "graphc_walk",
    "graphc_run",
    "graphc_acquire",
    "graphc_entry",
    "graphc_nested",
    "graphc_call",
    "graphc_call_settings",
    "graphc_pool_start",
    "graphc_pool_reset",
    "graphc_spin",
    "graphc_team_open",
    "graphc_team_stop",
    "graphc_team_fail",
    "graphc_crew_reset",
    "graphc_reach",
    "graphc_advance",
    "graphc_ring",
)

_lock = fork_safe_lock()
_support: Support | None = None


class Support:
    """The linked support object: `run(frame)`, `acquire(flag)`, the pool and the teams.

    `walk` runs one table, `run` also those of the other devices of a team.
    """

    def __init__(self, code: bytes) -> None:
        self.code = code
        self.addresses = load.link(code, SYMBOLS)
        keep_for_ever(self.addresses)  # workers wait inside until the process ends
        native = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self.walk: Callable[[int], int] = native(self.addresses["graphc_walk"])
        self.run: Callable[[int], int] = native(self.addresses["graphc_run"])
        # Holding the GIL is cheaper than dropping it for one compare-and-swap.
        locked = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self.acquire: Callable[[int], int] = locked(self.addresses["graphc_acquire"])
        start = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        self._start = start(self.addresses["graphc_pool_start"])
        on_team = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.open_team: Callable[[int], None] = on_team(self.addresses["graphc_team_open"])
        self.stop_team: Callable[[int], None] = on_team(self.addresses["graphc_team_stop"])
        fail = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int)
        self.fail_team: Callable[[int, int, int], None] = fail(self.addresses["graphc_team_fail"])
        reach = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
        self.reach: Callable[[int, int, int, int], int] = reach(self.addresses["graphc_reach"])
        advance = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)
        self.advance: Callable[[int, int], None] = advance(self.addresses["graphc_advance"])
        ring = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.ring: Callable[[int], None] = ring(self.addresses["graphc_ring"])
        words = ctypes.CFUNCTYPE(ctypes.c_void_p)(self.addresses["graphc_call_settings"])()
        self.call_words = (ctypes.c_int64 * len(CallWords.fields)).from_address(words)
        self._reset = ctypes.CFUNCTYPE(None)(self.addresses["graphc_pool_reset"])
        self._reset_crew = ctypes.CFUNCTYPE(None)(self.addresses["graphc_crew_reset"])
        self._spin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.addresses["graphc_spin"])
        self._spins = 0
        self.threads = 1

    def start(self, threads: int) -> None:
        """Have `threads` threads (the caller's included), as far as the system grants them."""
        with _lock:
            if threads > self.threads:
                self._spins = self._spins or self._measure_spins()
                # Workers must not run the process's signal handlers.
                before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
                try:
                    self.threads = 1 + self._start(min(threads, MOST_THREADS) - 1, self._spins)
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _measure_spins(self) -> int:
        """How many pauses a worker spins before it parks."""
        probe = 2000
        begin = time.perf_counter_ns()
        self._spin(probe)
        elapsed = max(1, time.perf_counter_ns() - begin)
        return max(100, tuned.worker_spin * probe // elapsed)

    def reset(self) -> None:
        """Forget the workers: a forked child has none."""
        self._reset()
        self._reset_crew()
        self.threads = 1


def support(code: bytes) -> Support:
    """The support functions of this process, linked from `code` when they are needed first."""
    global _support
    with _lock:
        if _support is None:
            if not code:
                raise GraphError("the image carries no support object and none is loaded")
            _support = Support(code)
        return _support


def present() -> Support | None:
    """The support functions of this process, if it has any yet."""
    return _support


def _after_fork() -> None:
    if _support is not None:
        _support.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
