""".gcx files: an image as one safetensors file, loaded without a compiler.

    tensor      content                                  in the metadata ("graphc": JSON text)
    constants   u8, first, so that it starts 64-byte     format, name, params, results, kernels,
                aligned and can be mapped                arena, threads, registers, reasons,
    variables   u8, the values they have                 cpu, features, triple, variables and the
    table       i64 step table                           place of their values, and the place of
    words       i64 kernel parameters                    each object with its symbols
    objects     u8, all object code, support first       object with its symbols
    origins     u8, JSON: row -> node, file, line
    text        u8, the graph as gir text

The safetensors format: 8 bytes of header length, a JSON header, the data.  A .gcx file holds
machine code and is trusted like a shared library; still every number in it is checked before use,
and a digest of what is executed is stored, so that a damaged file is an error and not a crash.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.device import check_host
from graphc.runtime.execute import Executable
from graphc.runtime.image import ALIGNMENT, Image, Origin, Slot, StateSlot, numpy_dtype
from graphc.runtime.memory import aligned_bytes
from graphc.runtime.variable import container

FORMAT = 4  # also counts changes of the words that support objects read (frame, context)
_MOST_HEADER = 100_000_000
_EXECUTED = ("table", "words", "objects")
_DTYPES: dict[str, np.dtype[Any]] = {"U8": np.dtype("u1"), "I64": np.dtype("<i8")}


def save(image: Image, path: str | Path) -> None:
    """Write an image; the file appears whole or not at all.  Raises GraphError when it cannot."""
    objects = b"".join((image.support, *(code for code, _ in image.objects)))
    origins = [
        [row, origin.node, origin.file, origin.line] for row, origin in image.origins.items()
    ]
    constants = image.constants.reshape(-1).view(np.uint8)
    values, places = _values(image)
    tensors = {
        "constants": np.pad(constants, (0, -constants.size % ALIGNMENT)),
        "variables": values,
        "table": image.table.astype("<i8"),
        "words": image.words.astype("<i8"),
        "objects": np.frombuffer(objects, np.uint8),
        "origins": np.frombuffer(json.dumps(origins).encode(), np.uint8),
        "text": np.frombuffer(image.text.encode(), np.uint8),
    }
    metadata = {
        **_metadata(image, places),
        "digest": _digest(*(tensors[name] for name in _EXECUTED)),
    }
    header = _header(tensors, metadata)
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(header)
            for tensor in tensors.values():
                file.write(tensor.data if tensor.size else b"")
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise GraphError(f"cannot write {target.name}: {error.strerror}") from None


def _values(image: Image) -> tuple[np.ndarray, list[int]]:
    """The present values of the variables in one piece, and where each begins (-1 for none)."""
    parts: list[np.ndarray] = [np.zeros(0, np.uint8)]
    places, size = [], 0
    for found in image.variables:
        cell = container(found.container).cells.get(found.slot.name)
        if cell is not None:
            cell.settle()
        places.append(size if cell is not None and cell.ready else -1)
        if cell is not None and cell.ready:
            value = cell.value().reshape(-1).view(np.uint8)
            parts.append(np.pad(value, (0, -value.size % ALIGNMENT)))
            size += parts[-1].size
    return np.concatenate(parts), places


def _digest(*tensors: np.ndarray) -> str:
    made = hashlib.sha256()
    for tensor in tensors:
        made.update(tensor.data)
    return made.hexdigest()


def _header(tensors: Mapping[str, np.ndarray], metadata: dict[str, Any]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"graphc": json.dumps(metadata)}}
    position = 0
    for name, tensor in tensors.items():
        dtype = "U8" if tensor.dtype == np.uint8 else "I64"
        end = position + tensor.nbytes
        entries[name] = {
            "dtype": dtype,
            "shape": [tensor.size],
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _metadata(image: Image, values: list[int]) -> dict[str, Any]:
    position = len(image.support)
    places = []
    for code, symbols in image.objects:
        places.append([position, len(code), list(symbols)])
        position += len(code)
    return {
        "format": FORMAT,
        "name": image.name,
        "params": [[slot.name, slot.dtype, list(slot.shape)] for slot in image.params],
        "results": [[slot.name, slot.dtype, list(slot.shape)] for slot in image.results],
        "kernels": list(image.kernels),
        "support": len(image.support),
        "objects": places,
        "arena": image.arena_bytes,
        "threads": image.threads,
        "registers": image.registers,
        "donated": list(image.donated),
        "variables": [
            [v.slot.name, v.slot.dtype, list(v.slot.shape), v.container, v.read, v.written, place]
            for v, place in zip(image.variables, values, strict=True)
        ],
        "reasons": {str(status): text for status, text in image.reasons.items()},
        "cpu": image.cpu,
        "features": list(image.features),
        "triple": image.triple,
    }


def load(path: str | Path, *, threads: int | None = None) -> Executable:
    """A .gcx file as an Executable; its constants stay mapped from the file.

    Variables that are not there yet are made, with the values that were saved.
    Raises GraphError for a damaged file and for code this CPU cannot execute.
    """
    file = _File(Path(path))
    image = file.image()
    check_host(image.triple, image.cpu, image.features)
    file.make_variables(image)
    return Executable(image, threads=threads)


def read(path: str | Path) -> Image:
    """The image in a .gcx file, not yet checked against this machine."""
    return _File(Path(path)).image()


def text_of(path: str | Path) -> str:
    """The gir text in a .gcx file: what `--rebuild` compiles again."""
    file = _File(Path(path))
    try:
        return bytes(file.tensor("text", "U8")).decode()
    except UnicodeDecodeError:
        raise file.damaged("its text") from None


class _File:
    """An open .gcx file: header parsed, data mapped."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            with path.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        except OSError as error:
            raise GraphError(f"cannot read {path}: {error.strerror}") from None
        self.data = np.frombuffer(data, np.uint8)
        self.start, self.entries = self._parse()
        self.metadata = self._metadata()

    def damaged(self, reason: str) -> GraphError:
        return GraphError(f"{self.name} is damaged: {reason}")

    def _parse(self) -> tuple[int, dict[str, Any]]:
        length = int.from_bytes(self.data[:8].tobytes(), "little")
        if self.size < 8 or length > min(_MOST_HEADER, self.size - 8):
            raise self.damaged("no safetensors header")
        try:
            entries = json.loads(self.data[8 : 8 + length].tobytes())
        except (ValueError, RecursionError):
            raise self.damaged("its header is not JSON") from None
        if not isinstance(entries, dict):
            raise self.damaged("its header is not a table")
        return 8 + length, entries

    def _metadata(self) -> dict[str, Any]:
        try:
            metadata = json.loads(self.entries["__metadata__"]["graphc"])
            self.format = metadata["format"]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise GraphError(f"{self.name} is no .gcx file") from None
        return dict(metadata)

    def tensor(self, name: str, dtype: str) -> np.ndarray:
        """A view of a tensor's data; aligned data is never copied."""
        try:
            entry = self.entries[name]
            begin, end = entry["data_offsets"]
            (size,) = entry["shape"]
            found = entry["dtype"]
        except (KeyError, TypeError, ValueError):
            raise self.damaged(f"no tensor {name!r}") from None
        whole = all(type(number) is int for number in (begin, end, size))
        room = self.size - self.start
        if not whole or not 0 <= begin <= end <= room or found != dtype:
            raise self.damaged(f"tensor {name!r} lies outside the file or has another dtype")
        if end - begin != size * _DTYPES[dtype].itemsize:
            raise self.damaged(f"the size of tensor {name!r}")
        raw = self.data[self.start + begin : self.start + end]
        align = ALIGNMENT if name == "constants" else _DTYPES[dtype].itemsize
        if raw.size and raw.__array_interface__["data"][0] % align:
            raw = _aligned_copy(raw)
        return raw.view(_DTYPES[dtype])

    def image(self) -> Image:
        """The checked image."""
        if self.format != FORMAT:
            raise GraphError(
                f"{self.name} has format {self.format!r}; this graphc reads format {FORMAT}",
                hint="--rebuild compiles the graph that the file holds",
            )
        try:
            image = self._image()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise self.damaged("its metadata is incomplete") from None
        try:
            image.check()
        except GraphError as error:
            raise self.damaged(error.message) from None
        return image

    def _image(self) -> Image:
        data = self.metadata
        objects = self.tensor("objects", "U8")
        table, words = self.tensor("table", "I64"), self.tensor("words", "I64")
        if data["digest"] != _digest(table, words, objects):
            raise self.damaged("its code or its tables are not those that were saved")
        return Image(
            name=_text(data["name"]),
            params=tuple(_slots(data["params"])),
            results=tuple(_slots(data["results"])),
            table=table,
            words=words,
            constants=self.tensor("constants", "U8"),
            kernels=tuple(map(_text, data["kernels"])),
            objects=tuple(
                (self._cut(objects, start, size), tuple(map(_text, symbols)))
                for start, size, symbols in data["objects"]
            ),
            support=self._cut(objects, 0, data["support"]),
            arena_bytes=_number(data["arena"]),
            threads=_number(data["threads"]),
            registers=_number(data["registers"]),
            donated=tuple(map(_number, data["donated"])),
            variables=tuple(_state_slots(data["variables"])),
            origins=_Origins(self),
            reasons={int(status): _text(text) for status, text in data["reasons"].items()},
            text=bytes(self.tensor("text", "U8")).decode(),
            cpu=_text(data["cpu"]),
            features=tuple(map(_text, data["features"])),
            triple=_text(data["triple"]),
        )

    def make_variables(self, image: Image) -> None:
        """Make the variables that are not there yet."""
        values = self.tensor("variables", "U8") if image.variables else np.zeros(0, np.uint8)
        for found, row in zip(image.variables, self.metadata["variables"], strict=True):
            home, slot = container(found.container), found.slot
            known = home.cells.get(slot.name)
            if known is not None and not known.was_reset:
                continue
            cell, place = home.declare(slot.name, slot, None), _number(row[-1])
            if place >= 0:
                raw = values[place : place + slot.nbytes]
                if raw.size != slot.nbytes:
                    raise self.damaged(f"the value of variable {slot.name!r}")
                cell.assign(raw.view(numpy_dtype(slot.dtype)).reshape(slot.shape))

    def _cut(self, objects: np.ndarray, start: Any, size: Any) -> bytes:
        if not 0 <= _number(start) <= _number(start) + _number(size) <= objects.size:
            raise self.damaged("object code outside the file")
        return objects[start : start + size].tobytes()


