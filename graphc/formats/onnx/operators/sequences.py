"""Sequences and optionals: Python's lists and None while tracing, nothing of them is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import axes_of, ints, known, number, refuse
from graphc.formats.kinds import Kind
from graphc.formats.onnx.reader import element_name
from graphc.formats.onnx.records import Subgraph
from graphc.formats.onnx.table import operator
from graphc.ops.record.value import functions as f


@operator("SequenceConstruct", folds=False)
def construct(*items: Any) -> Any:
    return list(items)


@operator("SequenceEmpty", folds=False)
def empty(*, dtype: int = 1) -> Any:
    return []


def _place(items: list[Any], position: Any, room: int) -> int:
    k = number(position)
    refuse(-len(items) <= k < len(items) + room, f"position {k} of {len(items)}")
    return k + len(items) if k < 0 else int(k)


@operator("SequenceAt", folds=False)
def at(items: Any, position: Any) -> Any:
    return items[_place(items, position, 0)]


@operator("SequenceInsert", folds=False)
def insert(items: Any, value: Any, position: Any = None) -> Any:
    k = len(items) if position is None else _place(items, position, 1)
    return [*items[:k], value, *items[k:]]


@operator("SequenceErase", folds=False)
def erase(items: Any, position: Any = None) -> Any:
    k = len(items) - 1 if position is None else _place(items, position, 0)
    return [*items[:k], *items[k + 1 :]]


@operator("SequenceLength", folds=False)
def length(items: Any) -> Any:
    return np.array(len(items), np.int64)


@operator("ConcatFromSequence", folds=False)
def concat(items: Any, *, axis: int, new_axis: int = 0) -> Any:
    return f.stack(items, axis) if new_axis else f.concatenate(items, axis)


@operator("SplitToSequence", folds=False)
def split(x: Any, sizes: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    (axis,) = axes_of([axis], x.ndim)
    extent = x.shape[axis]
    if sizes is None:
        refuse(extent <= 10_000, f"{extent} parts")
        parts = [1] * extent
    elif np.ndim(known(sizes)) == 0:
        refuse(number(sizes) > 0, "parts are positive")
        count = number(sizes)
        refuse(extent <= 10_000 * count, f"{extent} elements in parts of {count}")
        parts = [min(count, extent - k) for k in range(0, extent, count)]
    else:
        parts = list(ints(sizes))
    refuse(sum(parts) == extent and min(parts, default=0) >= 0, f"parts {parts} of {extent}")
    refuse(len(parts) <= 10_000, f"{len(parts)} parts")
    made = f.split(x, np.cumsum(parts)[:-1].tolist(), axis) if len(parts) > 1 else [x]
    return [f.squeeze(v, axis) for v in made] if sizes is None and not keepdims else list(made)


@operator("SequenceMap", folds=False)
def map_(items: Any, *others: Any, body: Subgraph, call: Any) -> Any:
    rows = [
        call.run(body, v, *(o[k] if isinstance(o, list) else o for o in others))
        for k, v in enumerate(items)
    ]
    return tuple(list(column) for column in zip(*rows)) if rows else ([],) * len(body.outputs)


@operator("Optional", folds=False)
def optional(x: Any = None, *, type: Kind | None = None) -> Any:
    return x


@operator("OptionalGetElement", folds=False)
def get_element(x: Any) -> Any:
    refuse(x is not None, "there is no element")
    return x


@operator("OptionalHasElement", folds=False)
def has_element(x: Any = None) -> Any:
    return np.array(x is not None)


__all__ = ["element_name"]
