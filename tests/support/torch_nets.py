"""Random steps of neural networks, and all steps there are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch_contract import counted, einsum, fold, linear, matmul, ordered, running, written
from torch_ops import (
    Drawing,
    Function,
    Tensor,
    apart,
    away,
    binary,
    constant,
    joined,
    lies,
    movement,
    need,
    positive,
    scaled,
    unary,
    where,
)

import graphc as gc

# --------------------------------------------------------------------------------- neural networks


def rows(d: Drawing) -> None:
    """Soft maxima, norms and losses along an axis."""
    k = d.pick(lambda x: x.dim() > 0 and x.shape[-1] > 1)
    x = d.values[k]
    axis, size = d.axis(x), x.shape[-1]
    need(x.shape[axis])
    weight, bias = constant((size,), 0.7), constant((size,), 2.0)
    given = torch.from_numpy(weight), torch.from_numpy(bias)
    labels = (np.arange(math.prod(x.shape[:-1])) * 5 % size).reshape(tuple(x.shape[:-1]))
    targets = torch.from_numpy(labels.reshape(-1))
    tests: dict[str, tuple[Function, Function]] = {
        "softmax": (lambda x: gc.softmax(x, axis), lambda x: torch.softmax(x, axis)),
        "log_softmax": (lambda x: gc.log_softmax(x, axis), lambda x: torch.log_softmax(x, axis)),
        "layer_norm": (
            lambda x: gc.layer_norm(x, weight, bias, epsilon=0.1),
            lambda x: F.layer_norm(x, (size,), *given, 0.1),
        ),
        "rms_norm": (
            lambda x: gc.rms_norm(x, weight, epsilon=0.1),
            lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 0.1) * given[0],
        ),
        "cross_entropy": (
            lambda x: gc.cross_entropy(x, labels, reduction="none", label_smoothing=0.1),
            lambda x: F.cross_entropy(
                x.reshape(-1, size), targets, reduction="none", label_smoothing=0.1
            ).reshape(x.shape[:-1]),
        ),
        "soft cross_entropy": (
            lambda x: gc.cross_entropy(x, gc.softmax(x * 2), reduction="sum"),
            lambda x: -(torch.softmax(x * 2, -1) * torch.log_softmax(x, -1)).sum(),
        ),
    }
    name = d.choose(list(tests))
    d.add(name, (k,), *tests[name])


def attention(d: Drawing) -> None:
    first = d.pick(lambda x: x.dim() >= 2 and x.numel() > 0)
    q = d.values[first]
    second = d.pick(
        lambda y: (
            y.dim() == q.dim()
            and y.shape[-1] == q.shape[-1]
            and y.numel() > 0
            and y.shape[:-2] == q.shape[:-2]
        )
    )
    k = d.values[second]
    causal, width = d.choose((False, True)), q.shape[-1]
    need(not causal or k.shape[-2] >= q.shape[-2])
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    if causal:
        seen = seen.tril(k.shape[-2] - q.shape[-2])

    def by_graphc(q: Any, k: Any) -> Any:
        lead = q.ndim == 2
        q, k = (q[None], k[None]) if lead else (q, k)
        made = gc.attention(q, k, np.tanh(k), causal=causal)
        return made[0] if lead else made

    def by_torch(q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT / width**0.5
        weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
        return weights @ torch.tanh(k)

    d.add(f"attention {causal}", (first, second), by_graphc, by_torch)


def image(x: Tensor) -> Tensor:
    """x with two leading axes and one or two spatial ones."""
    return x.reshape(1, *x.shape) if x.dim() < 4 else x


def windows(d: Drawing) -> None:
    """Convolutions and pools of a value with its leading axis as the channels or the batch."""
    k = d.pick(lambda x: x.dim() in (2, 3, 4) and x.numel() > 0)
    x = image(d.values[k])
    channels, spatial = x.shape[1], x.dim() - 2
    size, stride = d.choose((2, 1, 3)), d.choose((1, 2))
    padding, dilation = d.choose((0, 1)), d.choose((1, 2))
    need(padding <= size // 2)
    need(all((size - 1) * dilation < n + 2 * padding for n in x.shape[2:]))
    groups = d.choose([g for g in (1, 2) if channels % g == 0])
    weight = constant((2 * groups, channels // groups, *[size] * spatial))
    turned = constant((channels, 2, *[size] * spatial), 1.1)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    one = spatial == 1
    conv, back = (F.conv1d, F.conv_transpose1d) if one else (F.conv2d, F.conv_transpose2d)
    max_pool, avg_pool = (F.max_pool1d, F.avg_pool1d) if one else (F.max_pool2d, F.avg_pool2d)
    tests: dict[str, tuple[Function, Function]] = {
        "conv": (
            lambda x: gc.conv(x, np.sin(x.sum()) * weight, **how),
            lambda x: conv(x, torch.sin(x.sum()) * torch.from_numpy(weight), **how),
        ),
        "conv_transpose": (
            lambda x: gc.conv_transpose(x, turned * np.cos(x.sum()), stride),
            lambda x: back(x, torch.from_numpy(turned) * torch.cos(x.sum()), None, stride),
        ),
        "max_pool": (
            lambda x: gc.max_pool(x, size, stride, padding, dilation),
            lambda x: max_pool(x, size, stride, padding, dilation),
        ),
        "avg_pool": (
            lambda x: gc.avg_pool(x, size, stride, padding),
            lambda x: avg_pool(x, size, stride, padding),
        ),
        "batch_norm": (
            lambda x: gc.batch_norm(x, epsilon=0.1),
            lambda x: F.batch_norm(x, None, None, training=True, eps=0.1),
        ),
        "group_norm": (
            lambda x: gc.group_norm(x, groups, epsilon=0.1),
            lambda x: F.group_norm(x, groups, eps=0.1),
        ),
    }
    name = d.choose(list(tests))
    need(name != "max_pool" or apart(x))
    need("norm" not in name or x.numel() > 2 * channels)
    by_graphc, by_torch = tests[name]

    def with_batch(x: Any) -> Any:
        return by_graphc(x.reshape(1, *x.shape) if len(x.shape) < 4 else x)

    d.add(f"{name} {how}", (k,), with_batch, lambda x: by_torch(image(x)))


def interpolated(d: Drawing) -> None:
    first = d.pick(lambda x: x.dim() > 0 and x.numel() > 1)
    count = d.values[first].numel()
    points = np.linspace(-2, 2.03, count)
    need(away(d.values[first].reshape(-1, 1) - torch.from_numpy(points), 0))
    need(lies(d.values[first], -1.9, 1.9))

    def by_torch(x: Tensor) -> Tensor:
        known, heights = torch.from_numpy(points), torch.tanh(x).reshape(-1)
        place = torch.searchsorted(known, x.detach()).clamp(1, count - 1)
        left, right = known[place - 1], known[place]
        slope = (heights[place] - heights[place - 1]) / (right - left)
        return heights[place - 1] + slope * (x - left)

    d.add("interp", (first,), lambda x: np.interp(x, points, np.tanh(x).reshape(-1)), by_torch)


MAKERS: tuple[Callable[[Drawing], None], ...] = (
    unary, binary, movement, fold, matmul, where, scaled, positive, joined, einsum, running,
    ordered, written, counted, linear, rows, attention, windows, interpolated, unary, binary,
    movement,
)  # fmt: skip
