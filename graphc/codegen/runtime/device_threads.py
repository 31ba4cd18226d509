"""Workers of devices, as LLVM IR text: threads of the process that serve one run after the other.

    state   0 free   1 leased   2 posted: `team`, `frame` and `device` say what to do

A worker is started when a run finds none free, and never ended.  It touches nothing of a team after
its turn has changed, so the memory of a team may go then.

On a busy machine the system may put a worker on the core of the caller that waits for it, and leave
both there.  A worker that finds itself there asks to be elsewhere for a moment, if there are enough
cores for all devices; which cores it may use is not changed.

    worker (256 bytes)  +0 parked  +8 team  +16 frame  +24 device  +32 core of the caller
                        +40 when it moved last  +64 state  +72 turn  +128 mutex
                        +192 condition variable
"""

from __future__ import annotations

from graphc.codegen.runtime.pool_service import MASK

MOST_WORKERS = 256
MOVE_NANOSECONDS = 1_000_000  # at least between two moves

_WORKERS = f"""
@graphc_crew = internal global [{MOST_WORKERS} x [256 x i8]] zeroinitializer, align 256
@graphc_crew_size = internal global i64 0, align 8
@graphc_crew_lock = internal global i32 0, align 4

define internal ptr @graphc_crew_worker(ptr %slot) {{
entry:
  %team.at = getelementptr i8, ptr %slot, i64 8
  %frame.at = getelementptr i8, ptr %slot, i64 16
  %device.at = getelementptr i8, ptr %slot, i64 24
  %state.at = getelementptr i8, ptr %slot, i64 64
  %turn.at = getelementptr i8, ptr %slot, i64 72
  br label %next

next:
  %posted = call i32 @graphc_await(ptr %state.at, i64 2, ptr @graphc_never, ptr %slot)
  %team = load ptr, ptr %team.at
  %frame = load ptr, ptr %frame.at
  %device = load i64, ptr %device.at
  call void @graphc_crew_spread(ptr %slot)
  %status = call i32 @graphc_step(ptr %frame)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %over, label %failed

failed:
  call void @graphc_team_fail(ptr %team, i64 %device, i32 %status)
  br label %over

over:
  %running.at = getelementptr i64, ptr %team, i64 1
  %before = atomicrmw sub ptr %running.at, i64 1 seq_cst
  %last = icmp eq i64 %before, 1
  br i1 %last, label %tell, label %leave

tell:
  %caller = call ptr @graphc_device(ptr %team, i64 0)
  call void @graphc_notify(ptr %caller)
  br label %leave

leave:
  %turn = load i64, ptr %turn.at
  %turn.next = add i64 %turn, 1
  store atomic i64 %turn.next, ptr %turn.at release, align 8
  store atomic i64 0, ptr %state.at release, align 8
  br label %next
}}

define internal i64 @graphc_crew_lease(i64 %hint) {{
entry:
  %size = load atomic i64, ptr @graphc_crew_size acquire, align 8
  br label %test

test:
  %k = phi i64 [ 0, %entry ], [ %k.next, %try ]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %try, label %start

try:
  %k.next = add i64 %k, 1
  %sum = add i64 %hint, %k
  %s = urem i64 %sum, %size
  %slot = getelementptr [256 x i8], ptr @graphc_crew, i64 %s
  %state.at = getelementptr i8, ptr %slot, i64 64
  %pair = cmpxchg ptr %state.at, i64 0, i64 1 acquire monotonic
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %found, label %test

found:
  ret i64 %s

start:
  %started = call i64 @graphc_crew_start()
  ret i64 %started
}}
"""

