"""Folds over pairs of rows: every size, operand and fold against NumPy in doubles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.lowering.row_pairs import pairs_rows
from graphc.codegen.lowering.space import space_of

RNG = np.random.default_rng(0)


def distances(x, y):
    return np.sqrt(np.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1))


def scaled(x, y):
    """What follows reads the totals and numbers of either row; the second operand is computed."""
    gaps = np.abs(x[:, None, :] - (y * 2)[None, :, :] + x[0])
    return gaps.sum(-1) * x[:, :1] + y[:, 0]


def kernels(x, y):
    """Two folds of other values."""
    products = x[None, :, :] * y[:, None, :]
    return products.sum(-1) - np.abs(y[:, None, :] + x[None]).sum(-1)


FOLDS = {
    "distances": distances,
    "scaled": scaled,
    "kernels": kernels,
    "largest": lambda x, y: np.max(np.abs(x[:, None, :] - y), axis=-1),
    "smallest": lambda x, y: np.min(x[:, None, :] + y, axis=-1),
    "batch": lambda x, y: np.sum(np.abs(x[:, None, None, :] - y), axis=-1),
}
SIZES = [(16, 16, 16), (17, 33, 19), (21, 100, 64), (70, 65, 300), (300, 47, 16), (16, 129, 31)]


def is_paired(fn: Any, *args: Any) -> bool:
    graph = {name: made for name, made, *_ in fn.stages(*args)}["fuse"]
    regions = [n.regions[0] for g in graph.graphs for n in g.nodes if n.op.traits.kernel]
    return any(pairs_rows(region, space_of(region)) for region in regions)


@pytest.mark.slow
@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_folds_of_all_pairs(fold: str, dtype: Any) -> None:
    for number in RNG.choice(len(SIZES), 2, replace=False):
        down, right, inner = SIZES[number]
        x, y = (RNG.standard_normal((n, inner)).astype(dtype) for n in (down, right))
        fn = gc.compile(FOLDS[fold], threads=1 + int(number) % 2)
        expected = FOLDS[fold](x.astype("f8"), y.astype("f8"))
        made = fn(x, y)
        rough = np.finfo(dtype).eps * 4 * inner**0.5
        np.testing.assert_allclose(made, expected, rtol=rough, atol=rough * np.abs(expected).max())
        assert is_paired(fn, x, y)


def test_numbers_that_are_none() -> None:
    x, y = RNG.standard_normal((2, 40, 32)).astype("f4")
    x[3, 5], y[9, 31], y[39, 0] = np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = distances(x, y)
    np.testing.assert_allclose(gc.compile(distances)(x, y), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 40, 32), (40, 3, 32), (40, 40, 4), (0, 40, 32), (40, 40, 0)])
def test_few_rows_or_short_ones_are_folded_as_before(shape: tuple[int, ...]) -> None:
    x, y = (RNG.standard_normal((n, shape[2])).astype("f4") for n in shape[:2])
    fn = gc.compile(distances)
    assert not is_paired(fn, x, y)
    np.testing.assert_allclose(fn(x, y), distances(x, y), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [(18, 65, 16), (300, 47, 16), (32, 64, 16)])
def test_results_do_not_lie_where_pairs_computed_twice_read(
    size: tuple[int, int, int], threads: int
) -> None:
    down, right, inner = size
    x, y = (RNG.standard_normal((n, inner)) for n in (down, right))
    total = RNG.standard_normal((down, right))
    expected = total * 2 + distances(x, y)
    fn = gc.compile(lambda t, x, y: t * 2 + distances(x, y), donate=("t",), threads=threads)
    np.testing.assert_allclose(fn(total.copy(), x, y), expected)
    held = gc.Variable(total, name=f"total_{down}_{threads}")

    @gc.compile(threads=threads)
    def step(x, y):
        held.assign(held.value * 2 + distances(x, y))

    step(x, y)
    np.testing.assert_allclose(held.value, expected)
