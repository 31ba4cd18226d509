"""Pools whose windows begin at places that a number tells, drawn at random (Graham 2014)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.layers import put_back
from graphc.formats.torch.operators.products import each
from graphc.formats.torch.promotion import dtype_of
from graphc.formats.torch.table import aten
from graphc.ops.record.value import functions as f


def _starts(draw: Any, extent: int, count: int, window: int) -> Any:
    """Where `count` windows along one axis begin: the last one ends where the axis ends."""
    refuse(count + window - 1 <= extent, f"{count} windows of {window} in {extent} elements")
    draw = f.expand_dims(draw, -1)
    last = f.full((*draw.shape[:-1], 1), extent - window, np.int64)
    if count == 1:
        return last
    kind = dtype_of(draw)
    step = kind.type(extent - window) / kind.type(count - 1)
    places = f.multiply(f.add(np.arange(count - 1, dtype=kind), draw), step)
    begun = f.astype(f.multiply(draw, step), np.int64)
    return f.concatenate([f.subtract(f.astype(places, np.int64), begun), last], -1)


def _fractional_max_pool(rank: int) -> Callable[..., Any]:
    def pool(x: Any, kernel_size: Any, output_size: Any, random_samples: Any) -> Any:
        window, wanted = each(kernel_size, rank), each(output_size, rank)
        extents = x.shape[-rank:]
        outer = random_samples.shape[:2]
        numbers = (1, 0) if rank == 2 else (0, 1, 2)  # images are drawn for columns first
        place: Any = np.int64(0)
        for axis, number in enumerate(numbers):
            draw = f.getitem(random_samples, (..., number))
            starts = _starts(draw, extents[axis], wanted[axis], window[axis])
            shape = [1] * (2 * rank)
            shape[axis] = wanted[axis]
            inside = [1] * (2 * rank)
            inside[rank + axis] = window[axis]
            at = f.add(f.reshape(starts, (*outer, *shape)), np.arange(window[axis]).reshape(inside))
            place = f.add(f.multiply(place, extents[axis]), at)
        place = f.reshape(place, (*outer, math.prod(wanted) * math.prod(window)))
        held = f.take_along_axis(f.reshape(x, (*outer, math.prod(extents))), place, -1)
        rows = *outer, math.prod(wanted), math.prod(window)
        held, place = f.reshape(held, rows), f.reshape(place, rows)
        best = f.astype(f.argmax(held, axis=-1, keepdims=True), np.int64)
        made = f.take_along_axis(held, best, -1), f.take_along_axis(place, best, -1)
        return tuple(f.reshape(v, (*x.shape[:-rank], *wanted)) for v in made)

    return pool


def _fractional_backward(rank: int) -> Callable[..., Any]:
    def backward(grad_output: Any, x: Any, kernel_size: Any, output_size: Any, indices: Any) -> Any:
        return put_back(grad_output, indices, x.shape[-rank:], "add")

    return backward


for _rank in (2, 3):
    aten(f"fractional_max_pool{_rank}d")(_fractional_max_pool(_rank))
    aten(f"fractional_max_pool{_rank}d_backward")(_fractional_backward(_rank))
