"""Products of many rows by little: a row in each lane, whatever views, epilogues and sizes meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.lowering.row_products import inner_axes

RNG = np.random.default_rng(0)
SHAPES = [
    ((1000, 4), (4, 4)),
    ((999, 3), (3, 16)),
    ((70, 8), (8, 8)),
    ((2, 129, 5), (5, 7)),
    ((100, 3, 3), (100, 3, 3)),
    ((65, 8, 8), (65, 8, 1)),
    ((3, 64, 2, 4), (3, 1, 4, 2)),
    ((100, 1), (1, 20)),
    ((100, 0), (0, 4)),
    ((100, 4), (4, 0)),
    ((0, 100, 4), (4, 4)),
]


def arrays(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


def kernels_of(fn: Any, *args: Any) -> list[bool]:
    """For each kernel of a product whether it has a row in each lane."""
    graph = {name: made for name, made, *_ in fn.stages(*args)}["fuse"]
    regions = [n.regions[0] for g in graph.graphs for n in g.nodes if n.op.traits.kernel]
    return [
        inner_axes(region) is not None
        for region in regions
        if any(n.op.name in ("matmul", "einsum") for n in region.nodes)
    ]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_what_follows(left: tuple, right: tuple, dtype: Any) -> None:
    x, y = arrays(left, right, dtype=dtype)

    def model(x, y):
        return np.maximum(x @ y + 1, 0) * 2

    fn = gc.compile(model, threads=1 + (len(left) == 2))
    np.testing.assert_allclose(fn(x, y), model(x, y), rtol=1e-4, atol=1e-5)
    if x.shape[-1] > 1 and model(x, y).size:
        assert all(kernels_of(fn, x, y))


def test_long_sums_by_a_vector_are_the_cores() -> None:
    """A row of one result would be as long a text as its sum; matrices by few columns stay."""

    product = gc.compile(lambda x, y: x @ y)
    for (rows, steps), is_written in {(192, 48): False, (96, 17): False, (96, 16): True}.items():
        x, y = arrays((rows, steps), (steps,))
        assert kernels_of(product, x, y) == [is_written]
        np.testing.assert_allclose(product(x, y), x @ y, rtol=1e-4, atol=1e-5)
    assert kernels_of(product, *arrays((1000, 17), (17, 2))) == [True]


def test_operands_as_they_lie() -> None:
    x, y = arrays((6, 200), (4, 12))
    cases = [
        (lambda x, y: x[1:5].T @ y[:, ::3], (x, y)),
        (lambda x, y: np.exp(x.T[:, :4]) @ (y[:, :5] * 2), (x, y)),
        (lambda x, y: (x.T[::2, 1:5] @ y).T, (x, y)),
        (lambda x, y: np.einsum("ab,cb->ca", x.T, y[:, :6]), (x, y)),
        (lambda x, y: (x.T[:, :4] @ y).sum(axis=1), (x, y)),
        (lambda x, y: x.T[:, :4] @ y[:, :4] + x.T[:, 2:6], (x, y)),
    ]
    for case, given in cases:
        got = gc.compile(case)(*given)
        np.testing.assert_allclose(got, case(*given), rtol=1e-4, atol=1e-5)


def test_open_and_empty_sizes() -> None:
    fn = gc.compile(lambda x, w: x @ w - 1, sizes={"x": ("n", 4)})
    for n in (0, 1, 15, 16, 100, 4096, 5003):
        x, w = arrays((n, 4), (4, 6))
        np.testing.assert_allclose(fn(x, w), x @ w - 1, rtol=1e-4, atol=1e-5)
    assert fn.compiles is None or len(fn.compiles) <= 2


def test_not_finite_rows_stay_apart() -> None:
    x, w = arrays((100, 4), (4, 4))
    x[17], x[33, 2] = np.nan, np.inf
    np.testing.assert_array_equal(np.isnan(gc.compile(lambda x, w: x @ w)(x, w)), np.isnan(x @ w))
    with pytest.raises(gc.GraphError):
        gc.compile(lambda x, w: x @ w, check_finite=True)(x, w)


def test_orders_that_are_promised_stay_the_core_s() -> None:
    x, w = arrays((100, 4), (4, 4))
    for options in ({"fast_math": False}, {"parity": True}):
        np.testing.assert_allclose(
            gc.compile(lambda x, w: x @ w, **options)(x, w), x @ w, rtol=1e-4
        )
