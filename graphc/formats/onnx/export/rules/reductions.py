"""Along axes: reductions, running sums, orders."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.onnx.export.rules.elementwise import element_of, wider
from graphc.formats.onnx.export.rules.shapes import shape_of
from graphc.formats.onnx.export.writer import Refused, Writer, rule, static, traced
from graphc.ir.graph import Node
from graphc.ir.types import I64, U64, Dimension, DType, tensor
from graphc.ops.record.value import functions as f
from graphc.ops.reduce.occurrences import by_scatter

_REDUCTIONS = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
}


@rule(*_REDUCTIONS)
def reduction(w: Writer, node: Node, x: str) -> Any:
    axes, keep = node.attrs["axes"], int(node.attrs["keepdims"])
    if not axes:
        return w.op("Identity", x)
    element, kind = element_of(node), _REDUCTIONS[node.op.name]
    wide = element if element.is_float else wider(element)
    given = x if wide is element else w.cast(x, wide)
    made = w.op(kind, given, w.integers(axes), keepdims=keep)
    return made if wide is element else w.cast(made, element)


@rule("all", "any")
def logical(w: Writer, node: Node, x: str) -> Any:
    """By counting: how many are false, how many are true."""
    if not node.attrs["axes"]:
        return w.op("Identity", x)
    every, keep = node.op.name == "all", int(node.attrs["keepdims"])
    ones = w.cast(w.op("Not", x) if every else x, I64)
    count = w.op("ReduceSum", ones, w.integers(node.attrs["axes"]), keepdims=keep)
    return w.op("Equal" if every else "Greater", count, w.number(0, I64))


@rule("argmax", "argmin")
def argument(w: Writer, node: Node, x: str) -> Any:
    axes = node.attrs["axes"]
    if len(axes) != 1 or not element_of(node).is_float:
        return None
    kind = "ArgMax" if node.op.name == "argmax" else "ArgMin"
    return w.op(kind, x, axis=axes[0], keepdims=int(node.attrs["keepdims"]))


@rule("cumsum")
def cumsum(w: Writer, node: Node, x: str) -> Any:
    axis = w.constant(np.int64(node.attrs["axis"]))
    return w.op("CumSum", x, axis, reverse=int(node.attrs["reverse"]))


@rule("cumprod", "cummax", "cummin", "recurrence")
def running(w: Writer, node: Node, *inputs: str) -> Any:
    """A scan along the axis: from each slice and what came before comes the next."""
    axis, element = node.attrs["axis"], element_of(node)
    dims = static(shape_of(node))
    rest = tensor(element, dims[:axis] + dims[axis + 1 :])
    if not dims[axis]:
        return w.op("Identity", inputs[-1])
    operator = {"cumprod": "Mul", "cummax": "Max", "cummin": "Min"}.get(node.op.name)
    first = {"cumprod": 1, "recurrence": 0}.get(node.op.name, _least(node))
    carry, slices = w.fresh(), [w.fresh() for _ in inputs]

    def step() -> list[str]:
        if operator is not None:
            made = w.op(operator, carry, *slices)
        else:
            made = w.op("Add", w.op("Mul", slices[0], carry), slices[1])
        return [made, made]

    names = [(name, rest) for name in (carry, *slices)]
    body = w.body("step", names, step, [rest, rest])
    begin = w.constant(np.full(rest.dims, first, element.numpy))
    way = [int(node.attrs["reverse"])]
    return w.op(
        "Scan",
        begin,
        *inputs,
        outputs=2,
        body=body,
        num_scan_inputs=len(inputs),
        scan_input_axes=[axis] * len(inputs),
        scan_output_axes=[axis],
        scan_input_directions=way * len(inputs),
        scan_output_directions=way,
    )[1]


def _least(node: Node) -> Any:
    """What a running maximum or minimum begins with."""
    element, sign = element_of(node), -1 if node.op.name == "cummax" else 1
    if element.is_float:
        return sign * np.inf
    info = np.iinfo(element.numpy)
    return info.min if sign < 0 else info.max


# ------------------------------------------------------------------------------------ order


def _largest(
    w: Writer, x: str, element: DType, count: Dimension, largest: bool, axis: int
) -> tuple[str, str]:
    """(values, places), of equal elements the first one first.  Runtimes compare small integers as
    wider ones alone; none is wider than u64."""
    wide = element if element is U64 else wider(element)
    given = x if wide is element else w.cast(x, wide)
    order = {"axis": axis, "largest": int(largest), "sorted": 1}
    values, places = w.op("TopK", given, w.extents([count]), outputs=2, **order)
    return (values if wide is element else w.cast(values, element)), places


@rule("sort", "argsort")
def sort(w: Writer, node: Node, x: str) -> Any:
    element = element_of(node)
    made = _largest(
        w, x, element, shape_of(node)[-1], node.attrs["descending"], len(shape_of(node)) - 1
    )
    return made[node.op.name == "argsort"]


@rule("topk")
def topk(w: Writer, node: Node, x: str) -> Any:
    rank = len(shape_of(node.inputs[0]))
    return _largest(w, x, element_of(node), node.attrs["k"], node.attrs["largest"], rank - 1)


@traced("searchsorted")
def _searchsorted(a: Any, v: Any, side: str) -> Any:
    """How many elements come before; NaN comes last."""
    column = f.expand_dims(v, -1)
    before = (f.less if side == "left" else f.less_equal)(a, column)
    last = f.isnan(column)
    if side == "left":
        last = f.logical_and(last, f.logical_not(f.isnan(a)))
    return f.sum(f.astype(f.logical_or(before, last), I64), axis=-1)


@rule("nonzero")
def nonzero(w: Writer, node: Node, mask: str) -> Any:
    size = node.attrs["size"]
    flat = w.op("Reshape", mask, w.integers([-1]))
    found = w.op("Reshape", w.op("NonZero", flat), w.integers([-1]))
    padded = w.op("Pad", found, w.integers([0, size]), w.number(0, I64))
    places = w.op("Slice", padded, w.integers([0]), w.integers([size]))
    return places, w.op("Squeeze", w.op("Shape", found))


traced("occurrences")(by_scatter)


# ------------------------------------------------------------------------------------ products


@rule("matmul")
def matmul(w: Writer, node: Node, a: str, b: str) -> Any:
    element = element_of(node)
    wide = element if element.is_float else wider(element)
    if wide is element:
        return w.op("MatMul", a, b)
    return w.cast(w.op("MatMul", w.cast(a, wide), w.cast(b, wide)), element)


@rule("einsum")
def einsum(w: Writer, node: Node, a: str, b: str) -> Any:
    element = element_of(node)
    if not element.is_float and wider(element) is not element:
        raise Refused(f"Einsum of {element}")
    return w.op("Einsum", a, b, equation=node.attrs["equation"])
