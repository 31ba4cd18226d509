"""The hooks in a function that is traced: what its calls call, and what its arrays are.

`rewrite.py` puts three hooks into the code of the user's functions.

    callee(f)(...)   f is NumPy's       on known arrays NumPy's own work, whose results are known
                                        arrays; on traced ones graphc's, or a stand-in of its own
                     f is the user's    the same function with hooks in its code
                     f is graphc's      it gets arrays for known arrays and hooked functions
                     f is another's     it gets arrays for known arrays
    array(W)         an array from outside, which then takes traced indices and makes known results
    compared(n)      such an array, or a size of which each step of a loop has its own

They return what they were given unless a trace is active.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import sysconfig
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from graphc.frontend.trace import dispatch, replaced_names, rewrite
from graphc.frontend.trace.compared_sizes import ComparedSize, is_found_in_steps
from graphc.frontend.trace.index_tricks import CONCATENATORS, Concatenator
from graphc.frontend.trace.known_arrays import KnownArray, evaluate, is_element
from graphc.frontend.trace.masks import SelectedElements
from graphc.frontend.trace.operands import any_unknown, leaves, mapped, plain
from graphc.frontend.trace.python_builtins import CHOICES
from graphc.frontend.trace.standins import STANDINS, stacked
from graphc.frontend.trace.tracer import Tracer
from graphc.ir.sizes import Size
from graphc.ir.types import Dim
from graphc.ops.record.value import _ACTIVE, NUMPY, PUBLIC, Stateful, Value, as_value, current

CALLS_FOR_USERS = True  # what it calls is asked for by the function with the hooks
_Dispatcher: Any = type(np.sum)
_OWN_FOLDER = str(Path(__file__).resolve().parents[2]) + os.sep
_INSTALLED = tuple(
    sorted(
        {
            str(Path(sysconfig.get_paths()[key]).resolve()) + os.sep
            for key in ("stdlib", "platstdlib", "purelib", "platlib")
        }
    )
)
# Functions of lists of arrays; other lists with traced values in them are arrays.
_OF_ARRAYS: frozenset[Any] = frozenset((
    np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack, np.block, np.select,
    np.choose, np.lexsort, np.ix_, np.linalg.multi_dot, np.einsum, np.meshgrid, np.piecewise,
    np.histogramdd,
))  # fmt: skip
# Functions that call what they are given.
_CALLERS: frozenset[Any] = frozenset(
    (
        map,
        filter,
        functools.reduce,
        functools.partial,
        *(kind for kind in vars(itertools).values() if callable(kind)),
    )
)


# ---------------------------------------------------------------------------------------- hooks


def array(operand: Any) -> Any:
    """A NumPy array as one that takes part in the trace, and np.r_ so that it takes those; anything
    else as it is."""
    if type(operand) is not np.ndarray:
        is_trick = _ACTIVE.stack and type(operand) in CONCATENATORS
        return Concatenator(operand) if is_trick else operand
    trace = current()
    if trace is None or not is_element(operand.dtype):
        return operand
    return KnownArray(operand, trace, captured=True)


def compared(operand: Any) -> Any:
    """An operand of a comparison: as in any other place, but that a size which each step of a loop
    finds is compared when the run has found it."""
    if is_found_in_steps(operand):
        return ComparedSize(operand)
    return array(operand)


def callee(function: Any) -> Any:
    """What is called in the place of a function while a trace is active."""
    if not _ACTIVE.stack:
        return function
    kind = type(function)
    if kind is np.ufunc or kind is _Dispatcher:
        return functools.partial(_numpy, function)
    if kind is functools.partial:
        return functools.partial(callee(function.func), *function.args, **function.keywords)
    if kind is FunctionType:
        origin = origin_of(function.__code__)
        if origin == "user":
            return hooked(function)
        return _graphc(function) if origin == "graphc" else _others(function)
    if kind is MethodType and is_users(function.__func__):
        return MethodType(hooked(function.__func__), function.__self__)
    if kind is BuiltinFunctionType and isinstance(function.__self__, np.ndarray | np.generic):
        return functools.partial(_array_method, function)
    return _others(function)


def hooked(function: Any) -> Any:
    """A user's function with the hooks in its code, or behind its names where its source cannot be
    had; other functions as they are."""
    if type(function) is MethodType:
        return MethodType(hooked(function.__func__), function.__self__)
    if type(function) is functools.partial:
        return functools.partial(hooked(function.func), *function.args, **function.keywords)
    if not is_users(function):
        return function
    code = rewrite.hooked_code(function)
    if code is None:
        return replaced_names.over_shown_names(function, _shown)
    if code is function.__code__:
        return function
    return rewrite.rebound(function, code, dict(zip(rewrite.HOOKS, (callee, array, compared))))


def seen(function: Any) -> Any:
    """What graphc's own code calls for a function it was given, as a transformation or a layer is:
    `hooked`, also of an object of the user's that can be called, and `callee` of a function of
    NumPy's."""
    if not _ACTIVE.stack:
        return function
    if _package(function) == "numpy" or _published(function) is not None:
        return callee(function)
    made = hooked(function)
    if made is function and not isinstance(function, type):
        return _called_object(function) or function
    return made