class _Origins(Mapping[int, Origin]):
    """Rows to their origins, read from the file when a step first fails."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._rows: dict[int, Origin] | None = None

    def _read(self) -> dict[int, Origin]:
        if self._rows is None:
            try:
                rows = json.loads(self._file.tensor("origins", "U8").tobytes())
                self._rows = {
                    row: Origin(_text(node), _text(file), _number(line))
                    for row, node, file, line in rows
                }
            except (ValueError, TypeError, RecursionError):
                raise self._file.damaged("its table of origins") from None
        return self._rows

    def __getitem__(self, row: int) -> Origin:
        return self._read()[row]

    def __iter__(self) -> Iterator[int]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def _slots(rows: Any) -> Iterator[Slot]:
    for name, dtype, shape in rows:
        yield Slot(_text(name), _text(dtype), tuple(_number(extent) for extent in shape))


def _state_slots(rows: Any) -> Iterator[StateSlot]:
    for name, dtype, shape, home, read, written, place in rows:
        (slot,) = _slots([(name, dtype, shape)])
        if type(read) is not bool or type(written) is not bool:
            raise TypeError((read, written))
        _number(place)
        yield StateSlot(slot, _text(home), read, written)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _aligned_copy(raw: np.ndarray) -> np.ndarray:
    copy = aligned_bytes(raw.size)
    copy[:] = raw
    return copy
