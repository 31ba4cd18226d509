"""Rows of tables by their numbers, alone and in bags; windows of images as columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.products import each
from graphc.formats.torch.promotion import cast, dtype_of
from graphc.formats.torch.table import aten
from graphc.formats.windows import add_windows, cut_windows, windows_of
from graphc.ops.record.value import functions as f


@aten("embedding")
def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return f.take(weight, indices, axis=0)


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of rows; those of a bag begin at its offset. Only they are results."""
    refuse(padding_idx in (None, -1), "rows that count as padding")
    starts = f.getitem(offsets, slice(0, -1)) if include_last_offset else offsets
    bags, count = starts.shape[0], indices.shape[0]
    refuse(type(bags) is int and bags > 0, "an open number of bags")
    rows = f.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = f.multiply(rows, f.expand_dims(per_sample_weights, 1))
    at = f.subtract(f.searchsorted(starts, f.arange(count), side="right"), 1)
    how = "max" if mode == 2 else "add"
    empty = cast(-np.inf if mode == 2 else 0, dtype_of(weight))
    made = f.index_update(f.full((bags, weight.shape[1]), empty), at, rows, how)
    if mode == 0:
        return made, None, None, None
    sizes = f.index_update(f.zeros((bags,), np.int64), at, f.ones((count,), np.int64), "add")
    held = f.expand_dims(sizes, 1)
    if mode == 1:
        made = f.divide(made, cast(f.maximum(held, 1), dtype_of(weight)))
    return f.where(f.greater(held, 0), made, cast(0, dtype_of(weight))), None, None, None


@aten("one_hot")
def one_hot(x: Any, num_classes: int = -1) -> Any:
    refuse(num_classes >= 0, "the number of classes is not given")
    return f.one_hot(x, num_classes, dtype=np.int64)


# ------------------------------------------------------------------------------------ windows


def _window(extents: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Window, steps, dilations and paddings of two axes."""
    size, spread, pads, step = (each(v, 2) for v in (kernel, dilation, padding, stride))
    step, spread, pairs = windows_of(extents, size, step, spread, (*pads, *pads), "NOTSET")
    return size, step, spread, pairs


@aten("im2col")
def im2col(x: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    size, step, spread, pairs = _window(x.shape[-2:], kernel_size, dilation, padding, stride)
    refuse(math.prod(size) <= 1 << 10, f"a window of {list(size)}")
    image = x if x.ndim == 4 else f.expand_dims(x, 0)
    parts = cut_windows(f.pad(image, [(0, 0), (0, 0), *pairs]), size, step, spread)
    batch, channels, height, width, count = parts.shape
    columns = f.transpose(parts, (0, 1, 4, 2, 3))
    made = f.reshape(columns, (batch, channels * count, height * width))
    return made if x.ndim == 4 else f.squeeze(made, 0)


@aten("col2im")
def col2im(
    x: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    size, step, spread, pairs = _window(output_size, kernel_size, dilation, padding, stride)
    columns = x if x.ndim == 3 else f.expand_dims(x, 0)
    made = add_windows(columns, tuple(output_size), size, step, spread, pairs)
    return made if x.ndim == 3 else f.squeeze(made, 0)
