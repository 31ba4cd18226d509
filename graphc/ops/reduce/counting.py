"""Counts, histograms, distinct values, one-hot rows and choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TraceError
from graphc.ir.types import BOOL, F32, F64, I64, Dimension
from graphc.ops.index.scatter import scatter_rows
from graphc.ops.record.dims import rank_of, shape_of, size_of
from graphc.ops.record.families import INTEGERS, as_dtype, normalise_axis, require
from graphc.ops.record.value import Value, as_value, common_element, functions, public
from graphc.ops.reduce.reduce import reduce_axes
from graphc.ops.shape.manipulation import expand_dims
from graphc.ops.shape.shape import broadcast_to, reshape
from graphc.ops.shape.slicing import concatenate, slice_axis
from graphc.ops.sort.search import need_size, searchsorted, true_places
from graphc.ops.sort.sorting import argsort

# ------------------------------------------------------------------------------------ counts


@public(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many elements are not zero, as i64."""
    chosen = functions.astype(functions.astype(a, BOOL), I64)
    return reduce_axes("sum", chosen, axis, keepdims)


@public(np.bincount)
def bincount(x: Any, weights: Any = None, minlength: int = 0, length: int | None = None) -> Any:
    """How often each of 0..length-1 occurs in x, or the sum of its weights; others are ignored.

    Of a traced array `minlength` stands for the length, and a value that does not fit raises
    RunError when it runs.
    """
    drop = length is not None
    if length is None:
        if isinstance(x, Value) and not minlength:
            raise TraceError(
                "bincount of a traced array has a length that depends on data",
                hint="pass minlength=, above every value, or length= to ignore what is beyond it",
            )
        length = (
            minlength if isinstance(x, Value) else max(int(np.max(x, initial=-1)) + 1, minlength)
        )
    x = as_value(x)
    kind = I64 if weights is None else F64
    amounts = np.ones((), np.int64) if weights is None else functions.astype(weights, F64)
    legal = functions.where(x < 0, length, x) if common_element(x)[0].kind == "i" else x
    amounts = broadcast_to(reshape(amounts, -1), (size_of(shape_of(x)),))
    zeros = functions.zeros((length,), kind)
    return scatter_rows(zeros, reshape(legal, -1), amounts, "add", drop=drop)


