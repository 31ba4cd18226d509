"""Checkpoints of TensorFlow: names and places in NAME.index, data in NAME.data-00000-of-00001.

The index is a sorted table of LevelDB's format: blocks of keys that share beginnings, then a block
that says where they are, then a footer.  Values are protocol buffers:

    block:  (shared, unshared, size: varints; rest of the key; value)*  restarts*  count  | type crc
    value:  BundleEntryProto {1: dtype, 2: shape {2: {1: size}}, 3: shard, 4: offset, 5: size,
                              7: a piece of it {1: {1: start, 2: length} of each axis}}

A variable in pieces has no data: its pieces have entries of their own, under names that are made
of its name and of where they lie.  SavedModels hold a checkpoint named variables/variables.
Nothing in a file is trusted: every number is compared with the bytes that are there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from graphc.errors import GraphError
from graphc.limits import check_within
from graphc.runtime.files.stable_file import OpenFile

Array = np.ndarray[Any, Any]
Extents = tuple[tuple[int, int], ...]  # (start, length) of each axis of a piece

MAGIC = 0xDB4775248B80FB57
FOOTER, TRAILER = 48, 5  # bytes of the footer, and behind each block: its compression and a crc
MOST_SHARDS = 10_000
MOST_ELEMENTS = 2**59  # of 16 bytes, which NumPy counts in 63 bits
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the string that is the graph of the objects
STRING, CHECKSUM = 7, 4  # the type of strings; bytes between their lengths and themselves
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


class Checkpoint:
    """An index and the data files beside it, opened when they are read."""

    def __init__(self, path: Path) -> None:
        self._prefix = prefix_of(path)
        index = OpenFile(self._prefix.with_name(f"{self._prefix.name}.index"))
        check_within("text_bytes", index.size, f"{index.name} has {index.size} bytes")
        self._entries = dict(_table(index.read(0, index.size).tobytes()))
        self._shards = _header(self._entries.get(b"", b""))
        self._opened: dict[int, OpenFile] = {}

    def variables(self) -> dict[str, Array]:
        """All but strings, and what is no tensor."""
        return {
            name: self._variable(key, self._entries[key], fields)
            for name, (key, fields) in self._tensors().items()
            if fields.get(1) in DTYPES
        }

    def strings(self) -> dict[str, Array]:
        """The variables of strings, as bytes of the length of the longest, or as objects where one
        ends in a zero byte, which NumPy's do not; the graph of the objects is none."""
        made = dict[str, Array]()
        for name, (_, fields) in self._tensors().items():
            if fields.get(1) == STRING and name != GRAPH:
                parts = self._strings(name, fields)
                longest = max(map(len, parts), default=0)
                size = longest * len(parts)
                check_within("text_bytes", size, f"{name[:80]!r} takes {size} bytes")
                kind = "O" if any(part.endswith(b"\0") for part in parts) else f"S{longest}"
                made[name] = np.array(parts, kind).reshape(_shape(_message(fields, 2)))
        return made

    def _tensors(self) -> dict[str, tuple[bytes, dict[int, Any]]]:
        """The keys and fields of entries by name, but for the header and pieces of variables."""
        made = dict[str, tuple[bytes, dict[int, Any]]]()
        for key, value in self._entries.items():
            if key and key[0]:
                name = key.decode("utf-8", "replace")
                if name in made:
                    raise Damaged(f"it has {name[:80]!r} twice")
                made[name] = key, dict(read_fields(value))
        return made

    def text(self, key: str) -> bytes:
        """A string that stands alone; empty where there is none."""
        fields = dict(read_fields(self._entries.get(key.encode(), b"")))
        if fields.get(1) != STRING or _shape(_message(fields, 2)):
            return b""
        return self._strings(key, fields)[0]

    def _strings(self, name: str, fields: dict[int, Any]) -> list[bytes]:
        """The lengths of all, a checksum of them, then one string behind the other."""
        offset, size, source = _number(fields, 4), _number(fields, 5), self._source(name, fields)
        check_within("text_bytes", size, f"{name[:80]!r} has {size} bytes")
        count = math.prod(_shape(_message(fields, 2)))
        if 7 in fields or offset + size > source.size or count > size:
            raise Damaged(f"{name[:80]!r} has the wrong size")
        data, start, lengths = source.read(offset, size).tobytes(), 0, list[int]()
        for _ in range(count):
            length, start = read_varint(data, start)
            lengths.append(length)
        start += CHECKSUM
        if start + sum(lengths) != size:
            raise Damaged(f"{name[:80]!r} has the wrong size")
        ends = [start, *accumulate(lengths, initial=start)][1:]
        return [data[a:b] for a, b in pairwise(ends)]

    def _source(self, name: str, fields: dict[int, Any]) -> OpenFile:
        shard = _number(fields, 3)
        if shard >= self._shards:
            raise Damaged(f"{name[:80]!r} lies in file {shard} of {self._shards}")
        if shard not in self._opened:
            title = f"{self._prefix.name}.data-{shard:05d}-of-{self._shards:05d}"
            self._opened[shard] = OpenFile(self._prefix.with_name(title), "data file ")
        return self._opened[shard]

    def _variable(self, key: bytes, value: bytes, fields: dict[int, Any]) -> Array:
        name = key.decode("utf-8", "replace")
        pieces = [piece for field, piece in read_fields(value) if field == 7]
        if not pieces:
            return _tensor(name, fields, self._source(name, fields))
        shape, element = _shape(_message(fields, 2)), np.dtype(DTYPES[fields[1]])
        size = math.prod(shape) * (element.itemsize + 1)  # with what says which are filled
        check_within("model_bytes", size, f"{name[:80]!r} is of shape {shape}")
        made, filled, seen = np.zeros(shape, element), np.zeros(shape, bool), set[Extents]()
        for piece in pieces:
            extents = _extents(_message({7: piece}, 7))
            place, part = self._piece(key, extents, shape)
            if made[place].shape != part.shape or part.dtype != element:
                raise Damaged(f"a piece of {name[:80]!r} is of shape {list(part.shape)[:8]}")
            if extents in seen or filled[place].any():
                raise Damaged(f"pieces of {name[:80]!r} overlap")
            seen.add(extents)
            made[place], filled[place] = part, True
        if not filled.all():
            raise Damaged(f"the pieces of {name[:80]!r} are not the whole")
        return made

    def _piece(
        self, key: bytes, extents: Extents, shape: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], Array]:
        """Where a piece lies, and its elements; a length of -1 is all of an axis."""
        name = key.decode("utf-8", "replace")
        if len(extents) != len(shape):
            raise Damaged(f"a piece of {name[:80]!r} has {len(extents)} axes")
        fields = dict(read_fields(self._entries.get(_piece_key(key, extents), b"")))
        if fields.get(1) not in DTYPES:
            raise Damaged(f"a piece of {name[:80]!r} is missing")
        place = tuple(
            slice(start, start + length) if length >= 0 else slice(None)
            for start, length in extents
        )
        return place, _tensor(name, fields, self._source(name, fields))


