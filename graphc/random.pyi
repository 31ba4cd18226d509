"""`gc.random`: random numbers as pure functions of an explicit key.

Written by `python -m tools`."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, DTypeLike, NDArray

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

def bernoulli(
    key: ArrayLike,
    p: ArrayLike = 0.5,
    shape: int | Sequence[int] | None = None,
) -> NDArray[Any]:
    """True with probability p; the shape defaults to p's."""

def bits(
    key: ArrayLike,
    shape: int | Sequence[int] = ...,
    dtype: DTypeLike = 'u32',
) -> NDArray[Any]:
    """Uniform unsigned integers."""

def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: int | Sequence[int] | None = None,
) -> NDArray[Any]:
    """Indices drawn with probabilities softmax(logits), by the largest of logits + Gumbel noise."""

def choice(
    key: ArrayLike,
    x: ArrayLike,
    shape: int | Sequence[int] = ...,
    replace: bool = True,
) -> NDArray[Any]:
    """Elements of x (or of 0..x-1 if it is an int) along axis 0, with or without replacement."""

def exponential(
    key: ArrayLike,
    shape: int | Sequence[int] = ...,
    dtype: DTypeLike = 'f32',
) -> NDArray[Any]:
    """Exponential floats of mean 1."""

def fold_in(key: ArrayLike, data: ArrayLike) -> NDArray[Any]:
    """The key that belongs to `key` and the integer `data` (a step or device number)."""

def gumbel(
    key: ArrayLike,
    shape: int | Sequence[int] = ...,
    dtype: DTypeLike = 'f32',
) -> NDArray[Any]:
    """Gumbel floats: -log of exponential ones."""

def key(seed: ArrayLike) -> NDArray[Any]:
    """A key (u32[2]) from an integer: a Python int or a traced one."""

def normal(
    key: ArrayLike,
    shape: int | Sequence[int] = ...,
    dtype: DTypeLike = 'f32',
) -> NDArray[Any]:
    """Standard normal floats."""

def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0) -> NDArray[Any]:
    """x shuffled along an axis, or 0..x-1 shuffled if x is a number: the order of random bits."""

def randint(
    key: ArrayLike,
    shape: int | Sequence[int],
    minval: int,
    maxval: int,
    dtype: DTypeLike = 'i32',
) -> NDArray[Any]:
    """Integers in minval..maxval-1, from 64 bits each: bias below (maxval - minval) / 2**64."""

def split(key: ArrayLike, count: int = 2) -> NDArray[Any]:
    """`count` independent new keys, u32[count, 2]; the old key must not be used again."""

def truncated_normal(
    key: ArrayLike,
    lower: float,
    upper: float,
    shape: int | Sequence[int] = ...,
    dtype: DTypeLike | None = 'f32',
) -> NDArray[Any]:
    """Standard normal floats given that they lie in [lower, upper]."""

def uniform(
    key: ArrayLike,
    shape: int | Sequence[int] = ...,
    dtype: DTypeLike | None = 'f32',
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
) -> NDArray[Any]:
    """Uniform floats in [minval, maxval)."""
