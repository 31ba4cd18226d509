"""custom_op: a user's own op around a function that Numba can compile.

    @gc.custom_op("smooth", infer=lambda x: x)
    def smooth(x, out):                       # operands, then results to fill; all C-contiguous
        for i in range(x.shape[0]):
            out[i] = 0.5 * (x[i] + x[max(i - 1, 0)])

    @gc.compile
    def model(x):
        return smooth(np.tanh(x))             # called natively, from inside the partition

The function sees arrays of the operands' shapes, allocates nothing and returns nothing, or an int
that is not 0 to stop the run.  It never runs in Python while tracing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.base.refusing import refusing
from graphc.errors import GraphError, TypeRuleError
from graphc.ir.op import OPS, Library, Op, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, DType, TupleType, Type, dtype, leaves, tensor, tuple_type
from graphc.ops.index.scatter import STORED
from graphc.ops.record.arguments import Applied, Array, ArrayLike
from graphc.ops.record.batching import lane_by_lane
from graphc.ops.record.dims import row_major_strides
from graphc.ops.record.families import define, require, require_dtype, require_tensor
from graphc.ops.record.value import Value, cast_value, emit, lift

Operands = tuple[tuple[DType, tuple[int, ...]], ...]


def _result_type(made: Any) -> AnyType:
    """What an infer function returned: anything with a shape and a dtype, or a tuple of such."""
    if isinstance(made, tuple | list):
        return tuple_type(_result_type(one) for one in made)
    if not hasattr(made, "shape") or not hasattr(made, "dtype"):
        raise TypeRuleError(
            f"infer must return something with a shape and a dtype, not {made!r}",
            hint="gc.spec(shape, dtype), the type of an operand, or a tuple of these",
        )
    return tensor(dtype(made.dtype), made.shape)


def _tensors(kind: AnyType) -> list[Type]:
    return [leaf for leaf in leaves(kind) if isinstance(leaf, Type)]


def _type_rule(
    name: str,
    infer: Callable[..., Any] | None,
    function: Callable[..., Any],
    each: Callable[..., Any] | None,
) -> Callable[..., AnyType]:
    def rule(*types: AnyType) -> AnyType:
        require(bool(types), f"{name} needs an operand")
        require_tensor(name, *types)
        made = types[0] if infer is None else _result_type(_inferred(name, infer, types))
        for kind in (*types, *_tensors(made)):
            assert isinstance(kind, Type)
            require_dtype(name, kind, STORED)
        count = len(types) + len(_tensors(made))
        _require_takes(name, function, count, "operands, then results")
        if each is not None:
            _require_takes(f"cuda= of {name}", each, 1 + count, "i, operands, then results")
        return made

    return rule


def _inferred(name: str, infer: Callable[..., Any], types: tuple[AnyType, ...]) -> Any:
    try:
        return infer(*types)
    except GraphError:
        raise
    except Exception as error:
        given = ", ".join(map(str, types))
        raise TypeRuleError(
            f"infer= of {name} failed for {given}: {type(error).__name__}: {error}"
        ) from error


def _require_function(name: str, function: Callable[..., Any]) -> None:
    """Numba compiles what has bytecode."""
    plain = getattr(function, "py_func", function)
    require(hasattr(plain, "__code__"), f"{name} is no Python function: {function!r}")


def _require_takes(name: str, function: Callable[..., Any], count: int, order: str) -> None:
    try:
        inspect.signature(getattr(function, "py_func", function)).bind(*range(count))
    except TypeError as error:
        raise TypeRuleError(
            f"{name} is called with {count} arguments: {error}", hint=f"it takes {order}"
        ) from None


def _reference(function: Callable[..., Any], rule: Callable[..., AnyType]) -> Callable[..., Any]:
    """The function run as plain Python on NumPy arrays."""

    def reference(*arrays: Array) -> Any:
        operands = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
        kind = rule(*(tensor(dtype(a.dtype), a.shape) for a in operands))
        results = [np.zeros(t.dims, t.dtype.numpy) for t in _tensors(kind)]
        getattr(function, "py_func", function)(*operands, *results)
        return tuple(results) if isinstance(kind, TupleType) else results[0]

    return reference


@record(frozen=True)
class _Kernel:
    """kernel(node): a function over flat arrays that gives the user's function shaped views."""

    function: Callable[..., Any]
    each: Callable[..., Any] | None

    def __call__(self, node: Applied) -> Callable[..., Any]:
        kinds = [n.type for n in node.inputs] + _tensors(node.type)
        return _shaped(self.function, self.each, tuple((k.dtype, k.dims) for k in kinds))


def permitted(names: Iterable[str] | bool) -> dict[str, Op]:
    """What a file that may call these custom ops (True: all of them) calls: the same ops with
    indices that are checked, as a file brings shapes of its own. Raises GraphError.
    """
    if names is True:
        names = [name for name, op in OPS.items() if op.is_custom]
    given = (names,) if isinstance(names, str) else tuple(names or ())
    for name in given:
        if name not in OPS or not OPS[name].is_custom:
            raise GraphError(
                f"custom_ops names {name!r}, which is no custom op of this program",
                hint="register it before: @gc.custom_op(...)",
            )
    return {name: _checking(OPS[name]) for name in given}


def _checking(op: Op) -> Op:
    """The op with a kernel that stops the run at an index out of range."""
    assert isinstance(op.lower, Library)
    kernel = op.lower.kernel
    assert isinstance(kernel, _Kernel)
    lower = Library(_Kernel(_bounds_checked(kernel.function), kernel.each))
    return Op(**{name: getattr(op, name) for name in op.__match_args__} | {"lower": lower})


