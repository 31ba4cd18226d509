"""Chains that run block by block: attention without its whole score matrix, and what may not."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from chains import attention, chain
from effort import examples, slow
from hypothesis import given
from hypothesis import strategies as st
from open_sizes import Template, template, wrong

import graphc as gc
from graphc.codegen.build import build
from graphc.config import Config
from graphc.errors import GraphError
from graphc.ir.graph import Graph
from graphc.ir.liveness import peak_bytes
from graphc.ir.parse import parse
from graphc.ir.sizes import Size
from graphc.ir.text import show
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline
from graphc.passes.tiling import block as blocks
from graphc.passes.tiling.block import level_of
from graphc.passes.tuning import tuned

FEW = examples(10)


def planned(function: Any, *arguments: Any, **options: Any) -> Graph:
    return gc.compile(function, **options).stages(*arguments)[-1][1].graphs[0]


def blocked(graph: Graph) -> list[tuple[int, ...]]:
    return [n.attrs["counts"] for n in graph.nodes if n.op.name == "blocked"]


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large: chains of a few kilobytes run in blocks."""
    room = blocks.Room(1, 1 << 12, 1, 1, ())
    monkeypatch.setattr(blocks, "room_of", lambda config: room)


@FEW
@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    rows=st.integers(1, 70),
    columns=st.sampled_from([1, 7, 40, 65]),
    widths=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    element=st.sampled_from(["f4", "f8"]),
    masks=st.sampled_from(["", "rows", "keys", "causal", "full"]),
    opt=st.sampled_from([0, 2]),
    threads=st.integers(1, 2),
)
def test_attention_of_any_shape(
    small_cache: None,
    batch: Any,
    rows: int,
    columns: int,
    widths: Any,
    element: str,
    masks: str,
    opt: int,
    threads: int,
) -> None:
    rng = np.random.default_rng(rows)
    shapes = [(*batch, rows, widths[0]), (*batch, columns, widths[0]), (*batch, columns, widths[1])]
    arrays = [rng.normal(size=s).astype(element) for s in shapes]
    if masks == "causal":
        arrays.append(np.tri(rows, columns, dtype=bool))
    elif masks:
        dims = {"rows": (rows, 1), "keys": (columns,), "full": (*batch, rows, columns)}[masks]
        arrays.append(rng.normal(size=dims).astype(element))
    made = gc.compile(attention, opt=opt, threads=threads)(*arrays)
    exact = 1e-4 if element == "f4" else 1e-12
    np.testing.assert_allclose(made, attention(*arrays), rtol=exact, atol=exact)


@pytest.fixture
def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(2, 3, 90, 8)).astype("f") for _ in range(3)]


def test_every_stage_runs_and_prints(small_cache: None, arrays: list[np.ndarray]) -> None:
    graph = gc.compile(attention).graph(*arrays)
    want = attention(*arrays)
    records = pipeline.run(graph, Config(verify=3, threads=1))
    assert blocked(records[-1].value.graphs[0]) == [(2, 3, 2)]
    for record in records:
        np.testing.assert_allclose(interpret(record.value, arrays)[0], want, rtol=1e-4, atol=1e-5)
    reasons = [text for r in records for _, text in r.note.reasons if "blocks" in text]
    assert "in 12 blocks" in reasons[0]


def test_blocks_do_not_change_a_bit(
    arrays: list[np.ndarray], request: pytest.FixtureRequest
) -> None:
    whole = gc.compile(attention)(*arrays)
    request.getfixturevalue("small_cache")
    assert np.array_equal(gc.compile(lambda *a: attention(*a))(*arrays), whole)


def test_memory_is_one_block() -> None:
    kinds = [gc.spec((1, 8, 1024, 64), "f32")] * 3
    for function in (attention, lambda q, k, v: gc.attention(q, k, v)):
        graph = planned(function, *kinds, threads=2)
        assert blocked(graph)
        assert peak_bytes(graph) < 8 * 1024 * 1024 * 4 // 8


def test_short_sequences_stay_whole() -> None:
    assert not blocked(planned(attention, *[gc.spec((2, 4, 64, 32), "f32")] * 3))


def test_heads_that_are_views_and_their_projection(small_cache: None) -> None:
    def model(x: Any, w: Any) -> Any:
        length, width = x.shape
        parts = np.split(x @ w, 3, -1)
        q, k, v = (p.reshape(length, 4, width // 4).transpose(1, 0, 2) for p in parts)
        places = np.arange(length)
        scores = np.where(places[:, None] >= places, q @ k.swapaxes(1, 2), np.float32(-1e9))
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        made = powers @ v / powers.sum(-1, keepdims=True)
        return made.transpose(1, 0, 2).reshape(length, width)

    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(61, 16)).astype("f"), rng.normal(size=(16, 48)).astype("f")
    assert blocked(planned(model, x, w))
    np.testing.assert_allclose(gc.compile(model)(x, w), model(x, w), rtol=1e-4, atol=1e-4)


def test_one_array_in_two_roles(small_cache: None) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6))
    function = lambda x: attention(x, x, x)
    assert blocked(planned(function, x))
    np.testing.assert_allclose(gc.compile(function)(x), function(x), rtol=1e-12)


