"""Constant data: a dtype, a shape and bits.

Small literals are keyed by their bits, so 1, True, 1.0, -0.0 and 0.0 stay apart and equal NaNs
meet.  Large ones are keyed by the identity of their array: hashing megabytes at trace time would
cost more than a missed merge.  A literal read from text without its weights file has a digest and
no data.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.types import Type, dtype, tensor

SMALL_BYTES = 128


class Literal:
    """A read-only array. `type` is its tensor type; equality is by bits (small) or by array
    (large).
    """

    __slots__ = ("_array", "_digest", "key", "type")

    def __init__(self, array: np.ndarray[Any, Any] | None, kind: Type, digest: str | None) -> None:
        self._array = array
        self._digest = digest
        self.type = kind
        if array is None:
            self.key: tuple[Any, ...] = (kind, digest)
        elif array.nbytes <= SMALL_BYTES:
            self.key = (kind, array.tobytes())
        else:
            self.key = (kind, id(array))

    @property
    def is_small(self) -> bool:
        return self._array is not None and self._array.nbytes <= SMALL_BYTES

    @property
    def has_data(self) -> bool:
        return self._array is not None

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The data. Raises GraphError when only the digest is known."""
        if self._array is None:
            raise GraphError(
                f"the data of constant {self.digest} ({self.type}) is not loaded",
                hint="load the graph from its .gir file with the .safetensors file beside it",
            )
        return self._array

    @property
    def digest(self) -> str:
        """The first 32 hex digits of the sha256 of the bytes in row-major order."""
        if self._digest is None:
            assert self._array is not None
            data = np.ascontiguousarray(self._array).view(np.uint8).reshape(-1)
            self._digest = hashlib.sha256(data.data).hexdigest()[:32]
        return self._digest

    def resolved(self, array: np.ndarray[Any, Any]) -> Literal:
        """The same literal with its data."""
        return Literal(array, self.type, self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Literal({self.type}, {self.digest[:8]})"


def literal(value: Any, element: Any = None) -> Literal:
    """A literal of anything NumPy can turn into an array of a supported dtype; the data is copied
    unless it is an already read-only contiguous array."""
    array = np.asarray(value)
    kind = dtype(element) if element is not None else dtype(array.dtype)
    if array.dtype != kind.numpy or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).reshape(array.shape).astype(kind.numpy)
    elif array.flags.writeable:
        array = array.copy()
    array.flags.writeable = False
    return Literal(array, tensor(kind, array.shape), None)
