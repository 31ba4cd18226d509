"""The backward pass of attention; scores are computed anew (FlashAttention, Dao et al., 2022).

    p = softmax(q k^T factor + mask)        v' = p^T ct      dp = ct v^T
    ds = p (dp - sum over d of ct result)   q' = ds k factor      k' = ds^T q factor

Long sequences run head by head in a loop, each in bands of rows, so that only one band of one
head's scores exists at a time.  Scores that take no more memory than the operands are kept from the
forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from graphc.ir.op import OPS
from graphc.ir.types import BOOL, tensor
from graphc.ops.autodiff.adjoints import sum_to
from graphc.ops.autodiff.region_gradients import region_of
from graphc.ops.linalg.matmul import left_gradient, right_gradient
from graphc.ops.nn.attention_scores import bands_of, default_scale, scores, share_heads, visible
from graphc.ops.record.arguments import Tensor
from graphc.ops.record.value import Value, element_of, emit, functions
from graphc.ops.shape.padding import pad_zeros
from graphc.ops.shape.slicing import slice_axis
from graphc.ops.tuning import tuned

Step = Callable[[Sequence[Any], tuple[Any, ...]], list[Any]]


def attention_gradient(
    ct: Value,
    result: Value,
    q: Any,
    k: Any,
    v: Any,
    *mask: Value,
    causal: bool,
    scale: float | None,
) -> list[Any]:
    """Cotangents of q, k, v and a float mask."""
    operands = ct, result, q, k, v, *mask
    if any(element_of(m)[0] is not BOOL for m in mask):
        return cotangents(*operands, causal=causal, scale=scale)
    made = emit("attention_backward", *operands, causal=causal, scale=scale)
    return [*made, *(None for _ in mask)]


def cotangents(
    ct: Value,
    result: Value,
    q: Any,
    k: Any,
    v: Any,
    *mask: Value,
    causal: bool,
    scale: float | None,
) -> list[Any]:
    """The same, written out; None for a mask that is no float."""
    f, operands = functions, (q, k, v, *mask)
    ct, result, q, k, v = (f.astype(x, element_of(q)[0].compute) for x in (ct, result, q, k, v))
    if len(q.shape) > 2:
        k, v = (share_heads(x, q.shape[-3]) for x in (k, v))
    factor = default_scale(q.shape[-1]) if scale is None else scale
    drops = f.sum(f.multiply(ct, result), -1, keepdims=True)
    step = partial(_in_bands, causal=causal, factor=factor)
    masks = tuple(f.reshape(m, (*(1,) * (2 - len(m.shape)), *m.shape)) for m in mask)
    if few_scores(q, v):
        made = step((ct, drops, q, k, v), masks)
    elif _can_loop(q, masks):
        made = _by_head((ct, drops, q, k, v), masks, step)
    else:
        # Behind the barrier the scores are not those of the forward pass, which cse would keep.
        made = step((ct, drops, emit("barrier", q, ct), k, v), masks)
    return [None if x is None else fitting(x, operand) for x, operand in zip(made, operands)]


def few_scores(q: Any, v: Any) -> bool:
    """Do the scores take no more memory than q, k, v and the result?"""
    rows, columns, width = q.shape[-2], v.shape[-2], q.shape[-1] + v.shape[-1]
    known = all(isinstance(n, int) for n in (rows, columns, width))
    return known and rows * columns <= (rows + columns) * width


def fitting(x: Any, operand: Value) -> Any:
    """The cotangent of an operand whose heads, or batches, were shared."""
    dims = operand.shape
    if len(dims) > 2 and dims[-3] not in (1, x.shape[-3]):
        split = (*x.shape[:-3], dims[-3], x.shape[-3] // dims[-3], *x.shape[-2:])
        x = functions.sum(functions.reshape(x, split), -3)
    return functions.astype(sum_to(x, dims), element_of(operand)[0])


# ------------------------------------------------------------------------------------- heads


def _can_loop(q: Tensor, masks: tuple[Any, ...]) -> bool:
    """Several heads, known while compiling, and masks that need not be repeated for each."""
    lead = q.shape[:-2]
    if not all(isinstance(n, int) for n in lead) or math.prod(lead) < 2:
        return False
    return all(_is_shared(m) or _moves(m, q) for m in masks)


def _is_shared(mask: Value) -> bool:
    """One condition for all heads."""
    return element_of(mask)[0] is BOOL and all(n == 1 for n in mask.shape[:-2])


def _moves(mask: Tensor, q: Tensor) -> bool:
    """A mask of each head, or one that is small: of whole rows or columns."""
    return bool(mask.shape[:-2] == q.shape[:-2] or 1 in mask.shape[-2:])


def _by_head(arrays: Sequence[Any], masks: tuple[Any, ...], step: Step) -> list[Any]:
    """A step over all heads as a loop over them."""
    f, lead = functions, arrays[0].shape[:-2]
    count = math.prod(lead)
    shared = [f.reshape(m, m.shape[-2:]) for m in masks if _is_shared(m)]
    moving = [*arrays, *(m for m in masks if not _is_shared(m))]
    moving = [f.broadcast_to(x, (*lead, *x.shape[-2:])) for x in moving]
    moving = [f.reshape(x, (count, *x.shape[-2:])) for x in moving]
    kinds = [tensor(x.element, x.shape[1:]) for x in moving] + [x.type for x in shared]

    def body(_: Any, values: list[Any]) -> list[Any]:
        made = step(values[: len(arrays)], tuple(values[len(arrays) :]))
        return [x for x in made if x is not None]

    trace = arrays[0].owner
    nodes = tuple(x.node for x in (*moving, *shared))
    attrs = {"carries": 0, "scanned": len(moving), "length": count, "reverse": False}
    made = trace.emit(OPS["scan"], nodes, attrs, regions=(region_of("head", kinds, body),))
    found = [f.reshape(x, (*lead, *x.shape[1:])) for x in made]
    return [*found, *(None for _ in range(3 + len(masks) - len(found)))]


# ------------------------------------------------------------------------------------- bands


def _in_bands(
    arrays: Sequence[Any], masks: tuple[Any, ...], causal: bool, factor: float
) -> list[Any]:
    """Cotangents of q, k, v and the masks from (ct, drops, q, k, v), the last two whole."""
    ct, drops, q, k, v = arrays
    rows, columns = q.shape[-2], k.shape[-2]
    size = tuned.gradient_band_causal if causal else tuned.gradient_band
    bands = bands_of(rows, columns, causal, size, tuned.gradient_bands)
    if len(bands) == 1 or any(element_of(m)[0] is not BOOL for m in masks):
        return _band(arrays, masks, causal, factor)
    parts = []
    for start, stop, seen in bands:
        near = [slice_axis(x, x.ndim - 2, start, stop) for x in (ct, drops, q)]
        far = [slice_axis(x, x.ndim - 2, 0, seen) for x in (k, v)]
        hidden = tuple(_part(m, start, stop, seen) for m in masks)
        to_q, *others = _band((*near, *far), hidden, causal, factor)[:3]
        parts.append((to_q, *(_continued(x, columns) for x in others)))
    to_q = functions.concatenate([part[0] for part in parts], -2)
    sums = [reduce(functions.add, (part[k] for part in parts)) for k in (1, 2)]
    return [to_q, *sums, *(None for _ in masks)]


def _part(mask: Any, start: Any, stop: Any, seen: Any) -> Any:
    """A mask for a band of rows; extents of 1 broadcast."""
    rows, columns = mask.shape[-2:]
    if rows != 1:
        mask = slice_axis(mask, mask.ndim - 2, start, stop)
    return mask if columns == 1 else slice_axis(mask, mask.ndim - 1, 0, seen)


def _continued(x: Tensor, length: Any) -> Any:
    """x with zeros for the keys that its band does not see."""
    pairs = [(0, 0)] * x.ndim
    pairs[-2] = (0, length - x.shape[-2])
    return pad_zeros(x, pairs)


def _band(arrays: Sequence[Any], masks: tuple[Any, ...], causal: bool, factor: float) -> list[Any]:
    f, (ct, drops, q, k, v) = functions, arrays
    p = f.softmax(scores(q, k, masks, causal, factor))
    to_v = right_gradient(ct, p, v)
    made = f.multiply(p, f.subtract(left_gradient(ct, p, v), drops))
    rows, columns = q.shape[-2], k.shape[-2]
    sees = isinstance(rows, int) and isinstance(columns, int) and rows <= columns
    if causal and not (sees and not masks):  # where p is not 0 although no score changes it
        made = f.where(visible(rows, columns), made, 0)
    to_masks: list[Any] = [None for _ in masks]
    for place, mask in enumerate(masks):
        if element_of(mask)[0] is BOOL:
            made = f.where(mask, made, 0)
        else:
            to_masks[place] = sum_to(made, mask.shape)
    to_q = left_gradient(made, q, f.swapaxes(k, -1, -2))
    to_k = left_gradient(f.swapaxes(made, -1, -2), k, f.swapaxes(q, -1, -2))
    return [f.multiply(to_q, factor), f.multiply(to_k, factor), to_v, *to_masks]
