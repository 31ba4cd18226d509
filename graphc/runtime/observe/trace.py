"""What happened when in one run: every kernel, copy, message and wait of every device.

The times are written natively, and only in a traced run (see `graphc.codegen.runtime.tracing`);
they cost about 30 ns per row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.frame import Part
from graphc.runtime.load.program import Channel, Origin
from graphc.runtime.load.table import CALL, COPY, END, NAMES, POP, PUSH, SEND, STACK, WAIT

MOST_MARKS = 1 << 20
SHORTEST_WAIT = 1e-6  # of a send: its channel is nearly always empty
_MOVES = (COPY, STACK, PUSH, POP)


@record(frozen=True)
class Event:
    """One thing that a device did, in seconds from the start of the run.

    `kind` is kernel, copy (any row that only moves data), send, wait (for a message, or for a
    channel to be empty) or transfer (of the message that has come); `name` says which kernel, row
    or channel, `peer` which device is at the other end of the channel.
    """

    device: int
    kind: str
    name: str
    start: float
    end: float
    row: int
    origin: Origin | None
    peer: int = -1

    @property
    def seconds(self) -> float:
        return self.end - self.start


@record(frozen=True)
class Link:
    """What went from one device to another: messages, bytes, the seconds in which they were copied
    and those for which the other waited for them."""

    source: str
    target: str
    messages: int = 0
    bytes: int = 0
    moving: float = 0.0
    waiting: float = 0.0


@record(frozen=True)
class Trace:
    """The events of a run, device by device; `dropped` counts rows that did not fit.

    `channels` are the bytes of a message of each channel, `clock_error` the seconds by which times
    of devices in other processes may be wrong.
    """

    name: str
    devices: tuple[str, ...]
    events: tuple[Event, ...]
    dropped: int
    channels: Mapping[str, int] = field(default_factory=dict)
    clock_error: float = 0.0

    @property
    def seconds(self) -> float:
        return max((event.end for event in self.events), default=0.0)

    def links(self) -> list[Link]:
        """What went between each two devices."""
        found: dict[tuple[int, int], list[float]] = {}
        receives = {(e.device, e.row) for e in self.events if e.kind == "transfer"}
        for event in self.events:
            taken = event.kind == "transfer"
            if taken or (event.kind == "wait" and (event.device, event.row) in receives):
                row = found.setdefault((event.peer, event.device), [0, 0, 0.0, 0.0])
                row[0] += taken
                row[1] += taken * self.channels.get(event.name, 0)
                row[2 if taken else 3] += event.seconds
        return [
            Link(self.devices[a], self.devices[b], int(count), int(nbytes), *seconds)
            for (a, b), (count, nbytes, *seconds) in sorted(found.items())
        ]

    def totals(self, device: int) -> dict[str, float]:
        """The seconds a device spent on each kind of event; it waits for some device."""
        found: dict[str, float] = defaultdict(float)
        for event in self.events:
            if event.device == device:
                waits = event.kind == "wait"
                found[f"wait for {self.devices[event.peer]}" if waits else event.kind] += (
                    event.seconds
                )
        return dict(found)


def trace(
    executable: Executable, arrays: Sequence[np.ndarray], *, room: int = MOST_MARKS
) -> tuple[list[np.ndarray], Trace]:
    """Run on flat arrays: the results, and what happened.  Raises what `Executable.run` raises,
    and GraphError for several programs, which run one after the other.

    `room` is the greatest number of rows that are kept for each device.
    """
    if not hasattr(executable, "traced"):
        raise GraphError(
            f"{executable.image.name} has sizes that its data decides: several programs run, which "
            "have no timeline in common",
            hint="graphc profile measures the kernels of all of them",
        )
    outputs, logs = executable.traced(arrays, room)
    return outputs, trace_of(executable, logs)


def trace_of(executable: Executable, logs: Sequence[np.ndarray]) -> Trace:
    """What the logs of a run tell."""
    images = executable.image.images
    start = min((int(log[3]) for log in logs if log[0]), default=0)
    events = [
        event
        for number, (part, log) in enumerate(zip(executable.parts, logs, strict=True))
        for event in _events(number, part, images[0].channels, log, start)
    ]
    events = [*in_causal_order(events)]
    dropped = sum(max(0, int(log[0] - log[1])) for log in logs)
    devices = tuple(image.device for image in images)
    sizes = {channel.name: channel.nbytes for channel in images[0].channels}
    error = getattr(executable, "clock_error", 0.0)
    return Trace(executable.image.name, devices, tuple(events), dropped, sizes, error)


def in_causal_order(events: Sequence[Event]) -> Iterator[Event]:
    """The events; a send has ended when its message is taken.

    The row of a send goes on until it has told the receiver, who may have taken the message by then
    and ended first.
    """
    taken = {(e.name, n): e.start for e, n in numbered(events) if e.kind == "transfer"}
    for event, number in numbered(events):
        end = taken.get((event.name, number), event.end) if event.kind == "send" else event.end
        if end < event.end:
            yield Event(
                event.device,
                event.kind,
                event.name,
                min(event.start, end),
                end,
                event.row,
                event.origin,
                event.peer,
            )
        else:
            yield event


def numbered(events: Iterable[Event]) -> Iterator[tuple[Event, int]]:
    """Every event, and of a send or transfer which message of its channel that is: channels are
    first in, first out."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for event in events:
        counts[event.kind, event.name] += 1
        yield event, counts[event.kind, event.name]


