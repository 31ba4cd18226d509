"""When parked workers of the pool are woken, and when they are left alone.

Waking a parked worker costs the caller tens of microseconds and takes effect late: it must pay.
Steps run on the caller alone add their time to a debt; a step wakes the workers when the debt
exceeds the patience, or when its first chunk shows that the rest will take as long; what was seen
once is remembered for the next time that the same step finds its workers asleep.  Patience
doubles each time that the workers woken before did nothing, and falls back when they did.

A worker that loses its core in the middle of a chunk holds up the caller for a whole time slice.
`judge` keeps the balance of what workers save, their shares of the steps, and of what they cost,
the time that the caller waits for them.  One that has come late once in a while is forgiven.  When
they cost more than they saved they are sent on a holiday: steps run on the caller alone for a
while, twice as long each time until workers have been of use again.
"""

from __future__ import annotations

from graphc.base.memory_layout import Layout, Word
from graphc.codegen.llvm.writer import (
    I32,
    I64,
    RELAXED,
    SEQ_CST,
    Global,
    Number,
    Struct,
    Value,
    Writer,
    copy_bytes,
    native,
)
from graphc.codegen.runtime.system import (
    MASK,
    condition_signal,
    core,
    get_thread_cores,
    mutex_lock,
    mutex_unlock,
    now,
    set_thread_cores,
    without_core,
)
from graphc.codegen.runtime.thread_pool_work import SlotWords, job, run_chunks, slots
from graphc.codegen.runtime.tuning import tuned

ALL = (1 << 63) - 1  # chunks
_SPREAD, _MIX = 4294967311, -7046029254386353131  # of the hash of a step
_COST_BITS = 6


class CostWords(Layout):
    """What the rest of a step took, or would have taken, the last time."""

    step: Word
    nanoseconds: Word


debt = Global("debt", I64)
patience = Global("patience", I64, tuned.least_patience)
helped = Global("helped", I32, align=128)  # a worker has done something since it was woken
holiday = Global("holiday", I64)  # ends then
rest = Global("rest", I64, tuned.shortest_rest)  # how long the next one is
saved = Global("saved", I64)  # nanoseconds, less those waited for
last = Global("last", I64)
costs = Global("costs", CostWords, count=1 << _COST_BITS, align=64)


@native()
def run_beside_sleepers(f: Writer, count: Number) -> None:
    """Run the job, whose workers are parked, at least in part: wake them if that pays."""
    limit = patience(f).load()
    idle = now(f) - last(f).load()
    owed = (idle > tuned.forgiven).choose(0, debt(f).load())
    with f.when(owed >= limit):
        wake_and_run(f, count)
        f.give()
    work = job(f)
    place = work.at("kernel").load(I64) ^ work.at("parameters").load(I64)
    step = place ^ (work.units * _SPREAD)
    cost = costs(f)[(step * _MIX) >> (64 - _COST_BITS)]
    started = f.local(0)
    with f.when(cost.step == step):
        with f.when(cost.nanoseconds >= limit):
            wake_and_run(f, count)
            f.give()
        started.set(now(f))
    with f.otherwise():
        started.set(now(f))
        run_chunks(f, 0, 1)
        others = (now(f) - started) * (count * work.chunks - 1)
        cost.step = step
        cost.nanoseconds = others
        with f.when(others >= limit):
            wake_and_run(f, count)
            f.give()
    run_chunks(f, 0, ALL)
    end = now(f)
    spent = end - started
    cost.nanoseconds = spent
    last(f).store(end)
    debt(f).store(owed + spent)


@native()
def wake_and_run(f: Writer, count: Number) -> None:
    """Wake the workers, and run what they leave."""
    useful = helped(f).exchange(0, RELAXED) != 0
    longer = (patience(f).load() << 1).least(tuned.most_patience)
    patience(f).store(useful.choose(tuned.least_patience, longer))
    debt(f).store(0)
    with f.loop(1, count) as s:
        slot = slots(f)[s]
        with f.when(slot.at("parked").exchange(0, SEQ_CST) != 0):
            mutex_lock(f, slot.at("mutex"))
            mutex_unlock(f, slot.at("mutex"))
            rouse(f, slot)
    run_chunks(f, 0, ALL)


def judge(f: Writer, begin: Value, own_end: Value, count: Value) -> None:
    """The caller has waited for its workers: send them on a holiday if they cost more than they
    saved, for as long as they were of no use before."""
    end = now(f)
    gain = (own_end - begin) * (count - 1) - (end - own_end)
    balance = saved(f).load() + gain
    saved(f).store(balance.least(tuned.most_saved))
    with f.when(balance >= tuned.most_saved):
        rest(f).store(tuned.shortest_rest)
    with f.when(balance < -tuned.stall):
        length = rest(f).load()
        holiday(f).store(end + length)
        rest(f).store((length << 1).least(tuned.longest_rest))
        saved(f).store(0)


def rouse(f: Writer, slot: Struct[SlotWords]) -> None:
    """Signal a worker.

    One that wakes on the core of its caller may stay in the queue there until the system's next
    tick, 10 ms later, though another core is idle.  So it may not use that core while it is woken.
    """
    if not f.module.is_linux:
        condition_signal(f, slot.at("condition"))
        return
    usual, other = f.slot("i8", MASK), f.slot("i8", MASK)
    thread = slot.thread
    is_known = get_thread_cores(f, thread, MASK, usual) == 0
    here = core(f)
    with f.when(is_known & here.below(8 * MASK)):
        copy_bytes(f, other, usual, MASK)
        without_core(f, other, here)
        set_thread_cores(f, thread, MASK, other)
        condition_signal(f, slot.at("condition"))
        set_thread_cores(f, thread, MASK, usual)
    with f.otherwise():
        condition_signal(f, slot.at("condition"))
