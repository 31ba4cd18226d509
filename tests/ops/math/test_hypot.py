"""Lengths of two sides, at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 38), (np.float64, 308)])
def test_lengths_at_every_size(dtype: Any, most: int) -> None:
    """Two units in the last place off at most, also where squares overflow or vanish."""
    rng = np.random.default_rng(2)
    sizes = rng.uniform(-1.15 * most, most, 4000)
    x = (rng.standard_normal(4000) * 10.0**sizes).astype(dtype)
    y = (rng.standard_normal(4000) * 10.0 ** (sizes + rng.uniform(-3, 3, 4000))).astype(dtype)
    x[::7], y[::11] = 0, 0
    with np.errstate(all="ignore"):
        made = gc.compile(np.hypot)(x, y)
        exact = np.hypot(x.astype(np.longdouble), y.astype(np.longdouble))
        want = exact.astype(dtype)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(finite, np.isfinite(made))
    off = np.abs(made.astype(np.longdouble) - exact)[finite]
    assert (off <= 2 * np.spacing(np.abs(want[finite])).astype(np.longdouble)).all()
    pair = (x + 1j * y).astype(np.result_type(dtype, np.complex64))
    np.testing.assert_array_equal(gc.compile(np.abs)(pair)[finite], made[finite])


def test_infinities_and_nan() -> None:
    ends = np.array([np.inf, -np.inf, np.nan, 0.0, 1.0], np.float32)
    x, y = (part.reshape(-1) for part in np.meshgrid(ends, ends))
    np.testing.assert_array_equal(gc.compile(np.hypot)(x, y), np.hypot(x, y))
