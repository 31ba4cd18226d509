"""Results of bodies and branches whose sizes only a run tells: carries that shrink and grow.

    while len(active): active = active[...]       as many elements in each step as are left
    found = np.concatenate([found, row[row > 0]])

Outside of the body such a value is an array with room for the most that there can be, beside a
number that says how many of its elements there are.  The body is given the elements alone, and
fills the room up; so does the function around it, where it goes on with what the loop leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from graphc.base.record import record
from graphc.errors import TraceError
from graphc.frontend.trace.region import Region, RegionTrace, enclosing
from graphc.frontend.trace.trace import Parameter
from graphc.frontend.trace.tree import TreeDef
from graphc.ir.size_ceilings import Extent, Most, ceiling
from graphc.ir.sizes import Size, at_most, greatest, is_open
from graphc.ir.types import I64, Type, tensor
from graphc.ops.record.dims import mode_of_known
from graphc.ops.record.value import Value, functions, lift

Place = tuple[int, int]  # an axis of a leaf
Classes = tuple[tuple[int | None, ...], ...]  # per leaf and axis: the count that says its extent
Shapes = Sequence[tuple[Any, ...]]


class FoundSizes(Exception):
    """A region gives what is of sizes that it finds: it is traced again, with room for that.

    `axes` are those of its results whose extents nobody else knows.
    """

    def __init__(self, values: Sequence[Value], tree: TreeDef, trace: RegionTrace) -> None:
        super().__init__()
        self.types: list[Any] = [value.type for value in values]
        self.tree = tree
        self.location = next((node.loc for node in trace.counts.values()), None)
        self.most: Most = {name: trace.scope.most[name] for name in trace.counts}  # type: ignore[union-attr]
        self.axes: set[Place] = {
            (k, axis)
            for k, shape in enumerate(self.shapes)
            for axis, extent in enumerate(shape)
            if isinstance(extent, Size) and not extent.symbols().isdisjoint(trace.counts)
        }

    @property
    def shapes(self) -> list[tuple[Any, ...]]:
        return [kind.shape for kind in self.types]


def changed_axes(kinds: Sequence[Sequence[Any]]) -> set[Place]:
    """Where types of the same leaves have other extents, of which a run counts one."""
    return {
        (k, axis)
        for k, alternatives in enumerate(zip(*kinds))
        for axis, extents in enumerate(zip(*(kind.shape for kind in alternatives)))
        if any(extent is not extents[0] for extent in extents) and any(map(_is_counted, extents))
    }


def _is_counted(extent: Any) -> bool:
    return isinstance(extent, Size) and not extent.symbols().isdisjoint(extent.scope.most)


def require_known(values: list[Value], tree: TreeDef, trace: RegionTrace) -> list[Value]:
    """The results of a region. Raises FoundSizes if only it knows their sizes."""
    found = FoundSizes(values, tree, trace)
    if found.axes:
        raise found
    return values


def surveyed(trace: Callable[[], Region]) -> Region | FoundSizes:
    """The region that is traced, or what it finds sizes for."""
    try:
        return trace()
    except FoundSizes as found:
        return found


def classes_of(keys: Sequence[Sequence[Hashable | None]]) -> Classes:
    """Numbers for keys: extents of equal keys are equal in every step; None is a known one."""
    numbers: dict[Hashable, int] = {}
    return tuple(
        tuple(None if key is None else numbers.setdefault(key, len(numbers)) for key in axes)
        for axes in keys
    )


def key_of(extent: Any) -> Hashable:
    """What equal extents have in common."""
    return id(extent) if isinstance(extent, Size) else int(extent)


@record(frozen=True)
class Room:
    """Where leaves of counted sizes are kept: which count says the extent of which axis, and how
    much room there is for each."""

    classes: Classes
    most: tuple[Extent, ...]

    def first_of(self, shapes: Shapes) -> list[Any]:
        """The extent of each class in leaves of these shapes."""
        found: dict[int, Any] = {}
        for axes, shape in zip(self.classes, shapes, strict=True):
            for number, extent in zip(axes, shape, strict=True):
                if number is not None:
                    found.setdefault(number, extent)
        return [found[number] for number in range(len(self.most))]

    def parameters(self, given: Sequence[Parameter]) -> list[Parameter]:
        """Those of a region that is given leaves in their room."""
        made = [
            Parameter(p.name, tensor(p.type.dtype, self._shape(axes, p.type.shape)), p.weak)
            for p, axes in zip(given, self.classes, strict=True)
        ]
        return [*made, *(Parameter(f"count{k}", tensor(I64)) for k in range(len(self.most)))]

    def _shape(self, axes: Sequence[int | None], shape: Sequence[Any]) -> tuple[Any, ...]:
        pairs = zip(axes, shape, strict=True)
        return tuple(extent if k is None else self.most[k] for k, extent in pairs)

    def held(self, values: Sequence[Value]) -> list[Value]:
        """The values, filled up, then how many elements there are."""
        trace = enclosing()
        extents = self.first_of([value.shape for value in values])
        counts = [functions.astype(lift(extent, trace), I64) for extent in extents]
        made = [self._filled(v, axes) for v, axes in zip(values, self.classes, strict=True)]
        return [*made, *counts]

    def _filled(self, value: Value, axes: Sequence[int | None]) -> Value:
        for axis, number in enumerate(axes):
            if number is not None and value.shape[axis] is not self.most[number]:
                most, weak = self.most[number], value.weak
                shape = tuple(most if k == axis else n for k, n in enumerate(value.shape))
                zeros = functions.zeros(shape, value.element)
                both = functions.concatenate([value, zeros], axis)
                value = both[(*(slice(None),) * axis, slice(0, most))]
                value.weak = weak
        return value

    def shown(self, held: Sequence[Value]) -> list[Value]:
        """The elements alone of what is held."""
        trace, split = enclosing(), len(self.classes)
        sizes = [
            trace.data_size("a carry or a result", count, most) if is_open([most]) or most else 0
            for count, most in zip(held[split:], self.most, strict=True)
        ]
        made = []
        for value, axes in zip(held[:split], self.classes, strict=True):
            for axis, number in enumerate(axes):
                if number is not None:
                    places, mode = functions.arange(sizes[number]), mode_of_known(self.most[number])
                    value = functions.take(value, places, axis=axis, mode=mode)
            made.append(value)
        return made


def guessed(classes: Classes, kinds: Sequence[Type]) -> tuple[list[Value], list[Size]]:
    """Leaves of these classes for a trace that only finds out what becomes of their sizes, which
    are second."""
    trace: Any = enclosing()
    count = 1 + max((k for axes in classes for k in axes if k is not None), default=-1)
    numbers = [trace.parameter(f"guess{k}", tensor(I64))[1] for k in range(count)]
    sizes = [trace.data_size("a carry", number) for number in numbers]
    made = []
    for leaf, (kind, axes) in enumerate(zip(kinds, classes, strict=True)):
        pairs = zip(axes, kind.shape, strict=True)
        shape = tuple(extent if k is None else sizes[k] for k, extent in pairs)
        made.append(trace.parameter(f"carry{leaf}", tensor(kind.dtype, shape))[1])
    return made, sizes


def room_of_branches(name: str, branches: Sequence[Region | FoundSizes]) -> Room | None:
    """Room for the results of branches that are of different sizes, which a run finds; None where
    they are not.

    Raises TraceError for what nobody knows how large it can become.
    """
    found = [branch for branch in branches if isinstance(branch, FoundSizes)]
    most: Most = {name: extent for branch in found for name, extent in branch.most.items()}
    leaves = list(zip(*([kind.shape for kind in branch.types] for branch in branches), strict=True))
    axes = {place for branch in found for place in branch.axes}
    axes |= changed_axes([branch.types for branch in branches])
    if not axes:
        return None
    for k, shapes in enumerate(leaves):
        if len({len(shape) for shape in shapes}) > 1:
            listed = ", ".join(str(branch.types[k]) for branch in branches)
            raise TraceError(f"{name}: the branches return {listed} for result {k}")
    keys = [
        [
            tuple(map(key_of, extents)) if (k, axis) in axes else None
            for axis, extents in enumerate(zip(*shapes, strict=True))
        ]
        for k, shapes in enumerate(leaves)
    ]
    classes = classes_of(keys)
    rooms: dict[int, Extent] = {}
    for k, shapes in enumerate(leaves):
        for number, extents in zip(classes[k], zip(*shapes, strict=True), strict=True):
            if number is None or number in rooms:
                continue
            ends = [ceiling(extent, most) for extent in extents]
            known = [end for end in ends if end is not None]
            if len(known) < len(ends):
                raise TraceError(
                    f"{name}: nothing says how large result {k} can become",
                    location=found[0].location if found else None,
                    hint="cut it to what it is at most (y[:n]), or give it a size (size=)",
                )
            rooms[number] = greatest(*known)
    return Room(classes, tuple(rooms[k] for k in range(len(rooms))))


def most_of_carries(
    first: Sequence[Extent],
    after: Sequence[Extent],
    counts: Sequence[Size],
    known: Most,
    steps: Extent | None,
) -> list[Extent | None]:
    """How large carries can become: `first` before the first step, `after` behind one that begins
    with `counts`; None where nothing says it.

    What no step makes larger stays as it was, what is cut is at most that, and what each step adds
    to is as much larger as there are steps; the rest is as large as the others make it.
    """
    names = [repr(count) for count in counts]
    itself: Most = {**known, **dict(zip(names, counts, strict=True))}
    settled: dict[int, Extent] = {}
    for _ in counts:  # what is settled says how much others are added to
        for k in {*range(len(counts))} - settled.keys():
            within = {**known, **{name: settled.get(j) for j, name in enumerate(names)}}
            room = _settled(first[k], after[k], counts[k], itself, within, steps)
            if room is not None:
                settled[k] = room
    rooms = [settled.get(k, begin) for k, begin in enumerate(first)]
    return _grown(rooms, after, names, known, {*settled})


def _settled(
    first: Extent, after: Extent, count: Size, itself: Most, within: Most, steps: Extent | None
) -> Extent | None:
    """How large a carry can become, whatever becomes of those that have none in `within`."""
    grown = ceiling(after, itself)
    more = None if grown is None else grown - count
    if more is not None and at_most(more, 0):
        return first
    cut = ceiling(after, within)
    if cut is not None:
        return greatest(first, cut)  # type: ignore[no-any-return]
    added = None if more is None or steps is None else ceiling(more, within)
    return None if added is None else first + steps * greatest(added, 0)


def _grown(
    rooms: list[Extent],
    after: Sequence[Extent],
    names: Sequence[str],
    known: Most,
    settled: set[int],
) -> list[Extent | None]:
    """The rooms with each as large as a step that begins with them makes it, until none grows."""
    growing: list[int] = []
    for _ in range(len(rooms) + 1):
        within = {**known, **dict(zip(names, rooms, strict=True))}
        ends = [ceiling(end, within) for end in after]
        growing = [
            k
            for k, (end, room) in enumerate(zip(ends, rooms, strict=True))
            if k not in settled and (end is None or not at_most(end, room))
        ]
        if not growing or any(ends[k] is None for k in growing):
            break
        rooms = [greatest(r, ends[k]) if k in growing else r for k, r in enumerate(rooms)]
    return [None if k in growing else room for k, room in enumerate(rooms)]
