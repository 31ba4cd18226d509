"""Convolutions that are not one contraction: Winograd's method and loops over windows.

Every result is compared with the reference in f64, relative to the largest element.  A direct f32
sum of up to a thousand products is within 2e-6 of it, Winograd's F(4x4, 3x3) within 8e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import crossed, rounds

import graphc as gc
from graphc.ir.op import OPS
from graphc.ir.parse import parse
from graphc.ir.text import show
from graphc.ops.nn.winograd_ops import WINDOWS
from graphc.ops.nn.winograd_tiles import WEIGHT
from graphc.ops.reference.interpreter import interpret

WINOGRAD, DIRECT = 8e-6, 2e-6
RNG = np.random.default_rng(17)


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def error(made: Any, expected: Any) -> float:
    return float(np.abs(made - expected).max() / np.abs(expected).max())


def ops_of(function: Any, *given: Any) -> set[str]:
    """The ops that are left before fusion."""
    stages = {stage[0]: stage[1] for stage in function.stages(*given)}
    return {node.op.name for node in stages["dce"].nodes}


def layer(**options: Any) -> Any:
    """A convolution with bias, residual and relu."""

    def apply(x: Any, w: Any, bias: Any) -> Any:
        made = gc.conv(x, w, **options) + bias
        return np.maximum(made, 0) + made * made

    return apply


@pytest.mark.parametrize(("tile", "size"), sorted(WEIGHT))
def test_weights_are_transformed_window_by_window(tile, size):
    """Also those behind the first that are computed at once."""
    w = RNG.standard_normal((3, WINDOWS // 2 - 1, size, size)).astype(np.float32)
    matrix = np.array(WEIGHT[tile, size], np.float64)
    made = OPS["winograd_weight"].reference(w, tile=tile).reshape(-1, *w.shape[:2])
    for k, c in ((0, 0), (1, 1), (2, 0), (2, 2), (2, w.shape[1] - 1)):
        expected = matrix @ w[k, c].astype(np.float64) @ matrix.T
        np.testing.assert_allclose(made[:, k, c], expected.reshape(-1), rtol=1e-6, atol=1e-6)


CASES = [
    ((2, 16, 13, 17), (16, 16, 3, 3), {"padding": 1}),
    ((1, 17, 50, 9), (33, 17, 3, 3), {"padding": (0, 2)}),
    ((3, 32, 16, 16), (16, 32, 3, 3), {}),
    ((1, 64, 56, 56), (16, 64, 3, 3), {"padding": ((1, 0), (0, 3))}),
    ((9, 16, 7, 7), (20, 16, 3, 3), {"padding": 1}),
    ((2, 48, 17, 18), (64, 24, 3, 3), {"padding": 1, "groups": 2}),
    ((1, 16, 75, 90), (16, 16, 3, 3), {"padding": "same"}),
    ((1, 16, 6, 700), (16, 16, 3, 3), {"padding": 5}),
    ((2, 16, 21, 17), (24, 16, 5, 5), {"padding": 2}),
    ((1, 64, 40, 23), (32, 32, 5, 5), {"padding": (0, 4), "groups": 2}),
]


@pytest.mark.parametrize(("case", "threads"), crossed(CASES, [1, 2]))
def test_winograd(case: Any, threads: int) -> None:
    x, w, options = case
    given = arrays(x, w, (w[0], 1, 1))
    function = layer(**options)
    expected = function(*(a.astype(np.float64) for a in given))
    fast = gc.compile(function, threads=threads)
    assert "winograd_output" in ops_of(fast, *given)
    stages = {stage[0]: stage[1] for stage in fast.stages(*given)}
    assert "pad" not in {node.op.name for node in stages["dce"].nodes}
    assert error(fast(*given), expected) < WINOGRAD


@pytest.mark.slow
def test_gradients_through_normalised_layers() -> None:
    """Statistics of batches and activations that are smooth magnify no rounding."""
    x, w, v, scale, shift = arrays((4, 16, 24, 24), (16, 16, 3, 3), (16, 16, 3, 3), (16,), (16,))

    def loss(w: Any, v: Any, scale: Any, shift: Any) -> Any:
        h = gc.batch_norm(gc.conv(x.astype(w.dtype), w, padding=1), weight=scale, bias=shift)
        h = gc.conv(h * gc.sigmoid(h), v, padding=1) / 12
        return (h * np.tanh(h)).mean()

    gradients = gc.compile(gc.grad(loss, wrt=(0, 1, 2, 3)), threads=1)
    given = w, v, scale, shift
    assert "winograd_input" in ops_of(gradients, *given)
    exact = gradients(*(a.astype(np.float64) for a in given))
    for made, expected in zip(gradients(*given), exact, strict=True):
        assert error(made, expected) < WINOGRAD


@pytest.mark.parametrize("options", [{"fast_math": False}, {"opt": 0}])
def test_the_plain_route_on_request(options: Any) -> None:
    x, w, given = CASES[0]
    operands = arrays(x, w, (w[0], 1, 1))
    function = layer(**given)
    plain = gc.compile(function, **options)
    assert "winograd_output" not in ops_of(plain, *operands)
    expected = function(*(a.astype(np.float64) for a in operands))
    assert error(plain(*operands), expected) < DIRECT


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 16, 13, 17), (16, 16, 3, 3), {"stride": 2}),
        ((2, 16, 13, 17), (16, 16, 3, 3), {"dilation": 2}),
        ((2, 16, 13, 17), (16, 16, 3, 1), {"padding": 1}),
        ((2, 3, 13, 17), (16, 3, 3, 3), {"padding": 1}),
        ((1, 64, 4, 4), (64, 64, 3, 3), {"padding": 1}),
        ((2, 24, 40), (16, 24, 3), {"padding": 1}),
        ((1, 16, 5, 6, 7), (16, 16, 3, 3, 3), {"padding": 1}),
        ((1, 18, 9, 9), (24, 9, 5, 5), {"groups": 2}),
        ((2, 16, 20, 21), (24, 16, 4, 4), {"padding": 2}),
        ((2, 32, 9, 30), (32, 16, 3, 3), {"stride": 2, "groups": 2}),
    ],
)
def test_other_convolutions_stay_contractions(x: Any, w: Any, options: Any) -> None:
    given = arrays(x, w, (w[0], *(1,) * (len(x) - 2)))
    function = layer(**options)
    compiled = gc.compile(function)
    assert "conv" in ops_of(compiled, *given)
    expected = function(*(a.astype(np.float64) for a in given))
    assert error(compiled(*given), expected) < DIRECT


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 7, 30, 21), (7, 1, 3, 3), {"groups": 7, "padding": 1}),
        ((2, 8, 15, 18), (16, 1, 5, 4), {"groups": 8, "stride": (2, 3), "padding": (2, 1)}),
        ((1, 12, 40, 9), (6, 4, 3, 3), {"groups": 3, "dilation": (2, 3), "padding": "same"}),
        ((3, 6, 50), (6, 1, 7), {"groups": 6, "padding": 3}),
        ((1, 4, 3, 3), (4, 1, 1, 1), {"groups": 4, "stride": 2}),
        ((1, 2, 130, 200), (2, 1, 3, 3), {"groups": 2, "padding": (4, 0)}),
        ((2, 16, 20, 19), (2, 16, 3, 3), {"padding": 1}),
    ],
)
def test_narrow_groups(x: Any, w: Any, options: Any) -> None:
    given = arrays(x, w, (w[0], *(1,) * (len(x) - 2)))
    function = layer(**options)
    expected = function(*(a.astype(np.float64) for a in given))
    for compiled in (gc.compile(function), gc.compile(function, fast_math=False)):
        assert "conv_windows" in ops_of(compiled, *given)
        assert error(compiled(*given), expected) < DIRECT


def test_random_convolutions() -> None:
    rng = np.random.default_rng(4)
    for _ in range(rounds(10)):
        groups = int(rng.choice([1, 1, 2, 3]))
        inputs, outputs = (int(rng.integers(1, 24)) for _ in range(2))
        window = [int(n) for n in rng.choice([1, 3, 3, 4], 2)]
        stride = int(rng.choice([1, 1, 2]))
        dilation = int(rng.choice([1, 1, 2]))
        size = [int(n) for n in rng.integers(10, 36, 2)]
        padding = [tuple(int(n) for n in rng.integers(0, 3, 2)) for _ in range(2)]
        x, w = arrays(
            (int(rng.integers(1, 5)), inputs * groups, *size), (outputs * groups, inputs, *window)
        )

        def apply(x: Any, w: Any, options: Any = (stride, padding, dilation, groups)) -> Any:
            return gc.conv(x, w, *options)

        expected = apply(x.astype(np.float64), w.astype(np.float64))
        where = (x.shape, w.shape, stride, padding, dilation, groups)
        assert error(gc.compile(apply)(x, w), expected) < WINOGRAD, where


def test_constant_weights_are_transformed_once() -> None:
    x, w = arrays((2, 16, 12, 12), (16, 16, 3, 3))
    compiled = gc.compile(lambda x: gc.conv(x, w, padding=1))
    assert not {"winograd_weight", "conv"} & ops_of(compiled, x)
    expected = gc.conv(x.astype(np.float64), w.astype(np.float64), padding=1)
    assert error(compiled(x), expected) < WINOGRAD


def test_the_epilogue_is_part_of_the_output_transform() -> None:
    given = arrays((3, 16, 12, 12), (16, 16, 3, 3), (16, 1, 1))
    compiled = gc.compile(layer(padding=1))
    stages = {stage[0]: stage[1] for stage in compiled.stages(*given)}
    (graph,) = stages["fuse"].graphs
    kinds = [n.attrs["kind"] for n in graph.nodes if n.op.name == "fused"]
    assert kinds == ["nest", "nest", "contract", "nest"]


def test_stages_run_in_the_reference_interpreter() -> None:
    x, w = arrays((2, 16, 16, 16), (16, 16, 3, 3))
    compiled = gc.compile(lambda x, w: gc.conv(x, w, padding=1))
    stage = {s[0]: s[1] for s in compiled.stages(x, w)}["dce"]
    (made,) = interpret(parse(show(stage)), [x, w])
    assert error(made, compiled(x, w).astype(np.float64)) < WINOGRAD


@pytest.mark.parametrize("threads", [1, 2])
def test_a_few_images_at_a_time(threads: int) -> None:
    """The chain becomes one node over blocks of images, operands per image included."""
    x, w, bias, more, scale = arrays(
        (6, 32, 34, 29), (40, 32, 3, 3), (40, 1, 1), (6, 40, 34, 29), (6, 1, 1, 1)
    )

    def apply(x: Any, w: Any, bias: Any, more: Any, scale: Any) -> Any:
        made = gc.conv(x, w, padding=1) * scale + bias + more
        return np.maximum(made, 0) + x.sum()

    given = (x, w, bias, more, scale)
    compiled = gc.compile(apply, threads=threads)
    stages = {stage[0]: stage[1] for stage in compiled.stages(*given)}
    (graph,) = stages["add_workspace"].graphs
    (blocked,) = (node for node in graph.nodes if node.op.name == "blocked")
    assert blocked.attrs["counts"] == (6,)
    expected = apply(*(a.astype(np.float64) for a in given))
    assert error(compiled(*given), expected) < WINOGRAD
    (made,) = interpret(stages["add_workspace"], list(given))
    assert error(made, expected) < WINOGRAD
