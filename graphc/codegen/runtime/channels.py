"""Channels between the devices of one run, as LLVM IR text: send, receive, wait, notify.

A channel holds one message.  Its state is 0 (empty) or 1 (full): only the sender fills it, only the
receiver empties it, and each waits for its turn.

    pull   the message is the address of the value, which stays where it is until the run ends
    push   the value is copied to the channel's buffer, so that the sender may go on to the next one

    channel (128 bytes)   +0 state  +8 address  +16 buffer or null (pull)  +24 sender  +32 receiver
                          +40 agenda of the receiver or null  +48 segment that the message begins
                          +56 where a copy of each message is kept or null (push)  +64 its end
    device (256 bytes)    +0 parked  +8 frame  +16 first row  +24 worker  +32 its turn
                          +128 mutex  +192 condition variable
    team                  256 bytes of words: 0 devices  1 running  2 failed  3 status  4 row
                          5 channels  6 how many; then its devices

A channel whose message begins a segment also notes in the receiver's agenda that it is there (see
`agenda.py`).

Who waits (for the value of a word, or for anything on an agenda) spins for a while, then parks.
`parked` is set before the last look at what is waited for, and whoever changes that looks at
`parked` afterwards (both sequentially consistent), so no wake-up is lost.

Who spins gives way now and then, to threads of the same program on the same core.  Where another
program runs there, it takes a whole time slice (some 4 ms) each time: a yield that lasted long is
not followed by another one for a while, in the whole process, and waits park sooner.
"""

from __future__ import annotations

CANCELLED = -1
SPIN_NANOSECONDS = 100_000
CROWDED_NANOSECONDS = 30_000  # of spinning where the core is shared with others
LONG_YIELD = 50_000
SHY_NANOSECONDS = 100_000_000
PAUSES = 16  # between two looks at the clock; a power of two
HEAD, DEVICE, CHANNEL = 256, 256, 128
ANY = -1  # instead of a value: wait for anything on an agenda

WAITING = f"""
@graphc_never = internal global i64 0, align 8
@graphc_shy = internal global i64 0, align 64

define internal void @graphc_notify(ptr %spot) {{
entry:
  %parked = load atomic i32, ptr %spot seq_cst, align 4
  %asleep = icmp ne i32 %parked, 0
  br i1 %asleep, label %signal, label %done

signal:
  %mutex = getelementptr i8, ptr %spot, i64 128
  %condition = getelementptr i8, ptr %spot, i64 192
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  %signalled = call i32 @pthread_cond_signal(ptr %condition)
  br label %done

done:
  ret void
}}

define internal i1 @graphc_is(ptr %at, i64 %wanted) {{
entry:
  %any = icmp eq i64 %wanted, {ANY}
  br i1 %any, label %agenda, label %word

agenda:
  %segment = call i64 @graphc_find(ptr %at)
  %found = icmp sge i64 %segment, 0
  ret i1 %found

word:
  %value = load atomic i64, ptr %at seq_cst, align 8
  %is = icmp eq i64 %value, %wanted
  ret i1 %is
}}

define internal i32 @graphc_await(ptr %at, i64 %wanted, ptr %cancel, ptr %spot) {{
entry:
  %at.once = call i1 @graphc_is(ptr %at, i64 %wanted)
  br i1 %at.once, label %ready, label %fresh

fresh:
  %begin = call i64 @graphc_now()
  br label %look

look:
  %turn = phi i64 [ 0, %fresh ], [ %turn.next, %rest ], [ %turn.next, %count ]
  %is = call i1 @graphc_is(ptr %at, i64 %wanted)
  br i1 %is, label %ready, label %still

still:
  %stop = load atomic i64, ptr %cancel monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %cancelled, label %rest

rest:
  call void @graphc_pause()
  %turn.next = add i64 %turn, 1
  %phase = and i64 %turn.next, {PAUSES - 1}
  %due = icmp eq i64 %phase, 0
  br i1 %due, label %clock, label %look

clock:
  %asked = call i64 @graphc_now()
  %shy.until = load atomic i64, ptr @graphc_shy monotonic, align 8
  %shy = icmp slt i64 %asked, %shy.until
  %patience = select i1 %shy, i64 {CROWDED_NANOSECONDS}, i64 {SPIN_NANOSECONDS}
  br i1 %shy, label %count, label %give

give:
  %yielded = call i32 @sched_yield()
  %back = call i64 @graphc_now()
  %away = sub i64 %back, %asked
  %long = icmp sgt i64 %away, {LONG_YIELD}
  br i1 %long, label %note, label %count

note:
  %shy.next = add i64 %back, {SHY_NANOSECONDS}
  store atomic i64 %shy.next, ptr @graphc_shy monotonic, align 8
  br label %count

count:
  %now = phi i64 [ %asked, %clock ], [ %back, %give ], [ %back, %note ]
  %spent = sub i64 %now, %begin
  %patient = icmp slt i64 %spent, %patience
  br i1 %patient, label %look, label %park

park:
  %mutex = getelementptr i8, ptr %spot, i64 128
  %condition = getelementptr i8, ptr %spot, i64 192
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %spot seq_cst, align 4
  %is.now = call i1 @graphc_is(ptr %at, i64 %wanted)
  %stop.now = load atomic i64, ptr %cancel seq_cst, align 8
  %stopped.now = icmp ne i64 %stop.now, 0
  %enough = or i1 %is.now, %stopped.now
  br i1 %enough, label %awake, label %sleep

sleep:
  %slept = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %awake

awake:
  store atomic i32 0, ptr %spot seq_cst, align 4
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %fresh

ready:
  ret i32 0

cancelled:
  ret i32 {CANCELLED}
}}
"""

