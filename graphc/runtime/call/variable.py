"""Variables: memory that outlives runs, in named containers.

A container's lock is held by whoever writes one of its variables.  Runs that only read are counted
instead, so that they go on side by side; both words are read and written under the GIL, by the
native entry too (see `graphc.codegen.runtime.emit_entry`).

    writer   takes the lock, closes the container, waits until the readers inside have left
    reader   enters while the container is open, else waits for the lock

The memory of a variable stays where it is until its container is reset: programs point to it.
Where a GPU has written a variable last, that memory is out of date until somebody reads it (see
`graphc.runtime.cuda.device_variables`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any, Protocol

import numpy as np

from graphc.errors import GraphError, RunError
from graphc.forks import fork_safe_lock
from graphc.runtime.call.memory import aligned_bytes
from graphc.runtime.call.weak_set import WeakSet
from graphc.runtime.load.layouts import ContainerWords
from graphc.runtime.load.program import Slot, dtype_name, numpy_dtype
from graphc.runtime.tuning import tuned

Location = tuple[str, int]

_containers: dict[str, Container] = {}
_lock = fork_safe_lock()


class Follower(Protocol):
    """Something that points to the memory of variables."""

    def unbind(self) -> None:
        """Forget the addresses."""

    def yield_to(self, cells: set[Cell]) -> None:
        """A run on a device uses these variables next: forget the host's addresses of them."""


class Copy(Protocol):
    """A variable in the memory of a device."""

    def fetch(self, memory: np.ndarray[Any, Any]) -> None:
        """Copy its value to host memory."""


class Shared(Protocol):
    """Memory that other processes have, too."""

    bytes: np.ndarray[Any, Any]
    address: int
    number: int
    size: int
    descriptor: int


class Cell:
    """The storage of one variable: its type, its memory and whether it has a value.

    `initial` gives the first value when it is needed; until then the type may be unknown.
    `place` says where its memory is part of a block that other processes have, too.
    `mirrors` are its copies on devices, `version` counts how often its value has changed, and
    `newest` is the copy that alone has the present value, if the host does not.
    """

    __slots__ = (
        "container",
        "initial",
        "location",
        "memory",
        "mirrors",
        "name",
        "newest",
        "place",
        "ready",
        "slot",
        "version",
        "was_reset",
    )

    def __init__(
        self,
        container: Container,
        name: str,
        slot: Slot | None,
        location: Location | None,
        initial: Callable[[], Any] | None = None,
    ) -> None:
        self.container = container
        self.name = name
        self.slot = slot
        self.location = location
        self.initial = initial
        self.memory: np.ndarray[Any, Any] | None = None
        self.place: tuple[Shared, int] | None = None
        self.ready = False
        self.was_reset = False
        self.version = 0
        self.mirrors: dict[Any, Any] = {}
        self.newest: Copy | None = None

    def __repr__(self) -> str:
        kind = self.slot or "of a type not known yet"
        return f"variable {self.name!r} {kind} in container {self.container.name!r}"

    def kind(self) -> Slot:
        """Its type; runs the initial function where that alone knows it."""
        if self.slot is None:
            self.settle()
        assert self.slot is not None
        return self.slot

    def settle(self) -> None:
        """Run the initial function, if it has not run yet."""
        initial = self.initial
        if initial is None or self.ready:
            return
        made = np.asarray(initial())
        with self.container.writing():
            if not self.ready and self.initial is initial:
                self.slot = self.slot or Slot(self.name, dtype_name(made.dtype), made.shape)
                self._store(made)

    def allocate(self) -> np.ndarray[Any, Any]:
        """Its memory as an array; made when it is needed first."""
        if self.memory is None:
            slot = self.kind()
            dtype = numpy_dtype(slot.dtype)
            self.memory = aligned_bytes(slot.nbytes).view(dtype).reshape(slot.shape)
        return self.memory

    def host(self) -> np.ndarray[Any, Any]:
        """Its memory, with its present value if it has one."""
        memory = self.allocate()
        newest = self.newest  # another reader may fetch it at the same time, and be done first
        if newest is not None:
            newest.fetch(memory)
            self.newest = None
        return memory

    def move(self, block: Shared, start: int) -> None:
        """Have its memory be part of a block; programs that point to it ask again."""
        slot = self.kind()
        with self.container.writing():
            held = block.bytes[start : start + slot.nbytes]
            moved = held.view(numpy_dtype(slot.dtype)).reshape(slot.shape)
            np.copyto(moved, self.host())
            self.memory, self.place = moved, (block, start)
            for follower in self.container.followers:
                follower.unbind()

    def changed(self) -> None:
        """What lies in its memory is newer than any copy."""
        self.version += 1
        self.newest = None

    def value(self) -> np.ndarray[Any, Any]:
        """A copy of its value. Raises RunError where it has none."""
        self.settle()
        with self.container.reading():
            self.require_value()
            return self.host().copy()

    def assign(self, value: np.ndarray[Any, Any]) -> None:
        """Store a value of its dtype that broadcasts to its shape."""
        self.kind()
        with self.container.writing():
            self._store(value)

    def update(self, change: Callable[[np.ndarray[Any, Any]], object]) -> None:
        """Let `change` write to its memory. Raises RunError where it has no value yet."""
        self.settle()
        with self.container.writing():
            self.require_value()
            change(self.host())
            self.changed()

    def require_value(self) -> None:
        """Raise RunError unless it has a value."""
        if self.ready:
            return
        if self.was_reset:
            problem = f"is read after container {self.container.name!r} was reset"
            hint = "assign to it, or make it again"
        else:
            problem, hint = "is read before it has a value", "assign to it first"
        raise RunError(
            f"variable {self.name!r} {problem}",
            details=(f"{self!r}",),
            location=self.location,
            hint=hint,
        )

    def has_value(self) -> None:
        """What lies in its memory is its value."""
        self.ready, self.was_reset = True, False

    def _store(self, value: np.ndarray[Any, Any]) -> None:
        if self.container.cells.get(self.name) is not self:
            raise RunError(
                f"variable {self.name!r} was made anew after container {self.container.name!r} was "
                "reset",
                details=(f"{self!r}",),
                location=self.location,
                hint="use the new one",
            )
        np.copyto(self.allocate(), value, casting="same_kind")
        self.changed()
        self.has_value()

    def _release(self) -> None:
        self.memory = self.initial = self.newest = self.place = None
        self.mirrors = {}
        self.ready, self.was_reset = False, True


