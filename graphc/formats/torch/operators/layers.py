"""Layers of networks: normalisation, pooling, resampling, embedding, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.indexing import scattered
from graphc.formats.torch.operators.products import each
from graphc.formats.torch.promotion import as_float, cast, dtype_of
from graphc.formats.torch.table import aten
from graphc.formats.windows import largest_of_windows, windowed
from graphc.ops.nn.images import neighbours
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]

# ------------------------------------------------------------------------------------ normalisation


def _mixed(old: Any, new: Any, momentum: float) -> Any:
    kept, part = (cast(v, dtype_of(old)) for v in (1 - momentum, momentum))
    return f.add(f.multiply(old, kept), f.multiply(new, part))


def batch_normalised(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: Any, eps: float
) -> tuple[Any, Any, Any, Any, Any]:
    """The result, the mean and 1 / spread that it used, and the new running statistics."""
    if not training:
        made = f.batch_norm(x, mean, var, weight, bias, axis=1, epsilon=eps)
        return made, f.zeros((0,), x.dtype), f.zeros((0,), x.dtype), mean, var
    axes = tuple(k for k in range(x.ndim) if k != 1)
    own, spread = f.mean(x, axis=axes), f.var(x, axis=axes)
    made = f.batch_norm(x, own, spread, weight, bias, axis=1, epsilon=eps)
    sharp = f.rsqrt(f.add(spread, cast(eps, dtype_of(x))))
    if mean is None:
        return made, own, sharp, None, None
    count = math.prod(x.shape) // x.shape[1]
    fair = f.multiply(spread, cast(count / max(count - 1, 1), dtype_of(x)))
    return made, own, sharp, _mixed(mean, own, momentum), _mixed(var, fair, momentum)


@aten("_weight_norm")
def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """Weights as lengths and directions: v * g / its length along all axes but one."""
    return weight_norm_interface(v, g, dim)[0]


@aten("_weight_norm_interface")
def weight_norm_interface(v: Any, g: Any, dim: int = 0) -> Any:
    axes = tuple(k for k in range(v.ndim) if k != dim % v.ndim)
    length = f.sqrt(f.sum(f.square(v), axis=axes, keepdims=True))
    return f.multiply(v, f.divide(g, length)), length


@aten("batch_norm")
def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    made = batch_normalised(x, weight, bias, running_mean, running_var, training, momentum, eps)
    if training and running_mean is not None:
        running_mean.assign(made[3])
        running_var.assign(made[4])
    return made[0]


@aten("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    return batch_normalised(x, weight, bias, running_mean, running_var, False, momentum, eps)[:3]


@aten("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    made = batch_normalised(x, weight, bias, running_mean, running_var, training, momentum, eps)
    if training and running_mean is not None:
        running_mean.assign(made[3])
        running_var.assign(made[4])
    return made[:3]


@aten("_native_batch_norm_legit_functional")
def functional_batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return batch_normalised(x, weight, bias, running_mean, running_var, training, momentum, eps)


@aten("instance_norm")
def instance_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    if not use_input_stats:
        return f.batch_norm(x, running_mean, running_var, weight, bias, axis=1, epsilon=eps)
    return f.instance_norm(x, weight, bias, axis=1, epsilon=eps)


@aten("group_norm")
def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    return f.group_norm(x, num_groups, weight, bias, axis=1, epsilon=eps)


@aten("native_group_norm")
def native_group_norm(
    x: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    parts = f.reshape(x, (N, group, C // group * HxW))
    spread = f.rsqrt(f.add(f.var(parts, axis=2), cast(eps, dtype_of(x))))
    return group_norm(x, group, weight, bias, eps), f.mean(parts, axis=2), spread


def _trailing(x: Any, normalized_shape: Any) -> tuple[int, ...]:
    count = len(normalized_shape)
    refuse(tuple(x.shape[x.ndim - count :]) == tuple(normalized_shape), "other trailing axes")
    return tuple(range(x.ndim - count, x.ndim))


@aten("layer_norm")
def layer_norm(
    x: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    return f.layer_norm(x, weight, bias, axis=_trailing(x, normalized_shape), epsilon=eps)


@aten("native_layer_norm")
def native_layer_norm(x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    axes = _trailing(x, normalized_shape)
    made = f.layer_norm(x, weight, bias, axis=axes, epsilon=eps)
    spread = f.rsqrt(f.add(f.var(x, axis=axes, keepdims=True), cast(eps, dtype_of(x))))
    return made, f.mean(x, axis=axes, keepdims=True), spread


def _epsilon(x: Any) -> float:
    """That of the type which PyTorch computes in, of 32 bits at least."""
    return float(np.finfo(np.promote_types(dtype_of(x), np.float32)).eps)


@aten("rms_norm")
def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    least = _epsilon(x) if eps is None else eps
    return f.rms_norm(x, weight, axis=_trailing(x, normalized_shape), epsilon=least)


@aten("_fused_rms_norm")
def fused_rms_norm(x: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    least = _epsilon(x) if eps is None else eps
    axes = _trailing(x, normalized_shape)
    size = f.mean(f.square(x), axis=axes, keepdims=True)
    sharp = f.rsqrt(f.add(size, cast(least, dtype_of(x))))
    return rms_norm(x, normalized_shape, weight, eps), sharp


@aten("local_response_norm")
def local_response_norm(
    x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    return f.local_response_norm(as_float(x), size, alpha=alpha, beta=beta, k=k)


@aten("cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    one, two = (
        f.divide(v, f.maximum(f.vector_norm(v, axis=dim, keepdims=True), cast(eps, dtype_of(v))))
        for v in (x1, x2)
    )
    return f.sum(f.multiply(one, two), axis=dim)


# ------------------------------------------------------------------------------------ pooling


def batched(rank: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of x[N, C, *spatial] that takes x[C, *spatial], too."""

    def apply(x: Any, *rest: Any, **named: Any) -> Any:
        if x.ndim == rank + 2:
            return function(x, *rest, **named)
        refuse(x.ndim == rank + 1, f"an array of rank {x.ndim}")
        made = function(f.expand_dims(x, 0), *rest, **named)
        return (
            tuple(f.squeeze(v, 0) for v in made) if isinstance(made, tuple) else f.squeeze(made, 0)
        )

    return apply


