"""Element-wise arithmetic: one scalar expression and a gradient rule each; broadcasting, promotion,
the public function and code follow from them (see `registry.elementwise`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.types import F64, I8, DType
from graphc.loops import complex_math
from graphc.loops.scalars import (
    binary,
    bits_type,
    both,
    copy_sign,
    either,
    is_nan,
    is_negative,
    is_zero,
    like,
    over_pairs,
    part_by_part,
)
from graphc.ops.math.remainder import float_remainder
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
from graphc.ops.record.value import (
    as_value,
    element_of,
    emit_promoted,
    functions,
    public,
)

# ---------------------------------------------------------------------------------------- promotion


def int8_for_bool(element: DType) -> DType:
    """NumPy has no bool loop for these; the first loop that takes a bool is i8's."""
    return I8 if element.kind == "b" else element


def float_quotient(element: DType) -> DType:
    """True division of integers gives f64."""
    return element if element.kind in "fc" else F64


# ----------------------------------------------------------------------------------- sums, products


def _sum_or_any(b: Any, x: Any, y: Any) -> Any:
    return either(b, x, y) if x.dtype.kind == "b" else b.add(x, y)


def _product_or_all(b: Any, x: Any, y: Any) -> Any:
    return both(b, x, y) if x.dtype.kind == "b" else b.mul(x, y)


