"""Tracer: the array a model function sees while it is traced. It answers the interface of ndarray.

A tracer never holds data.  Anything that would need a number now (`if x:`, `float(x)`,
`np.asarray(x)`) raises TraceError with the user's line and what to write instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphc.base.hints import meant_method
from graphc.errors import GraphError, TraceError
from graphc.errors import plain as readable
from graphc.frontend.trace import dispatch, views
from graphc.frontend.trace.masks import SelectedElements, counted_elements, put_back
from graphc.frontend.trace.numpy_errors import as_numpy_raises
from graphc.frontend.trace.operands import PLAIN_TYPES, mapped, plain
from graphc.frontend.trace.views import Link, Storage
from graphc.ir.graph import Node
from graphc.ir.types import Dim, Dimension
from graphc.ir.unknowns import Location
from graphc.ir.user_lines import location_of
from graphc.ops.record.families import NUMPY_SPELLINGS, require_options, require_storable
from graphc.ops.record.value import METHODS, PUBLIC, Trace, Value, cast_value, lift
from graphc.seams.cpython import assigns_item, frame_above

_STATIC = "or name the argument in static=[...]"
_NO_VALUE_HINTS = {
    "bool": "for a choice write gc.cond or np.where, for a while gc.while_loop, for an assert "
    f"gc.assert_, for `and` and for 0 < x < 1 (x > 0) & (x < 1), {_STATIC}",
    "int": f"for int(x) write x.astype(int), for a loop over range(n) gc.fori, {_STATIC}",
    "number": f"use NumPy's functions in place of math's and float(), {_STATIC}",
    "index": "for items[i] of a list write np.stack(items)[i], for a loop over range(n) gc.fori; "
    "an array index x[i] may be traced, a shape may not: name the argument in static=[...]",
    "store": "write to an array that is made inside the function (np.zeros, or a .copy()), or take "
    "the array as an argument and return it",
    "array": "use NumPy functions on it directly; gc.zeros(...) makes an array that can be written",
    "key": f"for d[i] of a dict write gc.switch(i, [...]), or np.stack of arrays, {_STATIC}",
    "text": 'to print it in every run write gc.print("x is {:.3f}", x)',
}


class MissingAttribute(TraceError, AttributeError):
    """An attribute of ndarray that a traced array does not have."""


class Tracer(Value):
    """A traced array.

    link      how it is derived from another tracer, for views; None for an array of its own
    storage   shared by an array and its views: counts the writes
    seen      the count at which `_node` was current
    """

    __slots__ = ("link", "seen", "storage")
    __array_priority__ = 1000.0

    def __init__(self, node: Node, trace: Trace, weak: bool = False) -> None:
        self._node = node
        self.owner = trace
        self.weak = weak
        self.link: Link | None = None
        self.storage: Storage | None = None
        self.seen = 0

    @property
    def node(self) -> Node:
        storage = self.storage
        if storage is not None and storage.writes != self.seen:
            views.refresh(self)
        return self._node

    @property
    def is_scalar(self) -> bool:
        """Whether NumPy would have an immutable scalar here, which shares no memory with anything.

        Results of rank 0 are scalars; views with an ellipsis, and copies of them, are 0-d arrays.
        """
        return self.storage is None and self.ndim == 0

    # -------------------------------------------------------------------------------- protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return dispatch.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return dispatch.function(function, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return dispatch.NAMESPACE

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise _no_value(self, "a NumPy array", "array")

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise _no_value(self, "a DLPack capsule", "array")

    # -------------------------------------------------------------------------------- no value yet

    def __bool__(self) -> bool:
        raise _no_value(self, "a bool", "bool")

    def __int__(self) -> int:
        raise _no_value(self, "an int", "int")

    def __float__(self) -> float:
        raise _no_value(self, "a float", "number")

    def __complex__(self) -> complex:
        raise _no_value(self, "a complex number", "number")

    def __index__(self) -> int:
        raise _no_value(self, "an index", "index")

    def item(self, *args: Any) -> Any:
        raise _no_value(self, "a Python number", "number")

    def tolist(self) -> Any:
        raise _no_value(self, "a list", "array")

    def tobytes(self, *args: Any) -> Any:
        raise _no_value(self, "bytes", "array")

    def __format__(self, spec: str) -> str:
        if spec:
            raise _no_value(self, "formatted text", "text")
        return repr(self)

    # -------------------------------------------------------------------------------- structure

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return _static(self.shape[0], self)

    def __iter__(self) -> Iterator[Tracer]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        for position in range(_static(self.shape[0], self)):
            yield self[position]

    def __contains__(self, item: Any) -> bool:
        raise _no_value(self, "the answer to `in`", "bool")

    @property
    def T(self) -> Any:
        return views.call("transpose", (self,), {})

    @property
    def mT(self) -> Any:
        return views.call("swapaxes", (self, -1, -2), {})

    def __round__(self, ndigits: int | None = None) -> Any:
        if not self.is_scalar:
            raise TypeError("type numpy.ndarray doesn't define __round__ method")
        made = PUBLIC["round"](self, ndigits or 0)
        return made if ndigits is not None else PUBLIC["astype"](made, np.int64)

    def __pos__(self) -> Any:
        PUBLIC["positive"](self)
        return self.copy()

    def __pow__(self, other: Any) -> Any:
        if self.element.kind == "b" and type(other) is int and other == 2:
            return PUBLIC["square"](self)  # which is what NumPy takes, and of bools it is i8
        made = PUBLIC["power"](self, other)
        return made if made is not self else self.copy()

    @property
    def real(self) -> Any:
        return views.call("real", (self,), {})

    @real.setter
    def real(self, value: Any) -> None:
        views.set_part(self, "real", value)

    @property
    def imag(self) -> Any:
        if not self.element.is_complex:
            return PUBLIC["zeros_like"](self)
        return views.call("imag", (self,), {})

    @imag.setter
    def imag(self, value: Any) -> None:
        if not self.element.is_complex:
            raise TypeError("array does not have imaginary part to set")
        views.set_part(self, "imag", value)

    @property
    def itemsize(self) -> int:
        return self.element.itemsize

    @property
    def nbytes(self) -> Dimension:
        return self.size * self.element.itemsize

    @property
    def device(self) -> str:
        return "cpu"

    def __getattr__(self, name: str) -> Any:
        method = METHODS.get(name)
        if method is None or name.startswith("__"):
            raise _missing(self, name)
        return lambda *args, **kwargs: self._call(name, method, args, kwargs)

    def _call(self, name: str, method: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        try:
            if name in views.LINKED:
                return views.call(name, (self, *args), kwargs)
            return dispatch.invoke(name, method, (self, *args), kwargs)
        except GraphError as error:
            called = getattr(np.ndarray, name, None)
            if called is None:
                raise
            raise as_numpy_raises(error, called, (self, *args), kwargs) from None

    # -------------------------------------------------------------------------------- copies

    def astype(self, dtype: Any, *args: Any, copy: bool = True, **kwargs: Any) -> Any:
        dtype = NUMPY_SPELLINGS.get(dtype, dtype) if isinstance(dtype, str) else dtype
        made = PUBLIC["astype"](self, dtype, *args, copy=copy, **kwargs)
        return made if made is not self or not copy else self.copy()

    def copy(self, order: str = "C") -> Tracer:
        """A tracer of the same value that later writes to this one do not reach."""
        require_options("copy", {"order": order})
        made = Tracer(self.node, self.owner, self.weak)
        if self.ndim == 0 and self.storage is not None:
            made.storage = Storage()
        return made

    def __copy__(self) -> Tracer:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self.copy()

    def view(self, dtype: Any = None, **kwargs: Any) -> Any:
        if dtype is None:
            return views.call("reshape", (self, self.shape), {})
        dtype = NUMPY_SPELLINGS.get(dtype, dtype) if isinstance(dtype, str) else dtype
        return views.call("view", (self, dtype), kwargs)

    # -------------------------------------------------------------------------------- writes

    def __getitem__(self, index: Any) -> Any:
        try:
            return views.getitem(self, index)
        except GraphError as error:
            raise as_numpy_raises(error, operator.getitem, (self, index), {}) from None

    def __setitem__(self, index: Any, value: Any) -> None:
        try:
            self._write(index, value)
        except GraphError as error:
            raise as_numpy_raises(error, operator.setitem, (self, index, value), {}) from None

    def _write(self, index: Any, value: Any) -> None:
        if isinstance(value, Tracer) and views.is_own_view(self, index, value):
            return  # the second half of `x[i] += v`: the view has written through already
        index = mapped(views.with_arrays(plain(index)), counted_elements)
        if isinstance(index, bool | np.bool_):
            if not index:
                return
            index = (None,)
        if isinstance(value, SelectedElements):
            self.assign(put_back(self, index, value))
            return
        require_storable("x[...] = y", value, self)
        if not isinstance(value, Value):
            value = lift(value, self.owner)
        self.assign(METHODS["setitem"](self, index, cast_value(value, self.element)))

    def assign(self, value: Value) -> None:
        """Make this tracer, what it is a view of and all views of that hold what was written."""
        views.write(self, value)

    def fill(self, value: Any) -> None:
        """Write one number everywhere; NumPy's scalars stay what they are."""
        if not self.is_scalar:
            self[...] = value

    def sort(self, axis: int = -1, **kwargs: Any) -> None:
        """Sort in place, as ndarray.sort does."""
        self.assign(PUBLIC["sort"](self, axis=axis, **kwargs))

    def partition(self, *args: Any, **kwargs: Any) -> None:
        raise _missing(self, "partition")


