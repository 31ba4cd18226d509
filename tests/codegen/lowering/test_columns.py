"""Folds over outer axes: blocks of columns, several rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from effort import crossed, examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc import tuning
from graphc.codegen.lowering.columns import block_columns
from graphc.codegen.lowering.space import space_of
from graphc.codegen.tuning import tuned

RNG = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def in_order(x: np.ndarray) -> np.ndarray:
    """The sum over the first axis as columns add it: row after row, in f64 if these are many."""
    held = x.astype(np.float64) if len(x) > tuned.narrow_rows else x
    return np.add.accumulate(held, axis=0)[-1].astype(x.dtype)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Small operands are folded several rows at a time too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuned, "fold_small", -1)
        yield


@pytest.fixture(params=[1.0, 0.0], ids=["near", "far"])
def distance(request, monkeypatch) -> None:
    """Whether operands are taken to lie in a cache."""
    monkeypatch.setattr(tuned, "fold_large", request.param)


@examples(8)
@given(
    st.integers(1, 40) | st.integers(63, 70),
    st.integers(1, 3),
    st.sampled_from([2, 3, 8, 17, 64, 513, 1030]),
)
def test_a_sum_takes_the_rows_in_order_whatever_their_number(rows: int, outer: int, width: int):
    """Of columns that fill a vector, or of one matrix: others are folded as rows."""
    x = draw(outer if width > 3 else 1, rows, width)
    made = gc.compile(lambda x: x.sum(axis=1))(x)
    for got, given_rows in zip(made, x, strict=True):
        np.testing.assert_array_equal(got, in_order(given_rows))
    np.testing.assert_allclose(made, x.astype(np.float64).sum(axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("distance")
@pytest.mark.parametrize(
    ("name", "shape"),
    crossed(["i1", "i4", "f2", "f4", "f8", "c8", "c16"], [(8, 600), (29, 130), (3, 5)]),
)
def test_every_fold_of_every_element_type(name: str, shape: tuple[int, int]) -> None:
    x = RNG.integers(-3, 4, shape).astype(name)
    x = x * x.dtype.type(1 + 0.5j) if x.dtype.kind == "c" else x
    folds = [np.sum, np.mean, np.prod] + ([] if x.dtype.kind == "c" else [np.max, np.min])
    for fold in folds:
        if fold is np.prod:
            x = np.where(x == 0, x.dtype.type(1), x)[:9]
        made = gc.compile(lambda x, fold=fold: fold(x, axis=0))(x)
        want = fold(x, axis=0)
        np.testing.assert_allclose(made, want, rtol=2e-3 if name == "f2" else 1e-5, atol=1e-6)


@pytest.mark.usefixtures("distance")
@pytest.mark.parametrize("rows", [4, 11, 64])
def test_siblings_producers_and_full_results_share_the_passes(rows: int) -> None:
    def function(x, y, w, b):
        z = np.where(x > y, x * w[:, None] + b, np.float32(0))
        return z, z.sum(axis=0), (x * y).sum(axis=0), np.maximum(x, b).max(axis=0), y.mean(axis=0)

    arguments = draw(rows, 700), draw(rows, 700), draw(rows), draw(700)
    results = [gc.compile(function, threads=n)(*arguments) for n in (1, 2)]
    for one, two, want in zip(*results, function(*arguments), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("distance")
def test_the_largest_of_columns_with_nan_is_nan() -> None:
    x = draw(21, 40)
    x[17, 3] = x[20, 9] = np.nan
    made = gc.compile(lambda x: (x.max(axis=0), x.min(axis=0)))(x)
    np.testing.assert_array_equal(made[0], x.max(axis=0))
    np.testing.assert_array_equal(made[1], x.min(axis=0))


def test_strict_sums_equal_fast_ones() -> None:
    x = draw(37, 90)
    fast, strict = (gc.compile(lambda x: x.sum(axis=0), fast_math=f)(x) for f in (True, False))
    np.testing.assert_array_equal(fast, strict)


def test_products_of_complex_columns_keep_both_parts_apart() -> None:
    x = RNG.integers(1, 4, (5, 6)) * (1 + 0.5j)
    np.testing.assert_allclose(gc.compile(lambda x: x.prod(axis=0))(x), x.prod(axis=0))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (3, 0, 4), (1, 4)])
def test_empty_and_single_rows(shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    axis = len(shape) - 2
    made = gc.compile(lambda x: (x.sum(axis=axis), np.exp(x).sum(axis=axis)))(x)
    np.testing.assert_array_equal(made[0], x.sum(axis=axis))
    np.testing.assert_allclose(made[1], np.exp(x).sum(axis=axis), rtol=1e-6)


FOLDS = {
    "sum": lambda x: x.sum(0),
    "max": lambda x: x.max(0),
    "mean of squares": lambda x: (x * x + x[:1]).mean(0),
    "centred": lambda x: x - x.mean(0),
    "both": lambda x: (x.min(0), x.sum(0)),
    "inner": lambda x: x.reshape(2, -1, x.shape[1]).sum(1),
}


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(50, 70), (34, 64), (6, 130), (250, 20)])
def test_near_and_far_operands(name: str, threads: int, shape: tuple[int, int]) -> None:
    """Blocks of far operands are wide; both kinds are small here, and end in the midst of rows."""
    x = np.random.default_rng(3).standard_normal(shape)
    numbers = {"codegen.fold_columns": 16, "codegen.far_columns": 48}
    for far in (0, 1 << 40):
        with tuning.chosen({**numbers, "codegen.fold_far": far, "codegen.fold_small": 0}):
            found = gc.compile(FOLDS[name], threads=threads)(x)
        for got, wanted in zip(*map(in_tuple, (found, FOLDS[name](x))), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


def test_far_operands_are_folded_in_wide_blocks() -> None:
    def blocks(rows: int) -> int:
        call = gc.compile(lambda x: x.sum(0), threads=1)
        made = {name: m for name, m, *_ in call.stages(gc.spec((rows, 4096), "f32"))}["fuse"]
        (node,) = (n for n in made.graphs[0].nodes if n.op.traits.kernel)
        return block_columns(node.regions[0], space_of(node.regions[0]))

    assert blocks(64) == tuned.fold_columns
    assert blocks(tuned.fold_far // 4096) == tuned.far_columns


def in_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@examples(8)
@given(st.integers(1, 30), st.sampled_from([3, 16, 64, 130]), st.sampled_from([np.sum, np.max]))
def test_folds_of_rows_that_are_read_elsewhere(rows: int, width: int, fold: Any) -> None:
    """Gathered, sliced, turned, joined and computed of smaller operands: several rows at a time."""
    table, ids = draw(50, width), RNG.integers(-50, 50, (7, rows))
    left, right = draw(7, rows), draw(width)

    def call(table: Any, ids: Any, left: Any, right: Any) -> Any:
        turned = table[: len(table) // rows * rows].reshape(-1, rows, width).transpose(1, 0, 2)
        joined = np.concatenate([table[:rows], table[1:]])
        wide = left[:, :, None] * right
        parts = table[ids], turned, joined[None], table[None, 1::2], wide
        return [fold(part, axis=0 if part is turned else 1) for part in parts]

    made, want = gc.compile(call)(table, ids, left, right), call(table, ids, left, right)
    for got, wanted in zip(made, want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
