"""The native thread pool, as LLVM IR text: one pool of parked workers per process.

    caller                                     worker s
      fill the job, next[0..n) = 0                spin on state[s], park after a while
      state[s] = POSTED for every worker  --->    POSTED -> ENTERED
      run chunks: own slot, then the others'      run chunks: own slot, then the others'
      POSTED -> IDLE (worker came too late),      ENTERED -> IDLE
      or wait for ENTERED -> IDLE         <---

The units of a step are cut into `slots * chunks` equal ranges, a split that depends on the step and
on the thread count alone.  A thread claims the chunks of its own slot by counting `next[slot]` up,
then helps the other slots in turn.  So a worker that is still asleep costs the caller nothing: the
caller does its share too.  A second caller that finds the pool busy runs its
step on its own thread.

A slot is 256 bytes: +0 state, +4 parked, +64 next, +128 mutex, +192 condition variable,
+248 thread.
"""

from __future__ import annotations

from graphc.codegen.runtime.pool_service import (
    LEAST_PATIENCE,
    MOST_THREADS,
    WITHOUT_THREADS,
    service_ir,
)

CANCELLED = -1
CHUNKS_PER_THREAD = 2  # more where a long kernel looks at the cancel flag in between
# On a busy machine a worker may sit on the caller's core: whoever waits gives way soon.
BRIEF_SPINS = 100
YIELD_EVERY = 200

_GLOBALS = f"""
@graphc_slots = internal global [{MOST_THREADS} x [256 x i8]] zeroinitializer, align 256
@graphc_job = internal global [8 x i64] zeroinitializer, align 128
@graphc_status = internal global i32 0, align 128
@graphc_busy = internal global i32 0, align 128
@graphc_open = internal global i32 0, align 128
@graphc_workers = internal global i64 0, align 8
@graphc_spins = internal global i64 1000, align 8
@graphc_debt = internal global i64 0, align 8
@graphc_patience = internal global i64 {LEAST_PATIENCE}, align 8
@graphc_helped = internal global i32 0, align 128

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
"""

# Job words: 0 fn, 1 bufs, 2 params, 3 units, 4 slots, 5 chunks per slot, 6 the cancel flag.
_RUN_CHUNKS = """
define internal void @graphc_run_chunks(i64 %thread, i64 %limit) {
entry:
  %fn = load ptr, ptr @graphc_job
  %bufs = load ptr, ptr getelementptr (i64, ptr @graphc_job, i64 1)
  %params = load ptr, ptr getelementptr (i64, ptr @graphc_job, i64 2)
  %units = load i64, ptr getelementptr (i64, ptr @graphc_job, i64 3)
  %slots = load i64, ptr getelementptr (i64, ptr @graphc_job, i64 4)
  %chunks = load i64, ptr getelementptr (i64, ptr @graphc_job, i64 5)
  %cancel.at = load ptr, ptr getelementptr (i64, ptr @graphc_job, i64 6)
  %total = mul i64 %slots, %chunks
  br label %slot

slot:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %turned ]
  %ran.slot = phi i64 [ 0, %entry ], [ %ran, %turned ]
  %shifted = add i64 %thread, %turn
  %wraps = icmp sge i64 %shifted, %slots
  %unwrapped = sub i64 %shifted, %slots
  %s = select i1 %wraps, i64 %unwrapped, i64 %shifted
  %slot.at = getelementptr [256 x i8], ptr @graphc_slots, i64 %s
  %next.at = getelementptr i8, ptr %slot.at, i64 64
  br label %claim

claim:
  %ran = phi i64 [ %ran.slot, %slot ], [ %ran, %work ], [ %ran.next, %called ]
  %failed = load atomic i32, ptr @graphc_status monotonic, align 4
  %stop = icmp ne i32 %failed, 0
  br i1 %stop, label %end, label %flag

flag:
  %cancel = load atomic i64, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i64 %cancel, 0
  br i1 %cancelled, label %fail, label %look

look:
  %seen = load atomic i64, ptr %next.at monotonic, align 8
  %empty = icmp sge i64 %seen, %chunks
  br i1 %empty, label %turned, label %take

take:
  %chunk = atomicrmw add ptr %next.at, i64 1 monotonic
  %late = icmp sge i64 %chunk, %chunks
  br i1 %late, label %turned, label %work

work:
  %before = mul i64 %s, %chunks
  %index = add i64 %before, %chunk
  %index.next = add i64 %index, 1
  %lo.scaled = mul i64 %index, %units
  %hi.scaled = mul i64 %index.next, %units
  %lo = udiv i64 %lo.scaled, %total
  %hi = udiv i64 %hi.scaled, %total
  %some = icmp slt i64 %lo, %hi
  br i1 %some, label %call, label %claim

call:
  %status = call i32 %fn(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %called, label %fail

called:
  %ran.next = add i64 %ran, 1
  %enough = icmp sge i64 %ran.next, %limit
  br i1 %enough, label %end, label %claim

fail:
  %why = phi i32 [ %status, %call ], [ CANCELLED, %flag ]
  %first = cmpxchg ptr @graphc_status, i32 0, i32 %why monotonic monotonic
  br label %end

turned:
  %turn.next = add i64 %turn, 1
  %more = icmp slt i64 %turn.next, %slots
  br i1 %more, label %slot, label %end

end:
  ret void
}
"""