def around_of(pairs: Any, more: Any) -> list[tuple[int, int]]:
    """Paddings of all axes, with what the last windows lack."""
    return [(0, 0), (0, 0), *((low, high + m) for (low, high), m in zip(pairs, more))]


def largest_with_places(
    x: Any, window: Any, step: Any, padding: Any, spread: Any, ceil_mode: bool
) -> tuple[Any, Any]:
    """The largest elements of windows, and their places in the flattened axes behind channels."""
    *_, pairs, more = windowed(x, window, step, spread, (*padding, *padding), "", ceil_mode)
    around = around_of(pairs, more)[2:]
    largest, (place, *others) = largest_of_windows(x, window, step, spread, around)
    for extent, other in zip(x.shape[3:], others):
        place = f.add(f.multiply(place, extent), other)
    return largest, place


def _max_pool(rank: int, places: bool) -> Callable[..., Any]:
    def pooled(
        x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
    ) -> Any:
        window = each(kernel, rank)
        step = each(stride, rank) if stride else window
        sizes = window, step, each(padding, rank), each(dilation, rank)
        if places:
            return largest_with_places(x, *sizes, ceil_mode)
        return f.max_pool(x, *sizes, ceil_mode)

    def max_pool(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        return batched(rank, pooled)(x, kernel_size, stride, padding, dilation, ceil_mode)

    return max_pool


def _avg_pool(rank: int) -> Callable[..., Any]:
    def avg_pool(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        window = each(kernel_size, rank)
        step = each(stride, rank) if stride else window

        def pooled(v: Any) -> Any:
            pads = each(padding, rank)
            if divisor_override is None:
                return f.avg_pool(v, window, step, pads, ceil_mode, count_include_pad)
            *_, pairs, more = windowed(v, window, step, (), (*pads, *pads), "", ceil_mode)
            wide = f.pad(v, around_of(pairs, more))
            made = f.avg_pool(wide, window, step)
            return f.multiply(made, cast(math.prod(window) / divisor_override, dtype_of(v)))

        def counted(v: Any) -> Any:
            """Means of integers are rounded down to zero."""
            whole = dtype_of(v).kind in "iu"
            return (
                cast(f.trunc(pooled(cast(v, np.dtype(float)))), dtype_of(v)) if whole else pooled(v)
            )

        return batched(rank, counted)(x)

    return avg_pool


def _ends(extent: int, count: int) -> list[tuple[int, int]]:
    """The windows that an axis is cut into: they may overlap."""
    return [(k * extent // count, -(-(k + 1) * extent // count)) for k in range(count)]


def _adaptive(x: Any, wanted: tuple[int, ...], kind: str) -> Any:
    for axis, count in enumerate(wanted, start=2):
        extent = x.shape[axis]
        refuse(0 < count <= 1 << 12 and extent > 0, f"{count} parts of an axis of {extent}")
        if count == extent:
            continue
        parts = []
        if extent % count == 0:
            cut = f.reshape(x, (*x.shape[:axis], count, extent // count, *x.shape[axis + 1 :]))
            x = getattr(f, kind)(cut, axis=axis + 1)
            continue
        for first, last in _ends(extent, count):
            part = f.getitem(x, (*(slice(None),) * axis, slice(first, last)))
            parts.append(getattr(f, kind)(part, axis=axis, keepdims=True))
        x = f.concatenate(parts, axis)
    return x


def _adaptive_avg_pool(rank: int) -> Callable[..., Any]:
    def adaptive(x: Any, output_size: Any) -> Any:
        return batched(rank, lambda v: _adaptive(v, each(output_size, rank), "mean"))(x)

    return adaptive


def _largest_of_uneven(x: Any, wanted: tuple[int, ...]) -> tuple[Any, Any]:
    """The same of windows of different sizes: a shorter one counts its last element again."""
    rank = len(wanted)
    axes = []
    for extent, count in zip(x.shape[2:], wanted):
        refuse(0 < count <= 1 << 12 and extent > 0, f"{count} parts of an axis of {extent}")
        ends = np.array(_ends(extent, count))
        reach = np.arange(int(np.max(ends[:, 1] - ends[:, 0])))
        axes.append(np.minimum(ends[:, :1] + reach, ends[:, 1:] - 1))
    refuse(math.prod(part.size for part in axes) <= 1 << 22, f"windows for {list(wanted)}")
    places: Any = np.zeros((1,) * (2 * rank), np.int64)
    for k, part in enumerate(axes):
        column = [part.shape[0] if a == k else 1 for a in range(rank)]
        column += [part.shape[1] if a == k else 1 for a in range(rank)]
        places = places * x.shape[2 + k] + part.reshape(column)
    places = places.reshape(*wanted, -1)
    read = f.take(f.reshape(x, (*x.shape[:2], math.prod(x.shape[2:]))), places, axis=2)
    found = f.expand_dims(f.argmax(read, axis=-1), -1)
    at = f.take_along_axis(f.broadcast_to(places, read.shape), found, -1)
    return tuple(f.getitem(v, (..., 0)) for v in (f.take_along_axis(read, found, -1), at))


def put_back(x: Any, places: Any, extents: Sequence[int], mode: str) -> Any:
    """Elements of windows where they were found among the elements of wider arrays."""
    refuse(math.prod(extents) <= 1 << 26, f"sizes {list(extents)}")
    outer, rank = x.shape[: x.ndim - len(extents)], len(extents)
    flat = [f.reshape(v, (*outer, math.prod(v.shape[-rank:]))) for v in (x, places)]
    start = f.zeros((*outer, math.prod(extents)), x.dtype)
    made = scattered(start, len(outer), flat[1], flat[0], mode)
    return f.reshape(made, (*outer, *extents))


@aten("max_unpool2d", "max_unpool3d")
def max_unpool(
    x: Any, indices: Any, output_size: Sequence[int], stride: Any = None, padding: Any = None
) -> Any:
    return put_back(x, indices, list(output_size), "set")


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    def adaptive(x: Any, output_size: Any) -> Any:
        def pooled(v: Any) -> Any:
            wanted = each(output_size, rank)
            if any(n % k for n, k in zip(v.shape[2:], wanted)):
                return _largest_of_uneven(v, wanted)
            window = tuple(n // k for n, k in zip(v.shape[2:], wanted))
            return largest_with_places(v, window, window, (0,) * rank, (1,) * rank, False)

        return batched(rank, pooled)(x)

    return adaptive


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d")(_max_pool(_rank, False))
    aten(f"max_pool{_rank}d_with_indices")(_max_pool(_rank, True))
    aten(f"avg_pool{_rank}d")(_avg_pool(_rank))
    aten(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(_adaptive_avg_pool(_rank))
    aten(f"adaptive_max_pool{_rank}d")(_adaptive_max_pool(_rank))


# ------------------------------------------------------------------------------------ resampling


def upsampled(
    x: Any,
    mode: str,
    size: Any,
    corners: bool,
    factors: Any,
    antialias: bool = False,
    is_backward: bool = False,
) -> Any:
    """x[N, C, *spatial] at other sizes; a factor that is given counts for where elements lie.

    is_backward: what is differentiated for PyTorch's operators of gradients, which do not always
    look where those of results do.
    """
    rank = x.ndim - 2
    if size is None:
        refuse(len(factors) == rank and all(0 < s < 1e6 for s in factors), f"factors {factors}")
        size = [math.floor(n * s) for n, s in zip(x.shape[2:], factors)]
    wanted = each(size, rank)
    refuse(min(wanted) > 0 and math.prod(wanted) <= 1 << 26, f"sizes {list(wanted)}")
    given = list(factors) if factors else [None] * rank
    is_plain = _takes_sizes_alone(mode, rank, antialias, is_backward)
    for axis, (count, factor) in enumerate(zip(wanted, given), start=2):
        if is_plain and count in (x.shape[axis], 2 * x.shape[axis] * (mode == "nearest")):
            factor = None
        if count != x.shape[axis] or factor not in (None, 1):
            x = _resampled(x, axis, count, factor, mode, corners, antialias)
    return x


def _takes_sizes_alone(mode: str, rank: int, antialias: bool, is_backward: bool) -> bool:
    """Whether PyTorch forgets the factor of an axis that keeps its extent; of nearest elements,
    also where that doubles."""
    if mode == "nearest":
        return rank == 2 or is_backward
    return not is_backward if antialias else mode == "linear"


def _resampled(
    x: Any, axis: int, count: int, factor: float | None, mode: str, corners: bool, antialias: bool
) -> Any:
    extent = x.shape[axis]
    refuse(extent > 0, "an axis without elements")
    if mode.startswith("nearest"):
        return f.take(x, _nearest(extent, count, factor, mode == "nearest_exact"), axis=axis)
    distance = extent / count if factor is None else 1 / factor
    if corners:
        distance = (extent - 1) / (count - 1) if count > 1 else 0.0
    steps = np.arange(count, dtype=np.float64)
    is_shifted = antialias or not corners  # antialiased ones have corners for the distance alone
    at = (steps + 0.5) * distance - 0.5 if is_shifted else steps * distance
    at = np.maximum(at, 0) if mode == "linear" and not antialias else at
    around = neighbours(
        at,
        extent,
        mode,
        scale=1 / distance if distance else 1.0,
        antialias=antialias,
        a=-0.5 if antialias else -0.75,
        exclude_outside=antialias,
    )
    return f.resample(x, axis, *around)


def _nearest(extent: int, count: int, factor: float | None, is_exact: bool) -> Array:
    """Places of the nearest elements, of single precision as in PyTorch: it decides about those
    that lie between two."""
    single = np.float32
    distance = single(extent) / single(count) if factor is None else single(1 / factor)
    at = (np.arange(count, dtype=single) + single(0.5 if is_exact else 0)) * distance
    places: Array = np.clip(np.floor(at).astype(np.int64), 0, extent - 1)
    return places


def _upsample(mode: str, antialias: bool = False) -> Callable[..., Any]:
    def upsample(
        x: Any,
        output_size: Any = None,
        align_corners: bool = False,
        scale_factors: Any = None,
        scales: Any = None,
        scales_h: Any = None,
        scales_w: Any = None,
        scales_d: Any = None,
    ) -> Any:
        given = [s for s in (scales_d, scales_h, scales_w, scales) if s is not None]
        return upsampled(x, mode, output_size, align_corners, scale_factors or given, antialias)

    return upsample


for _rank, _linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    aten(f"upsample_{_linear}")(_upsample("linear"))
    aten(f"upsample_nearest{_rank}d")(_upsample("nearest"))
    aten(f"_upsample_nearest_exact{_rank}d")(_upsample("nearest_exact"))
aten("upsample_bicubic2d")(_upsample("cubic"))
aten("_upsample_bilinear2d_aa")(_upsample("linear", True))
aten("_upsample_bicubic2d_aa")(_upsample("cubic", True))


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return f.grid_sample(x, grid, mode, padding, align_corners)


@aten("affine_grid_generator")
def affine_grid(theta: Any, size: Any, align_corners: bool) -> Any:
    refuse(math.prod(size[2:]) <= 1 << 21, f"sizes {list(size)}")
    return f.affine_grid(theta, tuple(size[2:]), align_corners)
