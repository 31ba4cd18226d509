"""Times of a run: the traced walker marks every row in the frame's log.

A row ends where the next one begins.  Marks beyond the room are counted, not kept.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import I64, Number, Pointer, Struct, Writer, native
from graphc.codegen.runtime.system import now
from graphc.runtime.load.layouts import FrameWords, LogWords, MarkWords


@native()
def mark(f: Writer, frame: Struct[FrameWords], what: Number) -> None:
    """Note the time."""
    log = frame.log.to(LogWords)
    count = log.marks
    log.marks = count + 1
    with f.when(count < log.room):
        place = (log + LogWords.nbytes).to(MarkWords)[count]
        time = now(f)
        place.mark = what
        place.nanoseconds = time


@native()
def arrived(f: Writer, frame: Struct[FrameWords], row: Pointer) -> None:
    """Mark, if the run is traced, that the message of this row is there."""
    with f.when(frame.log.is_some):
        begin = frame.table.cast("ptrtoint", I64)
        twice = (row.cast("ptrtoint", I64) - begin) >> 2  # the row in words, times 2
        mark(f, frame, twice | 1)
