"""Value: a node under construction that answers Python operators; the public function tables.

Public functions (`gc.sum`, `np.sum` on a tracer, `x.sum()`), expansions of composite ops and
gradient rules are all written over Values.  A `Trace` collects the nodes.  A function called on
plain arrays with no trace active is evaluated at once by the NumPy reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np

from graphc.base.late_table import LateTable, LateTableOfNumpy
from graphc.base.odd_arrays import odd_kind
from graphc.errors import GraphError, LimitError, TraceError, TypeRuleError, also
from graphc.forks import fork_safe_lock
from graphc.ir.graph import Builder, Location, Node
from graphc.ir.literal import literal
from graphc.ir.op import OPS, Effect, Op
from graphc.ir.promotion import promote, weak_promote
from graphc.ir.size_answers import lifting
from graphc.ir.sizes import Size
from graphc.ir.types import (
    BOOL,
    C128,
    F64,
    I64,
    Dim,
    Dimension,
    DType,
    TupleType,
    Type,
    dtype,
    tensor,
)
from graphc.ops.record.effects import Order, accesses

NO_SIZE = -1  # a count that runs refuse
PUBLIC = LateTable[str, Callable[..., Any]]()
METHODS = LateTable[str, Callable[..., Any]]()
NUMPY = LateTableOfNumpy[Callable[..., Any]]()


def public(
    *numpy_functions: Any, method: bool = False, name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Publish a function as `gc.<name>`, as the handler of NumPy functions and as a Value
    method.
    """

    def publish(function: Callable[..., Any]) -> Callable[..., Any]:
        title = name or function.__name__.rstrip("_")
        if (
            "<locals>" in function.__qualname__ or function.__name__ != title
        ):  # a name under which pickle finds it
            function.__module__, function.__qualname__ = __name__, f"functions.{title}"
        PUBLIC[title] = function
        for key in numpy_functions:
            NUMPY[key] = function
        if method:
            METHODS[title] = function
        return function

    return publish


