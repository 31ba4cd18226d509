"""Element-wise values that another kernel reads are computed there anew where that stores less."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import graphc as gc
from graphc.ir.graph import Graph, Node
from graphc.ir.types import leaves

RNG = np.random.default_rng(3)
X, W1, W2 = (
    RNG.standard_normal(s).astype(np.float32) * 0.2 for s in ((64, 96), (96, 128), (128, 32))
)


def kernels(function, *arguments, **options) -> list[Node]:
    graph = gc.compile(function, **options).lower(*arguments).graphs[0]
    assert isinstance(graph, Graph)
    return [n for n in graph.nodes if n.op.name == "fused"]


def ops(kernel: Node) -> list[str]:
    return [n.op.name for n in kernel.regions[0].nodes]


def trained(activation):
    """Gradients of a product, an activation and another product."""

    def loss(w1, w2, x):
        h = activation(x @ w1) @ w2
        return (h * h).sum()

    return gc.grad(loss, wrt=(0, 1))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def test_a_product_and_its_activation_store_what_everything_follows_from() -> None:
    gradient = trained(gelu)
    made = kernels(gradient, W1, W2, X)
    forward = next(k for k in made if "tanh" in ops(k))
    assert len(leaves(forward.type)) == 2  # x w1 and the activation
    assert sum("tanh" in ops(k) for k in made) == 2
    found = gc.compile(gradient)(W1, W2, X)
    expected = gc.compile(gradient, opt=0)(W1, W2, X)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_nothing_is_computed_again_where_what_it_follows_from_is_as_large() -> None:
    made = kernels(trained(np.tanh), W1, W2, X)
    assert sum("tanh" in ops(k) for k in made) == 1
    forward = next(k for k in made if "tanh" in ops(k))
    assert len(leaves(forward.type)) == 1  # the activation: its rule reads no more


def test_two_arrays_are_not_worth_three_functions() -> None:
    """exp, sin and cos of h are stored: h alone would do."""
    made = kernels(trained(lambda h: np.exp(h) * np.sin(h)), W1, W2, X)
    forward = made[0]
    assert {"exp", "sin"} <= set(ops(forward))
    assert len(leaves(forward.type)) == 4


@pytest.mark.parametrize("opt", [0, 2])
def test_long_chains_between_reductions_stay_linear(opt: int) -> None:
    """Every value is read by two kernels: copies of copies would double from step to step."""

    def function(x):
        total = np.float32(0)
        for _ in range(12):
            x = x * 1.01 + x.sum(axis=0) * 0.001
            total = total + x.max()
        return total + x.sum()

    x = RNG.standard_normal((96, 128)).astype(np.float32)
    want = function(x.astype(np.float64))
    np.testing.assert_allclose(gc.compile(function, opt=opt)(x), want, rtol=1e-4)
    made = kernels(function, x)
    sizes = [len(k.regions[0].nodes) for k in made]
    assert max(sizes) <= 64
    assert all(b <= 4 * a + 16 for a, b in pairwise(sorted(sizes)))


def test_a_step_of_a_loop_saves_what_the_rest_follows_from() -> None:
    """exp(-z) and the state before; 1 + exp(-z) and the quotient are made again."""

    def loss(u, x):
        def step(h, x):
            h = 1 / (1 + np.exp(-(h @ u + x)))
            return h, 0

        return gc.scan(step, np.zeros(x.shape[1:], np.float32), x)[0].sum()

    u, x = RNG.standard_normal((8, 8)).astype(np.float32), X[:12].reshape(12, 12, 8)
    gradient = gc.grad(loss, wrt=(0, 1))
    stages = gc.compile(gradient).stages(u, x)
    graph = next(s[1] for s in stages if s[0] == "dce")
    forward = next(n for n in graph.nodes if n.op.name == "scan")
    stacked = [kind for kind in leaves(forward.type) if kind.shape == x.shape]
    assert len(stacked) == 2
    found = gc.compile(gradient)(u, x)
    expected = gc.compile(gradient, opt=0)(u, x)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
