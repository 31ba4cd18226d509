"""The functions of `graphc.numpy`: ours where there is one, else NumPy's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from graphc.base.hints import MissingName, missing
from graphc.base.refusing import KINDS, refusal
from graphc.errors import GraphError
from graphc.frontend.trace.dispatch import FAILURES, linked
from graphc.frontend.trace.hooks import callee
from graphc.frontend.trace.numpy_errors import as_numpy_raises
from graphc.frontend.trace.operands import WRITERS
from graphc.frontend.trace.spelling import spelled, translated
from graphc.ops.record.value import NUMPY, PUBLIC, Value, current

_CONVERTS = (np.asarray, np.array, np.from_dlpack)  # of arrays, these are NumPy's business
_SHARED = (np.broadcast_to, np.real, np.imag)  # NumPy's are views, too


class Function:
    """A function of NumPy: in a trace what NumPy's is there, else what graphc computes on arrays.

    `reduce`, `accumulate`, `outer`, `at` and `reduceat` of ufuncs are functions of the same kind.
    """

    def __init__(self, numpy: Any, ours: Callable[..., Any] | None = None) -> None:
        self.__wrapped__, self.ours = numpy, ours
        self.__name__, self.__doc__ = numpy.__name__, getattr(ours, "__doc__", "") or numpy.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        """NumPy's, and after it what ours takes besides (size=, fill_value=, descending= ...)."""
        theirs = inspect.signature(self.__wrapped__)
        given = list(theirs.parameters.values())
        if self.ours is None or any(p.kind == p.VAR_POSITIONAL for p in given):
            return theirs
        known = {*theirs.parameters, *translated(self.__wrapped__, self.ours)}
        ours = inspect.signature(self.ours).parameters.values()
        more = [p for p in ours if p.default is not p.empty and p.name not in known]
        return theirs.replace(parameters=[*given, *(p.replace(kind=p.KEYWORD_ONLY) for p in more)])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return callee(self.__wrapped__)(*args, **kwargs)
        try:
            made = self._eager(args, kwargs)
        except KINDS as error:
            refused = refusal(error, self.__name__, self.__wrapped__, args, kwargs)
            if refused is error:
                raise
            raise refused from None
        is_read_only = type(made) is np.ndarray and not made.flags.writeable
        return made.copy() if is_read_only and self.__wrapped__ not in _SHARED else made

    def _eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        numpy, ours = self.__wrapped__, self.ours
        if ours is None or numpy in WRITERS:
            return numpy(*args, **kwargs)
        given, named = spelled(numpy, ours, args, dict(kwargs))
        if named.pop("out", None) is not None:
            return numpy(*args, **kwargs)  # it stores into arrays
        if named.get("device") in (None, "cpu"):  # where eager arrays are
            named.pop("device", None)
        title = getattr(ours, "__name__", "")
        called = linked(title) if PUBLIC.get(title) is ours else ours
        try:
            return called(*given, **named)
        except FAILURES as error:
            refused = refusal(error, self.__name__, numpy, args, kwargs)
            if not isinstance(refused, GraphError):
                raise
        try:
            return numpy(*args, **kwargs)  # arrays may be more than a graph can hold
        except Exception:  # noqa: BLE001  (our error says more)
            raise as_numpy_raises(refused, numpy, args, kwargs) from None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        return Function(found) if callable(found) else found

    def __repr__(self) -> str:
        return f"<graphc.numpy {self.__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Function, (self.__wrapped__, self.ours)


def _limits(numpy: Any) -> Callable[[Any], Any]:
    def limits(type: Any, /) -> Any:
        """The limits of a dtype, or of that of an array: NumPy's object of this name."""
        return numpy(type.dtype if isinstance(type, np.ndarray | Value) else type)

    limits.__name__ = limits.__qualname__ = numpy.__name__
    return limits


def function_of(module: str, name: str, numpy: ModuleType) -> Any:
    """What `graphc.numpy.<name>` is. Raises AttributeError, with what may have been meant."""
    if name.startswith("_") or not hasattr(numpy, name):
        if name in PUBLIC:
            raise MissingName(
                f"module {module!r} has no attribute {name!r}", hint=f"it is gc.{name}"
            )
        raise missing(module, name, dir(numpy))
    found = getattr(numpy, name)
    if found in (np.finfo, np.iinfo):
        return _limits(found)
    if isinstance(found, type) or not callable(found):
        return found  # dtypes, constants, modules
    is_numpys = found in _CONVERTS or (found.__module__ == "numpy.fft" and "freq" not in name)
    return Function(found, None if is_numpys else NUMPY.get(found))
