"""The device memory of one frame, and the ways of arguments and results between it and the host.

    arena | small params   | small results            each large one by itself
          | one copy there | one copy back

What is small goes through pinned memory of the frame, all of it at once; every copy has a price of
its own, and one to memory that is not pinned makes the host wait.  What is large has memory from
when it comes from the host first: it may always lie on the device already.

The status lies in memory of the host that kernels reach: one that fails writes it there, and none
reads it, so that nothing has to be fetched after a run that went well.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import memmove
from functools import cached_property
from typing import Any

import numpy as np

from graphc.runtime.call.array import Array, Run
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.interface import COMPUTE, Driver
from graphc.runtime.cuda.memory import Memory
from graphc.runtime.cuda.native import status_of
from graphc.runtime.cuda.result_memory import DeviceBlock
from graphc.runtime.load.program import Image, numpy_dtype
from graphc.runtime.tuning import tuned

_GRANULE = 256


class Operands:
    """Where the arguments of a run lie, 0 for those that are `sent` by the host, by their numbers,
    and the runs that have yet to make them."""

    __slots__ = ("addresses", "after", "sent")

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.sent: list[int] = []
        self.after: list[Run] = []

    def follow(self, array: Array, run: Run) -> None:
        """Come after the run that makes an array. Raises what that has failed with."""
        if run.is_over:
            array.wait()
        else:
            self.after.append(run)


class Transfer:
    """Where the arena, the params, the results and the status of a frame lie. Params and results
    have one numbering, the params first; a result that takes over a param has its place.
    """

    def __init__(self, memory: Memory, image: Image) -> None:
        self.memory = memory
        self.driver: Driver = memory.driver
        self.count = len(image.params)
        slots = self.slots = (*image.params, *image.results)
        self.sizes = [slot.nbytes for slot in slots]
        self.taken = {self.count + k: p for k, p in enumerate(image.donated) if p >= 0}
        self.word = self.driver.pinned(8).view(np.int64)
        self.word[0] = 0
        self.status = address_of(self.word)
        starts, total = self._layout(image.arena_bytes)
        self.arena = memory.allocate(total)
        self.places = [0] * len(slots)
        for k, start in starts.items():
            self.places[k] = self.arena + start
        self._share()
        weakref.finalize(self, self.driver.free, self.arena).atexit = False
        self.blocks: list[DeviceBlock] = []
        self.inward = [k for k in starts if k < self.count and self.sizes[k]]
        self.outward = [k for k in starts if k >= self.count and self.sizes[k]]
        self.first, self.inbox = self._box(self.inward)
        self.last, self.outbox = self._box(self.outward)
        self.inbox_at, self.outbox_at = address_of(self.inbox), address_of(self.outbox)
        self.verdict = self.driver.pinned(1)
        together = {*self.inward, *self.outward}
        self.alone = [k for k, n in enumerate(self.sizes) if n and k not in together]

    def _box(self, values: Sequence[int]) -> tuple[int, np.ndarray[Any, Any]]:
        """Where values begin that lie one after the other, and room on the host for all of them."""
        first = min((self.places[k] for k in values), default=0)
        end = max((self.places[k] + self.sizes[k] for k in values), default=0)
        return first, self.driver.pinned(end - first)

    def _layout(self, arena: int) -> tuple[dict[int, int], int]:
        """Where small params and results begin, and the bytes of all."""
        small = [
            k for k, n in enumerate(self.sizes) if n <= tuned.gathered_bytes and k not in self.taken
        ]
        starts, position = {}, rounded(arena)
        for k in small:
            starts[k] = position
            position += rounded(self.sizes[k])
        return starts, position

    def _share(self) -> None:
        for result, param in self.taken.items():
            self.places[result] = self.places[param]

    def own(self, hosts: Sequence[int]) -> list[int]:
        """The places of this frame, also for what comes from the host or goes there and is large.

        Raises LimitError.
        """
        return self.own_of([k for k in self.alone if hosts[k]])

    def own_of(self, values: Sequence[int]) -> list[int]:
        """The places of this frame, among them those of some params and results."""
        for k in values:
            if self.sizes[k] and not self.places[k]:
                self.blocks.append(self.memory.block(self.sizes[k]))
                self.places[k] = self.blocks[-1].address
                self._share()
        return self.places

    def upload(self, hosts: Sequence[int], places: Sequence[int]) -> None:
        """Copy the arguments to the device. `hosts` has their addresses, 0 where one is there."""
        found = [k for k in self.inward if hosts[k]]
        for k in found:
            memmove(self.inbox_at - self.first + self.places[k], hosts[k], self.sizes[k])
        if found:
            self.driver.copy(self.first, self.inbox_at, self.inbox.nbytes, COMPUTE)
        for k in self.alone:
            if k < self.count and hosts[k]:
                self.driver.copy(places[k], hosts[k], self.sizes[k], COMPUTE)

    def send(self, arrays: Sequence[Any], given: Operands) -> None:
        """Copy small arguments to their places: before anybody can change them, to the inbox."""
        for k in given.sent:
            given.addresses[k] = self.places[k]
            if self.sizes[k]:
                self.letters[k][...] = arrays[k]
        if self.inward:
            self.driver.copy(self.first, self.inbox_at, self.inbox.nbytes, COMPUTE)

    @cached_property
    def letters(self) -> dict[int, np.ndarray[Any, Any]]:
        """The small params in the inbox."""
        found = {}
        for k in self.inward:
            begin, slot = self.places[k] - self.first, self.slots[k]
            memory = self.inbox[begin : begin + self.sizes[k]]
            found[k] = memory.view(numpy_dtype(slot.dtype)).reshape(slot.shape)
        return found

    def download(self, hosts: Sequence[int], places: Sequence[int]) -> tuple[int, int]:
        """Wait for the device: the row that failed and its status, or 0 and all results."""
        for k in self.alone:
            if k >= self.count and hosts[k]:
                self.driver.copy(hosts[k], places[k], self.sizes[k], COMPUTE)
        found = [k for k in self.outward if hosts[k]]
        if found:
            self.driver.copy(self.outbox_at, self.last, self.outbox.nbytes, COMPUTE)
        self.driver.synchronize(COMPUTE)
        row, code = self.failure
        for k in found if not code else ():
            memmove(hosts[k], self.outbox_at - self.last + self.places[k], self.sizes[k])
        return row, code

    def look(self, address: int) -> tuple[int, int, int]:
        """Wait for the device: row and status as of `download`, and the byte at an address."""
        if address:
            self.driver.copy(address_of(self.verdict), address, 1, COMPUTE)
        self.driver.synchronize(COMPUTE)
        return *self.failure, int(self.verdict[0]) if address else 0

    @property
    def failure(self) -> tuple[int, int]:
        """The row that failed first and its status, which is 0 if none did."""
        return status_of(int(self.word[0]))

    def forget_failure(self) -> None:
        """The next run finds no failure; everything is at rest."""
        self.word[0] = 0


def rounded(nbytes: int) -> int:
    """A size after which the next value is aligned."""
    return -(-nbytes // _GRANULE) * _GRANULE
