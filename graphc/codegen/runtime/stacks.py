"""The rows of stacks, as LLVM IR text of the walker: what the gradient of a loop remembers.

    slot    memory   bytes there   bytes in use            handle = address of the slot

A push that finds the memory full doubles it with realloc, so n pushes copy less than 2n values; it
takes what is left of the stacks' budget where that is less.  A
pop only points a register at the value, which is there until the next push.  A value of no bytes
takes one, so that taking off too many of them is noticed.
"""

from __future__ import annotations

NO_MEMORY = -3
EMPTY = -4
FULL = -7  # the stacks have taken all that they may
BUDGET = 14  # the word of a frame with the address of the bytes that stacks may still take
SLOT_WORDS = 3
FIRST_BYTES = 4096


def operand_address(name: str, word: int) -> str:
    """IR that computes `%name`, the address of the operand (base, offset) at a word of the row."""
    return f"""\
  %{name}.base = load i64, ptr %word{word}.at
  %{name}.offset = load i64, ptr %word{word + 1}.at
  %{name}.pointer.at = getelementptr ptr, ptr %bases, i64 %{name}.base
  %{name}.pointer = load ptr, ptr %{name}.pointer.at
  %{name} = getelementptr i8, ptr %{name}.pointer, i64 %{name}.offset
"""


def open_stack(name: str) -> str:
    """IR that loads the slot behind the handle at word 3, and the bytes of a value at word 2."""
    return f"""\
{operand_address(f"{name}.handle", 3)}\
  %{name}.slot = load ptr, ptr %{name}.handle
  %{name}.room.at = getelementptr i64, ptr %{name}.slot, i64 1
  %{name}.top.at = getelementptr i64, ptr %{name}.slot, i64 2
  %{name}.top = load i64, ptr %{name}.top.at
  %{name}.size = load i64, ptr %word2.at
  %{name}.nothing = icmp eq i64 %{name}.size, 0
  %{name}.step = select i1 %{name}.nothing, i64 1, i64 %{name}.size
"""


STACKS = f"""
stack:
  %slots.at = getelementptr i64, ptr %frame, i64 9
  %slots = load ptr, ptr %slots.at
  %slot.number = load i64, ptr %word2.at
  %slot.word = mul i64 %slot.number, {SLOT_WORDS}
  %slot = getelementptr i64, ptr %slots, i64 %slot.word
{operand_address("stack.handle", 3)}\
  store ptr %slot, ptr %stack.handle
  %slot.top.at = getelementptr i64, ptr %slot, i64 2
  store i64 0, ptr %slot.top.at
  br label %next

push:
{open_stack("push")}\
{operand_address("push.value", 5)}\
  %push.end = add i64 %push.top, %push.step
  %push.room = load i64, ptr %push.room.at
  %push.fits = icmp ule i64 %push.end, %push.room
  br i1 %push.fits, label %push.store, label %push.grow

push.grow:
  %push.least = add i64 %push.end, {FIRST_BYTES}
  %push.double = shl i64 %push.room, 1
  %push.little = icmp ult i64 %push.double, %push.least
  %push.wanted = select i1 %push.little, i64 %push.least, i64 %push.double
  %push.budget.at = getelementptr ptr, ptr %frame, i64 {BUDGET}
  %push.budget = load ptr, ptr %push.budget.at
  %push.left = load atomic i64, ptr %push.budget monotonic, align 8
  %push.more = sub i64 %push.wanted, %push.room
  %push.over = icmp sgt i64 %push.more, %push.left
  %push.all = add i64 %push.room, %push.left
  %push.taken = select i1 %push.over, i64 %push.all, i64 %push.wanted
  %push.short = icmp slt i64 %push.taken, %push.end
  br i1 %push.short, label %stop, label %push.take

push.take:
  %push.extra = sub i64 %push.taken, %push.room
  %push.before = atomicrmw sub ptr %push.budget, i64 %push.extra monotonic
  %push.old = load ptr, ptr %push.slot
  %push.new = call ptr @realloc(ptr %push.old, i64 %push.taken)
  %push.none = icmp eq ptr %push.new, null
  br i1 %push.none, label %stop, label %push.grown

push.grown:
  store ptr %push.new, ptr %push.slot
  store i64 %push.taken, ptr %push.room.at
  br label %push.store

push.store:
  %push.memory = load ptr, ptr %push.slot
  %push.to = getelementptr i8, ptr %push.memory, i64 %push.top
  call void @llvm.memcpy.p0.p0.i64(ptr %push.to, ptr %push.value, i64 %push.size, i1 false)
  store i64 %push.end, ptr %push.top.at
  br label %next

pop:
{open_stack("pop")}\
  %pop.filled = icmp uge i64 %pop.top, %pop.step
  br i1 %pop.filled, label %pop.take, label %stop

pop.take:
  %pop.end = sub i64 %pop.top, %pop.step
  %pop.memory = load ptr, ptr %pop.slot
  %pop.from = getelementptr i8, ptr %pop.memory, i64 %pop.end
  %pop.register = load i64, ptr %word5.at
  %pop.base.at = getelementptr ptr, ptr %bases, i64 %pop.register
  store ptr %pop.from, ptr %pop.base.at
  store i64 %pop.end, ptr %pop.top.at
  br label %next
"""
