"""Shapes: constants, views, slices, padding, joining."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.onnx.export.writer import Refused, Writer, rule, static, traced
from graphc.ir.graph import Node
from graphc.ir.types import I64, Dim, Type
from graphc.ops.record.value import emit
from graphc.ops.record.value import functions as f

LISTED = 64  # numbers of a progression that are written one by one
BEFORE_ALL = -(2**63) + 1  # a bound of a slice that goes back over the first element


def shape_of(node: Node) -> tuple[Any, ...]:
    """The extents of a node's tensor."""
    assert isinstance(node.type, Type)
    return node.type.shape


@rule("const", moves=True)
def const(w: Writer, node: Node) -> Any:
    return w.constant(node.attrs["value"].array)


@rule("read", moves=True)
def read(w: Writer, node: Node) -> Any:
    """A variable is written with its present value."""
    return w.constant(w.value_of(node))


@rule("assign", moves=True)
def assign(w: Writer, node: Node, x: str) -> Any:
    raise Refused("a model keeps no variables: pass what changes in, and return what becomes of it")


@rule("reshape", moves=True)
def reshape(w: Writer, node: Node, x: str) -> Any:
    dims = shape_of(node)
    zeros = any(isinstance(d, Dim) or d == 0 for d in dims)
    return w.op("Reshape", x, w.extents(dims), **({"allowzero": 1} if zeros else {}))


@rule("transpose", moves=True)
def transpose(w: Writer, node: Node, x: str) -> Any:
    perm = node.attrs["perm"]
    return w.op("Transpose", x, perm=perm) if perm else w.op("Identity", x)


@rule("broadcast", moves=True)
def broadcast(w: Writer, node: Node, x: str) -> Any:
    return w.op("Expand", x, w.extents(shape_of(node)))


@rule("slice", moves=True)
def take_slice(w: Writer, node: Node, x: str) -> Any:
    starts, stops, steps = (node.attrs[k] for k in ("starts", "stops", "steps"))
    if not steps:
        return w.op("Identity", x)
    ends = [BEFORE_ALL if isinstance(stop, int) and stop < 0 else stop for stop in stops]
    axes = w.integers(range(len(steps)))
    return w.op("Slice", x, w.extents(starts), w.extents(ends), axes, w.integers(steps))


@rule("concat", moves=True)
def concat(w: Writer, node: Node, *parts: str) -> Any:
    return w.op("Concat", *parts, axis=node.attrs["axis"])


@rule("pad")
def pad(w: Writer, node: Node, x: str, value: str) -> Any:
    low, high, interior = (node.attrs[k] for k in ("low", "high", "interior"))
    if any(interior):
        return w.written_out(_pad_apart, node, [x, value])
    return w.op("Pad", x, w.integers([*low, *high]), value) if low else w.op("Identity", x)


def _pad_apart(x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    """Elements stand apart: they are written into an array of the value."""
    extents = [n + max(n - 1, 0) * gap for n, gap in zip(static(x.shape), interior)]
    dims = [a + n + z for a, n, z in zip(low, extents, high)]
    steps = [gap + 1 for gap in interior]
    return emit("slice_update", f.broadcast_to(value, dims), x, starts=low, steps=steps, axes=())


@rule("iota", moves=True)
def iota(w: Writer, node: Node) -> Any:
    extent, element = node.attrs["extent"], node.attrs["dtype"]
    if isinstance(extent, int) and extent <= LISTED:
        return w.constant(np.arange(extent).astype(element.numpy))
    stop = w.op("Squeeze", w.extent(extent))
    made = w.op("Range", w.number(0, I64), stop, w.number(1, I64))
    return made if element is I64 else w.cast(made, element)


@rule("extent")
def extent(w: Writer, node: Node) -> Any:
    size = node.attrs["extent"]
    return w.number(size, I64) if isinstance(size, int) else w.op("Squeeze", w.extent(size))


@traced("diagonal")
def _diagonal(x: Any, offset: int) -> Any:
    *lead, rows, columns = static(x.shape)
    row, column = max(-offset, 0), max(offset, 0)
    count = max(0, min(rows - row, columns - column))
    places = (np.arange(count) + row) * columns + np.arange(count) + column
    return f.take(f.reshape(x, (*lead, rows * columns)), places, axis=len(lead))


# ------------------------------------------------------------------------------------ updates


@traced("dynamic_update_slice")
def _dynamic_update(x: Any, updates: Any, *starts: Any) -> Any:
    ones = [1] * len(starts)
    limits = [n - k for n, k in zip(static(x.shape), static(updates.shape))]
    legal = [f.clip(f.astype(s, I64), 0, most) for s, most in zip(starts, limits)]
    return updated(x, updates, legal, ones)


@traced("slice_update")
def _slice_update(x: Any, updates: Any, *positions: Any, starts: Any, steps: Any, axes: Any) -> Any:
    begins: list[Any] = list(starts)
    for axis, position in zip(axes, positions):
        place = f.astype(position, I64)
        begins[axis] = f.where(f.less(place, 0), place + static(x.shape)[axis], place)
    return updated(x, updates, begins, steps)


def updated(x: Any, updates: Any, begins: Any, steps: Any) -> Any:
    """x with updates along each axis from a place on, in steps.

    A vector for each axis says which of its places are written, and with what:

        places 0 1 2 3 4 5, from 1 by 2:    written  - x - x - x    with  0 0 0 1 1 2
    """
    dims, counts = static(x.shape), static(updates.shape)
    if 0 in counts:
        return x
    chosen: Any = None
    for axis, (extent, count, begin, step) in enumerate(zip(dims, counts, begins, steps)):
        away = (f.astype(np.arange(extent), I64) - begin) * (1 if step > 0 else -1)
        turn = np.abs(step)
        place = f.floor_divide(away, int(turn))
        inside = f.logical_and(f.greater_equal(away, 0), f.less(place, count))
        inside = f.logical_and(inside, f.equal(f.remainder(away, int(turn)), 0))
        column = tuple(-1 if k == axis else 1 for k in range(len(dims)))
        inside = f.reshape(inside, column)
        chosen = inside if chosen is None else f.logical_and(chosen, inside)
        updates = f.take(updates, f.clip(place, 0, count - 1), axis=axis, mode="clip")
    return updates if chosen is None else f.where(chosen, updates, x)
