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

def cholesky(a: ArrayLike, /, *, upper: bool = False) -> NDArray[Any]:
    """The lower (or upper) Cholesky factors of stacked symmetric, or Hermitian, positive definite
    matrices.
    """

def cond(x: ArrayLike, p: ArrayLike | None = None) -> NDArray[Any]:
    """The condition numbers of matrices: the largest singular value over the smallest (None, 2),
    its inverse (-2), or for square ones the norms of an order (1, -1, inf, -inf, "fro", "nuc") of
    the matrix and its inverse, where a singular matrix stops the run.
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

def eig(a: ArrayLike) -> Any:
    """(eigenvalues, eigenvectors as columns) of stacked square matrices: complex ones always, also
    where all are real. An infinity or a NaN stops the run.
    """

def eigh(a: ArrayLike, UPLO: str = 'L') -> Any:
    """(eigenvalues, from the smallest on, eigenvectors as columns) of stacked Hermitian matrices,
    of which one triangle is read.
    """

def eigvals(a: ArrayLike) -> NDArray[Any]:
    """The eigenvalues of stacked square matrices: complex ones always."""

def eigvalsh(a: ArrayLike, UPLO: str = 'L') -> NDArray[Any]:
    """The eigenvalues of stacked Hermitian matrices, from the smallest on."""

def expm(a: ArrayLike) -> NDArray[Any]:
    """The exponentials of stacked square matrices: of a sum of powers, not of elements. NaN for a
    1-norm above 3e5.
    """

def inv(a: ArrayLike) -> NDArray[Any]:
    """The inverses of stacked matrices."""

def lstsq(
    a: ArrayLike,
    b: ArrayLike,
    rcond: ArrayLike | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(x, sums of squares that are left, rank, singular values) of the least squares a @ x = b.

    The sums are there, one for each column of b, whenever a has more rows than columns: NumPy
    leaves them out where the rank is less, too.
    """

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

def matrix_rank(
    A: ArrayLike,
    tol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rtol: ArrayLike | None = None,
) -> NDArray[Any]:
    """The number of singular values over tol, or over rtol times the largest (by default the larger
    extent times the rounding unit).
    """

def multi_dot(arrays: Sequence[ArrayLike], *, out: None = None) -> NDArray[Any]:
    """The product of a chain of matrices in the cheapest order; the ends may be vectors."""

def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> NDArray[Any]:
    """NumPy's norm: Frobenius or 2-norm by default, vector norms, and the 1, inf, 2 and nuclear
    norms of matrices.
    """

def outer(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """All products of the elements of two flattened arrays."""

def pinv(
    a: ArrayLike,
    rcond: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rtol: ArrayLike = ...,
) -> NDArray[Any]:
    """The pseudo-inverses of stacked matrices: singular values up to rcond (1e-15) times the
    largest count as zero; with rtol=None up to the larger extent times the rounding unit.

    `hermitian` changes nothing.
    """

def qr(a: ArrayLike, mode: str = 'reduced') -> Any:
    """Orthonormal columns q and an upper triangle r with q @ r = a; `mode` is "reduced",
    "complete" (q is square) or "r" (r alone).

    q of "complete" has no gradient where it is wider than a.
    """

def slogdet(a: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """(sign, log of the absolute value) of the determinants of stacked matrices."""

def solve(a: ArrayLike, b: ArrayLike) -> NDArray[Any]:
    """The x with a @ x = b, for stacked matrices; b is a vector or stacked matrices of columns."""

def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
) -> Any:
    """(u, s, vh) with u * s @ vh = a and s from the largest to the smallest, or s alone.

    Vectors that are there only to make u or vh square have no gradient: differentiate with
    full_matrices=False.  `hermitian` changes nothing.
    """

def svdvals(x: ArrayLike, /) -> NDArray[Any]:
    """The singular values of stacked matrices, from the largest to the smallest."""

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
