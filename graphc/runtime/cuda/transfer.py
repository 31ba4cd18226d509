"""The device memory of one frame, and the ways of arguments and results between it and the host.

    arena | small params | status | small results            each large one by itself
          one copy there | one copy back

What is small goes through pinned memory of the frame, all of it at once; every copy has a price of
its own, and one to memory that is not pinned makes the host wait.  What is large has memory from
when it comes from the host first: it may always lie on the device already.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.blocks import DeviceBlock
from graphc.runtime.cuda.interface import COMPUTE, Driver
from graphc.runtime.cuda.memory import Memory
from graphc.runtime.cuda.native import status_of
from graphc.runtime.load.program import Image
from graphc.runtime.tuning import tuned

_GRANULE = 256
_STATUS = -1  # stands for the status among the numbers of params and results
_STATUS_BYTES = 16


class Transfer:
    """Where the arena, the params, the results and the status of a frame lie. Params and results
    have one numbering, the params first; a result that takes over a param has its place.
    """

    def __init__(self, memory: Memory, image: Image) -> None:
        self.memory = memory
        self.driver: Driver = memory.driver
        self.count = len(image.params)
        slots = (*image.params, *image.results)
        self.sizes = [slot.nbytes for slot in slots]
        self.taken = {self.count + k: p for k, p in enumerate(image.donated) if p >= 0}
        starts, total = self._layout(image.arena_bytes)
        self.arena = memory.allocate(total)
        self.status = self.arena + starts.pop(_STATUS)
        self.places = [0] * len(slots)
        for k, start in starts.items():
            self.places[k] = self.arena + start
        self._share()
        weakref.finalize(self, self.driver.free, self.arena).atexit = False
        self.blocks: list[DeviceBlock] = []
        self.inward = [k for k in starts if k < self.count and self.sizes[k]]
        self.outward = [k for k in starts if k >= self.count and self.sizes[k]]
        self.first = min((self.places[k] for k in self.inward), default=0)
        ends = [self.places[k] + self.sizes[k] for k in self.inward]
        self.inbox = self.driver.pinned(max(ends, default=0) - self.first)
        ends = [self.places[k] + self.sizes[k] for k in self.outward]
        self.outbox = self.driver.pinned(max([*ends, self.status + _STATUS_BYTES]) - self.status)
        together = {*self.inward, *self.outward}
        self.alone = [k for k, n in enumerate(self.sizes) if n and k not in together]

    def _layout(self, arena: int) -> tuple[dict[int, int], int]:
        """Where small params and results and the status begin, and the bytes of all."""
        small = [
            k for k, n in enumerate(self.sizes) if n <= tuned.gathered_bytes and k not in self.taken
        ]
        inward = [k for k in small if k < self.count]
        starts, position = {}, rounded(arena)
        for k in (*inward, _STATUS, *small[len(inward) :]):
            starts[k] = position
            position += rounded(_STATUS_BYTES if k == _STATUS else self.sizes[k])
        return starts, position

    def _share(self) -> None:
        for result, param in self.taken.items():
            self.places[result] = self.places[param]

    def own(self, hosts: Sequence[int]) -> list[int]:
        """The places of this frame, also for what comes from the host or goes there and is large.

        Raises LimitError.
        """
        for k in self.alone:
            if hosts[k] and not self.places[k]:
                self.blocks.append(self.memory.block(self.sizes[k]))
                self.places[k] = self.blocks[-1].address
                self._share()
        return self.places

    def upload(self, hosts: Sequence[int], places: Sequence[int]) -> None:
        """Copy the arguments to the device. `hosts` has their addresses, 0 where one is there."""
        start = address_of(self.inbox) - self.first
        found = [k for k in self.inward if hosts[k]]
        for k in found:
            ctypes.memmove(start + self.places[k], hosts[k], self.sizes[k])
        if found:
            self.driver.copy(self.first, address_of(self.inbox), self.inbox.nbytes, COMPUTE)
        for k in self.alone:
            if k < self.count and hosts[k]:
                self.driver.copy(places[k], hosts[k], self.sizes[k], COMPUTE)

    def download(self, hosts: Sequence[int], places: Sequence[int]) -> tuple[int, int]:
        """Wait for the device: the row that failed and its status, or 0 and all results."""
        for k in self.alone:
            if k >= self.count and hosts[k]:
                self.driver.copy(hosts[k], places[k], self.sizes[k], COMPUTE)
        begin = address_of(self.outbox)
        self.driver.copy(begin, self.status, self.outbox.nbytes, COMPUTE)
        self.driver.synchronize(COMPUTE)
        row, code = status_of(self.outbox)
        start = begin - self.status
        for k in self.outward if not code else ():
            if hosts[k]:
                ctypes.memmove(hosts[k], start + self.places[k], self.sizes[k])
        return row, code

    def look(self, address: int) -> tuple[int, int, int]:
        """Wait for the device: row and status as of `download`, and the byte at an address."""
        begin = address_of(self.outbox)
        self.driver.copy(begin, self.status, 8, COMPUTE)
        if address:
            self.driver.copy(begin + 8, address, 1, COMPUTE)
        self.driver.synchronize(COMPUTE)
        return *status_of(self.outbox), int(self.outbox[8])


def rounded(nbytes: int) -> int:
    """A size after which the next value is aligned."""
    return -(-nbytes // _GRANULE) * _GRANULE
