"""Resampling, grids, boxes and spectra beside PyTorch and NumPy, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc

torch = pytest.importorskip("torch", reason="the oracle of resampling")
functional = torch.nn.functional


def image(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def same(made: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("mode", "theirs"), [("linear", "bilinear"), ("cubic", "bicubic")])
@pytest.mark.parametrize("sizes", [(5, 9), (3, 2), (7, 1)])
def test_interpolate(mode: str, theirs: str, align: bool, sizes: tuple[int, int]) -> None:
    x = image(2, 3, 4, 6)
    expected = functional.interpolate(torch.tensor(x), sizes, mode=theirs, align_corners=align)
    same(gc.interpolate(x, sizes, mode, align_corners=align), expected)


@pytest.mark.parametrize(("mode", "theirs"), [("linear", "bilinear"), ("cubic", "bicubic")])
def test_interpolate_antialiased(mode: str, theirs: str) -> None:
    x = image(1, 2, 11, 30)
    how = {"mode": theirs, "antialias": True}
    expected = functional.interpolate(torch.tensor(x), (4, 5), **how)
    if mode == "linear":  # torch takes another cubic where it shrinks
        same(gc.interpolate(x, (4, 5), mode, antialias=True), expected)
    assert gc.interpolate(x, (4, 5), mode, antialias=True).shape == tuple(expected.shape)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "theirs"), [("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")]
)
def test_grid_sample(mode: str, theirs: str, padding: str, align: bool) -> None:
    x, grid = image(2, 3, 4, 5), image(2, 6, 7, 2, seed=1)
    expected = functional.grid_sample(
        torch.tensor(x), torch.tensor(grid), theirs, padding, align_corners=align
    )
    same(gc.grid_sample(x, grid, mode, padding, align), expected)


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(align: bool) -> None:
    theta = image(2, 2, 3)
    expected = functional.affine_grid(torch.tensor(theta), [2, 1, 4, 5], align_corners=align)
    same(gc.affine_grid(theta, (4, 5), align), expected)


def test_blocks_and_depth_are_inverse() -> None:
    x = image(2, 8, 3, 4)
    same(gc.depth_to_space(x, 2, depth_first=False), functional.pixel_shuffle(torch.tensor(x), 2))
    for first in (False, True):
        same(gc.space_to_depth(gc.depth_to_space(x, 2, first), 2, first), x, 0)
    with pytest.raises(gc.GraphError, match="8 channels"):
        gc.depth_to_space(x, 3)


def test_local_response_norm() -> None:
    x = image(2, 7, 3, 3)
    theirs = torch.nn.LocalResponseNorm(5, 0.1, 0.7, 2.0)(torch.tensor(x))
    same(gc.local_response_norm(x, 5, 0.1, 0.7, 2.0), theirs)


def test_spectra() -> None:
    x = image(3, 12)
    re, im = gc.dft(x)
    same(re + 1j * im, np.fft.fft(x), 1e-5)
    back, _ = gc.dft(re, im, inverse=True)
    same(back, x, 1e-5)
    window = np.hanning(8).astype(np.float32)
    re, im = gc.stft(x, 2, 8, window)
    frames = np.lib.stride_tricks.sliding_window_view(x, 8, -1)[:, ::2] * window
    same(re + 1j * im, np.fft.rfft(frames), 1e-5)


def test_boxes() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [1, 1, 0, 0]]], np.float32)
    scores = np.array([[[0.6, 0.9, 0.5, 0.3]]], np.float32)
    assert gc.nms(boxes, scores, 4, 0.5).tolist() == [[[1, 2, -1, -1]]]
    assert gc.nms(boxes, scores, 2, 0.95, least=0.55).tolist() == [[[1, 0]]]


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([-np.inf] * 4, [0, 2, 3]),
        ([1, -np.inf, 2, -np.inf], [2, 0, 3]),
        ([-np.inf, -1, -np.inf, -np.inf], [1, 2, 3]),
        ([np.nan, 1, -np.inf, -np.inf], [0, 2, 3]),
    ],
)
def test_boxes_of_the_lowest_scores_are_kept_once(scores: list[float], kept: list[int]) -> None:
    """The first two are one box; what is taken away has a score of -inf while others are sought."""
    boxes = np.array([[[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3], [5, 5, 6, 6]]], np.float32)
    found = gc.nms(boxes, np.array([[scores]], np.float32), 4)
    assert found.tolist() == [[[*kept, -1]]]
    assert gc.compile(lambda b, s: gc.nms(b, s, 4))(
        boxes, np.array([[scores]], np.float32)
    ).tolist() == [[[*kept, -1]]]


@pytest.mark.parametrize("kind", ["mean", "max"])
def test_regions_have_as_many_samples_as_each_says(kind: str) -> None:
    x = image(2, 3, 7, 8)
    boxes = np.array([[0.5, 0.5, 4.0, 3.0], [1, 0, 7.5, 6]], np.float32)
    batch, counts = np.array([1, 0]), np.array([[2, 2], [3, 3]])
    made = gc.roi_align(x, boxes, batch, (2, 3), 1.0, 4, kind, counts=counts)
    for k, count in enumerate((2, 3)):
        one = gc.roi_align(x, boxes[k : k + 1], batch[k : k + 1], (2, 3), 1.0, count, kind)
        same(made[k : k + 1], one, 1e-6)
    none = gc.roi_align(x, boxes, batch, (2, 3), 1.0, 4, kind, counts=np.array([[0, 2], [1, 1]]))
    assert not np.any(none[0]) and np.any(none[1])


@pytest.mark.parametrize("name", ["interpolate", "grid_sample", "local_response_norm", "roi_align"])
def test_gradients_and_compiled_results(name: str) -> None:
    """The compiled slope is that of small steps, and the value that of the interpreter."""
    x = image(1, 4, 5, 6).astype(np.float64)
    functions = {
        "interpolate": lambda v: gc.interpolate(v, (3, 8), "cubic"),
        "grid_sample": lambda v: gc.grid_sample(v, image(1, 3, 3, 2, seed=2).astype(v.dtype)),
        "local_response_norm": lambda v: gc.local_response_norm(v, 3, alpha=0.5),
        "roi_align": lambda v: gc.roi_align(
            v, np.array([[0.5, 0.5, 4.0, 3.0]]), np.array([0]), (2, 3)
        ),
    }
    function = functions[name]
    same(gc.compile(function)(x), function(x), 1e-12)
    step = image(*x.shape, seed=3).astype(np.float64)
    total = lambda v: (function(v) ** 2).sum()
    slope = (gc.compile(gc.grad(total))(x) * step).sum()
    ends = [total(x + h * step) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-5)
