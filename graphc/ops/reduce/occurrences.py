"""occurrences: how often each of 0..size-1 is found among integers.

A counter that was just written takes some cycles until it can be read again, so neighbours count in
tables of their own, as long as those stay in the nearest cache:

    x       3 1 3 3 | 0 3 1 3
    tables  a b c d | a b c d      result = a + b + c + d
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.errors import OutOfRangeError
from graphc.ir.op import EXTENT, Attr, Library, Op, Sample
from graphc.ir.traits import Traits
from graphc.ir.types import I64, AnyType, Dim, Dimension, DType, Type, tensor
from graphc.ops.index.scatter import CANCELLED, STRIDE, scatter_rows
from graphc.ops.record.arguments import Applied, Array
from graphc.ops.record.batching import Lanes
from graphc.ops.record.dims import tensor_type
from graphc.ops.record.families import (
    INTEGERS,
    as_dtype,
    define,
    device_code,
    require,
    require_dtype,
)
from graphc.ops.record.value import Value, as_value, emit, functions
from graphc.ops.shape.shape import reshape

FEW = 1024  # counters of one table
TABLES = 4


def _infer(x: AnyType, *, size: Dimension, drop: bool) -> Type:
    require_dtype("occurrences", tensor_type("occurrences", x), INTEGERS)
    require(isinstance(size, Dim) or size >= 0, f"occurrences: size {size}")
    return tensor(I64, (size,))


def _kernel(
    x: Array, out: Array, tables: Array, params: Array, cancelled: Array | None = None
) -> int:
    size, drop = params[0], params[1]
    few = size <= FEW
    width = np.uint64(size + 1 if few else 0)  # of a table; the last counter is for what is outside
    for place in range(TABLES * (size + 1) if few else 1):
        tables[place] = 0
    for first in range(0, size, STRIDE):
        if cancelled is not None and cancelled[0] != 0:
            return CANCELLED
        for place in range(first, min(first + STRIDE, size)):
            out[place] = 0
    for first in range(0, len(x), STRIDE):
        if cancelled is not None and cancelled[0] != 0:
            return CANCELLED
        last = min(first + STRIDE, len(x))
        whole = last - (last - first) % TABLES if few else first
        for k in range(first, whole, TABLES):
            a = min(np.uint64(np.int64(x[k])), np.uint64(size))
            b = min(np.uint64(np.int64(x[k + 1])), np.uint64(size))
            c = min(np.uint64(np.int64(x[k + 2])), np.uint64(size))
            d = min(np.uint64(np.int64(x[k + 3])), np.uint64(size))
            tables[a] += 1
            tables[width + b] += 1
            tables[np.uint64(2) * width + c] += 1
            tables[np.uint64(3) * width + d] += 1
        for k in range(whole, last):
            a = min(np.uint64(np.int64(x[k])), np.uint64(size))
            if a < np.uint64(size):
                out[a] += 1
            else:
                tables[np.uint64(size) if few else np.uint64(0)] += 1
    outside = tables[0]
    if few:
        outside = 0
        for first in range(0, TABLES * (size + 1), size + 1):
            for place in range(size):
                out[place] += tables[first + place]
            outside += tables[first + size]
    return 1 if outside > 0 and drop == 0 else 0


def _workspace(node: Applied) -> tuple[tuple[DType, int], ...]:
    return ((I64, TABLES * (FEW + 1)),)


def _reference(x: Array, size: int, drop: bool) -> Any:
    inside = (x >= 0) & (x < size)
    if not drop and not inside.all():
        wrong = x[~inside].flat[0]
        raise OutOfRangeError(f"index {wrong} is out of range for an axis of extent {size}")
    return np.bincount(x[inside].astype(np.int64), minlength=size).astype(np.int64)


def _samples() -> list[Sample]:
    def case(kind: str, x: Any, size: int, good: bool = True, **attrs: object) -> Sample:
        return Sample((np.asarray(x).astype(as_dtype(kind).numpy),), {"size": size, **attrs}, good)

    rng = np.random.default_rng(7)
    made = [case(kind, rng.integers(0, 5, (3, 7)), 5) for kind in INTEGERS]
    made += [case("i8", rng.integers(-128, 128, 999), 90, drop=True)]
    made += [case("u64", np.array([0, 2**64 - 1, 2**63, 1, 1], np.uint64), 3, drop=True)]
    made += [
        case("i32", rng.integers(-9, 2 * FEW, 333), size, drop=True) for size in (FEW, FEW + 1)
    ]
    made += [case("i64", [-1, 2, 0], 0, drop=True), case("i32", np.zeros((2, 0)), 3)]
    return [*made, case("f32", [1], 2, False), case("i32", [1], -1, False)]


def _batch(op: Op, lanes: Lanes, x: Value, *, size: int, drop: bool) -> Any:
    """The counters of all lanes, one after another; outside of its lane is outside of all."""
    f, total = functions, lanes.size * size
    lane = reshape(f.arange(lanes.size), (lanes.size, *(1,) * (x.ndim - 1)))
    inside = (x >= 0) & (x < size)
    place = f.where(inside, f.astype(x, I64) + lane * size, total)
    return reshape(emit(op, place, size=total, drop=drop), (lanes.size, size))


def by_scatter(x: Value, size: int, drop: bool) -> Any:
    """The same in other ops, for formats without such an op."""
    places = reshape(functions.astype(x, I64), (math.prod(x.shape),))
    places = functions.where(places < 0, size, places)
    zeros = functions.zeros((size,), I64)
    return scatter_rows(zeros, places, as_value(np.ones((), np.int64)), "add", drop=drop)


occurrences_op = define(
    "occurrences",
    batch=_batch,
    infer=_infer,
    reference=_reference,
    lower=Library(
        lambda node: _kernel,
        lambda node: (node.type.dims[0], int(node.attrs["drop"])),
        _workspace,
        cuda=device_code("reduce.scan_launches", "occurrences_code"),
        native="occurrences",
    ),
    attrs=(Attr("size", "dim", within=EXTENT), Attr("drop", "bool", False)),
    dtypes=INTEGERS,
    differentiable=False,
    samples=_samples,
    doc="How often each of 0..size-1 is an element; others are an error, or left out with `drop`.",
    traits=Traits(checks=True),
)
