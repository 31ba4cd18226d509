"""Ctrl-C while native code runs.

Python raises KeyboardInterrupt between two of its own instructions; a loop in native code has none.
Its signal handler in C does write to a wake-up socket at once: a thread that reads it stops the
runs in flight, and Python then gets to raising.

The thread may wake up late, when the interrupt has been raised already and the next run has begun.
So the socket tells when each signal came, and only runs that began before it are stopped:

    run A begins   Ctrl-C   A ends, KeyboardInterrupt   run B begins   the thread stops A, not B

A run that can be stopped looks for signals after it has noted when it began: one that came before
is raised there, and so none is lost in between.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable

EVER = (1 << 63) - 1  # later than any run
_TIMESTAMPS = 35  # SO_TIMESTAMPNS of Linux: messages come with the time when they were sent
_TIME = struct.Struct("qq")  # seconds, nanoseconds
_CLOSE = 20_000  # nanoseconds between two looks at one clock, with one at the other in between

_started: list[int] = []  # the process that the thread belongs to
_sockets: list[socket.socket] = []  # also of the process we were forked from
_threads: list[threading.Thread] = []  # the one of this process


def stop_on_interrupt(stop: Callable[[int], None]) -> None:
    """Call `stop` on Ctrl-C, from now on, with the time when it came; further calls change nothing.

    Only the main thread can ask for that.  A wake-up pipe of somebody else's (an event loop) and a
    handler of the user's own are left alone.
    """
    if os.getpid() in _started or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    writer.setblocking(False)
    if sys.platform == "linux":
        reader.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if before != -1 and before not in (ours.fileno() for ours in _sockets):
        signal.set_wakeup_fd(before)
        reader.close()
        writer.close()
        return
    if not _sockets:
        atexit.register(_close)
    _started[:] = [os.getpid()]
    _sockets.extend((reader, writer))
    thread = threading.Thread(target=_watch, args=(reader, stop), daemon=True)
    thread.name = "graphc-interrupt"
    _threads[:] = [thread]
    thread.start()


def _watch(reader: socket.socket, stop: Callable[[int], None]) -> None:
    while True:
        signals, told, _, _ = reader.recvmsg(64, socket.CMSG_SPACE(_TIME.size))
        if not signals:  # the process ends
            return
        is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_ours and signal.SIGINT in signals:
            stop(_came(told))


def _close() -> None:
    """End the thread and close the sockets, as Python warns of open ones when the process ends.

    What a fork has got of its parent is closed alone: a message there would reach the parent.
    """
    known = signal.set_wakeup_fd(-1)
    if known != -1 and known not in (ours.fileno() for ours in _sockets):
        signal.set_wakeup_fd(known)
    if os.getpid() in _started:
        _sockets[-1].setblocking(True)
        _sockets[-1].send(b"")
        _threads[0].join()
    for ours in _sockets:
        ours.close()
    _sockets.clear()


def _came(told: list[tuple[int, int, bytes]]) -> int:
    """When a message was sent, on the monotonic clock; where nothing tells, later than any run."""
    times = [data for _, kind, data in told if kind == _TIMESTAMPS and len(data) == _TIME.size]
    if not times:
        return EVER
    seconds, nanoseconds = _TIME.unpack(times[0])
    return _since_boot(seconds * 1_000_000_000 + nanoseconds)


def _since_boot(moment: int) -> int:
    """A time of day on the monotonic clock, or a little later: what a look at both clocks takes."""
    while True:
        before, day, now = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if now - before < _CLOSE:
            return now - (day - moment)