def _called_object(instance: Any) -> Any:
    call = getattr(type(instance), "__call__", None)  # noqa: B004  (it is called)
    return MethodType(hooked(call), instance) if is_users(call) else None


# ---------------------------------------------------------------------------------------- whose

_ORIGINS: dict[CodeType, str] = {}


def origin_of(code: CodeType) -> str:
    """Whose a Python function is: "user", "graphc" or "other" (installed packages)."""
    found = _ORIGINS.get(code)
    if found is None:
        found = _ORIGINS[code] = _origin_of_file(code.co_filename)
    return found


def is_users(function: Any) -> bool:
    return type(function) is FunctionType and origin_of(function.__code__) == "user"


def _origin_of_file(name: str) -> str:
    if name.startswith(_OWN_FOLDER):
        return "graphc"
    if name.startswith(("<frozen", "<__array_function__")):
        return "other"
    path = os.path.realpath(name)
    return "other" if path.startswith(_INSTALLED) else "user"


def _package(function: Any) -> str:
    """The package that a callable comes from."""
    own = getattr(function, "__self__", None)
    if own is not None and not isinstance(own, ModuleType):
        return type(own).__module__.partition(".")[0]
    named = getattr(function, "__module__", None)
    module: str = named if isinstance(named, str) else type(function).__module__
    return module.partition(".")[0]


def _others(function: Any) -> Any:
    """What is called for a callable that is no function of the user's."""
    package = _package(function)
    if package == "builtins" and getattr(function, "__name__", "") == "isinstance":
        return _is_instance
    if function is len:
        return _length
    if function is type:
        return _type
    if package == "numpy":
        return functools.partial(_numpy, function)
    if package == "graphc":
        return _graphc(function)
    if _is_hashable(function) and function in CHOICES:
        return functools.partial(_choice, function)
    if _is_hashable(function) and function in _CALLERS:
        return functools.partial(_calling, function)
    if isinstance(function, type):
        return functools.partial(_construct, function) if _is_users_class(function) else function
    if package in sys.stdlib_module_names:
        return function
    return _called_object(function) or functools.partial(_foreign, function)


def _length(x: Any, /) -> Any:
    """len(x); of a traced array whose length is open that size, which is no int."""
    extent = x.shape[0] if isinstance(x, Value | SelectedElements) and x.ndim else None
    return extent if isinstance(extent, Size) else len(x)


def _type(*given: Any) -> Any:
    """type(x); open sizes are numbers."""
    return int if len(given) == 1 and isinstance(given[0], Dim | Size) else type(*given)


