"""Products that are stored as a transpose shows them: which, and that they are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.config import Config
from graphc.ir.graph import Graph, Node
from graphc.ir.types import dtype
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.passes.tuning import tuned

MANY = examples(20)
LIMITS = {"f16": 2e-2, "bf16": 1e-1, "f32": 1e-4, "f64": 1e-11, "i32": 0}


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "transposed_row", 0)


def kernels(function: Any, *arguments: Any, **options: Any) -> list[Node]:
    graph: Graph = gc.compile(function, **options).stages(*arguments)[-1][1].graphs[0]
    return [n for n in graph.nodes if n.op.name == "fused"]


def draw(rng: Any, dims: tuple[int, ...], name: str) -> np.ndarray:
    made = rng.integers(-9, 9, dims) if name == "i32" else rng.normal(size=dims)
    return made.astype(dtype(name).numpy)


@pytest.mark.slow
@MANY
@given(
    shape=st.tuples(*[st.sampled_from([0, 1, 2, 7, 16, 33, 130])] * 3),
    batch=st.sampled_from([(), (1,), (3,), (2, 3)]),
    shared=st.booleans(),
    data=st.data(),
    name=st.sampled_from(sorted(LIMITS)),
    before=st.booleans(),
    after=st.booleans(),
    constant=st.booleans(),
    threads=st.integers(1, 3),
)
def test_any_order_of_axes(
    shape: Any,
    batch: Any,
    shared: bool,
    data: Any,
    name: str,
    before: bool,
    after: bool,
    constant: bool,
    threads: int,
) -> None:
    m, k, n = shape
    rank = len(batch) + 2
    order = data.draw(st.permutations(range(rank)))
    rng = np.random.default_rng(m * k + n)
    x, w = draw(rng, (*batch, m, k), name), draw(rng, (k, n) if shared else (*batch, k, n), name)
    wide = (*batch, m, n)
    c, r = draw(rng, (n,), name), draw(rng, tuple(wide[axis] for axis in order), name)

    def function(x: Any, w: Any, c: Any, r: Any) -> Any:
        made = x @ w
        made = np.maximum(made + c, 0) if before else made
        made = made.transpose(order)
        return np.minimum(made - r, 3) if after else made

    given = [x, w, c, r]
    wanted = interpret(gc.compile(function).graph(*given), given)[0].astype("f8")
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    if constant:
        compiled = lambda **o: gc.compile(lambda x, c, r: function(x, w, c, r), **o)(x, c, r)
    else:
        compiled = lambda **o: gc.compile(function, **o)(*given)
    made = compiled(threads=threads)
    for one in (made, compiled(opt=0)):
        np.testing.assert_allclose(
            one.astype("f8"), wanted, rtol=LIMITS[name], atol=LIMITS[name] * scale
        )
    assert np.array_equal(made, compiled(threads=threads + 1))


def merged(p: Any, v: Any) -> Any:
    batch, heads, rows, _ = p.shape
    return (p @ v).transpose(0, 2, 1, 3).reshape(batch, rows, heads * v.shape[-1])


FEW = [np.random.default_rng(0).normal(size=s) for s in ((60, 9), (9, 40), (60, 40), (40, 60))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, r, t: (x @ w).T,
        lambda x, w, r, t: np.tanh(x @ w + 1).T,
        lambda x, w, r, t: np.tanh((x @ w).T - t),
        lambda x, w, r, t: np.exp(x @ w).T - t,
        lambda x, w, r, t: ((x @ w).T) ** 2,
    ],
)
def test_one_kernel(function: Any) -> None:
    assert [n.attrs["kind"] for n in kernels(function, *FEW)] == ["contract"]
    for options in ({}, {"threads": 3}, {"opt": 0}, {"backend": "numba"}, {"parity": True}):
        made = gc.compile(function, **options)(*FEW)
        np.testing.assert_allclose(made, function(*FEW), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, r, t: ((x @ w).T, x @ w),
        lambda x, w, r, t: (x @ w).T + (x @ w).reshape(t.shape),
        lambda x, w, r, t: (x @ w).T.reshape(8, 5, 60).transpose(2, 1, 0),
        lambda x, w, r, t: (x @ w + r).T,  # all of r would be read across
        lambda x, w, r, t: (x @ w).T - r.T,
        lambda x, w, r, t: (x @ w).T.sum(-1),
        lambda x, w, r, t: np.stack([(x @ w).T, t]),
    ],
)
def test_what_is_read_otherwise_is_copied(function: Any) -> None:
    assert len(kernels(function, *FEW)) > 1
    for made, wanted in zip(gc.compile(function)(*FEW), function(*FEW), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-11, atol=1e-11)


def test_heads_are_merged_without_a_copy() -> None:
    rng = np.random.default_rng(1)
    given = [rng.normal(size=s).astype("f4") for s in ((2, 3, 20, 20), (2, 3, 20, 8))]
    assert len(kernels(merged, *given)) == 1
    np.testing.assert_allclose(gc.compile(merged)(*given), merged(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (1, 0, 2, 3), (3, 2, 1, 0)])
def test_images_with_channels_last(order: Any) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(2, 3, 9, 9)), rng.normal(size=(20, 3, 3, 3))
    plain = lambda x, w: gc.relu(gc.conv(x, w, stride=2))
    function = lambda x, w: plain(x, w).transpose(order)
    assert [n.attrs["kind"] for n in kernels(function, x, w)] == ["contract"]
    wanted = gc.compile(plain)(x, w).transpose(order)
    np.testing.assert_allclose(gc.compile(function)(x, w), wanted, rtol=1e-11, atol=1e-11)


def test_short_rows_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    function = lambda x, w: (x @ w).T
    for rows, count in ((100, 2), (300, 1)):
        given = gc.spec((rows, 40), "f32"), gc.spec((40, 50), "f32")
        assert len(kernels(function, *given)) == count


def test_heads_of_several_layers() -> None:
    def function(x: Any, w: Any) -> Any:
        for _ in range(3):
            heads = x.reshape(2, 20, 3, 8).transpose(0, 2, 1, 3)
            x = np.tanh(merged(heads @ heads.swapaxes(2, 3), heads) @ w)
        return x

    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(2, 20, 24)), rng.normal(size=(24, 24)) / 24
    assert {n.attrs["kind"] for n in kernels(function, x, w)} == {"contract"}
    np.testing.assert_allclose(gc.compile(function)(x, w), function(x, w), rtol=1e-9, atol=1e-9)


def test_every_stage_runs() -> None:
    rng = np.random.default_rng(1)
    given = [rng.normal(size=s).astype("f4") for s in ((2, 3, 20, 20), (2, 3, 20, 8))]
    records = pipeline.run(gc.compile(merged).graph(*given), Config(verify=3, threads=1))
    for record in records:
        made = interpret(record.value, given)[0]
        np.testing.assert_allclose(made, merged(*given), rtol=1e-4, atol=1e-4)


def test_donated_memory_is_read_before_it_is_written() -> None:
    x, w, _, t = FEW
    for function in (lambda x, w, t: (x @ w).T - t, lambda x, w, t: (x @ w + t.T * 2).T):
        wanted = gc.compile(function)(x, w, t)
        assert np.array_equal(gc.compile(function, donate="t")(x, w, t.copy()), wanted)
