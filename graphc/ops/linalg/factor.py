"""Factorisations of square matrices, and what NumPy computes with them: solve, inv, det, cholesky.

lu is Gaussian elimination with row exchanges; L (unit diagonal) and U share one array:

    x[perm] = L @ U        packed = L - 1 + U

A singular system and a matrix that is not positive definite stop the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import Attr, Composite, Library, Loops, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import (
    F32,
    F64,
    I64,
    AnyType,
    TupleType,
    Type,
    definitely_different,
    tensor,
    tuple_type,
)
from graphc.ops.linalg import factor_gradients as rules
from graphc.ops.linalg import factor_nests as nests
from graphc.ops.linalg.lane_nests import LaneCholesky, LaneLU, Lanes, LaneSolve, in_lanes
from graphc.ops.linalg.solve_nest import Solve, solve_workspace
from graphc.ops.record.arguments import Array, ArrayLike, Tensor
from graphc.ops.record.batching import elementwise, leading
from graphc.ops.record.dims import rank_of, shape_of, size_of, tensor_type
from graphc.ops.record.families import (
    broadcast_dims,
    define,
    device_code,
    normalise_axis,
    require,
    require_dtype,
    sample_array,
)
from graphc.ops.record.value import Value, as_value, common_element, emit, functions, public
from graphc.ops.shape.creation import eye
from graphc.ops.shape.shape import broadcast_to, reshape
from graphc.ops.shape.slicing import slice_axis

DTYPES = ("f32", "f64")


def _square(name: str, x: AnyType) -> Type:
    x = tensor_type(name, x)
    require_dtype(name, x, DTYPES)
    square = x.rank >= 2 and not definitely_different(x.shape[-1], x.shape[-2])
    require(square, f"{name} takes square matrices, got {x}")
    return x


def _lowering(
    nest: Callable[..., Any],
    workspace: Callable[..., Any],
    cuda: str,
    lanes: type[Lanes] | None = None,
) -> Library:
    """Loops for CPUs, those for small matrices in `lanes` of vectors, and launches for GPUs."""
    loops = Loops(lambda *given: nest(*given).nest(), nests.matrices, workspace)
    cuda_code = device_code("linalg.factor_launches", cuda)
    return Library(None, cuda=cuda_code, loops=in_lanes(lanes, loops))


def _samples(*bad: ArrayLike) -> Callable[[], list[Sample]]:
    def make() -> list[Sample]:
        shapes = ((3, 3), (2, 5, 5), (1, 1), (0, 2, 2), (17, 17), (33, 2, 2))
        made = []
        for name in DTYPES:
            for shape in shapes:
                x = sample_array(name, shape, (-1, 1), 3)
                x = x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1], dtype=x.dtype)
                made.append(Sample((x,), tolerance=64))
        return made + [Sample((b,), {}, False) for b in bad]

    return make


# ------------------------------------------------------------------------------------ lu


def _factorise(x: Array, packed: Array, perm: Array, sign: Array, n: int) -> None:
    for unit in range(len(sign)):
        base, first = unit * n * n, unit * n
        for k in range(n * n):
            packed[base + k] = x[base + k]
        for k in range(n):
            perm[first + k] = k
        sign[unit] = 1
        for k in range(n):
            best = k
            for row in range(k + 1, n):
                if abs(packed[base + row * n + k]) > abs(packed[base + best * n + k]):
                    best = row
            if best != k:
                for column in range(n):
                    held = packed[base + k * n + column]
                    packed[base + k * n + column] = packed[base + best * n + column]
                    packed[base + best * n + column] = held
                place = perm[first + k]
                perm[first + k] = perm[first + best]
                perm[first + best] = place
                sign[unit] = -sign[unit]
            pivot = packed[base + k * n + k]
            if pivot == 0:
                continue
            for row in range(k + 1, n):
                factor = packed[base + row * n + k] / pivot
                packed[base + row * n + k] = factor
                for column in range(k + 1, n):
                    packed[base + row * n + column] -= factor * packed[base + k * n + column]


def _infer_lu(x: AnyType) -> TupleType:
    x = _square("lu", x)
    return tuple_type((x, tensor(I64, x.shape[:-1]), tensor(x.dtype, x.shape[:-2])))


def _lu_reference(x: Array) -> tuple[Any, Any, Any]:
    packed = np.zeros(x.shape, x.dtype)
    perm = np.zeros(x.shape[:-1], np.int64)
    sign = np.zeros(x.shape[:-2], x.dtype)
    source = np.ascontiguousarray(x).reshape(-1)
    _factorise(source, packed.reshape(-1), perm.reshape(-1), sign.reshape(-1), x.shape[-1])
    return packed, perm, sign


lu_op = define(
    "lu",
    batch=leading,
    infer=_infer_lu,
    reference=_lu_reference,
    lower=_lowering(nests.LU, nests.lu_workspace, "lu_code", LaneLU),
    dtypes=DTYPES,
    gradient=rules.lu_gradient,
    samples=_samples(np.zeros((2, 3)), np.zeros(3), np.zeros((2, 2), int)),
    doc="The packed LU factors of square matrices, the rows in pivot order and its sign.",
)


# ------------------------------------------------------------------------------------ lu_solve


def _infer_lu_solve(packed: AnyType, perm: AnyType, b: AnyType, *, transposed: bool) -> Type:
    packed, perm, b = (
        _square("lu_solve", packed),
        tensor_type("lu_solve", perm),
        tensor_type("lu_solve", b),
    )
    fits = b.dtype is packed.dtype and b.rank == packed.rank and b.shape[:-1] == packed.shape[:-1]
    require(fits, f"lu_solve of {packed} takes right sides of equally many rows, got {b}")
    require(perm is tensor(I64, packed.shape[:-1]), f"lu_solve: a row order of type {perm}")
    return b


def _lu_solve_reference(packed: Any, perm: Any, b: Any, transposed: bool) -> Any:
    n = packed.shape[-1]
    legal = (perm >= 0) & (perm < n)
    if transposed:  # every row of the result is one of the system
        legal &= np.sort(perm, -1) == np.arange(n)
    if not legal.all():
        raise IndexError(f"lu_solve: an order of rows is no permutation of {n} rows")
    lower = np.tril(packed, -1) + np.eye(packed.shape[-1], dtype=packed.dtype)
    upper = np.triu(packed)
    if not transposed:
        rows = np.take_along_axis(b, perm[..., None], -2)
        return np.linalg.solve(upper, np.linalg.solve(lower, rows))
    made = np.linalg.solve(np.swapaxes(upper, -1, -2), b)
    made = np.linalg.solve(np.swapaxes(lower, -1, -2), made)
    return np.take_along_axis(made, np.argsort(perm, -1)[..., None], -2)


def _lu_solve_samples() -> list[Sample]:
    made = []
    for sample in _samples()():
        packed, perm, _ = _lu_reference(sample.operands[0])
        b = sample_array("f32", (*packed.shape[:-1], 2), (-1, 1), 5).astype(packed.dtype)
        made.append(Sample((packed, perm, b), tolerance=64))
        made.append(Sample((packed, perm, b), {"transposed": True}, tolerance=64))
    packed, perm, b = made[0].operands
    return [*made, Sample((packed, perm, b[:-1]), {}, False), Sample((packed, b, b), {}, False)]


lu_solve_op = define(
    "lu_solve",
    batch=leading,
    infer=_infer_lu_solve,
    reference=_lu_solve_reference,
    lower=_lowering(Solve, solve_workspace, "solve_code", LaneSolve),
    attrs=(Attr("transposed", "bool", False),),
    dtypes=DTYPES,
    gradient=rules.lu_solve_gradient,
    samples=_lu_solve_samples,
    doc="Solutions of the systems whose matrices, or the transposes of them, lu has factorised.",
    traits=Traits(checks=True),
)

# ------------------------------------------------------------------------------------ solve


def _infer_solve(a: AnyType, b: AnyType) -> Type:
    a, b = _square("solve", a), tensor_type("solve", b)
    fits = b.dtype is a.dtype and b.rank >= 2
    fits = fits and not definitely_different(a.shape[-1], b.shape[-2])
    require(fits, f"solve with {a} takes stacked columns of as many rows, got {b}")
    return tensor(b.dtype, (*broadcast_dims([a.shape[:-2], b.shape[:-2]]), *b.shape[-2:]))


def _expand_solve(a: Value, b: Value) -> Any:
    stack = broadcast_dims([shape_of(a)[:-2], shape_of(b)[:-2]])
    b = broadcast_to(b, (*stack, *shape_of(b)[-2:]))
    return emit("lu_solve", *rules.factors(a, stack), b)


def _solve_samples() -> list[Sample]:
    made = []
    for sample in _samples()():
        (a,) = sample.operands
        b = sample_array("f32", (a.shape[-1], 2), (-1, 1), 5).astype(a.dtype)
        made.append(Sample((a, b), tolerance=64))
    a, b = made[1].operands
    return [
        *made,
        Sample((a[0], np.stack([b, -b])), {}, tolerance=64),
        Sample((a, b[1:]), {}, False),
    ]


solve_op = define(
    "solve",
    batch=elementwise,
    infer=_infer_solve,
    reference=lambda a, b: np.linalg.solve(a, b),
    lower=Composite(_expand_solve),
    dtypes=DTYPES,
    gradient=rules.solve_gradient,
    samples=_solve_samples,
    doc="The x with a @ x = b for stacks of matrices, which broadcast.",
    traits=Traits(checks=True),
)

# ------------------------------------------------------------------------------------ cholesky


cholesky_op = define(
    "cholesky",
    batch=leading,
    infer=lambda x: _square("cholesky", x),
    reference=lambda x: np.linalg.cholesky(x),
    lower=_lowering(nests.Cholesky, nests.panel_workspace, "cholesky_code", LaneCholesky),
    dtypes=DTYPES,
    gradient=rules.cholesky_gradient,
    samples=_samples(np.zeros((2, 3)), np.zeros((2, 2), int)),
    doc="The lower triangular L with L @ L.T equal to each symmetric positive definite matrix.",
    traits=Traits(checks=True),
)

# ------------------------------------------------------------------------------------ functions


def _floating(x: ArrayLike) -> Any:
    """x as f64 if it is integer, as f32 if its floats are narrower."""
    x = as_value(x)
    element = common_element(x)[0]
    require(not element.is_complex, "cholesky takes real matrices")
    return functions.astype(x, element.compute if element.is_float else F64)


def _parted(a: ArrayLike) -> Any:
    """Complex matrices x + iy as the real ones of twice the size that multiply columns of parts."""
    x, y = functions.real(a), functions.imag(a)
    upper = functions.concatenate([x, functions.negative(y)], -1)
    return functions.concatenate([upper, functions.concatenate([y, x], -1)], -2)


def _solve_complex(a: Value, b: ArrayLike) -> Any:
    """The real system of the parts, solved."""
    element = common_element(a, b)[0]
    a, b = functions.astype(a, element), functions.astype(b, element)
    made = solve(_parted(a), functions.concatenate([functions.real(b), functions.imag(b)], -2))
    rows = shape_of(a)[-1]
    top, bottom = slice_axis(made, -2, 0, rows), slice_axis(made, -2, rows, 2 * rows)
    return functions.complex(top, bottom)


@public(np.linalg.solve, name="linalg.solve")
def solve(a: ArrayLike, b: ArrayLike) -> Any:
    """The x with a @ x = b, for stacked matrices; b is a vector or stacked matrices of columns."""
    vector = rank_of(b) == 1
    if common_element(a, b)[0].is_complex:
        made = _solve_complex(as_value(a), reshape(b, -1, 1) if vector else as_value(b))
        return reshape(made, shape_of(made)[:-1]) if vector else made
    a, b = _floating(a), _floating(reshape(b, -1, 1) if vector else b)
    element = F64 if F64 in (common_element(a)[0], common_element(b)[0]) else F32
    a, b = functions.astype(a, element), functions.astype(b, element)
    made = emit("solve", a, b)
    return reshape(made, shape_of(made)[:-1]) if vector else made


@public(np.linalg.inv, name="linalg.inv")
def inv(a: ArrayLike) -> Any:
    """The inverses of stacked matrices."""
    a = as_value(a) if common_element(a)[0].is_complex else _floating(a)
    return solve(a, eye(shape_of(a)[-1], dtype=common_element(a)[0]))


@public(np.linalg.tensorsolve, name="linalg.tensorsolve")
def tensorsolve(a: Tensor, b: ArrayLike, axes: Any = None) -> Any:
    """The x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to its end first."""
    a, b = as_value(a), as_value(b)
    if axes is not None:
        moved = [normalise_axis(k, rank_of(a), "tensorsolve") for k in axes]
        rest = [k for k in range(rank_of(a)) if k not in moved]
        a = functions.transpose(a, (*rest, *moved))
    dims = shape_of(a)[rank_of(b) :]
    have, want = math.prod(dims), size_of(shape_of(b))
    require(have == want, f"tensorsolve: {want} equations for {have} unknowns")
    return reshape(solve(reshape(a, (want, have)), reshape(b, -1)), dims)


@public(np.linalg.tensorinv, name="linalg.tensorinv")
def tensorinv(a: ArrayLike, ind: int = 2) -> Any:
    """The inverse of a for tensordot(a, x, ind)."""
    require(ind > 0, f"tensorinv: the number of axes {ind} is not positive")
    a = as_value(a)
    first, last = shape_of(a)[:ind], shape_of(a)[ind:]
    return reshape(inv(reshape(a, (math.prod(first), math.prod(last)))), (*last, *first))


MOST_PIVOTS = 32  # rows of a complex matrix whose elimination is written out


def _complex_pivots(a: Value) -> Any:
    """The pivots of complex matrices, with the signs of the exchanges: columns are eliminated one
    after the other, what is left is one row and column smaller."""
    f, pivots, size = functions, [], shape_of(a)[-1]
    if not isinstance(size, int) or size > MOST_PIVOTS:
        most = f"det and slogdet of complex matrices take up to {MOST_PIVOTS} rows"
        raise TypeRuleError(f"{most}, not {size}")
    for extent in range(size, 0, -1):
        best = f.expand_dims(f.argmax(f.absolute(a[..., 0]), axis=-1, keepdims=True), -1)
        row = f.take_along_axis(a, f.broadcast_to(best, (*shape_of(a)[:-2], 1, extent)), -2)
        pivot = row[..., :1]
        pivots.append(f.where(f.equal(best, 0), pivot, f.negative(pivot))[..., 0])
        chosen = f.equal(f.reshape(f.arange(extent), (extent, 1)), best)
        rest = f.where(chosen, a[..., :1, :], a)[..., 1:, :]
        factor = rest[..., :1] / f.where(f.equal(pivot, 0), 1, pivot)
        a = rest[..., 1:] - factor * row[..., 1:]
    return f.concatenate(pivots, -1) if pivots else f.diagonal(a, 0, -2, -1)


def _signs_and_diagonal(a: ArrayLike) -> tuple[Any, Any]:
    if common_element(a)[0].is_complex:
        return 1, _complex_pivots(as_value(a))
    packed, _, sign = emit("lu", _floating(a))
    return sign, functions.diagonal(packed, 0, -2, -1)


@public(np.linalg.det, name="linalg.det")
def det(a: ArrayLike) -> Any:
    """The determinants of stacked matrices."""
    sign, pivots = _signs_and_diagonal(a)
    return sign * functions.prod(pivots, axis=-1)


_SlogdetResult: Any = type(np.linalg.slogdet(np.eye(1)))  # NumPy's named tuple


@public(np.linalg.slogdet, name="linalg.slogdet")
def slogdet(a: ArrayLike) -> tuple[Any, Any]:
    """(sign, log of the absolute value) of the determinants of stacked matrices."""
    sign, pivots = _signs_and_diagonal(a)
    sign = sign * functions.prod(functions.sign(pivots), axis=-1)
    made: tuple[Any, Any] = _SlogdetResult(
        sign, functions.sum(functions.log(functions.absolute(pivots)), axis=-1)
    )
    return made


@public(np.linalg.cholesky, name="linalg.cholesky")
def cholesky(a: ArrayLike, /, *, upper: bool = False) -> Any:
    """The lower (or upper) Cholesky factors of stacked symmetric, or Hermitian, positive definite
    matrices."""
    a = as_value(a)
    if common_element(a)[0].is_complex:
        # The other triangle is not read: it may hold anything.
        a = functions.conj(functions.matrix_transpose(a)) if upper else a
        made = _cholesky_complex(a)
        return functions.conj(functions.matrix_transpose(made)) if upper else made
    made = emit("cholesky", _floating(functions.matrix_transpose(a) if upper else a))
    return functions.matrix_transpose(made) if upper else made


def _cholesky_complex(a: Any) -> Any:
    """With each number x + iy as [[x, -y], [y, x]] factors of real matrices are those of complex
    ones: both are triangular, with the same positive diagonal."""
    f, n = functions, shape_of(a)[-1]
    x, y = f.real(a), f.tril(f.imag(a), -1)
    rows = f.stack([f.stack([x, f.negative(y)], -1), f.stack([y, x], -1)], -3)
    lead = shape_of(a)[:-2]
    made = emit("cholesky", reshape(rows, (*lead, 2 * n, 2 * n)))
    parts = reshape(made, (*lead, n, 2, n, 2))
    return f.complex(parts[..., 0, :, 0], parts[..., 1, :, 0])
