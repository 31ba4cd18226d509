"""What NumPy would raise: an error is caught by `except IndexError`, too, where NumPy raises one.

NumPy decides it.  The call is made once more on arrays of the same shapes and dtypes, all zeros in
one element of memory, and what NumPy raises becomes a second base of the error's class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.frontend.trace.operands import leaves, mapped, plain
from graphc.ops.record.value import Value

_RAISED = (IndexError, ValueError, TypeError)
_CLASSES: dict[tuple[type, type], type] = {}
_MOST_ELEMENTS = 1 << 16


def as_numpy_raises(
    error: GraphError, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> GraphError:
    """The error, of a class that is also the one NumPy raises for such operands."""
    if not isinstance(error, _RAISED) and _can_be_tried(args, kwargs):
        args, kwargs = mapped(plain((args, kwargs)), _empty)
        try:
            with np.errstate(all="ignore"):
                function(*args, **kwargs)
        except _RAISED as raised:
            error.__class__ = _both(type(error), type(raised))
        except Exception:  # noqa: BLE001  (whatever else: the error stays what it is)
            pass
    return error


def as_raised(error: GraphError, raised: Exception) -> GraphError:
    """The error, of a class that is also that of what was raised, unless NumPy has said which."""
    if isinstance(raised, _RAISED) and not isinstance(error, _RAISED):
        error.__class__ = _both(type(error), type(raised))
    return error


def _can_be_tried(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    for leaf in leaves((args, kwargs)):
        if isinstance(leaf, Value):
            size = leaf.size
            if not isinstance(size, int) or size > _MOST_ELEMENTS:
                return False
        elif callable(leaf) and not isinstance(leaf, type):
            return False
    return True


def _empty(leaf: Any) -> Any:
    if not isinstance(leaf, Value):
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    if leaf.weak:
        return leaf.dtype.type(0).item()
    return np.zeros(leaf.type.dims, leaf.dtype)[()]


def _both(own: type, raised: type) -> type:
    base = next(kind for kind in (np.exceptions.AxisError, *_RAISED) if issubclass(raised, kind))
    bases = (ValueError, IndexError) if base is np.exceptions.AxisError else (base,)
    key = own, base
    if key not in _CLASSES:
        _CLASSES[key] = type(own.__name__, (own, *bases), {"__module__": own.__module__})
    return _CLASSES[key]
