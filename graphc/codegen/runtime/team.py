"""Runs on several devices, as LLVM IR text: the caller's thread is the first, workers the others.

    caller                                        worker
      running = devices - 1                         waits for state 2 (posted)
      lease a worker for every other device
      state = 2                            --->     walks the frame; a failure stops the team
      walks its own frame                           running - 1, the last one wakes the caller
      waits for running = 0                <---     turn + 1, state = 0 (free)
      waits until each turn has changed

The first failure wins: it is written down, and the cancel flags of all frames of the team are set.
The memory of devices and teams is described in `channels`, that of workers in `crew`.
"""

from __future__ import annotations

from graphc.codegen.runtime.channels import MESSAGES, WAITING
from graphc.codegen.runtime.device_threads import crew_ir
from graphc.codegen.runtime.ready_queue import AGENDA
from graphc.codegen.runtime.tracing import TRACING

NO_WORKER = -5

# A team counts as failed until its first run, which then sets all channels to empty.
_FAILURE = """
define void @graphc_team_open(ptr %team) {
entry:
  %devices = load i64, ptr %team
  %failed.at = getelementptr i64, ptr %team, i64 2
  store atomic i64 1, ptr %failed.at monotonic, align 8
  br label %device

device:
  %d = phi i64 [ 0, %entry ], [ %d.next, %device ]
  %spot = call ptr @graphc_device(ptr %team, i64 %d)
  call void @graphc_spot_open(ptr %spot)
  %d.next = add i64 %d, 1
  %more = icmp slt i64 %d.next, %devices
  br i1 %more, label %device, label %end

end:
  ret void
}

define void @graphc_team_stop(ptr %team) {
entry:
  %devices = load i64, ptr %team
  br label %device

device:
  %d = phi i64 [ 0, %entry ], [ %d.next, %device ]
  %spot = call ptr @graphc_device(ptr %team, i64 %d)
  %frame.at = getelementptr i8, ptr %spot, i64 8
  %frame = load ptr, ptr %frame.at
  %cancel = getelementptr i64, ptr %frame, i64 5
  store atomic i64 1, ptr %cancel seq_cst, align 8
  call void @graphc_notify(ptr %spot)
  %d.next = add i64 %d, 1
  %more = icmp slt i64 %d.next, %devices
  br i1 %more, label %device, label %end

end:
  ret void
}

define void @graphc_team_fail(ptr %team, i64 %device, i32 %status) {
entry:
  %failed.at = getelementptr i64, ptr %team, i64 2
  %pair = cmpxchg ptr %failed.at, i64 0, i64 1 seq_cst seq_cst
  %first = extractvalue { i64, i1 } %pair, 1
  br i1 %first, label %note, label %end

note:
  %spot = call ptr @graphc_device(ptr %team, i64 %device)
  %frame.at = getelementptr i8, ptr %spot, i64 8
  %frame = load ptr, ptr %frame.at
  %own.row.at = getelementptr i64, ptr %frame, i64 6
  %own.row = load i64, ptr %own.row.at
  %start.at = getelementptr i8, ptr %spot, i64 16
  %start = load i64, ptr %start.at
  %row = add i64 %start, %own.row
  %status.at = getelementptr i64, ptr %team, i64 3
  %row.at = getelementptr i64, ptr %team, i64 4
  %wide = sext i32 %status to i64
  store i64 %row, ptr %row.at
  store atomic i64 %wide, ptr %status.at release, align 8
  call void @graphc_team_stop(ptr %team)
  br label %end

end:
  ret void
}
"""

