"""Passes over rows that lanes keep in registers, and vectors that are read under conditions:
lengths that warps and blocks share evenly, and others, beside the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import few
from gpu_harness import GPU, crossed, need_gpu, rng, sized, some

import graphc as gc

need_gpu()
pytestmark = pytest.mark.gpu

LENGTHS = [16, 64, 96, 128, 250, sized(256, 4096)]
I8 = np.arange(-3, 4)


def norm(x: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * x[0] + x[1]


def residual(x: Any) -> Any:
    h = x + x[::-1]
    return gc.rms_norm(h, x[0], axis=-1, epsilon=1e-5), h


PROGRAMS = {
    "softmax": gc.softmax,
    "norm": norm,
    "residual": residual,
    "places of extremes": lambda x: (np.argmax(x, 1), np.argmin(x, 1)),
    "spread": lambda x: (x.std(axis=1), x - x.max(axis=1, keepdims=True)),
    "rows by number": lambda x: np.take(x, I8, axis=0) * 2,
    "parts of rows": lambda x: np.concatenate([x[:, 8:], x, x[:2, 4:12].repeat(4, 0)[:7]], 1),
    "rows after rows": lambda x: np.concatenate([x, x * 2, x[3:]], 0),
    "elements by number": lambda x: x[np.arange(7), I8] + gc.cross_entropy(x, np.abs(I8)),
}


@pytest.mark.parametrize(
    ("name", "kind"), few(crossed(PROGRAMS, [np.float32, np.float16, np.float64]), 12)
)
def test_passes_over_rows(name: str, kind: Any) -> None:
    for length in some(LENGTHS, 2, list(PROGRAMS).index(name)):
        x = rng(length).standard_normal((7, length)).astype(kind)
        found, wanted = (gc.compile(PROGRAMS[name], devices=d)(x) for d in (GPU, ["cpu:0"]))
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted))):
            tolerance = 4e-3 if kind is np.float16 else 1e-5
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
