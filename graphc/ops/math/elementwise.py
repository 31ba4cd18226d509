"""Element-wise arithmetic: one scalar expression and a gradient rule each; broadcasting, promotion,
the public function and code follow from them (see `registry.elementwise`)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from graphc.ir.types import F32, F64, I8, U64, DType
from graphc.loops import complex_math
from graphc.loops.nest import Expr
from graphc.loops.scalars import bits_type, copy_sign, floor, is_nan, over_pairs, rare, trunc, where
from graphc.ops.math.remainder import float_remainder
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.derivatives import over_nonzero, where_true
from graphc.ops.record.families import (
    ALL,
    COMPLEX,
    FLOATS,
    REAL,
    elementwise,
    float_of,
    require,
    to_real,
)
from graphc.ops.record.value import Value, as_value, element_of, emit_promoted, functions, public

# ---------------------------------------------------------------------------------------- promotion


def int8_for_bool(element: DType) -> DType:
    """NumPy has no bool loop for these; the first loop that takes a bool is i8's."""
    return I8 if element.kind == "b" else element


def float_quotient(element: DType) -> DType:
    """True division of integers gives f64."""
    return element if element.kind in "fc" else F64


# ----------------------------------------------------------------------------------- sums, products


def _sum_or_any(x: Expr, y: Expr) -> Expr:
    return x | y if x.dtype.kind == "b" else x + y


def _product_or_all(x: Expr, y: Expr) -> Any:
    return x & y if x.dtype.kind == "b" else x * y


def _product_rule(ct: Value, product: Value, x: Value, y: Value) -> tuple[Any, Any]:
    return ct * functions.conj(y), ct * functions.conj(x)


def _quotient_rule(ct: Value, quotient: Value, x: Value, y: Value) -> tuple[Any, Any]:
    """d(x/y)/dy = -(x/y) / y: x itself need not be kept."""
    by_x = ct / functions.conj(y)
    return by_x, -by_x * functions.conj(quotient)


elementwise(
    "add",
    over_pairs(_sum_or_any, operator.add),
    np.add,
    np.add,
    arity=2,
    dtypes=ALL,
    commutative=True,
    gradient=lambda ct, total, x, y: (ct, ct),
)
elementwise(
    "sub",
    operator.sub,
    np.subtract,
    np.subtract,
    arity=2,
    public_name="subtract",
    gradient=lambda ct, difference, x, y: (ct, -ct),
)
elementwise(
    "mul",
    over_pairs(_product_or_all, operator.mul),
    np.multiply,
    np.multiply,
    arity=2,
    dtypes=ALL,
    commutative=True,
    public_name="multiply",
    gradient=_product_rule,
)
elementwise(
    "div",
    over_pairs(operator.truediv, complex_math.div),
    np.divide,
    np.divide,
    arity=2,
    dtypes=FLOATS + COMPLEX,
    promote=float_quotient,
    public_name="divide",
    flops=4,
    aliases=("true_divide",),
    gradient=_quotient_rule,
)


# ---------------------------------------------------------------------------------------- quotients


def _opposite(left: Expr, y: Expr) -> Any:
    """A remainder that is not zero and has the other sign than y: floor division takes one more."""
    differ = (left < 0) != (y < 0)
    return differ & (left != 0)


def _quotient(x: Expr, y: Expr) -> Any:
    """x // y, truncated, of integers.  No vector instruction divides them, but a quotient in f64 of
    numbers below 2**52 lies on the right side of every integer: it is 1 / y from the next at least,
    and rounded by less.  So does one in f32 of 16 bits.  By zero it is 0, and the minimum over -1
    wraps, as ever.
    """
    if y.op == "const" and (x.dtype.bits <= 32 or y.data & (y.data - 1) == 0):
        return x // y  # a product, or a shift
    signed = x.dtype.kind == "i"
    wide = F32 if x.dtype.bits <= 16 else F64
    made = trunc(x.cast(wide) / y.cast(wide)).cast(x.dtype)
    if x.dtype.bits > 32:
        size, unit = ((abs(v) if signed else v).cast(U64) for v in (x, y))
        far = _far_quotient(size, unit).cast(x.dtype)
        far = where((x < 0) != (y < 0), -far, far) if signed else far
        made = rare((size | unit) >= 1 << 52, far, made)
    made = where(y == -1, -x, made) if signed else made
    return where(y == 0, 0, made)


def _far_quotient(size: Expr, unit: Expr) -> Any:
    """Of any u64: a quotient that is too small by no more than its rounding, one of what is left,
    and at last one more."""
    less, wide = 1 - 2.0**-50, unit.cast(F64)
    first = (size.cast(F64) / wide * less).cast(U64)
    left = size - first * unit
    more = (left.cast(F64) / wide * less).cast(U64)
    made = first + more
    return where(left - more * unit >= unit, made + 1, made)


def _fmod(x: Expr, y: Expr) -> Any:
    if x.dtype.kind == "f":
        return float_remainder(x, y)
    return where(y == 0, 0, x - _quotient(x, y) * y)


def _remainder(x: Expr, y: Expr) -> Any:
    left = _fmod(x, y)
    moved = where(_opposite(left, y), left + y, left)
    if x.dtype.kind != "f":
        return moved
    return where(moved == 0, copy_sign(moved, y), moved)


