"""Distinct elements and rows: how many there are, a run tells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import number
from graphc.formats.torch.operators.shapes import axis_of
from graphc.formats.torch.table import aten
from graphc.ops.record.value import functions as f


def _groups(rows: Any, order: Any, shape: Any) -> Any:
    """Of rows in an order: the first of each group of equal ones, the group of each row (in this
    shape), the sizes of groups."""
    held = f.take(rows, order, axis=0)
    count = rows.shape[0]
    if not count:
        none = f.zeros((0,), np.int64)
        return held, f.zeros(shape, np.int64), none
    new = f.any(f.not_equal(held, f.roll(held, 1, 0)), axis=1)
    new = f.logical_or(new, f.equal(f.arange(count, dtype=np.int64), 0))
    ones = f.astype(new, np.int64)
    many = int(number(f.sum(ones)))
    starts = f.nonzero(new, size=many)[0]
    group = f.subtract(f.cumsum(ones, 0), 1)
    inverse = f.index_update(f.zeros((count,), np.int64), order, group)
    ends = f.concatenate([f.getitem(starts, slice(1, None)), f.full((1,), count, np.int64)])
    return f.take(held, starts, axis=0), f.reshape(inverse, shape), f.subtract(ends, starts)


def _sorted(rows: Any) -> Any:
    """The order that sorts rows by their first elements, then by the second ones and so on."""
    order = f.arange(rows.shape[0], dtype=np.int64)
    for column in reversed(range(rows.shape[1])):
        keys = f.take(f.getitem(rows, (slice(None), column)), order, axis=0)
        order = f.take(order, f.argsort(keys, axis=0), axis=0)
    return order


def _of_elements(x: Any, ordered: bool) -> Any:
    rows = f.reshape(x, (math.prod(x.shape), 1))
    order = _sorted(rows) if ordered else f.arange(rows.shape[0], dtype=np.int64)
    first, inverse, counts = _groups(rows, order, x.shape)
    return f.reshape(first, (-1,)), inverse, counts


def _of_parts(x: Any, dim: int, ordered: bool) -> Any:
    axis = axis_of(dim, x.ndim)
    turned = f.moveaxis(x, axis, 0)
    extent, rest = turned.shape[0], turned.shape[1:]
    rows = f.reshape(turned, (extent, math.prod(rest)))
    order = _sorted(rows) if ordered else f.arange(extent, dtype=np.int64)
    first, inverse, counts = _groups(rows, order, (extent,))
    return f.moveaxis(f.reshape(first, (first.shape[0], *rest)), 0, axis), inverse, counts


@aten("_unique")
def unique(x: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
    return _of_elements(x, True)[:2]


@aten("_unique2")
def unique2(
    x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _of_elements(x, True)


@aten("unique_dim")
def unique_dim(
    x: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _of_parts(x, dim, True)


@aten("unique_consecutive")
def unique_consecutive(
    x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    return _of_elements(x, False) if dim is None else _of_parts(x, dim, False)


@aten("unique_dim_consecutive")
def unique_dim_consecutive(
    x: Any, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _of_parts(x, dim, False)
