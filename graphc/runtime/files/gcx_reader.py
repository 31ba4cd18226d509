"""A .gcx file that is read: header parsed, data copied, all of it checked before it is used.

What lies where in it is said in `gcx_writer`, which writes it.

The metadata hold the digest of every tensor, and a digest of themselves; a signature is a keyed
digest of that one, for those who share a key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from graphc.base.record import replace
from graphc.errors import GraphError
from graphc.runtime.call.variable import container
from graphc.runtime.files.stable_file import OpenFile
from graphc.runtime.load.filled_image import check_at_hand, check_holes, check_params, check_sources
from graphc.runtime.load.program import (
    UNLIMITED,
    Channel,
    HostCall,
    Image,
    Origin,
    Slot,
    StateSlot,
    numpy_dtype,
)
from graphc.runtime.load.size_formulas import Reader, holes_of, text_of, whole

if TYPE_CHECKING:
    from graphc.runtime.cuda.gemm import Gemm

FORMAT = 16  # also counts changes of the words that support objects read (frame, context)
_MOST_HEADER = 100_000_000
_SHORTEST_KEY, _LONGEST_KEY = 16, 1 << 20  # bytes
_METADATA = "__metadata__"
BODY = "body"  # in the place of a queue's text: the row calls a program that the file holds
_DTYPES: dict[str, np.dtype[Any]] = {"U8": np.dtype("u1"), "I64": np.dtype("<i8")}


def tensor_name(kind: str, device: int) -> str:
    return f"{kind}.{device}" if device else kind


def body_name(device: int, symbol: str) -> str:
    """The tensor of the program that a row of a device calls."""
    return f"body.{device}.{symbol}"


def named(kind: str, tensors: list[np.ndarray]) -> dict[str, np.ndarray]:
    """One tensor for each device."""
    return {tensor_name(kind, device): tensor for device, tensor in enumerate(tensors)}


def contents(tensors: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The digest of every tensor."""
    return {name: hashlib.sha256(tensor.data).hexdigest() for name, tensor in tensors.items()}


