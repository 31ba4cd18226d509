"""A file that is read piece by piece into memory of our own.

A mapping would show what another process writes to the file later, and end the program where it is
cut off; what was read here, and checked, stays as it is.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphc.errors import GraphError, LimitError
from graphc.runtime.call.memory import aligned_bytes

T = TypeVar("T")
_PIECE = 1 << 30  # bytes; the system reads no more than about twice as many at a time


class OpenFile:
    """A regular file, which messages call a `kind` of file.

    Raises GraphError for one that is missing, or is a device or pipe.
    """

    def __init__(self, path: Path, kind: str = "") -> None:
        self.name = path.name
        try:
            # A pipe would be waited for here, before anything is known about it.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise GraphError(f"cannot read {kind}{path}: {error.strerror}") from None
        weakref.finalize(self, os.close, self._descriptor)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise GraphError(
                f"{kind}{path} is not a regular file", hint="a device or pipe may never end"
            )
        self.size = found.st_size
        self.stamp = found.st_ino, found.st_size, found.st_mtime_ns

    def read(self, start: int, nbytes: int) -> np.ndarray[Any, Any]:
        """These bytes, in memory that is aligned for any element, to be read only.

        Raises GraphError for a file that has become shorter, and LimitError without memory.
        """
        made = aligned_bytes(nbytes)
        done = 0
        while done < nbytes:
            piece = made[done : done + _PIECE].data
            done += self._some(partial(os.preadv, self._descriptor, [piece], start + done))
        made.flags.writeable = False
        return made

    def whole(self) -> bytes:
        """All of the file, for who takes bytes alone, of which `read` would make a copy.

        Raises as `read` does.
        """
        pieces: list[bytes] = []
        done = 0
        while done < self.size:
            count = min(_PIECE, self.size - done)
            pieces.append(self._some(partial(os.pread, self._descriptor, count, done)))
            done += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _some(self, read: Callable[[], T]) -> T:
        """What reading gives: some bytes at least, or how many there were."""
        try:
            found = read()
        except OSError as error:
            raise GraphError(f"cannot read {self.name}: {error.strerror}") from None
        except MemoryError:
            raise LimitError(f"no memory for {self.size} bytes") from None
        if not found:
            raise GraphError(f"{self.name} has become shorter while it was read")
        return found
