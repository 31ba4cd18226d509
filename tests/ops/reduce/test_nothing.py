"""Statistics of no elements, and what NumPy refuses of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc

CALLS: list[Callable[[Any], Any]] = [
    np.median,
    np.nanmedian,
    lambda x: np.median(x, axis=0),
    lambda x: np.median(x, axis=-1, keepdims=True),
    lambda x: np.nanmedian(x, axis=0),
    lambda x: np.nanmedian(x, axis=-1),
    lambda x: np.mean(x, axis=0),
    lambda x: np.percentile(x, [10, 50], axis=-1),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("k", range(len(CALLS)))
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nothing_is_as_numpy_has_it(k: int, shape: tuple[int, ...], dtype: str) -> None:
    x = np.zeros(shape, dtype)
    try:
        wanted = CALLS[k](x)
    except (IndexError, ValueError):
        with pytest.raises(gc.GraphError):
            gc.compile(CALLS[k])(x)
        return
    made = gc.compile(CALLS[k])(x)
    assert made.dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("bins", [0, -1])
def test_a_histogram_has_bins(bins: int) -> None:
    with pytest.raises(gc.GraphError, match="positive"):
        gc.compile(lambda x: np.histogram(x, bins))(np.ones(3))


@pytest.mark.parametrize("dtype", [np.uint32, "u4", np.int32, np.dtype("f4")])
def test_a_view_of_a_traced_value(dtype: Any) -> None:
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(gc.compile(lambda x: x.view(dtype))(x), x.view(dtype))
