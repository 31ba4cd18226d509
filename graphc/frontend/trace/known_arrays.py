"""Arrays whose elements are known while tracing, until a traced value is written to them.

    acc = np.zeros(3)        known: NumPy's own array inside
    row = acc[1:]            known: a view of the same memory, and linked to acc
    acc[0] = 5; acc += 1     NumPy's work, at once; no node
    acc += x                 x is traced: acc becomes a constant plus x, and so do its views

A known array that meets a traced one is a constant of the graph.  Computations of known arrays
alone are NumPy's own, and their results are known in turn.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphc.errors import GraphError, TraceError
from graphc.frontend.trace import dispatch, views
from graphc.frontend.trace.numpy_errors import as_raised
from graphc.frontend.trace.operands import any_unknown, leaves, mapped, plain
from graphc.frontend.trace.tracer import Tracer
from graphc.frontend.trace.views import Link, Storage
from graphc.ir.graph import Node
from graphc.ir.sizes import Size
from graphc.ir.types import Dim, Type, dtype, tensor
from graphc.ops.record.value import Trace, current

Array = np.ndarray[Any, Any]


def is_element(kind: np.dtype[Any]) -> bool:
    """Whether graphs have arrays of this dtype."""
    try:
        return dtype(kind) is not None
    except GraphError:
        return False


def has_open_size(index: Any) -> bool:
    """Whether an index says what to take by a size that is open: NumPy would ask for its number."""
    for part in index if isinstance(index, tuple) else (index,):
        ends = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        if any(isinstance(end, Size | Dim) for end in ends):
            return True
    return False


class KnownArray(Tracer):
    """A traced array that NumPy holds; see the head of this file.

    captured   it stands for an array from outside of the function, which is never written to with
               traced values
    """

    __slots__ = ("array", "captured")

    def __init__(
        self, array: Array, trace: Trace, link: Link | None = None, captured: bool = False
    ) -> None:
        self.owner = trace
        self.weak = False
        self.array = array
        self.link = link
        self.captured = captured
        parent = link.parent.storage if link is not None else None
        self.storage = parent if parent is not None else Storage(known=True)
        self.seen = self.storage.writes

    @property
    def known(self) -> Array | None:
        storage = self.storage
        return self.array if storage is not None and storage.known else None

    @property
    def node(self) -> Node:
        array = self.known
        if array is None:
            return super().node
        if array.base is not None and not array.flags.writeable:
            array = array.copy()  # read-only, but what it is a view of may be written to
        return self.owner.constant(array).node

    @property
    def type(self) -> Type:
        array = self.known
        return super().type if array is None else tensor(dtype(array.dtype), array.shape)

    def __reduce__(self) -> Any:
        return np.asarray, (self.__array__(),)

    # -------------------------------------------------------------------------------- protocols

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.known
        if array is None:
            return super().__array__(dtype, copy)
        return np.array(array, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any_unknown(inputs, kwargs):
            return dispatch.ufunc(ufunc, method, inputs, kwargs)
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return evaluate(function, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any_unknown(args, kwargs):
            return dispatch.function(function, args, kwargs)
        return evaluate(function, args, kwargs)

    # -------------------------------------------------------------------------------- elements

    def __iter__(self) -> Iterator[Any]:
        for position in range(len(self)):
            yield self[position]

    def __getitem__(self, index: Any) -> Any:
        array = self.known
        if array is None or any_unknown(index) or has_open_size(index):
            return super().__getitem__(index)
        given, index = index, plain(index)
        try:
            made = array[index]
        except IndexError as raised:
            raise self._refused(raised) from None
        if not isinstance(made, np.ndarray):
            return made
        if not np.may_share_memory(made, array):
            return KnownArray(made, self.owner)
        if self.captured:
            return made
        return KnownArray(made, self.owner, views.link_at(self, index, given))

    def __setitem__(self, index: Any, value: Any) -> None:
        array = self.known
        if array is None or any_unknown(index, value):
            self.promoted()
            super().__setitem__(index, value)
        else:
            try:
                self.writable()[plain(index)] = plain(value)
            except IndexError as raised:
                raise self._refused(raised) from None

    def _refused(self, raised: IndexError) -> GraphError:
        location = self.owner.locate() if self.owner.locate else None
        return as_raised(TraceError(str(raised), location=location), raised)

    def writable(self) -> Array:
        """The array inside, to be written to at once. Raises TraceError where another trace is."""
        if current() not in (self.owner, None):
            raise views.foreign_write(self)
        return self.array

    def promoted(self) -> None:
        """Check that traced values may be written to this array. Raises TraceError."""
        if self.captured:
            raise dispatch.from_outside("a write of a traced value")
        if self.known is not None and not self.array.flags.writeable:
            raise TraceError("assignment destination is read-only", hint="write to a .copy()")


def evaluate(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy on arrays that are all known, by NumPy itself."""
    targets = kwargs.get("out")
    for target in targets if isinstance(targets, tuple) else (targets,):
        if isinstance(target, KnownArray):
            target.writable()
    try:
        made = function(*plain(args), **plain(kwargs))
    except (IndexError, ValueError, TypeError) as raised:
        if isinstance(raised, GraphError) or any(map(callable, leaves((args, kwargs)))):
            raise
        raise as_raised(TraceError(str(raised)), raised) from None
    name = getattr(function, "__name__", "")
    view = name if name in views.LINKED else None
    return presented(made, list(leaves((args, kwargs))), view, args, kwargs)