def _events(
    number: int, part: Part, channels: Sequence[Channel], log: np.ndarray, begin: int
) -> Iterator[Event]:
    """Each mark lasts until the next one; rows that only steer the run are left out.

    Between the end of a segment and a row that receives, the device waited for that message.
    """
    image, words = part.image, part.image.table.tolist()
    ended = 0
    marks = log[2 : 2 + 2 * int(min(log[0], log[1]))].reshape(-1, 2).tolist()
    for (mark, time), (_, following) in pairwise(marks):
        row = mark >> 1
        opcode = words[row]
        since = ended if opcode == WAIT and ended else time
        start, end = (since - begin) * 1e-9, (following - begin) * 1e-9
        ended = time if opcode == END else 0
        place = start, end, row, image.origins.get(row)
        if opcode == CALL:
            yield Event(number, "kernel", part.called(row), *place)
        elif opcode in _MOVES:
            yield Event(number, "copy", NAMES[opcode], *place)
        elif opcode == WAIT:
            channel = channels[words[row + 3]]
            kind = "transfer" if mark & 1 else "wait"
            yield Event(number, kind, channel.name, *place, channel.source)
        elif opcode == SEND and (mark & 1 or end - start > SHORTEST_WAIT):
            channel = channels[words[row + 3]]
            yield Event(
                number, "send" if mark & 1 else "wait", channel.name, *place, channel.target
            )


# ------------------------------------------------------------------------------------ for viewers


def chrome(found: Trace, titles: Mapping[str, str]) -> dict[str, Any]:
    """The trace as Chrome's Trace Event Format: a thread per device, an arrow per message."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": device}}
        for tid, device in enumerate(found.devices)
    ]
    events += [_complete(event, found.devices, titles) for event in found.events]
    events += _arrows(found.events)
    told = {"dropped": found.dropped, "clock_error_us": round(found.clock_error * 1e6, 3)}
    return {"displayTimeUnit": "ns", "traceEvents": events, "otherData": told}


_TITLES = {"send": "send {} to {}", "wait": "wait on {} for {}", "transfer": "{} from {}"}


def _complete(event: Event, devices: Sequence[str], titles: Mapping[str, str]) -> dict[str, Any]:
    node = event.origin.node if event.origin else ""
    title = titles.get(node, node)
    if event.kind in _TITLES:
        title = _TITLES[event.kind].format(event.name, devices[event.peer])
    args = {"node": node, "row": event.row, "what": event.name}
    if event.origin is not None and event.origin.file:
        args["line"] = f"{event.origin.file}:{event.origin.line}"
    return {
        "ph": "X",
        "name": title or event.name,
        "cat": event.kind,
        "pid": 0,
        "tid": event.device,
        "ts": round(event.start * 1e6, 3),
        "dur": round(event.seconds * 1e6, 3),
        "args": args,
    }


def _arrows(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """From every send to the transfer that took its message: the n-th of one, the n-th of the
    other.  Perfetto takes numbers as ids alone, and times that lie inside of what they belong to.
    """
    ids: dict[tuple[str, int], int] = {}
    for event, number in numbered(events):
        if event.kind not in ("send", "transfer"):
            continue
        first = event.kind == "send"
        yield {
            "ph": "s" if first else "f",
            "bp": "e",
            "name": event.name,
            "cat": "message",
            "id": ids.setdefault((event.name, number), len(ids) + 1),
            "pid": 0,
            "tid": event.device,
            "ts": round(event.start * 1e6, 3),
        }
