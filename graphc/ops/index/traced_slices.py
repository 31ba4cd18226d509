"""x[a:b] with traced bounds: as many elements as the run finds between them.

    x[n:]  ->  places  n, n + 1, ...     as many as the run counts
               take                      those along the axis

Bounds mean what they mean in Python: negative ones count from the end, those outside are the end.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from graphc.errors import TraceError
from graphc.ir.types import I64, Dim, Dimension
from graphc.ops.record.dims import mode_of_known, shape_of
from graphc.ops.record.value import Value, as_value, counting, functions

HINT = "use gc.dynamic_slice(x, starts, sizes) with a fixed size"
MASK_HINT = (
    "where shapes are fixed use np.where(mask, x, y), "
    "or x[gc.nonzero(mask, size=n)] with a fixed number of elements; sums, means and extremes "
    "of x[mask] need none"
)


def is_traced(part: Any) -> bool:
    """Whether it is a slice with a traced bound."""
    return isinstance(part, slice) and (
        isinstance(part.start, Value) or isinstance(part.stop, Value)
    )


def is_whole(part: Any) -> bool:
    """Whether it is `:`."""
    return isinstance(part, slice) and part.start is part.stop is part.step is None


def first_traced(parts: Sequence[Any]) -> tuple[int, int]:
    """Where the first such slice stands in an index that is written out, and its axis."""
    place = next(k for k, part in enumerate(parts) if is_traced(part))
    return place, sum(part is not None and part is not Ellipsis for part in parts[:place])


def taken(x: Any, part: slice, axis: int) -> tuple[Any, Any]:
    """x[part] along one axis, and the positions that it takes.

    Raises TraceError for bounds that are no integers, and in the body of a loop or a branch.
    """
    trace = counting(
        "a slice bound is traced, so the shape of the result would depend on data", HINT
    )
    step = 1 if part.step is None else operator.index(part.step)
    if step == 0:
        raise TraceError("the step of a slice cannot be 0")
    extent = shape_of(x)[axis]
    start, count = _extent(part, extent, step)
    most = None if isinstance(extent, Dim) else -(-extent // abs(step))
    size = trace.data_size("a slice with a traced bound", count, most)
    places = start + functions.arange(size) * step
    mode = mode_of_known(shape_of(x)[axis])
    return functions.take(x, places, axis=axis, mode=mode), places


def _extent(part: slice, extent: Dimension, step: int) -> tuple[Any, Any]:
    """Where it starts, and how many elements it has."""
    f = functions
    low, high = (0, extent) if step > 0 else (-1, extent - 1)

    def bound(value: Any, default: Any) -> Any:
        if value is None:
            return as_value(default)
        if isinstance(value, Value) and not (value.ndim == 0 and value.element.is_integer):
            raise TraceError(f"a slice bound is an integer, got {value.type}")
        value = f.astype(as_value(value), I64)
        value = f.where(value < 0, value + extent, value)
        return f.minimum(f.maximum(value, low), high)

    first, last = (low, high) if step > 0 else (high, low)
    start, stop = bound(part.start, first), bound(part.stop, last)
    spare = stop - start if step > 0 else start - stop
    return start, f.maximum((spare + (abs(step) - 1)) // abs(step), 0)
