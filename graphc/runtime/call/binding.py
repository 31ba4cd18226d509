"""The variables of one executable: where they lie, and the locks that a run holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from graphc.errors import RunError
from graphc.runtime.call.memory import address_of
from graphc.runtime.call.variable import Cell, Container, container
from graphc.runtime.load.layouts import HomeWords
from graphc.runtime.load.program import StateSlot

Homes = Sequence[tuple[Container, bool]]  # containers, each with whether a run writes there


def homes_of(slots: Sequence[StateSlot]) -> Homes:
    """The containers of variables, in order of their names, so that runs never wait for one another
    in a circle."""
    written = {slot.container for slot in slots if slot.written}
    names = sorted({slot.container for slot in slots})
    return [(container(name), name in written) for name in names]


def held(homes: Homes) -> ExitStack:
    """Wait until nobody is in the way; closing what it returns lets others go on."""
    if not homes:
        return ExitStack()
    with ExitStack() as stack:
        for home, writes in homes:
            stack.enter_context(home.writing() if writes else home.reading())
        return stack.pop_all()


class Binding:
    """Binds variables by name when a run needs them first, and again after a reset.

    `addresses` are those of the variables, in order, or None while nothing is bound.  `pause`
    keeps the native entry from running until a run has bound them again.  `distant` says of each
    variable whether a GPU runs what uses it, which looks for it itself.
    """

    def __init__(self, slots: Sequence[StateSlot], distant: Sequence[bool]) -> None:
        self.slots = slots
        self.distant = distant
        self.addresses: list[int] | None = None
        self.pause: Callable[[], None] = lambda: None
        self.cells: list[Cell] = []
        self.homes = homes_of(slots)
        self.is_part = False  # of a longer run, which holds the containers

    def hold(self) -> ExitStack:
        """Wait until nobody is in the way of a run; closing what it returns ends the run."""
        for cell in self.found() if self.addresses is None else ():
            cell.settle()
        return held(() if self.is_part else self.homes)

    def bind(self) -> list[int]:
        """The addresses; the locks are held.  Raises RunError for a variable that does not fit or,
        if it is read, has no value.
        """
        self.cells = self.found()
        for cell, slot in zip(self.cells, self.slots, strict=True):
            given, wanted = cell.kind(), slot.slot
            if (given.dtype, given.shape) != (wanted.dtype, wanted.shape):
                raise RunError(
                    f"{cell!r} is used as {wanted}",
                    location=cell.location,
                    hint="compile again after a variable was made anew with another type",
                )
            if slot.read:
                cell.require_value()
        self.addresses = [
            0 if away else self._address(cell, slot)
            for cell, slot, away in zip(self.cells, self.slots, self.distant, strict=True)
        ]
        for home, _ in self.homes:
            home.followers.add(self)
        return self.addresses

    def _address(self, cell: Cell, slot: StateSlot) -> int:
        address = address_of(cell.host())
        if slot.written:
            cell.changed()
        return address

    def yield_to(self, cells: set[Cell]) -> None:
        """A device uses variables next: what the host's code did to them is over and told."""
        here = (cell for cell, away in zip(self.cells, self.distant, strict=False) if not away)
        if self.addresses is not None and not cells.isdisjoint(here):
            self.unbind()

    def unbind(self) -> None:
        """The variables have moved; nothing runs meanwhile."""
        self.addresses = None
        self.pause()

    def found(self) -> list[Cell]:
        """The variables. Raises RunError for one that there is not."""
        return [container(slot.container).find(slot.slot.name) for slot in self.slots]

    def wrote(self) -> None:
        """A run has succeeded: what it wrote has values."""
        for cell, slot in zip(self.cells, self.slots, strict=True):
            if slot.written:
                cell.has_value()

    def records(self) -> np.ndarray:
        """What the native entry reads: the words, `acquire` and `release` of each container.

        A container that is only read has no need of its lock.
        """
        made = np.zeros((len(self.homes), len(HomeWords.fields)), np.int64)
        for row, (home, writes) in zip(made, self.homes, strict=True):
            row[HomeWords.container] = address_of(home.words)
            if writes:
                row[HomeWords.acquire] = id(home.acquire)
                row[HomeWords.release] = id(home.release)
        return made
