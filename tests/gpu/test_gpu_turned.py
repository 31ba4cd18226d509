"""Operands that are read across the grain, in tiles: sides that fill tiles and others, offsets,
conditions, and types of all widths, beside the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import few
from gpu_harness import GPU, crossed, need_gpu, rng, sized, some

import graphc as gc

need_gpu()
pytestmark = pytest.mark.gpu

SIDES = [(33, 31), (32, 64), (8, sized(40, 1000)), (sized(40, 1100), sized(50, 999))]
PROGRAMS = {
    "alone": lambda x: x.swapaxes(-1, -2) + 1,
    "with rows": lambda x: x.swapaxes(-1, -2) * 2 + x.reshape(*x.shape[:-2], *x.shape[:-3:-1]),
    "twice": lambda x: x.T[1:, 2:] - x.T[:-1, :-2],
    "backwards": lambda x: x.T[:, ::-1] + x.T,
    "of more axes": lambda x: np.stack([x, x + 1, x - 2]).transpose(2, 0, 1) * 3,
    "under a condition": lambda x: np.concatenate([x.T, x.T * 2], 1),
    "at the edge": lambda x: np.pad(x.T, ((1, 1), (2, 2))),
    "results of two widths": lambda x: (x.T.astype(np.float64), x.T.astype(np.int8)),
}
KINDS = [np.int8, np.float16, np.int32, np.float64, np.complex64]


@pytest.mark.parametrize(("name", "kind"), few(crossed(PROGRAMS, KINDS), 10))
def test_turned_operands(name: str, kind: Any) -> None:
    for sides in some(SIDES, 2, list(PROGRAMS).index(name)):
        x = rng(*sides).integers(-9, 9, sides).astype(kind)
        found, wanted = (gc.compile(PROGRAMS[name], devices=d)(x) for d in (GPU, ["cpu:0"]))
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted))):
            np.testing.assert_array_equal(a, b)
