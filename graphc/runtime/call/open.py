"""`OpenExecutable`: a program for arrays of many sizes, one executable for each size it meets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphc.errors import FeedError
from graphc.forks import fork_safe_lock
from graphc.runtime.call.array import Array
from graphc.runtime.call.execute import Executable, Value
from graphc.runtime.load.formulas import filled
from graphc.runtime.load.program import Image, Slot
from graphc.runtime.tuning import tuned

Shapes = tuple[tuple[int, ...], ...]


def is_crowded(images: Iterable[Image]) -> bool:
    """Whether programs for different sizes, the last of which is in use, are more than are kept."""
    count = nbytes = 0
    for image in images:
        count += 1
        nbytes += sum(each.arena_bytes for each in image.images)
    return count > 1 and (count > tuned.kept_sizes or nbytes > tuned.kept_arenas)


class OpenExecutable:
    """A program whose sizes are filled in when arrays come.

    The code is linked once.  What belongs to one size (the step table, memory) is kept for the
    latest ones: a call of a size that is known allocates nothing but its results.
    """

    def __init__(self, image: Image, make: Callable[[Image], Executable]) -> None:
        self.image = image
        self._make = make
        self._bound: OrderedDict[Shapes, Executable] = OrderedDict()
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
        return sum(each.stack_bytes for each in list(self._bound.values()))

    def bound(self, shapes: Shapes) -> Executable | None:
        """The executable for parameters of these shapes; None if the program is not for them."""
        with self._lock:
            found = self._bound.get(shapes)
            if found is not None:
                self._bound.move_to_end(shapes)
                return found
        formulas = self.image.formulas
        assert formulas is not None
        values = formulas.fits(shapes)
        if values is None:
            return None
        made = self._make(filled(self.image, values))
        with self._lock:
            self._first = self._first or made
            found = self._bound.setdefault(shapes, made)
            while is_crowded(each.image for each in self._bound.values()):
                self._bound.popitem(last=False)
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
            raise formulas.explain(self.params, shapes)
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
        for each in list(self._bound.values()):
            each.cancel()
