"""Layers of networks: normalisation, pooling, attention, rotary embedding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, refuse
from graphc.formats.onnx.table import operator
from graphc.formats.windows import largest_of_windows, lowest, windowed, windows_of
from graphc.ops.nn.pooling import pool_windows
from graphc.ops.record.value import functions as f

# ------------------------------------------------------------------------------------ normalisation


@operator("BatchNormalization")
def batch_normalization(
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    is_test: int = 1,
    call: Any,
) -> Any:
    if not training_mode:
        wide = [f.astype(v, x.dtype) for v in (mean, variance, scale, bias)]
        return f.batch_norm(x, *wide, axis=1, epsilon=epsilon)
    axes = tuple(k for k in range(x.ndim) if k != 1)
    own, spread = f.mean(x, axis=axes), f.var(x, axis=axes)
    made = f.batch_norm(x, own, spread, scale, bias, axis=1, epsilon=epsilon)
    return made, _mixed(mean, own, momentum), _mixed(variance, spread, momentum)


def _mixed(old: Any, new: Any, momentum: float) -> Any:
    kept, part = (np.asarray(v, old.dtype) for v in (momentum, 1 - momentum))
    return f.add(f.multiply(old, kept), f.multiply(f.astype(new, old.dtype), part))


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    return f.instance_norm(x, scale, bias, axis=1, epsilon=epsilon)


@operator("GroupNormalization", since=21)
def group_normalization(
    x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Any:
    return f.group_norm(x, num_groups, scale, bias, axis=1, epsilon=epsilon)


@operator("GroupNormalization", since=18)
def group_normalization_by_group(
    x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5, num_groups: int
) -> Any:
    per = x.shape[1] // num_groups
    weights = [f.repeat(v, per) for v in (scale, bias)]
    return f.group_norm(x, num_groups, *weights, axis=1, epsilon=epsilon)


def _last_axes(x: Any, axis: int) -> tuple[int, ...]:
    (axis,) = axes_of([axis], x.ndim)
    return tuple(range(axis, x.ndim))


@operator("LayerNormalization")
def layer_normalization(
    x: Any,
    scale: Any,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    call: Any,
) -> Any:
    axes = _last_axes(x, axis)
    made = f.layer_norm(x, axis=axes, epsilon=epsilon)
    made = f.multiply(made, scale)
    made = made if bias is None else f.add(made, bias)
    if call.outputs == 1:
        return made
    wide = f.astype(x, np.float32)
    spread = f.add(f.var(wide, axis=axes, keepdims=True), np.float32(epsilon))
    return made, f.mean(wide, axis=axes, keepdims=True), f.rsqrt(spread)


@operator("RMSNormalization")
@operator("SimplifiedLayerNormalization")
def rms_normalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return f.multiply(f.rms_norm(x, axis=_last_axes(x, axis), epsilon=epsilon), scale)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Any, *, axes: tuple[int, ...] = (0, 2, 3)) -> Any:
    away = f.subtract(x, f.mean(x, axis=axes, keepdims=True))
    spread = f.sqrt(f.mean(f.multiply(away, away), axis=axes, keepdims=True))
    return f.divide(away, f.add(spread, np.asarray(1e-9, x.dtype)))


@operator("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    refuse(p in (1, 2), f"norm {p}")
    size = f.abs(x) if p == 1 else f.multiply(x, x)
    total = f.sum(size, axis=axis, keepdims=True)
    total = total if p == 1 else f.sqrt(total)
    safe = f.where(f.equal(total, 0), np.ones((), x.dtype), total)
    return f.divide(x, safe)


@operator("LRN")
def local_response(
    x: Any, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int
) -> Any:
    return f.local_response_norm(x, size, alpha=alpha, beta=beta, k=bias)


# ------------------------------------------------------------------------------------ pooling


@operator("MaxPool")
def max_pool(
    x: Any,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    kernel_shape: tuple[int, ...],
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    call: Any,
) -> Any:
    step, spread, pairs, more = windowed(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    around = [(0, 0), (0, 0), *((low, high + m) for (low, high), m in zip(pairs, more))]
    kind = np.dtype(x.dtype)
    if call.wants(1):
        return _max_with_places(x, kernel_shape, step, spread, around[2:], storage_order)
    padded = f.pad(x, around, constant_values=lowest(kind)) if any(map(any, around)) else x
    return pool_windows(padded, "max", kernel_shape, step, spread)


def _max_with_places(
    x: Any, window: Any, step: Any, spread: Any, around: Any, column_major: int
) -> tuple[Any, Any]:
    """The largest elements and their places in the flattened array, whose images and channels are
    in the order of rows even where places of an image are in that of columns."""
    largest, places = largest_of_windows(x, window, step, spread, around)
    extents = x.shape[2:]
    if column_major:
        places, extents = places[::-1], extents[::-1]
    at: Any = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(extents))
    for extent, place in zip(extents, places):
        at = f.add(f.multiply(at, extent), place)
    return largest, at


@operator("AveragePool")
def average_pool(
    x: Any,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    kernel_shape: tuple[int, ...],
    pads: Any = None,
    strides: Any = None,
) -> Any:
    step, spread, pairs, more = windowed(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    around = [(0, 0), (0, 0), *((low, high + m) for (low, high), m in zip(pairs, more))]
    total = pool_windows(f.pad(x, around), "sum", kernel_shape, step, spread)
    counts: Any = np.ones((), x.dtype)
    for axis, window in enumerate(kernel_shape):
        (low, high), extent = pairs[axis], x.shape[axis + 2]
        refuse(extent * window <= 1 << 22, f"a window of {window} on an axis of {extent}")
        first, last = (-low, extent + high) if count_include_pad else (0, extent)
        begin = np.arange(total.shape[axis + 2])[:, None] * step[axis] - low
        at = begin + np.arange(window) * spread[axis]
        counted = ((at >= first) & (at < last)).sum(1).astype(x.dtype)
        column = counted.reshape([-1 if k == axis else 1 for k in range(len(kernel_shape))])
        counts = f.multiply(counts, column if (counted != counted[0]).any() else counted[0])
    return f.divide(total, counts)


@operator("LpPool")
def lp_pool(
    x: Any,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    kernel_shape: tuple[int, ...],
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    refuse(p > 0, f"norm {p}")
    step, spread, pairs, more = windowed(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    around = [(0, 0), (0, 0), *((low, high + m) for (low, high), m in zip(pairs, more))]
    powers = f.multiply(x, x) if p == 2 else f.power(f.abs(x), np.asarray(p, x.dtype))
    total = pool_windows(f.pad(powers, around), "sum", kernel_shape, step, spread)
    return f.sqrt(total) if p == 2 else f.power(total, np.asarray(1 / p, x.dtype))


def _spatial(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return f.mean(x, axis=_spatial(x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return f.max(x, axis=_spatial(x), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Any, *, p: int = 2) -> Any:
    powers = f.power(f.abs(x), np.asarray(p, x.dtype))
    total = f.sum(powers, axis=_spatial(x), keepdims=True)
    return f.power(total, np.asarray(1 / p, x.dtype))


@operator("MaxUnpool")
def max_unpool(
    x: Any,
    places: Any,
    shape: Any = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """Elements put back at their places in the array that they were the largest of."""
    from graphc.formats.deciding_values import ints

    step, _, pairs = windows_of(x.shape[2:], kernel_shape, strides, None, pads, "NOTSET")
    inferred = [
        (n - 1) * s + k - low - high
        for n, s, k, (low, high) in zip(x.shape[2:], step, kernel_shape, pairs)
    ]
    whole = (*x.shape[:2], *inferred)
    wanted = whole if shape is None else ints(shape)
    refuse(min(wanted, default=0) >= 0 and len(wanted) == x.ndim, f"shape {list(wanted)}")
    flat = f.zeros((math.prod(whole),), x.dtype)
    numbers = f.reshape(f.astype(places, np.int64), (math.prod(x.shape),))
    made = f.index_update(flat, numbers, f.reshape(x, (math.prod(x.shape),)))
    made = f.reshape(made, whole)
    more = [(0, max(w - n, 0)) for w, n in zip(wanted, whole)]
    return f.pad(made, more) if any(map(any, more)) else made
