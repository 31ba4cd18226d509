"""Distributions: what `gc.random` draws, over the bits of `threefry`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.op import Composite
from graphc.ir.sizes import Size, is_open
from graphc.ir.types import I64, U32, U64, AnyType, Dim, Dimension, DType, Type, dtype, tensor
from graphc.ops.random.threefry import (
    MASK,
    Dims,
    bits_cost,
    bits_reference,
    check_key,
    key_samples,
    shape_attrs,
)
from graphc.ops.record.arguments import Array, ArrayLike, DTypeLike, Tensor
from graphc.ops.record.batching import leading
from graphc.ops.record.dims import as_shape, size_of
from graphc.ops.record.families import FLOATS, define, require
from graphc.ops.record.value import Value, as_value, common_element, element_of, emit, functions

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]

# ------------------------------------------------------------------------------------ distributions

# (bits drawn, mantissa digits used) per float type: every value k / 2**digits is equally likely.
_DIGITS = {"f16": ("u16", 10), "bf16": ("u16", 7), "f32": ("u32", 23), "f64": ("u64", 52)}


def _infer_float(key: AnyType, *, dims: Dims, dtype: DType) -> Type:
    return tensor(dtype, (*check_key("a random distribution", key), *dims))


def _expand_uniform(key: Value, *, dims: Dims, dtype: DType) -> Any:
    drawn, digits = _DIGITS[dtype.name]
    whole = functions.right_shift(bits(key, dims, drawn), _dtype(drawn).bits - digits)
    return functions.multiply(functions.astype(whole, dtype), 2.0**-digits)


def _uniform_reference(key: Array, dims: tuple[int, ...], dtype: DType) -> Any:
    drawn, digits = _DIGITS[dtype.name]
    whole = bits_reference(key, dims, _dtype(drawn)).astype(np.uint64)
    return ((whole >> np.uint64(_dtype(drawn).bits - digits)) / 2.0**digits).astype(dtype.numpy)


def _expand_normal(key: Value, *, dims: Dims, dtype: DType) -> Any:
    """sqrt(2) erfinv(u) with u uniform in (-1, 1)."""
    f, wide = functions, dtype.compute
    low = float(np.nextafter(np.asarray(-1, wide.numpy), np.asarray(0, wide.numpy)))
    u = f.add(f.multiply(uniform(key, dims, wide), 2.0), low)
    return f.astype(f.multiply(f.erfinv(u), math.sqrt(2)), dtype)


def _normal_reference(key: Array, dims: tuple[int, ...], dtype: DType) -> Any:
    from statistics import NormalDist

    wide = dtype.compute
    low = np.nextafter(np.asarray(-1, wide.numpy), np.asarray(0, wide.numpy))
    u = _uniform_reference(key, dims, wide) * wide.numpy.type(2) + low
    quantile = np.frompyfunc(NormalDist().inv_cdf, 1, 1)
    return np.asarray(quantile((1 + u.astype(np.float64)) / 2), np.float64)


for _name, _expand, _reference in (
    ("random_uniform", _expand_uniform, _uniform_reference),
    ("random_normal", _expand_normal, _normal_reference),
):
    define(
        _name,
        batch=leading,
        infer=_infer_float,
        reference=_reference,
        lower=Composite(_expand),
        attrs=shape_attrs(FLOATS),
        dtypes=("u32",),
        differentiable=False,
        cost=bits_cost,
        samples=key_samples(*({"dims": (4, 7), "dtype": name} for name in FLOATS)),
    )

# ---------------------------------------------------------------------------------------- gc.random

_dtype = dtype
Shape = Sequence[Dimension] | int


def key(seed: ArrayLike) -> Any:
    """A key (u32[2]) from an integer: a Python int or a traced one."""
    if isinstance(seed, int | np.integer):
        word = int(seed) & (2**64 - 1)
        return as_value(np.array([word >> 32, word & MASK], np.uint32))
    f = functions
    element = common_element(seed)[0]
    require(element.is_integer, f"a key is made of an integer, not of {element}")
    word = f.astype(seed, U64)
    return f.stack([f.astype(f.right_shift(word, 32), U32), f.astype(word, U32)])


def split(key: ArrayLike, count: int = 2) -> Any:
    """`count` independent new keys, u32[count, 2]; the old key must not be used again."""
    return emit("random_split", key, count=count)


def fold_in(key: ArrayLike, data: ArrayLike) -> Any:
    """The key that belongs to `key` and the integer `data` (a step or device number)."""
    number = int(data) & MASK if isinstance(data, int) else data
    return emit("random_fold", key, functions.astype(number, U32))


def bits(key: Value, shape: Shape = (), dtype: DTypeLike = "u32") -> Any:
    """Uniform unsigned integers."""
    return emit("random_bits", key, dims=as_shape(shape), dtype=_dtype(dtype))


def uniform(
    key: ArrayLike,
    shape: Shape = (),
    dtype: DTypeLike | None = "f32",
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Any:
    """Uniform floats in [minval, maxval)."""
    f, made = functions, emit("random_uniform", key, dims=as_shape(shape), dtype=_dtype(dtype))
    if isinstance(minval, float | int) and (minval, maxval) == (0, 1):
        return made
    return f.maximum(f.add(f.multiply(made, maxval - minval), minval), minval)


def normal(key: Value, shape: Shape = (), dtype: DTypeLike = "f32") -> Any:
    """Standard normal floats."""
    return emit("random_normal", key, dims=as_shape(shape), dtype=_dtype(dtype))


def truncated_normal(
    key: ArrayLike, lower: float, upper: float, shape: Shape = (), dtype: DTypeLike | None = "f32"
) -> Any:
    """Standard normal floats given that they lie in [lower, upper]."""
    f, root = functions, math.sqrt(2)
    u = uniform(key, shape, dtype, math.erf(lower / root), math.erf(upper / root))
    return f.clip(f.multiply(f.erfinv(u), root), lower, upper)


def exponential(key: Value, shape: Shape = (), dtype: DTypeLike = "f32") -> Any:
    """Exponential floats of mean 1."""
    return functions.negative(functions.log1p(functions.negative(uniform(key, shape, dtype))))


def gumbel(key: Value, shape: Shape = (), dtype: DTypeLike = "f32") -> Any:
    """Gumbel floats: -log of exponential ones."""
    tiny = float(np.finfo(np.float32).tiny)
    drawn = functions.maximum(exponential(key, shape, dtype), tiny)
    return functions.negative(functions.log(drawn))


def bernoulli(key: Tensor, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """True with probability p; the shape defaults to p's."""
    p = as_value(p)
    element = element_of(p)[0]
    dims = p.shape if shape is None else as_shape(shape)
    drawn = uniform(key, dims, element if element.kind == "f" else "f32")
    return functions.less(drawn, p)


