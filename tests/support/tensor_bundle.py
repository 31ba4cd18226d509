"""Writes checkpoints of TensorFlow after their description: one block, one data file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphc.formats.tensorflow.checkpoint import DTYPES, MAGIC

NUMBERS = {np.dtype(element): number for number, element in DTYPES.items()}


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


def write_checkpoint(prefix: Path, arrays: dict[str, np.ndarray]) -> None:
    data = b""
    pairs = [(b"", number(1, 1))]
    for name in sorted(arrays):
        array = arrays[name]
        shape = b"".join(message(2, number(1, extent)) for extent in array.shape)
        value = number(1, NUMBERS[array.dtype]) + message(2, shape)
        value += number(4, len(data)) + number(5, array.nbytes)
        pairs.append((name.encode(), value))
        data += array.tobytes()
    first, empty = block(pairs), block([])
    last = block([(b"z", varint(0) + varint(len(first)))])
    parts = first + bytes(5) + empty + bytes(5) + last + bytes(5)
    places = varint(len(first) + 5) + varint(len(empty))
    places += varint(len(first) + len(empty) + 10) + varint(len(last))
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    footer = places.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")
    prefix.with_name(f"{prefix.name}.index").write_bytes(parts + footer)