# A new worker belongs to the run that starts it.  It must not run the process's signal handlers.
_START = f"""
define internal i64 @graphc_crew_start() {{
entry:
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %handle = alloca ptr
  br label %lock

lock:
  %pair = cmpxchg ptr @graphc_crew_lock, i32 0, i32 1 acquire monotonic
  %won = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %won, label %locked, label %busy

busy:
  %yielded = call i32 @sched_yield()
  br label %lock

locked:
  %s = load atomic i64, ptr @graphc_crew_size monotonic, align 8
  %room = icmp slt i64 %s, {MOST_WORKERS}
  br i1 %room, label %create, label %none

create:
  %slot = getelementptr [256 x i8], ptr @graphc_crew, i64 %s
  %state.at = getelementptr i8, ptr %slot, i64 64
  store atomic i64 1, ptr %state.at monotonic, align 8
  call void @graphc_spot_open(ptr %slot)
  %filled = call i32 @sigfillset(ptr %all)
  %blocked = call i32 @pthread_sigmask(i32 SIG_SETMASK, ptr %all, ptr %old)
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @graphc_crew_worker, ptr %slot)
  %restored = call i32 @pthread_sigmask(i32 SIG_SETMASK, ptr %old, ptr null)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %created, label %none

created:
  %thread = load ptr, ptr %handle
  %detached = call i32 @pthread_detach(ptr %thread)
  %size = add i64 %s, 1
  store atomic i64 %size, ptr @graphc_crew_size release, align 8
  br label %end

none:
  br label %end

end:
  %made = phi i64 [ %s, %created ], [ -1, %none ]
  store atomic i32 0, ptr @graphc_crew_lock release, align 4
  ret i64 %made
}}

define internal void @graphc_spot_open(ptr %spot) {{
  %mutex = getelementptr i8, ptr %spot, i64 128
  %condition = getelementptr i8, ptr %spot, i64 192
  store atomic i32 0, ptr %spot monotonic, align 4
  %made.mutex = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %made.condition = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}}

declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)

define void @graphc_crew_reset() {{
  store atomic i64 0, ptr @graphc_crew_size monotonic, align 8
  store atomic i32 0, ptr @graphc_crew_lock monotonic, align 4
  call void @llvm.memset.p0.i64(ptr @graphc_crew, i8 0, i64 {256 * MOST_WORKERS}, i1 false)
  ret void
}}
"""

_SPREAD = f"""
define internal void @graphc_crew_spread(ptr %slot) {{
entry:
  %mask = alloca [{MASK} x i8], align 8
  %other = alloca [{MASK} x i8], align 8
  %near.at = getelementptr i8, ptr %slot, i64 32
  %near = load i64, ptr %near.at
  %core = call i64 @graphc_core()
  %same = icmp eq i64 %core, %near
  br i1 %same, label %together, label %end

together:
  %last.at = getelementptr i8, ptr %slot, i64 40
  %last = load i64, ptr %last.at
  %now = call i64 @graphc_now()
  %since = sub i64 %now, %last
  %again = icmp slt i64 %since, {MOVE_NANOSECONDS}
  br i1 %again, label %end, label %ask

ask:
  store i64 %now, ptr %last.at
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 {MASK}, i1 false)
  %got = call i32 @sched_getaffinity(i32 0, i64 {MASK}, ptr %mask)
  br label %count

count:
  %w = phi i64 [ 0, %ask ], [ %w.next, %count ]
  %sum = phi i64 [ 0, %ask ], [ %sum.next, %count ]
  %word.at = getelementptr i64, ptr %mask, i64 %w
  %word = load i64, ptr %word.at
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %sum.next = add i64 %sum, %bits
  %word.other = getelementptr i64, ptr %other, i64 %w
  store i64 %word, ptr %word.other
  %w.next = add i64 %w, 1
  %more = icmp slt i64 %w.next, {MASK // 8}
  br i1 %more, label %count, label %judge

judge:
  %team.at = getelementptr i8, ptr %slot, i64 8
  %team = load ptr, ptr %team.at
  %devices = load i64, ptr %team
  %room = icmp sge i64 %sum.next, %devices
  %known = icmp ult i64 %core, {8 * MASK}
  %worth = and i1 %room, %known
  br i1 %worth, label %move, label %end

move:
  call void @graphc_without_core(ptr %other, i64 %core)
  %moved = call i32 @sched_setaffinity(i32 0, i64 {MASK}, ptr %other)
  %restored = call i32 @sched_setaffinity(i32 0, i64 {MASK}, ptr %mask)
  br label %end

end:
  ret void
}}

define internal i64 @graphc_core() {{
  %core = call i32 @sched_getcpu()
  %wide = sext i32 %core to i64
  ret i64 %wide
}}

declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i64 @llvm.ctpop.i64(i64)
"""

_NO_SPREAD = """
define internal void @graphc_crew_spread(ptr %slot) {
  ret void
}

define internal i64 @graphc_core() {
  ret i64 -1
}
"""


def crew_ir(triple: str) -> str:
    """The text of the workers."""
    start = _START.replace("SIG_SETMASK", "3" if "darwin" in triple else "2")
    return "".join((_WORKERS, _SPREAD if "linux" in triple else _NO_SPREAD, start))
