"""Scaled dot-product attention (Vaswani et al., 2017), with grouped key and value heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir.op import FINITE, Attr, Composite, Sample
from graphc.ir.types import (
    BOOL,
    AnyType,
    Dimension,
    TupleType,
    Type,
    definitely_different,
    dtype,
    tensor,
    tuple_type,
)
from graphc.ops.nn.attention_gradient import attention_gradient, cotangents
from graphc.ops.nn.attention_scores import HIDDEN, bands_of, default_scale, scores, share_heads
from graphc.ops.nn.softmax import softmax_reference
from graphc.ops.record.arguments import Applied, Array, ArrayLike
from graphc.ops.record.batching import onto
from graphc.ops.record.families import (
    FLOATS,
    broadcast_dims,
    define,
    require,
    require_dtype,
    require_representable,
    require_tensor,
    sample_array,
    wide,
)
from graphc.ops.record.value import (
    Value,
    as_value,
    common_element,
    element_of,
    emit,
    functions,
    public,
)
from graphc.ops.shape.slicing import slice_axis


def infer_attention(
    q: AnyType, k: AnyType, v: AnyType, *mask: AnyType, causal: bool, scale: float | None
) -> Type:
    require(len(mask) <= 1, f"attention takes 3 or 4 operands, got {3 + len(mask)}")
    require_tensor("attention", q, k, v, *mask)
    assert isinstance(q, Type)
    assert isinstance(k, Type)
    assert isinstance(v, Type)
    require_dtype("attention", q, FLOATS)
    signature = f"attention(q {q}, k {k}, v {v})"
    require_representable("attention", q.dtype, scale=1.0 if scale is None else scale)
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
        whole = isinstance(heads, int) and isinstance(shared, int) and min(heads, shared) > 0
        grouped = whole and heads % shared == 0  # type: ignore[operator]
        require(grouped, f"{signature}: {heads} query heads share {shared} key heads")
    leading = broadcast_dims([q.shape[:-3], k.shape[:-3]])
    require(leading == q.shape[:-3], f"{signature}: batch dimensions differ")
    return q.shape[:-2]


def _expand_attention(
    q: Any, k: Any, v: Any, *mask: Value, causal: bool, scale: float | None
) -> Any:
    f, element = functions, element_of(q)[0]
    q, k, v = (f.astype(x, element.compute) for x in (q, k, v))
    if len(q.shape) > 2:
        k, v = (share_heads(x, q.shape[-3]) for x in (k, v))
    factor = default_scale(q.shape[-1]) if scale is None else scale
    bands = bands_of(q.shape[-2], k.shape[-2], causal) if causal and not mask else ()
    if len(bands) < 2:
        return f.astype(_attend(q, k, v, mask, causal, factor), element)
    parts = []
    for start, stop, seen in bands:
        rows = slice_axis(q, -2, start, stop)
        keys, values = (slice_axis(x, -2, 0, seen) for x in (k, v))
        parts.append(_attend(rows, keys, values, (), True, factor))
    return f.astype(f.concatenate(parts, -2), element)


def _attend(
    q: Value, k: Value, v: Value, mask: tuple[Any, ...], causal: bool, factor: float
) -> Any:
    return functions.matmul(functions.softmax(scores(q, k, mask, causal, factor)), v)


def attention_reference(
    q: Array, k: Array, v: Array, *mask: Array, causal: bool, scale: float | None
) -> Any:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    if q.ndim > 2 and k.shape[-3] not in (1, q.shape[-3]):
        k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
    scores = np.einsum("...id,...jd->...ij", q, k)
    scores = scores * (default_scale(q.shape[-1]) if scale is None else scale)
    for bias in mask:
        scores = np.where(bias, scores, HIDDEN) if bias.dtype == bool else scores + bias
    if causal:
        rows, columns = scores.shape[-2:]
        scores = np.where(np.tri(rows, columns, columns - rows, dtype=bool), scores, HIDDEN)
    return np.einsum("...ij,...jd->...id", softmax_reference(scores, scores.ndim - 1), v)


def attention_samples() -> list[Sample]:
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


def attention_cost(node: Applied) -> tuple[float, float]:
    q, v = node.inputs[0].type, node.inputs[2].type
    rows, columns = q.size // max(q.dims[-1], 1), v.dims[-2]
    moved = sum(n.type.nbytes for n in node.inputs) + node.type.nbytes
    return 2.0 * rows * columns * (q.dims[-1] + v.dims[-1] + 15), float(moved)


ATTRS = (Attr("causal", "bool", False), Attr("scale", "float", None, optional=True, within=FINITE))

define(
    "attention",
    batch=onto(3),
    infer=infer_attention,
    reference=wide(attention_reference),
    lower=Composite(_expand_attention),
    attrs=ATTRS,
    dtypes=FLOATS,
    gradient=attention_gradient,
    cost=attention_cost,
    samples=attention_samples,
    variadic=True,
    doc="softmax(q k^T scale + mask) v over [..., heads, length, width].",
)


def infer_backward(
    ct: AnyType, result: AnyType, q: AnyType, k: AnyType, v: AnyType, *mask: AnyType, **attrs: Any
) -> TupleType:
    made = infer_attention(q, k, v, *mask, **attrs)
    same = ct is made and result is made
    require(same, f"attention_backward: {ct} and {result} are not both {made}")
    plain = all(isinstance(kind, Type) and kind.dtype is BOOL for kind in mask)
    require(plain, "attention_backward: the mask is not bool")
    return tuple_type((q, k, v))


def backward_reference(
    ct: Array,
    result: Array,
    q: Array,
    k: Array,
    v: Array,
    *mask: Array,
    causal: bool,
    scale: float | None,
) -> tuple[Any, ...]:
    """Cotangents of q, k and v, in the type of wide floats."""
    ct, result, q, k, v = (np.asarray(x, np.float64) for x in (ct, result, q, k, v))
    kinds = k.shape, v.shape
    if q.ndim > 2:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    factor = default_scale(q.shape[-1]) if scale is None else scale
    seen = np.ones((q.shape[-2], k.shape[-2]), bool)
    seen = np.tril(seen, k.shape[-2] - q.shape[-2]) if causal else seen
    for bias in mask:
        seen = seen & bias
    scores = np.einsum("...id,...jd->...ij", q, k) * factor
    p = softmax_reference(np.where(seen, scores, HIDDEN), scores.ndim - 1)
    dp = np.einsum("...id,...jd->...ij", ct, v) - (ct * result).sum(-1, keepdims=True)
    ds = np.where(seen, p * dp, 0) * factor
    to_q = np.einsum("...ij,...jd->...id", ds, k)
    to_k = np.einsum("...ij,...id->...jd", ds, q)
    to_v = np.einsum("...ij,...id->...jd", p, ct)
    return to_q, *(_summed(x, dims) for x, dims in zip((to_k, to_v), kinds, strict=True))


def _summed(x: Array, dims: tuple[int, ...]) -> Any:
    """Cotangents of an operand of these dims, which heads or batches may have shared."""
    lead = []
    for extent, whole in zip(dims[:-2], x.shape[:-2], strict=True):
        lead += [extent, whole // max(extent, 1)]
    return x.reshape(*lead, *x.shape[-2:]).sum(tuple(range(1, len(lead), 2)))


def backward_samples() -> list[Sample]:
    made = []
    for sample in attention_samples():
        q, k, v, *mask = sample.operands
        if not sample.good or any(m.dtype != bool for m in mask):
            continue
        causal = sample.attrs.get("causal", False)
        scale = sample.attrs.get("scale")
        result = attention_reference(q, k, v, *mask, causal=causal, scale=scale).astype(q.dtype)
        ct = sample_array(dtype(q.dtype).name, result.shape, (-1.0, 1.0), 9)
        made.append(Sample((ct, result, *sample.operands), sample.attrs, tolerance=64))
    return made


define(
    "attention_backward",
    batch=onto(5),
    infer=infer_backward,
    reference=wide(backward_reference),
    lower=Composite(lambda *operands, **attrs: tuple(cotangents(*operands, **attrs)[:3])),
    attrs=ATTRS,
    dtypes=FLOATS,
    samples=backward_samples,
    variadic=True,
    doc="Cotangents of q, k and v of attention, from that of its result and the result itself.",
)


@public()
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    causal: bool = False,
    scale: float | None = None,
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
