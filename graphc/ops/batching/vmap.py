"""The ops a batched program is traced to; the pass `vmap` expands them.

vmap            a region on every slice of some operands at once
axis_sum        the sum of what all lanes of a vmap have
axis_gather     what all lanes have, one after another
axis_slice      of as many rows as there are lanes the one of this lane
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir.graph import Builder, Graph
from graphc.ir.op import EXTENT, MANY, Attr, Composite, Op
from graphc.ir.traits import Traits
from graphc.ir.types import I64, AnyType, Dimension, Type, tensor
from graphc.ops.batching.batch_region import Batcher, Lane, Note, names_axis, unmapped
from graphc.ops.batching.device_lanes import DeviceLanes, on_devices
from graphc.ops.control.collectives import MOST_DEVICES
from graphc.ops.control.control import param_node, results_of, results_type
from graphc.ops.record.arguments import Array
from graphc.ops.record.batching import Lanes, Same, moved, repeated
from graphc.ops.record.dims import tensor_type
from graphc.ops.record.families import NUMERIC, define, require, require_dtype
from graphc.ops.record.value import Trace, Value, current, emit, functions, tracing

Ints = tuple[int, ...]
Names = tuple[str, ...]

# ------------------------------------------------------------------------------------ vmap


def _infer_vmap(
    *types: AnyType,
    regions: tuple[Graph, ...],
    mapped: Ints,
    size: Dimension,
    stacked: int,
    axis_name: str,
    devices: Names,
) -> AnyType:
    region = regions[0]
    require(
        len(devices) in (0, size), f"vmap: {size} slices on {len(devices)} device(s): one on each"
    )
    require(len(types) == len(region.params), f"vmap: {len(types)} operands")
    require(all(0 <= k < len(types) for k in mapped), f"vmap: operands {list(mapped)} are mapped")
    for k, (given, param) in enumerate(zip(types, region.params)):
        wanted = _stack(param.type, size) if k in mapped else param.type
        require(given is wanted, f"vmap: operand {k} is {given}, its region takes {param.type}")
    made = region.signature[1]
    require(0 <= stacked <= len(made), f"vmap: {stacked} of {len(made)} results are stacked")
    return results_type([_stack(r, size) if k < stacked else r for k, r in enumerate(made)])


def _stack(kind: AnyType, size: Dimension) -> Type:
    kind = tensor_type("vmap", kind)
    return tensor(kind.dtype, (size, *kind.shape))


def _run_vmap(
    *arrays: Any,
    regions: tuple[Graph, ...],
    run: Any,
    mapped: Ints,
    size: int,
    stacked: int,
    axis_name: str,
    devices: Names,
) -> Any:
    """One lane after the other; what combines lanes is expanded instead."""
    region = regions[0]
    attrs = {"mapped": mapped, "size": size, "stacked": stacked, "axis_name": axis_name}
    together = bool(axis_name) and any(names_axis(node, axis_name) for node in region.nodes)
    if together or size == 0:
        return results_of(_run_expanded(arrays, region, run, attrs))
    rows = [
        run(region, [a[lane] if k in mapped else a for k, a in enumerate(arrays)])
        for lane in range(size)
    ]
    columns = list(zip(*rows))
    return results_of([np.stack(c) if k < stacked else c[-1] for k, c in enumerate(columns)])


def _run_expanded(arrays: Sequence[Any], region: Graph, run: Any, attrs: dict[str, Any]) -> Any:
    kinds = [
        _stack(p.type, attrs["size"]) if k in attrs["mapped"] else p.type
        for k, p in enumerate(region.params)
    ]
    params = tuple(param_node(number, kind) for number, kind in enumerate(kinds))
    trace = Trace(Builder(len(params)))
    with tracing(trace):
        made = batched(trace, region, [trace.wrap(p) for p in params], **attrs)
    results = tuple(value.node for value in made)
    return run(Graph("vmap", params, trace.builder.nodes, results), list(arrays))


def batched(
    trace: Trace,
    region: Graph,
    values: Sequence[Value],
    *,
    mapped: Ints,
    size: Dimension,
    stacked: int,
    axis_name: str = "",
    devices: Names = (),
    note: Note | None = None,
) -> list[Value]:
    """The results of a `vmap`, emitted into a trace.

    Raises GraphError, with the user's line, where an op cannot differ from lane to lane, and for
    a result that is to be the same for all lanes and is not.
    """
    is_none = isinstance(size, int) and size == 0  # an open number of lanes may be 0, too
    if is_none and stacked == len(region.results):  # no lane computes anything
        return [_empty(r.type) for r in region.results]
    if devices:
        lanes = DeviceLanes(trace, devices, axis_name, note)
        return on_devices(region, values, mapped, stacked, lanes, _SHARED)
    batcher = Batcher(trace, size, axis_name, note)
    made = batcher.run(region, [Lane(v, k in mapped) for k, v in enumerate(values)])
    return [
        batcher.spread(lane).value if k < stacked else unmapped(lane, _SHARED)
        for k, lane in enumerate(made)
    ]


_SHARED = "a result with out_axes=None, or what is assigned to a variable, is one for all slices"


def _empty(kind: AnyType) -> Value:
    kind = tensor_type("vmap", kind)
    return functions.zeros((0, *kind.shape), kind.dtype)  # type: ignore[no-any-return]


def _expand_vmap(*values: Value, regions: tuple[Graph, ...], **attrs: Any) -> Any:
    trace = current()
    assert trace is not None
    return results_of(batched(trace, regions[0], values, **attrs))


vmap = define(
    "vmap",
    infer=_infer_vmap,
    reference=_run_vmap,
    lower=Composite(_expand_vmap),
    attrs=(
        Attr("mapped", "ints", within=EXTENT, most=MANY),
        Attr("size", "dim", within=EXTENT),
        Attr("stacked", "int", within=EXTENT),
        Attr("axis_name", "str", ""),
        Attr("devices", "strs", (), most=MOST_DEVICES),
    ),
    variadic=True,
    regions=1,
    doc="Run a region on each of `size` slices of the operands in `mapped`, along their first "
    "axis; the others are the same for all. The first `stacked` results are stacked along a new "
    "first axis, the others must be the same for all. With `devices` each of them has a slice.",
    traits=Traits(lanes=True),
)

# ------------------------------------------------------------------------------------ all lanes

AXIS_NAME = Attr("axis_name", "str")
SIZE = Attr("size", "dim", within=EXTENT)


def _alone(*arrays: Array, **attrs: Any) -> Any:
    raise GraphError(f"there is no vmap with an axis named {attrs['axis_name']!r} around it")


def _batch_sum(op: Op, lanes: Lanes, x: Value, *, axis_name: str, size: Dimension) -> Any:
    if axis_name != lanes.name:
        return emit(op, x, axis_name=axis_name, size=size)
    if lanes.mapped[0]:
        return Same(emit("sum", x, axes=(0,), keepdims=False))
    return Same(emit("sum", repeated(x, lanes.size), axes=(0,), keepdims=False))


def _infer_sum(x: AnyType, *, axis_name: str, size: Dimension) -> Type:
    x = tensor_type("axis_sum", x)
    require_dtype("axis_sum", x, NUMERIC)
    return x


axis_sum = define(
    "axis_sum",
    batch=_batch_sum,
    infer=_infer_sum,
    reference=_alone,
    lower=Composite(_alone),
    attrs=(AXIS_NAME, SIZE),
    dtypes=NUMERIC,
    gradient=lambda ct, result, x, **attrs: [emit("axis_sum", ct, **attrs)],
    doc="The sum over the lanes of the vmap whose axis has this name.",
)


def _batch_gather(op: Op, lanes: Lanes, x: Value, *, axis_name: str, size: Dimension) -> Any:
    if axis_name != lanes.name:
        return moved(emit(op, x, axis_name=axis_name, size=size), 1, 0)
    return Same(x if lanes.mapped[0] else repeated(x, lanes.size))


def _gather_gradient(ct: Value, result: Value, x: Value, **attrs: Any) -> list[Any]:
    return [emit("axis_slice", emit("axis_sum", ct, **attrs), **attrs)]


axis_gather = define(
    "axis_gather",
    batch=_batch_gather,
    infer=lambda x, *, axis_name, size: _stack(x, size),
    reference=_alone,
    lower=Composite(_alone),
    attrs=(AXIS_NAME, SIZE),
    gradient=_gather_gradient,
    doc="The operands of all lanes of the vmap whose axis has this name, along a new first axis.",
)


def _infer_slice(x: AnyType, *, axis_name: str, size: Dimension) -> Type:
    x = tensor_type("axis_slice", x)
    require(x.rank > 0 and x.shape[0] == size, f"axis_slice: {x} has no row for each of {size}")
    return tensor(x.dtype, x.shape[1:])


def _batch_slice(op: Op, lanes: Lanes, x: Value, *, axis_name: str, size: Dimension) -> Any:
    if axis_name != lanes.name:
        return emit(op, moved(x, 1, 0), axis_name=axis_name, size=size)
    if not lanes.mapped[0]:
        return x
    own = functions.arange(lanes.size, dtype=I64)
    return emit("gather", x, own, own, axes=(0, 1), position=0, mode="clip")


def _slice_gradient(ct: Value, result: Value, x: Value, **attrs: Any) -> list[Any]:
    f, size = functions, x.shape[0]
    own = f.equal(f.arange(size), emit("axis_slice", f.arange(size), **attrs))
    return [f.where(f.reshape(own, (size, *(1,) * (x.ndim - 1))), ct, f.zeros((), x.element))]


axis_slice = define(
    "axis_slice",
    batch=_batch_slice,
    infer=_infer_slice,
    reference=_alone,
    lower=Composite(_alone),
    attrs=(AXIS_NAME, SIZE),
    gradient=_slice_gradient,
    doc="The row of the operand that has the number of this lane of the vmap with this axis.",
)
