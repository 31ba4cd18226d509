"""`Reader`: batches of rows out of files, read ahead by a thread of the process that needs them.

    files ──> rows of one ──> the order of `seed` and epoch ──> batches, `ahead` of them waiting

Where a reader is, is not its own: a call says from where on it wants rows (epoch, file, row), and
gets the place behind them.  So a program keeps the place in a variable, which is saved, restored
and put back after a failure with all others; a call for another place than the next starts anew.
"""

from __future__ import annotations

import glob
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import EndOfData, GraphError, RunError
from graphc.runtime.input.formats import DAMAGES, FORMATS, image_file
from graphc.runtime.input.queues import Queue
from graphc.runtime.input.resources import Array, Arrays, Column, columns_of, ended, holding

Place = tuple[int, int, int]  # epoch, file, row: each in the order of that epoch


class Reader:
    """Rows of files in batches; see `gc.Reader` for the settings."""

    def __init__(
        self,
        files: Sequence[str],
        format: str,
        columns: Sequence[Sequence[Any]],
        batch: int,
        epochs: int,
        shuffle: bool,
        seed: int,
        ahead: int,
        part: int,
        parts: int,
    ) -> None:
        self.files, self.batch, self.epochs, self.ahead = _found(files), batch, epochs, ahead
        self.columns = columns_of(columns)
        self.rows_of = FORMATS[format]
        if format == "image":
            folders = sorted({str(Path(name).parent) for name in self.files})
            self.rows_of = partial(image_file, folders=folders)
        self.deals_files = format in ("image", "bytes")  # which are one row each
        self.seed = seed if shuffle else None
        self.part, self.parts = part, parts
        self.lock = threading.Lock()
        self.next: Place | None = None
        self.waiting: Queue | None = None
        self.trouble: BaseException | None = None
        self.held: tuple[str, list[Array]] = ("", [])

    def call(self, method: str, arrays: Arrays) -> Arrays:
        """The rows from a place on, and the place behind them."""
        epoch, file, row = map(int, arrays[0])
        with holding(self.lock):
            if self.next != (epoch, file, row):
                self._start((epoch, file, row))
            assert self.waiting is not None
            try:
                ((behind, *rows),) = self.waiting.dequeue(1)
            except EndOfData:
                self.next = None
                if self.trouble is not None:
                    raise self.trouble from None
                raise ended("the reader") from None
            except BaseException:
                self.next = None  # the next call starts where the program is
                raise
            self.next = tuple(map(int, behind))  # type: ignore[assignment]
            return [behind, *rows]

    def close(self) -> None:
        if self.waiting is not None:
            self.waiting.close(cancel=True)

    # -- the thread

    def _start(self, place: Place) -> None:
        self.close()
        self.trouble = None
        self.waiting = queue = Queue("fifo", self.ahead, [])
        threading.Thread(target=self._fill, args=(queue, place), daemon=True).start()

    def _fill(self, queue: Queue, place: Place) -> None:
        try:
            for behind, rows in self.batches(place):
                queue.enqueue((np.array(behind, np.int64), *rows))
        except GraphError as error:
            if not queue.is_cancelled:
                self.trouble = error
        except Exception as error:  # noqa: BLE001 it is raised by whoever asks for rows
            self.trouble = RunError(f"the reader failed: {type(error).__name__}: {error}")
        queue.close()

    def batches(self, place: Place) -> Iterator[tuple[Place, list[Array]]]:
        """Whole batches from a place on, over the ends of files and epochs."""
        held: list[list[Array]] = []
        count = 0
        for (epoch, file, start), rows in self._pieces(place):
            size, taken = len(rows[0]), 0
            while count + size - taken >= self.batch:
                stop = taken + self.batch - count
                held.append([column[taken:stop] for column in rows])
                made = [np.concatenate(parts) for parts in zip(*held, strict=True)]
                yield (epoch, file, start + stop), made
                held, count, taken = [], 0, stop
            if taken < size:
                held.append([column[taken:] for column in rows])
                count += size - taken

    def _pieces(self, place: Place) -> Iterator[tuple[Place, list[Array]]]:
        """The rest of a file, then other files, each in the order of its epoch."""
        epoch, file, row = place
        while not self.epochs or epoch < self.epochs:
            found = False
            for number in range(file, len(self.files)):
                if self.deals_files and number % self.parts != self.part:
                    continue
                name = self.files[self._order(len(self.files), epoch, -1)[number]]
                rows = self._read(name)
                mine = slice(None) if self.deals_files else slice(self.part, None, self.parts)
                order = self._order(len(rows[0]), epoch, number)[mine][row:]
                if len(order):
                    found = True
                    yield (epoch, number, row), [column[order] for column in rows]
                row = 0
            if not found and not file:
                return  # files without rows, for ever
            epoch, file = epoch + 1, 0

    def _order(self, count: int, epoch: int, file: int) -> Array:
        """A permutation by the seed, the epoch and the file: equal on every NumPy version."""
        if self.seed is None:
            return np.arange(count)
        key = np.array([self.seed, (epoch << 24) + file + 1], np.uint64)
        return np.argsort(np.random.Philox(key=key).random_raw(count), kind="stable")

    def _read(self, name: str) -> list[Array]:
        """The columns of a file, kept until another is read. Raises RunError that names it."""
        if self.held[0] == name:
            return self.held[1]
        try:
            found = self.rows_of(name, self.columns)
            _check(found, self.columns)
        except OSError as error:
            raise RunError(f"cannot read {name}: {error.strerror or error}") from None
        except RunError as error:
            raise RunError(f"{name}: {error.message}", hint=error.hint) from None
        except DAMAGES as error:
            raise RunError(f"{name} is damaged or of another format: {error}") from None
        self.held = name, found
        return found


def _check(found: Sequence[Array], columns: Sequence[Column]) -> None:
    """Raise RunError unless a file has what it should."""
    lengths = {column.name: len(array) for array, column in zip(found, columns, strict=True)}
    if len({*lengths.values()}) != 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise RunError(f"its arrays differ in their rows: {listed}")
    for array, column in zip(found, columns, strict=True):
        if array.shape[1:] != column.shape:
            raise RunError(
                f"{column.name!r} has rows of {list(array.shape[1:])}, not of {list(column.shape)}"
            )


def _found(patterns: Sequence[str]) -> tuple[str, ...]:
    """The files of some names and patterns, those of a pattern in the order of their names. Raises
    RunError for a pattern without files; one that is no pattern may come later."""
    found: list[str] = []
    for each in patterns:
        matches = sorted(glob.glob(each)) if glob.has_magic(each) else [each]
        if not matches:
            raise RunError(f"no file is named {each}")
        found += matches
    return tuple(found)