def digest(metadata: Mapping[str, Any]) -> str:
    """The digest of the metadata, in which those of the tensors are."""
    told = {name: value for name, value in metadata.items() if name != "digest"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def signature(key: bytes, digest: str) -> str:
    """What only those can write who have the key (HMAC with SHA-256)."""
    return hmac.new(key, f"graphc gcx {FORMAT} {digest}".encode(), hashlib.sha256).hexdigest()


def read_key(path: str | PathLike[str]) -> bytes:
    """The bytes of a key file. Raises GraphError for one that is too short to be a key."""
    make = "head -c 32 /dev/urandom > KEY"
    if not Path(path).exists():
        raise GraphError(f"there is no key {path}", hint=f"{make} makes one")
    file = OpenFile(Path(path))
    if not _SHORTEST_KEY <= file.size <= _LONGEST_KEY:
        raise GraphError(
            f"{file.name} has {file.size} bytes; a key has at least {_SHORTEST_KEY}", hint=make
        )
    return file.whole()


class Source(Protocol):
    """Bytes that have a name."""

    name: str
    size: int

    def read(self, start: int, nbytes: int) -> np.ndarray[Any, Any]: ...


class Held:
    """Bytes in memory that are read as a file is."""

    def __init__(self, name: str, data: np.ndarray[Any, Any]) -> None:
        self.name, self.data, self.size = name, data, data.size

    def read(self, start: int, nbytes: int) -> np.ndarray[Any, Any]:
        return self.data[start : start + nbytes].copy()


class File:
    """An open .gcx file: header parsed, and its signature checked where a key is given."""

    def __init__(self, source: Path | Source, key: bytes | None = None) -> None:
        self.file: Source = OpenFile(source) if isinstance(source, Path) else source
        self.name = self.file.name
        self.size = self.file.size
        self.start, self.entries = self._parse()
        self.metadata = self._metadata()
        self.sound = self.format == FORMAT and self._is_sound()
        if key is not None:
            self._check_signature(key)

    def _is_sound(self) -> bool:
        """Are the metadata as they were saved, and with them the names of the tensors?"""
        listed = self.metadata.get("contents")
        named = isinstance(listed, dict) and listed.keys() == self.entries.keys() - {_METADATA}
        return named and self.metadata.get("digest") == digest(self.metadata)

    def _check_signature(self, key: bytes) -> None:
        found = self.entries[_METADATA].get("signature")
        if not isinstance(found, str):
            raise GraphError(
                f"{self.name} is not signed", hint="graphc compile --sign KEY writes one that is"
            )
        told = str(self.metadata.get("digest"))
        if not self.sound or not hmac.compare_digest(found.encode(), signature(key, told).encode()):
            raise GraphError(f"{self.name} was not signed with this key, or was changed since")

    def damaged(self, reason: str) -> GraphError:
        return GraphError(f"{self.name} is damaged: {reason}")

    def _parse(self) -> tuple[int, dict[str, Any]]:
        head = self.file.read(0, min(self.size, 8)).tobytes()
        length = int.from_bytes(head, "little")
        if self.size < 8 or length > min(_MOST_HEADER, self.size - 8):
            raise self.damaged("no safetensors header")
        try:
            entries = json.loads(self.file.read(8, length).tobytes())
        except (ValueError, RecursionError):
            raise self.damaged("its header is not JSON") from None
        if not isinstance(entries, dict):
            raise self.damaged("its header is not a table")
        return 8 + length, entries

    def _metadata(self) -> dict[str, Any]:
        try:
            metadata = json.loads(self.entries[_METADATA]["graphc"])
            self.format = metadata["format"]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise GraphError(f"{self.name} is no .gcx file") from None
        return dict(metadata)

    def tensor(self, name: str, dtype: str) -> np.ndarray:
        """A tensor, copied from the file and compared with its digest."""
        try:
            entry = self.entries[name]
            begin, end = entry["data_offsets"]
            (size,) = entry["shape"]
            found = entry["dtype"]
        except (KeyError, TypeError, ValueError):
            raise self.damaged(f"no tensor {name!r}") from None
        are_numbers = all(type(number) is int for number in (begin, end, size))
        room = self.size - self.start
        if not are_numbers or not 0 <= begin <= end <= room or found != dtype:
            raise self.damaged(f"tensor {name!r} lies outside the file or has another dtype")
        if end - begin != size * _DTYPES[dtype].itemsize:
            raise self.damaged(f"the size of tensor {name!r}")
        raw = self.file.read(self.start + begin, end - begin)
        if self.sound and hashlib.sha256(raw.data).hexdigest() != self.metadata["contents"][name]:
            raise self.damaged(f"tensor {name!r} is not what was saved")
        return raw.view(_DTYPES[dtype])

    def image(self, resources: bool = False) -> Image:
        """The checked image; only with `resources` it may call queues and readers."""
        if self.format != FORMAT:
            raise GraphError(
                f"{self.name} has format {self.format!r}; this graphc reads format {FORMAT}",
                hint="--rebuild compiles the graph that the file holds",
            )
        try:
            rows = [row for share in self.shares() for row in share.get("hosts", ())]
            if not resources and any(row[1] != BODY for row in rows):
                raise self.damaged("a file calls no Python")
            image = self._image()
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            raise self.damaged("its metadata is incomplete") from None
        try:
            image.check()
        except GraphError as error:
            raise self.damaged(error.message) from None
        return image

    def _image(self) -> Image:
        data = self.metadata
        if not self.sound:
            raise self.damaged("its metadata are not what was saved")
        executed = self.executed()
        objects = executed["objects"]
        common = {
            "support": self._cut(objects, 0, data["support"]),
            "reasons": {int(status): text_of(text) for status, text in data["reasons"].items()},
        }
        codes = [common | self._code(objects, kind) for kind in data["codes"]]
        first, *others = (
            self._part(k, share, executed, codes[whole(share["code"])])
            for k, share in enumerate(self.shares())
        )
        first = replace(first, channels=tuple(_channels(data["channels"])))
        formulas = data.get("formulas")
        if formulas is not None:
            formulas = Reader().formulas(formulas)
            check_sources(first.params, formulas)
            for each in (first, *others):
                check_holes(each, formulas)
        text = bytes(self.tensor("text", "U8")).decode()
        image = replace(first, formulas=formulas, text=text, others=tuple(others))
        if formulas is not None:
            check_params(image)
            check_at_hand(image)
        return image

    def executed(self) -> dict[str, np.ndarray]:
        """The tensors that a run reads."""
        kinds = {"table": "I64", "words": "I64", "constants": "U8"}
        count = 1 + len(self.metadata["others"])
        found = {"objects": self.tensor("objects", "U8")}
        for kind, dtype in kinds.items():
            names = [tensor_name(kind, device) for device in range(count)]
            found.update((name, self.tensor(name, dtype)) for name in names)
        return found

    def _code(self, objects: np.ndarray, kind: dict[str, Any]) -> dict[str, Any]:
        """What the metadata say about the code of one kind of device."""
        return {
            "objects": tuple(
                (self._cut(objects, start, size), tuple(map(text_of, symbols)))
                for start, size, symbols in kind["objects"]
            ),
            "portable": tuple(self._cut(objects, *place) for place in kind["portable"]),
            "cpu": text_of(kind["cpu"]),
            "features": tuple(map(text_of, kind["features"])),
            "triple": text_of(kind["triple"]),
        }

    def shares(self) -> list[dict[str, Any]]:
        """What the metadata say about each device."""
        return [self.metadata, *self.metadata["others"]]

    def _part(
        self,
        device: int,
        share: dict[str, Any],
        executed: Mapping[str, np.ndarray],
        code: dict[str, Any],
    ) -> Image:
        return Image(
            name=text_of(share["name"]),
            device=text_of(share["device"]),
            params=tuple(slots_of(share["params"])),
            results=tuple(slots_of(share["results"])),
            table=executed[tensor_name("table", device)],
            words=executed[tensor_name("words", device)],
            constants=executed[tensor_name("constants", device)],
            kernels=tuple(map(text_of, share["kernels"])),
            arena_bytes=whole(share["arena"]),
            holes=holes_of(share.get("holes")),
            threads=whole(share["threads"]),
            registers=whole(share["registers"]),
            donated=tuple(map(whole, share["donated"])),
            variables=tuple(_state_slots(share["variables"])),
            origins=_Origins(self.name, self.tensor(tensor_name("origins", device), "U8")),
            arity=tuple(map(whole, share["arity"])),
            shared=tuple(map(whole, share.get("shared", ()))),
            largest=tuple(_origins(share["largest"])),
            guarded=share["guarded"] is True,
            stack_bytes=whole(share.get("stacks", UNLIMITED)),
            products=dict(_products(share["products"])),
            hosts=dict(self._hosts(device, share.get("hosts", ()))),
            extents=dict(_extents(share.get("extents", ()))),
            **code,
        )

    def _hosts(self, device: int, rows: Any) -> Iterator[tuple[str, HostCall]]:
        for symbol, called, method, operands, results, (node, file, line) in rows:
            kept = tuple(slots_of(operands)), tuple(slots_of(results))
            origin, is_body = Origin(text_of(node), text_of(file), whole(line)), called == BODY
            name = body_name(device, text_of(symbol))
            call = StoredBody(self, name) if is_body else _Call(called, method)
            yield text_of(symbol), HostCall(call, *kept, origin)

    def make_variables(self, image: Image) -> None:
        """Make the variables that are not there yet."""
        stored = any(each.variables for each in image.images)
        values = self.tensor("variables", "U8") if stored else np.zeros(0, np.uint8)
        for each, share in zip(image.images, self.shares(), strict=True):
            for found, row in zip(each.variables, share["variables"], strict=True):
                self._make_variable(found, values, whole(row[-1]))

    def _make_variable(self, found: StateSlot, values: np.ndarray, place: int) -> None:
        home, slot = container(found.container), found.slot
        known = home.cells.get(slot.name)
        if known is not None and not known.was_reset:
            return
        cell = home.declare(slot.name, slot, None)
        if place >= 0:
            raw = values[place : place + slot.nbytes]
            if raw.size != slot.nbytes:
                raise self.damaged(f"the value of variable {slot.name!r}")
            cell.assign(raw.view(numpy_dtype(slot.dtype)).reshape(slot.shape))

    def _cut(self, objects: np.ndarray, start: Any, size: Any) -> bytes:
        if not 0 <= whole(start) <= whole(start) + whole(size) <= objects.size:
            raise self.damaged("object code outside the file")
        return objects[start : start + size].tobytes()


class _Origins(Mapping[int, Origin]):
    """Rows to their origins, understood when a step first fails."""

    def __init__(self, file: str, text: np.ndarray) -> None:
        self._file = file
        self._text = text
        self._rows: dict[int, Origin] | None = None

    def _read(self) -> dict[int, Origin]:
        if self._rows is None:
            try:
                self._rows = dict(_origins(json.loads(self._text.tobytes())))
            except (ValueError, TypeError, RecursionError):
                raise GraphError(f"{self._file} is damaged: its table of origins") from None
        return self._rows

    def __getitem__(self, row: int) -> Origin:
        return self._read()[row]

    def __iter__(self) -> Iterator[int]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def slots_of(rows: Any) -> Iterator[Slot]:
    for name, dtype, shape in rows:
        yield Slot(text_of(name), text_of(dtype), tuple(whole(extent) for extent in shape))


def _state_slots(rows: Any) -> Iterator[StateSlot]:
    for name, dtype, shape, home, read, written, place in rows:
        (slot,) = slots_of([(name, dtype, shape)])
        if type(read) is not bool or type(written) is not bool:
            raise TypeError((read, written))
        whole(place)
        yield StateSlot(slot, text_of(home), read, written)


def _origins(rows: Any) -> Iterator[tuple[int, Origin]]:
    for nbytes, node, file, line in rows:
        yield whole(nbytes), Origin(text_of(node), text_of(file), whole(line))


def _products(rows: Any) -> Iterator[tuple[int, Gemm]]:
    if not rows:
        return
    from graphc.runtime.cuda.gemm import read  # nothing of GPUs is loaded for other programs

    for row, values in rows:
        yield whole(row), read(values)


def _extents(rows: Any) -> Iterator[tuple[int, tuple[tuple[int, bool], ...]]]:
    for row, values in rows:
        yield whole(row), tuple((abs(whole(size)), size < 0) for size in values)


def _channels(rows: Any) -> Iterator[Channel]:
    for name, nbytes, source, target, buffered in rows:
        if type(buffered) is not bool:
            raise TypeError(buffered)
        yield Channel(text_of(name), whole(nbytes), whole(source), whole(target), buffered)


class StoredBody:
    """What a row calls that is a program of its own, a file within the file."""

    def __init__(self, file: File, name: str) -> None:
        self._file, self._name = file, name

    def file(self) -> File:
        """The open file. Raises GraphError for a damaged one."""
        held = self._file.tensor(self._name, "U8")
        return File(Held(f"{self._file.name}: {self._name}", held))

    def __call__(self, *arrays: np.ndarray) -> NoReturn:
        raise self._file.damaged(f"{self._name} was not opened")


class _Call:
    """A call of a queue or reader of this process; the last operand and result are its token."""

    def __init__(self, resource: Any, method: Any) -> None:
        self.resource, self.method = text_of(resource), text_of(method)

    def __call__(self, *arrays: np.ndarray) -> tuple[Any, ...]:
        from graphc.runtime.input import resource_table

        made = resource_table.call(self.resource, self.method, arrays[:-1])
        return (*made, np.zeros((), np.uint8))
