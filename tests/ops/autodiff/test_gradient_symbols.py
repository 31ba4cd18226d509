"""Gradients of graphs whose sizes are not known yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.config import Config
from graphc.ir.specialise import specialise
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.gradient import gradient


@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_of_a_mean_over_sizes_that_come_later(axis: Any, element: str) -> None:
    def loss(x: Any) -> Any:
        return (x.mean(axis=axis) ** 2).sum()

    graph = gc.compile(gc.grad(loss)).graph(gc.spec(("n", 3), element))
    expanded = gradient(graph, Config.create())
    for n in (1, 4, 700):
        x = np.asarray(
            np.random.default_rng(n).normal(size=(n, 3)), gc.spec((), element).dtype.numpy
        )
        (made,) = interpret(specialise(expanded, {"n": n}), [x])
        (wanted,) = interpret(specialise(graph, {"n": n}), [x])
        np.testing.assert_allclose(
            made.astype(np.float64), wanted.astype(np.float64), rtol=2.0**-7, atol=1e-12
        )
