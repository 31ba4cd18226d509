"""Device memory of arrays that are results: what is freed is kept for the next one of its size.

A step that hands its results to the next one so gets the same few addresses again and again, for
which there are plans.
"""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import LimitError
from graphc.forks import fork_safe_lock
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.interface import COMPUTE, Driver
from graphc.runtime.tuning import tuned

GRANULE = 512


class Pool:
    """The free blocks of one device, by size."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.free: defaultdict[int, list[int]] = defaultdict(list)
        self.kept = 0
        self._lock = fork_safe_lock()  # a block may be given back in the middle of `take`

    def take(self, nbytes: int) -> DeviceBlock:
        """A block of at least so many bytes; for what there is no memory, free blocks are given
        back. Raises MemoryError.
        """
        try:
            return self._take(nbytes)
        except MemoryError:
            self.release()
        return self._take(nbytes)

    def _take(self, nbytes: int) -> DeviceBlock:
        size = -(-nbytes // GRANULE) * GRANULE or GRANULE
        with self._lock:
            found = self.free[size]
            if found:
                self.kept -= size
                return DeviceBlock(self, found.pop(), size)
        return DeviceBlock(self, self.driver.allocate(size), size)

    def give(self, address: int, size: int) -> None:
        """Nobody uses a block any more."""
        with self._lock:
            if self.kept + size <= tuned.kept_blocks:
                self.free[size].append(address)
                self.kept += size
                return
        self.driver.free(address)

    def release(self) -> None:
        """Give the memory of all free blocks back to the device."""
        with self._lock:
            freed, self.free = self.free, defaultdict(list)
            self.kept = 0
        for addresses in freed.values():
            for address in addresses:
                self.driver.free(address)


class Lying:
    """Something in the memory of a device."""

    read_only = False

    def __init__(self, driver: Driver, address: int) -> None:
        self.driver = driver
        self.address = address

    def fetch(self, memory: np.ndarray[Any, Any]) -> None:
        self.driver.enter()
        self.driver.copy(address_of(memory), self.address, memory.nbytes, COMPUTE)
        self.driver.synchronize(COMPUTE)

    def copied(self, nbytes: int) -> DeviceBlock:
        made = block_on(self.driver, nbytes)
        if nbytes:
            self.driver.copy(made.address, self.address, nbytes, COMPUTE)
        return made


class DeviceBlock(Lying):
    """Memory of a device, given back with this object."""

    def __init__(self, pool: Pool, address: int, size: int) -> None:
        self.driver, self.address = pool.driver, address
        self._pool, self._size = pool, size

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self._pool.give(self.address, self._size)


_pools: weakref.WeakKeyDictionary[Driver, Pool] = weakref.WeakKeyDictionary()


def pool_of(driver: Driver) -> Pool:
    """The pool of a device."""
    found = _pools.get(driver)
    return found if found is not None else _pools.setdefault(driver, Pool(driver))


def block_on(driver: Driver, nbytes: int) -> DeviceBlock:
    """Memory of a device, which becomes that of this thread. Raises LimitError."""
    driver.enter()
    try:
        return pool_of(driver).take(nbytes)
    except MemoryError:
        raise LimitError(f"no memory on {driver.name} for {nbytes} bytes") from None


def uploaded(driver: Driver, value: np.ndarray[Any, Any]) -> DeviceBlock:
    """A contiguous array of the host as memory of a device. Raises LimitError."""
    made = block_on(driver, value.nbytes)
    if value.nbytes:
        driver.copy(made.address, address_of(value), value.nbytes, COMPUTE)
        driver.synchronize(COMPUTE)
    return made
