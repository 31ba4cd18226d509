"""The native thread pool: one pool of parked workers per process.

    caller                                     worker s
      fill the job, next[0..n) = 0                spin on state[s], park after a while
      state[s] = POSTED for every worker  --->    POSTED -> ENTERED
      run chunks: own slot, then the others'      run chunks: own slot, then the others'
      POSTED -> IDLE (worker came too late),      ENTERED -> IDLE
      or wait for ENTERED -> IDLE         <---

So a worker that is still asleep costs the caller nothing: the caller does its share too.  A second
caller that finds the pool busy runs its step on its own thread.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    ACQ_REL,
    ACQUIRE,
    I1,
    I32,
    I64,
    PTR,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Global,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    clear_bytes,
    native,
)
from graphc.codegen.runtime.system import (
    condition_init,
    condition_wait,
    give_way,
    mutex_init,
    mutex_lock,
    mutex_unlock,
    now,
    pause,
    thread_create,
    thread_detach,
)
from graphc.codegen.runtime.thread_pool_waking import (
    ALL,
    helped,
    holiday,
    judge,
    run_beside_sleepers,
)
from graphc.codegen.runtime.thread_pool_work import (
    ENTERED,
    IDLE,
    POSTED,
    SlotWords,
    alone,
    failure,
    job,
    run_chunks,
    slots,
)
from graphc.codegen.runtime.tuning import tuned
from graphc.runtime.devices.device import MOST_THREADS

busy = Global("busy", I32, align=128)
is_forking = Global("open", I32, align=128)
workers = Global("workers", I64)
spins = Global("spins", I64, 1000)  # of a worker, before it parks


# ------------------------------------------------------------------------- the caller


@native(I32)
def fork(
    f: Writer,
    kernel: Pointer,
    buffers: Pointer,
    parameters: Pointer,
    units: Number,
    grain: Number,
    threads: Number,
    poll: Number,
    cancel: Pointer,
) -> None:
    """Run a kernel over its units on so many threads at most; its first status that is not 0."""
    if f.module.has_threads:
        present = workers(f).load(order=ACQUIRE)
        with f.when(present != 0), f.when(busy(f).cas(0, 1, ACQUIRE)):
            begin = now(f)
            with f.when(begin >= holiday(f).load()):
                count = divide(f, units, grain, threads.least(present + 1), poll)
                work = job(f)
                work.kernel, work.buffers, work.parameters = kernel, buffers, parameters
                work.units, work.cancel = units, cancel
                failure(f).store(0, RELAXED)
                share(f, count, begin)
                status = failure(f).load(order=RELAXED)
                busy(f).store(0, RELEASE)
                f.give(status)
            busy(f).store(0, RELEASE)
    f.give(alone(f, kernel, buffers, parameters, units, poll, cancel))


def divide(f: Writer, units: Value, grain: Value, threads: Value, poll: Value) -> Value:
    """Choose how many threads take part and how many chunks each of them has."""
    pieces = (units + grain - 1) // grain
    count = threads.least(pieces)
    each = (pieces // count).most(1)
    looks = units // (poll != 0).choose(poll, units) // count  # at the cancel flag
    job(f).slots = count
    job(f).chunks = each.least(tuned.chunks_per_thread).most(looks.least(each))
    with f.loop(0, count) as s:
        slots(f)[s].at("next").store(0, RELAXED)
    return count


def share(f: Writer, count: Value, begin: Value) -> None:
    """Run the job with the workers of the other slots."""
    with f.when(count > 1):
        is_forking(f).store(1, RELAXED)
        with f.when(post(f, count) == 0):
            run_chunks(f, 0, ALL)
        with f.otherwise():
            run_beside_sleepers(f, count)
        own_end = now(f)
        with f.loop(1, count) as s:
            close(f, slots(f)[s].at("state"))
        is_forking(f).store(0, RELAXED)
        judge(f, begin, own_end, count)
    with f.otherwise():
        run_chunks(f, 0, ALL)


def post(f: Writer, count: Value) -> Value:
    """Tell the workers that there is a job; how many of them are parked."""
    sleepers = f.local(0, I32)
    with f.loop(1, count) as s:
        slots(f)[s].at("state").store(POSTED, SEQ_CST)
        sleepers += slots(f)[s].at("parked").load(order=SEQ_CST)
    return sleepers


def close(f: Writer, state: Value) -> None:
    """Take the job back from a worker that has not entered, or wait until it leaves."""
    with f.when(state.cas(POSTED, IDLE, ACQ_REL, ACQUIRE) == 0):
        turns = f.local(0)
        with f.forever():
            with f.when(state.load(order=ACQUIRE) == IDLE):
                f.leave()
            with f.when(turns < tuned.brief_spins):
                turns += 1
                pause(f)
            with f.otherwise():
                give_way(f)


# ------------------------------------------------------------------------- a worker


@native(PTR)
def pool_worker(f: Writer, argument: Pointer) -> None:
    """The life of the worker of a slot, whose number is the argument."""
    s = argument.cast("ptrtoint", I64)
    slot = slots(f)[s]
    state = slot.at("state")
    with f.forever():
        with f.when(comes_soon(f, slot) == 0):
            # While the caller still computes, the next step comes soon.
            with f.when(is_forking(f).load(order=RELAXED) == 0):
                park(f, slot)
            f.again()
        with f.when(state.cas(POSTED, ENTERED, ACQ_REL)):
            run_chunks(f, s, ALL)
            state.store(IDLE, RELEASE)
            with f.when(helped(f).load(order=RELAXED) == 0):
                helped(f).store(1, RELAXED)


@native(I1)
def comes_soon(f: Writer, slot: Struct[SlotWords]) -> None:
    """Spin until a job is posted; false after a while without one."""
    limit = spins(f).load(order=RELAXED)
    turn = f.local(0)
    with f.forever():
        with f.when(slot.at("state").load(order=RELAXED) == POSTED):
            f.give(1)
        with f.when(turn >= limit):
            f.give(0)
        pause(f)
        turn += 1
        with f.when(turn % tuned.yield_every == 0):
            give_way(f)


def park(f: Writer, slot: Struct[SlotWords]) -> None:
    """Sleep until the worker is roused, unless a job has come.

    `parked` is set before the last look at `state`, and the caller reads it after setting `state`
    (both sequentially consistent), so no wake-up is lost.
    """
    mutex_lock(f, slot.at("mutex"))
    slot.at("parked").store(1, SEQ_CST)
    with f.when(slot.at("state").load(order=SEQ_CST) == IDLE):
        condition_wait(f, slot.at("condition"), slot.at("mutex"))
    slot.at("parked").store(0, SEQ_CST)
    mutex_unlock(f, slot.at("mutex"))


# ------------------------------------------------------------------------- the service


@native(I64, is_public=True)
def pool_start(f: Writer, wanted: Number, patience: Number) -> None:
    """Have so many workers, which spin so often before they park; how many there are.

    Callers hold a lock of their own around it.
    """
    if not f.module.has_threads:
        f.give(0)
        return
    spins(f).store(patience, RELAXED)
    handle = f.slot(PTR)
    with f.forever():
        s = workers(f).load(order=RELAXED) + 1
        with f.when(s > wanted):
            f.leave()
        slot = slots(f)[s]
        mutex_init(f, slot.at("mutex"), f.null())
        condition_init(f, slot.at("condition"), f.null())
        number = s.cast("inttoptr", PTR)
        with f.when(thread_create(f, handle, f.null(), pool_worker.address(f), number) != 0):
            f.leave()
        thread = handle.load(PTR)
        slot.thread = thread
        thread_detach(f, thread)
        workers(f).store(s, RELEASE)
    f.give(workers(f).load(order=RELAXED))


@native(is_public=True)
def pool_reset(f: Writer) -> None:
    """Forget the workers: a forked child has none."""
    if f.module.has_threads:
        workers(f).store(0, RELAXED)
        busy(f).store(0, RELAXED)
        clear_bytes(f, slots(f), SlotWords.nbytes * MOST_THREADS)


@native(is_public=True)
def spin(f: Writer, count: Number) -> None:
    """Pause so many times."""
    if f.module.has_threads:
        with f.loop(0, count):
            pause(f)
