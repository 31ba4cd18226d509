"""Summaries as event files of TensorBoard, in the messages that `tensorboardX` declares.

length u64 | its checksum u32 | an Event | its checksum u32 | length ...
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path, PurePath
from typing import Any

from graphc.errors import GraphError
from graphc.frontend.summaries.writers import Entry, Histogram, Picture
from graphc.ir.graph import Graph, Node
from graphc.ir.types import Type, leaves

_numbers = count()


class TensorBoard:
    """A folder that `tensorboard --logdir` shows. Numbers are kept as f32, as TensorBoard does.

    Raises GraphError where tensorboardX is not installed or the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from tensorboardX.crc32c import crc32c
            from tensorboardX.proto import event_pb2
        except ImportError:
            raise GraphError(
                "event files of TensorBoard need tensorboardX",
                hint="pip install 'graphc[tensorboard]', or record to a .jsonl or .csv file",
            ) from None
        self._event: Any = event_pb2.Event
        self._checksum: Any = crc32c
        now = time.time()
        name = f"{int(now)}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = (Path(folder) / f"events.out.tfevents.{name}").open("wb")
        except OSError as error:
            raise GraphError(f"cannot write to {folder}: {error.strerror}") from None
        self._step = -1
        self._write(self._event(wall_time=now, file_version="brain.Event:2"))

    def write(self, entry: Entry) -> None:
        """Append an event; those of earlier steps are then there for a TensorBoard that runs."""
        if entry.step != self._step:
            self._step = entry.step
            self._file.flush()
        event = self._event(wall_time=entry.time, step=entry.step)
        if entry.kind == "graph":
            event.graph_def = graph_def(entry.value)
        else:
            value = event.summary.value.add(tag=_unicode(entry.tag))
            _FILL[entry.kind](value, entry.value)
        self._write(event)

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Any) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        masked = (struct.pack("<I", self._masked(part)) for part in (length, data))
        self._file.write(length + next(masked) + data + next(masked))

    def _masked(self, data: bytes) -> int:
        """The checksum of data that may hold checksums itself."""
        found: int = self._checksum(data) & 0xFFFFFFFF
        return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


# ---------------------------------------------------------------------------------------- values


def _fill_number(value: Any, number: float) -> None:
    value.simple_value = number


def _fill_histogram(value: Any, found: Histogram) -> None:
    """A bucket is known by its right edge: an empty one says where the first begins."""
    histo = value.histo
    histo.min, histo.max, histo.num = found.low, found.high, found.count
    histo.sum, histo.sum_squares = found.sum, found.squares
    histo.bucket_limit.extend(found.edges.tolist())
    histo.bucket.extend([0.0, *found.counts.tolist()])


def _fill_image(value: Any, picture: Picture) -> None:
    height, width, channels = picture.pixels.shape
    value.image.height, value.image.width, value.image.colorspace = height, width, channels
    value.image.encoded_image_string = picture.png()


def _fill_text(value: Any, text: str) -> None:
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = _element("STRING")
    value.tensor.tensor_shape.dim.add(size=1)
    value.tensor.string_val.append(_unicode(text).encode())


_FILL: dict[str, Any] = {
    "scalar": _fill_number,
    "histogram": _fill_histogram,
    "image": _fill_image,
    "text": _fill_text,
}


def _unicode(text: str) -> str:
    """The text without what UTF-8 has no bytes for: half a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode()


# ----------------------------------------------------------------------------------------- graphs

_ELEMENTS = {
    "bool": "BOOL",
    "f16": "HALF",
    "bf16": "BFLOAT16",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "c64": "COMPLEX64",
    "c128": "COMPLEX128",
    **{
        f"{sign}{bits}": f"{name}{bits}"
        for sign, name in (("i", "INT"), ("u", "UINT"))
        for bits in (8, 16, 32, 64)
    },
}


def _element(name: str) -> int:
    """The number of an element type; 0 where these messages have none."""
    from tensorboardX.proto import types_pb2

    return int(dict(types_pb2.DataType.items()).get(f"DT_{name}", 0))


def graph_def(graph: Graph) -> bytes:
    """The graph as TensorBoard draws it: a box for each line of the user's files, and for nested
    parameters; what a loop or a branch does lies in a box of its own.
    """
    from tensorboardX.proto import graph_pb2

    made = graph_pb2.GraphDef()
    made.versions.producer = 22
    pending: list[tuple[str, Graph]] = [("", graph)]
    while pending:
        scope, region = pending.pop()
        names = dict(_named(region, scope))
        for node in (*region.params, *region.nodes):
            _fill_node(made.node.add(), node, names)
            inside = (f"{names[node]}/{k}_{_safe(r.name)}/" for k, r in enumerate(node.regions))
            pending.extend(zip(inside, node.regions))
    return bytes(made.SerializeToString())


def _named(graph: Graph, scope: str) -> Iterator[tuple[Node, str]]:
    """A name of its own for each node; "/" in it says in which box it lies."""
    given = {id: name for name, id in graph.names.items()}
    for node in (*graph.params, *graph.nodes):
        if node.op.traits.parameter:
            path = [_safe(part) for part in node.attrs["name"].split(".")]
        else:
            file, line = node.loc or ("", 0)
            own = _safe(given.get(node.id, node.op.name))
            path = [_safe(f"{PurePath(file).name}.{line}"), own] if line else [own]
        yield node, f"{scope}{'/'.join(path)}_{node.id}"


def _safe(text: str) -> str:
    """The text in the characters that names of nodes may have."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", text).lstrip("_") or "x"


def _fill_node(made: Any, node: Node, names: dict[Node, str]) -> None:
    made.name, made.op = names[node], node.op.name
    made.input.extend(names[n] for n in node.inputs)
    made.input.extend(f"^{names[n]}" for n in node.after)
    if node.place is not None:
        made.device = _unicode(str(node.place))
    if node.loc is not None:
        made.attr["line"].s = _unicode(f"{node.loc[0]}:{node.loc[1]}").encode()
    kinds = [kind for kind in leaves(node.type) if isinstance(kind, Type)]
    if kinds:
        made.attr["dtype"].type = _element(_ELEMENTS.get(kinds[0].dtype.name, ""))
    for kind in kinds:
        shape = made.attr["_output_shapes"].list.shape.add()
        for extent in kind.shape:
            shape.dim.add(size=extent if isinstance(extent, int) else -1)
