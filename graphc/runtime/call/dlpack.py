"""DLPack capsules: how libraries hand one another the memory of an array without a copy.

The structs are those of DLPack 0.8 (dlpack.h), unversioned.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from graphc.seams import cpython

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """A tensor whose memory lives until its deleter is called."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_exported: dict[int, Any] = {}  # what capsules point to
_numbers = count(1)


def _delete(managed: Any) -> None:
    _exported.pop(managed.contents.context, None)


def _discard(capsule: int) -> None:
    """Delete what nobody has taken: whoever takes it renames the capsule."""
    address = cpython.pointer_at(capsule, _NAME)
    if address:
        _delete(ctypes.cast(address, ctypes.POINTER(_Managed)))


_DELETE, _DISCARD = _Deleter(_delete), _Destructor(_discard)


def capsule(
    address: int, dtype: np.dtype[Any], shape: Sequence[int], device: tuple[int, int], owner: object
) -> Any:
    """A capsule over contiguous memory of a device, which `owner` keeps."""
    number = next(_numbers)
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    code = _BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind]
    tensor = _Tensor(address, *device, len(shape), code, 8 * dtype.itemsize, 1, extents, None, 0)
    managed = _Managed(tensor, number, _DELETE)
    _exported[number] = managed, extents, owner
    discard = ctypes.cast(_DISCARD, ctypes.c_void_p).value
    return cpython.new_capsule(ctypes.addressof(managed), _NAME, discard)
