"""What the two passes of attention share: the scores, and the bands of rows they run in."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.ir.types import BOOL, Dimension
from graphc.ops.record.value import Value, element_of, functions
from graphc.ops.tuning import tuned

# A finite stand-in for -inf: a row that is masked out completely gives a mean and not NaN.
HIDDEN = -0.7 * float(np.finfo(np.float32).max)


def default_scale(width: Any) -> float:
    """1 / sqrt(width); scores of no width are zeros at any scale."""
    return 1 / math.sqrt(max(int(width), 1))


def share_heads(x: Any, heads: int) -> Any:
    """k or v with every head repeated for the query heads that share it."""
    shared = x.shape[-3]
    if len(x.shape) < 3 or shared in (1, heads):
        return x
    f, lead, tail = functions, x.shape[:-3], x.shape[-2:]
    spread = f.broadcast_to(f.expand_dims(x, -3), (*lead, shared, heads // shared, *tail))
    return f.reshape(spread, (*lead, heads, *tail))


def scores(q: Any, k: Any, mask: tuple[Any, ...], causal: bool, factor: float) -> Any:
    """q k^T factor, with what the mask adds and HIDDEN where a query may not look."""
    f = functions
    made = f.multiply(f.matmul(q, f.swapaxes(k, -1, -2)), factor)
    for bias in mask:
        if element_of(bias)[0] is BOOL:
            made = f.where(bias, made, HIDDEN)
        else:
            made = f.add(made, f.astype(bias, element_of(q)[0]))
    if causal:
        made = f.where(visible(q.shape[-2], k.shape[-2]), made, HIDDEN)
    return made


def visible(rows: Value, columns: Value) -> Any:
    """Query i sees key j up to the diagonal that ends in the last row and column."""
    f = functions
    last = f.add(f.expand_dims(f.arange(rows), 1), columns - rows)
    return f.less_equal(f.arange(columns), last)


def bands_of(
    rows: Dimension, columns: Dimension, causal: bool, size: int = 0, most: int = 0
) -> tuple[tuple[Any, Any, Any], ...]:
    """(first row, end, keys seen) of the bands that long attention is worked out in.

    What no row of a band sees is left out: four bands of causal attention do 5/8 of the work.

        x x . . | . . . .
        x x x x | . . . .
        x x x x   x x . .
        x x x x   x x x x
    """
    whole = ((0, rows, columns),)
    if not isinstance(rows, int) or not isinstance(columns, int):
        return whole
    count = min(most or tuned.score_bands, rows // (size or tuned.score_band))
    if count < 2 or (causal and columns < rows):  # a row that sees nothing is the mean of all
        return whole
    ends = [rows * k // count for k in range(count + 1)]
    return tuple(
        (start, stop, columns - rows + stop if causal else columns)
        for start, stop in pairwise(ends)
    )
