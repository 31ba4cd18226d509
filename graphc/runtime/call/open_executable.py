"""`OpenExecutable`: a program for arrays of many sizes, one executable for each size it meets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from graphc.errors import FeedError
from graphc.forks import fork_safe_lock
from graphc.runtime.call.array import Array
from graphc.runtime.call.execute import Executable, Value
from graphc.runtime.load.filled_image import filled
from graphc.runtime.load.program import Image, Slot
from graphc.runtime.tuning import tuned

Shapes = tuple[tuple[int, ...], ...]
Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class Latest(Generic[Key, Made]):
    """What was made for different sizes, the latest last: no more of it is kept, and of the memory
    it takes, than is allowed."""

    def __init__(self) -> None:
        self._made: OrderedDict[Key, tuple[Made, int]] = OrderedDict()
        self._nbytes = 0
        self._lock = fork_safe_lock()

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Made]:
        with self._lock:
            return iter([made for made, _ in self._made.values()])

    def get(self, key: Key) -> Made | None:
        """What is kept; it is the latest now."""
        with self._lock:
            found = self._made.get(key)
            if found is None:
                return None
            self._made.move_to_end(key)
            return found[0]

    def add(self, key: Key, made: Made, image: Image) -> list[Made]:
        """Keep one more, which runs such an image; returns what is kept no longer."""
        nbytes = sum(each.arena_bytes for each in image.images)
        with self._lock:
            _, before = self._made.pop(key, (None, 0))
            self._made[key] = made, nbytes
            self._nbytes += nbytes - before
            gone = []
            while len(self._made) > 1 and self._is_crowded():
                _, (oldest, size) = self._made.popitem(last=False)
                self._nbytes -= size
                gone.append(oldest)
            return gone

    def _is_crowded(self) -> bool:
        return len(self._made) > tuned.kept_sizes or self._nbytes > tuned.kept_arenas


class OpenExecutable:
    """A program whose sizes are filled in when arrays come.

    The code is linked once.  What belongs to one size (the step table, memory) is kept for the
    latest ones: a call of a size that is known allocates nothing but its results.
    """

    def __init__(self, image: Image, make: Callable[[Image], Executable]) -> None:
        self.image = image
        self._make = make
        self._bound: Latest[Shapes, Executable] = Latest()
        self._first: Executable | None = None  # what it has linked stays linked
        self._lock = fork_safe_lock()

    @property
    def params(self) -> tuple[Slot, ...]:
        """Its parameters, with the extents of the first compilation."""
        return self.image.params

    @property
    def results(self) -> tuple[Slot, ...]:
        return self.image.results

    @property
    def stack_bytes(self) -> int:
        return sum(each.stack_bytes for each in self._bound)

    def bound(self, shapes: Shapes) -> Executable | None:
        """The executable for parameters of these shapes; None if the program is not for them."""
        with self._lock:
            found = self._bound.get(shapes)
            if found is not None:
                return found
        formulas = self.image.formulas
        assert formulas is not None
        values = formulas.fits(shapes)
        if values is None:
            return None
        made = self._make(filled(self.image, values))
        with self._lock:
            self._first = self._first or made
            found = self._bound.get(shapes)
            if found is None:
                found = made
                self._bound.add(shapes, made, made.image)
        return found

    def of(self, arrays: Sequence[Value]) -> Executable:
        """The executable for these arrays. Raises FeedError for shapes that do not fit."""
        if len(arrays) != len(self.params):
            raise FeedError(f"{self.image.name} takes {len(self.params)} arrays, got {len(arrays)}")
        shapes = tuple(tuple(a.shape) for a in arrays)
        for slot, shape in zip(self.params, shapes, strict=True):
            if len(shape) != len(slot.shape):
                raise FeedError(f"{slot.name} has rank {len(shape)}, the program takes {slot}")
        found = self.bound(shapes)
        if found is None:
            formulas = self.image.formulas
            assert formulas is not None
            raise formulas.explain([slot.name for slot in self.params], shapes)
        return found

    def run(self, arrays: Sequence[Value], *, checked: bool = False) -> list[Any]:
        """As `Executable.run`."""
        return self.of(arrays).run(arrays, checked=checked)

    def run_resident(self, arrays: Sequence[Value]) -> list[Array]:
        """As `Executable.run_resident`."""
        return self.of(arrays).run_resident(arrays)

    def __call__(self, *arrays: Value) -> Any:
        """As a call of an `Executable`."""
        return self.of(arrays)(*arrays)

    def cancel(self) -> None:
        """Stop the runs that are in flight."""
        for each in self._bound:
            each.cancel()
