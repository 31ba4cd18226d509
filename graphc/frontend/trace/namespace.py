"""The functions of `graphc.numpy`: ours where there is one, else NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.frontend.trace.calls import callee
from graphc.frontend.trace.dispatch import linked
from graphc.frontend.trace.refusal import as_numpy_raises
from graphc.hints import missing
from graphc.ops.record.value import NUMPY, PUBLIC, Value, current

_CONVERTS = (np.asarray, np.array, np.from_dlpack)  # of arrays, these are NumPy's business
_SHARED = (np.broadcast_to, np.real, np.imag)  # NumPy's are views, too


class Function:
    """A function of NumPy: in a trace what NumPy's is there, else what graphc computes on arrays.

    `reduce`, `accumulate`, `outer`, `at` and `reduceat` of ufuncs are functions of the same kind.
    """

    def __init__(self, numpy: Any, eager: Callable[..., Any]) -> None:
        self.__wrapped__, self.eager = numpy, eager
        self.__name__, self.__doc__ = numpy.__name__, eager.__doc__ or numpy.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return callee(self.__wrapped__)(*args, **kwargs)
        if kwargs.get("device") in (None, "cpu"):  # where eager arrays are
            kwargs.pop("device", None)
        try:
            made = self.eager(*args, **kwargs)
        except GraphError as error:
            raise as_numpy_raises(error, self.__wrapped__, args, kwargs) from None
        is_read_only = type(made) is np.ndarray and not made.flags.writeable
        return made.copy() if is_read_only and self.__wrapped__ not in _SHARED else made

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        return Function(found, found) if callable(found) else found

    def __repr__(self) -> str:
        return f"<graphc.numpy {self.__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Function, (self.__wrapped__, self.eager)


def _limits(numpy: Any) -> Callable[[Any], Any]:
    def limits(type: Any, /) -> Any:
        """The limits of a dtype, or of that of an array: NumPy's object of this name."""
        return numpy(type.dtype if isinstance(type, np.ndarray | Value) else type)

    limits.__name__ = limits.__qualname__ = numpy.__name__
    return limits


def function_of(module: str, name: str, numpy: ModuleType) -> Any:
    """What `graphc.numpy.<name>` is. Raises AttributeError, with what may have been meant."""
    if name.startswith("_") or not hasattr(numpy, name):
        raise missing(module, name, dir(numpy))
    found = getattr(numpy, name)
    if found in (np.finfo, np.iinfo):
        return _limits(found)
    if isinstance(found, type) or not callable(found):
        return found  # dtypes, constants, modules
    ours = NUMPY.get(found) if found not in _CONVERTS else None
    title = next((k for k, function in PUBLIC.items() if function is ours), None)
    return Function(found, linked(title) if title else ours or found)
