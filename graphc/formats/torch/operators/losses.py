"""Losses: of distances, of classes, of chances."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.formats.deciding_values import refuse
from graphc.formats.torch.promotion import cast, dtype_of
from graphc.formats.torch.table import aten
from graphc.ops.record.value import functions as f

_REDUCTIONS = ("none", "mean", "sum")
_LEAST = 1e-12  # of squares whose root divides


def _reduced(x: Any, reduction: int) -> Any:
    return x if reduction == 0 else f.mean(x) if reduction == 1 else f.sum(x)


@aten("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Any:
    def apart(a: Any, b: Any) -> Any:
        gap = f.abs(f.add(f.subtract(a, b), cast(eps, dtype_of(a))))
        total = f.sum(f.power(gap, cast(p, dtype_of(a))), axis=-1)
        return f.power(total, cast(1 / p, dtype_of(a)))

    near, far = apart(anchor, positive), apart(anchor, negative)
    far = f.minimum(far, apart(positive, negative)) if swap else far
    over = f.add(f.subtract(near, far), cast(margin, dtype_of(near)))
    return _reduced(f.maximum(over, cast(0, dtype_of(near))), reduction)


@aten("hinge_embedding_loss")
def hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, reduction: int = 1) -> Any:
    """x where the target is 1, what it lacks to the margin where it is -1, both elsewhere."""
    none = cast(0, dtype_of(x))
    near = f.where(f.equal(target, -1), none, x)
    far = f.where(f.equal(target, 1), none, f.maximum(f.subtract(margin, x), none))
    return _reduced(f.add(near, far), reduction)


@aten("margin_ranking_loss")
def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 1
) -> Any:
    over = f.add(f.multiply(f.negative(target), f.subtract(input1, input2)), margin)
    return _reduced(f.maximum(over, cast(0, dtype_of(over))), reduction)


@aten("soft_margin_loss")
def soft_margin_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    return _reduced(f.softplus(f.multiply(f.negative(target), x)), reduction)


@aten("poisson_nll_loss")
def poisson_nll_loss(
    x: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int
) -> Any:
    made = f.exp(x) - target * x if log_input else x - target * f.log(x + eps)
    if full:  # Stirling's terms, for counts above 1
        many = f.maximum(target, 1)
        terms = many * f.log(many) - many + 0.5 * f.log(2 * np.pi * many)
        made = made + f.where(target > 1, terms, cast(0, dtype_of(made)))
    return _reduced(made, reduction)


@aten("cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 1
) -> Any:
    """1 - cos where the target is 1, cos beyond the margin where it is -1, else 0."""
    kind = dtype_of(input1)
    squares = [f.sum(a * a, axis=-1) + _LEAST for a in (input1, input2)]
    angle = f.sum(input1 * input2, axis=-1) / f.sqrt(squares[0] * squares[1])
    apart = f.maximum(angle - margin, cast(0, kind))
    made = f.where(f.equal(target, -1), apart, cast(0, kind))
    return _reduced(f.where(f.equal(target, 1), 1 - angle, made), reduction)


@aten("mse_loss")
def mse_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    return _reduced(f.square(f.subtract(x, target)), reduction)


@aten("l1_loss")
def l1_loss(x: Any, target: Any, reduction: int = 1) -> Any:
    return _reduced(f.abs(f.subtract(x, target)), reduction)


@aten("huber_loss")
def huber_loss(x: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    return f.huber(x, target, delta=delta, reduction=_REDUCTIONS[reduction])


@aten("smooth_l1_loss")
def smooth_l1_loss(x: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    if not beta:
        return l1_loss(x, target, reduction)
    made = f.huber(x, target, delta=beta, reduction=_REDUCTIONS[reduction])
    return f.divide(made, cast(beta, dtype_of(x)))


@aten("binary_cross_entropy")
def binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    made = f.binary_cross_entropy(x, target, reduction="none")
    return _reduced(made if weight is None else f.multiply(made, weight), reduction)


@aten("binary_cross_entropy_with_logits")
def bce_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    if pos_weight is None:
        made = f.binary_cross_entropy_with_logits(x, target, reduction="none")
    else:
        one = cast(1, dtype_of(x))
        factor = f.add(one, f.multiply(f.subtract(pos_weight, one), target))
        low = f.multiply(factor, f.softplus(f.negative(x)))
        made = f.add(f.multiply(f.subtract(one, target), x), low)
    return _reduced(made if weight is None else f.multiply(made, weight), reduction)


@aten("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(
    x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100
) -> Any:
    return nll_loss_forward(x, target, weight, reduction, ignore_index)[0]


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(
    x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100
) -> Any:
    axis = 1 if x.ndim > 1 else 0
    counted = f.not_equal(target, ignore_index)
    safe = f.where(counted, target, 0)
    picked = f.take_along_axis(x, f.expand_dims(safe, axis), axis)
    losses = f.negative(f.squeeze(picked, axis))
    factors = f.astype(counted, dtype_of(x))
    if weight is not None:
        factors = f.multiply(factors, f.take(weight, safe, axis=0))
    losses = f.multiply(losses, factors)
    total = f.sum(factors)
    if reduction == 0:
        return losses, f.zeros((), x.dtype)
    made = f.sum(losses)
    return (f.divide(made, total) if reduction == 1 else made), total


@aten("cross_entropy_loss")
def cross_entropy_loss(
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    axis = 1 if x.ndim > 1 else 0
    if weight is None and dtype_of(target).kind in "iu":
        return f.cross_entropy(
            x,
            target,
            axis=axis,
            label_smoothing=label_smoothing,
            reduction=_REDUCTIONS[reduction],
            ignore_index=ignore_index,
        )
    logs = f.log_softmax(x, axis)
    if dtype_of(target).kind not in "iu":
        return _loss_of_chances(logs, target, weight, reduction, label_smoothing, axis)
    made, total = nll_loss_forward(logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return made
    counted = f.astype(f.not_equal(target, ignore_index), dtype_of(x))
    spread = f.multiply(_weighted(f.negative(logs), weight, axis), counted)
    spread = spread if reduction == 0 else f.sum(spread)
    spread = f.divide(spread, total) if reduction == 1 else spread
    kept, part = (cast(v, dtype_of(x)) for v in (1 - label_smoothing, label_smoothing))
    return f.add(f.multiply(made, kept), f.multiply(spread, f.divide(part, x.shape[axis])))


def _weighted(x: Any, weight: Any, axis: int) -> Any:
    """Sums over classes, each with its weight."""
    if weight is not None:
        x = f.multiply(x, f.reshape(weight, (-1, *[1] * (x.ndim - axis - 1))))
    return f.sum(x, axis=axis)


def _loss_of_chances(
    logs: Any, target: Any, weight: Any, reduction: int, smoothing: float, axis: int
) -> Any:
    """Cross entropy with the chances of all classes; its mean counts examples, not weights."""
    if smoothing:
        kept, part = (cast(v, dtype_of(logs)) for v in (1 - smoothing, smoothing))
        target = f.add(f.multiply(target, kept), f.divide(part, logs.shape[axis]))
    return _reduced(f.negative(_weighted(f.multiply(logs, target), weight, axis)), reduction)


@aten("multi_margin_loss")
def multi_margin_loss(
    x: Any, target: Any, p: Any = 1, margin: Any = 1, weight: Any = None, reduction: int = 1
) -> Any:
    """How far other classes come near to that of each row, whose weight counts."""
    refuse(p in (1, 2), f"power {p}")
    rows = x if x.ndim == 2 else f.reshape(x, (1, -1))
    own = f.reshape(target, (-1, 1))
    gap = f.subtract(cast(margin, dtype_of(x)), f.take_along_axis(rows, own, 1))
    over = f.maximum(f.add(gap, rows), cast(0, dtype_of(x)))
    over = over if p == 1 else f.square(over)
    over = over if weight is None else f.multiply(over, f.take(weight, own, axis=0))
    other = f.not_equal(f.arange(rows.shape[1], dtype=np.int64), own)
    made = f.mean(f.where(other, over, cast(0, dtype_of(x))), axis=1)
    return _reduced(made if x.ndim == 2 else f.squeeze(made, 0), reduction)


@aten("multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(x: Any, target: Any, reduction: int = 1) -> Any:
    """Of the classes that rows of the target list before their first -1, against all others."""
    rows = x if x.ndim == 2 else f.reshape(x, (1, -1))
    listed = target if x.ndim == 2 else f.reshape(target, (1, -1))
    kind = dtype_of(x)
    counts = f.equal(f.cumsum(f.astype(f.less(listed, 0), np.int64), 1), 0)
    labels = f.where(counts, listed, 0)
    hit = f.equal(f.expand_dims(labels, -1), f.arange(rows.shape[1], dtype=np.int64))
    hit = f.any(f.logical_and(hit, f.expand_dims(counts, -1)), axis=1)
    own = f.take_along_axis(rows, labels, 1)
    gap = f.subtract(f.expand_dims(rows, 1), f.expand_dims(own, 2))
    over = f.maximum(f.add(gap, cast(1, kind)), cast(0, kind))
    among = f.logical_and(f.expand_dims(counts, 2), f.logical_not(f.expand_dims(hit, 1)))
    total = f.sum(f.where(among, over, cast(0, kind)), axis=(1, 2))
    made = f.divide(total, cast(rows.shape[1], kind))
    made = made if x.ndim == 2 else f.squeeze(made, 0)
    return _reduced(made, reduction), f.reshape(f.astype(hit, kind), x.shape)


aten("multilabel_margin_loss")(
    lambda x, target, reduction=1: multilabel_margin_loss_forward(x, target, reduction)[0]
)


@aten("kl_div")
def kl_div(x: Any, target: Any, reduction: int = 1, log_target: bool = False) -> Any:
    if log_target:
        return _reduced(f.multiply(f.exp(target), f.subtract(target, x)), reduction)
    zero = f.equal(target, 0)
    part = f.multiply(target, f.log(f.where(zero, cast(1, dtype_of(target)), target)))
    return _reduced(f.subtract(part, f.multiply(target, x)), reduction)
