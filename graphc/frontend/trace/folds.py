"""ufunc.reduce and accumulate for ufuncs that have no function of their own here.

in any grouping, by halves    0 1 2 3 4  ->  0|2 1|3 4  ->  0|2|4 1|3  ->  all      `FOLDS`
in order                      ((0-1)-2)-3: written out where there are few, else a loop
accumulate by halves          a step joins what stands 1, 2, 4 ... before (Hillis and Steele)

NumPy itself is asked, by an array of one element, for the dtype and for what it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphc.ir.types import DType
from graphc.ops.record.families import as_dtype, normalise_axis
from graphc.ops.record.value import NUMPY, Value, as_value, functions

_BITS = (np.bitwise_or, np.bitwise_and, np.bitwise_xor)
_TRUTH = (np.logical_or, np.logical_and, np.logical_xor)
FOLDS = frozenset((*_BITS, *_TRUTH, np.gcd, np.lcm, np.fmax, np.fmin))
FEW = 16  # steps that are written out
_IDENTITY: Any = object()


def fold(
    ufunc: np.ufunc,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = _IDENTITY,
    where: Any = True,
) -> Any:
    """ufunc.reduce(x) along axes, or over everything. Raises ValueError where there is nothing and
    the ufunc has no identity, and what NumPy raises for such operands."""
    x = as_value(x)
    options: dict[str, Any] = {"axis": axis, "keepdims": bool(keepdims)}
    if initial is not _IDENTITY:
        options["initial"] = None if initial is None else 1
    if where is not True:
        options["where"] = np.ones((1,) * x.ndim, np.bool_)
    element = _element(ufunc.reduce, x, dtype, options)
    rows, kept = _rows(_cast(ufunc, x, element, dtype), axis, ufunc)
    masks = None if where is True else _rows(functions.broadcast_to(where, x.shape), axis, ufunc)[0]
    start = ufunc.identity if initial is _IDENTITY else initial
    if start is not None:
        start = functions.broadcast_to(functions.astype(as_value(start), element), rows.shape[1:])
    made = _folded(ufunc, rows, start, masks, element, initial is not _IDENTITY)
    return functions.reshape(made, kept) if keepdims else made


def _folded(
    ufunc: np.ufunc, rows: Any, start: Any, masks: Any, element: DType, is_given: bool
) -> Any:
    count = rows.shape[0]
    if count == 0 and start is None:
        name = ufunc.__name__
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    step = _step(ufunc, element)
    if ufunc in FOLDS and masks is None and count != 0:
        made = _halved(step, rows)
        return step(start, made) if start is not None and (is_given or count == 1) else made
    if start is None:
        start, rows = functions.astype(rows[0], element), rows[1:]
    if masks is None:
        return _in_order(step, start, rows)[0]

    def masked(made: Any, row: Any) -> Any:
        return functions.where(row[1], step(made, row[0]), made)

    return _in_order(masked, start, rows, masks)[0]


def _halved(step: Callable[[Any, Any], Any], rows: Any) -> Any:
    while (count := rows.shape[0]) > 1:
        half = (count + 1) // 2
        met = step(rows[: count - half], rows[half:])
        rows = functions.concatenate([met, rows[count - half : half]], 0)
    return rows[0]


def _in_order(
    step: Callable[[Any, Any], Any], start: Any, rows: Any, *more: Any
) -> tuple[Any, list[Any]]:
    """The last fold, and the folds of all beginnings as parts of one array."""
    count = rows.shape[0]
    if isinstance(count, int) and count <= FEW:
        folds = []
        for k in range(count):
            start = step(start, (rows[k], *(each[k] for each in more)) if more else rows[k])
            folds.append(start[None])
        return start, folds
    from graphc.frontend.transforms.control import scan

    def body(made: Any, row: Any) -> Any:
        made = step(made, row)
        return made, made

    last, folds = scan(body, start, (rows, *more) if more else rows)
    return last, [folds]


def accumulate(ufunc: np.ufunc, x: Any, axis: int = 0, dtype: Any = None) -> Any:
    """ufunc.accumulate(x): the folds of all beginnings along an axis."""
    x = as_value(x)
    element = _element(ufunc.accumulate, x, dtype, {"axis": axis})
    place = normalise_axis(axis, x.ndim, f"np.{ufunc.__name__}.accumulate")
    rows = functions.moveaxis(_cast(ufunc, x, element, dtype), place, 0)
    step = _step(ufunc, element)
    if ufunc in FOLDS:
        made = _doubled(step, rows)
    elif rows.shape[0] == 0:
        made = functions.astype(rows, element)
    else:
        first = functions.astype(rows[:1], element)
        rest = _in_order(step, first[0], rows[1:])[1]
        made = functions.concatenate([first, *rest], 0)
    return functions.moveaxis(made, 0, place)


def _doubled(step: Callable[[Any, Any], Any], rows: Any) -> Any:
    distance = 1
    while distance < rows.shape[0]:
        met = step(rows[:-distance], rows[distance:])
        rows = functions.concatenate([rows[:distance], met], 0)
        distance *= 2
    return rows


def _step(ufunc: np.ufunc, element: DType) -> Callable[[Any, Any], Any]:
    return lambda made, row: functions.astype(NUMPY[ufunc](made, row), element)


def require_reduceat(ufunc: np.ufunc, x: Value, axis: int, dtype: Any) -> None:
    """Raise what NumPy raises for ufunc.reduceat of such an array."""
    _element(partial(ufunc.reduceat, indices=[0]), x, dtype, {"axis": axis})


def folded_dtype(ufunc: np.ufunc, x: Any, dtype: Any) -> DType:
    """The dtype of ufunc.reduce(x)."""
    return _element(ufunc.reduce, as_value(x), dtype, {"axis": None})


def _element(method: Callable[..., Any], x: Value, dtype: Any, options: dict[str, Any]) -> DType:
    """The dtype of what a method makes. Raises what NumPy raises."""
    asked = None if dtype is None else as_dtype(dtype).numpy
    with np.errstate(all="ignore"):
        made = method(np.ones((1,) * x.ndim, x.element.numpy), dtype=asked, **options)
    return as_dtype(made.dtype)


def _cast(ufunc: np.ufunc, x: Value, element: DType, dtype: Any) -> Any:
    """The operand in the dtype that rows have beside what is folded so far."""
    made = element.numpy
    try:
        row = ufunc.resolve_dtypes((made, made, None))[1]
    except TypeError:  # of two different kinds, as in ldexp
        row = ufunc.resolve_dtypes((made, x.element.numpy, None))[1]
    return functions.astype(x, as_dtype(row))


def _rows(x: Any, axis: Any, ufunc: np.ufunc) -> tuple[Any, tuple[Any, ...]]:
    """What is folded as the first axis, and the shape with an extent of 1 in its place."""
    if not x.ndim:  # NumPy takes axis=0, too
        return functions.reshape(x, (1,)), ()
    name = f"np.{ufunc.__name__}.reduce"
    listed = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    places = [normalise_axis(place, x.ndim, name) for place in listed]
    kept = tuple(1 if k in places else extent for k, extent in enumerate(x.shape))
    rest = tuple(extent for k, extent in enumerate(x.shape) if k not in places)
    if len(places) == 1:
        return functions.moveaxis(x, places[0], 0), kept
    front = functions.moveaxis(x, places, list(range(len(places))))
    count = math.prod(x.shape[place] for place in places)
    return functions.reshape(front, (count, *rest)), kept
