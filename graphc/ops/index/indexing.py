"""x[index]: what an index expression means, and the nodes it becomes.

    x[1, ..., ::2, None, rows]   ->   slice        ints and slices, one node
                                      reshape      int axes dropped, new axes inserted
                                      gather       integer arrays, broadcast against one another

The result has NumPy's layout: the axes of the arrays stand where the arrays stood if those were
next to one another, in front otherwise; an int beside arrays counts as one of them.
"""

from __future__ import annotations

import operator
from dataclasses import field
from itertools import count
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import TraceError
from graphc.ir.sizes import Size, either, greatest, is_open, least
from graphc.ir.types import BOOL, Dim, Dimension
from graphc.ops.index.gather import emit_gather
from graphc.ops.index.traced_slices import HINT, MASK_HINT, first_traced, is_traced, taken
from graphc.ops.record.arguments import ArrayLike, Tensor
from graphc.ops.record.dims import shape_of
from graphc.ops.record.families import broadcast_dims
from graphc.ops.record.value import PUBLIC, Value, counting, is_python_number, public
from graphc.ops.shape.shape import reshape
from graphc.ops.shape.slicing import emit_slice, slice_extent


@record
class Selection:
    """A parsed index: one slice per axis of x, then what happens to the axes that remain.

    starts stops steps   the slice
    layout               for each sliced axis "keep" or "drop" (an int); "new" for a new axis
    arrays               (axis after dropping and inserting, index array)
    position             where the arrays' axes go among the axes without them
    """

    starts: list[Dimension] = field(default_factory=list)
    stops: list[Dimension] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    layout: list[str] = field(default_factory=list)
    arrays: list[tuple[int, Any]] = field(default_factory=list)
    position: int = 0

    def cut(self, start: Dimension, stop: Dimension, step: int, layout: str) -> None:
        self.starts.append(start)
        self.stops.append(stop)
        self.steps.append(step)
        self.layout.append(layout)

    @property
    def extents(self) -> list[Dimension]:
        """The shape after slicing, dropping and inserting, before the arrays are applied."""
        sliced = map(slice_extent, self.starts, self.stops, self.steps)
        made: list[Dimension] = []
        for kind in self.layout:
            extent = 1 if kind == "new" else next(sliced)
            if kind != "drop":
                made.append(extent)
        return made

    @property
    def rank(self) -> int:
        """The rank of the result."""
        plain = sum(kind != "drop" for kind in self.layout) - len(self.arrays)
        return plain + max((len(shape_of(a)) for _, a in self.arrays), default=0)

    @property
    def places(self) -> dict[int, Any]:
        """The arrays by the axis of x that they index."""
        axes, made = count(), []
        for kind in self.layout:
            axis = -1 if kind == "new" else next(axes)
            if kind != "drop":
                made.append(axis)
        return {made[axis]: array for axis, array in self.arrays}

    @property
    def shape(self) -> tuple[Dimension, ...]:
        """The shape of the result if all arrays are of rank 0."""
        used = {axis for axis, _ in self.arrays}
        return tuple(extent for axis, extent in enumerate(self.extents) if axis not in used)

    def whole_tail(self, dims: tuple[Dimension, ...]) -> int:
        """How many trailing axes of x the index leaves as they are."""
        used = {axis for axis, _ in self.arrays}
        last = sum(kind != "drop" for kind in self.layout) - 1
        count = 0
        for axis in reversed(range(len(dims))):
            whole = (self.starts[axis], self.stops[axis], self.steps[axis]) == (0, dims[axis], 1)
            if not whole or self.layout[-1 - count] != "keep" or last - count in used:
                break
            count += 1
        return count

    def leading(self, count: int) -> Selection:
        """The same selection on an array that has the first `count` axes only."""
        cut = len(self.starts) - count
        return Selection(
            self.starts[:count],
            self.stops[:count],
            self.steps[:count],
            self.layout[: len(self.layout) - cut],
            self.arrays,
            self.position,
        )


# ------------------------------------------------------------------------------------ parsing


