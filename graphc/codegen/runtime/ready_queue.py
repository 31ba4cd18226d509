"""The order in which a device runs its segments, as LLVM IR text: what is ready goes first.

A table with messages may be cut into segments (see `graphc.codegen.table.segments`), each ended by
a row that names the segments it releases.  `graphc_next` follows such a row: it takes one off the
count of each of them, and returns the first row of the first segment in order that waits for
nothing any more.  A message says itself that it is there, so nobody waits for it as long as
anything else is ready; then the device waits for anything.

    agenda   word 0 words of a bitmap   1 open   2 counts   3 the first row of each segment
                  4 how the state begins   5 bytes of the state
    state         8... here: a bit per segment that waits for no message (any more)
    open          a bit per segment that waits for no other
    counts        for how many others each segment waits
"""

from __future__ import annotations

from graphc.codegen.runtime.channels import ANY

CANCELLED = -1
AGENDA_WORD = 13

AGENDA = f"""
define internal void @graphc_agenda_reset(ptr %frame) {{
entry:
  %agenda.at = getelementptr i64, ptr %frame, i64 {AGENDA_WORD}
  %agenda = load ptr, ptr %agenda.at
  %none = icmp eq ptr %agenda, null
  br i1 %none, label %end, label %reset

reset:
  %first.at = getelementptr i64, ptr %agenda, i64 4
  %first = load ptr, ptr %first.at
  %size.at = getelementptr i64, ptr %agenda, i64 5
  %size = load i64, ptr %size.at
  %state = getelementptr i64, ptr %agenda, i64 8
  call void @llvm.memcpy.p0.p0.i64(ptr %state, ptr %first, i64 %size, i1 false)
  br label %end

end:
  ret void
}}

define internal void @graphc_note(ptr %agenda, i64 %segment) {{
  %word = lshr i64 %segment, 6
  %shift = and i64 %segment, 63
  %bit = shl i64 1, %shift
  %here = getelementptr i64, ptr %agenda, i64 8
  %here.at = getelementptr i64, ptr %here, i64 %word
  %before = atomicrmw or ptr %here.at, i64 %bit seq_cst
  ret void
}}

define internal i64 @graphc_find(ptr %agenda) {{
entry:
  %words = load i64, ptr %agenda
  %open.at = getelementptr i64, ptr %agenda, i64 1
  %open = load ptr, ptr %open.at
  %here = getelementptr i64, ptr %agenda, i64 8
  br label %test

test:
  %w = phi i64 [ 0, %entry ], [ %w.next, %none ]
  %more = icmp slt i64 %w, %words
  br i1 %more, label %compare, label %nothing

compare:
  %w.open.at = getelementptr i64, ptr %open, i64 %w
  %w.here.at = getelementptr i64, ptr %here, i64 %w
  %w.open = load i64, ptr %w.open.at
  %w.here = load atomic i64, ptr %w.here.at seq_cst, align 8
  %ready = and i64 %w.open, %w.here
  %empty = icmp eq i64 %ready, 0
  br i1 %empty, label %none, label %found

none:
  %w.next = add i64 %w, 1
  br label %test

found:
  %shift = call i64 @llvm.cttz.i64(i64 %ready, i1 true)
  %first = shl i64 %w, 6
  %segment = add i64 %first, %shift
  ret i64 %segment

nothing:
  ret i64 -1
}}

define internal i64 @graphc_next(ptr %frame, ptr %row, i64 %size) {{
entry:
  %agenda.at = getelementptr i64, ptr %frame, i64 {AGENDA_WORD}
  %agenda = load ptr, ptr %agenda.at
  %open.at = getelementptr i64, ptr %agenda, i64 1
  %open = load ptr, ptr %open.at
  %counts.at = getelementptr i64, ptr %agenda, i64 2
  %counts = load ptr, ptr %counts.at
  br label %release

release:
  %k = phi i64 [ 2, %entry ], [ %k.next, %released ]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %count, label %look

count:
  %number.at = getelementptr i64, ptr %row, i64 %k
  %number = load i64, ptr %number.at
  %count.at = getelementptr i64, ptr %counts, i64 %number
  %count.old = load i64, ptr %count.at
  %count.new = sub i64 %count.old, 1
  store i64 %count.new, ptr %count.at
  %zero = icmp eq i64 %count.new, 0
  br i1 %zero, label %free, label %released

free:
  call void @graphc_flip(ptr %open, i64 %number)
  br label %released

released:
  %k.next = add i64 %k, 1
  br label %release

look:
  %segment = call i64 @graphc_find(ptr %agenda)
  %nothing = icmp slt i64 %segment, 0
  br i1 %nothing, label %wait, label %take

wait:
  %status = call i32 @graphc_turn(ptr %frame, ptr %agenda, i64 {ANY})
  %woken = icmp eq i32 %status, 0
  br i1 %woken, label %look, label %cancelled

take:
  call void @graphc_flip(ptr %open, i64 %segment)
  %rows.at = getelementptr i64, ptr %agenda, i64 3
  %rows = load ptr, ptr %rows.at
  %first.at = getelementptr i64, ptr %rows, i64 %segment
  %first = load i64, ptr %first.at
  ret i64 %first

cancelled:
  ret i64 {CANCELLED}
}}

define internal void @graphc_flip(ptr %bitmap, i64 %segment) {{
  %word = lshr i64 %segment, 6
  %shift = and i64 %segment, 63
  %bit = shl i64 1, %shift
  %at = getelementptr i64, ptr %bitmap, i64 %word
  %old = load i64, ptr %at
  %new = xor i64 %old, %bit
  store i64 %new, ptr %at
  ret void
}}

declare i64 @llvm.cttz.i64(i64, i1)
"""
