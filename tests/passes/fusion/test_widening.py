"""Casts that contractions make while they read: behind views, in front of views, and both."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphc as gc

RNG = np.random.default_rng(0)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x,
    "repeated": lambda x: np.repeat(x, 2, axis=1),
    "backwards": lambda x: x[:, :, ::-1],
    "turned": lambda x: x.transpose(0, 1, 3, 2),
    "rolled": lambda x: np.roll(x, 1, axis=2),
    "flattened": lambda x: x.transpose(0, 2, 1, 3).reshape(1, 1, x.shape[2], -1),
}


@pytest.mark.parametrize("dtype", ["f2", "i1"])
@pytest.mark.parametrize(("below", "above"), list(itertools.product(VIEWS, VIEWS)))
def test_operands_are_viewed_before_and_after_they_are_widened(
    below: str, above: str, dtype: str
) -> None:
    x = RNG.integers(-4, 4, (1, 2, 5, 32)).astype(dtype)
    wide = {"f2": np.float32, "i1": np.int32}[dtype]

    def squares(x: Any) -> Any:
        rows = VIEWS[above](VIEWS[below](x).astype(wide))
        return rows @ rows.transpose(0, 1, 3, 2), rows.transpose(0, 1, 3, 2) @ rows

    for made, expected in zip(gc.compile(squares)(x), squares(x), strict=True):
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("dtype", ["f2", "i1", "bf16"])
@pytest.mark.parametrize("parts", [2, 3])
def test_narrow_arrays_that_are_joined_are_widened_as_they_are_read(parts: int, dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bf16" else dtype
    wide = np.int32 if dtype == "i1" else np.float32
    arrays = [RNG.integers(-4, 4, (40, 8 * k + 8)).astype(kind) for k in range(parts)]
    w = RNG.integers(-4, 4, (sum(a.shape[1] for a in arrays), 48)).astype(kind)

    def product(w: Any, *arrays: Any) -> Any:
        rows = np.concatenate(arrays, axis=1)
        return rows.astype(wide) @ w.astype(wide), rows[:, ::-1].astype(wide) @ w.astype(wide)

    for made, expected in zip(gc.compile(product)(w, *arrays), product(w, *arrays), strict=True):
        np.testing.assert_array_equal(made, expected)
