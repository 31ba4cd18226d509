"""The order in which a device runs its segments: what is ready goes first.

A table with messages may be cut into segments (see `graphc.codegen.table.segments`), each ended by
a row that names the segments it releases.  `next_segment` follows such a row: it takes one off the
count of each of them, and returns the first row of the first segment in order that waits for
nothing any more.  A message says itself that it is there, so nobody waits for it as long as
anything else is ready; then the device waits for anything.

A message of another process is there when its link has more bytes than were taken, and who sends it
rings the bell of the device: when that has rung, all links that a segment waits for are looked at.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    ACQUIRE,
    I1,
    I64,
    SEQ_CST,
    Extern,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    copy_bytes,
    native,
)
from graphc.runtime.load.layouts import (
    AgendaWords,
    ChannelWords,
    CountWords,
    FrameWords,
    LinkedSegment,
    LinkWords,
)

_trailing_zeros = Extern("llvm.cttz.i64", I64, I64, I1)


def bit_of(f: Writer, segment: Value) -> Value:
    """The bit of a segment in its word of a bitmap."""
    return Value(f, I64, "1") << (segment & 63)


@native()
def agenda_reset(f: Writer, frame: Struct[FrameWords]) -> None:
    """Begin anew, on a device that has segments."""
    agenda = frame.agenda.to(AgendaWords)
    with f.when(agenda.is_some):
        copy_bytes(f, agenda.at("here"), agenda.first, agenda.state_bytes)
        agenda.heard = -1


def note(f: Writer, agenda: Struct[AgendaWords], segment: Value) -> None:
    """The message that begins a segment is there."""
    agenda.at("here").at(segment >> 6).fetch_or(bit_of(f, segment), SEQ_CST)


@native(I64)
def find(f: Writer, agenda: Struct[AgendaWords]) -> None:
    """The first segment that waits for nothing, or -1."""
    opened, here = agenda.open, agenda.at("here")
    with f.when(agenda.bell.is_some):
        listen(f, agenda)
    with f.loop(0, agenda.words) as w:
        ready = opened[w] & here.at(w).load(order=SEQ_CST)
        with f.when(ready != 0):
            f.give((w << 6) + _trailing_zeros(f, ready, 1))
    f.give(-1)


@native()
def listen(f: Writer, agenda: Struct[AgendaWords]) -> None:
    """If the bell has rung, note which messages of links are there."""
    rung = agenda.bell.to(CountWords).at("count").load(order=SEQ_CST)
    with f.when(rung == agenda.heard):
        f.give()
    agenda.heard = rung
    with f.loop(0, agenda.link_count) as k:
        linked = agenda.links.to(LinkedSegment)[k]
        channel = linked.channel.to(ChannelWords)
        sent = channel.link.to(LinkWords).at("sent").load(order=ACQUIRE)
        with f.when(sent > channel.moved):
            note(f, agenda, linked.segment)


@native()
def flip(f: Writer, bitmap: Pointer, segment: Number) -> None:
    """Change the bit of a segment."""
    word = segment >> 6
    bitmap[word] = bitmap[word] ^ bit_of(f, segment)


def release(f: Writer, agenda: Struct[AgendaWords], row: Value, size: Value) -> None:
    """The segment that this row ends is done: those that it names wait for one less."""
    opened, counts = agenda.open, agenda.counts
    with f.loop(2, size) as k:
        segment = row[k]
        left = counts[segment] - 1
        counts[segment] = left
        with f.when(left == 0):
            flip(f, opened, segment)
