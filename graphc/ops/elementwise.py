"""Element-wise arithmetic and rounding: one scalar expression each; broadcasting, promotion, the
public function and code follow from it (see `registry.elementwise`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import Sample
from graphc.ir.types import F64, I8, DType
from graphc.ops import complex_math
from graphc.ops.registry import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    REAL,
    alias,
    as_dtype,
    bad_samples,
    elementwise,
    elementwise_samples,
    float_of,
    require,
    sample_array,
    to_real,
)
from graphc.ops.scalars import (
    binary,
    bits_type,
    both,
    call,
    copy_sign,
    either,
    is_nan,
    is_negative,
    is_zero,
    like,
    over_pairs,
    part_by_part,
)
from graphc.ops.value import (
    as_value,
    element_of,
    emit_promoted,
    functions,
    is_python_number,
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


add = elementwise(
    "add", part_by_part(_sum_or_any), np.add, np.add, arity=2, dtypes=ALL, commutative=True
)
sub = elementwise(
    "sub", part_by_part(binary("sub")), np.subtract, np.subtract, arity=2, public_name="subtract"
)
mul = elementwise(
    "mul", over_pairs(_product_or_all, complex_math.mul), np.multiply, np.multiply, arity=2,
    dtypes=ALL, commutative=True, public_name="multiply",
)  # fmt: skip
div = elementwise(
    "div", over_pairs(binary("div"), complex_math.div), np.divide, np.divide, arity=2,
    dtypes=FLOATS + COMPLEX, promote=float_quotient, public_name="divide", flops=4,
    aliases=("true_divide",),
)  # fmt: skip


# ---------------------------------------------------------------------------------------- quotients


def float_remainder(b: Any, x: Any, y: Any) -> Any:
    """C's fmod: what is left of x after taking away y as often as it fits, with the sign of x.

    x - trunc(x / y) y in one fma is exact, also when the quotient has more digits than the format:
    then it leaves a smaller number that is again congruent to x.  Two rounds in f64 cover quotients
    up to 2**100 (f32), three 2**150 (f64); a last correction undoes a quotient that rounded up.
    """
    element, x, y = x.dtype, b.cast(x, F64), b.cast(y, F64)
    left = x
    for _ in range(2 if element is not F64 else 3):
        quotient = b.op("trunc", b.div(left, y))
        left = b.fma(b.neg(quotient), y, left)
    size = b.op("abs", y)
    overshot = b.compare("ne", is_negative(b, left), is_negative(b, x))
    overshot = both(b, overshot, b.compare("ne", left, like(b, left, 0)))
    left = b.select(overshot, b.add(left, b.select(is_negative(b, x), b.neg(size), size)), left)
    finite = complex_math.finite(b, x)
    fits = both(b, finite, b.compare("eq", size, like(b, size, np.inf)))
    return b.cast(copy_sign(b, b.select(fits, x, left), x), element)


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
    whole = b.op("rint", exact)
    whole = b.select(is_zero(b, exact), copy_sign(b, like(b, x, 0), b.div(x, y)), whole)
    return b.select(is_zero(b, y), b.div(x, y), whole)


elementwise("fmod", _fmod, np.fmod, np.fmod, arity=2, dtypes=REAL, promote=int8_for_bool, flops=10)
elementwise(
    "rem", _remainder, np.remainder, np.remainder, arity=2, dtypes=REAL, promote=int8_for_bool,
    public_name="remainder", flops=12, aliases=("mod",),
)  # fmt: skip
elementwise(
    "floordiv", _floor_divide, np.floor_divide, np.floor_divide, arity=2, dtypes=REAL,
    promote=int8_for_bool, public_name="floor_divide", flops=12,
)  # fmt: skip


@public(np.divmod, name="divmod")
def divmod_(x: Any, y: Any) -> tuple[Any, Any]:
    """(floor_divide(x, y), remainder(x, y))."""
    return functions.floor_divide(x, y), functions.remainder(x, y)


# --------------------------------------------------------------------------------------------- sign


def _sign(b: Any, x: Any) -> Any:
    below = b.select(is_negative(b, x), like(b, x, -1), x) if x.dtype.kind != "u" else x
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


elementwise("neg", part_by_part(binary("neg")), np.negative, np.negative, public_name="negative")
elementwise(
    "abs", over_pairs(binary("abs"), complex_math.absolute), np.absolute, np.absolute, dtypes=ALL,
    result=to_real, public_name="absolute", aliases=("abs",),
)  # fmt: skip
elementwise("sign", over_pairs(_sign, complex_math.sign), np.sign, np.sign, differentiable=False)
elementwise(
    "copysign", copy_sign, np.copysign, np.copysign, arity=2, dtypes=FLOATS, promote=float_of
)
elementwise(
    "heaviside", _heaviside, np.heaviside, np.heaviside, arity=2, dtypes=FLOATS, promote=float_of,
    differentiable=False,
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


# ------------------------------------------------------------------------------------------- powers


def _reciprocal(b: Any, x: Any) -> Any:
    return b.op("div" if x.dtype.kind == "f" else "idiv", like(b, x, 1), x)


def _reciprocal_reference(x: Any) -> Any:
    if (
        x.dtype.kind in "iu"
    ):  # NumPy leaves 1 // 0 to the machine; every division by zero gives 0 here
        return np.where(x == 0, 0, np.reciprocal(np.where(x == 0, 1, x))).astype(x.dtype)
    return np.reciprocal(x)


def _power(b: Any, x: Any, y: Any) -> Any:
    return b.call("pow", x, y) if x.dtype.kind == "f" else _integer_power(b, x, y)


def _integer_power(b: Any, x: Any, y: Any) -> Any:
    """Square and multiply over the bits of the exponent.

    A negative exponent gives the power truncated to an integer: 0, or +-1 for a base of +-1.
    """
    one, zero = like(b, x, 1), like(b, x, 0)
    result, base = one, x
    signed = x.dtype.kind == "i"
    digits = x.dtype.bits - signed
    for place in range(digits):
        used = b.compare("ne", both(b, y, like(b, y, 1 << place)), like(b, y, 0))
        result = b.select(used, b.mul(result, base), result)
        if place + 1 < digits:
            base = b.mul(base, base)
    if not signed:
        return result
    even = b.compare("eq", both(b, y, one), zero)
    unit = b.select(b.compare("eq", x, like(b, x, -1)), b.select(even, one, x), zero)
    inverse = b.select(b.compare("eq", x, one), one, unit)
    return b.select(is_negative(b, y), inverse, result)


def _power_reference(x: Any, y: Any) -> Any:
    if x.dtype.kind != "i":
        return np.power(x, y)
    size = np.abs(x) == 1
    return np.where(y < 0, np.where(size, np.power(x, y & 1), 0), np.power(x, np.maximum(y, 0)))


def _power_samples() -> list[Sample]:
    """Bases that a real power is defined for (complex ones anywhere), small exponents."""
    usual = elementwise_samples(2, INTEGERS + COMPLEX, (-3.0, 3.0), 8.0)
    good = [s for s in usual if s.good]
    for name in FLOATS:
        base, exponent = (sample_array(name, (4, 5), d, 0) for d in ((0.1, 4.0), (-3.0, 3.0)))
        good.append(Sample((base, exponent), tolerance=4.0))
        whole = np.arange(-2, 3).astype(base.dtype)
        good.append(Sample((sample_array(name, (4, 5), (-4.0, 4.0), 1), whole), tolerance=4.0))
    return good + bad_samples(2, REAL)


elementwise(
    "reciprocal", over_pairs(_reciprocal, complex_math.reciprocal), _reciprocal_reference,
    np.reciprocal, promote=int8_for_bool, flops=4,
)  # fmt: skip
elementwise(
    "square", over_pairs(lambda b, x: b.mul(x, x), complex_math.square), np.square, np.square,
    promote=int8_for_bool,
)  # fmt: skip
power_op = elementwise(
    "pow", over_pairs(_power, complex_math.power), _power_reference, arity=2, flops=40,
    samples=_power_samples, public_name="",
)  # fmt: skip
elementwise(
    "sqrt", over_pairs(binary("sqrt"), complex_math.sqrt), np.sqrt, np.sqrt,
    dtypes=FLOATS + COMPLEX, promote=float_of, flops=8, tolerance=2,
)  # fmt: skip
elementwise(
    "rsqrt", call("rsqrt"), lambda x: 1 / np.sqrt(x),
    dtypes=FLOATS, promote=float_of, flops=12, doc="1 / sqrt(x).",
)  # fmt: skip

_SHORT_POWERS = {2: "square", 1: "positive", 0.5: "sqrt", -1: "reciprocal"}


@public(np.power, name="power")
def power(x: Any, y: Any, *, dtype: Any = None) -> Any:
    """x ** y, promoted as in NumPy. The Python exponents 2, 1, 1/2 and -1 take their own short ops.

    Raises TypeRuleError for an integer array to a negative Python integer.
    """
    if is_python_number(y) and not is_python_number(x) and dtype is None:
        element = element_of(x)[0]
        whole = element.is_integer and isinstance(y, int)
        require(
            not (whole and y < 0),
            "integers to negative integer powers are not integers",
            hint="use gc.float_power or a float exponent",
        )
        if element.kind in "fc" or (whole and y > 0):
            short = _SHORT_POWERS.get(y if isinstance(y, int | float) else -2)
            if short is not None:
                return getattr(functions, short)(x)
            if y == 3:
                return functions.multiply(functions.square(x), x)
    if dtype is not None:
        return emit_promoted(power_op, x, y, element=as_dtype(dtype))
    kinds = [int8_for_bool(element_of(v)[0]) for v in (x, y)]
    everything_bool = all(element_of(v)[0].kind == "b" for v in (x, y))
    return emit_promoted(power_op, x, y, element=kinds[0] if everything_bool else None)


@public(np.float_power)
def float_power(x: Any, y: Any) -> Any:
    """x ** y in f64 or c128."""
    complex_ = any(element_of(v)[0].is_complex for v in (x, y))
    return emit_promoted(power_op, x, y, element=as_dtype("c128" if complex_ else "f64"))


alias("power", "pow")
