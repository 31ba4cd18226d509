"""Cotangents of scatter(x, index, updates): what each row of x and each update contributed.

set        to the last update of a row; to x where nothing was written
add        to every update, and to x
mul        times the product of everything else in the row
min max    shared equally among what equals the result
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.ir.types import I64
from graphc.ops.record.arguments import ArrayLike, Tensor
from graphc.ops.record.value import Value, emit, functions
from graphc.ops.shape.shape import reshape


@record(frozen=True)
class Rows:
    """The positions of a scatter: `read` takes rows from there, `write` scatters there again."""

    index: Any
    drop: bool

    def read(self, source: Any) -> Any:
        """Rows of an array at the positions; zeros for a position that is left out."""
        f, count = functions, source.type.dims[0]
        if not self.drop:
            return emit("gather", source, self.index, axes=(0,), mode="raise")
        if count == 0:
            return f.zeros((*self.index.shape, *source.shape[1:]), source.element)
        place = f.astype(self.index, I64)
        legal = f.logical_and(place >= -count, place < count)
        place = f.where(place < 0, place + count, place)
        made = emit("gather", source, place, axes=(0,), mode="clip")
        return f.where(self.column(legal, source), made, f.zeros_like(made))

    def column(self, flags: Any, source: Tensor) -> Any:
        """What there is one of per position, to broadcast against rows of an array."""
        return reshape(flags, (*self.index.shape, *(1,) * (len(source.shape) - 1)))

    def write(self, target: Tensor, updates: Any, mode: str) -> Any:
        return emit("scatter", target, self.index, updates, mode=mode, drop=self.drop)

    def distinct(self, count: int) -> bool:
        """Whether it is known that no two positions are the same row."""
        if self.index.type.size <= 1:
            return True
        node = self.index.node
        if node.op.name != "const":
            return False
        places = node.attrs["value"].array % max(count, 1)
        return bool(np.unique(places).size == places.size)


def _set(ct: Value, result: Value, x: Value, updates: Value, rows: Rows) -> list[Any]:
    f, got = functions, rows.read(ct)
    kept = rows.write(ct, f.zeros_like(updates), "set")
    if rows.distinct(x.type.dims[0]):
        return [kept, got]
    dims = rows.index.type.dims
    order = reshape(f.arange(math.prod(dims)), dims)
    last = rows.write(f.zeros((x.shape[0],), I64), order, "set")
    stays = rows.column(f.equal(rows.read(last), order), x)
    return [kept, f.where(stays, got, f.zeros_like(got))]


def _add(ct: Value, result: Value, x: Value, updates: Value, rows: Rows) -> list[Any]:
    return [ct, rows.read(ct)]


def _mul(ct: Value, result: Value, x: Value, updates: Value, rows: Rows) -> list[Any]:
    f = functions
    of_x = f.multiply(ct, rows.write(f.ones_like(x), updates, "mul"))
    if rows.distinct(x.type.dims[0]):
        return [of_x, rows.read(f.multiply(ct, x))]
    zero = f.equal(updates, 0)
    safe = f.where(zero, 1, updates)
    count = rows.read(rows.write(f.zeros_like(x), f.astype(zero, x.element), "add"))
    total = rows.read(f.multiply(ct, rows.write(x, safe, "mul")))
    # Of several zeros in one place none counts; a single one sees the product of the others.
    alone = f.where(f.equal(count, 1), total, 0)
    return [of_x, f.where(zero, alone, f.where(f.equal(count, 0), f.divide(total, safe), 0))]


def _extreme(ct: Value, result: ArrayLike, x: Value, updates: Value, rows: Rows) -> list[Any]:
    f = functions
    of_x, of_updates = f.equal(x, result), f.equal(updates, rows.read(result))
    count = rows.write(f.astype(of_x, x.element), f.astype(of_updates, x.element), "add")
    share = f.divide(ct, count)
    return [f.where(of_x, share, 0), f.where(of_updates, rows.read(share), 0)]


_RULES: dict[str, Callable[..., list[Any]]] = {
    "set": _set,
    "add": _add,
    "mul": _mul,
    "min": _extreme,
    "max": _extreme,
}


def scatter_gradient(
    ct: Value, result: Value, x: Value, index: Value, updates: Value, *, mode: str, drop: bool
) -> list[Any]:
    of_x, of_updates = _RULES[mode](ct, result, x, updates, Rows(index, drop))
    return [of_x, None, of_updates]
