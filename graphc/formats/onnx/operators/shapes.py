"""Shapes and the moving of elements: Reshape, Transpose, Concat, Slice, Pad, Expand ..."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, count_of, ints, is_end, number, refuse
from graphc.formats.encoded_values import Carried, Narrow, carried
from graphc.formats.onnx.reader import element_name
from graphc.formats.onnx.table import ALL, FIRST, operator
from graphc.ir.sizes import Size, is_open
from graphc.ops.record.families import broadcast_dims
from graphc.ops.record.value import as_value
from graphc.ops.record.value import functions as f


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Carried) else x


@operator("Constant", folds=False)
def constant(
    *,
    value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
    sparse_value: Any = None,
) -> Any:
    if value is not None or sparse_value is not None:
        return carried(value if value is not None else sparse_value)
    for given, kind in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if given is not None:
            return carried(np.array(given, kind))
    refuse(False, "has no value")
    return None


@operator("ConstantOfShape")
def constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    fill = np.zeros(1, np.float32) if value is None else value
    refuse(fill.size == 1, "the value is one element")
    dims = ints(shape)
    refuse(all(d >= 0 for d in dims), f"shape {list(dims)}")
    return f.full(dims, fill.reshape(-1)[0], dtype=fill.dtype)


@operator("Shape", since=15, folds=False)
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    dims = _plain(x).shape[start:end]
    return f.stack(list(map(as_value, dims))) if is_open(dims) else np.array(dims, np.int64)


@operator("Shape", folds=False)
def whole_shape(x: Any) -> Any:
    return shape(x)


@operator("Size", folds=False)
def size(x: Any) -> Any:
    count = math.prod(_plain(x).shape)
    return as_value(count) if isinstance(count, Size) else np.array(count, np.int64)


@operator("Reshape", since=5, moves=FIRST)
def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    dims = list(ints(shape))
    if not allowzero:
        refuse(dims.count(0) == 0 or len(dims) <= x.ndim or 0 not in dims[x.ndim :], "a 0 too many")
        dims = [x.shape[k] if d == 0 else d for k, d in enumerate(dims)]
    refuse(all(d >= -1 for d in dims) and dims.count(-1) <= 1, f"shape {dims}")
    return f.reshape(x, tuple(dims))


@operator("Reshape")
def reshape_attribute(x: Any, *, shape: tuple[int, ...], consumed_inputs: Any = None) -> Any:
    return reshape(x, np.array(shape, np.int64))


@operator("Flatten", moves=FIRST)
def flatten(x: Any, *, axis: int = 1) -> Any:
    refuse(-x.ndim <= axis <= x.ndim, f"axis {axis}")
    axis = axis + x.ndim if axis < 0 else axis
    return f.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose", moves=FIRST)
def transpose(x: Any, *, perm: tuple[int, ...] | None = None) -> Any:
    return f.transpose(x, perm if perm is not None else tuple(range(x.ndim))[::-1])


@operator("Squeeze", since=13, moves=FIRST)
def squeeze(x: Any, axes: Any = None) -> Any:
    return f.squeeze(x, None if axes is None else axes_of(ints(axes), x.ndim))


@operator("Squeeze", moves=FIRST)
def squeeze_attribute(x: Any, *, axes: tuple[int, ...] | None = None) -> Any:
    return f.squeeze(x, axes)


@operator("Unsqueeze", since=13, moves=FIRST)
def unsqueeze(x: Any, axes: Any) -> Any:
    given = ints(axes)
    return f.expand_dims(x, axes_of(given, x.ndim + len(given)))


@operator("Unsqueeze", moves=FIRST)
def unsqueeze_attribute(x: Any, *, axes: tuple[int, ...]) -> Any:
    return f.expand_dims(x, axes_of(axes, x.ndim + len(axes)))


@operator("Concat", moves=ALL)
def concat(*arrays: Any, axis: int = 1) -> Any:
    return f.concatenate(list(arrays), axis) if len(arrays) > 1 else arrays[0]


@operator("Expand", moves=FIRST)
def expand(x: Any, shape: Any) -> Any:
    return f.broadcast_to(x, broadcast_dims([x.shape, ints(shape)]))


@operator("Tile", since=6, moves=FIRST)
def tile(x: Any, repeats: Any) -> Any:
    refuse(all(r >= 0 for r in ints(repeats)), "repeats are not negative")
    return f.tile(x, ints(repeats))


@operator("Tile")
def tile_axis(x: Any, tiles: Any, axis: Any) -> Any:
    repeats = [1] * x.ndim
    repeats[number(axis)] = number(tiles)
    return f.tile(x, tuple(repeats))


@operator("Split", since=13)
def split_by_input(
    x: Any, split: Any = None, *, axis: int = 0, num_outputs: int | None = None, call: Any
) -> Any:
    sizes = None if split is None else ints(split)
    return _split(x, axis, sizes, num_outputs or call.outputs)


@operator("Split")
def split_attribute(
    x: Any, sizes: Any = None, *, axis: int = 0, split: tuple[int, ...] | None = None, call: Any
) -> Any:
    given = ints(sizes) if sizes is not None else split
    return _split(x, axis, given, call.outputs)


def _split(x: Any, axis: int, sizes: tuple[int, ...] | None, count: int) -> Any:
    (axis,) = axes_of([axis], x.ndim)
    extent = x.shape[axis]
    if sizes is None:
        refuse(1 <= count <= 10_000, f"{count} parts")
        part = -(-extent // count)
        sizes = tuple(max(min(part, extent - k * part), 0) for k in range(count))
    refuse(all(n >= 0 for n in sizes) and sum(sizes) == extent, f"parts {sizes} of {extent}")
    if len(sizes) == 1:
        return (x,)
    return tuple(f.split(x, list(accumulate(sizes))[:-1], axis))


def _slices(
    shape: tuple[int, ...], starts: Any, ends: Any, axes: Any, steps: Any
) -> tuple[slice, ...]:
    chosen = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes_of(axes, len(shape)), starts, ends, steps):
        refuse(step != 0, "a step of 0")
        extent = shape[axis]
        chosen[axis] = _slice(start, end, step, extent)
    return tuple(chosen)


def _slice(start: int, end: int, step: int, extent: int) -> slice:
    if step > 0:
        return slice(start, None if is_end(end) else end, step)
    start, end = (v + extent if v < 0 else v for v in (start, end))
    start, end = (min(max(v, low), extent - 1) for v, low in ((start, 0), (end, -1)))
    return slice(start, None if end < 0 else end, step)


@operator("Slice", since=10, moves=FIRST)
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = ints(starts), ints(ends)
    which = ints(axes) if axes is not None else tuple(range(len(first)))
    step = ints(steps) if steps is not None else (1,) * len(first)
    refuse(len(first) == len(last) == len(which) == len(step), "lists of different lengths")
    return f.getitem(x, _slices(x.shape, first, last, which, step))


@operator("Slice")
def slice_attributes(
    x: Any, *, starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...] | None = None
) -> Any:
    which = axes if axes is not None else tuple(range(len(starts)))
    return f.getitem(x, _slices(x.shape, starts, ends, which, (1,) * len(starts)))


@operator("Pad", since=11)
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    if isinstance(x, Narrow):
        return Narrow(pad(x.value, pads, None, axes, mode=mode), x.element)
    return _pad(x, ints(pads), value, None if axes is None else ints(axes), mode)


@operator("Pad")
def pad_attributes(
    x: Any,
    *,
    pads: tuple[int, ...] = (),
    paddings: tuple[int, ...] = (),
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    return _pad(x, pads or paddings, np.asarray(value, x.dtype), None, mode)


def _pad(x: Any, pads: tuple[int, ...], value: Any, axes: Any, mode: str) -> Any:
    which = axes_of(axes if axes is not None else range(x.ndim), x.ndim)
    refuse(len(pads) == 2 * len(which), f"{len(pads)} paddings of {len(which)} axes")
    pairs = [(0, 0)] * x.ndim
    for k, axis in enumerate(which):
        pairs[axis] = pads[k], pads[k + len(which)]
    cut = tuple(
        slice(max(-low, 0), extent - max(-high, 0)) for (low, high), extent in zip(pairs, x.shape)
    )
    if any(min(pair) < 0 for pair in pairs):
        x = f.getitem(x, cut)
        pairs = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if mode == "constant":
        fill = np.zeros((), x.dtype) if value is None else f.reshape(value, ())
        return _pad_constant(x, pairs, fill)
    widest = max((n + low + high for n, (low, high) in zip(x.shape, pairs)), default=0)
    refuse(widest <= 1 << 20, f"an axis of {widest}")
    return f.pad(x, pairs, mode=mode)


def _pad_constant(x: Any, pairs: list[tuple[int, int]], fill: Any) -> Any:
    from graphc.formats.deciding_values import is_known, known

    if not any(map(any, pairs)):
        return x
    if is_known(fill):
        return f.pad(x, pairs, constant_values=known(fill).item())
    inside = f.pad(f.ones_like(x, dtype=bool), pairs, constant_values=False)
    return f.where(inside, f.pad(x, pairs), fill)


@operator("Range")
def range_(start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = number(start), number(limit), number(delta)
    refuse(step != 0, "a step of 0")
    count = count_of(first, last, step)
    kind = np.asarray(start).dtype if not hasattr(start, "node") else start.dtype
    counts = f.arange(count, dtype=kind)
    return f.add(f.multiply(counts, np.asarray(step, kind)), f.astype(start, kind))


@operator("EyeLike")
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    kind = x.dtype if dtype is None else element_name(dtype)
    return f.eye(*x.shape, k=k, dtype=kind)


@operator("Trilu", moves=FIRST)
def trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    offset = 0 if k is None else number(k)
    offset = min(max(offset, -(1 << 30)), 1 << 30)
    return (f.triu if upper else f.tril)(x, offset)


@operator("DepthToSpace", moves=FIRST)
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    return f.depth_to_space(x, blocksize, depth_first=mode == "DCR")


@operator("SpaceToDepth", moves=FIRST)
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    return f.space_to_depth(x, blocksize, depth_first=mode == "DCR")


@operator("CenterCropPad", moves=FIRST)
def center_crop_pad(x: Any, shape: Any, *, axes: tuple[int, ...] | None = None) -> Any:
    which = axes_of(axes if axes is not None else range(x.ndim), x.ndim)
    pairs = [(0, 0)] * x.ndim
    cut = [slice(None)] * x.ndim
    for axis, wanted in zip(which, ints(shape)):
        room = wanted - x.shape[axis]
        if room > 0:
            pairs[axis] = room // 2, room - room // 2
        else:
            first = -room // 2
            cut[axis] = slice(first, first + wanted)
    return _pad_constant(f.getitem(x, tuple(cut)), pairs, np.zeros((), x.dtype))


@operator("ReverseSequence", moves=FIRST)
def reverse_sequence(x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    """The first lengths[b] steps of every sequence b the other way round."""
    moved = f.moveaxis(x, (batch_axis, time_axis), (0, 1))
    steps = f.expand_dims(f.arange(moved.shape[1], dtype=np.int64), 0)
    until = f.reshape(f.astype(lengths, np.int64), (-1, 1))
    places = f.where(f.less(steps, until), f.subtract(f.subtract(until, 1), steps), steps)
    wide = f.reshape(places, (*moved.shape[:2], *[1] * (moved.ndim - 2)))
    made = f.take_along_axis(moved, f.broadcast_to(wide, moved.shape), 1)
    return f.moveaxis(made, (0, 1), (batch_axis, time_axis))
