"""How NumPy and array-API calls on tracers find graphc's functions: the table `ops.value.NUMPY`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from graphc.base.hints import close_to
from graphc.base.refusing import hint_for, refusal
from graphc.errors import GraphError, TraceError
from graphc.frontend.trace import views
from graphc.frontend.trace.folds import accumulate, fold, folded_dtype, require_reduceat
from graphc.frontend.trace.numpy_errors import as_numpy_raises, as_raised
from graphc.frontend.trace.operands import leaves, plain, plain_arguments
from graphc.frontend.trace.spelling import spelled
from graphc.frontend.trace.ufunc_at import update_at
from graphc.ir.types import DTYPES
from graphc.ops.record.families import (
    NUMPY_SPELLINGS,
    as_dtype,
    normalise_axis,
    require,
    require_castable,
    require_options,
    signature_of,
)
from graphc.ops.record.value import (
    NUMPY,
    PUBLIC,
    Factor,
    Value,
    common_element,
    current,
    element_of,
    is_python_number,
)

# Folding, scanning and outer forms of a ufunc are functions of their own here.
_REDUCE = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
    np.logaddexp: "logsumexp",
}
_FROM_NOTHING = ("all", "any", "logsumexp")  # they take no initial=
_ACCUMULATE = {np.add: "cumsum", np.multiply: "cumprod", np.maximum: "cummax", np.minimum: "cummin"}
_AT = {np.add: "add", np.maximum: "max", np.minimum: "min"}
_LAYOUT = {"casting", "order", "subok"}
# What a function raises for arguments that it cannot take.
FAILURES = (GraphError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


def numpy_name(function: Any) -> str:
    """How a user writes a NumPy function: "linalg.norm", "add"."""
    module = getattr(function, "__module__", None) or ""
    prefix = module.removeprefix("numpy").lstrip(".")
    title = getattr(function, "__name__", repr(function))
    return f"{prefix}.{title}" if prefix and not prefix.startswith("_") else title


def _unsupported(what: str, name: str) -> TraceError:
    known = {numpy_name(key) for key in NUMPY} | {f"gc.{key}" for key in PUBLIC}
    near = close_to(name, sorted(known), 4, 0.55)
    return TraceError(
        f"{what} is not supported on traced arrays",
        hint=f"near: {', '.join(near)}" if near else None,
    )


def _unknown_ufunc(ufunc: Any) -> TraceError:
    from graphc.frontend.trace.other_libraries import in_place_of, ufunc_name  # errors alone

    name = ufunc_name(ufunc)
    error = _unsupported(name, numpy_name(ufunc))
    if name.startswith("scipy."):
        error.hint = in_place_of(name)
    return error


def invoke(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a public function for NumPy; arguments that it does not have are an error that says so.

    A function of NumPy that copies must not hand out its argument: later writes would reach it.
    """
    out = kwargs.pop("out", None) if "out" in kwargs else None
    if isinstance(given := kwargs.get("dtype"), str):
        kwargs["dtype"] = NUMPY_SPELLINGS.get(given, given)
    try:
        made = function(*args, **kwargs)
    except TypeError as error:
        if not is_call_mismatch(error):
            raise
        text = str(error).partition("() ")[2] or str(error)
        hint = hint_for(name, function, args, kwargs)
        raise TraceError(f"{name} of traced arrays {text}", hint=hint) from None
    if out is not None:
        return store(made, out[0] if isinstance(out, tuple) else out, name)
    if isinstance(made, Value) and any(made is arg for arg in args):
        return made.copy()
    return made