def test_scores_that_are_read_elsewhere_stay_whole(small_cache: None) -> None:
    def both(q: Any, k: Any, v: Any) -> Any:
        scores = q @ np.swapaxes(k, -1, -2)
        return scores, np.tanh(scores) @ v

    assert not blocked(planned(both, *[gc.spec((30, 8), "f32")] * 3))


@pytest.mark.parametrize("depth", [0, 5])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_what_is_summed_may_be_empty(small_cache: None, batch: Any, depth: int) -> None:
    """No step along an axis of an operand without elements moves anything."""

    def function(x: Any, w: Any) -> Any:
        s = np.exp(x @ w)
        return np.log(s.sum(-1)) + s.max(-1)

    x, w = np.ones((*batch, 40, depth)), np.ones((*batch, depth, 90))
    assert bool(blocked(planned(function, x, w))) == bool(depth)
    np.testing.assert_allclose(gc.compile(function)(x, w), function(x, w), rtol=1e-12)


def test_complex_windows_lie_where_real_ones_do(small_cache: None) -> None:
    """A block of complex elements is read at the same positions, as often."""

    def counts(c: Any) -> Any:
        z, n = c, np.zeros(c.shape, np.int32)
        for _ in range(13):
            m = np.abs(z) < 2
            z, n = np.where(m, z * z + c, z), n + m
        return n

    for kind in ("c8", "c16", "f8"):
        c = np.full(1000, 0.3, kind)
        assert blocked(planned(counts, c))
        np.testing.assert_array_equal(gc.compile(counts)(c), counts(c))