def expand_index(index: Any, rank: int) -> list[Any]:
    """The parts of an index: one per axis of x, None for a new axis, perhaps an ellipsis in front
    of the slices it stands for; masks become integer arrays.

    Raises TraceError for too many indices, two ellipses, and what is no index at all.
    """
    parts: list[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        parts.extend(_mask_parts(part) if _is_mask(part) else [part])
    used = sum(p is not None and p is not Ellipsis for p in parts)
    dots = [k for k, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise TraceError("an index can hold one ellipsis only")
    if used > rank:
        raise TraceError(f"too many indices: {used} for an array of rank {rank}")
    at = dots[0] if dots else len(parts)
    # The ellipsis stays as a mark: it separates arrays even where it stands for no axis.
    return parts[: at + len(dots)] + [slice(None)] * (rank - used) + parts[at + len(dots) :]


def _is_mask(part: Any) -> bool:
    if isinstance(part, Value):
        return part.element is BOOL
    if part is None or part is Ellipsis or isinstance(part, slice | int | np.integer | Size):
        return isinstance(part, bool)
    return np.asarray(part).dtype == np.bool_


def _mask_parts(mask: Tensor) -> list[Any]:
    if isinstance(mask, Value):
        return _counted_parts(mask)
    array = np.asarray(mask)
    if array.ndim == 0:
        raise TraceError("True and False are not indices of a traced array", hint=MASK_HINT)
    return [_Mask(positions, extent) for positions, extent in zip(np.nonzero(array), array.shape)]


def _counted_parts(mask: Value) -> list[Any]:
    """The positions that a traced mask selects, as many as the run counts."""
    if not mask.ndim:
        raise TraceError("a single traced bool cannot index an array", hint=MASK_HINT)
    counting("a traced boolean mask selects as many elements as the run finds", MASK_HINT)
    return [_Mask(p, extent) for p, extent in zip(PUBLIC["nonzero"](mask), mask.shape)]


@record(frozen=True)
class _Mask:
    """The positions a mask selects on one axis, and the extent that axis must have."""

    positions: Any
    extent: Dimension


def _as_int(part: Any) -> int | None:
    """The value of an int index known while tracing, or the size that it is."""
    if isinstance(part, Value | slice | _Mask) or part is None or part is Ellipsis:
        return None
    if isinstance(part, Size):
        return part
    try:
        return operator.index(part)
    except TypeError:
        return None


def _as_array(part: Any) -> Any:
    """An integer index array. Raises TraceError for anything else."""
    if isinstance(part, Value):
        if not part.element.is_integer:
            raise TraceError(f"an index must have an integer type, got {part.type}")
        return part
    if isinstance(part, list | tuple) and any(isinstance(p, Value) for p in part):
        raise TraceError("a list of traced values is not an index", hint="use np.stack(list)")
    array = np.asarray(part)
    if array.dtype.kind not in "iu" and array.size:
        shown = repr(part) if is_python_number(part) or isinstance(part, str) else array.dtype
        raise TraceError(f"{shown} is not an index", hint="use ints, slices, ... or integer arrays")
    return array.astype(np.int64) if array.size == 0 else array


def _int_start(position: int, extent: Dimension, axis: int) -> Dimension:
    if isinstance(extent, Dim):
        return position if position >= 0 else extent + position
    if not -extent <= position < extent:
        raise TraceError(f"index {position} is out of range for axis {axis} of extent {extent}")
    return position + extent if position < 0 else position


def slice_bounds(part: slice, extent: Dimension) -> tuple[Dimension, Dimension, int]:
    """Bounds of a Python slice as the slice op takes them (not wrapped; empty ones as 0:0)."""
    if isinstance(part.step, Value):
        raise TraceError("the step of a slice is traced", hint="a step is a number")
    if is_traced(part):  # not of its own, or in a place where none can be
        raise TraceError("a slice bound is traced", hint=HINT)
    step = 1 if part.step is None else operator.index(part.step)
    if step == 0:
        raise TraceError("the step of a slice cannot be 0")
    if isinstance(extent, Dim) or isinstance(part.start, Dim) or isinstance(part.stop, Dim):
        return _symbolic_bounds(part, extent, step)
    if is_open((extent, part.start, part.stop)):
        return _open_bounds(part, extent, step)
    start, stop, step = part.indices(extent)
    if slice_extent(start, stop, step) == 0:
        return 0, 0, step
    return start, stop, step


def _symbolic_bounds(part: slice, extent: Dimension, step: int) -> tuple[Dimension, Dimension, int]:
    def bound(value: Any, default: Dimension) -> Dimension:
        if value is None:
            return default
        value = value if isinstance(value, Dim) else operator.index(value)
        return extent + value if isinstance(value, int) and value < 0 else value

    first: Dimension = 0 if step > 0 else extent - 1
    last: Dimension = extent if step > 0 else -1
    return bound(part.start, first), bound(part.stop, last), step


def _open_bounds(part: slice, extent: int, step: int) -> tuple[Dimension, Dimension, int]:
    """The same for an open extent: whether a bound lies outside of it is a matter of guards; where
    the sizes may be any, it is clamped by a formula."""
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    given = (extent, part.start, part.stop)
    for_any = any(isinstance(value, Size) and value.for_any for value in given)

    def bound(value: Any, default: int) -> int:
        if value is None:
            return default
        value = value if isinstance(value, Size) else operator.index(value)
        if for_any:
            clamped: int = greatest(low, least(either(-value, value + extent, value), high))
            return clamped
        value = value + extent if value < 0 else value
        return low if value < low else high if value > high else value

    first, last = (low, high) if step > 0 else (high, low)
    first, last = bound(part.start, first), bound(part.stop, last)
    if for_any:  # nothing, where they cross
        last = greatest(first, last) if step > 0 else least(first, last)
    return first, last, step


def parse_index(index: Any, dims: tuple[Dimension, ...]) -> Selection:
    """What x[index] does to an array of this shape. Raises TraceError, naming the axis."""
    made = Selection()
    parts = expand_index(index, len(dims))
    advanced = [k for k, p in enumerate(parts) if _is_advanced(p)]
    # Beside arrays an int is an array index too: it takes part in the rule on where their axes go.
    ints = [k for k, p in enumerate(parts) if _as_int(p) is not None] if advanced else []
    spots = sorted(advanced + ints)
    axis = 0
    for k, part in enumerate(parts):
        if spots and k == spots[0] and spots == list(range(spots[0], spots[0] + len(spots))):
            made.position = sum(kind != "drop" for kind in made.layout)
        if part is None:
            made.layout.append("new")
        elif part is not Ellipsis:
            _add_part(made, part, dims[axis], axis)
            axis += 1
    return made


def _is_advanced(part: Any) -> bool:
    plain = part is None or part is Ellipsis or isinstance(part, slice)
    return not plain and _as_int(part) is None


def _add_part(made: Selection, part: Any, extent: Dimension, axis: int) -> None:
    if isinstance(part, slice):
        made.cut(*slice_bounds(part, extent), "keep")
        return
    position = _as_int(part)
    if position is not None:
        start = _int_start(position, extent, axis)
        made.cut(start, start + 1, 1, "drop")
        return
    if isinstance(part, _Mask):
        if part.extent != extent and isinstance(extent, int):
            raise TraceError(
                f"a mask of extent {part.extent} indexes axis {axis} of extent {extent}"
            )
        part = part.positions
    array = _as_array(part)
    made.arrays.append((sum(kind != "drop" for kind in made.layout), array))
    made.cut(0, extent, 1, "keep")


# ------------------------------------------------------------------------------------ reading


@public(method=True, name="getitem")
def getitem(x: ArrayLike, index: Any, mode: str = "raise") -> Any:
    """x[index] with NumPy's meaning; out-of-range ints and constant arrays raise at once."""
    while any(map(is_traced, index if isinstance(index, tuple) else (index,))):
        parts = expand_index(index, len(shape_of(x)))
        place, axis = first_traced(parts)
        x, _ = taken(x, parts[place], axis)
        index = (*parts[:place], slice(None), *parts[place + 1 :])
    return select(x, parse_index(index, shape_of(x)), mode)


def select(x: ArrayLike, chosen: Selection, mode: str) -> Any:
    """The elements that a parsed index selects."""
    made = emit_slice(x, chosen.starts, chosen.stops, chosen.steps)
    made = reshape(made, tuple(chosen.extents))
    if not chosen.arrays:
        return made
    axes = [axis for axis, _ in chosen.arrays]
    arrays = [array for _, array in chosen.arrays]
    broadcast_dims([shape_of(a) for a in arrays])
    return emit_gather(made, arrays, axes, chosen.position, mode)
