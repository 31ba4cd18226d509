"""Checkpoints of TensorFlow: names and places in NAME.index, data in NAME.data-00000-of-00001.

The index is a sorted table of LevelDB's format: blocks of keys that share beginnings, then a block
that says where they are, then a footer.  Values are protocol buffers:

    block:  (shared, unshared, size: varints; rest of the key; value)*  restarts*  count  | type crc
    value:  BundleEntryProto {1: dtype, 2: shape {2: {1: size}}, 3: shard, 4: offset, 5: size}

SavedModels hold a checkpoint named variables/variables.  Nothing in a file is trusted: every number
is compared with the bytes that are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from graphc.errors import GraphError
from graphc.limits import check_within
from graphc.runtime.files.stable_file import OpenFile

Array = np.ndarray[Any, Any]

MAGIC = 0xDB4775248B80FB57
FOOTER, TRAILER = 48, 5  # bytes of the footer, and behind each block: its compression and a crc
MOST_SHARDS = 10_000
DTYPES: dict[int, Any] = {
    1: np.float32,
    2: np.float64,
    3: np.int32,
    4: np.uint8,
    5: np.int16,
    6: np.int8,
    8: np.complex64,
    9: np.int64,
    10: np.bool_,
    14: ml_dtypes.bfloat16,
    17: np.uint16,
    18: np.complex128,
    19: np.float16,
    22: np.uint32,
    23: np.uint64,
}


class Damaged(Exception):
    """What is wrong with an index."""


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The variables of a checkpoint by name: NAME, NAME.index or the folder of a SavedModel.

    Strings, and what is no tensor, are left out.  Raises GraphError for a file that is missing or
    damaged.
    """
    prefix = prefix_of(path)
    index = OpenFile(prefix.with_name(f"{prefix.name}.index"))
    check_within("text_bytes", index.size, f"{index.name} has {index.size} bytes")
    try:
        entries = list(_table(index.read(0, index.size).tobytes()))
        shards = _header(dict(entries).get(b"", b""))
        return dict(_variables(prefix, entries, shards))
    except Damaged as error:
        raise GraphError(f"{index.name} is damaged: {error}") from None


def prefix_of(path: Path) -> Path:
    """The name that the files of a checkpoint begin with."""
    if path.is_dir():
        return path / "variables" / "variables"
    return path.with_suffix("") if path.suffix == ".index" else path


def _variables(
    prefix: Path, entries: list[tuple[bytes, bytes]], shards: int
) -> Iterator[tuple[str, Array]]:
    opened: dict[int, OpenFile] = {}
    for key, value in entries:
        fields = dict(_fields(value)) if key else {}
        if fields.get(1) not in DTYPES or 7 in fields:  # strings; pieces of a larger tensor
            continue
        name, shard = key.decode("utf-8", "replace"), _number(fields, 3)
        if shard >= shards:
            raise Damaged(f"{name[:80]!r} lies in file {shard} of {shards}")
        if shard not in opened:
            title = f"{prefix.name}.data-{shard:05d}-of-{shards:05d}"
            opened[shard] = OpenFile(prefix.with_name(title), "data file ")
        yield name, _tensor(name, fields, opened[shard])


def _tensor(name: str, fields: dict[int, Any], source: OpenFile) -> Array:
    element = np.dtype(DTYPES[fields[1]])
    shape = _shape(fields.get(2, b""))
    offset, size = _number(fields, 4), _number(fields, 5)
    count = 1
    for extent in shape:
        count *= extent
        if count * element.itemsize > source.size:
            raise Damaged(
                f"{name[:80]!r} has shape {list(shape)[:8]}, its file {source.size} bytes"
            )
    if count * element.itemsize != size or offset + size > source.size:
        raise Damaged(f"{name[:80]!r} has the wrong size")
    made: Array = source.read(offset, size).view(element).reshape(shape)
    return made


def _shape(proto: bytes) -> tuple[int, ...]:
    dims = [
        dict(_fields(value)) for field, value in _fields(proto) if field == 2 and value is not None
    ]
    made = tuple(_number(dim, 1) for dim in dims)
    if len(made) > 32 or any(extent >= 2**63 for extent in made):
        raise Damaged(f"a shape of {len(made)} axes")
    return made


def _header(proto: bytes) -> int:
    """How many data files there are, from the entry of the empty key."""
    fields = dict(_fields(proto))
    shards = _number(fields, 1)
    if not 0 < shards <= MOST_SHARDS or _number(fields, 2):
        raise Damaged(f"{shards} data files, or numbers that begin with their high bytes")
    return shards


# ------------------------------------------------------------------------------------ the table


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of a table."""
    if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != MAGIC:
        raise Damaged("it does not end as such a table does")
    position = len(data) - FOOTER
    for _ in range(2):  # the block about blocks of its own, which is of no use here
        _, position = _varint(data, position)
    offset, position = _varint(data, position)
    size, _ = _varint(data, position)
    left = len(data)
    for _, handle in _block(data, offset, size):
        start, place = _varint(handle, 0)
        length, _ = _varint(handle, place)
        left -= length + TRAILER
        if left < 0:
            raise Damaged("its blocks are larger than the file")
        yield from _block(data, start, length)


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of a block; each key says how much of it the one before has, too."""
    if offset + size + TRAILER > len(data) or size < 4:
        raise Damaged("a block lies outside the file")
    if data[offset + size]:
        raise Damaged("a block is compressed")
    block = data[offset : offset + size]
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    position, key, total = 0, b"", 0
    while position < end:
        shared, position = _varint(block, position)
        fresh, position = _varint(block, position)
        length, position = _varint(block, position)
        total += shared
        if shared > len(key) or position + fresh + length > end or total > 1 << 26:
            raise Damaged("a key or value lies outside its block")
        key = key[:shared] + block[position : position + fresh]
        position += fresh
        yield key, block[position : position + length]
        position += length


# ------------------------------------------------------------------------------------ the values


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise Damaged("a number has no end")


def _fields(proto: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers, bytes, or None for fixed ones, which are of no use here."""
    position = 0
    while position < len(proto):
        tag, position = _varint(proto, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(proto, position)
            yield tag >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            length, position = _varint(proto, position)
        if length < 0 or position + length > len(proto):
            raise Damaged("a message is cut off")
        yield tag >> 3, proto[position : position + length] if kind == 2 else None
        position += length


def _number(fields: dict[int, Any], field: int) -> int:
    """A field that is a number; 0 where it is left out."""
    value = fields.get(field, 0)
    if not isinstance(value, int):
        raise Damaged(f"field {field} is no number")
    return value
