"""Weights files: the big constants of a graph in one .safetensors file, keyed by their digest.

Tensors are read when they are first used, and their digest is that of the copy: what becomes of the
file afterwards changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.literal import Literal
from graphc.runtime.files.files import write_atomically
from graphc.runtime.files.stable_file import OpenFile
from graphc.runtime.files.tensors import (
    METADATA,
    decode_entry,
    decode_header,
    encode_header,
    header_length,
    raw_bytes,
)


def write_weights(path: Path, literals: Iterable[Literal]) -> None:
    """Write the data of literals, each under its digest."""
    found = sorted({item.digest: item.array for item in literals}.items())
    # Wide elements first keeps every tensor aligned to its own item size.
    found.sort(key=lambda pair: -pair[1].dtype.itemsize)
    data = (raw_bytes(np.ascontiguousarray(array)) for _, array in found)
    write_atomically(path, (encode_header(found), *data))


class Weights(Mapping[str, np.ndarray[Any, Any]]):
    """The tensors of a weights file by digest, read and checked when they are first asked for.

    Raises GraphError for a file that is missing, damaged, or whose data does not have its digest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = OpenFile(path, "weights file ")
        self._size = self._file.size
        self._start, self._entries = self._header()
        self._checked: dict[str, np.ndarray[Any, Any]] = {}

    def _damaged(self, reason: str) -> GraphError:
        return GraphError(f"weights file {self.path.name} is damaged: {reason}")

    def _header(self) -> tuple[int, dict[str, Any]]:
        try:
            head = self._file.read(0, min(self._size, 8)).tobytes()
            length = header_length(head, self._size)
            entries = decode_header(self._file.read(8, length).tobytes())
        except ValueError as error:
            raise self._damaged(str(error)) from None
        entries.pop(METADATA, None)
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
        try:
            element, shape, begin, end = decode_entry(digest, entry, self._size - self._start)
        except ValueError as error:
            raise self._damaged(str(error)) from None
        raw = self._file.read(self._start + begin, end - begin)
        if hashlib.sha256(raw.data).hexdigest()[: len(digest)] != digest:
            raise GraphError(
                f"weights file {self.path.name}: constant {digest} has other data than the graph "
                "was saved with",
                hint="restore the weights file that belongs to this graph",
            )
        return raw.view(element).reshape(shape)
