"""Arguments of another kind: what Python says of them deep inside becomes a GraphError.

    gc.random.uniform(key, (2,), minval=None)   GraphError and TypeError: uniform: unsupported ...

The error is of both classes, and its hint says what the function takes.  What a function of the
user's raises, which was given or is called on the way, stays what it is.
"""

from __future__ import annotations

import functools
import inspect
import os
import sysconfig
from collections.abc import Callable, MutableMapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from graphc.errors import GraphError

P = ParamSpec("P")
R = TypeVar("R")

_KINDS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError)
_OURS = os.path.dirname(__file__) + os.sep
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_CLASSES: dict[tuple[type, type], type] = {}


def refusing(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """The function, which says what it takes where Python fails on what it was given."""
    title = name or function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except GraphError:
            raise
        except _KINDS as error:
            if _is_users(error.__traceback__):
                raise
            raise _refusal(title, function, error) from None

    return call


def refuse_all(names: list[str], namespace: MutableMapping[str, Any]) -> None:
    """Make the functions of a public module refuse, under its name."""
    for name in names:
        found = namespace[name]
        if inspect.isfunction(found):
            made = namespace[name] = refusing(found, name)
            made.__module__, made.__qualname__ = namespace["__name__"], name


def _is_users(trace: TracebackType | None) -> bool:
    """Whether code of neither graphc nor a library was running, called from here."""
    trace = trace.tb_next if trace is not None else None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, *_LIBRARIES, "<frozen")):
            return True
        trace = trace.tb_next
    return False


def _refusal(title: str, function: Callable[..., Any], error: Exception) -> GraphError:
    shape = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in shape.parameters.values() if p.name != "self"]
    taken = str(shape.replace(parameters=plain, return_annotation=shape.empty))
    return _both(type(error))(f"{title}: {error}", hint=f"it takes {title}{taken}")


def _both(raised: type[Exception]) -> type[GraphError]:
    """The class of errors that are GraphErrors and what Python raised."""
    base = next(kind for kind in raised.__mro__ if kind.__module__ == "builtins")
    key = GraphError, base
    if key not in _CLASSES:
        try:
            made = type("GraphError", key, {"__module__": GraphError.__module__})
        except TypeError:  # of another layout in memory
            made = GraphError
        _CLASSES[key] = made
    return _CLASSES[key]
