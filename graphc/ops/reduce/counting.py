"""Counts, histograms, distinct values, one-hot rows and choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.sizes import Size
from graphc.ir.types import BOOL, F32, F64, I64, Dimension
from graphc.ops.index.scatter import scatter_rows
from graphc.ops.record.arguments import ArrayLike, Axes, DTypeLike, Tensor
from graphc.ops.record.dims import mode_of_known, rank_of, shape_of, size_of
from graphc.ops.record.families import INTEGERS, as_dtype, normalise_axis, require
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    counting,
    element_of,
    emit,
    functions,
    public,
)
from graphc.ops.reduce.bins import bins_by_rule
from graphc.ops.reduce.occurrences import occurrences_op
from graphc.ops.reduce.reduce import reduce_axes
from graphc.ops.shape.concat import concatenate
from graphc.ops.shape.creation import iota
from graphc.ops.shape.manipulation import expand_dims
from graphc.ops.shape.shape import broadcast_to, reshape
from graphc.ops.shape.slicing import slice_axis
from graphc.ops.sort.search import counted, need_size, searchsorted, true_places
from graphc.ops.sort.sorting import argsort
from graphc.ops.tuning import tuned

# ------------------------------------------------------------------------------------ counts


@public(np.count_nonzero)
def count_nonzero(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """How many elements are not zero, as i64."""
    chosen = functions.astype(functions.astype(a, BOOL), I64)
    return reduce_axes("sum", chosen, axis, keepdims)


@public(np.bincount)
def bincount(
    x: Tensor, weights: ArrayLike | None = None, minlength: int = 0, length: int | None = None
) -> Any:
    """How often each of 0..length-1 occurs in x, or the sum of its weights; others are ignored.

    Of a traced array `minlength` stands for the length, if there is one, and a value that does not
    fit raises RunError when it runs.
    """
    drop = length is not None
    if length is None and isinstance(x, Value):
        length = minlength or _greatest_value(x)
    elif length is None:
        length = max(int(np.max(x, initial=-1)) + 1, minlength)
    if weights is not None:
        require(not common_element(weights)[0].is_complex, "weights of counts are real numbers")
    x = as_value(x)
    if weights is None:
        return emit(occurrences_op, x, size=length, drop=drop)
    legal = functions.where(x < 0, length, x) if common_element(x)[0].kind == "i" else x
    amounts = reshape(functions.astype(weights, F64), -1)
    amounts = broadcast_to(amounts, (size_of(shape_of(x)),))
    zeros = functions.zeros((length,), F64)
    return scatter_rows(zeros, reshape(legal, -1), amounts, "add", drop=drop)


def _greatest_value(x: Value) -> int:
    """One more than the greatest value, as an extent that the run decides."""
    trace = counting(
        "bincount of a traced array has a length that depends on data",
        "pass minlength=, above every value, or length= to ignore what is beyond it",
    )
    highest = functions.max(functions.astype(x, I64), initial=-1)
    length: int = trace.data_size("bincount", highest + 1)
    return length


@public(np.histogram_bin_edges)
def histogram_bin_edges(
    x: Tensor, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None
) -> Any:
    """The edges of equal bins between the extremes of x or over a range; or the edges given."""
    if isinstance(bins, str):
        require(weights is None, "histogram: rules for bins are for data without weights")
        bins = bins_by_rule(x, bins, range)
    elif np.ndim(bins) or isinstance(bins, Value):
        return as_value(bins)
    else:
        bins = int(bins)
    require(bins > 0, f"histogram: the number of bins must be positive, not {bins}")
    x = as_value(x)
    element = common_element(x)[0]
    if range is None and 0 in shape_of(x):
        range = 0.0, 1.0
    low, high = (functions.min(x), functions.max(x)) if range is None else map(float, range)
    flat = functions.equal(low, high)
    low, high = (functions.astype(v, F64) for v in (low, high))
    low, high = functions.where(flat, low - 0.5, low), functions.where(flat, high + 0.5, high)
    edges = functions.linspace(low, high, bins + 1)
    return functions.astype(edges, element) if element.is_float else edges


@public(np.histogram)
def histogram(
    x: ArrayLike,
    bins: ArrayLike = 10,
    range: ArrayLike | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Any, Any]:
    """(counts, edges); the last bin includes its right edge."""
    edges = histogram_bin_edges(x, bins, range, weights)
    if 0 in shape_of(edges):
        return functions.zeros(0, I64), edges
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


@public(np.histogramdd)
def histogramdd(
    sample: Any,
    bins: ArrayLike = 10,
    range: Any = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Any, tuple[Any, ...]]:
    """(counts as f64, the edges of each variable) of rows of variables, or of a list of variables.

    bins is a number, or a number or edges for each variable; range has a pair or None for each.
    """
    f, is_list = functions, isinstance(sample, list | tuple)
    columns = [
        as_value(v) for v in (sample if is_list else f.unstack(f.atleast_2d(sample), axis=1))
    ]
    each = list(bins) if isinstance(bins, list | tuple) else [bins] * len(columns)
    ranges = [None] * len(columns) if range is None else list(range)
    given = f"{len(columns)} variables, {len(each)} bins, {len(ranges)} ranges"
    require(len(columns) == len(each) == len(ranges), f"histogramdd: {given}")
    edges = [histogram_bin_edges(*given) for given in zip(columns, each, ranges)]
    require(all(shape_of(edge)[0] for edge in edges), "histogramdd: a variable has no edges")
    place: Any = np.zeros((), np.int64)
    for column, edge in zip(columns, edges):  # below the first edge comes first, beyond all last
        at_end = f.equal(column, f.take(edge, -1))
        found = searchsorted(edge, column, "right") - f.astype(at_end, I64)
        place = place * (shape_of(edge)[0] + 1) + found
    dims = tuple(shape_of(edge)[0] + 1 for edge in edges)
    made = f.astype(bincount(place, weights, length=math.prod(dims)), F64)
    made = reshape(made, dims)[(slice(1, -1),) * len(dims)]
    if density:
        total = f.sum(made)
        for axis, edge in enumerate(edges):
            widths = f.diff(edge)
            made = made / reshape(widths, [-1 if k == axis else 1 for k, _ in enumerate(dims)])
        made = made / total
    return made, tuple(edges)


@public(np.histogram2d)
def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Any, Any, Any]:
    """(counts as f64, the edges of x, the edges of y)."""
    if np.ndim(bins) == 1 and len(bins) not in (1, 2):
        bins = [bins, bins]
    made, edges = histogramdd(
        [x, y], list(bins) if np.ndim(bins) else bins, range, density, weights
    )
    return made, *edges


# ------------------------------------------------------------------------------------ distinct


@public(np.unique)
def unique(
    x: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    *,
    equal_nan: bool = True,
    axis: int | None = None,
) -> Any:
    """The distinct values of x in ascending order, or its distinct parts along an axis: all, or the
    first `size`, then fill_value (the least value by default).

    NaNs count as equal unless told otherwise. Index, inverse and counts follow as asked for;
    left-over counts are 0.
    """
    asked = return_index, return_inverse, return_counts
    if size is None and not isinstance(x, Value):
        x = np.asarray(x)
        return np.unique(x, *asked, axis=axis, equal_nan=equal_nan)  # type: ignore[call-overload]
    if axis is not None and rank_of(x) > 1:
        axis = normalise_axis(axis, rank_of(x), "unique")
        if size is None and shape_of(x)[axis] == 0:
            return _nothing(x, (0,), asked)
        return _unique_parts(as_value(x), axis, asked, size)
    if size is None and _is_empty(x):
        return _nothing(reshape(x, -1), shape_of(x), asked)
    order, ordered, starts = _runs("unique", x, equal_nan, return_index or return_inverse)
    return _gathered(order, ordered, starts, asked, size, fill_value, shape_of(x))


def _unique_parts(x: Value, axis: int, asked: tuple[bool, bool, bool], size: int | None) -> Any:
    """Parts along an axis are rows; they are put in order by their elements, the first before all
    others."""
    front = functions.moveaxis(x, axis, 0)
    rows = reshape(front, (shape_of(front)[0], -1))
    width = shape_of(rows)[1]
    extent = shape_of(rows)[0]
    if not isinstance(width, int) or extent == 0:
        raise TypeRuleError(f"unique along axis {axis} of {x.type}: of parts of a known size")
    columns = [rows[:, k] for k in reversed(range(width))]
    order = functions.lexsort(columns) if columns else iota(extent)
    ordered = functions.take(rows, order, axis=0, mode="clip")
    left, right = slice_axis(ordered, 0, 0, extent - 1), slice_axis(ordered, 0, 1, extent)
    changes = functions.any(functions.not_equal(left, right), axis=1)
    starts = concatenate([functions.ones((1,), BOOL), changes])
    made = _gathered(order, ordered, starts, asked, size, None, (extent,))
    values, *rest = made if isinstance(made, tuple) else (made,)
    parts = reshape(values, (shape_of(values)[0], *shape_of(front)[1:]))
    parts = functions.moveaxis(parts, 0, axis)
    return (parts, *rest) if rest else parts


def _gathered(
    order: Any,
    ordered: Any,
    starts: Any,
    asked: tuple[bool, bool, bool],
    size: int | None,
    fill_value: Any,
    shape: tuple[Dimension, ...],
) -> Any:
    """The first of each run, and what is asked for besides."""
    return_index, return_inverse, return_counts = asked
    total = shape_of(ordered)[0]
    size = counted("unique", starts) if size is None else int(size)
    mode = mode_of_known(total)
    places, count = true_places(starts, size)
    legal = iota(size) < count
    values = functions.take(ordered, places, axis=0, mode=mode)
    values = values if fill_value is None else functions.where(legal, values, fill_value)
    made = [values]
    if return_index:
        made.append(functions.take(order, places, mode=mode))
    if return_inverse:
        groups = functions.cumsum(functions.astype(starts, I64)) - 1
        inverse = scatter_rows(functions.zeros((total,), I64), order, groups)
        made.append(reshape(inverse, shape))
    if return_counts:
        ends = concatenate([places, np.zeros(1, np.int64)])
        ends = slice_axis(ends, 0, 1, size + 1)
        last = iota(size) + 1 >= count
        ends = functions.where(last, total, ends)
        made.append(functions.where(legal, ends - places, 0))
    return made[0] if len(made) == 1 else tuple(made)


def _is_empty(x: ArrayLike) -> bool:
    count = size_of(shape_of(x))
    return isinstance(count, int) and count == 0


def _nothing(x: Any, inverse: tuple[Dimension, ...], asked: tuple[bool, bool, bool]) -> Any:
    """What `unique` makes of no elements or parts; `inverse` is the shape of what leads back."""
    made = [x]
    for wanted, shape in zip(asked, ((0,), inverse, (0,)), strict=True):
        made += [functions.zeros(shape, I64)] if wanted else []
    return made[0] if len(made) == 1 else tuple(made)


def _runs(
    name: str, x: ArrayLike, equal_nan: bool = True, is_ordered: bool = True
) -> tuple[Any, Any, Any]:
    """(the order that sorts the elements, the elements sorted, where runs of equal ones begin).

    The order is left out where it is not needed: it takes longer than the elements in order.
    """
    flat = reshape(as_value(x), -1)
    total = shape_of(flat)[0]
    is_known = isinstance(total, Size) or (isinstance(total, int) and total > 0)
    require(is_known, f"{name} of {total} elements")
    order = argsort(flat) if is_ordered else None
    mode = mode_of_known(total)
    ordered = functions.sort(flat) if order is None else functions.take(flat, order, mode=mode)
    if isinstance(total, Size):  # there may be none
        places = iota(total)
        left = functions.take(ordered, functions.maximum(places - 1, 0))
        changes = _changes(left, ordered, equal_nan)
        return order, ordered, functions.logical_or(functions.equal(places, 0), changes)
    left, right = slice_axis(ordered, 0, 0, total - 1), slice_axis(ordered, 0, 1, total)
    changes = _changes(left, right, equal_nan)
    return order, ordered, concatenate([functions.ones((1,), BOOL), changes])


def _changes(left: Value, right: Value, equal_nan: bool) -> Any:
    """Where elements of a sorted vector differ from those before them."""
    differ = functions.not_equal(left, right)
    if common_element(left)[0].is_float and equal_nan:
        differ = functions.logical_and(differ, functions.logical_not(functions.isnan(left)))
    return differ


@cache
def _named_tuple(function: Callable[..., Any]) -> Any:
    """The kind of what a function of NumPy's returns, which NumPy does not publish."""
    return type(function(np.zeros(1)))


