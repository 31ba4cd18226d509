"""Casts, bit casts and the parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import Attr, Sample, Scalar
from graphc.ir.traits import Traits
from graphc.ir.types import BF16, BOOL, C64, C128, F64, AnyType, DType, Type, tensor
from graphc.loops import complex_math
from graphc.loops.nest import Expr
from graphc.loops.scalars import Pair, not_zero
from graphc.ops.math.elementwise import int8_for_bool
from graphc.ops.record.arguments import Array, ArrayLike, DTypeLike
from graphc.ops.record.derivatives import over_nonzero
from graphc.ops.record.dims import samples_of
from graphc.ops.record.families import (
    ALL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    as_dtype,
    define,
    elementwise,
    elementwise_cost,
    elementwise_type,
    require,
    require_castable,
    require_options,
    require_tensor,
    sample_array,
    special_values,
    to_real,
    warn_imaginary,
)
from graphc.ops.record.value import (
    Value,
    as_value,
    cast_value,
    common_element,
    element_of,
    emit,
    emit_promoted,
    functions,
    lift,
    public,
    trace_of,
)

# -------------------------------------------------------------------------------------------- casts


def _infer_cast(x: AnyType, *, dtype: DType) -> Type:
    require_tensor("cast", x)
    assert isinstance(x, Type)
    return tensor(dtype, x.shape)


def _cast(x: Any, *, dtype: DType) -> Any:
    if dtype is BOOL:
        return not_zero(x)
    if dtype.is_complex:
        parts = (x.re, x.im) if isinstance(x, Pair) else (x, x.like(0))
        return Pair(*(p.cast(dtype.real) for p in parts))
    return (x.re if isinstance(x, Pair) else x).cast(dtype)


def cast_reference(x: Array, dtype: DType) -> Any:
    """astype, but float to integer saturates and NaN becomes 0 (undefined in NumPy)."""
    x = np.asarray(x)
    if dtype is BOOL:
        return x != 0
    if x.dtype.kind == "c" and not dtype.is_complex:
        x = x.real
    x = x.astype(np.float32) if x.dtype == BF16.numpy else x
    if not dtype.is_integer or x.dtype.kind != "f":
        with np.errstate(all="ignore"):
            return x.astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    low, high = float(info.min), float(info.max)  # high may round up to a power of two
    inside = np.where((x >= low) & (x < high), x, 0).astype(dtype.numpy)
    return np.where(x >= high, info.max, np.where(x < low, info.min, inside)).astype(dtype.numpy)


def _cast_samples() -> list[Sample]:
    targets = ("bool", "i8", "i32", "i64", "u8", "u64", "f16", "bf16", "f32", "f64", "c64")
    sources = [np.concatenate([sample_array(s, (6,), (-4, 4), 0), special_values(s)]) for s in ALL]
    good = [Sample((source,), {"dtype": t}) for source in sources for t in targets]
    return [*good, Sample((np.float32(1),), {"dtype": "f80"}, good=False)]


def _cast_rule(ct: Value, made: Value, x: Value, *, dtype: DType) -> tuple[Any]:
    """The cotangent cast back; a real one of a complex operand has no imaginary part, and a complex
    one of a real operand loses it.  Nothing flows through integers."""
    if x.element.kind not in "fc" or dtype.kind not in "fc":
        return (None,)
    if not x.element.is_complex:
        ct = functions.real(ct)
    return (functions.astype(ct, x.element),)


define(
    "cast",
    infer=_infer_cast,
    reference=cast_reference,
    lower=Scalar(_cast),
    attrs=(Attr("dtype", "dtype", choices=ALL),),
    gradient=_cast_rule,
    cost=elementwise_cost(1),
    samples=_cast_samples,
    doc="Change the element type: float to integer truncates and saturates, complex to real drops "
    "the imaginary part, anything to bool is `!= 0`.",
    traits=Traits(casts=True),
)


def _narrow(x: Expr, *, dtype: DType) -> Expr:
    return x.narrow(dtype)


define(
    "narrow",
    infer=_infer_cast,
    reference=cast_reference,
    lower=Scalar(_narrow),
    attrs=(Attr("dtype", "dtype", choices=FLOATS),),
    dtypes=FLOATS,
    gradient=_cast_rule,
    cost=elementwise_cost(1),
    samples=samples_of([([(6, 5)], {"dtype": t}) for t in FLOATS], dtypes=FLOATS),
    doc="A cast of what a product reads: denormals may become zero, which such products take them "
    "for.",
    traits=Traits(casts=True),
)


@public(np.astype, method=True)
def astype(
    x: ArrayLike,
    dtype: DTypeLike | None,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
    **options: object,
) -> Any:
    """x with another element type (see the op `cast`); imaginary parts that are lost are warned of.
    Raises TypeRuleError where `casting` does not allow it.
    """
    require_options("astype", {"order": order, "subok": subok, "copy": copy, **options})
    element, trace = as_dtype(dtype), trace_of(x)
    if casting != "unsafe":
        require_castable("astype", element_of(x)[0], element, casting)
    if element_of(x)[0].is_complex and not (element.is_complex or element is BOOL):
        warn_imaginary()
    if trace is None:
        return emit("cast", x, dtype=element)
    return cast_value(lift(x, trace), element)


BITS = (*INTEGERS, *FLOATS)


def _infer_bitcast(x: AnyType, *, dtype: DType) -> Type:
    kind = elementwise_type("bitcast", (x,), 1, BITS)
    same = kind.dtype.itemsize == dtype.itemsize
    require(same, f"bitcast from {kind.dtype} to {dtype}: widths differ")
    return tensor(dtype, kind.shape)


def _bitcast(x: Expr, *, dtype: DType) -> Any:
    return x.bitcast(dtype)


def _bitcast_samples() -> list[Sample]:
    pairs = (
        *(("f32", "i32"), ("u32", "f32"), ("i32", "u32"), ("f64", "u64"), ("i64", "f64")),
        *(("u64", "i64"), ("i8", "u8"), ("u8", "i8"), ("i16", "u16"), ("u16", "i16")),
        *(("f16", "u16"), ("i16", "f16"), ("bf16", "i16"), ("u16", "bf16"), ("f16", "bf16")),
    )
    good = [Sample((sample_array(s, (3, 5), (-4, 4), 0),), {"dtype": t}) for s, t in pairs]
    return [*good, Sample((np.float32(1),), {"dtype": "f64"}, good=False)]


define(
    "bitcast",
    infer=_infer_bitcast,
    reference=lambda x, dtype: np.asarray(x).view(dtype.numpy),
    lower=Scalar(_bitcast, stored=True),
    attrs=(Attr("dtype", "dtype", choices=BITS),),
    dtypes=BITS,
    differentiable=False,
    cost=elementwise_cost(0),
    samples=_bitcast_samples,
    doc="The same bits read as another element type of equal width.",
)


@public(method=True, name="view")
def view(x: ArrayLike, dtype: DTypeLike) -> Any:
    """The same bits read as another element type of equal width."""
    return emit("bitcast", x, dtype=as_dtype(dtype))


# ------------------------------------------------------------------------------------ complex parts


def _complex_of(element: DType) -> DType:
    return C128 if element is F64 else C64


def _join(re: Any, im: Any) -> Any:
    # re + 1j * im would turn an infinite part into NaN.
    made = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, np.complex64))
    made.real, made.imag = re, im
    return made


def _angle_rule(ct: Value, made: Value, z: Value) -> tuple[Any]:
    """The angle is Im log z: i z / |z|**2 times the cotangent."""
    re, im = functions.real(z), functions.imag(z)
    scaled = over_nonzero(ct, re * re + im * im)
    return (functions.complex(-scaled * im, scaled * re),)


elementwise(
    "real",
    lambda x: x.re,
    np.real,
    dtypes=COMPLEX,
    result=to_real,
    public_name="",
    gradient=lambda ct, re, z: (functions.astype(ct, z.element),),
)
elementwise(
    "imag",
    lambda x: x.im,
    np.imag,
    dtypes=COMPLEX,
    result=to_real,
    public_name="",
    gradient=lambda ct, im, z: (functions.complex(0, ct),),
)
elementwise(
    "conj",
    complex_math.conj,
    np.conj,
    dtypes=COMPLEX,
    public_name="",
    gradient=lambda ct, mirrored, z: (functions.conj(ct),),
)
elementwise(
    "angle",
    complex_math.angle,
    np.angle,
    dtypes=COMPLEX,
    result=to_real,
    public_name="",
    gradient=_angle_rule,
)
elementwise(
    "complex",
    lambda x, y: Pair(x, y),
    _join,
    arity=2,
    dtypes=("f32", "f64"),
    result=_complex_of,
    public_name="",
    gradient=lambda ct, joined, re, im: (functions.real(ct), functions.imag(ct)),
)


def is_complex(x: Value) -> bool:
    return element_of(x)[0].is_complex


@public(np.real)
def real(x: Any) -> Any:
    """The real part; a real array itself."""
    return emit("real", x) if is_complex(x) else as_value(x)


@public(np.imag)
def imag(x: Any) -> Any:
    """The imaginary part; zeros for a real array."""
    return emit("imag", x) if is_complex(x) else functions.zeros_like(x)


@public(np.conjugate, method=True, name="conj")
def conj(x: Any) -> Any:
    """The complex conjugate; a real array itself."""
    if is_complex(x):
        return emit("conj", x)
    return functions.astype(x, int8_for_bool(element_of(x)[0]))


public(method=True, name="conjugate")(conj)


@public(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """The angle of a complex number in (-pi, pi], or in degrees; 0 or pi for a real one."""
    if is_complex(z):
        made = emit("angle", z)
    else:
        made = functions.arctan2(0, z)
    return functions.degrees(made) if deg else made


@public(name="complex")
def make_complex(re: ArrayLike, im: ArrayLike) -> Any:
    """The complex number with these parts (f32 gives c64, f64 gives c128)."""
    element = common_element(re, im)[0]
    return emit_promoted("complex", re, im, element=element if element.name == "f32" else F64)
