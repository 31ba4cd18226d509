"""Reductions: sum, prod, max, min, mean, all, any, argmax, argmin and what is built from them.

The record of a reduction says how to fold; f16 and bf16 fold in f32, and the public functions widen
small integers to 64 bits first, as NumPy does.  References accumulate floats in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir.op import AXIS, Attr, Composite, Reduction, Sample
from graphc.ir.sizes import Size
from graphc.ir.types import BOOL, F64, I32, I64, AnyType, Dimension, DType, Type, dtype, tensor
from graphc.loops.complex_math import scale
from graphc.loops.scalars import Pair
from graphc.ops.record.arguments import Applied, Array, ArrayLike, Axes, DTypeLike
from graphc.ops.record.batching import along
from graphc.ops.record.families import (
    BOOLS,
    COMPLEX,
    FLOATS,
    NUMERIC,
    REAL,
    as_dtype,
    define,
    normalise_axes,
    require,
    require_dtype,
    require_tensor,
    sample_array,
    special_values,
)
from graphc.ops.record.value import Value, as_value, element_of, emit, functions, public
from graphc.ops.reduce import reduce_gradients as rules
from graphc.ops.tuning import tuned

AXES = (Attr("axes", "ints", within=AXIS), Attr("keepdims", "bool", False))

# --------------------------------------------------------------------------------------- type rules


def reduced_shape(
    shape: tuple[Dimension, ...], axes: tuple[int, ...], keepdims: bool
) -> tuple[Dimension, ...]:
    if keepdims:
        return tuple(1 if k in axes else extent for k, extent in enumerate(shape))
    return tuple(extent for k, extent in enumerate(shape) if k not in axes)


def reduction_type(
    name: str,
    x: AnyType,
    axes: tuple[int, ...],
    keepdims: bool,
    dtypes: tuple[str, ...],
    *,
    empty: bool = True,
) -> Type:
    """The operand's type without its reduced axes.

    Raises TypeRuleError for axes that are not sorted, unique and in range, for a dtype outside
    `dtypes`, and for an empty axis where `empty` is not allowed (max has no neutral element).
    """
    require_tensor(name, x)
    assert isinstance(x, Type)
    require_dtype(name, x, dtypes)
    legal = axes == normalise_axes(axes, x.rank, name)
    require(legal, f"{name}: axes {list(axes)} of {x} must be sorted and not negative")
    for axis in axes:
        require(empty or x.shape[axis] != 0, f"{name} of no elements: axis {axis} of {x} is empty")
    return tensor(x.dtype, reduced_shape(x.shape, axes, keepdims))


def _rule(
    name: str, dtypes: tuple[str, ...], *, empty: bool, result: DType | None = None, one: bool
) -> Callable[..., Type]:
    def infer(x: AnyType, *, axes: tuple[int, ...], keepdims: bool) -> Type:
        kind = reduction_type(name, x, axes, keepdims, dtypes, empty=empty)
        require(len(axes) == 1 or not one, f"{name} takes one axis, got {list(axes)}")
        return kind if result is None else tensor(result, kind.shape)

    return infer


def reduction_samples(
    dtypes: tuple[str, ...], *, empty: bool, one: bool = False, domain: tuple[float, float]
) -> Callable[[], list[Sample]]:
    """Every dtype over the last axis; other axes, all axes, none, long and empty rows; bad axes."""

    def samples() -> list[Sample]:
        usual = "f32" if "f32" in dtypes else dtypes[0]

        def sample(name: str, shape: tuple[int, ...], **attrs: object) -> Sample:
            return Sample((sample_array(name, shape, domain, len(shape)),), attrs)

        made = [sample(name, (3, 5), axes=(1,)) for name in dtypes]
        made += [
            sample(usual, (3, 5), axes=(0,)),
            sample(usual, (3, 4, 5), axes=(1,), keepdims=True),
        ]
        made += [sample(usual, (300,), axes=(0,)), sample(usual, (0, 3), axes=(1,))]
        made += [
            Sample((special_values(name)[:, None] + special_values(name),), {"axes": (1,)})
            for name in dtypes
            if name in FLOATS
        ]
        if not one:
            made += [sample(usual, (2, 3, 4), axes=a) for a in ((0, 2), (0, 1, 2), (1, 2), ())]
            made.append(sample(usual, (), axes=()))
        if empty:
            made.append(sample(usual, (4, 0), axes=(1,)))
        bad = [((2, 3), (2,)), ((2, 3), (-1,)), ((2, 3), (1, 0))]
        bad += [] if empty else [((4, 0), (1,))]
        wrong = [
            Sample((sample_array(usual, s, domain, 0),), {"axes": a}, good=False) for s, a in bad
        ]
        return made + wrong

    return samples


# ------------------------------------------------------------------------------------------ the ops


def _wide_sum(function: Callable[..., Any]) -> Any:
    """The reference of a fold: floats in f64, integers wrapping in their own type."""

    def reference(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
        x = np.asarray(x)
        kind = dtype(x.dtype)
        wide = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}.get(kind.kind, x.dtype)
        with np.errstate(all="ignore"):
            return function(x.astype(wide), axis=axes, keepdims=keepdims, dtype=wide).astype(
                x.dtype
            )

    return reference


def _plain(function: Callable[..., Any], one: bool = False) -> Any:
    def reference(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
        return function(x, axis=axes[0] if one else axes, keepdims=keepdims)

    return reference


def _mean_reference(x: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    total = _wide_sum(np.sum)(x.astype(np.result_type(x.dtype, np.float64)), axes, keepdims)
    count = math.prod(x.shape[a] for a in axes)
    with np.errstate(all="ignore"):
        return np.divide(total, count).astype(x.dtype)


def _mean(total: Any, count: int, element: DType) -> Any:
    if isinstance(total, Pair):
        if isinstance(count, Size):
            return scale(total, total.re.like(1) / total.re.like(count))
        return scale(total, total.re.like(1 / count if count else math.nan))
    return total / count


def lowest(element: DType) -> float | int:
    """What no element of a real dtype is below."""
    if element.kind == "b":
        return 0
    return -math.inf if element.is_float else int(np.iinfo(element.numpy).min)


def highest(element: DType) -> float | int:
    """What no element of a real dtype is above."""
    if element.kind == "b":
        return 1
    return math.inf if element.is_float else int(np.iinfo(element.numpy).max)


def _first_place(extreme: str) -> Callable[..., Any]:
    """argmax in two sweeps that vectorise: the extreme, then the first place that equals it.

    A NaN makes the extreme NaN, which nothing equals: then the first NaN is the place.  A long row
    is swept once: the extremes of its blocks, then the first of the blocks that has the greatest.
    """

    def expand(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        x = functions.astype(x, as_dtype("i8")) if x.element is BOOL else x
        (axis,), extent = axes, x.shape[axes[0]]
        last = axis == len(x.shape) - 1
        if last and isinstance(extent, int) and extent >= tuned.place_blocks * tuned.place_block:
            return in_blocks(x, extent, keepdims)
        return first(x, axis, keepdims)

    def first(x: Any, axis: int, keepdims: bool) -> Any:
        f, extent = functions, x.shape[axis]
        place = I32 if isinstance(extent, int) and extent < 2**31 else I64
        best = emit(extreme, x, axes=(axis,), keepdims=True)
        found = f.equal(x, best)
        if x.element.is_float:
            found = f.logical_or(found, f.isnan(x))
        column = tuple(-1 if k == axis else 1 for k in range(len(x.shape)))
        places = f.reshape(emit("iota", extent=extent, dtype=place), column)
        # A literal of the right type needs no kernel that casts it.
        none = as_value(np.asarray(extent, place.numpy) if isinstance(extent, int) else extent)
        which = f.where(found, places, f.astype(none, place))
        return f.astype(emit("min", which, axes=(axis,), keepdims=keepdims), I64)

    def in_blocks(x: Any, extent: int, keepdims: bool) -> Any:
        """The last block ends with the row: what it shares with the one before has been seen."""
        f, axis, size = functions, len(x.shape) - 1, tuned.place_block
        whole = extent // size * size
        blocks = f.reshape(x[..., :whole], (*x.shape[:-1], whole // size, size))
        tops = emit(extreme, blocks, axes=(axis + 1,), keepdims=False)
        if whole < extent:
            rest = emit(extreme, x[..., whole:], axes=(axis,), keepdims=True)
            tops = f.concatenate([tops, rest], axis)
        start = f.minimum(first(tops, axis, True) * size, extent - size)
        block = f.take_along_axis(x, start + f.arange(size), axis)
        made = start + first(block, axis, True)
        return made if keepdims else f.reshape(made, made.shape[:-1])

    return expand


# What a fold starts from: combining it with x gives x.
IDENTITY: dict[str, Callable[[DType], Any]] = {
    **dict.fromkeys(("add", "or"), lambda element: 0),
    **dict.fromkeys(("mul", "and"), lambda element: 1),
    "max": lowest,
    "min": highest,
}


def _reduction(combine: str, **parts: Any) -> Reduction:
    return Reduction(combine, IDENTITY[combine], **parts)


def _fold(
    name: str,
    lower: Reduction | Composite,
    reference: Any,
    dtypes: tuple[str, ...],
    *,
    empty: bool = True,
    result: DType | None = None,
    one: bool = False,
    gradient: Callable[..., Any] | None = None,
    domain: tuple[float, float] = (-4.0, 4.0),
) -> None:
    def cost(node: Applied) -> tuple[float, float]:
        source = node.inputs[0].type
        return float(source.size), float(source.nbytes + node.type.nbytes)

    define(
        name,
        batch=along("axes"),
        infer=_rule(name, dtypes, empty=empty, result=result, one=one),
        reference=reference,
        lower=lower,
        attrs=AXES,
        dtypes=dtypes,
        differentiable=gradient is not None,
        gradient=gradient,
        cost=cost,
        samples=reduction_samples(dtypes, empty=empty, one=one, domain=domain),
    )


_fold("sum", _reduction("add"), _wide_sum(np.sum), NUMERIC, gradient=rules.sum_gradient)
_fold(
    "prod",
    _reduction("mul"),
    _wide_sum(np.prod),
    NUMERIC,
    domain=(0.5, 1.5),
    gradient=rules.prod_gradient,
)
_fold(
    "mean",
    _reduction("add", finish=_mean),
    _mean_reference,
    FLOATS + COMPLEX,
    gradient=rules.mean_gradient,
)
_fold("max", _reduction("max"), _plain(np.max), REAL, empty=False, gradient=rules.extreme_gradient)
_fold("min", _reduction("min"), _plain(np.min), REAL, empty=False, gradient=rules.extreme_gradient)
_fold("all", _reduction("and"), _plain(np.all), BOOLS)
_fold("any", _reduction("or"), _plain(np.any), BOOLS)
for _name, _extreme, _function in (("argmax", "max", np.argmax), ("argmin", "min", np.argmin)):
    _fold(
        _name,
        Composite(_first_place(_extreme)),
        _plain(_function, one=True),
        BOOLS + REAL,
        empty=False,
        result=I64,
        one=True,
    )

# --------------------------------------------------------------------------------- public functions


def reduce_axes(op: str, x: Value, axis: Axes, keepdims: bool) -> Any:
    """Apply a reduction op over `axis` (None: all)."""
    x = as_value(x)
    return emit(op, x, axes=reduced_axes(axis, len(x.shape), op), keepdims=bool(keepdims))


def accumulating(element: DType) -> DType:
    """The dtype NumPy sums in: bool and small integers go to 64 bits."""
    if element.kind == "u":
        return as_dtype("u64")
    return I64 if element.kind in "bi" else element


def reduced_axes(axis: Axes, rank: int, name: str) -> tuple[int, ...]:
    """`normalise_axes`; a number has an axis 0 to be reduced over, as in NumPy."""
    return () if rank == 0 and axis in (0, -1) else normalise_axes(axis, rank, name)


def masked(x: ArrayLike, where: ArrayLike, neutral: ArrayLike) -> Any:
    return x if where is True else functions.where(where, x, neutral)


def no_out(name: str, out: Any) -> None:
    require(out is None, f"{name}: out= is not an array of this graph", hint="assign the result")


def _publish_total(
    op: str, neutral: int, combine: str, *numpy_functions: Callable[..., Any]
) -> None:
    """sum or prod."""

    def function(
        a: Value,
        axis: Axes = None,
        dtype: DTypeLike | None = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike = True,
    ) -> Any:
        no_out(op, out)
        element = accumulating(element_of(a)[0]) if dtype is None else as_dtype(dtype)
        x = masked(functions.astype(a, element), where, neutral)
        made = reduce_axes(op, x, axis, keepdims)
        return made if initial is None else getattr(functions, combine)(made, initial)

    function.__name__ = op
    function.__doc__ = f"The {op} over `axis` (None: all axes); small integers widen to 64 bits."
    public(*numpy_functions, method=True, name=op)(function)


def _publish_extreme(
    op: str, combine: str, boolean: str, *numpy_functions: Callable[..., Any]
) -> None:
    """max or min: of nothing only with `initial=`; of bools it is any or all."""

    def function(
        a: ArrayLike,
        axis: Axes = None,
        out: ArrayLike | None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: ArrayLike = True,
    ) -> Any:
        no_out(op, out)
        x = as_value(a)
        require(where is True or initial is not None, f"{op} with where= needs initial=")
        if initial is not None and element_of(x)[0].kind == "b":
            initial = functions.astype(initial, BOOL)
        x = masked(x, where, initial)
        axes = reduced_axes(axis, len(x.shape), op)
        if initial is not None and any(x.shape[k] == 0 for k in axes):
            shape = reduced_shape(x.shape, axes, keepdims)
            return functions.broadcast_to(functions.astype(initial, element_of(x)[0]), shape)
        name = boolean if element_of(x)[0].kind == "b" else op
        made = reduce_axes(name, x, axes, keepdims)
        return made if initial is None else getattr(functions, combine)(made, initial)

    function.__name__ = op
    function.__doc__ = f"The {op} over `axis` (None: all axes); NaN wins. Raises if it is empty."
    public(*numpy_functions, method=True, name=op)(function)


def _publish_logical(op: str, *numpy_functions: Callable[..., Any]) -> None:
    def function(
        a: ArrayLike,
        axis: Any = None,
        out: Value | None = None,
        keepdims: bool = False,
        *,
        where: ArrayLike = True,
    ) -> Any:
        no_out(op, out)
        return reduce_axes(
            op, masked(functions.astype(a, BOOL), where, op == "all"), axis, keepdims
        )

    function.__name__ = op
    function.__doc__ = f"Whether {op} element along `axis` is not zero."
    public(*numpy_functions, method=True, name=op)(function)


def _publish_index(op: str, *numpy_functions: Callable[..., Any]) -> None:
    def function(
        a: ArrayLike, axis: Any = None, out: ArrayLike | None = None, *, keepdims: bool = False
    ) -> Any:
        no_out(op, out)
        x = as_value(a)
        if axis is not None:
            return reduce_axes(op, x, int(axis), keepdims)
        made = reduce_axes(op, functions.ravel(x), 0, False)
        return functions.reshape(made, (1,) * len(x.shape)) if keepdims else made

    function.__name__ = op
    function.__doc__ = (
        f"The index (i64) of the {op[3:]} along `axis`, or in the flattened array. The first of "
        "equal elements is taken; a NaN wins."
    )
    public(*numpy_functions, method=True, name=op)(function)


_publish_total("sum", 0, "add", np.sum)
_publish_total("prod", 1, "multiply", np.prod)
_publish_extreme("max", "maximum", "any", np.max, np.amax)
_publish_extreme("min", "minimum", "all", np.min, np.amin)
_publish_logical("all", np.all)
_publish_logical("any", np.any)
_publish_index("argmax", np.argmax)
_publish_index("argmin", np.argmin)


@public(np.mean, method=True)
def mean(
    a: ArrayLike,
    axis: Any = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = True,
) -> Any:
    """The arithmetic mean over `axis`; f64 for integers."""
    no_out("mean", out)
    f, element = functions, element_of(a)[0]
    target = (element if element.kind in "fc" else F64) if dtype is None else as_dtype(dtype)
    x = f.astype(a, target)
    if where is True:
        return reduce_axes("mean", x, axis, keepdims)
    chosen = f.broadcast_to(where, x.shape)
    total = f.sum(masked(x, chosen, 0), axis, keepdims=keepdims)
    return f.divide(total, f.astype(f.count_nonzero(chosen, axis, keepdims=keepdims), target))
