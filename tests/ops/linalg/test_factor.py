"""Factorisations and what is computed with them, compiled, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed
from op_harness import check_samples, same

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.ir.op import OPS

RNG = np.random.default_rng(5)
A = RNG.standard_normal((2, 4, 4))
B = RNG.standard_normal((4, 3))
S = A @ np.swapaxes(A, -1, -2) + np.eye(4)


@pytest.mark.parametrize("name", ["lu", "lu_solve", "cholesky"])
def test_samples(name: str) -> None:
    check_samples(OPS[name])


CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (np.linalg.solve, (A, B)),
    (np.linalg.solve, (A[0], B[:, 0])),
    (np.linalg.solve, (A[0], RNG.standard_normal((3, 1, 4, 2)))),
    (np.linalg.inv, (A,)),
    (np.linalg.inv, (np.array([[2, 1], [1, 1]]),)),
    (np.linalg.det, (A,)),
    (np.linalg.det, (np.ones((2, 2)),)),
    (np.linalg.slogdet, (A,)),
    (np.linalg.cholesky, (S,)),
    (np.linalg.matrix_norm, (A,)),
    (np.linalg.trace, (A,)),
]


@pytest.mark.parametrize(("function", "arrays"), CALLS)
def test_function_is_numpys(function: Any, arrays: Any) -> None:
    same(
        gc.compile(lambda *v: function(*v))(*arrays),
        tuple(function(*arrays)) if function is np.linalg.slogdet else function(*arrays),
        1e-9,
    )


def test_namespace() -> None:
    same(gc.linalg.inv(A), np.linalg.inv(A), 1e-9)
    same(gc.linalg.norm(B), np.linalg.norm(B), 1e-12)
    half = gc.compile(lambda x: gc.linalg.cholesky(x, upper=True))(S.astype(np.float32))
    np.testing.assert_allclose(half, np.linalg.cholesky(S, upper=True), rtol=1e-3, atol=1e-4)


def test_failures() -> None:
    with pytest.raises(RunError):
        gc.compile(np.linalg.inv)(np.ones((2, 2)))
    with pytest.raises(RunError):
        gc.compile(np.linalg.cholesky)(-np.eye(3))
    with pytest.raises(GraphError):
        gc.compile(np.linalg.det)(B)


def residual(a: Any, x: Any, b: Any) -> Any:
    """How far a @ x is from b, in units of what rounding may do to a sum of so many products."""
    a, x, b = (v.astype(np.float64) for v in (a, x, b))
    return (np.abs(a @ x - b) / (np.abs(a) @ np.abs(x))).max() / np.sqrt(a.shape[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dtype"), crossed([4, 33, 330], [np.float32, np.float64]))
def test_panels(n: int, dtype: Any) -> None:
    """Matrices of one panel, of several, and of several blocks of columns; few right sides and
    many; systems that need their rows exchanged.
    """
    rng, small = np.random.default_rng(n), 4 * np.finfo(dtype).eps
    a = rng.standard_normal((2, n, n)).astype(dtype)
    a[:, 0, 0] = 0
    turned = np.swapaxes(a, -1, -2)
    for width in (1, 9):
        b = rng.standard_normal((2, n, width)).astype(dtype)
        assert residual(a, gc.compile(np.linalg.solve)(a, b), b) < small
        back = gc.compile(gc.grad(lambda v, b=b: (gc.linalg.solve(a, v) * b).sum()))(b)
        assert residual(turned, back, b) < small
    s = (a @ turned / n + np.eye(n)).astype(dtype)
    root = gc.compile(np.linalg.cholesky)(s)
    assert residual(root, np.swapaxes(root, -1, -2), s) < small
    assert not np.triu(root, 1).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "name"), crossed([(0, 0), (1, 1), (3, 4, 4), (0, 2, 2)], ["complex128", "complex64"])
)
def test_complex_matrices_are_solved_inverted_and_have_determinants(name, shape):
    rng = np.random.default_rng(7)
    a, b = ((rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(name) for _ in "ab")
    calls = (
        lambda a, b: np.linalg.solve(a, b),
        lambda a, b: np.linalg.inv(a),
        lambda a, b: np.linalg.det(a),
        lambda a, b: tuple(np.linalg.slogdet(a)),
        lambda a, b: np.linalg.matrix_power(a, -2),
    )
    for call in calls:
        got, want = gc.compile(call)(a, b), call(a, b)
        for made, right in zip(*(v if isinstance(v, tuple) else [v] for v in (got, want))):
            assert (made.dtype, made.shape) == (right.dtype, right.shape)
            np.testing.assert_allclose(made, right, rtol=2e3 * np.finfo(name).eps)


def test_determinants_of_singular_and_of_large_complex_matrices():
    assert gc.compile(np.linalg.det)(np.ones((2, 2), complex)) == 0
    assert gc.compile(np.linalg.det)(np.eye(3)[::-1] * 1j) == np.linalg.det(np.eye(3)[::-1] * 1j)
    with pytest.raises(GraphError, match="up to 32 rows"):
        gc.compile(np.linalg.det).graph(gc.spec((33, 33), "c64"))


def test_gradient_of_a_complex_determinant():
    """d|det A|**2 is 2 |det A|**2 A**-H in the convention of one conjugate per complex variable."""
    a = np.array([[1 + 1j, 2, 0.5j], [0.25, 3j, 1], [1, -1j, 2]])
    got = gc.compile(lambda a: gc.grad(lambda a: np.abs(np.linalg.det(a)) ** 2)(a))(a)
    want = 2 * np.abs(np.linalg.det(a)) ** 2 * np.linalg.inv(a).conj().T
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "kind"),
    crossed([(3, 3), (2, 5, 5), (0, 2, 2), (40, 40)], [np.float64, np.complex64, np.complex128]),
)
def test_cholesky_reads_one_triangle(kind: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    x = (x if np.iscomplexobj(kind(0)) else x.real).astype(kind)
    a = x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1], dtype=kind)
    tolerance = 1e-4 if kind is np.complex64 else 1e-11
    for upper, kept, other in ((False, np.tril(a), np.triu), (True, np.triu(a), np.tril)):
        given = kept + other(np.full_like(a, 9), -1 if upper else 1)
        made = gc.compile(lambda a: np.linalg.cholesky(a, upper=upper))(given)  # noqa: B023
        want = np.linalg.cholesky(a, upper=upper)
        assert made.dtype == want.dtype
        np.testing.assert_allclose(made, want, rtol=tolerance, atol=tolerance)


def test_gradient_of_a_complex_cholesky() -> None:
    """The derivative along a Hermitian direction is that of a small step."""
    rng = np.random.default_rng(3)
    x, d = (rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)) for _ in range(2))
    a, d = x @ x.conj().T + np.eye(4), d + d.conj().T

    def loss(t):
        return np.abs(np.linalg.cholesky(a + t * d) - 1).sum()

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    np.testing.assert_allclose(gc.grad(loss)(0.0), slope, rtol=1e-6)


def test_sums_are_read_before_a_result_takes_their_place():
    """Of the two parts of one product, that which needs no sums is stored first."""
    rng = np.random.default_rng(2)
    x, w, seed = (rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)) for _ in "xws")

    def loss(x):
        return (np.conj(seed) * (w @ np.linalg.inv(x))).real.sum()

    made, want = gc.compile(gc.grad(loss))(x), gc.compile(gc.grad(loss), opt=0)(x)
    np.testing.assert_allclose(made, want, rtol=1e-10)
