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
