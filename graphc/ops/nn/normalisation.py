"""Normalisation: layer, RMS, group, instance and batch norm.

Each is one node in a trace.  Statistics are taken in f32 for f16 and bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.op import AXIS, NOT_NEGATIVE, Attr, Composite, Sample
from graphc.ir.types import AnyType, Type
from graphc.ops.autodiff.adjoints import sum_to
from graphc.ops.nn.softmax import float_value
from graphc.ops.record.arguments import Array, ArrayLike, Axes, Tensor
from graphc.ops.record.batching import onto
from graphc.ops.record.families import (
    FLOATS,
    broadcast_dims,
    define,
    normalise_axes,
    normalise_axis,
    require,
    require_dtype,
    require_tensor,
    sample_array,
    wide,
)
from graphc.ops.record.value import Value, as_value, element_of, emit, functions, public
from graphc.ops.reduce.statistics import composite_cost

AXES = Attr("axes", "ints", within=AXIS)
EPSILON = Attr("epsilon", "float", 1e-5, within=NOT_NEGATIVE)
Reference = Callable[..., Any]

# ------------------------------------------------------------------------------------- shared parts


def _check(name: str, types: tuple[AnyType, ...], axes: tuple[int, ...], most: int) -> Type:
    """x and up to most - 1 more operands that broadcast to x's shape and have its dtype."""
    require(1 <= len(types) <= most, f"{name} takes 1 to {most} operands, got {len(types)}")
    require_tensor(name, *types)
    x = types[0]
    assert isinstance(x, Type)
    require_dtype(name, x, FLOATS)
    legal = axes == normalise_axes(axes, x.rank, name) and len(axes) > 0
    require(legal, f"{name}: axes {list(axes)} of {x} must be sorted, not negative, at least one")
    for other in types[1:]:
        assert isinstance(other, Type)
        fits = other.dtype is x.dtype and broadcast_dims([x.shape, other.shape]) == x.shape
        require(fits, f"{name}: a weight of type {other} does not fit {x}")
    return x


def _affine(x: ArrayLike, weights: Sequence[Any]) -> Any:
    """x * weights[0] + weights[1], as far as they are given."""
    if weights:
        x = functions.multiply(x, weights[0])
    return functions.add(x, weights[1]) if len(weights) > 1 else x


def _widened(values: Sequence[Any]) -> list[Any]:
    return [functions.astype(v, element_of(v)[0].compute) for v in values]


def _normalised(x: ArrayLike, mean: ArrayLike, variance: ArrayLike, epsilon: float) -> Any:
    f = functions
    return f.multiply(f.subtract(x, mean), f.rsqrt(f.add(variance, epsilon)))


def _affine_reference(x: Array, weights: Sequence[Any]) -> Any:
    x = x * weights[0] if weights else x
    return x + weights[1] if len(weights) > 1 else x


def _in_f64(reference: Reference) -> Reference:
    def widened(*arrays: ArrayLike, **attrs: object) -> Any:
        return reference(*(np.asarray(a, np.float64) for a in arrays), **attrs)

    return wide(widened)


def _samples(shapes: Sequence[tuple[int, ...]], **attrs: object) -> Callable[[], list[Sample]]:
    """x alone, and with every further operand, on every float type; a weight that does not fit."""

    def arrays(name: str, count: int) -> tuple[Any, ...]:
        return tuple(sample_array(name, s, (0.1, 3.0), k) for k, s in enumerate(shapes[:count]))

    def samples() -> list[Sample]:
        made = [Sample(arrays(name, len(shapes)), attrs, tolerance=8) for name in FLOATS]
        made += [Sample(arrays("f32", n), attrs, tolerance=8) for n in range(1, len(shapes))]
        wrong = sample_array("f32", (11,), (0.1, 3.0), 0)
        return [*made, Sample((arrays("f32", 1)[0], wrong), attrs, good=False)]

    return samples


