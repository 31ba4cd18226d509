"""`gc.nn.init`: first values of parameters, as functions (key, shape, dtype) -> array.

Factories, so that they can be handed to layers:  gc.nn.Dense(8, 4, weights=gc.nn.init.he_normal())

Fans: a matrix is (inputs, outputs) as layers hold it; with more axes it is the weight of a
convolution, (outputs, inputs, *window).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphc.base.refusing import refusing
from graphc.learn.recipe import recipe
from graphc.ops.linalg.products import cholesky, solve
from graphc.ops.random import random
from graphc.ops.record.families import require
from graphc.ops.record.value import functions as f

Initialiser = Callable[[Any, Sequence[int], Any], Any]


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """(inputs, outputs) that meet in one element of the result."""
    if len(shape) < 2:
        return (math.prod(shape),) * 2
    window = math.prod(shape[2:])
    outputs, inputs = shape[:2] if len(shape) > 2 else shape[::-1]
    return inputs * window, outputs * window


@recipe
def constant(value: float) -> Initialiser:
    """One number everywhere; no key is used."""
    return lambda key, shape, dtype: f.full(tuple(shape), float(value), dtype)


@refusing
def zeros() -> Initialiser:
    """Zeros; no key is used."""
    return constant(0.0)


@refusing
def ones() -> Initialiser:
    """Ones; no key is used."""
    return constant(1.0)


@recipe
def uniform(limit: float = 0.05) -> Initialiser:
    """Uniform in [-limit, limit)."""
    return lambda key, shape, dtype: random.uniform(key, tuple(shape), dtype, -limit, limit)


@recipe
def normal(deviation: float = 0.05, mean: float = 0.0) -> Initialiser:
    """Normal with this standard deviation and mean."""

    def draw(key: Any, shape: Sequence[int], dtype: Any) -> Any:
        return f.add(f.multiply(random.normal(key, tuple(shape), dtype), deviation), mean)

    return draw


def _scaled(variance: Callable[[int, int], float], is_normal: bool) -> Initialiser:
    """A distribution of mean 0 with this variance of (inputs, outputs)."""

    def draw(key: Any, shape: Sequence[int], dtype: Any) -> Any:
        deviation = math.sqrt(variance(*fans(shape)))
        made = normal(deviation) if is_normal else uniform(math.sqrt(3.0) * deviation)
        return made(key, shape, dtype)

    return draw


@recipe
def glorot_uniform() -> Initialiser:
    """Uniform of variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""
    return _scaled(lambda inputs, outputs: 2.0 / max(inputs + outputs, 1), False)


@recipe
def glorot_normal() -> Initialiser:
    """Normal of variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""
    return _scaled(lambda inputs, outputs: 2.0 / max(inputs + outputs, 1), True)


@recipe
def he_uniform() -> Initialiser:
    """Uniform of variance 2 / inputs, for ReLU (He et al., 2015)."""
    return _scaled(lambda inputs, outputs: 2.0 / max(inputs, 1), False)


@recipe
def he_normal() -> Initialiser:
    """Normal of variance 2 / inputs, for ReLU (He et al., 2015)."""
    return _scaled(lambda inputs, outputs: 2.0 / max(inputs, 1), True)


@recipe
def orthogonal(gain: float = 1.0) -> Initialiser:
    """Orthonormal rows or columns, whichever are fewer (Saxe et al., 2014), times `gain`.

    More axes than two: the first against all others.  Every such matrix is equally likely.
    """

    def draw(key: Any, shape: Sequence[int], dtype: Any) -> Any:
        require(len(shape) > 1, f"an orthogonal matrix of shape {list(shape)}")
        rows, columns = shape[0], math.prod(shape[1:])
        tall = random.normal(key, (max(rows, columns), min(rows, columns)), "f64")
        made = _orthonormal_columns(tall)
        made = f.transpose(made) if rows < columns else made
        return f.astype(f.reshape(f.multiply(made, gain), tuple(shape)), dtype)

    return draw


def _orthonormal_columns(a: Any) -> Any:
    """Q of a = QR with a positive diagonal, by shifted CholeskyQR3 (Fukaya et al., 2020).

    Each pass divides by the Cholesky factor of the Gram matrix; the first shifts the matrix by a
    little so that it succeeds for any a, the others remove what that and rounding left.
    """
    rows, columns = a.shape
    identity = f.eye(columns, dtype="f64")
    for shift in (11.0 * (rows + columns + 1) * columns * 2.0**-53, 0.0, 0.0):
        gram = f.matmul(f.transpose(a), a)
        size = f.sum(f.diagonal(gram))
        factor = cholesky(f.add(gram, f.multiply(identity, f.multiply(size, shift))))
        a = f.transpose(solve(factor, f.transpose(a)))
    return a
