"""`Agenda`: the segments of a step table, for the device that runs them as they become ready.

What native code does with them is in `graphc.codegen.runtime.ready_queue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphc.base.record import record
from graphc.runtime.call.memory import address_of, aligned_bytes
from graphc.runtime.load.layouts import AgendaWords, LinkedSegment
from graphc.runtime.load.table import END, WAIT, rows

_LINE = 8  # words of a cache line


@record(frozen=True)
class Agenda:
    """By segment: its first row, and how many segments it waits for. `messages`: the segment that
    the message of a channel begins, by the number of the channel.
    """

    rows: Sequence[int]
    counts: Sequence[int]
    messages: Mapping[int, int]


def agenda_of(words: Sequence[int]) -> Agenda | None:
    """The agenda of a checked table; None for one that is a single segment."""
    ends = [row for row in rows(words) if words[row] == END]
    if len(ends) == 1:
        return None
    starts = [0, *(row + words[row + 1] for row in ends[:-1])]
    counts = [0] * len(ends)
    for row in ends:
        for segment in words[row + 2 : row + words[row + 1]]:
            counts[segment] += 1
    messages = {words[row + 3]: k for k, row in enumerate(starts) if k and words[row] == WAIT}
    return Agenda(starts, counts, messages)


class Ready:
    """The memory of one run: which segments are ready. `address` is what a frame points to."""

    __slots__ = ("address", "agenda", "first", "links", "rows", "words")

    def __init__(self, agenda: Agenda) -> None:
        count = len(agenda.rows)
        bitmap = -(-count // 64)
        open_at = _rounded(bitmap)  # senders write the words before, the device those behind
        counts_at = open_at + bitmap
        self.agenda = agenda
        self.rows = np.array(agenda.rows, np.int64)
        self.first = np.zeros(counts_at + count, np.int64)
        here = np.ones(64 * bitmap, np.uint8)
        here[list(agenda.messages.values())] = 0
        self.first[:bitmap] = np.packbits(here, bitorder="little").view("<i8")
        self.first[counts_at:] = agenda.counts
        head = AgendaWords.here
        words = aligned_bytes(8 * (head + self.first.size), 8 * _LINE).view(np.int64)
        words[:head] = 0
        state = address_of(words[head:])
        words[AgendaWords.words] = bitmap
        words[AgendaWords.open] = state + 8 * open_at
        words[AgendaWords.counts] = state + 8 * counts_at
        words[AgendaWords.rows] = address_of(self.rows)
        words[AgendaWords.first] = address_of(self.first)
        words[AgendaWords.state_bytes] = self.first.nbytes
        self.words, self.address = words, address_of(words)

    def hear(self, bell: int, channels: Mapping[int, int]) -> None:
        """Look at links when the bell of this address has rung: `channels` are the addresses of
        those of other processes, by segment."""
        self.links = np.array([(at, k) for k, at in channels.items()], np.int64)
        assert self.links.itemsize * self.links[0].size == LinkedSegment.nbytes
        self.words[AgendaWords.bell] = bell
        self.words[AgendaWords.links] = address_of(self.links)
        self.words[AgendaWords.link_count] = len(self.links)


def _rounded(words: int) -> int:
    return -(-words // _LINE) * _LINE
