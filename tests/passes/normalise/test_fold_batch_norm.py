"""Batch norms by constants go into the weights of convolutions, where nothing else reads these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.ops.reference.interpreter import interpret

RNG = np.random.default_rng(7)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def positive(*shape: int, dtype: Any = np.float32) -> Any:
    return (RNG.random(shape) + 0.2).astype(dtype)


def norms_left(function: Any, *arguments: Any) -> int:
    """How many batch norms are left when constants have been folded."""
    stages = {stage[0]: stage[1] for stage in function.stages(*arguments)}
    return sum(n.op.name == "batch_norm" for n in stages["fold_batch_norm"].nodes)


def agrees(function: Any, x: Any) -> None:
    """A compiled function gives what its graph, in f64, does."""
    wanted = interpret(function.graph(x), [x])
    made = function(x)
    made = made if isinstance(made, tuple) else (made,)
    for one, other in zip(made, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5 * max(1, np.abs(other).max()), rtol=0)


@examples(12)
@given(st.data())
def test_random_convolutions(data: Any) -> None:
    groups, each, inputs, axes = (data.draw(st.integers(1, 3)) for _ in range(4))
    dtype = data.draw(st.sampled_from((np.float32, np.float64)))
    steps = {name: data.draw(st.integers(1, 2)) for name in ("stride", "dilation")}
    channels = groups * each
    w = normal(channels, inputs, *[2] * axes, dtype=dtype)
    bias = normal(*(channels, *[1] * axes), dtype=dtype) if data.draw(st.booleans()) else None
    statistics = [draw(channels, dtype=dtype) for draw in (normal, positive)]
    weights = [positive(channels, dtype=dtype), normal(channels, dtype=dtype)]
    weights = weights[: data.draw(st.integers(0, 2))]

    def layer(x: Any) -> Any:
        made = gc.conv(x, w, groups=groups, **steps)
        made = made if bias is None else made + bias
        return gc.batch_norm(made, *statistics, *weights)

    function = gc.compile(layer)
    x = normal(2, groups * inputs, *[6] * axes, dtype=dtype)
    assert norms_left(function, x) == 0
    agrees(function, x)


W, MEAN, VARIANCE = normal(3, 2, 3, 3), normal(3), positive(3)


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: (lambda y: (gc.batch_norm(y, MEAN, VARIANCE), y))(gc.conv(x, W)),
        lambda x: (lambda y: gc.batch_norm(y, MEAN, VARIANCE) * y.sum())(gc.conv(x, W)),
        lambda x: gc.batch_norm(gc.conv(x, W), x.mean(axis=(0, 2, 3))[0] * MEAN, VARIANCE),
        lambda x: gc.batch_norm(gc.conv(x, W * x.sum()), MEAN, VARIANCE),
        lambda x: gc.batch_norm(gc.conv(x, W) + BY_ROW, MEAN, VARIANCE),
        lambda x: gc.batch_norm(gc.conv(x, W), BY_ROW[0, 0, :, 0], VARIANCE[[0, 1, 2, 0]], axis=2),
        lambda x: gc.batch_norm(gc.conv(x, W), MEAN, -VARIANCE),
        lambda x: gc.batch_norm(gc.conv(x, W), MEAN, np.zeros(3, np.float32), epsilon=0.0),
        lambda x: gc.batch_norm(np.tanh(gc.conv(x, W)), MEAN, VARIANCE),
    ],
    ids=[
        "result",
        "two readers",
        "statistics of x",
        "weights of x",
        "added by rows",
        "another axis",
        "no numbers",
        "infinite",
        "a function between",
    ],
)
def test_batch_norms_that_stay(layer: Any) -> None:
    function, x = gc.compile(layer), normal(1, 2, 6, 6)
    assert norms_left(function, x) == 1
    with np.errstate(all="ignore"):
        made, wanted = function(x), interpret(function.graph(x), [x])
    for one, other in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


BY_ROW = normal(1, 1, 4, 1)


def test_narrow_numbers_stay() -> None:
    """Their batch norm is computed in f32, which weights in f16 would not hold."""
    w, mean, variance = (v.astype(np.float16) for v in (W, MEAN, VARIANCE))
    function = gc.compile(lambda x: gc.batch_norm(gc.conv(x, w), mean, variance))
    assert norms_left(function, normal(1, 2, 6, 6, dtype=np.float16)) == 1


def test_means_far_from_zero() -> None:
    """No digit is lost that the sum of the convolution had."""
    mean, variance = np.full(3, 3000.0, np.float32), np.full(3, 0.5, np.float32)
    offset = np.full((1, 3, 1, 1), 3000.0, np.float32)
    function = gc.compile(lambda x: gc.batch_norm(gc.conv(x, W) + offset, mean, variance))
    x = normal(1, 2, 6, 6)
    exact = gc.conv(x.astype(np.float64), W.astype(np.float64)) / np.sqrt(0.5 + 1e-5)
    np.testing.assert_allclose(function(x), exact, atol=1e-5)
