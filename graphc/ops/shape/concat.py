"""concat: the op that joins arrays along an axis."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from graphc.ir.op import AXIS, Attr, Compute
from graphc.ir.sizes import at_most
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Type, definitely_different, tensor
from graphc.loops.nest import Scalars
from graphc.ops.record.arguments import Applied, DTypeLike, Read
from graphc.ops.record.batching import along
from graphc.ops.record.dims import guarded, rank_of, samples_of, tensor_type
from graphc.ops.record.families import as_dtype, define, normalise_axis, require, require_castable
from graphc.ops.record.value import Value, element_of, emit_promoted, public
from graphc.ops.shape.shape import reshape
from graphc.ops.shape.slicing import slice_axis


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
    traits=Traits(joins=True),
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
