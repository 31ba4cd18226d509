"""What gradient rules of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.sizes import Size
from graphc.ir.types import Dimension
from graphc.ops.record.dims import Shape, rank_of, shape_of
from graphc.ops.record.value import Value, functions
from graphc.ops.shape.padding import pad_zeros
from graphc.ops.shape.slicing import slice_axis


def sum_to(x: Value, dims: Shape) -> Any:
    """x summed over the axes along which an array of shape `dims` was broadcast to x's shape."""
    have = shape_of(x)
    lead = rank_of(x) - len(dims)
    pairs = enumerate(zip(have[lead:], dims, strict=True), lead)
    ones = (k for k, (before, d) in pairs if d is not before and d == 1 and _may_be_more(before))
    axes = (*range(lead), *ones)
    return functions.reshape(functions.sum(x, axis=axes), dims) if axes else x


def _may_be_more(extent: Dimension) -> bool:
    """Whether an extent is not always 1: to sum over one element does no harm."""
    return isinstance(extent, Size) or extent != 1


def fitted(x: Value, extents: Sequence[Dimension]) -> Any:
    """x with its trailing axes cut, or continued with zeros, to the extents given."""
    rank = rank_of(x)
    for axis, extent in enumerate(extents, rank - len(extents)):
        spare = shape_of(x)[axis] - extent
        if isinstance(spare, int) and spare < 0:
            pairs = [(0, 0)] * rank
            pairs[axis] = (0, -spare)
            x = pad_zeros(x, pairs)
        else:
            x = slice_axis(x, axis, 0, extent)
    return x
