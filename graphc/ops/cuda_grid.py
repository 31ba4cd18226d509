"""What device code of several ops is written with: launches over elements, failure, places."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.gpu import SIMULATED, device
from graphc.ir.op import CudaCall

Kernel = Callable[..., Any]
THREADS = 4 if SIMULATED else 256
BLOCKS = 2 if SIMULATED else 2048  # kernels stride over more elements than that


def over(function: Kernel, elements: int, params: tuple[int, ...]) -> CudaCall:
    """A launch of a kernel that strides over elements."""
    return CudaCall(function, max(1, min(BLOCKS, -(-elements // THREADS))), THREADS, params)


def _fail(status: Any, row: int, code: int) -> None:
    if status[0] == 0:
        status[0] = (row << 32) | code


fail = device(_fail)


@functools.cache
def splitter(elements: int) -> Kernel:
    """Device code for (row, column) of an element; dividing is cheaper where 32 bits do."""
    return _splitter(elements < 1 << 32)


@functools.cache
def _splitter(narrow: bool) -> Kernel:
    word = np.uint32 if narrow else np.uint64

    def split(element: int, width: int) -> tuple[Any, Any]:
        row = np.int64(word(element) // word(width))
        return row, element - row * width

    return device(split)