_RUN = f"""
define i32 @graphc_run(ptr %frame) {{
entry:
  %team.at = getelementptr i64, ptr %frame, i64 10
  %team = load ptr, ptr %team.at
  %alone = icmp eq ptr %team, null
  br i1 %alone, label %one, label %several

one:
  %status.one = call i32 @graphc_step(ptr %frame)
  ret i32 %status.one

several:
  %devices = load i64, ptr %team
  %running.at = getelementptr i64, ptr %team, i64 1
  %failed.at = getelementptr i64, ptr %team, i64 2
  call void @graphc_agenda_reset(ptr %frame)
  call void @graphc_team_prepare(ptr %team)
  br label %post.test

post.test:
  %p = phi i64 [ 1, %several ], [ %p.next, %post ]
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p, %devices
  br i1 %p.more, label %post, label %own

post:
  call void @graphc_team_post(ptr %team, i64 %p)
  br label %post.test

own:
  %status.own = call i32 @graphc_step(ptr %frame)
  %own.ok = icmp eq i32 %status.own, 0
  br i1 %own.ok, label %wait, label %own.failed

own.failed:
  call void @graphc_team_fail(ptr %team, i64 0, i32 %status.own)
  br label %wait

wait:
  %spot = call ptr @graphc_device(ptr %team, i64 0)
  %done = call i32 @graphc_await(ptr %running.at, i64 0, ptr @graphc_never, ptr %spot)
  br label %part.test

part.test:
  %q = phi i64 [ 1, %wait ], [ %q.next, %part ]
  %q.next = add i64 %q, 1
  %q.more = icmp slt i64 %q, %devices
  br i1 %q.more, label %part, label %judge

part:
  call void @graphc_team_part(ptr %team, i64 %q)
  br label %part.test

judge:
  %failed = load atomic i64, ptr %failed.at acquire, align 8
  %good = icmp eq i64 %failed, 0
  %status.at = getelementptr i64, ptr %team, i64 3
  br i1 %good, label %end, label %read

read:
  %status.word = load atomic i64, ptr %status.at acquire, align 8
  %written = icmp ne i64 %status.word, 0
  br i1 %written, label %report, label %early

early:
  %yielded = call i32 @sched_yield()
  br label %read

report:
  %status.team = trunc i64 %status.word to i32
  %row.team.at = getelementptr i64, ptr %team, i64 4
  %row.team = load i64, ptr %row.team.at
  %row.at = getelementptr i64, ptr %frame, i64 6
  store i64 %row.team, ptr %row.at
  br label %end

end:
  %status = phi i32 [ 0, %judge ], [ %status.team, %report ]
  ret i32 %status
}}

define internal void @graphc_team_prepare(ptr %team) {{
entry:
  %devices = load i64, ptr %team
  %running.at = getelementptr i64, ptr %team, i64 1
  %others = sub i64 %devices, 1
  store atomic i64 %others, ptr %running.at seq_cst, align 8
  br label %device

device:
  %d = phi i64 [ 1, %entry ], [ %d.next, %device ]
  %spot = call ptr @graphc_device(ptr %team, i64 %d)
  %frame.at = getelementptr i8, ptr %spot, i64 8
  %frame = load ptr, ptr %frame.at
  %cancel = getelementptr i64, ptr %frame, i64 5
  %row.at = getelementptr i64, ptr %frame, i64 6
  store atomic i64 0, ptr %cancel monotonic, align 8
  store i64 0, ptr %row.at
  call void @graphc_agenda_reset(ptr %frame)
  %d.next = add i64 %d, 1
  %d.more = icmp slt i64 %d.next, %devices
  br i1 %d.more, label %device, label %check

check:
  %failed.at = getelementptr i64, ptr %team, i64 2
  %failed = load atomic i64, ptr %failed.at monotonic, align 8
  %clean = icmp eq i64 %failed, 0
  br i1 %clean, label %end, label %reset

reset:
  %channels.at = getelementptr i64, ptr %team, i64 5
  %channels = load ptr, ptr %channels.at
  %count.at = getelementptr i64, ptr %team, i64 6
  %count = load i64, ptr %count.at
  br label %channel.test

channel.test:
  %c = phi i64 [ 0, %reset ], [ %c.next, %channel ]
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c, %count
  br i1 %c.more, label %channel, label %opened

channel:
  %channel.at = getelementptr [128 x i8], ptr %channels, i64 %c
  store atomic i64 0, ptr %channel.at monotonic, align 8
  br label %channel.test

opened:
  %status.at = getelementptr i64, ptr %team, i64 3
  store atomic i64 0, ptr %status.at monotonic, align 8
  store atomic i64 0, ptr %failed.at seq_cst, align 8
  br label %end

end:
  ret void
}}

define internal void @graphc_team_post(ptr %team, i64 %d) {{
entry:
  %spot = call ptr @graphc_device(ptr %team, i64 %d)
  %worker.at = getelementptr i8, ptr %spot, i64 24
  %last = load i64, ptr %worker.at
  %hint = call i64 @llvm.smax.i64(i64 %last, i64 0)
  %s = call i64 @graphc_crew_lease(i64 %hint)
  store i64 %s, ptr %worker.at
  %none = icmp slt i64 %s, 0
  br i1 %none, label %alone, label %post

alone:
  %running.at = getelementptr i64, ptr %team, i64 1
  %before = atomicrmw sub ptr %running.at, i64 1 seq_cst
  call void @graphc_team_fail(ptr %team, i64 %d, i32 {NO_WORKER})
  ret void

post:
  %slot = getelementptr [256 x i8], ptr @graphc_crew, i64 %s
  %turn.from = getelementptr i8, ptr %slot, i64 72
  %turn = load i64, ptr %turn.from
  %turn.at = getelementptr i8, ptr %spot, i64 32
  store i64 %turn, ptr %turn.at
  %frame.at = getelementptr i8, ptr %spot, i64 8
  %frame = load ptr, ptr %frame.at
  %slot.team = getelementptr i8, ptr %slot, i64 8
  %slot.frame = getelementptr i8, ptr %slot, i64 16
  %slot.device = getelementptr i8, ptr %slot, i64 24
  %slot.core = getelementptr i8, ptr %slot, i64 32
  %slot.state = getelementptr i8, ptr %slot, i64 64
  %core = call i64 @graphc_core()
  store i64 %core, ptr %slot.core
  store ptr %team, ptr %slot.team
  store ptr %frame, ptr %slot.frame
  store i64 %d, ptr %slot.device
  store atomic i64 2, ptr %slot.state seq_cst, align 8
  call void @graphc_notify(ptr %slot)
  ret void
}}

define internal void @graphc_team_part(ptr %team, i64 %d) {{
entry:
  %spot = call ptr @graphc_device(ptr %team, i64 %d)
  %worker.at = getelementptr i8, ptr %spot, i64 24
  %s = load i64, ptr %worker.at
  %none = icmp slt i64 %s, 0
  br i1 %none, label %end, label %leased

leased:
  %turn.at = getelementptr i8, ptr %spot, i64 32
  %turn = load i64, ptr %turn.at
  %slot = getelementptr [256 x i8], ptr @graphc_crew, i64 %s
  %turn.now.at = getelementptr i8, ptr %slot, i64 72
  br label %look

look:
  %looks = phi i64 [ 0, %leased ], [ %looks.next, %linger ], [ %looks.next, %yield ]
  %turn.now = load atomic i64, ptr %turn.now.at acquire, align 8
  %left = icmp ne i64 %turn.now, %turn
  br i1 %left, label %end, label %linger

linger:
  call void @graphc_pause()
  %looks.next = add i64 %looks, 1
  %phase = and i64 %looks.next, 1023
  %tired = icmp eq i64 %phase, 0
  br i1 %tired, label %yield, label %look

yield:
  %yielded = call i32 @sched_yield()
  br label %look

end:
  ret void
}}
"""

