"""Links: messages between processes, through memory that both have.

A link has room for one message, like a buffered channel.  Both ends count bytes over all messages
and take turns piece by piece, so that both copy a large message at the same time:

    sent  - taken      bytes that lie in the room
    sender             waits until the last message has left the place of a piece, copies it there
    taker              waits until a piece is there, copies it to where the step table says

Where both ends have no memory in common, each has a link of its own, and carriers move the bytes
between them (see `graphc.runtime.cluster.transport`).

An empty message is one byte that nobody reads.  Who waits spins for a while, then sleeps in the
kernel (futex) for short times: `stop` and the cancel flag end its wait also when nobody wakes it.
`sleeps` is set before the last look at the count, and whoever moves the count looks at it
afterwards (both sequentially consistent), so no wake-up is lost.  `waited` are the nanoseconds of
waits that went on beyond the spinning.  Where the other end was on the core of who waits, it cannot
move while that spins: then it sleeps at once.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.llvm.writer import (
    ACQUIRE,
    I1,
    I32,
    I64,
    RELAXED,
    SEQ_CST,
    Number,
    Operand,
    Pointer,
    Struct,
    Value,
    Writer,
    copy_bytes,
    native,
)
from graphc.codegen.runtime.spinning import spun_enough
from graphc.codegen.runtime.system import FUTEX_WAIT, FUTEX_WAKE, core, futex, now, pause, stream
from graphc.codegen.runtime.tracing import arrived
from graphc.codegen.runtime.tuning import tuned
from graphc.runtime.call.failure import CANCELLED
from graphc.runtime.load.layouts import ChannelWords, CountWords, FrameWords, LinkWords, TeamWords


@native(I32, is_public=True)
def reach(
    f: Writer, counter: Struct[CountWords], wanted: Number, cancel: Pointer, stop: Pointer
) -> None:
    """Wait until another process has moved a count so far; 0, or CANCELLED."""
    count = counter.at("count")
    with f.when(count.load(order=ACQUIRE) >= wanted):
        f.give(0)
    begin, turn = f.local(now(f)), f.local(0)
    with f.forever():
        with f.when(count.load(order=ACQUIRE) >= wanted):
            f.give(0)
        with f.when((cancel.load(order=RELAXED) | stop.load(order=RELAXED)) != 0):
            f.give(CANCELLED)
        pause(f)
        turn.set((turn + 1) & (tuned.clock_pauses - 1))
        with f.when(turn == 0), f.when(is_in_vain(f, counter, begin)):
            doze(f, counter, wanted)
            later = now(f)
            counter.waited = counter.waited + later - begin
            begin.set(later)


@native(I1)
def is_in_vain(f: Writer, counter: Struct[CountWords], begin: Number) -> None:
    """Whether to spin no longer: long enough, or on the core of who moves the count."""
    with f.when(counter.at("core").load(order=RELAXED) == core(f) + 1):
        f.give(1)
    f.give(spun_enough(f, begin))


def doze(f: Writer, counter: Struct[CountWords], wanted: Value) -> None:
    """Sleep until somebody rouses, for a short time at most."""
    flag, time = counter.at("sleeps"), f.slot(I64, 2)
    time[0], time[1] = 0, tuned.link_nap
    flag.store(f.half(1), SEQ_CST)
    with f.when(counter.at("count").load(order=SEQ_CST) < wanted):
        futex(f, flag, FUTEX_WAIT, 1, time)
    flag.store(f.half(0), RELAXED)


@native(is_public=True)
def advance(f: Writer, counter: Struct[CountWords], value: Number) -> None:
    """Move a count, and wake who waits for it."""
    counter.at("core").store(core(f) + 1, RELAXED)
    counter.at("count").store(value, SEQ_CST)
    rouse(f, counter)


@native(is_public=True)
def ring(f: Writer, counter: Struct[CountWords]) -> None:
    """Move a count that several threads move, and wake who waits for it."""
    counter.at("count").fetch_add(1, SEQ_CST)
    rouse(f, counter)


@native()
def rouse(f: Writer, counter: Struct[CountWords]) -> None:
    """Wake who sleeps until a count changes; it has changed before."""
    flag = counter.at("sleeps")
    with f.when(flag.load(order=SEQ_CST) != 0):
        flag.store(f.half(0), SEQ_CST)
        futex(f, flag, FUTEX_WAKE, 1, f.null())


Copy = Callable[[Value, Value], None]


def by_pieces(
    f: Writer,
    frame: Struct[FrameWords],
    channel: Struct[ChannelWords],
    row: Value,
    ends: tuple[str, str],
    lag: Callable[[Value], Operand],
    copy: Copy,
) -> None:
    """Copy a message piece by piece, each when it is our turn; gives 0, or why not."""
    link, stop = channel.link.to(LinkWords), frame.team.to(TeamWords).stop
    theirs, ours = (link.at(end).to(CountWords) for end in ends)
    size, before, at = row[2], channel.moved, f.local(0)
    whole = size.most(1)
    with f.forever():
        end = (at + tuned.link_piece).least(whole)
        turn = before + end - lag(whole)
        status = reach(f, theirs, turn, frame.at("cancel"), stop)
        with f.when(status != 0):
            f.give(status)
        with f.when(at == 0):
            arrived(f, frame, row)
        copy(at, size.least(end) - at)
        advance(f, ours, before + end)
        with f.when(channel.carrier.is_some):
            ring(f, channel.carrier.to(CountWords))
        with f.when((at == 0) & channel.bell.is_some):
            ring(f, channel.bell.to(CountWords))
        at.set(end)
        with f.when(end == whole):
            f.leave()
    channel.moved = before + whole
    f.give(0)


@native(I32)
def send_far(
    f: Writer,
    frame: Struct[FrameWords],
    channel: Struct[ChannelWords],
    row: Pointer,
    value: Pointer,
) -> None:
    """Put a value into the link of a channel when the last one has left it."""
    room = channel.link + LinkWords.nbytes

    def copy(at: Value, count: Value) -> None:
        streamed = f.local(0)
        with f.when(row[2] >= tuned.link_stream):
            streamed.set(count & ~63)
            stream(f, room + at, value + at, count >> 6)
        rest = at + streamed
        copy_bytes(f, room + rest, value + rest, count - streamed)

    by_pieces(f, frame, channel, row, ("taken", "sent"), lambda whole: whole, copy)


@native(I32)
def take_far(
    f: Writer,
    frame: Struct[FrameWords],
    channel: Struct[ChannelWords],
    row: Pointer,
    target: Pointer,
) -> None:
    """Copy the message of a channel's link when it is there."""
    room = channel.link + LinkWords.nbytes

    def copy(at: Value, count: Value) -> None:
        copy_bytes(f, target + at, room + at, count)

    by_pieces(f, frame, channel, row, ("sent", "taken"), lambda whole: 0, copy)
