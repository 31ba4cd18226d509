"""Heartbeats: workers say again and again that they are there, and one that is silent is lost.

    worker    beat  beat  beat  beat  beat       every BEAT_SECONDS, whatever it computes
    client      look    look          look       a clock of its own, which stops in long pauses

What a worker said while nobody listened may not have been read yet: that time is not its silence.
"""

from __future__ import annotations

import time
from math import inf

BEAT_SECONDS = 0.25
_LAST_BEATS_SECONDS = 0.9  # from the end of a connection on, in which those of others are heard


class Heartbeats:
    """When each worker was heard, in seconds in which somebody listened.

    Looks are `apart` seconds apart; of a longer pause no more than twice as much counts.
    """

    def __init__(self, apart: float) -> None:
        self.longest = 2 * apart
        self.looked = time.monotonic()
        self.clock = 0.0
        self.heard: dict[int, float] = {}  # by task
        self.cut = -inf  # when a connection has ended; whose is not told

    def look(self) -> None:
        """Somebody listens now."""
        now = time.monotonic()
        self.clock += min(now - self.looked, self.longest)
        self.looked = now

    def hear(self, task: int) -> None:
        """A worker was heard."""
        self.heard[task] = self.clock

    def hear_end(self) -> None:
        """A connection has ended: who is not heard soon was behind it."""
        self.cut = self.clock

    def missing(self, task: int, patience: float) -> str:
        """Why a worker counts as lost, or nothing."""
        heard = self.heard.get(task, self.clock)
        silent = self.clock - heard
        is_cut = heard <= self.cut < self.clock - _LAST_BEATS_SECONDS
        return f"nothing was heard of it for {silent:.2f} s" if silent > patience or is_cut else ""
