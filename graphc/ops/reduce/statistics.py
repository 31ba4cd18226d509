"""Reductions made of reductions: variance, logsumexp, norms, averages and NaN-ignoring forms.

`var`, `std` and `logsumexp` are one node in a trace and are expanded by the compiler; the others
are plain functions over the public ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import FINITE, Attr, Composite, Sample
from graphc.ir.promotion import promote
from graphc.ir.sizes import Size
from graphc.ir.types import F64, AnyType, DType, Type, tensor
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Axes, DTypeLike
from graphc.ops.record.batching import along
from graphc.ops.record.families import (
    COMPLEX,
    FLOATS,
    as_dtype,
    define,
    normalise_axes,
    require,
    sample_array,
    wide,
)
from graphc.ops.record.value import Value, as_value, element_of, emit, functions, public
from graphc.ops.reduce.reduce import AXES, masked, no_out, reduction_type
from graphc.ops.reduce.reduce_gradients import unreduced

# --------------------------------------------------------------------------------------- composites


def in_compute_type(x: ArrayLike) -> tuple[Any, DType]:
    """x in the type arithmetic happens in (f16 and bf16 widen to f32), and its own dtype."""
    element = element_of(x)[0]
    return functions.astype(x, element.compute), element


def composite_cost(passes: float) -> Callable[..., tuple[float, float]]:
    """cost(node) of an op that goes over operand 0 `passes` times."""

    def cost(node: Applied) -> tuple[float, float]:
        read = sum(n.type.nbytes for n in node.inputs)
        return passes * node.inputs[0].type.size, float(read + node.type.nbytes)

    return cost


def _variance_type(x: AnyType, *, axes: tuple[int, ...], keepdims: bool, correction: float) -> Type:
    kind = reduction_type("var", x, axes, keepdims, FLOATS + COMPLEX)
    return tensor(kind.dtype.real, kind.shape)


def _degrees(count: Any, correction: float) -> Any:
    if isinstance(count, Size):
        return functions.maximum(count + -correction, 0.0)
    return max(count - correction, 0.0)


def _expand_var(x: Value, *, axes: tuple[int, ...], keepdims: bool, correction: float) -> Any:
    f, (y, element) = functions, in_compute_type(x)
    centred = f.subtract(y, f.mean(y, axes, keepdims=True))
    squares = f.square(f.absolute(centred) if element.is_complex else centred)
    if correction == 0:
        made = f.mean(squares, axes, keepdims=keepdims)
    else:
        count = math.prod(x.type.dims[a] for a in axes)
        made = f.divide(f.sum(squares, axes, keepdims=keepdims), _degrees(count, correction))
    return f.astype(made, element.real)


def _expand_std(x: ArrayLike, **attrs: Any) -> Any:
    y, element = in_compute_type(x)
    return functions.astype(functions.sqrt(_expand_var(y, **attrs)), element.real)


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Array, axes: tuple[int, ...], keepdims: bool, correction: float) -> Any:
        x = x.astype(np.result_type(x.dtype, np.float64))
        return function(x, axis=axes, keepdims=keepdims, ddof=correction)

    return reference


def _axes_samples(dtypes: tuple[str, ...], **attrs: object) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        def sample(name: str, shape: tuple[int, ...], good: bool = True, **more: object) -> Sample:
            array = sample_array(name, shape, (-4.0, 4.0), len(shape))
            return Sample((array,), {**attrs, **more}, good=good, tolerance=4)

        made = [sample(name, (3, 8), axes=(1,)) for name in dtypes]
        made += [sample("f32", (3, 4, 5), axes=a, keepdims=True) for a in ((0,), (0, 2), (0, 1, 2))]
        return [*made, sample("f32", (200,), axes=(0,)), sample("f32", (3,), False, axes=(1,))]

    return samples


def _spread_gradient(
    ct: Value, x: Value, root: Any, *, axes: tuple[int, ...], keepdims: bool, correction: float
) -> list[Any]:
    """2 (x - mean) / (count - correction), halved and over the root for std."""
    f, (y, element) = functions, in_compute_type(x)
    count = _degrees(math.prod(x.type.dims[a] for a in axes), correction)
    factor = f.divide(2, count) if isinstance(count, Value) else 2 / count if count else math.inf
    scale = f.divide(f.multiply(ct, factor), root)
    scale = f.astype(unreduced(scale, axes, keepdims), element.compute.real)
    centred = f.subtract(y, f.mean(y, axes, keepdims=True))
    return [f.astype(f.multiply(scale, centred), element)]


def _var_gradient(ct: Value, result: Value, x: Value, **attrs: Any) -> list[Any]:
    return _spread_gradient(ct, x, 1, **attrs)


def _std_gradient(ct: Value, result: Value, x: Value, **attrs: Any) -> list[Any]:
    """Where all elements are equal the root has no slope: 0, as their distance from the mean."""
    f = functions
    return _spread_gradient(ct, x, f.multiply(f.where(f.equal(result, 0), 1, result), 2), **attrs)


for _name, _expand, _function, _gradient in (
    ("var", _expand_var, np.var, _var_gradient),
    ("std", _expand_std, np.std, _std_gradient),
):
    define(
        _name,
        batch=along("axes"),
        gradient=_gradient,
        infer=_variance_type,
        reference=wide(_spread(_function)),
        lower=Composite(_expand),
        attrs=(*AXES, Attr("correction", "float", 0.0, within=FINITE)),
        dtypes=FLOATS + COMPLEX,
        cost=composite_cost(4),
        samples=_axes_samples(FLOATS + COMPLEX, correction=1.0),
    )


def _publish_spread(op: str, *numpy_functions: Callable[..., Any]) -> None:
    def function(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = True,
        mean: Any = None,
        correction: float | None = None,
    ) -> Any:
        no_out(op, out)
        x, element = as_value(a), element_of(a)[0]
        target = as_dtype(dtype or (element if element.kind in "fc" else F64))
        axes = normalise_axes(axis, len(x.shape), op)
        delta = float(ddof if correction is None else correction)
        if where is not True or mean is not None:
            x = functions.astype(x, target)
            made = _variance_where(x, axes, None, delta, keepdims, where, mean)
            return functions.sqrt(made) if op == "std" else made
        return emit(
            op, functions.astype(x, target), axes=axes, keepdims=bool(keepdims), correction=delta
        )

    function.__name__ = op
    function.__doc__ = f"The {op} over `axis`, dividing by the count less `ddof` (`correction`)."
    public(*numpy_functions, method=True, name=op)(function)


_publish_spread("var", np.var)
_publish_spread("std", np.std)


def _logsumexp_type(x: AnyType, *, axes: tuple[int, ...], keepdims: bool) -> Type:
    return reduction_type("logsumexp", x, axes, keepdims, FLOATS, empty=False)


def _expand_logsumexp(x: ArrayLike, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """log sum exp(x - m) + m with m the largest element, or 0 where that is infinite."""
    f, (y, element) = functions, in_compute_type(x)
    top = f.max(y, axes, keepdims=True)
    top = f.where(f.isfinite(top), top, 0)
    total = f.log(f.sum(f.exp(f.subtract(y, top)), axes, keepdims=True))
    made = f.add(total, top)
    made = made if keepdims else f.squeeze(made, axes)
    return f.astype(made, element)


def _logsumexp_reference(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    x = x.astype(np.float64)
    for axis in axes:
        x = np.expand_dims(np.logaddexp.reduce(x, axis=axis), axis)
    return x if keepdims else np.squeeze(x, axes)


def _logsumexp_gradient(
    ct: Value, result: Value, x: Value, *, axes: tuple[int, ...], keepdims: bool
) -> list[Any]:
    """ct exp(x - result); 16-bit results are too coarse for that and are computed again."""
    f, (y, element) = functions, in_compute_type(x)
    total = unreduced(result, axes, keepdims)
    if element is not element.compute:
        total = emit("logsumexp", y, axes=axes, keepdims=True)
    total = f.where(f.equal(total, -math.inf), 0, total)
    share = f.exp(f.subtract(y, total))
    return [f.astype(f.multiply(unreduced(ct, axes, keepdims), share), element)]


define(
    "logsumexp",
    batch=along("axes"),
    gradient=_logsumexp_gradient,
    infer=_logsumexp_type,
    reference=wide(_logsumexp_reference),
    lower=Composite(_expand_logsumexp),
    attrs=AXES,
    dtypes=FLOATS,
    cost=composite_cost(30),
    samples=_axes_samples(FLOATS),
    doc="log(sum(exp(x))) without overflow.",
)


@public()
def logsumexp(a: ArrayLike, axis: Axes = None, keepdims: bool = False) -> Any:
    """log(sum(exp(a))) over `axis` (None: all), computed without overflow."""
    x, element = as_value(a), element_of(a)[0]
    axes = normalise_axes(axis, len(x.shape), "logsumexp")
    target = element if element.kind == "f" else F64
    return emit("logsumexp", functions.astype(x, target), axes=axes, keepdims=bool(keepdims))


# ---------------------------------------------------------------------------------- plain functions


@public(np.ptp)
def ptp(
    a: ArrayLike, axis: Axes = None, out: ArrayLike | None = None, keepdims: bool = False
) -> Any:
    """max - min over `axis`."""
    no_out("ptp", out)
    high = functions.max(a, axis, keepdims=keepdims)
    return functions.subtract(high, functions.min(a, axis, keepdims=keepdims))


@public(np.average)
def average(
    a: ArrayLike,
    axis: Axes = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """The mean, or the weighted mean, 1-D weights along `axis`; if `returned` with the sum of the
    weights."""
    f, x = functions, as_value(a)
    if weights is None:
        made = f.mean(x, axis, keepdims=keepdims)
        count = f.divide(f.size(x), max(f.size(made), 1)) if returned else None
        total = f.full_like(made, count) if returned else None
        return (made, total) if returned else made
    weights = as_value(weights)
    if len(weights.shape) != len(x.shape):
        require(len(weights.shape) == 1 and axis is not None, "weights must be 1-D along an axis")
        (place,) = normalise_axes(axis, len(x.shape), "average")
        shape = [1] * len(x.shape)
        shape[place] = weights.shape[0]
        weights = f.reshape(weights, tuple(shape))
    element = promote(element_of(x)[0], element_of(weights)[0])
    element = promote(element, F64) if element_of(x)[0].kind in "biu" else element
    x, weights = f.astype(x, element), f.astype(weights, element)
    total = f.sum(f.multiply(x, weights), axis, keepdims=keepdims)
    scale = f.sum(f.broadcast_to(weights, x.shape), axis, keepdims=keepdims)
    return (f.divide(total, scale), scale) if returned else f.divide(total, scale)


def _valid(a: ArrayLike, where: ArrayLike = True) -> Any:
    valid = functions.logical_not(functions.isnan(a))
    return valid if where is True else functions.logical_and(valid, where)


def _publish_nan_total(op: str, *numpy_functions: Callable[..., Any]) -> None:
    def function(
        a: Any,
        axis: Axes = None,
        dtype: DTypeLike | None = None,
        *,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Any:
        options = {"keepdims": keepdims, "initial": initial, "where": _valid(a, where)}
        return getattr(functions, op)(a, axis, dtype, **options)

    function.__doc__ = f"The {op} of what is not NaN."
    public(*numpy_functions, name=f"nan{op}")(function)


_publish_nan_total("sum", np.nansum)
_publish_nan_total("prod", np.nanprod)


def _publish_nan_extreme(op: str, neutral: float, *numpy_functions: Callable[..., Any]) -> None:
    def function(
        a: Value,
        axis: Any = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        initial: Value | None = None,
        where: ArrayLike = True,
    ) -> Any:
        no_out(f"nan{op}", out)
        f = functions
        if element_of(a)[0].kind != "f":
            return getattr(f, op)(a, axis, keepdims=keepdims, initial=initial, where=where)
        require(where is True or initial is not None, f"nan{op} with where= needs initial=")
        valid = _valid(a, where)
        made = getattr(f, op)(masked(a, valid, neutral), axis, keepdims=keepdims, initial=initial)
        if initial is not None:
            return made
        return f.where(f.any(valid, axis, keepdims=keepdims), made, math.nan)

    function.__doc__ = f"The {op} of what is not NaN; NaN where nothing is left."
    public(*numpy_functions, name=f"nan{op}")(function)


_publish_nan_extreme("max", -math.inf, np.nanmax)
_publish_nan_extreme("min", math.inf, np.nanmin)


@public(np.nanmean)
def nanmean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    where: ArrayLike = True,
) -> Any:
    """The mean of what is not NaN."""
    return functions.mean(a, axis, dtype, keepdims=keepdims, where=_valid(a, where))


def _variance_where(
    a: Any, axis: Any, dtype: Any, delta: float, keepdims: bool, valid: Any, mean: Any
) -> Any:
    """The variance of chosen elements, around a mean that may be known; NaN of too few."""
    f = functions
    if mean is None:
        mean = f.mean(a, axis, dtype, keepdims=True, where=valid)
    centred = masked(f.subtract(a, mean), valid, 0)
    squares = f.square(f.absolute(centred) if element_of(a)[0].is_complex else centred)
    total = f.sum(squares, axis, keepdims=keepdims)
    count = f.count_nonzero(f.broadcast_to(valid, as_value(a).shape), axis, keepdims=keepdims)
    left = f.maximum(f.subtract(f.astype(count, F64), delta), 0)
    return f.divide(total, f.astype(left, element_of(total)[0]))


@public(np.nanvar)
def nanvar(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike = True,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Any:
    """The variance of what is not NaN."""
    delta = ddof if correction is None else correction
    f, valid = functions, _valid(a, where)
    made = _variance_where(a, axis, dtype, delta, keepdims, valid, mean)
    count = f.count_nonzero(f.broadcast_to(valid, as_value(a).shape), axis, keepdims=keepdims)
    return f.where(count > delta, made, math.nan)


@public(np.nanstd)
def nanstd(
    a: ArrayLike, axis: Axes = None, dtype: DTypeLike | None = None, **options: object
) -> Any:
    """The standard deviation of what is not NaN; the options are those of nanvar."""
    return functions.sqrt(nanvar(a, axis, dtype, **options))


@public(np.median)
def median(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The middle of the sorted elements, or the mean of the two in the middle; NaN wins."""
    f, x = functions, as_value(a)
    rank = len(x.shape)
    if axis is None:
        made = median(f.ravel(x), 0)
        return f.reshape(made, (1,) * rank) if keepdims else made
    axes = normalise_axes(axis, rank, "median")
    if len(axes) > 1:
        rest = [k for k in range(rank) if k not in axes]
        rows = f.reshape(
            f.transpose(x, (*rest, *axes)),
            (*(x.shape[k] for k in rest), math.prod(x.shape[k] for k in axes)),
        )
        made = median(rows, -1)
        return f.expand_dims(made, axes) if keepdims else made
    (place,) = axes
    if x.shape[place] == 0:
        return f.mean(x, place, keepdims=keepdims)
    ordered = f.sort(x, axis=place)
    count = ordered.shape[place]
    both = slice((count - 1) // 2, count // 2 + 1)
    middle = ordered[(*(slice(None),) * place, both)]
    made = f.mean(middle, place, keepdims=keepdims)
    if element_of(x)[0].kind not in "fc":
        return made
    return f.where(f.any(f.isnan(x), place, keepdims=keepdims), math.nan, made)


@public(np.nanmedian)
def nanmedian(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The median of what is not NaN; NaN where nothing is."""
    f, x = functions, as_value(a)
    rank = len(x.shape)
    axes = tuple(range(rank)) if axis is None else normalise_axes(axis, rank, "nanmedian")
    if element_of(x)[0].kind not in "fc":
        return median(x, axes, keepdims=keepdims)
    if 0 in (x.shape[k] for k in axes):
        return f.mean(x, axes, keepdims=keepdims)
    rest = [k for k in range(rank) if k not in axes]
    rows = f.reshape(
        f.transpose(x, (*rest, *axes)),
        (*(x.shape[k] for k in rest), math.prod(x.shape[k] for k in axes)),
    )
    ordered, count = f.sort(rows, axis=-1), f.sum(_valid(rows), -1, keepdims=True)
    low, high = f.maximum(f.floor_divide(f.subtract(count, 1), 2), 0), f.floor_divide(count, 2)
    high = f.minimum(high, rows.shape[-1] - 1)
    pair = f.add(*(f.take_along_axis(ordered, place, -1) for place in (low, high)))
    made = f.squeeze(f.divide(pair, 2), -1)
    return f.expand_dims(made, axes) if keepdims else made


# -------------------------------------------------------------------------------------------- norms


@public(np.linalg.vector_norm)
def vector_norm(x: ArrayLike, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Any:
    """(sum |x|**ord)**(1/ord) over `axis`; ord inf, -inf and 0 are max, min and a count."""
    f, element = functions, element_of(x)[0]
    x = x if element.kind in "fc" else f.astype(x, F64)
    size = f.absolute(x)
    if math.isinf(ord):
        return (f.max if ord > 0 else f.min)(size, axis, keepdims=keepdims)
    if ord == 0:
        return f.astype(f.count_nonzero(x, axis, keepdims=keepdims), element_of(size)[0])
    if ord == 2:
        return f.sqrt(f.sum(f.square(size), axis, keepdims=keepdims))
    total = f.sum(size if ord == 1 else f.power(size, float(ord)), axis, keepdims=keepdims)
    return total if ord == 1 else f.power(total, 1 / ord)


def _spectral_norm(x: ArrayLike, ord: Any, turned: Any, axes: Any, keepdims: bool) -> Any:
    """The largest, the smallest or the sum of the singular values."""
    f = functions
    svdvals = getattr(f, "linalg.svdvals")
    values = svdvals(f.moveaxis(x, turned, (-2, -1)))
    fold = {2: f.max, -2: f.min, "nuc": f.sum}[ord]
    made = fold(values, axis=-1, **({"initial": 0.0} if ord == 2 else {}))  # of none it is zero
    return f.expand_dims(made, axes) if keepdims else made


@public(np.linalg.norm)
def norm(x: ArrayLike, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """NumPy's norm: Frobenius or 2-norm by default, vector norms, and the 1, inf, 2 and nuclear
    norms of matrices."""
    f, rank = functions, len(as_value(x).shape)
    axes = normalise_axes(axis, rank, "norm")
    if ord is None or (len(axes) == 2 and ord in ("fro", "f")):
        return vector_norm(x, axis=axes, keepdims=keepdims)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=ord)
    legal = len(axes) == 2 and ord in (1, -1, 2, -2, math.inf, -math.inf, "nuc")
    require(legal, f"norm of order {ord!r} over {len(axes)} axes is not available")
    rows, columns = axis if axis is not None else (0, 1)
    if ord in (2, -2, "nuc"):
        return _spectral_norm(x, ord, (rows, columns), axes, keepdims)
    added, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = f.sum(f.absolute(x), added, keepdims=True)
    made = (f.max if ord > 0 else f.min)(sums, kept, keepdims=True)
    return made if keepdims else f.squeeze(made, axes)