@contextmanager
def opened(path: Path) -> Iterator[Checkpoint]:
    """A checkpoint: NAME, NAME.index or the folder of a SavedModel. Raises GraphError for a file
    that is missing, damaged or of the format before this one, then and later."""
    if is_of_first_format(path):
        raise GraphError(
            f"{path.name} is a checkpoint of TensorFlow's first format (V1)",
            hint="restore it in TensorFlow and save it again: it writes the second since 2016",
        )
    try:
        yield Checkpoint(path)
    except Damaged as error:
        raise GraphError(f"{prefix_of(path).name}.index is damaged: {error}") from None


def is_of_first_format(path: Path) -> bool:
    """Whether a file is a table by itself, with its data in it: that has no `.index`."""
    if path.suffix == ".index" or not path.is_file():
        return False
    source = OpenFile(path)
    end = source.read(max(source.size - 8, 0), min(source.size, 8)).tobytes()
    return int.from_bytes(end, "little") == MAGIC


def is_checkpoint(path: Path) -> bool:
    """Whether a path is that of a checkpoint, of either format, or of the folder of a model."""
    if path.suffix == ".index":
        return True
    if path.is_dir():
        return (path / "variables" / "variables.index").is_file()
    if path.exists():
        return is_of_first_format(path)
    return path.with_name(f"{path.name}.index").is_file()


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The variables of a checkpoint by name, strings as bytes; what is no tensor is left out."""
    with opened(path) as checkpoint:
        return {**checkpoint.variables(), **checkpoint.strings()}


def prefix_of(path: Path) -> Path:
    """The name that the files of a checkpoint begin with."""
    if path.is_dir():
        return path / "variables" / "variables"
    return path.with_suffix("") if path.suffix == ".index" else path


def _tensor(name: str, fields: dict[int, Any], source: OpenFile) -> Array:
    element = np.dtype(DTYPES[fields[1]])
    shape = _shape(_message(fields, 2))
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
    dims = [_message({field: value}, 2) for field, value in read_fields(proto) if field == 2]
    made = tuple(_number(dict(read_fields(dim)), 1) for dim in dims)
    if len(made) > 32:
        raise Damaged(f"a shape of {len(made)} axes")
    if math.prod(filter(None, made)) >= MOST_ELEMENTS:  # NumPy counts empty axes as 1, too
        raise Damaged(f"an array of shape {list(made)[:8]}")
    return made


def _header(proto: bytes) -> int:
    """How many data files there are, from the entry of the empty key."""
    fields = dict(read_fields(proto))
    shards = _number(fields, 1)
    if not 0 < shards <= MOST_SHARDS or _number(fields, 2):
        raise Damaged(f"{shards} data files, or numbers that begin with their high bytes")
    return shards


# ------------------------------------------------------------------------------------ pieces


def _extents(proto: bytes) -> Extents:
    """(start, length) of each axis."""
    made = []
    for field, value in read_fields(proto):
        if field == 1:
            fields = dict(read_fields(_message({1: value}, 1)))
            start, length = _number(fields, 1), _number(fields, 2) if 2 in fields else -1
            if max(start, length) >= 2**63:
                raise Damaged("a piece lies outside its variable")
            made.append((start, length))
    return tuple(made)


def _piece_key(key: bytes, extents: Extents) -> bytes:
    """What a piece is called, in LevelDB's codes, whose order is that of what they stand for."""
    name = key.replace(b"\0", b"\0\xff").replace(b"\xff", b"\xff\0") + b"\0\1"
    numbers = b"".join(_ordered(number) for pair in extents for number in pair)
    return b"\0" + name + bytes([1, len(extents)]) + numbers