def is_call_mismatch(error: TypeError) -> bool:
    """Whether it was raised where it is caught, before the function ran: no frame below."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def from_outside(name: str) -> TraceError:
    """The error for a write of traced values to an array that the function did not make."""
    return TraceError(
        f"{name}: the target is a NumPy array from outside of the function",
        hint="write to a .copy(), or take the array as an argument and return it",
    )


def store(value: Any, out: Any, name: str) -> Any:
    """What `out=` asks for: it becomes the value. Raises TraceError unless it is a traced array."""
    if not hasattr(out, "assign"):
        raise TraceError(
            f"{name}: out= is a NumPy array from outside, which no traced result can be stored in",
            hint="make it inside the function, write to a .copy(), or assign the result",
        )
    out.assign(views.fitted(value, out, name))
    return out


# ------------------------------------------------------------------------------------ ufuncs


def ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """np.add(...) and its methods reduce, accumulate, outer and at; a factor is asked itself."""
    if isinstance(inputs[-1], Factor):
        return NotImplemented
    try:
        return _ufunc(ufunc, method, inputs, kwargs)
    except FAILURES as error:
        called = ufunc if method == "__call__" else getattr(ufunc, method)
        raise explained(error, f"np.{numpy_name(ufunc)}", called, inputs, kwargs) from None


def _ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    inputs = (*inputs[:1], *plain(inputs[1:])) if method == "at" else plain(inputs)
    if method == "__call__":
        handler = NUMPY.get(ufunc)
        if handler is None:
            raise _unknown_ufunc(ufunc)
        return handler(*inputs) if not kwargs else _with_options(ufunc, handler, inputs, kwargs)
    return _method(ufunc, method)(inputs, kwargs)


def _require_casts(name: str, inputs: tuple[Any, ...], dtype: Any, casting: str) -> None:
    """Refuse what NumPy's rule of casting does not allow: by default, floats as integers."""
    typed = [element_of(x)[0] for x in inputs if not is_python_number(x)]
    if not typed or (dtype is None and casting == "same_kind"):
        return
    target = common_element(*inputs)[0] if dtype is None else as_dtype(dtype)
    for element in typed:
        require_castable(name, element, target, casting)


