"""Reductions of transposed values run over the axes as they lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import examples
from graphs import RandomGraph, arguments, param, same
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.config import Config
from graphc.ir.graph import Graph
from graphc.ir.op import Reduction
from graphc.ir.types import dtype, tensor
from graphc.ir.verify import verify
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.straighten_reductions import straighten_reductions

RNG = np.random.default_rng(7)
X = RNG.standard_normal((5, 7, 11)).astype("f4")
Y = RNG.standard_normal((7, 11, 5)).astype("f4")


class Turning(RandomGraph):
    """Transposes, what is computed element by element, reductions, and little else."""

    def step(self) -> None:
        kinds = ("unary", "binary", "binary", "reduce", "const", "select", "part")
        getattr(self, self.choose(("turn", "turn", *kinds)))()

    def turn(self) -> None:
        x = self.value()
        axes = range(len(self.shape(x)))
        self.emit("transpose", x, perm=tuple(self.draw(st.permutations(axes))))

    def part(self) -> None:
        x = self.value()
        starts = tuple(self.draw(st.integers(0, max(n - 1, 0))) for n in self.shape(x))
        steps = tuple(self.draw(st.integers(1, 2)) for _ in starts)
        self.emit("slice", x, starts=starts, stops=self.shape(x), steps=steps)


@st.composite
def turning_graphs(draw: Any) -> Graph:
    shapes = ((2, 3), (3, 2), (2, 3, 9), (9, 3, 2), (3, 1), (1, 3), ())
    made = Turning(draw, shapes)
    kinds = [tensor(dtype("f32"), draw(st.sampled_from(shapes))) for _ in range(2)]
    params = tuple(param(k, kind, f"x{k}") for k, kind in enumerate(kinds))
    made.b.next_id = len(params)
    made.values.extend(params)
    for _ in range(draw(st.integers(4, 16))):
        made.step()
    reduced = [v for v in made.values if isinstance(v.op.lower, Reduction)]
    results = draw(st.lists(st.sampled_from(reduced or made.values), min_size=1, max_size=3))
    return Graph("g", params, made.b.nodes, tuple(results))


@examples(60)
@given(turning_graphs())
def test_results_stay_and_the_pass_settles(g: Graph) -> None:
    given_arrays = arguments(g)
    made = g
    for _ in range(len(g.nodes) + 1):
        before, made = made, straighten_reductions(made, Config())
        if made is before:
            break
        verify(made, set())
    assert straighten_reductions(made, Config()) is made
    same(interpret(made, given_arrays), interpret(g, given_arrays))


def reduced_axes(function: Callable[..., Any], *given: Any) -> list[tuple[int, ...]]:
    """The axes of all reductions when the rewrites are done."""
    stages = {name: value for name, value, _, _ in gc.compile(function).stages(*given)}
    return [n.attrs["axes"] for n in stages["place"].nodes if isinstance(n.op.lower, Reduction)]


@pytest.mark.parametrize(
    ("function", "axes"),
    [
        (lambda x: x.T.sum(axis=0), [(2,)]),
        (lambda x: np.abs(x.transpose(1, 2, 0) * 2).max(axis=2), [(0,)]),
        (lambda x: x.transpose(2, 0, 1).mean(axis=(0, 1), keepdims=True), [(0, 2)]),
        (lambda x: x.transpose(1, 2, 0).var(axis=(0, 1)), [(1, 2), (1, 2)]),
        (lambda x: np.argmax(x.transpose(2, 1, 0), axis=0), [(2,), (2,)]),
        (lambda x: ((x.transpose(1, 2, 0) - Y) ** 2).sum(axis=2), [(0,)]),
        # Columns that do not fill a vector are folded as rows.
        (lambda x: np.repeat(x[..., :5], 20, 1).max(axis=1), [(2,)]),
        (lambda x: np.repeat(x[..., :3], 20, 1).sum(axis=1, keepdims=True), [(2,)]),
        (lambda x: np.repeat(x[..., :3], 20, 1).transpose(0, 2, 1).min(axis=2), [(2,)]),
        (lambda x: np.repeat(x[..., :5], 20, 1).sum(axis=1), [(1,)]),
        # ... not of short columns, whose folds stay in registers.
        (lambda x: x[..., :5].max(axis=1), [(1,)]),
        (lambda x: x[..., :3].sum(axis=1), [(1,)]),
        (lambda x: x[..., :3].max(axis=(0, 1)), [(0, 1)]),
        # Parts of what is shown are parts of what is there.
        (lambda x: x.transpose(1, 2, 0)[::-1, 2::3].sum(axis=2), [(0,)]),
        (lambda x: np.abs(x.T[1:, :, ::-2]).max(axis=0), [(2,)]),
        # What is shown is needed as well: it is computed once.
        (lambda x: gc.softmax(x.transpose(1, 2, 0), axis=2), [(0,), (0,)]),
        (
            lambda x: (np.exp(x.transpose(1, 2, 0)).sum(axis=2), np.exp(x.transpose(1, 2, 0))),
            [(0,)],
        ),
        (lambda x: (x.T.sum(axis=0), x.T * 2), [(2,)]),
        # Rows that are shown in another order are read in a row.
        (lambda x: x.transpose(1, 0, 2).sum(axis=2), [(2,)]),
    ],
)
def test_what_is_reduced(function: Callable[..., Any], axes: list[tuple[int, ...]]) -> None:
    assert reduced_axes(function, X) == axes
    wanted = interpret(gc.compile(function).graph(X), [X])
    made = gc.compile(function)(X)
    same(made if isinstance(made, tuple) else (made,), wanted)


def test_open_sizes_are_turned_too_and_settle_nothing() -> None:
    run = gc.compile(lambda x: (x.T**2).sum(axis=1))
    for rows, columns in ((3, 5), (9, 4), (70, 33)):
        x = RNG.standard_normal((rows, columns)).astype("f4")
        np.testing.assert_allclose(run(x), (x.T**2).sum(axis=1), rtol=1e-5)
    assert len(run.compiles) <= 2


def test_strict_sums_keep_their_order() -> None:
    run = gc.compile(lambda x: x.transpose(1, 2, 0).sum(axis=(0, 2)), fast_math=False)
    stages = {name: value for name, value, _, _ in run.stages(X)}
    axes = [n.attrs["axes"] for n in stages["place"].nodes if isinstance(n.op.lower, Reduction)]
    assert axes == [(0, 2)]
