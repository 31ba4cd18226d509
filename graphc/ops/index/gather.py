"""Reads at computed positions: gather (integer-array indexing), take_along and their functions.

An index is checked where it is read: mode "raise" reports status 1 from the kernel, "clip" limits
it to the axis, "wrap" takes it modulo the extent.  Indices that are known while tracing are checked
there and use "clip", which cannot fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import INDEX, OutOfRangeError, TraceError
from graphc.ir.op import AXIS, EXTENT, Attr, Compute, Op, Sample
from graphc.ir.sizes import Size
from graphc.ir.traits import Traits
from graphc.ir.types import I64, U64, AnyType, Dimension, Type, definitely_different, tensor
from graphc.loops.nest import Expr, Scalars
from graphc.loops.scalars import where
from graphc.ops.index.scatter import add_along, require_index_types, scatter_rows
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Read
from graphc.ops.record.batching import Lanes, along, leading, moved
from graphc.ops.record.dims import clamp, place_of, rank_of, shape_of, tensor_type
from graphc.ops.record.families import (
    ALL,
    INTEGERS,
    broadcast_dims,
    define,
    normalise_axis,
    require,
    sample_array,
)
from graphc.ops.record.value import Value, emit, functions, public
from graphc.ops.shape.shape import broadcast_to, inverse, reshape, transpose

MODES = ("raise", "clip", "wrap")

# ------------------------------------------------------------------------------------ index rules


def bounded(b: Scalars, index: Expr, extent: int, mode: str) -> Any:
    """An i64 index made legal for an axis of `extent` > 0; negative ones count from the end."""
    if mode == "wrap" and index.dtype is U64:
        return (index % extent).cast(I64)
    index = place_of(index)
    zero, size = b.integer(0), b.integer(extent)
    if mode == "clip":
        return clamp(index, 0, extent - 1)
    if mode == "wrap":
        rest = index % size
        return where(rest < zero, rest + size, rest)
    wrapped = where(index < zero, index + size, index)
    b.fail((wrapped < zero) | (wrapped >= size), INDEX)
    # The failing lane still loads before its status is looked at.
    return clamp(wrapped, 0, extent - 1)


def bounded_array(index: Any, extent: int, mode: str, axis: int | None = None) -> Any:
    """`bounded` on a NumPy array. Raises IndexError, which names the axis, in mode "raise"."""
    index = np.asarray(index)
    if index.dtype == np.uint64:
        index = index % max(extent, 1) if mode == "wrap" else np.minimum(index, 2**63 - 1)
    index = index.astype(np.int64)
    if mode == "clip":
        return np.clip(index, 0, max(extent - 1, 0))
    if mode == "wrap":
        return index % max(extent, 1)
    wrong = index[(index < -extent) | (index >= extent)]
    if wrong.size:
        first = wrong.flat[0]
        where = "an axis" if axis is None else f"axis {axis}"
        raise OutOfRangeError(f"index {first} is out of range for {where} of extent {extent}")
    return np.where(index < 0, index + extent, index)


# ------------------------------------------------------------------------------------ gather


def _infer_gather(
    x: AnyType, *indices: AnyType, axes: tuple[int, ...], position: int, mode: str
) -> Type:
    x = tensor_type("gather", x)
    kinds = require_index_types("gather", *indices)
    require(bool(kinds) and len(kinds) == len(axes), f"gather: {len(kinds)} indices, axes {axes}")
    require(
        all(0 <= a < x.rank for a in axes) and sorted(set(axes)) == list(axes),
        f"gather: {list(axes)} are not increasing axes of {x}",
    )
    for kind in kinds:
        same = len(kind.shape) == kinds[0].rank and not any(
            map(definitely_different, kind.shape, kinds[0].shape)
        )
        require(same, f"gather: index shapes {kind} and {kinds[0]} differ")
    rest = [d for k, d in enumerate(x.shape) if k not in axes]
    require(0 <= position <= len(rest), f"gather: position {position} is not in 0..{len(rest)}")
    checked = [a for a in axes if not _may_be_empty(x.shape[a], kinds[0].shape, mode)]
    empty = any(x.shape[a] == 0 for a in checked) and 0 not in kinds[0].shape
    require(not empty, f"gather: no index is legal for an axis of extent 0 of {x}")
    return tensor(x.dtype, (*rest[:position], *kinds[0].shape, *rest[position:]))


def _may_be_empty(extent: Dimension, places: Sequence[Dimension], mode: str) -> bool:
    """Whether an axis of open size may have no elements: a run looks at what is taken of it, or as
    many are taken as there are."""
    return isinstance(extent, Size) and (mode == "raise" or any(d is extent for d in places))


def _gather(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    dims = node.inputs[0].type.dims
    axes, position, mode = (node.attrs[k] for k in ("axes", "position", "mode"))
    end = position + node.inputs[1].type.rank
    rest = iter(index[:position] + index[end:])
    source: list[Any] = [None if k in axes else next(rest) for k in range(len(dims))]
    for k, axis in enumerate(axes):
        source[axis] = bounded(b, read(k + 1, index[position:end]), dims[axis], mode)
    return read(0, tuple(source))


def _gather_reference(x: Array, *indices: Array, axes: Any, position: int, mode: str) -> Any:
    legal = tuple(bounded_array(i, x.shape[a], mode, a) for i, a in zip(indices, axes))
    front = np.moveaxis(x, axes, range(len(axes)))
    shape = legal[0].shape + front.shape[len(axes) :]
    made = np.zeros(shape, x.dtype) if 0 in shape else front[legal]
    rank = legal[0].ndim
    return np.moveaxis(made, range(rank), range(position, position + rank))


def _gather_samples() -> list[Sample]:
    def case(
        shape: Any, *indices: ArrayLike, name: str = "f32", good: bool = True, **attrs: object
    ) -> Sample:
        arrays = tuple(np.asarray(i) for i in indices)
        attrs = {"position": 0, "mode": "raise", **attrs}
        return Sample((sample_array(name, shape, (-4, 4), 0), *arrays), attrs, good)

    made = [case((4, 3), [[0, -1], [3, 2]], axes=(0,), name=n) for n in ALL]
    made += [
        case((2, 5), sample_array(n, (3,), (0, 1), 1) % 5, axes=(1,), position=1) for n in INTEGERS
    ]
    return [
        *made,
        case((3, 4, 5), [0, 2], [1, 3], axes=(0, 2), position=1),
        case((3, 4), [-9, 1, 9], axes=(1,), position=1, mode="clip"),
        case((3, 4), [-9, 1, 9], axes=(0,), mode="wrap"),
        case((3, 0), np.zeros((0,), int), axes=(1,), position=1),
        case((3, 4), [0.5], axes=(0,), good=False),
        case((3, 4), [0], axes=(2,), good=False),
        case((0, 4), [0], axes=(0,), good=False),
    ]


def _legal(index: Any, extent: int, mode: str) -> Any:
    """`bounded` as an i64 value; in mode "raise" the read itself has checked it."""
    f = functions
    if index.element is U64:
        wraps = mode == "wrap"
        index = f.remainder(index, max(extent, 1)) if wraps else f.minimum(index, 2**63 - 1)
    index = f.astype(index, I64)
    if mode == "clip":
        return f.clip(index, 0, max(extent - 1, 0))
    if mode == "wrap":
        return f.remainder(index, max(extent, 1))
    return f.where(index < 0, index + extent, index)


def _gather_gradient(
    ct: Value,
    result: Value,
    x: Value,
    *indices: Value,
    axes: tuple[int, ...],
    position: int,
    mode: str,
) -> list[Any]:
    dims, count = x.type.dims, len(indices[0].shape)
    legal = [_legal(i, dims[a], mode) for i, a in zip(indices, axes)]
    if count == 0:
        made = _one_place(ct, x, dict(zip(axes, legal)))
        return [made, *(None for _ in indices)]
    order = [*axes, *(k for k in range(len(dims)) if k not in axes)]
    # A scatter checks and wraps its positions itself.
    row = indices[0] if mode == "raise" and len(axes) == 1 else legal[0]
    for place, axis in zip(legal[1:], axes[1:]):
        row = row * dims[axis] + place
    rows = math.prod(dims[a] for a in axes)
    zeros = functions.zeros((rows, *(dims[k] for k in order[len(axes) :])), x.element)
    updates = functions.moveaxis(ct, range(position, position + count), range(count))
    made = reshape(scatter_rows(zeros, row, updates, "add"), tuple(dims[k] for k in order))
    return [transpose(made, inverse(order)), *(None for _ in indices)]


def _one_place(ct: Value, x: Value, places: dict[int, Any]) -> Any:
    """Zeros like x with ct at one position along some axes."""
    block = reshape(ct, tuple(1 if k in places else d for k, d in enumerate(x.shape)))
    starts = [places.get(k, 0) for k in range(len(x.shape))]
    return emit("dynamic_update_slice", functions.zeros_like(x), block, *starts)


def _batch_gather(
    op: Op, lanes: Lanes, x: Value, *indices: Value, axes: tuple[int, ...], position: int, mode: str
) -> Any:
    """Of lanes of its own each index reads its lane: the number of that is one more index."""
    axes, own, common = tuple(axis + 1 for axis in axes), lanes.mapped[0], not any(lanes.mapped[1:])
    if own and common:
        return emit(op, x, *indices, axes=axes, position=position + 1, mode=mode)
    indices = tuple(lanes._replace(mapped=lanes.mapped[1:]).spread(indices))
    if own:
        dims = indices[0].shape
        number = reshape(functions.arange(lanes.size), (lanes.size, *(1,) * (len(dims) - 1)))
        indices, axes = (broadcast_to(number, dims), *indices), (0, *axes)
        made = emit(op, x, *indices, axes=axes, position=position, mode=mode)
    else:
        axes = tuple(axis - 1 for axis in axes)
        made = emit(op, x, *indices, axes=axes, position=position, mode=mode)
    return moved(made, position, 0)


gather_op = define(
    "gather",
    batch=_batch_gather,
    gradient=_gather_gradient,
    infer=_infer_gather,
    reference=_gather_reference,
    lower=Compute(_gather),
    attrs=(
        Attr("axes", "ints", within=AXIS),
        Attr("position", "int", 0, within=EXTENT),
        Attr("mode", "str", "raise", MODES),
    ),
    variadic=True,
    samples=_gather_samples,
    doc="Elements of x at index arrays of one shape along `axes`; the index shape takes the place "
    "of those axes, before axis `position` of the remaining ones.",
    traits=Traits(checks=True),
)


# ------------------------------------------------------------------------------------ take_along


def _infer_take_along(x: AnyType, index: AnyType, *, axis: int, mode: str) -> Type:
    x = tensor_type("take_along", x)
    (index,) = require_index_types("take_along", index)
    require(0 <= axis < x.rank == index.rank, f"take_along: axis {axis} of {x} by {index}")
    differ = any(
        k != axis and definitely_different(a, b)
        for k, (a, b) in enumerate(zip(x.shape, index.shape))
    )
    require(not differ, f"take_along axis {axis}: shapes of {x} and {index} differ elsewhere")
    require(x.shape[axis] != 0 or 0 in index.shape, f"take_along: {x} is empty along axis {axis}")
    return tensor(x.dtype, index.shape)


def _take_along(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    axis, mode = node.attrs["axis"], node.attrs["mode"]
    chosen = bounded(b, read(1, index), node.inputs[0].type.dims[axis], mode)
    return read(0, (*index[:axis], chosen, *index[axis + 1 :]))


def _take_along_reference(x: Array, index: Array, axis: int, mode: str) -> Any:
    return np.take_along_axis(x, bounded_array(index, x.shape[axis], mode, axis), axis)


def _take_along_samples() -> list[Sample]:
    index = np.array([[0, 2, -1], [1, 1, 0]])
    made = [Sample((sample_array(n, (2, 4), (-4, 4), 0), index), {"axis": 1}) for n in ALL]
    x = sample_array("f32", (2, 4), (-4, 4), 0)
    clipped = Sample((x, np.array([[9, 0, 1, -5]], "i4")), {"axis": 0, "mode": "clip"})
    return [*made, clipped, Sample((x, index), {"axis": 0}, False)]


def _take_along_gradient(
    ct: Value, result: Value, x: Value, index: Value, *, axis: int, mode: str
) -> list[Any]:
    legal = _legal(index, x.type.dims[axis], mode)
    return [add_along(x.type.dims, legal, axis, ct), None]


take_along_op = define(
    "take_along",
    batch=along("axis"),
    gradient=_take_along_gradient,
    infer=_infer_take_along,
    reference=_take_along_reference,
    lower=Compute(_take_along),
    attrs=(Attr("axis", "int", within=AXIS), Attr("mode", "str", "raise", MODES)),
    samples=_take_along_samples,
    doc="The index along one axis is read from an array of the result's shape.",
    traits=Traits(checks=True),
)


# ------------------------------------------------------------------------------------ labels


def _infer_in_range(label: AnyType, *, extent: Dimension) -> Type:
    (label,) = require_index_types("in_range", label)
    return tensor(I64, label.shape)


def _in_range(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    label, extent = place_of(read(0, index)), node.attrs["extent"]
    below = label < 0
    b.fail(below | (label >= extent), INDEX)
    return clamp(label, 0, max(extent - 1, 0))


def _in_range_reference(label: ArrayLike, extent: int) -> Any:
    label = np.asarray(label).astype(np.int64)
    wrong = label[(label < 0) | (label >= extent)]
    if wrong.size:
        raise OutOfRangeError(f"label {wrong.flat[0]} is not in 0..{extent - 1}")
    return label


define(
    "in_range",
    batch=leading,
    infer=_infer_in_range,
    reference=_in_range_reference,
    lower=Compute(_in_range),
    attrs=(Attr("extent", "dim", within=EXTENT),),
    dtypes=INTEGERS,
    differentiable=False,
    samples=lambda: [
        *(Sample((sample_array(n, (2, 2), (0, 1), 1) % 3,), {"extent": 3}) for n in INTEGERS),
        Sample((np.zeros((0, 2), int),), {"extent": 0}),
        Sample((np.array(1.5),), {"extent": 3}, good=False),
    ],
    doc="Integers as i64; one that is not in 0..extent-1 stops the run.",
    traits=Traits(checks=True),
)


def checked_labels(name: str, labels: ArrayLike, classes: Dimension) -> Any:
    """Integer labels that are classes, none counted from the end. Raises OutOfRangeError for labels
    that are known while tracing; others stop the run.
    """
    if not isinstance(labels, Value) and isinstance(classes, int):
        try:
            return _in_range_reference(labels, classes)
        except OutOfRangeError as error:
            raise OutOfRangeError(f"{name}: {error.message}", hint=_IGNORE) from None
    return emit("in_range", labels, extent=classes)


_IGNORE = "ignore_index=... leaves rows with that label out"

# ------------------------------------------------------------------------------------ functions


def checked_index(index: Any, extent: Dimension, mode: str, name: str) -> tuple[Any, str]:
    """An index operand and the mode to read it with.

    An index known while tracing is made legal here. Raises TraceError when it is out of range.
    """
    if isinstance(index, Value) or not isinstance(extent, int):
        return index, mode
    array = np.asarray(index)
    require(array.dtype.kind in "iu" or array.size == 0, f"{name}: an index must be an integer")
    try:
        return bounded_array(array, extent, mode), "clip"
    except IndexError:
        worst = array[(array < -extent) | (array >= extent)].flat[0]
        raise TraceError(f"{name}: index {worst} is out of range for extent {extent}") from None


def emit_gather(x: Value, indices: list[Any], axes: list[int], position: int, mode: str) -> Any:
    """gather with index arrays that broadcast; those known while tracing are checked at once."""
    legal = [checked_index(i, shape_of(x)[a], mode, f"axis {a}") for i, a in zip(indices, axes)]
    shape = broadcast_dims([shape_of(i) for i, _ in legal])
    # One traced index keeps the check for all: a legal constant passes it.
    modes = [m for _, m in legal]
    used = mode if mode in modes else "clip"
    arrays = [broadcast_to(i, shape) for i, _ in legal]
    return emit("gather", x, *arrays, axes=axes, position=position, mode=used)


@public(np.take, method=True)
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    """Elements (sub-arrays along an axis) of x at integer positions."""
    require(mode in MODES, f"take: mode must be one of {', '.join(MODES)}, got {mode!r}")
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = normalise_axis(axis, rank_of(x), "take")
    return emit_gather(x, [indices], [axis], axis, mode)


def _along(x: Value, indices: Value, axis: int | None) -> tuple[Any, Any, int]:
    """x and indices broadcast against one another on all axes but one."""
    if axis is None:
        x, indices, axis = reshape(x, -1), reshape(indices, -1), 0
    rank = rank_of(x)
    axis = normalise_axis(axis, rank, "take_along_axis")
    require(rank_of(indices) == rank, "take_along_axis: x and indices need equally many axes")
    common = broadcast_dims([(*s[:axis], *s[axis + 1 :]) for s in (shape_of(x), shape_of(indices))])

    def spread(a: Value) -> Any:
        return broadcast_to(a, (*common[:axis], shape_of(a)[axis], *common[axis:]))

    return spread(x), spread(indices), axis


@public(np.take_along_axis)
def take_along_axis(x: Any, indices: Any, axis: int | None = -1, mode: str = "raise") -> Any:
    """Elements of x whose position along one axis is given by an array of indices."""
    x, indices, axis = _along(x, indices, axis)
    index, mode = checked_index(indices, shape_of(x)[axis], mode, "take_along_axis")
    return emit("take_along", x, index, axis=axis, mode=mode)