# A worker that is done while the caller still computes does not park: the next step comes soon.
# state 0 idle, 1 posted, 2 entered.  `parked` is set before the last look at `state`, and the
# caller reads it after setting `state` (both sequentially consistent), so no wake-up is lost.
_WORKER = """
define internal ptr @graphc_worker(ptr %argument) {
entry:
  %s = ptrtoint ptr %argument to i64
  %state.at = getelementptr [256 x i8], ptr @graphc_slots, i64 %s
  %parked.at = getelementptr i8, ptr %state.at, i64 4
  %mutex = getelementptr i8, ptr %state.at, i64 128
  %condition = getelementptr i8, ptr %state.at, i64 192
  br label %fresh

fresh:
  %limit = load atomic i64, ptr @graphc_spins monotonic, align 8
  br label %look

look:
  %spins = phi i64 [ 0, %fresh ], [ %spins.next, %rest ], [ %spins.next, %yield ]
  %state = load atomic i32, ptr %state.at monotonic, align 4
  %posted = icmp eq i32 %state, 1
  br i1 %posted, label %enter, label %idle

idle:
  %patient = icmp slt i64 %spins, %limit
  br i1 %patient, label %rest, label %tired

tired:
  %open = load atomic i32, ptr @graphc_open monotonic, align 4
  %soon = icmp ne i32 %open, 0
  br i1 %soon, label %fresh, label %park

rest:
  call void @graphc_pause()
  %spins.next = add i64 %spins, 1
  %phase = urem i64 %spins.next, YIELD_EVERY
  %polite = icmp eq i64 %phase, 0
  br i1 %polite, label %yield, label %look

yield:
  %yielded = call i32 @sched_yield()
  br label %look

enter:
  %pair = cmpxchg ptr %state.at, i32 1, i32 2 acq_rel monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %run, label %fresh

run:
  call void @graphc_run_chunks(i64 %s, i64 9223372036854775807)
  store atomic i32 0, ptr %state.at release, align 4
  %known = load atomic i32, ptr @graphc_helped monotonic, align 4
  %news = icmp eq i32 %known, 0
  br i1 %news, label %tell, label %fresh

tell:
  store atomic i32 1, ptr @graphc_helped monotonic, align 4
  br label %fresh

park:
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %parked.at seq_cst, align 4
  %state.now = load atomic i32, ptr %state.at seq_cst, align 4
  %still = icmp eq i32 %state.now, 0
  br i1 %still, label %wait, label %awake

wait:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %awake

awake:
  store atomic i32 0, ptr %parked.at seq_cst, align 4
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %fresh
}
"""

