"""`gc.Variable`: state that outlives a run, lives in a container and reads as an array.

Inside a trace reading it is a `read` node and assigning to it an `assign` node; outside both happen
at once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

import numpy as np

from graphc.base.refusing import refusing
from graphc.errors import GraphError, RunError, TypeRuleError
from graphc.frontend.session.initial import initial_value
from graphc.frontend.trace.colocation import tied
from graphc.ir.op import OPS, Effect
from graphc.ir.types import DTYPES, DType, Type, tensor
from graphc.ir.types import dtype as as_dtype
from graphc.ir.user_lines import locate
from graphc.ops.control.state import MAIN
from graphc.ops.record.dims import shape_of
from graphc.ops.record.value import (
    PUBLIC,
    Stateful,
    Trace,
    Value,
    current,
    element_of,
    is_python_number,
    lift,
)
from graphc.runtime.call import variable as runtime
from graphc.runtime.load.program import Slot

_default: ContextVar[str] = ContextVar("container", default=MAIN)
_UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
_KINDS = "buifc"  # a value may be cast to its own kind or a later one


@refusing
@contextmanager
def container(name: str) -> Iterator[runtime.Container]:
    """Variables made inside `with gc.container("name"):` live in this container."""
    found = runtime.container(_name("container", name))
    token = _default.set(name)
    try:
        yield found
    finally:
        _default.reset(token)


@refusing
def reset_container(name: str = MAIN) -> None:
    """Free every variable of a container. Reading one then raises RunError; its name is free."""
    runtime.container(_name("container", name)).reset()


@refusing
def variables(container: str = MAIN) -> dict[str, Variable]:
    """The variables of a container by name."""
    found = {}
    for name, cell in sorted(runtime.container(_name("container", container)).cells.items()):
        if not cell.was_reset:
            found[name] = Variable.__new__(Variable)
            found[name]._cell = cell
    return found


def _name(what: str, name: Any) -> str:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise TypeRuleError(f"a {what} needs a name, got {name!r}")
    return name


def _in_place(name: str) -> Any:
    def change(self: Variable, other: Any) -> Variable:
        self._change(name, other)
        return self

    return change


class Variable(Stateful, np.lib.mixins.NDArrayOperatorsMixin):
    """State: an array that programs read and assign in place.

    init        an array or number; a spec such as gc.spec((3,), "f32"), which leaves it without a
                value until it is assigned; or a function of no arguments that returns an array,
                called when the value is needed first
    name        unique in its container; made up if not given
    container   where it lives; by default that of `with gc.container(...)`, else "main"
    dtype       its element type, if not that of `init`

    It reads as an array, in traced code and outside.  Raises GraphError for a name that is taken
    and RunError, with the line that made it, when it is read before it has a value.
    """

    __slots__ = ("_cell",)
    __hash__ = object.__hash__

    @refusing
    def __init__(
        self, init: Any, name: str | None = None, container: str | None = None, dtype: Any = None
    ) -> None:
        home = runtime.container(_name("container", container or _default.get()))
        title = _free_name(home) if name is None else _name("variable", name)
        element = None if dtype is None else as_dtype(dtype)
        kind, initial = initial_value(init, element)
        slot = None if kind is None else Slot(title, kind.dtype.name, kind.dims)
        self._cell = home.declare(title, slot, locate(2), initial)
        if slot is not None:
            self._cell.settle()

    # -- what it is

    @property
    def name(self) -> str:
        """Its name in its container."""
        return self._cell.name

    @property
    def container(self) -> str:
        """The name of the container it lives in."""
        return self._cell.container.name

    @property
    def initialized(self) -> bool:
        """Whether it has a value."""
        return self._cell.ready

    @property
    def type(self) -> Type:
        """Its dtype and shape as graphs have them."""
        slot = self._cell.kind()
        return tensor(DTYPES[slot.dtype], slot.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of its value."""
        return self.type.dtype.numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its value."""
        return self.type.dims

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return self.type.rank

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """The bytes of its value."""
        return self.type.nbytes

    def __repr__(self) -> str:
        return f"<{self._cell!r}>"

    # -- reading

    def read(self, trace: Trace) -> Value:
        since = trace.order.reads.get((self.container, self.name))
        if since and since[-1].op.effect is Effect.READ:
            return trace.wrap(since[-1])
        attrs = {"name": self.name, "container": self.container, "type": self.type}
        made: Value = trace.emit(OPS["read"], (), attrs)
        tied(trace, made.node, (self.container, self.name))
        return made

    @property
    def value(self) -> Any:
        """Its value: a traced array inside a trace, else a copy."""
        trace = current()
        return self._cell.value() if trace is None else self.read(trace)

    @value.setter
    def value(self, value: Any) -> None:
        self.assign(value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if copy is False:
            raise ValueError("the value of a variable can only be copied")
        made = self.value
        return made if dtype is None and isinstance(made, np.ndarray) else made.__array__(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.value.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        made = getattr(ufunc, method)(*map(_read, inputs), **options)
        if out is None:
            return made
        results = made if isinstance(made, tuple) else (made,)
        for target, result in zip(out if isinstance(out, tuple) else (out,), results):
            if target is not None:
                target.assign(result) if hasattr(target, "assign") else np.copyto(target, result)
        return out if isinstance(made, tuple) else out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return function(*_read(args), **{key: _read(value) for key, value in options.items()})

    def __matmul__(self, other: Any) -> Any:
        return self.value @ _read(other)

    def __rmatmul__(self, other: Any) -> Any:
        return _read(other) @ self.value

    def __getitem__(self, index: Any) -> Any:
        return self.value[_read(index)]

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __contains__(self, item: Any) -> bool:
        return item in self.value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise GraphError(f"{self._cell!r} cannot be copied", hint="its value can: v.value")

    # -- writing

    def assign(self, value: Any) -> Any:
        """Store a value that broadcasts to its shape.

        Returns the value written inside a trace, else the variable.  Raises TypeRuleError for a
        value that does not fit.
        """
        trace = current()
        if trace is not None:
            return self._assign_traced(value, trace)
        self._cell.assign(self._fitting(value))
        return self

    def _assign_traced(self, value: Any, trace: Trace) -> Any:
        kind = self.type
        given = lift(value, trace, self._check(value))
        given = PUBLIC["broadcast_to"](given, kind.dims)
        attrs = {"name": self.name, "container": self.container}
        made = trace.emit(OPS["assign"], (given.node,), attrs)
        tied(trace, made.node, (self.container, self.name))
        return made

    def _fitting(self, value: Any) -> Any:
        """The value as an array of this dtype."""
        element = self._check(value)
        try:
            if is_python_number(value):
                return np.asarray(value, element.numpy)
            return np.asarray(_read(value)).astype(element.numpy, copy=False)
        except OverflowError as error:
            raise TypeRuleError(str(error), location=locate(2)) from None

    def _check(self, value: Any) -> DType:
        """Its dtype. Raises TypeRuleError for a value that does not fit it."""
        try:
            (given, weak), shape, mine = element_of(value), shape_of(value), self.type
        except ValueError as error:
            raise TypeRuleError(str(error), location=locate(2)) from None
        kind = "u" if weak and given.kind == "i" else given.kind
        sizes = zip(reversed(shape), reversed(mine.dims))
        broadcasts = len(shape) <= mine.rank and all(n in (1, m) for n, m in sizes)
        casts = _KINDS.index(kind) <= _KINDS.index(mine.dtype.kind)
        if not (broadcasts and casts):
            raise TypeRuleError(
                f"{self._cell!r} cannot take a value of type {given}[{','.join(map(str, shape))}]",
                location=locate(2),
                hint="cast it first" if broadcasts else "give it the shape of the variable",
            )
        return mine.dtype

    def _change(self, name: str, value: Any) -> Any:
        """Become `name`(itself, value)."""
        if current() is not None:
            return self.assign(PUBLIC[name](self.value, value))
        array, function = self._fitting(value), getattr(np, name)
        self._cell.update(lambda memory: function(memory, array, out=memory))
        return self

    def assign_add(self, value: Any) -> Any:
        """Add in place. Returns as `assign`."""
        return self._change("add", value)

    def assign_sub(self, value: Any) -> Any:
        """Subtract in place. Returns as `assign`."""
        return self._change("subtract", value)

    def _scatter(self, mode: str, index: Any, value: Any) -> Any:
        if current() is not None:
            updates = PUBLIC["index_update"](self.value, _read(index), value, mode=mode)
            return self.assign(updates)
        rows, values = _read(index), np.asarray(_read(value)).astype(self.dtype)
        try:
            self._cell.update(lambda memory: _store(memory, rows, values, mode))
        except IndexError as error:
            raise RunError(f"{self._cell!r}: {error}", location=locate(2)) from None
        except ValueError as error:
            raise TypeRuleError(f"{self._cell!r}: {error}", location=locate(2)) from None
        return self

    def scatter_set(self, indices: Any, values: Any) -> Any:
        """Set the elements at an index (rows, for an array of integers). Returns as `assign`."""
        return self._scatter("set", indices, values)

    def scatter_add(self, indices: Any, values: Any) -> Any:
        """Add to the elements at an index; what is added to one place adds up."""
        return self._scatter("add", indices, values)

    def scatter_sub(self, indices: Any, values: Any) -> Any:
        """Subtract from the elements at an index; what goes from one place adds up."""
        return self._scatter("add", indices, PUBLIC["negative"](values))

    def scatter_mul(self, indices: Any, values: Any) -> Any:
        """Multiply the elements at an index."""
        return self._scatter("mul", indices, values)

    def scatter_min(self, indices: Any, values: Any) -> Any:
        """Bound the elements at an index from above."""
        return self._scatter("min", indices, values)

    def scatter_max(self, indices: Any, values: Any) -> Any:
        """Bound the elements at an index from below."""
        return self._scatter("max", indices, values)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._scatter("set", index, value)

    __iadd__, __isub__ = _in_place("add"), _in_place("subtract")
    __imul__, __itruediv__ = _in_place("multiply"), _in_place("divide")


def _read(value: Any) -> Any:
    """The value of a variable, and of those in a tuple or list."""
    if isinstance(value, Variable):
        return value.value
    return type(value)(map(_read, value)) if type(value) in (tuple, list) else value


def _free_name(home: runtime.Container) -> str:
    return next(n for k in count(len(home.cells)) if (n := f"variable_{k}") not in home.cells)


def _store(memory: Any, index: Any, values: Any, mode: str) -> None:
    if mode == "set":
        memory[index] = values
    else:
        _UFUNCS[mode].at(memory, index, values)