class _Calls(threading.local):
    """The containers of the runs whose calls of Python this thread is in, each with whether the run
    writes there: they are the run's until it ends, which waits for the call."""

    homes: tuple[tuple[Container, bool], ...] = ()


_calls = _Calls()


@contextmanager
def called_by_a_run(homes: Iterable[tuple[Container, bool]]) -> Iterator[None]:
    """Inside, a run that holds these containers calls Python."""
    before = _calls.homes
    _calls.homes = (*before, *homes)
    try:
        yield
    finally:
        _calls.homes = before


class Container:
    """Variables by name, the lock of their writers and the programs that point to them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cells: dict[str, Cell] = {}
        self.lock = threading.Lock()
        self.acquire = self.lock.acquire  # as objects that the native entry can call
        self.release = self.lock.release
        self.words = np.zeros(2, np.int64)
        self.followers: WeakSet[Follower] = WeakSet()

    def __repr__(self) -> str:
        return f"<container {self.name!r}: {len(self.cells)} variables, {self.nbytes} bytes>"

    @property
    def nbytes(self) -> int:
        """The bytes that its variables take."""
        memories = [cell.memory for cell in list(self.cells.values())]
        return sum(memory.nbytes for memory in memories if memory is not None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Nobody writes meanwhile. Raises RunError inside a call of Python by a run that does."""
        uses = [writes for home, writes in _calls.homes if home is self]
        if any(uses):
            raise self._in_use("writes")
        with nullcontext() if uses else self.lock:
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else reads or writes meanwhile. Raises RunError inside a call of Python by a run
        that does."""
        for home, writes in _calls.homes:
            if home is self:
                raise self._in_use("writes" if writes else "reads")
        with self.lock:
            self.words[ContainerWords.closed] = 1
            try:
                while self.words[ContainerWords.readers]:
                    time.sleep(tuned.drain_seconds)
                yield
            finally:
                self.words[ContainerWords.closed] = 0

    def _in_use(self, does: str) -> RunError:
        return RunError(
            f"what a run calls cannot wait for container {self.name!r}: the run {does} it",
            hint="hand the value over as an operand, and assign the result in the model; or have "
            "the variable in another container",
        )

    def declare(
        self,
        name: str,
        slot: Slot | None,
        location: Location | None,
        initial: Callable[[], Any] | None = None,
    ) -> Cell:
        """A new variable. Raises GraphError for a name that is taken; a reset one is free."""
        with _lock:
            old = self.cells.get(name)
            if old is not None and not old.was_reset:
                raise GraphError(
                    f"container {self.name!r} has a variable {name!r} already",
                    details=(f"{old!r}",),
                    location=old.location,
                    hint="give it another name or container, or gc.reset_container(...)",
                )
            made = Cell(self, name, slot, location, initial)
            self.cells[name] = made
        return made

    def find(self, name: str) -> Cell:
        """The variable of this name. Raises RunError."""
        found = self.cells.get(name)
        if found is None:
            raise RunError(
                f"there is no variable {name!r} in container {self.name!r}",
                hint=f"make it with gc.Variable(..., name={name!r})",
            )
        return found

    def take_over(self, cells: set[Cell]) -> None:
        """Have programs of the CPU ask again for the addresses of these variables."""
        for follower in self.followers:
            follower.yield_to(cells)

    def reset(self) -> None:
        """Free the memory of every variable; their values are lost and their names free."""
        with self.writing():
            for cell in list(self.cells.values()):
                cell._release()
            for follower in self.followers:
                follower.unbind()


def container(name: str) -> Container:
    """The container of this name, made when it is first asked for."""
    with _lock:
        return _containers.setdefault(name, Container(name))


def own_container(title: str) -> str:
    """The name of a new container for variables that a file calls `title`."""
    with _lock:
        name = next(n for k in count(1) if (n := f"{title}@{k}") not in _containers)
        _containers[name] = Container(name)
    return name


def names_of_own(used: Iterable[str], share: bool | str | Iterable[str]) -> dict[str, str]:
    """The containers that a file uses, each with the one that it means: one of its own, or if it
    is shared (True: all are) that of the program. Raises GraphError for one that it does not use.
    """
    used = list(dict.fromkeys(used))
    shared = used if share is True else [share] if isinstance(share, str) else list(share or ())
    for name in shared:
        if name not in used:
            raise GraphError(
                f"share names container {name!r}, and the file has no variable in it",
                hint=f"its containers are {', '.join(used)}" if used else "it has no variables",
            )
    return {name: name if name in shared else own_container(name) for name in used}


def containers() -> list[Container]:
    """Every container that there is."""
    with _lock:
        return list(_containers.values())


def _after_fork() -> None:
    """In a forked child the threads that held locks do not exist."""
    for each in _containers.values():
        if each.lock.locked():
            each.lock.release()
        each.words[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
