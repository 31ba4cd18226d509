"""Operators of torchvision, read from files without it, beside their definitions in loops."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_files import Ref, document, node, save

import graphc as gc

Array = np.ndarray[Any, Any]
WINDOW, MODULE = (3, 2), "torch.ops.torchvision."


class Calls:
    """An operator of torchvision as a program of its own: a call of arrays and numbers."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "net.pt2"

    def __call__(self, operator: str, results: int = 1, **operands: Any) -> Any:
        arrays = {k: v for k, v in operands.items() if isinstance(v, np.ndarray)}
        given = {k: Ref(k) if k in arrays else v for k, v in operands.items()}
        names = [f"y{k}" for k in range(results)]
        step = node("", names, **given) | {"target": f"{MODULE}{operator}.default"}
        if results > 1:
            step["outputs"] = [{"as_tensor": {"name": name}} for name in names]
        inputs = {k: (str(v.dtype), v.shape) for k, v in arrays.items()}
        made = gc.load(save(self.path, document([step], inputs, names)))(**arrays)
        return made["y0"] if results == 1 else [made[name] for name in names]


@pytest.fixture
def call(tmp_path: Path) -> Calls:
    return Calls(tmp_path)


def boxes_of(seed: int, count: int, extent: float = 20) -> Array:
    """Boxes (x1, y1, x2, y2) of a quarter of the image or less; the first has no area."""
    corners = np.random.default_rng(seed).uniform(0, extent, (count, 4))
    corners[:, 2:] = corners[:, :2] + corners[:, 2:] / 2
    corners[:1, 2:] = corners[:1, :2]
    return corners.astype(np.float32)


def kept(boxes: Array, scores: Array, most: float) -> list[int]:
    left: list[int] = []
    for k in np.argsort(-scores, kind="stable"):
        x1, y1, x2, y2 = boxes[k]
        for other in left:
            a1, b1, a2, b2 = boxes[other]
            shared = max(min(x2, a2) - max(x1, a1), 0) * max(min(y2, b2) - max(y1, b1), 0)
            union = (x2 - x1) * (y2 - y1) + (a2 - a1) * (b2 - b1) - shared
            if union and float(shared / union) > most:  # f32, compared in f64
                break
        else:
            left.append(int(k))
    return left


@pytest.mark.parametrize("count", [0, 1, 40])
def test_boxes_that_are_left(call: Calls, count: int) -> None:
    boxes = boxes_of(count, count)
    scores = np.random.default_rng(1).normal(size=count).round(1).astype(np.float32)
    scores[1:2] = -np.inf
    for most in (0.1, 0.4):
        made = call("nms", dets=boxes, scores=scores, iou_threshold=most)
        assert made.dtype == np.int64 and made.tolist() == kept(boxes, scores, most)


def test_overlaps_are_compared_with_the_whole_threshold(call: Calls) -> None:
    """1 / 10 in f32 is more than 0.1 in f64, and 1 / 5 is, 0.7 is less."""
    boxes = np.array([[0, 0, 10, 1], [0, 0, 1, 1], [0, 0, 7, 1], [20, 0, 30, 1], [20, 0, 22, 1]])
    boxes, scores = boxes.astype(np.float32), np.arange(5, 0, -1).astype(np.float32)
    for most in (0.1, 0.2, 0.7):
        made = call("nms", dets=boxes, scores=scores, iou_threshold=most)
        assert made.tolist() == kept(boxes, scores, most)
    assert call("nms", dets=boxes[:2], scores=scores[:2], iou_threshold=0.1).tolist() == [0]


def read(image: Array, y: float, x: float, low: float = 0.0) -> Any:
    """image[C, H, W] between its elements; `low` pulls positions outside to the border."""
    total = np.zeros(image.shape[0])
    for i in (math.floor(y), math.floor(y) + 1):
        for j in (math.floor(x), math.floor(x) + 1):
            if 0 <= i < image.shape[1] and 0 <= j < image.shape[2]:
                total += image[:, i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


def regions(x: Array, rois: Array, scale: float, size: Any, ratio: int, aligned: bool) -> Array:
    height, width = x.shape[2:]
    made = np.zeros((len(rois), x.shape[1], *size))
    for roi, (image, *corners) in zip(made, rois.astype(np.float64)):
        x1, y1, x2, y2 = (v * scale - 0.5 * aligned for v in corners)
        span = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1), max(x2 - x1, 1))
        counts = [ratio if ratio > 0 else math.ceil(s / n) for s, n in zip(span, size)]
        for i, j in np.ndindex(*size):
            for a, b in np.ndindex(*counts):
                y = y1 + (i + (a + 0.5) / counts[0]) * span[0] / size[0]
                z = x1 + (j + (b + 0.5) / counts[1]) * span[1] / size[1]
                if -1 <= y <= height and -1 <= z <= width:
                    at = min(max(y, 0), height - 1), min(max(z, 0), width - 1)
                    roi[:, i, j] += read(x[int(image)], *at) / math.prod(counts)
    return made


