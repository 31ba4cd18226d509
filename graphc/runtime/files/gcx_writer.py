"""What a .gcx file holds and how it is written: an image as one safetensors file.

    tensor      content                                  in the metadata ("graphc": JSON text)
    constants   u8, 64-byte aligned                      format, name, params, results, kernels,
                                                         arena, threads, registers, reasons,
    variables   u8, the values they have                 variables and the place of their values,
    table       i64 step table                           channels, products
    words       i64 kernel parameters                    code: cpu, features, triple and the place
    objects     u8, all object code, support first       of each object (and of its PTX) with its
    origins     u8, JSON: row -> node, file, line        symbols; devices of one kind share one
    text        u8, the graph as gir text                others: the same of the other devices,
                                                         whose tensors are "table.1", "table.2" ...
                                                         formulas, holes: of a program for many
                                                         sizes
    body.0.python1  u8, a file of its own: what a body
                    calls that finds sizes

The safetensors format: 8 bytes of header length, a JSON header, the data.  A .gcx file holds
machine code and is trusted like a shared library; still every number in it is checked before use,
and digests of all that is in it are stored, so that a damaged file is an error and not a crash:
kernels count on the shapes that they were compiled for.  Who wrote it a signature says, to those
who share a key.  The same program is the same file, byte for byte, where the cache held the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.call.phased_executable import PhasedExecutable, Runnable
from graphc.runtime.call.variable import container
from graphc.runtime.files.files import write_atomically
from graphc.runtime.files.gcx_phases import metadata_of, program_name
from graphc.runtime.files.gcx_reader import (
    BODY,
    FORMAT,
    body_name,
    contents,
    digest,
    named,
    signature,
)
from graphc.runtime.load.program import ALIGNMENT, HostCall, Image, with_containers
from graphc.runtime.load.size_formulas import listed


def save(image: Image, path: str | Path, *, key: bytes | None = None) -> None:
    """Write an image, signed with a key if there is one; the file appears whole or not at all.

    Raises GraphError when it cannot.
    """
    write_atomically(Path(path), pieces(image, _values(image), key))


def pieces(
    image: Image,
    values: tuple[np.ndarray, list[list[int]]],
    key: bytes | None = None,
    *,
    resources: bool = False,
) -> list[Any]:
    """The bytes of a file, in order. Raises GraphError for a program that no file can hold.

    `values` are those of the variables, and for each device where those of its variables begin.
    With `resources` the program may call queues and readers of the process that gets it.
    """
    if any(each.simulated for each in image.images):
        raise GraphError(
            "a program for the simulator of GPUs cannot be saved",
            hint="compile it for a chip: --target cuda:sm_90",
        )
    hosts = [host for each in image.images for host in each.hosts.values()]
    if found := [h for h in hosts if h.program is None and not (resources and h.resource)]:
        raise GraphError(
            "a .gcx file calls no Python, and this program does",
            details=(found[0].origin.node,),
            location=found[0].origin.location,
            hint="leave gc.print, gc.assert_ and gc.callback out; a .gir file holds all but "
            "callbacks",
        )
    code = Code(image)
    tensors = {
        **named("constants", [_padded(each.constants) for each in image.images]),
        "variables": values[0],
        **named("table", [each.table.astype("<i8") for each in image.images]),
        **named("words", [each.words.astype("<i8") for each in image.images]),
        "objects": np.frombuffer(b"".join(code.parts), np.uint8),
        **named("origins", list(map(_origins, image.images))),
        "text": np.frombuffer(image.text.encode(), np.uint8),
    }
    for device, each in enumerate(image.images):
        for symbol, host in each.hosts.items():
            if host.program is not None:
                held = joined(_phased_pieces(host.program(), {}, "", None))
                tensors[body_name(device, symbol)] = np.frombuffer(held, np.uint8)
    return _file(_metadata(image, values[1], code), tensors, key)


def _file(
    metadata: dict[str, Any], tensors: Mapping[str, np.ndarray], key: bytes | None
) -> list[Any]:
    """The bytes of a file, in order."""
    metadata["contents"] = contents(tensors)
    metadata["digest"] = digest(metadata)
    header = _header(tensors, metadata, key)
    return [header, *(t.data if t.size else b"" for t in tensors.values())]


def save_phases(
    phased: PhasedExecutable, path: str | Path, text: str, *, key: bytes | None = None
) -> None:
    """Write a program that runs in phases, as `save`."""
    write_atomically(Path(path), _phased_pieces(phased, {}, text, key))


def _phased_pieces(
    phased: PhasedExecutable, names: Mapping[str, str], text: str, key: bytes | None
) -> list[Any]:
    """The bytes of a file, in order, in which containers have other `names`."""
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "device": phased.image.device,
        "others": [],
        "phased": metadata_of(phased),
    }
    tensors = {"text": np.frombuffer(text.encode(), np.uint8)}
    for number, step in enumerate(phased.steps):
        for k, image in enumerate(step.program.images):
            held = joined(pieces(with_containers(image, names), _values(image)))
            tensors[program_name(number, k)] = np.frombuffer(held, np.uint8)
    return _file(metadata, tensors, key)


def held_bytes(made: Runnable, containers: Mapping[str, str]) -> bytes:
    """What was loaded as the bytes of a file, with the present values of its variables.

    `containers` are those of `opened`.  A program in phases is written without its text.
    """
    names = {here: name for name, here in containers.items()}
    if isinstance(made, PhasedExecutable):
        return joined(_phased_pieces(made, names, "", None))
    return joined(pieces(with_containers(made.image, names), _values(made.image)))


def joined(parts: Sequence[Any]) -> bytes:
    """Pieces of a file as one."""
    return b"".join(map(bytes, parts))


def no_values(image: Image) -> tuple[np.ndarray, list[list[int]]]:
    """What `pieces` takes where variables get their values elsewhere."""
    return np.zeros(0, np.uint8), [[-1] * len(each.variables) for each in image.images]


def _padded(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, and zeros to the next multiple of the alignment: a copy only where
    some are missing, for constants may be half of the memory."""
    raw = array.reshape(-1).view(np.uint8)
    spare = -raw.size % ALIGNMENT
    return np.pad(raw, (0, spare)) if spare else raw


