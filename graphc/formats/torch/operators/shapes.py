"""Shapes and the moving of elements: views, concatenation, padding; arrays made of nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, count_of, is_end, refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.promotion import cast, common, default_float, dtype_of
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.frontend.trace import views
from graphc.ir.sizes import Size, greatest, least
from graphc.ops.record.value import functions as f


def linked(name: str, x: Any, *rest: Any) -> Any:
    """A public function whose result is a view of x."""
    return views.call(name, (x, *rest), {})


def axis_of(dim: int, rank: int) -> int:
    return axes_of([dim], max(rank, 1))[0]


def of_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for rows alone, which takes a number for a row of one: PyTorch has an axis 0 there."""

    @functools.wraps(function)
    def run(x: Any, *rest: Any, **named: Any) -> Any:
        if x.ndim:
            return function(x, *rest, **named)
        made = function(f.reshape(x, (1,)), *rest, **named)
        if isinstance(made, tuple):
            return tuple(f.reshape(value, ()) for value in made)
        return f.reshape(made, ())

    return run


def list_of(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]


def extents_of(size: Any) -> tuple[int, ...]:
    made = tuple(list_of(size))
    refuse(all(isinstance(n, int | Size) for n in made), f"sizes {list(made)}")
    return made


# ------------------------------------------------------------------------------------ views


@aten("view", "reshape", "_unsafe_view", "_reshape_alias", views=True)
def reshape(x: Any, size: Any = None, shape: Any = None, stride: Any = None) -> Any:
    wanted = extents_of(size if size is not None else shape)
    refuse(all(n >= -1 for n in wanted) and wanted.count(-1) <= 1, f"shape {list(wanted)}")
    return linked("reshape", x, wanted)


@aten("view.dtype", views=True)
def view_dtype(x: Any, dtype: Element) -> Any:
    return linked("view", x, element_of(dtype, None))


@aten("view_as", "reshape_as", views=True)
def view_as(x: Any, other: Any) -> Any:
    return linked("reshape", x, other.shape)


@aten("flatten", views=True)
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if not x.ndim:
        return linked("reshape", x, (1,))
    first, last = axis_of(start_dim, x.ndim), axis_of(end_dim, x.ndim)
    middle = math.prod(x.shape[first : last + 1])
    return linked("reshape", x, (*x.shape[:first], middle, *x.shape[last + 1 :]))


