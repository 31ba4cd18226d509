"""Functions for traces that compile themselves when they are called on arrays, and what their
arguments are called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import TraceError
from graphc.frontend.compile.signature import Literals
from graphc.ops.record.value import current

Function = Callable[..., Any]
LeftAlone = Callable[
    [str], tuple[type, ...]
]  # by argument: which Python numbers stay what they are
NUMBERS = (bool, int, float, complex)


def compiling(
    traced: Function, function: Function, name: str, left_alone: Callable[[], LeftAlone]
) -> Function:
    """A function for traces that compiles itself when it is called on arrays."""
    require_function(name, function)
    made: list[Any] = []
    title = f"{name}_{getattr(function, '__name__', 'f')}"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return traced(*args, **kwargs)
        if not made:
            made.append(compiled(call, left_alone()))
        return made[0](*args, **kwargs)

    call.__name__ = title
    return call


def require_function(name: str, function: Any) -> None:
    """Raise TraceError for what cannot be called."""
    if not callable(function):
        raise TraceError(f"{name} takes a function, got {type(function).__name__}")


def compiled(function: Function, left_alone: LeftAlone) -> Function:
    """The compiled function; numbers of these types stay Python numbers in the arguments."""
    from graphc.config import Config
    from graphc.frontend.compile.decorator import CompiledFunction

    return CompiledFunction(function, Config.create(), literals=Literals(left_alone))


def argument_names(function: Function) -> list[str]:
    """The arguments that have a position: what follows *args is given by keyword alone."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def leaf_title(path: str, names: Sequence[str]) -> str:
    """The name of a leaf: "0.1.w" of (args, kwargs) is "params.w" if argument 1 is params."""
    which, _, rest = path.partition(".")
    key, dot, inner = rest.partition(".")
    if which == "0" and int(key) < len(names):
        key = names[int(key)]
    return f"{key}{dot}{inner}"
