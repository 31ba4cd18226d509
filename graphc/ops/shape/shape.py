"""Ops that only rename indices: reshape, transpose and broadcast.

Each is one index map, so it fuses into whatever reads it and becomes strides there.  Slices and
joins are in `slicing.py`, functions made of all these in `manipulation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import TypeRuleError
from graphc.ir.op import AXIS, EXTENT, Alias, Attr, Compute, Op
from graphc.ir.sizes import Size, alike
from graphc.ir.traits import Traits
from graphc.ir.types import AnyType, Dim, Type, definitely_different, tensor
from graphc.loops.nest import Scalars
from graphc.ops.record.arguments import Applied, ArrayLike, Axes, Read, ShapeLike, Tensor
from graphc.ops.record.batching import Lanes, reshaped, shaped
from graphc.ops.record.dims import (
    Shape,
    rank_of,
    resolve_shape,
    samples_of,
    shape_of,
    size_of,
    tensor_type,
)
from graphc.ops.record.families import (
    broadcast_dims,
    define,
    normalise_axis,
    require,
    require_options,
)
from graphc.ops.record.value import Value, emit, public

# ------------------------------------------------------------------------------------ reshape


def _infer_reshape(x: AnyType, *, dims: Shape) -> Type:
    x = tensor_type("reshape", x)
    if definitely_different(size_of(x.shape), size_of(dims)):
        raise TypeRuleError(
            f"cannot reshape {x} to {list(dims)}: "
            f"{size_of(x.shape)} elements do not fill {size_of(dims)}"
        )
    return tensor(x.dtype, dims)


def _reshape_gradient(ct: Value, result: Value, x: Value, *, dims: Shape) -> list[Any]:
    return [reshape(ct, x.shape)]


reshape_op = define(
    "reshape",
    batch=shaped,
    gradient=_reshape_gradient,
    infer=_infer_reshape,
    reference=lambda x, dims: np.reshape(x, dims),
    lower=Alias(),
    attrs=(Attr("dims", "dims", within=EXTENT),),
    samples=samples_of(
        [([(3, 4)], {"dims": (2, 6)}), ([()], {"dims": (1, 1)}), ([(0, 3)], {"dims": (5, 0)})],
        [([(3, 4)], {"dims": (5, 2)}), ([(3, 4)], {"dims": (-1,)})],
    ),
    doc="The same elements in row-major order under another shape; no work on a stored array.",
    traits=Traits(reshapes=True),
)


@public(np.reshape, method=True)
def reshape(x: Tensor, *dims: Any, shape: Any = None, order: str = "C", copy: Any = None) -> Any:
    """The elements of x in row-major order under a new shape; one extent may be -1."""
    if dims and isinstance(dims[-1], str):
        *dims, order = dims  # type: ignore[assignment]
    wanted = shape if shape is not None else dims[0] if len(dims) == 1 else dims
    wanted = (wanted,) if isinstance(wanted, int | np.integer | Dim | Size) else tuple(wanted)
    if order == "F":
        return transpose(reshape(transpose(x), wanted[::-1]))
    require(order in ("C", "A", "K"), f"reshape: order must be 'C' or 'F', got {order!r}")
    target = resolve_shape(shape_of(x), wanted)
    same = isinstance(x, Value) and alike(target, x.shape)
    return x if same else emit("reshape", x, dims=target)


# ------------------------------------------------------------------------------------ transpose


def _infer_transpose(x: AnyType, *, perm: tuple[int, ...]) -> Type:
    x = tensor_type("transpose", x)
    if sorted(perm) != list(range(x.rank)):
        raise TypeRuleError(f"transpose: {list(perm)} is not a permutation of the axes of {x}")
    return tensor(x.dtype, (x.shape[axis] for axis in perm))


def _transpose(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    source: list[Any] = [None] * len(index)
    for position, axis in enumerate(node.attrs["perm"]):
        source[axis] = index[position]
    return read(0, tuple(source))


def inverse(perm: Sequence[int]) -> list[int]:
    """The permutation that undoes one."""
    return sorted(range(len(perm)), key=perm.__getitem__)


def _transpose_gradient(ct: Value, result: Value, x: Value, *, perm: tuple[int, ...]) -> list[Any]:
    return [transpose(ct, inverse(perm))]


def _batch_transpose(op: Op, lanes: Lanes, x: Value, *, perm: tuple[int, ...]) -> Any:
    return emit(op, x, perm=(0, *(axis + 1 for axis in perm)))


transpose_op = define(
    "transpose",
    batch=_batch_transpose,
    gradient=_transpose_gradient,
    infer=_infer_transpose,
    reference=lambda x, perm: np.transpose(x, perm),
    lower=Compute(_transpose),
    attrs=(Attr("perm", "ints", within=AXIS),),
    samples=samples_of(
        [
            ([(3, 4, 2)], {"perm": (2, 0, 1)}),
            ([(33, 17)], {"perm": (1, 0)}),
            ([()], {"perm": ()}),
            ([(0, 3)], {"perm": (1, 0)}),
        ],
        [([(3, 4)], {"perm": (0, 0)}), ([(3, 4)], {"perm": (0,)})],
    ),
    doc="Axes in another order: axis k of the result is axis perm[k] of the operand.",
    traits=Traits(permutes=True),
)


@public(np.transpose, np.permute_dims, method=True)
def transpose(x: ArrayLike, *axes: Axes, **named: object) -> Any:
    """x with its axes reversed, or in the order given as one sequence or as several ints."""
    given: Any = axes[0] if len(axes) == 1 else axes or None
    given = named.pop("axes", given)
    require_options("transpose", named)
    given = (given,) if isinstance(given, int | np.integer) else given
    rank = rank_of(x)
    wanted = range(rank)[::-1] if given is None else given
    perm = tuple(normalise_axis(a, rank, "transpose") for a in wanted)
    return (
        x
        if perm == tuple(range(rank)) and isinstance(x, Value)
        else emit("transpose", x, perm=perm)
    )


# ------------------------------------------------------------------------------------ broadcast


def _infer_broadcast(x: AnyType, *, dims: Shape) -> Type:
    x = tensor_type("broadcast", x)
    lead = len(dims) - x.rank
    fits = lead >= 0 and all(
        have is want or have == 1 or not definitely_different(have, want)
        for have, want in zip(x.shape, dims[max(lead, 0) :], strict=False)
    )
    require(fits, f"shape {list(x.shape)} does not broadcast to {list(dims)}")
    return tensor(x.dtype, dims)


def _broadcast(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    dims = node.inputs[0].type.dims
    kept = index[len(index) - len(dims) :]
    return read(0, tuple(b.integer(0) if d == 1 else i for d, i in zip(dims, kept)))


def _broadcast_gradient(ct: Value, result: Value, x: Value, *, dims: Shape) -> list[Any]:
    """The sum over the axes that x was repeated along."""
    lead = len(dims) - len(x.shape)
    repeated = [k for k, d in enumerate(x.shape, lead) if d == 1 and dims[k] != 1]
    axes = (*range(lead), *repeated)
    return [reshape(emit("sum", ct, axes=axes) if axes else ct, x.shape)]


def _batch_broadcast(op: Op, lanes: Lanes, x: Value, *, dims: Shape) -> Any:
    lead = (1,) * (len(dims) + 1 - x.ndim)
    return emit(op, reshaped(x, (x.shape[0], *lead, *x.shape[1:])), dims=(lanes.size, *dims))


broadcast_op = define(
    "broadcast",
    batch=_batch_broadcast,
    gradient=_broadcast_gradient,
    infer=_infer_broadcast,
    reference=lambda x, dims: np.broadcast_to(x, dims),
    lower=Compute(_broadcast),
    attrs=(Attr("dims", "dims", within=EXTENT),),
    samples=samples_of(
        [
            ([(3, 1)], {"dims": (2, 3, 4)}),
            ([()], {"dims": (5,)}),
            ([(1,)], {"dims": (0,)}),
            ([(4,)], {"dims": (4,)}),
        ],
        [([(3, 2)], {"dims": (3, 4)}), ([(3, 2)], {"dims": (2,)})],
    ),
    doc="Repeat along new leading axes and along axes of extent 1.",
    traits=Traits(broadcasts=True),
)


@public(np.broadcast_to)
def broadcast_to(x: ArrayLike, shape: ShapeLike, subok: bool = False) -> Any:
    """x repeated to a shape that it broadcasts to."""
    target = (shape,) if isinstance(shape, int | np.integer | Dim | Size) else tuple(shape)
    same = isinstance(x, Value) and alike(target, x.shape)
    return x if same else emit("broadcast", x, dims=target)


@public(np.broadcast_arrays)
def broadcast_arrays(*arrays: ArrayLike, subok: bool = False) -> tuple[Any, ...]:
    """All arrays repeated to their common shape."""
    common = broadcast_dims([shape_of(a) for a in arrays])
    return tuple(broadcast_to(a, common) for a in arrays)