def _floor_divide(x: Expr, y: Expr) -> Any:
    one = x.like(1)
    if x.dtype.kind != "f":
        quotient = _quotient(x, y)
        left = where(y == 0, 0, x - quotient * y)
        return where(_opposite(left, y), quotient - one, quotient)
    left = _fmod(x, y)
    exact = (x - left) / y
    exact = where(_opposite(left, y), exact - one, exact)
    whole = floor(exact)
    above = exact - whole > 0.5
    whole = where(above, whole + one, whole)
    whole = where(exact == 0, copy_sign(x.like(0), x / y), whole)
    return where(y == 0, x / y, whole)


elementwise(
    "fmod",
    _fmod,
    np.fmod,
    np.fmod,
    arity=2,
    dtypes=REAL,
    promote=int8_for_bool,
    flops=10,
    gradient=lambda ct, left, x, y: (ct, -ct * functions.trunc(x / y)),
)
elementwise(
    "rem",
    _remainder,
    np.remainder,
    np.remainder,
    arity=2,
    dtypes=REAL,
    promote=int8_for_bool,
    public_name="remainder",
    flops=12,
    aliases=("mod",),
    gradient=lambda ct, left, x, y: (ct, -ct * (x // y)),
)
elementwise(
    "floordiv",
    _floor_divide,
    np.floor_divide,
    np.floor_divide,
    arity=2,
    dtypes=REAL,
    promote=int8_for_bool,
    public_name="floor_divide",
    flops=12,
    differentiable=False,
)


@public(np.divmod, name="divmod")
def divmod_(x: ArrayLike, y: ArrayLike) -> tuple[Any, Any]:
    """(floor_divide(x, y), remainder(x, y))."""
    return functions.floor_divide(x, y), functions.remainder(x, y)


# --------------------------------------------------------------------------------------------- sign


def _sign(x: Expr) -> Any:
    """-1, 1, NaN, or 0 without a sign."""
    rest = where(x == 0, 0, x) if x.dtype.kind == "f" else x
    below = where(x < 0, -1, rest) if x.dtype.kind != "u" else x
    return where(x > 0, 1, below)


def _heaviside(x: Expr, at_zero: Expr) -> Any:
    step = where(x < 0, x.like(0), 1)
    return where(is_nan(x), x, where(x == 0, at_zero, step))


def _nextafter(x: Expr, y: Expr) -> Any:
    """One step of the bit pattern, up when the target lies farther from zero than x."""
    bits = x.bitcast(bits_type(x.dtype))
    away = (y > x) == (x > 0)
    stepped = where(away, bits + 1, bits - 1)
    smallest = copy_sign(bits.like(1).bitcast(x.dtype), y)
    moved = where(x == 0, smallest, stepped.bitcast(x.dtype))
    kept = where(x == y, y, moved)
    return where(is_nan(x), x, where(is_nan(y), y, kept))


def _sign_rule(ct: Value, unit: Value, x: Value) -> tuple[Any]:
    """Nothing of a real; of x / |x|, the part of ct across the unit, scaled by 1 / |x|."""
    if not x.element.is_complex:
        return (None,)
    size = functions.absolute(x)
    across = ct - unit * functions.real(ct * functions.conj(unit))
    return (where_true(size != 0, over_nonzero(across, size)),)


elementwise(
    "neg",
    operator.neg,
    np.negative,
    np.negative,
    public_name="negative",
    gradient=lambda ct, opposite, x: (-ct,),
)
elementwise(
    "abs",
    over_pairs(abs, complex_math.absolute),
    np.absolute,
    np.absolute,
    dtypes=ALL,
    result=to_real,
    public_name="absolute",
    aliases=("abs",),
    gradient=lambda ct, size, x: (ct * functions.sign(x),),
)
elementwise("sign", over_pairs(_sign, complex_math.sign), np.sign, np.sign, gradient=_sign_rule)


def _copysign_rule(ct: Value, made: Value, x: Value, y: Value) -> tuple[Any, None]:
    """x keeps its sign or changes it; at 0 one of the slopes beside it, which is modf's."""
    return functions.where(functions.multiply(x, functions.sign(made)) < 0, -ct, ct), None


elementwise(
    "copysign",
    copy_sign,
    np.copysign,
    np.copysign,
    arity=2,
    dtypes=FLOATS,
    promote=float_of,
    gradient=_copysign_rule,
)
elementwise(
    "heaviside",
    _heaviside,
    np.heaviside,
    np.heaviside,
    arity=2,
    dtypes=FLOATS,
    promote=float_of,
    gradient=lambda ct, step, x, at_zero: (None, where_true(x == 0, ct)),
)
elementwise(
    "nextafter",
    _nextafter,
    np.nextafter,
    np.nextafter,
    arity=2,
    dtypes=("f32", "f64"),
    promote=float_of,
    differentiable=False,
    doc="The next float after x towards y.",
)


@public(np.fabs)
def fabs(x: ArrayLike) -> Any:
    """The absolute value of a real array as a float."""
    require(not element_of(x)[0].is_complex, "fabs takes real arrays", hint="use absolute")
    return emit_promoted("abs", x, element=float_of(element_of(x)[0]))


@public(np.positive)
def positive(x: ArrayLike) -> Any:
    """x itself. Raises TypeRuleError for bool, as NumPy does."""
    require(element_of(x)[0].kind != "b", "positive does not take bool")
    return as_value(x)
