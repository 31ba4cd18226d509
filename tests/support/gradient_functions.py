"""Public functions that are programs over ops, and where their gradients are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gc

RNG = np.random.default_rng(11)
VECTOR = RNG.permutation(np.linspace(-2, 2.3, 8))
MATRIX = RNG.permutation(np.linspace(-2, 2.3, 12)).reshape(3, 4)
ROWS = np.array([2, 0, 2])
KEPT = np.array([True, False, True])


def changed(x: Any) -> Any:
    x = x * 1
    x[1, ::2] = x[0, 1] * 3
    x[ROWS, 1] += x[2, ROWS]
    x[x > 1.5] = 0
    np.put_along_axis(x, ROWS[:, None], x[:, :1] ** 2, 1)
    return x


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "mean where": (lambda x: np.mean(x, 1, where=MATRIX > 0), MATRIX),
    "sum initial": (lambda x: np.sum(x, 0, initial=3.0) * np.prod(x, where=MATRIX < 1), MATRIX),
    "max initial": (lambda x: np.max(x, 1, initial=0.5) - np.min(x, keepdims=True), MATRIX),
    "ptp": (lambda x: np.ptp(x, 0), MATRIX),
    "average": (lambda x: np.average(x, 1, weights=x[0] ** 2), MATRIX),
    "var": (lambda x: np.var(x, (0, 1), ddof=1) * np.std(x, 0, keepdims=True), MATRIX),
    "nanvar": (lambda x: np.nanvar(x, 1) + np.nanmean(x) + np.nanmax(x, 1), MATRIX),
    "median": (lambda x: np.median(x, 1) * np.median(x), MATRIX),
    "norms": (
        lambda x: np.linalg.norm(x, 1) + np.linalg.norm(x) * np.linalg.norm(x, axis=1),
        MATRIX,
    ),
    "vector_norm": (lambda x: np.linalg.vector_norm(x, axis=0, ord=3), MATRIX),
    "cov": (lambda x: np.cov(x), MATRIX),
    "quantile": (lambda x: np.quantile(x, [0.2, 0.9], axis=1), MATRIX),
    "quantile of q": (lambda x: np.quantile(MATRIX, np.abs(x) / 3 + 0.01, axis=1), VECTOR[:2]),
    "cumulative": (
        lambda x: np.cumsum(x, 1) * np.cumprod(x, 0) + gc.cummax(x, 1) - gc.cummin(x, reverse=True),
        MATRIX,
    ),
    "cumulative_sum": (lambda x: np.cumulative_sum(x, include_initial=True) ** 2, VECTOR),
    "reshapes": (
        lambda x: x.T.reshape(2, -1, order="F")[:, ::-1][..., None] * x[0, :2, None, None],
        MATRIX,
    ),
    "stack": (lambda x: np.stack([x, x.T.reshape(3, 4), x * x], 1).transpose(2, 0, 1), MATRIX),
    "split": (lambda x: np.split(x, 2, 1)[0] * np.split(x, [1, 3], 1)[1], MATRIX),
    "repeat": (lambda x: np.repeat(x, [2, 0, 1], 0) * np.repeat(x[:1], 3, 0), MATRIX),
    "tile and roll": (
        lambda x: np.tile(x, (2, 1)) * np.roll(np.tile(x, (2, 1)), (1, -2), (0, 1)),
        MATRIX,
    ),
    "meshgrid": (lambda x: np.multiply(*np.meshgrid(x, x * x)), VECTOR),
    "resize": (lambda x: np.resize(x, (4, 5)) ** 2, MATRIX),
    "pad": (lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=2) ** 2, MATRIX),
    "pad value": (lambda x: np.pad(x, 1, constant_values=x[0, 0] ** 2), MATRIX),
    "pad modes": (
        lambda x: np.pad(x, 2, "reflect") * np.pad(x, 2, "edge") + np.pad(x, 2, "wrap"),
        MATRIX,
    ),
    "pad ramp": (lambda x: np.pad(x, 2, "linear_ramp") + np.pad(x, 2, "mean"), MATRIX),
    "indices": (lambda x: x[ROWS, 1:, None] * x[KEPT][0, 3] + x[:, ROWS][1, 1], MATRIX),
    "taken": (lambda x: np.take(x, [[5, 1], [5, -1]]) * np.take(x, [7, 9], mode="wrap"), MATRIX),
    "along": (lambda x: np.take_along_axis(x, np.argsort(x, 1)[:, 1:3], 1) ** 2, MATRIX),
    "choose": (lambda x: np.choose([1, 0, 1, 2], [x[0], x[1], x[2] ** 2]), MATRIX),
    "select": (lambda x: np.select([x > 1, x > 0], [x**2, -x], x**3), MATRIX),
    "writes": (changed, MATRIX),
    "index_update": (lambda x: gc.index_update(x, (ROWS,), x[:, ::-1] * 2, "mul"), MATRIX),
    "index max": (lambda x: gc.index_update(x, (slice(1), [0, 2]), x[1, :2], "max"), MATRIX),
    "dynamic": (
        lambda x: gc.dynamic_update_slice(
            x, gc.dynamic_slice(x, (np.argmax(x[:, 0]), 9), (2, 2)) ** 2, (0, np.argmin(x[0]))
        ),
        MATRIX,
    ),
    "insert and delete": (lambda x: np.insert(np.delete(x, 1, 0), [1], x[2] ** 2, 0), MATRIX),
    "block": (lambda x: np.block([[x, x * x], [x[:1] ** 3, x[2:]]]), MATRIX),
    "differences": (lambda x: np.gradient(x, axis=1) * np.diff(x, prepend=0, axis=0), MATRIX),
    "polynomials": (lambda x: np.polyval(x[:3], x) + np.vander(x, 3).sum(1), VECTOR),
    "linspace": (lambda x: np.linspace(x[0], x[1] ** 2, 5), VECTOR),
    "triangles": (lambda x: np.tril(x) @ np.triu(x, 1).T + np.trace(x, 1), MATRIX),
    "diagonals": (lambda x: np.diag(np.diagonal(x, 1) ** 2, -1) * np.diagflat(x[0]), MATRIX),
    "sort": (lambda x: np.sort(x, 0) * np.sort(x, None)[:4], MATRIX),
    "topk": (lambda x: gc.topk(x, 2, 0)[0] * gc.topk(x, 2, 1, largest=False)[0].T[:, :1], MATRIX),
    "interp": (lambda x: np.interp(x, np.sort(x)[::3] * 1.03, x[:3] ** 2), VECTOR),
    "bincount": (lambda x: np.bincount(ROWS, weights=x[:3] ** 2, minlength=4), VECTOR),
    "uniform": (lambda x: gc.random.uniform(gc.random.key(1), (3,), "f64", x[0], 9 + x[1]), VECTOR),
}
