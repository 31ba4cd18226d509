"""Whole layers of transformers as one operator, which PyTorch runs outside of training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import gelu, scaled
from graphc.formats.torch.operators.layers import layer_norm
from graphc.formats.torch.operators.products import linear
from graphc.formats.torch.promotion import cast, dtype_of
from graphc.formats.torch.table import aten
from graphc.ops.record.value import functions as f


def _heads(x: Any, count: int) -> Any:
    """[batch, length, width] as [batch, head, length, width of a head]."""
    batch, length, width = x.shape
    refuse(width % count == 0, f"{count} heads in a width of {width}")
    return f.swapaxes(f.reshape(x, (batch, length, count, width // count)), 1, 2)


def _mask(mask: Any, mask_type: int | None, batch: int) -> Any:
    """A mask as one of scores [batch, head, query, key]: of pairs, of keys, or whole already."""
    made = mask if dtype_of(mask).kind == "b" else f.not_equal(mask, 0)
    refuse(mask_type in (0, 1, 2), f"a mask of kind {mask_type}")
    if mask_type == 1:
        return f.reshape(made, (batch, 1, 1, made.shape[-1]))
    return made


def _attended(
    parts: tuple[Any, Any, Any], heads: int, mask: Any, mask_type: int | None
) -> tuple[Any, Any]:
    """Weighted values [batch, length, width], and the weights [batch, head, query, key]."""
    q, k, v = (_heads(part, heads) for part in parts)
    scores = f.matmul(scaled(q, 1 / math.sqrt(q.shape[-1])), f.swapaxes(k, -1, -2))
    if mask is not None:
        hidden = _mask(mask, mask_type, q.shape[0])
        scores = f.where(hidden, cast(-np.inf, dtype_of(scores)), scores)
    weights = f.softmax(scores, -1)
    made = f.swapaxes(f.matmul(weights, v), 1, 2)
    return f.reshape(made, (*made.shape[:2], parts[0].shape[-1])), weights


@aten("_native_multi_head_attention")
def native_multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """Rows of query, key and value weights lie behind one another; true is hidden in the mask."""
    weights, biases = f.split(qkv_weight, 3, 0), f.split(qkv_bias, 3, 0)
    given = query, key, value
    parts = tuple(linear(x, w, b) for x, w, b in zip(given, weights, biases))
    made, seen = _attended((parts[0], parts[1], parts[2]), num_head, mask, mask_type)
    made = linear(made, proj_weight, proj_bias)
    if not need_weights:
        return made, None
    return made, f.mean(seen, axis=1) if average_attn_weights else seen


@aten("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    def first(v: Any) -> Any:
        return layer_norm(v, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(v: Any) -> Any:
        return layer_norm(v, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(v: Any) -> Any:
        packed = f.split(linear(v, qkv_weight, qkv_bias), 3, -1)
        made, _ = _attended((packed[0], packed[1], packed[2]), num_heads, mask, mask_type)
        return linear(made, proj_weight, proj_bias)

    def widened(v: Any) -> Any:
        inner = linear(v, ffn_weight_1, ffn_bias_1)
        return linear(gelu(inner) if use_gelu else f.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        held = f.add(src, attended(first(src)))
        return f.add(held, widened(second(held)))
    held = first(f.add(src, attended(src)))
    return second(f.add(held, widened(held)))
