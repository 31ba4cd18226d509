"""Reductions, searches, sorting, running sums, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.operators.shapes import axis_of, list_of, of_rows
from graphc.formats.torch.promotion import as_float, cast, category, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.frontend.trace.folds import accumulate
from graphc.ops.record.value import functions as f


def axes(x: Any, dim: Any) -> tuple[int, ...]:
    """The axes that are reduced; none or an empty list are all of them."""
    given = [] if dim is None else list_of(dim)
    if not x.ndim:
        return ()
    return axes_of(given, x.ndim) if given else tuple(range(x.ndim))


def _reduced(function: Callable[..., Any], x: Any, dim: Any, keepdim: bool) -> Any:
    which = axes(x, dim)
    return function(x, axis=which, keepdims=keepdim) if which else x.copy()


def _total_type(x: Any, dtype: Element | None) -> Any:
    kind = dtype_of(x)
    return element_of(dtype, kind if category(kind) > 1 else np.dtype(np.int64))


def _totals(name: str) -> Callable[..., Any]:
    """Small integers stay as small as asked for, where NumPy adds up in 64 bits."""

    def run(x: Any, dim: Any = None, keepdim: bool = False, dtype: Element | None = None) -> Any:
        kind = _total_type(x, dtype)
        return cast(_reduced(getattr(f, name), cast(x, kind), dim, keepdim), kind)

    return run


sum_ = aten("sum")(_totals("sum"))
aten("nansum")(_totals("nansum"))
aten("prod")(_totals("prod"))


@aten("mean")
def mean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Element | None = None) -> Any:
    return _reduced(f.mean, cast(x, element_of(dtype, dtype_of(x))), dim, keepdim)


def _spread(name: str) -> Callable[..., Any]:
    def spread(
        x: Any,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        correction: Any = None,
    ) -> Any:
        less = (1 if unbiased else 0) if correction is None else correction
        which = axes(x, dim)
        return getattr(f, name)(x, axis=which, keepdims=keepdim, correction=less)

    return spread


aten("var")(_spread("var"))
aten("std")(_spread("std"))


@aten("var_mean")
def var_mean(
    x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None
) -> Any:
    made = _spread("var")(x, dim, unbiased, keepdim, correction)
    return made, _reduced(f.mean, x, dim, keepdim)


@aten("std_mean")
def std_mean(
    x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None
) -> Any:
    made = _spread("std")(x, dim, unbiased, keepdim, correction)
    return made, _reduced(f.mean, x, dim, keepdim)


aten("amax")(lambda x, dim=None, keepdim=False: _reduced(f.max, x, dim, keepdim))
aten("amin")(lambda x, dim=None, keepdim=False: _reduced(f.min, x, dim, keepdim))
aten("any", "_is_any_true")(
    lambda x, dim=None, keepdim=False: _reduced(f.any, cast(x, np.dtype(bool)), dim, keepdim)
)
aten("all", "_is_all_true")(
    lambda x, dim=None, keepdim=False: _reduced(f.all, cast(x, np.dtype(bool)), dim, keepdim)
)


@aten("aminmax")
def aminmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _reduced(f.min, x, dim, keepdim), _reduced(f.max, x, dim, keepdim)


@aten("count_nonzero")
def count_nonzero(x: Any, dim: Any = None) -> Any:
    return f.count_nonzero(x, axis=axes(x, dim))


def _searched(name: str) -> Callable[..., Any]:
    def search(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if not x.ndim:
            return f.zeros((), np.int64)
        if dim is None:
            made = getattr(f, name)(f.reshape(x, (math.prod(x.shape),)), axis=0)
            return f.reshape(made, (1,) * x.ndim) if keepdim else made
        return getattr(f, name)(x, axis=axis_of(dim, x.ndim), keepdims=keepdim)

    return search


aten("argmax")(_searched("argmax"))
aten("argmin")(_searched("argmin"))


def _extreme(name: str) -> Callable[..., Any]:
    """max and min: of everything, of pairs, or along an axis with the place where it is."""

    def extreme(x: Any, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
        if other is not None:
            from graphc.formats.torch.promotion import promoted

            return getattr(f, f"{name}imum")(*promoted(x, other))
        if dim is None:
            return _reduced(getattr(f, name), x, None, False)
        if not x.ndim:
            return x.copy(), f.zeros((), np.int64)
        places = getattr(f, f"arg{name}")(x, axis=axis_of(dim, x.ndim), keepdims=keepdim)
        return _reduced(getattr(f, name), x, dim, keepdim), places

    return extreme


aten("max")(_extreme("max"))
aten("min")(_extreme("min"))


@aten("logsumexp")
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return _reduced(f.logsumexp, as_float(x), dim, keepdim)


@aten("norm", "linalg_vector_norm")
def norm(
    x: Any,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    ord: Any = None,
    dtype: Element | None = None,
) -> Any:
    order = ord if ord is not None else 2 if p is None else p
    held = cast(as_float(x), element_of(dtype, dtype_of(as_float(x))))
    return f.vector_norm(held, axis=axes(x, dim), keepdims=keepdim, ord=float(order))


@aten("linalg_norm")
def linalg_norm(
    x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Element | None = None
) -> Any:
    """Of vectors, or of matrices where an order is asked for and two axes are left."""
    given = list_of(dim) if dim is not None else [*range(x.ndim)]
    if ord is None or len(given) == 1:
        return norm(x, 2, dim, keepdim, ord, dtype)
    held = cast(as_float(x), element_of(dtype, dtype_of(as_float(x))))
    return f.norm(held, ord, tuple(given), keepdim)


@aten("dist")
def dist(x: Any, other: Any, p: Any = 2) -> Any:
    return norm(f.subtract(x, other), p)


def _at_places(x: Any, places: Any, axis: int, keepdim: bool) -> Any:
    """The elements at one place of each row, and the places."""
    values = f.take_along_axis(x, places, axis)
    return (values, places) if keepdim else (f.squeeze(values, axis), f.squeeze(places, axis))


def _median(whole: bool) -> Callable[..., Any]:
    """The lower of the two in the middle, as PyTorch has it: NaN if any is, or of the others."""

    @of_rows
    def run(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return f.reshape(run(f.reshape(x, (-1,)), 0)[0], ())
        axis = axis_of(dim, x.ndim)
        refuse(x.shape[axis] != 0, "the median of no elements")
        nan = f.isnan(x)
        count = f.sum(f.astype(f.logical_not(nan), np.int64), axis=axis, keepdims=True)
        middle = f.maximum(f.subtract(count, 1), 0) // 2
        places = f.take_along_axis(f.argsort(x, axis=axis), middle, axis)
        if whole:
            first = f.argmax(f.astype(nan, np.int8), axis=axis, keepdims=True)
            places = f.where(f.equal(count, x.shape[axis]), places, first)
        return _at_places(x, places, axis, keepdim)

    return run


aten("median.dim", "median")(_median(whole=True))
aten("nanmedian.dim", "nanmedian")(_median(whole=False))


@aten("mode")
@of_rows
def mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the elements that are met most often, and the last place of it."""
    axis = axis_of(dim, x.ndim)
    refuse(x.shape[axis] != 0, "the mode of no elements")
    rows = f.moveaxis(x, axis, -1)
    order = f.argsort(rows, axis=-1)
    held = f.take_along_axis(rows, order, -1)
    numbers = f.arange(x.shape[axis], dtype=np.int64)
    new = f.not_equal(held, f.roll(held, 1, -1))
    starts = f.cummax(f.where(new, numbers, 0), -1)
    longest = f.argmax(f.subtract(numbers, starts), axis=-1, keepdims=True)
    places = f.moveaxis(f.take_along_axis(order, longest, -1), -1, axis)
    return _at_places(x, places, axis, keepdim)


