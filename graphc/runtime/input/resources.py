"""Resources: what lives beside programs of a process, and is called by them: queues and readers.

A resource is known by a text that says all about it, so that any process makes its own when a
program calls it first.  Calls may wait; who waits looks at `stopped` again and again, so that a run
that is cancelled, or fails elsewhere, leaves nobody behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from graphc.base.record import record
from graphc.errors import EndOfData, RunError

LOOK_SECONDS = 0.02  # between two looks at whether the run is to stop
Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]
_run = threading.local()


class Resource(Protocol):
    """What a program may call."""

    def call(self, method: str, arrays: Arrays) -> Arrays: ...

    def close(self) -> None: ...


@record(frozen=True)
class Column:
    """One array of an item or a row: its name, dtype and shape."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def fitted(self, array: Array) -> Array:
        """Numbers as this has them: integers where all fit, floats rounded to its precision. Raises
        RunError for another kind of numbers, and for one that does not fit."""
        given, wanted = array.dtype, self.dtype
        if given == wanted:
            return array
        if not suits(given, wanted):
            raise RunError(
                f"{self.name!r} is of {given}, not of {wanted}",
                hint=f"say what becomes of the numbers where it is made: x.astype({wanted.name!r})",
            )
        with np.errstate(over="ignore", invalid="ignore"):
            made = array.astype(wanted)
        if np.can_cast(given, wanted):
            return made
        is_whole = wanted.kind in "iu"
        lost = (made != array) if is_whole else np.isinf(made) & np.isfinite(array)
        if lost.any():
            at = tuple(map(int, np.argwhere(lost)[0]))
            place = f" at {list(at)}" if at else ""
            raise RunError(f"{self.name!r} is {array[at]}{place}, which {wanted} cannot hold")
        return made


def suits(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Are numbers of one dtype numbers of the kind of another? Bools are integers, those are real,
    and those complex; never the other way."""
    ranks = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}  # V: bf16, which NumPy does not know
    numbers = all(d.kind in ranks and d.names is None for d in (given, wanted))
    return numbers and ranks[given.kind] <= ranks[wanted.kind]


def columns_of(listed: Sequence[Sequence[Any]]) -> tuple[Column, ...]:
    """The columns that a text lists as [name, dtype, shape]."""
    return tuple(Column(name, np.dtype(kind), tuple(shape)) for name, kind, shape in listed)


# ------------------------------------------------------------------------------------------ waiting


@contextmanager
def stopping(stopped: Callable[[], bool]) -> Iterator[None]:
    """What waits in this thread meanwhile looks whether it is to stop."""
    before = getattr(_run, "stopped", None)
    _run.stopped = stopped
    try:
        yield
    finally:
        _run.stopped = before


def wait_for(changed: threading.Condition, is_there: Callable[[], bool]) -> None:
    """Wait, with the lock of the condition, until something holds. Raises RunError when the run
    that waits is to stop."""
    stopped = getattr(_run, "stopped", None)
    while not is_there():
        if stopped is None:
            changed.wait()
            continue
        if stopped():
            raise RunError("the run was cancelled")
        changed.wait(LOOK_SECONDS)


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock, which others may have for long. Raises RunError as `wait_for`."""
    stopped = getattr(_run, "stopped", None)
    while not lock.acquire(timeout=LOOK_SECONDS if stopped is not None else -1):
        if stopped is not None and stopped():
            raise RunError("the run was cancelled")
    try:
        yield
    finally:
        lock.release()


def ended(what: str) -> EndOfData:
    return EndOfData(f"{what} has no more data")