class _Functions:
    """The published functions as attributes: `functions.where(c, x, y)`.

    Families refer to one another through it, so no family imports another for its public functions.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in PUBLIC:
            return PUBLIC[name]
        raise AttributeError(f"no function named {name} is published")


functions = _Functions()


def counting(problem: str, hint: str) -> Trace:
    """The current trace, whose run may decide sizes. Raises TraceError where it may not."""
    trace = current()
    if trace is None or not trace.counts_sizes:
        raise _uncounted(trace, problem, hint)
    return trace


def _uncounted(trace: Trace | None, problem: str, hint: str) -> TraceError:
    within = f", and {trace.fixed_by}" if trace is not None and trace.fixed_by else ""
    return TraceError(f"{problem}{within}", hint=hint)


class Trace:
    """A graph being built: its Builder, the Value class to wrap nodes in and where the user's code
    is.
    """

    def __init__(self, builder: Builder, value_class: type[Value] | None = None) -> None:
        self.builder = builder
        self.value_class = value_class or Value
        self.locate: Callable[[], Location | None] | None = None
        self.constants: dict[int, tuple[Any, Node]] = {}
        self.order = Order()
        self.closed = False  # whether its function has returned
        self.counts_sizes = False  # whether the run may decide extents: `data_size`
        self.fixed_by = ""  # what keeps it from that

    def wrap(self, node: Node, weak: bool = False) -> Value:
        return self.value_class(node, self, weak)

    def capture(self, value: Value) -> Value:
        """What a value of another trace is in this one. Raises TraceError: regions know better."""
        if value.owner.locate is not None:
            value.owner.locate()  # raises where that trace has ended
        raise TraceError(
            "values of two different traces meet",
            hint="pass outer values into a compiled function as arguments",
        )

    def emit(self, op: Op, nodes: tuple[Node, ...], attrs: Mapping[str, Any], **fields: Any) -> Any:
        """Emit a node; a tuple-typed one comes back as a tuple of its items."""
        loc = self.locate() if self.locate else None
        regions = fields.get("regions", ())
        stateful = bool(regions) or op.effect is not Effect.PURE
        touched = accesses(op, attrs, regions) if stateful else None
        if touched:
            fields["after"] = (*fields.get("after", ()), *self.order.before(touched))
        node = self.builder.emit(op, nodes, attrs, loc=loc, **fields)
        if touched:
            self.order.note(touched, node)
        if not isinstance(node.type, TupleType):
            return self.wrap(node)
        item = OPS["item"]
        return tuple(
            self.wrap(self.builder.emit(item, (node,), {"index": k}, loc=loc))
            for k in range(len(node.type.elements))
        )

    def data_size(self, name: str, count: Value, most: Any = None) -> Any:
        """An extent that is counted when the program runs; a run that counts NO_SIZE is an error.

        `most` is what it never exceeds, None where nothing says that.  Raises TraceError where none
        can be.
        """
        raise _uncounted(
            self,
            f"{name} of a traced array has a shape that depends on data",
            f"pass size= to fix it: gc.{name}(x, size=n, fill_value=0)",
        )

    def constant(self, value: Any, element: DType | None = None) -> Value:
        """A const node; the same large array object becomes one node."""
        key = id(value)
        if element is None and key in self.constants:
            return self.wrap(self.constants[key][1])
        loc = self.locate() if self.locate else None
        node = self.builder.emit(OPS["const"], (), {"value": literal(value, element)}, loc=loc)
        if isinstance(value, np.ndarray) and element is None:
            self.constants[key] = (value, node)  # holding the array keeps its id from being reused
        return self.wrap(node)


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[Trace] = []


_ACTIVE = _Active()
_counting = fork_safe_lock()
traces_active = np.zeros(1, np.int64)  # of all threads, where native code looks


def current() -> Trace | None:
    """The innermost trace of this thread."""
    return _ACTIVE.stack[-1] if _ACTIVE.stack else None


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    _ACTIVE.stack.append(trace)
    _count_traces(1)
    token = lifting.set(as_value if trace is not None else None)
    try:
        yield trace
    finally:
        lifting.reset(token)
        _count_traces(-1)
        _ACTIVE.stack.pop()


def _count_traces(more: int) -> None:
    with _counting:
        traces_active[0] += more


def _operator(name: str) -> Callable[[Value, Any], Value]:
    """x <op> y; a class that says `__array_ufunc__ = None` does it itself, as NumPy has it, and a
    factor multiplies."""

    def apply(x: Value, y: Any) -> Any:
        left_to_it = getattr(type(y), "__array_ufunc__", True) is None
        if left_to_it or (name == "matmul" and isinstance(y, Factor)):
            return NotImplemented
        return PUBLIC[name](x, y)

    return apply


def _reflected(name: str) -> Callable[[Value, Any], Value]:
    return lambda x, y: PUBLIC[name](y, x)


def _unary(name: str) -> Callable[[Value], Value]:
    return lambda x: PUBLIC[name](x)


class Value:
    """A tensor in a graph under construction.

    `weak` marks what came from a Python number: it adapts to the dtype of the other operand.
    """

    __slots__ = ("_node", "owner", "weak")
    __hash__ = object.__hash__

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _operator("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _operator("divide"), _reflected("divide")
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _operator("remainder"), _reflected("remainder")
    __divmod__, __rdivmod__ = _operator("divmod"), _reflected("divmod")
    __pow__, __rpow__ = _operator("power"), _reflected("power")
    __matmul__, __rmatmul__ = _operator("matmul"), _reflected("matmul")
    __and__, __rand__ = _operator("bitwise_and"), _reflected("bitwise_and")
    __or__, __ror__ = _operator("bitwise_or"), _reflected("bitwise_or")
    __xor__, __rxor__ = _operator("bitwise_xor"), _reflected("bitwise_xor")
    __lshift__, __rlshift__ = _operator("left_shift"), _reflected("left_shift")
    __rshift__, __rrshift__ = _operator("right_shift"), _reflected("right_shift")
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __eq__ = _operator("equal")  # type: ignore[assignment]
    __ne__ = _operator("not_equal")  # type: ignore[assignment]
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("absolute"), _unary("bitwise_not")

    def __init__(self, node: Node, trace: Trace, weak: bool = False) -> None:
        self._node = node
        self.owner = trace
        self.weak = weak

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        """The array itself where its elements are known while tracing; None if they are not."""
        return None

    @property
    def node(self) -> Node:
        return self._node

    @property
    def type(self) -> Type:
        kind = self.node.type
        assert isinstance(kind, Type)
        return kind

    @property
    def shape(self) -> tuple[Dimension, ...]:
        return self.type.shape

    @property
    def element(self) -> DType:
        """The graphc dtype (`dtype` on a tracer is NumPy's, as code written for NumPy expects)."""
        kind = self.node.type
        assert isinstance(kind, Type)
        return kind.dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype.numpy

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> Dimension:
        total: Dimension = 1
        for extent in self.shape:
            total = total * extent
        return total

    @property
    def T(self) -> Value:
        return METHODS["transpose"](self)  # type: ignore[no-any-return]

    @property
    def mT(self) -> Value:
        return METHODS["matrix_transpose"](self)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        method = METHODS.get(name)
        if method is None:
            raise AttributeError(f"a traced array has no attribute {name!r}")
        return lambda *args, **kwargs: method(self, *args, **kwargs)

    def __getitem__(self, index: Any) -> Value:
        return METHODS["getitem"](self, index)  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        """Raises TraceError: `max(n, 0.0)` of a size, for one, is not decided by what every object
        of Python is."""
        raise TraceError("a choice by a value that only a run tells", hint="np.where chooses")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} %{self.node.id}: {self.node.type}>"


