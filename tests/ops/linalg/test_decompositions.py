"""Orthogonal factors, singular values, eigenvalues, and what NumPy makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import crossed, few
from gradient_harness import along, inner, noise
from op_harness import check_samples, same

import graphc as gc
from graphc.cli.commands import main
from graphc.errors import GraphError, RunError
from graphc.ir.op import OPS
from graphc.seams import lapack

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)
OWN = [n for n, op in OPS.items() if op.traits.on_cpu]


def array(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    made: Any = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(dtype)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize("name", OWN)
def test_samples(name: str) -> None:
    check_samples(OPS[name])


# ------------------------------------------------------------------------------------ values


def rebuilt(x: Any) -> tuple[Any, ...]:
    """What does not depend on signs and phases of vectors: x itself, and what is orthonormal."""
    q, r = np.linalg.qr(x)
    whole, wide = np.linalg.qr(x, "complete")
    u, s, vh = np.linalg.svd(x)
    thin = np.linalg.svd(x, full_matrices=False)
    return (
        q @ r,
        adjoint(q) @ q,
        whole @ wide,
        adjoint(whole) @ whole,
        np.linalg.qr(x, mode="r"),
        s,
        adjoint(u) @ u,
        vh @ adjoint(vh),
        (thin.U * thin.S[..., None, :]) @ thin.Vh,
        np.linalg.svdvals(x),
        np.linalg.svd(x, compute_uv=False),
        np.linalg.pinv(x),
        np.linalg.matrix_rank(x),
        np.linalg.cond(x),
        np.linalg.cond(x, -2),
        np.linalg.norm(x, 2, (-2, -1)),
        np.linalg.norm(x, "nuc", (-1, -2), True),
        np.linalg.matrix_norm(x, ord=-2),
        np.linalg.pinv(x, rtol=0.3),
    )


def of_squares(x: Any) -> tuple[Any, ...]:
    w, v = np.linalg.eigh(x)
    upper, turned = np.linalg.eigh(x, "U")
    values, vectors = np.linalg.eig(x)
    return (
        w,
        adjoint(v) @ v,
        (v * w[..., None, :]) @ adjoint(v),
        np.linalg.eigvalsh(x),
        upper,
        (turned * upper[..., None, :]) @ adjoint(turned),
        np.linalg.eigvalsh(x, "U"),
        np.abs(x @ vectors - vectors * values[..., None, :]),
        np.abs(values).sum(-1),
        np.abs(np.linalg.eigvals(x)).sum(-1),
        np.linalg.matrix_power(x, 3),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "shape"), crossed(DTYPES, [(3, 1, 4, 4), (2, 5, 3), (66, 66), (2, 4)])
)
def test_values_are_numpys(shape: tuple[int, ...], dtype: Any) -> None:
    x, bound = array(shape, dtype), 2e3 * float(np.finfo(dtype).eps)
    same(gc.compile(rebuilt)(x), rebuilt(x), max(1, shape[-1] / 10) * bound)
    if shape[-1] == shape[-2]:
        want = tuple(np.asarray(v) for v in of_squares(x))
        same(gc.compile(of_squares)(x), want, max(1, shape[-1] / 10) * bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (200, 4, 3), (200, 3, 5), (2, 0, 3)])
def test_a_triangle_alone_has_the_bits_of_one_beside_its_columns(shape: Any, dtype: Any) -> None:
    real, imaginary = np.random.default_rng(5).standard_normal((2, *shape))
    x = (real + 1j * imaginary if np.dtype(dtype).kind == "c" else real).astype(dtype)
    both = gc.compile(lambda x: tuple(np.linalg.qr(x)))(x)
    alone = gc.compile(lambda x: np.linalg.qr(x)[1])
    np.testing.assert_array_equal(alone(x), both[1])
    np.testing.assert_array_equal(gc.compile(lambda x: np.linalg.qr(x, mode="r"))(x), both[1])
    stages = {name: made for name, made, *_ in alone.stages(x)}
    assert "alone=true" in gc.show(stages["plan"])


def test_matrices_of_nothing() -> None:
    for shape in ((3, 0), (0, 3), (0, 0), (0, 3, 2), (1, 1)):
        x = np.ones(shape)
        calls: list[Callable[[Any], Any]] = [
            lambda x: tuple(np.linalg.svd(x)),
            lambda x: tuple(np.linalg.qr(x, "complete")),
            lambda x: (np.linalg.pinv(x), np.linalg.svdvals(x), np.linalg.qr(x, "r")),
        ]
        for call in calls:
            same(gc.compile(call)(x), tuple(map(np.asarray, call(x))))
    same(tuple(gc.compile(lambda x: tuple(np.linalg.eigh(x)))(x)), tuple(np.linalg.eigh(x)))


def test_real_matrices_with_pairs_of_complex_eigenvalues() -> None:
    x = np.array([[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 1, 3]])
    made = gc.compile(lambda x: tuple(np.linalg.eig(x)))(x)
    same(made, tuple(np.linalg.eig(x)), 1e-12)
    values = gc.compile(np.linalg.eigvals)(np.diag([1.0, 2]))
    same(values, np.array([1, 2], complex))  # complex always: a graph has one type


def test_least_squares() -> None:
    for shape, columns in (((7, 3), (7, 2)), ((7, 3), (7,)), ((3, 7), (3, 2)), ((3, 3), (3,))):
        for dtype in (np.float64, np.complex128):
            a, b = array(shape, dtype), array(columns, dtype, 1)
            want = tuple(map(np.asarray, np.linalg.lstsq(a, b)))
            got = gc.compile(lambda a, b: np.linalg.lstsq(a, b))(a, b)
            same([got[k] for k in (0, 1, 3)], [want[k] for k in (0, 1, 3)], 1e-12)
            assert got[2] == want[2]
    low = np.outer(np.arange(1.0, 5), np.arange(1.0, 4))  # of rank 1
    got = gc.compile(lambda a, b: np.linalg.lstsq(a, b, 1e-9))(low, np.ones(4))
    same(got[0], np.linalg.lstsq(low, np.ones(4), 1e-9)[0], 1e-12)
    assert got[2] == 1
    assert gc.compile(np.linalg.matrix_rank)(low) == 1


@pytest.mark.slow
def test_exponentials_of_matrices() -> None:
    """Of commuting sums, of large and of small ones; nilpotent ones are their first terms."""
    for dtype in (np.float64, np.complex128):
        x = array((2, 4, 4), dtype)
        call = gc.compile(gc.linalg.expm)
        same(call(x) @ call(-x), np.broadcast_to(np.eye(4), x.shape).astype(dtype), 1e-9)
        w, v = np.linalg.eig(9 * x[0])
        want = (v * np.exp(w)) @ np.linalg.inv(v)
        np.testing.assert_allclose(call(9 * x)[0], want, rtol=1e-7, atol=1e-7 * abs(want).max())
    low = np.array([[0.0, 5], [0, 0]])
    same(gc.compile(gc.linalg.expm)(low), np.eye(2) + low, 1e-14)
    assert np.isnan(gc.compile(gc.linalg.expm)(np.full((2, 2), np.nan))).all()


def test_polynomials_are_fitted() -> None:
    x, y = array((9,), np.float64), array((9, 2), np.float64, 1)
    for call in (
        lambda x, y: np.polyfit(x, y, 3),
        lambda x, y: np.polyfit(x, y[:, 0], 2, w=np.arange(1.0, 10)),
    ):
        same(gc.compile(call)(x, y), call(x, y), 1e-9)


def test_what_is_not_finite_stops_the_run() -> None:
    x = np.eye(3)
    x[1, 1] = np.nan
    for call in (np.linalg.svdvals, np.linalg.eigvals, lambda x: np.linalg.svd(x)[0]):
        with pytest.raises(RunError, match="does not converge"):
            gc.compile(call)(x)
    assert np.isnan(gc.compile(lambda x: np.linalg.qr(x, "r"))(x)).any()


def test_mistakes_are_errors() -> None:
    for call in (
        lambda x: np.linalg.qr(x, "raw"),
        lambda x: np.linalg.eigh(x),
        lambda x: np.linalg.eig(x[0]),
        lambda x: np.linalg.eigvalsh(x[:2], "M"),
        lambda x: np.linalg.lstsq(x, x[0]),
        lambda x: np.linalg.norm(x, 3, (0, 1)),
    ):
        with pytest.raises(GraphError):
            gc.compile(call)(np.ones((2, 3)))


@pytest.mark.slow
def test_many_matrices_on_two_threads_and_without_llvm() -> None:
    x = array((40, 6, 4), np.float64)
    call = lambda x: (np.linalg.svdvals(x), np.linalg.pinv(x))
    for options in ({"threads": 2}, {"threads": 1}, {"backend": "numba"}):
        same(gc.compile(call, **options)(x), call(x), 1e-12)


def test_a_compiled_file_finds_lapack_again(tmp_path: Any) -> None:
    x = array((2, 4, 4), np.float64)
    graph, file = str(tmp_path / "values.gir"), str(tmp_path / "values.gcx")
    gc.compile(lambda x: np.linalg.svdvals(x)).save(graph, x)
    with contextlib.suppress(SystemExit):
        main(["compile", graph, "-o", file])
    same(gc.load(file)(x), np.linalg.svdvals(x), 1e-13)


@pytest.mark.parametrize("letter", few("sdcz", 2))
def test_numpy_itself_stands_in_for_lapack(letter: str, monkeypatch: Any) -> None:
    """Where NumPy hides its routines, the same names call NumPy."""
    dtype = lapack._DTYPES[letter]
    monkeypatch.setattr(lapack, "_SPELLINGS", ())
    lapack.address.cache_clear()
    monkeypatch.setattr("graphc.runtime.load.load._linked", {})
    from graphc.runtime.load import load

    load.process_symbol.cache_clear()
    try:
        assert lapack.native("dgesdd") == 0
        x, bound = array((2, 5, 3), dtype), 2e3 * float(np.finfo(dtype).eps)
        same(gc.compile(lambda x: rebuilt(x))(x), rebuilt(x), bound)
        x = array((4, 4), dtype)
        want = tuple(np.asarray(v) for v in of_squares(x))
        same(gc.compile(lambda x: of_squares(x))(x), want, bound)
    finally:
        lapack.address.cache_clear()
        load.process_symbol.cache_clear()


# ------------------------------------------------------------------------------------ gradients


def weigh(x: Any, seed: int) -> Any:
    """A real number of an array, with weights that tell its elements apart."""
    weights = array(x.shape, x.dtype, seed)
    product = np.conj(weights) * x
    return (product.real if np.dtype(x.dtype).kind == "c" else product).sum()


def of_vectors(v: Any, w: Any) -> Any:
    """v diag(w) v': what is left of vectors whose phases are free."""
    return (v * w[..., None, :]) @ adjoint(v)