PLAIN_TYPES.add(Tracer)


def _no_value(tracer: Tracer, wanted: str, hint: str) -> TraceError:
    what = f"cannot become {wanted}"
    if assigns_item(frame_above(2)):  # buf[i] = x, where NumPy is what asks
        what, hint = "cannot take part in an assignment to an array from outside", "store"
    return _told(tracer, what, hint, tracer.owner.locate() if tracer.owner.locate else None)


def of_key(error: Exception) -> TraceError | None:
    """What to raise for a traced array that was looked up in a dict; None for other errors."""
    key = error.args[0] if isinstance(error, KeyError) and error.args else None
    return _told(key, "is no key", "key", location_of(error)) if isinstance(key, Tracer) else None


def _told(tracer: Tracer, what: str, hint: str, location: Location | None) -> TraceError:
    named, told = _argument(tracer), _NO_VALUE_HINTS[hint]
    if named and not tracer.shape and "." not in named:
        told = told.replace("static=[...]", f'static=["{named}"]')
    shown = f"argument {named!r}, {tracer.type}," if named else repr(tracer)
    text = f"a traced array has no value yet: {shown} {what}"
    return TraceError(text, location=location, hint=told)


def _argument(tracer: Tracer) -> str:
    """The argument of the traced function that it is, "" for what is computed or a region's."""
    is_outer = getattr(tracer.owner, "outer", None) is None
    node = tracer.node
    return readable(node.attrs["name"]) if is_outer and node.op.traits.parameter else ""


