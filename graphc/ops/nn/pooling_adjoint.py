"""What pooling differentiates into.

pool_choice   where in x each window has its largest (smallest) element, the first of equal ones
spread        zeros with numbers added there: the adjoint of reading x at those places

x  1 5 2 4 3          windows of 3 in steps of 2         chosen places   1 3
                                                         spread of a, b  0 a 0 b 0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.op import POSITIVE, Attr, Compute, Loops, Op, Range, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import I32, I64, AnyType, Dimension, Type, definitely_different, tensor
from graphc.loops.nest import Buffer, Scalars
from graphc.loops.scalars import is_nan, where
from graphc.ops.autodiff.adjoints import fitted
from graphc.ops.linalg.matmul import accumulable
from graphc.ops.nn.conv import Ints, window_extent
from graphc.ops.record.arguments import Applied, Array, Read, ReadAt, Tensor, Write
from graphc.ops.record.batching import Lanes, leading, reshaped
from graphc.ops.record.dims import (
    clamp,
    row_major_strides,
    samples_of,
    shape_of,
    size_of,
    tensor_type,
)
from graphc.ops.record.families import (
    FLOATS,
    REAL,
    define,
    device_code,
    require,
    require_dtype,
    sample_array,
)
from graphc.ops.record.value import Value, emit
from graphc.ops.shape.padding import pad_zeros
from graphc.ops.shape.shape import broadcast_to, reshape

WINDOW = tuple(Attr(name, "ints", within=POSITIVE) for name in ("window", "stride", "dilation"))
MOST_IN_WINDOW = 512  # elements, which are written out one by one
MOST_PLACES = 2**28  # of a row that is spread: it lies in scratch memory
CHOICE = (Attr("kind", "str", choices=("max", "min")), *WINDOW)


def pool_type(
    name: str, x: AnyType, window: Ints, stride: Ints, dilation: Ints
) -> tuple[Dimension, ...]:
    """The shape of windows over the trailing axes of x. Raises TypeRuleError."""
    x = tensor_type(name, x)
    require_dtype(name, x, REAL)
    count = len(window)
    require(
        0 < count <= x.rank and len(stride) == len(dilation) == count,
        f"{name} of {x}: one window, stride and dilation per trailing axis",
    )
    require(
        math.prod(window) <= MOST_IN_WINDOW,
        f"{name}: a window of {list(window)} has more than {MOST_IN_WINDOW} elements",
        hint="gc.max_pool, gc.min_pool and gc.avg_pool pool larger ones in several steps",
    )
    lead = x.rank - count
    extents = (
        window_extent(n, (k - 1) * d + 1, s, name)
        for n, k, s, d in zip(x.shape[lead:], window, stride, dilation)
    )
    return (*x.shape[:lead], *extents)


def sliding_windows(x: Tensor, window: Ints, stride: Ints, dilation: Ints) -> Any:
    """A view of an array: the elements of each window as further axes."""
    lead = x.ndim - len(window)
    reach = tuple((k - 1) * d + 1 for k, d in zip(window, dilation))
    views = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(lead, x.ndim)))
    steps = (*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    return views[(slice(None),) * lead + steps]


# ------------------------------------------------------------------------------------ choice


def _infer_choice(x: AnyType, *, kind: str, window: Ints, stride: Ints, dilation: Ints) -> Type:
    dims = pool_type("pool_choice", x, window, stride, dilation)
    places = size_of(tensor_type("pool_choice", x).shape[-len(window) :])
    fits = not isinstance(places, int) or places < 2**31
    require(fits, f"pool_choice: {places} places do not fit i32")
    return tensor(I32, dims)


def _choice(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    kind, window, stride, dilation = (node.attrs[a.name] for a in CHOICE)
    dims, lead = node.inputs[0].type.dims, len(index) - len(window)
    pitch = row_major_strides(dims[lead:])
    order = "gt" if kind == "max" else "lt"
    best: Any = None
    found: Any = None
    for offset in itertools.product(*map(range, window)):
        moved = [
            b.affine([(i, s)], o * d) for i, s, o, d in zip(index[lead:], stride, offset, dilation)
        ]
        value = read(0, (*index[:lead], *moved))
        value = value.cast(value.dtype.compute)
        place = b.const(sum(o * d * p for o, d, p in zip(offset, dilation, pitch)), I32)
        if best is None:
            best, found = value, place
            continue
        first_nan = is_nan(value) & (best == best)
        better = b.compare(order, value, best) | first_nan
        best, found = where(better, value, best), where(better, place, found)
    start = b.affine([(i, s * p) for i, s, p in zip(index[lead:], stride, pitch)])
    return start.cast(I32) + found


def _choice_reference(x: Array, kind: str, window: Ints, stride: Ints, dilation: Ints) -> Any:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    views = sliding_windows(wide, window, stride, dilation)
    flat = views.reshape(*views.shape[: x.ndim], math.prod(window))
    best = (np.argmax if kind == "max" else np.argmin)(flat, axis=-1)
    places = np.arange(math.prod(x.shape[x.ndim - len(window) :])).reshape(
        (1,) * (x.ndim - len(window)) + x.shape[x.ndim - len(window) :]
    )
    where = sliding_windows(places, window, stride, dilation)
    where = np.broadcast_to(where, views.shape).reshape(flat.shape)
    return np.take_along_axis(where, best[..., None], -1)[..., 0].astype(np.int32)


def _choice_samples() -> list[Sample]:
    attrs = {"kind": "max", "window": (2, 3), "stride": (2, 1), "dilation": (1, 1)}
    far = {"kind": "min", "window": (3,), "stride": (2,), "dilation": (2,)}
    x = np.array([[1.0, np.nan, 3.0, np.nan, 2.0, 2.0]], np.float32)
    windows = {"window": (2,), "stride": (1,), "dilation": (1,)}
    return [
        *samples_of([([(2, 6, 7)], attrs), ([(2, 9)], far)], [([(2, 3)], far)], dtypes=REAL)(),
        *(Sample((x,), {"kind": kind, **windows}) for kind in ("max", "min")),
    ]


pool_choice_op = define(
    "pool_choice",
    batch=leading,
    infer=_infer_choice,
    reference=_choice_reference,
    lower=Compute(_choice, cheap=False),
    attrs=CHOICE,
    dtypes=REAL,
    differentiable=False,
    samples=_choice_samples,
    doc="The place, counted row by row over the trailing axes of x, of the largest or smallest "
    "element of each window: the first of equal ones; a NaN wins.",
)

# ------------------------------------------------------------------------------------ spread


def _infer_spread(index: AnyType, x: AnyType, *, extent: int) -> Type:
    index, x = tensor_type("spread", index), tensor_type("spread", x)
    require_dtype("spread", index, ("i32", "i64"))
    require_dtype("spread", x, FLOATS)
    fits = index.rank == x.rank == 2 and not any(map(definitely_different, index.shape, x.shape))
    require(fits, f"spread takes a matrix of places and one of numbers, got {index} and {x}")
    return tensor(x.dtype, (x.shape[0], extent))


def _spread(
    b: Scalars, node: Applied, read: ReadAt, write: Write, scratch: Sequence[Buffer]
) -> None:
    rows, count = node.inputs[1].type.dims
    extent, element = node.attrs["extent"], node.type.dtype
    (line,) = scratch
    with b.loop(rows, "parallel") as row:
        with b.loop(extent, "vector") as k:
            b.store(line, k, b.const(0, line.dtype))
        with b.loop(count) as k:
            at = b.affine([(row, count), (k, 1)])
            place = clamp(read(0, at).cast(I64), 0, extent - 1)
            total = b.load(line, place) + read(1, at).cast(line.dtype)
            b.store(line, place, total)
        with b.loop(extent, "vector") as k:
            write((row, k), b.load(line, k).cast(element))


def _spread_reference(index: Array, x: Array, extent: int) -> Any:
    made = np.zeros((len(x), extent), accumulable(x).dtype)
    rows = np.arange(len(x))[:, None]
    np.add.at(made, (rows, np.clip(index, 0, extent - 1)), accumulable(x))
    return made.astype(x.dtype)


def _spread_gradient(
    ct: Value, result: Value, index: Any, x: Any, *, extent: int
) -> tuple[None, Any]:
    return None, emit("take_along", ct, index, axis=1, mode="clip")


def _spread_samples() -> list[Sample]:
    def case(name: str, rows: int, count: int, extent: int, good: bool = True) -> Sample:
        index = np.random.default_rng(7).integers(0, extent, (rows, count)).astype(np.int32)
        x = sample_array(name, (rows, count), (-4.0, 4.0), 3)
        return Sample((index, x), {"extent": extent}, good, tolerance=2.0)

    made = [case(name, 3, 9, 7) for name in FLOATS]
    made += [case("f32", *shape) for shape in ((1, 40, 3), (5, 2, 33), (2, 0, 4), (0, 3, 4))]
    wide = Sample((made[0].operands[0].astype(np.int64) - 2, made[0].operands[1]), {"extent": 3})
    wrong = Sample((made[0].operands[0][:1], made[0].operands[1]), {"extent": 7}, good=False)
    return [*made, wide, wrong, case("i32", 3, 9, 7, False)]


def _batch_spread(op: Op, lanes: Lanes, *values: Value, extent: int) -> Any:
    whole = lanes.spread(values)
    rows = whole[0].shape[1]
    flat = (reshaped(x, (lanes.size * rows, *x.shape[2:])) for x in whole)
    return reshaped(emit(op, *flat, extent=extent), (lanes.size, rows, extent))


spread_op = define(
    "spread",
    batch=_batch_spread,
    infer=_infer_spread,
    reference=_spread_reference,
    lower=Loops(
        _spread,
        lambda node: node.type.dims[0],
        lambda node: ((node.type.dtype.compute, node.attrs["extent"]),),
        device_code("index.scatter_launches", "spread_code"),
    ),
    attrs=(Attr("extent", "dim", within=Range(1, MOST_PLACES)),),
    dtypes=("i32", "i64"),
    gradient=_spread_gradient,
    samples=_spread_samples,
    traits=Traits(pools=True),
    doc="Rows of zeros with the numbers of x[rows, count] added at places[rows, count]; those "
    "beyond the ends count at the ends.",
)


def to_chosen(ct: Value, x: Value, kind: str, windows: dict[str, Ints]) -> Any:
    """Every element of ct at the place in an array like x that its window chose."""
    dims, count = shape_of(x), len(windows["window"])
    choice = emit("pool_choice", x, kind=kind, **windows)
    flat = (size_of(dims[:-count]), size_of(shape_of(ct)[-count:]))
    extent = size_of(dims[-count:])
    return reshape(emit("spread", reshape(choice, flat), reshape(ct, flat), extent=extent), dims)


# ------------------------------------------------------------------------------------ sums


def sums_spread(
    ct: Value, extents: Sequence[Dimension], window: Ints, stride: Ints, dilation: Ints
) -> Any:
    """The adjoint of summing windows: every element is the sum over the windows that hold it."""
    count = len(window)
    lead = len(shape_of(ct)) - count
    if window == stride and max(dilation) == 1:
        return fitted(_repeated(ct, window), extents)
    around = [((k - 1) * d,) * 2 for k, d in zip(window, dilation)]
    spaces = (*(0,) * lead, *(s - 1 for s in stride))
    spaced = pad_zeros(ct, [*[(0, 0)] * lead, *around], spaces)
    ones = (1,) * count
    made = emit("pool", spaced, kind="sum", window=window, stride=ones, dilation=dilation)
    return fitted(made, extents)


def _repeated(x: Value, window: Ints) -> Any:
    """Every element as often as a window has elements, side by side."""
    dims = shape_of(x)
    lead = len(dims) - len(window)
    apart = (e for n in dims[lead:] for e in (n, 1))
    wide = (e for n, k in zip(dims[lead:], window) for e in (n, k))
    flat = (n * k for n, k in zip(dims[lead:], window))
    made = broadcast_to(reshape(x, (*dims[:lead], *apart)), (*dims[:lead], *wide))
    return reshape(made, (*dims[:lead], *flat))
