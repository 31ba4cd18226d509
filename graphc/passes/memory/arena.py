"""Where blocks of memory lie that are taken and given back: as close as they fit, or in slots."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from graphc.passes.tuning import tuned

ALIGNMENT = 64


def always() -> bool:
    """Memory may be used again."""
    return True


def never() -> bool:
    """It may not."""
    return False


class Arena:
    """Free gaps of a growing address range, each with the messages that its last users needed."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []  # (bytes, offset), sorted
        self.messages: dict[int, int] = {}  # by offset
        self.by_start: dict[int, int] = {}
        self.by_end: dict[int, int] = {}
        self.top = 0

    def take(self, nbytes: int, messages: int = 0, reuse: Callable[[], bool] = always) -> int:
        """The offset of a block: the smallest gap that holds it, or new bytes at the top.

        `reuse` is asked before memory is used again, and may forbid it.
        """
        for position in range(bisect_left(self.gaps, (nbytes, 0)), len(self.gaps)):
            length, offset = self.gaps[position]
            if not self.messages[offset] & ~messages:
                if not reuse():
                    reuse = never
                    break
                left = self.messages[offset]
                self._remove(offset, length)
                if length > nbytes:
                    self._add(offset + nbytes, length - nbytes, left)
                return offset
        start = self.top
        length = self.by_end.get(self.top, 0)
        grows = 0 < length < nbytes and not self.messages[start - length] & ~messages
        if grows and reuse():
            start -= length  # grow the gap at the end
            self._remove(start, length)
        self.top = start + nbytes
        return start

    def give(self, offset: int, nbytes: int, messages: int = 0) -> None:
        """Return a block, joining it with gaps of the same messages on both sides."""
        before = self.by_end.get(offset, 0)
        if before and self.messages[offset - before] == messages:
            offset, nbytes = offset - before, nbytes + before
            self._remove(offset, before)
        after = self.by_start.get(offset + nbytes, 0)
        if after and self.messages[offset + nbytes] == messages:
            self._remove(offset + nbytes, after)
            nbytes += after
        self._add(offset, nbytes, messages)

    def settle(self, there: int) -> None:
        """These messages make no difference any more: join the gaps that differ in them alone."""
        gaps = [(offset, length, self.messages[offset] & ~there) for length, offset in self.gaps]
        for field in (self.gaps, self.messages, self.by_start, self.by_end):
            field.clear()
        for gap in gaps:
            self.give(*gap)

    def _add(self, offset: int, length: int, messages: int) -> None:
        insort(self.gaps, (length, offset))
        self.by_start[offset] = self.by_end[offset + length] = length
        self.messages[offset] = messages

    def _remove(self, offset: int, length: int) -> None:
        del self.gaps[bisect_left(self.gaps, (length, offset))]
        del self.by_start[offset], self.by_end[offset + length], self.messages[offset]


class Centred(Arena):
    """Blocks of which threads make, and mostly read, a half each: halves that lie in the same
    places belong to one thread, whose cache keeps them.

        slot      |----------.----------|          the values of a slot, one after the other,
        values        |------.------|              have their middles in one place
                    |--------.--------|

    `take` numbers the blocks; where they lie is known when all are: `places` says it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []  # of slots
        self.blocks: dict[int, tuple[int, int]] = {}  # by number: slot, bytes
        self.unused: list[tuple[int, int]] = []  # (bytes, slot), sorted
        self.left: dict[int, int] = {}  # messages that the last users of unused slots needed
        self.live = self.most = 0  # bytes of blocks, and most of them at a time

    def take(self, nbytes: int, messages: int = 0, reuse: Callable[[], bool] = always) -> int:
        slot = self.near(nbytes, messages)
        if slot is not None and reuse():
            self.unused.remove((self.sizes[slot], slot))
            del self.left[slot]
            self.sizes[slot] = max(self.sizes[slot], nbytes)
        else:
            slot = len(self.sizes)
            self.sizes.append(nbytes)
        number = len(self.blocks) * ALIGNMENT
        self.blocks[number] = slot, nbytes
        self.live += nbytes
        self.most = max(self.most, self.live)
        return number

    def near(self, nbytes: int, messages: int) -> int | None:
        """The smallest unused slot that holds so much, or else the largest, if it is neither much
        too large nor much too small."""
        first = bisect_left(self.unused, (nbytes, 0))
        for size, slot in self.unused[first:]:
            if size > tuned.slot_ratio * nbytes:
                break
            if not self.left[slot] & ~messages:
                return slot
        for size, slot in reversed(self.unused[:first]):
            if size * tuned.slot_ratio < nbytes:
                break
            if not self.left[slot] & ~messages:
                return slot
        return None

    def give(self, offset: int, nbytes: int, messages: int = 0) -> None:
        slot, nbytes = self.blocks[offset]
        insort(self.unused, (self.sizes[slot], slot))
        self.left[slot] = messages
        self.live -= nbytes

    def settle(self, there: int) -> None:
        self.left = {slot: messages & ~there for slot, messages in self.left.items()}

    def places(self) -> dict[int, int]:
        """The offset of each block."""
        starts, top = [], 0
        for size in self.sizes:
            starts.append(top)
            top += size
        return {
            number: starts[slot] + (self.sizes[slot] - nbytes) // 2 // ALIGNMENT * ALIGNMENT
            for number, (slot, nbytes) in self.blocks.items()
        }
