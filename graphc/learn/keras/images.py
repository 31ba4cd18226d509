"""Convolutions, pools, padding, cropping and resampling.

images[batch, *spatial, channels]   channels last, Keras's default: turned, computed, turned back
images[batch, channels, *spatial]   channels first, as graphc computes
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.learn.keras.activations import activation
from graphc.learn.keras.table import (
    Array,
    Function,
    Settings,
    Weights,
    as_real,
    each,
    expect,
    layers,
    one_of,
    rank_of,
    some,
)
from graphc.limits import check_within
from graphc.ops.nn.images import cubic
from graphc.ops.record.value import functions as f


def is_first(settings: Settings) -> bool:
    return settings.get("data_format") == "channels_first"


def channels_first(settings: Settings, function: Function) -> Function:
    """A function of [batch, channels, *spatial] for images as the settings say that they lie."""
    if is_first(settings):
        return function
    return lambda inputs: f.moveaxis(function(f.moveaxis(inputs, -1, 1)), 1, -1)


def _with_bias(made: Any, bias: Sequence[Array]) -> Any:
    return f.add(made, bias[0].reshape(-1, *(1,) * (rank_of(made) - 2))) if bias else made


def _after(settings: Settings, function: Function) -> Function:
    """A convolution and its activation, which sees channels where the layer has them."""
    after, inner = activation(settings), channels_first(settings, function)
    return lambda inputs: after(inner(inputs))


# ------------------------------------------------------------------------------------ convolutions


def _window_first(kernel: Array) -> Array:
    """[*window, in, out] as [out, in, *window]."""
    return np.moveaxis(kernel, (-1, -2), (0, 1))


def _by_channel(kernel: Array) -> Array:
    """[*window, in, multiplier] as [in * multiplier, 1, *window]."""
    window = kernel.shape[:-2]
    turned = np.moveaxis(kernel, (-2, -1), (0, 1))
    return turned.reshape(kernel.shape[-2] * kernel.shape[-1], 1, *window)


def _conv(settings: Settings, kernel: Array, **fixed: Any) -> Function:
    """x, [batch, channels, *spatial], with a kernel [out, in / groups, *window]."""
    count = kernel.ndim - 2
    strides, spread = (each(settings.get(k, 1), count) for k in ("strides", "dilation_rate"))
    padding = settings.get("padding", "valid")
    if padding == "causal":
        padding = [((kernel.shape[2] - 1) * spread[0], 0)]
    told = {"stride": strides, "padding": padding, "dilation": spread, **fixed}
    return lambda x: f.conv(as_real(x, kernel.dtype), kernel, **told)


@layers("Conv1D", "Conv2D", "Conv3D")
def conv(settings: Settings, weights: Weights) -> Function:
    kernel, *bias = some(settings, weights, 1, 2)
    inner = _conv(settings, _window_first(kernel), groups=settings.get("groups", 1))
    return _after(settings, lambda x: _with_bias(inner(x), bias))


@layers("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise_conv(settings: Settings, weights: Weights) -> Function:
    expect(settings, groups=1)
    kernel, *bias = some(settings, weights, 1, 2)
    inner = _conv(settings, _by_channel(kernel), groups=kernel.shape[-2])
    return _after(settings, lambda x: _with_bias(inner(x), bias))


@layers("SeparableConv1D", "SeparableConv2D")
def separable_conv(settings: Settings, weights: Weights) -> Function:
    """Every channel by itself, then a product over the channels."""
    expect(settings, groups=1)
    alone, across, *bias = some(settings, weights, 2, 3)
    first = _conv(settings, _by_channel(alone), groups=alone.shape[-2])
    second = partial(f.conv, w=_window_first(across))
    return _after(settings, lambda x: _with_bias(second(first(x)), bias))


@layers("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def conv_transpose(settings: Settings, weights: Weights) -> Function:
    expect(settings, groups=1)
    kernel, *bias = some(settings, weights, 1, 2)
    count = kernel.ndim - 2
    strides, spread = (each(settings.get(k, 1), count) for k in ("strides", "dilation_rate"))
    extra = each(settings.get("output_padding"), count)
    same = settings.get("padding", "valid") == "same"
    cut = [
        _cut(*axis, same=same)
        for axis in zip(kernel.shape[:count], strides, spread, extra, strict=True)
    ]
    turned = _window_first(kernel)

    def call(x: Any) -> Any:
        made = f.conv_transpose(as_real(x, turned.dtype), turned, strides, dilation=spread)
        return _with_bias(_cropped(made, cut, first=2), bias)

    return _after(settings, call)


def _cut(size: int, stride: int, spread: int, extra: int | None, same: bool) -> tuple[int, int]:
    """What is left out at both ends of all that a transposed convolution makes along an axis;
    below zero for zeros that are added."""
    reach = (size - 1) * spread + 1
    if not same:
        return 0, -(max(reach, stride) - reach if extra is None else extra)
    total = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
    low = min((total + 1) // 2, reach - 1)
    return reach - 1 - low, reach - 1 - (total - low)


def _cropped(x: Any, pairs: Sequence[tuple[int, int]], first: int) -> Any:
    """x without so many elements at both ends of its axes from the `first`; with as many zeros
    more where the number is below zero."""
    zeros = [(max(-low, 0), max(-high, 0)) for low, high in pairs]
    if any(map(any, zeros)):
        x = f.pad(x, [*[(0, 0)] * first, *zeros, *[(0, 0)] * (rank_of(x) - first - len(zeros))])
    cuts = [slice(max(low, 0), -high if high > 0 else None) for low, high in pairs]
    return f.getitem(x, (*[slice(None)] * first, *cuts)) if cuts else x


# ------------------------------------------------------------------------------------ pools


@layers(*(f"{kind}Pooling{k}D" for kind in ("Max", "Average") for k in (1, 2, 3)))
def pooling(settings: Settings, weights: Weights) -> Function:
    window = each(settings["pool_size"], int(settings["class_name"][-2]))
    stride = each(settings.get("strides") or window, len(window))
    given = settings.get("padding", "valid")
    largest = settings["class_name"].startswith("Max")

    def pool(x: Any) -> Any:
        pads = _same(x.shape[2:], window, stride) if given == "same" else 0
        if largest:
            return f.max_pool(x, window, stride, pads)
        return f.avg_pool(x, window, stride, pads, count_include_pad=False)

    return channels_first(settings, pool)


def _same(extents: Any, window: Any, stride: Any) -> list[tuple[int, int]]:
    """Padding that leaves as many results as there are strides in the extents."""
    made = []
    for extent, size, step in zip(extents, window, stride, strict=True):
        if step != 1 and not isinstance(extent, int):
            raise GraphError("padding='same' of a pool needs the sizes of images")
        more = size - 1 if step == 1 else (-(-extent // step) - 1) * step + size - extent
        made.append((max(more, 0) // 2, max(more, 0) - max(more, 0) // 2))
    return made


@layers(*(f"Global{kind}Pooling{k}D" for kind in ("Max", "Average") for k in (1, 2, 3)))
def global_pooling(settings: Settings, weights: Weights) -> Function:
    largest = "Max" in settings["class_name"]
    keeps, first = bool(settings.get("keepdims")), is_first(settings)

    def pool(inputs: Any) -> Any:
        axes = tuple(range(2, rank_of(inputs)) if first else range(1, rank_of(inputs) - 1))
        return (f.max if largest else f.mean)(inputs, axis=axes, keepdims=keeps)

    def mean_of_steps(inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return pool(inputs)
        axis = 2 if first else 1
        kept = f.expand_dims(mask, 1 if first else 2)
        total = f.sum(f.where(kept, inputs, f.zeros_like(inputs)), axis=axis, keepdims=keeps)
        count = f.sum(f.astype(kept, inputs.dtype), axis=axis, keepdims=keeps)
        return f.divide(total, count)

    return mean_of_steps if settings["class_name"] == "GlobalAveragePooling1D" else pool


@layers(*(f"Adaptive{kind}Pooling{k}D" for kind in ("Max", "Average") for k in (1, 2, 3)))
def adaptive_pooling(settings: Settings, weights: Weights) -> Function:
    """So many windows over each axis, of nearly the same size."""
    count = int(settings["class_name"][-2])
    wanted = each(settings["output_size"], count)
    reduce = f.max if "Max" in settings["class_name"] else f.mean

    _check_extents(wanted, "imported_nodes")  # so many windows, and what they are made of

    def pool(x: Any) -> Any:
        for axis, size in enumerate(wanted, 2):
            extent = x.shape[axis]
            if not isinstance(extent, int):
                raise GraphError("an adaptive pool needs the sizes of images")
            ends = [(k * extent // size, -(-(k + 1) * extent // size)) for k in range(size)]
            before = [slice(None)] * axis
            rows = [f.getitem(x, (*before, slice(*pair))) for pair in ends]
            x = f.concatenate([reduce(row, axis=axis, keepdims=True) for row in rows], axis)
        return x

    return channels_first(settings, pool)


# ------------------------------------------------------------------------------------ sizes


def _pairs(value: Any, count: int) -> list[tuple[int, int]]:
    """(low, high) for each spatial axis: from n, (n, m ...), (low, high) or pairs.

    Raises ValueError for what is below zero, or not for so many axes.
    """
    given = [value] * count if isinstance(value, int) else value
    if count == 1 and len(given) == 2:
        given = [given]
    pairs = [(p, p) if isinstance(p, int) else (p[0], p[1]) for p in given]
    if len(pairs) != count or any(n < 0 for pair in pairs for n in pair):
        raise ValueError(f"{value!r} elements at the ends of {count} axes")
    return pairs


@layers("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def zero_padding(settings: Settings, weights: Weights) -> Function:
    pairs = _pairs(settings["padding"], int(settings["class_name"][-2]))
    first = 2 if is_first(settings) else 1
    return lambda inputs: _cropped(inputs, [(-low, -high) for low, high in pairs], first)


@layers("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(settings: Settings, weights: Weights) -> Function:
    pairs = _pairs(settings["cropping"], int(settings["class_name"][-2]))
    first = 2 if is_first(settings) else 1

    def call(inputs: Any) -> Any:
        extents = inputs.shape[first : first + len(pairs)]
        if any(isinstance(n, int) and n <= low + high for n, (low, high) in zip(extents, pairs)):
            raise GraphError(f"nothing is left of {list(extents)} without {pairs} at their ends")
        return _cropped(inputs, pairs, first)

    return call


@layers("CenterCrop")
def center_crop(settings: Settings, weights: Weights) -> Function:
    wanted, first = (settings["height"], settings["width"]), is_first(settings)

    def call(inputs: Any) -> Any:
        start = rank_of(inputs) - (2 if first else 3)
        have = inputs.shape[start : start + 2]
        if not all(isinstance(n, int) and n >= size for n, size in zip(have, wanted)):
            raise GraphError(f"a centre of {list(wanted)} of images that may be smaller: {have}")
        cuts = [slice(low := (n - size) // 2, low + size) for n, size in zip(have, wanted)]
        return f.getitem(inputs, (*[slice(None)] * start, *cuts))

    return call


@layers("UpSampling1D", "UpSampling2D", "UpSampling3D")
def up_sampling(settings: Settings, weights: Weights) -> Function:
    count = int(settings["class_name"][-2])
    times, first = each(settings["size"], count), 2 if is_first(settings) else 1
    _check_extents(times, "folded_elements")
    kernel = _kernel(settings, "nearest")

    def call(inputs: Any) -> Any:
        for axis, many in enumerate(times, first):
            if kernel is None:
                inputs = f.repeat(inputs, many, axis=axis)
            else:
                inputs = _resampled(inputs, axis, _extent(inputs, axis) * many, *kernel)
        return inputs

    return call


@layers("Resizing")
def resizing(settings: Settings, weights: Weights) -> Function:
    expect(settings, crop_to_aspect_ratio=False, pad_to_aspect_ratio=False, antialias=False)
    wanted, kernel = (settings["height"], settings["width"]), _kernel(settings, "bilinear")
    first = is_first(settings)
    _check_extents(wanted, "folded_elements")

    def call(inputs: Any) -> Any:
        start = rank_of(inputs) - (2 if first else 3)
        element = np.dtype(inputs.dtype)
        if kernel is None:
            for axis, size in enumerate(wanted, start):
                places = (np.arange(size) + 0.5) * _extent(inputs, axis) / size
                inputs = f.take(inputs, places.astype(np.int64), axis=axis)
            return inputs
        made = as_real(inputs, np.float32)
        for axis, size in enumerate(wanted, start):
            made = _resampled(made, axis, size, *kernel)
        return made if element.kind not in "iu" else _rounded(made, element)

    return call


def _rounded(x: Any, element: Any) -> Any:
    """Reals as the nearest whole numbers that there are of a type."""
    ends = np.iinfo(element)
    return f.astype(f.clip(f.round(x), ends.min, ends.max), element)


def _check_extents(wanted: Sequence[int], limit: str) -> None:
    """Raise ValueError or LimitError for sizes that are none, or too many to list."""
    if any(size < 1 for size in wanted):
        raise ValueError(f"sizes of {list(wanted)}")
    check_within(limit, max(wanted), f"an axis of {max(wanted)}")


def _extent(x: Any, axis: int) -> int:
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise GraphError("resampling needs the sizes of images")
    return extent


def _lanczos(radius: int, distance: Array) -> Array:
    made: Array = np.sinc(distance) * np.sinc(distance / radius)
    return np.where(np.abs(distance) < radius, made, 0.0)


_KERNELS: dict[str, tuple[Function, int] | None] = {
    "nearest": None,
    "bilinear": (lambda distance: np.maximum(1 - np.abs(distance), 0), 1),
    "bicubic": (cubic(-0.5), 2),
    "lanczos3": (partial(_lanczos, 3), 3),
    "lanczos5": (partial(_lanczos, 5), 5),
}


def _kernel(settings: Settings, default: str) -> tuple[Function, int] | None:
    """(weight by distance, how far it reaches), or None for the nearest pixel alone."""
    return _KERNELS[one_of(settings, "interpolation", _KERNELS, default)]


def _resampled(x: Any, axis: int, size: int, kernel: Function, radius: int) -> Any:
    """An axis with another extent: pixels are areas, and those outside the image have no weight."""
    extent = _extent(x, axis)
    check_within("folded_elements", size, f"an axis of {size}")
    if size == extent:
        return x
    at = (np.arange(size) + 0.5) * extent / size - 0.5
    places = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - radius, radius + 1)
    weights = kernel(at[:, None] - places)
    weights = np.where((places >= 0) & (places < extent), weights, 0.0)
    weights = weights / weights.sum(1, keepdims=True)
    return f.resample(x, axis, np.clip(places, 0, extent - 1), weights)