def by_svd(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return (
        weigh(of_vectors(u, s**2), 1)
        + weigh(of_vectors(adjoint(vh), 1 / s), 2)
        + weigh((u * np.exp(-s)[..., None, :]) @ vh, 3)
    )


def by_eigh(x: Any) -> Any:
    w, v = np.linalg.eigh(x)
    return weigh(of_vectors(v, np.exp(w)), 1) + weigh(w, 2)


def by_eig(x: Any) -> Any:
    w, v = np.linalg.eig(x)
    made = (v * np.exp(0.3 * w)[..., None, :]) @ np.linalg.inv(v)
    return weigh(made, 1) + weigh(of_vectors(v, np.abs(w)), 2)


def by_qr(x: Any) -> Any:
    q, r = np.linalg.qr(x)
    return weigh(q, 1) + weigh(r, 2)


def by_values(x: Any) -> Any:
    small = x[..., :2, :2]
    return (
        weigh(np.linalg.svdvals(x), 1)
        + weigh(np.linalg.svd(x)[1], 2)
        + weigh(np.linalg.eigvalsh(small), 3)
        + np.abs(np.linalg.eigvals(small) ** 2).sum()
        + weigh(np.linalg.pinv(x), 4)
        + np.linalg.norm(x, "nuc", (-2, -1)).sum()
    )


def by_least_squares(x: Any) -> Any:
    made, left, _, values = np.linalg.lstsq(x, x[:, :2] ** 2 + 1)
    return weigh(made, 1) + left.sum() + values.sum()


CASES: list[tuple[Any, tuple[int, ...]]] = [
    (by_svd, (5, 3)),
    (by_svd, (2, 3, 4)),
    (by_eigh, (2, 3, 3)),
    (by_eig, (2, 3, 3)),
    (by_qr, (2, 5, 3)),
    (by_qr, (3, 5)),
    (by_values, (2, 5, 3)),
    (by_values, (3, 4)),
    (by_least_squares, (5, 3)),
    (by_least_squares, (3, 5)),
]


@pytest.mark.parametrize(("case", "dtype"), few(crossed(CASES, [np.float64, np.complex128]), 7))
def test_gradients_are_those_of_differences(case: Any, dtype: Any) -> None:
    function, shape = case
    rng, x = np.random.default_rng(1), array(shape, dtype, 5)
    made = gc.grad(function)(x)
    way = noise(rng, x)
    want = along(lambda at: float(function(at[0])), [x], [way])
    assert abs(inner([made], [way]) - want) < 1e-6 * max(1, abs(want), np.abs(made).max())


def test_equal_values_have_gradients_where_vectors_do_not_matter() -> None:
    made = gc.compile(gc.grad(lambda x: (of_vectors(*np.linalg.eigh(x)[::-1])[0, 1]) * 1.0))(
        np.eye(3)
    )
    assert np.isfinite(made).all()
    made = gc.compile(gc.grad(lambda x: np.linalg.svd(x, full_matrices=False)[1].sum()))(np.eye(3))
    same(made, np.eye(3), 1e-12)


def test_vectors_that_complete_a_basis_have_no_gradient() -> None:
    x = array((4, 2), np.float64)
    for call in (
        lambda x: np.linalg.svd(x)[0].sum(),
        lambda x: np.linalg.qr(x, "complete")[0].sum(),
    ):
        with pytest.raises(GraphError, match="complete"):
            gc.compile(gc.grad(call))(x)
