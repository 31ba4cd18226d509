"""Memory that ends where a page ends that may not be touched, and holds rubbish before."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphc.codegen.table import steps
from graphc.runtime.call import execute, frame

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE
rubbish = 0xA7  # the byte that memory holds before it is written


def fenced(nbytes: int) -> np.ndarray[Any, Any]:
    """So many bytes of rubbish between two pages that cannot be touched; they end at the second."""
    pages = -(-nbytes // _PAGE)
    area = mmap.mmap(-1, (pages + 2) * _PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for start in (base, base + (pages + 1) * _PAGE):
        assert _LIBC.mprotect(ctypes.c_void_p(start), _PAGE, 0) == 0
    inside = np.frombuffer(area, np.uint8, pages * _PAGE, _PAGE)
    inside[...] = rubbish
    return inside[pages * _PAGE - nbytes :]


def fenced_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    return fenced(nbytes).view(dtype).reshape(shape)


def fenced_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = fenced_array(array.shape, array.dtype)
    made[...] = array
    return made


@contextmanager
def everywhere() -> Iterator[None]:
    """Arenas, results and constants are fenced."""
    kept = frame.aligned_bytes, frame.result_array, execute.result_array
    constants = steps.TableWriter.constants
    frame.aligned_bytes = lambda size, alignment=64: fenced(-(-size // alignment) * alignment)
    frame.result_array = execute.result_array = fenced_array
    steps.TableWriter.constants = lambda self: fenced_copy(constants(self))
    try:
        yield
    finally:
        frame.aligned_bytes, frame.result_array, execute.result_array = kept
        steps.TableWriter.constants = constants
