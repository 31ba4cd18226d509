"""Positions: where values belong in a sorted vector, and where an array is not zero.

NumPy gives the latter a shape that depends on data; here `size=` fixes it and `fill_value` fills
what is left over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TypeRuleError, also
from graphc.ir.op import EXTENT, Attr, Compute, Library, Op, Sample
from graphc.ir.sizes import Size
from graphc.ir.types import (
    BOOL,
    C128,
    F64,
    I64,
    AnyType,
    Dim,
    Dimension,
    DType,
    TupleType,
    Type,
    tensor,
    tuple_type,
)
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import is_nan, maximum, minimum, where
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Read, Tensor
from graphc.ops.record.batching import Lanes, lane_by_lane
from graphc.ops.record.dims import rank_of, shape_of, size_of, tensor_type
from graphc.ops.record.families import (
    REAL,
    as_dtype,
    define,
    device_code,
    require,
    require_dtype,
    sample_array,
)
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    counting,
    emit,
    emit_promoted,
    functions,
    public,
)
from graphc.ops.shape.concat import concatenate
from graphc.ops.shape.manipulation import flip
from graphc.ops.sort.sort_kernels import BLOCK, CANCELLED

FEW_BITS, MOST_BITS = 24, 48  # of places in an open extent

# ------------------------------------------------------------------------------------ searchsorted


def _infer_search(a: AnyType, v: AnyType, *, side: str) -> Type:
    a, v = tensor_type("searchsorted", a), tensor_type("searchsorted", v)
    require_dtype("searchsorted", a, REAL)
    require(a.rank == 1, f"searchsorted looks into a vector, got {a}")
    require(a.dtype is v.dtype, f"searchsorted: {a} and {v} differ in dtype", hint="insert a cast")
    return tensor(I64, v.shape)


def _before(x: Expr, value: Expr, side: str) -> Any:
    """Whether x comes before the place of the value; NaN is greater than all numbers."""
    if side == "left":  # x < value
        order = x < value
        if x.dtype.kind == "f":
            number_first = (x == x) & is_nan(value)
            order = order | number_first
        return order
    order = x <= value
    return order | is_nan(value) if x.dtype.kind == "f" else order


def _search(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    """Binary search without branches: the answer lies within `left` places from what is found."""
    left = node.inputs[0].type.dims[0]
    if isinstance(left, Size):
        return _search_open(b, node, read, index)
    work = node.inputs[0].type.dtype.compute
    value = read(1, index).cast(work)
    found = b.integer(0)
    while left > 0:
        half = (left + 1) // 2  # if the answer lies before: at most left // 2 places on, too
        x = read(0, (found + (half - 1),)).cast(work)
        found = where(_before(x, value, node.attrs["side"]), found + half, found)
        left //= 2
    return found


def _search_open(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    """The same in an extent that only the run knows: the answer is built bit by bit from the
    highest.
    """
    extent = node.inputs[0].type.dims[0]
    work = node.inputs[0].type.dtype.compute
    value = read(1, index).cast(work)
    found = b.integer(0)
    for bit in reversed(range(FEW_BITS if extent < 1 << FEW_BITS else MOST_BITS)):
        probe = found + (1 << bit)
        x = read(0, (maximum(minimum(probe, extent) - 1, 0),)).cast(work)
        inside = probe <= extent
        found = where(inside & _before(x, value, node.attrs["side"]), probe, found)
    return found


def _search_reference(a: Array, v: Array, side: str) -> Any:
    wide = np.float32 if a.dtype.itemsize == 2 and a.dtype.kind not in "iu" else a.dtype
    return np.searchsorted(a.astype(wide), v.astype(wide), side)  # type: ignore[call-overload]


def _search_samples() -> list[Sample]:
    def case(name: str, n: int, **attrs: object) -> Sample:
        a = np.sort(sample_array(name, (n,), (-4, 4), 1).astype(np.float64)).astype(
            as_dtype(name).numpy
        )
        v = np.concatenate([sample_array(name, (4,), (-6, 6), 2), a[:3], a[-2:]])
        return Sample((a, v), attrs)

    nan = np.array([1.0, 2.0, np.nan, np.nan])
    made = [case(n, 9, side=s) for n in REAL for s in ("left", "right")]
    made += [case("f32", n) for n in (0, 1, 2, 3, 4, 7, 8, 100)]
    made += [Sample((nan, np.array([np.nan, 2, 3])), {"side": s}) for s in ("left", "right")]
    return [
        *made,
        Sample((np.zeros((2, 2)), np.zeros(2)), {}, False),
        Sample((np.zeros(2), np.zeros(2, np.float32)), {}, False),
    ]


def _batch_search(op: Op, lanes: Lanes, a: Value, v: Value, *, side: str) -> Any:
    return NotImplemented if lanes.mapped[0] else emit(op, a, v, side=side)


searchsorted_op = define(
    "searchsorted",
    batch=_batch_search,
    infer=_infer_search,
    reference=_search_reference,
    lower=Compute(_search, cheap=False),
    attrs=(Attr("side", "str", "left", ("left", "right")),),
    dtypes=REAL,
    differentiable=False,
    samples=_search_samples,
    doc="Where in a sorted vector each value would be inserted, before or after its equals.",
)


@public(np.searchsorted, method=True)
def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None
) -> Any:
    """The insertion point of each value of v in the sorted vector a."""
    a = as_value(a) if sorter is None else functions.take(a, sorter, mode="clip")
    element = common_element(a, v)[0]
    kind = "u8" if element is BOOL else element
    require(not element.is_complex, "searchsorted: complex numbers have no order")
    extent = shape_of(a)[0] if rank_of(a) == 1 else 0
    if not isinstance(extent, Size):
        return emit_promoted("searchsorted", a, v, element=as_dtype(kind), side=side)
    a = concatenate([functions.astype(a, as_dtype(kind)), _highest(as_dtype(kind))])  # never empty
    made = emit_promoted("searchsorted", a, v, element=as_dtype(kind), side=side)
    return functions.minimum(made, extent)


def _highest(element: DType) -> Any:
    """One element after which nothing comes."""
    top = np.nan if element.is_float else np.iinfo(element.numpy).max
    return np.full(1, top, element.numpy)


@public(np.digitize)
def digitize(x: Tensor, bins: Tensor, right: bool = False) -> Any:
    """The number of the bin that each value falls into; traced bins are taken to increase."""
    side = "left" if right else "right"
    if not isinstance(bins, Value):
        steps = np.diff(np.asarray(bins))
        is_ordered = bool((steps >= 0).all() or (steps <= 0).all())
        text = "bins must be monotonically increasing or decreasing"
        if not is_ordered:
            raise also(TypeRuleError(f"digitize: {text}"), ValueError)
    if not isinstance(bins, Value) and len(bins) > 1 and bins[0] > bins[-1]:
        return len(bins) - searchsorted(flip(np.asarray(bins)), x, side)
    return searchsorted(bins, x, side)


@public(np.interp)
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Any:
    """Values of the piecewise linear function through increasing points (xp, fp)."""
    require(period is None, "interp: a period is not available", hint="take x modulo the period")
    x, xp = functions.astype(x, F64), functions.astype(xp, F64)
    fp = functions.astype(fp, C128 if common_element(fp)[0].is_complex else F64)
    count = shape_of(xp)[0]
    require(count == shape_of(fp)[0], f"interp: {count} points and {shape_of(fp)[0]} values")
    above = functions.clip(searchsorted(xp, x, "right"), 1, count - 1) if count != 1 else 0
    below = functions.maximum(above - 1, 0)
    x0, x1, y0, y1 = (functions.take(v, k, mode="clip") for v in (xp, fp) for k in (below, above))
    made = y0 if count == 1 else y0 + (x - x0) * ((y1 - y0) / (x1 - x0))
    xp0, xpn, fp0, fpn = (functions.take(v, k) for v in (xp, fp) for k in (0, -1))
    made = functions.where(x <= xp0, fp0, functions.where(x >= xpn, fpn, made))
    made = made if left is None else functions.where(x < xp0, left, made)
    return made if right is None else functions.where(x > xpn, right, made)


# ------------------------------------------------------------------------------------ nonzero


def _infer_nonzero(mask: AnyType, *, size: Dimension) -> TupleType:
    mask = tensor_type("nonzero", mask)
    require_dtype("nonzero", mask, ("bool",))
    require(isinstance(size, Dim) or size >= 0, f"nonzero: size {size}")
    return tuple_type((tensor(I64, (size,)), tensor(I64)))


def _nonzero_kernel(
    mask: Array, places: Array, count: Array, params: Array, cancelled: Array | None = None
) -> int:
    # Every place is written down and stays if its element is true: nothing to predict.
    size, found = params[0], 0
    for first in range(0, len(mask), BLOCK):
        if cancelled is not None and cancelled[0] != 0:
            return CANCELLED
        for k in range(first, min(first + BLOCK, len(mask))):
            if found < size:
                places[found] = k
            found += mask[k]
    count[0] = found
    for first in range(min(found, size), size, BLOCK):
        if cancelled is not None and cancelled[0] != 0:
            return CANCELLED
        for k in range(first, min(first + BLOCK, size)):
            places[k] = 0
    return 0


def _nonzero_reference(mask: Array, size: int) -> tuple[Any, Any]:
    found = np.flatnonzero(mask)
    made = np.zeros(size, np.int64)
    made[: min(len(found), size)] = found[:size]
    return made, np.asarray(len(found), np.int64)


nonzero_op = define(
    "nonzero",
    batch=lane_by_lane,
    infer=_infer_nonzero,
    reference=_nonzero_reference,
    lower=Library(
        lambda node: _nonzero_kernel,
        lambda node: (node.attrs["size"],),
        cuda=device_code("reduce.scan_launches", "nonzero_code"),
        native="places",
    ),
    attrs=(Attr("size", "dim", within=EXTENT),),
    dtypes=("bool",),
    differentiable=False,
    samples=lambda: [
        Sample((np.array([[0, 1, 1], [0, 0, 1]], bool),), {"size": 2}),
        Sample((np.array([0, 1, 0, 1, 1], bool),), {"size": 5}),
        Sample((np.zeros((0, 2), bool),), {"size": 1}),
        Sample((np.array(True),), {"size": 0}),
        Sample((np.zeros(3),), {"size": 1}, False),
        Sample((np.zeros(3, bool),), {"size": -1}, False),
    ],
    doc="The row-major positions of the first `size` true elements (0 where there are fewer), and "
    "how many there are in all.",
)


def need_size(name: str, size: Any, *arrays: ArrayLike) -> bool:
    """Whether the run decides the size. Raises TraceError for traced arrays without one where that
    cannot be: in the body of a loop or a branch."""
    if size is not None or not any(isinstance(x, Value) for x in arrays):
        return False
    counting(
        f"{name} of a traced array has a shape that depends on data",
        f"pass size= to fix it: gc.{name}(x, size=n, fill_value=0)",
    )
    return True


def counted(name: str, x: Value) -> Any:
    """How many elements are not zero, as an extent that the run decides."""
    mask = x if x.element is BOOL else functions.not_equal(x, 0)
    if any(isinstance(extent, int) and extent == 0 for extent in x.shape):
        return 0
    most = size_of(shape_of(x))
    return x.owner.data_size(name, functions.sum(functions.astype(mask, I64)), most)


def true_places(x: ArrayLike, size: int) -> tuple[Any, Any]:
    """(the first `size` positions of what is not zero, how many there are)."""
    mask = as_value(x)
    mask = mask if common_element(mask)[0] is BOOL else functions.not_equal(mask, 0)
    return emit("nonzero", mask, size=size)  # type: ignore[no-any-return]


@public(np.flatnonzero)
def flatnonzero(x: Tensor, size: int | None = None, fill_value: int = 0) -> Any:
    """Row-major positions of what is not zero: all, or the first `size`, then fill_value."""
    if size is None:
        if not isinstance(x, Value):
            return np.flatnonzero(x)
        return true_places(x, counted("flatnonzero", x))[0]
    places, count = true_places(x, int(size))
    return functions.where(functions.arange(int(size)) < count, places, fill_value)


@public(np.nonzero, method=True)
def nonzero(x: Tensor, size: int | None = None, fill_value: int = 0) -> tuple[Any, ...]:
    """Positions of what is not zero, one vector per axis: all, or the first `size`, then
    fill_value."""
    if size is None:
        if not isinstance(x, Value):
            return tuple(np.nonzero(x))
        every = true_places(x, counted("nonzero", x))[0]
        return tuple(functions.unravel_index(every, shape_of(x)))
    places, count = true_places(x, int(size))
    legal = functions.arange(int(size)) < count
    parts = functions.unravel_index(places, shape_of(x))
    return tuple(functions.where(legal, part, fill_value) for part in parts)


@public(np.argwhere)
def argwhere(x: Tensor, size: int | None = None, fill_value: int = 0) -> Any:
    """nonzero as the rows of a matrix."""
    return functions.stack(nonzero(x, size, fill_value), 1) if rank_of(x) else np.argwhere(x)


@public(np.unravel_index)
def unravel_index(indices: Tensor, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """Positions in an array as one position per axis; they are not checked."""
    require(order in ("C", "F"), f"unravel_index: the order must be 'C' or 'F', got {order!r}")
    extents = tuple(shape) if np.ndim(shape) else (shape,)
    inwards = extents if order == "F" else extents[::-1]
    made, rest = [], functions.astype(indices, I64)
    for extent in inwards[:-1]:
        made.append(functions.remainder(rest, max(extent, 1)))
        rest = functions.floor_divide(rest, max(extent, 1))
    made += [rest] * bool(extents)
    return tuple(made if order == "F" else reversed(made))


@public(np.ravel_multi_index)
def ravel_multi_index(
    multi_index: Any, dims: Any, mode: ArrayLike = "raise", order: str = "C"
) -> Any:
    """One position per axis as positions in an array of extents `dims`.

    What lies outside raises RunError, or is clipped or wrapped by `mode`, one or one for each axis.
    """
    require(order in ("C", "F"), f"ravel_multi_index: the order must be 'C' or 'F', got {order!r}")
    extents = tuple(dims) if np.ndim(dims) else (dims,)
    is_list = isinstance(multi_index, tuple | list)
    parts = list(multi_index if is_list else functions.unstack(multi_index))
    modes = mode if isinstance(mode, tuple | list) else (mode,) * len(extents)
    given = f"{len(parts)} positions, {len(extents)} extents, {len(modes)} modes"
    require(len(parts) == len(extents) == len(modes), f"ravel_multi_index: {given}")
    axes = list(zip(parts, extents, modes))
    made = np.zeros((), np.int64)
    for part, extent, how in reversed(axes) if order == "F" else axes:
        legal = functions.take(np.arange(extent), functions.astype(part, I64), mode=how)
        made = functions.add(functions.multiply(made, extent), legal)
    return made
