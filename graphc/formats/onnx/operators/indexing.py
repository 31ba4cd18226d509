"""Reading and writing elements by indices: Gather, Scatter ...; sizes that data decides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, number, refuse
from graphc.formats.onnx.table import FIRST, operator
from graphc.ops.record.value import functions as f


@operator("Gather", moves=FIRST)
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return f.take(x, indices, axis=axis)


@operator("GatherElements", moves=FIRST)
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    (axis,) = axes_of([axis], x.ndim)
    inside = tuple(
        slice(None) if k == axis else slice(0, extent) for k, extent in enumerate(indices.shape)
    )
    return f.take_along_axis(f.getitem(x, inside), indices, axis)


@operator("GatherND", moves=FIRST)
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    depth = indices.shape[-1]
    refuse(0 <= batch_dims < indices.ndim and batch_dims + depth <= x.ndim, "too many indices")
    lead = x.shape[:batch_dims]
    parts = [f.getitem(indices, (..., k)) for k in range(depth)]
    if not batch_dims:
        return f.getitem(x, tuple(parts)) if depth else f.broadcast_to(x, parts)
    refuse(max(lead) <= 1 << 20, f"a batch of {list(lead)}")
    rank = indices.ndim - 1
    grids = [
        np.arange(extent).reshape([-1 if k == axis else 1 for k in range(rank)])
        for axis, extent in enumerate(lead)
    ]
    return f.getitem(x, (*grids, *parts))


_MODES = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    refuse(reduction in _MODES, f"no reduction {reduction!r}")
    refuse(indices.ndim > 0 and indices.shape[-1] <= x.ndim, "too many indices")
    parts = tuple(f.getitem(indices, (..., k)) for k in range(indices.shape[-1]))
    return f.index_update(x, parts, updates, _MODES[reduction])


@operator("ScatterElements", "Scatter")
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    refuse(reduction in _MODES, f"no reduction {reduction!r}")
    refuse(x.ndim > 0 and indices.shape == updates.shape, "indices and updates differ in shape")
    (axis,) = axes_of([axis], x.ndim)
    strides = [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)]
    wide = f.astype(indices, np.int64)
    wide = f.where(f.less(wide, 0), f.add(wide, x.shape[axis]), wide)
    total = f.multiply(wide, strides[axis])
    for k, extent in enumerate(indices.shape):
        if k != axis:
            places = f.multiply(f.arange(extent, dtype=np.int64), strides[k])
            column = [-1 if a == k else 1 for a in range(x.ndim)]
            total = f.add(total, f.reshape(places, column))
    count = math.prod(indices.shape)
    flat, new = f.reshape(total, (count,)), f.reshape(updates, (count,))
    made = f.index_update(f.reshape(x, (math.prod(x.shape),)), flat, new, _MODES[reduction])
    return f.reshape(made, x.shape)


@operator("TensorScatter")
def tensor_scatter(
    past: Any, update: Any, at: Any = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    """Rows written to a cache, of each batch from its own place on."""
    (axis,) = axes_of([axis], past.ndim)
    batch, extent, count = past.shape[0], past.shape[axis], update.shape[axis]
    starts = f.zeros((batch,), np.int64) if at is None else f.astype(at, np.int64)
    places = f.add(f.reshape(starts, (-1, 1)), np.arange(count, dtype=np.int64)[None])
    if mode == "circular":
        places = f.remainder(places, extent)
    moved, new = (f.moveaxis(v, axis, 1) for v in (past, update))
    rows = np.arange(batch, dtype=np.int64)[:, None]
    rows = f.broadcast_to(rows, (batch, count))
    made = scatter_nd(moved, f.stack([rows, places], -1), new)
    return f.moveaxis(made, 1, axis)


@operator("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    count = number(depth)
    refuse(count >= 0, f"depth {count}")
    (axis,) = axes_of([axis], indices.ndim + 1)
    wide = f.astype(indices, np.int64)
    wide = f.where(f.less(wide, 0), f.add(wide, count), wide)
    classes = f.reshape(f.arange(count), [-1] + [1] * (indices.ndim - axis))
    chosen = f.equal(f.expand_dims(wide, axis), classes)
    return f.where(chosen, f.getitem(values, 1), f.getitem(values, 0))


# ---------------------------------------------------------------------------- sizes of the data


def count_of(mask: Any) -> int:
    """How many elements hold; a run must tell where that is not known."""
    return int(number(f.sum(f.astype(mask, np.int64))))


@operator("NonZero")
def non_zero(x: Any) -> Any:
    mask = x if np.dtype(x.dtype).kind == "b" else f.not_equal(x, 0)
    places = f.nonzero(f.reshape(mask, mask.shape or (1,)), size=count_of(mask))
    return f.stack([f.astype(p, np.int64) for p in places], 0)


@operator("Compress")
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    along = f.reshape(x, (math.prod(x.shape),)) if axis is None else x
    (axis,) = axes_of([0 if axis is None else axis], along.ndim)
    length = min(condition.shape[0], along.shape[axis])
    chosen = f.getitem(condition, slice(0, length))
    (places,) = f.nonzero(chosen, size=count_of(chosen))
    return f.take(along, places, axis=axis)


@operator("Unique")
def unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    """The different slices along an axis, by comparing each with each."""
    rows = f.reshape(x, (-1, 1)) if axis is None else f.moveaxis(x, axis, 0)
    flat = f.reshape(rows, (rows.shape[0], math.prod(rows.shape[1:])))
    order, first, counts, total = _groups(flat)
    size = int(number(total))
    chosen = f.getitem(order, slice(0, size))
    if not sorted:
        chosen = f.sort(chosen)
    renamed = f.zeros((flat.shape[0],), np.int64)
    renamed = f.index_update(renamed, chosen, np.arange(size, dtype=np.int64))
    values = f.take(rows, chosen, axis=0)
    made = f.reshape(values, (size,)) if axis is None else f.moveaxis(values, 0, axis)
    inverse = f.take(renamed, first, axis=0)
    return made, chosen, inverse, f.take(counts, chosen, axis=0)


def _groups(flat: Any) -> tuple[Any, Any, Any, Any]:
    """For rows: the first of each group in rising order of rows, the first row equal to each row,
    and how many are equal to each."""
    count = flat.shape[0]
    refuse(count * count * max(flat.shape[1], 1) <= 1 << 26, f"{count} rows are too many")
    left, right = f.expand_dims(flat, 1), f.expand_dims(flat, 0)
    differ = f.not_equal(left, right)
    equal = f.logical_not(f.any(differ, axis=2))
    first = f.astype(f.argmax(equal, axis=1), np.int64)
    is_first = f.equal(first, np.arange(count, dtype=np.int64))
    # a row comes before another where it is smaller in the first column that differs
    column = f.expand_dims(f.argmax(differ, axis=2), 2)
    below = f.getitem(f.take_along_axis(f.less(left, right), column, 2), (..., 0))
    rank = f.sum(f.astype(f.logical_and(below, f.expand_dims(is_first, 1)), np.int64), axis=0)
    keys = f.where(is_first, rank, count)
    order = f.astype(f.argsort(keys), np.int64)
    counts = f.sum(f.astype(equal, np.int64), axis=1)
    return order, first, counts, f.sum(f.astype(is_first, np.int64))
