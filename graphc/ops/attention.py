"""Scaled dot-product attention (Vaswani et al., 2017), with grouped key and value heads."""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.ir.op import Attr, Composite, Sample
from graphc.ir.types import BOOL, AnyType, Dimension, Type, definitely_different, tensor
from graphc.ops.adjoints import sum_to
from graphc.ops.linalg import matmul_gradient
from graphc.ops.padding import pad_zeros
from graphc.ops.registry import (
    FLOATS,
    broadcast_dims,
    define,
    require,
    require_dtype,
    require_tensor,
    sample_array,
    wide,
)
from graphc.ops.slicing import slice_axis
from graphc.ops.softmax import softmax_reference
from graphc.ops.value import as_value, common_element, element_of, emit, functions, public

# A finite stand-in for -inf: a row that is masked out completely gives a mean and not NaN.
HIDDEN = -0.7 * float(np.finfo(np.float32).max)
BAND_ROWS = 512  # fewer rows of causal attention are not worth kernels of their own
MOST_BANDS = 4


def _infer_attention(
    q: AnyType, k: AnyType, v: AnyType, *mask: AnyType, causal: bool, scale: float | None
) -> Type:
    require(len(mask) <= 1, f"attention takes 3 or 4 operands, got {3 + len(mask)}")
    require_tensor("attention", q, k, v, *mask)
    assert isinstance(q, Type)
    assert isinstance(k, Type)
    assert isinstance(v, Type)
    require_dtype("attention", q, FLOATS)
    signature = f"attention(q {q}, k {k}, v {v})"
    require(q.dtype is k.dtype is v.dtype, f"{signature}: dtypes differ")
    require(min(q.rank, k.rank, v.rank) >= 2, f"{signature}: operands are [..., length, width]")
    require(q.rank == k.rank == v.rank, f"{signature}: ranks differ")
    require(not definitely_different(q.shape[-1], k.shape[-1]), f"{signature}: widths differ")
    require(not definitely_different(k.shape[-2], v.shape[-2]), f"{signature}: lengths differ")
    require(k.shape[-2] != 0, f"{signature}: no keys")
    require(k.shape[:-2] == v.shape[:-2], f"{signature}: keys and values differ in heads")
    batch = _batch(q, k, signature)
    for kind in mask:
        assert isinstance(kind, Type)
        scores = (*batch, q.shape[-2], k.shape[-2])
        legal = kind.dtype in (BOOL, q.dtype)
        require(legal, f"{signature}: the mask is {kind.dtype}, not bool or {q.dtype}")
        fits = broadcast_dims([scores, kind.shape]) == scores
        require(fits, f"{signature}: the mask {kind} does not fit scores {list(scores)}")
    return tensor(q.dtype, (*batch, q.shape[-2], v.shape[-1]))


def _batch(q: Type, k: Type, signature: str) -> tuple[Dimension, ...]:
    """The batch dimensions of q; k's broadcast to them, or q's heads are a multiple of k's."""
    if q.rank > 2 and q.shape[-3] != k.shape[-3] and k.shape[-3] != 1:
        heads, shared = q.shape[-3], k.shape[-3]
        whole = isinstance(heads, int) and isinstance(shared, int) and shared > 0
        grouped = whole and heads % shared == 0  # type: ignore[operator]
        require(grouped, f"{signature}: {heads} query heads share {shared} key heads")
    leading = broadcast_dims([q.shape[:-3], k.shape[:-3]])
    require(leading == q.shape[:-3], f"{signature}: batch dimensions differ")
    return q.shape[:-2]


