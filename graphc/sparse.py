"""`gc.sparse`: matrices most elements of which are zero, times dense ones.

a = gc.sparse.csr(data, indices, indptr, shape)      or gc.sparse.csr(a matrix of scipy.sparse)
y = a @ x                                            x a vector or a matrix; x @ a and a.T work, too

In a compiled function, data and x have gradients.  The places of the elements are arrays like any
other, checked when they are used: one that is out of range stops the run.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from graphc.base.hints import missing
from graphc.base.refusing import refuse_all
from graphc.errors import GraphError
from graphc.frontend.trace.tree import register_pytree
from graphc.ir.types import definitely_different
from graphc.ops.linalg import sparse as _ops  # noqa: F401  (registers what products call)
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.value import Factor, Value, common_element, emit, functions

__all__ = ["Sparse", "bsr", "csr"]


class Sparse(Factor):
    """A matrix in blocks of p x q elements: data[k] in block column indices[k] of the block row r
    for which indptr[r] <= k < indptr[r + 1]. CSR has blocks of one element, and data of one axis.

    a @ x, x @ a, a.T, a.shape and a.todense() are what they are of the matrix. It is a pytree:
    compiled functions take it like an array. Blocks of one place add up.
    """

    __slots__ = ("data", "indices", "indptr", "shape", "turned")
    _takes_part = "it takes part in a @ x and x @ a; a.todense() is the matrix"

    def __init__(
        self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int], turned: bool = False
    ) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape, self.turned = shape, turned

    @property
    def ndim(self) -> int:
        return 2

    @property
    def nnz(self) -> Any:
        """How many elements are stored."""
        return functions.size(self.data)

    @property
    def T(self) -> Sparse:
        """The transpose, which shares all arrays."""
        turned = not self.turned
        return Sparse(self.data, self.indices, self.indptr, self.shape[::-1], turned)

    def __repr__(self) -> str:
        return f"Sparse{list(self.shape)}"

    def __matmul__(self, x: Any) -> Any:
        """a @ x for x[columns] or x[columns, width], of the dtype that data and x share."""
        if rank_of(x) not in (1, 2) or shape_of(x)[0] != self.shape[1]:
            raise GraphError(
                f"{self!r} @ x takes x[{self.shape[1]}] or x[{self.shape[1]}, width],"
                f" got {list(shape_of(x))}",
                hint="stacks of matrices are gc.vmap(lambda x: a @ x)(stack)",
            )
        element = common_element(self.data, x)[0]
        wide = x if rank_of(x) == 2 else functions.reshape(x, (self.shape[1], 1))
        made = self._product(functions.astype(wide, element), element)
        return made if rank_of(x) == 2 else functions.reshape(made, (self.shape[0],))

    def _product(self, x: Any, element: Any) -> Any:
        data = functions.astype(self.data, element)
        if rank_of(data) == 1:
            data = functions.reshape(data, (*shape_of(data), 1, 1))
        if 0 in self.shape:
            return functions.zeros((self.shape[0], shape_of(x)[1]), element)
        if not self.turned:
            return emit("sparse_matmul", data, self.indices, self.indptr, x)
        columns = self.shape[0] // _block(data)[1]
        return emit("sparse_adjoint", data, self.indices, self.indptr, x, columns=columns)

    def __rmatmul__(self, x: Any) -> Any:
        """x @ a for x[rows] or x[count, rows]."""
        made = self.T @ functions.swapaxes(x, 0, 1) if rank_of(x) == 2 else self.T @ x
        return functions.swapaxes(made, 0, 1) if rank_of(x) == 2 else made

    def todense(self) -> Any:
        """The matrix with its zeros."""
        return self @ functions.eye(self.shape[1], dtype=common_element(self.data)[0])


def csr(
    data: Any, indices: Any = None, indptr: Any = None, shape: tuple[int, int] | None = None
) -> Sparse:
    """A matrix in compressed rows: data[nnz] of f32 or f64 in column indices[nnz] of the row r for
    which indptr[r] <= k < indptr[r + 1], the places i32 or i64; or any matrix of scipy.sparse.

    Raises GraphError where the arrays do not fit one another.
    """
    if indices is None:
        return _of_scipy(data, "csr")
    return _checked(data, indices, indptr, shape, 1)


def bsr(
    data: Any, indices: Any = None, indptr: Any = None, shape: tuple[int, int] | None = None
) -> Sparse:
    """A matrix in compressed rows of blocks, data[blocks, p, q]; or any matrix of scipy.sparse.

    Raises GraphError where the arrays do not fit one another.
    """
    if indices is None:
        return _of_scipy(data, "bsr")
    return _checked(data, indices, indptr, shape, 3)


def _of_scipy(matrix: Any, form: str) -> Sparse:
    convert = getattr(matrix, f"to{form}", None)
    if convert is None:
        raise GraphError(
            f"a {type(matrix).__name__} is no sparse matrix of SciPy",
            hint=f"gc.sparse.{form}(data, indices, indptr, shape) takes the arrays",
        )
    made = convert()
    return _checked(made.data, made.indices, made.indptr, made.shape, 1 if form == "csr" else 3)


def _checked(data: Any, indices: Any, indptr: Any, shape: Any, rank: int) -> Sparse:
    """The matrix, whose arrays fit one another as far as their shapes and dtypes tell."""
    try:
        rows, columns = map(operator.index, shape)
    except (TypeError, ValueError):
        rows = columns = -1
    if indptr is None or min(rows, columns) < 0:
        raise GraphError("a sparse matrix is made of data, indices, indptr and a shape of two axes")
    data, indices, indptr = (
        part if isinstance(part, Value) else np.asarray(part) for part in (data, indices, indptr)
    )
    if rank_of(data) != rank or rank_of(indices) != 1 or rank_of(indptr) != 1:
        raise GraphError(
            f"data of {rank} axes, indices and indptr of one, got {list(shape_of(data))},"
            f" {list(shape_of(indices))} and {list(shape_of(indptr))}"
        )
    p, q = _block(data)
    fits = p > 0 and q > 0 and rows % p == 0 and columns % q == 0
    if not fits or definitely_different(shape_of(indptr)[0], rows // p + 1):
        raise GraphError(
            f"{rows} x {columns} in blocks of {p} x {q} takes an indptr of one element more than"
            f" rows of blocks, got {list(shape_of(indptr))}"
        )
    if definitely_different(shape_of(data)[0], shape_of(indices)[0]):
        raise GraphError(f"{shape_of(data)[0]} blocks, but {shape_of(indices)[0]} indices")
    if common_element(data)[0].name not in ("f32", "f64"):
        raise GraphError(f"data is f32 or f64, got {common_element(data)[0]}", hint="cast it")
    return Sparse(data, indices, indptr, (rows, columns))


def _block(data: Any) -> tuple[int, int]:
    p, q = shape_of(data)[1:] or (1, 1)
    if not (isinstance(p, int) and isinstance(q, int)):
        raise GraphError(f"blocks need a known size, got {p} x {q}")
    return p, q


def _unflatten(rest: Any, arrays: Any) -> Sparse:
    return Sparse(*arrays, *rest)


register_pytree(Sparse, lambda a: ((a.data, a.indices, a.indptr), (a.shape, a.turned)), _unflatten)


refuse_all(__all__, globals())


def __getattr__(name: str) -> object:
    raise missing("graphc.sparse", name, __all__)
