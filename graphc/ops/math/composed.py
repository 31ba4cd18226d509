"""NumPy functions that are short programs over other public functions, and gcd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir.op import Library, Sample
from graphc.ir.types import BF16, DTYPES, F32, AnyType, Type
from graphc.ops.record.families import (
    bad_samples,
    define,
    elementwise_type,
    float_of,
    normalise_axis,
    require,
    sample_array,
)
from graphc.ops.record.value import as_value, common_element, element_of, emit, functions, public
from graphc.ops.reduce.reduce import accumulating

# ---------------------------------------------------------------------------------------------- gcd


WIDE = ("i64", "u64")  # narrower integers are cast


def _infer_gcd(x: AnyType, y: AnyType) -> Type:
    kind = elementwise_type("gcd", (x, y), 2, WIDE)
    require(x is y, f"gcd takes two operands of one shape, got {x} and {y}")
    return kind


def _gcd_kernel(x: Any, y: Any, out: Any, params: Any, lo: int, hi: int) -> None:
    for i in range(lo, hi):
        a, b = x[i], y[i]
        while b != 0:
            a, b = b, a % b
        if a < 0:
            a = -a
        out[i] = a


def _gcd_samples() -> list[Sample]:
    good = []
    for name in WIDE:
        x, y = (sample_array(name, (5, 7), (0, 0), seed) for seed in (0, 1))
        good.append(Sample((x * x.dtype.type(6), y * y.dtype.type(4))))
    return good + bad_samples(2, WIDE)


define(
    "gcd",
    infer=_infer_gcd,
    reference=np.gcd,
    lower=Library(lambda node: _gcd_kernel, units=lambda node: node.type.size),
    dtypes=WIDE,
    commutative=True,
    differentiable=False,
    samples=_gcd_samples,
    doc="The greatest common divisor, never negative; gcd(0, 0) is 0.",
)


@public(np.gcd)
def gcd(x: Any, y: Any) -> Any:
    """The greatest common divisor of integers, by Euclid's algorithm."""
    f, element = functions, common_element(x, y)[0]
    require(element.is_integer, f"gcd takes integers, got {element}")
    wide = accumulating(element)
    x, y = f.broadcast_arrays(f.astype(x, wide), f.astype(y, wide))
    return f.astype(emit("gcd", x, y), element)


@public(np.lcm)
def lcm(x: Any, y: Any) -> Any:
    """The least common multiple of integers; 0 where one of them is 0."""
    f, element = functions, common_element(x, y)[0]
    require(element.is_integer, f"lcm takes integers, got {element}")
    sizes = DTYPES[f"u{element.bits}"]  # where they overflow, they wrap as NumPy's do
    parts = (f.absolute(f.astype(v, element)) for v in (x, y, gcd(x, y)))
    x, y, divisor = (f.astype(part, sizes) for part in parts)
    return f.astype(f.multiply(f.floor_divide(x, divisor), y), element)


# ---------------------------------------------------------------------------------- floats in parts


@public(np.modf)
def modf(x: Any) -> tuple[Any, Any]:
    """(fraction, whole part) of floats, both with the sign of x."""
    f, x = functions, functions.astype(x, float_of(element_of(x)[0]))
    whole = f.trunc(x)
    rest = f.where(f.isinf(x), 0.0, f.subtract(x, whole))
    return f.copysign(f.astype(rest, element_of(x)[0]), x), whole


@public(np.ldexp)
def ldexp(x: Any, exponent: Any) -> Any:
    """x * 2**exponent, scaled in two steps so that neither overflows early."""
    kind = element_of(exponent)[0]
    require(kind.kind in "biu" and kind.name != "u64", f"ldexp: the exponent is {kind}, not i64")
    require(not element_of(x)[0].is_complex, "ldexp takes real numbers")
    f, x = functions, functions.astype(x, float_of(element_of(x)[0]))
    first = f.right_shift(f.clip(f.astype(exponent, "i32"), -2200, 2200), 1)
    second = f.subtract(f.clip(f.astype(exponent, "i32"), -2200, 2200), first)
    for part in (first, second):
        x = f.multiply(x, f.exp2(f.astype(part, element_of(x)[0])))
    return x


@public(np.frexp)
def frexp(x: Any) -> tuple[Any, Any]:
    """(m, e) with x = m * 2**e and 0.5 <= abs(m) < 1; 0, inf and NaN are their own m, e is 0."""
    f, element = functions, float_of(element_of(x)[0])
    x = f.astype(x, element)
    small = F32 if element is BF16 else element  # of equal range
    tiny = f.less(f.absolute(x), float(np.finfo(small.numpy).tiny))
    wide = f.where(tiny, f.multiply(x, 2.0**64 if element.itemsize > 2 else 2.0**12), x)
    plain = f.logical_and(f.isfinite(x), f.not_equal(x, 0))
    guess = f.astype(f.floor(f.log2(f.where(plain, f.absolute(wide), 1.0))), "i32")
    part = ldexp(wide, f.negative(guess))  # within 0.5 .. 2, also where log2 was rounded
    for _ in range(2):
        above = f.greater_equal(f.absolute(part), 1)
        part, guess = f.where(above, f.multiply(part, 0.5), part), f.add(guess, above)
    below = f.less(f.absolute(part), 0.5)
    part, guess = (
        f.where(below, f.multiply(part, 2.0), part),
        f.subtract(guess, f.astype(below, "i32")),
    )
    guess = f.subtract(guess, f.where(tiny, 64 if element.itemsize > 2 else 12, 0))
    return f.where(plain, part, x), f.astype(f.where(plain, guess, 0), "i32")


