"""The memory of one run's channels: who waits for what is in `graphc.codegen.runtime.channels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import string_at

import numpy as np

from graphc.runtime.call.memory import address_of, aligned_bytes
from graphc.runtime.devices.ready_segments import Ready
from graphc.runtime.load.layouts import ChannelWords
from graphc.runtime.load.program import ALIGNMENT, Channel

_WORDS = ChannelWords.nbytes // 8


class Channels:
    """One message slot per channel; a buffered channel has room for its value.

    `links` are the addresses of those that lead to other processes, by number; `carrier` is that
    of what carries their bytes, if they lie in memory of this process alone.
    """

    __slots__ = ("address", "buffers", "kept", "words")

    def __init__(self, channels: Sequence[Channel], links: Mapping[int, int], carrier: int) -> None:
        size = ChannelWords.nbytes
        self.words = aligned_bytes(size * len(channels), size).view(np.int64)
        self.words[:] = 0
        self.kept: dict[str, np.ndarray] = {}
        self.address = address_of(self.words)
        sizes = [-(-c.nbytes // ALIGNMENT) * ALIGNMENT if c.buffered else 0 for c in channels]
        self.buffers = aligned_bytes(sum(sizes))
        position = address_of(self.buffers)
        slots = self.words.reshape(-1, _WORDS)
        for slot, channel, size in zip(slots, channels, sizes, strict=True):
            slot[ChannelWords.source], slot[ChannelWords.target] = channel.source, channel.target
            if channel.buffered:
                # A message of no bytes has no memory; what it points to is never read.
                slot[ChannelWords.buffer] = slot[ChannelWords.address] = position
                position += size
        for number, address in links.items():
            slots[number][[ChannelWords.link, ChannelWords.carrier]] = address, carrier

    def announce(self, ready: Ready) -> None:
        """Have messages tell the device that receives them when they are there."""
        slots = self.words.reshape(-1, _WORDS)
        for channel, segment in ready.agenda.messages.items():
            slots[channel, [ChannelWords.agenda, ChannelWords.segment]] = ready.address, segment

    def attach_bells(self, bells: Mapping[int, int]) -> None:
        """Have messages of these channels ring a bell where they go, by its address."""
        slots = self.words.reshape(-1, _WORDS)
        for channel, address in bells.items():
            slots[channel, ChannelWords.bell] = address

    def record(self, channels: Sequence[Channel], room: Mapping[str, int]) -> None:
        """Have runs keep so many messages of these channels, beyond the last one of each."""
        slots = self.words.reshape(-1, _WORDS)
        for slot, channel in zip(slots, channels, strict=True):
            if channel.buffered and channel.name in room:
                kept = self.kept[channel.name] = aligned_bytes(room[channel.name] * channel.nbytes)
                slot[ChannelWords.record] = address_of(kept)
                slot[ChannelWords.limit] = address_of(kept) + kept.size

    def carried(self, channels: Sequence[Channel]) -> dict[str, list[bytes]]:
        """The messages of every channel: those that were kept, or the last one; to be asked after a
        run, before the next."""
        found = {}
        for c, slot in zip(channels, self.words.reshape(-1, _WORDS).tolist(), strict=True):
            if c.name in self.kept:
                kept = self.kept[c.name]
                count = (slot[ChannelWords.record] - address_of(kept)) // max(1, c.nbytes)
                rows = kept[: count * c.nbytes].reshape(count, c.nbytes)
                found[c.name] = [row.tobytes() for row in rows]
            elif slot[ChannelWords.address]:
                found[c.name] = [string_at(slot[ChannelWords.address], c.nbytes)]
        return found
