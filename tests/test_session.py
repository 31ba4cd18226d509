"""Sessions: growing, running parts of a graph, exact pruning, and every mistake explained."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import random_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.errors import FeedError, GraphError, TraceError
from graphc.ir.graph import Graph, Node
from graphc.ir.verify import verify
from graphc.ops.interpret import interpret

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


def session(text: str) -> gc.Session:
    made = gc.Session(threads=1)
    made.extend(text)
    return made


def message(call: Callable[[], Any], kind: type[GraphError] = FeedError) -> str:
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "graphc/" not in text
    return text


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


@settings(max_examples=60, deadline=None)
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


# ------------------------------------------------------------------------------------ growing


def test_extend_binds_parameters_to_what_is_there() -> None:
    s = session(PORTS)
    more = "graph @more(%0 h: f32[N], %1 k: f32[]) {\n"
    more += "  %2 = mul(%0, %1) : f32[N]\n  name twice = %2\n  return out: %2\n}"
    assert s.extend(more, inputs={"h": "t:1"}) == {"out": "twice"}
    assert s.extend(more, inputs={"h": "twice", "k": "k"}, scope="b") == {"out": "b/twice"}
    verify(s.graph())
    made = s.run(["twice", "b/out"], {"x": X, "k": 3.0})
    np.testing.assert_allclose(made, [np.tanh(X) * 3, np.tanh(X) * 9], rtol=1e-6)
    np.testing.assert_array_equal(s.run("b/twice", {"twice": X, "k": 2}), X * 2)


def test_extend_refuses_and_leaves_the_session_as_it_was() -> None:
    s = session(PORTS)
    before = gc.show(s.graph())
    taken = message(lambda: s.extend(PORTS))
    assert "'x'" in taken and "inputs={'x': 'x'}" in taken and "scope" in taken
    half = "graph @h(%0 new: f32[4]) {\n  %1 = neg(%0) : f32[4]\n  name n = %1\n  return %1\n}"
    assert "'n'" in message(lambda: s.extend(half))
    assert "f32[4]" in message(lambda: s.extend(half, inputs={"new": "x"}, scope="a"))
    assert "did you mean 'new'" in message(lambda: s.extend(half, inputs={"nev": "x"}))
    assert "no node named" in message(lambda: s.extend(half, inputs={"new": "zz"}))
    assert "f.graph(x)" in message(lambda: s.extend(gc.compile(abs)), GraphError)
    assert "got int" in message(lambda: s.extend(3), GraphError)
    planned = gc.compile(np.tanh).lower(X).graphs[0]
    assert "placed" in message(lambda: s.extend(planned), GraphError)
    assert gc.show(s.graph()) == before


def test_what_was_compiled_before_an_extend_stays_valid() -> None:
    s = session(FIGURE_6)
    assert s.run("f", {"b": 1.0}) == 9
    s.extend(
        "graph @g(%0 x: f32[]) {\n  %1 = neg(%0) : f32[]\n  return g: %1\n}", inputs={"x": "f"}
    )
    assert s.run("f", {"b": 1.0}) == 9
    assert len(s.compiles) == 1
    assert s.run("g", {"b": 1.0}) == -9
    assert len(s.compiles) == 2


def test_extending_is_linear() -> None:
    def seconds(count: int) -> float:
        lines = [f"  %{k + 1} = neg(%{k}) : f32[4]" for k in range(count)]
        text = "graph @g(%0 x: f32[4]) {\n" + "\n".join(lines) + f"\n  return y: %{count}\n}}"
        s, graph = gc.Session(), gc.parse(text)
        started = time.perf_counter()
        for k in range(4):
            s.extend(graph, scope=f"s{k}")
        s.graph("s3/y", ["s3/x"])
        return time.perf_counter() - started

    assert seconds(20_000) < 12 * seconds(4_000)
    assert seconds(20_000) / 100_000 < 20e-6


# ------------------------------------------------------------------------------------ names


@gc.compile
def tower(x: Any) -> Any:
    for _ in range(2):
        x = gc.name(np.tanh(x), "h")
    return {"y": gc.name(x, "last") + gc.name(np.tanh(np.tanh(gc.name(x, "x"))), "again")}


def test_values_are_named_where_they_are_made() -> None:
    graph = tower.graph(X)
    assert list(graph.names) == ["h", "h_1", "last", "x_1", "again"]
    s = gc.Session()
    assert s.extend(graph) == {"y": "y"}
    made = s.run({"a": "h", "b": "last:0"}, {"x": X})
    np.testing.assert_allclose(made["a"], np.tanh(X), rtol=1e-6)
    np.testing.assert_allclose(made["b"], np.tanh(np.tanh(X)), rtol=1e-6)
    expected = np.tanh(X) + np.tanh(np.tanh(np.tanh(X)))
    np.testing.assert_allclose(s.run("y", {"h": X}), expected, rtol=1e-6)


def test_a_name_does_nothing_outside_of_a_trace_and_wants_an_array() -> None:
    assert gc.name(X, "h") is X
    assert "str" in message(lambda: gc.name(X, ""), TraceError)
    f = gc.compile(lambda x: gc.name((x, x), "pair")[0])
    assert "one by one" in message(lambda: f(X), TraceError)
    g = gc.compile(lambda x: x + gc.name(2.0, "two"))
    assert "two" in g.graph(X).names
    np.testing.assert_array_equal(g(X), X + 2)


def test_names_in_called_functions_are_found() -> None:
    @gc.compile
    def layer(x: Any) -> Any:
        h = gc.name(np.tanh(x), "h")
        return h, gc.name(np.exp(h), "p")

    @gc.compile
    def block(x: Any) -> Any:
        h, p = layer(gc.name(x, "inside"))
        return gc.name(h + p, "sum")

    def model(x: Any) -> Any:
        return {"y": block(block(x)) + layer(x)[1]}

    s = gc.Session()
    s.extend(gc.compile(model).graph(X))
    verify(s.graph())
    numbered = [f"{name}{suffix}" for name in ("h", "p") for suffix in ("", "_1", "_2")]
    others = ["inside", "inside_1", "sum", "sum_1", "x", "y"]
    assert sorted(s.names) == sorted(numbered + others)
    first = np.tanh(X) + np.exp(np.tanh(X))
    np.testing.assert_allclose(s.run("sum", {"x": X}), first, rtol=1e-6)
    np.testing.assert_allclose(s.run("y", {"x": X}), gc.compile(model)(X)["y"], rtol=1e-6)
    np.testing.assert_array_equal(s.run("sum", {"h": X, "p": X}), X + X)


def test_a_node_that_cse_merges_keeps_its_name() -> None:
    def model(x: Any) -> Any:
        return gc.name(np.exp(x), "one") * gc.name(np.exp(x), "two")

    stages = {r.name: r.value for r in gc.compile(model).stages(X)}
    names = stages["cse"].names
    assert names["one"] == names["two"]
    s = gc.Session()
    s.extend(gc.compile(model).graph(X))
    one, two = s.run(["one", "two"], {"x": X})
    np.testing.assert_array_equal(one, two)


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


def test_a_warm_run_adds_less_than_three_microseconds() -> None:
    s = session(FIGURE_6)
    b = np.ones((), np.float32)
    feeds = {"b": b}
    for _ in range(4):
        s.run("f", feeds)
    executable = s._plan("f", feeds, ()).step.build([b]).executable

    def best(call: Callable[[], Any]) -> float:
        def once() -> float:
            started = time.perf_counter()
            for _ in range(200):
                call()
            return time.perf_counter() - started

        return min(once() for _ in range(100)) / 200

    assert best(lambda: s.run("f", feeds)) - best(lambda: executable.entry(b)) < 3e-6


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


# ------------------------------------------------------------------------------------ documentation


def test_the_documentation_runs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "sessions.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 4
    space: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "sessions.md", "exec"), space)
