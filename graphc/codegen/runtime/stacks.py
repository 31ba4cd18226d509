"""The rows of stacks: what the gradient of a loop remembers.

A push that finds the memory full doubles it with realloc, so n pushes copy less than 2n values; it
takes what is left of the stacks' budget where that is less.  A pop only points a register at the
value, which is there until the next push.  A value of no bytes takes one, so that taking off too
many of them is noticed.  What a table holds as a stack is a handle, the address of its slot.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    I32,
    PTR,
    RELAXED,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    copy_bytes,
    native,
)
from graphc.codegen.runtime.system import reallocate
from graphc.codegen.runtime.tuning import tuned
from graphc.runtime.call.failure import EMPTY, FULL, NO_MEMORY
from graphc.runtime.load.layouts import FrameWords, StackWords


def open_stack(frame: Struct[FrameWords], number: Value, handle: Value) -> None:
    """Make a handle to an empty stack."""
    stack = frame.stacks.to(StackWords)[number]
    handle.store(stack)
    stack.top = 0


def step_of(size: Value) -> Value:
    """The bytes that a value takes."""
    return (size == 0).choose(1, size)


@native(I32)
def push(
    f: Writer, frame: Struct[FrameWords], handle: Pointer, value: Pointer, size: Number
) -> None:
    """Put a value on a stack; 0, or why not."""
    stack = handle.load(PTR).to(StackWords)
    top = stack.top
    end = top + step_of(size)
    with f.when(stack.room.below(end)):
        status = grow(f, frame, stack, end)
        with f.when(status != 0):
            f.give(status)
    copy_bytes(f, stack.memory + top, value, size)
    stack.top = end
    f.give(0)


@native(I32)
def grow(f: Writer, frame: Struct[FrameWords], stack: Struct[StackWords], least: Number) -> None:
    """Give a stack more memory; 0, or why not."""
    room, budget = stack.room, frame.budget
    enough, double = least + tuned.stack_bytes, room << 1
    wanted = double.below(enough).choose(enough, double)
    left = budget.load(order=RELAXED)
    taken = (wanted - room > left).choose(room + left, wanted)
    with f.when(taken < least):
        f.give(FULL)
    budget.fetch_sub(taken - room, RELAXED)
    memory = reallocate(f, stack.memory, taken)
    with f.when(memory.is_null):
        f.give(NO_MEMORY)
    stack.memory = memory
    stack.room = taken
    f.give(0)


@native(I32)
def pop(f: Writer, handle: Pointer, size: Number, register: Pointer) -> None:
    """Point a register at the value that lies on top, and take it off; 0, or EMPTY."""
    stack = handle.load(PTR).to(StackWords)
    top, step = stack.top, step_of(size)
    with f.when(top.below(step)):
        f.give(EMPTY)
    register.store(stack.memory + (top - step))
    stack.top = top - step
    f.give(0)
