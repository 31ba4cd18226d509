"""The safetensors format, which weights files and checkpoints share.

A file is 8 bytes of header length, a JSON header {name: dtype, shape, data_offsets}, the data.
What is wrong with a file is a ValueError that completes "the file is damaged: ...".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.files.stable_file import OpenFile
from graphc.runtime.load.program import ALIGNMENT, dtype_name, numpy_dtype

Array = np.ndarray[Any, Any]

MOST_HEADER = 100_000_000
METADATA = "__metadata__"


def is_storable(element: np.dtype[Any]) -> bool:
    """Whether the format has a code for a dtype: graphc's own name for it, in capitals."""
    try:
        return numpy_dtype(dtype_name(element)) == element
    except GraphError:
        return False


def raw_bytes(array: Array) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def encode_header(items: Iterable[tuple[str, Array]], metadata: Mapping[str, str] = {}) -> bytes:
    """Length and header of a file that holds these arrays one after the other."""
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    position = 0
    for name, array in items:
        end = position + array.nbytes
        header[name] = {
            "dtype": dtype_name(array.dtype).upper(),
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def header_length(start: bytes, size: int) -> int:
    """The length of the header of a file of `size` bytes, from its first 8 bytes."""
    length = int.from_bytes(start[:8], "little") if size >= 8 else 0
    if not 2 <= length <= min(size - 8, MOST_HEADER):
        raise ValueError("its header does not fit into it")
    return length


def decode_header(text: bytes) -> dict[str, Any]:
    """The entries of a header, the metadata among them."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    if not isinstance(entries, dict):
        raise ValueError("its header is not a JSON object")
    return entries


def decode_entry(
    name: str, entry: Any, room: int
) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """dtype, shape, first byte and end of a tensor within `room` bytes of data."""
    shown = repr(name[:40])
    try:
        element = numpy_dtype(entry["dtype"].lower())
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        sound = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (AttributeError, GraphError, KeyError, TypeError, ValueError):
        raise ValueError(f"the entry of {shown} is not understood") from None
    if not sound or end > room:
        raise ValueError(f"tensor {shown} lies outside the file")
    if end - begin != math.prod(shape) * element.itemsize:
        raise ValueError(f"tensor {shown} has the wrong size")
    return element, shape, begin, end


def read_tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a safetensors file by name, to be read only.

    Raises GraphError for a file that is missing or damaged.
    """
    file = OpenFile(path, "weights file ")
    try:
        length = header_length(file.read(0, min(file.size, 8)).tobytes(), file.size)
        entries = decode_header(file.read(8, length).tobytes())
        entries.pop(METADATA, None)
        room = file.size - 8 - length
        places = {name: decode_entry(name, entry, room) for name, entry in entries.items()}
        if sum(end - begin for _, _, begin, end in places.values()) > room:
            raise ValueError("its tensors overlap")
        made = {}
        for name, (element, shape, begin, end) in places.items():
            made[name] = file.read(8 + length + begin, end - begin).view(element).reshape(shape)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise GraphError(f"weights file {path.name} is damaged: {error}") from None
    return made
