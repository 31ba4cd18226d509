"""`Pending`: a run that nobody has waited for. Its results wait when they are read.

    y = f.resident(x)     launched; the frame of the run stays its own until somebody waits
    z = g.resident(y)     launched behind it; the run knows that of y
    np.asarray(z)         waits for the run of g; had that of f failed, the error is raised here

All runs on a GPU go through one stream.  So what reads an array there, or takes the memory of one
that is gone, comes after what was launched before, and only the host has to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.runtime.call.execute import Executable
    from graphc.runtime.call.frame import Frame

_numbers = count()


class Pending:
    """A run and those it has taken arguments from, `after` which it ran.

    It fails where one of them has: its arguments were no results.
    """

    __slots__ = ("_executable", "_frame", "after", "failure", "number")

    def __init__(self, executable: Executable, frame: Frame, after: list[Pending]) -> None:
        self.number = next(_numbers)
        self.after = after
        self.failure: Callable[[], BaseException] | None = None
        self._executable: Executable | None = executable
        self._frame: Frame | None = frame

    @property
    def is_over(self) -> bool:
        """Whether somebody has waited for it."""
        return self._frame is None

    def wait(self) -> None:
        """Wait for its end. Raises what it failed with."""
        if self._frame is not None:
            self.end()
        if self.failure is not None:
            raise self.failure()

    def end(self) -> None:
        """Wait for its end, and for those of all before it; another run may have its frame then."""
        if not self.after:
            self._end()
            return
        found, left = {self.number: self}, [self]
        while left:
            earlier = [run for run in left.pop().after if run.number not in found]
            found.update((run.number, run) for run in earlier)
            left += earlier
        for _, run in sorted(found.items()):
            run._end()

    def _end(self) -> None:
        frame, executable = self._frame, self._executable
        if frame is None or executable is None:
            return
        with frame.own.lock:
            if self._frame is None:  # another thread was here
                return
            failure = frame.own.outcome()
            failures = [run.failure for run in self.after if run.failure is not None]
            self.failure = failures[0] if failures else failure
            self.after = []
            self._frame = self._executable = None
            executable.give(frame)
            executable.ended = (frame,)
