"""Arrays of other libraries in the memory of a GPU, as arguments without a copy.

They are known by `__cuda_array_interface__` (Numba's, version 2 and 3; CuPy and PyTorch have it).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import FeedError
from graphc.runtime.call.array import Array
from graphc.runtime.cuda.drivers import open_driver
from graphc.runtime.cuda.interface import ALIGNMENT, Driver
from graphc.runtime.cuda.result_memory import Lying
from graphc.runtime.load.program import Slot, dtype_name, numpy_dtype


class ForeignBlock(Lying):
    """Memory that another library owns; it lives as long as this object."""

    def __init__(self, driver: Driver, address: int, owner: object, read_only: bool) -> None:
        super().__init__(driver, address)
        self.owner = owner
        self.read_only = read_only


def slot_of(leaf: Any) -> Slot:
    """dtype and shape of an array with the interface."""
    found = leaf.__cuda_array_interface__
    return Slot("array", dtype_name(np.dtype(found["typestr"])), tuple(found["shape"]))


def adopted(leaf: Any) -> Array:
    """The array where it lies, when all that was launched before is done; a copy of a slice that
    begins where kernels cannot load it.

    Raises FeedError for one whose elements do not lie side by side.
    """
    found, slot = leaf.__cuda_array_interface__, slot_of(leaf)
    strides = found.get("strides")
    if strides is not None and tuple(strides) != _side_by_side(slot):
        raise FeedError(
            f"a {slot} of a GPU has strides {tuple(strides)}",
            hint="make it contiguous: .contiguous() of PyTorch, cupy.ascontiguousarray",
        )
    number = leaf.__dlpack_device__()[1] if hasattr(leaf, "__dlpack_device__") else 0
    driver = open_driver("", f"gpu:{number}")
    driver.enter()
    driver.rest()
    address, read_only = found["data"]
    block = ForeignBlock(driver, address, leaf, read_only)
    return Array(slot, block.copied(slot.nbytes) if address % ALIGNMENT else block)


def _side_by_side(slot: Slot) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    strides, step = [], numpy_dtype(slot.dtype).itemsize
    for extent in reversed(slot.shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
