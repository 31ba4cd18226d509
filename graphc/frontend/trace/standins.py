"""What stands in for functions of NumPy that do not ask their arguments who they are.

`np.array([x, y])` and its like build arrays in C and never call `__array_function__`.  Where a
function that is traced gives them traced values, these are called: the table `STANDINS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphc.frontend.trace.operands import plain
from graphc.frontend.trace.tracer import Tracer
from graphc.frontend.trace.views import has_order
from graphc.ops.record import value
from graphc.ops.record.families import as_dtype
from graphc.ops.record.value import current, functions, lift

STANDINS: dict[Any, Callable[..., Any]] = {}


def stands_in_for(*numpy_functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table of stand-ins."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        STANDINS.update(dict.fromkeys(numpy_functions, function))
        return function

    return enter


def stacked(given: Any, dtype: Any = None) -> Any:
    """A traced array of a traced value or of nested lists that hold some, as np.array makes it.

    Raises TraceError for lists of different shapes.
    """
    trace = current()
    assert trace is not None
    element = as_dtype(dtype) if dtype is not None else None
    given = plain(given)
    listed = value.stacked(given, trace) if isinstance(given, list | tuple) else lift(given, trace)
    return functions.astype(listed, element or listed.element)


def _fresh(made: Any) -> Any:
    """A traced array of its own memory: one of rank 0 can be written to, too."""
    made = Tracer(made.node, made.owner)
    if not made.ndim:
        made = made[...]
    return made


@stands_in_for(np.array)
def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    like: Any = None,
) -> Any:
    """np.array of traced values."""
    made = asarray(object, dtype)
    if made is object and copy:
        made = _fresh(made)
    missing = ndmin - made.ndim
    return made[(None,) * missing] if missing > 0 else made


@stands_in_for(np.asarray, np.asanyarray)
def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, **other: Any) -> Any:
    """np.asarray of traced values: the array itself where there is nothing to do."""
    if isinstance(a, Tracer) and (dtype is None or as_dtype(dtype) is a.element):
        is_there = not (copy or a.weak or a.is_scalar) and has_order(a, order)
        return a if is_there else _fresh(a)
    return _fresh(stacked(a, dtype))


@stands_in_for(np.ascontiguousarray)
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """np.ascontiguousarray: of rank 1 at least, a copy where NumPy makes one."""
    return functions.atleast_1d(asarray(a, dtype, "C"))


@stands_in_for(np.asfortranarray)
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """np.asfortranarray: a copy where NumPy makes one."""
    return functions.atleast_1d(asarray(a, dtype, "F"))


@stands_in_for(np.require)
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    """np.require: a copy where NumPy makes one."""
    wanted = {str(r)[0].upper() for r in requirements or ()}
    return asarray(a, dtype, next((r for r in "CF" if r in wanted), None), copy="O" in wanted)


@stands_in_for(np.ndenumerate)
def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """np.ndenumerate of traced values."""
    made = stacked(arr)
    return ((index, made[index]) for index in np.ndindex(*made.shape))


@stands_in_for(np.full)
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Any:
    """np.full with a traced value."""
    value = asarray(plain(fill_value))
    return _fresh(functions.full(plain(shape), value, dtype))
