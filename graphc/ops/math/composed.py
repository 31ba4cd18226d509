"""NumPy functions that are short programs over other public functions, and gcd."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import Library, Sample
from graphc.ir.sizes import greatest
from graphc.ir.types import BF16, DTYPES, F32, AnyType, Type
from graphc.limits import check_within
from graphc.ops.record.arguments import Array, ArrayLike, Axes, DTypeLike, Tensor
from graphc.ops.record.batching import leading
from graphc.ops.record.families import (
    bad_samples,
    define,
    elementwise_type,
    float_of,
    normalise_axis,
    require,
    sample_array,
    stored,
)
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    element_of,
    emit,
    functions,
    public,
)
from graphc.ops.reduce.reduce import accumulating

# ---------------------------------------------------------------------------------------------- gcd


WIDE = ("i64", "u64")  # narrower integers are cast


def _infer_gcd(x: AnyType, y: AnyType) -> Type:
    kind = elementwise_type("gcd", (x, y), 2, WIDE)
    require(x is y, f"gcd takes two operands of one shape, got {x} and {y}")
    return kind


def _gcd_kernel(x: Array, y: Array, out: Array, params: Array, lo: int, hi: int) -> None:
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
    batch=leading,
    infer=_infer_gcd,
    reference=np.gcd,
    lower=Library(lambda node: _gcd_kernel, units=lambda node: node.type.size, native="gcd"),
    dtypes=WIDE,
    commutative=True,
    differentiable=False,
    samples=_gcd_samples,
    doc="The greatest common divisor, never negative; gcd(0, 0) is 0.",
)


@public(np.gcd)
def gcd(x: ArrayLike, y: ArrayLike) -> Any:
    """The greatest common divisor of integers, by Euclid's algorithm."""
    f, element = functions, common_element(x, y)[0]
    require(element.is_integer, f"gcd takes integers, got {element}")
    wide = accumulating(element)
    x, y = f.broadcast_arrays(f.astype(x, wide), f.astype(y, wide))
    return f.astype(emit("gcd", x, y), element)


@public(np.lcm)
def lcm(x: ArrayLike, y: ArrayLike) -> Any:
    """The least common multiple of integers; 0 where one of them is 0."""
    f, element = functions, common_element(x, y)[0]
    require(element.is_integer, f"lcm takes integers, got {element}")
    sizes = DTYPES[f"u{element.bits}"]  # where they overflow, they wrap as NumPy's do
    parts = (f.absolute(f.astype(v, element)) for v in (x, y, gcd(x, y)))
    x, y, divisor = (f.astype(part, sizes) for part in parts)
    return f.astype(f.multiply(f.floor_divide(x, divisor), y), element)


# ---------------------------------------------------------------------------------- floats in parts


@public(np.modf)
def modf(x: ArrayLike) -> tuple[Any, Any]:
    """(fraction, whole part) of floats, both with the sign of x."""
    f, x = functions, functions.astype(x, float_of(element_of(x)[0]))
    whole = f.trunc(x)
    rest = f.where(f.isinf(x), 0.0, f.subtract(x, whole))
    return f.copysign(f.astype(rest, element_of(x)[0]), x), whole


@public(np.ldexp)
def ldexp(x: ArrayLike, exponent: ArrayLike) -> Any:
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
def frexp(x: ArrayLike) -> tuple[Any, Any]:
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
def spacing(x: ArrayLike) -> Any:
    """The distance to the next number away from 0, with the sign of x."""
    f, x = functions, functions.astype(x, float_of(element_of(x)[0]))
    size = f.absolute(x)
    gap = f.subtract(f.nextafter(size, math.inf), size)
    gap = f.where(f.equal(x, 0), gap, f.copysign(gap, x))
    return f.where(f.isfinite(x), gap, math.nan)


