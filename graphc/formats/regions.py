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
