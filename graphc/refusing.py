"""Arguments of another kind: what Python says of them deep inside becomes a GraphError.

    gc.random.uniform(key, (2,), minval=None)   GraphError and TypeError: uniform: unsupported ...

The error is of both classes, and its hint says what the function takes.  What a function of the
user's raises, which was given or is called on the way, stays what it is.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, ParamSpec, TypeVar

from graphc.errors import GraphError

P = ParamSpec("P")
R = TypeVar("R")

_KINDS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError)
# Packages that graphc calls itself.  Others, installed ones too, run because the user has given
# something of theirs.
_OURS = {"graphc", "numpy", "ml_dtypes", "llvmlite", "numba", "lark"}
_OURS |= {"PIL", "h5py", "jax", "keras", "onnx", "pyarrow", "safetensors", "torch"}
_UNTOLD = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)  # hold text that failed
_CLASSES: dict[type, type[GraphError]] = {}


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
            if _is_users(error):
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


def _is_users(error: Exception) -> bool:
    """Whether it has a class of the user's, or code of the user's was running, called from here."""
    modules = [type(error).__module__]
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    while trace is not None:
        modules.append(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    packages = {name.partition(".")[0] for name in modules}
    return not packages <= _OURS | sys.stdlib_module_names


def _refusal(title: str, function: Callable[..., Any], error: Exception) -> GraphError:
    shape = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in shape.parameters.values() if p.name != "self"]
    taken = str(shape.replace(parameters=plain, return_annotation=shape.empty))
    base = next(
        kind
        for kind in type(error).__mro__
        if kind.__module__ == "builtins" and kind not in _UNTOLD
    )
    known = {"message": f"{title}: {error}", "hint": f"it takes {title}{taken}"}
    return _both(base, known | _of_file(error))


def _both(base: type[Exception], known: dict[str, Any]) -> GraphError:
    """A GraphError that is also what Python raised, and knows what that knew."""
    if base not in _CLASSES:
        names = {"__module__": GraphError.__module__, "__reduce__": _pickled}
        try:
            _CLASSES[base] = type("GraphError", (GraphError, base), names)
        except TypeError:  # of another layout in memory
            _CLASSES[base] = GraphError
    made = _CLASSES[base](known["message"])
    for name, value in known.items():
        setattr(made, name, value)
    return made


def _of_file(error: Exception) -> dict[str, Any]:
    """What an OSError knows."""
    names = ("errno", "strerror", "filename", "filename2") if isinstance(error, OSError) else ()
    return {name: getattr(error, name) for name in names}


def _pickled(error: GraphError) -> tuple[Any, ...]:
    return _both, (type(error).__mro__[2], vars(error) | _of_file(error))
