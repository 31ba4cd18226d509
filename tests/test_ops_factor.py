"""Factorisations and what is computed with them, compiled, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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
    same(gc.compile(lambda *v: function(*v))(*arrays), tuple(function(*arrays))
         if function is np.linalg.slogdet else function(*arrays), 1e-9)  # fmt: skip


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [4, 33, 330])
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
