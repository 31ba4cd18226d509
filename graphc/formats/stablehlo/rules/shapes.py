"""Shapes: constants, variables, views, slices, padding, joining."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.exporting import Refused
from graphc.formats.stablehlo.writer import Value, Writer, in_other_ops, rule, type_of
from graphc.ir.graph import Node
from graphc.ir.types import BOOL, F32, I64, tensor
from graphc.ops.record.value import emit
from graphc.ops.record.value import functions as f


@rule("const")
def const(w: Writer, node: Node) -> Value:
    return w.constant(node.attrs["value"].array)


@rule("read")
def read(w: Writer, node: Node) -> Value:
    """A variable is written with its present value."""
    return w.constant(w.value_of(node))


@rule("assign")
def assign(w: Writer, node: Node, x: Value) -> Any:
    raise Refused("a module keeps no variables: pass what changes in, and return what it becomes")


@rule("stop_gradient", "exact")
def identity(w: Writer, node: Node, x: Value) -> Value:
    return x


@rule("barrier")
def barrier(w: Writer, node: Node, x: Value, *rest: Value) -> Value:
    """What is computed again may not be merged with what it repeats."""
    return w.op("optimization_barrier", x, to=x.type)  # type: ignore[no-any-return]


@rule("reshape")
def reshape(w: Writer, node: Node, x: Value) -> Value:
    return w.reshaped(x, type_of(node).dims)


@rule("transpose")
def transpose(w: Writer, node: Node, x: Value) -> Value:
    return w.op("transpose", x, to=type_of(node), permutation=node.attrs["perm"])  # type: ignore[no-any-return]


@rule("broadcast")
def broadcast(w: Writer, node: Node, x: Value) -> Value:
    return w.spread(x, type_of(node).dims)


@rule("slice")
def take_slice(w: Writer, node: Node, x: Value) -> Value:
    """Steps back are those forward of the reversed axis."""
    starts, stops, steps = (list(node.attrs[k]) for k in ("starts", "stops", "steps"))
    back = [axis for axis, step in enumerate(steps) if step < 0]
    if back:
        x = w.op("reverse", x, to=x.type, dimensions=back)
    for axis in back:
        last = x.dims[axis] - 1
        starts[axis], stops[axis], steps[axis] = (
            last - starts[axis],
            last - stops[axis],
            -steps[axis],
        )
    kind = type_of(node)
    return w.op(  # type: ignore[no-any-return]
        "slice", x, to=kind, start_indices=starts, limit_indices=stops, strides=steps
    )


@rule("concat")
def concat(w: Writer, node: Node, *parts: Value) -> Value:
    return w.op("concatenate", *parts, to=type_of(node), dimension=node.attrs["axis"])  # type: ignore[no-any-return]


@rule("pad")
def pad(w: Writer, node: Node, x: Value, value: Value) -> Value:
    low, high = node.attrs["low"], node.attrs["high"]
    inner = node.attrs["interior"] or (0,) * len(low)
    return w.op(  # type: ignore[no-any-return]
        "pad",
        x,
        value,
        to=type_of(node),
        edge_padding_low=low,
        edge_padding_high=high,
        interior_padding=inner,
    )


@rule("iota")
def iota(w: Writer, node: Node) -> Value:
    kind = type_of(node)
    if kind.dtype.name == "bool":
        return w.constant(np.arange(kind.dims[0]).astype(bool))
    return w.op("iota", to=kind, iota_dimension=0)  # type: ignore[no-any-return]


@rule("dynamic_slice")
def dynamic_slice(w: Writer, node: Node, x: Value, *starts: Value) -> Value:
    kind = type_of(node)
    return w.op("dynamic_slice", x, *_alike(w, starts), to=kind, slice_sizes=kind.dims)  # type: ignore[no-any-return]


@rule("dynamic_update_slice")
def dynamic_update_slice(w: Writer, node: Node, x: Value, part: Value, *starts: Value) -> Value:
    return w.op("dynamic_update_slice", x, part, *_alike(w, starts), to=x.type)  # type: ignore[no-any-return]


def _alike(w: Writer, starts: tuple[Value, ...]) -> list[Value]:
    return [w.cast(start, I64) for start in starts]


@rule("scatter")
def scatter(w: Writer, node: Node, x: Value, index: Value, updates: Value) -> Value:
    """Rows are added to, or replaced; what lies out of range is dropped, where a kernel stops."""
    word = {"set": "", "add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}
    mode, rest = node.attrs["mode"], len(x.dims) - 1
    rows = w.cast(index, I64)
    extent = w.full(x.dims[0], rows.type)
    none = w.full(0, rows.type)
    direction = "#stablehlo<comparison_direction LT>"
    below = w.op("compare", rows, none, to=tensor(BOOL, rows.dims), comparison_direction=direction)
    turned = w.op("add", rows, extent, to=rows.type)
    rows = w.op("select", below, turned, rows, to=rows.type)
    axes = len(index.dims)
    window = ", ".join(str(axes + k) for k in range(rest))
    numbers = (
        f"#stablehlo.scatter<update_window_dims = [{window}], inserted_window_dims = [0], "
        f"scatter_dims_to_operand_dims = [0], index_vector_dim = {axes}>"
    )
    one = tensor(x.dtype)

    def combine(old: Value, new: Value) -> list[Value]:
        return [w.op(word[mode], old, new, to=one) if word[mode] else new]

    return w.op(  # type: ignore[no-any-return]
        "scatter",
        x,
        rows,
        updates,
        to=x.type,
        regions=[w.region([one, one], combine)],
        scatter_dimension_numbers=numbers,
        indices_are_sorted=False,
        unique_indices=False,
    )


@rule("slice_update")
def slice_update(w: Writer, node: Node, x: Value, part: Value, *positions: Value) -> Value:
    made: Value = w.written_out(_updated, node, [x, part, *positions])
    return made


def _updated(x: Any, part: Any, *positions: Any, starts: Any, steps: Any, axes: Any) -> Any:
    """Where an index is one of the part's, the part's element, else that of x."""
    if 0 in part.shape or not x.ndim:
        return x if 0 in part.shape else part
    computed, inside = dict(zip(axes, positions)), None
    for axis, (start, step, count) in enumerate(zip(starts, steps, part.shape)):
        extent = x.shape[axis]
        if axis in computed:
            place = computed[axis]
            start = f.where(place < 0, place + extent, place)
        away = f.arange(extent) - start
        number = f.floor_divide(away, step)
        within = f.logical_and(number >= 0, number < count)
        found = f.logical_and(f.equal(number * step, away), within)
        found = f.reshape(found, tuple(extent if k == axis else 1 for k in range(x.ndim)))
        inside = found if inside is None else f.logical_and(inside, found)
        part = f.take(part, f.clip(number, 0, count - 1), axis=axis)
    return f.where(inside, part, x)


@in_other_ops("spread")
def spread(index: Any, x: Any, extent: int) -> Any:
    """Rows end to end, to which all is added at once; numbers of 16 bits in 32."""
    rows, element = x.shape[0], x.dtype
    x = f.astype(x, F32) if element.itemsize == 2 else x
    place = f.clip(index, 0, extent - 1) + f.expand_dims(f.arange(rows) * extent, 1)
    flat = (f.zeros((rows * extent,), x.dtype), f.reshape(place, (-1,)), f.reshape(x, (-1,)))
    made = f.astype(emit("scatter", *flat, mode="add", drop=False), element)
    return f.reshape(made, (rows, extent))
