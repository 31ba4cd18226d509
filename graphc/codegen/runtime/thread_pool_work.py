"""What threads do with a step of many units: the job, its chunks and who takes them.

The units of a step are cut into `slots * chunks` equal ranges, a split that depends on the step and
on the thread count alone.  A thread claims the chunks of its own slot by counting `next` of that
slot up, then helps the other slots in turn.
"""

from __future__ import annotations

from graphc.base.memory_layout import Address, Half, Layout, Word
from graphc.codegen.llvm.writer import I32, RELAXED, Global, Number, Pointer, Value, Writer, native
from graphc.runtime.call.failure import CANCELLED
from graphc.runtime.devices.device import MOST_THREADS

IDLE, POSTED, ENTERED = range(3)  # states of a slot


class SlotWords(Layout, nbytes=256):
    """A thread of the pool: what it shares with others lies in lines of its own."""

    state: Half
    parked: Half
    next: Word = 64  # chunks of this slot that have been claimed
    mutex: Word = 128
    condition: Word = 192
    thread: Address = 248


class JobWords(Layout):
    """The step at work."""

    kernel: Address
    buffers: Address
    parameters: Address
    units: Word
    slots: Word
    chunks: Word  # per slot
    cancel: Address


slots = Global("slots", SlotWords, count=MOST_THREADS, align=256)
job = Global("job", JobWords, align=128)
failure = Global("status", I32, align=128)  # the first status of the job that is not 0


@native()
def run_chunks(f: Writer, thread: Number, most: Number) -> None:
    """Run so many chunks at most: those of the thread's own slot, then those of the others."""
    work = job(f)
    count, chunks, cancel = work.slots, work.chunks, work.cancel
    total, units, kernel = count * chunks, work.units, work.kernel
    buffers, parameters = work.buffers, work.parameters
    ran = f.local(0)
    with f.loop(0, count) as turn:
        shifted = thread + turn
        s = (shifted >= count).choose(shifted - count, shifted)
        claimed = slots(f)[s].at("next")
        with f.forever():
            with f.when(failure(f).load(order=RELAXED) != 0):
                f.give()
            with f.when(cancel.load(order=RELAXED) != 0):
                fail(f, f.half(CANCELLED))
                f.give()
            with f.when(claimed.load(order=RELAXED) >= chunks):
                f.leave()
            chunk = claimed.fetch_add(1, RELAXED)
            with f.when(chunk >= chunks):
                f.leave()
            number = s * chunks + chunk
            low, high = number * units // total, (number + 1) * units // total
            with f.when(low < high):
                status = f.invoke(I32, kernel, buffers, parameters, low, high, thread)
                with f.when(status != 0):
                    fail(f, status)
                    f.give()
                ran += 1
                with f.when(ran >= most):
                    f.give()


def fail(f: Writer, status: Value) -> None:
    """Write a status down, unless there is one."""
    failure(f).cas(0, status, RELAXED)


@native(I32)
def alone(
    f: Writer,
    kernel: Pointer,
    buffers: Pointer,
    parameters: Pointer,
    units: Number,
    poll: Number,
    cancel: Pointer,
) -> None:
    """Run a kernel on one thread; look at the cancel flag every `poll` units, if that is not 0."""
    with f.when(poll == 0):
        f.give(f.invoke(I32, kernel, buffers, parameters, 0, units, 0))
    low = f.local(0)
    with f.forever():
        high = (low + poll).least(units)
        status = f.invoke(I32, kernel, buffers, parameters, low, high, 0)
        with f.when((status != 0) | (high >= units)):
            f.give(status)
        with f.when(cancel.load(order=RELAXED) != 0):
            f.give(CANCELLED)
        low.set(high)
