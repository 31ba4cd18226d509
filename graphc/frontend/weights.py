"""Weights files: the big constants of a graph in one .safetensors file, keyed by their digest.

The format is 8 bytes of header length, a JSON header {name: dtype, shape, data_offsets}, the data.
Tensors are mapped from the file, so that loading costs one hash of what is used and no copy.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.literal import Literal
from graphc.ir.types import DTYPES, DType
from graphc.runtime.files import write_atomically

MOST_HEADER = 100_000_000
ALIGNMENT = 64

_CODES = {
    "BOOL": "bool", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64", "U8": "u8",
    "U16": "u16", "U32": "u32", "U64": "u64", "F16": "f16", "BF16": "bf16", "F32": "f32",
    "F64": "f64", "C64": "c64", "C128": "c128",
}  # fmt: skip
_NAMES = {name: code for code, name in _CODES.items()}


def write_weights(path: Path, literals: Iterable[Literal]) -> None:
    """Write the data of literals, each under its digest."""
    found = sorted({item.digest: item for item in literals}.items())
    # Wide elements first keeps every tensor aligned to its own item size.
    found.sort(key=lambda pair: -pair[1].type.dtype.itemsize)
    header: dict[str, Any] = {}
    position = 0
    for digest, item in found:
        end = position + item.type.nbytes
        header[digest] = {
            "dtype": _NAMES[item.type.dtype.name],
            "shape": list(item.type.dims),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    write_atomically(path, _pieces(text, [item for _, item in found]))


def _pieces(header: bytes, literals: Iterable[Literal]) -> Iterator[Any]:
    yield len(header).to_bytes(8, "little")
    yield header
    for item in literals:
        if item.array.size:
            yield np.ascontiguousarray(item.array).reshape(-1).view(np.uint8).data


class Weights(Mapping[str, np.ndarray[Any, Any]]):
    """The tensors of a weights file by digest, mapped from the file and checked when first read.

    Raises GraphError for a file that is missing, damaged, or whose data does not have its digest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise GraphError(f"weights file {path.name} is not a regular file")
        try:
            with path.open("rb") as file:
                self._size = os.fstat(file.fileno()).st_size
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else b""
        except OSError as error:
            raise GraphError(f"cannot read weights file {path}: {error.strerror}") from None
        self._data = np.frombuffer(data, np.uint8)
        self._start, self._entries = self._header()
        self._checked: dict[str, np.ndarray[Any, Any]] = {}

    def _damaged(self, reason: str) -> GraphError:
        return GraphError(f"weights file {self.path.name} is damaged: {reason}")

    def _header(self) -> tuple[int, dict[str, Any]]:
        length = int.from_bytes(self._data[:8].tobytes(), "little") if self._size >= 8 else 0
        if not 2 <= length <= min(self._size - 8, MOST_HEADER):
            raise self._damaged("its header does not fit into it")
        try:
            entries = json.loads(self._data[8 : 8 + length].tobytes())
        except (ValueError, RecursionError):
            raise self._damaged("its header is not JSON") from None
        if not isinstance(entries, dict):
            raise self._damaged("its header is not a JSON object")
        entries.pop("__metadata__", None)
        return 8 + length, entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, digest: object) -> bool:
        return digest in self._entries

    def __getitem__(self, digest: str) -> np.ndarray[Any, Any]:
        found = self._checked.get(digest)
        if found is None:
            found = self._checked[digest] = self._read(digest, self._entries[digest])
        return found

    def _read(self, digest: str, entry: Any) -> np.ndarray[Any, Any]:
        element, shape, begin, end = self._entry(digest, entry)
        raw = self._data[self._start + begin : self._start + end]
        if hashlib.sha256(raw.data).hexdigest()[: len(digest)] != digest:
            raise GraphError(
                f"weights file {self.path.name}: constant {digest} has other data than the graph "
                "was saved with",
                hint="restore the weights file that belongs to this graph",
            )
        if (self._start + begin) % element.itemsize:
            raw = raw.copy()
        return raw.view(element.numpy).reshape(shape)

    def _entry(self, digest: str, entry: Any) -> tuple[DType, tuple[int, ...], int, int]:
        try:
            element = DTYPES[_CODES[entry["dtype"]]]
            shape = tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            numbers = [*shape, begin, end]
            sound = all(type(n) is int and n >= 0 for n in numbers)
        except (KeyError, TypeError, ValueError):
            raise self._damaged(f"the entry of {digest[:40]!r} is not understood") from None
        if not sound or end > self._size - self._start:
            raise self._damaged(f"constant {digest[:40]!r} lies outside the file")
        if end - begin != math.prod(shape) * element.itemsize:
            raise self._damaged(f"constant {digest[:40]!r} has the wrong size")
        return element, shape, begin, end
