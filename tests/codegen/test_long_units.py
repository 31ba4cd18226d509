"""What a thread does between two looks at the cancel flag is bounded for every kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.tuning import tuned
from graphc.ir.op import OPS
from graphc.ops.index.scatter import _KERNELS, CANCELLED
from graphc.ops.sort.sort_kernels import topk_kernel
from graphc.runtime.load.table import CALL, rows


def calls(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[tuple[int, int]]:
    """(units, units between two looks) of the kernels that can be split, in the order they run."""
    compiled = gc.compile(function, threads=2)
    words = compiled.executable(*(gc.spec(s, "f32") for s in shapes)).image.table.tolist()
    counts = [words[row + 3 : row + 5] for row in rows(words) if words[row] == CALL]
    return [(units, grain >> 32) for units, grain in counts if grain & 0xFFFFFFFF]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, w: gc.conv(x, w), [(1, 64, 1200, 1200), (64, 64, 11, 11)]),
        (lambda x, w: x @ w, [(48, 9000), (9000, 1 << 20)]),
        (lambda x, w: x @ w, [(1 << 20, 9000), (9000, 48)]),
        (lambda x, w: np.tanh(x @ w), [(9000, 9000), (9000, 9000)]),
    ],
    ids=["windows", "wide", "tall", "square"],
)
def test_units_of_products_are_bounded(function: Any, shapes: list[Any]) -> None:
    (units, poll), *_ = calls(function, *shapes)
    if shapes[0][1] == 64:
        work = 64 * 64 * 11 * 11 * 1190 * 1190
    else:
        work = shapes[0][0] * shapes[0][1] * shapes[1][1]
    assert work / units <= 2 * tuned.long_unit
    assert poll == 1 or poll * work / units <= 2 * tuned.long_unit


@pytest.mark.parametrize("function", [np.sort, np.argsort, lambda x: gc.topk(x, 9)])
def test_many_rows_are_sorted_with_looks_in_between(function: Any) -> None:
    made = calls(function, (3000, 20_000))
    assert any(units == 3000 and 0 < poll <= 300 for units, poll in made), made


def _arguments(kernel: Callable[..., Any]) -> list[Any]:
    """Small operands of a kernel."""
    six, ends = np.arange(6), np.array([0, 3, 6])
    given: dict[str, list[Any]] = {
        "topk_kernel": [six.astype("u8"), six.astype("u8"), six * 0, np.array([6, 2]), 0, 1],
        "_nonzero_kernel": [six > 2, six * 0, six[:1] * 0, np.array([6])],
        "kernel": [six * 1.0, six, six * 1.0, six * 0.0, np.array([6, 1, 0]), 0, 1],
        "_kernel": [six, six * 0, np.zeros(40, np.int64), np.array([6, 0])],
        "_adjoint_kernel": [
            six * 1.0,
            six % 2,
            ends,
            six * 1.0,
            six * 0.0,
            six[[2, 2, 1, 1, 1]],
            0,
            1,
        ],
    }
    return given[kernel.__name__]


@pytest.mark.parametrize(
    "kernel",
    [
        topk_kernel,
        OPS["nonzero"].lower.kernel(None),  # type: ignore[union-attr]
        *(_KERNELS["add", *how] for how in ((True, False), (False, False), (False, True))),
        OPS["occurrences"].lower.kernel(None),  # type: ignore[union-attr]
        OPS["sparse_adjoint"].lower.kernel(None),  # type: ignore[union-attr]
    ],
)
def test_kernels_over_any_number_of_elements_look_at_the_cancel_flag(kernel: Any) -> None:
    assert kernel(*_arguments(kernel), np.array([0])) == 0
    assert kernel(*_arguments(kernel), np.array([1])) == CANCELLED
