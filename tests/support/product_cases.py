"""Contractions that cuBLAS can make as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from product_reference import DTYPES

import graphc as gc

TOLERANCES = {"f16": 4e-3, "bf16": 4e-2, "f32": 2e-5, "f64": 1e-12}


def f32(*shape: int) -> Any:
    return gc.spec(shape, "f32")


X, W, B, R = f32(32, 64), f32(64, 48), f32(48), f32(32, 48)
Q = f32(2, 4, 32, 64)
HALF = [gc.spec(s.shape, "bf16") for s in (X, W, B)]
F64 = [gc.spec(s.shape, "f64") for s in (X, W, B)]


def swapped(x: Any) -> Any:
    return x.transpose(0, 1, 3, 2)


def numpy_gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "plain": (lambda x, w: x @ w, (X, W), "48x32x64 f32 -> f32 nn"),
    "left transposed": (lambda x, w: x.T @ w, (f32(64, 32), W), "48x32x64 f32 -> f32 nt"),
    "right transposed": (lambda x, w: x @ w.T, (X, f32(48, 64)), "48x32x64 f32 -> f32 tn"),
    "both": (lambda x, w: x.T @ w.T, (f32(64, 32), f32(48, 64)), "48x32x64 f32 -> f32 tt"),
    "part": (lambda x, w: x[3:30, :60] @ w[:60, 8:], (X, W), "40x27x60 f32 -> f32 nn"),
    "rows of a batch": (lambda x, w: x @ w, (f32(3, 32, 64), W), "48x96x64 f32 -> f32 nn"),
    "batch": (lambda q, k: (q @ swapped(k)) / 8, (Q, Q), "8 of 32x32x64 f32 -> f32 tn"),
    "shared": (
        lambda x, k: np.einsum("qd,bkd->bqk", x, k),
        (X, f32(5, 16, 64)),
        "5 of 16x32x64 f32 -> f32 tn",
    ),
    "1x1 convolution": (
        lambda x, w: gc.conv(x, w),
        (f32(1, 16, 8, 8), f32(24, 16, 1, 1)),
        "64x24x16 f32 -> f32 nn",
    ),
    "vector": (lambda x, w: x[3] @ w, (X, W), "48x1x64 f32 -> f32 nn"),
    "long sums": (lambda x, w: x @ w, (f32(7, 4096), f32(4096, 48)), "48x7x4096 f32 -> f32 nn"),
    "bias": (lambda x, w, b: x @ w + b, (X, W, B), "48x32x64 f32 -> f32 nn bias"),
    "relu": (
        lambda x, w, b: np.maximum(0, b + x @ w),
        (X, W, B),
        "48x32x64 f32 -> f32 nn bias relu",
    ),
    "gelu": (
        lambda x, w, b: gc.nn.gelu(x @ w + b, tanh=True),
        tuple(HALF),
        "48x32x64 bf16 -> bf16 nn bias gelu",
    ),
    "gelu in NumPy": (
        lambda x, w, b: numpy_gelu(x @ w + b),
        (X, W, B),
        "48x32x64 f32 -> f32 nn bias gelu",
    ),
    "gelu without a bias": (lambda x, w: numpy_gelu(x @ w), (X, W), "48x32x64 f32 -> f32 nn gelu"),
    "relu as a choice": (
        lambda x, w: np.where((y := x @ w) > 0, y, y * np.float32(0)),
        (X, W),
        "48x32x64 f32 -> f32 nn relu",
    ),
    "relu by its name": (lambda x, w: gc.nn.relu(x @ w), (X, W), "48x32x64 f32 -> f32 nn relu"),
    "residual": (
        lambda x, w, r, b: gc.nn.relu(r + 2 * (x @ w) + b),
        (X, W, R, B),
        "48x32x64 f32 -> f32 nn addend bias relu",
    ),
    "dense": (
        lambda x, w, b, r: r + (x @ w + b),
        (f32(3, 5, 64), W, B, f32(3, 5, 48)),
        "48x15x64 f32 -> f32 nn addend bias",
    ),
    "batch with addends": (
        lambda q, k, b: q @ swapped(k) * 0.125 + b,
        (Q, Q, f32(2, 4, 32, 32)),
        "8 of 32x32x64 f32 -> f32 tn addend",
    ),
    "the same for a batch": (
        lambda q, k, b: q @ swapped(k) + b,
        (Q, Q, f32(32, 32)),
        "8 of 32x32x64 f32 -> f32 tn addend",
    ),
    "descent": (lambda w, x, g: w - 0.1 * (x.T @ g), (W, X, R), "48x64x32 f32 -> f32 nt addend"),
    "wide": (
        lambda x, w: x.astype(np.float32) @ w.astype(np.float32),
        tuple(HALF[:2]),
        "48x32x64 bf16 -> f32 nn",
    ),
    "narrow": (
        lambda x, w: (x.astype(np.float32) @ w.astype(np.float32)).astype(x.dtype),
        tuple(HALF[:2]),
        "48x32x64 bf16 -> bf16 nn",
    ),
    "double": (lambda x, w: (x @ w) * 0.1, tuple(F64[:2]), "48x32x64 f64 -> f64 nn"),
}


def values(spec: Any, random: np.random.Generator) -> np.ndarray[Any, Any]:
    return np.asarray(random.uniform(-1, 1, spec.shape).astype(DTYPES[str(spec.dtype)]))
