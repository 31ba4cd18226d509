"""Convolutions whose windows lie in the padding: as products of what each tap reads of the image.

Every result is compared with the reference in f64, relative to the largest element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import rounds, slow

import graphc as gc
from graphc.passes.normalise.live_taps import Axis
from graphc.tuning import chosen

RNG = np.random.default_rng(23)
ALWAYS = {  # whatever it costs
    "passes.live_taps": 1.0,
    "passes.live_channels": 1,
    "passes.live_products": 1024,
    "passes.live_work": 0,
    "passes.live_results": 0,
}


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


def error(made: Any, expected: Any) -> float:
    return float(np.abs(made - expected).max() / np.abs(expected).max())


def convolutions(function: Any, *given: Any) -> list[tuple[int, ...]]:
    """The shapes of the weights of all convolutions before fusion."""
    stages = {stage[0]: stage[1] for stage in function.stages(*given)}
    nodes = [n for n in stages["dce"].nodes if n.op.traits.convolution]
    return sorted(node.inputs[1].type.dims for node in nodes)


def exact(function: Any, *given: Any) -> Any:
    return function(*(a.astype(np.float64) for a in given))


def test_live_results_of_every_tap() -> None:
    """Against reading an image that has its zeros around it."""
    for extent, window, stride, gap, low in np.ndindex(5, 3, 3, 7, 9):
        extent, window, stride, gap = extent + 1, window + 1, stride + 1, gap + 1
        inside = np.pad(np.ones(extent, bool), (low, 17))
        out = (len(inside) - (window - 1) * gap - 1) // stride + 1
        if out < 1:
            continue
        axis = Axis(extent, window, out, stride, gap, low)
        for tap in range(window):
            reads = inside[tap * gap : tap * gap + (out - 1) * stride + 1 : stride]
            first, end = axis.live(tap)
            wanted = np.zeros(out, bool)
            wanted[first:end] = True
            if stride <= extent:  # else steps may leave out the whole image
                np.testing.assert_array_equal(reads, wanted)
            else:
                assert reads[:first].sum() + reads[end:].sum() == 0


CASES = [
    ((1, 64, 14, 14), 64, {"padding": 12, "dilation": 12}, 9),
    ((1, 96, 14, 14), 64, {"padding": 24, "dilation": 24}, 1),
    ((2, 40, 9, 20), 32, {"padding": (7, 6), "dilation": (7, 6)}, 9),
    ((1, 64, 8, 64), 48, {"padding": (8, 1), "dilation": (8, 1)}, 1),
    ((1, 64, 12, 64), 48, {"padding": (8, 1), "dilation": (8, 1)}, 3),
    ((2, 64, 18, 18), 64, {"padding": 12, "dilation": 12, "stride": 2}, 9),
    ((4, 128, 40), 64, {"padding": 25, "dilation": 25}, 3),
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_dilated_windows(case: Any, threads: int) -> None:
    shape, outputs, options, count = case
    spatial = len(shape) - 2
    x, w, bias = arrays(shape, (outputs, shape[1], *(3,) * spatial), (outputs, *(1,) * spatial))

    def layer(x: Any, w: Any, bias: Any) -> Any:
        return np.maximum(gc.conv(x, w, **options) + bias, 0)

    fast = gc.compile(lambda x: layer(x, w, bias), threads=threads)
    found = convolutions(fast, x)
    assert len(found) == count
    assert error(fast(x), exact(layer, x, w, bias)) < 2e-6
    variable = gc.compile(layer, threads=threads)  # its weights are cut in each run
    assert convolutions(variable, x, w, bias) == found
    assert error(variable(x, w, bias), exact(layer, x, w, bias)) < 2e-6


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("case", [slow(CASES[0]), CASES[-1]])
def test_results_of_16_bits_are_rounded_once(case: Any, dtype: Any) -> None:
    shape, outputs, options, count = case
    digits = 8 if dtype == "bf16" else 11
    x, w = (
        np.asarray(gc.compile(lambda x: gc.astype(gc.astype(x, dtype), "f32"))(a))
        for a in arrays(shape, (outputs, shape[1], *(3,) * (len(shape) - 2)))
    )

    def layer(x: Any, w: Any) -> Any:
        made = gc.conv(gc.astype(x, dtype), gc.astype(w, dtype), **options)
        return gc.astype(made, "f32")

    expected = exact(lambda x, w: gc.conv(x, w, **options), x, w)
    half_a_step = np.exp2(np.floor(np.log2(np.abs(expected))) - digits)
    noise = 1e-5 * np.abs(expected).max()  # of sums in f32
    for fast, given in ((gc.compile(layer), (x, w)), (gc.compile(lambda x: layer(x, w)), (x,))):
        assert len(convolutions(fast, *given)) == count
        assert (np.abs(fast(*given) - expected) <= half_a_step + noise).all()


def test_left_as_they_are() -> None:
    """Programs without fast_math, little padding, few channels, few results of variable weights."""
    for shape, outputs, gap, options in [
        ((1, 64, 14, 14), 64, 12, {"fast_math": False}),
        ((1, 64, 60, 60), 64, 6, {}),
        ((1, 8, 14, 14), 64, 12, {}),
        ((1, 64, 4, 4), 64, 3, {}),
    ]:
        x, w = arrays(shape, (outputs, shape[1], 3, 3))
        plain = gc.compile(lambda x, w, d=gap: gc.conv(x, w, padding=d, dilation=d), **options)
        assert convolutions(plain, x, w) == [w.shape]


def test_open_sizes_stay_open() -> None:
    (w,) = arrays((64, 64, 3, 3))
    layer = gc.compile(
        lambda x: gc.conv(x, w, padding=12, dilation=12), sizes={"x": ("b", 64, "h", "w")}
    )
    for shape in ((1, 64, 14, 14), (2, 64, 20, 9)):
        (x,) = arrays(shape)
        expected = exact(lambda x, w: gc.conv(x, w, padding=12, dilation=12), x, w)
        assert error(layer(x), expected) < 2e-6
    assert len(layer.compiles) == 1


def test_other_padding_than_zeros() -> None:
    x, w = arrays((1, 64, 14, 14), (64, 64, 3, 3))

    def layer(x: Any, w: Any) -> Any:
        wide = np.pad(x, ((0, 0), (0, 0), (12, 12), (12, 12)), constant_values=2)
        return gc.conv(wide, w, dilation=12)

    fast = gc.compile(layer)
    assert convolutions(fast, x, w) == [w.shape]
    assert error(fast(x, w), exact(layer, x, w)) < 2e-6


def random_case() -> tuple[Any, Any, dict[str, Any]]:
    spatial = int(RNG.integers(1, 4))
    groups = int(RNG.choice([1, 1, 2, 3]))
    inputs, outputs = groups * RNG.integers(1, 6), groups * RNG.integers(1, 6)
    window = tuple(map(int, RNG.integers(1, 5 if spatial < 3 else 3, spatial)))
    gap = tuple(map(int, RNG.integers(1, 9, spatial)))
    stride = tuple(map(int, RNG.integers(1, 4, spatial)))
    sides = tuple(map(int, RNG.integers(1, 13 if spatial < 3 else 6, spatial)))
    padding = []
    for side, taps, step in zip(sides, window, gap):
        reach = (taps - 1) * step + 1
        low = int(RNG.integers(0, reach + 3))
        padding.append((low, max(int(RNG.integers(0, reach + 3)), reach - side - low)))
    shape = (int(RNG.integers(1, 4)), int(inputs), *sides)
    options = {"padding": padding, "dilation": gap, "stride": stride, "groups": groups}
    return shape, (int(outputs), int(inputs) // groups, *window), options


def compare(case: Any, threads: int) -> None:
    shape, weights, options = case
    x, w = arrays(shape, weights)
    expected = exact(lambda x, w: gc.conv(x, w, **options), x, w)
    with chosen(ALWAYS):
        constant = gc.compile(lambda x: gc.conv(x, w, **options), threads=threads)(x)
        variable = gc.compile(lambda x, w: gc.conv(x, w, **options), threads=threads)(x, w)
    for made in (constant, variable):
        assert made.shape == expected.shape
        assert np.abs(made - expected).max() <= 4e-6 * max(np.abs(expected).max(), 1e-3), case


@pytest.mark.parametrize("threads", [1, 2])
def test_random_convolutions(threads: int) -> None:
    for _ in range(4):
        compare(random_case(), threads)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_more_random_convolutions(threads: int) -> None:
    for _ in range(rounds(60)):
        compare(random_case(), threads)


def test_gradients() -> None:
    x, w = arrays((1, 40, 9, 9), (32, 40, 3, 3))

    def loss(x: Any, w: Any) -> Any:
        return np.sin(gc.conv(x, w, padding=7, dilation=7)).sum()

    fast = gc.compile(lambda x, w: gc.grad(loss, wrt=(0, 1))(x, w))
    strict = gc.compile(lambda x, w: gc.grad(loss, wrt=(0, 1))(x, w), fast_math=False)
    for made, expected in zip(fast(x, w), strict(x, w)):
        assert error(made, expected) < 1e-5
