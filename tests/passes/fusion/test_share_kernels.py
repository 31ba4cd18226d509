"""Kernels that compute the same nodes are one, whatever the order and whatever is read of them."""

from __future__ import annotations

import numpy as np

import graphc as gc

rng = np.random.default_rng(0)


def kernels(function, *arguments, **options):
    compiled = gc.compile(function, threads=1, **options)
    made = compiled(*arguments)
    (found,) = compiled.compiles
    return made, found.compiled + found.cached


def cell(x, w, c):
    gates = x @ w
    c = np.tanh(gates[:, :32]) * c + np.exp(-gates[:, 32:])
    return np.tanh(c) * gates[:, :32], c


def unrolled(steps):
    def function(h, w, c):
        for _ in range(steps):
            h, c = cell(h, w, c)
        return h

    return function


def test_the_last_turn_of_an_unrolled_loop_needs_no_kernel_of_its_own():
    h, c = rng.standard_normal((2, 8, 32), np.float32) / 4
    w = rng.standard_normal((32, 64), np.float32) / 8
    last, count = kernels(unrolled(1), h, w, c)
    np.testing.assert_allclose(last, cell(h, w, c)[0], rtol=1e-5, atol=1e-6)
    made, more = kernels(unrolled(4), h, w, c)
    assert more == count
    np.testing.assert_allclose(made, unrolled(4)(h, w, c), rtol=1e-5, atol=1e-6)


def test_the_order_of_nodes_and_of_what_is_added_makes_no_kernel():
    def one(x, y):
        a = np.tanh(x)
        b = np.exp(y)
        return a * x + b

    def other(x, y):
        b = np.exp(y)
        a = np.tanh(x)
        return b + x * a

    def both(x, y, w):
        first = one(x, y) @ w
        return other(first, y) @ w

    x, y, w = rng.standard_normal((3, 16, 16), np.float32) / 4
    made, count = kernels(both, x, y, w)
    np.testing.assert_allclose(made, both(x, y, w), rtol=1e-5, atol=1e-6)
    twice, same = kernels(lambda x, y, w: one(one(x, y) @ w, y) @ w, x, y, w)
    assert count == same
    np.testing.assert_array_equal(made, twice)


def test_large_values_are_not_stored_for_nobody():
    def function(x, y):
        a = np.tanh(x)
        b = np.tanh(y)
        return a, (a + 1).sum(axis=0), np.exp(b)

    x, y = rng.standard_normal((2, 300, 300))
    for made, wanted in zip(gc.compile(function)(x, y), function(x, y), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-12)


def after_fuse(function, *arguments):
    stages = gc.compile(function, threads=1).stages(*arguments)
    return next(stage[1].graphs[0] for stage in stages if stage[0] == "fuse")


def layers(x, count=40):
    """Of many numbers, each in one place, and of two that are everywhere."""
    for k in range(count):
        x = np.clip(np.rint(x @ W * np.float32(1.5 + k)), np.float32(-3), np.float32(100))
    return x


W = rng.standard_normal((32, 32), np.float32) / 64


def test_of_many_numbers_kernels_hold_those_that_are_read_all_over_a_graph():
    x = rng.standard_normal((8, 32), np.float32)
    fused = [n for n in after_fuse(layers, x).nodes if n.op.name == "fused"]
    inside = [n.attrs["value"].array for f in fused for n in f.regions[0].nodes if not n.inputs]
    assert {float(number) for number in inside} == {-3.0, 100.0}
    assert len(fused) == 40
    made, count = kernels(layers, x)
    assert kernels(lambda x: layers(x, 50), x)[1] == count
    np.testing.assert_allclose(made, layers(x), rtol=1e-5)


def test_a_few_numbers_are_all_in_kernels():
    x = rng.standard_normal((8, 32), np.float32)
    made = after_fuse(lambda x: (x * 3 + 0.5) @ W * 7, x)
    assert not any(n.attrs["value"].type.dims == () for n in made.nodes if n.op.traits.constant)
