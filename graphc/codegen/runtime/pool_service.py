"""The service part of the native thread pool, as LLVM IR text: start, wake, pause, reset."""

from __future__ import annotations

MOST_THREADS = 256
LEAST_PATIENCE = 300_000  # nanoseconds
MOST_PATIENCE = 5_000_000
STALL = 200_000
FORGIVEN = 1_000_000  # idle nanoseconds after which a debt does not count: steps come one at a time
MASK = 128  # bytes of a set of cores
SHORTEST_REST, LONGEST_REST = 10_000_000, 1_000_000_000

# Waking a parked worker costs the caller tens of microseconds and takes effect late: it must pay.
# Steps run on the caller alone add their time to a debt; a step wakes the workers when the debt
# exceeds the patience, or when its first chunk shows that the rest will take as long; what was seen
# once is remembered for the next time that the same step finds its workers asleep.  Patience
# doubles each time that the workers woken before did nothing, and falls back when they did.
#
# A worker that loses its core in the middle of a chunk holds up the caller for a whole time slice.
# When the caller waits for workers longer than its own share took, `graphc_judge` sends them on a
# holiday: steps run on the caller alone for a while, longer each time that this happens again soon.
_WAKE = f"""
@graphc_holiday = internal global i64 0, align 8
@graphc_rest = internal global i64 {SHORTEST_REST}, align 8
@graphc_last = internal global i64 0, align 8
@graphc_costs = internal global [64 x [2 x i64]] zeroinitializer, align 64

define internal i64 @graphc_now() {{
  %time = alloca [2 x i64], align 8
  %got = call i32 @clock_gettime(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %nano.at = getelementptr i64, ptr %time, i64 1
  %nano = load i64, ptr %nano.at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %nano
  ret i64 %now
}}

define internal void @graphc_wake(i64 %slots) {{
entry:
  %helped = atomicrmw xchg ptr @graphc_helped, i32 0 monotonic
  %useful = icmp ne i32 %helped, 0
  %patience = load i64, ptr @graphc_patience
  %doubled = shl i64 %patience, 1
  %longer = call i64 @llvm.smin.i64(i64 %doubled, i64 {MOST_PATIENCE})
  %chosen = select i1 %useful, i64 {LEAST_PATIENCE}, i64 %longer
  store i64 %chosen, ptr @graphc_patience
  store i64 0, ptr @graphc_debt
  br label %slot

slot:
  %s = phi i64 [ 1, %entry ], [ %s.next, %next ]
  %slot.at = getelementptr [256 x i8], ptr @graphc_slots, i64 %s
  %parked.at = getelementptr i8, ptr %slot.at, i64 4
  %parked = atomicrmw xchg ptr %parked.at, i32 0 seq_cst
  %asleep = icmp ne i32 %parked, 0
  br i1 %asleep, label %signal, label %next

signal:
  %mutex = getelementptr i8, ptr %slot.at, i64 128
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  call void @graphc_rouse(ptr %slot.at)
  br label %next

next:
  %s.next = add i64 %s, 1
  %more = icmp slt i64 %s.next, %slots
  br i1 %more, label %slot, label %end

end:
  ret void
}}

define internal void @graphc_judge(i64 %begin, i64 %own.end) {{
entry:
  %end = call i64 @graphc_now()
  %waited = sub i64 %end, %own.end
  %own = sub i64 %own.end, %begin
  %fair = add i64 %own, {STALL}
  %stalled = icmp sgt i64 %waited, %fair
  br i1 %stalled, label %rest, label %done

rest:
  %last = load i64, ptr @graphc_holiday
  %since = sub i64 %end, %last
  %length = load i64, ptr @graphc_rest
  %quiet = shl i64 %length, 2
  %recovered = icmp sgt i64 %since, %quiet
  %doubled = shl i64 %length, 1
  %longer = call i64 @llvm.smin.i64(i64 %doubled, i64 {LONGEST_REST})
  %chosen = select i1 %recovered, i64 {SHORTEST_REST}, i64 %longer
  %until = add i64 %end, %chosen
  store i64 %chosen, ptr @graphc_rest
  store i64 %until, ptr @graphc_holiday
  br label %done

done:
  ret void
}}

define internal void @graphc_run_beside_sleepers(i64 %slots, i64 %chunks) {{
entry:
  %now = call i64 @graphc_now()
  %last = load i64, ptr @graphc_last
  %idle = sub i64 %now, %last
  %forgiven = icmp sgt i64 %idle, {FORGIVEN}
  %owed = load i64, ptr @graphc_debt
  %debt = select i1 %forgiven, i64 0, i64 %owed
  %patience = load i64, ptr @graphc_patience
  %overdue = icmp sge i64 %debt, %patience
  br i1 %overdue, label %wake.now, label %recall

recall:
  %fn = load i64, ptr @graphc_job
  %params = load i64, ptr getelementptr (i64, ptr @graphc_job, i64 2)
  %units = load i64, ptr getelementptr (i64, ptr @graphc_job, i64 3)
  %place = xor i64 %fn, %params
  %spread = mul i64 %units, 4294967311
  %key = xor i64 %place, %spread
  %mixed = mul i64 %key, -7046029254386353131
  %entry.number = lshr i64 %mixed, 58
  %key.at = getelementptr [2 x i64], ptr @graphc_costs, i64 %entry.number
  %cost.at = getelementptr i64, ptr %key.at, i64 1
  %key.seen = load i64, ptr %key.at
  %seen = icmp eq i64 %key.seen, %key
  br i1 %seen, label %remember, label %probe

remember:
  %cost = load i64, ptr %cost.at
  %was.long = icmp sge i64 %cost, %patience
  br i1 %was.long, label %wake.now, label %again

again:
  %begin.again = call i64 @graphc_now()
  br label %alone

wake.now:
  call void @graphc_wake(i64 %slots)
  call void @graphc_run_chunks(i64 0, i64 9223372036854775807)
  ret void

probe:
  %begin = call i64 @graphc_now()
  call void @graphc_run_chunks(i64 0, i64 1)
  %probed = call i64 @graphc_now()
  %one = sub i64 %probed, %begin
  %total = mul i64 %slots, %chunks
  %others = sub i64 %total, 1
  %rest = mul i64 %one, %others
  store i64 %key, ptr %key.at
  store i64 %rest, ptr %cost.at
  %long = icmp sge i64 %rest, %patience
  br i1 %long, label %wake.now, label %alone

alone:
  %started = phi i64 [ %begin, %probe ], [ %begin.again, %again ]
  call void @graphc_run_chunks(i64 0, i64 9223372036854775807)
  %end = call i64 @graphc_now()
  %spent = sub i64 %end, %started
  store i64 %spent, ptr %cost.at
  store i64 %end, ptr @graphc_last
  %debt.new = add i64 %debt, %spent
  store i64 %debt.new, ptr @graphc_debt
  ret void
}}
"""

