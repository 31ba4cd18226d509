"""Writes in functional form: x[index] = v as a changed copy of x.

slices and ints           slice_update, also at traced ints: one index map
integer arrays            scatter: x[index] as rows of a reshaped x, the row numbers being what
                          the same index reads from 0, 1, 2, ...
a traced boolean mask     where
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import TraceError, TypeRuleError
from graphc.ir.op import AXIS, EXTENT, OFFSET, Attr, Compute, Op, Sample
from graphc.ir.sizes import alike
from graphc.ir.traits import Traits
from graphc.ir.types import BOOL, I64, AnyType, Dimension, Type, definitely_different
from graphc.loops.nest import Scalars
from graphc.ops.index.gather import bounded, bounded_array
from graphc.ops.index.indexing import Selection, expand_index, parse_index, select
from graphc.ops.index.scatter import UPDATES, require_index_types, scatter_rows
from graphc.ops.index.traced_slices import first_traced, is_traced, is_whole, taken
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Read
from graphc.ops.record.batching import Lanes
from graphc.ops.record.dims import (
    both,
    guarded,
    inside,
    rank_of,
    samples_of,
    shape_of,
    size_of,
    tensor_type,
)
from graphc.ops.record.families import (
    ALL,
    define,
    normalise_axis,
    require,
    require_storable,
    sample_array,
)
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    emit,
    functions,
    is_python_number,
    public,
)
from graphc.ops.shape.shape import broadcast_to, reshape
from graphc.ops.shape.slicing import emit_slice, outside, slice_extent

# ------------------------------------------------------------------------------------ slice_update

Ints = tuple[int, ...]


def _infer_slice_update(
    x: AnyType, updates: AnyType, *positions: AnyType, starts: Ints, steps: Ints, axes: Ints
) -> Type:
    x, updates = tensor_type("slice_update", x), tensor_type("slice_update", updates)
    require(
        x.dtype is updates.dtype and x.rank == updates.rank == len(starts) == len(steps),
        f"slice_update of {x} by {updates} at {list(starts)}",
    )
    require(0 not in steps, "slice_update: a step is 0")
    _check_positions(x, updates, positions, starts, axes)
    for axis, (have, count) in enumerate(zip(x.shape, updates.shape)):
        start, step = starts[axis], steps[axis]
        if axis in axes:
            continue
        unit = 1 if step > 0 else -1
        legal = not outside(start, start + (count - 1) * step + unit, unit, have)
        require(legal, f"slice_update: {count} elements from {start} by {step} leave 0..{have}")
    return x


def _check_positions(
    x: Type, updates: Type, positions: Sequence[AnyType], starts: Ints, axes: Ints
) -> None:
    """One integer scalar for each axis with a computed position, where one element is written."""
    kinds = require_index_types("slice_update", *positions)
    require(
        len(kinds) == len(axes) and all(kind.rank == 0 for kind in kinds),
        f"slice_update: {len(kinds)} positions for the axes {list(axes)}",
    )
    require(
        list(axes) == sorted({a for a in axes if 0 <= a < x.rank}),
        f"slice_update: {list(axes)} are not increasing axes of {x}",
    )
    for axis in axes:
        single = updates.shape[axis] == 1 and starts[axis] == 0
        require(single, f"slice_update: axis {axis} of {updates} has a computed position")
        require(x.shape[axis] != 0, f"slice_update: no position is legal on axis {axis} of {x}")


def _begins(b: Scalars, node: Applied, read: Read) -> list[Any]:
    """Where the slice begins on each axis; computed positions wrap, and fail out of range."""
    begins = [b.integer(start) for start in node.attrs["starts"]]
    if 0 in node.inputs[1].type.dims:
        return begins  # nothing is written, and no position read
    for k, axis in enumerate(node.attrs["axes"]):
        begins[axis] = bounded(b, read(2 + k, ()), node.type.dims[axis], "raise")
    return begins


def _slice_update(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    dims, counts = node.type.dims, node.inputs[1].type.dims
    if 0 in counts:
        return read(0, index)
    begins = _begins(b, node, read)
    legal, source = None, []
    for k, (extent, count) in enumerate(zip(dims, counts)):
        start, step = node.attrs["starts"][k], node.attrs["steps"][k]
        if k in node.attrs["axes"]:
            if extent != 1:
                legal = both(legal, index[k] == begins[k])
            source.append(b.integer(0))
            continue
        last = start + (count - 1) * step
        begin, end = (start, last + 1) if step > 0 else (last, start + 1)  # also of no elements
        legal = both(legal, inside(index[k], begin, end, extent))
        offset = index[k] - begins[k]
        if abs(step) != 1 and count > 1:
            rest = offset % step
            legal = both(legal, rest == 0)
        source.append(offset // step)
    if legal is None:
        return read(1, tuple(source))
    cases = [(legal, lambda: read(1, tuple(source)))]
    return guarded(b, node.type.dtype, read(0, index), cases)


def _slice_updated(
    b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]
) -> tuple[Any, ...]:
    terms = zip(index, _begins(b, node, read), node.attrs["steps"])
    return tuple(i * step + begin for i, begin, step in terms)


def _slice_update_reference(
    x: Array, updates: Array, *positions: Array, starts: Ints, steps: Ints, axes: Ints
) -> Any:
    made, begins = np.array(x), list(starts)
    if not updates.size:
        return made
    for axis, position in zip(axes, positions):
        begins[axis] = int(bounded_array(position, x.shape[axis], "raise", axis))
    places = [a + d * np.arange(n) for a, d, n in zip(begins, steps, updates.shape)]
    made[np.ix_(*places)] = updates
    return made


def _slice_update_gradient(
    ct: Value,
    result: Value,
    x: Value,
    updates: Value,
    *positions: Value,
    starts: Ints,
    steps: Ints,
    axes: Ints,
) -> list[Any]:
    attrs = {"starts": starts, "steps": steps, "axes": axes}
    kept = emit("slice_update", ct, functions.zeros_like(updates), *positions, **attrs)
    lasts = (a + (n - 1) * step for a, n, step in zip(starts, updates.shape, steps))
    stops = [last + (1 if step > 0 else -1) for last, step in zip(lasts, steps)]
    for axis in axes:
        stops[axis] = ct.shape[axis]
    strides = [1 if axis in axes else step for axis, step in enumerate(steps)]
    read = emit_slice(ct, starts, stops, strides)
    if axes:
        indices = [broadcast_to(place, (1,)) for place in positions]
        first = 0 if list(axes) != list(range(axes[0], axes[0] + len(axes))) else axes[0]
        read = emit("gather", read, *indices, axes=axes, position=first, mode="raise")
    return [kept, reshape(read, updates.shape), *(None for _ in positions)]


def _batch_slice_update(
    op: Op,
    lanes: Lanes,
    x: Value,
    updates: Value,
    *positions: Value,
    starts: Ints,
    steps: Ints,
    axes: Ints,
) -> Any:
    """Where every lane has its own position, the update is made at all and kept at one."""
    f = functions
    x, updates = lanes._replace(mapped=lanes.mapped[:2]).spread((x, updates))
    attrs = {"starts": (0, *starts), "steps": (1, *steps)}
    if not any(lanes.mapped[2:]):
        return emit(op, x, updates, *positions, axes=tuple(a + 1 for a in axes), **attrs)
    if 0 in updates.shape:
        return x
    dims = [n if k - 1 in axes else updates.shape[k] for k, n in enumerate(x.shape)]
    attrs["steps"] = (1, *(1 if k in axes else step for k, step in enumerate(steps)))
    made, hit = emit(op, x, broadcast_to(updates, dims), axes=(), **attrs), None
    for axis, place, mapped in zip(axes, positions, lanes.mapped[2:]):
        extent = x.shape[axis + 1]
        place = f.astype(place, I64)
        place = emit("in_range", f.where(place < 0, place + extent, place), extent=extent)
        column: list[Dimension] = [1] * x.ndim
        column[axis + 1] = extent
        lane = (lanes.size if mapped else 1, *(1,) * (x.ndim - 1))
        one = f.equal(reshape(f.arange(extent), tuple(column)), reshape(place, lane))
        hit = one if hit is None else f.logical_and(hit, one)
    return f.where(hit, made, x)


_FIXED = samples_of(
    [
        ([(5, 6), (2, 3)], {"starts": (1, 5), "steps": (2, -2)}),
        ([(5,), (5,)], {"starts": (4,), "steps": (-1,)}),
        ([(3, 4), (3, 1)], {"starts": (0, 2), "steps": (1, 1)}),
        ([(3,), (0,)], {"starts": (0,), "steps": (1,)}),
        ([(), ()], {"starts": (), "steps": ()}),
    ],
    [
        ([(5,), (3,)], {"starts": (3,), "steps": (1,)}),
        ([(5,), (3,)], {"starts": (1,), "steps": (-1,)}),
        ([(5,), (3,)], {"starts": (0,), "steps": (0,)}),
        ([(5, 1), (3,)], {"starts": (0,), "steps": (1,)}),
    ],
)


def _slice_update_samples() -> list[Sample]:
    def case(
        shape: Any, axes: Ints, *positions: ArrayLike, good: bool = True, name: str = "f32"
    ) -> Sample:
        x, updates = (sample_array(name, s, (-4, 4), k) for k, s in enumerate(((4, 5), shape)))
        attrs = {"starts": (0, 0), "steps": (1, 2), "axes": axes}
        return Sample((x, updates, *(np.asarray(p) for p in positions)), attrs, good)

    made = [case((1, 3), (0,), -2, name=name) for name in ALL]
    return [
        *_FIXED(),
        *made,
        case((1, 1), (0, 1), np.uint8(3), np.int16(-5)),
        case((4, 1), (1,), np.int64(4)),
        case((1, 0), (0,), np.int64(1)),
        case((1, 3), (0,), good=False),
        case((2, 3), (0,), 1, good=False),
        case((1, 3), (2,), 1, good=False),
        case((1, 3), (0,), 0.5, good=False),
    ]


slice_update_op = define(
    "slice_update",
    batch=_batch_slice_update,
    gradient=_slice_update_gradient,
    infer=_infer_slice_update,
    reference=_slice_update_reference,
    lower=Compute(_slice_update, cheap=False, position=_slice_updated),
    attrs=(
        Attr("starts", "dims", within=EXTENT),
        Attr("steps", "ints", within=OFFSET),
        Attr("axes", "ints", (), within=AXIS),
    ),
    variadic=True,
    samples=_slice_update_samples,
    doc="x with the elements of a strided slice replaced. On `axes` one element is written, at a "
    "computed position: negative ones count from the end, those out of range are an error.",
    traits=Traits(writes_slice=True, checks=True),
)


# ------------------------------------------------------------------------------------ x[index] = v


def _combined(old: Any, new: Any, mode: str) -> Any:
    """What an update makes of the old elements where no position repeats."""
    if mode == "set":
        return new
    name = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}[mode]
    return getattr(functions, name)(old, new)


def _write_slice(x: Value, chosen: Selection, value: Value, mode: str) -> Any:
    """Slices and single positions, known or traced: one strided box."""
    dims = list(map(slice_extent, chosen.starts, chosen.stops, chosen.steps))
    places = chosen.places
    for axis in places:
        dims[axis] = 1
    if mode != "set":  # no position repeats
        value = functions.astype(_combined(select(x, chosen, "raise"), value, mode), x.element)
    updates = reshape(broadcast_to(value, chosen.shape), tuple(dims))
    if alike(dims, shape_of(x)) and not places and all(step == 1 for step in chosen.steps):
        return updates
    attrs = {"starts": chosen.starts, "steps": chosen.steps, "axes": tuple(places)}
    return emit("slice_update", x, updates, *places.values(), **attrs)


def _write_rows(x: Value, chosen: Selection, value: ArrayLike, mode: str) -> Any:
    """Integer arrays: the same index read from row numbers gives the rows to write."""
    dims = shape_of(x)
    split = len(dims) - chosen.whole_tail(dims)
    lead, rest = dims[:split], dims[split:]
    total = size_of(lead)
    known = isinstance(total, int) and not any(isinstance(a, Value) for _, a in chosen.arrays)
    if not known and _is_row_list(chosen.leading(split), lead):
        ((_, rows),) = chosen.arrays
    else:
        numbers = np.arange(total) if known else functions.arange(total)  # type: ignore[arg-type]
        rows = select(reshape(numbers, lead), chosen.leading(split), "raise")
    updates = broadcast_to(value, (*shape_of(rows), *rest))
    made = scatter_rows(reshape(x, (total, *rest)), rows, updates, mode)
    return reshape(made, dims)


def _is_row_list(chosen: Selection, lead: tuple[Dimension, ...]) -> bool:
    """Is the index one array of numbers of the first axis, as they are?"""
    whole = (chosen.starts, chosen.stops, chosen.steps) == ([0], list(lead), [1])
    return whole and chosen.layout == ["keep"] and len(chosen.arrays) == 1


def _whole_mask(index: tuple[Any, ...]) -> Any:
    """The traced boolean mask that is the whole index, if it is one."""
    masks = [p for p in index if isinstance(p, Value) and p.element is BOOL]
    others = [p for p in index if not is_whole(p)]
    others = [p for p in others if p is not Ellipsis]
    return masks[0] if len(masks) == 1 and len(others) == 1 and index[0] is masks[0] else None


def _write_mask(x: Value, mask: Value, value: Value, mode: str) -> Any:
    rank, dims = rank_of(mask), shape_of(x)
    if rank > len(dims) or any(map(definitely_different, shape_of(mask), dims)):
        raise TraceError(f"a mask of shape {list(shape_of(mask))} on an array of {list(dims)}")
    inner = len(dims) - rank  # axes of x that the mask does not have
    given = shape_of(value)
    kept = min(len(given), inner)
    if any(extent != 1 for extent in given[: len(given) - kept]):
        raise TraceError(
            "a write at a traced mask takes one value (or one row) for all places",
            hint="use np.where(mask, values, x) with values in the shape of x",
        )
    value = reshape(value, given[len(given) - kept :])
    wide = reshape(mask, (*shape_of(mask), *(1,) * inner))
    made = functions.where(wide, _combined(x, value, mode), x)
    return functions.astype(broadcast_to(made, dims), common_element(x)[0])


def _without_leading_units(value: Value, rank: int) -> Any:
    """NumPy lets a value have more axes than the place it is written to, if they have extent 1."""
    extra = rank_of(value) - rank
    if extra <= 0 or any(d != 1 for d in shape_of(value)[:extra]):
        return value
    return reshape(value, shape_of(value)[extra:])


@public(name="index_update")
def index_update(x: Any, index: Any, value: Any, mode: str = "set") -> Any:
    """A copy of x in which x[index] is set, added to ("add"), multiplied ("mul") or bounded by
    ("min", "max") a value that broadcasts to it. Of equal positions the last one wins, sums add up.
    """
    require(mode in UPDATES, f"index_update: mode must be one of {', '.join(UPDATES)}")
    x = as_value(x)
    element = common_element(x)[0]
    require_storable("x[...] = y", value, x)
    if is_python_number(value):
        value = np.asarray(value).astype(element.numpy)
    value = functions.astype(as_value(value), element)
    index = index if isinstance(index, tuple) else (index,)
    mask = _whole_mask(index)
    if mask is not None:
        return _write_mask(x, mask, value, mode)
    if any(map(is_traced, index)):
        return _write_traced(x, expand_index(index, rank_of(x)), value, mode)
    chosen = parse_index(index, shape_of(x))
    value = _without_leading_units(value, chosen.rank)
    if any(rank_of(array) for _, array in chosen.arrays):
        return _write_rows(x, chosen, value, mode)
    return _write_slice(x, chosen, value, mode)


def _write_traced(x: Any, parts: list[Any], value: Any, mode: str) -> Any:
    """Write to the elements of the first slice with traced bounds, and put those back."""
    place, axis = first_traced(parts)
    found, places = taken(x, parts[place], axis)
    made = index_update(found, (*parts[:place], slice(None), *parts[place + 1 :]), value, mode)
    return index_update(x, (*(slice(None),) * axis, places), made)


@public(method=True, name="setitem")
def setitem(x: ArrayLike, index: Any, value: ArrayLike) -> Any:
    """What x is after x[index] = value."""
    return index_update(x, index, value)


@public(np.put_along_axis)
def put_along_axis(x: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None) -> Any:
    """x with the elements at an array of positions along one axis replaced.

    As NumPy's it changes a traced array in place; the new array is also returned.
    """
    original, dims = x, shape_of(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = normalise_axis(axis, rank_of(x), "put_along_axis")
    total = size_of(dims)
    if not isinstance(total, int):
        raise TypeRuleError("put_along_axis needs a known shape")
    numbers = reshape(functions.arange(total, dtype=I64), shape_of(x))
    places = functions.take_along_axis(numbers, indices, axis)
    updates = reshape(broadcast_to(values, shape_of(places)), -1)
    made = reshape(scatter_rows(reshape(x, -1), reshape(places, -1), updates), dims)
    if hasattr(original, "assign"):
        original.assign(made)
    return made