_WITHOUT_THREADS = """
define i32 @graphc_run(ptr %frame) {
  %status = call i32 @graphc_walk(ptr %frame)
  ret i32 %status
}
define internal i32 @graphc_send(ptr %frame, ptr %word, ptr %value) {
  ret i32 NO_WORKER
}
define internal i32 @graphc_receive(ptr %frame, ptr %word, ptr %target) {
  ret i32 NO_WORKER
}
define internal i64 @graphc_next(ptr %frame, ptr %row, i64 %size) {
  ret i64 NO_WORKER
}
define internal void @graphc_mark(ptr %frame, i64 %mark) {
  ret void
}
define void @graphc_team_open(ptr %team) {
  ret void
}
define void @graphc_team_stop(ptr %team) {
  ret void
}
define void @graphc_team_fail(ptr %team, i64 %device, i32 %status) {
  ret void
}
define void @graphc_crew_reset() {
  ret void
}
"""


def team_ir(triple: str) -> str:
    """The text of runs on several devices; without POSIX threads there is only the first."""
    if "windows" in triple:
        return _WITHOUT_THREADS.replace("NO_WORKER", str(NO_WORKER))
    return "".join((WAITING, MESSAGES, AGENDA, TRACING, crew_ir(triple), _FAILURE, _RUN))