def randint(key: Value, shape: Shape, minval: int, maxval: int, dtype: DTypeLike = "i32") -> Any:
    """Integers in minval..maxval-1, from 64 bits each: bias below (maxval - minval) / 2**64."""
    require(maxval > minval, f"randint needs minval < maxval, got {minval} and {maxval}")
    f = functions
    drawn = _rest(bits(key, shape, U64), maxval - minval)
    start = f.astype(minval, I64) if is_open((minval,)) else np.int64(minval)
    return f.astype(f.add(f.astype(drawn, I64), start), dtype)


def _rest(drawn: Value, count: int) -> Any:
    """The remainder of 64 bits; of a small divisor from that of each half, which takes a fraction
    of the time: 2**32 * high + low, and what is added up is below 2**32."""
    f = functions
    if is_open((count,)):
        return f.remainder(drawn, f.astype(count, U64))
    if count >= 1 << 16:
        return f.remainder(drawn, np.uint64(count))
    divisor, scale = np.uint32(count), np.uint32(2**32 % count)
    high = f.remainder(f.astype(f.right_shift(drawn, 32), U32), divisor)
    low = f.remainder(f.astype(drawn, U32), divisor)
    return f.remainder(f.add(f.multiply(high, scale), low), divisor)


def permutation(key: Value, x: ArrayLike, axis: int = 0) -> Any:
    """x shuffled along an axis, or 0..x-1 shuffled if x is a number: the order of random bits."""
    is_number = isinstance(x, int | Dim | Size)
    count: Any = x if is_number else as_value(x).shape[axis]
    order = functions.argsort(bits(key, (count,), U64))
    return order if is_number else functions.take(x, order, axis=axis)


def choice(key: Value, x: ArrayLike, shape: Shape = (), replace: bool = True) -> Any:
    """Elements of x (or of 0..x-1 if it is an int) along axis 0, with or without replacement."""
    is_count, dims = isinstance(x, int | Size | Dim), as_shape(shape)
    count: Any = x if is_count else as_value(x).shape[0]
    if replace:
        drawn = randint(key, dims, 0, count, I64)
    else:
        wanted = size_of(dims)
        require(wanted <= count, f"cannot draw {wanted} of {count} without replacement")
        drawn = functions.reshape(permutation(key, count)[:wanted], dims)
    return drawn if is_count else functions.take(x, drawn, axis=0)


def categorical(key: Value, logits: Value, axis: int = -1, shape: Shape | None = None) -> Any:
    """Indices drawn with probabilities softmax(logits), by the largest of logits + Gumbel noise."""
    logits = as_value(logits)
    rest = list(logits.shape)
    del rest[axis]
    extra = () if shape is None else as_shape(shape)[: len(as_shape(shape)) - len(rest)]
    noise = gumbel(key, (*extra, *logits.shape), element_of(logits)[0])
    place = axis if axis < 0 else axis + len(extra)
    return functions.argmax(functions.add(noise, logits), axis=place)
