"""The native step-table walker, as LLVM IR text.

`graphc_walk(frame)` runs one step table (see `graphc.runtime.load.table`) from its first row to an
end row that releases nothing (see `agenda.py`), and returns 0, the first nonzero status of a
kernel, or a negative status of its own.  The frame is a block of 64-bit words that the runtime
fills; it holds everything a run needs, so that concurrent runs only need frames of their own.

    word 0 table    1 kernel addresses   2 kernel parameters   3 most operands of a row   4 threads
         5 cancel   6 row that stopped   7 kernel of that row  8 in use         9 stack slots
        10 team or null                 11 number of the device                12 log or null
        13 agenda or null    14 address of the bytes that stacks may still take    16... bases

Before the operands of a kernel lies the address of the cancel flag (`bufs[-1]`): what takes long in
one unit looks at it itself.

A stack slot is three words: memory (from malloc), bytes there, bytes in use; see `stacks.py`.  The
team of a run on several devices is described in `channels.py`, the log in `tracing.py`.
`graphc_walk_traced` does the same as `graphc_walk` and notes when each row begins.
"""

from __future__ import annotations

from graphc.codegen.runtime.stacks import EMPTY, FULL, NO_MEMORY, STACKS, operand_address
from graphc.codegen.runtime.tracing import MARK_ROW
from graphc.runtime.load import table

CANCELLED = -1
BAD_ROW = -2

_HEAD = """
define i32 @NAME(ptr %frame) {
entry:
  %table = load ptr, ptr %frame
  %fns.at = getelementptr i64, ptr %frame, i64 1
  %fns = load ptr, ptr %fns.at
  %params.at = getelementptr i64, ptr %frame, i64 2
  %params = load ptr, ptr %params.at
  %operands.at = getelementptr i64, ptr %frame, i64 3
  %operands = load i64, ptr %operands.at
  %threads.at = getelementptr i64, ptr %frame, i64 4
  %threads = load i64, ptr %threads.at
  %cancel.at = getelementptr i64, ptr %frame, i64 5
  %row.at = getelementptr i64, ptr %frame, i64 6
  %kernel.at = getelementptr i64, ptr %frame, i64 7
  %bases = getelementptr i64, ptr %frame, i64 16
  %room = add i64 %operands, 2
  %room.at = alloca ptr, i64 %room, align 16
  %flag.at = getelementptr ptr, ptr %room.at, i64 1
  store ptr %cancel.at, ptr %flag.at
  %bufs = getelementptr ptr, ptr %room.at, i64 2
  br label %row

row:
  %pc = phi i64 [ 0, %entry ], [ %pc.next, %next ], [ %pc.target, %go ]
MARK  %cancel = load atomic i64, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i64 %cancel, 0
  br i1 %cancelled, label %stop, label %dispatch

dispatch:
  %word = getelementptr i64, ptr %table, i64 %pc
  %opcode = load i64, ptr %word
  %size.at = getelementptr i64, ptr %word, i64 1
  %size = load i64, ptr %size.at
  %pc.next = add i64 %pc, %size
  %word2.at = getelementptr i64, ptr %word, i64 2
  %word3.at = getelementptr i64, ptr %word, i64 3
  %word4.at = getelementptr i64, ptr %word, i64 4
  %word5.at = getelementptr i64, ptr %word, i64 5
  %word6.at = getelementptr i64, ptr %word, i64 6
  switch i64 %opcode, label %stop [
"""