# A worker that wakes on the core of its caller may stay in the queue there until the system's next
# tick, 10 ms later, though another core is idle.  So it may not use that core while it is woken.
_ROUSE_ELSEWHERE = f"""
define internal void @graphc_rouse(ptr %slot) {{
entry:
  %usual = alloca [{MASK} x i8], align 8
  %other = alloca [{MASK} x i8], align 8
  %condition = getelementptr i8, ptr %slot, i64 192
  %thread.at = getelementptr i8, ptr %slot, i64 248
  %thread = load ptr, ptr %thread.at
  %failed = call i32 @pthread_getaffinity_np(ptr %thread, i64 {MASK}, ptr %usual)
  %got = icmp eq i32 %failed, 0
  %core = call i64 @graphc_core()
  %known = icmp ult i64 %core, {8 * MASK}
  %both = and i1 %got, %known
  br i1 %both, label %elsewhere, label %anywhere

elsewhere:
  call void @llvm.memcpy.p0.p0.i64(ptr %other, ptr %usual, i64 {MASK}, i1 false)
  call void @graphc_without_core(ptr %other, i64 %core)
  %moved = call i32 @pthread_setaffinity_np(ptr %thread, i64 {MASK}, ptr %other)
  %signalled = call i32 @pthread_cond_signal(ptr %condition)
  %restored = call i32 @pthread_setaffinity_np(ptr %thread, i64 {MASK}, ptr %usual)
  ret void

anywhere:
  %sent = call i32 @pthread_cond_signal(ptr %condition)
  ret void
}}

define internal void @graphc_without_core(ptr %cores, i64 %core) {{
  %number = lshr i64 %core, 6
  %shift = and i64 %core, 63
  %bit = shl i64 1, %shift
  %keep = xor i64 %bit, -1
  %word.at = getelementptr i64, ptr %cores, i64 %number
  %word = load i64, ptr %word.at
  %less = and i64 %word, %keep
  store i64 %less, ptr %word.at
  ret void
}}

declare i32 @pthread_getaffinity_np(ptr, i64, ptr)
declare i32 @pthread_setaffinity_np(ptr, i64, ptr)
"""

