"""Rows of eight elements: functions of them are one vector, not a copy of the function for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.llvm.kernel import emit
from graphc.codegen.llvm.target import host
from graphc.ir.types import F32
from graphc.loops.nest import Buffer, Kernel, Scalars

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("rows", [1, 3, 17, 40])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_functions_of_eight_columns(rows: int, dtype: str) -> None:
    x, b = RNG.standard_normal((rows, 8)).astype(dtype), RNG.standard_normal(8).astype(dtype)

    def functions(x: Any, b: Any) -> Any:
        return np.tanh(x + b), np.concatenate([np.sin(x), np.cos(x * b)], 1), np.exp(x) > b

    for made, want in zip(gc.compile(functions)(x, b), functions(x, b), strict=True):
        np.testing.assert_allclose(made, want, rtol=20 * np.finfo(dtype).eps, atol=1e-6)


def test_one_call_for_a_row() -> None:
    b = Scalars()
    x, y = Buffer(0, F32, 80, "in"), Buffer(1, F32, 80, "out")
    with b.loop(10, "parallel") as i, b.loop(8, "vector") as j:
        b.store(y, i * 8 + j, b.call("sin", b.load(x, i * 8 + j)))
    text = emit(Kernel("k", (x, y), 0, b.body, units=10), host())
    assert "x float> @vm.sin" in text
    assert "call float @vm.sin" not in text
