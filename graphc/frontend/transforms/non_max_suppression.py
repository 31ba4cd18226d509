"""Boxes: which of them are left when those that overlap a better one are taken away."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import TraceError
from graphc.frontend.transforms.control import scan
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.value import common_element, functions


@refusing
def nms(boxes: Any, scores: Any, most: int, overlap: Any = 0.5, least: Any = None) -> Any:
    """Non-maximum suppression of boxes[N, B, 4] by scores[N, C, B]: numbers of boxes [N, C, most].

    Per image and class, best score first, a box is kept unless it overlaps a kept one by more than
    `overlap` (intersection over union); -1 fills up where fewer are left.  Boxes are given by two
    opposite corners (y, x, y, x); `least` is the score that a box must exceed.  Raises TraceError
    for arrays of other ranks.
    """
    if rank_of(boxes) != 3 or rank_of(scores) != 3 or most < 0:
        raise TraceError("nms takes boxes[N, B, 4], scores[N, C, B] and a count")
    f = functions
    kind = common_element(scores)[0].numpy
    corners = _corners(boxes)
    numbers = np.arange(int(shape_of(scores)[2]), dtype=np.int64)  # type: ignore[arg-type]
    alive = f.ones(shape_of(scores), bool) if least is None else f.greater(scores, least)

    def keep(left: Any, _: Any) -> Any:
        value = f.where(left, scores, np.asarray(-np.inf, kind))
        best = f.argmax(value, axis=2, keepdims=True)
        first = f.argmax(left, axis=2, keepdims=True)  # where all that is left has a score of -inf
        best = f.astype(f.where(f.take_along_axis(left, best, 2), best, first), np.int64)
        found = f.any(left, axis=2)
        near = f.greater(_share(corners, best), overlap)
        gone = f.logical_or(near, f.equal(best, numbers))
        number = f.where(found, f.getitem(best, (slice(None), slice(None), 0)), -1)
        return f.logical_and(left, f.logical_not(gone)), number

    _, kept = scan(keep, alive, np.arange(most))
    return f.moveaxis(kept, 0, 2)


def _corners(boxes: Any) -> list[Any]:
    """(low, high) of both axes, [N, 1, B] each."""
    f = functions
    y1, x1, y2, x2 = (f.expand_dims(f.getitem(boxes, (..., k)), 1) for k in range(4))
    return [(f.minimum(a, b), f.maximum(a, b)) for a, b in ((y1, y2), (x1, x2))]


def _share(corners: list[Any], best: Any) -> Any:
    """The intersection over the union of each box with the best of its class: [N, C, B]."""
    f = functions
    inside: Any = np.float32(1)
    area: Any = np.float32(1)
    other: Any = np.float32(1)
    for low, high in corners:
        first, last = (_chosen(edge, best) for edge in (low, high))
        side = f.maximum(f.subtract(f.minimum(high, last), f.maximum(low, first)), 0)
        inside = f.multiply(side, inside)
        area = f.multiply(f.subtract(high, low), area)
        other = f.multiply(f.subtract(last, first), other)
    union = f.subtract(f.add(area, other), inside)
    positive = f.greater(union, 0)
    return f.where(positive, f.divide(inside, f.where(positive, union, 1)), 0)


def _chosen(edge: Any, best: Any) -> Any:
    """An edge [N, 1, B] of the best boxes [N, C, 1]."""
    wide = functions.broadcast_to(edge, (*shape_of(best)[:2], shape_of(edge)[2]))
    return functions.take_along_axis(wide, best, 2)
