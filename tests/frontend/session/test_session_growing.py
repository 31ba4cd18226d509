"""Sessions: extending with graphs, and the names of values."""

from __future__ import annotations

from typing import Any

import numpy as np
from session_graphs import FIGURE_6, PORTS, X, message, session

import graphc as gc
from graphc.errors import GraphError, TraceError
from graphc.ir.verify import verify

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


def test_open_dimensions_of_a_bound_parameter_become_what_it_is_bound_to() -> None:
    s = session("graph @g(%0 x: f32[N,3]) {\n  %1 = exp(%0) : f32[N,3]\n  return y: %1\n}")
    more = "graph @more(%0 h: f32[N,M], %1 w: f32[M,K]) {\n"
    more += "  %2 = matmul(%0, %1) : f32[N,K]\n  %3 = broadcast(%2) {dims=[2*M,N,K]} : f32[2*M,N,K]"
    s.extend(more.replace("N", "R") + "\n  return z: %3\n}", inputs={"h": "y"})
    assert [str(p.type) for p in s.graph().params] == ["f32[N,3]", "f32[3,K]"]
    verify(s.graph())
    for rows, columns in ((2, 4), (5, 1)):
        feeds = {"x": np.zeros((rows, 3), np.float32), "w": np.ones((3, columns), np.float32)}
        np.testing.assert_array_equal(s.run("z", feeds), np.full((6, rows, columns), 3))
    wrong = "graph @w(%0 a: f32[2*Q]) {\n  %1 = neg(%0) : f32[2*Q]\n  return %1\n}"
    assert "takes a: f32[2*Q]" in message(lambda: s.extend(wrong, inputs={"a": "y"}))


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


def test_a_name_inside_a_loop_says_so() -> None:
    def model(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            c = gc.name(np.tanh(c + v), "state")
            return c, c

        return gc.scan(body, x[0], x)[1]

    s = gc.Session()
    graph = gc.compile(model).graph(X)
    assert gc.show(gc.parse(gc.show(graph))) == gc.show(graph)
    found = s.extend(graph)
    text = message(lambda: s.run("state", {"x": X}))
    assert "'state' is a value inside" in text and "scan" in text and "test_session_growing" in text
    np.testing.assert_allclose(s.run(found, {"x": X}), gc.compile(model)(X), rtol=1e-6)


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


# ------------------------------------------------------------------------------------ gradients


def training() -> Any:
    """One step of gradient descent; the loss is differentiated in a region."""

    @gc.compile
    def layer(x: Any, w: Any) -> Any:
        return gc.name(np.tanh(x @ w), "h")

    @gc.compile
    def step(x: Any, w: Any) -> Any:
        loss, slope = gc.value_and_grad(lambda w: (layer(x, w) ** 2).sum())(w)
        return {"loss": loss, "slope": slope, "w": w - 0.1 * slope}

    return step.graph(gc.spec((2, 3)), gc.spec((3, 4)))


def reference(x: Any, w: Any) -> tuple[Any, Any, Any]:
    h = np.tanh(x @ w)
    return h, (h**2).sum(), x.T @ (2 * h * (1 - h**2))


def test_values_in_a_differentiated_function_are_edges_too() -> None:
    s = gc.Session()
    assert s.extend(training())["slope"] == "slope"
    verify(s.graph())
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3), (3, 4)))
    h, loss, slope = reference(x, w)
    made = s.run(["h", "loss", "slope"], {"x": x, "w": w})
    for value, expected in zip(made, (h, loss, slope)):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    # The backward graph reads the h that the loss is made of: feeding it reaches both.
    fed = np.full((2, 4), 0.5, np.float32)
    made = s.run(["loss", "slope"], {"h": fed, "x": x})
    np.testing.assert_allclose(made[0], 2.0, rtol=1e-6)
    np.testing.assert_allclose(made[1], x.T @ (2 * fed * (1 - fed**2)), rtol=1e-5, atol=1e-6)


def test_a_loss_needs_no_backward_graph_and_a_gradient_no_second_forward() -> None:
    s = gc.Session()
    s.extend(training())
    names = [n.op.name for n in s.graph("loss", ["x", "w"]).nodes]
    assert sorted(names) == ["matmul", "square", "sum", "tanh"]
    assert [n.op.name for n in s.graph("slope", ["x", "w"]).nodes].count("tanh") == 1
    h = s.partial_run_setup(["loss", "slope"], ["x", "w"])
    x, w = np.ones((2, 3), np.float32), np.full((3, 4), 0.1, np.float32)
    s.partial_run(h, "loss", {"x": x, "w": w})
    np.testing.assert_allclose(s.partial_run(h, "slope"), reference(x, w)[2], rtol=1e-5)
    assert [sum(n.op.name == "tanh" for n in g.nodes) for g in h.graphs] == [1, 0]


def test_gradients_of_a_graph_by_name() -> None:
    def model(x: Any, w: Any) -> Any:
        h = gc.name(np.tanh(x @ w), "h")
        return {"loss": (h**2).sum()}

    plain = gc.compile(model).graph(gc.spec((2, 3)), gc.spec((3, 4)))
    s = gc.Session()
    s.extend(gc.gradients("loss", ["w", "h"], graph=plain))
    x, w = np.ones((2, 3), np.float32), np.full((3, 4), 0.1, np.float32)
    h, _, slope = reference(x, w)
    made = s.run(["dloss/dw", "dloss/dh"], {"x": x, "w": w})
    np.testing.assert_allclose(made[0], slope, rtol=1e-5)
    np.testing.assert_allclose(made[1], 2 * h, rtol=1e-5)
    assert [n.op.name for n in s.graph("dloss/dw", ["h", "x"]).nodes].count("tanh") == 0
