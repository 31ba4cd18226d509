"""Operators that read boxes of images, beside loops in Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the onnx package reads ONNX files")
from onnx_operators import floats, run

from graphc.errors import GraphError


def rounded(value: float) -> int:
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def largest(x: Any, boxes: Any, cells: tuple[int, int], scale: float) -> Any:
    made = np.zeros((len(boxes), x.shape[1], *cells), np.float32)
    for part, (image, *corners) in zip(made, boxes):
        left, top, right, bottom = (rounded(float(c) * scale) for c in corners)
        for i, j in np.ndindex(*cells):
            places = []
            for k, low, high, count, extent in (
                (i, top, bottom, cells[0], x.shape[2]),
                (j, left, right, cells[1], x.shape[3]),
            ):
                step = max(high - low + 1, 1) / count
                first, last = math.floor(k * step) + low, math.ceil((k + 1) * step) + low
                places.append(slice(min(max(first, 0), extent), min(max(last, 0), extent)))
            window = x[int(image), :, places[0], places[1]]
            if window.size:
                part[:, i, j] = window.max((1, 2))
    return made


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_the_largest_in_each_cell_of_a_box(scale: float) -> None:
    x = floats(2, 3, 9, 11)
    boxes = np.array(
        [[0, 0, 0, 10, 8], [1, 2, 1, 7, 6], [0, 5, 5, 5, 5], [1, -3, -2, 4, 20], [0, 9, 7, 2, 3]],
        np.float32,
    )
    boxes = np.concatenate([boxes, boxes + np.float32([0, 0.5, 0.5, 0.5, 1.5])])
    boxes[:, 1:] /= scale
    (made,) = run("MaxRoiPool", [x, boxes], domain="", pooled_shape=[4, 2], spatial_scale=scale)
    np.testing.assert_array_equal(made, largest(x, boxes, (4, 2), scale))


def test_boxes_of_other_lengths_are_refused() -> None:
    with pytest.raises(GraphError, match="boxes of five numbers"):
        run("MaxRoiPool", [floats(1, 1, 4, 4), floats(2, 4)], domain="", pooled_shape=[2, 2])