class Stateful:
    """What reads as an array although it is none: a variable. A trace reads it with `read`."""

    __slots__ = ()

    @property
    def type(self) -> Type:
        raise NotImplementedError

    @property
    def element(self) -> DType:
        return self.type.dtype

    def read(self, trace: Trace) -> Value:
        """Its value at this point of the trace."""
        raise NotImplementedError


class Factor:
    """A matrix that is no array: it takes part in products, and all else of NumPy is refused."""

    __slots__ = ()
    _takes_part = ""  # in what: a hint

    def _no_array(self) -> GraphError:
        return GraphError(f"{self!r} is not an array", hint=self._takes_part)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self._no_array()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is not np.matmul or method != "__call__" or kwargs:
            raise self._no_array()
        left, right = inputs
        if isinstance(right, Factor):
            return right.__rmatmul__(left)
        return left.__matmul__(right)

    def __matmul__(self, x: Any) -> Any:
        raise self._no_array()

    def __rmatmul__(self, x: Any) -> Any:
        raise self._no_array()

    def __getitem__(self, places: Any) -> Any:
        raise self._no_array()


# ------------------------------------------------------------------------------------ emitting


def is_python_number(value: object) -> bool:
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


def number_dtype(value: Any) -> DType:
    """The default dtype of a Python number: bool, i64, f64 or c128."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            text = f"the Python integer {value} does not fit in 64 bits"
            raise also(TraceError(text), OverflowError)
        return I64 if value < 2**63 else dtype("u64")
    return F64 if isinstance(value, float) else C128


def trace_of(*operands: object) -> Trace | None:
    """The trace that an operation on these operands joins: the innermost active one."""
    trace = current()
    if trace is None:
        owners = (o.owner for o in operands if isinstance(o, Value) and o.known is None)
        trace = next(owners, None)
    return trace


def lift(operand: object, trace: Trace, element: DType | None = None) -> Value:
    """The operand as a Value of this trace, cast to `element` if given."""
    if isinstance(operand, Value):
        array = operand.known
        if array is not None:
            own = trace.constant(array)
        else:
            own = operand if operand.owner is trace else trace.capture(operand)
        return own if element is None else cast_value(own, element)
    if isinstance(operand, Stateful):
        return lift(operand.read(trace), trace, element)
    if isinstance(operand, Dim | Size):
        made = trace.emit(OPS["extent"], (), {"extent": operand})
        made.weak = True
        return made if element is None else cast_value(made, element)
    if element is not None and is_python_number(operand):
        _check_fits(operand, element)
        return trace.constant(operand, element)
    if is_python_number(operand):
        made = trace.constant(operand, number_dtype(operand))
        made.weak = not isinstance(operand, bool)
        return made
    made = stacked(operand, trace) if holds_values(operand) else trace.constant(array_of(operand))
    return made if element is None else cast_value(made, element)


def holds_values(operand: object) -> bool:
    """Whether it is a nesting of lists with traced values in it."""
    if not isinstance(operand, list | tuple):
        return False
    return any(isinstance(o, Value | Stateful) or holds_values(o) for o in operand)


def stacked(operand: Any, trace: Trace) -> Value:
    """The array of nested lists that hold traced values, as NumPy makes it.

    Raises TraceError for lists of different shapes.
    """
    return cast_value(_nested(operand, trace), element_of(operand)[0])


def _nested(operand: Any, trace: Trace) -> Value:
    if not isinstance(operand, list | tuple):
        return lift(operand, trace)
    if not operand:
        return trace.constant(np.zeros(0))
    parts = [_nested(item, trace) for item in operand]
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise TraceError(
            "an array of a list takes items of one shape, got "
            + ", ".join(str(list(shape)) for shape in shapes),
            hint="use np.concatenate for pieces of different lengths",
        )
    return functions.stack(parts)  # type: ignore[no-any-return]


def _list_element(operand: Any) -> DType:
    """The dtype of an array of nested lists: Python numbers count as f64, i64."""
    if not isinstance(operand, list | tuple):
        return element_of(operand)[0]
    return reduce(promote, map(_list_element, operand)) if operand else F64


def as_value(operand: object) -> Any:
    """The operand itself where an op would be the identity: a Value in a trace, an array
    outside.
    """
    trace = trace_of(operand)
    return np.asarray(operand) if trace is None else lift(operand, trace)


def array_of(operand: object) -> np.ndarray[Any, Any]:
    """An operand as NumPy has it. Raises GraphError for what is neither an array nor a number."""
    if kind := odd_kind(operand):
        raise TraceError(
            f"a {kind} is no operand here: a plain array is expected",
            hint="np.asarray(a) is its numbers, np.ma.getmaskarray(a) the mask",
        )
    try:
        made = np.asarray(operand)
    except ValueError as error:  # lists of different lengths
        raise also(TraceError(str(error)), ValueError) from None
    if made.dtype.kind in _NO_NUMBERS and not hasattr(operand, "dtype"):
        within = " that holds what is no number" if isinstance(operand, list | tuple) else ""
        kind = "None" if operand is None else f"of type {type(operand).__name__}{within}"
        text = f"an operand is {kind}: an array or a number is expected"
        raise also(TypeRuleError(text, hint=_NO_OPERANDS.get(type(operand))), TypeError)
    return made


_NO_NUMBERS = "OSTUMm"  # kinds of elements: objects, texts, dates
_NO_OPERANDS = {
    type(None): "an argument that was not given, or a function that returns nothing?",
    dict: 'its values are operands, by name: d["x"]',
}


def _check_fits(number: Any, element: DType) -> None:
    if element.is_integer and isinstance(number, int):
        info = np.iinfo(element.numpy)
        if not info.min <= number <= info.max:
            text = f"Python integer {number} is out of bounds for {element.name}"
            raise also(TraceError(text), OverflowError)


def cast_value(value: Value, element: DType) -> Value:
    if value.element is element:
        return value
    return value.owner.emit(OPS["cast"], (value.node,), {"dtype": element})  # type: ignore[no-any-return]


def element_of(operand: object) -> tuple[DType, bool]:
    """(dtype, weak) of anything that can be an operand."""
    if isinstance(operand, Value):
        return operand.element, operand.weak
    if isinstance(operand, Stateful):
        return operand.element, False
    if isinstance(operand, Dim | Size):
        return I64, True
    if is_python_number(operand):
        return number_dtype(operand), not isinstance(operand, bool)
    if holds_values(operand):
        return _list_element(operand), False
    return dtype(array_of(operand).dtype), False


def common_element(*operands: object) -> tuple[DType, bool]:
    """The promoted dtype of operands and whether it is still weak (all were Python numbers)."""
    strong: DType | None = None
    weak: DType | None = None
    for element, is_weak in map(element_of, operands):
        if is_weak:
            weak = element if weak is None else promote(weak, element)
        else:
            strong = element if strong is None else promote(strong, element)
    if strong is None:
        assert weak is not None
        return weak, True
    return (strong if weak is None else weak_promote(strong, weak)), False


def emit(op: Op | str, *operands: object, **attrs: object) -> Any:
    """Apply an op to values, arrays or numbers exactly as they are (no promotion).

    Inside a trace: a Value, or a tuple of Values for an op with several results.  Outside: the
    op's NumPy reference is evaluated at once.
    """
    record = OPS[op] if isinstance(op, str) else op
    trace = trace_of(*operands)
    if trace is None:
        return evaluate(record, operands, attrs)
    nodes = tuple(lift(o, trace).node for o in operands)
    return trace.emit(record, nodes, attrs)


def evaluate(op: Op, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """Run one op on arrays through its reference, with the same type checks as in a graph."""
    arrays = [np.asarray(o) for o in operands]
    coerced = op.coerce(attrs)
    result = op.result_type(tuple(map(literal_type, arrays)), coerced)
    try:
        with np.errstate(all="ignore"):
            made = op.reference(*arrays, **coerced.values_dict)
    except MemoryError:
        raise LimitError(f"{op.name}: there is no memory for {result}") from None
    if isinstance(result, TupleType):
        return tuple(made)
    assert isinstance(result, Type)
    return np.asarray(made, result.dtype.numpy)


def literal_type(array: np.ndarray[Any, Any]) -> Type:
    return tensor(dtype(array.dtype), array.shape)


def emit_promoted(
    op: Op | str, *operands: object, element: DType | None = None, **attrs: Any
) -> Any:
    """Apply an op after casting every operand to their common dtype (or to `element`). Raises
    TypeRuleError where that would lose imaginary parts."""
    target, weak = common_element(*operands)
    if element is not None:
        if target.is_complex and not element.is_complex:
            name = op if isinstance(op, str) else op.name
            raise TypeRuleError(f"{name}: {target} as {element} loses its imaginary part")
        target, weak = element, False
    trace = trace_of(*operands)
    if trace is None:
        return emit(op, *(np.asarray(o).astype(target.numpy) for o in operands), **attrs)
    made = emit(op, *(lift(o, trace, target) for o in operands), **attrs)
    if weak and isinstance(made, Value):
        made.weak = made.element is not BOOL
    return made