# The rows: word 2 is the number of bytes, word 3 the channel.
MESSAGES = f"""
define internal ptr @graphc_device(ptr %team, i64 %number) {{
  %offset = mul i64 %number, {DEVICE}
  %behind = add i64 %offset, {HEAD}
  %device = getelementptr i8, ptr %team, i64 %behind
  ret ptr %device
}}

define internal ptr @graphc_channel(ptr %team, ptr %word) {{
  %channels.at = getelementptr i64, ptr %team, i64 5
  %channels = load ptr, ptr %channels.at
  %number.at = getelementptr i64, ptr %word, i64 3
  %number = load i64, ptr %number.at
  %offset = mul i64 %number, {CHANNEL}
  %channel = getelementptr i8, ptr %channels, i64 %offset
  ret ptr %channel
}}

define internal i32 @graphc_turn(ptr %frame, ptr %at, i64 %state) {{
  %cancel = getelementptr i64, ptr %frame, i64 5
  %team.at = getelementptr i64, ptr %frame, i64 10
  %team = load ptr, ptr %team.at
  %number.at = getelementptr i64, ptr %frame, i64 11
  %number = load i64, ptr %number.at
  %spot = call ptr @graphc_device(ptr %team, i64 %number)
  %status = call i32 @graphc_await(ptr %at, i64 %state, ptr %cancel, ptr %spot)
  ret i32 %status
}}

define internal void @graphc_pass(ptr %team, ptr %channel, i64 %state, i64 %to) {{
entry:
  %agenda.at = getelementptr i64, ptr %channel, i64 5
  %agenda = load ptr, ptr %agenda.at
  %listed = icmp ne ptr %agenda, null
  %filled = icmp eq i64 %state, 1
  %noted = and i1 %listed, %filled
  br i1 %noted, label %note, label %plain

note:
  store atomic i64 %state, ptr %channel release, align 8
  %segment.at = getelementptr i64, ptr %channel, i64 6
  %segment = load i64, ptr %segment.at
  call void @graphc_note(ptr %agenda, i64 %segment)
  br label %notify

plain:
  store atomic i64 %state, ptr %channel seq_cst, align 8
  br label %notify

notify:
  %number.at = getelementptr i64, ptr %channel, i64 %to
  %number = load i64, ptr %number.at
  %spot = call ptr @graphc_device(ptr %team, i64 %number)
  call void @graphc_notify(ptr %spot)
  ret void
}}

define internal i32 @graphc_send(ptr %frame, ptr %word, ptr %value) {{
entry:
  %team.at = getelementptr i64, ptr %frame, i64 10
  %team = load ptr, ptr %team.at
  %channel = call ptr @graphc_channel(ptr %team, ptr %word)
  %status = call i32 @graphc_turn(ptr %frame, ptr %channel, i64 0)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %empty, label %end

empty:
  call void @graphc_arrived(ptr %frame, ptr %word)
  %buffer.at = getelementptr i64, ptr %channel, i64 2
  %buffer = load ptr, ptr %buffer.at
  %pull = icmp eq ptr %buffer, null
  br i1 %pull, label %lend, label %copy

lend:
  %address.at = getelementptr i64, ptr %channel, i64 1
  store ptr %value, ptr %address.at
  br label %full

copy:
  %size.at = getelementptr i64, ptr %word, i64 2
  %size = load i64, ptr %size.at
  call void @llvm.memcpy.p0.p0.i64(ptr %buffer, ptr %value, i64 %size, i1 false)
  %record.at = getelementptr i64, ptr %channel, i64 7
  %record = load ptr, ptr %record.at
  %forgets = icmp eq ptr %record, null
  br i1 %forgets, label %full, label %keep

keep:
  %limit.at = getelementptr i64, ptr %channel, i64 8
  %limit = load ptr, ptr %limit.at
  %record.next = getelementptr i8, ptr %record, i64 %size
  %fits = icmp ule ptr %record.next, %limit
  br i1 %fits, label %write, label %full

write:
  call void @llvm.memcpy.p0.p0.i64(ptr %record, ptr %value, i64 %size, i1 false)
  store ptr %record.next, ptr %record.at
  br label %full

full:
  call void @graphc_pass(ptr %team, ptr %channel, i64 1, i64 4)
  br label %end

end:
  ret i32 %status
}}

define internal i32 @graphc_receive(ptr %frame, ptr %word, ptr %target) {{
entry:
  %team.at = getelementptr i64, ptr %frame, i64 10
  %team = load ptr, ptr %team.at
  %channel = call ptr @graphc_channel(ptr %team, ptr %word)
  %status = call i32 @graphc_turn(ptr %frame, ptr %channel, i64 1)
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %full, label %end

full:
  call void @graphc_arrived(ptr %frame, ptr %word)
  %address.at = getelementptr i64, ptr %channel, i64 1
  %address = load ptr, ptr %address.at
  %size.at = getelementptr i64, ptr %word, i64 2
  %size = load i64, ptr %size.at
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %address, i64 %size, i1 false)
  call void @graphc_pass(ptr %team, ptr %channel, i64 0, i64 3)
  br label %end

end:
  ret i32 %status
}}
"""