_FORK = f"""
define i32 @graphc_fork(ptr %fn, ptr %bufs, ptr %params, i64 %units, i64 %grain, i64 %threads,
    i64 %poll, ptr %cancel.at) {{
entry:
  %workers = load atomic i64, ptr @graphc_workers acquire, align 8
  %alone = icmp eq i64 %workers, 0
  br i1 %alone, label %serial, label %ask

ask:
  %pair = cmpxchg ptr @graphc_busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %won, label %locked, label %serial

serial:
  %status.serial = call i32 @graphc_alone(ptr %fn, ptr %bufs, ptr %params, i64 %units, i64 %poll,
    ptr %cancel.at)
  ret i32 %status.serial

locked:
  %begin = call i64 @graphc_now()
  %holiday = load i64, ptr @graphc_holiday
  %resting = icmp slt i64 %begin, %holiday
  br i1 %resting, label %rest, label %split

rest:
  store atomic i32 0, ptr @graphc_busy release, align 4
  br label %serial

split:
  %present = add i64 %workers, 1
  %wanted = call i64 @llvm.smin.i64(i64 %threads, i64 %present)
  %grain.less = sub i64 %grain, 1
  %rounded = add i64 %units, %grain.less
  %pieces = sdiv i64 %rounded, %grain
  %slots = call i64 @llvm.smin.i64(i64 %wanted, i64 %pieces)
  %per.slot = sdiv i64 %pieces, %slots
  %chunks.low = call i64 @llvm.smax.i64(i64 %per.slot, i64 1)
  %chunks.few = call i64 @llvm.smin.i64(i64 %chunks.low, i64 {CHUNKS_PER_THREAD})
  %polls = icmp ne i64 %poll, 0
  %part = select i1 %polls, i64 %poll, i64 %units
  %looks = sdiv i64 %units, %part
  %looks.each = sdiv i64 %looks, %slots
  %looks.all = call i64 @llvm.smin.i64(i64 %looks.each, i64 %chunks.low)
  %chunks = call i64 @llvm.smax.i64(i64 %chunks.few, i64 %looks.all)
  store ptr %fn, ptr @graphc_job
  store ptr %bufs, ptr getelementptr (i64, ptr @graphc_job, i64 1)
  store ptr %params, ptr getelementptr (i64, ptr @graphc_job, i64 2)
  store i64 %units, ptr getelementptr (i64, ptr @graphc_job, i64 3)
  store i64 %slots, ptr getelementptr (i64, ptr @graphc_job, i64 4)
  store i64 %chunks, ptr getelementptr (i64, ptr @graphc_job, i64 5)
  store ptr %cancel.at, ptr getelementptr (i64, ptr @graphc_job, i64 6)
  store atomic i32 0, ptr @graphc_status monotonic, align 4
  br label %clear

clear:
  %c = phi i64 [ 0, %split ], [ %c.next, %clear ]
  %clear.slot = getelementptr [256 x i8], ptr @graphc_slots, i64 %c
  %next.at = getelementptr i8, ptr %clear.slot, i64 64
  store atomic i64 0, ptr %next.at monotonic, align 8
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %slots
  br i1 %c.more, label %clear, label %post.test

post.test:
  %helped = icmp sgt i64 %slots, 1
  br i1 %helped, label %open, label %own

open:
  store atomic i32 1, ptr @graphc_open monotonic, align 4
  br label %post

post:
  %p = phi i64 [ 1, %open ], [ %p.next, %post ]
  %sleepers = phi i32 [ 0, %open ], [ %sleepers.next, %post ]
  %post.slot = getelementptr [256 x i8], ptr @graphc_slots, i64 %p
  store atomic i32 1, ptr %post.slot seq_cst, align 4
  %parked.at = getelementptr i8, ptr %post.slot, i64 4
  %parked = load atomic i32, ptr %parked.at seq_cst, align 4
  %sleepers.next = add i32 %sleepers, %parked
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %slots
  br i1 %p.more, label %post, label %posted

posted:
  %all.awake = icmp eq i32 %sleepers.next, 0
  br i1 %all.awake, label %own, label %asleep

asleep:
  call void @graphc_run_beside_sleepers(i64 %slots, i64 %chunks)
  br label %close.start

own:
  call void @graphc_run_chunks(i64 0, i64 9223372036854775807)
  br i1 %helped, label %close.start, label %finish

close.start:
  %own.end = call i64 @graphc_now()
  br label %close

close:
  %q = phi i64 [ 1, %close.start ], [ %q.next, %closed ]
  %close.slot = getelementptr [256 x i8], ptr @graphc_slots, i64 %q
  %closing = cmpxchg ptr %close.slot, i32 1, i32 0 acq_rel acquire
  %unused = extractvalue {{ i32, i1 }} %closing, 1
  br i1 %unused, label %closed, label %drain

drain:
  %turns = phi i64 [ 0, %close ], [ %turns.next, %again ]
  %state = load atomic i32, ptr %close.slot acquire, align 4
  %left = icmp eq i32 %state, 0
  br i1 %left, label %closed, label %linger

linger:
  %turns.next = add i64 %turns, 1
  %brief = icmp slt i64 %turns.next, {BRIEF_SPINS}
  br i1 %brief, label %breathe, label %give

breathe:
  call void @graphc_pause()
  br label %again

give:
  %given = call i32 @sched_yield()
  br label %again

again:
  br label %drain

closed:
  %q.next = add i64 %q, 1
  %q.more = icmp slt i64 %q.next, %slots
  br i1 %q.more, label %close, label %judge

judge:
  store atomic i32 0, ptr @graphc_open monotonic, align 4
  call void @graphc_judge(i64 %begin, i64 %own.end)
  br label %finish

finish:
  %status = load atomic i32, ptr @graphc_status monotonic, align 4
  store atomic i32 0, ptr @graphc_busy release, align 4
  ret i32 %status
}}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""


def pool_ir(triple: str) -> str:
    """The text of the pool for one target; without POSIX threads it runs steps serially."""
    if "windows" in triple:
        return WITHOUT_THREADS
    worker = _WORKER.replace("YIELD_EVERY", str(YIELD_EVERY))
    chunks = _RUN_CHUNKS.replace("CANCELLED", str(CANCELLED))
    return "".join((_GLOBALS, service_ir(triple), chunks, worker, _FORK))
