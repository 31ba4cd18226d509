"""Stacks of small products: columns in lanes, whatever views, epilogues and sizes meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import rounds

import graphc as gc
from graphc.codegen.contract_specs import stacked
from graphc.codegen.llvm.target import host
from graphc.config import Config

RNG = np.random.default_rng(1)


def arrays(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


def small_of(fn: Any, *args: Any) -> list[Any]:
    """For each kernel of a product how a product of its stack is computed, or None."""
    graph = {name: made for name, made, *_ in fn.stages(*args)}["fuse"]
    regions = [n.regions[0] for g in graph.graphs for n in g.nodes if n.op.traits.kernel]
    products = (r for r in regions if any(n.op.name in ("matmul", "einsum") for n in r.nodes))
    return [stacked(region, Config.create()) for region in products]


def close(fn: Any, *args: Any, **options: Any) -> Any:
    compiled = gc.compile(fn, **options)
    wanted = fn(*(a.astype(np.float64) for a in args))
    bound = 1e-5 if args[0].dtype == np.float32 else 1e-13
    np.testing.assert_allclose(compiled(*args), wanted, rtol=bound, atol=20 * bound)
    return compiled


SHAPES = [
    ((100, 8, 8), (100, 8, 8)),
    ((65, 4, 16), (65, 16, 8)),
    ((70, 32, 3), (70, 3, 8)),
    ((3, 70, 11, 5), (3, 70, 5, 4)),
    ((3, 70, 11, 5), (1, 70, 5, 8)),
    ((70, 17, 16), (16, 8)),
    ((1, 16, 8), (70, 8, 4)),
    ((700, 1, 16), (700, 16, 8)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_what_follows(left: tuple, right: tuple, dtype: Any) -> None:
    x, y = arrays(left, right, dtype=dtype)
    close(lambda x, y: x @ y, x, y, threads=1)
    close(lambda x, y: np.maximum(x @ y + y[..., :1, :], 0) * 2, x, y, threads=2)


def test_any_small_sizes() -> None:
    for _ in range(rounds(12)):
        count, m, k, n = (int(RNG.integers(low, high)) for low, high in ((64, 90), *[(1, 34)] * 3))
        x, y = arrays((count, m, k), (count, k, n), dtype=RNG.choice([np.float32, np.float64]))
        close(lambda x, y: x @ y, x, y)


def test_which_products_are_small() -> None:
    lanes = host().lanes(4)
    fn = gc.compile(lambda x, y: x @ y)
    for left, right, tile_rows in (
        ((64, 8, 8), (64, 8, lanes), 8),
        ((64, 20, 16), (64, 16, lanes), 7),
        ((63, 8, 8), (63, 8, lanes), None),  # few
        ((64, 8, 17), (64, 17, lanes), None),  # long sums
        ((64, 8, 8), (64, 8, lanes + 4), None),  # wide
        ((64, 33, 8), (64, 8, lanes), None),  # high
    ):
        (small,) = small_of(fn, *arrays(left, right))
        assert (small and small.tile_rows) == tile_rows


def test_operands_as_they_lie() -> None:
    x, y = arrays((80, 6, 10), (80, 10, 8))
    cases = [
        (lambda x, y: x[:, ::2, 1:9] @ y[:, 1:9], True),
        (lambda x, y: x.transpose(0, 2, 1) @ y[:, :6], True),
        (lambda x, y: np.einsum("bik,bkj->bij", x, y), True),
        (lambda x, y: (x[::-1] @ y[:, ::-1])[3:], False),
        (lambda x, y: x @ y[:, :, ::2], False),  # columns lie apart
        (lambda x, y: x @ x.transpose(0, 2, 1), False),
        (lambda x, y: (x @ y).transpose(0, 2, 1), False),
        (lambda x, y: np.exp(x) @ (y * 2), False),
        (lambda x, y: (x @ y).sum(axis=1), False),
    ]
    for case, is_small in cases:
        compiled = close(case, x, y)
        if is_small:
            assert all(small_of(compiled, x, y))


def test_not_finite_products_stay_apart() -> None:
    x, y = arrays((100, 8, 8), (100, 8, 8))
    x[17], y[33, 2, 3] = np.nan, np.inf
    got = gc.compile(lambda x, y: x @ y)(x, y)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(x @ y))
    with pytest.raises(gc.GraphError):
        gc.compile(lambda x, y: x @ y, check_finite=True)(x, y)


def test_orders_that_are_promised_stay_the_core_s() -> None:
    x, y = arrays((100, 8, 8), (100, 8, 8))
    for options in ({"fast_math": False}, {"parity": True}):
        close(lambda x, y: x @ y, x, y, **options)


def test_gradients_and_open_counts() -> None:
    x, y = arrays((100, 6, 5), (100, 5, 8))
    loss = gc.compile(gc.grad(lambda x, y: (np.tanh(x @ y) ** 2).sum(), (0, 1)))
    step = 1 - np.tanh(x @ y) ** 2
    to = 2 * np.tanh(x @ y) * step
    for got, wanted in zip(loss(x, y), (to @ y.transpose(0, 2, 1), x.transpose(0, 2, 1) @ to)):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    fn = gc.compile(lambda x, y: x @ y, sizes={"x": ("n", 6, 5), "y": ("n", 5, 8)})
    for n in (0, 1, 63, 64, 1000):
        x, y = arrays((n, 6, 5), (n, 5, 8))
        np.testing.assert_allclose(fn(x, y), x @ y, rtol=1e-4, atol=1e-5)