@functools.cache
def _bounds_checked(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    options = {**getattr(function, "targetoptions", {}), "boundscheck": True}
    options.pop("nopython", None)
    made: Callable[..., Any] = numba.njit(**options)(getattr(function, "py_func", function))
    return made


@functools.cache
def _shaped(
    function: Callable[..., Any], each: Callable[..., Any] | None, operands: Operands
) -> Callable[..., Any]:
    """The function over flat arrays; `jitted()` is what Numba compiles, made when it is needed.

    For a GPU: the user's function itself, the one for each element, and the shapes both take.
    """

    def kernel(*flat: Array) -> Any:  # reads the function as it is: its options belong to its key
        views = (a.reshape(shape) for a, (_, shape) in zip(flat, operands))
        return getattr(function, "py_func", function)(*views)

    made: Any = kernel
    made.jitted = lambda: _jitted(function, operands)
    made.plain, made.each, made.shapes = function, each, tuple(shape for _, shape in operands)
    return kernel


def _jitted(function: Callable[..., Any], operands: Operands) -> Any:
    """The function behind one step per operand, which views the first argument in its shape and
    moves it to the end:

        a, b, params  ->  b, params, A  ->  params, A, B  ->  function(A, B)
    """
    import numba

    compiled = function if hasattr(function, "py_func") else numba.njit(function)

    def last(params: Array, *views: Array) -> Any:
        return compiled(*views)

    step: Any = numba.njit(last)
    for element, shape in reversed(operands):
        strides = tuple(s * element.itemsize for s in row_major_strides(shape))
        step = _view_first(step, shape, strides)
    return step


def _view_first(following: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    import numba

    # Not reshape: that calls into Numba's runtime, which no loaded object has.
    view = np.lib.stride_tricks.as_strided

    def step(flat: Array, *rest: Any) -> Any:
        return following(*(rest + (view(flat, shape, strides),)))  # noqa: RUF005 Numba adds tuples

    return numba.njit(step)


def _checked(name: str, rule: Callable[..., Any]) -> Callable[..., list[Value | None]]:
    """The user's gradient rule, held to one cotangent per operand, each of the operand's type."""

    def checked(ct: Value, result: Value, *operands: Value) -> list[Value | None]:
        made = rule(ct, result, *operands)
        given = list(made) if isinstance(made, tuple | list) else [made]
        require(
            len(given) == len(operands),
            f"the gradient of {name} gave {len(given)} cotangents for {len(operands)} operand(s)",
            hint="one for each, None where there is none",
        )
        return [_cotangent(name, k, *pair) for k, pair in enumerate(zip(given, operands))]

    return checked


def _cotangent(name: str, position: int, given: Any, operand: Value) -> Value | None:
    if given is None or operand.element.kind not in "fc":
        return None
    made = lift(given, operand.owner)
    if made.weak:
        made = cast_value(made, operand.element)
    require(
        made.type is operand.type,
        f"the gradient of {name} gave a cotangent of type {made.type} for operand {position}, "
        f"which is {operand.type}",
    )
    return made


@refusing
def custom_op(
    name: str,
    infer: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    samples: Callable[[], list[Sample]] | None = None,
    cuda: Callable[..., Any] | None = None,
    boundscheck: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an op of a Numba-compilable function `function(operands..., results...)`.

    infer(*types)        what the results are like, from operand types (`.shape`, `.dtype`): a spec,
                         a type or a tuple of them; by default one result like the first operand
    reference(*arrays)   a NumPy version that returns the results; by default the function itself
    gradient             the cotangent rule: gradient(ct, result, *operands) with traced arrays, a
                         tuple of them where there are several results (None for a cotangent that
                         does not arrive); it returns one array per operand, of its shape and
                         dtype, or None.  Without a rule, differentiating through the op is an error
    samples()            arguments to test with
    cuda(i, operands..., results...)
                         the same for a GPU, called for every element number i of the first result,
                         by many threads at once; without it one thread runs the function there
    boundscheck          an index out of range stops the run on a CPU with a RunError; without it,
                         as in Numba, it reads or writes what lies beside the array

    Returns the function to call on traced or plain arrays; f16 and bf16 must be cast first.
    Raises TypeRuleError when the name is no identifier or belongs to an op of graphc, and for what
    is no Python function; calling it does for a function that takes other arguments.
    """
    require(name.isidentifier(), f"{name!r} is no name for an op", hint="use letters, digits and _")
    require(name not in OPS or OPS[name].is_custom, f"an op named {name} exists already")
    if cuda is not None:
        _require_function(f"cuda= of {name}", cuda)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _require_function(name, function)
        rule = _type_rule(name, infer, function, cuda)
        OPS.pop(name, None)
        op = define(
            name,
            batch=lane_by_lane,
            traits=Traits(checks=True),
            infer=rule,
            reference=reference or _reference(function, rule),
            lower=Library(_Kernel(_bounds_checked(function) if boundscheck else function, cuda)),
            dtypes=STORED,
            gradient=None if gradient is None else _checked(name, gradient),
            samples=samples,
            variadic=True,
            is_custom=True,
            doc=(function.__doc__ or f"The custom op {name}.").strip(),
        )
        return _called(op, function)

    return register


def _called(op: Op, function: Callable[..., Any]) -> Callable[..., Any]:
    """The op as a function of its operands, with the name and the text of the user's."""

    @functools.wraps(function)
    def call(*operands: ArrayLike) -> Any:
        return emit(op, *operands)

    del vars(call)["__wrapped__"]  # which takes results, too
    return call