def _publish_unique(name: str, numpy_function: Callable[..., Any], *asked: str) -> None:
    def function(x: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Any:
        options = dict.fromkeys(asked, True)
        made = unique(x, size=size, fill_value=fill_value, equal_nan=False, **options)
        return _named_tuple(numpy_function)(*made) if asked else made

    function.__doc__ = f"np.{name}, where NaNs differ: the first `size` distinct values."
    public(numpy_function, name=name)(function)


_publish_unique("unique_values", np.unique_values)
_publish_unique("unique_counts", np.unique_counts, "return_counts")
_publish_unique("unique_inverse", np.unique_inverse, "return_inverse")
_publish_unique("unique_all", np.unique_all, "return_index", "return_inverse", "return_counts")


def _distinct(
    name: str,
    x: ArrayLike,
    keep: Callable[[Any], Any],
    size: int | None,
    fill_value: ArrayLike | None,
) -> tuple[Any, Any]:
    """Of the distinct elements in ascending order those that `keep` marks, and where they were:
    all, or the first `size`, then fill_value (the least element by default)."""
    x = as_value(x)
    if size is None and _is_empty(x):
        return reshape(x, -1), functions.zeros((0,), I64)
    order, ordered, starts = _runs(name, x)
    chosen = functions.logical_and(starts, keep(ordered))
    size = counted(name, chosen) if size is None else size
    places, count = true_places(chosen, size)
    mode = mode_of_known(shape_of(ordered)[0])
    values = functions.take(ordered, places, mode=mode)
    if fill_value is not None:
        values = functions.where(functions.arange(size) < count, values, fill_value)
    return values, functions.take(order, places, mode=mode)


@public(np.union1d)
def union1d(
    ar1: ArrayLike, ar2: ArrayLike, size: int | None = None, fill_value: ArrayLike | None = None
) -> Any:
    """The elements of both, in ascending order and each once: all, or the first `size`."""
    need_size("union1d", size, ar1, ar2)
    return unique(_joined(ar1, ar2), size=size, fill_value=fill_value)


def _joined(a: ArrayLike, b: ArrayLike) -> Any:
    return concatenate([reshape(as_value(a), -1), reshape(as_value(b), -1)])


@public(np.intersect1d)
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The elements in both, in ascending order and each once: all, or the first `size`; with
    `return_indices` also where they are first in each."""
    if not need_size("intersect1d", size, ar1, ar2) and size is None:
        return np.intersect1d(ar1, ar2, assume_unique, return_indices)  # type: ignore[call-overload]
    ar1 = functions.astype(as_value(ar1), common_element(ar1, ar2)[0])
    made, first = _distinct("intersect1d", ar1, lambda v: isin(v, ar2), size, fill_value)
    if not return_indices:
        return made
    found = functions.equal(expand_dims(made, 1), reshape(as_value(ar2), -1))
    second = 0 if 0 in shape_of(found) else functions.argmax(found, axis=1)
    return made, first, broadcast_to(functions.astype(second, I64), shape_of(made))


@public(np.setdiff1d)
def setdiff1d(
    ar1: Tensor,
    ar2: Tensor,
    assume_unique: bool = False,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The elements of ar1 that are not in ar2, in ascending order and each once: all, or the first
    `size`."""
    decided = need_size("setdiff1d", size, ar1, ar2)
    if size is None and not decided:
        return np.setdiff1d(ar1, ar2, assume_unique)
    if decided and assume_unique:  # as they stand
        flat = reshape(as_value(ar1), -1)
        return functions.compress(isin(flat, ar2, invert=True), flat)
    keep = lambda v: isin(v, ar2, invert=True)  # noqa: E731
    return _distinct("setdiff1d", ar1, keep, size, fill_value)[0]


@public(np.setxor1d)
def setxor1d(
    ar1: Tensor,
    ar2: Tensor,
    assume_unique: bool = False,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The elements in one but not in both, in ascending order and each once: all, or the first
    `size`."""
    if not need_size("setxor1d", size, ar1, ar2) and size is None:
        return np.setxor1d(ar1, ar2, assume_unique)
    if size is None:
        return functions.sort(_joined(setdiff1d(ar1, ar2), setdiff1d(ar2, ar1)))

    def keep(v: Any) -> Any:  # a NaN is in neither
        return functions.logical_or(
            functions.not_equal(isin(v, ar1), isin(v, ar2)), functions.not_equal(v, v)
        )

    return _distinct("setxor1d", _joined(ar1, ar2), keep, size, fill_value)[0]


def _is_among(x: Tensor, test: Tensor) -> Any:
    """Whether each element of x stands where the sorted vector would take it in; a NaN does not."""
    last = np.zeros(1, as_dtype(element_of(x)[0]).numpy)  # it is read for what is beyond the rest
    ordered = functions.sort(test)
    place = searchsorted(ordered, x)
    found = functions.take(concatenate([ordered, last]), place, mode="clip")
    return functions.logical_and(functions.less(place, shape_of(test)[0]), found == x)


@public(np.isin)
def isin(x: ArrayLike, test: ArrayLike, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element of x is among the elements of test."""
    x, test = as_value(x), reshape(as_value(test), -1)
    element = common_element(x, test)[0]
    count = shape_of(test)[0]
    is_short = isinstance(count, int) and count <= tuned.compared_values
    if is_short or element.is_complex or element is BOOL:
        found = functions.any(functions.equal(expand_dims(x, -1), test), axis=-1)
    else:
        found = _is_among(functions.astype(x, element), functions.astype(test, element))
    return functions.logical_not(found) if invert else found


# ------------------------------------------------------------------------------------ choices


@public(name="one_hot")
def one_hot(indices: ArrayLike, count: Dimension, dtype: DTypeLike = F32, axis: int = -1) -> Any:
    """A new axis with 1 at the index and 0 elsewhere; an index out of range gives zeros."""
    indices = as_value(indices)
    require(common_element(indices)[0].name in INTEGERS, "one_hot takes integer indices")
    axis = normalise_axis(axis, rank_of(indices) + 1, "one_hot")
    places = functions.arange(count, dtype=common_element(indices)[0])
    shape = (-1,) + (1,) * (rank_of(indices) - axis)
    hot = functions.equal(expand_dims(indices, axis), reshape(places, shape))
    return functions.astype(hot, as_dtype(dtype))


@public(np.choose, method=True)
def choose(a: ArrayLike, choices: ArrayLike, mode: str = "raise") -> Any:
    """From a list of arrays the element of the one that a names, position by position."""
    parts = choices if isinstance(choices, tuple | list) else functions.unstack(choices)
    a, *parts = functions.broadcast_arrays(a, *parts)
    picked = functions.take_along_axis(functions.stack(parts), expand_dims(a, 0), 0, mode)
    return functions.squeeze(picked, 0)


@public(np.select)
def select(conditions: Any, choices: Any, default: ArrayLike = 0) -> Any:
    """The choice of the first condition that holds, or the default."""
    require(len(conditions) == len(choices) > 0, "select: as many conditions as choices")
    made = default
    for condition, choice in zip(reversed(conditions), reversed(choices)):
        made = functions.where(condition, choice, made)
    return made


@public(np.compress, method=True)
def compress(condition: Tensor, x: Tensor, axis: int | None = None) -> Any:
    """Sub-arrays along an axis where a condition is true."""
    return functions.take(x, functions.flatnonzero(condition), axis=axis)
