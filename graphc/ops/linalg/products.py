"""`gc.linalg` and NumPy's products of vectors and matrices, over matmul and einsum."""

from __future__ import annotations

import math
import operator
import string
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.types import F64, Dim, definitely_different
from graphc.ops.linalg.einsum import einsum
from graphc.ops.linalg.factor import cholesky, det, inv, slogdet, solve, tensorinv, tensorsolve
from graphc.ops.linalg.matmul import matmul
from graphc.ops.linalg.matrix_exponential import expm
from graphc.ops.linalg.spectral import (
    eig,
    eigh,
    eigvals,
    eigvalsh,
    lstsq,
    matrix_rank,
    pinv,
    qr,
    svd,
    svdvals,
)
from graphc.ops.nn.conv import conv
from graphc.ops.record.arguments import ArrayLike, DTypeLike
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import normalise_axis, require, require_mode
from graphc.ops.record.value import Value, common_element, functions, is_python_number, public
from graphc.ops.reduce.statistics import norm, vector_norm
from graphc.ops.shape.creation import eye
from graphc.ops.shape.manipulation import flip, moveaxis
from graphc.ops.shape.shape import reshape
from graphc.ops.shape.slicing import slice_axis

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]


@public(np.dot, method=True)
def dot(a: ArrayLike, b: ArrayLike) -> Any:
    """Sum over the last axis of a and the second to last of b; a product for scalars."""
    left, right = rank_of(a), rank_of(b)
    if left == 0 or right == 0:  # np.dot makes arrays of numbers first
        return functions.multiply(*(np.asarray(v) if is_python_number(v) else v for v in (a, b)))
    if right <= 2:
        return matmul(a, b)
    return tensordot(a, b, axes=((-1,), (-2,)))


@public(np.vdot)
def vdot(a: ArrayLike, b: ArrayLike) -> Any:
    """The inner product of two flattened arrays; the first is conjugated."""
    flat = reshape(a, -1)
    if common_element(a)[0].is_complex:
        flat = functions.conj(flat)
    return matmul(flat, reshape(b, -1))


@public(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum over the given axes of a and b: a count of adjacent axes, or two lists."""
    return einsum(*tensordot_operands(a, b, axes))


def tensordot_operands(a: Value, b: Value, axes: Any) -> tuple[Any, ...]:
    """tensordot in the interleaved form of einsum."""
    left, right = rank_of(a), rank_of(b)
    if isinstance(axes, int | np.integer):
        count = int(axes)
        require(count <= min(left, right), f"tensordot: {count} axes of ranks {left} and {right}")
        axes = (range(left - count, left), range(count))
    first, second = ([int(k) for k in np.atleast_1d(side)] for side in axes)
    require(len(first) == len(second), f"tensordot: {len(first)} axes against {len(second)}")
    letters_a, letters_b = list(range(left)), list(range(left, left + right))
    for i, j in zip(first, second):
        letters_b[j] = letters_a[i]
    summed = {letters_a[i] for i in first}
    result = [k for k in (*letters_a, *letters_b) if k not in summed]
    return a, letters_a, b, letters_b, result


@public(np.inner)
def inner(a: ArrayLike, b: Any) -> Any:
    """Sum over the last axes of both; a product where one is a scalar."""
    if rank_of(a) == 0 or rank_of(b) == 0:
        return functions.multiply(a, b)
    return tensordot(a, b, axes=((-1,), (-1,)))


@public(np.outer)
def outer(a: ArrayLike, b: Any) -> Any:
    """All products of the elements of two flattened arrays."""
    return functions.multiply(reshape(a, -1, 1), reshape(b, 1, -1))


@public(np.linalg.vecdot, np.vecdot, name="vecdot")
def vecdot(a: ArrayLike, b: ArrayLike, *, axis: int = -1) -> Any:
    """Inner products along an axis, the other axes broadcast; a is conjugated."""
    have, given = (shape_of(v)[normalise_axis(axis, rank_of(v), "vecdot")] for v in (a, b))
    require(not definitely_different(have, given), f"vecdot of {have} and {given} elements")
    a = functions.conj(a) if common_element(a)[0].is_complex else a
    return einsum("...i,...i->...", moveaxis(a, axis, -1), moveaxis(b, axis, -1))


@public(np.matvec)
def matvec(a: ArrayLike, v: ArrayLike) -> Any:
    """Stacked matrices times stacked vectors."""
    return einsum("...ij,...j->...i", a, v)


@public(np.vecmat)
def vecmat(v: ArrayLike, a: ArrayLike) -> Any:
    """Stacked vectors times stacked matrices; the vectors are conjugated."""
    v = functions.conj(v) if common_element(v)[0].is_complex else v
    return einsum("...i,...ij->...j", v, a)


@public(np.kron)
def kron(a: ArrayLike, b: ArrayLike) -> Any:
    """Every element of a times all of b, laid out as blocks."""
    rank = max(rank_of(a), rank_of(b))
    first, second = ((1,) * (rank - rank_of(x)) + tuple(shape_of(x)) for x in (a, b))
    outer_dims = tuple(e for d in first for e in (d, 1))
    inner_dims = tuple(e for d in second for e in (1, d))
    blocks = functions.multiply(reshape(a, outer_dims), reshape(b, inner_dims))
    return reshape(blocks, tuple(m * n for m, n in zip(first, second)))


@public(np.cross)
def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    """Vector products of 3-vectors along an axis; the other axes broadcast."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    for x in (a, b):
        require(shape_of(x)[-1] == 3, f"cross takes vectors of 3, got shape {list(shape_of(x))}")
    x, y = ([slice_axis(v, rank_of(v) - 1, k, k + 1) for k in range(3)] for v in (a, b))
    turns = ((1, 2), (2, 0), (0, 1))
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in turns]
    return moveaxis(functions.concatenate(parts, -1), -1, axisc)


