"""Orthogonal factors, singular values and eigenvalues of stacked matrices, computed by LAPACK;
of many small real ones in lanes of vectors, where no vectors are asked for.

    qr     x = q r        svd  x = u diag(s) vh        eigh  x v = v diag(w), x Hermitian
    eig    x v = v diag(w)

Signs and phases of vectors are LAPACK's.  What does not converge, as with NaN, stops the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.errors import UNCONVERGED, TypeRuleError
from graphc.ir.op import Attr, Op, Sample
from graphc.ir.sizes import Size, greatest, least
from graphc.ir.traits import Traits
from graphc.ir.types import (
    C64,
    C128,
    I64,
    AnyType,
    Dim,
    Dimension,
    DType,
    TupleType,
    Type,
    tensor,
    tuple_type,
)
from graphc.loops.nest import Expr
from graphc.loops.scalars import Pair, where
from graphc.ops.linalg import decomposition_gradients as rules
from graphc.ops.linalg.jacobi_nests import LaneEigenvalues, LaneSingularValues
from graphc.ops.linalg.lane_nests import LaneQR, Lanes
from graphc.ops.linalg.routines import BLOCK, Nest, Routines, Rows, lapack, parts
from graphc.ops.record.arguments import Applied, Array
from graphc.ops.record.batching import leading
from graphc.ops.record.dims import tensor_type
from graphc.ops.record.families import define, require, require_dtype, sample_array

DTYPES = ("f32", "f64", "c64", "c128")
_TRAITS = Traits(on_cpu=True, checks=True)


def _matrix(name: str, x: AnyType) -> tuple[Type, Dimension, Dimension]:
    x = tensor_type(name, x)
    require_dtype(name, x, DTYPES)
    require(x.rank >= 2, f"{name} takes matrices, got {x}")
    m, n = x.shape[-2:]
    return x, m, n


def _fewer(name: str, m: Dimension, n: Dimension) -> Dimension:
    """The lesser extent: a formula where a graph is for any size, else a decision."""
    if isinstance(m, Dim) or isinstance(n, Dim):
        raise TypeRuleError(f"{name}: which of the extents {m} and {n} is less is not known")
    for_any = any(isinstance(extent, Size) and extent.for_any for extent in (m, n))
    return least(m, n) if for_any else min(m, n)


def square_type(name: str, x: AnyType) -> Type:
    x, m, n = _matrix(name, x)
    require(m == n, f"{name} takes square matrices, got {x}")
    return x


def complex_of(element: DType) -> DType:
    """The complex type of the same precision."""
    return element if element.is_complex else C64 if element.itemsize == 4 else C128


def _samples(*shapes: tuple[int, ...]) -> Callable[[], list[Sample]]:
    """Matrices whose factors are told apart by more than rounding; what is no matrix is refused."""

    def make() -> list[Sample]:
        made = []
        for name in DTYPES:
            for shape in shapes:
                x = sample_array(name, shape, (-1, 1), 3)
                far = 3 * np.eye(shape[-2], shape[-1]) * np.arange(1, 1 + shape[-1])
                made.append(Sample(((x + far).astype(x.dtype),), tolerance=512))
        bad = np.zeros(3), np.zeros((2, 2), int)
        return [*made, *(Sample((x,), {}, False) for x in bad)]

    return make


_SQUARE = _samples((3, 3), (2, 5, 5), (1, 1), (0, 2, 2), (2, 0, 0))
_ANY = _samples((3, 3), (2, 5, 3), (2, 3, 5), (1, 1), (0, 2, 3))


def _triangles() -> list[Sample]:
    """Upper triangles: the signs of their eigenvectors do not depend on how numbers are rounded."""
    given = _SQUARE()
    return [
        Sample(tuple(map(np.triu, s.operands)), {}, True, s.tolerance) if s.good else s
        for s in given
    ]


def _both(samples: Callable[[], list[Sample]], flag: str) -> Callable[[], list[Sample]]:
    """The samples without and with a flag."""

    def make() -> list[Sample]:
        given = samples()
        flagged = [
            Sample(s.operands, {**s.attrs, flag: True}, True, s.tolerance) for s in given if s.good
        ]
        return [*given, *flagged]

    return make


def _op(
    name: str,
    infer: Callable[..., AnyType],
    reference: Callable[..., Any],
    nest: Nest,
    needs: Callable[[Applied], Rows],
    gradient: Callable[..., Any],
    samples: Callable[[], list[Sample]],
    doc: str,
    flops: float,
    attrs: tuple[Attr, ...] = (),
    lanes: type[Lanes] | None = None,
    traits: Traits = _TRAITS,
) -> Op:
    def cost(node: Applied) -> tuple[float, float]:
        x = node.inputs[0].type
        return flops * x.size * min(x.dims[-2:], default=1), 2.0 * x.nbytes

    return define(
        name,
        batch=leading,
        infer=infer,
        reference=reference,
        lower=lapack(nest, needs, lanes),
        attrs=attrs,
        dtypes=DTYPES,
        gradient=gradient,
        cost=cost,
        samples=samples,
        doc=doc,
        traits=traits,
    )


# ------------------------------------------------------------------------------------ qr


def _infer_qr(x: AnyType, *, complete: bool, alone: bool) -> AnyType:
    x, m, n = _matrix("qr", x)
    k = m if complete else _fewer("qr", m, n)
    q, r = (tensor(x.dtype, (*x.shape[:-2], *d)) for d in ((m, k), (k, n)))
    return r if alone else tuple_type((q, r))


def _qr_reference(x: Array, complete: bool, alone: bool) -> Any:
    q, r = np.linalg.qr(x, mode="complete" if complete else "reduced")
    return r if alone else (q, r)


def _qr_needs(node: Applied) -> Rows:
    kind, k = node.inputs[0].type, parts(node)[-1].dims[-2]
    m, n = kind.dims[-2:]
    sizes = {"a": m * greatest(n, k), "tau": least(m, n), "work": BLOCK * greatest(n, k, 1)}
    return {name: (kind.dtype, size) for name, size in sizes.items()}


def _qr(f: Routines, unit: Expr) -> None:
    m, n, k = f.m, f.n, parts(f.node)[-1].dims[-2]
    alone = f.node.attrs["alone"]
    f.fill(unit)
    room = BLOCK * greatest(n, k, 1)
    f.call("geqrf", m, n, "a", greatest(1, m), "tau", "work", room)
    with f.b.loop(k) as row, f.b.loop(n) as column:
        value = f.get("a", f.b.affine([(column, m)], row))
        made = where(row <= column, value, f.zero())
        f.result(f.index(unit, row, column), made, None if alone else 1)
    if alone:
        return
    generate = "ungqr" if f.element.is_complex else "orgqr"
    f.call(generate, m, k, least(m, n), "a", greatest(1, m), "tau", "work", room)
    f.give(unit, "a", m, k, m, 0)


qr_op = _op(
    "qr",
    _infer_qr,
    _qr_reference,
    _qr,
    _qr_needs,
    rules.qr_gradient,
    _both(_both(_ANY, "complete"), "alone"),
    "Orthonormal columns q and an upper triangle r with q @ r equal to each matrix; with "
    "`complete` q is square, with `alone` there is r alone.",
    4.0,
    (Attr("complete", "bool", False), Attr("alone", "bool", False)),
    LaneQR,
    Traits(on_cpu=True, checks=True, makes_last=True),
)

# ------------------------------------------------------------------------------------ svd


def _infer_svd(x: AnyType, *, full: bool) -> TupleType:
    x, m, n = _matrix("svd", x)
    k, lead = _fewer("svd", m, n), x.shape[:-2]
    shapes = ((m, m), (k,), (n, n)) if full else ((m, k), (k,), (k, n))
    kinds = (x.dtype, x.dtype.real, x.dtype)
    return tuple_type(tensor(d, (*lead, *s)) for d, s in zip(kinds, shapes, strict=True))


def _svd_sizes(node: Applied) -> dict[str, int]:
    """Elements of a, s, and of the scratch that the routine asks for, for vectors or none."""
    m, n = node.inputs[0].type.dims[-2:]
    k, x, given = least(m, n), greatest(m, n), dict[str, int]()
    if len(results := parts(node)) == 3:
        given = {"u": m * results[0].dims[-1], "vt": results[2].dims[-2] * n}
    if node.inputs[0].type.dtype.is_complex:
        fewest = k * k + 3 * k + x
        rwork = {"rwork": greatest(5 * k * k + 5 * k, 2 * x * k + 2 * k * k + k)}
    else:
        fewest, rwork = 4 * k * k + 7 * k + x, {}
    work = fewest + BLOCK * greatest(1, m + n)
    return {"a": m * n, "s": k, **given, "work": work, **rwork, "iwork": 8 * k}


def _svd_needs(node: Applied) -> Rows:
    element = node.inputs[0].type.dtype
    return _typed(element, _svd_sizes(node))


def _typed(element: DType, sizes: dict[str, int]) -> Rows:
    """Scratch by name: `iwork` of integers, `s`, `w` and `rwork` of reals."""
    kinds = {"iwork": I64, **dict.fromkeys(("s", "w", "rwork"), element.real)}
    return {name: (kinds.get(name, element), size) for name, size in sizes.items()}


def _gesdd(f: Routines, job: str, u: int, vt: int) -> None:
    """Factors of `a`; u and vt are the distances of columns of theirs."""
    sizes = _svd_sizes(f.node)
    vectors = ("u", greatest(1, u), "vt", greatest(1, vt)) if job != "N" else ("s", 1, "s", 1)
    rest = ("rwork", "iwork") if f.element.is_complex else ("iwork",)
    lead = greatest(1, f.m)
    f.call("gesdd", job, f.m, f.n, "a", lead, "s", *vectors, "work", sizes["work"], *rest)


def _svd(f: Routines, unit: Expr) -> None:
    u, s, vh = parts(f.node)
    columns, rows = u.dims[-1], vh.dims[-2]
    if not s.dims[-1]:  # of nothing: any orthonormal vectors do
        _identity(f, unit, columns, 0)
        _identity(f, unit, rows, 2)
        return
    f.fill(unit)
    _gesdd(f, "A" if f.node.attrs["full"] else "S", f.m, rows)
    f.give(unit, "u", f.m, columns, f.m, 0)
    f.give_row(unit, "s", s.dims[-1], 1)
    f.give(unit, "vt", rows, f.n, rows, 2)


def _identity(f: Routines, unit: Expr, n: int, number: int) -> None:
    real = f.b.const(1.0, f.element.real)
    one: Any = Pair(real, f.zero().im) if f.element.is_complex else real
    with f.b.loop(n) as row, f.b.loop(n) as column:
        f.write(f.index(unit, row, column), where(row == column, one, f.zero()), number)


svd_op = _op(
    "svd",
    _infer_svd,
    lambda x, full: tuple(np.linalg.svd(x, full_matrices=full)),
    _svd,
    _svd_needs,
    rules.svd_gradient,
    _both(_ANY, "full"),
    "Orthonormal columns u, singular values s, largest first, and orthonormal rows vh with "
    "u * s @ vh equal to each matrix; with `full` u and vh are square.",
    12.0,
    (Attr("full", "bool", False),),
)


def _infer_svdvals(x: AnyType) -> Type:
    x, m, n = _matrix("svdvals", x)
    return tensor(x.dtype.real, (*x.shape[:-2], _fewer("svdvals", m, n)))


def _svdvals(f: Routines, unit: Expr) -> None:
    f.fill(unit)
    _gesdd(f, "N", 1, 1)
    f.give_row(unit, "s", least(f.m, f.n), None)


svdvals_op = _op(
    "svdvals",
    _infer_svdvals,
    lambda x: np.linalg.svd(x, compute_uv=False),
    _svdvals,
    _svd_needs,
    rules.svdvals_gradient,
    _ANY,
    "The singular values of each matrix, largest first.",
    3.0,
    lanes=LaneSingularValues,
)

# ------------------------------------------------------------------------------------ eigh


def _infer_eigh(x: AnyType) -> TupleType:
    x = square_type("eigh", x)
    return tuple_type((tensor(x.dtype.real, x.shape[:-1]), x))


def _eigh_sizes(node: Applied) -> dict[str, int]:
    kind = node.inputs[0].type
    n, vectors = kind.dims[-1], len(parts(node)) == 2
    more = BLOCK * greatest(1, n)
    if kind.dtype.is_complex:
        work = {"work": 2 * n + n * n * vectors + more, "rwork": 1 + 5 * n + 2 * n * n * vectors}
    else:
        work = {"work": 1 + 6 * n + 2 * n * n * vectors + more}
    return {"a": n * n, "w": n, **work, "iwork": 3 + 5 * n}


def _eigh_needs(node: Applied) -> Rows:
    return _typed(node.inputs[0].type.dtype, _eigh_sizes(node))


def _heevd(f: Routines, unit: Expr, job: str) -> None:
    n, sizes = f.n, _eigh_sizes(f.node)
    f.fill(unit)
    given = [name for name in ("work", "rwork", "iwork") if name in sizes]
    scratch = (part for name in given for part in (name, sizes[name]))
    name = "heevd" if f.element.is_complex else "syevd"
    f.call(name, job, "L", n, "a", greatest(1, n), "w", *scratch)


def _eigh(f: Routines, unit: Expr) -> None:
    _heevd(f, unit, "V")
    f.give_row(unit, "w", f.n, 0)
    f.give(unit, "a", f.n, f.n, f.n, 1)


eigh_op = _op(
    "eigh",
    _infer_eigh,
    lambda x: tuple(np.linalg.eigh(x)),
    _eigh,
    _eigh_needs,
    rules.eigh_gradient,
    _SQUARE,
    "The eigenvalues, smallest first, and the eigenvectors of each Hermitian matrix, of which the "
    "lower triangle is read.",
    9.0,
)


def _infer_eigvalsh(x: AnyType) -> Type:
    x = square_type("eigvalsh", x)
    return tensor(x.dtype.real, x.shape[:-1])


def _eigvalsh(f: Routines, unit: Expr) -> None:
    _heevd(f, unit, "N")
    f.give_row(unit, "w", f.n, None)


eigvalsh_op = _op(
    "eigvalsh",
    _infer_eigvalsh,
    lambda x: np.linalg.eigvalsh(x),
    _eigvalsh,
    _eigh_needs,
    rules.eigvalsh_gradient,
    _SQUARE,
    "The eigenvalues of each Hermitian matrix, smallest first; the lower triangle is read.",
    1.5,
    lanes=LaneEigenvalues,
)

# ------------------------------------------------------------------------------------ eig


def _infer_eig(x: AnyType) -> TupleType:
    x = square_type("eig", x)
    made = complex_of(x.dtype)
    return tuple_type((tensor(made, x.shape[:-1]), tensor(made, x.shape)))


def _eig_sizes(node: Applied) -> dict[str, int]:
    kind = node.inputs[0].type
    n = kind.dims[-1]
    vectors = {"v": n * n} if len(parts(node)) == 2 else {}
    values = {"z": n, "rwork": 2 * n} if kind.dtype.is_complex else {"re": n, "im": n}
    return {"a": n * n, **values, **vectors, "work": (4 + BLOCK) * greatest(1, n)}


def _eig_needs(node: Applied) -> Rows:
    return _typed(node.inputs[0].type.dtype, _eig_sizes(node))


def _geev(f: Routines, unit: Expr, job: str, number: int | None) -> None:
    """Eigenvalues of `a` as a result, vectors in `v`; a number that is not finite stops the run."""
    n, b, sizes = f.n, f.b, _eig_sizes(f.node)
    f.fill(unit)
    zero = b.const(0.0, f.element.real)
    with b.loop(n * n) as k:
        value = f.get("a", k)
        for part in (value.re, value.im) if isinstance(value, Pair) else (value,):
            b.fail(part - part != zero, UNCONVERGED)
    values = ("z",) if f.element.is_complex else ("re", "im")
    vectors = ("v" if job == "V" else "a", greatest(1, n))
    rest = ("work", sizes["work"], *(("rwork",) if f.element.is_complex else ()))
    pitch = greatest(1, n)
    f.call("geev", "N", job, n, "a", pitch, *values, "a", pitch, *vectors, *rest)
    with b.loop(n) as k:
        made = f.get("z", k) if f.element.is_complex else Pair(f.get("re", k), f.get("im", k))
        f.result(f.index(unit, k), made, number)


def _eig(f: Routines, unit: Expr) -> None:
    n, b = f.n, f.b
    _geev(f, unit, "V", 0)
    if f.element.is_complex:
        f.give(unit, "v", n, n, n, 1)
        return
    # Two columns hold the real and the imaginary parts of a vector, whose conjugate comes second.
    zero = b.const(0.0, f.element)
    with b.loop(n) as column:
        imaginary = b.register(f.get("im", column))
        first = column - where(b.read(imaginary) < zero, b.integer(1), 0)
        second = column + where(b.read(imaginary) > zero, b.integer(1), 0)
        with b.loop(n) as row:
            re, im = (f.get("v", b.affine([(k, n)], row)) for k in (first, second))
            im = where(b.read(imaginary) < zero, -im, im)
            im = where(b.read(imaginary) == zero, zero, im)
            f.write(f.index(unit, row, column), Pair(re, im), 1)


def _as_complex(x: Array) -> Any:
    return np.asarray(x).astype(np.result_type(x.dtype, np.complex64))


eig_op = _op(
    "eig",
    _infer_eig,
    lambda x: tuple(map(_as_complex, np.linalg.eig(x))),
    _eig,
    _eig_needs,
    rules.eig_gradient,
    _triangles,
    "The eigenvalues and eigenvectors of each square matrix, complex ones always.",
    25.0,
)


def _infer_eigvals(x: AnyType) -> Type:
    x = square_type("eigvals", x)
    return tensor(complex_of(x.dtype), x.shape[:-1])


eigvals_op = _op(
    "eigvals",
    _infer_eigvals,
    lambda x: _as_complex(np.linalg.eigvals(x)),
    lambda f, unit: _geev(f, unit, "N", None),
    _eig_needs,
    rules.eigvals_gradient,
    _SQUARE,
    "The eigenvalues of each square matrix, complex ones always.",
    10.0,
)