_ROUSE = """
define internal void @graphc_rouse(ptr %slot) {
  %condition = getelementptr i8, ptr %slot, i64 192
  %sent = call i32 @pthread_cond_signal(ptr %condition)
  ret void
}
"""

# Callers hold a lock of their own around `graphc_pool_start`.
_START = """
define i64 @graphc_pool_start(i64 %wanted, i64 %spins) {
entry:
  %handle = alloca ptr
  store atomic i64 %spins, ptr @graphc_spins monotonic, align 8
  br label %test

test:
  %workers = load atomic i64, ptr @graphc_workers monotonic, align 8
  %s = add i64 %workers, 1
  %more = icmp slt i64 %workers, %wanted
  br i1 %more, label %start, label %end

start:
  %slot = getelementptr [256 x i8], ptr @graphc_slots, i64 %s
  %mutex = getelementptr i8, ptr %slot, i64 128
  %condition = getelementptr i8, ptr %slot, i64 192
  %made.mutex = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %made.condition = call i32 @pthread_cond_init(ptr %condition, ptr null)
  %argument = inttoptr i64 %s to ptr
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @graphc_worker, ptr %argument)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %started, label %end

started:
  %thread = load ptr, ptr %handle
  %thread.at = getelementptr i8, ptr %slot, i64 248
  store ptr %thread, ptr %thread.at
  %detached = call i32 @pthread_detach(ptr %thread)
  store atomic i64 %s, ptr @graphc_workers release, align 8
  br label %test

end:
  %present = load atomic i64, ptr @graphc_workers monotonic, align 8
  ret i64 %present
}

define void @graphc_pool_reset() {
  store atomic i64 0, ptr @graphc_workers monotonic, align 8
  store atomic i32 0, ptr @graphc_busy monotonic, align 4
  call void @llvm.memset.p0.i64(ptr @graphc_slots, i8 0, i64 SLOT_BYTES, i1 false)
  ret void
}

define void @graphc_spin(i64 %count) {
entry:
  br label %turn
turn:
  %i = phi i64 [ 0, %entry ], [ %i.next, %turn ]
  call void @graphc_pause()
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %turn, label %end
end:
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

# clock_gettime's CLOCK_MONOTONIC.
_MONOTONIC, _MONOTONIC_DARWIN = "1", "6"

# The instruction that tells a core that it is spinning (LLVM intrinsics: no assembler is needed).
_PAUSE = {
    "x86_64": ("void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)"),
    "arm64": ("void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)"),
}


def service_ir(triple: str) -> str:
    """The text of everything but the hand-over of work."""
    call, declaration = _PAUSE.get(triple.split("-")[0], ("", ""))
    body = f"  call {call}\n" if call else ""
    pause = f"\n{declaration}\ndefine internal void @graphc_pause() {{\n{body}  ret void\n}}\n"
    wake = _WAKE.replace("CLOCK", _MONOTONIC_DARWIN if "darwin" in triple else _MONOTONIC)
    start = _START.replace("SLOT_BYTES", str(256 * MOST_THREADS))
    rouse = _ROUSE_ELSEWHERE if "linux" in triple else _ROUSE
    return "".join((pause, wake, rouse, start))


WITHOUT_THREADS = """
define i32 @graphc_fork(ptr %fn, ptr %bufs, ptr %params, i64 %units, i64 %grain, i64 %threads,
    i64 %poll, ptr %cancel.at) {
  %status = call i32 @graphc_alone(ptr %fn, ptr %bufs, ptr %params, i64 %units, i64 %poll,
    ptr %cancel.at)
  ret i32 %status
}
define i64 @graphc_pool_start(i64 %wanted, i64 %spins) {
  ret i64 0
}
define void @graphc_pool_reset() {
  ret void
}
define void @graphc_spin(i64 %count) {
  ret void
}
"""
