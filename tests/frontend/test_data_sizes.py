"""Results whose sizes only a run can tell."""

from __future__ import annotations

import numpy as np
import pytest
from project import ROOT

import graphc as gc
from graphc.errors import GraphError

rng = np.random.default_rng(5)
X = rng.standard_normal(200).astype("f4")
FEEDS = (X, -X, np.abs(X), -np.abs(X), np.zeros_like(X), X[:1], X[:0])


def rows(x):
    return x.reshape(-1, 1) if x.size % 4 else x.reshape(-1, 4)


def kept_boxes(scores):
    """The places of scores over a threshold, best first."""
    places = np.nonzero(scores > 0.1)[0]
    return places[np.argsort(-scores[places])]


PROGRAMS = {
    "mask": lambda x: x[x > 0],
    "sorted": lambda x: np.sort(x[x > 0]) * 2,
    "rows": lambda x: rows(x)[rows(x).sum(axis=1) > 0] * 2,
    "nonzero": lambda x: np.nonzero(x > 0)[0],
    "where": lambda x: np.where(x > 0.5)[0] * 2,
    "argwhere": lambda x: np.argwhere(rows(x) > 0),
    "compress": lambda x: np.compress(x > 0, x),
    "twice": lambda x: np.sort(x[x > 0])[np.sort(x[x > 0]) < 1.0],
    "boxes": kept_boxes,
    "reshaped": lambda x: np.cumsum(x[x > 0]).reshape(-1, 1) + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_mask_selects_has_its_own_size(name):
    function = PROGRAMS[name]
    compiled = gc.compile(function)
    for x in FEEDS:
        want, made = function(x), compiled(x)
        assert (made.shape, made.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-6)


def test_other_counts_are_served_by_one_compilation():
    compiled = gc.compile(lambda x: np.exp(x[x > 0]) / 2)
    for shift in np.linspace(-2, 2, 12, dtype="f4"):
        x = X + shift
        np.testing.assert_allclose(compiled(x), np.exp(x[x > 0]) / 2, rtol=1e-5)
    assert len(compiled.compiles) == 1


@pytest.mark.parametrize("asked", [{}, {"return_counts": True}, {"return_inverse": True}])
def test_distinct_values(asked):
    compiled = gc.compile(lambda x: np.unique(np.round(x), **asked))
    for x in (X, np.ones_like(X), X * 3):
        want, made = np.unique(np.round(x), **asked), compiled(x)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (made, want)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_repeats_and_lengths_that_are_traced():
    repeated, counted = gc.compile(np.repeat), gc.compile(lambda n: gc.arange(n) * 2)
    for counts in ([1, 0, 3, 2, 5], [0] * 5, [7] * 5):
        np.testing.assert_array_equal(
            repeated(X[:5], np.array(counts)), np.repeat(X[:5], np.array(counts))
        )
    for n in (5, 0, 100):
        np.testing.assert_array_equal(counted(np.array(n)), np.arange(n) * 2)


def test_what_is_computed_before_is_not_computed_again():
    compiled = gc.compile(lambda x, w: np.sort((x @ w)[(x @ w) > 0]))
    x, w = rng.standard_normal((9, 8)), rng.standard_normal((8, 5))
    made = x @ w
    np.testing.assert_allclose(compiled(x, w), np.sort(made[made > 0]), rtol=1e-9)
    products = [
        node
        for record in compiled.stages(x, w)
        if record.name == "trace"
        for node in record.value.nodes
        if node.op.name == "matmul"
    ]
    assert len({node.id for node in products}) == len(products)


def test_loops_and_other_functions_need_the_size():
    with pytest.raises(GraphError, match=r"not counted while tracing|depends on data"):
        gc.compile(lambda x: gc.scan(lambda c, r: (c, r[r > 0]), 0.0, x)[1])(X.reshape(50, 4))
    inner = gc.compile(lambda x: x[x > 0])
    with pytest.raises(GraphError, match="data decides"):
        gc.compile(lambda x: inner(x) + 1)(X)


def test_the_example_keeps_the_boxes_that_a_loop_keeps():
    import runpy

    found = runpy.run_path(str(ROOT / "examples/found.py"))
    compiled = gc.compile(found["best_boxes"])
    for count in (60, 200):
        boxes, scores = found["picture"](np.random.default_rng(count), count)
        places = np.nonzero(scores > found["THRESHOLD"])[0]
        best = boxes[places[np.argsort(-scores[places])]]
        near = found["shared_area"](best) > found["OVERLAP"]
        kept: list[int] = []
        for place in range(len(best)):
            if not near[kept, place].any():
                kept.append(place)
        np.testing.assert_allclose(compiled(boxes, scores), best[kept])
    assert len(compiled.compiles) <= 2
