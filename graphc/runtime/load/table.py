"""The step table: what a partition does, as rows of 64-bit words that one native function walks.

    word   call rows                       other rows
    0      opcode                          opcode
    1      words in this row               words in this row
    2      kernel index                    see the functions of `TableBuilder`
    3      units of parallel work
    4      grain: units worth a call of their own; 0 = never split.  In the upper half of the word
           how many units a long kernel does between two looks at the cancel flag; 0 = all
    5      first word of the step's parameters
    6      operand count n
    7...   n pairs (base register, byte offset)

A table is one segment, or several of a device that receives messages.  Each ends with an end row
that names the later segments that wait for it (the last one none), counted from 0.  Run in table
order they do the same.

Base registers: 0 the arena, 1 the constants, 2... the parameters, then the results, then scratch
registers that `set`, `bump`, `loop` and `rotate` may change.  A jump target is a word index of the
table.  A stack is a slot of the frame (see the walker); what operands hold is a handle to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError

NAMES = (
    "end",
    "call",
    "jump",
    "branch",
    "bump",
    "set",
    "loop",
    "copy",
    "rotate",
    "stack",
    "push",
    "pop",
    "same",
    "send",
    "wait",
)
(END, CALL, JUMP, BRANCH, BUMP, SET, LOOP, COPY, ROTATE, STACK, PUSH, POP, SAME, SEND, WAIT) = (
    range(len(NAMES))
)
ARENA, CONSTANTS, FIRST_PARAM = 0, 1, 2
MOST_STACKS = 1 << 16
ABSENT = -1  # a base that reads as zero: `set` then stores a plain number

_CALL_HEAD = 7
_LOWER = MOST_GRAIN = (1 << 32) - 1  # half of a word
_WORDS = {
    JUMP: 3,
    BRANCH: 5,
    SET: 5,
    LOOP: 4,
    COPY: 7,
    ROTATE: 5,
    STACK: 5,
    PUSH: 7,
    POP: 6,
    SAME: 7,
    SEND: 6,
    WAIT: 6,
}
TARGET_WORD = {JUMP: 2, BRANCH: 2, LOOP: 3, SAME: 2}
_REGISTER_WORDS = {SET: (2,), LOOP: (2,), ROTATE: (2, 3, 4), POP: (5,)}
_OPERAND_WORDS = {BRANCH: (3,), SET: (3,), COPY: (3, 5), STACK: (3,), PUSH: (3, 5), POP: (3,)}
_LISTS = {END: 1, BUMP: 2}  # rows of any length: the words of an entry
_OPERAND_WORDS |= {SAME: (3, 5), SEND: (4,), WAIT: (4,)}
_SIZED = (COPY, PUSH, POP)  # rows whose word 2 is a number of bytes

Operand = tuple[int, int]


@record
class TableBuilder:
    """Builds a table row by row; every method returns the word index of the row it adds."""

    words: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def _row(self, *words: int) -> int:
        start = len(self.words)
        self.rows.append(start)
        self.words.extend(words)
        return start

    @property
    def position(self) -> int:
        """The word index of the next row: a target for backward jumps."""
        return len(self.words)

    def call(
        self,
        kernel: int,
        operands: Sequence[Operand],
        *,
        units: int = 1,
        grain: int = 0,
        poll: int = 0,
        params: int = 0,
    ) -> int:
        """Call a kernel over `units` of work, split among threads when units exceed grain, and
        stopped after `poll` units when the run is cancelled."""
        flat = [word for operand in operands for word in operand]
        size = _CALL_HEAD + len(flat)
        split = grain + (min(poll, _LOWER >> 1) << 32)
        return self._row(CALL, size, kernel, units, split, params, len(operands), *flat)

    def jump(self, target: int = 0) -> int:
        """Continue at `target`."""
        return self._row(JUMP, 3, target)

    def branch(self, condition: Operand, target: int = 0) -> int:
        """Continue at `target` when the byte at `condition` is zero, else with the next row."""
        return self._row(BRANCH, 5, target, *condition)

    def same(self, first: Operand, second: Operand, target: int = 0) -> int:
        """Continue at `target` unless both operands are at one address."""
        return self._row(SAME, 7, target, *first, *second)

    def bump(self, *moves: int) -> int:
        """Add bytes to scratch registers: register, amount, register, amount, ..."""
        return self._row(BUMP, 2 + len(moves), *moves)

    def set(self, register: int, source: Operand) -> int:
        """Point a scratch register at an operand; with base ABSENT store a plain number."""
        return self._row(SET, 5, register, *source)

    def loop(self, register: int, target: int) -> int:
        """Subtract one from a scratch register and continue at `target` while it is positive."""
        return self._row(LOOP, 4, register, target)

    def copy(self, size: int, target: Operand, source: Operand) -> int:
        """Copy `size` bytes between operands that do not overlap, or are the same."""
        return self._row(COPY, 7, size, *target, *source)

    def rotate(self, read: int, write: int, spare: int) -> int:
        """Of three scratch registers: read = write, write = spare, spare = read."""
        return self._row(ROTATE, 5, read, write, spare)

    def stack(self, slot: int, target: Operand) -> int:
        """Empty a stack slot and store its handle."""
        return self._row(STACK, 5, slot, *target)

    def push(self, size: int, handle: Operand, source: Operand) -> int:
        """Copy `size` bytes onto a stack."""
        return self._row(PUSH, 7, size, *handle, *source)

    def pop(self, size: int, handle: Operand, register: int) -> int:
        """Take `size` bytes off a stack; a scratch register points to them until the next push."""
        return self._row(POP, 6, size, *handle, register)

    def send(self, size: int, channel: int, source: Operand) -> int:
        """Hand `size` bytes to a channel, when it is empty."""
        return self._row(SEND, 6, size, channel, *source)

    def wait(self, size: int, channel: int, target: Operand) -> int:
        """Wait for a channel's message and copy its `size` bytes to the target."""
        return self._row(WAIT, 6, size, channel, *target)

    def end(self, *releases: int) -> int:
        """End a segment that these ones wait for; without any stop the walk with success."""
        return self._row(END, 2 + len(releases), *releases)

    def patch(self, row: int, target: int) -> None:
        """Set the target of a jump, branch or loop row that was added earlier."""
        self.words[row + TARGET_WORD[self.words[row]]] = target

    def finish(self) -> np.ndarray:
        """The table as an int64 array."""
        return np.array(self.words, np.int64)


