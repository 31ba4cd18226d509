"""Pooling over windows side by side: rewritten to loops over planes, forwards and backwards."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.ir.graph import Graph

RNG = np.random.default_rng(11)


def draw(*shape: int, dtype: str = "f4") -> np.ndarray:
    """Few different numbers: windows have ties."""
    return RNG.integers(-2, 3, shape).astype(dtype)


def ops(function, *arguments, **options) -> list[str]:
    stages = gc.compile(function, **options).stages(*arguments)
    graph = next(s[1] for s in stages if s[0] == "dce")
    assert isinstance(graph, Graph)
    return [n.op.name for n in graph.nodes]


def gradient_of(pool, window):
    def loss(x, weights):
        return (pool(x, window) * weights).sum()

    return gc.grad(loss)


@pytest.mark.parametrize("window", [2, (1, 3), (3, 2), (4, 1)])
@pytest.mark.parametrize("name", ["max_pool", "min_pool", "avg_pool"])
def test_tiles_agree_with_windows_one_by_one(name: str, window) -> None:
    x = draw(3, 2, 12, 12)
    pool = getattr(gc, name)
    function = lambda x: pool(x, window)
    assert "tile_pool" in ops(function, x)
    plain = gc.compile(function, opt=0)(x)
    np.testing.assert_allclose(gc.compile(function, threads=2)(x), plain, rtol=1e-6, atol=1e-6)
    gradient, weights = gradient_of(pool, window), draw(*plain.shape)
    want = gc.compile(gradient, opt=0)(x, weights)
    np.testing.assert_allclose(gc.compile(gradient)(x, weights), want, rtol=1e-6, atol=1e-6)


def test_the_gradient_needs_no_stored_places() -> None:
    x, weights = draw(2, 3, 8, 8), draw(2, 3, 4, 4)
    names = ops(gradient_of(gc.max_pool, 2), x, weights)
    assert "tile_choose" in names
    assert not {"spread", "pool_choice"} & set(names)


@pytest.mark.parametrize("name", ["max_pool", "min_pool"])
def test_a_nan_wins_and_the_first_of_equal_ones(name: str) -> None:
    x = np.array([[[[1, np.nan, 5, 5], [np.nan, 9, 5, 5]]]], np.float32)
    pool, weights = getattr(gc, name), np.array([[[[2, 3]]]], np.float32)
    np.testing.assert_array_equal(gc.compile(lambda x: pool(x, 2))(x), [[[[np.nan, 5]]]])
    made = gc.compile(gradient_of(pool, 2))(x, weights)
    np.testing.assert_array_equal(made, [[[[0, 2, 3, 0], [0, 0, 0, 0]]]])


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_other_floats_keep_their_type(dtype: str) -> None:
    x = draw(2, 2, 6, 6, dtype=dtype)
    weights = draw(2, 2, 3, 3, dtype=dtype)
    made = gc.compile(gradient_of(gc.max_pool, 2))(x, weights)
    assert made.dtype == x.dtype
    np.testing.assert_array_equal(made, gc.compile(gradient_of(gc.max_pool, 2), opt=0)(x, weights))


def test_other_windows_and_strict_sums_stay_as_they_are() -> None:
    x = draw(2, 2, 9, 9)
    assert "tile_pool" in ops(lambda x: gc.max_pool(x, 2), x)  # 9 is odd: the rest is left out
    assert "tile_choose" not in ops(gradient_of(gc.max_pool, 2), x, np.ones((2, 2, 4, 4), "f4"))
    assert "pool" in ops(lambda x: gc.max_pool(x, 3, stride=1), x)  # overlapping
    assert "pool" in ops(lambda x: gc.avg_pool(x, 3), x, fast_math=False)
    assert "tile_pool" in ops(lambda x: gc.max_pool(x, 3), x, fast_math=False)
    assert "pool" in ops(lambda x: gc.max_pool(x, 2), draw(1, 1, 4, 512))  # rows are long enough


@pytest.mark.parametrize("stride", [1, 2, (3, 1)])
@pytest.mark.parametrize("name", ["max_pool", "min_pool", "avg_pool"])
def test_windows_of_one_element_are_no_pools(name: str, stride) -> None:
    pool, x = getattr(gc, name), draw(2, 3, 7, 5)
    function = lambda x: pool(x, 1, stride=stride) + 1
    assert "pool" not in ops(function, x)
    gradient = gc.grad(lambda x: function(x).sum())
    for each in (function, gradient):
        np.testing.assert_array_equal(gc.compile(each)(x), gc.compile(each, opt=0)(x))


def test_products_of_16_bits_read_pools_of_one_element() -> None:
    """An average to as many pixels as there are, which exports of VGG hold."""
    w, v = draw(16, 16, 3, 3), draw(16 * 49, 64)

    def network(x):
        x = gc.max_pool(np.maximum(gc.conv(x, w, padding=1), 0), 2)
        return gc.avg_pool(x, 1, stride=1).reshape(1, -1) @ v

    x = draw(1, 16, 14, 14)
    made = gc.compile(network, precision="bf16", target="cpu:znver4").stages(x)
    assert made[-1][0] == "plan"
    wanted = gc.compile(network)(x)
    np.testing.assert_allclose(gc.compile(network, precision="bf16")(x), wanted, 1e-2, 5)