@public(np.unwrap)
def unwrap(
    p: Tensor, discont: ArrayLike | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Any:
    """Angles without jumps: steps of more than `discont` (half a period) become shorter ones."""
    f, p = functions, as_value(p)
    place, step = normalise_axis(axis, len(p.shape), "unwrap"), diff(p, axis=axis)
    element = common_element(step, period)[0]
    whole = element.is_integer
    step, half = f.astype(step, element), period // 2 if whole else period / 2
    low = -half - period % 2 if whole else -half
    wrapped = f.add(f.remainder(f.subtract(step, low), period), low)
    if not whole or period % 2 == 0:  # half a period stays the way it went
        up = f.logical_and(f.equal(wrapped, low), f.greater(step, 0))
        wrapped = f.where(up, half, wrapped)
    small = f.less(f.absolute(step), period / 2 if discont is None else discont)
    turned = f.cumsum(f.where(small, 0, f.subtract(wrapped, step)), place, dtype=element)
    first = f.astype(_part(p, place, 0, 1), element)
    rest = f.add(f.astype(_part(p, place, 1, None), element), turned)
    return f.concatenate([first, rest], place)


@public(np.isreal)
def isreal(x: ArrayLike) -> Any:
    """True where the imaginary part is 0."""
    return functions.equal(functions.imag(x), 0)


@public(np.iscomplex)
def iscomplex(x: ArrayLike) -> Any:
    """True where the imaginary part is not 0."""
    return functions.not_equal(functions.imag(x), 0)


@public(np.iscomplexobj)
def iscomplexobj(x: ArrayLike) -> bool:
    """Whether the dtype is complex: known while tracing."""
    return element_of(x)[0].is_complex


@public(np.isrealobj)
def isrealobj(x: ArrayLike) -> bool:
    """Whether the dtype is not complex: known while tracing."""
    return not element_of(x)[0].is_complex


# -------------------------------------------------------------------------------------- differences


def _part(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    return x[(slice(None),) * axis + (slice(start, stop),)]


@public(np.diff)
def diff(a: ArrayLike, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """a[1:] - a[:-1] along an axis, n times; of bools it is `not_equal`."""
    f, x = functions, as_value(a)
    place = normalise_axis(axis, len(x.shape), "diff")
    require(operator.index(n) >= 0, f"diff of order {n}")
    parts = [_edge(prepend, x, place), x, _edge(append, x, place)]
    parts = [p for p in parts if p is not None]
    x = f.concatenate(parts, axis=place) if len(parts) > 1 else x
    step = f.not_equal if element_of(x)[0].kind == "b" else f.subtract
    extent = x.shape[place]
    if isinstance(extent, int):
        n = min(n, extent)  # after which nothing is left
    check_within("results", n, f"diff of order {n}")
    for _ in range(n):
        x = step(_part(x, place, 1, None), _part(x, place, None, -1))
    return x


def _edge(value: ArrayLike, x: Value, axis: int) -> Any:
    if value is None or len(as_value(value).shape):
        return value
    shape = tuple(1 if k == axis else extent for k, extent in enumerate(x.shape))
    return functions.broadcast_to(value, shape)


@public(np.trapezoid)
def trapezoid(y: Tensor, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Any:
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
def ediff1d(
    x: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Any:
    """The differences of the flattened array, between what is put before and behind them."""
    f, made = functions, diff(functions.ravel(x))
    ends = [v if v is None else f.ravel(stored("ediff1d", v, x)) for v in (to_begin, to_end)]
    parts = [part for part in (ends[0], made, ends[1]) if part is not None]
    return f.concatenate(parts) if len(parts) > 1 else made


# --------------------------------------------------------------------------------------- statistics


@public(np.cov)
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The covariance matrix of variables in rows (or columns if not `rowvar`).

    fweights says how often each observation counts, aweights how much.
    """
    f = functions
    x = f.atleast_2d(m)
    x = x if rowvar or len(as_value(m).shape) == 1 else f.transpose(x)
    if y is not None and x.shape[0] != 0:
        other = f.atleast_2d(y)
        other = other if rowvar or other.shape[0] == 1 else f.transpose(other)
        x = f.concatenate([x, other], axis=0)
    wide = "c128" if element_of(x)[0].is_complex else "f64"
    x = f.astype(x, wide if dtype is None else dtype)
    if x.shape[0] == 0:
        return f.zeros((0, 0), "f64")
    delta = ddof if ddof is not None else int(not bias)
    count: Any = x.shape[1]
    if fweights is None and aweights is None:
        centred, weighted = f.subtract(x, f.mean(x, 1, keepdims=True)), None
        left: Any = greatest(count - delta, 0)
    else:
        weights = [w for w in (fweights, aweights) if w is not None]
        joint = f.astype(functools.reduce(f.multiply, weights), element_of(x)[0])
        total = f.sum(joint)
        lost = delta if aweights is None else delta * f.sum(joint * as_value(aweights)) / total
        centred = f.subtract(x, f.expand_dims(f.sum(x * joint, 1) / total, 1))
        left, weighted = f.maximum(f.real(total - lost), 0), centred * joint
    other = f.conj(f.transpose(centred if weighted is None else weighted))
    return f.squeeze(f.divide(f.matmul(centred, other), left))


@public(np.corrcoef)
def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: DTypeLike | None = None
) -> Any:
    """The matrix of correlation coefficients."""
    f, c = functions, cov(x, y, rowvar, dtype=dtype)
    if not c.shape:
        return f.divide(c, c)
    spread = f.sqrt(f.real(f.diagonal(c)))
    made = f.divide(f.divide(c, f.expand_dims(spread, 1)), spread)
    return made if element_of(made)[0].is_complex else f.clip(made, -1, 1)


def _of_valid(name: str, neutral: float, numpy_function: Callable[..., Any], inner: str) -> None:
    """A function of what is not NaN: NaN becomes a neutral value first."""

    def function(a: ArrayLike, axis: Axes = None, **options: object) -> Any:
        f = functions
        if element_of(a)[0].kind not in "fc":
            return getattr(f, inner)(a, axis, **options)
        missing = f.isnan(a)
        if inner.startswith("arg") and not isinstance(missing, Value):
            _require_numbers(name, missing, axis)
        return getattr(f, inner)(f.where(missing, neutral, a), axis, **options)

    function.__doc__ = f"{inner} that passes over NaN."
    public(numpy_function, name=name)(function)


class AllNaNError(TypeRuleError, ValueError):
    """A row has no number, so there is no place of the greatest one."""


def _require_numbers(name: str, missing: Array, axis: Any) -> None:
    if missing.size and np.any(np.all(missing, axis)):
        raise AllNaNError(f"{name}: a row is all NaN")


_of_valid("nancumsum", 0.0, np.nancumsum, "cumsum")
_of_valid("nancumprod", 1.0, np.nancumprod, "cumprod")
_of_valid("nanargmax", -math.inf, np.nanargmax, "argmax")
_of_valid("nanargmin", math.inf, np.nanargmin, "argmin")


# --------------------------------------------------------------------------------------------- bits

_PLACES = np.arange(8, dtype=np.uint8)


def _bit_places(bitorder: str) -> Any:
    require(bitorder in ("big", "little"), f"bitorder is 'big' or 'little', got {bitorder!r}")
    return _PLACES if bitorder == "little" else _PLACES[::-1]


@public(np.packbits)
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Any:
    """Eight elements along an axis (None: flattened) become the bits of one u8: those that are not
    0 are 1. Zeros fill the last one."""
    f, x = functions, as_value(a)
    require(element_of(x)[0].kind in "biu", "packbits takes bools or integers")
    x = f.ravel(x) if axis is None else x
    place = normalise_axis(axis or 0, len(x.shape), "packbits")
    x = f.moveaxis(f.not_equal(x, 0), place, -1)
    spare = -x.shape[-1] % 8
    x = f.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(0, spare)])
    rows = f.astype(f.reshape(x, (*x.shape[:-1], x.shape[-1] // 8, 8)), "u8")
    made = f.sum(f.left_shift(rows, _bit_places(bitorder)), -1, dtype="u8")
    return f.moveaxis(made, -1, place)


@public(np.unpackbits)
def unpackbits(
    a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    """The bits of u8 along an axis (None: flattened): the first `count`, all but the last -count,
    or zeros behind them."""
    f, x = functions, as_value(a)
    require(element_of(x)[0].name == "u8", f"unpackbits takes u8, got {element_of(x)[0]}")
    x = f.ravel(x) if axis is None else x
    place = normalise_axis(axis or 0, len(x.shape), "unpackbits")
    x = f.expand_dims(f.moveaxis(x, place, -1), -1)
    bits = f.bitwise_and(f.right_shift(x, _bit_places(bitorder)), np.uint8(1))
    bits = f.reshape(bits, (*bits.shape[:-2], bits.shape[-2] * 8))
    have = bits.shape[-1]
    want = have if count is None else count if count >= 0 else have + count
    require(want >= 0, f"unpackbits: -count of {-want - have} is more than {have} bits")
    bits = bits[..., :want]
    bits = f.pad(bits, [(0, 0)] * (len(bits.shape) - 1) + [(0, max(want - have, 0))])
    return f.moveaxis(bits, -1, place)


# -------------------------------------------------------------- functions that become complex


def _complex_where_needed(name: str, numpy_function: ArrayLike) -> None:
    def function(x: ArrayLike, *rest: ArrayLike) -> Any:
        complex_ = any(element_of(v)[0].is_complex for v in (x, *rest))
        require(
            complex_,
            f"emath.{name} of real numbers has a dtype that depends on data",
            hint=f"np.{name} gives NaN outside of its domain; cast to complex for emath.{name}",
        )
        if name == "logn":
            return functions.divide(functions.log(*rest), functions.log(x))
        return getattr(functions, name)(x, *rest)

    function.__doc__ = (
        f"{name} of complex numbers. Real ones are refused: their dtype depends on data."
    )
    public(numpy_function, name=f"emath.{name}")(function)


for _name in ("sqrt", "log", "log2", "log10", "logn", "power", "arccos", "arcsin", "arctanh"):
    _complex_where_needed(_name, getattr(np.emath, _name))