@public(np.spacing)
def spacing(x: Any) -> Any:
    """The distance to the next number away from 0, with the sign of x."""
    f, x = functions, functions.astype(x, float_of(element_of(x)[0]))
    size = f.absolute(x)
    gap = f.subtract(f.nextafter(size, math.inf), size)
    gap = f.where(f.equal(x, 0), gap, f.copysign(gap, x))
    return f.where(f.isfinite(x), gap, math.nan)


@public(np.isreal)
def isreal(x: Any) -> Any:
    """True where the imaginary part is 0."""
    return functions.equal(functions.imag(x), 0)


@public(np.iscomplex)
def iscomplex(x: Any) -> Any:
    """True where the imaginary part is not 0."""
    return functions.not_equal(functions.imag(x), 0)


@public(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex: known while tracing."""
    return element_of(x)[0].is_complex


@public(np.isrealobj)
def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex: known while tracing."""
    return not element_of(x)[0].is_complex


# -------------------------------------------------------------------------------------- differences


def _part(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    return x[(slice(None),) * axis + (slice(start, stop),)]


@public(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """a[1:] - a[:-1] along an axis, n times; of bools it is `not_equal`."""
    f, x = functions, as_value(a)
    place = normalise_axis(axis, len(x.shape), "diff")
    require(n >= 0, f"diff of order {n}")
    parts = [_edge(prepend, x, place), x, _edge(append, x, place)]
    parts = [p for p in parts if p is not None]
    x = f.concatenate(parts, axis=place) if len(parts) > 1 else x
    step = f.not_equal if element_of(x)[0].kind == "b" else f.subtract
    for _ in range(n):
        x = step(_part(x, place, 1, None), _part(x, place, None, -1))
    return x


def _edge(value: Any, x: Any, axis: int) -> Any:
    if value is None or len(as_value(value).shape):
        return value
    shape = tuple(1 if k == axis else extent for k, extent in enumerate(x.shape))
    return functions.broadcast_to(value, shape)


@public(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral of y by the trapezoidal rule, over positions x or steps of dx."""
    f, y = functions, as_value(y)
    place = normalise_axis(axis, len(y.shape), "trapezoid")
    pair = f.add(_part(y, place, 1, None), _part(y, place, None, -1))
    if x is None:
        return f.sum(f.divide(f.multiply(pair, dx), 2.0), place)
    width = diff(x)
    if len(width.shape) == 1:
        shape = [1] * len(y.shape)
        shape[place] = width.shape[0]
        width = f.reshape(width, tuple(shape))
    return f.sum(f.divide(f.multiply(width, pair), 2.0), place)


@public(np.ediff1d)
def ediff1d(x: Any) -> Any:
    """The differences of the flattened array."""
    return diff(functions.ravel(x))


# --------------------------------------------------------------------------------------- statistics


@public(np.cov)
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None
) -> Any:
    """The covariance matrix of variables in rows (or columns if not `rowvar`)."""
    f = functions
    x = f.atleast_2d(m)
    x = x if rowvar or len(as_value(m).shape) == 1 else f.transpose(x)
    if y is not None:
        other = f.atleast_2d(y)
        other = other if rowvar or other.shape[0] == 1 else f.transpose(other)
        x = f.concatenate([x, other], axis=0)
    x = f.astype(x, "c128" if element_of(x)[0].is_complex else "f64")
    delta = ddof if ddof is not None else int(not bias)
    centred = f.subtract(x, f.mean(x, 1, keepdims=True))
    product = f.matmul(centred, f.conj(f.transpose(centred)))
    return f.squeeze(f.divide(product, max(int(x.shape[1]) - delta, 0)))


@public(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """The matrix of correlation coefficients."""
    f, c = functions, cov(x, y, rowvar)
    if not c.shape:
        return f.divide(c, c)
    spread = f.sqrt(f.real(f.diagonal(c)))
    made = f.divide(f.divide(c, f.expand_dims(spread, 1)), spread)
    return made if element_of(made)[0].is_complex else f.clip(made, -1, 1)


def _of_valid(name: str, neutral: float, numpy_function: Any, inner: str) -> None:
    """A function of what is not NaN: NaN becomes a neutral value first."""

    def function(a: Any, axis: Any = None, **options: Any) -> Any:
        f = functions
        x = f.where(f.isnan(a), neutral, a) if element_of(a)[0].kind in "fc" else a
        return getattr(f, inner)(x, axis, **options)

    function.__doc__ = f"{inner} that passes over NaN."
    public(numpy_function, name=name)(function)


_of_valid("nancumsum", 0.0, np.nancumsum, "cumsum")
_of_valid("nancumprod", 1.0, np.nancumprod, "cumprod")
_of_valid("nanargmax", -math.inf, np.nanargmax, "argmax")
_of_valid("nanargmin", math.inf, np.nanargmin, "argmin")
