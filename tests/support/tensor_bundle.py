"""Writes checkpoints of TensorFlow after their description: one block, one data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from graphc.formats.tensorflow.checkpoint import DTYPES, MAGIC

NUMBERS = {np.dtype(element): number for number, element in DTYPES.items()}
Cuts = Sequence[int | tuple[int, int]]  # rows behind those of the piece before, or (start, rows)


def varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made += bytes([value & 127 | 128])
        value >>= 7
    return made + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Keys share beginnings with the one before."""
    made, before = b"", b""
    for key, value in pairs:
        shared = 0
        while shared < min(len(key), len(before)) and key[shared] == before[shared]:
            shared += 1
        made += varint(shared) + varint(len(key) - shared) + varint(len(value))
        made += key[shared:] + value
        before = key
    return made + bytes(4) + (1).to_bytes(4, "little")


def shape_of(array: np.ndarray) -> bytes:
    return message(2, b"".join(message(2, number(1, extent)) for extent in array.shape))


def ordered(value: int) -> bytes:
    """Numbers in keys, up to 8191: as many ones as bytes, a zero, the number."""
    return bytes([0x80 | value]) if value < 64 else (0xC000 | value).to_bytes(2, "big")


def in_pieces(name: str, array: np.ndarray, cuts: Cuts) -> tuple[bytes, dict[bytes, np.ndarray]]:
    """The entry of a variable in pieces of so many rows, and the pieces by their keys."""
    entry, end = number(1, NUMBERS[array.dtype]) + shape_of(array), 0
    found = {}
    for cut in cuts:
        start, rows = (end, cut) if isinstance(cut, int) else cut
        extent = (number(1, start) if start else b"") + number(2, rows)
        entry += message(7, message(1, extent) + message(1, b"") * (array.ndim - 1))
        key = b"\0" + name.encode() + b"\0\1" + bytes([1, array.ndim])
        key += ordered(start) + ordered(rows) + b"\x80\x7f" * (array.ndim - 1)  # 0 and -1: all
        found[key] = array[start : start + rows]
        end = start + rows
    return entry, found


def object_graph(nodes: list[tuple[dict[str, int], list[str]]]) -> bytes:
    """Children by name, and the names of variables, of each object."""
    made = b""
    for children, names in nodes:
        node = b"".join(
            message(1, (number(1, child) if child else b"") + message(2, name.encode()))
            for name, child in children.items()
        )
        node += b"".join(message(2, message(3, name.encode())) for name in names)
        made += message(1, node)
    return made


def write_checkpoint(
    prefix: Path,
    arrays: dict[str, np.ndarray],
    cuts: Mapping[str, Cuts] | None = None,
    graph: bytes = b"",
    extra: dict[bytes, bytes] | None = None,
    texts: Mapping[str, np.ndarray] | None = None,
) -> None:
    """`cuts` are the rows of the pieces that some variables lie in, `extra` are entries as is,
    `texts` variables of strings."""
    data, entries = b"", dict(extra or {})
    whole = {name.encode(): array for name, array in arrays.items() if name not in (cuts or {})}
    for name, rows in (cuts or {}).items():
        entries[name.encode()], pieces = in_pieces(name, arrays[name], rows)
        whole |= pieces
    for key in sorted(whole):
        array = whole[key]
        value = number(1, NUMBERS[array.dtype]) + shape_of(array)
        entries[key] = value + number(4, len(data)) + number(5, array.nbytes)
        data += array.tobytes()
    held = {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(graph, object)} if graph else {}
    for name, array in {**held, **(texts or {})}.items():
        words: list[bytes] = array.reshape(-1).tolist()
        text = b"".join(varint(len(word)) for word in words) + bytes(4) + b"".join(words)
        value = number(1, 7) + shape_of(array) + number(4, len(data)) + number(5, len(text))
        entries[name.encode()] = value
        data += text
    pairs = [(b"", number(1, 1)), *sorted(entries.items())]
    first, empty = block(pairs), block([])
    last = block([(b"z", varint(0) + varint(len(first)))])
    parts = first + bytes(5) + empty + bytes(5) + last + bytes(5)
    places = varint(len(first) + 5) + varint(len(empty))
    places += varint(len(first) + len(empty) + 10) + varint(len(last))
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    footer = places.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")
    prefix.with_name(f"{prefix.name}.index").write_bytes(parts + footer)
