"""Scans that are one kernel on a GPU, as code for chips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_launches import CHIPS, launches_of

import graphc as gc
from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.compile import compile_ptx

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

X = np.zeros((50, 16), np.float32)


def body(c: Any, r: Any) -> Any:
    count, total, whole = c
    state = count + 1, np.tanh(total * r[0]) + r, whole * 3 + count
    return state, (count > 5, r[::-1])


@pytest.mark.slow
def test_registers() -> None:
    """Slices that are loaded ahead have room in registers, beside what is computed."""
    start = np.zeros(16, np.int32), np.zeros(16, np.float32), np.zeros(16, np.int64)
    launches = launches_of(lambda x: gc.scan(body, start, x), (X,))
    assert len(launches) == 1
    ptx = compile_ptx(launches, CHIPS[0])
    for chip in CHIPS[::2]:
        (report,) = toolkit.assemble(ptx, chip)[1].values()
        assert not report.spills and report.registers <= 128
