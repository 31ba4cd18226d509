"""Aligned memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import LimitError
from graphc.runtime.image import ALIGNMENT


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
