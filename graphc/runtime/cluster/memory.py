"""Memory that several processes have: it has no name, and goes with the last one that holds it."""

from __future__ import annotations

import itertools
import mmap
import os
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from graphc.errors import GraphError, LimitError
from graphc.runtime.call.memory import address_of

_numbers = itertools.count()


class Block:
    """Zeroed memory behind a file descriptor that other processes can be handed.

    `number` is its own in the process that made it.
    """

    def __init__(self, size: int, number: int, descriptor: int) -> None:
        self.size, self.number, self.descriptor = size, number, descriptor
        weakref.finalize(self, os.close, descriptor)
        try:
            memory = mmap.mmap(descriptor, max(1, size))
        except (OSError, ValueError) as error:
            raise LimitError(f"no memory for {size} bytes that processes share: {error}") from None
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)
        self.address = address_of(self.bytes)

    def words(self, start: int, count: int) -> np.ndarray[Any, Any]:
        """So many 64-bit words from a byte on."""
        return self.bytes[start : start + 8 * count].view(np.int64)


def new_block(size: int) -> Block:
    """Raises GraphError where the system has no such memory, LimitError where it has not enough."""
    return Block(size, next(_numbers), _descriptor(max(1, size)))


def _descriptor(size: int) -> int:
    if not hasattr(os, "memfd_create"):
        raise GraphError("workers on this machine need Linux: they share memory without a name")
    made = above_standard(os.memfd_create("graphc", os.MFD_CLOEXEC))
    try:
        os.posix_fallocate(made, 0, size)  # else a process is killed where memory is short
    except OSError as error:
        os.close(made)
        raise LimitError(f"no memory for {size} bytes that processes share: {error}") from None
    return made


def above_standard(descriptor: int) -> int:
    """The same file with a number that no process takes for its standard input, output or errors:
    one that was started without these gets such numbers, and cannot hand them on."""
    if descriptor > 2:
        return descriptor
    import fcntl

    made = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return made


def contents(file: int) -> np.ndarray[Any, Any]:
    """The words of a file in memory, which is closed."""
    with os.fdopen(file, "rb") as opened:
        opened.seek(0)
        return np.frombuffer(opened.read(), np.int64)


def file_of(pieces: Iterable[Any]) -> int:
    """A file in memory with these contents; its descriptor, which the caller closes."""
    made = above_standard(os.memfd_create("graphc", os.MFD_CLOEXEC))
    with os.fdopen(os.dup(made), "wb") as file:
        file.writelines(pieces)
    return made
