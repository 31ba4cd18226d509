"""Boxes: which of them are left when those that overlap a better one are taken away."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import require
from graphc.ops.record.value import functions, public


@public(name="nms")
def nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    most: int,
    overlap: ArrayLike = 0.5,
    least: ArrayLike | None = None,
) -> Any:
    """Non-maximum suppression of boxes[N, B, 4] by scores[N, C, B]: numbers of boxes [N, C, most].

    Per image and class, best score first, a box is kept unless it overlaps a kept one by more than
    `overlap` (intersection over union); -1 fills up where fewer are left.  Boxes are given by two
    opposite corners (y, x, y, x); `least` is the score that a box must exceed.
    """
    require(
        rank_of(boxes) == 3 and rank_of(scores) == 3, "nms takes boxes[N, B, 4], scores[N, C, B]"
    )
    f = functions
    batch, classes, count = shape_of(scores)
    share = _overlaps(boxes)
    limit = np.asarray(overlap, np.float32) if isinstance(overlap, float) else overlap
    suppresses = f.expand_dims(f.greater(share, limit), 1)
    alive = f.ones((batch, classes, count), bool)
    if least is not None:
        alive = f.greater(scores, least)
    lowest = np.asarray(-np.inf, np.float32)
    numbers, kept = f.arange(count, dtype=np.int64), []
    for _ in range(most):
        best = f.argmax(f.where(alive, f.astype(scores, np.float32), lowest), axis=2)
        any_left = f.any(alive, axis=2)
        chosen = f.astype(best, np.int64)
        kept.append(f.where(any_left, chosen, -1))
        is_chosen = f.equal(f.expand_dims(chosen, 2), numbers)
        rows = f.broadcast_to(suppresses, (batch, classes, count, count))
        place = f.reshape(chosen, (batch, classes, 1, 1))
        place = f.broadcast_to(place, (batch, classes, 1, count))
        row = f.getitem(f.take_along_axis(rows, place, 2), (slice(None), slice(None), 0))
        alive = f.logical_and(alive, f.logical_not(f.logical_or(row, is_chosen)))
    return f.stack(kept, 2)


def _overlaps(boxes: Any) -> Any:
    """The intersection over the union of each pair of boxes: [N, B, B]."""
    f = functions
    y1, x1, y2, x2 = (f.getitem(boxes, (..., k)) for k in range(4))
    low = [f.minimum(a, b) for a, b in ((y1, y2), (x1, x2))]
    high = [f.maximum(a, b) for a, b in ((y1, y2), (x1, x2))]
    inside: Any = None
    area: Any = None
    for a, b in zip(low, high):
        top = f.minimum(f.expand_dims(b, 2), f.expand_dims(b, 1))
        bottom = f.maximum(f.expand_dims(a, 2), f.expand_dims(a, 1))
        side = f.maximum(f.subtract(top, bottom), 0)
        inside = side if inside is None else f.multiply(inside, side)
        own = f.subtract(b, a)
        area = own if area is None else f.multiply(area, own)
    union = f.subtract(f.add(f.expand_dims(area, 2), f.expand_dims(area, 1)), inside)
    positive = f.greater(union, 0)
    return f.where(positive, f.divide(inside, f.where(positive, union, 1)), 0)
