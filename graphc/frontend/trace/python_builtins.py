"""max, min and sorted of Python for traced numbers, which have no truth value while tracing.

max(a, b, c)   where(b > a, b, a), then where(c > that, c, that): a choice in the graph where Python
               has an if, so that the first of equal numbers wins, and NaN where it comes first
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.frontend.trace.folds import FEW, fold
from graphc.frontend.trace.operands import is_unknown
from graphc.frontend.trace.standins import stacked
from graphc.ops.record.value import functions

_Key = Callable[[Any], Any] | None


def greatest(*values: Any, key: _Key = None, **default: Any) -> Any:
    """As `max`."""
    return _best(max, operator.gt, np.fmax, values, key, default)


def smallest(*values: Any, key: _Key = None, **default: Any) -> Any:
    """As `min`."""
    return _best(min, operator.lt, np.fmin, values, key, default)


def _best(
    function: Any,
    beats: Callable[[Any, Any], Any],
    ufunc: np.ufunc,
    values: tuple[Any, ...],
    key: _Key,
    default: dict[str, Any],
) -> Any:
    if not values or default.keys() - {"default"} or (default and len(values) > 1):
        return function(*values, **default)  # which raises
    if len(values) == 1:
        values = tuple(values[0])
        if not values:
            return function(values, **default)
    keys = values if key is None else [key(value) for value in values]
    if not _are_traced(keys):
        return values[function(range(len(values)), key=keys.__getitem__)]
    if key is None and len(values) > FEW:
        whole = stacked(list(values))
        return functions.where(functions.isnan(whole[0]), whole[0], fold(ufunc, whole))
    best, best_key = values[0], keys[0]
    for value, own in zip(values[1:], keys[1:], strict=True):
        wins = beats(own, best_key)
        best = functions.where(wins, value, best)
        best_key = best if key is None else functions.where(wins, own, best_key)
    return best


def in_order(*given: Any, key: _Key = None, reverse: bool = False, **other: Any) -> list[Any]:
    """As `sorted`; numbers that are not numbers come last, as NumPy has them."""
    if len(given) != 1 or other:
        return sorted(*given, **other)  # which raises
    values = list(given[0])
    keys = values if key is None else [key(value) for value in values]
    if not _are_traced(keys):
        order = sorted(range(len(values)), key=keys.__getitem__, reverse=reverse)
        return [values[k] for k in order]
    if key is None:
        made = functions.sort(stacked(values))
        return [made[k] for k in _turned(len(values), reverse)]
    # Equal ones stay in their order, also where the largest is first.
    order = functions.argsort(stacked(keys[::-1] if reverse else keys), stable=True)
    made = stacked(values[::-1] if reverse else values)[order]
    return [made[k] for k in _turned(len(values), reverse)]


def _turned(count: int, reverse: bool) -> range:
    return range(count)[::-1] if reverse else range(count)


def _are_traced(keys: Any) -> bool:
    """Whether some of these numbers are not known while tracing; arrays have no order."""
    return any(map(is_unknown, keys)) and not any(map(np.ndim, keys))


CHOICES: dict[Any, Callable[..., Any]] = {max: greatest, min: smallest, sorted: in_order}
