"""Slices whose position is computed: the extent is fixed, the start is clamped so that it fits.

    dynamic_slice(x, starts, sizes)             x[s0:s0+n0, s1:s1+n1, ...]
    dynamic_update_slice(x, updates, starts)    a copy of x with that block replaced

As in XLA, a start outside 0..extent-size moves to the nearest legal one; negative ones do not wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.op import EXTENT, Attr, Compute, Op, Sample
from graphc.ir.types import I64, AnyType, Dim, Dimension, Type, tensor
from graphc.loops.nest import Scalars
from graphc.ops.index.scatter import require_index_types
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Read, Tensor
from graphc.ops.record.batching import Lanes, reshaped
from graphc.ops.record.dims import (
    Shape,
    both,
    clamp,
    guarded,
    place_of,
    rank_of,
    shape_of,
    tensor_type,
)
from graphc.ops.record.families import ALL, define, require, sample_array, stored
from graphc.ops.record.value import Value, emit, functions, public
from graphc.ops.shape.manipulation import unstack


def _check_starts(name: str, x: Type, starts: Sequence[AnyType], sizes: Shape) -> None:
    kinds = require_index_types(name, *starts)
    require(
        len(kinds) == len(sizes) == x.rank and all(k.rank == 0 for k in kinds),
        f"{name} of {x} takes {x.rank} integer scalars and as many sizes",
    )
    for extent, size in zip(x.shape, sizes):
        room = extent - size
        require(isinstance(room, Dim) or room >= 0, f"{name}: {list(sizes)} does not fit in {x}")


def _starts(read: Read, first: int, dims: Shape, sizes: Shape) -> list[Any]:
    """The clamped start of each axis, read from scalar operands `first`, `first` + 1, ..."""
    return [
        clamp(place_of(read(first + k, ())), 0, n - size)  # type: ignore[arg-type]
        for k, (n, size) in enumerate(zip(dims, sizes))
    ]


def _legal_starts(x: Tensor, starts: Sequence[Any], sizes: Sequence[int]) -> list[int]:
    return [int(np.clip(int(s), 0, n - size)) for s, n, size in zip(starts, x.shape, sizes)]


# ------------------------------------------------------------------------------------ reading


def _infer_slice(x: AnyType, *starts: AnyType, sizes: Shape) -> Type:
    x = tensor_type("dynamic_slice", x)
    _check_starts("dynamic_slice", x, starts, sizes)
    return tensor(x.dtype, sizes)


def _slice(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    starts = _starts(read, 1, node.inputs[0].type.dims, node.type.dims)
    return read(0, tuple(map(b.add, starts, index)))


def _slice_reference(x: Array, *starts: Array, sizes: Any) -> Any:
    legal = _legal_starts(x, starts, sizes)
    return x[tuple(slice(s, s + n) for s, n in zip(legal, sizes))]


def _slice_samples() -> list[Sample]:
    def case(name: str, starts: Any, sizes: Any, good: bool = True, kind: Any = np.int64) -> Sample:
        x = sample_array(name, (4, 5), (-4, 4), 0)
        return Sample((x, *(np.asarray(s, kind) for s in starts)), {"sizes": sizes}, good)

    made = [case(n, (1, 2), (2, 3)) for n in ALL]
    return [
        *made,
        case("f32", (-3, 9), (2, 3), kind=np.int32),
        case("f32", (0, 0), (4, 5), kind=np.uint8),
        case("f32", (1, 1), (0, 2)),
        case("f32", (1, 1), (5, 1), good=False),
        case("f32", (1,), (2, 3), good=False),
        case("f32", (0.5, 1), (2, 3), good=False, kind=np.float32),
    ]


def _slice_gradient(ct: Value, result: Value, x: Value, *starts: Value, sizes: Shape) -> list[Any]:
    placed = emit("dynamic_update_slice", functions.zeros_like(x), ct, *starts)
    return [placed, *(None for _ in starts)]


def _batch_slice(op: Op, lanes: Lanes, x: Value, *starts: Value, sizes: Shape) -> Any:
    """Blocks at places of their own are gathered."""
    if not any(lanes.mapped[1:]):
        return emit(op, x, np.int64(0), *starts, sizes=(lanes.size, *sizes))
    f, rank = functions, len(sizes) + 1
    own, dims = lanes.mapped[0], x.shape[1:] if lanes.mapped[0] else x.shape
    places = [f.arange(lanes.size)] if own else []
    for start, mapped, extent, size in zip(starts, lanes.mapped[1:], dims, sizes):
        first = f.astype(f.clip(start, 0, extent - size), I64)
        places.append(reshaped(first, (lanes.size, 1)) if mapped else first)
        places[-1] = f.add(places[-1], f.arange(size))
    axes = range(rank - len(places), rank)
    indices = [
        f.broadcast_to(_on_axis(place, axis, rank), (lanes.size, *sizes))
        for place, axis in zip(places, axes)
    ]
    return emit("gather", x, *indices, axes=tuple(range(x.ndim)), position=0, mode="clip")


def _on_axis(place: Value, axis: int, rank: int) -> Value:
    """Places along one axis (and for each lane, if there are two axes) of an array of a rank."""
    dims: list[Dimension] = [1] * rank
    *lead, dims[axis] = place.shape
    return reshaped(place, (*lead, *dims[len(lead) :]))


dynamic_slice_op = define(
    "dynamic_slice",
    batch=_batch_slice,
    gradient=_slice_gradient,
    infer=_infer_slice,
    reference=_slice_reference,
    lower=Compute(_slice),
    attrs=(Attr("sizes", "dims", within=EXTENT),),
    variadic=True,
    samples=_slice_samples,
    doc="A block of fixed size at a computed position, moved inside x where it sticks out.",
)


# ------------------------------------------------------------------------------------ writing


def _infer_update(x: AnyType, updates: AnyType, *starts: AnyType) -> Type:
    x, updates = (tensor_type("dynamic_update_slice", t) for t in (x, updates))
    require(
        x.dtype is updates.dtype,
        f"dynamic_update_slice of {x} takes updates of its dtype, not {updates}",
    )
    _check_starts("dynamic_update_slice", x, starts, updates.shape)
    return x


def _update(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    dims, sizes = node.type.dims, node.inputs[1].type.dims
    if 0 in sizes:
        return read(0, index)
    legal, source = None, []
    for start, place, extent, size in zip(_starts(read, 2, dims, sizes), index, dims, sizes):
        offset = place - start if size != extent else place
        if size != extent:
            legal = both(legal, offset >= 0)
            legal = both(legal, offset < size)
        source.append(offset)
    if legal is None:
        return read(1, tuple(source))
    cases = [(legal, lambda: read(1, tuple(source)))]
    return guarded(b, node.type.dtype, read(0, index), cases)


def _updated(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> tuple[Any, ...]:
    starts = _starts(read, 2, node.type.dims, node.inputs[1].type.dims)
    return tuple(map(b.add, starts, index))


def _update_reference(x: Array, updates: Array, *starts: Array) -> Any:
    made = np.array(x)
    legal = _legal_starts(x, starts, updates.shape)
    made[tuple(slice(s, s + n) for s, n in zip(legal, updates.shape))] = updates
    return made


def _update_samples() -> list[Sample]:
    def case(name: str, shape: Any, starts: Any, good: bool = True) -> Sample:
        x, updates = (sample_array(name, s, (-4, 4), k) for k, s in enumerate(((4, 5), shape)))
        return Sample((x, updates, *(np.asarray(s) for s in starts)), {}, good)

    made = [case(n, (2, 3), (1, 2)) for n in ALL]
    return [
        *made,
        case("f32", (2, 3), (-3, 9)),
        case("f32", (4, 5), (1, 1)),
        case("f32", (0, 2), (1, 1)),
        case("f32", (5, 1), (1, 1), good=False),
        case("f32", (1,), (1,), good=False),
    ]


def _update_gradient(
    ct: Value, result: Value, x: Value, updates: Value, *starts: Value
) -> list[Any]:
    kept = emit("dynamic_update_slice", ct, functions.zeros_like(updates), *starts)
    block = emit("dynamic_slice", ct, *starts, sizes=updates.shape)
    return [kept, block, *(None for _ in starts)]


def _batch_update(op: Op, lanes: Lanes, x: Value, updates: Value, *starts: Value) -> Any:
    if any(lanes.mapped[2:]):
        return NotImplemented
    whole = lanes._replace(mapped=lanes.mapped[:2]).spread((x, updates))
    return emit(op, *whole, np.int64(0), *starts)


dynamic_update_slice_op = define(
    "dynamic_update_slice",
    batch=_batch_update,
    gradient=_update_gradient,
    infer=_infer_update,
    reference=_update_reference,
    lower=Compute(_update, cheap=False, position=_updated),
    variadic=True,
    samples=_update_samples,
    doc="A copy of x with a block at a computed position replaced; the block is moved inside x "
    "where it sticks out.",
)


# ------------------------------------------------------------------------------------ functions


def _scalars(starts: Any, rank: int) -> list[Any]:
    """One integer scalar per axis from a vector or a sequence."""
    parts = list(starts) if isinstance(starts, tuple | list) else list(unstack(starts))
    require(len(parts) == rank, f"{len(parts)} starts for an array of rank {rank}")
    return [p if isinstance(p, Value) else np.asarray(p, np.int64) for p in parts]


@public(name="dynamic_slice")
def dynamic_slice(x: ArrayLike, starts: Any, sizes: Any) -> Any:
    """x[s0:s0+n0, ...] with traced starts (a vector or a sequence of scalars) and fixed sizes.

    A block that sticks out is moved inside x.
    """
    return emit("dynamic_slice", x, *_scalars(starts, rank_of(x)), sizes=tuple(sizes))


@public(name="dynamic_update_slice")
def dynamic_update_slice(x: ArrayLike, updates: ArrayLike, starts: Any) -> Any:
    """x with the block at traced starts replaced; a block that sticks out is moved inside x."""
    updates = stored("dynamic_update_slice", updates, x)
    require(
        rank_of(updates) == rank_of(x),
        f"dynamic_update_slice: updates of shape {list(shape_of(updates))} for {list(shape_of(x))}",
    )
    return emit("dynamic_update_slice", x, updates, *_scalars(starts, rank_of(x)))
