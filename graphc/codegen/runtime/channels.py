"""Channels between the devices of one run: send, receive, wait, notify.

A channel holds one message.  It is empty or full: only the sender fills it, only the receiver
empties it, and each waits for its turn.

    pull   the message is the address of the value, which stays where it is until the run ends
    push   the value is copied to the channel's buffer, so that the sender may go on to the next one
    link   the other end is in another process: see `links`

A channel whose message begins a segment also notes in the receiver's agenda that it is there (see
`ready_queue`).

Who waits (for the value of a word, or for anything on an agenda) spins for a while, then parks.
`parked` is set before the last look at what is waited for, and whoever changes that looks at
`parked` afterwards (both sequentially consistent), so no wake-up is lost.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    I1,
    I32,
    I64,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Global,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    copy_bytes,
    native,
)
from graphc.codegen.runtime.links import reach, ring, send_far, take_far
from graphc.codegen.runtime.ready_queue import find, flip, note, release
from graphc.codegen.runtime.spinning import spun_enough
from graphc.codegen.runtime.system import (
    condition_init,
    condition_signal,
    condition_wait,
    mutex_init,
    mutex_lock,
    mutex_unlock,
    now,
    pause,
)
from graphc.codegen.runtime.tracing import arrived
from graphc.codegen.runtime.tuning import tuned
from graphc.runtime.call.failure import CANCELLED, NO_WORKER
from graphc.runtime.load.layouts import (
    AgendaWords,
    ChannelWords,
    CountWords,
    DeviceWords,
    FrameWords,
    SpotWords,
    TeamWords,
)

IS_EMPTY, IS_FULL = 0, 1  # states of a channel
ANY = -1  # instead of a value: wait for anything on an agenda

never = Global("never", I64)  # a cancel flag that nobody sets


# ------------------------------------------------------------------------- waiting, waking


@native()
def spot_open(f: Writer, spot: Struct[SpotWords]) -> None:
    """Prepare a place where a thread may sleep."""
    spot.at("parked").store(0, RELAXED)
    mutex_init(f, spot.at("mutex"), f.null())
    condition_init(f, spot.at("condition"), f.null())


@native()
def notify(f: Writer, spot: Struct[SpotWords]) -> None:
    """Wake whoever is parked here; what it waits for has changed before."""
    with f.when(spot.at("parked").load(order=SEQ_CST) != 0):
        mutex_lock(f, spot.at("mutex"))
        mutex_unlock(f, spot.at("mutex"))
        condition_signal(f, spot.at("condition"))


@native(I1)
def holds(f: Writer, at: Pointer, wanted: Number) -> None:
    """Whether what is waited for is there."""
    with f.when(wanted == ANY):
        f.give(find(f, at) >= 0)
    f.give(at.load(order=SEQ_CST) == wanted)


@native(I32)
def wait_for(
    f: Writer, at: Pointer, wanted: Number, cancel: Pointer, spot: Struct[SpotWords]
) -> None:
    """Wait until a word has a value; 0, or CANCELLED."""
    with f.when(holds(f, at, wanted)):
        f.give(0)
    begin, turn = f.local(now(f)), f.local(0)
    with f.forever():
        with f.when(holds(f, at, wanted)):
            f.give(0)
        with f.when(cancel.load(order=RELAXED) != 0):
            f.give(CANCELLED)
        pause(f)
        turn.set((turn + 1) & (tuned.clock_pauses - 1))
        with f.when(turn == 0), f.when(spun_enough(f, begin)):
            park(f, at, wanted, cancel, spot)
            begin.set(now(f))


def park(f: Writer, at: Value, wanted: Value, cancel: Value, spot: Struct[SpotWords]) -> None:
    """Sleep until somebody notifies, unless there is nothing to wait for any more."""
    parked = spot.at("parked")
    mutex_lock(f, spot.at("mutex"))
    parked.store(1, SEQ_CST)
    is_there = holds(f, at, wanted)
    with f.when((is_there | (cancel.load(order=SEQ_CST) != 0)) == 0):
        condition_wait(f, spot.at("condition"), spot.at("mutex"))
    parked.store(0, SEQ_CST)
    mutex_unlock(f, spot.at("mutex"))


# ------------------------------------------------------------------------- sending, receiving


def device_of(team: Struct[TeamWords], number: Value | int) -> Struct[DeviceWords]:
    """A device of a team; they lie behind it."""
    return (team + TeamWords.nbytes).to(DeviceWords)[number]


def channel_of(frame: Struct[FrameWords], row: Value) -> Struct[ChannelWords]:
    """The channel of a row that sends or receives."""
    return frame.team.to(TeamWords).channels.to(ChannelWords)[row[3]]


@native(I32)
def take_turn(f: Writer, frame: Struct[FrameWords], at: Pointer, wanted: Number) -> None:
    """Wait as the device of this frame."""
    spot = device_of(frame.team.to(TeamWords), frame.device)
    f.give(wait_for(f, at, wanted, frame.at("cancel"), spot))


@native()
def send_on(
    f: Writer, frame: Struct[FrameWords], channel: Struct[ChannelWords], state: Number
) -> None:
    """Let the other end of a channel have its turn."""
    agenda = channel.agenda.to(AgendaWords)
    with f.when(agenda.is_some & (state == IS_FULL)):
        channel.at("state").store(state, RELEASE)
        note(f, agenda, channel.segment)
        with f.when(agenda.bell.is_some):
            ring(f, agenda.bell.to(CountWords))
    with f.otherwise():
        channel.at("state").store(state, SEQ_CST)
    peer = (state == IS_FULL).choose(channel.target, channel.source)
    notify(f, device_of(frame.team.to(TeamWords), peer))


@native(I32)
def send(f: Writer, frame: Struct[FrameWords], row: Pointer, value: Pointer) -> None:
    """Put a value into the channel of a row when it is empty; 0, or why not."""
    if not f.module.has_threads:
        f.give(NO_WORKER)
        return
    channel = channel_of(frame, row)
    with f.when(channel.link.is_some):
        f.give(send_far(f, frame, channel, row, value))
    status = take_turn(f, frame, channel, IS_EMPTY)
    with f.when(status != 0):
        f.give(status)
    arrived(f, frame, row)
    buffer, size = channel.buffer, row[2]
    with f.when(buffer.is_null):
        channel.address = value
    with f.otherwise():
        copy_bytes(f, buffer, value, size)
        keep(f, channel, value, size)
    send_on(f, frame, channel, IS_FULL)
    f.give(0)


def keep(f: Writer, channel: Struct[ChannelWords], value: Value, size: Value) -> None:
    """Add a message to those that are kept, where they are and there is room."""
    place = channel.record
    with f.when(place.is_some):
        end = place + size
        with f.when(channel.limit.below(end) == 0):
            copy_bytes(f, place, value, size)
            channel.record = end


@native(I32)
def receive(f: Writer, frame: Struct[FrameWords], row: Pointer, target: Pointer) -> None:
    """Copy the message of a row's channel when it is there; 0, or why not."""
    if not f.module.has_threads:
        f.give(NO_WORKER)
        return
    channel = channel_of(frame, row)
    with f.when(channel.link.is_some):
        f.give(take_far(f, frame, channel, row, target))
    status = take_turn(f, frame, channel, IS_FULL)
    with f.when(status != 0):
        f.give(status)
    arrived(f, frame, row)
    copy_bytes(f, target, channel.address, row[2])
    send_on(f, frame, channel, IS_EMPTY)
    f.give(0)


@native(I64)
def next_segment(f: Writer, frame: Struct[FrameWords], row: Pointer, size: Number) -> None:
    """The row where a device goes on after the end of a segment, or a negative status."""
    if not f.module.has_threads:
        f.give(NO_WORKER)
        return
    agenda = frame.agenda.to(AgendaWords)
    release(f, agenda, row, size)
    with f.forever():
        segment = find(f, agenda)
        with f.when(segment >= 0):
            flip(f, agenda.open, segment)
            f.give(agenda.rows[segment])
        with f.when(anything(f, frame, agenda) != 0):
            f.give(CANCELLED)


@native(I32)
def anything(f: Writer, frame: Struct[FrameWords], agenda: Struct[AgendaWords]) -> None:
    """Wait as the device of this frame until one more message is there."""
    with f.when(agenda.bell.is_some):
        stop = frame.team.to(TeamWords).stop
        bell = agenda.bell.to(CountWords)
        f.give(reach(f, bell, agenda.heard + 1, frame.at("cancel"), stop))
    f.give(take_turn(f, frame, agenda, ANY))
