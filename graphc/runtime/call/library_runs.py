"""Runs that call a library's routines, which hear no signal, walk on a thread while the main thread
waits for them.

    main thread     ..wait.............KeyboardInterrupt
    another one     geqrf of 3,000 x 3,000 numbers........its frame is free

So do runs that call compiled programs through Python: on the main thread an interrupt would come
where native code calls back, and nothing there can raise it.

So Ctrl-C and time limits end the wait at once.  The routine itself goes on until it is done, or the
process ends; the run stops behind it, and only then is its frame (arena, locks of variables,
arrays) given back.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from graphc.forks import fork_safe_lock
from graphc.runtime.load.program import Image
from graphc.runtime.tuning import tuned
from graphc.seams.lapack import is_called, may_share, thread_count

if TYPE_CHECKING:
    from graphc.runtime.call.frame import Frame


class _OneThread:
    """Routines compute on the thread that calls them: those of OpenBLAS wait for one another by
    spinning, and were slower on two threads for every decomposition up to 1,024 x 1,024 (qr of 128
    x 128 six times).  The number is the process's: the last run that ends puts it back.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._runs = 0
        self._before = 1

    def __enter__(self) -> None:
        with self._lock:
            if self._runs == 0:
                self._before = self._set(1)
            self._runs += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._runs -= 1
            if self._runs == 0:
                self._set(self._before)

    def _set(self, count: int) -> int:
        """Set the number of threads; what it was."""
        known = thread_count()
        if known is None:
            return 1
        tell, change = known
        before = tell()
        if before != count:
            change(count)
        return before


on_one_thread = _OneThread()
_going_on: set[LibraryRun] = set()  # whose wait was interrupted


def goes_on() -> bool:
    """Whether a routine is still at work whose result nobody waits for: at the end of the process
    its library would, for seconds."""
    return bool(_going_on)


def is_apart(image: Image) -> bool:
    """Whether runs of a program are waited for: those that call a library for what may take long,
    by the memory they use, and those that call compiled programs."""
    if image.arena_bytes >= tuned.library_bytes and any(
        is_called(code) for code, _ in image.objects
    ):
        return True
    return any(host.program is not None for host in image.hosts.values())


def shares_library(image: Image) -> bool:
    """Whether a program calls routines of LAPACK for what threads would share there."""
    return any(may_share(code) for code, _ in image.objects)


class LibraryRun:
    """A run on a thread of its own, and what is to be done when it has ended."""

    def __init__(self, walk: Callable[[Frame], int], frame: Frame) -> None:
        self._walk, self._frame = walk, frame
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name="graphc-library", daemon=True
        )
        self._lock = fork_safe_lock()
        self._done = threading.Event()
        self._then: Callable[[], None] | None = None
        self._status = 0
        self._error: BaseException | None = None

    def wait(self) -> int:
        """Walk, and wait for the end: the status.  An interrupt of the wait stops the run behind
        the routine that it is in."""
        try:
            self._thread.start()
            while not self._done.wait(tuned.listens):  # a time limit interrupts Python, not a wait
                pass
        except BaseException:
            self._frame.cancel()
            with self._lock:
                if not self._done.is_set():
                    _going_on.add(self)
            raise
        if self._error is not None:
            raise self._error
        return self._status

    def _work(self) -> None:
        try:
            self._status = self._walk(self._frame)
        except BaseException as error:  # noqa: BLE001  (it is raised where the run was begun)
            self._error = error
        with self._lock:
            self._done.set()
            _going_on.discard(self)
            then = self._then
        if then is not None:
            then()

    def join(self) -> None:
        """Wait for the end, and for what is done then."""
        self._thread.join()

    def is_over(self, then: Callable[[], None]) -> bool:
        """Whether it has ended; if not, `then` is called when it has."""
        with self._lock:
            if self._done.is_set():
                return True
            self._then = then
            return False


def walk_apart(walk: Callable[[Frame], int], frame: Frame) -> int:
    """The status of a run, which goes on by itself where the wait for it is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        return walk(frame)
    frame.apart = LibraryRun(walk, frame)
    return frame.apart.wait()
