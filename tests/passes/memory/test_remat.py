"""Gradient memory: what is kept, what is computed again, and limits that are kept to the byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import few
from gradient_programs import program, under_limits

import graphc as gc
from graphc.ir.graph import Graph, Program
from graphc.ir.liveness import planned_bytes
from graphc.passes.memory.remat import waiting_values

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


@pytest.mark.slow
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
        compiled(chain, memory_limit=1000)(X, WEIGHTS[:8])
    assert "test_remat.py" in str(caught.value)


def test_refusals_speak_of_stacks_and_results() -> None:
    def grown(x: Any) -> Any:
        return gc.while_loop(lambda s: s.sum() < 9e4, lambda s: s + s * s, x).sum()

    with pytest.raises(gc.LimitError) as caught:
        gc.compile(gc.grad(grown), memory_limit=10)(X)
    assert any(line.startswith(f"{X.nbytes} bytes: ") for line in caught.value.details)
    grows = f"stacks that grow beside this: 1, by {X.nbytes} bytes a turn of their loops"
    assert caught.value.details[-1] == grows


@pytest.mark.slow
@pytest.mark.parametrize("seed", few([2, 26, 46], 1))
def test_random_programs_under_limits(seed: int) -> None:
    """`python tests/support/gradient_programs.py 300` runs many of them, under every limit."""
    assert under_limits(program(seed), shares=(0.9, 0.3), verify=3).total() == 2


@pytest.mark.slow
def test_parity_makes_what_is_computed_again_equal_in_every_bit() -> None:
    found = under_limits(program(5), shares=few((0.95, 0.9, 0.85), 1), parity=True)
    assert found["same bits"] and not found["last bits"]


def test_what_follows_from_constants_alone_is_computed_again() -> None:
    """A mask of random numbers from a key in the program: its copies wait for the way back."""

    def function(x: Any) -> Any:
        key = gc.random.key(3)
        for turn in range(4):
            mask = gc.random.bernoulli(gc.random.fold_in(key, turn), 0.7, x.shape)
            x = np.tanh(np.where(mask, x * 1.5, 0) + np.sin(x))
        return x.sum()

    limited(gc.grad(lambda x: function(x)), X)


def limited(function: Any, *args: Any) -> None:
    """Under every limit the function gives the same bits or refuses, and no stage is broken."""
    plain = gc.compile(function, threads=1, verify=3)
    wanted, image = plain(*args), plain.executable(*args).image
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    most = image.arena_bytes + sum(slot.nbytes for slot in image.results)
    fitted = 0
    shares = (1.4, 0.95, 0.9, 0.8, 0.7, 0.6)  # the first leaves room for stacks, which count
    for share in few(shares, 2):
        try:
            made = gc.compile(function, threads=1, memory_limit=int(share * most))(*args)
        except gc.LimitError:
            continue
        made, fitted = made if isinstance(made, tuple) else (made,), fitted + 1
        for a, b in zip(wanted, made, strict=True):
            np.testing.assert_array_equal(a, b)
    assert fitted


@pytest.mark.slow
def test_values_that_read_nothing_or_stacks_are_not_computed_again() -> None:
    """Counts (no operand that could wait) and what loops and branches with stacks return."""
    x, y = np.linspace(0.1, 1, 64), np.linspace(-1, 1, 64)

    def function(x: Any, y: Any) -> Any:
        def grown(s: Any) -> Any:
            return gc.while_loop(lambda s: (s * s).sum() < 90, lambda s: s * 1.5 + np.sin(s), s)

        def chosen(s: Any) -> Any:
            return gc.cond(s.sum() > 0, lambda: grown(s), lambda: np.cos(s))

        a = np.cumsum(np.sort(grown(x) * y))
        b = chosen(np.tanh(a)) + gc.fori(0, 3, lambda i, s: np.tanh(s + y) * i, a)
        c = gc.checkpoint(chosen)(np.sort(b * y))
        return np.tanh(c + a).sum() + (np.exp(-b * b) * a).sum()

    limited(gc.grad(function, wrt=(0, 1)), x, y)
