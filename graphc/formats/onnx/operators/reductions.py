"""Reductions, arg-reductions, cumulative sums, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, ints, number, refuse
from graphc.formats.onnx.table import operator
from graphc.ops.record.value import functions as f


def _square_sum(x: Any, **how: Any) -> Any:
    return f.sum(f.multiply(x, x), **how)


def _integer_mean(x: Any, **how: Any) -> Any:
    return f.astype(f.mean(x, **how), x.dtype)


_REDUCE: dict[str, Callable[..., Any]] = {
    "ReduceSum": lambda x, **how: f.sum(x, **how),
    "ReduceProd": lambda x, **how: f.prod(x, **how),
    "ReduceMean": _integer_mean,
    "ReduceMax": lambda x, **how: f.max(x, **how),
    "ReduceMin": lambda x, **how: f.min(x, **how),
    "ReduceL1": lambda x, **how: f.sum(f.abs(x), **how),
    "ReduceL2": lambda x, **how: f.astype(f.sqrt(_square_sum(x, **how)), x.dtype),
    "ReduceLogSum": lambda x, **how: f.log(f.sum(x, **how)),
    "ReduceLogSumExp": lambda x, **how: f.logsumexp(x, **how),
    "ReduceSumSquare": _square_sum,
}


def _identity(name: str, kind: np.dtype[Any]) -> Any:
    """What reducing nothing gives: largest and smallest numbers for a minimum and a maximum."""
    low, high = (
        (-np.inf, np.inf)
        if kind.kind not in "iub"
        else (False, True)
        if kind.kind == "b"
        else (np.iinfo(kind).min, np.iinfo(kind).max)
    )
    nothing = {"ReduceMax": low, "ReduceMin": high, "ReduceLogSumExp": -np.inf}
    return nothing.get(name)


def _reduced(name: str, x: Any, axes: Any, keepdims: int, noop: int) -> Any:
    if not axes:
        if noop:
            return _REDUCE[name](f.expand_dims(x, 0), axis=0) if name != "ReduceSum" else x
        axes = range(x.ndim)
    which = axes_of(axes, x.ndim)
    empty = any(x.shape[axis] == 0 for axis in which)
    how: dict[str, Any] = {"axis": which, "keepdims": bool(keepdims)}
    if empty and (fill := _identity(name, np.dtype(x.dtype))) is not None:
        shape = f.sum(f.zeros(x.shape, np.float32), **how).shape
        return f.full(shape, fill, dtype=x.dtype)
    if np.dtype(x.dtype).kind == "b":
        return f.astype(_REDUCE[name](f.astype(x, np.uint8), **how), bool)
    made = _REDUCE[name](x, **how)
    return f.astype(made, x.dtype)


def _by_input(name: str) -> Callable[..., Any]:
    def reduce(
        x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        return _reduced(name, x, () if axes is None else ints(axes), keepdims, noop_with_empty_axes)

    return reduce


def _by_attribute(name: str) -> Callable[..., Any]:
    def reduce(x: Any, *, axes: tuple[int, ...] = (), keepdims: int = 1) -> Any:
        return _reduced(name, x, axes, keepdims, 0)

    return reduce


for _name in _REDUCE:
    operator(_name, since=13 if _name == "ReduceSum" else 18)(_by_input(_name))
    operator(_name)(_by_attribute(_name))


def _arg(name: str) -> Callable[..., Any]:
    def search(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        (axis,) = axes_of([axis], x.ndim)
        turned = f.flip(x, axis) if select_last_index else x
        found = f.astype(getattr(f, name)(turned, axis=axis, keepdims=bool(keepdims)), np.int64)
        return f.subtract(x.shape[axis] - 1, found) if select_last_index else found

    return search


operator("ArgMax")(_arg("argmax"))
operator("ArgMin")(_arg("argmin"))


def _cumulative(name: str) -> Callable[..., Any]:
    def accumulate(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        (which,) = axes_of([number(axis)], x.ndim)
        made = getattr(f, name)(x, which, reverse=bool(reverse))
        if exclusive:
            first = 0 if name == "cumsum" else 1
            made = _shifted(made, which, first, bool(reverse))
        return f.astype(made, x.dtype)

    return accumulate


def _shifted(x: Any, axis: int, fill: int, back: bool) -> Any:
    """x moved on by one element along an axis, a number in the place that becomes free."""
    pairs = [(0, 0)] * x.ndim
    pairs[axis] = (0, 1) if back else (1, 0)
    inside = [slice(None)] * x.ndim
    inside[axis] = slice(1, None) if back else slice(0, x.shape[axis])
    return f.getitem(f.pad(x, pairs, constant_values=fill), tuple(inside))


operator("CumSum")(_cumulative("cumsum"))
operator("CumProd")(_cumulative("cumprod"))


def _top_k(x: Any, count: int, axis: int, largest: int) -> tuple[Any, Any]:
    (axis,) = axes_of([axis], x.ndim)
    refuse(0 <= count <= x.shape[axis], f"the first {count} of {x.shape[axis]}")
    values, places = f.topk(x, count, axis=axis, largest=bool(largest))
    return values, f.astype(places, np.int64)


@operator("TopK", since=10)
def top_k(x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return _top_k(x, number(k), axis, largest)


@operator("TopK")
def top_k_attribute(x: Any, *, k: int, axis: int = -1) -> Any:
    return _top_k(x, k, axis, 1)


@operator("Hardmax", since=13)
def hard_max(x: Any, *, axis: int = -1) -> Any:
    (axis,) = axes_of([axis], x.ndim)
    return f.one_hot(f.argmax(x, axis=axis), x.shape[axis], dtype=x.dtype, axis=axis)


@operator("Hardmax")
def hard_max_flat(x: Any, *, axis: int = 1) -> Any:
    return flattened(hard_max, x, axis)


def flattened(function: Callable[..., Any], x: Any, axis: int) -> Any:
    """A function along the axes from this one on, taken as one axis: as it was before opset 13."""
    from graphc.formats.onnx.operators.shapes import flatten

    return f.reshape(function(flatten(x, axis=axis), axis=-1), x.shape)


for _name in ("Softmax", "LogSoftmax"):
    _function = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}[_name]

    def _softmax(x: Any, *, axis: int = -1, _function: str = _function) -> Any:
        return getattr(f, _function)(x, axis)

    def _softmax_flat(x: Any, *, axis: int = 1, _function: str = _function) -> Any:
        return flattened(getattr(f, _function), x, axis)

    operator(_name, since=13)(_softmax)
    operator(_name)(_softmax_flat)
