"""Quotients and remainders of integers, which are computed as those of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import rounds

import graphc as gc


def whole(rng: np.random.Generator, dtype: Any, count: int) -> Any:
    """Numbers of every size, the ends of the type and zero among them."""
    info = np.iinfo(dtype)
    made = rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    made = made >> rng.integers(0, info.bits, count).astype(dtype)
    ends = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], dtype)
    made[rng.integers(0, count, 24)] = np.repeat(ends, 4)
    if info.min < 0:
        made[rng.integers(0, count, 8)] = -1
    return made


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_quotients_are_numpys(dtype: str) -> None:
    def call(x: Any, y: Any) -> Any:
        return x // y, x % y, np.fmod(x, y), x // seven, x % seven, seven // y, x // eight

    seven, eight = np.dtype(dtype).type(7), np.dtype(dtype).type(8)
    for seed in range(rounds(3)):
        rng = np.random.default_rng(seed)
        x, y = (whole(rng, dtype, 1003) for _ in range(2))
        y[:40] = x[:40]
        y[40:80] = x[40:80] >> x.dtype.type(1)
        with np.errstate(all="ignore"):
            wanted = call(x, y)
        for made, want in zip(gc.compile(call)(x, y), wanted, strict=True):
            np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_quotients_close_to_whole_numbers(dtype: str) -> None:
    """x is a multiple of y, or one beside it, at sizes that f64 has no room for."""
    rng = np.random.default_rng(1)
    y = rng.integers(1, 1 << 40, 2000).astype(dtype)
    top = np.iinfo(dtype).max
    x = (top // y) * y - rng.integers(0, 2, 2000).astype(dtype)

    def call(x: Any, y: Any) -> Any:
        return x // y, x % y

    for made, want in zip(gc.compile(call)(x, y), call(x, y), strict=True):
        np.testing.assert_array_equal(made, want)
