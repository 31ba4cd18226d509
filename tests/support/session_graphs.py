"""Graphs that the tests of sessions extend with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import FeedError, GraphError

# Figure 6 of the TensorFlow white paper: b depends on d, e on c; with b fed, f needs a and c only.
FIGURE_6 = """
graph @figure(%9 seed: f32[]) {
  %0 = const() {value=f32[](2.0)} : f32[] loc("fig6.py":1)
  %1 = exp(%9) : f32[] loc("fig6.py":2)
  %2 = neg(%1) : f32[] loc("fig6.py":3)
  %3 = add(%0, %2) : f32[] loc("fig6.py":4)
  %4 = tanh(%3) : f32[] loc("fig6.py":5)
  %5 = mul(%3, %3) : f32[] loc("fig6.py":6)
  name a = %0
  name d = %1
  name b = %2
  name c = %3
  name e = %4
  name f = %5
  return %5
}
"""

# Node t has two results; t1 is an item of it, none has no result, pair reads t as a whole.
PORTS = """
graph @ports(%0 x: f32[3]) {
  %1 = tanh(%0) : f32[3]
  %2 = tuple(%0, %1) : (f32[3], f32[3]) loc("ports.py":3)
  %3 = item(%2) {index=1} : f32[3]
  %4 = neg(%3) : f32[3]
  %5 = tuple() : () loc("ports.py":6)
  %6 = tuple(%2, %4) : ((f32[3], f32[3]), f32[3])
  %7 = item(%6) {index=0} : (f32[3], f32[3])
  %8 = item(%7) {index=0} : f32[3]
  %10 = exp(%8) : f32[3]
  name t = %2
  name t1 = %3
  name n = %4
  name none = %5
  name pair = %6
  name r = %10
  return %4, %10
}
"""
X = np.array([0.5, -1.0, 2.0], np.float32)


def session(graph: Any) -> gc.Session:
    made = gc.Session(threads=1)
    made.extend(graph)
    return made


def message(call: Callable[[], Any], kind: type[GraphError] = FeedError) -> str:
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "graphc/" not in text
    return text
