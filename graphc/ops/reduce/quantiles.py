"""Quantiles: sorted rows read at fractional places. The median stands in `statistics`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.promotion import promote, weak_promote
from graphc.ir.sizes import is_open
from graphc.ir.types import F64, I64, Dim, DType
from graphc.ops.record.arguments import ArrayLike, Axes, Tensor
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import normalise_axis, require, require_options
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    functions,
    is_python_number,
    public,
)
from graphc.ops.shape.manipulation import moveaxis
from graphc.ops.shape.shape import reshape
from graphc.ops.shape.slicing import slice_axis
from graphc.ops.sort.sorting import sort

# Between which places of n sorted elements q lies: (n - 1) q, or n q + a + q (1 - a - b) - 1.
_PICKED = ("lower", "higher", "nearest", "midpoint")
_PLOTTED = {
    "linear": (1.0, 1.0),
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
_METHODS = (*_PLOTTED, *_PICKED)
_NOWHERE = 2.0**62  # behind the last element of any array


def _place(q: Tensor, count: Any, method: str) -> Any:
    """The fractional place of a quantile among a number of sorted elements."""
    before, behind = _PLOTTED.get(method, (1.0, 1.0))
    if before == behind == 1:
        return q * (count - 1.0)
    made = q * count + (before + q * (1 - before - behind)) - 1
    return functions.clip(made, 0.0, count - 1.0)


def _interpolated(
    ordered: ArrayLike,
    place: ArrayLike,
    method: str,
    element: DType,
    read: Callable[[Any, Any], Any],
) -> Any:
    """Rows of sorted x[..., extent] read at fractional places, with interpolation in a dtype."""
    low, high = functions.floor(place), functions.ceil(place)
    if method in ("lower", "higher", "nearest"):
        picked = {"lower": low, "higher": high}.get(method, functions.rint(place))
        return read(ordered, picked)
    below, above = (functions.astype(read(ordered, p), element) for p in (low, high))
    halves = method == "midpoint"
    weight = 0.5 * functions.not_equal(low, high) if halves else place - low
    weight, gap = functions.astype(weight, element), above - below
    made = functions.where(weight >= 0.5, above - gap * (1 - weight), below + gap * weight)
    return functions.where(functions.equal(below, above), below, made)  # equal infinities


def _reading(take: Callable[..., Any], q: Any) -> tuple[Callable[[Any, Any], Any], bool]:
    """How elements at places are read, and whether a run has to check q."""
    is_traced = isinstance(q, Value)
    mode = "raise" if is_traced else "clip"
    return lambda rows, places: take(rows, functions.astype(places, I64), -1, mode=mode), is_traced


def _checked_places(places: Any, q: Any, behind: Any) -> Any:
    """The places, or the one behind the last, where reading stops the run, of a q beyond 0..1."""
    legal = functions.logical_and(functions.greater_equal(q, 0), functions.less_equal(q, 1))
    return functions.where(legal, places, behind)


def _checked(
    name: str, x: ArrayLike, q: ArrayLike, method: str, options: dict[str, Any]
) -> tuple[Any, ...]:
    """(x, q, the dtype of the quantiles)."""
    options.pop("overwrite_input", None)
    require(options.pop("weights", None) is None, f"{name} with weights is not available")
    require_options(name, options)
    require(method in _METHODS, f"{name}: no method {method!r}", hint=", ".join(_METHODS))
    _check_range(q)
    element = weak_promote(common_element(x)[0], F64)
    if not is_python_number(q):  # a list of them counts as an array of f64
        element = promote(element, common_element(np.asarray(q) if isinstance(q, list) else q)[0])
    return as_value(x), as_value(q), element


@public(np.quantile)
def quantile(
    x: Any,
    q: Any,
    axis: Any = None,
    method: str = "linear",
    keepdims: bool = False,
    **options: object,
) -> Any:
    """Quantiles along axes; q may be traced. The axes of q come first; NaN spreads.

    A q outside of 0..1 is an error: where it is traced, a RunError of an index out of range.
    """
    read, is_traced = _reading(functions.take, q)
    x, q, element = _checked("quantile", x, q, method, options)
    rows, kept = _rows_over(x, axis)
    extent = shape_of(rows)[-1]
    if isinstance(extent, Dim) or extent == 0:
        raise TypeRuleError(f"quantile over {extent} elements")
    ordered = sort(rows)
    count = functions.astype(as_value(extent), F64) if is_open((extent,)) else float(extent)
    place = _place(functions.astype(q, np.float64), count, method)
    place = _checked_places(place, q, count) if is_traced else place
    made = _interpolated(ordered, place, method, element, read)
    rank = rank_of(rows) - 1
    greatest = slice_axis(ordered, rank, extent - 1, extent)
    greatest = reshape(greatest, (*shape_of(rows)[:-1], *(1,) * rank_of(q)))
    if common_element(greatest)[0].is_float:
        made = functions.where(functions.isnan(greatest), greatest, made)
    return _with_q_first(made, q, kept if keepdims else None)


def _with_q_first(made: Value, q: Value, kept: tuple[Any, ...] | None) -> Any:
    """The axes of q, which come last, moved to the front; the others as `kept` says."""
    rank = rank_of(made) - rank_of(q)
    made = moveaxis(made, tuple(range(rank, rank + rank_of(q))), tuple(range(rank_of(q))))
    return made if kept is None else reshape(made, (*shape_of(q), *kept))


@public(np.nanquantile)
def nanquantile(
    x: Any,
    q: Any,
    axis: Any = None,
    method: str = "linear",
    keepdims: bool = False,
    **options: object,
) -> Any:
    """Quantiles of what is not NaN; NaN where nothing is."""
    if not common_element(x)[0].is_float:
        if 0 not in shape_of(as_value(x)):
            return quantile(x, q, axis, method, keepdims, **options)
        x = functions.astype(x, F64)
    read, is_traced = _reading(functions.take_along_axis, q)
    x, q, element = _checked("nanquantile", x, q, method, options)
    rows, kept = _rows_over(x, axis)
    if shape_of(rows)[-1] == 0:
        rows = functions.full((*shape_of(rows)[:-1], 1), math.nan, common_element(x)[0])
    valid = functions.logical_not(functions.isnan(rows))
    count = functions.astype(functions.sum(valid, -1, keepdims=True), np.float64)
    flat = functions.astype(reshape(q, -1), np.float64)
    place = _place(flat, functions.maximum(count, 1), method)
    place = _checked_places(place, flat, _NOWHERE) if is_traced else place
    made = _interpolated(sort(rows), place, method, element, read)
    made = reshape(made, (*shape_of(rows)[:-1], *shape_of(q)))
    return _with_q_first(made, q, kept if keepdims else None)


def _check_range(q: Any) -> None:
    if not isinstance(q, Value):
        places = np.asarray(q)
        legal = bool(((places >= 0) & (places <= 1)).all())
        require(legal, "quantiles are in 0..1, percentiles in 0..100")


def _rows_over(x: Value, axis: Axes) -> tuple[Any, tuple[Any, ...]]:
    """x with the given axes merged into the last one, and its shape with those axes as 1."""
    rank, dims = rank_of(x), shape_of(x)
    given = range(rank) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [normalise_axis(a, rank, "quantile") for a in given]
    rest = [k for k in range(rank) if k not in axes]
    moved = functions.transpose(x, [*rest, *axes])
    merged = reshape(moved, (*(dims[k] for k in rest), math.prod(dims[k] for k in axes)))
    return merged, tuple(1 if k in axes else d for k, d in enumerate(dims))


def _hundredth(q: Value) -> Any:
    part = functions.true_divide(q, 100.0) if isinstance(q, Value) else np.divide(q, 100.0)
    return float(part) if is_python_number(q) else part


@public(np.percentile)
def percentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, **options: Any
) -> Any:
    """quantile with q in 0..100."""
    return quantile(x, _hundredth(q), axis, method, keepdims, **options)


@public(np.nanpercentile)
def nanpercentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, **options: Any
) -> Any:
    """nanquantile with q in 0..100."""
    return nanquantile(x, _hundredth(q), axis, method, keepdims, **options)
