"""Windows that slide over the axes of an array: paddings, what a last one lacks, their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.ops.record.value import emit
from graphc.ops.record.value import functions as f
from graphc.ops.tuning import tuned

Ints = tuple[int, ...]
Pairs = list[tuple[int, int]]


def windows_of(
    extents: Sequence[int],
    window: Sequence[int],
    strides: Any,
    dilations: Any,
    pads: Any,
    auto_pad: str,
) -> tuple[tuple[int, ...], tuple[int, ...], Pairs]:
    """Strides, dilations and (low, high) paddings of windows that slide over axes."""
    rank = len(window)
    step = tuple(strides) if strides else (1,) * rank
    spread = tuple(dilations) if dilations else (1,) * rank
    refuse(len(step) == len(spread) == rank == len(extents), "lists of different lengths")
    refuse(min((*step, *spread, *window), default=1) > 0, "windows and steps are positive")
    refuse(math.prod(window) <= 1 << 16, f"a window of {list(window)}")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        reach = [(k - 1) * d + 1 for k, d in zip(window, spread)]
        pairs = []
        for n, r, s in zip(extents, reach, step):
            total = max((-(-n // s) - 1) * s + r - n, 0)
            small, large = total // 2, total - total // 2
            pairs.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
        return step, spread, pairs
    refuse(auto_pad in ("NOTSET", "VALID", ""), f"no padding {auto_pad!r}")
    given = tuple(pads) if pads and auto_pad != "VALID" else (0,) * (2 * rank)
    refuse(len(given) == 2 * rank, f"{len(given)} paddings of {rank} axes")
    return step, spread, list(zip(given[:rank], given[rank:]))


def windowed(
    x: Any, window: Sequence[int], strides: Any, dilations: Any, pads: Any, auto_pad: str, ceil: int
) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]], list[int]]:
    """Steps, dilations, paddings, and how much more is needed at the end of each axis so that
    the last window, which may begin inside alone, fits."""
    step, spread, pairs = windows_of(x.shape[2:], window, strides, dilations, pads, auto_pad)
    more = []
    for n, k, s, d, (low, high) in zip(x.shape[2:], window, step, spread, pairs):
        room = n + low + high - (k - 1) * d - 1
        refuse(room >= 0, f"a window of {k} does not fit an axis of {n}")
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + low:
            count -= 1
        more.append(max((count - 1) * s - room, 0))
    return step, spread, pairs, more


def lowest(kind: np.dtype[Any]) -> Any:
    return -np.inf if kind.kind not in "iu" else np.iinfo(kind).min


def largest_of_windows(
    x: Any, window: Ints, step: Ints, spread: Ints, around: Pairs
) -> tuple[Any, list[Any]]:
    """The largest elements of windows over the axes of x behind the second, and where along each of
    these they were found: the first of equal ones, of NaN the first."""
    axes = range(2, x.ndim)
    wide = f.pad(x, [(0, 0), (0, 0), *around], constant_values=lowest(np.dtype(x.dtype)))
    found: list[Any] = []
    if math.prod(window) <= tuned.pool_unrolled:
        sizes = {"kind": "max", "window": window, "stride": step, "dilation": spread}
        places = f.astype(emit("pool_choice", wide, **sizes), np.int64)
        wide, found = emit("pool", wide, **sizes), _unravelled(places, wide.shape[2:])
    else:
        for axis, size, s, d in reversed(list(zip(axes, window, step, spread))):
            wide, place, choice = _largest_along(wide, axis, size, s, d)
            found = [place, *(choice(v) for v in found)]
    return wide, [_inside(v, low, gap) for v, (low, _), gap in zip(found, around, spread)]


def _unravelled(places: Any, extents: Sequence[int]) -> list[Any]:
    """Places counted row by row, as one along each axis."""
    found: list[Any] = []
    for extent in reversed(extents):
        found.insert(0, f.remainder(places, extent))
        places = f.floor_divide(places, extent)
    return found


def _largest_along(x: Any, axis: int, size: int, step: int, gap: int) -> tuple[Any, Any, Any]:
    """The largest along an axis, where on it, and what chooses the same from other arrays."""
    count = (x.shape[axis] - (size - 1) * gap - 1) // step + 1
    at = np.arange(count)[:, None] * step + np.arange(size) * gap
    parts = f.take(x, at, axis=axis)
    best = f.argmax(parts, axis=axis + 1, keepdims=True)

    def chosen(parts: Any) -> Any:
        return f.squeeze(f.take_along_axis(parts, best, axis + 1), axis + 1)

    column = at.reshape(count, size, *[1] * (x.ndim - axis - 1))
    place = chosen(f.broadcast_to(column, parts.shape))
    return chosen(parts), place, lambda v: chosen(f.take(v, at, axis=axis))


def _inside(place: Any, low: int, gap: int) -> Any:
    """A place without the padding, which is chosen only where nothing is larger: then the first
    element of the window that is none counts."""
    if not low:
        return place
    place = f.subtract(place, low)
    return f.where(f.less(place, 0), f.remainder(place, gap), place)


def cut_windows(x: Any, window: Any, step: Any, spread: Any) -> Any:
    """x[N, C, *places, elements of the window]."""
    parts = []
    for offset in np.ndindex(*window):
        cut = [slice(None), slice(None)]
        for n, k, s, d, o in zip(x.shape[2:], window, step, spread, offset):
            count = (n - (k - 1) * d - 1) // s + 1
            cut.append(slice(o * d, o * d + (count - 1) * s + 1, s))
        parts.append(x[tuple(cut)] if isinstance(x, np.ndarray) else f.getitem(x, tuple(cut)))
    return np.stack(parts, -1) if isinstance(x, np.ndarray) else f.stack(parts, -1)


def add_windows(
    x: Any,
    extents: Sequence[int],
    window: Sequence[int],
    step: Sequence[int],
    spread: Sequence[int],
    pairs: Pairs,
) -> Any:
    """Columns x[N, C * elements, places] added up where they were cut out: [N, C, *extents]."""
    refuse(1 <= len(window) <= 3, "takes one to three axes")
    count = math.prod(window)
    refuse(count <= 1 << 10, f"a window of {list(window)}")
    channels = x.shape[1] // count
    places = [
        (n + sum(pair) - (k - 1) * d - 1) // s + 1
        for n, pair, k, d, s in zip(extents, pairs, window, spread, step)
    ]
    parts = f.reshape(x, (x.shape[0] * channels, count, *places))
    eye = np.eye(count, dtype=x.dtype).reshape(count, 1, *window)
    rest = [
        n + sum(pair) - ((p - 1) * s + (k - 1) * d + 1)
        for n, pair, p, s, k, d in zip(extents, pairs, places, step, window, spread)
    ]
    made = f.conv_transpose(parts, eye, step, 0, rest, spread)
    cut = tuple(slice(low, low + n) for (low, _), n in zip(pairs, extents))
    made = f.getitem(made, (slice(None), slice(None), *cut))
    return f.reshape(made, (x.shape[0], channels, *extents))