public(np.linalg.outer, name="linalg.outer")(outer)
public(np.linalg.tensordot, name="linalg.tensordot")(tensordot)
public(np.linalg.matmul, name="linalg.matmul")(matmul)


@public(np.linalg.cross, name="linalg.cross")
def linalg_cross(a: ArrayLike, b: ArrayLike, *, axis: int = -1) -> Any:
    """Vector products of 3-vectors along an axis."""
    return cross(a, b, axis=axis)


@public(np.linalg.multi_dot, name="linalg.multi_dot")
def multi_dot(arrays: Any, *, out: None = None) -> Any:
    """The product of a chain of matrices in the cheapest order; the ends may be vectors."""
    terms, letters = [], iter(string.ascii_letters)
    left = None if rank_of(arrays[0]) == 1 else next(letters)
    first, last = left, None
    joint = next(letters)
    for k, array in enumerate(arrays):
        if k == 0:
            terms.append((left or "") + joint)
        elif rank_of(array) == 1:
            terms.append(joint)
        else:
            last = next(letters)
            terms.append(joint + last)
            joint = last
    vector = rank_of(arrays[-1]) == 1
    return einsum(f"{','.join(terms)}->{first or ''}{'' if vector else last or ''}", *arrays)


@public(np.linalg.matrix_power, name="linalg.matrix_power")
def matrix_power(a: ArrayLike, n: int) -> Any:
    """A square matrix to an integer power, by squaring; negative ones of its inverse."""
    n = operator.index(n)
    if n < 0:
        return matrix_power(inv(a), -n)
    made, square, rest = None, a, n
    while rest:
        if rest & 1:
            made = square if made is None else matmul(made, square)
        rest >>= 1
        square = matmul(square, square) if rest else square
    if made is not None:
        return made
    unit = eye(shape_of(a)[-1], dtype=common_element(a)[0])
    return functions.broadcast_to(unit, shape_of(a))


# ------------------------------------------------------------------------------------ 1-d filters

CAUSAL_BLOCK = 16  # elements of which all products are written out, half of them for nothing


