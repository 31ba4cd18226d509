"""Stacks on a device: what the gradient of a loop remembers.

The host knows where every value lies, so a stack is a list of addresses in blocks of device memory,
each twice as large as the one before.  Nothing that was pushed ever moves; the blocks serve later
runs too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.runtime.cuda.interface import ALIGNMENT
from graphc.runtime.cuda.memory import Memory
from graphc.runtime.tuning import tuned

_BYTES = 1


class StackEmpty(Exception):
    """A pop from an empty stack."""


class _Stack:
    __slots__ = ("blocks", "places")

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int]] = []  # address, bytes
        self.places: list[tuple[int, int, int]] = []  # block, begin, end of each value


class Stacks:
    """The stacks of one frame, by slot. `report` has the bytes of each, where a native frame says
    what its stacks have grown to.
    """

    def __init__(self, memory: Memory, report: np.ndarray[Any, Any]) -> None:
        self.memory = memory
        self.report = report
        self.stacks = [_Stack() for _ in report]

    def clear(self, slot: int) -> None:
        """Empty a stack."""
        self.stacks[slot].places.clear()

    def push(self, slot: int, nbytes: int) -> int:
        """Room for a value on top of a stack. Raises LimitError."""
        stack = self.stacks[slot]
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        block, _, end = stack.places[-1] if stack.places else (0, 0, 0)
        while block < len(stack.blocks) and end + size > stack.blocks[block][1]:
            block, end = block + 1, 0
        if block == len(stack.blocks):
            room = max(size, tuned.stack_bytes << block)
            stack.blocks.append((self.memory.allocate(room), room))
            self.report[slot, _BYTES] += room
        stack.places.append((block, end, end + size))
        return stack.blocks[block][0] + end

    def pop(self, slot: int) -> int:
        """Where the value on top lies, which is taken off. Raises StackEmpty."""
        stack = self.stacks[slot]
        if not stack.places:
            raise StackEmpty
        block, begin, _ = stack.places.pop()
        return stack.blocks[block][0] + begin

    def free(self) -> None:
        """Give all memory back."""
        for stack in self.stacks:
            for address, _ in stack.blocks:
                self.memory.driver.free(address)
            stack.blocks.clear()
