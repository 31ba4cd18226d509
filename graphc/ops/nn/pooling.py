"""Pooling: a maximum, minimum or sum over a sliding window, unrolled per element."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from graphc.ir.op import Attr, Compute, Sample
from graphc.ir.sizes import Size, alike, is_open
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Dim, Dimension, Type, tensor
from graphc.loops.nest import Scalars
from graphc.ops.nn.conv import Ints, per_axis, resolve_padding, window_extent
from graphc.ops.nn.pooling_adjoint import (
    MOST_IN_WINDOW,
    WINDOW,
    pool_type,
    sliding_windows,
    sums_spread,
    to_chosen,
)
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Read
from graphc.ops.record.batching import leading
from graphc.ops.record.dims import as_shape, rank_of, samples_of, shape_of, tensor_type
from graphc.ops.record.families import REAL, define, require
from graphc.ops.record.value import Value, common_element, emit, functions, public
from graphc.ops.reduce.reduce import IDENTITY
from graphc.ops.shape.padding import emit_pad
from graphc.ops.shape.slicing import slice_axis
from graphc.ops.tuning import tuned

# ------------------------------------------------------------------------------------ the op


def _infer_pool(x: AnyType, *, kind: str, window: Ints, stride: Ints, dilation: Ints) -> Type:
    shape = pool_type("pool", x, window, stride, dilation)
    return tensor(tensor_type("pool", x).dtype, shape)


def _pool(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    kind, window, stride, dilation = (
        node.attrs[k] for k in ("kind", "window", "stride", "dilation")
    )
    element = node.type.dtype
    combine = "add" if kind == "sum" else kind
    lead = len(index) - len(window)
    total: Any = None
    for offset in itertools.product(*map(range, window)):
        moved = (
            b.affine([(i, s)], o * d) for i, s, o, d in zip(index[lead:], stride, offset, dilation)
        )
        value = read(0, (*index[:lead], *moved)).cast(element.compute)
        total = value if total is None else b.op(combine, total, value)
    return total.cast(element)


def _pool_reference(x: Array, kind: str, window: Ints, stride: Ints, dilation: Ints) -> Any:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    views = sliding_windows(wide, window, stride, dilation)
    axes = tuple(range(x.ndim, x.ndim + len(window)))
    combine: Any = {"max": np.max, "min": np.min, "sum": np.sum}[kind]
    return combine(views, axis=axes).astype(x.dtype)


def _pool_gradient(ct: Value, result: Value, x: Value, *, kind: str, **windows: Any) -> tuple[Any]:
    """The whole cotangent goes to the first of the largest elements of a window."""
    extents = shape_of(x)[rank_of(x) - len(windows["window"]) :]
    if kind == "sum":
        return (sums_spread(ct, extents, **windows),)
    return (to_chosen(ct, x, kind, windows),)


def _pool_samples() -> list[Sample]:
    def attrs(kind: str, window: Ints, stride: Ints = (), dilation: Ints = ()) -> dict[str, Any]:
        ones = (1,) * len(window)
        return {
            "kind": kind,
            "window": window,
            "stride": stride or ones,
            "dilation": dilation or ones,
        }

    made: list[Sample] = []
    for kind in ("max", "min", "sum"):
        made += samples_of([([(2, 6, 7)], attrs(kind, (2, 3), (2, 1)))], dtypes=REAL)()
    made += samples_of(
        [([(2, 9)], attrs("max", (3,), (2,), (2,))), ([(1, 2, 4, 5, 4)], attrs("sum", (2, 2, 2)))],
        [
            ([(2, 3)], attrs("max", (4,))),
            ([(3,)], attrs("max", (1, 1))),
            ([(3,)], attrs("max", (0,))),
        ],
        dtypes=("f32",),
    )()
    return made


pool_op = define(
    "pool",
    batch=leading,
    infer=_infer_pool,
    reference=_pool_reference,
    lower=Compute(_pool, cheap=False),
    attrs=(Attr("kind", "str", choices=("max", "min", "sum")), *WINDOW),
    dtypes=REAL,
    gradient=_pool_gradient,
    samples=_pool_samples,
    traits=Traits(pools=True),
    doc="The maximum, minimum or sum over a window that slides over the trailing axes.",
)

# ------------------------------------------------------------------------------------ functions


def _ceil_pairs(dims: Any, pairs: list[Any], reach: Ints, stride: Ints) -> list[Any]:
    """Padding on the high side so that the last, partial window counts.

    A window that would start in the padding beyond the high end is left out, as in PyTorch.
    """
    made = []
    for extent, (low, high), size, step in zip(dims, pairs, reach, stride):
        positions = -(-(extent + low + high - size) // step) + 1
        if (positions - 1) * step >= extent + low:
            positions -= 1
        made.append((low, max(high, (positions - 1) * step + size - extent - low)))
    return made


def pool_windows(x: Value, kind: str, window: Ints, stride: Ints, dilation: Ints) -> Any:
    """What windows over the trailing axes of x hold; their sizes are known.

    One node, or some per axis where the whole window is too large to unroll.
    """
    if math.prod(window) <= tuned.pool_unrolled:
        return emit("pool", x, kind=kind, window=window, stride=stride, dilation=dilation)
    for axis, (size, step, gap) in enumerate(zip(window, stride, dilation), -len(window)):
        x = _along_axis(x, kind, axis, size, step, gap)
    return x


def _any_windows(x: Value, kind: str, window: Ints, stride: Ints, dilation: Ints) -> Any:
    """The same where some sizes are open: those axes one by one, the others together."""
    axes = list(zip(window, stride, dilation))
    known = [(1, 1, 1) if is_open(axis) else axis for axis in axes]
    if known != [(1, 1, 1)] * len(axes):
        x = pool_windows(x, kind, *zip(*known))
    for axis, sizes in enumerate(axes, 2):
        x = _by_places(x, kind, axis, *sizes) if is_open(sizes) else x
    return x


def _per_axis(value: Any, count: int, name: str) -> Ints:
    """Sizes along each spatial axis, from one or several; open ones stay so."""
    sizes = as_shape(value)
    if not is_open(sizes):
        return per_axis(value, count, name)
    sizes = sizes * count if isinstance(value, Size) else sizes
    known = tuple(size for size in sizes if not isinstance(size, Dim))
    require(len(known) == count, f"{name} {value} does not fit {count} spatial axes")
    require(all(size > 0 for size in known), f"{name} {value} is not positive")
    return known


def _along_axis(x: Value, kind: str, axis: int, size: int, step: int, gap: int) -> Any:
    """Pooling along one axis; a long window is one of parts, each pooled first.

    The largest and smallest elements may count twice, so that parts overlap; what parts of a sum
    leave over is added.

        window of 7 as 3 parts of 3, 2 apart      a b c d e f g      abc cde efg
    """
    if size <= MOST_IN_WINDOW:
        ones = [1] * (rank_of(x) - 2)
        alone = [(*ones[:axis], n, *ones[axis:][1:]) for n in (size, step, gap)]
        return emit("pool", x, kind=kind, window=alone[0], stride=alone[1], dilation=alone[2])
    count = -(-size // MOST_IN_WINDOW)
    apart = size // count
    part = apart if kind == "sum" else size - (count - 1) * apart
    parts = _along_axis(x, kind, axis, part, 1, gap)
    made = _along_axis(parts, kind, axis, count, step, gap * apart)
    results = window_extent(shape_of(x)[axis], (size - 1) * gap + 1, step, "pool")
    made = slice_axis(made, axis, 0, results)
    if count * part >= size:
        return made
    rest = slice_axis(x, axis, count * part * gap, shape_of(x)[axis])
    return made + _along_axis(rest, kind, axis, size - count * part, step, gap)


def _covers(x: Value, window: Any, padding: Any, dilation: Any) -> bool:
    """Whether one window is all of x, whose extents are open: else its size would be needed."""
    is_plain = padding in (0, "valid") and dilation == 1 and isinstance(window, tuple | list)
    dims = shape_of(x)[2:]
    return is_plain and is_open(dims) and alike(tuple(window), dims)


def _whole(x: Value, kind: str) -> Any:
    """What one window over all of x has; the first of the largest is the one that is chosen."""
    for axis in range(rank_of(x) - 1, 1, -1):
        x = _reduced(x, kind, axis)
    return x


def _reduced(x: Value, kind: str, axis: int) -> Any:
    """The sum, or the first of the largest or smallest elements, along an axis of extent 1 then."""
    if kind == "sum":
        return functions.sum(x, axis=axis, keepdims=True)
    find = functions.argmax if kind == "max" else functions.argmin
    return functions.take_along_axis(x, find(x, axis=axis, keepdims=True), axis)


def _by_places(x: Value, kind: str, axis: int, size: Any, step: Any, gap: Any) -> Any:
    """Pooling along one axis where the size of the window, or how it moves, is open: by the places
    of all elements of all windows, as an axis of its own."""
    count = window_extent(shape_of(x)[axis], (size - 1) * gap + 1, step, "pool")
    starts = functions.arange(count) * step
    places = functions.expand_dims(starts, 1) + functions.arange(size) * gap
    parts = functions.take(x, places, axis=axis)
    return functions.squeeze(_reduced(parts, kind, axis + 1), axis + 1)


def _pooled(
    x: Value,
    kind: str,
    window: Any,
    stride: ArrayLike,
    padding: ArrayLike,
    dilation: ArrayLike,
    ceil_mode: bool,
) -> tuple[Any, Any, list[Any]]:
    """(pooled, pool settings, padding) of x[N, C, *spatial]."""
    count = rank_of(x) - 2
    require(1 <= count <= 3, f"pooling takes x[N, C, *spatial], got shape {list(shape_of(x))}")
    if _covers(x, window, padding, dilation):
        ones = (1,) * count
        return _whole(x, kind), (tuple(window), ones, ones), [(0, 0)] * count
    window = _per_axis(window, count, "window")
    stride = window if stride is None else _per_axis(stride, count, "stride")
    dilation = _per_axis(dilation, count, "dilation")
    dims: tuple[Dimension, ...] = shape_of(x)[2:]
    reach = tuple((k - 1) * d + 1 for k, d in zip(window, dilation))
    pairs = resolve_padding(padding, dims, reach, stride)
    pairs = _ceil_pairs(dims, pairs, reach, stride) if ceil_mode else pairs
    identity = IDENTITY["add" if kind == "sum" else kind](common_element(x)[0])
    padded = emit_pad(x, identity, [(0, 0), (0, 0), *pairs])
    pool = _any_windows if is_open((*window, *stride, *dilation)) else pool_windows
    return pool(padded, kind, window, stride, dilation), (window, stride, dilation), pairs


@public(name="max_pool")
def max_pool(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """The maximum over windows of x[N, C, *spatial]; the stride is the window by default."""
    return _pooled(x, "max", window, stride, padding, dilation, ceil_mode)[0]


@public(name="min_pool")
def min_pool(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """The minimum over windows of x[N, C, *spatial]; the stride is the window by default."""
    return _pooled(x, "min", window, stride, padding, dilation, ceil_mode)[0]


@public(name="avg_pool")
def avg_pool(
    x: Any,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """The mean over windows of x[N, C, *spatial].

    Padding counts as zeros, or not at all without `count_include_pad`; what ceil_mode adds beyond
    the padding asked for never counts.
    """
    element = common_element(x)[0]
    if element.is_integer:
        x = functions.astype(x, np.float64)
    total, (window, stride, _), pairs = _pooled(x, "sum", window, stride, padding, 1, ceil_mode)
    plain = not any(map(any, pairs)) or (count_include_pad and not ceil_mode)
    if plain:
        return total / math.prod(window)
    window, stride = tuple(map(int, window)), tuple(map(int, stride))  # counts are a constant
    wanted = resolve_padding(padding, shape_of(x)[2:], window, stride)
    counts = _counts(
        shape_of(x)[2:],
        wanted if count_include_pad else [(0, 0)] * len(window),
        pairs,
        window,
        stride,
    )
    return total / functions.astype(counts, common_element(x)[0])


def _counts(dims: Any, counted: Any, pairs: Any, window: Ints, stride: Ints) -> Any:
    """How many elements of each window count: x itself and the padding in `counted`."""
    made = np.ones((), np.int64)
    for extent, (low, high), (before, after), size, step in zip(
        dims, counted, pairs, window, stride
    ):
        ones = np.pad(np.ones(extent + low + high, int), (before - low, after - high))
        views = np.lib.stride_tricks.sliding_window_view(ones, size)[::step]
        made = np.multiply.outer(made, views.sum(-1))
    return made
