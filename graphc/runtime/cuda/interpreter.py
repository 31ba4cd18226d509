"""Follows the rows of a step table on the host, for a device whose memory the host cannot read.

Base registers, loop counters and stacks are known here, so that every address is; only the verdict
of a branch lies in device memory.  What rows do is handed to an `Issue`, which does it at once or
writes it down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphc.runtime.cuda.stacks import Stacks
from graphc.runtime.load.table import ABSENT, NAMES

_HANDLE = 8  # bytes of a handle to a stack


class Issue(Protocol):
    """What the rows of a table do to a device. `row` is a word index of the table."""

    def begin(self, row: int) -> None:
        """A row begins. May raise, to stop the walk."""

    def call(self, row: int, addresses: tuple[int, ...]) -> None:
        """Call the kernel of a row on operands at these addresses."""

    def copy(self, nbytes: int, target: int, source: int) -> None:
        """Copy within the memory of the device."""

    def branch(self, walk: Walk, row: int, verdict: int, following: int) -> int:
        """The row that a branch leads to, by the byte of device memory at `verdict`."""

    def again(self, walk: Walk, row: int, following: int) -> int:
        """The row that a loop which is not at its end leads to."""

    def compare(self, apart: int) -> None:
        """Two addresses are so far apart, and a row has been chosen by that."""

    def send(self, row: int, address: int) -> None:
        """Hand a value to the channel of a row."""

    def receive(self, row: int, address: int) -> None:
        """Copy the message of a row's channel to device memory."""


class Walk:
    """One walk over a table to its end; `bases` are changed by it."""

    def __init__(
        self, words: Sequence[int], bases: list[int], stacks: Stacks, issue: Issue
    ) -> None:
        self.words = words
        self.bases = bases
        self.stacks = stacks
        self.issue = issue
        self.handles: dict[int, int] = {}  # where handles of stacks lie -> slot
        self.rows = [getattr(self, f"_{name}") for name in NAMES]

    def run(self, row: int, until: int = -1) -> None:
        """Go on from a row to the end, or to another row. Raises what the issue raises, and
        StackEmpty."""
        words, rows, begin = self.words, self.rows, self.issue.begin
        while row not in (until, -1):
            begin(row)
            row = rows[words[row]](row, row + words[row + 1])

    def at(self, word: int) -> int:
        """Where the operand at a word of the table lies now."""
        return self.bases[self.words[word]] + self.words[word + 1]

    def _end(self, row: int, following: int) -> int:
        return following if following < len(self.words) else -1

    def _call(self, row: int, following: int) -> int:
        words, bases = self.words, self.bases
        pairs = range(row + 7, following, 2)
        self.issue.call(row, tuple([bases[words[k]] + words[k + 1] for k in pairs]))
        return following

    def _jump(self, row: int, following: int) -> int:
        return self.words[row + 2]

    def _branch(self, row: int, following: int) -> int:
        return self.issue.branch(self, row, self.at(row + 3), following)

    def _bump(self, row: int, following: int) -> int:
        for word in range(row + 2, following, 2):
            self.bases[self.words[word]] += self.words[word + 1]
        return following

    def _set(self, row: int, following: int) -> int:
        register, base, offset = self.words[row + 2 : row + 5]
        self.bases[register] = offset if base == ABSENT else self.bases[base] + offset
        return following

    def _loop(self, row: int, following: int) -> int:
        register = self.words[row + 2]
        self.bases[register] -= 1
        return self.issue.again(self, row, following) if self.bases[register] > 0 else following

    def _copy(self, row: int, following: int) -> int:
        nbytes, target, source = self.words[row + 2], self.at(row + 3), self.at(row + 5)
        if target != source and nbytes:
            self.issue.copy(nbytes, target, source)
            if nbytes == _HANDLE and source in self.handles:
                self.handles[target] = self.handles[source]
        return following

    def _same(self, row: int, following: int) -> int:
        apart = self.at(row + 3) - self.at(row + 5)
        self.issue.compare(apart)
        return self.words[row + 2] if apart else following

    def _rotate(self, row: int, following: int) -> int:
        read, write, spare = self.words[row + 2 : row + 5]
        written = self.bases[write]
        self.bases[read], self.bases[write], self.bases[spare] = written, self.bases[spare], written
        return following

    def _stack(self, row: int, following: int) -> int:
        slot = self.words[row + 2]
        self.handles[self.at(row + 3)] = slot
        self.stacks.clear(slot)
        return following

    def _push(self, row: int, following: int) -> int:
        nbytes = self.words[row + 2]
        place = self.stacks.push(self.handles[self.at(row + 3)], nbytes)
        if nbytes:
            self.issue.copy(nbytes, place, self.at(row + 5))
        return following

    def _pop(self, row: int, following: int) -> int:
        place = self.stacks.pop(self.handles[self.at(row + 3)])
        self.bases[self.words[row + 5]] = place
        return following

    def _send(self, row: int, following: int) -> int:
        self.issue.send(row, self.at(row + 4))
        return following

    def _wait(self, row: int, following: int) -> int:
        self.issue.receive(row, self.at(row + 4))
        return following
