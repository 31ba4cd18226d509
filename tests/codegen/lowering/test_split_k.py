"""Products of one row, or of few sums, that are made in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.kernels import spec_of
from graphc.codegen.spec import Spec
from graphc.config import Config
from graphc.ir.graph import Graph

RNG = np.random.default_rng(11)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def specs(function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Spec]:
    stages = {s[0]: s[1] for s in gc.compile(function, **options).stages(*arguments)}
    graph = stages["add_workspace"]
    graph = graph if isinstance(graph, Graph) else graph.graphs[0]
    config = Config.create(**options)
    return [spec_of(n, config) for n in graph.nodes if n.op.name == "fused"]


def layer(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w + b, 0)


@pytest.mark.parametrize(("k", "n"), [(512, 256), (784, 512), (4096, 33), (130 * 64, 77)])
def test_parts_add_up_in_one_order_whatever_the_threads(k: int, n: int) -> None:
    x, w, b = draw(1, k), draw(k, n), draw(n)
    expected = layer(*(a.astype(np.float64) for a in (x, w, b)))
    made = [gc.compile(layer, threads=t)(x, w, b) for t in (1, 2, 3)]
    np.testing.assert_allclose(made[0], expected, rtol=1e-4, atol=1e-3)
    for other in made[1:]:
        np.testing.assert_array_equal(other, made[0])
    (spec,) = specs(layer, x, w, b)
    assert spec.then is not None and spec.units > 1


def test_vectors_transposes_and_several_results() -> None:
    x, w, b = draw(1024), draw(1024, 160), draw(160)

    def function(x: Any, w: Any, b: Any) -> Any:
        sums = w.T @ x
        return sums, np.tanh(sums) * b, (x[None] @ w).T + b[:, None]

    made = gc.compile(function)(x, w, b)
    products = [s for s in specs(function, x, w, b) if s.kind == "contract"]
    assert products and all(s.then is not None for s in products)
    for got, want in zip(made, function(x, w, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)


def test_a_step_of_descent_overwrites_what_the_sums_are_added_to() -> None:
    x, w, y = draw(1, 1024), draw(1024, 128), draw(1, 128)

    def function(x: Any, w: Any, y: Any) -> Any:
        return y - 0.1 * (x @ w)

    expected = function(x, w, y)
    made = gc.compile(function, donate=("y",))(x, w, y.copy())
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("k", "n", "options"),
    [(64, 64, {}), (1021, 512, {}), (1024, 512, {"fast_math": False}), (64, 8192, {})],
)
def test_small_prime_short_and_ordered_sums_are_made_at_once(
    k: int, n: int, options: dict[str, Any]
) -> None:
    assert [s.then for s in specs(layer, draw(1, k), draw(k, n), draw(n), **options)] == [None]


def test_slices_of_a_larger_array_are_read_where_they_begin() -> None:
    x, w = draw(2, 1024), draw(2, 1024, 160)

    def function(x: Any, w: Any) -> Any:
        return x[0] @ w[0], x[1] @ w[1]

    for got, want in zip(gc.compile(function)(x, w), function(x, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)


FEW = {
    "rows": lambda x, w, b: np.maximum(x @ w + b, 0),
    "columns of the first": lambda x, w, b: np.tanh(x.T.copy().T @ w) * b,
    "result across": lambda x, w, b: (x @ w).T * 2 + b[:, None],
    "several results": lambda x, w, b: (x @ w, (x @ w + b).sum(axis=1), np.tanh(x @ w)),
    "greatest of a row": lambda x, w, b: x @ w - (x @ w).max(axis=1, keepdims=True),
}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize(("m", "k", "n"), [(4, 33_000, 4), (2, 9_000, 200), (100, 4000, 60)])
def test_few_sums_add_up_in_one_order_whatever_the_threads(
    name: str, m: int, k: int, n: int
) -> None:
    x, w, b = draw(m, k), draw(k, n), draw(n)
    expected = FEW[name](*(a.astype(np.float64) for a in (x, w, b)))
    one, two = (gc.compile(FEW[name], threads=t)(x, w, b) for t in (1, 2))
    for got, other, want in zip(*map(listed, (one, two, expected)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)
        np.testing.assert_array_equal(got, other)


def listed(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("turned", [False, True])
def test_few_sums_of_long_columns_are_parts(turned: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        return (x.T if turned else x) @ w

    x = draw(30_000, 7) if turned else draw(7, 30_000)
    (spec,) = specs(function, x, draw(30_000, 5))
    assert spec.then is not None and spec.then.units == 7 and spec.units > 1


def test_sums_of_some_rows_and_few_columns_are_parts() -> None:
    (spec,) = specs(lambda x, w: x @ w, draw(100, 4096), draw(4096, 60))
    assert spec.then is not None and spec.units > 1


def test_many_sums_and_batches_are_made_at_once() -> None:
    wide, high = (draw(64, 4096), draw(4096, 96)), (draw(160, 4096), draw(4096, 48))
    for x, w in (wide, high, (draw(3, 4, 30_000), draw(3, 30_000, 4))):
        assert [s.then for s in specs(lambda x, w: x @ w, x, w)] == [None]
