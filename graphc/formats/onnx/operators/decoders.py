"""com.microsoft: what decoders of language models are made of: rotations by position, and attention
whose queries share keys and values that earlier calls left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.onnx.operators.microsoft import by_heads, joined
from graphc.formats.onnx.table import MICROSOFT, operator
from graphc.ops.record.value import functions as f


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    x: Any,
    positions: Any,
    cosines: Any,
    sines: Any,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Any:
    refuse(not is_packed_batching and scale == 1.0, "packed batches and scales")
    refuse(x.ndim in (3, 4), f"an array of rank {x.ndim}")
    if x.ndim == 4:
        return _rotated(x, _places(positions, x.shape[2]), cosines, sines, interleaved)
    _, length, width = x.shape
    refuse(num_heads > 0 or not rotary_embedding_dim, "heads of an unknown number")
    size = width // num_heads if num_heads else 2 * cosines.shape[1]
    refuse(size > 0 and width % size == 0, f"{width} columns of heads of {size}")
    apart = by_heads(x, width // size)
    made = _rotated(apart, _places(positions, length), cosines, sines, interleaved)
    return joined(made)


def _places(positions: Any, length: Any) -> Any:
    """Positions [batch, length]; one number is that of the first."""
    if positions.ndim == 2:
        return positions
    return f.add(f.reshape(positions, (1, 1)), f.arange(length)[None])


def _rotated(x: Any, places: Any, cosines: Any, sines: Any, interleaved: int) -> Any:
    """The first columns of each head as complex numbers, turned by the angles of their places.

    x [batch, heads, length, size], places [batch or 1, length], cosines [most, half].
    """
    half = cosines.shape[1]
    refuse(2 * half <= x.shape[3], f"rotations of {2 * half} columns of {x.shape[3]}")
    real, other = (f.expand_dims(f.take(table, places, axis=0), 1) for table in (cosines, sines))
    step = 2 if interleaved else 1
    first, second = (
        f.getitem(x, (..., slice(start, start + step * half - step + 1, step)))
        for start in ((0, 1) if interleaved else (0, half))
    )
    made = [
        f.subtract(f.multiply(first, real), f.multiply(second, other)),
        f.add(f.multiply(first, other), f.multiply(second, real)),
    ]
    if interleaved:
        turned = f.reshape(f.stack(made, -1), (*x.shape[:3], 2 * half))
    else:
        turned = f.concatenate(made, -1)
    if 2 * half == x.shape[3]:
        return turned
    return f.concatenate([turned, f.getitem(x, (..., slice(2 * half, None)))], -1)


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    q: Any,
    k: Any,
    v: Any,
    past_k: Any,
    past_v: Any,
    last: Any,
    total: Any,
    cosines: Any = None,
    sines: Any = None,
    positions: Any = None,
    added: Any = None,
    sinks: Any = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    local_window_size: int = -1,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    call: Any,
) -> Any:
    """Attention over the keys of earlier calls and of this one.

    last [batch] is the place of each row's last key; those of this call stand behind the others,
    and rows of less than that many keys are filled up behind.  What was there before comes in a
    buffer that holds no more than that: `past` and this call's keys together are `total`.
    """
    refuse(sinks is None and not smooth_softmax, "attention sinks are not supported")
    refuse(len(call.node.outputs) <= 3, "scores as a result are not supported")
    refuse(kv_num_heads > 0 and num_heads % kv_num_heads == 0, "heads that share no keys evenly")
    q, k, v = _apart(q, k, v, num_heads, kv_num_heads)
    length = q.shape[2]
    known_before = f.subtract(f.reshape(f.astype(last, np.int64), (-1, 1)), length - 1)
    start = f.maximum(known_before, np.int64(0))
    places = f.add(start, f.arange(length)[None])
    if do_rotary:
        at = places if positions is None else positions
        q, k = (_rotated(x, at, cosines, sines, rotary_interleaved) for x in (q, k))
    keys, values = (_behind(p, x, start) for p, x in ((past_k, k), (past_v, v)))
    low = f.astype(_window(places, keys.shape[2], local_window_size), q.dtype)
    low = low if added is None else f.add(low, added)
    shared = num_heads // kv_num_heads
    k, v = (f.repeat(x, shared, axis=1) if shared > 1 else x for x in (keys, values))
    made = _capped(q, k, v, low, scale or q.shape[3] ** -0.5, softcap)
    return joined(made), keys, values


def _apart(q: Any, k: Any, v: Any, queries: int, shared: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values by heads; alone, the first holds all three side by side."""
    if k is None:
        parts = queries + 2 * shared
        refuse(q.shape[2] % parts == 0, f"{q.shape[2]} columns of {parts} heads")
        size = q.shape[2] // parts
        q, k, v = f.split(q, [queries * size, (queries + shared) * size], -1)
    return by_heads(q, queries), by_heads(k, shared), by_heads(v, shared)


def _behind(past: Any, new: Any, start: Any) -> Any:
    """Rows of a buffer with new ones from start[batch, 1] on: [batch, heads, rows, size]."""
    if past is None or past.shape[2] == 0:
        return new
    joined = f.concatenate([past, new], 2)
    at = f.arange(joined.shape[2])[None]
    beyond = f.subtract(at, start)
    inside = f.add(f.minimum(beyond, new.shape[2] - 1), past.shape[2])
    at = f.where(f.less(beyond, 0), at, inside)
    return f.take_along_axis(joined, f.expand_dims(at, (1, 3)), 2)


def _window(places: Any, count: Any, width: int) -> Any:
    """What is added to the scores of `count` keys: nothing up to a query's place, then -inf.

    places [batch, length] -> [batch, 1, length, count]
    """
    own = f.expand_dims(places, (1, 3))
    keys = f.arange(count)
    seen = f.less_equal(keys, own)
    if width > 0:
        seen = f.logical_and(seen, f.greater(keys, f.subtract(own, width)))
    return f.where(seen, np.float32(0), np.float32(-np.inf))


def _capped(q: Any, k: Any, v: Any, added: Any, scale: float, cap: float) -> Any:
    if not cap:
        return f.attention(q, k, v, added, scale=scale)
    scores = f.multiply(f.matmul(q, f.swapaxes(k, -1, -2)), np.asarray(scale).astype(q.dtype))
    most = np.asarray(cap).astype(q.dtype)
    scores = f.multiply(most, f.tanh(f.divide(scores, most)))
    return f.matmul(f.softmax(f.add(scores, added), -1), v)
