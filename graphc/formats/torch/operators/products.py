"""Products: matrices, convolutions, einsum, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.operators.elementwise import scaled
from graphc.formats.torch.promotion import cast, dtype_of, promoted
from graphc.formats.torch.table import aten
from graphc.ops.record.value import functions as f


@aten("mm", "bmm", "matmul", "linalg_matmul", "mv", "dot")
def matmul(x: Any, mat2: Any = None, other: Any = None, vec: Any = None, tensor: Any = None) -> Any:
    right = next(v for v in (mat2, other, vec, tensor) if v is not None)
    return f.matmul(x, right)


aten("inner")(lambda x, other: f.inner(x, other))
aten("outer", "ger")(lambda x, vec2: f.outer(x, vec2))
aten("vdot")(lambda x, other: f.vdot(x, other))
aten("cross", "linalg_cross")(lambda x, other, dim=-1: f.cross(x, other, axis=dim))


def _sum_of(x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    made = scaled(product, alpha)
    return made if beta == 0 else f.add(scaled(x, beta), made)


@aten("addmm")
def addmm(x: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _sum_of(x, f.matmul(mat1, mat2), beta, alpha)


@aten("addmv")
def addmv(x: Any, mat: Any, vec: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _sum_of(x, f.matmul(mat, vec), beta, alpha)


@aten("addr")
def addr(x: Any, vec1: Any, vec2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _sum_of(x, f.outer(vec1, vec2), beta, alpha)


@aten("baddbmm")
def baddbmm(x: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _sum_of(x, f.matmul(batch1, batch2), beta, alpha)


@aten("addbmm")
def addbmm(x: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _sum_of(x, f.sum(f.matmul(batch1, batch2), axis=0), beta, alpha)


@aten("linear")
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    held = f.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight
    made = f.matmul(x, held)
    return made if bias is None else f.add(made, bias)


@aten("bilinear")
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    made = f.einsum("...i,oij,...j->...o", input1, weight, input2)
    return made if bias is None else f.add(made, bias)


@aten("_trilinear")
def trilinear(
    i1: Any,
    i2: Any,
    i3: Any,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """The product of three arrays that lack axes, summed over some."""
    rank = i1.ndim + len(expand1)
    refuse(rank <= 26, f"{rank} axes")
    letters = [chr(ord("a") + k) for k in range(rank)]

    def without(gone: Sequence[int]) -> str:
        return "".join(letter for k, letter in enumerate(letters) if k not in gone)

    given = ",".join(map(without, (expand1, expand2, expand3)))
    return f.einsum(f"{given}->{without(sumdim)}", i1, i2, i3)


@aten("einsum")
def einsum(equation: str, tensors: Sequence[Any], path: Any = None) -> Any:
    return f.einsum(equation.replace(" ", ""), *tensors)


@aten("tensordot")
def tensordot(x: Any, other: Any, dims_self: Any, dims_other: Any) -> Any:
    return f.tensordot(x, other, (list(dims_self), list(dims_other)))


@aten("chain_matmul", "linalg_multi_dot")
def multi_dot(tensors: Sequence[Any] = (), matrices: Sequence[Any] = ()) -> Any:
    first, *rest = tensors or matrices
    for other in rest:
        first = f.matmul(first, other)
    return first


@aten("cdist", "_cdist_forward")
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    away = f.subtract(f.expand_dims(x1, -2), f.expand_dims(x2, -3))
    return f.vector_norm(away, axis=-1, ord=float(p))


@aten("pdist", "_pdist_forward")
def pdist(x: Any, p: float = 2.0) -> Any:
    """Distances of each row to those behind it, one after the other."""
    refuse(type(x.shape[0]) is int, "an open number of rows")
    first, second = np.triu_indices(x.shape[0], 1)
    away = f.subtract(f.take(x, first, axis=0), f.take(x, second, axis=0))
    return f.vector_norm(away, axis=-1, ord=float(p))


aten("matrix_power", "linalg_matrix_power")(lambda x, n: getattr(f, "linalg.matrix_power")(x, n))


# ------------------------------------------------------------------------------------ convolutions


def each(value: Any, rank: int) -> tuple[int, ...]:
    """One number for every axis; a single one counts for all."""
    made = tuple(value) if isinstance(value, list | tuple) else (value,)
    made = made * rank if len(made) == 1 else made
    refuse(len(made) == rank, f"{list(made)} for {rank} axes")
    return made


@aten("convolution", "_convolution")
def convolution(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
    benchmark: bool = False,
    deterministic: bool = False,
    cudnn_enabled: bool = False,
    allow_tf32: bool = False,
) -> Any:
    refuse(x.ndim == weight.ndim, f"arrays of rank {x.ndim} and {weight.ndim}")
    rank = x.ndim - 2
    step, spread = each(stride, rank), each(dilation, rank)
    refuse(math.prod(weight.shape[2:]) <= 1 << 16, f"a window of {list(weight.shape[2:])}")
    pairs = [(p, p) for p in each(padding, rank)]
    if transposed:
        more = each(output_padding, rank)
        made = f.conv_transpose(x, weight, step, pairs, more, spread, groups)
    else:
        made = f.conv(x, weight, step, pairs, spread, groups)
    return made if bias is None else f.add(made, f.reshape(bias, (-1, *[1] * rank)))


def _paddings(padding: Any, weight: Any, dilation: Any, rank: int) -> list[tuple[int, int]]:
    """Paddings of the two ends of every axis, "same" and "valid" included."""
    if padding == "valid":
        return [(0, 0)] * rank
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(weight.shape[2:], each(dilation, rank))]
        return [(total // 2, total - total // 2) for total in totals]
    return [(p, p) for p in each(padding, rank)]


def _conv(rank: int) -> Any:
    def conv(
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        held = f.expand_dims(x, 0) if x.ndim == rank + 1 else x
        pairs = _paddings(padding, weight, dilation, rank)
        if any(a != b for a, b in pairs):
            held = f.pad(held, [(0, 0), (0, 0), *pairs])
            pairs = [(0, 0)] * rank
        sizes = [a for a, _ in pairs]
        made = convolution(held, weight, bias, stride, sizes, dilation, groups=groups)
        return f.squeeze(made, 0) if x.ndim == rank + 1 else made

    return conv


def _conv_transpose(rank: int) -> Any:
    def conv_transpose(
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        held = f.expand_dims(x, 0) if x.ndim == rank + 1 else x
        how = stride, padding, dilation, True, output_padding, groups
        made = convolution(held, weight, bias, *how)
        return f.squeeze(made, 0) if x.ndim == rank + 1 else made

    return conv_transpose


for _rank in (1, 2, 3):
    aten(f"conv{_rank}d")(_conv(_rank))
    aten(f"conv_transpose{_rank}d")(_conv_transpose(_rank))


# ------------------------------------------------------------------------------------ attention


@aten("scaled_dot_product_attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    refuse(not dropout_p, "dropout inside attention is not supported")
    q, k, v = query, key, value
    if enable_gqa and q.shape[-3] != k.shape[-3]:
        k, v = (f.repeat(w, q.shape[-3] // w.shape[-3], axis=-3) for w in (k, v))
    refuse(not (is_causal and attn_mask is not None), "a mask beside is_causal")
    if k.shape[-2] == 0:
        return f.zeros((*q.shape[:-1], v.shape[-1]), dtype_of(v))
    if is_causal and q.shape[-2] != k.shape[-2]:
        attn_mask = f.tri(q.shape[-2], k.shape[-2], dtype=bool)
        is_causal = False
    if attn_mask is None:
        return f.attention(q, k, v, causal=is_causal, scale=scale)
    seen, mask = _seen(promoted(attn_mask, q)[0] if dtype_of(attn_mask).kind != "b" else attn_mask)
    return f.where(seen, f.attention(q, k, v, mask, scale=scale), cast(0, dtype_of(v)))


def _seen(mask: Any) -> tuple[Any, Any]:
    """Which queries see a key at all, and a mask that gives numbers for the others, too: those
    give 0 in PyTorch."""
    if dtype_of(mask).kind == "b":
        return f.any(mask, axis=-1, keepdims=True), mask
    held = f.not_equal(mask, cast(-np.inf, dtype_of(mask)))
    seen = f.any(held, axis=-1, keepdims=True)
    return seen, f.where(seen, mask, cast(0, dtype_of(mask)))


def _log_sums(q: Any, k: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scaled(f.matmul(q, f.swapaxes(k, -1, -2)), factor)
    if causal:
        mask = f.tri(q.shape[-2], k.shape[-2], dtype=bool)
    if mask is None:
        return f.logsumexp(scores, axis=-1)
    seen, mask = _seen(mask)
    if dtype_of(mask).kind == "b":
        scores = f.where(mask, scores, np.asarray(-np.inf, dtype_of(scores)))
    else:
        scores = f.add(scores, mask)
    return f.where(f.squeeze(seen, -1), f.logsumexp(scores, axis=-1), cast(0, dtype_of(scores)))


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    made = attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return made, _log_sums(query, key, attn_mask, is_causal, scale)
