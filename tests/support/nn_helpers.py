"""Arrays and comparisons for the tests of layers."""

from __future__ import annotations

import numpy as np

import graphc as gc

KEY = gc.random.key(7)
RNG = np.random.default_rng(0)


def draw(*shape, dtype=np.float32, scale=1.0):
    return (RNG.normal(size=shape) * scale).astype(dtype)


def close(got, want, tolerance=2e-6):
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def both(layer, params, x, **options):
    """The result in plain Python; the compiled one must agree."""
    made = layer(params, x, **options)
    close(gc.compile(lambda params, x: layer(params, x, **options))(params, x), made, 1e-5)
    return made