def _calling(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    return function(*map(hooked, args), **kwargs)


def _choice(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    args, kwargs = mapped((args, kwargs), hooked)
    return CHOICES[function](*args, **kwargs)


def _is_hashable(function: Any) -> bool:
    return getattr(type(function), "__hash__", None) is not None


def _foreign(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    return function(*plain(args), **plain(kwargs))


def _graphc(function: Any) -> Any:
    name = _published(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = mapped((args, kwargs), hooked)
        out = {"out": kwargs["out"]} if "out" in kwargs else {}
        given, named = plain(args), {**plain(kwargs), **out}
        if name is None:
            return function(*given, **named)
        try:
            return function(*given, **named)
        except dispatch.FAILURES as error:
            numpy = dispatch.published()[name]
            raise dispatch.explained(error, f"gc.{name}", numpy, given, named) from None

    return call


def _published(function: Any) -> str | None:
    """The name of a public function of arrays; None for what else graphc has."""
    if type(function) is not FunctionType:
        return None
    name = function.__qualname__.removeprefix("functions.")
    known = PUBLIC.get(name)
    is_public = known is function or (known is not None and function.__module__ == "graphc")
    return name if is_public else None


def _is_users_class(kind: Any) -> bool:
    made = kind.__dict__.get("__init__") or getattr(kind, "__init__", None)
    is_plain: bool = kind.__new__ == object.__new__ and type(kind) is type
    return is_plain and is_users(made)


def _construct(kind: Any, /, *args: Any, **kwargs: Any) -> Any:
    """kind(...) with the hooks in __init__, as `type.__call__` does it."""
    made = kind.__new__(kind)
    hooked(kind.__init__)(made, *args, **kwargs)
    return made


def _is_instance(instance: Any, kinds: Any, /) -> bool:
    """isinstance, for which traced arrays are NumPy's arrays, its scalars NumPy's scalars, and
    open sizes numbers."""
    if isinstance(instance, kinds):
        return True
    if isinstance(instance, Dim | Size):
        return isinstance(1, kinds)
    if not isinstance(instance, Tracer):
        return False
    stands_for = (
        type(instance.dtype.type(0).item())
        if instance.weak
        else (instance.dtype.type if instance.is_scalar else np.ndarray)
    )
    parts = [part for part in leaves((kinds,)) if isinstance(part, type)]
    return issubclass(stands_for, tuple(parts))


# ---------------------------------------------------------------------------------------- names


class _Seen:
    """A module of NumPy, or a function of it, by name in a function without source."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return _shown(getattr(self._target, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return callee(self._target)(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self._target)


def _shown(value: Any) -> Any:
    """What stands for a value that a function without source looks up by name."""
    if not _ACTIVE.stack or isinstance(value, type):
        return value
    if isinstance(value, FunctionType) and is_users(value):
        return hooked(value)
    if isinstance(value, ModuleType):
        return _Seen(value) if value.__name__.partition(".")[0] == "numpy" else value
    if callable(value) and _package(value) == "numpy":
        return _Seen(value)
    return array(value)


# ---------------------------------------------------------------------------------------- NumPy


def _numpy(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A function of NumPy, called by the user."""
    if type(function) is np.ufunc and not kwargs and type(args[0]) is Tracer is type(args[-1]):
        return function(*args)
    args, kwargs = mapped((args, kwargs), hooked)
    if any(isinstance(leaf, Dim | Size) for leaf in leaves((args, kwargs))):
        return _of_sizes(function, args, kwargs)
    if not any_unknown(args, kwargs):
        return evaluate(function, args, kwargs)
    stand_in = STANDINS.get(function) if _is_hashable(function) else None
    if stand_in is not None:
        return stand_in(*args, **kwargs)
    if type(function) in STANDINS:
        return STANDINS[type(function)](function, *plain(args), **plain(kwargs))
    if isinstance(function, type) and issubclass(function, np.generic):
        return stacked(args[0], function)
    if not _is_hashable(function) or function not in _OF_ARRAYS:
        args, kwargs = tuple(map(_stacked_list, args)), _stacked_values(kwargs)
    is_read = any(isinstance(leaf, Stateful) for leaf in leaves((args, kwargs)))
    if type(function) is _Dispatcher and not is_read:  # it does not ask every argument
        return dispatch.function(function, args, kwargs)
    if dispatch.is_refused(function):
        raise dispatch.refused(function)
    return function(*args, **kwargs)


def _of_sizes(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy for dimensions that are open: as shapes, or as operands."""
    if isinstance(function, np.ufunc) or function in (np.array, np.asarray):
        args, kwargs = mapped((args, kwargs), _as_operand)
        return _numpy(function, *args, **kwargs)
    found = NUMPY.get(function) if _is_hashable(function) else None
    return found(*args, **kwargs) if found is not None else function(*args, **kwargs)


def _as_operand(leaf: Any) -> Any:
    return as_value(leaf) if isinstance(leaf, Dim | Size) else leaf


def _stacked_list(operand: Any) -> Any:
    return stacked(operand) if isinstance(operand, list) and any_unknown(operand) else operand


def _stacked_values(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: _stacked_list(operand) for key, operand in kwargs.items()}


def _array_method(method: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A method of an array from outside of the function."""
    owner = method.__self__
    if any_unknown(args, kwargs):
        return getattr(array(np.asarray(owner)), method.__name__)(*args, **kwargs)

    def bound(itself: Any, *rest: Any, **named: Any) -> Any:
        return method(*rest, **named)

    return evaluate(bound, (owner, *args), kwargs)
