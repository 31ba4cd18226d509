"""Convolutions compute only what is read of them: gradients of padded ones, slices of any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ops.reference.interpreter import interpret

RNG = np.random.default_rng(5)


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def real(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without extents of 1: convolutions over one axis may become some over two."""
    return tuple(n for n in shape if n > 1)


def images_of(function: Any, *given: Any) -> set[tuple[int, ...]]:
    """The shapes that convolutions and Winograd's transforms give before fusion."""
    stages = {stage[0]: stage[1] for stage in function.stages(*given)}
    names = ("conv", "conv_windows", "winograd_output")
    return {real(node.type.dims) for node in stages["cse"].nodes if node.op.name in names}


@pytest.mark.parametrize(
    ("shape", "weights", "options"),
    [
        ((2, 16, 8, 8), (16, 16, 3, 3), {"padding": "same"}),
        ((2, 3, 9, 7), (4, 3, 5, 3), {"padding": ((2, 1), (0, 2))}),
        ((2, 4, 11), (6, 2, 3), {"padding": 2, "dilation": 2, "groups": 2}),
        ((1, 2, 5, 4, 6), (3, 2, 3, 3, 3), {"padding": 1}),
        ((2, 3, 9, 9), (4, 3, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 3, 6, 6), (4, 3, 3, 3), {"padding": 4}),
    ],
)
def test_gradient_of_a_padded_convolution(shape: Any, weights: Any, options: Any) -> None:
    x, w = arrays(shape, weights)

    def loss(x: Any, w: Any) -> Any:
        return np.sin(gc.conv(x, w, **options)).sum()

    gradients = gc.compile(lambda x, w: gc.grad(loss, wrt=(0, 1))(x, w))
    expected = interpret(gradients.graph(x, w), [x, w])
    for made, wanted in zip(gradients(x, w), expected):
        np.testing.assert_allclose(made, wanted, atol=1e-5 * np.abs(wanted).max())
    if "stride" not in options and options["padding"] != 4:  # these reach into the image
        assert real(shape) in images_of(gradients, x, w)


def test_slices_of_steps_and_dilations() -> None:
    x, w = arrays((2, 3, 12, 13), (4, 3, 3, 2))
    options = {"padding": ((3, 2), (4, 5)), "stride": (2, 1), "dilation": (1, 2)}
    cut = gc.compile(lambda x, w: gc.conv(x, w, **options)[:, :, 1:-1, 3:-2])
    whole = gc.compile(lambda x, w: gc.conv(x, w, **options))(x, w)
    np.testing.assert_allclose(cut(x, w), whole[:, :, 1:-1, 3:-2], atol=1e-5)
    assert images_of(cut, x, w) == {cut(x, w).shape}


@pytest.mark.parametrize(
    "reader",
    [
        lambda y: (y[:, :, 1:-1], y),
        lambda y: (y[:, :, 1:-1], y[:, :, :-1].sum()),
        lambda y: y[:, 1:, 1:-1],
        lambda y: y[:, :, 1:-1:2],
        lambda y: y[:, :, 4:6],
    ],
    ids=["result", "two slices", "channels", "steps", "inside"],
)
def test_convolutions_that_stay_whole(reader: Any) -> None:
    """Others read what would be cut off, or the image itself would have to be cut."""
    x, w = arrays((2, 3, 8, 8), (4, 3, 3, 3))
    function = gc.compile(lambda x, w: reader(gc.conv(x, w, padding=1)))
    assert images_of(function, x, w) == {(2, 4, 8, 8)}
    expected = reader(gc.compile(lambda x, w: gc.conv(x, w, padding=1))(x, w))
    made = function(x, w)
    for a, b in zip(made, expected) if isinstance(made, tuple) else [(made, expected)]:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
