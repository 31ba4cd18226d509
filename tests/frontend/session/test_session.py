"""Sessions: running parts of a graph, exact pruning, and every mistake explained."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from effort import examples
from graphs import random_graphs
from hypothesis import given
from hypothesis import strategies as st
from session_graphs import FIGURE_6, PORTS, X, message, session

import graphc as gc
from graphc.errors import TraceError
from graphc.ir.graph import Graph, Node
from graphc.ir.verify import verify
from graphc.ops.reference.interpreter import interpret

# ------------------------------------------------------------------------------------ pruning


def test_figure_6_runs_a_c_and_f_only() -> None:
    s = session(FIGURE_6)
    pruned = s.graph("f:0", ["b"])
    names = {id: name for name, id in pruned.names.items()}
    assert [names[n.id] for n in pruned.nodes] == ["a", "c", "f"]
    assert [p.attrs["name"] for p in pruned.params] == ["b"]
    assert s.run("f:0", {"b": np.float32(5)}) == 49
    assert s.run("f", {"seed": 0.0}) == 1


def test_the_pruned_graph_is_the_one_that_was_compiled() -> None:
    s = session(FIGURE_6)
    stages = s.stages("f", {"b": 1.0})
    assert gc.show(stages[0].value) == gc.show(s.graph("f", ["b"]))
    assert gc.parse(gc.show(s.graph())).names == s.graph().names


def needed_by_recursion(graph: Graph, fetch: Node, feeds: set[int]) -> set[int]:
    """The definition that pruning is checked against."""
    if fetch.id in feeds:
        return set()
    found = {fetch.id} - {p.id for p in graph.params}
    for source in fetch.inputs:
        found |= needed_by_recursion(graph, source, feeds)
    return found


@examples(20)
@given(random_graphs(most=10).filter(lambda g: g.nodes), st.data())
def test_pruning_is_exact_on_random_graphs(graph: Graph, data: st.DataObject) -> None:
    s = gc.Session()
    s.extend(graph)
    fetch = data.draw(st.sampled_from(graph.nodes))
    others = [n for n in (*graph.params, *graph.nodes) if n is not fetch]
    fed = data.draw(st.sets(st.sampled_from(others), max_size=3)) | set(graph.params)
    pruned = s.graph(f"%{fetch.id}", [f"%{n.id}" for n in fed])
    verify(pruned)
    ids = {n.id for n in fed}
    assert {n.id for n in pruned.nodes} == needed_by_recursion(graph, fetch, ids)
    # Fed with what the whole graph computes for them, the part gives what the whole graph does.
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(p.type.dims).astype("f4") for p in graph.params]
    whole = graph.replace(results=(fetch, *pruned_sources(graph, pruned)), result_names=())
    expected, *values = interpret(whole, arguments)
    np.testing.assert_array_equal(interpret(pruned, values)[0], expected)


def pruned_sources(graph: Graph, pruned: Graph) -> list[Node]:
    by_id = {n.id: n for n in (*graph.params, *graph.nodes)}
    return [by_id[p.id] for p in pruned.params]


def test_ports_are_fed_and_fetched_one_by_one() -> None:
    s = session(PORTS)
    pair = s.run("t", {"x": X})
    assert isinstance(pair, tuple)
    np.testing.assert_allclose(pair[1], np.tanh(X), rtol=1e-6)
    np.testing.assert_array_equal(s.run({"p": "t:0"}, {"x": X})["p"], X)
    np.testing.assert_array_equal(s.run("n", {"t:1": X}), -X)
    assert [n.op.name for n in s.graph("n", ["t:1"]).nodes] == ["neg"]
    # A port that is fed is seen by whoever reads the tuple as a whole, the other one is computed.
    np.testing.assert_allclose(s.run("r", {"x": X, "t:0": X + 1}), np.exp(X + 1), rtol=1e-6)
    verify(s.graph("r", ["x", "t:0"]))
    np.testing.assert_allclose(s.run("r", {"t:0": X, "t:1": X}), np.exp(X), rtol=1e-6)


def test_fetches_nest_and_keep_their_order() -> None:
    s = session(FIGURE_6)
    feeds = {"b": 1.0}
    assert s.run(["f", "c", "f", "a"], feeds) == [9, 3, 9, 2]
    assert s.run(("f",), feeds) == (9,)
    assert s.run({"z": "c", "a": ["f", ("a", "c")]}, feeds) == {"z": 3, "a": [9, (2, 3)]}
    assert s.run([["c"], "f"], feeds) == [[3], 9]
    assert list(s.run({"z": "c", "a": "f"}, feeds)) == ["z", "a"]
    assert s.run([], feeds, targets=["e"]) == []
    first, second = s.run(["c", "c"], feeds)
    first[...] = 0
    assert second == 3


def test_feeds_that_nothing_needs_are_no_error() -> None:
    s = session(FIGURE_6)
    for _ in range(4):
        assert s.run("c", {"e": 1.0, "b": 1.0, "seed": 2.0}) == 3
    assert [p.attrs["name"] for p in s.graph("c", ["e", "b"]).params] == ["b"]


STATE = """
graph @state(%0 x: f32[]) {
  %1 = read() {name="v", container="main", type=f32[]} : f32[]
  %2 = add(%1, %0) : f32[]
  %3 = assign(%2) {name="v", container="main"} : f32[] after %1
  %4 = read() {name="v", container="main", type=f32[]} : f32[] after %3
  %5 = assign(%0) {name="w", container="main"} : f32[]
  %6 = assign(%0) {name="v", container="main"} : f32[] after %3, %4
  name before = %1
  name add = %3
  name now = %4
  name other = %5
  name last = %6
  return %4
}
"""


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        ({"fetches": "before"}, [1]),
        ({"fetches": "add"}, [1, 2, 3]),
        ({"fetches": "now"}, [1, 2, 3, 4]),
        ({"fetches": "other"}, [5]),
        ({"fetches": "last"}, [1, 2, 3, 6]),
        ({"fetches": [], "targets": ["last"]}, [1, 2, 3, 6]),
        ({"fetches": "before", "targets": "other"}, [1, 5]),
    ],
)
def test_writes_run_when_asked_for_or_waited_for(asked: dict[str, Any], runs: list[int]) -> None:
    """A read that is only waited for does not run: nothing would see its value."""
    pruned = session(STATE).graph(feeds=["x"], **asked)
    verify(pruned)
    assert [n.id for n in pruned.nodes] == runs


# ------------------------------------------------------------------------------------ errors


def test_errors_of_feeds_and_fetches() -> None:
    s = session(FIGURE_6)
    zero = np.float32(0)
    twice = message(lambda: s.run("f", {"b": zero, "b:0": zero}))
    assert "fed twice" in twice and "'b:0'" in twice and "fig6.py:3" in twice
    both = message(lambda: s.run(["f", "%2"], {"b": zero}))
    assert "'b' is both fed and fetched" in both
    assert "nothing is fetched" in message(lambda: s.run([], {"b": zero}))
    port = message(lambda: s.run("f:3", {"b": zero}))
    assert "port 3 is out of range" in port and "1 output" in port and "fig6.py:6" in port
    missing = message(lambda: s.run("f"))
    assert "'seed' is not fed" in missing and "%1 = exp(%9)" in missing and "fig6.py:2" in missing
    assert "did you mean" in message(lambda: s.run("ff", {"b": zero}))
    assert "no node named 'sead'" in message(lambda: s.run("f", {"sead": zero}))
    assert "no node named '%77'" in message(lambda: s.run("%77"))
    assert "got int" in message(lambda: s.run(3))
    assert "must be a dict" in message(lambda: s.run("f", [zero]))
    assert "target" in message(lambda: s.run("f", {"b": zero}, targets="b"))
    assert s.compiles == []


def test_errors_of_nodes_with_several_outputs_or_none() -> None:
    s = session(PORTS)
    none = message(lambda: s.run("none"))
    assert "targets=['none']" in none and "ports.py:6" in none
    assert s.run([], targets=["none"]) == []
    port = message(lambda: s.run("t:2", {"x": X}))
    assert "2 output(s)" in port and "ports.py:3" in port and "t:0, t:1" in port
    assert "one of them must be chosen" in message(lambda: s.run("n", {"t": X}))
    assert "fed twice" in message(lambda: s.run("n", {"t1": X, "t:1": X}))
    assert "not a tensor" in message(lambda: s.run("pair", {"x": X}))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros(3, np.float32), "f32[3]"),
        (np.zeros((), np.float64), "f64[]"),
        (1j, "c128[]"),
        ([1.0], "f32[1]"),
        (None, "NoneType"),
        (["one"], "<U3"),
        ([[1.0], [1.0, 2.0]], "inhomogeneous"),
        ("one", "f32[]"),
        (np.array("one"), "<U3"),
    ],
)
def test_feeds_of_another_type_are_refused(value: Any, words: str) -> None:
    s = session(FIGURE_6)
    text = message(lambda: s.run("f", {"b": value}))
    assert words in text and "b" in text and "fig6.py:3" in text
    assert s.run("f", {"b": 0}) == 4
    message(lambda: s.run("f", {"b": value}))  # also once it has been compiled


def test_integers_do_not_take_fractions_and_must_fit() -> None:
    s = session("graph @g(%0 x: i8[2]) {\n  %1 = neg(%0) : i8[2]\n  return y: %1\n}")
    np.testing.assert_array_equal(s.run("y", {"x": [1, 2]}), [-1, -2])
    assert "f64[2]" in message(lambda: s.run("y", {"x": [1.5, 2]}))
    assert "i8[2]" in message(lambda: s.run("y", {"x": [1, 300]}))


def test_a_session_does_not_run_inside_a_trace() -> None:
    s = session(FIGURE_6)
    f = gc.compile(lambda x: s.run("f", {"b": x}))
    assert "traced" in message(lambda: f(np.float32(1)), TraceError)


# ------------------------------------------------------------------------------------ compiling


def test_ten_thousand_runs_compile_once() -> None:
    s = session(FIGURE_6)
    b = np.ones((), np.float32)
    for _ in range(10_000):
        assert s.run("f", {"b": b}) == 9
    assert len(s.compiles) == 1
    # Another nesting, another spelling and another order of the feeds are no other computation.
    assert s.run(["f:0"], {"b:0": b}) == [9]
    assert s.run({"r": "%5"}, {"seed": b, "%2": b}) == {"r": 9}
    assert s.run(("f",), {"e": b, "b": b}) == (9,)
    assert len(s.compiles) == 1
    assert "f" in s.compiles[0].reason
    assert repr(s.compiles[0].signature) == "b: f32[]"


def test_open_dimensions_compile_once_for_each_shape() -> None:
    s = session("graph @g(%0 x: f32[N]) {\n  %1 = exp(%0) : f32[N]\n  return y: %1\n}")
    for size in (2, 3, 2, 3, 2):
        x = np.full(size, 0.0, np.float32)
        np.testing.assert_array_equal(s.run("y", {"x": x}), np.ones(size))
    assert [c.reason for c in s.compiles] == ["first run of y, N = 2", "y: new shape, N = 3"]
    assert "f32[N]" in message(lambda: s.run("y", {"x": np.zeros((2, 2), np.float32)}))


def test_eight_threads_run_and_extend_one_session() -> None:
    s = session("graph @g(%0 x: f32[N]) {\n  %1 = mul(%0, %0) : f32[N]\n  return y: %1\n}")
    wrong: list[Any] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            start.wait()
            tail = f"graph @t(%0 q: f32[]) {{\n  %1 = neg(%0) : f32[]\n  return z{number}: %1\n}}"
            for k in range(300):
                x = np.full(1 + k % 3, number, np.float32)
                if (s.run("y", {"x": x}) != number * number).any():
                    wrong.append((number, k))
                if k == 100:
                    s.extend(tail, scope=f"t{number}")
                if k > 100 and s.run(f"t{number}/z{number}", {f"t{number}/q": k}) != -k:
                    wrong.append((number, k))
        except Exception as error:  # noqa: BLE001 (whatever it is, the test shows it)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(s.compiles) == 3 + 8