@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_regions_and_what_goes_back_to_their_images(call: Calls, ratio: int, aligned: bool) -> None:
    """With no ratio a box has as many samples as elements, more along one side than the other."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 3, 9, 11)).astype(np.float32)
    rois = np.concatenate([generator.integers(0, 2, (7, 1)), boxes_of(3, 7)], 1, dtype=np.float32)
    sizes = {"pooled_height": 3, "pooled_width": 2}
    how: dict[str, Any] = {"sampling_ratio": ratio, "aligned": aligned}
    made = call("roi_align", input=x, rois=rois, spatial_scale=0.7, **sizes, **how)
    np.testing.assert_allclose(made, regions(x, rois, 0.7, (3, 2), ratio, aligned), atol=1e-5)
    grad = generator.normal(size=made.shape).astype(np.float32)
    extents = {"batch_size": 2, "channels": 3, "height": 9, "width": 11}
    slope = call(
        "_roi_align_backward", grad=grad, rois=rois, spatial_scale=0.7, **sizes, **extents, **how
    )
    np.testing.assert_allclose((slope * x).sum(), (grad * made).sum(), rtol=1e-4)


def moved(x: Array, w: Array, offset: Array, mask: Any, step: Any, pad: Any, spread: Any) -> Array:
    """Groups of channels follow from the extents of w, those of offsets from theirs."""
    places = list(np.ndindex(*WINDOW))
    per = x.shape[1] // (offset.shape[1] // (2 * len(places)))
    groups = x.shape[1] // w.shape[1]
    made = np.zeros((len(x), len(w), *offset.shape[2:]))
    for n, i, j in np.ndindex(len(x), *offset.shape[2:]):
        column = np.zeros((x.shape[1], *WINDOW))
        for first in range(0, x.shape[1], per):
            for k, (a, b) in enumerate(places):
                at = (first // per * len(places) + k) * 2
                y = i * step[0] - pad[0] + a * spread[0] + offset[n, at, i, j]
                z = j * step[1] - pad[1] + b * spread[1] + offset[n, at + 1, i, j]
                factor = 1 if mask is None else mask[n, at // 2, i, j]
                column[first : first + per, a, b] = factor * read(x[n, first : first + per], y, z)
        cut = column.reshape(groups, *w.shape[1:])
        for o, kernel in enumerate(w):
            made[n, o, i, j] = (cut[o // (len(w) // groups)] * kernel).sum()
    return made


@pytest.mark.parametrize(
    ("groups", "offsets", "step", "pad", "spread", "masked"),
    [(1, 1, (1, 1), (0, 0), (1, 1), True), (2, 4, (2, 1), (1, 2), (1, 2), False)],
)
def test_windows_whose_elements_are_moved(
    call: Calls, groups: int, offsets: int, step: Any, pad: Any, spread: Any, masked: bool
) -> None:
    generator = np.random.default_rng(0)
    draw = lambda *shape: generator.normal(size=shape)
    x, w, bias = draw(2, 4, 5, 6), draw(6, 4 // groups, *WINDOW), draw(6)
    extents = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], pad, spread, WINDOW, step)
    ]
    offset, mask = draw(2, offsets * 12, *extents), draw(2, offsets * 6, *extents)
    names = ["stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w"]
    how = dict(zip(names, (*step, *pad, *spread)), groups=groups, offset_groups=offsets)
    operands = {"input": x, "weight": w, "offset": offset, "mask": mask, "bias": bias}
    made = call("deform_conv2d", **operands, **how, use_mask=masked)
    wanted = moved(x, w, offset, mask if masked else None, step, pad, spread)
    np.testing.assert_allclose(made, wanted + bias[:, None, None], atol=1e-6)
    grad = draw(*made.shape)
    slopes = call("_deform_conv2d_backward", 5, grad=grad, **operands, **how, use_mask=masked)
    for (name, value), slope in zip(operands.items(), slopes):
        way = draw(*value.shape)
        ends = [
            call("deform_conv2d", **operands | {name: value + h * way}, **how, use_mask=masked)
            for h in (1e-6, -1e-6)
        ]
        change = ((ends[0] - ends[1]) * grad).sum() / 2e-6
        np.testing.assert_allclose((slope * way).sum(), change, rtol=1e-5, atol=1e-5)
