"""NumPy's functions of functions: vectorize, apply_along_axis, apply_over_axes and piecewise.

The user's function is traced once, as the body of a loop over elements or rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.errors import TraceError
from graphc.frontend.trace.operands import mapped
from graphc.frontend.trace.standins import asarray, stands_in_for
from graphc.frontend.transforms.control import map as map_slices
from graphc.ops.record.families import normalise_axis, require
from graphc.ops.record.value import functions


@stands_in_for(np.vectorize)
def vectorized(instance: Any, *args: Any, **kwargs: Any) -> Any:
    """np.vectorize(f)(...) on traced arrays: f on every element, in one native loop.

    Raises TraceError for signature=, excluded= and keyword arguments.
    """
    if instance.signature is not None or instance.excluded or kwargs:
        raise TraceError(
            "np.vectorize with signature=, excluded= or keywords is not supported on traced arrays",
            hint="use gc.map over the first axis",
        )
    arrays = functions.broadcast_arrays(*args)
    shape = arrays[0].shape
    rows = tuple(functions.reshape(each, -1) for each in arrays)
    made = map_slices(lambda row: instance.pyfunc(*row), rows)
    kinds = iter(instance.otypes or ())

    def shaped(part: Any) -> Any:
        kind = next(kinds, None)
        part = functions.reshape(part, shape)
        return part if kind is None else functions.astype(part, np.dtype(kind))

    return mapped(made, shaped)


@stands_in_for(np.apply_along_axis)
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """func1d of every row of arr along an axis, in one native loop; its axes replace that one."""
    x = asarray(arr)
    place = normalise_axis(axis, x.ndim, "apply_along_axis")
    moved = functions.moveaxis(x, place, -1)
    lead = moved.shape[:-1]
    rows = functions.reshape(moved, (-1, moved.shape[-1]))
    made = map_slices(lambda row: asarray(func1d(row, *args, **kwargs)), rows)
    rank = made.ndim - 1
    made = functions.reshape(made, (*lead, *made.shape[1:]))
    source = tuple(range(len(lead), len(lead) + rank))
    return functions.moveaxis(made, source, tuple(range(place, place + rank)))


@stands_in_for(np.apply_over_axes)
def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    """func(x, axis) for one axis after the other; it may keep the axis or take it away."""
    made = asarray(a)
    rank = made.ndim
    for axis in axes if isinstance(axes, tuple | list) else (axes,):
        place = normalise_axis(axis, rank, "apply_over_axes")
        made = func(made, place)
        made = functions.expand_dims(made, place) if made.ndim == rank - 1 else made
        require(made.ndim == rank, f"apply_over_axes: rank {rank} became {made.ndim}")
    return made


@stands_in_for(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """np.piecewise: what the last condition that holds chooses, of x's dtype; 0 where none does."""
    x = asarray(x)
    conditions = _conditions(x, condlist)
    if len(funclist) == len(conditions) + 1:
        held = functions.any(functions.stack(conditions), 0)
        conditions.append(functions.logical_not(held))
    require(
        len(funclist) == len(conditions),
        f"piecewise: {len(conditions)} conditions need {len(conditions)} functions (or one more), "
        f"got {len(funclist)}",
    )
    made = functions.zeros_like(x)
    for condition, chosen in zip(conditions, funclist):
        made[condition] = chosen(x[condition], *args, **kwargs) if callable(chosen) else chosen
    return made


def _conditions(x: Any, condlist: Any) -> list[Any]:
    listed = isinstance(condlist, list | tuple)
    rank = np.ndim(condlist[0]) if listed and condlist else 0
    parts = list(condlist) if listed and (rank or not x.ndim) else [condlist]
    if not listed and np.ndim(condlist) > x.ndim:
        parts = list(condlist)
    return [functions.astype(asarray(part), bool) for part in parts]
