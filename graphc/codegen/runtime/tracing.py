"""Times of a run, as LLVM IR text: the traced walker marks every row in the frame's log.

    log     word 0 marks so far   1 room   2... pairs (mark, nanoseconds of the monotonic clock)
    mark    2 * row: the row begins      2 * row + 1: its message is there, or its channel is free

A row ends where the next one begins.  Marks beyond the room are counted, not kept.
"""

from __future__ import annotations

LOG_WORD = 12

TRACING = f"""
define internal void @graphc_mark(ptr %frame, i64 %mark) {{
entry:
  %log.at = getelementptr i64, ptr %frame, i64 {LOG_WORD}
  %log = load ptr, ptr %log.at
  %count = load i64, ptr %log
  %room.at = getelementptr i64, ptr %log, i64 1
  %room = load i64, ptr %room.at
  %more = add i64 %count, 1
  store i64 %more, ptr %log
  %fits = icmp slt i64 %count, %room
  br i1 %fits, label %keep, label %done

keep:
  %pair = shl i64 %count, 1
  %word = add i64 %pair, 2
  %mark.at = getelementptr i64, ptr %log, i64 %word
  %time.at = getelementptr i64, ptr %mark.at, i64 1
  %now = call i64 @graphc_now()
  store i64 %mark, ptr %mark.at
  store i64 %now, ptr %time.at
  br label %done

done:
  ret void
}}

define internal void @graphc_arrived(ptr %frame, ptr %word) {{
entry:
  %log.at = getelementptr i64, ptr %frame, i64 {LOG_WORD}
  %log = load ptr, ptr %log.at
  %off = icmp eq ptr %log, null
  br i1 %off, label %done, label %trace

trace:
  %table = load ptr, ptr %frame
  %start = ptrtoint ptr %table to i64
  %here = ptrtoint ptr %word to i64
  %bytes = sub i64 %here, %start
  %twice = lshr i64 %bytes, 2
  %mark = or i64 %twice, 1
  call void @graphc_mark(ptr %frame, i64 %mark)
  br label %done

done:
  ret void
}}

define internal i32 @graphc_step(ptr %frame) {{
entry:
  %log.at = getelementptr i64, ptr %frame, i64 {LOG_WORD}
  %log = load ptr, ptr %log.at
  %off = icmp eq ptr %log, null
  br i1 %off, label %plain, label %traced

plain:
  %status.plain = call i32 @graphc_walk(ptr %frame)
  ret i32 %status.plain

traced:
  %status.traced = call i32 @graphc_walk_traced(ptr %frame)
  ret i32 %status.traced
}}
"""

# What the traced walker does where a row begins.
MARK_ROW = """\
  %mark.row = shl i64 %pc, 1
  call void @graphc_mark(ptr %frame, i64 %mark.row)
"""
