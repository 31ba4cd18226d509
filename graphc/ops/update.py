"""Writes in functional form: x[index] = v as a changed copy of x.

slices and ints           slice_update: one index map, fused with what follows
integer arrays            scatter: x[index] as rows of a reshaped x, the row numbers being what
                          the same index reads from 0, 1, 2, ...
a traced boolean mask     where
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import TraceError, TypeRuleError
from graphc.ir.op import EXTENT, OFFSET, Attr, Compute
from graphc.ir.types import BOOL, I64, AnyType, Type, definitely_different
from graphc.ops.dims import (
    both,
    guarded,
    inside,
    rank_of,
    samples_of,
    shape_of,
    size_of,
    tensor_type,
)
from graphc.ops.indexing import Selection, parse_index, select
from graphc.ops.registry import define, normalise_axis, require
from graphc.ops.scatter import UPDATES, scatter_rows
from graphc.ops.shape import broadcast_to, reshape
from graphc.ops.slicing import emit_slice, slice_extent
from graphc.ops.value import (
    Value,
    as_value,
    common_element,
    emit,
    functions,
    is_python_number,
    public,
)

# ------------------------------------------------------------------------------------ slice_update

Ints = tuple[int, ...]


def _infer_slice_update(x: AnyType, updates: AnyType, *, starts: Ints, steps: Ints) -> Type:
    x, updates = tensor_type("slice_update", x), tensor_type("slice_update", updates)
    require(
        x.dtype is updates.dtype and x.rank == updates.rank == len(starts) == len(steps),
        f"slice_update of {x} by {updates} at {list(starts)}",
    )
    require(0 not in steps, "slice_update: a step is 0")
    for have, count, start, step in zip(x.shape, updates.shape, starts, steps):
        last = (count - 1) * step + start
        legal = isinstance(last, int) and isinstance(have, int)
        legal = not legal or count == 0 or (0 <= start < have and 0 <= last < have)  # type: ignore[operator]
        require(legal, f"slice_update: {count} elements from {start} by {step} leave 0..{have}")
    return x


def _slice_update(b: Any, node: Any, read: Any, index: tuple[Any, ...]) -> Any:
    dims, counts = node.type.dims, node.inputs[1].type.dims
    if 0 in counts:
        return read(0, index)
    legal, source = None, []
    for k, (extent, count) in enumerate(zip(dims, counts)):
        start, step = node.attrs["starts"][k], node.attrs["steps"][k]
        last = start + (count - 1) * step
        begin, end = min(start, last), max(start, last) + 1
        legal = both(b, legal, inside(b, index[k], begin, end, extent))
        offset = b.sub(index[k], b.integer(start))
        if abs(step) != 1 and count > 1:
            rest = b.op("irem", offset, b.integer(step))
            legal = both(b, legal, b.compare("eq", rest, b.integer(0)))
        source.append(b.op("idiv", offset, b.integer(step)))
    if legal is None:
        return read(1, tuple(source))
    cases = [(legal, lambda: read(1, tuple(source)))]
    return guarded(b, node.type.dtype, read(0, index), cases)


def _slice_updated(b: Any, node: Any, read: Any, index: tuple[Any, ...]) -> tuple[Any, ...]:
    steps = zip(index, node.attrs["starts"], node.attrs["steps"])
    return tuple(b.add(b.mul(i, b.integer(step)), b.integer(start)) for i, start, step in steps)


def _slice_update_reference(x: Any, updates: Any, starts: Ints, steps: Ints) -> Any:
    made = np.array(x)
    places = [a + d * np.arange(n) for a, d, n in zip(starts, steps, updates.shape)]
    made[np.ix_(*places)] = updates
    return made


def _slice_update_gradient(
    ct: Any, result: Any, x: Any, updates: Any, *, starts: Ints, steps: Ints
) -> list[Any]:
    kept = emit("slice_update", ct, functions.zeros_like(updates), starts=starts, steps=steps)
    lasts = (a + (n - 1) * step for a, n, step in zip(starts, updates.shape, steps))
    stops = [last + (1 if step > 0 else -1) for last, step in zip(lasts, steps)]
    return [kept, emit_slice(ct, starts, stops, steps)]


slice_update_op = define(
    "slice_update",
    gradient=_slice_update_gradient,
    infer=_infer_slice_update,
    reference=_slice_update_reference,
    lower=Compute(_slice_update, cheap=False, position=_slice_updated),
    attrs=(Attr("starts", "ints", within=EXTENT), Attr("steps", "ints", within=OFFSET)),
    samples=samples_of(
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
    ),
    doc="x with the elements of a strided slice replaced.",
)


# ------------------------------------------------------------------------------------ x[index] = v


def _combined(old: Any, new: Any, mode: str) -> Any:
    """What an update makes of the old elements where no position repeats."""
    if mode == "set":
        return new
    name = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}[mode]
    return getattr(functions, name)(old, new)


def _write_slice(x: Any, chosen: Selection, value: Any, mode: str) -> Any:
    dims = tuple(map(slice_extent, chosen.starts, chosen.stops, chosen.steps))
    updates = reshape(broadcast_to(value, tuple(chosen.extents)), dims)
    if mode != "set":
        old = emit_slice(x, chosen.starts, chosen.stops, chosen.steps)
        updates = functions.astype(_combined(old, updates, mode), common_element(x)[0])
    if dims == shape_of(x) and all(step == 1 for step in chosen.steps):
        return updates
    for start in chosen.starts:
        require(isinstance(start, int), f"a write at the symbolic position {start}")
    return emit("slice_update", x, updates, starts=chosen.starts, steps=chosen.steps)


def _write_rows(x: Any, chosen: Selection, value: Any, mode: str) -> Any:
    """Integer arrays: the same index read from row numbers gives the rows to write."""
    dims = shape_of(x)
    split = len(dims) - chosen.whole_tail(dims)
    lead, rest = dims[:split], dims[split:]
    total = size_of(lead)
    known = isinstance(total, int) and not any(isinstance(a, Value) for _, a in chosen.arrays)
    numbers = np.arange(total) if known else functions.arange(total)  # type: ignore[arg-type]
    rows = select(reshape(numbers, lead), chosen.leading(split), "raise")
    updates = broadcast_to(value, (*shape_of(rows), *rest))
    made = scatter_rows(reshape(x, (total, *rest)), rows, updates, mode)
    return reshape(made, dims)


def _whole_mask(index: tuple[Any, ...]) -> Any:
    """The traced boolean mask that is the whole index, if it is one."""
    masks = [p for p in index if isinstance(p, Value) and p.element is BOOL]
    others = [p for p in index if not (isinstance(p, slice) and p == slice(None))]
    others = [p for p in others if p is not Ellipsis]
    return masks[0] if len(masks) == 1 and len(others) == 1 and index[0] is masks[0] else None


def _write_mask(x: Any, mask: Any, value: Any, mode: str) -> Any:
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


def _without_leading_units(value: Any, rank: int) -> Any:
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
    if is_python_number(value):
        value = np.asarray(value).astype(element.numpy)
    value = functions.astype(as_value(value), element)
    index = index if isinstance(index, tuple) else (index,)
    mask = _whole_mask(index)
    if mask is not None:
        return _write_mask(x, mask, value, mode)
    chosen = parse_index(index, shape_of(x))
    value = _without_leading_units(value, chosen.rank)
    if chosen.arrays:
        return _write_rows(x, chosen, value, mode)
    return _write_slice(x, chosen, value, mode)


@public(method=True, name="setitem")
def setitem(x: Any, index: Any, value: Any) -> Any:
    """What x is after x[index] = value."""
    return index_update(x, index, value)


@public(np.put_along_axis)
def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> Any:
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
    places = reshape(functions.take_along_axis(numbers, indices, axis), -1)
    updates = reshape(broadcast_to(values, shape_of(indices)), -1)
    made = reshape(scatter_rows(reshape(x, -1), places, updates), dims)
    if hasattr(original, "assign"):
        original.assign(made)
    return made
