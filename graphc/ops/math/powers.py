"""Powers, roots and reciprocals."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import Sample
from graphc.loops import complex_math, vecmath
from graphc.loops.nest import Expr
from graphc.loops.scalars import over_pairs, sqrt, where
from graphc.ops.math.elementwise import int8_for_bool
from graphc.ops.record.arguments import Array, ArrayLike, DTypeLike
from graphc.ops.record.derivatives import over, times
from graphc.ops.record.families import (
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
)
from graphc.ops.record.value import (
    Value,
    element_of,
    emit_promoted,
    functions,
    is_python_number,
    public,
)


def _reciprocal(x: Expr) -> Any:
    return 1 / x if x.dtype.kind == "f" else 1 // x


def _reciprocal_reference(x: Array) -> Any:
    if (
        x.dtype.kind in "iu"
    ):  # NumPy leaves 1 // 0 to the machine; every division by zero gives 0 here
        return np.where(x == 0, 0, np.reciprocal(np.where(x == 0, 1, x))).astype(x.dtype)
    return np.reciprocal(x)


def _power(x: Expr, y: Expr) -> Any:
    return vecmath.pow(x, y) if x.dtype.kind == "f" else _integer_power(x, y)


def _integer_power(x: Expr, y: Expr) -> Any:
    """Square and multiply over the bits of the exponent.

    A negative exponent gives the power truncated to an integer: 0, or +-1 for a base of +-1.
    """
    one, zero = x.like(1), x.like(0)
    result, base = one, x
    signed = x.dtype.kind == "i"
    digits = x.dtype.bits - signed
    for place in range(digits):
        used = (y & (1 << place)) != 0
        result = where(used, result * base, result)
        if place + 1 < digits:
            base = base * base
    if not signed:
        return result
    even = (y & one) == zero
    unit = where(x == -1, where(even, one, x), zero)
    inverse = where(x == one, one, unit)
    return where(y < 0, inverse, result)


def _power_reference(x: Array, y: Array) -> Any:
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


def _power_rule(ct: Value, power: Value, x: Value, y: Value) -> tuple[Any, Any]:
    """y x**(y-1) and x**y log(x).

    At x = y = 0, where x**(y-1) is infinite, the first is 0.  The second is 0 where log(x) is not
    defined: a real x <= 0, a complex x = 0.  All that is selected from is finite there, so that
    higher derivatives stay so too.
    """
    f = functions
    less = f.where(y == 0, f.where(x == 0, 1, y - 1), y - 1)
    defined = x != 0 if x.element.is_complex else x > 0
    growth = power * f.log(f.where(defined, x, 1))
    by_base = ct * f.conj(y * f.power(x, less))
    return by_base, f.where(defined, ct * f.conj(growth), 0)


elementwise(
    "reciprocal",
    over_pairs(_reciprocal, complex_math.reciprocal),
    _reciprocal_reference,
    np.reciprocal,
    promote=int8_for_bool,
    flops=4,
    gradient=times(lambda x, y: -(y * y)),
)
elementwise(
    "square",
    lambda x: x * x,
    np.square,
    np.square,
    promote=int8_for_bool,
    gradient=times(lambda x, y: x * 2),
)
power_op = elementwise(
    "pow",
    over_pairs(_power, complex_math.power),
    _power_reference,
    arity=2,
    flops=40,
    samples=_power_samples,
    public_name="",
    gradient=_power_rule,
)
elementwise(
    "sqrt",
    over_pairs(sqrt, complex_math.sqrt),
    np.sqrt,
    np.sqrt,
    dtypes=FLOATS + COMPLEX,
    promote=float_of,
    flops=8,
    tolerance=2,
    gradient=over(lambda x, y: y * 2),
)
elementwise(
    "rsqrt",
    vecmath.rsqrt,
    lambda x: 1 / np.sqrt(x),
    dtypes=FLOATS,
    promote=float_of,
    flops=12,
    doc="1 / sqrt(x).",
    gradient=times(lambda x, y: y * y * y * -0.5),
)

_SHORT_POWERS = {2: "square", 1: "positive", 0.5: "sqrt", -1: "reciprocal"}


@public(np.power, name="power")
def power(x: ArrayLike, y: Any, *, dtype: DTypeLike | None = None) -> Any:
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
def float_power(x: ArrayLike, y: ArrayLike) -> Any:
    """x ** y in f64 or c128."""
    complex_ = any(element_of(v)[0].is_complex for v in (x, y))
    return emit_promoted(power_op, x, y, element=as_dtype("c128" if complex_ else "f64"))


alias("power", "pow")