_CALL = """
end:
  %finished = icmp eq i64 %size, 2
  br i1 %finished, label %finish, label %release

finish:
  ret i32 0

release:
  %released = call i64 @graphc_next(ptr %frame, ptr %word, i64 %size)
  %none.ready = icmp slt i64 %released, 0
  br i1 %none.ready, label %stop, label %go

call:
  %count = load i64, ptr %word6.at
  %none = icmp eq i64 %count, 0
  br i1 %none, label %ready, label %operand

operand:
  %k = phi i64 [ 0, %call ], [ %k.next, %operand ]
  %pair = shl i64 %k, 1
  %pair.at = add i64 %pair, 7
  %base.at = getelementptr i64, ptr %word, i64 %pair.at
  %base = load i64, ptr %base.at
  %offset.at = getelementptr i64, ptr %base.at, i64 1
  %offset = load i64, ptr %offset.at
  %pointer.at = getelementptr ptr, ptr %bases, i64 %base
  %pointer = load ptr, ptr %pointer.at
  %address = getelementptr i8, ptr %pointer, i64 %offset
  %buf.at = getelementptr ptr, ptr %bufs, i64 %k
  store ptr %address, ptr %buf.at
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %count
  br i1 %more, label %operand, label %ready

ready:
  %kernel = load i64, ptr %word2.at
  %units = load i64, ptr %word3.at
  %split = load i64, ptr %word4.at
  %grain = and i64 %split, 4294967295
  %poll = lshr i64 %split, 32
  %first = load i64, ptr %word5.at
  %fn.at = getelementptr ptr, ptr %fns, i64 %kernel
  %fn = load ptr, ptr %fn.at
  %step.params = getelementptr i64, ptr %params, i64 %first
  %several = icmp sgt i64 %threads, 1
  %splits = icmp sgt i64 %grain, 0
  %large = icmp sgt i64 %units, %grain
  %both = and i1 %several, %splits
  %parallel = and i1 %both, %large
  br i1 %parallel, label %fork, label %serial

serial:
  %status.serial = call i32 @graphc_alone(ptr %fn, ptr %bufs, ptr %step.params, i64 %units,
    i64 %poll, ptr %cancel.at)
  br label %done

fork:
  %status.fork = call i32 @graphc_fork(ptr %fn, ptr %bufs, ptr %step.params, i64 %units, i64 %grain,
    i64 %threads, i64 %poll, ptr %cancel.at)
  br label %done

done:
  %status = phi i32 [ %status.serial, %serial ], [ %status.fork, %fork ]
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %next, label %failed

failed:
  store i64 %kernel, ptr %kernel.at
  br label %stop
"""

# The byte at the operand decides a branch: 0 takes the target, anything else falls through.
_CONTROL = """
jump:
  %jump.target = load i64, ptr %word2.at
  br label %go

branch:
  %branch.target = load i64, ptr %word2.at
  %branch.base = load i64, ptr %word3.at
  %branch.offset = load i64, ptr %word4.at
  %branch.pointer.at = getelementptr ptr, ptr %bases, i64 %branch.base
  %branch.pointer = load ptr, ptr %branch.pointer.at
  %branch.at = getelementptr i8, ptr %branch.pointer, i64 %branch.offset
  %byte = load i8, ptr %branch.at
  %taken = icmp eq i8 %byte, 0
  br i1 %taken, label %go, label %next

bump:
  %bump.first = add i64 %pc, 2
  br label %bump.pair

bump.pair:
  %bump.word = phi i64 [ %bump.first, %bump ], [ %bump.following, %bump.pair ]
  %bump.register.at = getelementptr i64, ptr %table, i64 %bump.word
  %bump.register = load i64, ptr %bump.register.at
  %bump.amount.at = getelementptr i64, ptr %bump.register.at, i64 1
  %bump.amount = load i64, ptr %bump.amount.at
  %bump.at = getelementptr i64, ptr %bases, i64 %bump.register
  %bump.old = load i64, ptr %bump.at
  %bump.new = add i64 %bump.old, %bump.amount
  store i64 %bump.new, ptr %bump.at
  %bump.following = add i64 %bump.word, 2
  %bump.more = icmp slt i64 %bump.following, %pc.next
  br i1 %bump.more, label %bump.pair, label %next

set:
  %set.register = load i64, ptr %word2.at
  %set.base = load i64, ptr %word3.at
  %set.offset = load i64, ptr %word4.at
  %set.at = getelementptr i64, ptr %bases, i64 %set.register
  %number = icmp slt i64 %set.base, 0
  %set.index = select i1 %number, i64 0, i64 %set.base
  %set.pointer.at = getelementptr i64, ptr %bases, i64 %set.index
  %set.pointer = load i64, ptr %set.pointer.at
  %set.start = select i1 %number, i64 0, i64 %set.pointer
  %set.value = add i64 %set.start, %set.offset
  store i64 %set.value, ptr %set.at
  br label %next

loop:
  %loop.register = load i64, ptr %word2.at
  %loop.target = load i64, ptr %word3.at
  %loop.at = getelementptr i64, ptr %bases, i64 %loop.register
  %loop.old = load i64, ptr %loop.at
  %loop.new = sub i64 %loop.old, 1
  store i64 %loop.new, ptr %loop.at
  %again = icmp sgt i64 %loop.new, 0
  br i1 %again, label %go, label %next

copy:
  %copy.size = load i64, ptr %word2.at
{copy.to}{copy.from}  %copy.same = icmp eq ptr %copy.to, %copy.from
  br i1 %copy.same, label %next, label %copy.bytes

copy.bytes:
  call void @llvm.memcpy.p0.p0.i64(ptr %copy.to, ptr %copy.from, i64 %copy.size, i1 false)
  br label %next

same:
{same.first}{same.second}  %same.target = load i64, ptr %word2.at
  %same.place = icmp eq ptr %same.first, %same.second
  br i1 %same.place, label %next, label %go

rotate:
  %read.register = load i64, ptr %word2.at
  %write.register = load i64, ptr %word3.at
  %spare.register = load i64, ptr %word4.at
  %read.at = getelementptr i64, ptr %bases, i64 %read.register
  %write.at = getelementptr i64, ptr %bases, i64 %write.register
  %spare.at = getelementptr i64, ptr %bases, i64 %spare.register
  %written = load i64, ptr %write.at
  %spared = load i64, ptr %spare.at
  store i64 %written, ptr %read.at
  store i64 %spared, ptr %write.at
  store i64 %written, ptr %spare.at
  br label %next

send:
{send.value}  %send.status = call i32 @graphc_send(ptr %frame, ptr %word, ptr %send.value)
  %sent = icmp eq i32 %send.status, 0
  br i1 %sent, label %next, label %stop

wait:
{wait.value}  %wait.status = call i32 @graphc_receive(ptr %frame, ptr %word, ptr %wait.value)
  %received = icmp eq i32 %wait.status, 0
  br i1 %received, label %next, label %stop

go:
  %pc.target = phi i64 [ %jump.target, %jump ], [ %branch.target, %branch ],
    [ %loop.target, %loop ], [ %same.target, %same ], [ %released, %release ]
  br label %row

next:
  br label %row
"""

