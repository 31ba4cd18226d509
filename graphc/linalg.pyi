"""`gc.linalg`: products of matrices, norms, factors and solvers.

Written by `python -m tools`."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "multi_dot",
    "norm",
    "outer",
    "slogdet",
    "solve",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]

def cholesky(a: ArrayLike, /, *, upper: bool = False) -> NDArray[Any]:
    """The lower (or upper) Cholesky factors of stacked symmetric, or Hermitian, positive definite
    matrices.
    """

def cond(x: ArrayLike, p: ArrayLike | None = None) -> NDArray[Any]:
    """The condition number of square matrices in the norm of an order: 1, -1, inf, -inf or "fro".

    Raises TypeRuleError for the orders None, 2 and -2, which need singular values; a matrix that
    is singular stops the run.
    """

def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> NDArray[Any]:
    """Vector products of 3-vectors along an axis; the other axes broadcast."""

def det(a: ArrayLike) -> NDArray[Any]:
    """The determinants of stacked matrices."""

def diagonal(x: ArrayLike, *, offset: int = 0) -> NDArray[Any]:
    """The diagonals of stacked matrices."""

def inv(a: ArrayLike) -> NDArray[Any]:
    """The inverses of stacked matrices."""

def matmul(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """a @ b as NumPy: vectors count as a row on the left and a column on the right."""

def matrix_norm(
    x: ArrayLike,
    *,
    keepdims: bool = False,
    ord: float | str | None = 'fro',
) -> NDArray[Any]:
    """The norms of stacked matrices."""

def matrix_power(a: ArrayLike, n: int) -> NDArray[Any]:
    """A square matrix to an integer power, by squaring; negative ones of its inverse."""

def multi_dot(arrays: Sequence[ArrayLike], *, out: None = None) -> NDArray[Any]:
    """The product of a chain of matrices in the cheapest order; the ends may be vectors."""

def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> NDArray[Any]:
    """NumPy's norm: Frobenius or 2-norm by default, vector norms, matrix 1 and inf norms.

    Raises TypeRuleError for the spectral and nuclear norms, which need singular values.
    """

def outer(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """All products of the elements of two flattened arrays."""

def slogdet(a: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """(sign, log of the absolute value) of the determinants of stacked matrices."""

def solve(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """The x with a @ x = b, for stacked matrices; b is a vector or stacked matrices of columns."""

def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] = 2) -> NDArray[Any]:
    """Sum over the given axes of a and b: a count of adjacent axes, or two lists."""

def tensorinv(a: ArrayLike, ind: int = 2) -> NDArray[Any]:
    """The inverse of a for tensordot(a, x, ind)."""

def tensorsolve(
    a: ArrayLike,
    b: ArrayLike,
    axes: int | Sequence[int] | None = None,
) -> NDArray[Any]:
    """The x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to its end first."""

def trace(x: ArrayLike, *, offset: int = 0, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """The traces of stacked matrices."""

def vecdot(a: ArrayLike, b: ArrayLike, *, axis: int = -1) -> NDArray[Any]:
    """Inner products along an axis, the other axes broadcast; a is conjugated."""

def vector_norm(
    x: ArrayLike,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> NDArray[Any]:
    """(sum |x|**ord)**(1/ord) over `axis`; ord inf, -inf and 0 are max, min and a count."""
