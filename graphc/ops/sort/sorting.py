"""Sorting: rows of keys by library kernels, every dtype and order as a map to and from keys.

An unsigned key has the order that is wanted of its element:

    integers     the sign bit flipped
    floats       all bits flipped if negative, the sign bit otherwise; NaN is the greatest
    descending   all bits of the key flipped: equal elements keep their order, NaNs come first
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import POSITIVE, Attr, Composite, Library, Sample
from graphc.ir.sizes import Size
from graphc.ir.types import (
    BOOL,
    DTYPES,
    I64,
    U8,
    AnyType,
    DType,
    TupleType,
    Type,
    tensor,
    tuple_type,
)
from graphc.ops.index.scatter import add_along
from graphc.ops.linalg.matmul import accumulable
from graphc.ops.record.arguments import Applied, Array, ArrayLike
from graphc.ops.record.batching import leading
from graphc.ops.record.dims import rank_of, samples_of, shape_of, size_of, tensor_type
from graphc.ops.record.families import (
    REAL,
    UNSIGNED,
    as_dtype,
    define,
    device_code,
    normalise_axis,
    require,
    require_dtype,
    sample_array,
)
from graphc.ops.record.value import Value, as_value, common_element, emit, functions, public
from graphc.ops.shape.manipulation import moveaxis
from graphc.ops.shape.shape import reshape
from graphc.ops.shape.slicing import slice_axis
from graphc.ops.sort.sort_kernels import INSERTION, RADIX, Kernel, topk_kernel
from graphc.ops.sort.sort_nests import network
from graphc.ops.tuning import tuned

# ------------------------------------------------------------------------------------ rows of keys


def _rows(node: Applied) -> int:
    dims = node.inputs[0].type.dims
    return math.prod(dims[:-1]) if math.prod(dims) else 0


def _check_rows(name: str, x: AnyType, allowed: tuple[str, ...]) -> Type:
    x = tensor_type(name, x)
    require_dtype(name, x, allowed)
    require(x.rank >= 1, f"{name} of a scalar")
    return x


def _key_library(result: str, cuda: str) -> Library:
    """A network for many rows; insertion for short ones; else radix, with a row and the counts of
    all bytes as scratch.
    """

    def short(node: Applied) -> bool:
        length = node.type.dims[-1]
        return not isinstance(length, Size) and length <= tuned.insertion_row

    def kernel(node: Applied) -> Kernel:
        return (INSERTION if short(node) else RADIX)[result]

    def workspace(node: Applied) -> tuple[tuple[DType, int], ...]:
        row = (node.type.dtype, node.type.dims[-1])
        return () if short(node) else (row, (I64, 256 * node.inputs[0].type.dtype.itemsize))

    def params(node: Applied) -> tuple[int, ...]:
        return node.type.dims[-1], node.inputs[0].type.dtype.itemsize

    code = device_code("sort.sort_launches", cuda)
    native = {"keys": "sort", "positions": "order"}[result]
    return Library(kernel, params, workspace, _rows, code, network, native=native)


_KEY_SAMPLES = samples_of(
    [
        ([(3, 100)], {}),
        ([(4, 7)], {}),
        ([(1,)], {}),
        ([(0, 50)], {}),
        ([(2, 0)], {}),
        ([(1000,)], {}),
    ],
    [([()], {})],
    dtypes=UNSIGNED,
)

sort_keys_op = define(
    "sort_keys",
    batch=leading,
    infer=lambda keys: _check_rows("sort_keys", keys, UNSIGNED),
    reference=lambda keys: np.sort(keys, axis=-1),
    lower=_key_library("keys", "sort_code"),
    dtypes=UNSIGNED,
    differentiable=False,
    samples=_KEY_SAMPLES,
    doc="Rows of unsigned keys in ascending order.",
)

argsort_keys_op = define(
    "argsort_keys",
    batch=leading,
    infer=lambda keys: tensor(I64, _check_rows("argsort_keys", keys, UNSIGNED).shape),
    reference=lambda keys: np.argsort(keys, axis=-1, kind="stable"),
    lower=_key_library("positions", "argsort_code"),
    dtypes=UNSIGNED,
    differentiable=False,
    samples=_KEY_SAMPLES,
    doc="The positions that sort each row of unsigned keys; equal keys keep their order.",
)


def _infer_topk(name: str, allowed: tuple[str, ...]) -> Callable[..., TupleType]:
    def infer(x: AnyType, *, k: int, largest: bool = True) -> TupleType:
        x = _check_rows(name, x, allowed)
        extent = x.shape[-1]
        require(k > 0, f"{name}: k must be positive, got {k}")
        fits = not isinstance(extent, int) or k <= extent
        require(fits, f"{name}: k = {k} exceeds {extent} elements")
        shape = (*x.shape[:-1], k)
        return tuple_type((tensor(x.dtype, shape), tensor(I64, shape)))

    return infer


topk_keys_op = define(
    "topk_keys",
    batch=leading,
    infer=_infer_topk("topk_keys", UNSIGNED),
    reference=lambda keys, k: (
        np.sort(keys, axis=-1)[..., :k],
        np.argsort(keys, axis=-1, kind="stable")[..., :k],
    ),
    lower=Library(
        lambda node: topk_kernel,
        lambda node: (node.inputs[0].type.dims[-1], node.attrs["k"]),
        units=_rows,
        cuda=device_code("sort.sort_launches", "topk_code"),
        native="select",
    ),
    attrs=(Attr("k", "int", within=POSITIVE),),
    dtypes=UNSIGNED,
    differentiable=False,
    samples=samples_of(
        [([(3, 17)], {"k": 4}), ([(9,)], {"k": 9}), ([(0, 3)], {"k": 2})],
        [([(9,)], {"k": 10}), ([(9,)], {"k": 0}), ([()], {"k": 1})],
        dtypes=UNSIGNED,
    ),
    doc="The least k keys of each row in order, and their positions.",
)

# ------------------------------------------------------------------------------------ keys


def _sign_bit(element: DType) -> int:
    return 1 << (element.bits - 1)


def _encoded(x: ArrayLike, descending: bool, zeros_equal: bool) -> Any:
    """The keys of x. With `zeros_equal` -0.0 has the key of 0.0 and cannot be told from it."""
    element = common_element(x)[0].compute  # 16-bit floats sort as f32
    kind = DTYPES[f"u{element.bits}"]
    f, top = functions, _sign_bit(element)
    x = f.astype(x, element)
    key = x if element is kind else f.view(x, kind)
    if element.kind == "i":
        key = f.bitwise_xor(key, top)
    if element.kind == "f":
        negative = f.not_equal(f.bitwise_and(key, top), 0)
        key = f.bitwise_xor(key, f.where(negative, _all_bits(kind), _literal(top, kind)))
        key = f.where(f.isnan(x), _all_bits(kind), key)
        key = f.where(f.equal(x, 0), _literal(top, kind), key) if zeros_equal else key
    return f.bitwise_not(key) if descending else key


def _decoded(key: ArrayLike, element: DType, descending: bool) -> Any:
    """The elements of keys; any NaN comes back as one NaN."""
    result, element = element, element.compute
    kind = DTYPES[f"u{element.bits}"]
    f, top = functions, _sign_bit(element)
    key = f.bitwise_not(key) if descending else key
    if element.kind == "i":
        key = f.bitwise_xor(key, top)
    if element.kind == "f":
        positive = f.not_equal(f.bitwise_and(key, top), 0)
        key = f.bitwise_xor(key, f.where(positive, _literal(top, kind), _all_bits(kind)))
    return f.astype(key if element is kind else f.view(key, element), result)


def _literal(value: int, kind: DType) -> Any:
    return np.asarray(value, kind.numpy)


def _all_bits(kind: DType) -> Any:
    return np.asarray((1 << kind.bits) - 1, kind.numpy)


# ------------------------------------------------------------------------------------ the ops


def _argsort_reference(x: Array, descending: bool) -> Any:
    x = accumulable(x)  # NumPy does not sort bf16
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    return x.shape[-1] - 1 - backwards[..., ::-1]


def _sort_reference(x: Array, descending: bool) -> Any:
    return np.take_along_axis(x, _argsort_reference(x, descending), -1)


def _topk_reference(x: Array, k: int, largest: bool) -> tuple[Any, Any]:
    places = _argsort_reference(x, largest)[..., :k]
    return np.take_along_axis(x, places, -1), places


def _row(name: str, seed: int = 0, shape: tuple[int, ...] = (3, 47)) -> Any:
    made = sample_array(name, shape, (-4, 4), seed)
    if DTYPES[name].is_float:
        made.reshape(-1)[::7] = np.nan
        made.reshape(-1)[1::5] = 0
        made.reshape(-1)[3::11] = -np.inf
    return made


def _sort_samples() -> list[Sample]:
    made = [Sample((_row(n),), {"descending": d}) for n in REAL for d in (False, True)]
    made += [Sample((np.zeros(s, np.float32),)) for s in ((1,), (0,), (2, 0), (0, 3))]
    return [
        *made,
        Sample((_row("f64", 1, (1000,)),)),
        Sample((_row("i16", 1, (4, 9)),)),
        Sample((np.float32(1),), {}, False),
        Sample((np.zeros(3, bool),), {}, False),
    ]


def _sort_gradient(ct: Value, result: Value, x: Value, *, descending: bool) -> list[Any]:
    places = emit("argsort", x, descending=descending)
    return [add_along(x.type.dims, places, len(x.shape) - 1, ct)]


sort_op = define(
    "sort",
    batch=leading,
    gradient=_sort_gradient,
    infer=lambda x, descending: _check_rows("sort", x, REAL),
    reference=_sort_reference,
    lower=Composite(
        lambda x, descending: _decoded(
            emit("sort_keys", _encoded(x, descending, False)), x.element, descending
        )
    ),
    attrs=(Attr("descending", "bool", False),),
    dtypes=REAL,
    samples=_sort_samples,
    doc="Rows (the last axis) in ascending or descending order; NaN counts as greatest.",
)

argsort_op = define(
    "argsort",
    batch=leading,
    infer=lambda x, descending: tensor(I64, _check_rows("argsort", x, REAL).shape),
    reference=_argsort_reference,
    lower=Composite(lambda x, descending: emit("argsort_keys", _encoded(x, descending, True))),
    attrs=(Attr("descending", "bool", False),),
    dtypes=REAL,
    differentiable=False,
    samples=_sort_samples,
    doc="The positions that sort each row; equal elements keep their order.",
)


def _expand_topk(x: Value, k: int, largest: bool) -> tuple[Any, Any]:
    if k > tuned.listed:
        places = slice_axis(emit("argsort", x, descending=largest), rank_of(x) - 1, 0, k)
    else:
        _, places = emit("topk_keys", _encoded(x, largest, True), k=k)
    return functions.take_along_axis(x, places, -1, mode="clip"), places


def _topk_samples() -> list[Sample]:
    made = [Sample((_row(n),), {"k": 4, "largest": d}) for n in REAL for d in (False, True)]
    return [
        *made,
        Sample((_row("f32", 1, (2, 90)),), {"k": 70}),
        Sample((_row("f32", 2, (9,)),), {"k": 1}),
        Sample((np.zeros((0, 3)),), {"k": 2}),
        Sample((_row("f32"),), {"k": 48}, False),
        Sample((_row("f32"),), {"k": 0}, False),
    ]


def _topk_gradient(ct: Any, result: Any, x: Any, *, k: int, largest: bool) -> list[Any]:
    if ct[0] is None:
        return [None]
    return [add_along(x.type.dims, result[1], len(x.shape) - 1, ct[0])]


topk_op = define(
    "topk",
    batch=leading,
    gradient=_topk_gradient,
    infer=_infer_topk("topk", REAL),
    reference=_topk_reference,
    lower=Composite(_expand_topk),
    attrs=(Attr("k", "int", within=POSITIVE), Attr("largest", "bool", True)),
    dtypes=REAL,
    samples=_topk_samples,
    doc="The k greatest (or smallest) elements of each row in order, and their positions; of equal "
    "elements the first comes first.",
)

# ------------------------------------------------------------------------------------ functions


def _along(op: str, x: Value, axis: int | None, **attrs: object) -> tuple[Any, int]:
    """(an op on rows applied along an axis, the axis)."""
    x = as_value(x)
    element = common_element(x)[0]
    require(not element.is_complex, "complex numbers have no order here", hint="sort np.abs(x)")
    x = functions.astype(x, U8) if element is BOOL else x
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = normalise_axis(axis, rank_of(x), op)
    return emit(op, moveaxis(x, axis, -1), **attrs), axis


def _require_plain(name: str, kind: str | None, order: str | None) -> None:
    """Refuse kinds of sorting that there are not, and an order of fields."""
    kinds = (None, "quicksort", "mergesort", "heapsort", "stable")
    require(kind in kinds, f"{name}: no kind {kind!r}", hint=", ".join(map(str, kinds[1:])))
    require(order is None, f"{name}: order= is of arrays with fields, which are none here")


@public(np.sort, name="sort")
def sort(
    x: Any,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = None,
) -> Any:
    """x sorted along an axis (None: flattened), NaNs as the greatest values."""
    _require_plain("sort", kind, order)
    if common_element(x)[0].is_complex and not descending:
        x, axis = (reshape(x, -1), 0) if axis is None else (x, axis)
        return functions.take_along_axis(x, argsort(x, axis), axis, mode="clip")
    made, axis = _along("sort", x, axis, descending=descending)
    return functions.astype(moveaxis(made, -1, axis), common_element(x)[0])


@public(np.argsort, method=True)
def argsort(
    x: Any,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = None,
) -> Any:
    """The positions that sort x along an axis; always stable. Complex numbers are ordered by their
    real parts, then by their imaginary parts; those with a NaN come last, as NumPy has them."""
    _require_plain("argsort", kind, order)
    if common_element(x)[0].is_complex and not descending:
        x, axis = (reshape(x, -1), 0) if axis is None else (as_value(x), axis)
        real, imaginary = functions.real(x), functions.imag(x)
        missing = functions.astype(functions.isnan(real), U8) * 2 + functions.isnan(imaginary)
        return lexsort((imaginary, real, missing), axis)
    made, axis = _along("argsort", x, axis, descending=descending)
    return moveaxis(made, -1, axis)


@public(name="topk")
def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """(values, positions) of the k greatest or smallest elements along an axis, in order."""
    if isinstance(k, Size):  # which the op would need the number of
        x, axis = (reshape(as_value(x), -1), 0) if axis is None else (as_value(x), axis)
        places = slice_axis(argsort(x, axis, descending=largest), axis, 0, k)
        return functions.take_along_axis(x, places, axis, mode="clip"), places
    (values, places), axis = _along("topk", x, axis, k=int(k), largest=largest)
    values = functions.astype(values, common_element(x)[0])
    return moveaxis(values, -1, axis), moveaxis(places, -1, axis)


@public(np.partition)
def partition(
    x: Any, kth: Any, axis: int | None = -1, kind: str | None = None, order: str | None = None
) -> Any:
    """x sorted along an axis, which is one of the orders np.partition may return."""
    _check_kth(x, kth, axis)
    return sort(x, axis)


@public(np.argpartition, method=True)
def argpartition(
    x: Any, kth: Any, axis: int | None = -1, kind: str | None = None, order: str | None = None
) -> Any:
    """The positions that sort x along an axis, which is one answer np.argpartition may give."""
    _check_kth(x, kth, axis)
    return argsort(x, axis)


def _check_kth(x: Value, kth: Value, axis: int | None) -> None:
    dims = shape_of(x)
    extent = size_of(dims) if axis is None else dims[axis]
    for k in np.atleast_1d(kth):
        legal = not isinstance(extent, int) or 0 in dims or -extent <= k < extent
        require(legal, f"partition: position {k} is out of range for extent {extent}")


@public(np.sort_complex)
def sort_complex(a: ArrayLike) -> Any:
    """The elements along the last axis in ascending order, as complex numbers."""
    element = common_element(a)[0]
    small = element.is_integer and element.bits <= 16
    kind = element if element.is_complex else as_dtype("c64" if small else "c128")
    return functions.astype(sort(a), kind)


@public(np.lexsort)
def lexsort(keys: ArrayLike, axis: int = -1) -> Any:
    """Positions that sort by the last key, then the one before, and so on."""
    rows = list(keys) if isinstance(keys, tuple | list) else list(functions.unstack(keys))
    require(bool(rows), "lexsort needs a key")
    order = argsort(rows[0], axis)
    for key in rows[1:]:
        finer = argsort(functions.take_along_axis(key, order, axis, mode="clip"), axis)
        order = functions.take_along_axis(order, finer, axis, mode="clip")
    return order