def rows(words: Sequence[int]) -> Iterator[int]:
    """The word index of every row, in table order."""
    position = 0
    while position < len(words):
        yield position
        position += max(1, words[position + 1])


def operands_of(words: Sequence[int], row: int) -> list[Operand]:
    """The operands of a call row."""
    places = range(row + _CALL_HEAD, row + words[row + 1], 2)
    return [(words[word], words[word + 1]) for word in places]


def calls_until(words: Sequence[int], starts: Sequence[int], row: int, count: int) -> Sequence[int]:
    """The `count` call rows that follow one another and end with `row`; none if it is not so.

    `starts` are all rows.
    """
    end = bisect_left(starts, row) + 1
    found = starts[max(0, end - count) : end]
    whole = len(found) == count > 0 and found[-1] == row
    return found if whole and all(words[start] == CALL for start in found) else ()


def most_operands(words: Sequence[int]) -> int:
    """The greatest operand count of any call row."""
    return max((words[row + 6] for row in rows(words) if words[row] == CALL), default=0)


def can_split(words: Sequence[int]) -> bool:
    """Whether any call row has more units than its grain, so that threads could share it."""
    calls = (words[row + 3 : row + 5] for row in rows(words) if words[row] == CALL)
    return any(0 < split & _LOWER < units for units, split in calls)


def has_jumps(words: Sequence[int]) -> bool:
    """Whether the length of a run depends on anything but the table's length."""
    return any(words[row] in TARGET_WORD for row in rows(words))


def stack_slots(words: Sequence[int]) -> int:
    """How many stack slots a frame needs."""
    return max((1 + words[row + 2] for row in rows(words) if words[row] == STACK), default=0)


@record(frozen=True)
class Bounds:
    """What a table may refer to: counts, the byte size of each base (-1 where unknown), and the
    bytes that each channel carries to or from this device (-1 for channels of others).
    """

    kernels: int
    params: int
    sizes: Sequence[int]
    first_register: int
    sent: Sequence[int] = ()
    received: Sequence[int] = ()