def presented(
    made: Any,
    operands: list[Any],
    view: str | None = None,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """What NumPy made of known arrays, as a function that is traced sees it.

    New arrays are known ones; views of arrays from outside, and what is no array, stay themselves.
    `view` is the name of a function whose views can be derived again.
    """
    trace = current()
    if trace is None:
        return made

    def present(result: Any) -> Any:
        if type(result) is not np.ndarray or not is_element(result.dtype):
            return result
        for operand in operands:
            array = operand.known if isinstance(operand, KnownArray) else operand
            if not isinstance(array, np.ndarray) or not np.may_share_memory(result, array):
                continue
            if array is result or not isinstance(operand, KnownArray) or operand.captured:
                return operand if array is result else result
            return KnownArray(result, operand.owner, _link(operand, view, args, kwargs or {}))
        return KnownArray(result, trace)

    return mapped(made, present)


def _link(
    parent: KnownArray, view: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Link:
    if view is not None and args and args[0] is parent:
        return views.link_of(view, parent, plain(args[1:]), plain(kwargs))
    return Link(parent, _underivable, np.asarray, None)


def _underivable(parent: Any) -> Any:
    raise TraceError(
        "a view is read whose array was written to with traced values after the view was made",
        hint="take the view again after the write",
    )


# ------------------------------------------------------------------------------------ operators


def _of_tracer(self: Any, name: str) -> Any:
    """An attribute of a traced array that is not known."""
    for kind in Tracer.__mro__:
        found = kind.__dict__.get(name)
        if found is not None:
            return found.__get__(self, type(self))
    return Tracer.__getattr__(self, name)


def _unary(name: str) -> Callable[[Any], Any]:
    return lambda self: _method(self, name, (), {})


def _binary(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name, None) or {"__divmod__": divmod}[name]

    def apply(self: KnownArray, other: Any) -> Any:
        if self.known is None or any_unknown(other) or has_open_size(other):
            return _of_tracer(self, name)(other)
        return evaluate(function, (self, other), {})

    return apply


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    plain_name = f"__{name[3:]}"
    function = getattr(operator, plain_name, None) or {"__divmod__": divmod}[plain_name]

    def apply(self: KnownArray, other: Any) -> Any:
        if self.known is None or any_unknown(other) or has_open_size(other):
            return _of_tracer(self, name)(other)
        return evaluate(function, (other, self), {})

    return apply


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def apply(self: KnownArray, other: Any) -> Any:
        if self.known is None or any_unknown(other):
            self.promoted()
            return _of_tracer(self, name)(other)
        function(self.writable(), plain(other))
        return self

    return apply


def _conversion(name: str) -> Callable[..., Any]:
    def apply(self: KnownArray, *args: Any) -> Any:
        array = self.known
        if array is None:
            return _of_tracer(self, name)(*args)
        return getattr(array, name)(*plain(args))

    return apply


def _attribute(name: str) -> property:
    is_method = callable(getattr(np.ndarray, name))

    def get(self: KnownArray) -> Any:
        array = self.known
        if array is None:
            return _of_tracer(self, name)
        if is_method:
            return lambda *args, **kwargs: _method(self, name, args, kwargs)
        view = "transpose" if name == "T" else name if name in views.LINKED else None
        return presented(getattr(array, name), [self], view, (self,))

    def change(self: KnownArray, value: Any) -> None:
        if self.known is None or any_unknown(value):
            self.promoted()
            getattr(Tracer, name).__set__(self, value)
        else:
            setattr(self.writable(), name, plain(value))

    return property(get, change if name in ("real", "imag") else None)


_WRITING_METHODS = ("fill", "sort", "partition", "put", "resize", "setfield", "itemset", "setflags")


def _method(self: KnownArray, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    array = self.known
    if array is None or any_unknown(args, kwargs):
        if name in _WRITING_METHODS:
            self.promoted()
        return _of_tracer(self, name)(*plain(args), **plain(kwargs))
    bound = getattr(self.writable() if name in _WRITING_METHODS else array, name)
    made = bound(*plain(args), **plain(kwargs))
    view = name if name in views.LINKED else None
    return presented(made, [self, *leaves((args, kwargs))], view, (self, *args), kwargs)


_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
)
for _name in (*_ARITHMETIC, "divmod"):
    setattr(KnownArray, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(KnownArray, f"__r{_name}__", _reflected(f"__r{_name}__"))
for _name in _ARITHMETIC:
    setattr(KnownArray, f"__i{_name}__", _in_place(f"__i{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(KnownArray, f"__{_name}__", _binary(f"__{_name}__"))
for _name in (
    "bool",
    "int",
    "float",
    "complex",
    "index",
    "format",
    "contains",
    "len",
    "str",
    "repr",
    "round",
):
    if hasattr(np.ndarray, f"__{_name}__"):
        setattr(KnownArray, f"__{_name}__", _conversion(f"__{_name}__"))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(KnownArray, f"__{_name}__", _unary(f"__{_name}__"))
for _name in dir(np.ndarray):
    if not _name.startswith("_") and _name not in ("shape", "dtype", "ndim", "size"):
        setattr(KnownArray, _name, _attribute(_name))
KnownArray.__hash__ = object.__hash__  # type: ignore[method-assign, assignment]
