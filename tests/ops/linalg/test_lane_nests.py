"""Stacks of small matrices: one in each lane gives what one after another gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import RunError
from graphc.ir.op import OPS
from graphc.ops.record.value import emit

RNG = np.random.default_rng(0)


def matrices(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return (RNG.standard_normal(shape) + 2 * np.eye(*shape[-2:])).astype(dtype)


def close(got: Any, want: Any, dtype: Any) -> None:
    single = dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=2e-3 if single else 1e-9, atol=1e-4 if single else 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8])
def test_solutions_inverses_and_determinants(n: int, dtype: Any) -> None:
    for stack in ((33,), (2, 70)):
        x, b = matrices(*stack, n, n, dtype=dtype), matrices(*stack, n, 2, dtype=dtype)
        fn = gc.compile(lambda x, b: (np.linalg.solve(x, b) * 2, np.linalg.det(x)), threads=2)
        solution, determinant = fn(x, b)
        wide = x.astype(np.float64)
        close(solution, np.linalg.solve(wide, b.astype(np.float64)) * 2, dtype)
        close(determinant, np.linalg.det(wide), dtype)
        close(gc.compile(np.linalg.inv)(x), np.linalg.inv(wide), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 4, 6, 9, 12])
def test_triangles_of_symmetric_matrices(n: int, dtype: Any) -> None:
    for stack in ((33,), (2, 70)):
        x = matrices(*stack, n, n, dtype=dtype)
        x = x @ x.swapaxes(-1, -2) + np.eye(n, dtype=dtype)
        lower = np.tril(x) + np.triu(np.full_like(x, np.nan), 1)  # is not read
        want = np.linalg.cholesky(x.astype(np.float64))
        close(gc.compile(np.linalg.cholesky)(lower), want, dtype)
        x[..., 5, -1, -1] = -1
        with pytest.raises(RunError):
            gc.compile(np.linalg.cholesky)(x)


def test_pivots_are_those_of_the_reference() -> None:
    """Ties, zeros, rows without a pivot and NaN too."""
    x = RNG.integers(-2, 3, (500, 3, 3)).astype(np.float64)
    x[3, 1, 1], x[4] = np.nan, 0
    with np.errstate(all="ignore"):
        want = OPS["lu"].reference(x)
    for got, expected in zip(gc.compile(lambda x: emit("lu", x))(x), want):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


def test_an_open_number_of_matrices() -> None:
    fn = gc.compile(
        lambda x: (np.linalg.inv(x), np.abs(np.linalg.qr(x)[1])), sizes={"x": ("n", 3, 3)}
    )
    for n in (40, 0, 1, 16, 65, 1000):
        x = matrices(n, 3, 3)
        inverse, triangle = fn(x)
        close(inverse, np.linalg.inv(x), np.float64)
        np.testing.assert_allclose(triangle, np.abs(np.linalg.qr(x)[1]), atol=1e-12)


def test_gradients_and_transposed_systems() -> None:
    x, b = matrices(40, 3, 3), matrices(40, 3, 1)

    def loss(x, b):
        return np.sum(np.linalg.solve(x, b) ** 2)

    at_x, at_b = gc.compile(gc.grad(loss, wrt=(0, 1)))(x, b)
    dx, db = (1e-6 * RNG.standard_normal(v.shape) for v in (x, b))
    change = (loss(x + dx, b + db) - loss(x - dx, b - db)) / 2
    np.testing.assert_allclose(np.sum(at_x * dx) + np.sum(at_b * db), change, rtol=1e-4)


def test_what_has_no_solution_stops_the_run() -> None:
    for place in (0, 5, 39):
        x = matrices(40, 3, 3)
        x[place] = 1
        with pytest.raises(RunError):
            gc.compile(np.linalg.inv)(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 4), (6, 2), (3, 5), (1, 3), (3, 1)])
def test_orthogonal_factors_have_lapacks_signs(shape: tuple[int, int], dtype: Any) -> None:
    x = matrices(2, 70, *shape, dtype=dtype)
    x[0, 1], x[0, 2, :, 0], x[0, 3] = 0, 0, np.eye(*shape)
    x[0, 4] *= dtype(1e30)
    x[0, 5] *= dtype(1e-30)
    for mode in ("reduced", "complete"):
        fn = gc.compile(lambda x, mode=mode: tuple(np.linalg.qr(x, mode=mode)))
        size = np.maximum(1e-40, np.abs(x).max((-1, -2), keepdims=True))
        (q, r), (q0, r0) = fn(x), np.linalg.qr(x, mode=mode)
        eps = 100 * np.finfo(dtype).eps
        np.testing.assert_allclose(r / size, r0 / size, atol=eps)
        np.testing.assert_allclose(q, q0, atol=eps * 20)
        np.testing.assert_allclose((q @ r) / size, x / size, atol=eps)


def _spectra(dtype: Any, m: int, n: int) -> dict[str, np.ndarray]:
    """Stacks of matrices by what is hard about them."""
    largest, least = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    x = RNG.standard_normal((99, m, n))
    made = {
        "any": x,
        "graded": x * 10.0 ** RNG.uniform(-6, 0, (99, 1, n)),
        "of rank one": RNG.standard_normal((99, m, 1)) @ RNG.standard_normal((99, 1, n)),
        "with ties": RNG.integers(-2, 3, (99, m, n)),
        "large": x / 64 * float(largest),
        "small": x * 1000 * float(least),
        "equal": np.ones((99, m, n)),
        "zero": 0 * x,
        "diagonal": np.eye(m, n) * RNG.integers(-9, 9, (99, 1, n)),
    }
    return {name: value.astype(dtype) for name, value in made.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 4), (8, 8), (4, 2), (3, 7)])
def test_singular_values_and_eigenvalues_are_as_exact_as_lapacks(
    shape: tuple[int, int], dtype: Any
) -> None:
    eps, least = np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal
    singular, symmetric = gc.compile(np.linalg.svdvals), gc.compile(np.linalg.eigvalsh)
    for name, x in _spectra(dtype, *shape).items():
        want = np.linalg.svdvals(x.astype(np.float64))
        bound = 12 * eps * want[:, :1] + 4 * least
        assert (np.abs(singular(x) - want) <= bound).all(), name
        if shape[0] == shape[1]:
            lower = np.tril(x) + np.triu(np.full_like(x, np.nan), 1)  # is not read
            want = np.linalg.eigvalsh(np.tril(x).astype(np.float64))
            bound = 12 * eps * np.abs(want).max(-1, keepdims=True) + 4 * least
            assert (np.abs(symmetric(lower) - want) <= bound).all(), name
            if name == "diagonal":
                np.testing.assert_array_equal(symmetric(x), want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("m", "n", "rank"), [(8, 8, 7), (8, 8, 4), (6, 6, 3), (3, 3, 2), (8, 4, 2)]
)
def test_ranks_are_those_that_matrices_have(m: int, n: int, rank: int, dtype: Any) -> None:
    """The bound of a rank is a few units of the last place of the largest singular value."""
    left, right = (np.linalg.qr(RNG.standard_normal((3000, k, k)))[0][:, :, :rank] for k in (m, n))
    x = (left @ right.swapaxes(1, 2)).astype(dtype)
    assert (gc.compile(np.linalg.matrix_rank)(x) == rank).all()


def test_elements_alone_are_their_eigenvalues() -> None:
    x = np.array([np.inf, -np.inf, 2.0, *range(40)]).reshape(-1, 1, 1)
    np.testing.assert_array_equal(gc.compile(np.linalg.eigvalsh)(x), x[:, 0])


@pytest.mark.parametrize("function", [np.linalg.svdvals, np.linalg.eigvalsh])
def test_spectra_of_what_is_not_finite(function: Any) -> None:
    """NaN stops the run, an infinity leaves the other matrices as they are: both as in LAPACK."""
    x = matrices(70, 4, 4)
    x = x + x.swapaxes(-1, -2)
    want, fn = function(x), gc.compile(function)
    x[65, 2, 1] = x[65, 1, 2] = np.inf
    got = fn(x)
    assert np.isnan(got[65]).all()
    got[65] = want[65]
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    x[3, 0, 0] = np.nan
    with pytest.raises(RunError, match="does not converge"):
        fn(x)


def test_spectra_of_an_open_number_of_matrices() -> None:
    fn = gc.compile(
        lambda x: (np.linalg.svdvals(x), np.linalg.eigvalsh(x) + 1), sizes={"x": ("n", 2, 3, 3)}
    )
    for n in (40, 0, 1, 65):
        x = matrices(n, 2, 3, 3)
        values, eigenvalues = fn(x)
        np.testing.assert_allclose(values, np.linalg.svdvals(x), atol=1e-14)
        np.testing.assert_allclose(eigenvalues, np.linalg.eigvalsh(x) + 1, atol=1e-14)
