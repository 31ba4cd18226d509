"""Cotangents of reductions: what each element of x contributed to the total.

sum    ct                      mean   ct / count
prod   ct * product of all other elements, from running products on both sides: no division,
       so zeros do no harm
max    ct shared equally among the elements that equal the extreme
"""

from __future__ import annotations

import math
from typing import Any

from graphc.ir.sizes import greatest
from graphc.ops.record.arguments import ArrayLike
from graphc.ops.record.value import Value, emit, functions
from graphc.ops.shape.padding import shifted
from graphc.ops.shape.shape import inverse

Axes = tuple[int, ...]


def unreduced(total: ArrayLike, axes: Axes, keepdims: bool) -> Any:
    """The result of a reduction with its reduced axes back, of extent 1."""
    return total if keepdims else functions.expand_dims(total, axes)


def spread(total: Value, x: Value, axes: Axes, keepdims: bool) -> Any:
    """The result of a reduction repeated to the shape of its operand."""
    return functions.broadcast_to(unreduced(total, axes, keepdims), x.shape)


def sum_gradient(ct: Value, result: Value, x: Value, *, axes: Axes, keepdims: bool) -> list[Any]:
    return [spread(ct, x, axes, keepdims)]


def mean_gradient(ct: Value, result: Value, x: Value, *, axes: Axes, keepdims: bool) -> list[Any]:
    if x.type.is_static:
        count = math.prod(x.type.dims[k] for k in axes)
        share = functions.divide(ct, greatest(count, 1))
    else:  # counted when the sizes are known
        ones = functions.broadcast_to(functions.full((), 1, dtype=x.element.compute), x.shape)
        total = functions.sum(ones, axis=axes, keepdims=keepdims)
        share = functions.astype(functions.divide(ct, functions.maximum(total, 1)), x.element)
    return [spread(share, x, axes, keepdims)]


def prod_gradient(ct: Value, result: Value, x: Value, *, axes: Axes, keepdims: bool) -> list[Any]:
    f, element = functions, x.element
    others = _product_of_others(f.astype(x, element.compute), axes)
    others = f.conj(others) if element.is_complex else others
    return [f.astype(f.multiply(spread(ct, x, axes, keepdims), others), element)]


def _product_of_others(x: Value, axes: Axes) -> Any:
    """For each element the product of all others that are reduced with it."""
    if len(axes) == 1:
        before, after = (_exclusive_product(x, axes[0], reverse) for reverse in (False, True))
        return functions.multiply(before, after)
    f, rest = functions, [k for k in range(len(x.shape)) if k not in axes]
    order = [*rest, *axes]
    moved = f.transpose(x, order)
    count = math.prod(x.type.dims[k] for k in axes)
    rows = f.reshape(moved, (*(x.shape[k] for k in rest), count))
    others = f.reshape(_product_of_others(rows, (len(rest),)), moved.shape)
    return f.transpose(others, inverse(order))


def _exclusive_product(x: Value, axis: int, reverse: bool) -> Any:
    """For each element the product of those before it along the axis (after it if `reverse`)."""
    step = -1 if reverse else 1
    if not x.element.is_complex:
        return shifted(emit("cumprod", x, axis=axis, reverse=reverse), axis, step, 1)
    # No op runs over complex numbers: an array times itself 1, 2, 4, ... places further on
    # (Hillis and Steele, "Data parallel algorithms", 1986).
    x, distance = shifted(x, axis, step, 1), 1
    while distance < x.type.dims[axis]:
        x = functions.multiply(x, shifted(x, axis, step * distance, 1))
        distance *= 2
    return x


def extreme_gradient(
    ct: Value, result: Value, x: Value, *, axes: Axes, keepdims: bool
) -> list[Any]:
    f, element = functions, x.element
    hit = f.equal(x, unreduced(result, axes, keepdims))
    count = f.sum(f.astype(hit, element.compute), axes, keepdims=True)
    share = f.divide(unreduced(ct, axes, keepdims), count)
    return [f.where(hit, f.astype(share, element), 0)]
