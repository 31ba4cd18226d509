"""Larger and smaller of two, clipping and rounding."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from graphc.loops import scalars
from graphc.loops.nest import Expr
from graphc.loops.scalars import is_nan, maximum, minimum, where
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.derivatives import Rule
from graphc.ops.record.families import BOOLS, FLOATS, REAL, alias, elementwise, float_of, require
from graphc.ops.record.value import Value, as_value, element_of, emit_promoted, functions, public

# ----------------------------------------------------------------------------------------- extremes


def _ignoring_nan(op: str) -> Any:
    def expression(x: Expr, y: Expr) -> Expr:
        if x.dtype.kind != "f":
            return minimum(x, y) if op == "min" else maximum(x, y)
        better = x < y if op == "min" else x > y
        return where(better | is_nan(y), x, y)

    return expression


def _to_the_chosen(better: str, passes_over_nan: bool) -> Rule:
    """The cotangent goes to the operand that was chosen; equal ones get half each."""

    def share(ct: Value, x: Value, y: Value) -> Any:
        f = functions
        chosen = getattr(f, better)(x, y)
        if passes_over_nan:
            chosen = f.logical_or(chosen, f.isnan(y))
        return f.where(chosen, ct, f.where(x == y, ct * 0.5, 0))

    return lambda ct, chosen, x, y: (share(ct, x, y), share(ct, y, x))


for _name, _expression, _function, _better in (
    ("maximum", maximum, np.maximum, "greater"),
    ("minimum", minimum, np.minimum, "less"),
    ("fmax", _ignoring_nan("max"), np.fmax, "greater"),
    ("fmin", _ignoring_nan("min"), np.fmin, "less"),
):
    elementwise(
        _name,
        _expression,
        _function,
        _function,
        arity=2,
        dtypes=BOOLS + REAL,
        commutative=True,
        gradient=_to_the_chosen(_better, passes_over_nan=_name in ("fmax", "fmin")),
    )


@public(np.clip, method=True)
def clip(
    x: ArrayLike,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
    *,
    min: Any = None,
    max: Any = None,
) -> Any:
    """x limited to [a_min, a_max]; either bound may be None. NaN stays NaN."""
    low, high = a_min if min is None else min, a_max if max is None else max
    element = element_of(x)[0]
    if element.is_integer:  # a Python number beyond all integers of the type is no bound
        info = np.iinfo(element.numpy)
        low = None if type(low) is int and low <= info.min else low
        high = None if type(high) is int and high >= info.max else high
    made = x if low is None else functions.maximum(x, low)
    return as_value(made) if high is None else functions.minimum(made, high)


# ----------------------------------------------------------------------------------------- rounding

for _op in ("floor", "ceil", "trunc", "rint"):
    elementwise(
        _op,
        getattr(scalars, _op),
        getattr(np, _op),
        dtypes=FLOATS,
        differentiable=False,
        public_name="",
    )


def _rounding(op: str) -> Any:
    def function(x: ArrayLike) -> Any:
        return emit_promoted(op, x) if element_of(x)[0].kind in "fc" else as_value(x)

    function.__name__ = op
    function.__doc__ = f"{op} of floats; integers and bools are returned as they are."
    return function


public(np.floor)(_rounding("floor"))
public(np.ceil)(_rounding("ceil"))
public(np.trunc)(_rounding("trunc"))
public(np.fix, name="fix")(_rounding("trunc"))


@public(np.rint)
def rint(x: ArrayLike) -> Any:
    """The nearest integer, halves to even, as a float."""
    return emit_promoted("rint", x, element=float_of(element_of(x)[0]))


_MOST_DECIMALS = 308  # of a float64


@public(np.round, np.around, method=True, name="round")
def round_(x: ArrayLike, decimals: int = 0) -> Any:
    """x rounded to `decimals` digits after the point, halves to even (as NumPy: by scaling).

    Raises TypeRuleError for more than 308 decimals.
    """
    element, decimals = element_of(x)[0], operator.index(decimals)
    require(abs(decimals) <= _MOST_DECIMALS, f"round to {decimals} decimals")
    if element.is_integer:
        return as_value(x) if decimals >= 0 else _round_tens(x, 10**-decimals)
    if decimals == 0 or element.kind == "b":
        return rint(x)
    factor = float(10 ** abs(decimals))
    up, down = functions.multiply, functions.divide
    return down(rint(up(x, factor)), factor) if decimals > 0 else up(rint(down(x, factor)), factor)


def _round_tens(x: ArrayLike, factor: int) -> Any:
    tens = functions.rint(functions.divide(x, float(factor)))
    return functions.astype(functions.multiply(tens, float(factor)), element_of(x)[0])


alias("round", "around")
