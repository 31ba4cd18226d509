"""Ctrl-C while native code runs.

Python raises KeyboardInterrupt between two of its own instructions; a loop in native code has none.
Its signal handler in C does write to a wake-up pipe at once: a thread that reads it stops the runs
in flight, and Python then gets to raising.  The pipe does not say when the signal came: a run that
begins before the thread has woken up is stopped, too.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

_started: list[int] = []  # the process that the thread belongs to
_writers: list[int] = []  # our ends of pipes, also of the process we were forked from


def stop_on_interrupt(stop: Callable[[], None]) -> None:
    """Call `stop` on Ctrl-C, from now on; further calls change nothing.

    Only the main thread can ask for that.  A wake-up pipe of somebody else's (an event loop) and a
    handler of the user's own are left alone.
    """
    if os.getpid() in _started or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if before not in (-1, *_writers):
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
        return
    _started[:] = [os.getpid()]
    _writers.append(writer)
    thread = threading.Thread(target=_watch, args=(reader, stop), daemon=True)
    thread.name = "graphc-interrupt"
    thread.start()


def _watch(reader: int, stop: Callable[[], None]) -> None:
    while signals := os.read(reader, 64):
        is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_ours and signal.SIGINT in signals:
            stop()
