"""Links: messages between processes, through memory that both have.

A link has room for one message, like a buffered channel.  Both ends count bytes over all messages
and take turns piece by piece, so that both copy a large message at the same time:

    sent  - taken      bytes that lie in the room
    sender             waits until the last message has left the place of a piece, copies it there
    taker              waits until a piece is there, copies it to where the step table says

Where both ends have no memory in common, each has a link of its own, and carriers move the bytes
between them (see `graphc.runtime.cluster.carrier`).

An empty message is one byte that nobody reads.  Who waits spins for a while, then sleeps in the
kernel (futex) for short times: `stop` and the cancel flag end its wait also when nobody wakes it.
`..._sleeps` is set before the last look at the counter, and whoever moves the counter looks at it
afterwards (both sequentially consistent), so no wake-up is lost.  The word behind it, `..._waited`,
counts the nanoseconds of waits that went on beyond the spinning.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.codegen.llvm.writer import (
    ACQUIRE,
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
from graphc.codegen.runtime.system import FUTEX_WAIT, FUTEX_WAKE, futex, now, pause
from graphc.codegen.runtime.tracing import arrived
from graphc.codegen.runtime.tuning import tuned
from graphc.runtime.call.failure import CANCELLED
from graphc.runtime.load.layouts import CarrierWords, ChannelWords, FrameWords, LinkWords, TeamWords

_WAITED = 8  # bytes from `..._sleeps`


@native(I32, is_public=True)
def reach(
    f: Writer, counter: Pointer, wanted: Number, sleeps: Pointer, cancel: Pointer, stop: Pointer
) -> None:
    """Wait until another process has moved a counter so far; 0, or CANCELLED."""
    begin, turn = f.local(now(f)), f.local(0)
    with f.forever():
        with f.when(counter.load(order=ACQUIRE) >= wanted):
            f.give(0)
        with f.when((cancel.load(order=RELAXED) | stop.load(order=RELAXED)) != 0):
            f.give(CANCELLED)
        pause(f)
        turn.set((turn + 1) & (tuned.clock_pauses - 1))
        with f.when(turn == 0), f.when(spun_enough(f, begin)):
            doze(f, counter, wanted, sleeps)
            later, waited = now(f), sleeps + _WAITED
            waited.store(waited.load(order=RELAXED) + later - begin, RELAXED)
            begin.set(later)


def doze(f: Writer, counter: Value, wanted: Value, sleeps: Value) -> None:
    """Sleep until somebody rouses, for a short time at most."""
    flag, time = Value(f, sleeps.kind, sleeps.text, I32), f.slot(I64, 2)
    time[0], time[1] = 0, tuned.link_nap
    flag.store(f.half(1), SEQ_CST)
    with f.when(counter.load(order=SEQ_CST) < wanted):
        futex(f, flag, FUTEX_WAIT, 1, time)
    flag.store(f.half(0), RELAXED)


@native(is_public=True)
def advance(f: Writer, counter: Pointer, value: Number, sleeps: Pointer) -> None:
    """Move a counter, and wake who waits for it."""
    counter.store(value, SEQ_CST)
    rouse(f, sleeps)


@native()
def rouse(f: Writer, sleeps: Pointer) -> None:
    """Wake who sleeps until something changes; it has changed before."""
    flag = Value(f, sleeps.kind, sleeps.text, I32)
    with f.when(flag.load(order=SEQ_CST) != 0):
        flag.store(f.half(0), SEQ_CST)
        futex(f, flag, FUTEX_WAKE, 1, f.null())


Copy = Callable[[Value, Value], None]


def by_pieces(
    f: Writer,
    frame: Struct[FrameWords],
    channel: Struct[ChannelWords],
    row: Value,
    ends: tuple[str, str, str, str],
    lag: Callable[[Value], Operand],
    copy: Copy,
) -> None:
    """Copy a message piece by piece, each when it is our turn; gives 0, or why not."""
    theirs, we_sleep, ours, they_sleep = ends
    link, stop = channel.link.to(LinkWords), frame.team.to(TeamWords).stop
    size, before, at = row[2], channel.moved, f.local(0)
    whole = size.most(1)
    with f.forever():
        end = (at + tuned.link_piece).least(whole)
        turn = before + end - lag(whole)
        status = reach(f, link.at(theirs), turn, link.at(we_sleep), frame.at("cancel"), stop)
        with f.when(status != 0):
            f.give(status)
        with f.when(at == 0):
            arrived(f, frame, row)
        copy(at, size.least(end) - at)
        advance(f, link.at(ours), before + end, link.at(they_sleep))
        carrier = channel.carrier.to(CarrierWords)
        with f.when(carrier.is_some):
            carrier.at("moves").fetch_add(1, SEQ_CST)
            rouse(f, carrier.at("sleeps"))
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
        copy_bytes(f, room + at, value + at, count)

    ends = "taken", "sender_sleeps", "sent", "taker_sleeps"
    by_pieces(f, frame, channel, row, ends, lambda whole: whole, copy)


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

    ends = "sent", "taker_sleeps", "taken", "sender_sleeps"
    by_pieces(f, frame, channel, row, ends, lambda whole: 0, copy)
