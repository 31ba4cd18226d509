"""Workers of devices: threads of the process that serve one run after the other.

A worker is started when a run finds none free, and never ended.  It touches nothing of a team after
its turn has changed, so the memory of a team may go then.

On a busy machine the system may put a worker on the core of the caller that waits for it, and leave
both there.  A worker that finds itself there asks to be elsewhere for a moment, if there are enough
cores for all devices; which cores it may use is not changed.
"""

from __future__ import annotations

from graphc.base.memory_layout import Address, Word
from graphc.codegen.llvm.writer import (
    ACQUIRE,
    I32,
    I64,
    PTR,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Extern,
    Global,
    Number,
    Struct,
    Writer,
    clear_bytes,
    copy_bytes,
    native,
)
from graphc.codegen.runtime.channels import device_of, never, notify, spot_open, wait_for
from graphc.codegen.runtime.system import (
    MASK,
    core,
    get_cores,
    give_way,
    now,
    set_cores,
    start_thread,
    thread_detach,
    without_core,
)
from graphc.codegen.runtime.team_failure import team_fail
from graphc.codegen.runtime.tuning import tuned
from graphc.codegen.runtime.walker import walk
from graphc.runtime.load.layouts import SpotWords, TeamWords

MOST_WORKERS = 256
FREE, LEASED, POSTED = range(3)  # states of a worker; posted: team, frame and device say what to do


class WorkerWords(SpotWords, nbytes=256):
    """A worker, and where it sleeps."""

    team: Address = 8
    frame: Address
    device: Word
    core: Word  # of the caller
    moved: Word  # when it moved last
    state: Word = 64
    turn: Word


_bits = Extern("llvm.ctpop.i64", I64, I64)
crew = Global("crew", WorkerWords, count=MOST_WORKERS, align=256)
crew_size = Global("crew_size", I64)
crew_lock = Global("crew_lock", I32)


@native(PTR)
def device_worker(f: Writer, worker: Struct[WorkerWords]) -> None:
    """The life of a worker."""
    with f.forever():
        wait_for(f, worker.at("state"), POSTED, never(f), worker)
        team = worker.team.to(TeamWords)
        device = worker.device
        crew_spread(f, worker)
        status = walk(f, worker.frame)
        with f.when(status != 0):
            team_fail(f, team, device, status)
        with f.when(team.at("running").fetch_sub(1, SEQ_CST) == 1):
            notify(f, device_of(team, 0))
        worker.at("turn").store(worker.turn + 1, RELEASE)
        worker.at("state").store(FREE, RELEASE)


@native(I64)
def crew_lease(f: Writer, hint: Number) -> None:
    """Lease a worker, this one if it is free: its number, or -1."""
    size = crew_size(f).load(order=ACQUIRE)
    with f.loop(0, size) as k:
        s = (hint + k) % size
        with f.when(crew(f)[s].at("state").cas(FREE, LEASED, ACQUIRE)):
            f.give(s)
    f.give(crew_start(f))


@native(I64)
def crew_start(f: Writer) -> None:
    """Start a worker, which belongs to the run that starts it: its number, or -1."""
    handle = f.slot(PTR)
    with f.forever():
        with f.when(crew_lock(f).cas(0, 1, ACQUIRE)):
            f.leave()
        give_way(f)
    made = f.local(-1)
    s = crew_size(f).load(order=RELAXED)
    with f.when(s < MOST_WORKERS):
        worker = crew(f)[s]
        worker.at("state").store(LEASED, RELAXED)
        spot_open(f, worker)
        with f.when(start_thread(f, handle, device_worker.address(f), worker) == 0):
            thread_detach(f, handle.load(PTR))
            crew_size(f).store(s + 1, RELEASE)
            made.set(s)
    crew_lock(f).store(0, RELEASE)
    f.give(made)


@native(is_public=True)
def crew_reset(f: Writer) -> None:
    """Forget the workers: a forked child has none."""
    if f.module.has_threads:
        crew_size(f).store(0, RELAXED)
        crew_lock(f).store(0, RELAXED)
        clear_bytes(f, crew(f), WorkerWords.nbytes * MOST_WORKERS)


@native()
def crew_spread(f: Writer, worker: Struct[WorkerWords]) -> None:
    """Move to another core than the caller's, at times."""
    if not f.module.is_linux:
        return
    mask, other = f.slot("i8", MASK), f.slot("i8", MASK)
    here = core(f)
    with f.when(here != worker.core):
        f.give()
    time = now(f)
    with f.when(time - worker.moved < tuned.move_pause):
        f.give()
    worker.moved = time
    clear_bytes(f, mask, MASK)
    get_cores(f, 0, MASK, mask)
    count = f.local(0)
    with f.loop(0, MASK // 8) as w:
        count += _bits(f, mask[w])
    has_room = count >= worker.team.to(TeamWords).devices
    with f.when(has_room & here.below(8 * MASK)):
        copy_bytes(f, other, mask, MASK)
        without_core(f, other, here)
        set_cores(f, 0, MASK, other)
        set_cores(f, 0, MASK, mask)
