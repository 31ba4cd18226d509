"""NumPy's functions over decompositions: factors, ranks, inverses of any matrix, least squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import NOT_NEGATIVE, Attr, Composite, Sample
from graphc.ir.sizes import greatest
from graphc.ir.traits import Traits
from graphc.ir.types import F64, I64, AnyType, Dim, Type, definitely_different, tensor
from graphc.ops.linalg.decomposition_gradients import adjoint, inverse_or_zero
from graphc.ops.linalg.decompositions import DTYPES
from graphc.ops.record.arguments import ArrayLike, Tensor
from graphc.ops.record.batching import leading
from graphc.ops.record.dims import rank_of, shape_of, tensor_type
from graphc.ops.record.families import define, require, require_dtype, sample_array
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    element_of,
    emit,
    functions,
    is_python_number,
    public,
)
from graphc.ops.shape.shape import reshape

_QR: Any = type(np.linalg.qr(np.eye(1)))  # NumPy's named tuples
_SVD: Any = type(np.linalg.svd(np.eye(1)))
_EIGH: Any = type(np.linalg.eigh(np.eye(1)))
_EIG: Any = type(np.linalg.eig(np.eye(1)))


def computed(x: ArrayLike, *others: ArrayLike) -> Any:
    """x in the type that it is decomposed in: f32 at least, f64 for integers."""
    x = as_value(x)
    element = common_element(x, *others)[0]
    if not element.is_complex:
        element = element.compute if element.is_float else F64
    return functions.astype(x, element)


@public(np.linalg.qr, name="linalg.qr")
def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """Orthonormal columns q and an upper triangle r with q @ r = a; `mode` is "reduced",
    "complete" (q is square) or "r" (r alone).

    q of "complete" has no gradient where it is wider than a.
    """
    legal = ("reduced", "complete", "r")
    require(mode in legal, f"qr: mode is one of {', '.join(legal)}, got {mode!r}")
    if mode == "r":
        return emit("qr", computed(a), alone=True)
    return _QR(*emit("qr", computed(a), complete=mode == "complete"))


@public(np.linalg.svd, name="linalg.svd")
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """(u, s, vh) with u * s @ vh = a and s from the largest to the smallest, or s alone.

    Vectors that are there only to make u or vh square have no gradient: differentiate with
    full_matrices=False.  `hermitian` changes nothing.
    """
    if not compute_uv:
        return svdvals(a)
    return _SVD(*emit("svd", computed(a), full=bool(full_matrices)))


@public(np.linalg.svdvals, name="linalg.svdvals")
def svdvals(x: ArrayLike, /) -> Any:
    """The singular values of stacked matrices, from the largest to the smallest."""
    return emit("svdvals", computed(x))


def _triangle(a: ArrayLike, name: str, uplo: str) -> Any:
    """The matrix whose lower triangle is the one to read."""
    require(str(uplo).upper() in ("L", "U"), f"{name}: UPLO is 'L' or 'U', got {uplo!r}")
    x = computed(a)
    return adjoint(x) if str(uplo).upper() == "U" else x


@public(np.linalg.eigh, name="linalg.eigh")
def eigh(a: ArrayLike, UPLO: str = "L") -> Any:
    """(eigenvalues, from the smallest on, eigenvectors as columns) of stacked Hermitian matrices,
    of which one triangle is read."""
    return _EIGH(*emit("eigh", _triangle(a, "eigh", UPLO)))


@public(np.linalg.eigvalsh, name="linalg.eigvalsh")
def eigvalsh(a: ArrayLike, UPLO: str = "L") -> Any:
    """The eigenvalues of stacked Hermitian matrices, from the smallest on."""
    return emit("eigvalsh", _triangle(a, "eigvalsh", UPLO))


@public(np.linalg.eig, name="linalg.eig")
def eig(a: ArrayLike) -> Any:
    """(eigenvalues, eigenvectors as columns) of stacked square matrices: complex ones always, also
    where all are real. An infinity or a NaN stops the run."""
    return _EIG(*emit("eig", computed(a)))


@public(np.linalg.eigvals, name="linalg.eigvals")
def eigvals(a: ArrayLike) -> Any:
    """The eigenvalues of stacked square matrices: complex ones always."""
    return emit("eigvals", computed(a))


# ------------------------------------------------------------------------------------ pinv


_RCOND = Attr("rcond", "float", 1e-15, within=NOT_NEGATIVE)


def _infer_pinv(x: AnyType, *, rcond: float) -> Type:
    x = tensor_type("pinv", x)
    require_dtype("pinv", x, DTYPES)
    require(x.rank >= 2, f"pinv takes matrices, got {x}")
    return tensor(x.dtype, (*x.shape[:-2], x.shape[-1], x.shape[-2]))


def _inverted(x: Value, rcond: ArrayLike) -> tuple[Any, Any, Any]:
    """u, vh, and the inverses of singular values, zero for those that are too small."""
    f = functions
    u, s, vh = emit("svd", x)
    if 0 in shape_of(s):
        return u, s, vh
    least = f.multiply(f.expand_dims(f.astype(as_value(rcond), element_of(s)[0]), -1), s[..., :1])
    return u, f.where(f.greater(s, least), inverse_or_zero(s), 0), vh


def _expand_pinv(x: Value, *, rcond: ArrayLike) -> Any:
    u, s, vh = _inverted(x, rcond)
    return functions.matmul(functions.multiply(adjoint(vh), s[..., None, :]), adjoint(u))


def _pinv_gradient(ct: Value, result: Value, x: Value, *, rcond: float) -> tuple[Any]:
    """-p' g p' + (1 - x p) g' p p' + p' p g' (1 - p x), as long as the rank stays what it is."""
    f, p, turned = functions, adjoint(result), adjoint(ct)
    left, right = f.matmul(turned, f.matmul(result, p)), f.matmul(f.matmul(p, result), turned)
    made = f.negative(f.matmul(f.matmul(p, ct), p))
    made = f.add(made, f.subtract(left, f.matmul(x, f.matmul(result, left))))
    return (f.add(made, f.subtract(right, f.matmul(f.matmul(right, result), x))),)


def _matrices(*shapes: tuple[int, ...]) -> list[Any]:
    made = []
    for name in DTYPES:
        for shape in shapes:
            x = sample_array(name, shape, (-1, 1), 3)
            m, n = shape[-2:]
            made.append((x + 2 * np.eye(m, n)).astype(x.dtype))
    return made


def _pinv_samples() -> list[Sample]:
    made = _matrices((3, 3), (2, 5, 3), (3, 5), (0, 2, 3), (2, 0, 3))
    return [*(Sample((x,), {}, tolerance=512) for x in made), Sample((np.zeros(3),), {}, False)]


pinv_op = define(
    "pinv",
    batch=leading,
    infer=_infer_pinv,
    reference=lambda x, rcond: np.linalg.pinv(x, rcond),
    lower=Composite(_expand_pinv),
    attrs=(_RCOND,),
    dtypes=DTYPES,
    gradient=_pinv_gradient,
    samples=_pinv_samples,
    traits=Traits(on_cpu=True),
    doc="The pseudo-inverses of matrices; singular values up to `rcond` times the largest count as "
    "zero.",
)


def _epsilon(x: Tensor) -> Any:
    """What rounding may do to a singular value, in units of the largest: a traced value where sizes
    are open."""
    m, n = shape_of(x)[-2:]
    if isinstance(m, Dim) or isinstance(n, Dim):
        raise TypeRuleError(f"singular values of a matrix of {m} by {n}")
    return greatest(m, n) * float(np.finfo(element_of(x)[0].real.numpy).eps)


_UNSAID = object()


@public(np.linalg.pinv, name="linalg.pinv")
def pinv(a: ArrayLike, rcond: Any = None, hermitian: bool = False, *, rtol: Any = _UNSAID) -> Any:
    """The pseudo-inverses of stacked matrices: singular values up to rcond (1e-15) times the
    largest count as zero; with rtol=None up to the larger extent times the rounding unit.

    `hermitian` changes nothing.
    """
    x = computed(a)
    if rcond is None:
        rcond = 1e-15 if rtol is _UNSAID else _epsilon(x) if rtol is None else rtol
    if is_python_number(rcond):
        return emit("pinv", x, rcond=float(rcond))
    return _expand_pinv(as_value(x), rcond=rcond)


# ------------------------------------------------------------------------------------ lstsq


def _infer_least_squares(a: AnyType, b: AnyType, *, rcond: float) -> Type:
    made = _infer_pinv(a, rcond=rcond)
    b = tensor_type("least_squares", b)
    fits = b.dtype is made.dtype and b.rank == made.rank and b.shape[:-2] == made.shape[:-2]
    fits = fits and not definitely_different(b.shape[-2], made.shape[-1])
    require(fits, f"least_squares with {a} takes stacked columns of as many rows, got {b}")
    return tensor(b.dtype, (*made.shape[:-1], b.shape[-1]))


def _expand_least_squares(a: Value, b: Value, *, rcond: ArrayLike) -> Any:
    f = functions
    u, s, vh = _inverted(a, rcond)
    return f.matmul(adjoint(vh), f.multiply(s[..., None], f.matmul(adjoint(u), b)))


def _least_squares_gradient(
    ct: Value, result: Value, a: Value, b: Value, *, rcond: float
) -> tuple[Any, Any]:
    """What pinv's rule says of a for x = p b, without a matrix as large as p b'."""
    f, p = functions, emit("pinv", a, rcond=rcond)
    to_b = f.matmul(adjoint(p), ct)
    missed = f.subtract(b, f.matmul(a, result))
    beyond = f.subtract(ct, f.matmul(adjoint(a), to_b))
    made = f.matmul(missed, adjoint(f.matmul(p, to_b)))
    made = f.add(made, f.matmul(f.matmul(adjoint(p), result), adjoint(beyond)))
    return f.subtract(made, f.matmul(to_b, adjoint(result))), to_b


def _least_squares_samples() -> list[Sample]:
    made = []
    for x in _matrices((3, 3), (2, 5, 3), (3, 5), (0, 2, 3)):
        b = sample_array("f32", (*x.shape[:-1], 2), (-1, 1), 5).astype(x.dtype)
        made.append(Sample((x, b), {}, tolerance=512))
    x, b = made[0].operands
    return [*made, Sample((x, b[:-1]), {}, False)]


least_squares_op = define(
    "least_squares",
    batch=leading,
    infer=_infer_least_squares,
    reference=lambda a, b, rcond: np.linalg.pinv(a, rcond) @ b,
    lower=Composite(_expand_least_squares),
    attrs=(_RCOND,),
    dtypes=DTYPES,
    gradient=_least_squares_gradient,
    samples=_least_squares_samples,
    traits=Traits(on_cpu=True),
    doc="The shortest x for which a @ x is closest to b; singular values as in pinv.",
)


@public(np.linalg.lstsq, name="linalg.lstsq")
def lstsq(a: ArrayLike, b: ArrayLike, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """(x, sums of squares that are left, rank, singular values) of the least squares a @ x = b.

    The sums are there, one for each column of b, whenever a has more rows than columns: NumPy
    leaves them out where the rank is less, too.
    """
    f, vector = functions, rank_of(b) == 1
    require(rank_of(a) == 2 and rank_of(b) in (1, 2), "lstsq takes a matrix, and one or a vector")
    x, right = computed(a, b), computed(b, a)
    right = reshape(right, -1, 1) if vector else right
    m, n = shape_of(x)
    if rcond is None or (not isinstance(rcond, Value) and rcond == -1):
        rcond = _epsilon(x)
    if isinstance(rcond, Value):
        made = _expand_least_squares(as_value(x), as_value(right), rcond=rcond)
    else:
        made = emit("least_squares", x, right, rcond=float(rcond))
    values = svdvals(x)
    rank = _counted(values, rcond)
    left = f.square(f.absolute(f.subtract(right, f.matmul(x, made))))
    over = not isinstance(m, Dim) and not isinstance(n, Dim) and m > n
    residuals = f.sum(left, axis=0) if over else f.zeros((0,), element_of(values)[0])
    return (reshape(made, (n,)) if vector else made), residuals, rank, values


def _counted(values: Tensor, rcond: ArrayLike) -> Any:
    """How many singular values are more than a share of the largest."""
    f = functions
    if not shape_of(values)[-1]:
        return f.zeros(shape_of(values)[:-1], I64)
    share = f.multiply(f.max(values, axis=-1, keepdims=True), f.expand_dims(rcond, -1))
    return f.count_nonzero(f.greater(values, f.astype(share, element_of(values)[0])), axis=-1)


@public(np.linalg.matrix_rank, name="linalg.matrix_rank")
def matrix_rank(A: ArrayLike, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The number of singular values over tol, or over rtol times the largest (by default the larger
    extent times the rounding unit)."""
    f = functions
    if rank_of(A) < 2:
        return f.astype(f.any(f.not_equal(A, 0)), I64)
    x = computed(A)
    values = svdvals(x)
    if tol is not None:
        return f.count_nonzero(f.greater(values, f.expand_dims(as_value(tol), -1)), axis=-1)
    return _counted(values, _epsilon(x) if rtol is None else rtol)
