"""Reading and writing elements by indices; sizes that data decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import number, refuse
from graphc.formats.torch.operators.shapes import at, axis_of, bounds, of_rows
from graphc.formats.torch.promotion import cast, category, dtype_of, is_float
from graphc.formats.torch.table import aten
from graphc.ops.record.value import functions as f


def _index(x: Any, indices: Sequence[Any]) -> tuple[Any, ...]:
    """The index of NumPy that lists of arrays and None mean; masks are places."""
    parts: list[Any] = []
    for part in indices:
        if part is None:
            parts.append(slice(None))
        elif dtype_of(part).kind in "b" or dtype_of(part) == np.uint8:
            parts += nonzero_columns(part)
        else:
            parts.append(part)
    refuse(len(parts) <= x.ndim, f"{len(parts)} indices of rank {x.ndim}")
    return tuple(parts)


@aten("index", "_unsafe_index", "index.Tensor")
def index(x: Any, indices: Sequence[Any]) -> Any:
    parts = [part for part in indices if part is not None]
    masks = [part for part in parts if dtype_of(part).kind == "b"]
    if len(masks) == len(parts) == 1 and isinstance(masks[0], np.ndarray):
        return f.getitem(x, tuple(slice(None) if p is None else p for p in indices))
    return f.getitem(x, _index(x, indices))


@aten("index_put", "_unsafe_index_put")
def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    mode = "add" if accumulate else "set"
    given = [part for part in indices if part is not None]
    one = len(given) == 1 and not accumulate and not math.prod(values.shape) > 1
    if one and indices[0] is not None and dtype_of(given[0]).kind == "b":
        mask = f.reshape(given[0], (*given[0].shape, *[1] * (x.ndim - given[0].ndim)))
        return f.where(mask, cast(f.reshape(values, ()), dtype_of(x)), x)
    return f.index_update(x, _index(x, indices), cast(values, dtype_of(x)), mode)


@aten("index_select", "index_select_copy")
def index_select(x: Any, dim: int, index: Any) -> Any:
    if not x.ndim:
        return x.copy()
    return f.take(x, f.reshape(index, (-1,)), axis=axis_of(dim, x.ndim))


@aten("take")
def take(x: Any, index: Any) -> Any:
    return f.take(f.reshape(x, (math.prod(x.shape),)), index, axis=0)


@aten("put")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = f.reshape(x, (math.prod(x.shape),))
    mode = "add" if accumulate else "set"
    made = f.index_update(flat, f.reshape(index, (-1,)), f.reshape(source, (-1,)), mode)
    return f.reshape(made, x.shape)


@aten("take_along_dim")
def take_along_dim(x: Any, indices: Any, dim: int) -> Any:
    return f.take_along_axis(x, indices, axis_of(dim, x.ndim))


@aten("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if not x.ndim:
        return f.reshape(x, index.shape)
    axis = axis_of(dim, x.ndim)
    inside = tuple(
        slice(None) if k == axis else slice(0, extent) for k, extent in enumerate(index.shape)
    )
    return f.take_along_axis(f.getitem(x, inside), index, axis)


def scattered(x: Any, dim: int, index: Any, values: Any, mode: str) -> Any:
    """x with values at places along an axis, each place in its own row of the other axes."""
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        made = scattered(f.reshape(x, (1,)), 0, f.reshape(index, (1,)), values, mode)
        return f.reshape(made, ())
    refuse(index.ndim == x.ndim, f"places of rank {index.ndim} in rank {x.ndim}")
    if values.ndim:
        values = f.getitem(values, tuple(slice(0, n) for n in index.shape))
    parts: list[Any] = []
    for k, extent in enumerate(index.shape):
        column = [-1 if a == k else 1 for a in range(x.ndim)]
        rows = f.reshape(f.arange(extent, dtype=np.int64), column)
        parts.append(index if k == axis else rows)
    return f.index_update(x, tuple(parts), cast(values, dtype_of(x)), mode)


_MODES = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


@aten("scatter")
def scatter(
    x: Any, dim: int, index: Any, src: Any = None, value: Any = None, reduce: str | None = None
) -> Any:
    given = src if src is not None else cast(value, dtype_of(x))
    refuse(reduce is None or reduce in _MODES, f"no reduction {reduce!r}")
    return scattered(x, dim, index, given, "set" if reduce is None else _MODES[reduce])


@aten("scatter_add")
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    return scattered(x, dim, index, src, "add")


@aten("scatter_reduce")
def scatter_reduce(
    x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> Any:
    def write(into: Any, values: Any, mode: str) -> Any:
        return scattered(into, dim, index, values, mode)

    return _reduced(x, src, reduce, include_self, write)


def _reduced(
    x: Any, source: Any, reduce: str, include_self: bool, write: Callable[[Any, Any, str], Any]
) -> Any:
    """x after `write(into, values, mode)` put values to their places, which fall together.

    Without what was there before where something is written, unless that is included.
    """
    refuse(reduce in _MODES or reduce == "mean", f"no reduction {reduce!r}")
    kind, mode = dtype_of(x), _MODES.get(reduce, "add")
    if not include_self:
        written = write(f.zeros(x.shape, bool), f.ones(source.shape, bool), "set")
        x = f.where(written, cast(_neutral(mode, kind), kind), x)
    made = write(x, cast(source, kind), mode)
    if reduce != "mean":
        return made
    start = f.full(x.shape, cast(int(include_self), kind))
    counts = f.maximum(write(start, f.ones(source.shape, kind), "add"), cast(1, kind))
    return f.divide(made, counts) if is_float(x) else f.floor_divide(made, counts)


def _neutral(mode: str, kind: Any) -> Any:
    """What a reduction makes no difference to."""
    if mode in ("add", "mul"):
        return int(mode == "mul")
    if category(kind) == 2:
        return -np.inf if mode == "max" else np.inf
    ends = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    return ends[mode == "min"]


@aten("index_add")
@of_rows
def index_add(x: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Any:
    part = at(axis_of(dim, x.ndim), index)
    return f.index_update(x, part, f.multiply(source, cast(alpha, dtype_of(x))), "add")


@aten("index_reduce")
@of_rows
def index_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    part = at(axis_of(dim, x.ndim), index)

    def write(into: Any, values: Any, mode: str) -> Any:
        return f.index_update(into, part, values, mode)

    return _reduced(x, source, reduce, include_self, write)


@aten("index_copy")
@of_rows
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return f.index_update(x, at(axis_of(dim, x.ndim), index), cast(source, dtype_of(x)))


@aten("index_fill")
@of_rows
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return f.index_update(x, at(axis_of(dim, x.ndim), index), cast(value, dtype_of(x)))


@aten("masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return f.where(mask, cast(value, dtype_of(x)), x)


@aten("masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    x, wide = f.broadcast_arrays(x, mask)
    flat = f.astype(f.reshape(wide, (math.prod(x.shape),)), np.int64)
    turn = f.reshape(f.maximum(f.subtract(f.cumsum(flat, 0), 1), 0), x.shape)
    count = math.prod(source.shape)
    rows = f.reshape(source, (count,))
    if not isinstance(count, int) or count == 0:  # a take has to find something, if only for where
        rows = f.concatenate([rows, f.zeros((1,), rows.dtype)])
    return f.where(wide, f.take(rows, turn, axis=0, mode="clip"), x)


@aten("masked_scatter_backward")
def masked_scatter_backward(grad_output: Any, mask: Any, sizes: Any) -> Any:
    """The gradients of what went to places of the mask, in their order; zeros for the rest."""
    flat = f.reshape(f.broadcast_to(mask, grad_output.shape), (-1,))
    count = math.prod(sizes)
    turn = f.where(flat, f.subtract(f.cumsum(f.astype(flat, np.int64), 0), 1), count)
    start = f.zeros((count + 1,), grad_output.dtype)
    made = f.index_update(start, turn, f.reshape(grad_output, (-1,)))
    return f.reshape(f.getitem(made, slice(0, count)), tuple(sizes))


@aten("slice_scatter")
def slice_scatter(
    x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = axis_of(dim, x.ndim)
    first, last = bounds(start, end, x.shape[axis])
    return f.index_update(x, at(axis, slice(first, last, step)), cast(src, dtype_of(x)))


@aten("select_scatter")
def select_scatter(x: Any, src: Any, dim: int, index: int) -> Any:
    return f.index_update(x, at(axis_of(dim, x.ndim), index), cast(src, dtype_of(x)))


@aten("diagonal_scatter")
def diagonal_scatter(x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    axes = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    rows = np.arange(src.shape[-1]) + max(-offset, 0)
    turned = f.moveaxis(x, axes, (0, 1))
    columns = (rows, rows + offset)
    made = f.index_update(turned, columns, cast(f.moveaxis(src, -1, 0), dtype_of(x)))
    return f.moveaxis(made, (0, 1), axes)


@aten("isin")
def isin(
    elements: Any = None,
    test_elements: Any = None,
    assume_unique: bool = False,
    invert: bool = False,
    test_element: Any = None,
    element: Any = None,
) -> Any:
    tested = elements if elements is not None else element
    among = test_elements if test_elements is not None else test_element
    return f.isin(tested, among, invert=invert)


# ---------------------------------------------------------------------------- sizes of the data


def nonzero_columns(mask: Any) -> list[Any]:
    """The places of what is not zero, a row for every axis; a run tells how many there are."""
    held = mask if dtype_of(mask).kind == "b" else f.not_equal(mask, 0)
    count = int(number(f.sum(f.astype(held, np.int64))))
    return list(f.nonzero(held, size=count))


@aten("nonzero")
def nonzero(x: Any) -> Any:
    return f.stack(nonzero_columns(x), 1) if x.ndim else f.zeros((int(number(x) != 0), 0), np.int64)


@aten("nonzero_static")
def nonzero_static(x: Any, size: int, fill_value: int = -1) -> Any:
    if not x.ndim:
        return f.zeros((size, 0), np.int64)
    return f.stack(list(f.nonzero(x, size=size, fill_value=fill_value)), 1)


@aten("nonzero_numpy")
def nonzero_numpy(x: Any) -> Any:
    return nonzero_columns(x)


@aten("argwhere")
def argwhere(x: Any) -> Any:
    return nonzero(x)


@aten("where.default")
def where_places(condition: Any) -> Any:
    return nonzero_columns(condition)


@aten("masked_select")
def masked_select(x: Any, mask: Any) -> Any:
    shape = np.broadcast_shapes(x.shape, mask.shape)
    wide, chosen = f.broadcast_to(x, shape), f.broadcast_to(mask, shape)
    return f.getitem(wide, tuple(nonzero_columns(chosen)))
