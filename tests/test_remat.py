"""Gradient memory: what is kept, what is computed again, and limits that are kept to the byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ir.graph import Graph, Program
from graphc.ir.liveness import planned_bytes
from graphc.passes.remat import waiting_values

LAYERS, ROWS, WIDTH = 64, 512, 32
rng = np.random.default_rng(0)
X = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
WEIGHTS = [(rng.standard_normal((WIDTH, WIDTH)) / 6).astype(np.float32) for _ in range(LAYERS)]


def layer(x: Any, w: Any) -> Any:
    return np.tanh(x @ w)


def chain(x: Any, weights: Any) -> Any:
    for w in weights:
        x = layer(x, w)
    return (x * x).sum()


def in_segments(x: Any, weights: Any) -> Any:
    def segment(x: Any, weights: Any) -> Any:
        for w in weights:
            x = layer(x, w)
        return x

    for first in range(0, LAYERS, 8):
        x = gc.checkpoint(segment)(x, weights[first : first + 8])
    return (x * x).sum()


def compiled(function: Any, **options: Any) -> Any:
    return gc.compile(gc.grad(function, wrt=1), threads=1, **options)


def activations(function: Any) -> float:
    """How many activations the arena has room for at once."""
    program: Graph | Program = function.lower(X, WEIGHTS)
    results = sum(w.nbytes for w in WEIGHTS)
    return (planned_bytes(program) - results) / X.nbytes


def test_checkpointed_segments_of_root_n() -> None:
    plain, again = compiled(chain), compiled(in_segments)
    for a, b in zip(plain(X, WEIGHTS), again(X, WEIGHTS), strict=True):
        np.testing.assert_array_equal(a, b)
    assert saved(plain) == LAYERS
    assert saved(again) <= 17
    assert activations(again) < 21  # with cotangents and scratch memory


def saved(function: Any) -> int:
    """The most activations that wait for the backward pass at once."""
    graph = next(s.value for s in function.stages(X, WEIGHTS) if s.name == "remat")
    return sum(n.type.nbytes == X.nbytes for n in waiting_values(graph).values)


@pytest.mark.parametrize("share", [0.9, 0.6, 0.35])
def test_limit_is_kept_and_changes_no_bit(share: float) -> None:
    plain = compiled(chain)
    want = plain(X, WEIGHTS)
    limit = int(planned_bytes(plain.lower(X, WEIGHTS)) * share)
    limited = compiled(chain, memory_limit=limit)
    for a, b in zip(want, limited(X, WEIGHTS), strict=True):
        np.testing.assert_array_equal(a, b)
    assert planned_bytes(limited.lower(X, WEIGHTS)) <= limit
    stage = next(s for s in limited.stages(X, WEIGHTS) if s.name == "remat")
    assert any("computed again" in text for _, text in stage.note.reasons)


def test_no_limit_no_change() -> None:
    stages = {s.name: s for s in compiled(chain).stages(X, WEIGHTS)}
    assert stages["remat"].note == "no change"


def test_cheap_values_go_first() -> None:
    """Activations without a product behind them are computed again; no product is."""

    def model(x: Any, w: Any) -> Any:
        for _ in range(6):
            h = x @ w
            x = np.sin(h) * np.exp(np.cos(h)) + h
        return x.sum()

    w = WEIGHTS[0]
    plain = gc.compile(gc.grad(model, wrt=1))
    limit = int(planned_bytes(plain.lower(X, w)) * 0.9)
    limited = gc.compile(gc.grad(model, wrt=1), memory_limit=limit)
    np.testing.assert_allclose(plain(X, w), limited(X, w), rtol=1e-5)
    graph = next(s.value for s in limited.stages(X, w) if s.name == "remat")
    assert sum(n.op.name == "matmul" for n in graph.nodes) == 6


def test_impossible_limit_names_values_and_lines() -> None:
    with pytest.raises(gc.LimitError, match="memory_limit is 1000") as caught:
        compiled(chain, memory_limit=1000)(X, WEIGHTS)
    assert "test_remat.py" in str(caught.value)
