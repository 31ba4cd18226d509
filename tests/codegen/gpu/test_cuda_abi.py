"""What launches hand to kernels is what their PTX takes: 64-bit words, as many as the row says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import few

import graphc as gc
from graphc.runtime.load.program import Image
from graphc.runtime.load.table import CALL, rows

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

X = np.linspace(-1, 1, 32 * 48, dtype=np.float32).reshape(32, 48)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: np.tanh(x @ x.T).sum(0) * 2,
    "sort": lambda x: np.sort(x, axis=-1),
    "gather": lambda x: x[np.array([3, 1])],
    "scan": lambda x: gc.scan(lambda c, row: (c * 0.5 + row, c.sum()), x[0], x),
    "halves": lambda x: x.astype(np.float16).max(1),
    "factor": lambda x: np.linalg.cholesky(x @ x.T + 50 * np.eye(32, dtype=np.float32)),
}


def image_of(function: Callable[[Any], Any]) -> Image:
    made = gc.compile(function, devices=["gpu:0"], target="cuda:sm_90")
    return made.prepared((X,), {})[0].image


@pytest.mark.slow
@pytest.mark.parametrize("name", few(PROGRAMS, 3))
def test_words_of_kernels(name: str) -> None:
    image = image_of(PROGRAMS[name])
    ptx = b"".join(image.portable).decode()
    entries = re.finditer(r"\.entry (\w+)\((.*?)\)", ptx, re.DOTALL)
    taken = {entry[1]: re.findall(r"\.param \.(\w+)", entry[2]) for entry in entries}
    words = image.table.tolist()
    calls = [row for row in rows(words) if words[row] == CALL]
    assert calls
    for row in calls:
        kernel, operands = words[row + 2], words[row + 6]
        kinds = taken[image.kernels[kernel]]
        assert len(kinds) == operands + image.arity[kernel] + 2, "status and row follow"
        assert set(kinds) <= {"u64", "b64", "s64"}
