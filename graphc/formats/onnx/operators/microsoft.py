"""com.microsoft: the fused operators that optimisers of ONNX Runtime leave in models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import ints, refuse
from graphc.formats.onnx.operators import indexing, layers, shapes
from graphc.formats.onnx.operators.convolutions import conv as plain_conv
from graphc.formats.onnx.operators.products import gemm
from graphc.formats.onnx.operators.quantised import (
    dynamic_quantize,
    mat_mul_integer,
    mat_mul_integer_to_float,
)
from graphc.formats.onnx.operators.recurrent import activation as named_activation
from graphc.formats.onnx.operators.recurrent import lstm_by
from graphc.formats.onnx.table import FIRST, MICROSOFT, operator
from graphc.ops.record.value import functions as f

# ------------------------------------------------------------------------------------ normalisation


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = _summed(x, skip, bias)
    return f.layer_norm(total, gamma, beta, -1, epsilon), None, None, total


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(
    x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = _summed(x, skip, bias)
    return f.rms_norm(total, gamma, None, -1, epsilon), None, None, total


def _summed(x: Any, skip: Any, bias: Any) -> Any:
    total = f.add(x, skip)
    return total if bias is None else f.add(total, bias)


@operator("LayerNormalization", domain=MICROSOFT)
def layer_norm(
    x: Any,
    scale: Any,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    call: Any,
) -> Any:
    return layers.layer_normalization(x, scale, bias, axis=axis, epsilon=epsilon, call=call)


@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def rms_norm(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return layers.rms_normalization(x, scale, axis=axis, epsilon=epsilon)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    ids: Any,
    segments: Any,
    words: Any,
    positions: Any,
    kinds: Any,
    gamma: Any,
    beta: Any,
    mask: Any = None,
    position_ids: Any = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Any:
    length = ids.shape[1]
    total = f.take(words, ids, axis=0)
    places = np.arange(length)[None] if position_ids is None else position_ids
    total = f.add(total, f.take(positions, places, axis=0))
    if segments is not None:
        total = f.add(total, f.take(kinds, segments, axis=0))
    counted = f.zeros((ids.shape[0],), np.int32)
    if mask is not None:
        counted = f.sum(f.astype(mask, np.int32), axis=1)
    return f.layer_norm(total, gamma, beta, -1, epsilon), f.astype(counted, np.int32), total


# ------------------------------------------------------------------------------------ attention


def by_heads(x: Any, count: int) -> Any:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, width = x.shape
    refuse(count > 0 and width % count == 0, f"{width} columns of {count} heads")
    return f.transpose(f.reshape(x, (batch, length, count, width // count)), (0, 2, 1, 3))


def joined(x: Any) -> Any:
    batch, heads, length, size = x.shape
    return f.reshape(f.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def _masked(mask: Any, queries: Any, keys: Any, low: float) -> Any:
    """What a mask adds to the scores: nothing where it is 1, a low number where it is 0."""
    if mask is None:
        return None
    batch, length = queries.shape[0], keys.shape[2]
    if mask.ndim == 1:  # of each batch behind its last key, then perhaps its first one
        refuse(mask.shape[0] in (batch, 2 * batch), "masks of several sequences in a row")
        ends = f.reshape(f.astype(mask, np.int64), (-1, batch, 1))
        kept = f.less(f.arange(length)[None], f.getitem(ends, 0))
        if mask.shape[0] != batch:
            kept = f.logical_and(kept, f.greater_equal(f.arange(length)[None], f.getitem(ends, 1)))
    else:
        kept = f.not_equal(mask, 0)
    if kept.ndim == 2:
        kept = f.reshape(kept, (kept.shape[0], 1, 1, kept.shape[1]))
    elif kept.ndim == 3:
        kept = f.expand_dims(kept, 1)
    return f.where(kept, np.float32(0), np.float32(low))


def _attended(q: Any, k: Any, v: Any, added: Any, causal: int, scale: float) -> Any:
    factor = scale or 1 / math.sqrt(q.shape[-1])
    if causal:
        queries, keys = q.shape[2], k.shape[2]
        seen = np.tril(np.ones((queries, keys), bool), keys - queries)
        low = np.where(seen, 0, -np.inf).astype(np.float32)
        added = low if added is None else f.add(added, low)
    if added is not None:
        added = f.astype(added, q.dtype)
    return f.attention(q, k, v, added, scale=factor)


@operator("Attention", domain=MICROSOFT)
def attention(
    x: Any,
    weights: Any,
    bias: Any = None,
    mask: Any = None,
    past: Any = None,
    added: Any = None,
    past_length: Any = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    qkv_hidden_sizes: Any = (),
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    refuse(not do_rotary and past_length is None, "rotary embedding and shared buffers")
    product = f.matmul(x, weights)
    product = product if bias is None else f.add(product, bias)
    low = mask_filter_value
    return _projected(
        product, mask, past, added, num_heads, qkv_hidden_sizes, unidirectional, scale, low
    )


def _projected(
    product: Any,
    mask: Any,
    past: Any,
    added: Any,
    heads: int,
    given: Any,
    causal: int,
    scale: float,
    filling: float,
) -> Any:
    """Attention of queries, keys and values that stand side by side, and the keys and values."""
    third = product.shape[-1] // 3
    sizes = tuple(given) or (third, third, third)
    q, k, v = (by_heads(p, heads) for p in f.split(product, np.cumsum(sizes)[:-1].tolist(), -1))
    if past is not None:
        k = f.concatenate([f.getitem(past, 0), k], 2)
        v = f.concatenate([f.getitem(past, 1), v], 2)
    low = _masked(mask, q, k, filling)
    both = added if low is None else low if added is None else f.add(low, added)
    made = joined(_attended(q, k, v, both, causal, scale))
    return made, (f.stack([k, v], 0) if k.shape == v.shape else None)


@operator("QAttention", domain=MICROSOFT)
def quantised_attention(
    x: Any,
    weights: Any,
    bias: Any,
    x_scale: Any,
    scale: Any,
    mask: Any = None,
    x_zero: Any = None,
    zero: Any = None,
    past: Any = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    unidirectional: int = 0,
) -> Any:
    refuse(not do_rotary and not past_present_share_buffer, "rotary embedding and shared buffers")
    product = mat_mul_integer_to_float(x, weights, x_scale, scale, x_zero, zero, bias)
    low = mask_filter_value
    return _projected(product, mask, past, None, num_heads, (), unidirectional, 0.0, low)


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    q: Any,
    k: Any = None,
    v: Any = None,
    bias: Any = None,
    mask: Any = None,
    added: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    *,
    num_heads: int,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    unidirectional: int = 0,
) -> Any:
    if k is None:  # packed: [batch, length, heads, 3, size]
        q, k, v = (f.getitem(q, (slice(None), slice(None), slice(None), n)) for n in range(3))
        q, k, v = (f.transpose(part, (0, 2, 1, 3)) for part in (q, k, v))
    else:
        refuse(v is not None, "packed keys and values are not supported")
        width = q.shape[-1]
        if bias is not None:
            parts = f.split(bias, [width, 2 * width], 0)
            q = f.add(q, parts[0])
            k, v = (p if p.ndim == 4 else f.add(p, b) for p, b in zip((k, v), parts[1:]))
        q, k, v = (part if part.ndim == 4 else by_heads(part, num_heads) for part in (q, k, v))
    if past_k is not None:
        k, v = f.concatenate([past_k, k], 2), f.concatenate([past_v, v], 2)
    low = _masked(mask, q, k, mask_filter_value)
    both = added if low is None else low if added is None else f.add(low, added)
    return joined(_attended(q, k, v, both, unidirectional, scale)), k, v


# ------------------------------------------------------------------------------------ the rest

operator("Trilu", domain=MICROSOFT, moves=FIRST)(shapes.trilu)
operator("Range", domain=MICROSOFT)(shapes.range_)
operator("Pad", domain=MICROSOFT)(shapes.pad)
operator("GatherND", domain=MICROSOFT, moves=FIRST)(indexing.gather_nd)


@operator("ExpandDims", domain=MICROSOFT, moves=FIRST)
def expand_dims(x: Any, axis: Any) -> Any:
    return f.expand_dims(x, ints(axis))


@operator("CDist", domain=MICROSOFT)
def distances(a: Any, b: Any, *, metric: str = "sqeuclidean") -> Any:
    """Distances of all rows of a from all rows of b."""
    refuse(metric in ("sqeuclidean", "euclidean"), f"no distances {metric!r}")
    apart = f.subtract(f.expand_dims(a, 1), f.expand_dims(b, 0))
    squares = f.sum(f.multiply(apart, apart), axis=-1)
    return f.sqrt(squares) if metric == "euclidean" else squares


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    **how: Any,
) -> Any:
    numbers = activation_alpha, activation_beta, activation_gamma
    return _activated(gemm(a, b, c, **how), activation, numbers)


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: Any,
    w: Any,
    bias: Any = None,
    added: Any = None,
    *,
    activation: str = "",
    activation_params: Any = (),
    **windows: Any,
) -> Any:
    made = plain_conv(x, w, bias, **windows)
    made = made if added is None else f.add(made, added)
    return _activated(made, activation, activation_params)


def _activated(x: Any, name: str, parameters: Sequence[float | None]) -> Any:
    if not name:
        return x
    if name == "Clip":
        return f.clip(x, *(np.asarray(v, x.dtype) for v in parameters[:2]))
    return named_activation(name, *(*parameters, None, None)[:3])(x)


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(x: Any, bias: Any, skip: Any) -> Any:
    return f.add(f.add(x, bias), skip)


@operator("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(x: Any, bias: Any, *, axis: int = 1, is_inner_broadcast: int = 1) -> Any:
    refuse(axis in (-1, x.ndim - 1), "only the last axis is supported")
    return f.softmax(f.add(x, bias), -1)


@operator("Inverse", domain=MICROSOFT)
def inverse(x: Any) -> Any:
    return getattr(f, "linalg.inv")(x)


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    lengths: Any,
    h: Any,
    c: Any,
    p: Any,
    w_scale: Any,
    w_zero: Any,
    r_scale: Any,
    r_zero: Any,
    **how: Any,
) -> Any:
    """An LSTM whose products are of 8 bits: all steps of x, and each state, are quantised as
    DynamicQuantizeLinear does."""

    def product(d: int, weights: Any, scale: Any, zero: Any) -> Any:
        def rows(v: Any) -> Any:
            units, step, offset = dynamic_quantize(v)
            total = mat_mul_integer(
                units, f.getitem(weights, d), offset, f.getitem(zero, d) if zero.ndim else zero
            )
            return f.multiply(
                f.astype(total, np.float32),
                f.multiply(step, f.getitem(scale, d) if scale.ndim else scale),
            )

        return rows

    of_x, of_state = (w, w_scale, w_zero), (r, r_scale, r_zero)
    return lstm_by(x, product, of_x, of_state, r.shape[1], b, lengths, h, c, p, **how)
