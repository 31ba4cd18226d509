"""What native code and a device hand to Python: calls, and the status that kernels write."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
_CODE = 0xFFFFFFFF


def callback(function: Callable[..., int]) -> tuple[Any, np.ndarray[Any, Any]]:
    """A function as the only kernel of a frame, and the table of kernels; both to be kept."""
    made = _KERNEL(function)
    return made, np.array([ctypes.cast(made, ctypes.c_void_p).value], np.int64)


def status_of(word: int) -> tuple[int, int]:
    """The row that failed first and its code; the code is 0 if none did."""
    code = word & _CODE
    return word >> 32, code - (code >> 31 << 32)
