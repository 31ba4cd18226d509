"""What readers read: the columns of one file as arrays.

npz        arrays with equal first axes
csv        a header and numbers; a column of the name, or `name.0`, `name.1` ... for a vector
parquet    columns of numbers, or of lists of equal lengths (extra `parquet`, pyarrow)
tfrecord   records of tf.train.Example: int64, float and bytes features
bytes      whole files of equal length, one row each
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from graphc.errors import RunError
from graphc.runtime.input.checksums import masked_crc32c
from graphc.runtime.input.resources import Array, Column

Columns = Sequence[Column]
MOST_RECORD = 1 << 30  # bytes


def npz(name: str, columns: Columns) -> list[Array]:
    """Arrays of a .npz file; nothing is unpickled."""
    with np.load(name, allow_pickle=False) as found:
        return [_cast(found[column.name], column) for column in columns]


def _cast(array: Array, column: Column) -> Array:
    """An array as a column has it. Raises RunError where its numbers would become others."""
    if array.dtype != column.dtype and not np.can_cast(array.dtype, column.dtype, "same_kind"):
        raise RunError(f"{column.name!r} is of {array.dtype}, not of {column.dtype}")
    return array.astype(column.dtype, copy=False)


def text_table(name: str, columns: Columns) -> list[Array]:
    """Columns of a .csv file with a header."""
    with open(name, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = {title.strip(): k for k, title in enumerate(next(rows, []))}
        places = [_places(column, header) for column in columns]
        lines = [row for row in rows if row]
    made = []
    for column, place in zip(columns, places, strict=True):
        try:
            numbers = [[row[k] for k in place] for row in lines]
            array = np.array(numbers, str).astype(column.dtype)
        except (ValueError, IndexError) as error:
            raise ValueError(f"column {column.name!r}: {error}") from None
        made.append(array.reshape(len(lines), *column.shape))
    return made


def _places(column: Column, header: dict[str, int]) -> list[int]:
    names = [column.name]
    if column.shape:
        names = [f"{column.name}.{k}" for k in range(math.prod(column.shape))]
    if missing := [title for title in names if title not in header]:
        raise ValueError(f"there is no column {missing[0]!r} among {', '.join(header)[:200]}")
    return [header[title] for title in names]


def parquet(name: str, columns: Columns) -> list[Array]:
    """Columns of a Parquet file."""
    try:
        from pyarrow import ArrowException
        from pyarrow import parquet as files
    except ImportError:
        raise RunError("Parquet files need pyarrow", hint="pip install 'graphc[parquet]'") from None
    try:
        table = files.read_table(name, columns=[column.name for column in columns])
        return [_arrow(table.column(column.name), column, table.num_rows) for column in columns]
    except ArrowException as error:
        raise ValueError(str(error)) from None


def _arrow(found: object, column: Column, rows: int) -> Array:
    values = found.combine_chunks()  # type: ignore[attr-defined]
    if values.null_count:
        raise RunError(f"{column.name!r} has {values.null_count} empty places")
    while hasattr(values, "flatten") and hasattr(values.type, "value_type"):
        values = values.flatten()
    array = _cast(np.asarray(values.to_numpy(zero_copy_only=False)), column)
    return array.reshape(rows, *column.shape)


def whole_files(name: str, columns: Columns) -> list[Array]:
    """The bytes of a file as its one row."""
    (column,) = columns
    data = np.frombuffer(Path(name).read_bytes(), column.dtype)
    return [data.reshape(1, *column.shape)]


# ---------------------------------------------------------------------------------------- TFRecord


def tfrecord(name: str, columns: Columns) -> list[Array]:
    """The features of the examples of a TFRecord file."""
    rows = [[_feature(example, column) for column in columns] for example in _examples(name)]
    if not rows:
        return [np.zeros((0, *column.shape), column.dtype) for column in columns]
    return [np.stack(values) for values in zip(*rows, strict=True)]


def _examples(name: str) -> Iterator[dict[str, Array | list[bytes]]]:
    for record in records(name):
        for field, features in _fields(record):
            if field == 1:
                yield dict(_entry(entry) for number, entry in _fields(features) if number == 1)


def records(name: str) -> Iterator[bytes]:
    """The records of a TFRecord file; both checksums of each are checked. Raises ValueError."""
    with open(name, "rb") as file:
        number = 0
        while head := file.read(12):
            if len(head) < 12 or masked_crc32c(head[:8]) != int.from_bytes(head[8:], "little"):
                raise ValueError(f"the head of record {number} is damaged")
            size = int.from_bytes(head[:8], "little")
            if size > MOST_RECORD:
                raise ValueError(f"record {number} has {size} bytes")
            data, checksum = file.read(size), file.read(4)
            if len(data) < size or masked_crc32c(data) != int.from_bytes(checksum, "little"):
                raise ValueError(f"record {number} is damaged")
            number += 1
            yield data


def _feature(example: dict[str, Array | list[bytes]], column: Column) -> Array:
    if column.name not in example:
        raise ValueError(f"an example has no feature {column.name!r}")
    found = example[column.name]
    if isinstance(found, list):
        found = np.frombuffer(b"".join(found), column.dtype)
    return _cast(found, column).reshape(column.shape)


def _entry(data: bytes) -> tuple[str, Array | list[bytes]]:
    """One entry of the map of features: its name and its list."""
    parts = dict(_fields(data))
    for kind, listed in _fields(parts.get(2, b"")):
        values = list(_fields(listed))
        if kind == 1:
            return parts[1].decode(), [value for _, value in values]
        raw = b"".join(value for _, value in values)
        if kind == 2:
            return parts[1].decode(), np.frombuffer(raw, "<f4")
        return parts[1].decode(), np.array(list(_varints(raw)), np.uint64).astype(np.int64)
    return parts[1].decode(), np.zeros(0, np.float32)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message of protocol buffers; a number is given as it is encoded."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at)
        elif kind == 0:
            size = _varint(data, at)[1] - at
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("a record is no tf.train.Example")
        if at + size > len(data):
            raise ValueError("a record is cut off")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("a record is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a record holds a number that does not end")


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


FORMATS: dict[str, Callable[[str, Columns], list[Array]]] = {
    "npz": npz,
    "csv": text_table,
    "parquet": parquet,
    "tfrecord": tfrecord,
    "bytes": whole_files,
}
