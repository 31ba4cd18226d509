"""The memory of one run's channels: who waits for what is in `graphc.codegen.native.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import string_at

import numpy as np

from graphc.runtime.agenda import Ready
from graphc.runtime.image import ALIGNMENT, Channel
from graphc.runtime.memory import address_of, aligned_bytes

WORDS = 16  # of a channel: two cache lines, of which the sender and the receiver write the first
_ADDRESS, _BUFFER, _SOURCE, _TARGET, _AGENDA, _SEGMENT = range(1, 7)


class Channels:
    """One message slot per channel; a buffered channel has room for its value."""

    __slots__ = ("address", "buffers", "words")

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.words = aligned_bytes(8 * WORDS * len(channels), 8 * WORDS).view(np.int64)
        self.words[:] = 0
        self.address = address_of(self.words)
        sizes = [-(-c.nbytes // ALIGNMENT) * ALIGNMENT if c.buffered else 0 for c in channels]
        self.buffers = aligned_bytes(sum(sizes))
        position = address_of(self.buffers)
        for slot, channel, size in zip(self.words.reshape(-1, WORDS), channels, sizes, strict=True):
            slot[_SOURCE], slot[_TARGET] = channel.source, channel.target
            if channel.buffered:
                # A message of no bytes has no memory; what it points to is never read.
                slot[_BUFFER] = slot[_ADDRESS] = position
                position += size

    def announce(self, ready: Ready) -> None:
        """Have messages tell the device that receives them when they are there."""
        slots = self.words.reshape(-1, WORDS)
        for channel, segment in ready.agenda.messages.items():
            slots[channel, [_AGENDA, _SEGMENT]] = ready.address, segment

    def carried(self, channels: Sequence[Channel]) -> dict[str, bytes]:
        """The last message of every channel that had one; to be asked after a run, before the
        next."""
        slots = zip(channels, self.words.reshape(-1, WORDS).tolist(), strict=True)
        return {c.name: string_at(slot[_ADDRESS], c.nbytes) for c, slot in slots if slot[_ADDRESS]}