def _origins(image: Image) -> np.ndarray:
    rows = [[row, origin.node, origin.file, origin.line] for row, origin in image.origins.items()]
    return np.frombuffer(json.dumps(rows).encode(), np.uint8)


def _values(image: Image) -> tuple[np.ndarray, list[list[int]]]:
    """The present values of the variables in one piece, and for each device where those of its
    variables begin (-1 for none).
    """
    parts: list[np.ndarray] = [np.zeros(0, np.uint8)]
    size = 0
    places: list[list[int]] = []
    for each in image.images:
        places.append([])
        for found in each.variables:
            cell = container(found.container).cells.get(found.slot.name)
            if cell is not None:
                cell.settle()
            places[-1].append(size if cell is not None and cell.ready else -1)
            if cell is not None and cell.ready:
                parts.append(_padded(cell.value()))
                size += parts[-1].size
    return np.concatenate(parts), places


def _header(
    tensors: Mapping[str, np.ndarray], metadata: dict[str, Any], key: bytes | None
) -> bytes:
    told = {"graphc": json.dumps(metadata)}
    if key is not None:
        told["signature"] = signature(key, metadata["digest"])
    entries: dict[str, Any] = {"__metadata__": told}
    position = 0
    for name, tensor in tensors.items():
        dtype = "U8" if tensor.dtype == np.uint8 else "I64"
        end = position + tensor.nbytes
        entries[name] = {"dtype": dtype, "shape": [tensor.size], "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


class Code:
    """The object code of a program in one piece, and where in it each object lies.

    `kinds` describes each kind of code once, `number[k]` says which is that of device k.
    """

    def __init__(self, image: Image) -> None:
        self.parts = [image.support]
        self.size = len(image.support)
        self.kinds: list[dict[str, Any]] = []
        self.number: list[int] = []
        known: dict[Any, int] = {}
        for each in image.images:
            key = each.objects, each.cpu, each.triple
            if key not in known:
                known[key] = len(self.kinds)
                self.kinds.append(self._kind(each))
            self.number.append(known[key])

    def _kind(self, image: Image) -> dict[str, Any]:
        return {
            "cpu": image.cpu,
            "features": list(image.features),
            "triple": image.triple,
            "objects": [[*self._place(code), list(symbols)] for code, symbols in image.objects],
            "portable": list(map(self._place, image.portable)),
        }

    def _place(self, code: bytes) -> list[int]:
        self.parts.append(code)
        self.size += len(code)
        return [self.size - len(code), len(code)]


def _metadata(image: Image, values: list[list[int]], code: Code) -> dict[str, Any]:
    shares = zip(image.images, values, code.number, strict=True)
    first, *others = ({**_share(each, where), "code": kind} for each, where, kind in shares)
    return {
        "format": FORMAT,
        **first,
        "formulas": None if image.formulas is None else listed(image.formulas),
        "support": len(image.support),
        "codes": code.kinds,
        "channels": [[c.name, c.nbytes, c.source, c.target, c.buffered] for c in image.channels],
        "others": others,
        "reasons": {str(status): text for status, text in image.reasons.items()},
    }


def _share(image: Image, values: list[int]) -> dict[str, Any]:
    """What concerns one device."""
    return {
        "name": image.name,
        "device": image.device,
        "params": [[slot.name, slot.dtype, list(slot.shape)] for slot in image.params],
        "results": [[slot.name, slot.dtype, list(slot.shape)] for slot in image.results],
        "kernels": list(image.kernels),
        "arity": list(image.arity),
        "shared": list(image.shared),
        "largest": [[size, o.node, o.file, o.line] for size, o in image.largest],
        "guarded": image.guarded,
        "stacks": image.stack_bytes,
        "products": [[row, product.listed] for row, product in image.products.items()],
        "extents": [
            [row, [-size if written else size for size, written in extents]]
            for row, extents in image.extents.items()
        ],
        "arena": image.arena_bytes,
        "holes": None if image.holes is None else listed(image.holes),
        "threads": image.threads,
        "registers": image.registers,
        "donated": list(image.donated),
        "hosts": [_host(symbol, host) for symbol, host in image.hosts.items()],
        "variables": [
            [v.slot.name, v.slot.dtype, list(v.slot.shape), v.container, v.read, v.written, place]
            for v, place in zip(image.variables, values, strict=True)
        ],
    }


def _host(symbol: str, host: HostCall) -> list[Any]:
    slots = (
        [[s.name, s.dtype, list(s.shape)] for s in each] for each in (host.operands, host.results)
    )
    origin, called = host.origin, host.resource or (BODY, "")
    return [symbol, *called, *slots, [origin.node, origin.file, origin.line]]
