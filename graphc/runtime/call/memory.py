"""Aligned memory, and large results in memory that earlier ones have left.

The C library maps a large block anew for every allocation: its pages are made, and cleared, one
fault at a time while a kernel writes them, which takes longer than the kernel.  So results that
large are in mappings of our own.  One that its array leaves is offered back to the system, which
takes its pages when it needs them, and given to the next result of its size; when another size is
asked for, it goes first.  At no time do kept blocks and results need more than results did before;
where a limit counts address space, nothing is kept.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from contextlib import suppress
from typing import Any

import numpy as np

from graphc.errors import LimitError
from graphc.runtime.load.program import ALIGNMENT
from graphc.runtime.tuning import tuned

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
    if nbytes < LARGE or not _REUSES or _is_limited():
        return np.empty(shape, dtype)
    block = _block(nbytes)
    # The block is free when nothing holds what lends it to the array: views hold the array, but
    # whoever asks for the `base` of the array may hold that alone.
    lent = (ctypes.c_char * nbytes).from_buffer(block)
    weakref.finalize(lent, _leave, nbytes, block).atexit = False
    return np.ndarray(shape, dtype, buffer=lent)  # type: ignore[arg-type]


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
        with suppress(OSError):  # a system without
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _leave(nbytes: int, block: mmap.mmap) -> None:
    kept = _left.setdefault(nbytes, [])
    if len(kept) < tuned.kept_results:
        with suppress(OSError):  # the pages are locked: the block goes
            block.madvise(mmap.MADV_FREE)
            kept.append(block)


def _is_limited() -> bool:
    """Whether a kept block could be missing elsewhere although its pages are given back."""
    import resource  # not on every system

    limits = map(resource.getrlimit, (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return any(soft != resource.RLIM_INFINITY for soft, _ in limits)
