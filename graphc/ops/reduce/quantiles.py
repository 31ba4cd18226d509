"""Quantiles: sorted rows read at fractional places."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.promotion import promote, weak_promote
from graphc.ir.types import F64, I64, Dim, DType
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

_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def _interpolated(ordered: Any, place: Any, method: str, element: DType) -> Any:
    """Rows of sorted x[..., extent] read at fractional places, with interpolation in a dtype."""
    low, high = functions.floor(place), functions.ceil(place)
    if method in ("lower", "higher", "nearest"):
        picked = {"lower": low, "higher": high}.get(method, functions.rint(place))
        return _read(ordered, picked)
    below, above = (functions.astype(_read(ordered, p), element) for p in (low, high))
    weight = place - low if method == "linear" else 0.5 * functions.not_equal(low, high)
    weight, gap = functions.astype(weight, element), above - below
    made = functions.where(weight >= 0.5, above - gap * (1 - weight), below + gap * weight)
    return functions.where(functions.equal(below, above), below, made)  # equal infinities


def _read(ordered: Any, places: Any) -> Any:
    return functions.take(ordered, functions.astype(places, I64), axis=-1, mode="clip")


@public(np.quantile)
def quantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, **options: Any
) -> Any:
    """Quantiles along axes; q may be traced. The axes of q come first; NaN spreads."""
    options.pop("overwrite_input", None)
    require_options("quantile", options)
    require(method in _METHODS, f"quantile: no method {method!r}", hint=", ".join(_METHODS))
    _check_range(q)
    element = weak_promote(common_element(x)[0], F64)
    if not is_python_number(q):  # a list of them counts as an array of f64
        element = promote(element, common_element(np.asarray(q) if isinstance(q, list) else q)[0])
    x, q = as_value(x), as_value(q)
    rows, kept = _rows_over(x, axis)
    extent = shape_of(rows)[-1]
    if isinstance(extent, Dim) or extent == 0:
        raise TypeRuleError(f"quantile over {extent} elements")
    ordered = sort(rows)
    made = _interpolated(
        ordered, functions.astype(q, np.float64) * float(extent - 1), method, element
    )
    rank = rank_of(rows) - 1
    greatest = slice_axis(ordered, rank, extent - 1, extent)
    greatest = reshape(greatest, (*shape_of(rows)[:-1], *(1,) * rank_of(q)))
    if common_element(greatest)[0].is_float:
        made = functions.where(functions.isnan(greatest), greatest, made)
    made = moveaxis(made, tuple(range(rank, rank + rank_of(q))), tuple(range(rank_of(q))))
    return reshape(made, (*shape_of(q), *kept)) if keepdims else made


def _check_range(q: Any) -> None:
    if not isinstance(q, Value):
        places = np.asarray(q)
        legal = bool(((places >= 0) & (places <= 1)).all())
        require(legal, "quantiles are in 0..1, percentiles in 0..100")


def _rows_over(x: Any, axis: Any) -> tuple[Any, tuple[Any, ...]]:
    """x with the given axes merged into the last one, and its shape with those axes as 1."""
    rank, dims = rank_of(x), shape_of(x)
    given = range(rank) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [normalise_axis(a, rank, "quantile") for a in given]
    rest = [k for k in range(rank) if k not in axes]
    moved = functions.transpose(x, [*rest, *axes])
    merged = reshape(moved, (*(dims[k] for k in rest), -1))
    return merged, tuple(1 if k in axes else d for k, d in enumerate(dims))


@public(np.percentile)
def percentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, **options: Any
) -> Any:
    """quantile with q in 0..100."""
    options.pop("overwrite_input", None)
    require_options("percentile", options)
    part = functions.true_divide(q, 100.0) if isinstance(q, Value) else np.divide(q, 100.0)
    part = float(part) if is_python_number(q) else part
    return quantile(x, part, axis, method, keepdims)
