"""Operators that PyTorch makes of others, which torch.export leaves as they are called: joins and
cuts, integrals and slopes, ranges of norms, sequences, quantisation that is simulated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import element_of
from graphc.formats.torch.operators.products import convolution
from graphc.formats.torch.operators.reductions import axes, cumsum, equal_ranges, norm, sum_
from graphc.formats.torch.operators.shapes import (
    axis_of,
    extents_of,
    linked,
    list_of,
    slice_,
    tensor_split,
)
from graphc.formats.torch.promotion import (
    as_float,
    cast,
    common,
    default_float,
    dtype_of,
    is_float,
    promoted,
)
from graphc.formats.torch.records import Element
from graphc.formats.torch.table import aten
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

# ------------------------------------------------------------------------------------ joins, cuts


def _at_least(rank: int) -> Callable[..., Any]:
    """A new axis goes before those that there are, the third one behind them."""

    def grown(x: Any) -> Any:
        shape = tuple(x.shape)
        if len(shape) < min(rank, 2):
            shape = (*(1,) * (min(rank, 2) - len(shape)), *shape)
        return linked("reshape", x, (*shape, *(1,) * (rank - len(shape))))

    return grown


def _all_grown(grown: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensors: list(map(grown, tensors))


for _rank in (1, 2, 3):
    aten(f"atleast_{_rank}d", views=True)(_at_least(_rank))
    aten(f"atleast_{_rank}d.Sequence")(_all_grown(_at_least(_rank)))


def _joined(tensors: Sequence[Any], axis: int) -> Any:
    kind = common(*tensors)
    return f.concatenate([cast(t, kind) for t in tensors], axis)


@aten("column_stack")
def column_stack(tensors: Sequence[Any]) -> Any:
    return _joined([t if t.ndim > 1 else f.reshape(t, (-1, 1)) for t in tensors], 1)


@aten("dstack")
def dstack(tensors: Sequence[Any]) -> Any:
    return _joined(list(map(_at_least(3), tensors)), 2)


@aten("row_stack")
def row_stack(tensors: Sequence[Any]) -> Any:
    return _joined(list(map(_at_least(2), tensors)), 0)


@aten("block_diag")
def block_diag(tensors: Sequence[Any]) -> Any:
    """Matrices one behind the other along the diagonal, among zeros."""
    kind, blocks = common(*tensors), list(map(_at_least(2), tensors))
    width, rows, left = sum(b.shape[1] for b in blocks), [], 0
    for block in blocks:
        right = width - left - block.shape[1]
        rows.append(f.pad(cast(block, kind), [(0, 0), (left, right)]))
        left += block.shape[1]
    return f.concatenate(rows, 0)


@aten("cartesian_prod")
def cartesian_prod(tensors: Sequence[Any]) -> Any:
    if len(tensors) == 1:
        return tensors[0].copy()
    kind = common(*tensors)
    columns = f.meshgrid(*(cast(t, kind) for t in tensors), indexing="ij")
    return f.stack([f.reshape(c, (-1,)) for c in columns], 1)


@aten("combinations")
def combinations(x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    n = x.shape[0]
    refuse(isinstance(n, int) and r >= 0, f"{r} of {n} elements")
    count = math.comb(n + r - 1 if with_replacement else n, r) if n or not r else 0
    check_within("folded_elements", count * r, f"there are {count} choices of {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.array(list(choose(range(n), r)), np.int64).reshape(count, r)
    return f.take(x, places, axis=0)


def _cut(axis: Callable[[Any], int]) -> Callable[..., Any]:
    def cut(x: Any, sections: Any = None, indices: Any = None) -> Any:
        return tensor_split(x, sections, indices, axis(x))

    return cut


aten("hsplit")(_cut(lambda x: min(x.ndim - 1, 1)))
aten("vsplit")(_cut(lambda x: 0))
aten("dsplit")(_cut(lambda x: 2))
aten("diagflat")(lambda x, offset=0: f.diagflat(x, offset))


@aten("pad_sequence")
def pad_sequence(
    sequences: Sequence[Any],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    longest = max(s.shape[0] for s in sequences)
    made = []
    for s in sequences:
        more = longest - s.shape[0]
        ends = (more, 0) if padding_side == "left" else (0, more)
        fill = cast(padding_value, dtype_of(s)).item()
        made.append(f.pad(s, [ends, *[(0, 0)] * (s.ndim - 1)], constant_values=fill))
    return f.stack(made, 0 if batch_first else 1)


@aten("fill_diagonal")
def fill_diagonal(x: Any, fill_value: Any, wrap: bool = False) -> Any:
    """With `wrap` the diagonal begins anew below the square of a matrix with more rows."""
    refuse(all(isinstance(n, int) for n in x.shape), "a diagonal of open sizes")
    check_within("folded_elements", math.prod(x.shape), f"a diagonal of {list(x.shape)}")
    there = np.zeros(x.shape, bool)
    np.fill_diagonal(there, True, wrap)
    return f.where(there, cast(fill_value, dtype_of(x)), x)


@aten("resize", views=True)
def resize(x: Any, size: Any, laid: Any = None) -> Any:
    """The first elements in another shape; as zeros those that PyTorch leaves as memory is.

    A view, which a tensor that was shrunk is, too, would read more of what it is a part of.
    """
    wanted, count = extents_of(size), math.prod(x.shape)
    steps = [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)]
    dense = all(s == t or n == 1 for s, t, n in zip(laid[0], steps, x.shape)) if laid else False
    refuse(dense, "a tensor that may not lie in one piece")
    flat, many = linked("reshape", x, (count,)), math.prod(wanted)
    if many > count:
        refuse(getattr(x, "link", None) is None, "more elements of what may be a part of another")
        return f.reshape(f.pad(flat, [(0, many - count)]), wanted)
    return linked("reshape", slice_(flat, 0, 0, many), wanted)


@aten("sum_to_size")
def sum_to_size(x: Any, size: Any) -> Any:
    wanted = extents_of(size)
    made = sum_(x, list(range(x.ndim - len(wanted)))) if x.ndim > len(wanted) else x.copy()
    narrow = [k for k, n in enumerate(wanted) if n == 1 and made.shape[k] != 1]
    return sum_(made, narrow, True) if narrow else made


# ------------------------------------------------------------------------------------ numbers


def _of_infinities(name: str) -> Callable[..., Any]:
    """None of a whole number."""

    def asked(x: Any) -> Any:
        return f.zeros(x.shape, bool) if dtype_of(x).kind in "biu" else getattr(f, name)(x)

    return asked


aten("isneginf")(_of_infinities("isneginf"))
aten("isposinf")(_of_infinities("isposinf"))
aten("isreal")(lambda x: f.isreal(x))


@aten("ldexp")
def ldexp(x: Any, other: Any) -> Any:
    one, two = promoted(x, other, floats=True)
    return f.multiply(one, f.exp2(two))


@aten("special_xlog1py")
def xlog1py(x: Any, other: Any) -> Any:
    one, two = promoted(x, other, floats=True)
    zero = f.logical_and(f.equal(one, 0), f.logical_not(f.isnan(two)))
    return f.where(zero, cast(0, dtype_of(one)), f.multiply(one, f.log1p(two)))


@aten("range")
def range_(start: Any, end: Any, step: Any = 1, dtype: Element | None = None) -> Any:
    """Up to the end and with it."""
    count = math.floor((end - start) / step) + 1
    made = f.add(f.multiply(f.arange(count, dtype=np.float64), float(step)), float(start))
    return cast(made, element_of(dtype, default_float()))


@aten("logspace")
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, dtype: Element | None = None
) -> Any:
    exponents = f.linspace(start, end, steps)
    return cast(f.power(np.float64(base), exponents), element_of(dtype, default_float()))


@aten("vander")
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    made = linalg_vander(x, N=N)
    return made if increasing else f.flip(made, -1)


@aten("linalg_vander")
def linalg_vander(x: Any, *, N: int | None = None) -> Any:
    """Powers from 0 on as products, those of whole numbers in 64 bits."""
    count = x.shape[-1] if N is None else N
    refuse(isinstance(count, int) and 0 <= count <= 1 << 16, f"{count} powers")
    kind = dtype_of(x) if is_float(x) else np.dtype(np.int64)
    held = f.expand_dims(cast(x, kind), -1)
    factors = [f.ones(held.shape, kind), *[held] * (count - 1)][:count]
    if not factors:
        return f.zeros((*x.shape, 0), kind)
    return cast(f.cumprod(f.concatenate(factors, -1), -1), kind)


# ------------------------------------------------------------------------------------ integrals


def _trapezes(y: Any, x: Any, dx: Any, axis: int) -> Any:
    """Twice the area between each two neighbours along an axis."""
    extent = y.shape[axis]
    both = f.add(slice_(y, axis, 1, extent), slice_(y, axis, 0, max(extent - 1, 0)))
    if x is None:
        apart = float(dx)
    elif x.ndim == 1:
        apart = f.reshape(f.diff(x), tuple(-1 if k == axis else 1 for k in range(y.ndim)))
    else:
        apart = f.diff(x, 1, axis - y.ndim)
    return f.multiply(*promoted(both, apart))


@aten("trapezoid", "trapz")
def trapezoid(y: Any, x: Any = None, dx: Any = 1, dim: int = -1) -> Any:
    axis = axis_of(dim, y.ndim)
    return f.divide(as_float(sum_(_trapezes(y, x, dx, axis), [axis])), 2)


@aten("cumulative_trapezoid")
def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1, dim: int = -1) -> Any:
    axis = axis_of(dim, y.ndim)
    return f.divide(as_float(cumsum(_trapezes(y, x, dx, axis), axis)), 2)


@aten("gradient")
def gradient(x: Any, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> Any:
    """Slopes along each axis, from steps of one length or of their own."""
    which = [axis_of(d, x.ndim) for d in ([*range(x.ndim)] if dim is None else list_of(dim))]
    steps = [1 if spacing is None else spacing] * len(which)
    if isinstance(spacing, list | tuple):
        steps = list(spacing) if len(spacing) == len(which) else steps
    made = []
    for step, axis in zip(steps, which):  # steps that are numbers leave the type as it is
        places = None if isinstance(step, int | float) else as_float(step)
        held = as_float(x) if places is None else cast(x, common(x, places))
        apart = step if places is None else cast(places, dtype_of(held))
        made.append(f.gradient(held, apart, axis=axis, edge_order=edge_order))
    return made


# ------------------------------------------------------------------------------------ statistics


@aten("nanmean")
def nanmean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Element | None = None) -> Any:
    kind = element_of(dtype, dtype_of(x))
    return cast(f.nanmean(cast(x, kind), axis=axes(x, dim), keepdims=keepdim), kind)


@aten("nanquantile")
def nanquantile(
    x: Any, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    axis = None if dim is None else axis_of(dim, x.ndim)
    return f.nanquantile(x, q, axis, interpolation, keepdim)


@aten("histogramdd")
def histogramdd(
    x: Any, bins: Any, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """Points [..., D] counted by the ranges of each coordinate, and the ends of these."""
    points = f.reshape(x, (-1, x.shape[-1]))
    ends = [None] * x.shape[-1] if range is None else list(zip(range[::2], range[1::2]))
    each = bins if isinstance(bins, list | tuple) else [bins] * x.shape[-1]
    columns = f.unstack(points, axis=1)
    edges = [equal_ranges(*given) for given in zip(columns, each, ends, strict=True)]
    held = None if weight is None else f.reshape(weight, (-1,))
    counts, edges = f.histogramdd(points, edges, None, density, held)
    return cast(counts, dtype_of(x)), [cast(edge, dtype_of(x)) for edge in edges]


@aten("_histogramdd_bin_edges")
def histogramdd_edges(
    x: Any, bins: Any, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    return histogramdd(x, bins, range, weight, density)[1]


@aten("_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors")
def histogramdd_counts(
    x: Any, bins: Any, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    return histogramdd(x, bins, range, weight, density)[0]


@aten("histogram.bins_tensor")
def histogram_of_edges(x: Any, bins: Any, weight: Any = None, density: bool = False) -> Any:
    counts, edges = f.histogram(f.reshape(x, (-1,)), bins, None, density, weight)
    return cast(counts, dtype_of(x)), cast(edges, dtype_of(x))


# ------------------------------------------------------------------------------------ lengths


@aten("frobenius_norm")
def frobenius_norm(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return norm(x, 2, dim, keepdim)


@aten("nuclear_norm")
def nuclear_norm(x: Any, dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    return f.norm(x, "nuc", tuple(dim), keepdim)


@aten("pairwise_distance")
def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    one, two = promoted(x1, x2)
    return norm(f.add(f.subtract(one, two), cast(eps, dtype_of(one))), p, -1, keepdim)


@aten("norm_except_dim")
def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """Of all axes but one, which keeps its place; -1 stands for none."""
    if dim == -1:
        return norm(v, pow)
    return norm(v, pow, [k for k in range(v.ndim) if k != dim], True)


@aten("renorm")
def renorm(x: Any, p: Any, dim: int, maxnorm: Any) -> Any:
    """Parts along an axis that are longer than the most there may be, made as short."""
    axis = axis_of(dim, x.ndim)
    length = norm(x, p, [k for k in range(x.ndim) if k != axis], True)
    most = cast(maxnorm, dtype_of(length))
    shorter = f.divide(most, f.add(length, cast(1e-7, dtype_of(length))))
    return cast(f.multiply(x, f.where(f.greater(length, most), shorter, 1)), dtype_of(x))


@aten("linalg_vecdot")
def linalg_vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    one, two = promoted(x, y)
    return f.sum(f.multiply(f.conj(one), two), axis=dim)


# ------------------------------------------------------------------------------------ networks


@aten("conv_tbc")
def conv_tbc(x: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """Over [time, batch, channels], with a kernel [window, in, out]."""
    held, kernel = f.transpose(x, (1, 2, 0)), f.transpose(weight, (2, 1, 0))
    made = convolution(held, kernel, bias, [1], [pad], [1], False, [0], 1)
    return f.transpose(made, (2, 0, 1))


def _quantised(x: Any, scale: Any, zero: Any, low: int, high: int) -> tuple[Any, Any]:
    """x as numbers of few bits have it, and where these reach."""
    kind = dtype_of(x)
    steps = f.multiply(x, f.reciprocal(cast(scale, kind)))
    if not isinstance(zero, int) and is_float(zero):  # which may lie between two numbers
        at_step = f.rint(f.add(steps, cast(zero, kind)))
    else:
        at_step = f.add(f.rint(steps), cast(zero, kind))
    inside = f.logical_and(f.greater_equal(at_step, low), f.less_equal(at_step, high))
    kept = f.clip(at_step, cast(low, kind), cast(high, kind))
    return f.multiply(f.subtract(kept, cast(zero, kind)), cast(scale, kind)), inside


def _by_channel(x: Any, values: Any, axis: int) -> Any:
    return f.reshape(values, tuple(-1 if k == axis % x.ndim else 1 for k in range(x.ndim)))


@aten("fake_quantize_per_tensor_affine_cachemask")
def fake_quantize(
    x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> tuple[Any, Any]:
    return _quantised(x, scale, zero_point, quant_min, quant_max)


@aten("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_if(
    x: Any, scale: Any, zero_point: Any, fake_quant_enabled: Any, quant_min: int, quant_max: int
) -> tuple[Any, Any]:
    made, inside = _quantised(x, scale, zero_point, quant_min, quant_max)
    asked = f.not_equal(f.reshape(fake_quant_enabled, ()), 0)
    return f.where(asked, made, x), f.logical_or(inside, f.logical_not(asked))


@aten("fake_quantize_per_channel_affine_cachemask")
def fake_quantize_channels(
    x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> tuple[Any, Any]:
    scale, zero_point = (_by_channel(x, v, axis) for v in (scale, zero_point))
    return _quantised(x, scale, zero_point, quant_min, quant_max)


@aten("fake_quantize_per_tensor_affine")
def fake_quantize_alone(x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    return fake_quantize(x, scale, zero_point, quant_min, quant_max)[0]


@aten("fake_quantize_per_channel_affine")
def fake_quantize_channels_alone(
    x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> Any:
    return fake_quantize_channels(x, scale, zero_point, axis, quant_min, quant_max)[0]