# ------------------------------------------------------------------------------------ running


def _running(name: str) -> Callable[..., Any]:
    def run(x: Any, dim: int, dtype: Element | None = None) -> Any:
        kind = _total_type(x, dtype)
        held = cast(x, kind)
        made = getattr(f, name)(held, axis_of(dim, x.ndim)) if x.ndim else held.copy()
        return cast(made, kind)

    return run


cumsum = aten("cumsum")(_running("cumsum"))
aten("cumprod")(_running("cumprod"))


@aten("logcumsumexp")
@of_rows
def logcumsumexp(x: Any, dim: int) -> Any:
    """Each sum from the one before it, as a row's maximum may be far above its beginning.

    In 64 bits, as in PyTorch: each step rounds.
    """
    refuse(category(dtype_of(x)) < 3, "running sums of exponentials of complex numbers")
    wide = cast(x, np.dtype(np.float64))
    made = accumulate(np.logaddexp, wide, axis_of(dim, x.ndim))
    return cast(made, dtype_of(as_float(x)))


def _cumulative(name: str) -> Callable[..., Any]:
    """cummax and cummin: the value so far, and the last place where it was met.

    Each NaN meets those before it.
    """

    def run(x: Any, dim: int) -> Any:
        axis = axis_of(dim, x.ndim)
        values = getattr(f, name)(x, axis)
        column = [-1 if k == axis else 1 for k in range(x.ndim)]
        numbers = f.reshape(f.arange(x.shape[axis], dtype=np.int64), column)
        met = f.where(f.equal(x, values) | f.isnan(x), numbers, -1)
        return values, f.cummax(met, axis)

    return run


aten("cummax")(of_rows(_cumulative("cummax")))
aten("cummin")(of_rows(_cumulative("cummin")))


@aten("diff")
def diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    return f.diff(x, n, axis_of(dim, x.ndim), prepend, append)


# ------------------------------------------------------------------------------------ sorting


