"""Device functions for the simulator, where pointers are one-dimensional arrays: plain Python that
computes the bits of the compiled ones.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np


@cache
def _fused() -> tuple[Any, Any]:
    """fmaf and fma of C."""
    library = ctypes.CDLL("libm.so.6")
    made = library.fmaf, library.fma
    for function, kind in zip(made, (ctypes.c_float, ctypes.c_double), strict=True):
        function.argtypes, function.restype = (kind, kind, kind), kind
    return made


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once, for scalars of one float type: float32 or float64."""
    kind = type(x)
    return kind(_fused()[kind is not np.float32](x, y, z))


def load4(pointer: Any, index: int) -> tuple[Any, ...]:
    check_vector(pointer, index)
    return tuple(pointer[index + k] for k in range(4))


def check_vector(pointer: Any, index: int) -> None:
    """A GPU stops where four elements do not lie at a multiple of their size, and so must this."""
    address, nbytes = pointer.ctypes.data + index * pointer.itemsize, 4 * pointer.itemsize
    if address % nbytes:
        raise ValueError(f"{nbytes} bytes at once from address {address:#x}")


def store4(pointer: Any, index: int, x0: Any, x1: Any, x2: Any, x3: Any) -> None:
    check_vector(pointer, index)
    pointer[index : index + 4] = (x0, x1, x2, x3)


def as_array(pointer: Any, count: Any) -> Any:
    flat = pointer.view(np.ndarray)
    return flat[: math.prod(count)].reshape(count) if isinstance(count, tuple) else flat[:count]


def as_bools(pointer: Any, count: Any) -> Any:
    return as_array(pointer, count).view(np.bool_)


def offset(pointer: Any, count: int) -> Any:
    return pointer[count:]


def same(a: Any, b: Any) -> bool:
    return bool(a.ctypes.data == b.ctypes.data)


def status_of(code: Any) -> int:
    return 0 if code is None else int(code)


def bits_of(x: Any) -> Any:
    return x


def of_bits(bits: Any, like: Any) -> Any:
    return bits


def product(x: Any, y: Any) -> Any:
    return x * y


def sum_of(x: Any, y: Any) -> Any:
    return x + y
