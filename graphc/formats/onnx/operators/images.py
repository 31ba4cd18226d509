"""Images: Resize in every mode, GridSample, RoiAlign, boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, ints, known, number, refuse
from graphc.formats.onnx.table import operator
from graphc.formats.regions import largest_in_boxes, samples_of_boxes
from graphc.frontend.transforms.non_max_suppression import nms
from graphc.ops.nn.images import neighbours
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]


@operator("Resize", since=11)
def resize(
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    which = axes_of(axes if axes is not None else range(x.ndim), x.ndim)
    extents = [x.shape[axis] for axis in which]
    factors, wanted = _targets(extents, scales, sizes, keep_aspect_ratio_policy)
    crop = np.zeros(0) if roi is None else known(roi).astype(np.float64)
    how = coordinate_transformation_mode
    made, outside = x, None
    for k, axis in enumerate(which):
        region = (crop[k], crop[k + len(which)]) if how == "tf_crop_and_resize" else (0.0, 1.0)
        if factors[k] == 1 and wanted[k] == extents[k] and region == (0.0, 1.0):
            continue
        refuse(extents[k] > 0, "an axis without elements")
        at = _positions(wanted[k], extents[k], factors[k], how, region)
        if how == "tf_crop_and_resize":
            beyond = (at < 0) | (at > extents[k] - 1)
            column = beyond.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            outside = column if outside is None else outside | column
        made = _resampled(
            made,
            axis,
            at,
            factors[k],
            mode,
            nearest_mode,
            antialias,
            cubic_coeff_a,
            exclude_outside,
        )
    if outside is None:
        return made
    return f.where(outside, np.asarray(extrapolation_value, x.dtype), made)


def _targets(
    extents: Sequence[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[float], list[int]]:
    """Factors and new extents of the axes."""
    if sizes is None or not np.size(known(sizes)):
        refuse(scales is not None, "needs scales or sizes")
        factors = [float(v) for v in known(scales).reshape(-1)]
        refuse(len(factors) == len(extents), f"{len(factors)} scales of {len(extents)} axes")
        refuse(all(0 < v < 1e6 for v in factors), "scales are positive")
        return factors, [math.floor(n * v) for n, v in zip(extents, factors)]
    wanted = list(ints(sizes))
    refuse(len(wanted) == len(extents) and min(wanted) >= 0, f"sizes {wanted}")
    factors = [1.0 if w == n or not n else w / n for w, n in zip(wanted, extents)]
    if policy in ("not_larger", "not_smaller"):
        factor = (min if policy == "not_larger" else max)(factors)
        wanted = [int(factor * n + 0.5) for n in extents]
        factors = [factor] * len(extents)
    return factors, wanted


def _positions(
    size: int, extent: int, factor: float, how: str, region: tuple[float, float]
) -> Array:
    """Where on the old axis each element of the new one lies."""
    refuse(size <= 1 << 20, f"an axis of {size}")
    steps = np.arange(size, dtype=np.float64)
    if how == "asymmetric":
        return steps / factor
    if how == "align_corners":
        span = factor * extent - 1
        return steps * (extent - 1) / span if size > 1 and span > 0 else np.zeros(size)
    if how == "pytorch_half_pixel" and size <= 1:
        return np.full(size, -0.5)
    if how == "tf_crop_and_resize":
        low, high = region
        if size > 1:
            return low * (extent - 1) + steps * (high - low) * (extent - 1) / (size - 1)
        return np.full(size, 0.5 * (low + high) * (extent - 1))
    if how == "half_pixel_symmetric":
        adjusted = size / (factor * extent)
        offset = extent / 2 * (1 - adjusted)
        return offset + (steps + 0.5) / factor - 0.5
    if how == "tf_half_pixel_for_nn":
        return (steps + 0.5) / factor
    refuse(how in ("half_pixel", "pytorch_half_pixel"), f"no coordinates {how!r}")
    return (steps + 0.5) / factor - 0.5


def _resampled(
    x: Any,
    axis: int,
    at: Array,
    factor: float,
    mode: str,
    rounding: str,
    antialias: int,
    a: float,
    exclude: int,
) -> Any:
    extent = x.shape[axis]
    if mode == "nearest":
        rounded = {
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
            "floor": np.floor(at),
            "ceil": np.ceil(at),
        }.get(rounding)
        refuse(rounded is not None, f"no rounding {rounding!r}")
        assert rounded is not None
        return f.take(x, np.clip(rounded.astype(np.int64), 0, extent - 1), axis=axis)
    refuse(mode in ("linear", "cubic"), f"no mode {mode!r}")
    reach = 4 / min(factor, 1.0) if antialias else 4
    refuse(len(at) * reach <= 1 << 20, f"sums of {reach:.0f} elements for an axis of {len(at)}")
    places, weights = neighbours(
        at, extent, mode, factor, antialias=bool(antialias), a=a, exclude_outside=bool(exclude)
    )
    return f.resample(x, axis, places, weights)


@operator("Resize", since=10)
@operator("Upsample", since=9)
def resize_ten(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    how = {"linear": "linear", "bilinear": "linear"}.get(mode, mode)
    return resize(
        x, None, scales, mode=how, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


@operator("Upsample")
def upsample(x: Any, *, scales: tuple[float, ...], mode: str = "nearest") -> Any:
    return resize_ten(x, np.array(scales, np.float32), mode=mode)


_SAMPLING = {"bilinear": "linear", "bicubic": "cubic"}


@operator("GridSample")
def grid_sample(
    x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    how = _SAMPLING.get(mode, mode)
    return f.grid_sample(x, grid, how, padding_mode, bool(align_corners))


@operator("AffineGrid")
def affine_grid(theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    sizes = ints(size)[2:]
    refuse(min(sizes, default=0) > 0 and math.prod(sizes) <= 1 << 21, f"sizes {list(sizes)}")
    return f.affine_grid(theta, sizes, bool(align_corners))


@operator("RoiAlign")
def roi_align(
    x: Any,
    boxes: Any,
    batch: Any,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    call: Any,
) -> Any:
    how = coordinate_transformation_mode
    if how is None:
        how = "half_pixel" if call.node.version >= 16 else "output_half_pixel"
    kind = "max" if mode == "max" else "mean"
    size = output_height, output_width
    aligned = how == "half_pixel"
    samples, counts = samples_of_boxes(boxes, size, spatial_scale, sampling_ratio, aligned)
    return f.roi_align(x, boxes, batch, size, spatial_scale, samples, kind, aligned, counts)


@operator("MaxRoiPool")
def max_roi_pool(x: Any, boxes: Any, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    refuse(x.ndim == 4 and boxes.ndim == 2 and boxes.shape[1] == 5, "boxes of five numbers each")
    height, width = map(int, pooled_shape)
    refuse(min(height, width) > 0, f"a pooled shape of {[height, width]}")
    return largest_in_boxes(x, boxes, (height, width), spatial_scale)


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Any,
    scores: Any,
    most: Any = None,
    overlap: Any = None,
    least: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    count = 0 if most is None else number(most)
    spatial = scores.shape[2]
    if count <= 0 or not spatial:
        return np.zeros((0, 3), np.int64)
    corners = boxes
    if center_point_box:
        x, y, w, h = (f.getitem(boxes, (..., k)) for k in range(4))
        w, h = f.multiply(w, 0.5), f.multiply(h, 0.5)
        corners = f.stack([f.subtract(y, h), f.subtract(x, w), f.add(y, h), f.add(x, w)], -1)
    kept = nms(
        corners,
        scores,
        min(count, spatial),
        0.0 if overlap is None else f.reshape(overlap, ()),
        None if least is None else f.reshape(least, ()),
    )
    from graphc.formats.onnx.operators.indexing import non_zero

    found = f.greater_equal(kept, 0)
    where = non_zero(found)
    b, c, k = (f.getitem(where, n) for n in range(3))
    return f.stack([b, c, f.getitem(kept, (b, c, k))], 1)
