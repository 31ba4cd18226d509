"""Arrays and comparisons for the tests of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import graphc as gc

KEY = gc.random.key(7)
RNG = np.random.default_rng(0)


def draw(*shape: int, dtype: DTypeLike = np.float32, scale: float = 1.0) -> np.ndarray:
    return (RNG.normal(size=shape) * scale).astype(dtype)


def close(got: Any, want: Any, tolerance: float = 2e-6) -> None:
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def both(layer: Callable[..., Any], params: Any, x: Any, **options: Any) -> Any:
    """The result in plain Python; the compiled one must agree."""
    made = layer(params, x, **options)
    close(gc.compile(lambda params, x: layer(params, x, **options))(params, x), made, 1e-5)
    return made
