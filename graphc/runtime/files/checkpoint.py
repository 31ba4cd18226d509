"""Checkpoints: named arrays and JSON values in one safetensors file that is whole or refused.

    8 bytes      length of the header
    header       {"__metadata__": {"sha256": ..., "format": ..., "values": JSON}, name: entry, ...}
    data         the arrays, one after the other

The checksum covers every byte of the file, itself read as zeros: it stands first in the header,
at a fixed place.  Files appear under their names only when they are on the disk (`files.py`).
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphc.errors import CheckpointError, GraphError
from graphc.runtime.files.files import remove_leftovers, write_atomically
from graphc.runtime.files.tensors import (
    METADATA,
    Array,
    decode_entry,
    decode_header,
    encode_header,
    header_length,
    is_storable,
    raw_bytes,
)

FORMAT = "graphc checkpoint 1"
_START = b'{"__metadata__":{"sha256":"'
_CHECKSUM = slice(8 + len(_START), 8 + len(_START) + 64)
_ZEROS = "0" * 64

Arrays = dict[str, Array]

# ------------------------------------------------------------------------------------ one file


def snapshot(arrays: Mapping[str, Any], into: Arrays | None = None) -> Arrays:
    """Copies of arrays that later writes to them do not reach. Raises CheckpointError.

    Copies of an earlier snapshot are written over: fresh memory costs many times the copy.
    """
    made = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        element = array.dtype.newbyteorder("=")
        if not is_storable(element) or name == METADATA:
            raise CheckpointError(
                f"{name or 'the value'} has dtype {array.dtype}, which a checkpoint cannot hold",
                hint="text and other plain values belong into the JSON values of the checkpoint",
            )
        copy = None if into is None else into.get(name)
        if copy is None or copy.dtype != element or copy.shape != array.shape:
            copy = np.empty(array.shape, element)
        np.copyto(copy, array)
        made[name] = copy
    return made


def save_arrays(path: Path, arrays: Mapping[str, Array], values: str = "null") -> None:
    """Write contiguous arrays and JSON text; the file is durable once this returns.

    Raises CheckpointError when it cannot be written: what stood there before is then unchanged.
    """
    metadata = {"sha256": _ZEROS, "format": FORMAT, "values": values}
    # Wide elements first keeps every array aligned to its own item size.
    items = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    header = bytearray(encode_header(items, metadata))
    data = [raw_bytes(array) for _, array in items]
    checksum = hashlib.sha256(header)
    for piece in data:
        checksum.update(piece)
    header[_CHECKSUM] = checksum.hexdigest().encode()
    try:
        write_atomically(path, (header, *data), durable=True)
    except GraphError as error:
        raise CheckpointError(
            error.message, hint="the checkpoints written before are unchanged"
        ) from None


def json_text(values: Any) -> str:
    """Values as text. Raises CheckpointError for what JSON does not know."""
    try:
        return json.dumps(values)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"the values of a checkpoint are no JSON: {error}",
            hint="numbers, text, lists and dicts of text are; arrays belong into the tree",
        ) from None


def load_arrays(path: Path) -> tuple[Arrays, Any]:
    """The arrays, freshly allocated, and the JSON values of a file.

    Raises CheckpointError for a file that is torn, foreign or has one wrong bit.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        with path.open("rb") as file:
            return _read(file)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except (KeyError, TypeError, OverflowError, RecursionError):
        raise CheckpointError(
            f"checkpoint {path} is damaged: its header is not understood"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {error}") from None


def _read(file: BufferedReader) -> tuple[Arrays, Any]:
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    header = bytearray(start + file.read(header_length(start, size)))
    if not header.startswith(_START, 8):
        raise ValueError("it is no checkpoint of graphc")
    entries = decode_header(bytes(header[8:]))
    metadata = entries.pop(METADATA)
    expected = header[_CHECKSUM].decode("ascii", "replace")
    header[_CHECKSUM] = _ZEROS.encode()
    checksum = hashlib.sha256(header)
    arrays = {}
    for name, element, shape in _placed(entries, size - len(header)):
        array = np.empty(shape, element)
        memory = raw_bytes(array)
        if array.size and file.readinto(memory) != len(memory):
            raise ValueError("it ends too early")
        checksum.update(memory)
        arrays[name] = array
    if checksum.hexdigest() != expected:
        raise ValueError("its checksum does not match")
    if metadata["format"] != FORMAT:
        raise ValueError(f"it has the format {metadata['format']!r}, not {FORMAT!r}")
    return arrays, json.loads(metadata["values"])


def _placed(
    entries: dict[str, Any], room: int
) -> Iterator[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    """The arrays in the order of their data, which they must fill without a gap."""
    found = [(name, *decode_entry(name, entry, room)) for name, entry in entries.items()]
    found.sort(key=lambda item: item[3:])
    position = 0
    for _, _, _, begin, end in found:
        if begin != position:
            raise ValueError("its arrays do not lie side by side")
        position = end
    if position != room:
        raise ValueError("it is longer or shorter than its arrays")
    return ((name, element, shape) for name, element, shape, _, _ in found)


# ------------------------------------------------------------------------------------ a folder


class Saved(NamedTuple):
    """A checkpoint that was read back."""

    step: int
    arrays: Arrays
    values: Any
    path: Path


class Folder:
    """The newest checkpoints of a run, one file for each step that was saved.

    keep    how many are kept; older ones are removed once a newer one is safe
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 3) -> None:
        if type(keep) is not int or keep < 1:
            raise CheckpointError(f"keep must be a whole number of at least 1, got {keep!r}")
        self.path = Path(path)
        self.keep = keep
        self._damaged: set[int] = set()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot create folder {path}: {error.strerror}") from None
        remove_leftovers(self.path, "step-*.safetensors")

    def checked(self, step: Any) -> int:
        """The number of a step that can be saved next. Raises CheckpointError for any other."""
        try:
            number = operator.index(step)
        except TypeError:
            number = -1
        if number < 0:
            raise CheckpointError(f"a step is a whole number of at least 0, got {step!r}")
        later = [s for s in self.steps() if s > number and s not in self._damaged]
        if later:
            raise CheckpointError(
                f"{self.path} has a checkpoint of step {later[-1]}, after step {number}",
                hint="resume from it, or use another folder",
            )
        return number

    def file(self, step: int) -> Path:
        return self.path / f"step-{step:012d}.safetensors"

    def steps(self) -> list[int]:
        """The steps that have a file, in order; none of the files has been read."""
        names = (path.stem.removeprefix("step-") for path in self.path.glob("step-*.safetensors"))
        return sorted(int(name) for name in names if name.isdecimal())

    def save(self, step: int, arrays: Mapping[str, Array], values: str = "null") -> None:
        """Write a checkpoint, then remove those that are too many. Raises CheckpointError."""
        save_arrays(self.file(step), arrays, values)
        self._damaged.discard(step)
        good = [s for s in self.steps() if s not in self._damaged]
        for old in {*good[: -self.keep], *self._damaged}:
            self.file(old).unlink(missing_ok=True)
        self._damaged.clear()

    def clear(self) -> None:
        """Remove every checkpoint. Raises CheckpointError where the folder does not allow it."""
        for step in self.steps():
            try:
                self.file(step).unlink(missing_ok=True)
            except OSError as error:
                message = f"cannot remove {self.file(step)}: {error.strerror}"
                raise CheckpointError(message) from None
        self._damaged.clear()

    def latest(self) -> Saved | None:
        """The newest good checkpoint, None in an empty folder.

        A damaged one is passed over with a warning.  Raises CheckpointError if none is good.
        """
        damaged = []
        for step in reversed(self.steps()):
            path = self.file(step)
            try:
                arrays, values = load_arrays(path)
            except CheckpointError as error:
                damaged.append(error.message)
                self._damaged.add(step)
                continue
            for message in damaged:
                warnings.warn(f"{message}; using {path.name} instead", stacklevel=3)
            return Saved(step, arrays, values, path)
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.path} can be read",
                details=tuple(damaged),
                hint="remove the folder to start again",
            )
        return None


# ------------------------------------------------------------------------------------ writing


class Writer:
    """One write at a time, in a background thread; an error surfaces in the next call."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin a write once the one before it has ended. Raises the error of that one."""
        self.wait()
        # No daemon: a program that ends waits for the checkpoint it has begun.
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint")
        self._thread.start()

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:  # noqa: BLE001 it is raised in the thread that waits
            self._error = error

    def wait(self) -> None:
        """Return once nothing is being written. Raises the error of the last write."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error


class Clock:
    """When the next checkpoint is due: every so many steps, every so many seconds, or both."""

    def __init__(self, every_steps: int | None, every_seconds: float | None) -> None:
        for name, value in (("every_steps", every_steps), ("every_seconds", every_seconds)):
            if value is not None and not value > 0:
                raise CheckpointError(f"{name} must be above zero, got {value!r}")
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self._last_time = time.monotonic()
        self.last_step = 0

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after this step."""
        if self.every_steps is not None and step - self.last_step >= self.every_steps:
            return True
        waited = time.monotonic() - self._last_time
        return self.every_seconds is not None and waited >= self.every_seconds

    def restart(self, step: int) -> None:
        self._last_time = time.monotonic()
        self.last_step = step
