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


@aten("embedding_renorm")
def embedding_renorm(x: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    """Rows that are looked up, if they are longer than a norm, shortened to it."""
    kind = dtype_of(x)
    met = f.index_update(f.zeros(x.shape[:1], bool), f.reshape(indices, (-1,)), True)
    norm = f.vector_norm(x, axis=1, keepdims=True, ord=float(norm_type))
    over = f.logical_and(f.expand_dims(met, 1), f.greater(norm, cast(max_norm, kind)))
    factor = f.divide(cast(max_norm, kind), f.add(norm, cast(1e-7, kind)))
    return f.where(over, f.multiply(x, factor), x)


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
    """Sums, means or maxima of rows; those of a bag begin at its offset.

    Besides, what PyTorch keeps for gradients: the bag of each row (nothing where it adds f32 up),
    the sizes of bags, and which rows are the maxima.
    """
    starts = f.getitem(offsets, slice(0, -1)) if include_last_offset else offsets
    bags, count = starts.shape[0], indices.shape[0]
    refuse(type(bags) is int and bags > 0, "an open number of bags")
    rows = f.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = f.multiply(rows, f.expand_dims(per_sample_weights, 1))
    at = f.where(_counts(indices, padding_idx), _bag_of_rows(starts, count), bags)
    how = "max" if mode == 2 else "add"
    kind = dtype_of(weight)
    empty = cast(-np.inf if mode == 2 else 0, kind)
    made = f.index_update(f.full((bags + 1, weight.shape[1]), empty), at, rows, how)
    sizes = f.index_update(f.zeros((bags + 1,), np.int64), at, f.ones((count,), np.int64), "add")
    held = f.expand_dims(sizes, 1)
    highest = f.zeros((bags,), np.int64)
    if mode == 2:
        highest = _first_rows(f.equal(rows, f.take(made, at, axis=0)), at, indices, bags + 1)
        highest = f.getitem(highest, slice(0, bags))
    if mode == 1:
        made = f.divide(made, cast(f.maximum(held, 1), kind))
    if mode:
        made = f.where(f.greater(held, 0), made, cast(0, kind))
    summed = mode == 0 and kind in (np.float32, np.float16)
    made, sizes = (f.getitem(v, slice(0, bags)) for v in (made, sizes))
    return made, f.zeros((0,), np.int64) if summed else at, sizes, highest


def _counts(indices: Any, padding_idx: int | None) -> Any:
    """Which rows are not padding, of which -1 is none."""
    return f.not_equal(indices, -1 if padding_idx is None else padding_idx)


def _bag_of_rows(starts: Any, count: Any) -> Any:
    return f.subtract(f.searchsorted(starts, f.arange(count), side="right"), 1)


def _first_rows(equal: Any, at: Any, indices: Any, bags: int) -> Any:
    """Of each bag and column the first of the indices whose row is marked."""
    count = indices.shape[0]
    places = f.where(equal, f.expand_dims(f.arange(count), 1), count)
    first = f.index_update(f.full((bags, equal.shape[1]), count), at, places, "min")
    return f.take(f.concatenate([indices, f.zeros((1,), np.int64)]), first, axis=0)


@aten("_embedding_bag_backward", "_embedding_bag_dense_backward")
def embedding_bag_backward(
    grad: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    padding_idx: int = -1,
) -> Any:
    """The gradient of the rows of the table, each of which may be in many bags."""
    refuse(not sparse, "gradients that are sparse tensors")
    bags, width = grad.shape
    table = f.zeros((num_weights, width), dtype_of(grad))
    if mode == 2:
        part = f.where(f.greater(f.expand_dims(bag_size, 1), 0), grad, cast(0, dtype_of(grad)))
        columns = f.broadcast_to(f.arange(width), (bags, width))
        return f.index_update(table, (maximum_indices, columns), part, "add")
    if mode == 1:
        grad = f.divide(grad, cast(f.maximum(f.expand_dims(bag_size, 1), 1), dtype_of(grad)))
    at = _bag_of_rows(f.getitem(offsets, slice(0, bags)), indices.shape[0])
    rows = f.take(grad, at, axis=0)
    rows = f.where(f.expand_dims(_counts(indices, padding_idx), 1), rows, cast(0, dtype_of(grad)))
    if per_sample_weights is not None:
        rows = f.multiply(rows, f.expand_dims(per_sample_weights, 1))
    if scale_grad_by_freq:
        often = f.index_update(f.zeros((num_weights,), dtype_of(grad)), indices, 1, "add")
        rows = f.divide(rows, f.expand_dims(f.take(often, indices, axis=0), 1))
    return f.index_update(table, indices, rows, "add")


@aten("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    grad: Any,
    weight: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    at = _bag_of_rows(f.getitem(offsets, slice(0, grad.shape[0])), indices.shape[0])
    made = f.sum(f.take(grad, at, axis=0) * f.take(weight, indices, axis=0), axis=1)
    return f.where(_counts(indices, padding_idx), made, cast(0, dtype_of(grad)))


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
