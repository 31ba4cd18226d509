"""What gradient rules of several families share."""

from __future__ import annotations

from typing import Any

from graphc.ops.dims import Shape, rank_of, shape_of
from graphc.ops.value import functions


def sum_to(x: Any, dims: Shape) -> Any:
    """x summed over the axes along which an array of shape `dims` was broadcast to x's shape."""
    have = shape_of(x)
    lead = rank_of(x) - len(dims)
    ones = (k + lead for k, d in enumerate(dims) if d == 1 and have[k + lead] != 1)
    axes = (*range(lead), *ones)
    return functions.reshape(functions.sum(x, axis=axes), dims) if axes else x
