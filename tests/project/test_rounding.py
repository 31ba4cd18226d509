"""What mutated dumps compute is judged by rounding at random: no slip is lost in it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import graphc as gc
from benchmarks.hostile.rounding import agree, rounded
from graphc.ir.graph import Graph
from graphc.ops.reference.interpreter import interpret

WHOLE = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
SINES = np.sin(np.arange(12, dtype=np.float32)).reshape(3, 4)


def traced(function: object) -> Graph:
    return gc.compile(function).graph(gc.spec((3, 4), "f32"))


def judged(graph: Graph, x: np.ndarray, factor: float) -> bool:
    """Is the reference's result times a factor right?"""
    want = interpret(graph, [x])
    made = [(np.asarray(array) * factor).astype(array.dtype) for array in want]
    return agree(made, want, partial(rounded, graph, [x], {}))


def test_whole_numbers_are_exact() -> None:
    graph = traced(lambda x: (x @ x.T).sum(0) * 1000)
    assert judged(graph, WHOLE, 1)
    assert not judged(graph, WHOLE, 1 + 1e-4)
    assert not judged(graph, WHOLE.clip(0), 0)


@pytest.mark.parametrize("function", [lambda x: x.sum(1), lambda x: np.exp(x) / x, np.sin])
def test_sums_and_functions_are_known_to_some_digits(function: object) -> None:
    graph = traced(function)
    assert judged(graph, SINES + 2, 1 + 1e-6)
    assert not judged(graph, SINES + 2, 1 + 1e-3)


def test_what_cancels_may_be_any() -> None:
    graph = traced(lambda x: np.sqrt((x - x.mean()).mean()))
    assert judged(graph, SINES, np.nan)
    assert judged(traced(lambda x: 1 / (x - x.mean()).sum()), SINES, -7)


def test_half_floats_are_known_to_fewer_digits() -> None:
    graph = traced(lambda x: x.astype("bfloat16") * 1.7)
    assert judged(graph, SINES, 1 + 1e-2)
    assert not judged(graph, SINES, 1.6)
