"""Running products and linear recurrences along an axis, as whole-array steps.

An array is combined with itself 1, 2, 4, ... places further on (Hillis and Steele, "Data parallel
algorithms", 1986), so n elements take log2(n) steps:

    x0  x1  x2  x3        x0  01  12  23        x0  01  012  0123
      \\  \\  \\                \\___\\___            (what step 2 adds comes from 2 places before)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphc.ops.padding import emit_pad
from graphc.ops.slicing import slice_axis
from graphc.ops.value import emit, functions


def shifted(x: Any, axis: int, by: int, fill: float) -> Any:
    """x moved `by` places along an axis (towards its start if negative); `fill` enters."""
    extent = x.type.dims[axis]
    count = min(abs(by), extent)
    pairs = [(0, 0)] * len(x.shape)
    pairs[axis] = (count, 0) if by > 0 else (0, count)
    kept = (0, extent - count) if by > 0 else (count, extent)
    return emit_pad(slice_axis(x, axis, *kept), fill, pairs)


def _distances(extent: int, reverse: bool) -> Iterator[int]:
    distance = 1
    while distance < extent:
        yield -distance if reverse else distance
        distance *= 2


def running_product(x: Any, axis: int, reverse: bool) -> Any:
    """The product of all elements so far, from the end if `reverse`: f32, f64 or complex."""
    if not x.element.is_complex:
        return emit("cumprod", x, axis=axis, reverse=reverse)
    for distance in _distances(x.type.dims[axis], reverse):
        x = functions.multiply(x, shifted(x, axis, distance, 1))
    return x


def linear_recurrence(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    """s with s[k] = a[k] * s[k-1] + b[k] and s[-1] = 0; from the end if `reverse`."""
    f = functions
    for distance in _distances(b.type.dims[axis], reverse):
        b = f.add(b, f.multiply(a, shifted(b, axis, distance, 0)))
        a = f.multiply(a, shifted(a, axis, distance, 1))
    return b
