"""Recipes: optimisers, schedules and initialisers know how they were made.

    rate = cosine(0.1, 1000)         pickled as: cosine, (0.1, 1000)

They are closures, which Python neither copies nor pickles; the call that made one does it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from graphc.record import record

Factory = TypeVar("Factory", bound=Callable[..., Any])


@record(frozen=True, eq=False)
class Call:
    """A factory and what it was given."""

    factory: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def reduced(self) -> tuple[Any, ...]:
        """What pickle stores of what it has made."""
        return again, (self.factory, self.args, self.kwargs)


class Made:
    """A function that a factory has made."""

    __slots__ = ("call", "function")

    def __init__(self, function: Callable[..., Any], call: Call) -> None:
        self.function = function
        self.call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        named = (f"{name}={value!r}" for name, value in self.call.kwargs.items())
        return f"{self.call.factory.__name__}({', '.join([*map(repr, self.call.args), *named])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call.reduced


def again(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Make it again."""
    return factory(*args, **kwargs)


def recipe(factory: Factory) -> Factory:
    """Let what a factory at the top of a module makes be copied and pickled."""

    @functools.wraps(factory)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        made, call = factory(*args, **kwargs), Call(remembered, args, kwargs)
        return made.made_by(call) if hasattr(made, "made_by") else Made(made, call)

    return remembered  # type: ignore[return-value]
