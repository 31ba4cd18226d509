"""What NumPy would raise: an error is caught by `except IndexError`, too, where NumPy raises one.

NumPy decides it.  The call is made once more on arrays of the same shapes and dtypes, all zeros in
one element of memory, and what NumPy raises becomes another base of the error's class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import GraphError, also
from graphc.frontend.trace.operands import leaves, mapped, plain
from graphc.ops.record.value import Value

_RAISED = (np.linalg.LinAlgError, IndexError, ValueError, TypeError)
_MOST_ELEMENTS = 1 << 16
_MOST_NUMBERS = 1 << 24  # of numbers that may be sizes, multiplied


def as_numpy_raises(
    error: GraphError, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> GraphError:
    """The error, of a class that is also the one NumPy raises for such operands."""
    if _can_be_tried(args, kwargs):
        args, kwargs = mapped(plain((args, kwargs)), _empty)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(*args, **kwargs)
        except np.exceptions.AxisError as raised:
            made = also(error, np.exceptions.AxisError)
            for name in ("axis", "ndim"):
                setattr(made, name, getattr(raised, name))
            return made
        except _RAISED as raised:
            return as_raised(error, raised)
        except Exception:  # noqa: BLE001  (whatever else: the error stays what it is)
            pass
    return error


def as_raised(error: GraphError, raised: Exception) -> GraphError:
    """The error, of a class that is also that of what was raised."""
    kind = next((kind for kind in _RAISED if isinstance(raised, kind)), None)
    return error if kind is None else also(error, kind)


def _can_be_tried(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether NumPy would make an error of it soon, and call nothing of the user's."""
    numbers = 1
    for leaf in leaves((args, kwargs)):
        if isinstance(leaf, Value | np.ndarray):
            size = leaf.size
            if not isinstance(size, int) or size > _MOST_ELEMENTS:
                return False
        elif isinstance(leaf, int):
            numbers *= max(1, abs(leaf))
        elif callable(leaf) and not isinstance(leaf, type):
            return False
    return numbers <= _MOST_NUMBERS


def _empty(leaf: Any) -> Any:
    if not isinstance(leaf, Value):
        return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    if leaf.weak:
        return leaf.dtype.type(0).item()
    return np.zeros(leaf.type.dims, leaf.dtype)[()]
