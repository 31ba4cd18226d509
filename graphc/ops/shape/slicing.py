"""Slices with steps, and concat: the two ops that cut and join arrays along axes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import AXIS, OFFSET, Attr, Compute, Op
from graphc.ir.sizes import Size, alike, at_most
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Dimension, Type, definitely_different, tensor
from graphc.loops.nest import Scalars
from graphc.ops.record.arguments import Applied, Array, ArrayLike, DTypeLike, Read
from graphc.ops.record.batching import Lanes, along
from graphc.ops.record.dims import Shape, guarded, rank_of, samples_of, shape_of, tensor_type
from graphc.ops.record.families import as_dtype, define, normalise_axis, require, require_castable
from graphc.ops.record.value import Value, element_of, emit, emit_promoted, functions, public
from graphc.ops.shape.shape import reshape

# ------------------------------------------------------------------------------------ slice


def slice_extent(start: Dimension, stop: Dimension, step: int) -> Dimension:
    """Elements from start until before stop. Raises TypeRuleError when a symbol decides it."""
    span = stop - start if step > 0 else start - stop
    step = abs(step)
    if isinstance(span, Size):
        return 0 if span < 0 else -(-span // step)
    if isinstance(span, int):
        return max(0, -(-span // step))
    exact = span if step == 1 else span.divide(step)
    if exact is None:
        raise TypeRuleError(f"the length of a slice of {span} elements with step {step} is unknown")
    return exact


def outside(start: Any, stop: Any, step: int, extent: Any) -> bool:
    """Whether a non-empty slice surely reads outside 0..extent-1."""
    if any(isinstance(v, Size) for v in (start, stop, extent)):
        inside = start >= 0 and stop <= extent if step > 0 else start < extent and stop >= -1
        return not inside
    count = slice_extent(start, stop, step)
    if count == 0:
        return False
    last = start + (count - 1) * step
    low, high = (start, last) if step > 0 else (last, start)
    room = extent - high
    return (isinstance(low, int) and low < 0) or (isinstance(room, int) and room <= 0)


def _infer_slice(x: AnyType, *, starts: Shape, stops: Shape, steps: tuple[int, ...]) -> Type:
    x = tensor_type("slice", x)
    require(
        len(starts) == len(stops) == len(steps) == x.rank,
        f"slice of {x} needs {x.rank} starts, stops and steps",
    )
    require(0 not in steps, "slice: a step is 0")
    for start, stop, step, extent in zip(starts, stops, steps, x.shape):
        require(
            not outside(start, stop, step, extent),
            f"slice {start}:{stop}:{step} reads outside 0..{extent}",
        )
    return tensor(x.dtype, map(slice_extent, starts, stops, steps))


def _slice(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    return read(0, tuple(b.affine([(i, d)], s) for i, s, d in zip(index, starts, steps)))


def _slice_reference(x: Array, starts: Array, stops: Array, steps: Array) -> Any:
    def one(start: int, stop: int, step: int) -> slice:
        if not slice_extent(start, stop, step):
            return slice(0, 0)
        return slice(start, None if stop < 0 else stop, step)

    return x[tuple(map(one, starts, stops, steps))]


def _slice_gradient(
    ct: Value, result: Value, x: Value, *, starts: Value, stops: Value, steps: Value
) -> list[Any]:
    return [emit("slice_update", functions.zeros_like(x), ct, starts=starts, steps=steps)]


def _batch_slice(
    op: Op, lanes: Lanes, x: Value, *, starts: Shape, stops: Shape, steps: tuple[int, ...]
) -> Any:
    return emit(op, x, starts=(0, *starts), stops=(lanes.size, *stops), steps=(1, *steps))


slice_op = define(
    "slice",
    batch=_batch_slice,
    gradient=_slice_gradient,
    infer=_infer_slice,
    reference=_slice_reference,
    lower=Compute(_slice),
    attrs=(
        Attr("starts", "dims", within=OFFSET),
        Attr("stops", "dims", within=OFFSET),
        Attr("steps", "ints", within=OFFSET),
    ),
    samples=samples_of(
        [
            ([(6, 5)], {"starts": (1, 4), "stops": (6, -1), "steps": (2, -1)}),
            ([(8,)], {"starts": (2,), "stops": (2,), "steps": (1,)}),
            ([(3, 9)], {"starts": (0, 1), "stops": (3, 9), "steps": (1, 1)}),
        ],
        [
            ([(6,)], {"starts": (3,), "stops": (8,), "steps": (1,)}),
            ([(6,)], {"starts": (0,), "stops": (6,), "steps": (0,)}),
            ([(6, 2)], {"starts": (0,), "stops": (6,), "steps": (1,)}),
        ],
    ),
    doc="Every steps[k]-th element from starts[k] until before stops[k]; bounds count from 0 and "
    "do not wrap, so a backward slice that ends with element 0 has the stop -1.",
    traits=Traits(slices=True),
)


def slice_axis(x: ArrayLike, axis: int, start: Dimension, stop: Dimension, step: int = 1) -> Any:
    """A slice along one axis, bounds as in the op."""
    dims = shape_of(x)
    starts: list[Dimension] = [0] * len(dims)
    stops, steps = list(dims), [1] * len(dims)
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return emit_slice(x, starts, stops, steps)


def emit_slice(x: ArrayLike, starts: Any, stops: Any, steps: Any) -> Any:
    """The slice, or x itself when the slice is all of it."""
    whole = alike(starts, [0] * len(starts)) and alike(steps, [1] * len(steps))
    if whole and isinstance(x, Value) and alike(stops, x.shape):
        return x
    return emit("slice", x, starts=starts, stops=stops, steps=steps)


# ------------------------------------------------------------------------------------ concat


def _infer_concat(*types: AnyType, axis: int) -> Type:
    require(bool(types), "concat needs at least one array")
    first = tensor_type("concat", types[0])
    normalise_axis(axis, first.rank, "concat")
    dims = list(first.shape)
    for kind in types[1:]:
        other = tensor_type("concat", kind)
        agree = other.dtype is first.dtype and other.rank == first.rank
        for k, extent in enumerate(other.shape if agree else ()):
            agree &= k == axis or not definitely_different(extent, dims[k])
        require(agree, f"concat along axis {axis}: {first} and {other} do not match")
        dims[axis] = dims[axis] + other.shape[axis]
    return tensor(first.dtype, dims)


def _concat(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    axis = node.attrs["axis"]
    cases, begin = [], 0
    for k, source in enumerate(node.inputs):
        end = begin + source.type.dims[axis]
        place = (*index[:axis], index[axis] - begin, *index[axis + 1 :])
        # Both bounds of every piece but the first, although one is implied: from plain opposites
        # LLVM makes one load of a chosen address, which is a gather when it vectorises.
        condition = index[axis] < end
        if begin:
            condition = condition & (index[axis] >= begin)
        if end - begin == node.type.dims[axis]:  # this piece is the whole result
            return read(k, place)
        if not at_most(end, begin):  # nothing of it, whatever the sizes
            cases.append((condition, partial(read, k, place)))
        begin = end
    return guarded(b, node.type.dtype, None, cases) if cases else read(0, index)


def _concat_pieces(node: Applied) -> list[tuple[int, tuple[int, ...]]]:
    axis, begin = node.attrs["axis"], 0
    made = []
    for k, source in enumerate(node.inputs):
        offset = [0] * source.type.rank
        offset[axis] = begin
        begin += source.type.dims[axis]
        if source.type.size:
            made.append((k, tuple(offset)))
    return made


def _concat_gradient(ct: Value, result: Value, *parts: Any, axis: int) -> list[Any]:
    made, begin = [], 0
    for part in parts:
        end = begin + part.shape[axis]
        made.append(slice_axis(ct, axis, begin, end))
        begin = end
    return made


concat_op = define(
    "concat",
    batch=along("axis"),
    gradient=_concat_gradient,
    infer=_infer_concat,
    reference=lambda *arrays, axis: np.concatenate(arrays, axis),
    lower=Compute(_concat, _concat_pieces),
    attrs=(Attr("axis", "int", within=AXIS),),
    variadic=True,
    samples=samples_of(
        [
            ([(2, 3), (2, 1), (2, 4)], {"axis": 1}),
            ([(3,)], {"axis": 0}),
            ([(0, 2), (3, 2), (0, 2)], {"axis": 0}),
        ],
        [
            ([(2, 3), (3, 3)], {"axis": 1}),
            ([(2,), (2,)], {"axis": 1}),
            ([(2,), (2, 1)], {"axis": 0}),
        ],
    ),
    doc="Arrays one after another along an axis.",
)


@public(np.concatenate, np.concat, name="concatenate")
def concatenate(
    arrays: Any, axis: int | None = 0, dtype: DTypeLike | None = None, casting: str = "same_kind"
) -> Any:
    """Arrays joined along an axis (None: flattened first), promoted to their common dtype."""
    parts = list(arrays)
    require(bool(parts), "concatenate needs at least one array")
    if dtype is not None:
        for part in parts:
            require_castable("concatenate", element_of(part)[0], as_dtype(dtype), casting)
    if axis is None:
        parts, axis = [reshape(a, -1) for a in parts], 0
    element = None if dtype is None else as_dtype(dtype)
    axis = normalise_axis(axis, rank_of(parts[0]), "concatenate")
    return emit_promoted("concat", *parts, element=element, axis=axis)