_STOP = """
stop:
  %reason = phi i32 [ {cancelled}, %row ], [ {cancelled}, %release ], [ {bad_row}, %dispatch ],
    [ %status, %failed ], [ {no_memory}, %push.take ], [ {full}, %push.grow ],
    [ {empty}, %pop ],
    [ %send.status, %send ], [ %wait.status, %wait ]
  store i64 %pc, ptr %row.at
  ret i32 %reason
}}
"""

# A kernel on one thread; one that takes long looks at the cancel flag every `poll` units.
_ALONE = f"""
define internal i32 @graphc_alone(ptr %fn, ptr %bufs, ptr %params, i64 %units, i64 %poll,
    ptr %cancel.at) {{
entry:
  %short = icmp eq i64 %poll, 0
  br i1 %short, label %whole, label %part

whole:
  %status.whole = call i32 %fn(ptr %bufs, ptr %params, i64 0, i64 %units, i64 0)
  ret i32 %status.whole

part:
  %lo = phi i64 [ 0, %entry ], [ %hi, %look ]
  %end = add i64 %lo, %poll
  %last = icmp sge i64 %end, %units
  %hi = select i1 %last, i64 %units, i64 %end
  %status = call i32 %fn(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 0)
  %failed = icmp ne i32 %status, 0
  %over = or i1 %failed, %last
  br i1 %over, label %done, label %look

look:
  %cancel = load atomic i64, ptr %cancel.at monotonic, align 8
  %cancelled = icmp ne i64 %cancel, 0
  br i1 %cancelled, label %stop, label %part

done:
  ret i32 %status

stop:
  ret i32 {CANCELLED}
}}
"""

_ACQUIRE = """
define i32 @graphc_acquire(ptr %flag) {
  %pair = cmpxchg ptr %flag, i64 0, i64 1 acquire monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  %result = zext i1 %won to i32
  ret i32 %result
}

declare ptr @realloc(ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


# Places in the text for the address of the operand at a word of the row.
_ADDRESSES = (
    ("copy.to", 3), ("copy.from", 5), ("same.first", 3), ("same.second", 5),
    ("send.value", 4), ("wait.value", 4),
)  # fmt: skip


def walker_ir() -> str:
    """The text of `graphc_walk`, `graphc_walk_traced` and `graphc_acquire`."""
    cases = [f"    i64 {opcode}, label %{name}\n" for opcode, name in enumerate(table.NAMES)]
    stop = _STOP.format(
        cancelled=CANCELLED, bad_row=BAD_ROW, no_memory=NO_MEMORY, full=FULL, empty=EMPTY
    )
    control = _CONTROL
    for name, word in _ADDRESSES:
        control = control.replace(f"{{{name}}}", operand_address(name, word))
    text = "".join((_HEAD, *cases, "  ]\n", _CALL, control, STACKS, stop))
    plain = text.replace("NAME", "graphc_walk").replace("MARK", "")
    traced = text.replace("NAME", "graphc_walk_traced").replace("MARK", MARK_ROW)
    return plain + traced + _ALONE + _ACQUIRE
