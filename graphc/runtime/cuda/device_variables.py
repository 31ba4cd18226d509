"""Variables on a device: each has a mirror there, and its cell knows where the newest value is.

    the host writes      version + 1, the mirror is out of date     uploaded before the next run
    a run writes         version + 1, the mirror's value is newest  fetched when the host reads

Programs of the CPU point straight at host memory, and run without telling anybody.  So a run on a
device takes the addresses of its variables from them; they ask again, which fetches what they read
and counts what they write as written.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from graphc.forks import fork_safe_lock
from graphc.runtime.call.memory import address_of
from graphc.runtime.call.variable import Cell, Container, container
from graphc.runtime.cuda.interface import COMPUTE
from graphc.runtime.cuda.memory import Memory
from graphc.runtime.load.program import StateSlot


class Mirror:
    """The memory of a variable on one device."""

    def __init__(self, cell: Cell, memory: Memory) -> None:
        self.driver = memory.driver
        self.nbytes = cell.kind().nbytes
        self.version = -1
        self.address = memory.allocate(self.nbytes)
        self._lock = fork_safe_lock()
        weakref.finalize(self, self.driver.free, self.address).atexit = False

    def refresh(self, cell: Cell) -> None:
        """Have the newest value there before what is launched next."""
        with self._lock:
            if self.version != cell.version:
                memory = cell.host()
                self.driver.enter()  # the value may have come from another device
                self.driver.copy(self.address, address_of(memory), self.nbytes, COMPUTE)
                self.version = cell.version

    def wrote(self, cell: Cell) -> None:
        """A run has written it."""
        cell.version += 1
        self.version = cell.version
        cell.newest = self

    def fetch(self, memory: np.ndarray[Any, Any]) -> None:
        """Copy the value to the host."""
        self.driver.enter()
        self.driver.copy(address_of(memory), self.address, self.nbytes, COMPUTE)
        self.driver.synchronize(COMPUTE)


class Mirrors:
    """The variables of a share of a program: their cells and mirrors, until a container is reset.

    Whoever calls holds the locks that a run holds.
    """

    def __init__(self, slots: tuple[StateSlot, ...], memory: Memory) -> None:
        self.slots = slots
        self.memory = memory
        self.bound: list[tuple[Cell, Mirror, StateSlot]] | None = None

    def begin(self) -> tuple[int, ...]:
        """Have every variable up to date on the device; where they lie there."""
        if not self.slots:
            return ()
        if self.bound is None:
            self.bound = [self._bind(slot) for slot in self.slots]
        for home in self._homes():
            home.take_over({cell for cell, _, _ in self.bound})
        for cell, mirror, slot in self.bound:
            if slot.read:
                mirror.refresh(cell)
        return tuple(mirror.address for _, mirror, _ in self.bound)

    def wrote(self) -> None:
        """A run has written what it writes."""
        for cell, mirror, slot in self.bound or ():
            if slot.written:
                mirror.wrote(cell)

    def failed(self) -> None:
        """A run may have written some of what it writes."""
        for cell, mirror, slot in self.bound or ():
            if slot.written and (slot.read or cell.newest is mirror):
                mirror.wrote(cell)
            elif slot.written:
                mirror.version = -1

    def unbind(self) -> None:
        """The cells are gone."""
        self.bound = None

    def yield_to(self, cells: set[Cell]) -> None:
        """A device asks for the newest values before each run anyway."""

    def _homes(self) -> set[Container]:
        return {container(slot.container) for slot in self.slots}

    def _bind(self, slot: StateSlot) -> tuple[Cell, Mirror, StateSlot]:
        home = container(slot.container)
        home.followers.add(self)
        cell = home.find(slot.slot.name)
        mirror = cell.mirrors.get(self.memory.driver)
        if mirror is None:
            mirror = cell.mirrors[self.memory.driver] = Mirror(cell, self.memory)
        return cell, mirror, slot
