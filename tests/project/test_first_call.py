"""What a process imports before its first result: a count, which no clock and no machine change."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASKED = """
import sys
import numpy as np
import graphc as gc

def model({names}):
    return {formula}

x = np.ones((64, 64), np.float32)
gc.compile(model)({given})
print(*(name for name in sys.modules if name.startswith("graphc")))
"""
# What no such call has to do with.
OTHERS = (
    "graphc.codegen.gemm.core",
    "graphc.codegen.sorting",
    "graphc.codegen.gpu.emit",
    "graphc.formats",
    "graphc.learn",
    "graphc.ops.autodiff",
    "graphc.ops.linalg",
    "graphc.ops.nn",
    "graphc.ops.reduce",
    "graphc.ops.sort",
    "graphc.passes.loops",
    "graphc.passes.pipelining",
    "graphc.passes.placement.simulate",
    "graphc.viewer",
)


def imported(formula: str, names: str, given: str) -> list[str]:
    """The modules of graphc that a process has once it has called a formula."""
    script = ASKED.format(formula=formula, names=names, given=given)
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return told.stdout.split()


def test_a_first_call_imports_what_it_needs() -> None:
    names = imported("np.exp(x) * y + 1", "x, y", "x, x")
    assert [name for name in names if name.startswith(OTHERS)] == []
    assert len(names) <= 315, len(names)  # 22 of them where LLVM has to compile


@pytest.mark.parametrize(
    "formula", ["np.maximum(x @ y, 0)", "np.sort(x).sum(axis=0) + y"], ids=["product", "sort"]
)
def test_a_product_or_a_sort_imports_little_more(formula: str) -> None:
    names = imported(formula, "x, y", "x, x")
    assert len(names) <= 345, len(names)


def test_no_model_imports_masked_arrays() -> None:
    """They take 8 ms; tables of constants are looked at, too."""
    script = """
import sys
import numpy as np
import graphc as gc

f = gc.compile(lambda x: gc.conv(x, np.ones((2, 2, 3, 3), np.float32)) + np.float32(2))
f(np.ones((1, 2, 9, 9), np.float32))
print("numpy.ma" in sys.modules)
try:
    f(np.ma.masked_array(np.ones((1, 2, 9, 9), np.float32)))
except gc.GraphError as error:
    print("masked array" in str(error))
"""
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["False", "True"]
