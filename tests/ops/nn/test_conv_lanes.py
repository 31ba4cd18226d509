"""Depthwise convolutions with channels side by side: which are so, and that they are right."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import rounds

import graphc as gc
from graphc import tuning
from graphc.ops.nn.conv_lanes import in_lanes
from graphc.ops.reference.interpreter import interpret


def windows_of(function: Any, *given: Any) -> Any:
    stages = {stage[0]: stage[1] for stage in function.stages(*given)}
    return next(n for n in stages["dce"].nodes if n.op.name == "conv_windows")


@pytest.mark.parametrize(
    ("channels", "size", "window", "stride", "side_by_side"),
    [
        (32, (7, 7), 3, 1, True),
        (32, (14, 14), 3, 2, True),
        (32, (40, 56), 5, 1, True),
        (32, (40, 57), 3, 1, True),
        (32, (40, 57), 2, 1, False),  # windows with hardly a neighbour in a row
        (24, (7, 7), 3, 1, True),
        (20, (7, 7), 3, 1, False),  # lanes would have none
        (32, (64, 64), 5, 1, False),  # rows of all channels share a set of the cache
        (32, (40, 2), 3, 1, False),  # nothing to turn
        (32, (7, 2), 3, 1, True),  # all of an image is turned at once
        (32, (1, 1), 3, 1, True),
        (32, (4, 4), 3, 2, True),
    ],
)
def test_short_rows_and_windows_of_several_columns_have_channels_side_by_side(
    channels: int, size: tuple[int, int], window: int, stride: int, side_by_side: bool
) -> None:
    w = np.ones((channels, 1, window, window), np.float32)

    @gc.compile
    def model(x: Any) -> Any:
        return gc.conv(x, w, stride=stride, padding=window // 2, groups=channels)

    x = np.ones((1, channels, *size), np.float32)
    assert in_lanes(windows_of(model, x)) is side_by_side


@pytest.mark.parametrize("seed", range(rounds(12)))
def test_any_window_stride_and_padding_equals_the_reference(seed: int) -> None:
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    dtype = draw.choice([np.float32, np.float64])
    channels = draw.choice([8, 16, 24, 48])
    window = draw.randint(1, 7), draw.randint(2, 7)
    stride = draw.randint(1, 3), draw.randint(1, 3)
    dilation = draw.randint(1, 2), draw.randint(1, 2)
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    padding = [(draw.randint(0, r), draw.randint(0, r)) for r in reach]
    size = [draw.randint(*draw.choice([(r, r + 30), (r, r + 3)])) for r in reach]
    x = numbers.standard_normal((draw.randint(1, 2), channels, *size)).astype(dtype)
    w = numbers.standard_normal((channels, 1, *window)).astype(dtype)
    bias = numbers.standard_normal((channels, 1, 1)).astype(dtype)
    ways = {"stride": stride, "padding": padding, "dilation": dilation, "groups": channels}
    finish = draw.choice([lambda y: y, lambda y: np.tanh(y) * y, lambda y: y.mean(axis=(2, 3))])

    def model(x: Any) -> Any:
        return finish(gc.conv(x, w, **ways) + bias)

    lines = draw.choice([1 << 11, 1 << 15])  # of short ones an image is several strips
    with tuning.chosen({"ops.lane_shifts": 0, "ops.window_lines": lines}):
        function = gc.compile(model, threads=draw.choice([1, 2]))
        made = function(x)
    (expected,) = interpret(function.graph(x), [x])
    bound = 2e-6 if dtype is np.float32 else 1e-14
    assert np.abs(made - expected).max() <= bound * np.abs(expected).max()


@pytest.mark.parametrize("seed", range(rounds(12)))
def test_tiny_images_and_those_of_bytes_equal_the_reference(seed: int) -> None:
    """All of a tiny image is turned at once; bytes are summed less their zero, which surrounds
    them."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    channels, window = draw.choice([8, 16, 24, 48]), (draw.randint(1, 4), draw.randint(3, 5))
    size = draw.choice([(1, 1), (2, 2), (3, 5), (8, 2), (1, 16), (4, 4), (9, 7), (12, 33)])
    stride = draw.randint(1, 2), draw.randint(1, 2)
    padding = [(draw.randint(k // 2, k), draw.randint(k // 2, k)) for k in window]
    kind = draw.choice([np.uint8, np.int8])
    limits = np.iinfo(kind)
    zero = draw.choice([0, int(limits.min), int(limits.max), 3])
    x = numbers.integers(limits.min, limits.max + 1, (2, channels, *size), np.int32).astype(kind)
    w = numbers.integers(-127, 128, (channels, 1, *window), np.int32)

    def model(x: Any) -> Any:
        numbers = x.astype(np.int32) - np.int32(zero)
        return gc.conv(numbers, w, stride=stride, padding=padding, groups=channels)

    function = gc.compile(model, threads=draw.choice([1, 2]))
    made = function(x)
    (expected,) = interpret(function.graph(x), [x])
    np.testing.assert_array_equal(made, expected)


def stores_of(folder: Path, rows: int, columns: int) -> int:
    """Those of the kernel of a convolution by windows of so many rows, as it is written."""
    w = np.ones((16, 1, rows, 5), np.float32)
    x = np.ones((1, 16, rows + 4, columns + 4), np.float32)
    gc.compile(lambda x: gc.conv(x, w, groups=16), dump=folder)(x)
    (source,) = (folder / "kernels").glob("*.py")
    return source.read_text().count("] = ")


def test_code_grows_neither_with_rows_nor_with_windows(tmp_path: Path) -> None:
    """They are loops: a first call waits for all that is compiled."""
    counts = {
        stores_of(tmp_path / f"{k}", *case) for k, case in enumerate([(5, 19), (5, 43), (9, 19)])
    }
    assert len(counts) == 1


OPEN = {
    "images": (
        ("b", 16, "h", "w"),
        [(1, 16, 16, 16), (2, 16, 7, 9), (1, 16, 40, 41), (3, 16, 8, 5)],
    ),
    "batches": (("b", 16, 7, 7), [(3, 16, 7, 7), (1, 16, 7, 7), (10, 16, 7, 7)]),
}


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("window", [3, 5])
def test_images_of_any_size_have_one_compilation(name: str, window: int) -> None:
    open_sizes, sizes = OPEN[name]
    w = np.random.default_rng(0).standard_normal((16, 1, window, window), np.float32)

    def model(x: Any) -> Any:
        return gc.conv(x, w, stride=2, padding=window // 2, groups=16)

    function = gc.compile(model, sizes={"x": open_sizes})
    for size in sizes:
        x = np.random.default_rng(1).standard_normal(size, np.float32)
        (expected,) = interpret(gc.compile(model).graph(x), [x])
        np.testing.assert_allclose(function(x), expected, rtol=1e-5, atol=1e-5)
    assert len(function.compiles) == 1
