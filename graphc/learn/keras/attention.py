"""Attention: with heads, with heads that share keys, of one head as Luong and Bahdanau have it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.learn.keras.table import (
    Array,
    Function,
    Masked,
    Settings,
    Weights,
    as_real,
    expect,
    layers,
    one_of,
    rank_of,
    some,
)
from graphc.ops.record.value import functions as f

_PARTS = ("query", "key", "value", "output")


@layers("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
def heads(settings: Settings, weights: Weights) -> Function:
    """Kernels [width, heads, part] into the heads, [heads, part, width] out of them."""
    expect(settings, attention_axes=[1], use_gate=False)
    before = "" if settings["class_name"] == "MultiHeadAttention" else "_"
    given = [some(settings, weights.child(f"{before}{p}_dense"), 1, 2) for p in _PARTS]
    window, scale = settings.get("sliding_window"), 1 / math.sqrt(given[0][0].shape[-1])
    drops = bool(settings.get("dropout"))

    def call(
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        """Masks of steps are of [batch, time]; that of attention of [batch, queries, keys]."""
        alike = key is None or key is value
        q, k, v = map(_into_heads, (query, value if alike else key, value), given)
        seen = [None if query_mask is None else f.expand_dims(query_mask, -1)]
        seen += [None if m is None else f.expand_dims(m, -2) for m in (value_mask, key_mask)]
        seen += [_causal(query, value, window, use_causal_mask)]
        seen += [None if attention_mask is None else f.astype(attention_mask, np.bool_)]
        mask = _all(seen)
        if mask is not None:
            mask = f.expand_dims(mask, -3) if rank_of(mask) == 3 else mask
        made, scores = _attended(q, k, v, mask, scale, drops or return_attention_scores)
        made = _out_of_heads(made, given[3])
        result = made if query_mask is None else Masked(made, query_mask)
        return (result, scores) if return_attention_scores else result

    return call


def _into_heads(x: Any, given: list[Array]) -> Any:
    """[batch, time, width] to [batch, heads, time, part]."""
    kernel, *bias = given
    width, count, part = kernel.shape
    made = f.matmul(as_real(x, kernel.dtype), kernel.reshape(width, count * part))
    made = f.add(made, bias[0].reshape(-1)) if bias else made
    return f.swapaxes(f.reshape(made, (*made.shape[:-1], count, part)), -2, -3)


def _out_of_heads(x: Any, given: list[Array]) -> Any:
    kernel, *bias = given
    count, part, *after = kernel.shape
    turned = f.swapaxes(x, -2, -3)
    made = f.reshape(turned, (*turned.shape[:-2], count * part))
    made = f.matmul(made, kernel.reshape(count * part, math.prod(after)))
    made = f.reshape(made, (*made.shape[:-1], *after)) if len(after) > 1 else made
    return f.add(made, bias[0]) if bias else made


def _causal(query: Any, value: Any, window: Any, causal: bool) -> Any:
    """Which keys a query may look at for their places, bool [1, queries, keys]; None for all."""
    if not causal and window is None:
        return None
    rows = f.expand_dims(f.arange(query.shape[1]), (0, 2))
    columns = f.expand_dims(f.arange(value.shape[1]), (0, 1))
    near = None if window is None else f.less(f.abs(f.subtract(rows, columns)), window)
    return _all([f.greater_equal(rows, columns) if causal else None, near])


def _all(masks: list[Any]) -> Any:
    made = None
    for mask in masks:
        if mask is not None:
            made = mask if made is None else f.logical_and(made, mask)
    return made


def _attended(q: Any, k: Any, v: Any, mask: Any, scale: float, told: bool) -> tuple[Any, Any]:
    """(what is seen, shares of the keys); where a query may see nothing, the plain mean, but zeros
    where the shares are `told`: Keras has other ways to the same for what drops or shows them."""
    if mask is None and not told:
        return f.attention(q, k, v, scale=scale), None
    many = q.shape[1] // k.shape[1]
    k, v = (f.repeat(x, many, axis=1) for x in (k, v)) if many > 1 else (k, v)
    scores = f.multiply(f.matmul(q, f.swapaxes(k, -1, -2)), scale)
    shares = f.softmax(_hidden(scores, mask), -1)
    if told and mask is not None:
        shares = f.where(mask, shares, f.zeros_like(shares))
    return f.matmul(shares, v), shares


def _hidden(scores: Any, mask: Any) -> Any:
    if mask is None:
        return scores
    low = -6e4 if np.dtype(scores.dtype) == np.float16 else -1e9
    return f.where(mask, scores, f.full_like(scores, low))


@layers("Attention", "AdditiveAttention")
def attention(settings: Settings, weights: Weights) -> Function:
    """Queries, values and, where they are others, keys in one list, and their masks in another."""
    score = _score(settings, weights.arrays)

    def call(
        inputs: Any,
        mask: Any = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        query, value, *rest = inputs
        of_query, of_value, *_ = mask or (None, None)
        scores = score(query, rest[0] if rest else value)
        seen = [None if of_value is None else f.expand_dims(of_value, -2)]
        seen += [_causal(query, value, None, use_causal_mask)]
        shares = f.softmax(_hidden(scores, _all(seen)), -1)
        made = f.matmul(shares, value)
        if of_query is not None:
            made = f.where(f.expand_dims(of_query, -1), made, f.zeros_like(made))
            made = Masked(made, of_query)
        return (made, shares) if return_attention_scores else made

    return call


def _score(settings: Settings, arrays: list[Array]) -> Function:
    """(queries, keys) -> scores [batch, queries, keys]."""
    scaled = settings.get("use_scale", settings["class_name"] == "AdditiveAttention")
    scale = arrays.pop(0) if scaled else None
    mode = one_of(settings, "score_mode", ("dot", "concat"), "dot")

    def by_product(query: Any, key: Any) -> Any:
        made = f.matmul(query, f.swapaxes(key, -2, -1))
        return made if scale is None else f.multiply(made, scale)

    def by_sum(query: Any, key: Any) -> Any:
        both = f.add(f.expand_dims(query, -2), f.expand_dims(key, -3))
        if settings["class_name"] == "AdditiveAttention":
            made = f.tanh(both)
            return f.sum(made if scale is None else f.multiply(made, scale), axis=-1)
        both = both if scale is None else f.multiply(both, scale)
        return f.multiply(f.sum(f.tanh(both), axis=-1), arrays[0])

    additive = settings["class_name"] == "AdditiveAttention" or mode == "concat"
    return by_sum if additive else by_product