@aten("sort")
@of_rows
def sort(x: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    axis = axis_of(dim, x.ndim)
    order = f.argsort(x, axis=axis, descending=descending)
    return f.take_along_axis(x, order, axis), order


@aten("argsort")
@of_rows
def argsort(x: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return f.argsort(x, axis=axis_of(dim, x.ndim), descending=descending)


@aten("msort")
def msort(x: Any) -> Any:
    return f.sort(x, axis=0)


@aten("topk")
@of_rows
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    axis = axis_of(dim, x.ndim)
    refuse(0 <= k <= x.shape[axis], f"the first {k} of {x.shape[axis]}")
    values, places = f.topk(x, k, axis=axis, largest=largest)
    return values, f.astype(places, np.int64)


@aten("kthvalue")
@of_rows
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    axis = axis_of(dim, x.ndim)
    refuse(1 <= k <= x.shape[axis], f"value {k} of {x.shape[axis]}")
    part = (*(slice(None),) * axis, slice(k - 1, k))
    return _at_places(x, f.getitem(f.argsort(x, axis=axis), part), axis, keepdim)


@aten("quantile")
def quantile(
    x: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    axis = None if dim is None else axis_of(dim, x.ndim)
    return f.quantile(x, q, axis, interpolation, keepdim)


@aten("searchsorted")
def searchsorted(
    sorted_sequence: Any,
    x: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Places in one sorted row, or in the row that each row of x has."""
    if sorter is not None:
        sorted_sequence = f.take_along_axis(sorted_sequence, sorter, -1)
    side = side or ("right" if right else "left")
    if sorted_sequence.ndim == 1:
        made = f.searchsorted(sorted_sequence, x, side=side)
    else:
        row, wanted = f.expand_dims(sorted_sequence, -2), f.expand_dims(x, -1)
        behind = (f.greater if side == "right" else f.greater_equal)(row, wanted)
        made = f.sum(f.logical_not(behind), axis=-1)
    return f.astype(made, np.int32 if out_int32 else np.int64)


@aten("bucketize")
def bucketize(x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(boundaries, x, out_int32, right)


@aten("bincount")
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    from graphc.formats.deciding_values import number

    count = max(int(number(f.max(x))) + 1 if math.prod(x.shape) else 0, minlength)
    return f.bincount(x, weights, length=count)


def equal_ranges(x: Any, bins: Any, ends: Any) -> Any:
    """The edges of so many ranges between two ends, or of x; edges are left as they are.

    Those of f32 come by steps of f32 from the nearer end, rounded once: points may lie on them.
    """
    if not isinstance(bins, int):
        return bins
    if dtype_of(x) != np.float32:
        return f.histogram_bin_edges(x, bins, ends)
    low, high = f.unstack(f.histogram_bin_edges(x, 1, ends))
    step = f.divide(f.subtract(high, low), np.float32(bins))
    low, high, step = (cast(v, np.dtype(np.float64)) for v in (low, high, step))
    places = np.arange(bins + 1.0)
    first, last = f.add(low, step * places), f.subtract(high, step * (bins - places))
    return cast(f.where(places < (bins + 1) // 2, first, last), dtype_of(x))


@aten("histogram.bin_ct")
def histogram(
    x: Any, bins: int = 100, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    ends = None if range is None else tuple(range)
    counts, edges = f.histogram(x, equal_ranges(x, bins, ends), None, density, weight)
    return cast(counts, dtype_of(x)), cast(edges, dtype_of(x))


@aten("histc")
def histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many elements are in each of equal ranges; those outside and NaN in none."""
    refuse(bins > 0 and min <= max, f"{bins} ranges from {min} to {max}")
    flat = cast(f.reshape(x, (-1,)), np.promote_types(dtype_of(x), np.float32))
    low, high = (f.min(flat), f.max(flat)) if min == max else (min, max)
    if min == max:  # one value alone is in the middle of its ranges
        alone = f.equal(low, high)
        low, high = f.where(alone, low - 1, low), f.where(alone, high + 1, high)
    inside = (flat >= low) & (flat <= high)
    places = f.floor((flat - low) * bins / (high - low))
    places = f.where(inside, f.minimum(places, bins - 1), bins).astype(np.int64)
    counts = f.index_update(f.zeros((bins + 1,), np.int64), places, 1, "add")
    return cast(counts[:bins], dtype_of(x))


# ------------------------------------------------------------------------------------ softmax


@aten("softmax", "_softmax")
@of_rows
def softmax(x: Any, dim: int, dtype: Element | None = None, half_to_float: bool = False) -> Any:
    return f.softmax(cast(x, element_of(dtype, dtype_of(x))), axis_of(dim, x.ndim))


@aten("log_softmax", "_log_softmax")
@of_rows
def log_softmax(x: Any, dim: int, dtype: Element | None = None, half_to_float: bool = False) -> Any:
    return f.log_softmax(cast(x, element_of(dtype, dtype_of(x))), axis_of(dim, x.ndim))


@aten("_safe_softmax")
@of_rows
def safe_softmax(x: Any, dim: int, dtype: Element | None = None) -> Any:
    """A row that is -inf everywhere gives zeros."""
    axis = axis_of(dim, x.ndim)
    none = f.all(f.equal(x, np.asarray(-np.inf, dtype_of(x))), axis=axis, keepdims=True)
    return f.where(none, np.zeros((), dtype_of(x)), f.softmax(x, axis))