def _static(extent: Dimension, tracer: Tracer) -> int:
    if isinstance(extent, Dim):
        raise TraceError(
            f"the length {extent} of {tracer!r} is symbolic",
            hint="use gc.scan to walk over it, or trace with a fixed shape",
        )
    return extent


def _missing(tracer: Tracer, name: str) -> MissingAttribute:
    if name.startswith("__"):  # protocols that are probed for; no message needed
        return MissingAttribute(name)
    return MissingAttribute(
        f"a traced array has no attribute {name!r}",
        location=tracer.owner.locate() if tracer.owner.locate else None,
        hint=meant_method(name, {*METHODS, "T", "mT", "shape", "dtype"}),
    )


# ------------------------------------------------------------------------------------ in place


def _refusing(name: str, plain_name: str = "") -> Callable[[Tracer, Any], Any]:
    """The method, of which NumPy's errors are; `plain_name` is what a reflected one reflects."""
    forward, function = getattr(Tracer, name), getattr(operator, plain_name or name, None)

    def apply(self: Tracer, other: Any) -> Any:
        try:
            return forward(self, other)
        except GraphError as error:
            if function is None:
                raise
            operands = (other, self) if plain_name else (self, other)
            raise as_numpy_raises(error, function, operands, {}) from None

    return apply


def _refusing_alone(name: str) -> Callable[[Tracer], Any]:
    forward, function = getattr(Tracer, name), getattr(operator, name)

    def apply(self: Tracer) -> Any:
        try:
            return forward(self)
        except GraphError as error:
            raise as_numpy_raises(error, function, (self,), {}) from None

    return apply


def _in_place(name: str) -> Callable[[Tracer, Any], Any]:
    def operator(self: Tracer, other: Any) -> Any:
        made = PUBLIC[name](self, other)
        if self.weak or self.is_scalar:
            return made  # NumPy's scalars are immutable: the name is bound anew
        self.assign(views.fitted(made, self, name))
        return self

    return operator


for _python, _name in (
    ("add", "add"),
    ("sub", "subtract"),
    ("mul", "multiply"),
    ("truediv", "divide"),
    ("floordiv", "floor_divide"),
    ("mod", "remainder"),
    ("pow", "power"),
    ("matmul", "matmul"),
    ("and", "bitwise_and"),
    ("or", "bitwise_or"),
    ("xor", "bitwise_xor"),
    ("lshift", "left_shift"),
    ("rshift", "right_shift"),
):
    setattr(Tracer, f"__i{_python}__", _in_place(_name))
    setattr(Tracer, f"__{_python}__", _refusing(f"__{_python}__"))
    setattr(Tracer, f"__r{_python}__", _refusing(f"__r{_python}__", f"__{_python}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tracer, f"__{_name}__", _refusing(f"__{_name}__"))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Tracer, f"__{_name}__", _refusing_alone(f"__{_name}__"))
Tracer.__hash__ = object.__hash__  # type: ignore[method-assign, assignment]
