"""What device code of several ops is written with: failure, and rows and columns of elements."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.gpu import device
from graphc.ops.record.arguments import Array

Kernel = Callable[..., Any]


def _fail(status: Array, row: int, code: int) -> None:
    if status[0] == 0:
        status[0] = (row << 32) | code


fail = device(_fail)


@functools.cache
def splitter(narrow: bool) -> Kernel:
    """Device code for (row, column) of an element; dividing is cheaper where 32 bits do."""
    word = np.uint32 if narrow else np.uint64

    def split(element: int, width: int) -> tuple[Any, Any]:
        row = np.int64(word(element) // word(width))
        return row, element - row * width

    return device(split)
