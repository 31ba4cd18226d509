"""What readers read: the columns of one file as arrays. What they say is wrong lacks its name.

npz        arrays with equal first axes
csv        a header and numbers; a column of the name, or `name.0`, `name.1` ... for a vector
parquet    columns of numbers, or of lists of equal lengths (extra `parquet`, pyarrow)
tfrecord   records of tf.train.Example: int64, float and bytes features
image      one row each: the picture, and the number of the folder it lies in (Pillow)
bytes      whole files of equal length, one row each
"""

from __future__ import annotations

import csv
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import RunError
from graphc.runtime.files.files import with_type
from graphc.runtime.input.checksums import masked_crc32c
from graphc.runtime.input.resources import Array, Column

Columns = Sequence[Column]
MOST_RECORD = 1 << 30  # bytes


class Damaged(Exception):
    """A file that is not of its format."""


# what parsers of damaged files raise
DAMAGES = (Damaged, ValueError, EOFError, OverflowError, zipfile.BadZipFile, zlib.error, csv.Error)
HEADERS = (SyntaxError, tokenize.TokenError)  # of arrays, which NumPy reads as Python


def npz(name: str, columns: Columns) -> list[Array]:
    """Arrays of a .npz file; nothing is unpickled."""
    with open(name, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise Damaged("it is no archive of arrays, or its end is missing")
        with np.load(file, allow_pickle=False) as found:
            return [_member(found, column) for column in columns]


def _member(found: np.lib.npyio.NpzFile, column: Column) -> Array:
    if column.name not in found.files:
        raise _missing("array", column.name, found.files)
    try:
        array = with_type(found[column.name])
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise RunError(f"{column.name!r} holds objects of Python, and no numbers") from None
        raise Damaged(f"{column.name!r}: {error}") from None
    except (*DAMAGES, *HEADERS, MemoryError, RuntimeError, NotImplementedError) as error:
        raise Damaged(f"{column.name!r}: {error or type(error).__name__}") from None
    if not array.ndim:
        raise RunError(f"{column.name!r} is a single number, and has no rows")
    return column.fitted(array)


def _missing(kind: str, name: str, there: Iterable[str]) -> RunError:
    listed = ", ".join(there)[:200]
    return RunError(f"there is no {kind} {name!r}", hint=f"it has {listed or 'none'}")


def text_table(name: str, columns: Columns) -> list[Array]:
    """Columns of a .csv file with a header."""
    with open(name, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = {title.strip(): k for k, title in enumerate(next(rows, []))}
        places = [_places(column, header) for column in columns]
        lines = [(rows.line_num, row) for row in rows if row]
    for number, row in lines:
        if len(row) != len(header):
            raise RunError(f"line {number} has {len(row)} cells, and the header {len(header)}")
    return [_parsed(lines, *each) for each in zip(columns, places, strict=True)]


def _parsed(lines: Sequence[tuple[int, list[str]]], column: Column, place: list[int]) -> Array:
    """The cells of a column as numbers. Raises RunError that names the first which is none."""
    try:
        array = _numbers([[row[k] for k in place] for _, row in lines], column)
    except (ValueError, OverflowError, RunError):
        for number, row in lines:
            for k in place:
                try:
                    _numbers([[row[k]]], column)
                except (ValueError, OverflowError, RunError):
                    raise RunError(
                        f"line {number}, column {column.name!r}: {row[k][:80]!r} is no "
                        f"{column.dtype}"
                    ) from None
        raise
    return array.reshape(len(lines), *column.shape)


def _numbers(cells: list[list[str]], column: Column) -> Array:
    """Cells by the kind of their column: what is written exactly, then what the column has."""
    if column.dtype.kind == "b":
        words = np.char.lower(np.char.strip(np.array(cells, str)))
        if not np.isin(words, ("true", "false", "1", "0")).all():
            raise ValueError("neither true nor false")
        return np.isin(words, ("true", "1"))
    wide = {"f": np.float64, "V": np.float64, "c": np.complex128}.get(column.dtype.kind)
    return column.fitted(np.array(cells, str).astype(wide or column.dtype))


def _places(column: Column, header: dict[str, int]) -> list[int]:
    names = [column.name]
    if column.shape:
        names = [f"{column.name}.{k}" for k in range(math.prod(column.shape))]
    if missing := [title for title in names if title not in header]:
        raise _missing("column", missing[0], header)
    return [header[title] for title in names]


def parquet(name: str, columns: Columns) -> list[Array]:
    """Columns of a Parquet file."""
    try:
        from pyarrow import ArrowException
        from pyarrow import parquet as files
    except ImportError:
        raise RunError("Parquet files need pyarrow", hint="pip install 'graphc[parquet]'") from None
    try:
        with files.ParquetFile(name) as file:
            there = file.schema_arrow.names
            if missing := [column.name for column in columns if column.name not in there]:
                raise _missing("column", missing[0], there)
            table = file.read([column.name for column in columns])
        return [_arrow(table.column(column.name), column, table.num_rows) for column in columns]
    except ArrowException as error:
        raise Damaged(str(error)) from None


def _arrow(found: Any, column: Column, rows: int) -> Array:
    values = found.combine_chunks()
    shape = [rows]
    while not values.null_count and hasattr(values, "value_lengths"):
        lengths = np.unique(np.asarray(values.value_lengths()))
        if len(lengths) > 1:
            raise RunError(f"{column.name!r} has rows of {lengths[0]} and of {lengths[-1]}")
        shape += lengths.tolist()
        values = values.flatten()
    if values.null_count:
        raise RunError(f"{column.name!r} has {values.null_count} empty places")
    array = column.fitted(np.asarray(values.to_numpy(zero_copy_only=False)))
    return array.reshape(shape if rows else (0, *column.shape))


def whole_files(name: str, columns: Columns) -> list[Array]:
    """The bytes of a file as its one row."""
    if len(columns) != 1:
        raise RunError(f"its bytes are one array, and the specs say {len(columns)}")
    (column,) = columns
    data = Path(name).read_bytes()
    wanted = column.dtype.itemsize * math.prod(column.shape)
    if len(data) != wanted:
        raise RunError(f"it has {len(data)} bytes, and a row {wanted}")
    return [np.frombuffer(data, column.dtype).reshape(1, *column.shape)]


# ------------------------------------------------------------------------------------------ images

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # by channels
# Of what Pillow reads: what a file is said by its contents, and some kinds start other programs.
PICTURES = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_WIDE = ("I", "F")  # what modes of more than 8 bits begin with


def image_file(name: str, columns: Columns, folders: Sequence[str] = ()) -> list[Array]:
    """A picture as its one row: for a spec with dimensions (height, width, or also channels) its
    pixels, for one without the number of its folder among these."""
    return [
        _pixels(name, column) if column.shape else _folder(name, column, folders)
        for column in columns
    ]


def _folder(name: str, column: Column, folders: Sequence[str]) -> Array:
    number = folders.index(str(Path(name).parent))
    return column.fitted(np.array([number], np.int64))


def _pixels(name: str, column: Column) -> Array:
    try:
        from PIL import Image
    except ImportError:
        raise RunError("images need Pillow", hint="pip install 'graphc[images]'") from None
    rank, channels = len(column.shape), (*column.shape, 1, 1)[2]
    if rank not in (2, 3) or channels not in _MODES:
        raise RunError(f"no picture is {list(column.shape)}", hint="height, width, 1, 3 or 4")
    try:
        with Image.open(name, formats=PICTURES) as found:
            if (found.height, found.width) != column.shape[:2]:
                wanted = "x".join(map(str, column.shape[:2]))
                raise RunError(f"it is {found.height}x{found.width}, not {wanted}")
            if found.mode.startswith(_WIDE):
                raise RunError(f"its pixels ({found.mode}) have more than 8 bits")
            pixels = np.asarray(found.convert(_MODES[channels]))
    except (SyntaxError, struct.error, Image.DecompressionBombError) as error:
        raise Damaged(str(error)) from None
    return column.fitted(pixels).reshape(1, *column.shape)


# ---------------------------------------------------------------------------------------- TFRecord


def tfrecord(name: str, columns: Columns) -> list[Array]:
    """The features of the examples of a TFRecord file."""
    rows = []
    for number, example in enumerate(_examples(name)):
        try:
            rows.append([_feature(example, column) for column in columns])
        except RunError as error:
            raise RunError(f"example {number}: {error.message}", hint=error.hint) from None
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
        raise _missing("feature", column.name, example)
    found = example[column.name]
    if isinstance(found, list):
        data = b"".join(found)
        if len(data) % column.dtype.itemsize:
            raise RunError(f"{column.name!r} has {len(data)} bytes, no whole {column.dtype}")
        found = np.frombuffer(data, column.dtype)
    if found.size != math.prod(column.shape):
        raise RunError(
            f"{column.name!r} has {found.size} numbers, not those of {list(column.shape)}"
        )
    return column.fitted(found).reshape(column.shape)


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
    return parts[1].decode(), np.zeros(0, np.bool)


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
    "image": image_file,
    "bytes": whole_files,
}
