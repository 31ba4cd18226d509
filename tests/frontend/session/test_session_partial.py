"""Partial runs: one step in several calls, every node run once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import examples
from graphs import random_graphs
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.errors import FeedError, RunError
from graphc.frontend.session.partial_run import PartialRun
from graphc.ir.graph import Graph
from graphc.ops.reference.interpreter import interpret

CHAIN = """
graph @chain(%0 a: f32[2], %1 b: f32[2], %2 c: f32[2]) {
  %3 = add(%0, %1) : f32[2] loc("chain.py":1)
  %4 = mul(%3, %2) : f32[2] loc("chain.py":2)
  %5 = exp(%3) : f32[2]
  %6 = add(%4, %5) : f32[2]
  name r1 = %3
  name r2 = %4
  name r3 = %6
  return %6
}
"""
A, B, C = (np.array(v, np.float32) for v in ([1, 2], [3, 4], [5, 6]))


def session(text: str = CHAIN) -> gc.Session:
    made = gc.Session(threads=1)
    made.extend(text)
    return made


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(FeedError) as caught:
        call()
    return str(caught.value)


def counts(handle: PartialRun) -> dict[int, int]:
    """How often each node ran in the calls of a handle, from the graphs that were compiled."""
    found: dict[int, int] = {}
    for graph in handle.graphs:
        for node in graph.nodes:
            if not (node.op.traits.stored or node.op.traits.item):
                found[node.id] = found.get(node.id, 0) + 1
    return found


def test_every_node_runs_once() -> None:
    s = session()
    h = s.partial_run_setup(["r1", "r2", "r3"], ["a", "b", "c"])
    np.testing.assert_array_equal(s.partial_run(h, "r1", {"a": A, "b": B}), A + B)
    assert counts(h) == {3: 1}
    assert s.partial_run(h, {"r": ["r2"]}, {"c": C})["r"][0].tolist() == [20, 36]
    np.testing.assert_allclose(s.partial_run(h, "r3"), (A + B) * C + np.exp(A + B), rtol=1e-6)
    assert counts(h) == {3: 1, 4: 1, 5: 1, 6: 1}
    assert h.finished


@examples(13)
@given(random_graphs(most=9).filter(lambda g: g.nodes), st.data())
def test_any_order_of_calls_gives_the_step_and_runs_nothing_twice(
    graph: Graph, data: st.DataObject
) -> None:
    """Fetches one by one in random order, each call with the feeds that it still lacks."""
    fetches = data.draw(st.lists(st.sampled_from(graph.nodes), unique=True, min_size=1, max_size=4))
    s = gc.Session(opt=0, threads=1)
    s.extend(graph)
    rng = np.random.default_rng(1)
    arrays = {
        p.attrs["name"]: rng.standard_normal(p.type.dims).astype(np.float32) for p in graph.params
    }
    expected = interpret(graph.replace(results=tuple(fetches), result_names=()), [*arrays.values()])
    h = s.partial_run_setup([f"%{n.id}" for n in fetches], list(arrays))
    fed: set[str] = set()
    for node, wanted in zip(fetches, expected):
        needed = {p.attrs["name"] for p in s.graph(f"%{node.id}", list(arrays)).params} - fed
        fed |= needed
        made = s.partial_run(h, f"%{node.id}", {name: arrays[name] for name in needed})
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)
    assert h.finished
    whole = s.graph([f"%{n.id}" for n in fetches], list(arrays))
    assert counts(h) == {n.id: 1 for n in whole.nodes if not n.op.traits.stored}


def test_two_handles_in_a_row_and_interleaved() -> None:
    s = session()
    for _ in range(2):
        h = s.partial_run_setup(["r1", "r2"], ["a", "b", "c"])
        s.partial_run(h, "r1", {"a": A, "b": B})
        np.testing.assert_array_equal(s.partial_run(h, "r2", {"c": C}), (A + B) * C)
    assert len(s.compiles) == 2
    one, two = (s.partial_run_setup(["r1", "r2"], ["a", "b", "c"]) for _ in range(2))
    s.partial_run(one, "r1", {"a": A, "b": B})
    s.partial_run(two, "r1", {"a": C, "b": C})
    np.testing.assert_array_equal(s.partial_run(one, "r2", {"c": C}), (A + B) * C)
    np.testing.assert_array_equal(s.partial_run(two, "r2", {"c": A}), 2 * C * A)
    assert len(s.compiles) == 2


def test_what_a_call_may_not_do() -> None:
    s = session()
    h = s.partial_run_setup(["r1", "r2"], ["a", "b", "c"])
    early = message(lambda: s.partial_run(h, "r2", {"a": A, "b": B}))
    assert "r2 cannot be fetched now" in early and "'c' is not fed yet" in early
    assert "chain.py:2" in early
    assert "no declared fetch" in message(lambda: s.partial_run(h, "r3", {"a": A}))
    assert "no declared feed" in message(lambda: s.partial_run(h, "r1", {"r3": A}))
    assert "f32[1]" in message(lambda: s.partial_run(h, "r1", {"a": A, "b": B[:1]}))
    # None of these calls has changed anything.
    s.partial_run(h, [], {"a": A})
    assert "'a' was fed before" in message(lambda: s.partial_run(h, "r1", {"a": A, "b": B}))
    assert s.partial_run(h, "r1:0", {"b": B}).tolist() == [4, 6]
    assert "'r1' was fetched before" in message(lambda: s.partial_run(h, ["r1", "r2"], {"c": C}))
    s.partial_run(h, "r2", {"c": C})
    assert "finished" in message(lambda: s.partial_run(h, "r2"))
    assert "handle" in message(lambda: session().partial_run(h, "r2"))
    assert "handle" in message(lambda: s.partial_run("h", "r2"))  # type: ignore[arg-type]


def test_a_declaration_is_checked_like_a_run() -> None:
    s = session()
    assert "'c' is not fed" in message(lambda: s.partial_run_setup("r2", ["a", "b"]))
    assert "both fed and fetched" in message(lambda: s.partial_run_setup("r1", ["r1"]))
    assert "fed twice" in message(lambda: s.partial_run_setup("r3", ["r1", "r1:0", "c"]))
    assert "nothing" in message(lambda: s.partial_run_setup([], ["a"]))


def test_kept_values_belong_to_the_handle() -> None:
    s = session()
    h = s.partial_run_setup(["r1", "r3"], ["a", "b", "c"])
    c = C.copy()
    r1 = s.partial_run(h, "r1", {"a": A, "b": B, "c": c})
    r1[...] = 100
    c[...] = 100
    np.testing.assert_allclose(s.partial_run(h, "r3"), (A + B) * C + np.exp(A + B), rtol=1e-6)


def test_results_of_tuples_and_fed_ports_cross_calls() -> None:
    s = session("""
