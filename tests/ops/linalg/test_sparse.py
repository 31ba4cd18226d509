"""Sparse matrices: products, gradients, lanes, threads, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import slow

import graphc as gc


def random_matrix(rng: np.random.Generator, rows: int, columns: int, block: Any, kind: str) -> Any:
    """A matrix with empty rows, and places that come twice."""
    p, q = block
    counts = rng.integers(0, 5, rows) * rng.integers(0, 2, rows) * (columns > 0)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    indices = rng.integers(0, max(columns, 1), indptr[-1]).astype(np.int64)
    data = rng.standard_normal((indptr[-1], p, q)).astype(kind)
    shape = (rows * p, columns * q)
    if block == (1, 1) and rng.integers(2):
        return gc.sparse.csr(data[:, 0, 0], indices, indptr, shape)
    return gc.sparse.bsr(data, indices, indptr, shape)


SHAPES = [(5, 7), (1, 1), (40, 3), (0, 4), (4, 0)]


@pytest.mark.parametrize(("block", "kind"), [((2, 3), "f8"), slow((1, 1), "f4")])
def test_products_equal_those_of_the_dense_matrix(block: tuple[int, int], kind: str) -> None:
    rng = np.random.default_rng(0)
    product = gc.compile(lambda a, x, y: (a @ x, a.T @ y, y.T @ a), threads=2)
    for (rows, columns), width in zip(SHAPES, (1, 4, 33, 2, 2), strict=True):
        a = random_matrix(rng, rows, columns, block, kind)
        dense = a.todense()
        assert (dense.shape, dense.dtype) == (a.shape, np.dtype(kind))
        x, y = (rng.standard_normal((n, width)).astype(kind) for n in a.shape[::-1])
        for found in (product(a, x, y), (a @ x, a.T @ y, y.T @ a)):
            for one, want in zip(found, (dense @ x, dense.T @ y, y.T @ dense), strict=True):
                np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(a @ x[:, 0], dense @ x[:, 0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(y[:, 0] @ a, y[:, 0] @ dense, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_equal_those_of_the_dense_matrix(turned: bool) -> None:
    rng = np.random.default_rng(1)
    a = random_matrix(rng, 6, 5, (1, 1), "f8")
    values = np.reshape(a.data, -1)
    rows = np.repeat(np.arange(6), np.diff(a.indptr))

    def product(data: Any, x: Any) -> Any:
        made = gc.sparse.csr(data, a.indices, a.indptr, (6, 5))
        return np.sin((made.T if turned else made) @ x).sum()

    def dense(data: Any, x: Any) -> Any:
        made = np.zeros((6, 5)) + 0 * data.sum()
        np.add.at(made, (rows, a.indices), data)
        return np.sin((made.T if turned else made) @ x).sum()

    x = rng.standard_normal((6 if turned else 5, 3))
    found, wanted = (gc.compile(gc.grad(f, wrt=(0, 1)))(values, x) for f in (product, dense))
    for one, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-9, atol=1e-12)


def test_many_dense_matrices_are_one_product() -> None:
    rng = np.random.default_rng(2)
    a = random_matrix(rng, 8, 6, (1, 1), "f4")
    stack = rng.standard_normal((3, 6, 2)).astype("f4")
    many = gc.compile(gc.vmap(lambda x: a @ x))
    np.testing.assert_allclose(many(stack), a.todense() @ stack, rtol=1e-4, atol=1e-5)
    assert [n.op.name for n in many.graph(stack).nodes].count("scan") == 0


def test_a_matrix_of_scipy_is_taken() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(8, 12, 0.3, format="coo", random_state=0)
    x = np.arange(12.0)
    for made in (gc.sparse.csr(matrix), gc.sparse.bsr(matrix)):
        np.testing.assert_allclose(gc.compile(lambda a, x: a @ x)(made, x), matrix @ x)


WRONG = [
    ([0, 5], [0, 1, 2]),
    ([0, -1], [0, 1, 2]),
    ([0, 1], [0, 2, 1]),
    ([0, 1], [1, 1, 2]),
    ([0, 1], [0, 1, 1]),
    ([0, 1], [0, 9, 2]),
    ([0, 1 << 60], [0, 1, 2]),  # far from anything that could be read
]


@pytest.mark.parametrize(("width", "turned"), [(1, False), (2, False), (20, False), (2, True)])
def test_places_that_are_wrong_stop_the_run(width: int, turned: bool) -> None:
    def product(indices: Any, indptr: Any, x: Any) -> Any:
        a = gc.sparse.csr(np.ones(2), indices, indptr, (2, 3))
        return a.T @ x[:2] if turned else a @ x

    compiled = gc.compile(product)
    for indices, indptr in WRONG:
        arguments = np.array(indices), np.array(indptr), np.ones((3, width))
        for function in (compiled, product):
            with pytest.raises(gc.GraphError, match="rises"):
                function(*arguments)


def test_what_is_no_matrix_is_refused() -> None:
    good = (np.ones(2), np.array([0, 1]), np.array([0, 1, 2]), (2, 3))
    bad = [
        ((np.ones((2, 1)), *good[1:]), "of 1 axes"),
        ((np.ones(3), *good[1:]), "3 blocks"),
        ((*good[:2], np.array([0, 2]), (2, 3)), "indptr"),
        ((np.ones(2, "i4"), *good[1:]), "f32 or f64"),
        *(((*good[:3], shape), "shape") for shape in (None, 5, (2.0, 3), "ab", (2, -3))),
        (([[1.0]],), "SciPy"),
    ]
    for arguments, message in bad:
        with pytest.raises(gc.GraphError, match=message):
            gc.sparse.csr(*arguments)
    a = gc.sparse.csr(*good)
    with pytest.raises(gc.GraphError, match="takes x"):
        a @ np.ones(2)
    with pytest.raises(gc.GraphError, match="todense"):
        np.asarray(a)


@pytest.mark.parametrize("width", [0, 1])
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0), (0, 0)])
def test_products_with_nothing_have_the_shape_of_a_product(shape, width):
    a = gc.sparse.csr(np.zeros(0), np.zeros(0, int), np.zeros(shape[0] + 1, int), shape)
    x = np.ones((shape[1], width))
    for product in (lambda a, x: a @ x, gc.compile(lambda a, x: a @ x)):
        np.testing.assert_array_equal(product(a, x), np.zeros((shape[0], width)))
