"""What client and workers tell one another: typed, bounded frames.

    4 bytes   "gcw1"          4 bytes   which message
    4 bytes   descriptors     8 bytes   length of the text, at most MOST_BYTES
    text      a JSON object, whose fields the reader asks for by name and type

Descriptors of shared memory come with the head.  Nothing in a frame is executed.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, TypeVar

from graphc.base.record import record
from graphc.base.version import __version__
from graphc.errors import GraphError
from graphc.runtime.files.gcx_reader import FORMAT

MOST_BYTES = 1 << 26
MOST_DESCRIPTORS = 64
START_SECONDS = 60.0  # for a worker to join
PULSE = b"/pulse"  # behind the name of a worker: the connection for its beats
_MAGIC = b"gcw1"
_HEAD = struct.Struct("<4sIIQ")

T = TypeVar("T")


class Kind(IntEnum):
    """Which message a frame is."""

    HELLO, LOAD, OPEN, DROP, DONE, ERROR, RUN, SET, GET, BEAT, CANCEL, CLOSE = range(12)
    WHY, CLOCK, LOG = range(12, 15)


class Lost(Exception):
    """The other end is not there any more."""


@record(frozen=True)
class Message:
    """A frame that was read; `descriptors` are the reader's to close, `payload` are bytes."""

    kind: Kind
    fields: dict[str, Any]
    descriptors: tuple[int, ...] = ()
    payload: tuple[bytes, ...] = ()

    def get(self, name: str, kind: type[T]) -> T:
        """A field. Raises GraphError where it is missing or of another type."""
        value = self.fields.get(name)
        if type(value) is not kind:
            raise GraphError(f"message {self.kind.name} has no {kind.__name__} {name!r}")
        return value

    def numbers(self, name: str) -> list[int]:
        """A list of numbers. Raises GraphError."""
        values = self.get(name, list)
        if not all(type(value) is int for value in values):
            raise GraphError(f"message {self.kind.name} has other than numbers in {name!r}")
        return values


def hello(**fields: Any) -> dict[str, Any]:
    """What a worker says when it joins."""
    return {"version": __version__, "format": FORMAT, "pid": os.getpid(), **fields}


def check_version(said: Message, worker: object) -> None:
    """Raise GraphError for a worker whose programs are not those of this process."""
    theirs = said.get("version", str), said.get("format", int)
    if theirs != (ours := (__version__, FORMAT)):
        raise GraphError(
            f"{worker} has graphc {theirs[0]} with programs of format {theirs[1]}",
            hint=f"this process has {ours[0]} and {ours[1]}: install the same version there",
        )


def require_good(answer: Message, worker: object) -> Message:
    """The answer of a worker. Raises GraphError where it is an error."""
    if answer.kind == Kind.ERROR:
        raise GraphError(
            f"{worker}: {answer.get('message', str)}", hint=answer.get("hint", str) or None
        )
    return answer


def send(
    connection: socket.socket, kind: Kind, fields: dict[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send a frame. Raises Lost, and GraphError for one that is too large."""
    text = json.dumps(fields).encode()
    if len(text) > MOST_BYTES or len(descriptors) > MOST_DESCRIPTORS:
        raise GraphError(
            f"message {kind.name} has {len(text)} bytes and {len(descriptors)} descriptors",
            hint=f"at most {MOST_BYTES} and {MOST_DESCRIPTORS} are sent",
        )
    head = _HEAD.pack(_MAGIC, kind, len(descriptors), len(text))
    try:
        sent = socket.send_fds(connection, [head], descriptors)
        connection.sendall(head[sent:] + text)
    except OSError:
        raise Lost from None


def readable(descriptors: Sequence[int], seconds: float) -> list[int]:
    """Those that can be read or have ended, as soon as there is one; `select.select` refuses
    numbers from 1024."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(1000 * seconds)]


def receive(connection: socket.socket) -> Message:
    """The next frame. Raises Lost, and GraphError for what is none."""
    try:
        head, descriptors, _, _ = socket.recv_fds(connection, _HEAD.size, MOST_DESCRIPTORS)
        head += _exactly(connection, _HEAD.size - len(head)) if head else b""
        if not head:
            raise Lost
        magic, kind, count, length = _HEAD.unpack(head)
        wrong = magic != _MAGIC or count != len(descriptors) or length > MOST_BYTES
        if wrong or kind not in set(Kind):
            for each in descriptors:
                os.close(each)
            raise GraphError("what came from another process is no message of graphc")
        text = _exactly(connection, length)
    except OSError:
        raise Lost from None
    return Message(Kind(kind), _fields(kind, text), tuple(descriptors))


def _fields(kind: int, text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise GraphError(f"message {Kind(kind).name} holds no table")
    return fields


def framed(kind: Kind, fields: dict[str, Any], payload: Sequence[Any] = ()) -> list[Any]:
    """A message as parts of one of ZeroMQ: the kind, the fields, and bytes."""
    return [bytes([kind]), json.dumps(fields).encode(), *payload]


def unframed(parts: Sequence[bytes]) -> Message:
    """The message of such parts. Raises GraphError for what is none."""
    if len(parts) < 2 or len(parts[0]) != 1 or parts[0][0] not in set(Kind):
        raise GraphError("what came from another process is no message of graphc")
    return Message(Kind(parts[0][0]), _fields(parts[0][0], parts[1]), (), tuple(parts[2:]))


def message_of(parts: Sequence[bytes]) -> Message | None:
    """As `unframed`; None for what is none: threads that listen to all others go on listening."""
    try:
        return unframed(parts)
    except GraphError:
        return None


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(min(1 << 20, count - len(found)))
        if not piece:
            raise Lost
        found += piece
    return bytes(found)


def host_of(address: str) -> str:
    """The host of "tcp://host:port". Raises GraphError for another form."""
    kind, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not (port.isascii() and port.isdecimal()):
        raise GraphError(
            f"GRAPHC_ADDRESS is {address!r}", hint="write for example tcp://10.0.0.1:5555"
        )
    return host
