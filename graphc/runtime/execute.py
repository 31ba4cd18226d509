"""`Executable`: a loaded image that runs on NumPy arrays.

A run takes a frame (arena, base registers, cancel flag) from the executable's list, points the
base registers at the caller's arrays, and walks the step table natively without the GIL.  Runs of
several threads each hold a frame of their own; at most `KEPT_FRAMES` are kept.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from graphc.errors import FeedError, GraphError, RunError
from graphc.runtime import load, pool
from graphc.runtime.image import ALIGNMENT, Image, Slot, dtype_name, numpy_dtype
from graphc.runtime.table import ARENA, CONSTANTS, FIRST_PARAM, most_operands

KEPT_FRAMES = 8
CANCELLED = -1

# Words of a frame; `graphc.codegen.walker` reads them.
_TABLE, _KERNELS, _WORDS, _OPERANDS, _THREADS, _CANCEL, _ROW, _KERNEL, _IN_USE = range(9)
_BASES = 16

_executables: weakref.WeakSet[Executable] = weakref.WeakSet()


class Frame:
    """The state of one run: `words` is what the walker reads, `arena` its memory."""

    __slots__ = ("address", "arena", "flag", "words")

    def __init__(self, executable: Executable) -> None:
        image = executable.image
        self.arena = aligned_bytes(image.arena_bytes)
        self.words = np.zeros(_BASES + image.bases, np.int64)
        self.address = address_of(self.words)
        self.flag = self.address + 8 * _IN_USE
        self.words[_TABLE] = address_of(image.table)
        self.words[_KERNELS] = address_of(executable.kernels)
        self.words[_WORDS] = address_of(image.words)
        self.words[_OPERANDS] = executable.most_operands
        self.words[_THREADS] = executable.threads
        self.words[_BASES + ARENA] = address_of(self.arena)
        self.words[_BASES + CONSTANTS] = address_of(image.constants)


class Executable:
    """A compiled partition, ready to run."""

    def __init__(self, image: Image, *, threads: int | None = None) -> None:
        image.check()
        self.image = image
        self.most_operands = most_operands(image.table.tolist())
        self.threads = min(image.threads, threads or pool.default_threads())
        self.support = pool.support(image.support)
        addresses: dict[str, int] = {}
        for code, symbols in image.objects:
            addresses.update(load.link(code, symbols))
        self.kernels = np.array([addresses[symbol] for symbol in image.kernels], np.int64)
        self._param_dtypes = [numpy_dtype(slot.dtype) for slot in image.params]
        self._result_dtypes = [numpy_dtype(slot.dtype) for slot in image.results]
        self._frames: tuple[Frame, ...] = ()
        self._lock = threading.Lock()
        _executables.add(self)

    @property
    def params(self) -> tuple[Slot, ...]:
        return self.image.params

    @property
    def results(self) -> tuple[Slot, ...]:
        return self.image.results

    def run(self, arrays: Sequence[np.ndarray], *, checked: bool = False) -> list[np.ndarray]:
        """Run on flat arrays, one per parameter; returns new arrays, one per result.

        `checked` promises arrays of the right dtype and shape in native, aligned, C-contiguous
        memory. Raises FeedError for arguments that do not fit and RunError when a step fails.
        """
        if not checked:
            arrays = self._fit_all(arrays)
        outputs = [
            np.empty(slot.shape, dtype)
            for slot, dtype in zip(self.image.results, self._result_dtypes, strict=True)
        ]
        frame = self._take()
        try:
            words = frame.words
            words[_BASES + FIRST_PARAM : _BASES + self.image.first_register] = [
                array.__array_interface__["data"][0] for array in (*arrays, *outputs)
            ]
            if self.threads > self.support.threads:
                self.support.start(self.threads)
            status = self.support.walk(frame.address)
            if status:
                raise self._failure(status, int(words[_ROW]))
        finally:
            self._give(frame)
        return outputs

    def cancel(self) -> None:
        """Stop the runs that are in flight; each raises RunError before its next step."""
        for frame in self._frames:
            frame.words[_CANCEL] = 1

    def _take(self) -> Frame:
        for frame in self._frames:
            if self.support.acquire(frame.flag):
                frame.words[_CANCEL] = 0
                return frame
        frame = Frame(self)
        frame.words[_IN_USE] = 1
        with self._lock:
            self._frames = (*self._frames, frame)
        return frame

    def _give(self, frame: Frame) -> None:
        if len(self._frames) > KEPT_FRAMES:
            with self._lock:
                self._frames = tuple(kept for kept in self._frames if kept is not frame)
        frame.words[_IN_USE] = 0

    def _after_fork(self) -> None:
        """Runs of other threads do not exist in a forked child."""
        self._lock = threading.Lock()
        for frame in self._frames:
            frame.words[_IN_USE] = 0

    def _fit_all(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        params = self.image.params
        if len(arrays) != len(params):
            expected = ", ".join(f"{slot.name}: {slot}" for slot in params)
            raise FeedError(
                f"{self.image.name} takes {len(params)} arrays, {len(arrays)} given",
                details=(f"expected {expected}",) if params else (),
            )
        return [
            fit(array, slot, dtype)
            for array, slot, dtype in zip(arrays, params, self._param_dtypes, strict=True)
        ]

    def _failure(self, status: int, row: int) -> RunError:
        origin = self.image.origins.get(row)
        details = (origin.node,) if origin else ()
        location = origin.location if origin else None
        if status == CANCELLED:
            return RunError("the run was cancelled", details=details, location=location)
        if status < 0:
            return RunError(f"the step table is damaged at word {row}", details=details)
        reason = self.image.reasons.get(status, f"a kernel failed with status {status}")
        return RunError(reason, details=details, location=location)


def fit(array: object, slot: Slot, dtype: np.dtype) -> np.ndarray:
    """The array, or a native, aligned, contiguous copy; FeedError if it does not fit."""
    if not isinstance(array, (np.ndarray, np.generic)):
        kind = type(array).__name__
        raise FeedError(f"argument {slot.name!r} is a {kind}; an array {slot} is expected")
    if isinstance(array, np.ma.MaskedArray):
        raise FeedError(f"argument {slot.name!r} is a masked array; a plain array is expected")
    array = np.asarray(array)
    if array.shape != slot.shape or array.dtype.newbyteorder("=") != dtype:
        given = f"{dtype_name(array.dtype)}[{','.join(map(str, array.shape))}]"
        raise FeedError(f"argument {slot.name!r} is {given}; {slot} is expected")
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        return array
    return array.astype(dtype, order="C", copy=True)


def address_of(array: np.ndarray) -> int:
    """The address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def aligned_bytes(size: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """`size` uninitialised bytes at a multiple of `alignment`; MemoryError becomes a GraphError."""
    try:
        block = np.empty(size + alignment, np.uint8)
    except MemoryError:
        raise GraphError(f"no memory for an arena of {size} bytes") from None
    start = -address_of(block) % alignment
    return block[start : start + size]


def _after_fork() -> None:
    for executable in list(_executables):
        executable._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
