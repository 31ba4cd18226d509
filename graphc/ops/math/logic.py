"""Logic, bits, tests of floats, selection."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import Sample, Scalar
from graphc.ir.types import BOOL, AnyType, DType, Type, tensor
from graphc.loops import complex_math, scalars
from graphc.loops.nest import Expr
from graphc.loops.scalars import Element, Pair, is_nan, popcount, sign_bit
from graphc.ops.math.elementwise import int8_for_bool
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.derivatives import where_true
from graphc.ops.record.families import (
    ALL,
    BOOLS,
    FLOATS,
    INTEGERS,
    as_dtype,
    broadcast_dims,
    define,
    elementwise,
    elementwise_cost,
    elementwise_type,
    float_of,
    require,
    require_real,
    require_tensor,
    sample_array,
    to_bool,
)
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    element_of,
    emit,
    functions,
    lift,
    public,
    trace_of,
)

# ----------------------------------------------------------------------------------- bits and logic

_BITS: dict[str, Any] = {
    "arity": 2,
    "dtypes": BOOLS + INTEGERS,
    "commutative": True,
    "differentiable": False,
}
elementwise(
    "and", operator.and_, np.bitwise_and, np.bitwise_and, public_name="bitwise_and", **_BITS
)
elementwise("or", operator.or_, np.bitwise_or, np.bitwise_or, public_name="bitwise_or", **_BITS)
elementwise("xor", operator.xor, np.bitwise_xor, np.bitwise_xor, public_name="bitwise_xor", **_BITS)
elementwise(
    "not",
    operator.invert,
    np.invert,
    np.invert,
    dtypes=BOOLS + INTEGERS,
    differentiable=False,
    public_name="bitwise_not",
    aliases=("invert", "bitwise_invert"),
)
elementwise(
    "shl",
    operator.lshift,
    np.left_shift,
    np.left_shift,
    arity=2,
    dtypes=INTEGERS,
    promote=int8_for_bool,
    differentiable=False,
    public_name="left_shift",
    aliases=("bitwise_left_shift",),
)
elementwise(
    "shr",
    operator.rshift,
    np.right_shift,
    np.right_shift,
    arity=2,
    dtypes=INTEGERS,
    promote=int8_for_bool,
    differentiable=False,
    public_name="right_shift",
    aliases=("bitwise_right_shift",),
)
elementwise(
    "popcount",
    lambda x: popcount(abs(x)).cast(as_dtype("u8")),
    np.bitwise_count,
    np.bitwise_count,
    dtypes=INTEGERS,
    promote=int8_for_bool,
    result=lambda _: as_dtype("u8"),
    differentiable=False,
    public_name="bitwise_count",
    doc="How many bits of |x| are set, as u8.",
)


def _logical(op: str, *numpy_functions: Callable[..., Any]) -> None:
    """A logical function: operands are made bool, then it is the bit op of the same name."""

    def function(*operands: ArrayLike) -> Any:
        return emit(op, *(functions.astype(x, BOOL) for x in operands))

    function.__doc__ = f"Element-wise logical {op}: every element that is not zero is true."
    public(*numpy_functions, name=f"logical_{op}")(function)


_logical("and", np.logical_and)
_logical("or", np.logical_or)
_logical("xor", np.logical_xor)
_logical("not", np.logical_not)

# ---------------------------------------------------------------------------------- tests of floats


def _is_infinite(x: Expr) -> Any:
    return abs(x) == np.inf


def _question(real: Any, pair: Any, of_integers: bool) -> Any:
    """A test that has one answer for all integers."""

    def expression(x: Element) -> Any:
        if isinstance(x, Pair):
            return pair(x)
        return real(x) if x.dtype.kind == "f" else x.scalars.const(of_integers, BOOL)

    return expression


_QUESTIONS: tuple[tuple[str, Any, Any], ...] = (
    ("isnan", np.isnan, _question(is_nan, complex_math.any_nan, False)),
    ("isinf", np.isinf, _question(_is_infinite, complex_math.any_infinite, False)),
    ("isfinite", np.isfinite, _question(complex_math.finite, complex_math.all_finite, True)),
)

for _name, _function, _expression in _QUESTIONS:
    elementwise(
        _name, _expression, _function, _function, dtypes=ALL, result=to_bool, differentiable=False
    )
elementwise(
    "signbit",
    sign_bit,
    np.signbit,
    np.signbit,
    dtypes=FLOATS,
    promote=float_of,
    result=to_bool,
    differentiable=False,
)


@public(np.isposinf)
def isposinf(x: ArrayLike) -> Any:
    """True where x is +inf."""
    return functions.equal(x, np.inf)


@public(np.isneginf)
def isneginf(x: ArrayLike) -> Any:
    """True where x is -inf."""
    return functions.equal(x, -np.inf)


# ---------------------------------------------------------------------------------------- selection


def _infer_where(condition: AnyType, x: AnyType, y: AnyType) -> Type:
    require_tensor("where", condition)
    kind = elementwise_type("where", (x, y), 2, ALL)
    assert isinstance(condition, Type)
    require(condition.dtype is BOOL, f"the condition of where is {condition.dtype}, not bool")
    shapes = [t.shape for t in (condition, x, y) if isinstance(t, Type)]
    return tensor(kind.dtype, broadcast_dims(shapes))


def _where_samples() -> list[Sample]:
    condition = sample_array("bool", (3, 1), (0, 1), 0)
    good = [
        Sample((condition, sample_array(n, (3, 5), (-4, 4), 1), sample_array(n, (5,), (-4, 4), 2)))
        for n in ALL
    ]
    one = np.float32(1)
    return [
        *good,
        Sample((one, one, one), good=False),
        Sample((condition, one, condition), good=False),
    ]


def _where_rule(
    ct: Value, made: Value, condition: Value, x: Value, y: Value
) -> tuple[None, Any, Any]:
    return None, where_true(condition, ct), functions.where(condition, 0, ct)


define(
    "where",
    infer=_infer_where,
    reference=np.where,
    lower=Scalar(scalars.where),
    dtypes=BOOLS,
    gradient=_where_rule,
    cost=elementwise_cost(1),
    samples=_where_samples,
    doc="x where the condition holds, else y.",
)


@public(np.where)
def where(condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None) -> Any:
    """x where the condition holds, else y; all three broadcast, x and y promote.

    With a condition alone, where it holds: one vector of positions per axis.
    """
    if x is None and y is None:
        return functions.nonzero(condition)
    require(x is not None and y is not None, "where takes a condition, or x and y as well")
    condition = functions.astype(condition, BOOL)
    element = common_element(x, y)[0]
    trace = trace_of(condition, x, y)
    if trace is None:
        return emit("where", condition, *(np.asarray(v).astype(element.numpy) for v in (x, y)))
    return emit("where", condition, *(lift(v, trace, element) for v in (x, y)))


@public(np.nan_to_num)
def nan_to_num(
    x: ArrayLike, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """x with NaN replaced by `nan` and infinities by the largest finite values or those given."""
    f, element = functions, element_of(x)[0]
    for given in (nan, posinf, neginf):
        require_real("nan_to_num", 0 if given is None else given, x)
    if element.is_complex:
        parts = (nan_to_num(p(x), copy, nan, posinf, neginf) for p in (f.real, f.imag))
        return f.complex(*parts)
    if element.kind != "f":
        return as_value(x)
    bounds = [
        _largest(element) if posinf is None else posinf,
        -_largest(element) if neginf is None else neginf,
    ]
    x = f.where(f.isnan(x), float(nan), x)
    x = f.where(f.equal(x, np.inf), float(bounds[0]), x)
    return f.where(f.equal(x, -np.inf), float(bounds[1]), x)


def _largest(element: DType) -> float:
    return 3.3895313892515355e38 if element.name == "bf16" else float(np.finfo(element.numpy).max)
