"""Parts of images that data point to: boxes resampled, and windows whose elements are moved."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import number, refuse
from graphc.ops.record.value import functions as f

Ints = tuple[int, ...]


def samples_of_boxes(
    boxes: Any, size: tuple[int, int], scale: float, samples: int, aligned: bool
) -> tuple[int, Any]:
    """`samples` and `counts` of gc.roi_align; samples of 0 or less: as many per cell as the box
    has elements there, which a run tells."""
    if samples > 0:
        return samples, None
    shift = 0.5 if aligned else 0.0
    corners = f.subtract(f.multiply(boxes, scale), shift)
    span = f.subtract(f.getitem(corners, (..., slice(2, 4))), f.getitem(corners, (..., slice(2))))
    span = f.flip(span if aligned else f.maximum(span, 1), 1)
    each = f.ceil(f.divide(span, np.asarray(size, span.dtype)))
    counts = f.astype(f.maximum(each, 0), np.int64)
    # One more, so that there is a largest where no box is.
    most = int(number(f.max(f.concatenate([f.reshape(counts, (-1,)), np.ones(1, np.int64)]))))
    refuse(most <= 256, f"a box has {most} elements in a cell, at most 256 are supported")
    return most, counts


def largest_in_boxes(x: Any, boxes: Any, size: tuple[int, int], scale: float) -> Any:
    """The largest elements of x[N, C, H, W] in the cells of boxes[B, 5] (image, x1, y1, x2, y2):
    corners are rounded to elements, which belong to the box; a cell without elements gives 0."""
    image = f.astype(f.getitem(boxes, (slice(None), 0)), np.int64)
    scaled = f.multiply(f.getitem(boxes, (slice(None), slice(1, 5))), scale)
    corners = f.multiply(f.sign(scaled), f.floor(f.add(f.abs(scaled), 0.5)))
    left, top, right, bottom = (
        f.getitem(corners, (slice(None), slice(k, k + 1))) for k in range(4)
    )
    rows = _in_cells(top, bottom, size[0], x.shape[2])
    columns = _in_cells(left, right, size[1], x.shape[3])
    of_rows = f.expand_dims(f.take(x, image, axis=0), 3)
    wide = f.max(f.where(f.expand_dims(columns, (1, 2)), of_rows, -np.inf), axis=-1)
    mask = f.expand_dims(rows, (1, 4))
    largest = f.max(f.where(mask, f.expand_dims(wide, 2), -np.inf), axis=3)
    across, down = f.any(columns, axis=-1), f.any(rows, axis=-1)
    filled = f.logical_and(f.expand_dims(down, (1, 3)), f.expand_dims(across, (1, 2)))
    return f.where(filled, largest, 0)


def _in_cells(low: Any, high: Any, cells: int, extent: int) -> Any:
    """[B, cells, extent]: which of the elements low[B, 1] to high[B, 1] belong to which cell."""
    step = f.divide(f.maximum(f.add(f.subtract(high, low), 1), 1), cells)
    places = np.arange(cells + 1, dtype=low.dtype)
    first = f.add(f.floor(f.multiply(step, places[:-1])), low)
    last = f.add(f.ceil(f.multiply(step, places[1:])), low)
    at = f.arange(extent, dtype=low.dtype)
    return f.logical_and(
        f.greater_equal(at, f.expand_dims(first, -1)), f.less(at, f.expand_dims(last, -1))
    )


def deformable_convolution(
    x: Any,
    w: Any,
    offset: Any,
    mask: Any,
    step: Ints,
    before: Ints,
    spread: Ints,
    group: int,
    offset_group: int,
) -> Any:
    """A convolution that reads x[N, C, H, W] between its elements, where the offsets point:
    offset[N, offset_group * elements * (y, x), H', W'], mask without (y, x), or None."""
    refuse(x.ndim == 4, "only images are supported")
    window = tuple(w.shape[2:])
    batch, channels = x.shape[:2]
    height, width = offset.shape[2:]
    count = math.prod(window)
    refuse(count <= 1 << 10, f"a window of {list(window)}")
    moved = f.reshape(offset, (batch, offset_group, count, 2, height, width))
    offsets = np.array([(i * spread[0], j * spread[1]) for i, j in np.ndindex(*window)], x.dtype)
    lines = [
        f.subtract(f.multiply(f.arange(n, dtype=x.dtype), s), b)
        for n, s, b in zip((height, width), step, before)
    ]
    grids = f.reshape(lines[0], (-1, 1)), f.reshape(lines[1], (1, -1))
    y, z = (
        f.add(f.getitem(moved, (slice(None),) * 3 + (k,)), offsets[:, k, None, None] + grids[k])
        for k in range(2)
    )
    per = channels // offset_group
    read = f.sample_at(f.reshape(x, (batch, offset_group, per, *x.shape[2:])), y, z)
    if mask is not None:
        part = f.reshape(mask, (batch, offset_group, 1, count, height, width))
        read = f.multiply(read, part)
    outputs = w.shape[0]
    columns = f.reshape(read, (batch, group, channels // group * count, height * width))
    weights = f.reshape(w, (1, group, outputs // group, channels // group * count))
    return f.reshape(f.matmul(weights, columns), (batch, outputs, height, width))
