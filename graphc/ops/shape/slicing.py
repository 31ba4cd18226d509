"""Slices with steps: the op that cuts arrays along axes."""

from __future__ import annotations

from typing import Any

from graphc.errors import TypeRuleError
from graphc.ir.op import OFFSET, Attr, Compute, Op
from graphc.ir.sizes import Size, alike
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Dimension, Type, tensor
from graphc.loops.nest import Scalars
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Read
from graphc.ops.record.batching import Lanes
from graphc.ops.record.dims import Shape, samples_of, shape_of, tensor_type
from graphc.ops.record.families import define, require
from graphc.ops.record.value import Value, emit, functions


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


def _in_order(node: Applied) -> int:
    """The first axis from which on a slice of what is stored lies in memory without gaps: the last
    one that is cut, or the one behind it if it is cut in steps.
    """
    source, rank = node.inputs[0], len(node.attrs["starts"])
    if not source.op.traits.parameter:
        return rank - 1
    starts, stops, steps = (node.attrs[name] for name in ("starts", "stops", "steps"))
    cuts = list(zip(starts, stops, steps, source.type.dims, strict=True))
    for axis in reversed(range(rank)):
        start, stop, step, extent = cuts[axis]
        if step != 1:
            return min(axis + 1, rank - 1)
        if not alike((start, stop), (0, extent)):
            return axis
    return 0


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
    lower=Compute(_slice, flat=_in_order),
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