def _with_options(
    ufunc: Any, handler: Callable[..., Any], inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    name = f"np.{numpy_name(ufunc)}"
    out, where, dtype = (
        kwargs.pop("out", None),
        kwargs.pop("where", True),
        kwargs.pop("dtype", None),
    )
    casting = kwargs.get("casting", "same_kind")
    axis_options = {k: v for k, v in kwargs.items() if k not in _LAYOUT}
    require_options(name, {k: v for k, v in kwargs.items() if k in _LAYOUT})
    _require_casts(name, inputs, dtype, casting)
    if dtype is not None and inputs:
        inputs = tuple(_cast(x, dtype) for x in inputs)
    made = invoke(name, handler, inputs, axis_options)
    outs = out if isinstance(out, tuple) else (out,)
    if where is not True:
        if out is None:
            raise TraceError(
                f"{name}: where= without out= leaves elements undefined",
                hint="use np.where(condition, new, old)",
            )
        made = PUBLIC["where"](where, made, outs[0])
    if out is None:
        return made
    parts = made if isinstance(made, tuple) else (made,)
    kept = tuple(p if o is None else store(p, o, name) for p, o in zip(parts, outs))
    return kept if isinstance(made, tuple) else kept[0]


def _cast(operand: Any, dtype: Any) -> Any:
    return (
        PUBLIC["astype"](operand, dtype)
        if isinstance(operand, Value)
        else np.asarray(operand, dtype)
    )


def _method(ufunc: Any, method: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    name = numpy_name(ufunc)
    tables: dict[str, dict[Any, str]] = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}
    title = tables.get(method, {}).get(ufunc, "")
    if title in PUBLIC:
        return lambda inputs, kwargs: _along(ufunc, f"np.{name}.{method}", title, inputs, kwargs)
    if ufunc not in NUMPY:
        raise _unsupported(f"np.{name}.{method}", name)
    if method in ("reduce", "accumulate"):
        along = partial(fold if method == "reduce" else accumulate, ufunc)
        return lambda inputs, kwargs: invoke(f"np.{name}.{method}", along, inputs, kwargs)
    if method == "outer":
        return lambda inputs, kwargs: _outer(NUMPY[ufunc], inputs)
    if method == "reduceat":
        return lambda inputs, kwargs: _reduceat(ufunc, *inputs, **kwargs)
    return lambda inputs, kwargs: _at(ufunc, inputs)


def _along(
    ufunc: Any, name: str, title: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    options = {"axis": 0, **kwargs}  # ufunc methods go along the first axis by default
    if options.get("where") is True:
        del options["where"]
    if title in _FROM_NOTHING and not options.keys().isdisjoint(("initial", "where")):
        return invoke(name, partial(fold, ufunc), inputs, options)
    if title == "logsumexp":  # whole numbers are added in floats
        element = folded_dtype(ufunc, inputs[0], options.pop("dtype", None))
        inputs = (PUBLIC["astype"](inputs[0], element),)
    return invoke(name, PUBLIC[title], inputs, options)


def _outer(handler: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    left, right = inputs
    rank = right.ndim if isinstance(right, Value) else np.ndim(right)
    shape = tuple(left.shape if isinstance(left, Value) else np.shape(left))
    return handler(PUBLIC["reshape"](left, shape + (1,) * rank), right)


def _reduceat(ufunc: Any, x: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """The reductions of x[i:j] for neighbouring indices i < j, else x[i]."""
    name = f"np.{numpy_name(ufunc)}.reduceat"
    if isinstance(indices, Value):
        raise TraceError(f"{name}: the indices are traced", hint="use np.add.at with row numbers")
    if ufunc not in _REDUCE:
        require_reduceat(ufunc, x, axis, dtype)
    place, starts = normalise_axis(axis, len(x.shape), name), [operator.index(i) for i in indices]
    extent = x.shape[place]
    require(all(0 <= i < extent for i in starts), f"{name}: {starts} leave 0..{extent - 1}")

    def part(start: int, stop: int) -> Any:
        rows = x[(slice(None),) * place + (slice(start, max(stop, start + 1)),)]
        if ufunc not in _REDUCE:
            return fold(ufunc, rows, place, dtype, initial=None)
        return ufunc.reduce(rows, axis=place, **({} if dtype is None else {"dtype": dtype}))

    parts = [part(i, j) for i, j in zip(starts, [*starts[1:], extent])]
    made = PUBLIC["stack"](parts or [part(0, extent)], place)
    return made if parts else made[(slice(None),) * place + (slice(0),)]


def _at(ufunc: Any, inputs: tuple[Any, ...]) -> None:
    name = f"np.{numpy_name(ufunc)}.at"
    target, index, *operands = inputs
    if not hasattr(target, "assign"):
        raise from_outside(name)
    if ufunc is np.subtract:
        ufunc, operands = np.add, [PUBLIC["negative"](operands[0])]
    if ufunc not in _AT:
        update_at(ufunc, target, index, tuple(operands))
        return
    value = operands[0]
    if not isinstance(value, Value):
        value = PUBLIC["asarray"](value) if "asarray" in PUBLIC else np.asarray(value)
    target.assign(PUBLIC["index_update"](target, index, value, mode=_AT[ufunc]))


# ------------------------------------------------------------------------------------ functions


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if not hasattr(dst, "assign"):
        raise from_outside("np.copyto")
    if not is_python_number(src):
        require_castable("np.copyto", element_of(src)[0], element_of(dst)[0], casting)
    dst[...] = src if where is True else PUBLIC["where"](where, src, dst)


def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a.copy(order)


def _shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    storage = getattr(a, "storage", None)
    return a is b or (storage is not None and storage is getattr(b, "storage", None))


def _on_shape(function: Any) -> Callable[..., Any]:
    """A NumPy function of an array's shape alone, called on an array that holds nothing."""
    return lambda arr, *args, **options: function(
        np.broadcast_to(np.empty(()), arr.shape), *args, **options
    )


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    if not hasattr(arr, "assign"):
        raise from_outside("np.put_along_axis")
    arr.assign(PUBLIC["put_along_axis"](arr, indices, values, axis))


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    if np.shape(a1) != np.shape(a2):
        return False
    same = PUBLIC["equal"](a1, a2)
    if equal_nan:
        both = PUBLIC["logical_and"](PUBLIC["isnan"](a1), PUBLIC["isnan"](a2))
        same = PUBLIC["logical_or"](same, both)
    return PUBLIC["all"](same)


def _array_equiv(a1: Any, a2: Any) -> Any:
    try:
        np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except ValueError:
        return False
    return PUBLIC["all"](PUBLIC["equal"](a1, a2))


def _extract(condition: Any, arr: Any) -> Any:
    return PUBLIC["ravel"](arr)[PUBLIC["ravel"](condition)]


def _common_type(*arrays: Any) -> Any:
    try:
        return np.common_type(*(np.empty(0, a.dtype) for a in arrays))
    except TypeError as error:
        raise TraceError(f"common_type: {error}") from None


def _min_scalar_type(a: Any) -> Any:
    if a.ndim == 0:
        raise TraceError("min_scalar_type of a number: its result depends on data")
    return a.dtype


def _real_if_close(a: Any, tol: float = 100) -> Any:
    if a.element.is_complex:
        raise TraceError(
            "real_if_close of complex numbers has a dtype that depends on data",
            hint="take x.real, or np.where(abs(x.imag) < eps, x.real, x)",
        )
    return a


def _einsum_path(*operands: Any, **options: Any) -> Any:
    sized = (np.broadcast_to(0.0, x.type.dims) if isinstance(x, Value) else x for x in operands)
    return np.einsum_path(*sized, **options)


# What NumPy offers on arrays that is about the tracer itself and not about its values.
KNOWN_FROM_TYPES: dict[Any, Callable[..., Any]] = {
    np.copyto: _copyto,
    np.copy: _copy,
    np.put_along_axis: _put_along_axis,
    np.array_equal: _array_equal,
    np.array_equiv: _array_equiv,
    np.extract: _extract,
    np.common_type: _common_type,
    np.min_scalar_type: _min_scalar_type,
    np.real_if_close: _real_if_close,
    np.einsum_path: _einsum_path,
    np.array2string: lambda a, *rest, **options: repr(a),
    np.iscomplexobj: lambda x: x.element.is_complex,
    np.isrealobj: lambda x: not x.element.is_complex,
    np.array_repr: lambda arr, *rest, **options: repr(arr),
    np.array_str: lambda a, *rest, **options: repr(a),
    np.result_type: lambda *args: np.result_type(*(_typed(a) for a in args)),
    np.can_cast: lambda from_, to, casting="safe": np.can_cast(from_.dtype, to, casting),
    **{f: _on_shape(f) for f in (np.tril_indices_from, np.triu_indices_from)},
    np.diag_indices_from: _on_shape(np.diag_indices_from),
    np.shares_memory: _shares_memory,
    np.may_share_memory: _shares_memory,
}


# Functions that have no answer while tracing, and why.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("save", "savez", "savez_compressed", "savetxt"),
        "it writes a file; save what the compiled function returns, or write from gc.callback",
    ),
    **dict.fromkeys(
        ("frombuffer", "fromfile", "fromiter", "fromstring", "genfromtxt", "loadtxt"),
        "it reads a file, text, bytes or an iterator, which no traced array is",
    ),
    **dict.fromkeys(
        ("busday_count", "busday_offset", "is_busday", "datetime_as_string"),
        "it is about dates, which graphs have no dtype for",
    ),
    "roots": "its result has a size that depends on data; use np.linalg.eigvals of the companion "
    "matrix",
    "polynomial.polynomial": "it has two variables; use np.polyval for one after the other",
    "in1d": "it is gone from newer NumPy; use np.isin(x.ravel(), y)",
    "lib.recfunctions": "it is about arrays of records, which graphs have no dtype for",
    **dict.fromkeys(("strings", "char"), "it is about strings, which graphs have no dtype for"),
}


def is_refused(function: Any) -> bool:
    return numpy_name(function) in REFUSED


def refused(function: Any) -> TraceError:
    """The error of a function of NumPy that traced arrays cannot have, with the reason."""
    name = numpy_name(function)
    reason = REFUSED.get(name) or REFUSED.get(name.rpartition(".")[0])
    if reason is None:
        return _unsupported(f"np.{name}", name)
    return TraceError(f"np.{name} is not for traced arrays: {reason}")


def _typed(operand: Any) -> Any:
    return operand.dtype if isinstance(operand, Value) else operand


def function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """np.<function>(...) on tracers. Raises TraceError naming the function and near matches."""
    try:
        return _function(function, args, kwargs)
    except FAILURES as error:
        if is_refused(function):
            raise  # NumPy would do it: np.save writes a file
        raise explained(error, f"np.{numpy_name(function)}", function, args, kwargs) from None


def explained(
    error: Exception, name: str, numpy: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """What a function of arrays raised, as a GraphError that is also what NumPy raises.

    What a function of the user's raised, which it was given, is left as it is.
    """
    if isinstance(error, GraphError):
        return error if numpy is None else as_numpy_raises(error, numpy, args, kwargs)
    if any(callable(leaf) and not isinstance(leaf, type) for leaf in leaves((args, kwargs))):
        return error
    hint: str | None = (
        "a number that must be known is a constant of the function, or named in static="
    )
    text = str(error)
    own = NUMPY.get(numpy) or PUBLIC.get(name.removeprefix("gc."))
    if own is not None and isinstance(error, TypeError) and "argument" in text:
        text = text.removeprefix(f"{own.__qualname__}() ")
        hint = hint_for(name, own, args, kwargs)
    made: GraphError = TraceError(f"{name}: {text}", hint=hint)
    made = made if numpy is None else as_numpy_raises(made, numpy, args, kwargs)
    return as_raised(made, error)


@cache
def published() -> dict[str, Any]:
    """The names of public functions, and NumPy's function for each, or None."""
    known: dict[Any, Any] = {}
    for numpy, handler in NUMPY.items():
        known.setdefault(handler, numpy)
    return {name: known.get(function) for name, function in PUBLIC.items()}


def _function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = plain_arguments(function, args, kwargs)
    own = KNOWN_FROM_TYPES.get(function)
    if own is not None:
        return own(*args, **kwargs)
    handler = NUMPY.get(function)
    if handler is None:
        raise refused(function)
    args, kwargs = spelled(function, handler, args, kwargs)
    name = handler.__name__
    if name in views.LINKED and PUBLIC.get(name) is handler and "out" not in kwargs:
        return views.call(name, args, kwargs)
    if name in views.LINKED_LISTS and PUBLIC.get(name) is handler:
        return views.call_list(name, args, kwargs)
    return invoke(f"np.{numpy_name(function)}", handler, args, dict(kwargs))


# ------------------------------------------------------------------------------------ array API


class Namespace:
    """What `x.__array_namespace__()` returns: public functions, NumPy's dtypes and constants."""

    __array_api_version__ = "2024.12"

    def __getattr__(self, name: str) -> Any:
        if name in PUBLIC:
            return linked(name)
        found = getattr(np, name, None)
        try:
            handler = NUMPY.get(found)
        except TypeError:  # not hashable: no function
            handler = None
        if handler is not None:
            return handler
        if isinstance(found, type | np.dtype | float) or name in ("newaxis", "finfo", "iinfo"):
            return found
        raise AttributeError(f"the array namespace of graphc has no {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*PUBLIC, *(d.numpy.name for d in DTYPES.values()), "pi", "e", "inf", "nan"})

    def __repr__(self) -> str:
        return "<array namespace of graphc>"


NAMESPACE = Namespace()


def linked(name: str) -> Callable[..., Any]:
    """A public function as users get it: its result is a view where NumPy's is, and arrays that it
    cannot take are a GraphError, of the class that NumPy raises."""
    function: Callable[..., Any] = PUBLIC[name]
    run = function
    if name in views.LINKED:
        run = lambda *args, **kwargs: views.call(name, args, kwargs)  # noqa: E731
    elif name in views.LINKED_LISTS:
        run = lambda *args, **kwargs: views.call_list(name, args, kwargs)  # noqa: E731

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except FAILURES as error:
            if current() is not None:  # the hook of the call says more
                raise
            made = refused_eagerly(error, name, call, args, kwargs)
            if made is error:
                raise
            raise made from None

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__module__, call.__qualname__ = "graphc", name  # under which pickle finds it
    vars(call)["__signature__"] = signature_of(function)
    return call


def refused_eagerly(
    error: Exception,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Exception:
    """What a public function raises for arrays: a GraphError that is also what NumPy raises, or the
    error itself if it is the user's."""
    made = refusal(error, name, function, args, kwargs)
    numpy = published()[name]
    if numpy is None or not isinstance(made, GraphError):
        return made
    return as_numpy_raises(made, numpy, args, kwargs)
