"""Budgets: what a program needs is known before any kernel of it is compiled."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.errors import LimitError

X = np.ones((64, 64), np.float32)
NBYTES = X.nbytes


def model(x: np.ndarray) -> np.ndarray:
    wide = np.sort(x @ x, axis=1)
    return np.tanh(wide @ x) @ x


def needed() -> int:
    image = gc.compile(model, threads=1).executable(X).image
    return image.arena_bytes + sum(slot.nbytes for slot in image.results)


def test_memory_limit_is_exact() -> None:
    bytes_needed = needed()
    assert bytes_needed >= 3 * NBYTES
    np.testing.assert_allclose(
        gc.compile(model, threads=1, memory_limit=bytes_needed)(X), model(X), rtol=1e-4
    )
    with pytest.raises(LimitError, match=f"needs {bytes_needed} bytes"):
        gc.compile(model, threads=1, memory_limit=bytes_needed - 1)(X)


def test_memory_limit_names_what_is_largest_and_its_line() -> None:
    with pytest.raises(LimitError) as caught:
        gc.compile(model, threads=1, memory_limit=NBYTES)(X)
    first, *values = str(caught.value).split("\n")
    assert f"memory_limit is {NBYTES}" in first
    sizes = [int(line.split()[0]) for line in values]
    assert sizes == sorted(sizes, reverse=True)
    assert 1 <= len(sizes) <= 5
    assert sizes[0] >= NBYTES
    assert all("test_limits.py:" in line for line in values)
