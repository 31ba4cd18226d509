"""Aligned memory, and large results in memory that earlier ones have left.

The C library maps a large block anew for every allocation: its pages are made, and cleared, one
fault at a time while a kernel writes them, which takes longer than the kernel.  So results that
large are in mappings of our own.  One that its array leaves is offered back to the system, which
takes its pages when it needs them, and given to the next result of its size; when another size is
asked for, it goes first.  At no time do kept blocks and results need more than results did before.
"""

from __future__ import annotations

import math
import mmap
import weakref
from typing import Any

import numpy as np

from graphc.errors import LimitError
from graphc.runtime.image import ALIGNMENT

LARGE = 1 << 25  # bytes that the C library surely maps
_REUSES = hasattr(mmap, "MADV_FREE")
_left: dict[int, list[mmap.mmap]] = {}  # by size


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def aligned_bytes(size: int, alignment: int = ALIGNMENT) -> np.ndarray[Any, Any]:
    """`size` uninitialised bytes at a multiple of `alignment`; LimitError without memory."""
    try:
        block = np.empty(size + alignment, np.uint8)
    except MemoryError:
        raise LimitError(f"no memory for {size} bytes") from None
    start = -address_of(block) % alignment
    return block[start : start + size]


def result_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised array for a result; MemoryError without memory."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE or not _REUSES:
        return np.empty(shape, dtype)
    block = _block(nbytes)
    # Views of the array hold the array, as its base is none: only then is the block free.
    made: np.ndarray[Any, Any] = np.ndarray(shape, dtype, buffer=block)
    weakref.finalize(made, _leave, nbytes, block).atexit = False
    return made


def _block(nbytes: int) -> mmap.mmap:
    try:
        return _left[nbytes].pop()
    except (KeyError, IndexError):
        _left.clear()
    try:
        block = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError):
        raise MemoryError(f"no memory for {nbytes} bytes") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _leave(nbytes: int, block: mmap.mmap) -> None:
    block.madvise(mmap.MADV_FREE)
    _left.setdefault(nbytes, []).append(block)
