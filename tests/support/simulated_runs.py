"""The cases of every GPU on Numba's simulator; run with NUMBA_ENABLE_CUDASIM=1."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_cases import CASES, STATE_CASES
from gpu_programs import COUNT

from graphc.gpu import SIMULATED, cuda
from graphc.runtime.cuda.simulated_driver import functions

F32 = ("float32", COUNT)


def double(a: Any, b: Any, status: Any, row: Any) -> None:
    i = cuda.grid(1)
    if i < len(b):
        b[i] = a[i] + a[i]


def increment(a: Any, b: Any, status: Any, row: Any) -> None:
    i = cuda.grid(1)
    if i < len(b):
        b[i] = a[i] + 1


def less(a: Any, b: Any, limit: Any, status: Any, row: Any) -> None:
    b[0] = a[0] < limit


def fail(code: Any, status: Any, row: Any) -> None:
    if status[0] == 0:
        status[0] = (row << 32) | code


def store(a: Any, value: Any, status: Any, row: Any) -> None:
    a[0] = value


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    assert SIMULATED
    functions["double"] = double, (F32, F32)
    functions["increment"] = increment, (F32, F32)
    functions["less"] = less, (("float32", 1), ("uint8", 1))
    functions["fail"] = fail, ()
    functions["store"] = store, (("float32", 1),)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Any) -> None:
    case("simulator")


@pytest.mark.parametrize("case", STATE_CASES, ids=lambda case: case.__name__)
def test_state(case: Any, home: Any) -> None:
    case("simulator", home)
