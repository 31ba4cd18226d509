"""Distances of rows to support vectors, for any number of features."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.formats.onnx.operators import support_vectors


@pytest.mark.parametrize("width", [1, 3, support_vectors._WIDEST, support_vectors._WIDEST + 1, 70])
def test_distances_do_not_cancel(width: int) -> None:
    """Far from 0, where x.x - 2 x.v + v.v would have no digits left."""
    rng = np.random.default_rng(width)
    x, vectors = (1000 + rng.standard_normal((n, width)).astype(np.float32) for n in (7, 21))
    wide = x.astype(np.float64)[:, None] - vectors.astype(np.float64)
    model = gc.compile(lambda x: support_vectors._squares(x, vectors), sizes={"x": ("n", width)})
    for rows in (7, 1):
        np.testing.assert_allclose(model(x[:rows]), (wide[:rows] ** 2).sum(2), rtol=1e-5)
