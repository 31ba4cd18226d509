"""The exponential of matrices, by scaling and squaring (Higham, 2005).

    exp(x) = (q(y)^-1 p(y)) ** (2 ** s),   y = x / 2 ** s,   p / q the diagonal Pade approximant

s is the least with which |y| in the 1-norm is below what the approximant is exact for; each matrix
of a stack has its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir.op import Composite, Sample
from graphc.ir.types import AnyType, Type
from graphc.ops.linalg.decomposition_gradients import adjoint
from graphc.ops.linalg.decompositions import DTYPES, square_type
from graphc.ops.linalg.factor import solve
from graphc.ops.linalg.spectral import computed
from graphc.ops.record.arguments import Array, ArrayLike
from graphc.ops.record.batching import leading
from graphc.ops.record.dims import shape_of
from graphc.ops.record.families import define, sample_array
from graphc.ops.record.value import Value, emit, functions, public

MOST_SQUARINGS = 16
# Degree and greatest norm, by the bytes of a real number.
_DEGREES = {4: (7, 3.925724783138660), 8: (13, 5.371920351148152)}


def _coefficients(degree: int) -> list[float]:
    """Those of the numerator, from the constant one on; the last is 1."""
    top = math.factorial
    every = [
        top(2 * degree - k) * top(degree) // (top(k) * top(degree - k)) for k in range(degree + 1)
    ]
    return [float(c) / top(degree) for c in every]


def _expand_expm(x: Value) -> Any:
    f, real = functions, x.element.real
    degree, limit = _DEGREES[real.itemsize]
    norm = f.max(f.sum(f.absolute(x), axis=-2), axis=-1) if 0 not in shape_of(x) else None
    if norm is None:
        return x
    times = f.clip(f.ceil(f.log2(f.divide(norm, limit))), 0, None)[..., None, None]
    made = _approximant(f.multiply(x, f.exp2(f.negative(times))), degree)
    for k in range(MOST_SQUARINGS):
        made = f.where(f.greater(times, k), f.matmul(made, made), made)
    return f.where(f.greater(times, MOST_SQUARINGS), math.nan, made)


def _approximant(y: Value, degree: int) -> Any:
    """(v - u)^-1 (v + u) with the odd powers in u and the even ones in v, of degree 7 or 13."""
    f, c = functions, _coefficients(degree)
    unit = f.eye(shape_of(y)[-1], dtype=y.element)
    square = f.matmul(y, y)
    fourth = f.matmul(square, square)
    powers = [unit, square, fourth, f.matmul(fourth, square)]

    def total(first: int) -> Any:
        """c_first + c_first+2 y^2 + ..., up to y^6 and that times the rest."""
        made = _sum(powers, c[first : first + 8 : 2])
        rest = c[first + 8 :: 2]
        return f.add(made, f.matmul(powers[3], _sum(powers[1:], rest))) if rest else made

    u, v = f.matmul(y, total(1)), total(0)
    return solve(f.subtract(v, u), f.add(v, u))


def _sum(powers: list[Any], factors: list[float]) -> Any:
    f = functions
    made = f.multiply(powers[0], factors[0])
    for power, factor in zip(powers[1:], factors[1:], strict=False):
        made = f.add(made, f.multiply(power, factor))
    return made


def _expm_gradient(ct: Value, result: Value, x: Value) -> tuple[Any]:
    """The corner of the exponential of [[x', g], [0, x']] is its derivative along g."""
    f, turned, n = functions, adjoint(x), x.type.dims[-1]
    above = f.concatenate([turned, ct], -1)
    below = f.concatenate([f.zeros_like(ct), turned], -1)
    whole = emit("expm", f.concatenate([above, below], -2))
    return (whole[..., :n, n:],)


def _reference(x: Array) -> Any:
    """Taylor's series of the scaled matrix, squared."""
    size = np.abs(x).sum(-2).max(initial=0) if x.size else 0.0
    times = max(0, math.ceil(math.log2(size)) + 4) if size else 0
    wide = x.astype(np.result_type(x, np.float64)) / 2**times
    made = term = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for k in range(1, 20):
        term = term @ wide / k
        made = made + term
    for _ in range(times):
        made = made @ made
    return made.astype(x.dtype)


def _infer_expm(x: AnyType) -> Type:
    return square_type("expm", x)


def _samples() -> list[Sample]:
    made = []
    for name in DTYPES:
        for shape in ((3, 3), (2, 5, 5), (1, 1), (0, 2, 2), (2, 0, 0)):
            x = sample_array(name, shape, (-1, 1), 3)
            made.append(Sample((x,), {}, tolerance=512))
            made.append(Sample(((x * 4).astype(x.dtype),), {}, tolerance=8192))
    return [*made, Sample((np.zeros((2, 3)),), {}, False)]


expm_op = define(
    "expm",
    batch=leading,
    infer=_infer_expm,
    reference=_reference,
    lower=Composite(_expand_expm),
    dtypes=DTYPES,
    gradient=_expm_gradient,
    samples=_samples,
    doc="The exponentials of square matrices.",
)


@public(name="linalg.expm")
def expm(a: ArrayLike) -> Any:
    """The exponentials of stacked square matrices: of a sum of powers, not of elements. NaN for a
    1-norm above 3e5."""
    return emit("expm", computed(a))
