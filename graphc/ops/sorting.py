"""Sorting: stable merge sorts of rows as library kernels, and NumPy's functions over them.

NaNs sort after everything. Descending order is the mirror of ascending order, except that equal
elements keep their order; NaNs therefore come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import Attr, Library, Sample
from graphc.ir.types import BOOL, F32, I64, U8, AnyType, DType, TupleType, Type, tensor, tuple_type
from graphc.ops.arrange import moveaxis
from graphc.ops.dims import rank_of, shape_of, size_of, tensor_type
from graphc.ops.registry import (
    INTEGERS,
    define,
    normalise_axis,
    require,
    require_dtype,
    sample_array,
)
from graphc.ops.shape import reshape
from graphc.ops.slicing import slice_axis
from graphc.ops.value import as_value, common_element, emit, functions, public

SORTED = (*INTEGERS, "f32", "f64")

# ------------------------------------------------------------------------------------ kernels
#
# A row is merged bottom-up, from the result array to the workspace and back:
#
#     |3 1|2 0|5 4|   width 1
#     |1 3 0 2|4 5|   width 2 ...
#
# A descending row is read backwards, sorted and written backwards: equal elements keep their order.


def _merge_kernel(result: str) -> Callable[..., None]:
    """Sorts "values" or "positions"; Numba drops the branches that the constant rules out."""

    def kernel(x: Any, out: Any, work: Any, params: Any, lo: int, hi: int) -> None:
        extent, descending = params[0], params[1]
        for row in range(lo, hi):
            base = row * extent
            for k in range(extent):
                source = extent - 1 - k if descending else k
                if result == "values":
                    out[base + k] = x[base + source]
                else:
                    out[base + k] = source
            width = 1
            while width < extent:
                for start in range(0, extent, 2 * width):
                    middle, end = min(start + width, extent), min(start + 2 * width, extent)
                    left, right = start, middle
                    for k in range(start, end):
                        take_left = right >= end
                        if left < middle and not take_left:
                            if result == "values":
                                a, b = out[base + left], out[base + right]
                            else:
                                a, b = x[base + out[base + left]], x[base + out[base + right]]
                            take_left = not (b < a or (a != a and b == b))
                        if take_left:
                            work[k] = out[base + left]
                            left += 1
                        else:
                            work[k] = out[base + right]
                            right += 1
                for k in range(extent):
                    out[base + k] = work[k]
                width *= 2
            if descending:
                for k in range(extent // 2):
                    held = out[base + k]
                    out[base + k] = out[base + extent - 1 - k]
                    out[base + extent - 1 - k] = held

    return kernel


_KERNELS = {result: _merge_kernel(result) for result in ("values", "positions")}


def _topk_kernel(x: Any, values: Any, places: Any, params: Any, lo: int, hi: int) -> None:
    """The best k of a row by insertion: most elements lose to the k-th at the first comparison."""
    extent, count, largest = params[0], params[1], params[2]
    for row in range(lo, hi):
        base, made = row * extent, row * count
        for k in range(extent):
            value = x[base + k]
            spot = min(k, count)
            while spot > 0:
                other = values[made + spot - 1]
                if largest:
                    wins = value > other or (value != value and other == other)
                else:
                    wins = value < other or (other != other and value == value)
                if not wins:
                    break
                spot -= 1
            if spot == count:
                continue
            for place in range(made + min(k, count - 1), made + spot, -1):
                values[place] = values[place - 1]
                places[place] = places[place - 1]
            values[made + spot] = value
            places[made + spot] = k


def _rows(node: Any) -> int:
    dims = node.inputs[0].type.dims
    return math.prod(dims[:-1]) if math.prod(dims) else 0


def _sort_params(node: Any) -> tuple[int, ...]:
    return node.inputs[0].type.dims[-1], int(node.attrs["descending"])


# ------------------------------------------------------------------------------------ sort, argsort


def _infer_sort(name: str, result: Callable[[DType], DType]) -> Callable[..., Type]:
    def infer(x: AnyType, *, descending: bool) -> Type:
        x = tensor_type(name, x)
        require_dtype(name, x, SORTED)
        require(x.rank >= 1, f"{name} of a scalar")
        return tensor(result(x.dtype), x.shape)

    return infer


def _argsort_reference(x: Any, descending: bool) -> Any:
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    return x.shape[-1] - 1 - backwards[..., ::-1]


def _sort_reference(x: Any, descending: bool) -> Any:
    made = np.sort(x, axis=-1, kind="stable")
    return made[..., ::-1] if descending else made


def _row(name: str, seed: int = 0, shape: tuple[int, ...] = (3, 17)) -> Any:
    made = sample_array(name, shape, (-4, 4), seed)
    if made.dtype.kind == "f":
        made.reshape(-1)[::7] = np.nan
        made.reshape(-1)[1::5] = 0
    return made


def _sort_samples() -> list[Sample]:
    made = [Sample((_row(n),), {"descending": d}) for n in SORTED for d in (False, True)]
    made += [Sample((np.zeros(s, np.float32),)) for s in ((1,), (0,), (2, 0), (0, 3))]
    return [
        *made,
        Sample((_row("f64", 1, (1000,)),)),
        Sample((np.float32(1),), {}, False),
        Sample((np.zeros(3, bool),), {}, False),
    ]


sort_op = define(
    "sort",
    infer=_infer_sort("sort", lambda element: element),
    reference=_sort_reference,
    lower=Library(
        lambda node: _KERNELS["values"],
        _sort_params,
        lambda node: ((node.type.dtype, node.type.dims[-1]),),
        _rows,
    ),
    attrs=(Attr("descending", "bool", False),),
    dtypes=SORTED,
    samples=_sort_samples,
    doc="Rows (the last axis) in ascending or descending order; NaN counts as greatest.",
)

argsort_op = define(
    "argsort",
    infer=_infer_sort("argsort", lambda element: I64),
    reference=_argsort_reference,
    lower=Library(
        lambda node: _KERNELS["positions"],
        _sort_params,
        lambda node: ((I64, node.type.dims[-1]),),
        _rows,
    ),
    attrs=(Attr("descending", "bool", False),),
    dtypes=SORTED,
    differentiable=False,
    samples=_sort_samples,
    doc="The positions that sort each row; equal elements keep their order.",
)

# ------------------------------------------------------------------------------------ topk


def _infer_topk(x: AnyType, *, k: int, largest: bool) -> TupleType:
    x = tensor_type("topk", x)
    require_dtype("topk", x, SORTED)
    extent = x.shape[-1] if x.rank else 0
    require(x.rank > 0 and k > 0, f"topk of {x} with k = {k}")
    require(not isinstance(extent, int) or k <= extent, f"topk: k = {k} exceeds {extent} elements")
    shape = (*x.shape[:-1], k)
    return tuple_type((tensor(x.dtype, shape), tensor(I64, shape)))


def _topk_reference(x: Any, k: int, largest: bool) -> tuple[Any, Any]:
    places = _argsort_reference(x, largest)[..., :k]
    return np.take_along_axis(x, places, -1), places


def _topk_samples() -> list[Sample]:
    made = [Sample((_row(n),), {"k": 4, "largest": d}) for n in SORTED for d in (False, True)]
    return [
        *made,
        Sample((_row("f32"),), {"k": 17}),
        Sample((_row("f32", 2, (9,)),), {"k": 1}),
        Sample((np.zeros((0, 3)),), {"k": 2}),
        Sample((_row("f32"),), {"k": 18}, False),
        Sample((_row("f32"),), {"k": 0}, False),
    ]


topk_op = define(
    "topk",
    infer=_infer_topk,
    reference=_topk_reference,
    lower=Library(
        lambda node: _topk_kernel,
        lambda node: (
            node.inputs[0].type.dims[-1],
            node.attrs["k"],
            int(node.attrs["largest"]),
        ),
        units=_rows,
    ),
    attrs=(Attr("k", "int"), Attr("largest", "bool", True)),
    dtypes=SORTED,
    samples=_topk_samples,
    doc="The k greatest (or smallest) elements of each row in order, and their positions; of equal "
    "elements the first comes first.",
)

# ------------------------------------------------------------------------------------ functions


def _key(x: Any) -> Any:
    """x in a type that the kernels sort, by a map that keeps the order and can be undone."""
    element = common_element(x)[0]
    require(not element.is_complex, "complex numbers have no order here", hint="sort np.abs(x)")
    return functions.astype(x, U8 if element is BOOL else F32 if element.is_float and
                            element.compute is not element else element)  # fmt: skip


def _along(op: str, x: Any, axis: int | None, **attrs: Any) -> tuple[Any, int]:
    """(an op on rows applied along an axis, the axis)."""
    x = as_value(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = normalise_axis(axis, rank_of(x), op)
    return emit(op, moveaxis(_key(x), axis, -1), **attrs), axis


@public(np.sort, name="sort")
def sort(
    x: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *,
    descending: bool = False, stable: Any = None,
) -> Any:  # fmt: skip
    """x sorted along an axis (None: flattened), NaNs as the greatest values."""
    made, axis = _along("sort", x, axis, descending=descending)
    return functions.astype(moveaxis(made, -1, axis), common_element(x)[0])


@public(np.argsort, method=True)
def argsort(
    x: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *,
    descending: bool = False, stable: Any = None,
) -> Any:  # fmt: skip
    """The positions that sort x along an axis; always stable."""
    made, axis = _along("argsort", x, axis, descending=descending)
    return moveaxis(made, -1, axis)


# Above this many elements a full sort costs less than insertion into the list of the best.
INSERTION = 64


@public(name="topk")
def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """(values, positions) of the k greatest or smallest elements along an axis, in order."""
    x = as_value(x)
    axis = normalise_axis(axis, rank_of(x), "topk")
    require(int(k) > 0, f"topk: k must be positive, got {k}")
    if k <= INSERTION:
        values, places = emit("topk", moveaxis(_key(x), axis, -1), k=int(k), largest=largest)
        values = functions.astype(values, common_element(x)[0])
        return moveaxis(values, -1, axis), moveaxis(places, -1, axis)
    order = slice_axis(argsort(x, axis, descending=largest), axis, 0, int(k))
    return functions.take_along_axis(x, order, axis, mode="clip"), order


@public(np.partition)
def partition(x: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """x sorted along an axis, which is one of the orders np.partition may return."""
    _check_kth(x, kth, axis)
    return sort(x, axis)


@public(np.argpartition)
def argpartition(
    x: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None
) -> Any:
    """The positions that sort x along an axis, which is one answer np.argpartition may give."""
    _check_kth(x, kth, axis)
    return argsort(x, axis)


def _check_kth(x: Any, kth: Any, axis: int | None) -> None:
    dims = shape_of(x)
    extent = size_of(dims) if axis is None else dims[axis]
    for k in np.atleast_1d(kth):
        legal = not isinstance(extent, int) or -extent <= k < extent
        require(legal, f"partition: position {k} is out of range for extent {extent}")


@public(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Any:
    """Positions that sort by the last key, then the one before, and so on."""
    rows = list(keys) if isinstance(keys, tuple | list) else list(functions.unstack(keys))
    require(bool(rows), "lexsort needs a key")
    order = argsort(rows[0], axis)
    for key in rows[1:]:
        finer = argsort(functions.take_along_axis(key, order, axis, mode="clip"), axis)
        order = functions.take_along_axis(order, finer, axis, mode="clip")
    return order
