"""Operators of torchvision: boxes, regions of images, deformable convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.formats.regions import deformable_convolution, samples_of_boxes
from graphc.formats.torch.operators.backward import pulled
from graphc.formats.torch.operators.indexing import nonzero
from graphc.formats.torch.promotion import dtype_of
from graphc.formats.torch.table import aten
from graphc.frontend.transforms.control import scan
from graphc.ops.record.value import functions as f


@aten("nms", space="torchvision")
def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """The places of boxes [B, 4] that are kept, best score first; a run tells how many.

    A box goes where one before it that is kept shares more with it; sides may be negative.
    """
    if scores.shape[0] == 0:
        return f.zeros((0,), np.int64)
    order = f.argsort(scores, axis=0, descending=True)
    edges = f.transpose(f.take(dets, order, axis=0), (1, 0))
    low, high = f.getitem(edges, slice(0, 2)), f.getitem(edges, slice(2, 4))
    area = f.prod(f.subtract(high, low), axis=0)
    places = f.arange(scores.shape[0])

    def step(left: Any, k: Any) -> Any:
        first, last = (f.expand_dims(f.take(edge, k, axis=1), 1) for edge in (low, high))
        first, last = f.maximum(low, first), f.minimum(high, last)
        shared = f.prod(f.maximum(f.subtract(last, first), 0), axis=0)
        share = f.divide(shared, f.subtract(f.add(area, f.take(area, k)), shared))
        near = f.greater(f.astype(share, np.float64), iou_threshold)  # in f64, as the threshold is
        gone = f.logical_and(f.logical_and(near, f.greater(places, k)), f.take(left, k))
        return f.logical_and(left, f.logical_not(gone)), None

    left, _ = scan(step, f.ones(scores.shape, bool), places)
    return f.take(order, f.getitem(nonzero(left), (slice(None), 0)), axis=0)


@aten("roi_align", space="torchvision")
def roi_align(
    x: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    how = spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned
    return _aligned(rois, *how)(x)


def _aligned(
    rois: Any, scale: float, size: tuple[int, int], ratio: int, aligned: bool
) -> Callable[[Any], Any]:
    """The function of images that reads regions (image, x1, y1, x2, y2) of them."""
    batch, boxes = f.getitem(rois, (..., 0)), f.getitem(rois, (..., slice(1, None)))
    samples, counts = samples_of_boxes(boxes, size, scale, ratio, aligned)
    return lambda x: f.roi_align(x, boxes, batch, size, scale, samples, "mean", aligned, counts)


@aten("_roi_align_backward", space="torchvision")
def roi_align_backward(
    grad: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    forward = _aligned(rois, spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned)
    return pulled(forward, grad, f.zeros((batch_size, channels, height, width), dtype_of(grad)))[0]


@aten("deform_conv2d", space="torchvision")
def deform_conv2d(
    x: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    made = deformable_convolution(
        x,
        weight,
        offset,
        mask if use_mask else None,
        (stride_h, stride_w),
        (pad_h, pad_w),
        (dilation_h, dilation_w),
        groups,
        offset_groups,
    )
    return f.add(made, f.reshape(bias, (1, -1, 1, 1)))


@aten("_deform_conv2d_backward", space="torchvision")
def deform_conv2d_backward(
    grad: Any,
    x: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    steps = stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w

    def forward(*operands: Any) -> Any:
        return deform_conv2d(*operands, *steps, groups, offset_groups, use_mask)

    return pulled(forward, grad, x, weight, offset, mask, bias)
