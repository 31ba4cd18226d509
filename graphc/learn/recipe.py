"""Recipes: optimisers, schedules and initialisers know how they were made.

    rate = cosine(0.1, 1000)         pickled as: cosine, (0.1, 1000)

They are closures, which Python neither copies nor pickles; the call that made one does it.  What
their signatures call a number has to be one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import GraphError, TypeRuleError
from graphc.ir.user_lines import locate

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
    """Let what a factory at the top of a module makes be copied and pickled, and check numbers."""
    title = factory.__name__
    kinds = {name: p.annotation for name, p in inspect.signature(factory).parameters.items()}
    make = refusing(factory, title)

    @functools.wraps(factory)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(kinds, args), *kwargs.items()):
            _check(title, name, kinds.get(name, ""), value)
        made, call = make(*args, **kwargs), Call(remembered, args, kwargs)
        return made.made_by(call) if hasattr(made, "made_by") else Made(made, call)

    return remembered  # type: ignore[return-value]


def _check(title: str, name: str, kind: str, value: Any) -> None:
    """Raise GraphError for what is no number where the annotation asks for one, or for several."""
    if kind in ("float", "int") and not is_number(value):
        raise _wrong(f"{title}: {name} is a number, not {value!r:.80}")
    if kind == "float | Schedule" and not (is_number(value) or callable(value)):
        raise _wrong(f"{title}: {name} is a number or a schedule, not {value!r:.80}")
    if kind.startswith("Sequence"):
        listed = isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim == 1)
        if not listed or not all(map(is_number, value)):
            raise _wrong(f"{title}: {name} is a list of numbers, not {value!r:.80}")


def is_number(value: Any) -> bool:
    """Whether it is a real number, or a 0-d array of one (V: bf16), traced or not."""
    if isinstance(value, int | float):
        return True
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind in ("i", "u", "f", "V") and np.ndim(value) == 0


def _wrong(problem: str) -> GraphError:
    return TypeRuleError(problem, location=locate(3))
