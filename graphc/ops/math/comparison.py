"""Comparisons. Integers compare by value, also across types and with numbers out of range."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from graphc.ir.graph import Node
from graphc.ir.types import F64, U64, DType
from graphc.loops import complex_math
from graphc.loops.scalars import over_pairs
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.families import ALL, BOOLS, REAL, elementwise, to_bool
from graphc.ops.record.value import (
    Value,
    as_value,
    element_of,
    emit_promoted,
    functions,
    is_python_number,
    public,
)

_COMPARISONS: tuple[tuple[str, Any, Any], ...] = (
    ("eq", np.equal, complex_math.equal),
    ("ne", np.not_equal, complex_math.not_equal),
    ("lt", np.less, None),
    ("le", np.less_equal, None),
    ("gt", np.greater, None),
    ("ge", np.greater_equal, None),
)

_NAMES = frozenset(name for name, _, _ in _COMPARISONS)

for _name, _function, _complex in _COMPARISONS:
    elementwise(
        _name,
        over_pairs(getattr(operator, _name), _complex),
        _function,
        arity=2,
        dtypes=ALL if _complex else BOOLS + REAL,
        result=to_bool,
        commutative=_complex is not None,
        differentiable=False,
        public_name="",
    )


def compares_values(node: Node) -> bool:
    """Does the node compare two computed values?

    Kernels fuse products and sums differently, so a value that is computed twice may differ in its
    last bit: such a comparison (of a value with its own maximum, say) must see the one that was
    there first.  Against a constant a last bit is as good as another.
    """
    return node.op.name in _NAMES and not any(n.op.name == "const" for n in node.inputs)


def _publish(op: str, numpy_function: Value) -> None:
    def function(x: ArrayLike, y: ArrayLike) -> Any:
        kinds = {element_of(x)[0].name, element_of(y)[0].name}
        if kinds == {"i64", "u64"} and not (is_python_number(x) or is_python_number(y)):
            return _across_signs(op, x, y)
        x, y = _in_range(x, y), _in_range(y, x)
        return emit_promoted(op, x, y)

    function.__name__ = numpy_function.__name__
    function.__doc__ = f"Element-wise {numpy_function.__name__}, as bool."
    public(numpy_function, name=numpy_function.__name__)(function)


def _in_range(number: Any, other: ArrayLike) -> Any:
    """A Python integer that the other operand's integer type cannot hold, as an infinity."""
    element = element_of(other)[0]
    if not isinstance(number, int) or not is_python_number(number) or not element.is_integer:
        return number
    return float("inf") if _above(number, element) else _not_below(number, element)


def _above(number: int, element: DType) -> bool:
    return number > int(np.iinfo(element.numpy).max)


def _not_below(number: int, element: DType) -> int | float:
    return float("-inf") if number < int(np.iinfo(element.numpy).min) else number


def _across_signs(op: str, x: ArrayLike, y: ArrayLike) -> Any:
    """i64 against u64: as u64 where the signed one is not negative, else it is the smaller.

    Their common type, f64, would merge neighbours beyond 2**53.
    """
    f, signed_first = functions, element_of(x)[0].kind == "i"
    signed = x if signed_first else y
    wide = f.astype(signed, U64)
    pair = (wide, y) if signed_first else (x, wide)
    answer = op in (("ne", "lt", "le") if signed_first else ("ne", "gt", "ge"))
    return f.where(f.less(signed, 0), answer, emit_promoted(op, *pair))


for _name, _function, _ in _COMPARISONS:
    _publish(_name, _function)


@public(np.isclose)
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    """|a - b| <= atol + rtol |b| for finite b, or equal; `equal_nan` counts two NaNs as equal."""
    f = functions
    if element_of(b)[0].kind not in "fc":
        b = f.astype(b, F64)
    margin = f.add(atol, f.multiply(rtol, f.absolute(b)))
    near = f.logical_and(f.isfinite(b), f.less_equal(f.absolute(f.subtract(a, b)), margin))
    close = f.logical_or(near, f.equal(a, b))
    return f.logical_or(close, f.logical_and(f.isnan(a), f.isnan(b))) if equal_nan else close


@public(np.allclose)
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    """Whether all elements are close (see `isclose`); a 0-d bool."""
    return functions.all(isclose(a, b, rtol, atol, equal_nan))


@public(np.array_equal)
def array_equal(a: ArrayLike, b: ArrayLike) -> Any:
    """Whether two arrays have one shape and equal elements; a 0-d bool."""
    if as_value(a).shape != as_value(b).shape:
        return as_value(False)
    return functions.all(functions.equal(a, b))
