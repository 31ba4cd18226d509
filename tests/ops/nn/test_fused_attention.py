"""A kernel with attention that was fused for a GPU, on a CPU: it reads through views and stores
across."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphc as gc
from graphc.errors import VerifyError
from graphc.ir.op import OPS

FUSED = """gir 1
graph @f(%0 q: f32[2,5,3,8], %1 k: f32[2,7,3,8], %2 v: f32[2,7,3,4]) {
  %3 = fused(%0, %1, %2) {kind="nest"} : f32[SHAPE] {
    graph @f(%0 p0: f32[2,5,3,8], %1 p1: f32[2,7,3,8], %2 p2: f32[2,7,3,4]) {
      %3 = transpose(%0) {perm=[0,2,1,3]} : f32[2,3,5,8]
      %4 = transpose(%1) {perm=[0,2,1,3]} : f32[2,3,7,8]
      %5 = transpose(%2) {perm=[0,2,1,3]} : f32[2,3,7,4]
      %6 = fused_attention(%3, %4, %5) {causal=true, scale=0.5} : f32[2,3,5,4]
      %7 = transpose(%6) {perm=[PERM]} : f32[SHAPE]
      return %7
    }
  }
  return %3
}
"""


def loaded(folder: Path, perm: str, shape: str) -> gc.Loaded:
    path = folder / "late.gir"
    path.write_text(FUSED.replace("PERM", perm).replace("SHAPE", shape))
    return gc.load(path)


def test_views_are_read_and_results_stored_across(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shapes = (2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 4)
    operands = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    turned = [x.swapaxes(1, 2) for x in operands]
    want = OPS["attention"].reference(*turned, causal=True, scale=0.5)
    got = loaded(tmp_path, "0,2,1,3", "2,5,3,4")(*operands)
    np.testing.assert_allclose(got, want.swapaxes(1, 2), rtol=1e-5, atol=1e-6)


def test_rows_are_stored_as_such(tmp_path: Path) -> None:
    operands = [np.zeros(s, np.float32) for s in ((2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 4))]
    with pytest.raises(VerifyError, match="shows more than rows"):
        loaded(tmp_path, "0,1,3,2", "2,3,4,5")(*operands)
