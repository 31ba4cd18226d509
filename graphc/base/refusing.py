"""Arguments of another kind: what Python says of them deep inside becomes a GraphError.

    gc.random.uniform(key, (2,), minval=None)   GraphError and TypeError: uniform: unsupported ...
    gc.grad(loss, argnums=0)                    the same, and says that wrt was meant

The error is of both classes, and its hint says what the function takes and what it was given.  What
a function of the user's raises, which was given or is called on the way, stays what it is.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, ParamSpec, TypeVar

from graphc.base.hints import meant
from graphc.errors import GraphError, also, printable

P = ParamSpec("P")
R = TypeVar("R")
KINDS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError)
# Packages that graphc calls itself.  Others, installed ones too, run because the user has given
# something of theirs.
_OURS = {"graphc", "numpy", "ml_dtypes", "llvmlite", "numba", "lark"}
_OURS |= {"PIL", "h5py", "jax", "keras", "onnx", "pyarrow", "safetensors", "torch"}
_THEIRS = "torch.utils.data"  # runs the user's datasets
_MOST_SHOWN = 40  # characters of an argument


def refusing(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """The function, which says what it takes where Python fails on what it was given."""
    title = name or function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except KINDS as error:
            made = refusal(error, title, function, args, kwargs)
            if made is error:
                raise
            raise made from None

    return call


def refuse_all(names: list[str], namespace: MutableMapping[str, Any]) -> None:
    """Make the functions of a public module refuse, under its name, and its classes."""
    for name in names:
        found = namespace[name]
        if inspect.isfunction(found):
            made = namespace[name] = refusing(found, name)
            made.__module__, made.__qualname__ = namespace["__name__"], name
        elif inspect.isclass(found) and "__init__" in vars(found):
            found.__init__ = refusing(found.__init__, name)  # type: ignore[method-assign]


def refusal(
    error: Exception,
    title: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Exception:
    """What a call raises for an error that was caught where it was made: a GraphError that is also
    of Python's class, or the error itself, if it is one already or comes from the user's code."""
    if isinstance(error, GraphError) or _is_users(error):
        return error
    text = str(error).removeprefix(f"{function.__qualname__}() ")
    made = GraphError(f"{title}: {text}", hint=hint_for(title, function, args, kwargs))
    return also(made, _base(error), source=error)


def _is_users(error: Exception) -> bool:
    """Whether it has a class of the user's, or code of the user's was running, called from here."""
    modules = [type(error).__module__]
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    while trace is not None:
        modules.append(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    packages = {name if name.startswith(_THEIRS) else name.partition(".")[0] for name in modules}
    return not packages <= _OURS | sys.stdlib_module_names


def _base(error: Exception) -> type[Exception]:
    """The class of Python's that it is of, or the nearest one that can be raised with a message."""
    untold = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)  # hold what failed
    kinds = (k for k in type(error).__mro__ if k.__module__ == "builtins" and k not in untold)
    return next(kinds)


def hint_for(
    title: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str | None:
    """What was meant by a keyword that the function lacks, or what it takes and what was given."""
    try:
        shape = inspect.signature(function)
    except (TypeError, ValueError):  # not all functions of C say it
        return None
    known = shape.parameters
    if not any(p.kind == p.VAR_KEYWORD for p in known.values()):
        for name in kwargs.keys() - known:
            if word := meant(name, known):
                return word
    plain = [p.replace(annotation=p.empty) for p in known.values() if p.name != "self"]
    taken = str(shape.replace(parameters=plain, return_annotation=shape.empty))
    return f"it takes {title}{taken}{_given(shape, args, kwargs)}"


def _given(shape: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    try:
        given: Iterable[tuple[str, Any]] = shape.bind(*args, **kwargs).arguments.items()
    except TypeError:
        given = kwargs.items()
    shown = [f"{name}={_shown(value)}" for name, value in given if name != "self"]
    return f"; it was given {', '.join(shown)}" if shown else ""


def _shown(value: Any) -> str:
    """An argument in a few words: arrays by dtype and shape."""
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type):
        return f"{value.dtype}{list(value.shape)}"
    text = printable(reprlib.repr(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
