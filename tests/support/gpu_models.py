"""Programs that tests run on a GPU at several sizes and in several dtypes, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gc
from graphc import nn

Model = Callable[..., Any]


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def block(x: Any, w: Any, v: Any) -> Any:
    h = layer_norm(x)
    return x + nn.gelu(h @ w) @ v


def two_results(x: Any) -> Any:
    total = x.sum(-1)
    return total, x / (1 + abs(total[..., None])), np.tanh(x).max(-1)


def written(x: Any) -> Any:
    x = x * 1
    x[1:, ::2] = x[:-1, ::2] * 3
    x[0] += x[-1]
    return x


def taken(x: Any) -> Any:
    largest = np.take_along_axis(x, np.argsort(x, 1)[:, -3:], 1)
    return x[np.arange(5) % 3] * largest.sum()


def added(x: Any) -> Any:
    return gc.index_update(x, (np.arange(x.shape[0]) % 2,), x * 2, "add")


def recurrence(x: Any) -> Any:
    return gc.scan(lambda h, row: (np.tanh(h * 0.5 + row), h.sum()), x[0] * 0, x)


def newton(x: Any) -> Any:
    def body(state: Any) -> Any:
        y, step = state
        return y - (y * y - abs(x) - 1) / (2 * y), step + 1

    return gc.while_loop(lambda s: s[1] < 6, body, (abs(x) + 1, np.int32(0)))[0]


def branches(x: Any) -> Any:
    return gc.cond(x[0, 0] > 0, lambda x: x.cumsum(1), lambda x: x[::-1] * 2, x)


# Each takes arrays of these shapes; R, C, K are numbers that a test chooses.
MODELS: dict[str, tuple[Model, tuple[str, ...]]] = {
    "chain": (lambda x, y: np.tanh(x * 2 + y) - x / (1 + y * y), ("RC", "RC")),
    "broadcast": (lambda x, r, c: (x + r) * c[:, None] + r.sum(), ("RC", "C", "R")),
    "transposed": (lambda x: x.T * 2 + np.sin(x).T[::-1], ("RC",)),
    "rows": (lambda x: np.exp(x - 1).sum(-1) + x.max(-1) - x.min(-1), ("RC",)),
    "columns": (lambda x: x.sum(0) * x.mean(0) + np.sqrt(abs(x)).max(0), ("RC",)),
    "middle": (lambda x: (x * x).sum(1) + x.var(1), ("KRC",)),
    "outer axes": (lambda x: x.sum((0, 2)) * x.mean((0, 1)).sum(), ("KRC",)),
    "everything": (lambda x: np.sqrt((x * x).sum()) + x.mean() * x.max(), ("RC",)),
    "softmax": (lambda x: softmax(x, -1), ("RC",)),
    "softmax of columns": (lambda x: softmax(x, 0), ("RC",)),
    "layer norm": (layer_norm, ("RC",)),
    "two results": (two_results, ("RC",)),
    "running": (lambda x: x.cumsum(-1) + x.cumsum(0), ("RC",)),
    "product": (lambda x, w: x @ w, ("RK", "KC")),
    "product transposed": (lambda x, w, b: nn.relu(x.T @ w.T + b), ("KR", "CK", "C")),
    "product with a vector": (lambda x, v: np.tanh(x @ v) @ x, ("RC", "C")),
    "batched": (lambda x, w: x @ w.swapaxes(-1, -2) + x[:, :, :1], ("KRC", "KRC")),
    "einsum": (lambda x, y: np.einsum("kij,kjl->il", x, y.transpose(0, 2, 1)), ("KRC", "KRC")),
    "attention": (attention, ("RC", "RC", "RC")),
    "block": (block, ("RC", "CK", "KC")),
    "conv": (lambda x, w: nn.relu(gc.conv(x[None], w[:2], padding=1)), ("KRC", "KK33")),
    "pool": (lambda x: gc.max_pool(x[None], 2) - gc.avg_pool(x[None], 2), ("KRC",)),
    "concat": (lambda x, y: np.concatenate([x[1:], y[::-1], x * y], 0)[::2], ("RC", "RC")),
    "pad": (lambda x: np.pad(x, ((1, 2), (0, 3))) + np.pad(x, ((2, 1), (3, 0)), "edge"), ("RC",)),
    "written": (written, ("RC",)),
    "rows taken": (taken, ("RC",)),
    "rows added": (added, ("RC",)),
    "sorted": (lambda x: np.sort(x, -1) - np.sort(x, 0), ("RC",)),
    "largest": (lambda x: gc.topk(x, 3)[0].sum(-1), ("RC",)),
    "scan": (recurrence, ("RC",)),
    "while": (newton, ("RC",)),
    "cond": (branches, ("RC",)),
}
COMPLEX = ("chain", "broadcast", "transposed", "product", "batched", "concat", "running", "scan")


def shape_of(letters: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(int(x) if x.isdigit() else sizes[x] for x in letters)


def inputs(name: str, sizes: dict[str, int], kind: Any, rng: np.random.Generator) -> list[Any]:
    """Random arguments of a model."""

    def one(letters: str) -> Any:
        made = rng.standard_normal(shape_of(letters, sizes))
        if np.dtype(kind).kind == "c":
            made = made + 1j * rng.standard_normal(made.shape)
        return made.astype(kind)

    return [one(letters) for letters in MODELS[name][1]]
