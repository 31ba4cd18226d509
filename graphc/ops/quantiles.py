"""Quantiles: sorted rows read at fractional places."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.types import I64, Dim
from graphc.ops.arrange import moveaxis
from graphc.ops.dims import rank_of, shape_of
from graphc.ops.registry import normalise_axis, require
from graphc.ops.shape import reshape
from graphc.ops.slicing import slice_axis
from graphc.ops.sorting import sort
from graphc.ops.value import as_value, common_element, functions, public

_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def _interpolated(ordered: Any, place: Any, method: str) -> Any:
    """Rows of sorted x[..., extent] read at fractional places."""
    low, high = functions.floor(place), functions.ceil(place)
    if method in ("lower", "higher", "nearest"):
        picked = {"lower": low, "higher": high}.get(method, functions.rint(place))
        return _read(ordered, picked)
    below, above = _read(ordered, low), _read(ordered, high)
    weight = place - low if method == "linear" else 0.5 * functions.not_equal(low, high)
    weight = functions.astype(weight, common_element(ordered)[0])
    return below + (above - below) * weight


def _read(ordered: Any, places: Any) -> Any:
    return functions.take(ordered, functions.astype(places, I64), axis=-1, mode="clip")


@public(np.quantile)
def quantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, **_no: Any
) -> Any:
    """Quantiles along axes; q may be traced. The axes of q come first; NaN spreads."""
    require(method in _METHODS, f"quantile: no method {method!r}", hint=", ".join(_METHODS))
    x, q = as_value(x), as_value(q)
    element = common_element(x)[0]
    x = x if element.is_float else functions.astype(x, np.float64)
    rows, kept = _rows_over(x, axis)
    extent = shape_of(rows)[-1]
    if isinstance(extent, Dim) or extent == 0:
        raise TypeRuleError(f"quantile over {extent} elements")
    ordered = sort(rows)
    made = _interpolated(ordered, functions.astype(q, np.float64) * float(extent - 1), method)
    rank = rank_of(rows) - 1
    greatest = slice_axis(ordered, rank, extent - 1, extent)
    greatest = reshape(greatest, (*shape_of(rows)[:-1], *(1,) * rank_of(q)))
    made = functions.where(functions.isnan(greatest), greatest, made)
    made = moveaxis(made, tuple(range(rank, rank + rank_of(q))), tuple(range(rank_of(q))))
    return reshape(made, (*shape_of(q), *kept)) if keepdims else made


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
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, **_no: Any
) -> Any:
    """quantile with q in 0..100."""
    q = as_value(q)
    return quantile(x, functions.true_divide(q, 100.0), axis, method, keepdims)