def _product_rule(ct: Any, product: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return ct * functions.conj(y), ct * functions.conj(x)


def _quotient_rule(ct: Any, quotient: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """d(x/y)/dy = -(x/y) / y: x itself need not be kept."""
    by_x = ct / functions.conj(y)
    return by_x, -by_x * functions.conj(quotient)


elementwise(
    "add", part_by_part(_sum_or_any), np.add, np.add, arity=2, dtypes=ALL, commutative=True,
    gradient=lambda ct, total, x, y: (ct, ct),
)  # fmt: skip
elementwise(
    "sub", part_by_part(binary("sub")), np.subtract, np.subtract, arity=2, public_name="subtract",
    gradient=lambda ct, difference, x, y: (ct, -ct),
)  # fmt: skip
elementwise(
    "mul", over_pairs(_product_or_all, complex_math.mul), np.multiply, np.multiply, arity=2,
    dtypes=ALL, commutative=True, public_name="multiply", gradient=_product_rule,
)  # fmt: skip
elementwise(
    "div", over_pairs(binary("div"), complex_math.div), np.divide, np.divide, arity=2,
    dtypes=FLOATS + COMPLEX, promote=float_quotient, public_name="divide", flops=4,
    aliases=("true_divide",), gradient=_quotient_rule,
)  # fmt: skip


# ---------------------------------------------------------------------------------------- quotients


def _opposite(b: Any, left: Any, y: Any) -> Any:
    """A remainder that is not zero and has the other sign than y: floor division takes one more."""
    differ = b.compare("ne", is_negative(b, left), is_negative(b, y))
    return both(b, differ, b.compare("ne", left, like(b, left, 0)))


def _fmod(b: Any, x: Any, y: Any) -> Any:
    return float_remainder(b, x, y) if x.dtype.kind == "f" else b.op("irem", x, y)


def _remainder(b: Any, x: Any, y: Any) -> Any:
    left = _fmod(b, x, y)
    moved = b.select(_opposite(b, left, y), b.add(left, y), left)
    if x.dtype.kind != "f":
        return moved
    return b.select(is_zero(b, moved), copy_sign(b, moved, y), moved)


def _floor_divide(b: Any, x: Any, y: Any) -> Any:
    left, one = _fmod(b, x, y), like(b, x, 1)
    if x.dtype.kind != "f":
        quotient = b.op("idiv", x, y)
        return b.select(_opposite(b, left, y), b.sub(quotient, one), quotient)
    exact = b.div(b.sub(x, left), y)
    exact = b.select(_opposite(b, left, y), b.sub(exact, one), exact)
    whole = b.op("floor", exact)
    above = b.compare("gt", b.sub(exact, whole), like(b, x, 0.5))
    whole = b.select(above, b.add(whole, one), whole)
    whole = b.select(is_zero(b, exact), copy_sign(b, like(b, x, 0), b.div(x, y)), whole)
    return b.select(is_zero(b, y), b.div(x, y), whole)


elementwise(
    "fmod", _fmod, np.fmod, np.fmod, arity=2, dtypes=REAL, promote=int8_for_bool, flops=10,
    gradient=lambda ct, left, x, y: (ct, -ct * functions.trunc(x / y)),
)  # fmt: skip
elementwise(
    "rem", _remainder, np.remainder, np.remainder, arity=2, dtypes=REAL, promote=int8_for_bool,
    public_name="remainder", flops=12, aliases=("mod",),
    gradient=lambda ct, left, x, y: (ct, -ct * (x // y)),
)  # fmt: skip
elementwise(
    "floordiv", _floor_divide, np.floor_divide, np.floor_divide, arity=2, dtypes=REAL,
    promote=int8_for_bool, public_name="floor_divide", flops=12, differentiable=False,
)  # fmt: skip


@public(np.divmod, name="divmod")
def divmod_(x: Any, y: Any) -> tuple[Any, Any]:
    """(floor_divide(x, y), remainder(x, y))."""
    return functions.floor_divide(x, y), functions.remainder(x, y)


# --------------------------------------------------------------------------------------------- sign


def _sign(b: Any, x: Any) -> Any:
    """-1, 1, NaN, or 0 without a sign."""
    rest = b.select(is_zero(b, x), like(b, x, 0), x) if x.dtype.kind == "f" else x
    below = b.select(is_negative(b, x), like(b, x, -1), rest) if x.dtype.kind != "u" else x
    return b.select(b.compare("gt", x, like(b, x, 0)), like(b, x, 1), below)


def _heaviside(b: Any, x: Any, at_zero: Any) -> Any:
    step = b.select(is_negative(b, x), like(b, x, 0), like(b, x, 1))
    return b.select(is_nan(b, x), x, b.select(is_zero(b, x), at_zero, step))


def _nextafter(b: Any, x: Any, y: Any) -> Any:
    """One step of the bit pattern, up when the target lies farther from zero than x."""
    bits = b.bitcast(x, bits_type(x.dtype))
    away = b.compare("eq", b.compare("gt", y, x), b.compare("gt", x, like(b, x, 0)))
    stepped = b.select(away, b.add(bits, like(b, bits, 1)), b.sub(bits, like(b, bits, 1)))
    smallest = copy_sign(b, b.bitcast(like(b, bits, 1), x.dtype), y)
    moved = b.select(is_zero(b, x), smallest, b.bitcast(stepped, x.dtype))
    kept = b.select(b.compare("eq", x, y), y, moved)
    return b.select(is_nan(b, x), x, b.select(is_nan(b, y), y, kept))


def _sign_rule(ct: Any, unit: Any, x: Any) -> tuple[Any]:
    """Nothing of a real; of x / |x|, the part of ct across the unit, scaled by 1 / |x|."""
    if not x.element.is_complex:
        return (None,)
    size = functions.absolute(x)
    across = ct - unit * functions.real(ct * functions.conj(unit))
    return (where_true(size != 0, over_nonzero(across, size)),)


elementwise(
    "neg", part_by_part(binary("neg")), np.negative, np.negative, public_name="negative",
    gradient=lambda ct, opposite, x: (-ct,),
)  # fmt: skip
elementwise(
    "abs", over_pairs(binary("abs"), complex_math.absolute), np.absolute, np.absolute, dtypes=ALL,
    result=to_real, public_name="absolute", aliases=("abs",),
    gradient=lambda ct, size, x: (ct * functions.sign(x),),
)  # fmt: skip
elementwise("sign", over_pairs(_sign, complex_math.sign), np.sign, np.sign, gradient=_sign_rule)


def _copysign_rule(ct: Any, made: Any, x: Any, y: Any) -> tuple[Any, None]:
    """x keeps its sign or changes it; at 0 one of the slopes beside it, which is modf's."""
    return functions.where(functions.multiply(x, functions.sign(made)) < 0, -ct, ct), None


elementwise(
    "copysign", copy_sign, np.copysign, np.copysign, arity=2, dtypes=FLOATS, promote=float_of,
    gradient=_copysign_rule,
)  # fmt: skip
elementwise(
    "heaviside", _heaviside, np.heaviside, np.heaviside, arity=2, dtypes=FLOATS, promote=float_of,
    gradient=lambda ct, step, x, at_zero: (None, where_true(x == 0, ct)),
)  # fmt: skip
elementwise(
    "nextafter", _nextafter, np.nextafter, np.nextafter, arity=2, dtypes=("f32", "f64"),
    promote=float_of, differentiable=False, doc="The next float after x towards y.",
)  # fmt: skip


@public(np.fabs)
def fabs(x: Any) -> Any:
    """The absolute value of a real array as a float."""
    require(not element_of(x)[0].is_complex, "fabs takes real arrays", hint="use absolute")
    return emit_promoted("abs", x, element=float_of(element_of(x)[0]))


@public(np.positive)
def positive(x: Any) -> Any:
    """x itself. Raises TypeRuleError for bool, as NumPy does."""
    require(element_of(x)[0].kind != "b", "positive does not take bool")
    return as_value(x)
