"""Groups that read across the grain: tiles turned in registers, of any shape and type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc

RNG = np.random.default_rng(0)


def array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "?", "f2", "i8"])
@pytest.mark.parametrize(
    ("shape", "perm"),
    [
        ((40, 33), (1, 0)),
        ((8, 100), (1, 0)),
        ((300, 18), (1, 0)),
        ((2, 17, 50), (0, 2, 1)),
        ((3, 20, 5, 30), (3, 0, 1, 2)),
        ((16, 5, 31), (2, 1, 0)),
        ((701, 2), (1, 0)),
        ((2, 37, 11, 3), (0, 3, 1, 2)),
        ((259, 5), (1, 0)),
        ((3, 131, 7), (2, 0, 1)),
        ((0, 20, 30), (0, 2, 1)),
    ],
)
def test_transposes(shape: tuple, perm: tuple, dtype: str) -> None:
    x = array(shape, dtype)
    fn = gc.compile(lambda x: np.transpose(x, perm).copy(order="C"), threads=1 + len(shape) % 2)
    np.testing.assert_array_equal(fn(x), np.transpose(x, perm))


def test_what_is_computed_on_the_way() -> None:
    x, y = array((70, 45), "f4"), array((45, 70), "f4")
    cases: list[Any] = [
        lambda x, y: x.T + y,
        lambda x, y: np.exp(-(x.T / 50)) * y,
        lambda x, y: np.where(y < x.T, x.T * 2, y) - 1,
        lambda x, y: (x.T[1:40] + y[1:40], y[1:40] * 2),
        lambda x, y: x.T[::-1, 3:] - y[:, 3:],
        lambda x, y: x.T[:, ::2] + y[:, 1::2],
        lambda x, y: np.maximum(x[:, :20].T, x[:, 20:40].T),
    ]
    for case in cases:
        for got, want in zip(np.atleast_3d(gc.compile(case)(x, y)), np.atleast_3d(case(x, y))):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_few_columns_of_long_rows() -> None:
    x = array((519, 30), "f4")
    cases: list[Any] = [
        lambda x: x[:, 3:5].T * 2,
        lambda x: x[:, ::7].T - x[:, 1:6].T,
        lambda x: np.exp(x[:, :3].T / 100) + np.sqrt(x[::-1, 3:6].T),
        lambda x: x.reshape(519, 10, 3).transpose(2, 0, 1).astype(np.float64),
    ]
    for case in cases:
        np.testing.assert_allclose(gc.compile(case)(x), case(x), rtol=1e-6)


def test_a_result_in_the_memory_of_an_operand() -> None:
    x, y = array((70, 45), "f4"), array((45, 70), "f4")
    want = x.T * 3 - y
    np.testing.assert_array_equal(gc.compile(lambda x, y: x.T * 3 - y, donate=["y"])(x, y), want)
    square = array((50, 50), "f4")
    want = square.T - square
    np.testing.assert_array_equal(gc.compile(lambda x: x.T - x, donate=["x"])(square), want)


def test_open_sizes() -> None:
    fn = gc.compile(lambda x: x.T + 1, sizes={"x": ("n", 40)})
    for n in (0, 1, 15, 40, 300):
        x = array((n, 40), "f4")
        np.testing.assert_array_equal(fn(x), x.T + 1)
    narrow = gc.compile(lambda x: x.T + 1, sizes={"x": ("n", 3)})
    for n in (0, 1, 15, 300):
        x = array((n, 3), "f4")
        np.testing.assert_array_equal(narrow(x), x.T + 1)