def _ordered(value: int) -> bytes:
    """A number in groups of seven bits, behind as many ones as it has bytes."""
    count = (~value if value < 0 else value).bit_length() // 7 + 1
    ones = (1 << count) - 1 << 7 * count
    return (ones ^ value & (1 << 8 * count) - 1).to_bytes(count, "big")


# ------------------------------------------------------------------------------------ the table


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The pairs of a table."""
    if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != MAGIC:
        raise Damaged("it does not end as such a table does")
    position = len(data) - FOOTER
    for _ in range(2):  # the block about blocks of its own, which is of no use here
        _, position = read_varint(data, position)
    offset, position = read_varint(data, position)
    size, _ = read_varint(data, position)
    left = len(data)
    for _, handle in _block(data, offset, size):
        start, place = read_varint(handle, 0)
        length, _ = read_varint(handle, place)
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
        shared, position = read_varint(block, position)
        fresh, position = read_varint(block, position)
        length, position = read_varint(block, position)
        total += shared
        if shared > len(key) or position + fresh + length > end or total > 1 << 26:
            raise Damaged("a key or value lies outside its block")
        key = key[:shared] + block[position : position + fresh]
        position += fresh
        yield key, block[position : position + length]
        position += length


# ------------------------------------------------------------------------------------ the values


def read_varint(data: bytes, position: int) -> tuple[int, int]:
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


def read_fields(proto: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers, bytes, or None for fixed ones, which are of no use here."""
    position = 0
    while position < len(proto):
        tag, position = read_varint(proto, position)
        kind = tag & 7
        if kind == 0:
            value, position = read_varint(proto, position)
            yield tag >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            length, position = read_varint(proto, position)
        if length < 0 or position + length > len(proto):
            raise Damaged("a message is cut off")
        yield tag >> 3, proto[position : position + length] if kind == 2 else None
        position += length


def _message(fields: dict[int, Any], field: int) -> bytes:
    """A field that is a message or text; empty where it is left out."""
    value = fields.get(field, b"")
    if not isinstance(value, bytes):
        raise Damaged(f"field {field} is a number")
    return value


def _number(fields: dict[int, Any], field: int) -> int:
    """A field that is a number; 0 where it is left out."""
    value = fields.get(field, 0)
    if not isinstance(value, int):
        raise Damaged(f"field {field} is no number")
    return value