def _share_heads(x: Any, heads: int) -> Any:
    """k or v with every head repeated for the query heads that share it."""
    shared = x.shape[-3]
    if len(x.shape) < 3 or shared in (1, heads):
        return x
    f, lead, tail = functions, x.shape[:-3], x.shape[-2:]
    spread = f.broadcast_to(f.expand_dims(x, -3), (*lead, shared, heads // shared, *tail))
    return f.reshape(spread, (*lead, heads, *tail))


def _expand_attention(q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float | None) -> Any:
    f, element = functions, element_of(q)[0]
    q, k, v = (f.astype(x, element.compute) for x in (q, k, v))
    if len(q.shape) > 2:
        k, v = (_share_heads(x, q.shape[-3]) for x in (k, v))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    bands = _bands(q.shape[-2], k.shape[-2]) if causal and not mask else []
    if not bands:
        return f.astype(_attend(q, k, v, mask, causal, factor), element)
    parts = []
    for start, stop, seen in bands:
        rows = slice_axis(q, -2, start, stop)
        keys, values = (slice_axis(x, -2, 0, seen) for x in (k, v))
        parts.append(_attend(rows, keys, values, (), True, factor))
    return f.astype(f.concatenate(parts, -2), element)


def _attend(q: Any, k: Any, v: Any, mask: tuple[Any, ...], causal: bool, factor: float) -> Any:
    return functions.matmul(functions.softmax(_scores(q, k, mask, causal, factor)), v)


def _scores(q: Any, k: Any, mask: tuple[Any, ...], causal: bool, factor: float) -> Any:
    f = functions
    scores = f.multiply(f.matmul(q, f.swapaxes(k, -1, -2)), factor)
    for bias in mask:
        if element_of(bias)[0] is BOOL:
            scores = f.where(bias, scores, HIDDEN)
        else:
            scores = f.add(scores, f.astype(bias, element_of(q)[0]))
    if causal:
        scores = f.where(_visible(q.shape[-2], k.shape[-2]), scores, HIDDEN)
    return scores


# ------------------------------------------------------------------------------------- gradient


def _attention_gradient(
    ct: Any, result: Any, q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float | None
) -> list[Any]:
    """The scores of long sequences are computed anew from q and k, one band at a time, as in
    FlashAttention (Dao et al., 2022); those no larger than the operands are kept.
    """
    f, operands = functions, (q, k, v, *mask)
    ct, result, q, k, v = (f.astype(x, element_of(q)[0].compute) for x in (ct, result, q, k, v))
    if not _few_scores(q, v):
        q = emit("barrier", q, ct)
    if len(q.shape) > 2:
        k, v = (_share_heads(x, q.shape[-3]) for x in (k, v))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    columns = k.shape[-2]
    bands = _bands(q.shape[-2], columns) if causal and not mask else []
    drops = f.sum(f.multiply(ct, result), -1, keepdims=True)
    parts = []
    for start, stop, seen in bands or [(0, q.shape[-2], columns)]:
        near, lost, rows = (slice_axis(x, -2, start, stop) for x in (ct, drops, q))
        keys, values = (slice_axis(x, -2, 0, seen) for x in (k, v))
        to_q, *others = _attend_gradient(near, lost, rows, keys, values, mask, causal, factor)
        parts.append([to_q, *(_continued(x, columns) for x in others[:2]), *others[2:]])
    to_q = f.concatenate([part[0] for part in parts], -2) if bands else parts[0][0]
    made = [to_q, *(reduce(f.add, sums) for sums in zip(*(part[1:] for part in parts)))]
    return [_fitting(x, operand) for x, operand in zip(made, operands)]


def _attend_gradient(
    ct: Any, drops: Any, q: Any, k: Any, v: Any, mask: tuple[Any, ...], causal: bool, factor: float
) -> list[Any]:
    """Cotangents of q, k, v and the mask's sums; `drops` are the sums of ct * result."""
    f = functions
    p = f.softmax(_scores(q, k, mask, causal, factor))
    to_p, to_v = matmul_gradient(ct, None, p, v)
    made = f.multiply(p, f.subtract(to_p, drops))
    if causal:
        made = f.where(_visible(q.shape[-2], k.shape[-2]), made, 0)
    to_mask = list(mask)
    for place, bias in enumerate(mask):
        to_mask[place] = made
        if element_of(bias)[0] is BOOL:  # a row without a key is a mean that no score changes
            made = f.where(bias, made, 0)
    to_q, to_k = matmul_gradient(made, None, q, f.swapaxes(k, -1, -2))
    to_q, to_k = f.multiply(to_q, factor), f.multiply(f.swapaxes(to_k, -1, -2), factor)
    return [to_q, to_k, to_v, *to_mask]


def _few_scores(q: Any, v: Any) -> bool:
    """Do the scores take no more memory than q, k, v and the result?"""
    rows, columns, width = q.shape[-2], v.shape[-2], q.shape[-1] + v.shape[-1]
    known = all(isinstance(n, int) for n in (rows, columns, width))
    return known and rows * columns <= (rows + columns) * width


def _continued(x: Any, length: Any) -> Any:
    """x with zeros for the keys that its band does not see."""
    pairs = [(0, 0)] * len(x.shape)
    pairs[-2] = (0, length - x.shape[-2])
    return pad_zeros(x, pairs)


def _fitting(x: Any, operand: Any) -> Any:
    """The cotangent of an operand whose heads, or batches, were shared; None for a condition."""
    element = element_of(operand)[0]
    if element is BOOL:
        return None
    dims = operand.shape
    if len(dims) > 2 and dims[-3] not in (1, x.shape[-3]):
        split = (*x.shape[:-3], dims[-3], x.shape[-3] // dims[-3], *x.shape[-2:])
        x = functions.sum(functions.reshape(x, split), -3)
    return functions.astype(sum_to(x, dims), element)


# ------------------------------------------------------------------------------------- parts


def _bands(rows: Dimension, columns: Dimension) -> list[tuple[int, int, int]]:
    """(first row, end, keys seen) of the bands that long causal attention is worked out in.

    What no row of a band sees is left out: four bands do 5/8 of the work.

        x x . . | . . . .
        x x x x | . . . .
        x x x x   x x . .
        x x x x   x x x x
    """
    if not isinstance(rows, int) or not isinstance(columns, int):
        return []
    count = min(MOST_BANDS, rows // BAND_ROWS)
    if count < 2 or columns < rows:  # a row that sees nothing is the mean of all
        return []
    ends = [rows * k // count for k in range(count + 1)]
    return [(start, stop, columns - rows + stop) for start, stop in pairwise(ends)]


def _visible(rows: Any, columns: Any) -> Any:
    """Query i sees key j up to the diagonal that ends in the last row and column."""
    f = functions
    last = f.add(f.expand_dims(f.arange(rows), 1), columns - rows)
    return f.less_equal(f.arange(columns), last)


def _attention_reference(
    q: Any, k: Any, v: Any, *mask: Any, causal: bool, scale: float | None
) -> Any:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    if q.ndim > 2 and k.shape[-3] not in (1, q.shape[-3]):
        k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
    scores = np.einsum("...id,...jd->...ij", q, k)
    scores = scores * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    for bias in mask:
        scores = np.where(bias, scores, HIDDEN) if bias.dtype == bool else scores + bias
    if causal:
        rows, columns = scores.shape[-2:]
        scores = np.where(np.tri(rows, columns, columns - rows, dtype=bool), scores, HIDDEN)
    return np.einsum("...ij,...jd->...id", softmax_reference(scores, scores.ndim - 1), v)


def _attention_samples() -> list[Sample]:
    def arrays(name: str, *shapes: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(sample_array(name, s, (-2.0, 2.0), k) for k, s in enumerate(shapes))

    q, k, v = (2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3)
    made = [Sample(arrays(name, q, k, v), tolerance=8) for name in FLOATS]
    made.append(Sample(arrays("f32", q, k, v), {"causal": True, "scale": 0.5}, tolerance=8))
    made.append(Sample(arrays("f32", q, (2, 2, 6, 8), (2, 2, 6, 3)), tolerance=8))
    made.append(Sample(arrays("f32", (5, 8), (6, 8), (6, 3)), tolerance=8))
    mask = sample_array("bool", (5, 6), (0, 1), 7)
    mask[0] = False
    made.append(Sample((*arrays("f32", q, k, v), mask), tolerance=8))
    made.append(Sample(arrays("f32", q, k, v, (2, 1, 1, 6)), {"causal": True}, tolerance=8))
    wrong = [(q, k, (2, 4, 7, 3)), (q, (2, 4, 6, 9), v), (q, (2, 3, 6, 8), (2, 3, 6, 3))]
    return made + [Sample(arrays("f32", *shapes), good=False) for shapes in wrong]


def _cost(node: Any) -> tuple[float, float]:
    q, v = node.inputs[0].type, node.inputs[2].type
    rows, columns = q.size // max(q.dims[-1], 1), v.dims[-2]
    moved = sum(n.type.nbytes for n in node.inputs) + node.type.nbytes
    return 2.0 * rows * columns * (q.dims[-1] + v.dims[-1] + 15), float(moved)


define(
    "attention",
    infer=_infer_attention,
    reference=wide(_attention_reference),
    lower=Composite(_expand_attention),
    attrs=(Attr("causal", "bool", False), Attr("scale", "float", None, optional=True)),
    dtypes=FLOATS,
    gradient=_attention_gradient,
    cost=_cost,
    samples=_attention_samples,
    variadic=True,
    doc="softmax(q k^T scale + mask) v over [..., heads, length, width].",
)


@public()
def attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None
) -> Any:
    """softmax(q k^T scale + mask) v for q, k, v of shape [..., heads, length, width].

    mask     bool (True may be seen) or a float that is added; broadcasts to the scores,
             [..., heads, queries, keys]
    causal   query i sees keys up to i (the last query sees the last key)
    scale    1 / sqrt(width) by default
    Query heads may be a multiple of the key and value heads, which are then shared.
    """
    element = common_element(q, k, v)[0]
    operands = [functions.astype(x, element) for x in (q, k, v)]
    if mask is not None:
        mask = as_value(mask)
        operands.append(mask if element_of(mask)[0] is BOOL else functions.astype(mask, element))
    return emit("attention", *operands, causal=causal, scale=scale)
