"""Reductions, searches, sorting, running sums, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.operators.shapes import axis_of, list_of
from graphc.formats.torch.promotion import as_float, cast, category, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
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
aten("any")(
    lambda x, dim=None, keepdim=False: _reduced(f.any, cast(x, np.dtype(bool)), dim, keepdim)
)
aten("all")(
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


@aten("median.dim", "median")
def median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two in the middle, as PyTorch has it."""
    flat = f.reshape(x, (math.prod(x.shape),)) if dim is None else x
    axis = 0 if dim is None else axis_of(dim, x.ndim)
    middle = (flat.shape[axis] - 1) // 2
    order = f.argsort(flat, axis=axis)
    part = (*(slice(None),) * axis, slice(middle, middle + 1))
    places = f.getitem(order, part)
    values = f.take_along_axis(flat, places, axis)
    if dim is None:
        return f.reshape(values, ())
    return (values, places) if keepdim else (f.squeeze(values, axis), f.squeeze(places, axis))


# ------------------------------------------------------------------------------------ running


def _running(name: str) -> Callable[..., Any]:
    def run(x: Any, dim: int, dtype: Element | None = None) -> Any:
        kind = _total_type(x, dtype)
        held = cast(x, kind)
        made = getattr(f, name)(held, axis_of(dim, x.ndim)) if x.ndim else held.copy()
        return cast(made, kind)

    return run


aten("cumsum")(_running("cumsum"))
aten("cumprod")(_running("cumprod"))


@aten("logcumsumexp")
def logcumsumexp(x: Any, dim: int) -> Any:
    axis = axis_of(dim, x.ndim)
    top = f.max(x, axis=axis, keepdims=True)
    return f.add(f.log(f.cumsum(f.exp(f.subtract(x, top)), axis)), top)


def _cumulative(name: str) -> Callable[..., Any]:
    """cummax and cummin: the value so far, and the last place where it was met."""

    def run(x: Any, dim: int) -> Any:
        axis = axis_of(dim, x.ndim)
        values = getattr(f, name)(x, axis)
        column = [-1 if k == axis else 1 for k in range(x.ndim)]
        numbers = f.reshape(f.arange(x.shape[axis], dtype=np.int64), column)
        met = f.where(f.equal(x, values), numbers, -1)
        return values, f.cummax(met, axis)

    return run


aten("cummax")(_cumulative("cummax"))
aten("cummin")(_cumulative("cummin"))


@aten("diff")
def diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    return f.diff(x, n, axis_of(dim, x.ndim), prepend, append)


# ------------------------------------------------------------------------------------ sorting


@aten("sort")
def sort(x: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    axis = axis_of(dim, x.ndim)
    order = f.argsort(x, axis=axis, descending=descending)
    return f.take_along_axis(x, order, axis), order


@aten("argsort")
def argsort(x: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return f.argsort(x, axis=axis_of(dim, x.ndim), descending=descending)


@aten("msort")
def msort(x: Any) -> Any:
    return f.sort(x, axis=0)


@aten("topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    axis = axis_of(dim, x.ndim)
    refuse(0 <= k <= x.shape[axis], f"the first {k} of {x.shape[axis]}")
    values, places = f.topk(x, k, axis=axis, largest=largest)
    return values, f.astype(places, np.int64)


@aten("kthvalue")
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    axis = axis_of(dim, x.ndim)
    refuse(1 <= k <= x.shape[axis], f"value {k} of {x.shape[axis]}")
    part = (*(slice(None),) * axis, slice(k - 1, k))
    places = f.getitem(f.argsort(x, axis=axis), part)
    values = f.take_along_axis(x, places, axis)
    return (values, places) if keepdim else (f.squeeze(values, axis), f.squeeze(places, axis))


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
    refuse(sorter is None, "an order of its own is not supported")
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
def softmax(x: Any, dim: int, dtype: Element | None = None, half_to_float: bool = False) -> Any:
    return f.softmax(cast(x, element_of(dtype, dtype_of(x))), axis_of(dim, x.ndim))


@aten("log_softmax", "_log_softmax")
def log_softmax(x: Any, dim: int, dtype: Element | None = None, half_to_float: bool = False) -> Any:
    return f.log_softmax(cast(x, element_of(dtype, dtype_of(x))), axis_of(dim, x.ndim))


@aten("_safe_softmax")
def safe_softmax(x: Any, dim: int, dtype: Element | None = None) -> Any:
    """A row that is -inf everywhere gives zeros."""
    axis = axis_of(dim, x.ndim)
    none = f.all(f.equal(x, np.asarray(-np.inf, dtype_of(x))), axis=axis, keepdims=True)
    return f.where(none, np.zeros((), dtype_of(x)), f.softmax(x, axis))
