"""Images and grids: resampling, reading between elements, blocks to depth, regions of interest.

Resampling is one weighted sum of a few neighbours per axis, whose places and weights are known
while tracing; the rest is gathers and arithmetic, which fuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ops.record.arguments import ArrayLike, Tensor
from graphc.ops.record.dims import rank_of, shape_of
from graphc.ops.record.families import normalise_axis, require, require_mode
from graphc.ops.record.value import as_value, common_element, functions, public
from graphc.ops.tuning import tuned

Array = np.ndarray[Any, Any]

# ------------------------------------------------------------------------------------ blocks


@public(name="depth_to_space")
def depth_to_space(x: ArrayLike, block: int, depth_first: bool = True) -> Any:
    """Blocks of channels of x[N, C, H, W] become blocks of the image: [N, C / b², H b, W b].

    depth_first: the block is the outer part of the channels, else the inner one (pixel shuffle).
    """
    n, c, h, w = _image(x, "depth_to_space")
    require(block > 0 and c % (block * block) == 0, f"depth_to_space: {c} channels in {block}²")
    inner = c // (block * block)
    if depth_first:
        split = functions.reshape(x, (n, block, block, inner, h, w))
        turned = functions.transpose(split, (0, 3, 4, 1, 5, 2))
    else:
        split = functions.reshape(x, (n, inner, block, block, h, w))
        turned = functions.transpose(split, (0, 1, 4, 2, 5, 3))
    return functions.reshape(turned, (n, inner, h * block, w * block))


@public(name="space_to_depth")
def space_to_depth(x: ArrayLike, block: int, depth_first: bool = True) -> Any:
    """Blocks of the image x[N, C, H, W] become channels: [N, C b², H / b, W / b]."""
    n, c, h, w = _image(x, "space_to_depth")
    require(block > 0 and h % block == w % block == 0, f"space_to_depth: {h} x {w} in {block}")
    split = functions.reshape(x, (n, c, h // block, block, w // block, block))
    turned = functions.transpose(split, (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4))
    return functions.reshape(turned, (n, c * block * block, h // block, w // block))


def _image(x: Any, name: str) -> tuple[int, ...]:
    dims = shape_of(x)
    require(len(dims) == 4, f"{name} takes x[N, C, H, W], got {list(dims)}")
    require(all(isinstance(d, int) for d in dims), f"{name} needs known sizes")
    return tuple(map(int, dims))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ resampling


@public(name="resample")
def resample(x: ArrayLike, axis: int, places: ArrayLike, weights: ArrayLike) -> Any:
    """Weighted sums of elements along an axis: sum over k of x[places[:, k]] * weights[:, k].

    places and weights are arrays of shape [new extent, neighbours].
    """
    axis = normalise_axis(axis, rank_of(x), "resample")
    at, factors = np.asarray(places), np.asarray(weights)
    element = common_element(x)[0]
    if at.shape[1] == 1 and (factors == 1).all():
        return functions.take(x, at[:, 0], axis=axis)
    if not element.is_float:
        wide = resample(functions.astype(x, "f32"), axis, places, weights)
        return functions.astype(wide, element)
    if at.shape[1] > tuned.resample_taps:
        matrix = np.zeros((len(at), int(shape_of(x)[axis])))  # type: ignore[arg-type]
        np.add.at(matrix, (np.arange(len(at))[:, None], at), factors)
        turned = functions.moveaxis(x, axis, -1)
        made = functions.matmul(turned, matrix.T.astype(element.numpy))
        return functions.moveaxis(made, -1, axis)
    column = [-1 if k == axis else 1 for k in range(rank_of(x))]
    total = None
    for k in range(at.shape[1]):
        factor = factors[:, k].astype(element.numpy).reshape(column)
        part = functions.multiply(functions.take(x, at[:, k], axis=axis), factor)
        total = part if total is None else functions.add(total, part)
    return total


Kernel = Callable[[Array], Array]


def _linear(distance: Array) -> Array:
    made: Array = np.maximum(1 - np.abs(distance), 0)
    return made


def cubic(a: float) -> Kernel:
    """The cubic convolution kernel of Keys (1981) with this coefficient."""

    def weight(distance: Array) -> Array:
        d = np.abs(distance)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return weight


def neighbours(
    at: Array,
    extent: int,
    mode: str,
    scale: float = 1.0,
    antialias: bool = False,
    a: float = -0.75,
    exclude_outside: bool = False,
) -> tuple[Array, Array]:
    """Places and weights of the elements around real positions on an axis.

    mode is "linear" or "cubic"; antialias widens the kernel where the axis shrinks (scale < 1).
    """
    kernel, radius = (_linear, 1) if mode == "linear" else (cubic(a), 2)
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil(radius / stretch)
    base = np.floor(at).astype(np.int64)
    offsets = np.arange(-reach + 1, reach + 1)
    places = base[:, None] + offsets
    weights = kernel((at[:, None] - places) * stretch)
    if exclude_outside:
        weights = np.where((places >= 0) & (places < extent), weights, 0.0)
    if antialias or exclude_outside:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, max(extent - 1, 0)), weights


@public(name="interpolate")
def interpolate(
    x: ArrayLike,
    sizes: Sequence[int],
    mode: str = "linear",
    align_corners: bool = False,
    antialias: bool = False,
) -> Any:
    """The trailing axes of x resampled to these sizes; pixels are areas unless corners align.

    mode is "nearest", "linear" (bilinear, trilinear ...) or "cubic" (a = -0.75).
    """
    require_mode("interpolate", mode, ("nearest", "linear", "cubic"))
    first = rank_of(x) - len(sizes)
    require(first >= 0, f"interpolate: {len(sizes)} sizes for rank {rank_of(x)}")
    made = as_value(x)
    for axis, size in enumerate(sizes, first):
        extent = int(shape_of(x)[axis])  # type: ignore[arg-type]
        if size == extent:
            continue
        require(extent > 0, "interpolate: an axis without elements")
        steps = np.arange(size, dtype=np.float64)
        if align_corners:
            at = steps * (extent - 1) / max(size - 1, 1)
        else:
            at = (steps + 0.5) * extent / max(size, 1) - 0.5
        if mode == "nearest":
            near = at + 0.5 if align_corners else steps * extent / max(size, 1)
            places = np.clip(np.floor(near).astype(np.int64), 0, extent - 1)[:, None]
            made = functions.take(made, places[:, 0], axis=axis)
        else:
            around = neighbours(
                at, extent, mode, size / extent, antialias, exclude_outside=antialias
            )
            made = resample(made, axis, *around)
    return made


# ------------------------------------------------------------------------------------ grids


@public(name="affine_grid")
def affine_grid(theta: ArrayLike, sizes: Sequence[int], align_corners: bool = False) -> Any:
    """Positions [N, *sizes, k] in -1..1 that affine maps theta[N, k, k + 1] send a grid to.

    The last axis of a position is x first, as `grid_sample` takes it.
    """
    count = len(sizes)
    require(shape_of(theta)[1:] == (count, count + 1), f"affine_grid: theta {shape_of(theta)}")
    element = common_element(theta)[0].numpy
    lines = []
    for size in sizes:
        steps = np.arange(size, dtype=np.float64)
        if align_corners:
            lines.append(2 * steps / max(size - 1, 1) - 1 if size > 1 else np.full(size, -1.0))
        else:
            lines.append((2 * steps + 1) / size - 1)
    grid = np.stack([*np.meshgrid(*lines, indexing="ij")][::-1], -1)
    ones = np.concatenate([grid, np.ones((*sizes, 1))], -1).reshape(-1, count + 1)
    made = functions.matmul(ones.astype(element), functions.swapaxes(theta, 1, 2))
    return functions.reshape(made, (shape_of(theta)[0], *sizes, count))


@public(name="grid_sample")
def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    mode: str = "linear",
    padding: str = "zeros",
    align_corners: bool = False,
) -> Any:
    """x[N, C, *spatial] read at positions grid[N, *places, k] in -1..1, x first.

    mode is "nearest", "linear" or "cubic"; padding is "zeros", "border" or "reflection".
    """
    count = rank_of(x) - 2
    require(shape_of(grid)[-1] == count, f"grid_sample: positions of {shape_of(grid)[-1]} axes")
    require_mode("grid_sample", mode, ("nearest", "linear", "cubic"))
    require(padding in ("zeros", "border", "reflection"), f"grid_sample: no padding {padding!r}")
    f, half = functions, 0.5
    at = []
    for k, extent in enumerate(shape_of(x)[2:]):
        unit = f.getitem(grid, (..., count - 1 - k))
        if align_corners:
            at.append(f.multiply(f.add(unit, 1), half * (extent - 1)))  # type: ignore[operator]
        else:
            at.append(f.multiply(f.subtract(f.multiply(f.add(unit, 1), extent), 1), half))
    if mode == "nearest":
        return _tapped(x, [[(f.rint(p), None)] for p in at], padding, align_corners)
    if mode == "linear":
        if padding != "zeros":
            at = [_inside(p, int(n), padding, align_corners) for p, n in zip(at, shape_of(x)[2:])]  # type: ignore[arg-type]
        return _tapped(x, [_linear_taps(p) for p in at], padding, align_corners)
    return _tapped(x, [_cubic_taps(p) for p in at], padding, align_corners)


Taps = list[tuple[Any, Any]]  # a place and its weight (None: 1), arrays over all positions


def _linear_taps(at: Any) -> Taps:
    low = functions.floor(at)
    part = functions.subtract(at, low)
    return [(low, functions.subtract(1, part)), (functions.add(low, 1), part)]


def _cubic_taps(at: Any, a: float = -0.75) -> Taps:
    f = functions
    low = f.floor(at)
    part = f.subtract(at, low)
    taps = []
    for k in range(-1, 3):
        d = f.abs(f.subtract(part, k))
        near = f.add(f.multiply(f.multiply(f.subtract(f.multiply(d, a + 2), a + 3), d), d), 1)
        far = f.multiply(d, a)
        far = f.subtract(f.multiply(f.add(f.multiply(f.subtract(far, 5 * a), d), 8 * a), d), 4 * a)
        taps.append((f.add(low, k), near if k in (0, 1) else far))
    return taps


def _inside(at: Any, extent: int, padding: str, align_corners: bool) -> Any:
    """Positions brought inside an axis."""
    f = functions
    if padding == "border":
        return f.clip(at, 0, extent - 1)
    low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
    span = high - low
    if span <= 0:
        return f.zeros_like(at)
    away = f.abs(f.subtract(at, low))
    turns = f.floor(f.divide(away, span))
    rest = f.subtract(away, f.multiply(turns, span))
    even = f.equal(f.remainder(turns, 2), 0)
    return f.clip(f.where(even, f.add(rest, low), f.subtract(high, rest)), 0, extent - 1)


def _tapped(x: Any, taps: list[Taps], padding: str, align_corners: bool) -> Any:
    """The sum over all combinations of taps of the axes, for each channel."""
    f, total = functions, None
    extents: list[int] = [int(n) for n in shape_of(x)[2:]]  # type: ignore[arg-type]
    element = common_element(x)[0]
    batch = int(shape_of(x)[0])  # type: ignore[arg-type]
    flat = f.reshape(x, (batch, shape_of(x)[1], math.prod(extents)))
    for chosen in np.ndindex(*map(len, taps)):
        place: Any = None
        weight: Any = None
        for axis, k in enumerate(chosen):
            at, factor = taps[axis][k]
            extent = extents[axis]
            if padding == "zeros":
                valid = f.logical_and(f.greater_equal(at, 0), f.less_equal(at, extent - 1))
                own = f.astype(valid, element) if factor is None else f.where(valid, factor, 0)
            else:
                at, own = _inside(at, extent, padding, align_corners), factor
            safe = f.astype(f.clip(at, 0, max(extent - 1, 0)), "i64")
            stride = math.prod(extents[axis + 1 :])
            step = f.multiply(safe, stride) if stride != 1 else safe
            place = step if place is None else f.add(place, step)
            if own is not None:
                weight = own if weight is None else f.multiply(weight, own)
        part = _read(flat, place)
        if weight is not None:
            part = f.multiply(part, f.astype(f.expand_dims(weight, 1), element))
        total = part if total is None else f.add(total, part)
    return total


def _read(flat: Tensor, place: Any) -> Any:
    """flat[N, C, :] at places[N, ...]: [N, C, ...]."""
    f = functions
    dims = shape_of(place)
    line = f.reshape(place, (dims[0], 1, math.prod(dims[1:])))
    wide = f.broadcast_to(line, (dims[0], shape_of(flat)[1], shape_of(line)[2]))
    made = f.take_along_axis(flat, wide, 2, mode="clip")
    return f.reshape(made, (dims[0], shape_of(flat)[1], *dims[1:]))


@public(name="sample_at")
def sample_at(x: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> Any:
    """x[..., C, H, W] read at real positions rows, columns [..., *places], bilinear, 0 outside:
    [..., C, *places]."""
    dims = shape_of(x)
    lead = dims[:-3]
    count = math.prod(lead)
    inner = shape_of(rows)[len(lead) :]
    flat = functions.reshape(x, (count, *dims[-3:]))
    at = [functions.reshape(v, (count, *inner)) for v in (rows, columns)]
    made = _tapped(flat, [_linear_taps(p) for p in at], "zeros", False)
    return functions.reshape(made, (*lead, dims[-3], *inner))


@public(name="roi_align")
def roi_align(
    x: ArrayLike,
    boxes: ArrayLike,
    batch: ArrayLike,
    size: tuple[int, int],
    scale: float = 1.0,
    samples: int = 2,
    kind: str = "mean",
    aligned: bool = True,
    counts: ArrayLike | None = None,
) -> Any:
    """Regions of x[N, C, H, W] resampled to [R, C, *size], from boxes[R, 4] = (x1, y1, x2, y2).

    Each cell is the mean or the maximum ("max") of samples² positions; batch[R] names the images.
    counts[R, 2] says how many positions the cells of a box have along y and x instead, none above
    `samples`; a cell of none is 0.
    """
    require(samples > 0, "roi_align: a fixed number of samples per cell is needed")
    f, shift = functions, 0.5 if aligned else 0.0
    _, channels, height, width = _image(x, "roi_align")
    scaled = f.subtract(f.multiply(boxes, scale), shift)
    corners = [f.getitem(scaled, (slice(None), k)) for k in range(4)]
    at, valid = [], []
    for k, extent in ((1, height), (0, width)):
        low, span = corners[k], f.subtract(corners[k + 2], corners[k])
        span = f.expand_dims(span if aligned else f.maximum(span, 1), 1)
        count = None if counts is None else f.getitem(counts, (slice(None), slice(1 - k, 2 - k)))
        steps, counted = _steps(size[1 - k], samples, count, common_element(boxes)[0].numpy)
        line = f.add(f.expand_dims(low, 1), f.multiply(span, steps))
        inside = f.logical_and(f.greater_equal(line, -1), f.less_equal(line, extent))
        valid.append((inside, counted))
        at.append(f.clip(line, 0, extent - 1))
    places = f.expand_dims(at[0], 2), f.expand_dims(at[1], 1)
    inside, counted = (_both(*parts) for parts in zip(*valid))
    return _cells(x, batch, places, (inside, counted), (channels, *size), samples, kind)


def _steps(cells: int, samples: int, count: Any, kind: Any) -> tuple[Any, Any]:
    """Where the positions lie along a box, as parts of it, and which of them count: all for
    None, in count[R, 1] the first ones of each cell."""
    f = functions
    if count is None:
        steps = (np.arange(cells * samples, dtype=np.float64) + 0.5) / (cells * samples)
        return steps.astype(kind), None
    cell, number = (v.astype(kind) for v in np.divmod(np.arange(cells * samples), samples))
    counts = f.astype(count, kind)
    inner = f.divide(number + kind.type(0.5), f.maximum(counts, 1))
    return f.divide(f.add(cell, inner), cells), f.less(number, counts)


def _both(rows: Any, columns: Any) -> Any:
    """What holds for rows[R, Y] and columns[R, X]: [R, Y, X]."""
    if rows is None:
        return None
    return functions.logical_and(functions.expand_dims(rows, 2), functions.expand_dims(columns, 1))


def _cells(
    x: Any, batch: Any, at: Any, valid: Any, dims: tuple[int, ...], samples: int, kind: str
) -> Any:
    """The samples of each cell, read between elements of its image and reduced."""
    inside, counted = valid
    f = functions
    _, channels, height, width = _image(x, "roi_align")
    flat = f.reshape(f.transpose(x, (0, 2, 3, 1)), (-1, channels))
    start = f.reshape(f.multiply(f.astype(batch, "i64"), height * width), (-1, 1, 1))
    parts = []
    for row, row_weight in _linear_taps(at[0]):
        for column, column_weight in _linear_taps(at[1]):
            r, c = (
                f.astype(f.clip(v, 0, n - 1), "i64") for v, n in ((row, height), (column, width))
            )
            place = f.add(f.add(start, f.multiply(r, width)), c)
            weight = f.multiply(row_weight, column_weight)
            weight = f.where(inside, weight, 0)
            read = f.take(flat, place, axis=0)
            parts.append(f.multiply(read, f.expand_dims(weight, 3)))
    if kind == "max":  # the format's own reference takes the largest weighted neighbour
        value = parts[0]
        for part in parts[1:]:
            value = f.maximum(value, part)
    else:
        value = f.add(f.add(parts[0], parts[1]), f.add(parts[2], parts[3]))
    grouped = f.reshape(value, (-1, dims[1], samples, dims[2], samples, channels))
    if counted is None:
        reduced = (f.max if kind == "max" else f.mean)(grouped, axis=(2, 4))
    else:
        held = f.reshape(counted, (-1, dims[1], samples, dims[2], samples, 1))
        reduced = _reduced(grouped, held, kind)
    return f.transpose(reduced, (0, 3, 1, 2))


def _reduced(value: Any, held: Any, kind: str) -> Any:
    """The maximum or the mean of those samples of each cell that count, 0 where none does."""
    f = functions
    number = f.sum(f.astype(held, value.dtype), axis=(2, 4))
    if kind == "max":
        lowest = f.where(held, value, np.asarray(-np.inf, value.dtype))
        return f.where(f.greater(number, 0), f.max(lowest, axis=(2, 4)), 0)
    return f.divide(f.sum(f.where(held, value, 0), axis=(2, 4)), f.maximum(number, 1))