@aten("unflatten", views=True)
def unflatten(x: Any, dim: int, sizes: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    return linked("reshape", x, (*x.shape[:axis], *extents_of(sizes), *x.shape[axis + 1 :]))


@aten("squeeze", views=True)
def squeeze(x: Any, dim: Any = None) -> Any:
    axes = range(x.ndim) if dim is None else (axis_of(d, x.ndim) for d in list_of(dim))
    gone = {axis for axis in axes if axis < x.ndim and x.shape[axis] == 1}
    return linked("reshape", x, tuple(n for k, n in enumerate(x.shape) if k not in gone))


@aten("unsqueeze", views=True)
def unsqueeze(x: Any, dim: int) -> Any:
    return linked("expand_dims", x, axis_of(dim, x.ndim + 1))


@aten("permute", views=True)
def permute(x: Any, dims: Any) -> Any:
    return linked("transpose", x, axes_of(dims, x.ndim))


@aten("transpose", "swapdims", views=True)
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    if not x.ndim:
        return x
    return linked("swapaxes", x, axis_of(dim0, x.ndim), axis_of(dim1, x.ndim))


@aten("swapaxes", views=True)
def swapaxes(x: Any, axis0: int, axis1: int) -> Any:
    return transpose(x, axis0, axis1)


@aten("t", "numpy_T", "mT", views=True)
def turned(x: Any) -> Any:
    return x if x.ndim < 2 else linked("swapaxes", x, -1, -2)


@aten("adjoint", "mH", "matrix_H", views=True)
def adjoint(x: Any) -> Any:
    return f.conj(turned(x)) if dtype_of(x).kind == "c" else turned(x)


aten("ravel", views=True)(lambda x: linked("reshape", x, (math.prod(x.shape),)))


@aten("movedim", "moveaxis", views=True)
def movedim(x: Any, source: Any, destination: Any) -> Any:
    return linked("moveaxis", x, tuple(list_of(source)), tuple(list_of(destination)))


@aten("expand", "broadcast_to", views=True)
def expand(x: Any, size: Any, implicit: bool = False) -> Any:
    wanted = list(extents_of(size))
    more = len(wanted) - x.ndim
    refuse(more >= 0, f"size {wanted} for rank {x.ndim}")
    for axis, extent in enumerate(x.shape):
        if wanted[axis + more] == -1:
            wanted[axis + more] = extent
    refuse(all(n >= 0 for n in wanted), f"size {wanted}")
    return linked("broadcast_to", x, tuple(wanted))


@aten("expand_as", views=True)
def expand_as(x: Any, other: Any) -> Any:
    return linked("broadcast_to", x, other.shape)


def bounds(start: Any, end: Any, extent: int) -> tuple[int, int]:
    """A range of an axis, ends counted from behind where they are negative."""
    first, last = (0 if start is None else start), (extent if is_end(end) else end)
    first, last = (v + extent if v < 0 else v for v in (first, last))
    first = least(greatest(first, 0), extent)
    return first, least(greatest(last, first), extent)


def at(axis: int, part: Any) -> tuple[Any, ...]:
    """The index that takes a part of one axis."""
    return (*(slice(None),) * axis, part)


@aten("slice", views=True)
def slice_(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = axis_of(dim, x.ndim)
    refuse(step > 0 and x.ndim > 0, f"step {step}")
    first, last = bounds(start, end, x.shape[axis])
    return views.getitem(x, at(axis, slice(first, last, step)))


@aten("narrow", views=True)
def narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    from graphc.formats.torch.interpret import number_of

    first = number_of(start)
    first = first + x.shape[dim] if first < 0 else first
    return slice_(x, dim, first, first + length)


@aten("select", views=True)
def select(x: Any, dim: int, index: Any) -> Any:
    axis = axis_of(dim, x.ndim)
    extent = x.shape[axis]
    refuse(x.ndim > 0 and -extent <= index < extent, f"index {index} of an axis of {extent}")
    index = index + extent if index < 0 else index
    row = views.getitem(x, at(axis, slice(index, index + 1)))
    return linked("reshape", row, (*x.shape[:axis], *x.shape[axis + 1 :]))


@aten("unbind")
def unbind(x: Any, dim: int = 0) -> Any:
    return [select(x, dim, k) for k in range(x.shape[axis_of(dim, x.ndim)])]


@aten("split_with_sizes", "unsafe_split_with_sizes", "split.sizes")
def split_with_sizes(x: Any, split_sizes: Any = None, dim: int = 0, split_size: Any = None) -> Any:
    sizes = extents_of(split_sizes if split_sizes is not None else split_size)
    axis = axis_of(dim, x.ndim)
    whole = all(n >= 0 for n in sizes) and sum(sizes) == x.shape[axis]
    refuse(whole, f"parts {list(sizes)}")
    ends = np.cumsum(sizes).tolist()
    return [slice_(x, axis, end - size, end) for end, size in zip(ends, sizes)]


@aten("split", "unsafe_split")
def split(x: Any, split_size: Any, dim: int = 0) -> Any:
    if isinstance(split_size, list):
        return split_with_sizes(x, split_size, dim)
    extent = x.shape[axis_of(dim, x.ndim)]
    refuse(split_size > 0 or extent == 0, f"parts of {split_size}")
    if not extent:
        return [x]
    return [slice_(x, dim, k, k + split_size) for k in range(0, extent, split_size)]


@aten("chunk", "unsafe_chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    refuse(0 < chunks <= 1 << 16, f"{chunks} parts")
    extent = x.shape[axis_of(dim, x.ndim)]
    return split(x, max(-(-extent // chunks), 1), dim)


@aten("tensor_split.sections", "tensor_split")
def tensor_split(x: Any, sections: Any = None, indices: Any = None, dim: int = 0) -> Any:
    extent = x.shape[axis_of(dim, x.ndim)]
    if indices is None:
        each, more = divmod(extent, sections)
        indices = np.cumsum([each + (k < more) for k in range(sections)])[:-1].tolist()
    ends = [0, *indices, extent]
    return [slice_(x, dim, a, b) for a, b in pairwise(ends)]


def _view(x: Any, derive: Any) -> Any:
    """derive(x, f) as a view; derive(numbers, np) are the places that a write through it is to."""

    def write_back(parent: Any, value: Any) -> Any:
        refuse(all(isinstance(n, int) for n in parent.shape), "a write to a part of open sizes")
        count = math.prod(parent.shape)
        flat = f.reshape(parent, (count,)).copy()
        flat[derive(np.arange(count).reshape(parent.shape), np)] = value
        return f.reshape(flat, parent.shape)

    return views.followed(x, lambda v: derive(v, f), write_back)


aten("linalg_diagonal", views=True)(
    lambda A, offset=0, dim1=-2, dim2=-1: diagonal(A, offset, dim1, dim2)
)


@aten("diagonal", views=True)
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    axes = offset, axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    return _view(x, lambda v, of: of.diagonal(v, *axes))


@aten("unfold", views=True)
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    axis = axis_of(dimension, x.ndim)
    refuse(step > 0 and 0 < size <= x.shape[axis], f"windows of {size}, steps of {step}")
    count = (x.shape[axis] - size) // step + 1
    refuse(count * size <= 1 << 22, f"{count} windows of {size}")
    places = np.arange(count)[:, None] * step + np.arange(size)
    return _view(x, lambda v, of: of.moveaxis(of.take(v, places, axis=axis), axis + 1, -1))


@aten("as_strided", views=True)
def as_strided(x: Any, size: Any, stride: Any, storage_offset: Any = None, laid: Any = None) -> Any:
    """Elements by their distances in memory; `laid` are the strides of x and where it starts."""
    shape, steps = extents_of(size), extents_of(stride)
    refuse(laid is not None, "how x lies in memory is known when it runs")
    refuse(len(shape) == len(steps) and math.prod(shape) <= 1 << 22, f"size {list(shape)}")
    strides, start = laid
    held = _reached(x.shape, strides, start).ravel()
    wanted = _reached(shape, steps, start if storage_offset is None else storage_offset)
    order = np.argsort(held, kind="stable")
    places = order[np.searchsorted(held, wanted, sorter=order) % max(held.size, 1)]
    refuse(np.array_equal(held[places], wanted), "strides that leave x")
    return _view(x, lambda v, of: of.take(of.reshape(v, (held.size,)), places, axis=0))


@aten("as_strided_scatter")
def as_strided_scatter(
    x: Any, src: Any, size: Any, stride: Any, storage_offset: Any = None, laid: Any = None
) -> Any:
    made = x.copy()
    as_strided(made, size, stride, storage_offset, laid).assign(cast(src, dtype_of(x)))
    return made


def _reached(shape: Sequence[int], strides: Sequence[int], start: int) -> Any:
    """The place in memory of each element of an array that lies so."""
    refuse(math.prod(shape) <= 1 << 22, f"an array of {list(shape)} elements")
    places = np.full(tuple(shape), start, np.int64)
    for axis, (extent, step) in enumerate(zip(shape, strides)):
        column = [-1 if k == axis else 1 for k in range(len(shape))]
        places = places + (np.arange(extent) * step).reshape(column)
    return places


# ------------------------------------------------------------------------------------ new arrays


@aten("cat", "concat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    held = [t for t in tensors if t.shape != (0,)] or list(tensors)[:1]
    refuse(len(held) > 0, "nothing to join")
    kind = common(*tensors)
    held = [cast(t, kind) for t in held]
    return f.concatenate(held, axis_of(dim, held[0].ndim)) if len(held) > 1 else held[0].copy()


@aten("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    refuse(len(tensors) > 0, "nothing to stack")
    kind = common(*tensors)
    return f.stack([cast(t, kind) for t in tensors], axis_of(dim, tensors[0].ndim + 1))


aten("hstack")(lambda tensors: f.hstack(list(tensors)))
aten("vstack")(lambda tensors: f.vstack(list(tensors)))


@aten("repeat")
def repeat(x: Any, repeats: Any) -> Any:
    refuse(len(repeats) >= x.ndim and min(repeats, default=1) >= 0, f"repeats {list(repeats)}")
    return f.tile(x, tuple(repeats))


@aten("tile")
def tile(x: Any, dims: Any) -> Any:
    return f.tile(x, extents_of(dims))


@aten("repeat_interleave.Tensor")
def repeated_numbers(repeats: Any, output_size: int | None = None) -> Any:
    return repeat_interleave(f.arange(repeats.shape[0], dtype=np.int64), repeats, 0)


@aten("repeat_interleave")
def repeat_interleave(
    x: Any, repeats: Any, dim: int | None = None, output_size: int | None = None
) -> Any:
    from graphc.formats.deciding_values import known

    counts = repeats if isinstance(repeats, int) else known(repeats)
    return f.repeat(x, counts, axis=dim)


@aten("flip")
def flip(x: Any, dims: Any) -> Any:
    return f.flip(x, axes_of(dims, x.ndim)) if list_of(dims) else x


aten("fliplr")(lambda x: f.flip(x, 1))
aten("flipud")(lambda x: f.flip(x, 0))


@aten("roll")
def roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    if not list_of(dims):
        return f.roll(x, list_of(shifts)[0])
    return f.roll(x, tuple(list_of(shifts)), axes_of(list_of(dims), x.ndim))


@aten("rot90")
def rot90(x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    return f.rot90(x, k, tuple(dims))


@aten("tril")
def tril(x: Any, diagonal: int = 0) -> Any:
    return f.tril(x, _near(diagonal))


@aten("triu")
def triu(x: Any, diagonal: int = 0) -> Any:
    return f.triu(x, _near(diagonal))


def _near(offset: int) -> int:
    return min(max(offset, -(1 << 30)), 1 << 30)


@aten("diag", "diag_embed")
def diag(x: Any, diagonal: int = 0, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    refuse((dim1, dim2) == (-2, -1), "other axes than the last two")
    if x.ndim > 1:
        eye = f.eye(x.shape[-1] + abs(offset), k=offset, dtype=x.dtype)
        refuse(offset == 0, "diagonals of many vectors beside the main one")
        return f.multiply(f.expand_dims(x, -1), eye)
    return f.diag(x, diagonal or offset)


@aten("constant_pad_nd")
def constant_pad(x: Any, pad: Any, value: Any = 0) -> Any:
    return pad_(x, pad, "constant", value)


def _replicated(x: Any, axis: int, low: int, high: int) -> Any:
    """An axis cut at one end and continued at the other by what may have been cut off."""
    extent = x.shape[axis]
    count = extent + low + high
    refuse(type(extent) is int and extent > 0 and 0 <= count <= 1 << 20, f"paddings {low}, {high}")
    return f.take(x, np.clip(np.arange(count) - low, 0, extent - 1), axis=axis)


@aten("pad")
def pad_(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    sizes = extents_of(pad)
    refuse(len(sizes) % 2 == 0 and len(sizes) <= 2 * x.ndim, f"paddings {list(sizes)}")
    pairs = [(0, 0)] * x.ndim
    for k in range(len(sizes) // 2):
        pairs[x.ndim - 1 - k] = sizes[2 * k], sizes[2 * k + 1]
    for axis, (low, high) in enumerate(pairs):
        if mode == "replicate" and min(low, high) < 0:
            x, pairs[axis] = _replicated(x, axis, low, high), (0, 0)
    if any(min(pair) < 0 for pair in pairs):
        ends = [(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, x.shape)]
        refuse(all(first <= last for first, last in ends), f"paddings {list(sizes)}")
        x = f.getitem(x, tuple(slice(*end) for end in ends))
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if not any(map(any, pairs)):
        return x
    if mode == "constant":
        fill = dtype_of(x).type(value or 0)
        return f.pad(x, pairs, constant_values=fill.item())
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    refuse(mode in names, f"no padding {mode!r}")
    refuse(max(n + a + b for n, (a, b) in zip(x.shape, pairs)) <= 1 << 20, "a very long axis")
    return f.pad(x, pairs, mode=names[mode])


for _axes in (1, 2, 3):
    aten(f"reflection_pad{_axes}d")(lambda x, padding: pad_(x, padding, "reflect"))
    aten(f"replication_pad{_axes}d")(lambda x, padding: pad_(x, padding, "replicate"))


@aten("pixel_shuffle")
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    return f.depth_to_space(x, upscale_factor, depth_first=False)


@aten("pixel_unshuffle")
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    return f.space_to_depth(x, downscale_factor, depth_first=False)


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(x: Any, groups: int) -> Any:
    n, c, *rest = x.shape
    refuse(groups > 0 and c % groups == 0, f"{c} channels in {groups} groups")
    parts = f.swapaxes(f.reshape(x, (n, groups, c // groups, *rest)), 1, 2)
    return f.reshape(parts, x.shape)


@aten("meshgrid")
def meshgrid(tensors: Sequence[Any], indexing: str = "ij") -> Any:
    return list(f.meshgrid(*tensors, indexing=indexing))


@aten("broadcast_tensors")
def broadcast_tensors(tensors: Sequence[Any]) -> Any:
    shape = np.broadcast_shapes(*(t.shape for t in tensors))
    return [f.broadcast_to(t, shape) for t in tensors]


@aten("trace")
def trace(x: Any) -> Any:
    return f.trace(x)


@aten("kron")
def kron(x: Any, other: Any) -> Any:
    return f.kron(x, other)


# ------------------------------------------------------------------------------------ of nothing


@aten("full", "new_full")
def full(size: Any, fill_value: Any = 0, x: Any = None, dtype: Element | None = None) -> Any:
    default = dtype_of(x) if x is not None else common(fill_value)
    return f.full(extents_of(size), cast(fill_value, element_of(dtype, default)))


@aten("zeros", "empty", "new_zeros", "new_empty", "empty_strided", "new_empty_strided")
@aten("empty_permuted")
def zeros(
    size: Any,
    x: Any = None,
    dtype: Element | None = None,
    stride: Any = None,
    physical_layout: Any = None,
) -> Any:
    default = default_float() if x is None else dtype_of(x)
    return f.zeros(extents_of(size), element_of(dtype, default))


@aten("ones", "new_ones")
def ones(size: Any, x: Any = None, dtype: Element | None = None) -> Any:
    default = default_float() if x is None else dtype_of(x)
    return f.ones(extents_of(size), element_of(dtype, default))


@aten("full_like")
def full_like(x: Any, fill_value: Any, dtype: Element | None = None) -> Any:
    return f.full(x.shape, cast(fill_value, element_of(dtype, dtype_of(x))))


@aten("_efficientzerotensor")
def efficient_zeros(size: Any, dtype: Element | None = None) -> Any:
    return zeros(size, dtype=dtype)


@aten("zeros_like", "empty_like")
def zeros_like(x: Any, dtype: Element | None = None) -> Any:
    return f.zeros(x.shape, element_of(dtype, dtype_of(x)))


@aten("ones_like")
def ones_like(x: Any, dtype: Element | None = None) -> Any:
    return f.ones(x.shape, element_of(dtype, dtype_of(x)))


@aten("scalar_tensor")
def scalar_tensor(s: Any, dtype: Element | None = None) -> Any:
    return f.full((), cast(s, element_of(dtype, default_float())))


aten("scalar_tensor", space="prims")(scalar_tensor)


@aten("arange")
def arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Element | None = None) -> Any:
    first, last = (0, start) if end is None else (start, end)
    refuse(step != 0, "a step of 0")
    kind = element_of(dtype, common(first, last, step))
    count = count_of(first, last, step)
    if all(isinstance(v, int | Size) for v in (first, last, step)):
        return f.arange(first, first + count * step, step, dtype=kind)
    made = f.add(f.multiply(f.arange(count, dtype=np.float64), float(step)), float(first))
    return f.astype(made, kind)


@aten("iota", space="prims")
def iota(
    length: int,
    start: int = 0,
    step: int = 1,
    dtype: Element | None = None,
    requires_grad: bool = False,
) -> Any:
    return arange(start, start + length * step, step, dtype)


@aten("linspace")
def linspace(start: Any, end: Any, steps: int, dtype: Element | None = None) -> Any:
    kind = element_of(dtype, default_float())
    if kind == np.float32 and all(isinstance(v, int | float) for v in (start, end, steps)):
        return _even_steps(np.float32(start), np.float32(end), steps)
    return f.astype(f.linspace(start, end, steps), kind)


def _even_steps(start: Any, end: Any, steps: int) -> Any:
    """As PyTorch rounds them: each half is counted from its own end, and rounded once."""
    with np.errstate(all="ignore"):
        step = np.float64((end - start) / np.float32(max(steps - 1, 1)))
        places = np.arange(steps)
        low, high = start + step * places, end - step * (steps - 1 - places)
        return np.where(places < max(steps // 2, steps == 1), low, high).astype(np.float32)


@aten("eye")
def eye(n: int, m: int | None = None, dtype: Element | None = None) -> Any:
    return f.eye(n, n if m is None else m, dtype=element_of(dtype, default_float()))


@aten("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, dtype: Element | None = None) -> Any:
    refuse(row * col <= 1 << 22, f"{row} x {col}")
    return np.stack(np.tril_indices(row, offset, col)).astype(element_of(dtype, np.int64))


@aten("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, dtype: Element | None = None) -> Any:
    refuse(row * col <= 1 << 22, f"{row} x {col}")
    return np.stack(np.triu_indices(row, offset, col)).astype(element_of(dtype, np.int64))
