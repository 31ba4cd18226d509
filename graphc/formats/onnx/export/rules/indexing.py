"""Reads and writes at computed positions; random bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.onnx.export.rules.elementwise import element_of
from graphc.formats.onnx.export.rules.shapes import shape_of
from graphc.formats.onnx.export.writer import Writer, rule, static, traced
from graphc.ir.graph import Node
from graphc.ir.types import I64, U32, U64, DType
from graphc.ops.random.threefry import MASK, threefry
from graphc.ops.record.value import functions as f


def _legal(w: Writer, index: str, element: DType, extent: Any, mode: str) -> str:
    """Positions of an axis as i64; negative ones count from the end unless they are clipped."""
    name = index if element is I64 else w.cast(index, I64)
    if mode == "raise":
        return name
    (size,) = static((extent,))
    if mode == "wrap":
        return str(w.op("Mod", name, w.number(max(size, 1), I64)))
    low = w.op("Max", name, w.number(0, I64))
    return str(w.op("Min", low, w.number(max(size - 1, 0), I64)))


@rule("gather", moves=True)
def gather(w: Writer, node: Node, x: str, *indices: str) -> Any:
    axes, position, mode = (node.attrs[k] for k in ("axes", "position", "mode"))
    dims = shape_of(node.inputs[0])
    legal = [
        _legal(w, index, n.type.dtype, dims[axis], mode)  # type: ignore[union-attr]
        for index, n, axis in zip(indices, node.inputs[1:], axes)
    ]
    count, rank = len(shape_of(node.inputs[1])), len(shape_of(node))
    if len(axes) == 1:
        made, at = w.op("Gather", x, legal[0], axis=axes[0]), axes[0]
    else:
        order = [*axes, *(k for k in range(len(dims)) if k not in axes)]
        last = w.integers([-1])
        places = w.op("Concat", *(w.op("Unsqueeze", i, last) for i in legal), axis=-1)
        made, at = w.op("GatherND", w.op("Transpose", x, perm=order), places), 0
    if at == position or not count:
        return made
    rest = [k for k in range(rank) if not at <= k < at + count]
    perm = [*rest[:position], *range(at, at + count), *rest[position:]]
    return w.op("Transpose", made, perm=perm)


@rule("take_along", moves=True)
def take_along(w: Writer, node: Node, x: str, index: str) -> Any:
    axis = node.attrs["axis"]
    element = node.inputs[1].type.dtype  # type: ignore[union-attr]
    legal = _legal(w, index, element, shape_of(node.inputs[0])[axis], node.attrs["mode"])
    return w.op("GatherElements", x, legal, axis=axis)


@rule("in_range")
def in_range(w: Writer, node: Node, label: str) -> Any:
    return w.cast(label, I64)


@rule("dynamic_slice")
def dynamic_slice(w: Writer, node: Node, x: str, *starts: str) -> Any:
    sizes = static(node.attrs["sizes"])
    if not sizes:
        return w.op("Identity", x)
    places = [w.op("Unsqueeze", w.cast(s, I64), w.integers([0])) for s in starts]
    room = [n - k for n, k in zip(static(shape_of(node.inputs[0])), sizes)]
    low = w.op("Max", w.op("Concat", *places, axis=0), w.integers([0] * len(sizes)))
    begin = w.op("Min", low, w.integers(room))
    end = w.op("Add", begin, w.integers(sizes))
    return w.op("Slice", x, begin, end, w.integers(range(len(sizes))))


@rule("scatter")
def scatter(w: Writer, node: Node, x: str, index: str, updates: str) -> Any:
    """Rows out of range go to a row more, which is cut off again."""
    mode, drop = node.attrs["mode"], node.attrs["drop"]
    element = node.inputs[1].type.dtype  # type: ignore[union-attr]
    dims = shape_of(node.inputs[0])
    place = _legal(w, index, element, dims[0], "raise")
    if drop:
        (rows, *rest) = static(dims)
        end = w.number(rows, I64)
        place = w.op("Where", w.op("Less", place, w.number(0, I64)), w.op("Add", place, end), place)
        wrong = w.op("Or", w.op("Less", place, w.number(0, I64)), w.op("Less", end, place))
        place = w.op("Where", wrong, end, place)
        row = w.constant(np.zeros((1, *rest), element_of(node).numpy))
        x = w.op("Concat", x, row, axis=0)
    reduction = {} if mode == "set" else {"reduction": mode}
    at = w.op("Unsqueeze", place, w.integers([-1]))
    made = w.op("ScatterND", x, at, updates, **reduction)
    return w.op("Slice", made, w.integers([0]), w.integers([dims[0]])) if drop else made


@rule("spread")
def spread(w: Writer, node: Node, index: str, x: str) -> Any:
    element = node.inputs[0].type.dtype  # type: ignore[union-attr]
    place = _legal(w, index, element, node.attrs["extent"], "clip")
    zeros = w.op("Expand", w.number(0, node.inputs[1].type.dtype), w.extents(shape_of(node)))  # type: ignore[union-attr]
    return w.op("ScatterElements", zeros, place, x, axis=1, reduction="add")


# ------------------------------------------------------------------------------------ random


def _words(key: Any, size: int) -> Any:
    """The two words of the cipher for counters from 0 on."""
    counter = np.arange(size, dtype=np.uint64)
    high, low = (counter >> np.uint64(32)).astype(np.uint32), counter.astype(np.uint32)
    return threefry((key[0], key[1]), (f.add(np.uint32(0), high), f.add(np.uint32(0), low)))


@traced("random_bits")
def _random_bits(key: Any, dims: Any, dtype: DType) -> Any:
    dims = static(dims)
    high, low = _words(key, int(np.prod(dims, dtype=np.int64)))
    if dtype is U64:
        made = f.bitwise_or(f.left_shift(f.astype(high, U64), 32), f.astype(low, U64))
    else:
        made = f.astype(f.bitwise_xor(high, low), dtype)
    return f.reshape(made, dims)


@traced("random_split")
def _random_split(key: Any, count: int) -> Any:
    return f.stack(_words(key, count), axis=-1)


@traced("random_fold")
def _random_fold(key: Any, data: Any) -> Any:
    return f.stack(threefry((key[0], key[1]), (np.uint32(MASK), f.astype(data, U32))))