@pytest.mark.parametrize("sizes", ["exact", {"x": ("m", "n")}])
def test_columns_of_rows_that_are_folded_whole_are_no_block(small_cache: None, sizes: Any) -> None:
    """What was stored of a block of columns was its first one alone."""

    def centred(x: Any) -> Any:
        return (x / x.sum(1, keepdims=True)).mean(0), (x - x.max()).mean(0)

    made = gc.compile(centred, sizes=sizes, threads=1)
    for shape in ((65, 70), (3, 7), (40, 333)):
        x = np.random.default_rng(0).uniform(1, 2, shape).astype("f4")
        for got, expected in zip(made(x), centred(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("sizes", ["exact", {"x": (2, "m", "n")}])
def test_rows_and_columns_are_not_cut_where_rows_are_folded(small_cache: None, sizes: Any) -> None:
    """Blocks of both were computed over whole rows, so that columns lay where no one read them."""

    def added(x: Any) -> Any:
        return (x / x.sum(2, keepdims=True)).sum(0)

    made = gc.compile(added, sizes=sizes, threads=1)
    for shape in ((2, 7, 5), (2, 30, 333), (2, 65, 70)):
        x = np.random.default_rng(0).uniform(1, 2, shape).astype("f4")
        np.testing.assert_allclose(made(x), added(x), rtol=1e-4)


def test_what_is_read_backwards_is_read_whole(small_cache: None) -> None:
    def function(q: Any, k: Any) -> Any:
        return np.exp(q[::-1] @ k).sum(1)

    q, k = np.ones((80, 4)), np.arange(160.0).reshape(4, 40) / 80
    np.testing.assert_allclose(gc.compile(function)(q, k), function(q, k), rtol=1e-12)


@pytest.mark.slow
@examples(8)
@given(
    seed=st.integers(0, 1 << 20),
    steps=st.sampled_from([5, 20, 40]),
    dims=st.sampled_from([(50,), (333,), (7, 30), (16, 5, 9), (64, 64)]),
    threads=st.integers(1, 2),
)
def test_chains_of_mixed_elements(
    small_cache: None,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    steps: int,
    dims: Any,
    threads: int,
) -> None:
    monkeypatch.setattr(tuned, "group_nodes", 12)
    function, arrays = chain(seed, steps, dims)
    made = gc.compile(function, threads=threads)(*arrays)
    for got, want in zip(made, gc.compile(function, opt=0)(*arrays), strict=True):
        assert got.dtype == want.dtype
        if got.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        else:  # a last bit may decide
            assert (got != want).mean() < 0.01


@given(st.integers(1, 3000), st.integers(1, 400))
def test_levels_cover_every_extent(extent: int, most: int) -> None:
    level = level_of(extent, most)
    assert (level.count - 1) * level.step + level.size == extent
    assert 1 <= level.step <= level.size <= max(1, 2 * most)


@pytest.fixture
def plan(small_cache: None) -> str:
    kinds = [gc.spec((2, 50, 8), "f32")] * 3
    return show(gc.compile(attention, threads=1).stages(*kinds)[-1][1])


def test_steps_that_leave_an_operand_are_refused(plan: str) -> None:
    steps = re.search(r"steps=\[([\d,]+)\]", plan)[1].split(",")
    for position in (0, 2):  # the result's, and the first operand's
        far = [*steps]
        far[position] = "1000000"
        with pytest.raises(GraphError, match="a step leaves"):
            parse(plan.replace(",".join(steps), ",".join(far)))


def test_windows_that_end_outside_are_refused(plan: str) -> None:
    steps = re.search(r"steps=\[([\d,]+)\]", plan)[1].split(",")
    steps[3] = str(int(steps[3]) + 100)
    changed = re.sub(r"steps=\[[\d,]+\]", f"steps=[{','.join(steps)}]", plan, count=1)
    with pytest.raises(GraphError, match="beyond its end"):
        build(parse(changed), Config(threads=1))


def test_blocks_need_their_scratch_memory(plan: str) -> None:
    size = re.search(r"u8\[(\d+)\] @[^\n]*\n *%\d+ = blocked", plan)[1]
    changed = plan.replace(f"u8[{size}]", "u8[64]").replace(f"nbytes={size}", "nbytes=64")
    changed = re.sub(rf"((?:p\d\+)?\d+):{size}\]", r"\1:64]", changed)
    with pytest.raises(GraphError, match="bytes of workspace"):
        build(parse(changed), Config(threads=1))


def test_blocks_for_a_cpu_do_not_run_on_a_gpu(small_cache: None) -> None:
    """They may move by less than the vectors that kernels read there."""
    arrays = [np.ones((n, 1), "f4") for n in (52, 40, 40)]
    text = show(planned(attention, *arrays)).replace("cpu:0", "gpu:0")
    with pytest.raises(GraphError, match="has blocks for a CPU"):
        build(parse(text), Config(devices=("gpu:0",), target="cuda:sm_90"))


@pytest.mark.parametrize(("rows", "columns"), [(1030, 1030), (1100, 1024), slow(1024, 1100)])
def test_long_causal_attention(rows: int, columns: int) -> None:
    """It is worked out in bands of rows, unless some row sees nothing."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, n, 8)).astype("f") for n in (rows, columns, columns))
    function = lambda q, k, v: gc.attention(q, k, v, causal=True)
    assert (len(blocked(planned(function, q, k, v))) > 1) == (rows <= columns)
    want = gc.attention(q, k, v, causal=True)
    np.testing.assert_allclose(gc.compile(function)(q, k, v), want, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------ open sizes

OPEN = {"b": 32, "t": 33}
KINDS = [gc.spec(("b", 3, "t", 8), "f32")] * 3


def counts_at(made: Template, **sizes: int) -> list[tuple[int, ...]]:
    """How often the loops of each chain run."""
    counts = blocked(made.built.stages[-1][1].graphs[0])
    return [tuple(number(count, sizes) for count in each) for each in counts]


def number(size: Any, sizes: dict[str, int]) -> int:
    return size.value(sizes) if isinstance(size, Size) else size


def many(counts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [tuple(count for count in each if count > 1) for each in counts]


@pytest.mark.parametrize("threads", [1, 2])
def test_open_sizes_run_in_the_blocks_of_exact_ones(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(blocks, "room_of", lambda config: blocks.Room(1, 1 << 15, 1, 1, ()))
    made = template(attention, KINDS, OPEN, threads=threads)
    assert [repr(guard) for guard in made.guards] == ["t != 0"]  # nothing has no greatest
    rng = np.random.default_rng(0)
    for b, t in ((1, 1), (2, 7), (1, 64), (5, 33), (7, 2), (3, 97), (0, 4), (2, 130)):
        arrays = [rng.normal(size=(b, 3, t, 8)).astype("f4") for _ in range(3)]
        got = made.run(arrays)
        assert got is not None and not wrong(got, [attention(*arrays)]), (b, t)
        exact = planned(attention, *arrays, threads=threads, sizes="exact")
        assert b < 2 or many(counts_at(made, b=b, t=t)) in ([()], many(blocked(exact))), (b, t)
    assert many(counts_at(made, b=3, t=97)) == [(3, 3)]


def test_few_rows_of_open_sizes_are_one_block() -> None:
    made = template(attention, KINDS, OPEN, threads=1)
    assert counts_at(made, b=2, t=16) == [(1, 1, 1)]
    assert math.prod(counts_at(made, b=64, t=512)[0]) > 64
    graph = made.built.stages[-1][1].graphs[0]
    assert number(peak_bytes(graph), {"b": 64, "t": 512}) < 64 * 3 * 512 * 512 * 4 // 8
