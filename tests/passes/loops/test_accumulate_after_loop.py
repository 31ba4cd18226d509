"""Totals of loops: products that every step only adds up become one contraction after the loop."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as gc
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.passes import pipeline

RNG = np.random.default_rng(7)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def stage(function, *arguments, name: str = "dce", **options) -> Graph:
    compiled = gc.compile(function, **options)
    return next(s[1] for s in compiled.stages(*arguments) if s[0] == name)


def loops(graph: Graph) -> list[list[str]]:
    """The ops of every scan's body, in order."""
    return [[n.op.name for n in s.regions[0].nodes] for s in graph.nodes if s.op.name == "scan"]


def recurrent(w, u, b, x):
    """sum of tanh(x[t] w + h u + b) over the steps: every weight's gradient is a total."""

    def step(h, x):
        h = np.tanh(x @ w + h @ u + b)
        return h, h

    return gc.scan(step, np.zeros((x.shape[1], len(u)), np.float32), x)[1].sum()


RECURRENT = draw(24, 32) * 0.2, draw(32, 32) * 0.2, draw(32), draw(6, 4, 24)


def test_weights_of_a_recurrent_layer_are_summed_after_the_backward_loop() -> None:
    gradient = gc.grad(recurrent, wrt=(0, 1, 2))
    graph = stage(gradient, *RECURRENT)
    backward = loops(graph)[1]
    assert backward.count("einsum") == 1  # what the step before gets; the weights' are outside
    assert "sum" not in backward
    assert [n.op.name for n in graph.nodes].count("einsum") == 2
    strict = loops(stage(gradient, *RECURRENT, fast_math=False))[1]
    assert strict.count("einsum") == 3
    made = gc.compile(gradient)(*RECURRENT)
    expected = gc.compile(gradient, fast_math=False)(*RECURRENT)
    for got, want in zip(made, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_total_keeps_its_start_and_its_place_among_the_results(reverse: bool) -> None:
    def function(start, x, y):
        def step(state, slices):
            before, total, after = state
            x, y = slices
            return (before + 1, total + (x.T @ (y * 2) + y.sum(axis=0)), after * 2), y[0]

        init = (np.float32(0), start, np.float32(1))
        return gc.scan(step, init, (x, y), reverse=reverse)

    start, x, y = draw(8, 8), draw(5, 3, 8), draw(5, 3, 8)
    (before, total, after), rows = gc.compile(function)(start, x, y)
    assert (before, after) == (5, 32)
    want = start + 2 * np.einsum("tab,tac->bc", x, y)
    np.testing.assert_allclose(total, want + y.sum(axis=(0, 1)), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(rows, y[:, 0])


def test_slices_are_contracted_as_they_are_stacked_already() -> None:
    def function(x, y):
        def step(total, slices):
            x, y = slices
            return total + np.einsum("ab,ac->bc", x, y), 0

        return gc.scan(step, np.zeros((16, 16), np.float32), (x, y))[0]

    x, y = draw(7, 2, 16), draw(7, 2, 16)
    assert loops(stage(function, x, y)) == []
    want = np.einsum("tab,tac->bc", x, y)
    np.testing.assert_allclose(gc.compile(function)(x, y), want, rtol=1e-5, atol=1e-5)


def test_totals_stay_in_the_loop_where_they_are_small_or_read_by_a_step() -> None:
    def small(x):
        def step(total, x):
            return total + np.tanh(x).sum(axis=0), 0

        return gc.scan(step, np.zeros(4, np.float32), x)[0]

    def watched(x):
        def step(total, x):
            total = total + np.einsum("ab,ac->bc", x, x)
            return total, total[0, 0]

        return gc.scan(step, np.zeros((8, 8), np.float32), x)

    x = draw(5, 64, 4)
    assert "sum" in loops(stage(small, x))[0]
    np.testing.assert_allclose(
        gc.compile(small)(x), np.tanh(x).sum(axis=(0, 1)), rtol=1e-5, atol=1e-5
    )
    z = draw(5, 2, 8)
    assert "einsum" in loops(stage(watched, z))[0]
    total, seen = gc.compile(watched)(z)
    steps = np.cumsum(np.einsum("tab,tac->tbc", z, z), axis=0)
    np.testing.assert_allclose(total, steps[-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(seen, steps[:, 0, 0], rtol=1e-5, atol=1e-5)


def test_a_long_loop_does_not_store_much_more_than_it_holds() -> None:
    def function(x):
        def step(total, x):
            wide = np.tanh(x + np.ones((64, 1), np.float32))
            return total + np.einsum("ab,ac->bc", wide, wide), 0

        return gc.scan(step, np.zeros((128, 128), np.float32), x)[0]

    for length, stays in ((10_000, True), (100, False)):
        graph = gc.compile(function).graph(gc.spec((length, 128), "f32"))
        made = next(r.value for r in pipeline.run(graph, Config()) if r.name == "dce")
        assert ("einsum" in loops(made)[0]) == stays
