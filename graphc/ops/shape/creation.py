"""Arrays made from a shape or a count: iota, arange, linspace, full, eye, tri, and diagonals."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from graphc.errors import TraceError, TypeRuleError
from graphc.ir.op import EXTENT, OFFSET, Attr, Compute, Sample
from graphc.ir.promotion import promote
from graphc.ir.sizes import Size, greatest, least
from graphc.ir.types import BOOL, F64, I64, AnyType, Dim, Dimension, DType, Type, tensor
from graphc.loops.nest import Scalars
from graphc.loops.scalars import fma
from graphc.ops.record.arguments import Applied, ArrayLike, DTypeLike, Read, ShapeLike
from graphc.ops.record.batching import constant, leading
from graphc.ops.record.dims import as_shape, rank_of, samples_of, shape_of, tensor_type
from graphc.ops.record.families import (
    FLOATS,
    REAL,
    as_dtype,
    define,
    elementwise,
    require,
    require_options,
)
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    emit,
    emit_promoted,
    functions,
    is_python_number,
    public,
)
from graphc.ops.shape.manipulation import moveaxis
from graphc.ops.shape.shape import broadcast_arrays, broadcast_to, reshape
from graphc.ops.shape.slicing import slice_extent

# ------------------------------------------------------------------------------------ iota


def _infer_iota(*, extent: Dimension, dtype: DType) -> Type:
    return tensor(dtype, (extent,))


def _iota(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    element = node.type.dtype
    return index[0].cast(element.compute).cast(element)


iota_op = define(
    "iota",
    batch=constant,
    infer=_infer_iota,
    reference=lambda extent, dtype: np.arange(extent).astype(dtype.numpy),
    lower=Compute(_iota),
    attrs=(Attr("extent", "dim", within=EXTENT), Attr("dtype", "dtype", "i64", choices=REAL)),
    dtypes=(),
    differentiable=False,
    samples=lambda: [
        *(Sample((), {"extent": 5, "dtype": n}) for n in REAL),
        Sample((), {"extent": 0}),
        Sample((), {"extent": -1}, good=False),
        Sample((), {"extent": 3, "dtype": "bool"}, good=False),
    ],
    doc="0, 1, 2, ... up to before the extent.",
)


define(
    "extent",
    batch=constant,
    infer=lambda extent: tensor(I64, ()),
    reference=lambda extent: np.array(extent),  # an object where it is open
    lower=Compute(lambda b, node, read, index: b.integer(node.attrs["extent"])),
    attrs=(Attr("extent", "dim", within=OFFSET),),
    dtypes=(),
    differentiable=False,
    samples=lambda: [
        Sample((), {"extent": 5}),
        Sample((), {"extent": 0}),
        Sample((), {"extent": -5}),
        Sample((), {"extent": -(1 << 60)}, good=False),
    ],
    doc="A dimension as a number.",
)


def iota(extent: Dimension, element: Any = I64) -> Any:
    """0, 1, 2, ... of an element type."""
    return emit("iota", extent=extent, dtype=as_dtype(element))


def _bound(value: Any) -> Any:
    """A bound of arange: a number, never traced."""
    if isinstance(value, Value):
        raise TraceError(
            "arange with a traced bound has a length that depends on data",
            hint="a single integer n is counted: gc.arange(gc.ceil(n).astype('i64'))",
        )
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


@public(np.arange)
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, **options: Any) -> Any:
    """np.arange; bounds may be symbolic dimensions, and the end a traced integer."""
    require_options("arange", options)
    if isinstance(start, Value) and stop is None and start.element.is_integer:
        count = start.owner.data_size("arange", functions.maximum(functions.astype(start, I64), 0))
        return iota(count, I64 if dtype is None else as_dtype(dtype))
    start, stop = (0, start) if stop is None else (start, stop)
    start, stop, step = (_bound(v) for v in (start, stop, step))
    require(isinstance(step, Dim) or step != 0, "arange: the step is 0")
    whole = not any(isinstance(v, float) for v in (start, stop, step))
    element = as_dtype(dtype) if dtype is not None else I64 if whole else F64
    if whole:
        count = slice_extent(start, stop, operator.index(step))
    else:
        count = max(0, math.ceil((stop - start) / step))
    if not isinstance(start, Dim) and start == 0 and step == 1:
        return iota(count, element)
    if isinstance(start, Dim):
        raise TypeRuleError(f"arange: a symbolic start {start}", hint="start at 0 and add")
    work = F64 if element.is_float else element
    spacing = step
    if element.is_float:
        spacing = as_number(start + step, work) - as_number(start, work)
    made = functions.add(functions.multiply(iota(count, work), spacing), start)
    return functions.astype(made, element)


def as_number(value: Any, element: DType) -> Any:
    return float(value) if element.is_float else int(value)


elementwise(
    "progression",
    lambda k, step, start: fma(k, step, -0.0) + start,
    lambda k, step, start: k * step + start,
    arity=3,
    dtypes=FLOATS,
    flops=2,
    public_name="",
    gradient=lambda ct, made, k, step, start: (ct * step, ct * k, ct),
    doc="k * step + start with the product rounded by itself, as numbers that others are compared "
    "with must be wherever they are computed.",
)


@public(np.linspace)
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Any:
    """`num` values from start to stop, which may be traced arrays; the last one is stop exactly."""
    count = num if isinstance(num, Size) else operator.index(num)
    require(count >= 0, f"linspace: {count} values")
    common = common_element(start, stop)[0]
    work = common if common.kind in "fc" else F64
    start, stop = (functions.astype(v, work) for v in (start, stop))
    gaps = greatest(count - 1 if endpoint else count, 1)
    known = not isinstance(gaps, Size)
    step = (stop - start) / (
        as_number(gaps, work.real) if known else functions.astype(as_value(gaps), work.real)
    )
    rank = max(rank_of(start), rank_of(stop))
    places = reshape(iota(count), (count,) + (1,) * rank)
    places = functions.astype(places, work)
    made = places * step + start if work.is_complex else emit("progression", places, step, start)
    if endpoint and (not known or count > 1):  # of one value the last place is no one's
        made = functions.where(functions.equal(places, gaps), stop, made)
    if dtype is not None:
        made = functions.floor(made) if as_dtype(dtype).is_integer else made
        made = functions.astype(made, as_dtype(dtype))
    made = moveaxis(made, 0, axis) if rank else made
    return (made, step) if retstep else made


@public(np.logspace)
def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Any:
    """base to the powers of a linspace; start, stop and base may be arrays."""
    if rank_of(base):
        rank = max(rank_of(start), rank_of(stop), rank_of(base))
        start, stop, base = (
            reshape(v, (1,) * (rank - rank_of(v)) + tuple(shape_of(v))) for v in (start, stop, base)
        )
        base = functions.expand_dims(base, axis)
    made = functions.power(base, linspace(start, stop, num, endpoint, axis=axis))
    return made if dtype is None else functions.astype(made, as_dtype(dtype))


@public(np.geomspace)
def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Any:
    """`num` values from start to stop, each the same multiple of the one before; neither is 0.

    On the way from one real number to another none changes its sign.
    """
    f, work = functions, promote(common_element(start, stop)[0], F64)
    start, stop = broadcast_arrays(f.astype(start, work), f.astype(stop, work))
    turn = f.sign(start)
    first, last = f.divide(start, turn), f.divide(stop, turn)
    made = logspace(f.log10(first), f.log10(last), num, endpoint)
    place = reshape(iota(num), (num,) + (1,) * rank_of(first))
    made = f.where(f.equal(place, 0), first, made)
    made = f.where(f.equal(place, num - 1), last, made) if endpoint and num > 1 else made
    made = moveaxis(f.multiply(made, turn), 0, axis) if rank_of(first) else f.multiply(made, turn)
    return made if dtype is None else f.astype(made, as_dtype(dtype))


# ------------------------------------------------------------------------------------ constant fill


@public(np.full)
def full(
    shape: ShapeLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = "C",
    **options: object,
) -> Any:
    """An array of one value, which may be traced and broadcasts to the shape."""
    require_options("full", {"order": order, **options})
    source = common_element(fill_value)[0]
    element = as_dtype(dtype) if dtype is not None else source
    if source.is_complex and not element.is_complex:
        fill_value = functions.astype(as_value(fill_value), element)
    return emit_promoted("broadcast", fill_value, element=element, dims=as_shape(shape))


def _filled(shape: ShapeLike, value: int, dtype: DType) -> Any:
    element = F64 if dtype is None else as_dtype(dtype)
    return full(shape, bool(value) if element is BOOL else value, element)


@public(np.zeros)
def zeros(shape: Any, dtype: Any = None, order: str = "C", **options: object) -> Any:
    """Zeros; f64 by default as in NumPy."""
    require_options("zeros", {"order": order, **options})
    return _filled(shape, 0, dtype)


@public(np.ones)
def ones(shape: Any, dtype: Any = None, order: str = "C", **options: object) -> Any:
    """Ones; f64 by default as in NumPy."""
    require_options("ones", {"order": order, **options})
    return _filled(shape, 1, dtype)


@public(np.empty)
def empty(shape: Any, dtype: Any = None, order: str = "C", **options: object) -> Any:
    """Zeros: graphc has no undefined contents."""
    require_options("empty", {"order": order, **options})
    return _filled(shape, 0, dtype)


@public(np.full_like)
def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    **options: object,
) -> Any:
    """One value in the shape and dtype of x."""
    require_options("full_like", {"order": order, "subok": subok, **options})
    element = common_element(x)[0] if dtype is None else as_dtype(dtype)
    if element is BOOL and is_python_number(fill_value):
        fill_value = bool(fill_value)
    return full(shape_of(x) if shape is None else shape, fill_value, element)


@public(np.zeros_like)
def zeros_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    **options: object,
) -> Any:
    """Zeros in the shape and dtype of x."""
    require_options("zeros_like", {"order": order, "subok": subok, **options})
    return full_like(x, 0, dtype, shape=shape)


@public(np.ones_like)
def ones_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    **options: object,
) -> Any:
    """Ones in the shape and dtype of x."""
    require_options("ones_like", {"order": order, "subok": subok, **options})
    return full_like(x, 1, dtype, shape=shape)


@public(np.empty_like)
def empty_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    order: str = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    **options: object,
) -> Any:
    """Zeros in the shape and dtype of x: graphc has no undefined contents."""
    require_options("empty_like", {"order": order, "subok": subok, **options})
    return full_like(x, 0, dtype, shape=shape)


# ------------------------------------------------------------------------------------ triangles


def band(rows: Dimension, columns: Dimension, k: Any, compare: str) -> Any:
    """The bool matrix of `column compare row + k`; all k beyond a corner are alike."""
    if isinstance(k, int) and isinstance(rows, int) and isinstance(columns, int):
        k = max(-rows, min(k, columns))
    row = reshape(iota(rows), (rows, 1)) + k
    return getattr(functions, compare)(iota(columns), row)


@public(np.eye)
def eye(n: Any, m: Any = None, k: Any = 0, dtype: DTypeLike | None = None, **options: Any) -> Any:
    """Ones on the k-th diagonal, zeros elsewhere; f64 by default."""
    require_options("eye", options)
    element = F64 if dtype is None else as_dtype(dtype)
    return functions.astype(band(n, n if m is None else m, k, "equal"), element)


@public(np.identity)
def identity(n: ArrayLike, dtype: DTypeLike | None = None) -> Any:
    """The unit matrix."""
    return eye(n, dtype=dtype)


@public(np.tri)
def tri(n: Any, m: Any = None, k: Any = 0, dtype: DTypeLike | None = None, **options: Any) -> Any:
    """Ones at and below the k-th diagonal, zeros above."""
    require_options("tri", options)
    element = F64 if dtype is None else as_dtype(dtype)
    return functions.astype(band(n, n if m is None else m, k, "less_equal"), element)


def _triangle(x: Any, k: ArrayLike, keep: str) -> Any:
    x = broadcast_to(x, shape_of(x) * 2) if rank_of(x) == 1 else x
    rows, columns = shape_of(x)[-2:]
    kept = band(rows, columns, k, keep)
    return functions.where(kept, x, zeros((), common_element(x)[0]))


@public(np.tril)
def tril(x: ArrayLike, k: ArrayLike = 0) -> Any:
    """x at and below its k-th diagonal, zeros above."""
    return _triangle(x, k, "less_equal")


@public(np.triu)
def triu(x: ArrayLike, k: ArrayLike = 0) -> Any:
    """x at and above its k-th diagonal, zeros below."""
    return _triangle(x, k, "greater_equal")


# ------------------------------------------------------------------------------------ diagonals


def _infer_diagonal(x: AnyType, *, offset: int) -> Type:
    x = tensor_type("diagonal", x)
    require(x.rank >= 2, f"diagonal needs two axes, got {x}")
    rows, columns = x.shape[-2] + min(offset, 0), x.shape[-1] - max(offset, 0)
    if isinstance(rows, int | Size) and isinstance(columns, int | Size):
        return tensor(x.dtype, (*x.shape[:-2], greatest(0, least(rows, columns))))
    require(rows is columns, f"the length of the diagonal of {x} is not known")
    return tensor(x.dtype, (*x.shape[:-2], rows))


def _diagonal(b: Scalars, node: Applied, read: Read, index: tuple[Any, ...]) -> Any:
    offset, place = node.attrs["offset"], index[-1]
    row = b.affine([(place, 1)], max(-offset, 0))
    return read(0, (*index[:-1], row, b.affine([(place, 1)], max(offset, 0))))


def _near(offset: int, shape: tuple[int, ...]) -> int:
    """The offset, or one of an empty diagonal that NumPy has integers for."""
    return max(-shape[-2], min(offset, shape[-1]))


def _diagonal_gradient(ct: Value, result: Value, x: Value, *, offset: int) -> list[Any]:
    """The diagonal of a row-major matrix is every (columns + 1)-th element: one strided write."""
    *lead, rows, columns = x.shape
    flat = functions.zeros((*lead, rows * columns), x.element)
    starts = (0,) * len(lead) + (max(-offset, 0) * columns + max(offset, 0),)
    steps = (1,) * len(lead) + (columns + 1,)
    placed = emit("slice_update", flat, ct, starts=starts, steps=steps)
    return [reshape(placed, x.shape)]


diagonal_op = define(
    "diagonal",
    batch=leading,
    gradient=_diagonal_gradient,
    infer=_infer_diagonal,
    reference=lambda x, offset: np.diagonal(x, _near(offset, x.shape), -2, -1),
    lower=Compute(_diagonal),
    attrs=(Attr("offset", "int", 0, within=OFFSET),),
    samples=samples_of(
        [
            ([(2, 3, 4)], {"offset": 1}),
            ([(5, 3)], {"offset": -3}),
            ([(2, 3)], {"offset": 9}),
            ([(3, 3)], {}),
        ],
        [([(4,)], {"offset": 0})],
    ),
    doc="The elements [..., i, i + offset] of the last two axes.",
)


@public(np.diagonal, method=True)
def diagonal(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """A diagonal over two axes, as the last axis of the result."""
    return emit("diagonal", moveaxis(x, (axis1, axis2), (-2, -1)), offset=offset)


@public(np.diag)
def diag(v: ArrayLike, k: int = 0) -> Any:
    """The matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix."""
    if rank_of(v) == 2:
        return diagonal(v, k)
    require(rank_of(v) == 1, f"diag takes a vector or a matrix, got shape {list(shape_of(v))}")
    extent = shape_of(v)[0]
    padded = functions.pad(v, (max(k, 0), max(-k, 0)))
    total = extent + abs(k)
    # Column c of the result holds v[c - k]; the row picks it where row + k == column.
    return functions.where(band(total, total, k, "equal"), padded, zeros((), common_element(v)[0]))


@public(np.diagflat)
def diagflat(v: ArrayLike, k: int = 0) -> Any:
    """The matrix with the elements of v on its k-th diagonal."""
    return diag(reshape(v, -1), k)


@public(np.trace, method=True)
def trace(
    x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None
) -> Any:
    """The sum of a diagonal."""
    return functions.sum(diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)