def validate(table: np.ndarray, bounds: Bounds) -> None:
    """Check every row against `bounds`; raise GraphError at the first word that lies outside."""
    words: list[int] = table.tolist()
    starts: set[int] = set()
    position = 0
    while position < len(words):
        starts.add(position)
        size = words[position + 1] if position + 1 < len(words) else 0
        if size < 2 or position + size > len(words):
            raise _bad(position, f"row of {size} words in a table of {len(words)}")
        _validate_row(words, position, size, bounds)
        position += size
    if not words or words[-2:] != [END, 2]:
        raise GraphError("the step table does not finish with an end row")
    ends = [row for row in rows(words) if words[row] == END]
    for row in starts:
        target = TARGET_WORD.get(words[row])
        if target is None:
            continue
        if words[row + target] not in starts:
            raise _bad(row, f"jump to word {words[row + target]}, where no row starts")
        if bisect_left(ends, row) != bisect_left(ends, words[row + target]):
            raise _bad(row, f"jump to word {words[row + target]}, in another segment")
    if len(ends) > 1:
        _validate_segments(words, ends, bounds)


def _validate_segments(words: list[int], ends: list[int], bounds: Bounds) -> None:
    """Every segment but the first is released, every one but the last releases later ones."""
    if all(size < 0 for size in bounds.received):
        raise GraphError(f"the step table has {len(ends)} segments, but waits for no message")
    released = {0}
    for number, row in enumerate(ends):
        following = words[row + 2 : row + words[row + 1]]
        in_order = sorted(set(following)) == following
        if not in_order or not all(number < other < len(ends) for other in following):
            raise _bad(row, f"segment {number} releases {following}")
        if number not in released or (not following and row != ends[-1]):
            raise _bad(row, f"segment {number} of {len(ends)} leads from or to nothing")
        released.update(following)


def _bad(row: int, reason: str) -> GraphError:
    return GraphError(f"the step table is damaged at word {row}: {reason}")


def _validate_row(words: list[int], row: int, size: int, bounds: Bounds) -> None:
    opcode = words[row]
    if opcode == CALL:
        _validate_call(words, row, size, bounds)
        return
    if _WORDS.get(opcode) != size and not (opcode in _LISTS and size % _LISTS[opcode] == 0):
        raise _bad(row, f"opcode {opcode} in a row of {size} words")
    if opcode in _SIZED and words[row + 2] < 0:
        raise _bad(row, f"{NAMES[opcode]} of {words[row + 2]} bytes")
    if opcode == STACK and not 0 <= words[row + 2] < MOST_STACKS:
        raise _bad(row, f"no stack slot {words[row + 2]}")
    if opcode in (SEND, WAIT):
        size, channel = words[row + 2 : row + 4]
        channels = bounds.sent if opcode == SEND else bounds.received
        if not 0 <= channel < len(channels) or size < 0 or channels[channel] != size:
            raise _bad(row, f"{NAMES[opcode]} of {size} bytes on channel {channel}")
    registers = _REGISTER_WORDS.get(opcode, ()) if opcode != BUMP else range(2, size, 2)
    for word in registers:
        if not bounds.first_register <= words[row + word] < len(bounds.sizes):
            raise _bad(row, f"no scratch register {words[row + word]}")
    for word in _OPERAND_WORDS.get(opcode, ()):
        number = opcode == SET and words[row + word] == ABSENT
        if not number:
            _validate_operand(words, row, row + word, bounds)


def _validate_call(words: list[int], row: int, size: int, bounds: Bounds) -> None:
    if size < _CALL_HEAD or words[row + 6] < 0 or size != _CALL_HEAD + 2 * words[row + 6]:
        raise _bad(row, f"call row of {size} words")
    kernel, units, grain, params = words[row + 2 : row + 6]
    if not 0 <= kernel < bounds.kernels:
        raise _bad(row, f"no kernel {kernel}")
    if units < 0 or grain < 0:
        raise _bad(row, f"{units} units of work with grain {grain}")
    if not 0 <= params <= bounds.params:
        raise _bad(row, f"no parameter word {params}")
    for word in range(row + _CALL_HEAD, row + size, 2):
        _validate_operand(words, row, word, bounds)


def _validate_operand(words: list[int], row: int, word: int, bounds: Bounds) -> None:
    base, offset = words[word], words[word + 1]
    if not 0 <= base < len(bounds.sizes):
        raise _bad(row, f"no base register {base}")
    if bounds.sizes[base] >= 0 and not 0 <= offset <= bounds.sizes[base]:
        raise _bad(row, f"offset {offset} outside the {bounds.sizes[base]} bytes of base {base}")
