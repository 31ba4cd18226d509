"""Systems of equations and factors of matrices: LU with PyTorch's pivots, Cholesky, triangles.

PyTorch tells in which order rows were exchanged (row k with row pivots[k] - 1, one after another),
graphc where each row came from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.table import aten
from graphc.frontend.transforms.control import scan
from graphc.ops.record.value import emit
from graphc.ops.record.value import functions as f


def _linalg(name: str, *operands: Any) -> Any:
    return getattr(f, f"linalg.{name}")(*operands)


def _info(x: Any) -> Any:
    """That all went well: what fails raises when it runs."""
    return f.zeros(x.shape[:-2], np.int32)


aten("linalg_det", "det")(lambda x: _linalg("det", x))
aten("linalg_inv", "inv", "inverse")(lambda x: _linalg("inv", x))
aten("linalg_inv_ex")(lambda x, check_errors=False: (_linalg("inv", x), _info(x)))
aten("_linalg_det")(lambda x: (_linalg("det", x), None, None))


@aten("linalg_cholesky", "cholesky")
def linalg_cholesky(x: Any, upper: bool = False) -> Any:
    made = _linalg("cholesky", f.swapaxes(x, -1, -2) if upper else x)
    return f.swapaxes(made, -1, -2) if upper else made


@aten("linalg_cholesky_ex")
def linalg_cholesky_ex(x: Any, upper: bool = False, check_errors: bool = False) -> Any:
    return linalg_cholesky(x, upper), _info(x)


def _columns(x: Any, B: Any) -> bool:
    """Whether the right sides are vectors: as many as there are matrices."""
    return B.ndim == 1 or (x.ndim - 1 == B.ndim and tuple(B.shape) == tuple(x.shape[:-1]))


@aten("linalg_solve")
def linalg_solve(x: Any, B: Any, left: bool = True) -> Any:
    refuse(left or not _columns(x, B), "vectors on the right are solved from the left")
    if _columns(x, B):
        return f.squeeze(_linalg("solve", x, f.expand_dims(B, -1)), -1)
    if left:
        return _linalg("solve", x, B)
    return f.swapaxes(_linalg("solve", f.swapaxes(x, -1, -2), f.swapaxes(B, -1, -2)), -1, -2)


@aten("_linalg_solve_ex")
def solve_ex(x: Any, B: Any, left: bool = True, check_errors: bool = False) -> Any:
    """Its factors are left out: gradients, which read them, have them from linalg_lu_factor_ex."""
    return linalg_solve(x, B, left), None, None, _info(x)


aten("linalg_solve_ex")(
    lambda x, B, left=True, check_errors=False: (linalg_solve(x, B, left), _info(x))
)


@aten("linalg_solve_triangular")
def linalg_solve_triangular(
    x: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """What lies in the other triangle, and on the diagonal where that is one, is not read."""
    made = f.triu(x) if upper else f.tril(x)
    if unitriangular:
        eye = np.eye(x.shape[-1], dtype=bool)
        made = f.where(eye, np.ones((), x.dtype), made)
    return linalg_solve(made, B, left)


@aten("triangular_solve")
def triangular_solve(
    x: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    held = f.swapaxes(A, -1, -2) if transpose else A
    return linalg_solve_triangular(held, x, upper != transpose, True, unitriangular), A.copy()


def _adjoint(x: Any) -> Any:
    return f.conj(f.swapaxes(x, -1, -2))


@aten("cholesky_solve")
def cholesky_solve(x: Any, input2: Any, upper: bool = False) -> Any:
    low = _adjoint(input2) if upper else input2
    part = linalg_solve_triangular(low, x, False)
    return linalg_solve_triangular(_adjoint(low), part, True)


@aten("cholesky_inverse")
def cholesky_inverse(x: Any, upper: bool = False) -> Any:
    eye = f.broadcast_to(f.eye(x.shape[-1], dtype=x.dtype), x.shape)
    return cholesky_solve(eye, x, upper)


@aten("linalg_tensorinv")
def linalg_tensorinv(x: Any, ind: int = 2) -> Any:
    """The inverse of a matrix whose rows are the first axes and whose columns are the others."""
    made = _linalg("inv", f.reshape(x, (math.prod(x.shape[:ind]), -1)))
    return f.reshape(made, (*x.shape[ind:], *x.shape[:ind]))


@aten("linalg_tensorsolve")
def linalg_tensorsolve(x: Any, other: Any, dims: Any = None) -> Any:
    held = x if dims is None else f.moveaxis(x, tuple(dims), tuple(range(-len(dims), 0)))
    wanted = held.shape[other.ndim :]
    matrix = f.reshape(held, (math.prod(other.shape), -1))
    return f.reshape(_linalg("solve", matrix, f.reshape(other, (-1, 1))), wanted)


# ------------------------------------------------------------------------------------ LU


def _turns(values: Any, exchanged: Any) -> tuple[Any, Any]:
    """Rows exchanged one pair after another: the order that is left, and the partner of each.

    `exchanged(order, value)` tells with which place the next one is exchanged.
    """
    stack, n = values.shape[:-1], values.shape[-1]
    numbers = f.arange(n, dtype=np.int64)

    def step(order: Any, row: Any) -> tuple[Any, Any]:
        k, value = row
        other = exchanged(order, f.expand_dims(value, -1))
        own = f.broadcast_to(k, other.shape)
        here, there = (f.take_along_axis(order, at, -1) for at in (own, other))
        moved = f.where(f.equal(numbers, other), here, order)
        return f.where(f.equal(numbers, own), there, moved), f.squeeze(other, -1)

    start = f.broadcast_to(numbers, (*stack, n))
    order, partners = scan(step, start, (numbers, f.moveaxis(values, -1, 0)))
    return order, f.moveaxis(partners, 0, -1)


def _pivots(order: Any) -> Any:
    """The exchanges that put rows into an order."""
    _, partners = _turns(
        order, lambda rows, row: f.argmax(f.equal(rows, row), axis=-1, keepdims=True)
    )
    return f.astype(f.add(partners, 1), np.int32)


def _order(pivots: Any) -> Any:
    """The order that exchanges put rows into."""
    if not pivots.shape[-1]:
        return f.astype(pivots, np.int64)
    return _turns(f.subtract(f.astype(pivots, np.int64), 1), lambda rows, place: place)[0]


def _factors(x: Any, pivot: bool) -> tuple[Any, Any]:
    """The factors, and where each row came from.

    What is not square is eliminated among zeros: nothing is exchanged with a row of these, nor for
    a column of them, and they change nothing else.
    """
    refuse(pivot, "exchanges rows")
    rows, columns = x.shape[-2:]
    refuse(isinstance(rows, int) and isinstance(columns, int), "a matrix of open sizes")
    size = max(rows, columns)
    ends = [(0, 0)] * (x.ndim - 2) + [(0, size - rows), (0, size - columns)]
    packed, order, _ = emit("lu", f.pad(x, ends) if rows != columns else x)
    return packed[..., :rows, :columns], order[..., :rows]


@aten("linalg_lu_factor_ex")
def linalg_lu_factor_ex(x: Any, pivot: bool = True, check_errors: bool = False) -> Any:
    if not math.prod(x.shape[-2:]):
        return x.copy(), f.zeros((*x.shape[:-2], 0), np.int32), _info(x)
    packed, order = _factors(x, pivot)
    return packed, _pivots(order)[..., : min(x.shape[-2:])], _info(x)


@aten("linalg_lu_factor")
def linalg_lu_factor(x: Any, pivot: bool = True) -> Any:
    return linalg_lu_factor_ex(x, pivot)[:2]


def _permutation(order: Any, kind: Any) -> Any:
    rows = f.take(np.eye(order.shape[-1], dtype=kind), order, axis=0)
    return f.swapaxes(rows, -1, -2)


def _triangles(packed: Any) -> tuple[Any, Any]:
    m, n = packed.shape[-2:]
    k = min(m, n)
    low, up = f.getitem(packed, (..., slice(k))), f.getitem(packed, (..., slice(k), slice(None)))
    return f.add(f.tril(low, -1), np.eye(m, k, dtype=packed.dtype)), f.triu(up)


@aten("linalg_lu")
def linalg_lu(x: Any, pivot: bool = True) -> Any:
    packed, order = _factors(x, pivot)
    return _permutation(order, packed.dtype), *_triangles(packed)


@aten("lu_unpack")
def lu_unpack(
    LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """P, L, U; what is not unpacked is of shape [0]."""
    none = f.zeros((0,), LU_data.dtype)
    low, up = _triangles(LU_data) if unpack_data else (none, none)
    if not unpack_pivots:
        return none, low, up
    rows, steps = LU_data.shape[-2], LU_pivots.shape[-1]
    rest = f.broadcast_to(
        np.arange(steps, rows, dtype=np.int32) + 1, (*LU_pivots.shape[:-1], rows - steps)
    )
    order = _order(f.concatenate([LU_pivots, rest], -1))
    return _permutation(order, LU_data.dtype), low, up


@aten("linalg_lu_solve")
def linalg_lu_solve(LU: Any, pivots: Any, B: Any, left: bool = True, adjoint: bool = False) -> Any:
    held = B if left else f.swapaxes(B, -1, -2)
    stack = np.broadcast_shapes(LU.shape[:-2], held.shape[:-2])
    packed, right = (f.broadcast_to(v, (*stack, *v.shape[-2:])) for v in (LU, held))
    if not LU.shape[-1]:
        return right.copy() if left else f.swapaxes(right, -1, -2)
    order = f.broadcast_to(_order(pivots), (*stack, LU.shape[-1]))
    made = emit("lu_solve", packed, order, right, transposed=adjoint == left)
    return made if left else f.swapaxes(made, -1, -2)


aten("lu_solve")(lambda x, LU_data, LU_pivots: linalg_lu_solve(LU_data, LU_pivots, x))