def _correlation(a: Value, v: Value, mode: str) -> Any:
    """sum over k of a[p + k] * v[k], v no longer than a.

    Beyond the ends of a there is nothing, which times infinity is nothing, too.
    """
    n = shape_of(v)[0]
    if isinstance(n, Dim):
        raise TypeRuleError(f"convolve: the length {n} of the shorter array is not known")
    require(n != 0, "convolve: an array has no elements")
    require_mode("convolve", mode, ("full", "same", "valid"))
    low, high = {"full": (n - 1, n - 1), "same": (n // 2, n - 1 - n // 2), "valid": (0, 0)}[mode]
    endless = common_element(a, v)[0].kind in "fc"
    padding = (0, 0) if endless else (low, high)
    made = reshape(conv(reshape(a, 1, 1, -1), reshape(v, 1, 1, -1), padding=[padding]), -1)
    if not endless or not low + high:
        return made
    whole, f = shape_of(a)[0], functions
    left = _causal(slice_axis(a, 0, 0, n - 1), flip(v)[: n - 1], n - 1)
    last = flip(slice_axis(a, 0, whole - (n - 1), whole))
    right = flip(_causal(last, v[: n - 1], n - 1))
    return f.concatenate([left[n - 1 - low :], made, right[:high]])


def _causal(a: Value, v: Value, size: int) -> Any:
    """sum over i <= p of a[i] * v[p - i], for vectors of that size.

    In blocks, of which each is such a sum of its own.  What the first half of two, four, eight ...
    blocks adds to the second half is a convolution that ends nowhere, the same for all of them.
    """
    f = functions
    levels = max(0, (size - 1) // CAUSAL_BLOCK).bit_length()
    step = -(-size // (1 << levels))
    a, v = (f.pad(x, ((0, (step << levels) - size),)) for x in (a, v))
    here, there = f.arange(step)[:, None], f.arange(step)
    turned = f.take(v, f.maximum(here - there, 0))
    terms = reshape(a, -1, 1, step) * turned
    made = reshape(f.sum(f.where(here >= there, terms, 0), axis=-1), -1)
    for level in range(levels):
        half = step << level
        first = flip(reshape(a, -1, 2, half)[:, 0], 1)
        behind = reshape(v[1 : 2 * half], 1, 1, -1)
        added = reshape(conv(behind, reshape(first, -1, 1, half)), -1, 1, half)
        made = made + reshape(f.concatenate([f.zeros_like(added), added], 1), -1)
    return made[:size]


def _longer_first(a: Value, v: Value) -> bool:
    require(rank_of(a) == rank_of(v) == 1, "convolve and correlate take two vectors")
    spare = shape_of(a)[0] - shape_of(v)[0]
    return isinstance(spare, Dim) or spare >= 0


@public(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """The convolution of two vectors, term by term (`fftconvolve` is faster for long ones)."""
    a, v = (a, v) if _longer_first(a, v) else (v, a)
    return _correlation(a, flip(v), mode)


@public(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """The cross-correlation of two vectors; v is conjugated."""
    v = functions.conj(v) if common_element(v)[0].is_complex else v
    return _correlation(a, v, mode) if _longer_first(a, v) else flip(_correlation(v, a, mode))


# ------------------------------------------------------------------------------------ matrices


@public(np.linalg.cond, name="linalg.cond")
def cond(x: ArrayLike, p: Any = None) -> Any:
    """The condition numbers of matrices: the largest singular value over the smallest (None, 2),
    its inverse (-2), or for square ones the norms of an order (1, -1, inf, -inf, "fro", "nuc") of
    the matrix and its inverse, where a singular matrix stops the run.
    """
    if p is None or p in (2, -2):
        return _spread(x, p)
    legal = p in ("fro", "f", "nuc", 1, -1, math.inf, -math.inf)
    require(legal, f"cond has no order {p!r}")
    x = x if common_element(x)[0].kind in "fc" else functions.astype(x, F64)
    return functions.multiply(norm(x, p, (-2, -1)), norm(inv(x), p, (-2, -1)))


def _spread(x: ArrayLike, p: Any) -> Any:
    """Ratios of the first and the last singular values; 0 / 0 is infinite, as in NumPy."""
    f, values = functions, svdvals(x)
    first, last = values[..., 0], values[..., -1]
    ratio = f.divide(last, first) if p == -2 else f.divide(first, last)
    return f.where(f.logical_and(f.isnan(ratio), f.isfinite(first)), math.inf, ratio)


@public(np.linalg.matrix_norm, name="linalg.matrix_norm")
def matrix_norm(x: ArrayLike, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norms of stacked matrices."""
    return norm(x, ord, (-2, -1), keepdims)


@public(np.linalg.diagonal, name="linalg.diagonal")
def diagonal(x: ArrayLike, *, offset: int = 0) -> Any:
    """The diagonals of stacked matrices."""
    return functions.diagonal(x, offset, -2, -1)


@public(np.linalg.trace, name="linalg.trace")
def trace(x: ArrayLike, *, offset: int = 0, dtype: DTypeLike | None = None) -> Any:
    """The traces of stacked matrices."""
    return functions.trace(x, offset, -2, -1, dtype)