@public(np.histogram_bin_edges)
def histogram_bin_edges(x: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of equal bins between the extremes of x or over a range; or the edges given."""
    if np.ndim(bins) or isinstance(bins, Value):
        return as_value(bins)
    x = as_value(x)
    element = common_element(x)[0]
    low, high = (functions.min(x), functions.max(x)) if range is None else map(float, range)
    flat = functions.equal(low, high)
    low, high = (functions.astype(v, F64) for v in (low, high))
    low, high = functions.where(flat, low - 0.5, low), functions.where(flat, high + 0.5, high)
    edges = functions.linspace(low, high, int(bins) + 1)
    return functions.astype(edges, element) if element.is_float else edges


@public(np.histogram)
def histogram(
    x: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Any, Any]:
    """(counts, edges); the last bin includes its right edge."""
    if isinstance(bins, str):
        raise TraceError(
            f"histogram with bins={bins!r} has a number of bins that depends on data",
            hint="pass the number of bins, or their edges",
        )
    edges = histogram_bin_edges(x, bins, range)
    flat = functions.astype(reshape(as_value(x), -1), F64)
    count = shape_of(edges)[0] - 1
    place = searchsorted(edges, flat, "right") - 1
    place = functions.where(functions.equal(flat, functions.take(edges, -1)), count - 1, place)
    place = functions.where(functions.isnan(flat), count, place)
    made = bincount(place, None if weights is None else reshape(weights, -1), length=count)
    if weights is not None and common_element(weights)[0].is_integer:
        made = functions.astype(made, common_element(weights)[0])
    if density:
        widths = slice_axis(edges, 0, 1, count + 1) - slice_axis(edges, 0, 0, count)
        made = functions.astype(made, F64) / widths / functions.sum(made)
    return made, edges


# ------------------------------------------------------------------------------------ distinct


@public(np.unique)
def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The distinct values of x in ascending order: the first `size`, then fill_value
    (the least value by default).

    NaNs count as equal. Index, inverse and counts follow as asked for; left-over counts are 0.
    """
    need_size("unique", x, size)
    if size is None:
        made = np.unique(np.asarray(x), return_index, return_inverse, return_counts)  # type: ignore[call-overload]
        return made
    flat = reshape(as_value(x), -1)
    total = shape_of(flat)[0]
    require(isinstance(total, int) and total > 0, f"unique of {total} elements")
    order = argsort(flat)
    ordered = functions.take(flat, order, mode="clip")
    starts = concatenate([functions.ones((1,), BOOL), _changes(ordered)])
    places, count = true_places(starts, size)
    legal = functions.arange(int(size)) < count
    values = functions.take(ordered, places, mode="clip")
    values = values if fill_value is None else functions.where(legal, values, fill_value)
    made = [values]
    if return_index:
        made.append(functions.take(order, places, mode="clip"))
    if return_inverse:
        groups = functions.cumsum(functions.astype(starts, I64)) - 1
        inverse = scatter_rows(functions.zeros((total,), I64), order, groups)
        made.append(reshape(inverse, shape_of(x)))
    if return_counts:
        ends = concatenate([places, np.zeros(1, np.int64)])
        ends = slice_axis(ends, 0, 1, int(size) + 1)
        last = functions.arange(int(size)) + 1 >= count
        ends = functions.where(last, total, ends)
        made.append(functions.where(legal, ends - places, 0))
    return made[0] if len(made) == 1 else tuple(made)


def _changes(ordered: Any) -> Any:
    """Where an element of a sorted vector differs from the one before it."""
    extent = shape_of(ordered)[0]
    left, right = slice_axis(ordered, 0, 0, extent - 1), slice_axis(ordered, 0, 1, extent)
    differ = functions.not_equal(left, right)
    if common_element(ordered)[0].is_float:
        differ = functions.logical_and(differ, functions.logical_not(functions.isnan(left)))
    return differ


@public(np.isin)
def isin(x: Any, test: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element of x is among the elements of test."""
    found = functions.equal(expand_dims(as_value(x), -1), reshape(as_value(test), -1))
    found = functions.any(found, axis=-1)
    return functions.logical_not(found) if invert else found


# ------------------------------------------------------------------------------------ choices


@public(name="one_hot")
def one_hot(indices: Any, count: Dimension, dtype: Any = F32, axis: int = -1) -> Any:
    """A new axis with 1 at the index and 0 elsewhere; an index out of range gives zeros."""
    indices = as_value(indices)
    require(common_element(indices)[0].name in INTEGERS, "one_hot takes integer indices")
    axis = normalise_axis(axis, rank_of(indices) + 1, "one_hot")
    places = functions.arange(count, dtype=common_element(indices)[0])
    shape = (-1,) + (1,) * (rank_of(indices) - axis)
    hot = functions.equal(expand_dims(indices, axis), reshape(places, shape))
    return functions.astype(hot, as_dtype(dtype))


@public(np.choose, method=True)
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """From a list of arrays the element of the one that a names, position by position."""
    parts = choices if isinstance(choices, tuple | list) else functions.unstack(choices)
    a, *parts = functions.broadcast_arrays(a, *parts)
    picked = functions.take_along_axis(functions.stack(parts), expand_dims(a, 0), 0, mode)
    return functions.squeeze(picked, 0)


@public(np.select)
def select(conditions: Any, choices: Any, default: Any = 0) -> Any:
    """The choice of the first condition that holds, or the default."""
    require(len(conditions) == len(choices) > 0, "select: as many conditions as choices")
    made = default
    for condition, choice in zip(reversed(conditions), reversed(choices)):
        made = functions.where(condition, choice, made)
    return made


@public(np.compress, method=True)
def compress(condition: Any, x: Any, axis: int | None = None) -> Any:
    """Sub-arrays along an axis where a condition, known while tracing, is true."""
    if isinstance(condition, Value):
        need_size("nonzero", condition, None)
    return functions.take(x, np.flatnonzero(condition), axis=axis)