def along(weight: Value, rank: int, axes: tuple[int, ...], x: ArrayLike) -> Any:
    """A weight whose dimensions are those of x at `axes`, ready to broadcast against x."""
    weight = functions.astype(weight, element_of(x)[0])
    dims: list[Any] = [1] * rank
    require(len(weight.shape) == len(axes), f"a weight of rank {len(axes)} is due")
    for axis, extent in zip(axes, weight.shape, strict=True):
        dims[axis] = extent
    return functions.reshape(weight, tuple(dims))


def _weights(x: Any, axes: tuple[int, ...], weight: Any, bias: Any) -> tuple[list[Any], Any]:
    """The operands of a norm besides x, and a bias that has no weight before it."""
    rank = len(x.shape)
    given = [along(w, rank, axes, x) for w in (weight, bias) if w is not None]
    return ([], given[0]) if weight is None and bias is not None else (given, None)


def _finish(made: ArrayLike, lone_bias: ArrayLike) -> Any:
    return made if lone_bias is None else functions.add(made, lone_bias)


# --------------------------------------------------------------------------------------- layer norm


def _moments(x: ArrayLike, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """The mean, the distances from it and 1 / sqrt(variance + epsilon)."""
    f = functions
    mean = f.mean(x, axes, keepdims=True)
    centred = f.subtract(x, mean)
    variance = f.mean(f.square(centred), axes, keepdims=True)
    return mean, centred, f.rsqrt(f.add(variance, epsilon))


def _expand_layer_norm(
    x: ArrayLike, *weights: ArrayLike, axes: tuple[int, ...], epsilon: float
) -> Any:
    element = element_of(x)[0]
    x, *weights_ = _widened((x, *weights))
    _, centred, scale = _moments(x, axes, epsilon)
    return functions.astype(_affine(functions.multiply(centred, scale), weights_), element)


def _layer_norm_gradient(
    ct: Value, result: Value, x: Value, *weights: Value, axes: tuple[int, ...], epsilon: float
) -> list[Any]:
    """With z = (x - mean) scale:  x' = scale (g - mean(g) - z mean(g z)),  g = ct weight."""
    f = functions
    wide, y, *weights_ = _widened((ct, x, *weights))
    mean, _, scale = _moments(y, axes, epsilon)  # the forward pass has made these
    # -z, as z itself would be kept since the forward pass: only x is, and one value per row.
    minus = f.multiply(f.subtract(mean, y), scale)
    both = f.multiply(wide, minus)
    g, weighted = (f.multiply(v, weights_[0]) if weights else v for v in (wide, both))
    slope = f.multiply(minus, f.mean(weighted, axes, keepdims=True))
    to_x = f.multiply(f.subtract(f.subtract(g, f.mean(g, axes, keepdims=True)), slope), scale)
    to_weights = [f.negative(sum_to(both, w.shape)) for w in weights[:1]]
    return _narrowed([to_x, *to_weights, wide], (x, *weights))


def _narrowed(made: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """Cotangents in the operands' types, summed over the axes along which these broadcast."""
    parts = (sum_to(m, o.shape) for m, o in zip(made, operands))
    return [functions.astype(p, element_of(o)[0]) for p, o in zip(parts, operands)]


def _layer_norm_reference(x: Array, *weights: Array, axes: tuple[int, ...], epsilon: float) -> Any:
    spread = np.var(x, axis=axes, keepdims=True) + epsilon
    return _affine_reference((x - np.mean(x, axis=axes, keepdims=True)) / np.sqrt(spread), weights)


def _expand_rms_norm(
    x: ArrayLike, *weights: ArrayLike, axes: tuple[int, ...], epsilon: float
) -> Any:
    f, element = functions, element_of(x)[0]
    x, *weights_ = _widened((x, *weights))
    size = f.rsqrt(f.add(f.mean(f.square(x), axes, keepdims=True), epsilon))
    return f.astype(_affine(f.multiply(x, size), weights_), element)


def _rms_norm_gradient(
    ct: Value, result: Value, x: Value, *weights: Value, axes: tuple[int, ...], epsilon: float
) -> list[Any]:
    """x' = size g - x size**3 mean(g x),  g = ct weight,  size = 1 / sqrt(mean(x**2) + epsilon)."""
    f = functions
    wide, y, *weights_ = _widened((ct, x, *weights))
    size = f.rsqrt(f.add(f.mean(f.square(y), axes, keepdims=True), epsilon))
    both = f.multiply(wide, y)
    g, weighted = (f.multiply(v, weights_[0]) if weights else v for v in (wide, both))
    mean = f.mean(weighted, axes, keepdims=True)
    slope = f.multiply(y, f.multiply(mean, f.multiply(f.square(size), size)))
    to_x = f.subtract(f.multiply(g, size), slope)
    return _narrowed([to_x, f.multiply(both, size), wide], (x, *weights))


def _rms_norm_reference(x: Array, *weights: Array, axes: tuple[int, ...], epsilon: float) -> Any:
    size = np.sqrt(np.mean(x**2, axis=axes, keepdims=True) + epsilon)
    return _affine_reference(x / size, weights)


def _norm(
    name: str, expand: Reference, reference: Reference, gradient: Reference, doc: str
) -> None:
    """Define a norm over axes of x and publish name(x, weight, bias, axis, epsilon)."""

    def infer(*types: AnyType, axes: tuple[int, ...], epsilon: float) -> Type:
        return _check(name, types, axes, 3)

    def function(
        x: Value,
        weight: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        axis: Axes = -1,
        epsilon: float = 1e-5,
    ) -> Any:
        x = float_value(x)
        axes = normalise_axes(axis, len(x.shape), name)
        weights, lone_bias = _weights(x, axes, weight, bias)
        return _finish(emit(name, x, *weights, axes=axes, epsilon=float(epsilon)), lone_bias)

    define(
        name,
        batch=onto(1, "axes"),
        infer=infer,
        reference=_in_f64(reference),
        lower=Composite(expand),
        attrs=(AXES, EPSILON),
        dtypes=FLOATS,
        gradient=gradient,
        cost=composite_cost(8),
        samples=_samples([(3, 4, 10), (10,), (4, 10)], axes=(2,)),
        variadic=True,
        doc=doc,
    )
    function.__doc__ = doc
    public(name=name)(function)


_norm(
    "layer_norm",
    _expand_layer_norm,
    _layer_norm_reference,
    _layer_norm_gradient,
    "(x - mean) / sqrt(var + epsilon) over `axis`, times weight, plus bias.",
)
_norm(
    "rms_norm",
    _expand_rms_norm,
    _rms_norm_reference,
    _rms_norm_gradient,
    "x / sqrt(mean(x**2) + epsilon) over `axis`, times weight, plus bias.",
)

# --------------------------------------------------------------------------------------- group norm


@public()
def group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, axis: int = 1, epsilon: float = 1e-5
) -> Any:
    """Layer norm over groups of neighbouring channels (`axis`) and everything behind the batch.

    Raises TypeRuleError unless the number of channels is a multiple of `groups`.
    """
    f, x = functions, float_value(x)
    rank = len(x.shape)
    place = normalise_axis(axis, rank, "group_norm")
    channels = x.shape[place]
    whole = isinstance(channels, int) and groups > 0 and channels % groups == 0
    require(whole and place > 0, f"group_norm: {channels} channels do not form {groups} groups")
    split = (*x.shape[:place], groups, channels // groups, *x.shape[place + 1 :])
    inside = tuple(k for k in range(1, rank + 1) if k != place)
    made = f.reshape(f.layer_norm(f.reshape(x, split), axis=inside, epsilon=epsilon), x.shape)
    given = [None if w is None else along(w, rank, (place,), x) for w in (weight, bias)]
    made = made if given[0] is None else f.multiply(made, given[0])
    return made if given[1] is None else f.add(made, given[1])


@public()
def instance_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> Any:
    """Group norm with one channel per group."""
    channels = as_value(x).shape[normalise_axis(axis, len(as_value(x).shape), "instance_norm")]
    return group_norm(x, channels, weight, bias, axis, epsilon)


@public()
def local_response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """x[N, C, ...] / (k + alpha / size * s) ** beta, where s sums x² over `size` neighbours."""
    x = float_value(x)
    require(size > 0 and len(x.shape) >= 2, f"local_response_norm: {size} channels of {x.shape}")
    low = (size - 1) // 2
    pairs = [(0, 0), (low, size - 1 - low), *[(0, 0)] * (len(x.shape) - 2)]
    squares = functions.pad(functions.multiply(x, x), pairs)
    rows = functions.moveaxis(squares, 1, -1)
    summed = emit("pool", rows, kind="sum", window=(size,), stride=(1,), dilation=(1,))
    total = functions.moveaxis(summed, -1, 1)
    base = functions.add(functions.multiply(total, alpha / size), k)
    return functions.divide(x, functions.power(base, beta))


# --------------------------------------------------------------------------------------- batch norm


def _infer_batch_norm(*types: AnyType, epsilon: float) -> Type:
    require(len(types) >= 3, f"batch_norm takes x, mean and variance, got {len(types)} operands")
    rank = types[0].rank if isinstance(types[0], Type) else 0
    return _check("batch_norm", types, tuple(range(rank)), 5)


def _expand_batch_norm(x: ArrayLike, *rest: ArrayLike, epsilon: float) -> Any:
    element = element_of(x)[0]
    x, mean, variance, *weights = _widened((x, *rest))
    made = _affine(_normalised(x, mean, variance, epsilon), weights)
    return functions.astype(made, element)


def _batch_norm_gradient(
    ct: Value,
    result: Value,
    x: Value,
    mean: Value,
    variance: Value,
    *weights: Value,
    epsilon: float,
) -> list[Any]:
    f, operands = functions, (x, mean, variance, *weights)
    wide, y, mean, variance, *weights_ = _widened((ct, *operands))
    scale = f.rsqrt(f.add(variance, epsilon))
    slope = f.multiply(scale, weights_[0]) if weights else scale
    # Two sums over what one element of all statistics serves; distances below the mean, as those
    # above it would be kept since the forward pass.
    block = broadcast_dims([v.shape for v in (mean, variance, *weights_)])
    total, moment = sum_to(wide, block), sum_to(f.multiply(wide, f.subtract(mean, y)), block)
    to_mean = f.negative(f.multiply(total, slope))
    to_variance = f.multiply(f.multiply(moment, slope), f.multiply(f.square(scale), 0.5))
    to_weight = f.negative(f.multiply(moment, scale))
    made = [f.multiply(wide, slope), to_mean, to_variance, to_weight, total]
    return _narrowed(made, operands)


def _batch_norm_reference(
    x: Array, mean: Array, variance: Array, *weights: Array, epsilon: float
) -> Any:
    return _affine_reference((x - mean) / np.sqrt(variance + epsilon), weights)


def _batch_norm_samples() -> list[Sample]:
    rest = [(5, 1)] * 4
    return [s for s in _samples([(3, 5, 6), *rest])() if len(s.operands) > 2 or not s.good]


define(
    "batch_norm",
    batch=onto(1),
    infer=_infer_batch_norm,
    reference=_in_f64(_batch_norm_reference),
    lower=Composite(_expand_batch_norm),
    attrs=(EPSILON,),
    dtypes=FLOATS,
    gradient=_batch_norm_gradient,
    cost=composite_cost(6),
    samples=_batch_norm_samples,
    variadic=True,
    doc="(x - mean) / sqrt(variance + epsilon), times weight, plus bias; statistics are given.",
)


@public()
def batch_norm(
    x: Any,
    mean: Any = None,
    variance: Any = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> Any:
    """Normalise every channel (`axis`) with given statistics or, without any, with the batch's own.

    mean, variance, weight and bias have one element per channel.
    """
    x = float_value(x)
    rank = len(x.shape)
    place = normalise_axis(axis, rank, "batch_norm")
    require((mean is None) == (variance is None), "batch_norm takes both statistics or none")
    weights, lone_bias = _weights(x, (place,), weight, bias)
    if mean is None:  # as one op, whose gradient is simpler than those of the statistics
        others = tuple(k for k in range(rank) if k != place)
        made = emit("layer_norm", x, *weights, axes=others, epsilon=float(epsilon))
        return _finish(made, lone_bias)
    statistics = [along(s, rank, (place,), x) for s in (mean, variance)]
    return _finish(emit("batch_norm", x, *statistics, *weights, epsilon=float(epsilon)), lone_bias)
