"""`BoundFunction`: a compiled method of an instance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any


class BoundFunction:
    """A compiled method together with its instance."""

    def __init__(self, function: Any, instance: Any) -> None:
        self._function = function
        self._instance = instance
        self.__wrapped__ = MethodType(function.function, instance)  # its signature has no self

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundFunction, (self._function, self._instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("_function", "__copy__", "__deepcopy__", "__setstate__"):  # its own, if any
            raise AttributeError(name)
        found = getattr(self._function, name)
        if name in ("resident", "graph", "stages", "lower", "executable", "save", "view", "why"):
            return functools.partial(self._with_instance, found, name == "save")
        return found

    def _with_instance(
        self, method: Callable[..., Any], path_first: bool, *args: Any, **kwargs: Any
    ) -> Any:
        if path_first:
            return method(args[0], self._instance, *args[1:], **kwargs)
        return method(self._instance, *args, **kwargs)