graph @t(%0 x: f32[2], %1 y: f32[2]) {
  %2 = exp(%0) : f32[2]
  %3 = tuple(%0, %2) : (f32[2], f32[2])
  %4 = item(%3) {index=1} : f32[2]
  %5 = add(%4, %1) : f32[2]
  %6 = item(%3) {index=0} : f32[2]
  %7 = mul(%5, %6) : f32[2]
  name t = %3
  name z = %7
  return %7
}""")
    h = s.partial_run_setup(["t:1", "z"], ["x", "y"])
    np.testing.assert_allclose(s.partial_run(h, "t:1", {"x": A}), np.exp(A), rtol=1e-6)
    np.testing.assert_allclose(s.partial_run(h, "z", {"y": B}), (np.exp(A) + B) * A, rtol=1e-6)
    h = s.partial_run_setup(["z"], ["t:1", "x", "y"])
    s.partial_run(h, [], {"t:1": C})
    np.testing.assert_array_equal(s.partial_run(h, "z", {"x": A, "y": B}), (C + B) * A)


def test_open_dimensions_are_fixed_by_any_earlier_feed() -> None:
    s = session("""
graph @g(%0 x: f32[N], %1 y: f32[]) {
  %2 = sum(%0) {axes=[0], keepdims=false} : f32[]
  %3 = add(%2, %1) : f32[]
  %4 = broadcast(%3) {dims=[N]} : f32[N]
  name total = %2
  name wide = %4
  return %4
}""")
    for size in (2, 3):
        h = s.partial_run_setup(["total", "wide"], ["x", "y"])
        assert s.partial_run(h, "total", {"x": np.ones(size, np.float32)}) == size
        np.testing.assert_array_equal(s.partial_run(h, "wide", {"y": 1.0}), np.full(size, size + 1))


def test_a_call_that_fails_at_run_time_ends_the_handle() -> None:
    s = gc.Session(check_finite=True)
    s.extend(CHAIN)
    h = s.partial_run_setup(["r1", "r2"], ["a", "b", "c"])
    with pytest.raises(RunError):
        s.partial_run(h, "r1", {"a": A, "b": B * np.float32(np.nan)})
    assert "failed" in message(lambda: s.partial_run(h, "r2", {"c": C}))
    assert "failed" in repr(h)


def test_handles_of_one_setup_run_in_several_threads() -> None:
    s = session()
    wrong: list[Any] = []

    def work(number: int) -> None:
        for k in range(100):
            h = s.partial_run_setup(["r1", "r2"], ["a", "b", "c"])
            r1 = s.partial_run(h, "r1", {"a": A * number, "b": B * k})
            r2 = s.partial_run(h, "r2", {"c": C})
            if not np.array_equal(r2, r1 * C) or not np.array_equal(r1, A * number + B * k):
                wrong.append((number, k))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(s.compiles) == 2


@pytest.mark.parametrize("order", list(itertools.permutations(["r1", "r2", "r3"])))
def test_all_orders_of_three_fetches(order: tuple[str, ...]) -> None:
    s = session()
    h = s.partial_run_setup(["r1", "r2", "r3"], ["a", "b", "c"])
    expected = {"r1": A + B, "r2": (A + B) * C, "r3": (A + B) * C + np.exp(A + B)}
    s.partial_run(h, [], {"a": A, "b": B, "c": C})
    for name in order:
        np.testing.assert_allclose(s.partial_run(h, name), expected[name], rtol=1e-6)
    assert counts(h) == {3: 1, 4: 1, 5: 1, 6: 1}
