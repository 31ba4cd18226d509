"""Hostile attributes, operands and indices: a GraphError, or what the reference gives.

A sample of what `hostile_ops.py` derives from the op table; run as a program it tries everything.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from effort import crossed, rounds
from project import ROOT, SUPPORT

import graphc as gc
from graphc.errors import GraphError, LimitError, RunError, TypeRuleError, VerifyError
from graphc.ir.op import OPS
from graphc.ir.parse import parse
from graphc.ir.types import F32, I32, tensor
from graphc.ir.verify import verify
from graphc.limits import limit
from graphc.ops.record.value import emit

COUNT = rounds(10)


@pytest.mark.slow
def test_hostile_uses_are_refused_or_right() -> None:
    """In a process of its own: its address space is limited, and it may be ended by a closed
    page."""
    script = SUPPORT / "hostile_ops.py"
    run = subprocess.run(
        [sys.executable, script, "sample", str(COUNT)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, (run.stdout[-3000:], run.stderr[-3000:])


@pytest.mark.slow
def test_every_op_is_attacked() -> None:
    """In a process of its own, which has no custom ops of other tests."""
    run = subprocess.run(
        [sys.executable, SUPPORT / "hostile_texts.py"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.stdout.split() == ["param"]  # its attribute is a name


def test_scratch_memory_is_in_proportion() -> None:
    """Rows of nothing: the result has no bytes, the line that they are spread over would."""
    spread, extent = OPS["spread"], 2**28
    kinds = (tensor(I32, (0, 3)), tensor(F32, (0, 3)))
    assert extent * 4 > limit("scratch_bytes")
    with pytest.raises(LimitError, match="scratch memory"):
        spread.result_type(kinds, spread.coerce({"extent": extent}))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 3], [-1, 0, 1]])
def test_lu_solve_takes_permutations(order: list[int], transposed: bool) -> None:
    packed, rows = np.eye(3), np.arange(6.0).reshape(3, 2)

    def solve(perm, b):  # type: ignore[no-untyped-def]
        return emit("lu_solve", packed, perm, b, transposed=transposed)

    perm = np.array(order)
    if order == [0, 0, 1] and not transposed:  # a row twice: what is solved for is well defined
        np.testing.assert_array_equal(gc.compile(solve)(perm, rows), rows[perm])
        return
    with pytest.raises(RunError, match="out of range"):
        gc.compile(solve)(perm, rows)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "step"), crossed([513, 700, 1024], [1, 3]))
def test_long_windows_are_pooled_in_steps(size: int, step: int) -> None:
    """Ties included: the first of the largest elements gets the whole cotangent."""
    x = np.random.default_rng(size).integers(0, 9, (1, 1, 1300)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x[0, 0], size)[::step]
    for pool, combine in ((gc.max_pool, np.max), (gc.min_pool, np.min), (gc.avg_pool, np.mean)):
        made = gc.compile(lambda x, pool=pool: pool(x, size, step))(x)
        np.testing.assert_allclose(made[0, 0], combine(windows, -1), 1e-6)
    wanted = np.zeros(1300)
    np.add.at(wanted, np.arange(len(windows)) * step + windows.argmax(-1), 1)
    made = gc.compile(gc.grad(lambda x: gc.max_pool(x, size, step).sum()))(x)
    np.testing.assert_array_equal(made[0, 0], wanted)


def test_windows_that_would_be_unrolled_without_end() -> None:
    for op, window in (("pool", (64, 64)), ("tile_choose", (60, 60)), ("tile_pool", (60, 60))):
        attrs = {"stride": (1, 1), "dilation": (1, 1)} if op == "pool" else {}
        x = np.zeros((1, 1, 60 * 64, 60 * 64), np.float32)
        operands = (x, x[:, :, ::60, ::60]) if op == "tile_choose" else (x,)
        with pytest.raises(TypeRuleError, match="more than"):
            emit(op, *operands, kind="max", window=window, **attrs)


def test_panels_are_unpacked_in_kernels_alone() -> None:
    text = """gir 1
graph @f(%0 x: f32[8]) {
  %1 = unpack(%0) {batch=[1,6], k=[2,3], n=[3,1], offset=0, columns=2, step=4, together=1, \
shape=[2,3]} : f32[2,3]
  return %1
}"""
    with pytest.raises(VerifyError, match="outside of a kernel"):
        verify(parse(text))


def test_blocks_leave_no_gap() -> None:
    text = """gir 1
graph @f(%0 x: f32[4,2]) {
  %1 = blocked(%0) {dims=[4,2], counts=[2], steps=[6,2]} : f32[4,2] {
    graph @g(%0 x: f32[4,2]) {
      %1 = slice(%0) {starts=[0,0], stops=[1,2], steps=[1,1]} : f32[1,2]
      return %1
    }
  }
  return %1
}"""
    with pytest.raises(GraphError, match="gaps"):
        parse(text)


def test_no_memory_is_a_limit_outside_of_traces_too() -> None:
    with pytest.raises(LimitError, match="no memory"):
        gc.arange(2**47)
