"""checkpoint, custom_grad, stop_gradient, gradients of graphs, reports and errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ir.graph import Graph
from graphc.ir.linear_stacks import broken_stacks

rng = np.random.default_rng(1)
X = rng.standard_normal((5, 4))
W = rng.standard_normal((4, 4)) / 2


def ops_of(value: Any) -> list[str]:
    graphs = (value,) if isinstance(value, Graph) else value.graphs
    return [n.op.name for g in graphs for n in g.nodes]


# ---------------------------------------------------------------------------------------- markers


def test_stop_gradient() -> None:
    made = gc.grad(lambda x: (x * gc.stop_gradient({"x": x})["x"]).sum())(X)
    np.testing.assert_allclose(made, X)
    assert gc.stop_gradient(X) is X


def test_custom_gradient_may_use_what_the_function_computed() -> None:
    @gc.custom_grad
    def function(x: Any, y: Any) -> Any:
        e = np.exp(x)
        return (e * y).sum(), lambda ct: (ct * e * 10, None)

    gx, gy = gc.grad(lambda x, y: function(x, y) * 2, wrt=(0, 1))(X, X)
    np.testing.assert_allclose(gx, 20 * np.exp(X))
    np.testing.assert_array_equal(gy, np.zeros_like(X))
    np.testing.assert_allclose(function(X, X), (np.exp(X) * X).sum())


def test_custom_gradient_errors() -> None:
    with pytest.raises(gc.TraceError, match="returns \\(result, backward\\)"):
        gc.grad(lambda x: gc.custom_grad(lambda x: x.sum())(x))(X)
    with pytest.raises(gc.TraceError, match="float value of the function around it"):
        gc.grad(lambda x: gc.custom_grad(lambda y: ((y * x).sum(), lambda ct: ct))(x))(X)


def deep(layer: Any, x: Any, layers: int) -> Any:
    for _ in range(layers):
        x = layer(x)
    return (x * x).sum()


def test_checkpoint_computes_again_and_changes_no_bit() -> None:
    def layer(x: Any) -> Any:
        return np.tanh(x @ W + 1)

    plain = gc.compile(gc.grad(lambda x: deep(layer, x, 6)))
    again = gc.compile(gc.grad(lambda x: deep(gc.checkpoint(layer), x, 6)))
    np.testing.assert_array_equal(plain(X), again(X))
    ops = ops_of({s.name: s.value for s in again.stages(X)}["cse"])
    assert ops.count("matmul") == 12  # 6 forward, 6 again
    assert ops_of({s.name: s.value for s in plain.stages(X)}["cse"]).count("matmul") == 6


def test_random_bits_are_the_same_when_computed_again() -> None:
    def layer(x: Any, key: Any) -> Any:
        return x * (gc.random.uniform(key, x.shape) < 0.5)

    def model(x: Any, key: Any, wrap: Any) -> Any:
        return (wrap(layer)(x, key) ** 2).sum()

    key = gc.random.key(3)
    plain = gc.grad(lambda x, k: model(x, k, lambda f: f))(X, key)
    np.testing.assert_array_equal(plain, gc.grad(lambda x, k: model(x, k, gc.checkpoint))(X, key))
    assert (plain == 0).any() and (plain != 0).any()


# ---------------------------------------------------------------------------------------- graphs


def test_gradients_of_values_in_a_trace() -> None:
    def function(x: Any, n: Any) -> Any:
        h = np.sin(x)
        y = (h * h).sum()
        found = gc.gradients(y, [x, h])
        assert gc.gradients(y, [n]) == [None]
        zero = gc.gradients(y, [n], unconnected="zero")
        return found, zero

    (gx, gh), (gn,) = gc.compile(function)(X, W)
    np.testing.assert_allclose(gx, np.sin(2 * X), rtol=1e-12)
    np.testing.assert_allclose(gh, 2 * np.sin(X), rtol=1e-12)
    np.testing.assert_array_equal(gn, np.zeros_like(W))


def test_gradients_of_a_graph_by_name() -> None:
    def function(x: Any, w: Any) -> Any:
        h = gc.name(x @ w, "h")
        return {"loss": np.tanh(h).sum(), "other": w.sum()}

    graph = gc.compile(function).graph(X, W)
    made = gc.gradients("loss", ["x", "h", "w"], graph=graph)
    assert "grad" in ops_of(made)
    session = gc.Session()
    session.extend(made)
    got = session.run(["dloss/dx", "dloss/dh"], {"x": X, "w": W})
    slope = 1 - np.tanh(X @ W) ** 2
    np.testing.assert_allclose(got[0], slope @ W.T, rtol=1e-9)
    none = gc.gradients("other", ["x"], graph=graph)
    assert none.result_names == ("loss", "other")


def test_figure_of_the_paper() -> None:
    """[db, dW, dx] of ReLU(W x + b), summed."""

    def function(w: Any, x: Any, b: Any) -> Any:
        return gc.gradients(gc.relu(w @ x + b), [b, w, x])

    x, b = rng.standard_normal(4), rng.standard_normal(4)
    db, dw, dx = gc.compile(function)(W, x, b)
    mask = (W @ x + b > 0).astype(float)
    np.testing.assert_allclose(db, mask)
    np.testing.assert_allclose(dw, np.outer(mask, x))
    np.testing.assert_allclose(dx, W.T @ mask)


def test_report_names_the_edge_that_cut_the_path() -> None:
    def function(p: Any, n: Any) -> Any:
        return (np.floor(p["a"]) * p["b"]).sum() + gc.stop_gradient(p["c"]).sum() + 0 * n.sum()

    p = {"a": X, "b": X, "c": X, "d": X}
    made = gc.gradient_report(function, wrt=(0, 1))(p, np.arange(3))
    assert made["p.b"] == "flows"
    assert "floor" in made["p.a"] and "test_gradient_markers.py" in made["p.a"]
    assert "stop_gradient" in made["p.c"]
    assert made["p.d"] == "no gradient: the result does not depend on it"
    assert "only floats" in made["n"]


# ---------------------------------------------------------------------------------------- errors


def test_errors_say_what_to_do() -> None:
    with pytest.raises(gc.TraceError, match="returns one float"):
        gc.grad(lambda x: x * 2)(X)
    with pytest.raises(gc.TraceError, match="has no gradient"):
        gc.grad(lambda n: (n * 2.0).sum())(np.arange(3))
    with pytest.raises(gc.TraceError, match="wrt names 3"):
        gc.grad(lambda x: x.sum(), wrt=3)(X)
    with pytest.raises(gc.TraceError, match=r"\(value, aux\)"):
        gc.grad(lambda x: x.sum(), has_aux=True)(X)
    with pytest.raises(gc.TraceError, match="carry"):
        gc.compile(lambda x: gc.scan(lambda c, x: (c + x, c), np.int64(0), x))(X[0])
    with pytest.raises(gc.TraceError, match="nesting"):
        gc.compile(lambda p, x: gc.cond(p, lambda x: (x, x), lambda x: x, x))(np.bool_(1), X)
    with pytest.raises(gc.GraphError, match="branch"):
        gc.compile(lambda p, x: gc.cond(p, lambda x: x, lambda x: x[0], x))(np.bool_(1), X)
    with pytest.raises(gc.TraceError, match="lengths differ"):
        gc.compile(lambda x, y: gc.scan(lambda c, s: (c, s[0]), 0.0, (x, y)))(X, W)


def test_an_outer_array_is_not_written_in_a_loop_body() -> None:
    def writes(x: Any) -> Any:
        def body(i: Any, s: Any) -> Any:
            x[0] = s
            return s

        return gc.fori(0, 3, body, 0.0)

    with pytest.raises(gc.TraceError, match="around this loop body"):
        gc.compile(writes)(X[0])


@pytest.mark.parametrize(
    "step", [lambda x: x + 1, lambda x: x * 2 + 1 + 1 + x, lambda x: x - x.var()]
)
def test_long_python_loops_get_a_hint(step: Any) -> None:
    def function(x: Any, turns: int) -> Any:
        for _ in range(turns):
            x = step(x)
        return x

    text = r"this line was traced 1100 times.*gc.scan"
    with pytest.warns(gc.GraphHint, match=text) as caught:
        gc.compile(function, static=["turns"]).graph(X, 1100)
    assert caught[0].filename.endswith("test_gradient_markers.py")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.compile(function, static=["turns"]).graph(X, 900)


# ---------------------------------------------------------------------------------------- stacks


@pytest.mark.parametrize("wrap", [gc.checkpoint, lambda f: f])
def test_second_derivatives_of_a_loop_that_is_run_again_in_a_loop(wrap: Any) -> None:
    """On the way back the body of the outer loop makes a stack, and passes others on."""

    @wrap
    def grown(x: Any) -> Any:
        return gc.while_loop(lambda s: s < 20, lambda s: s * s, x)

    def function(x: Any) -> Any:
        return gc.scan(lambda c, _: (grown(c), None), x, length=2)[0]

    assert gc.grad(gc.grad(function))(1.5) == pytest.approx(56 * 1.5**6)  # x**8


INNER = """
gir 1
graph @g(%0 n: i64[]) {
  %1 = stack() {type=f64[]} : stack<f64[]>
  %2 = while(%0, %1, %0) {carries=2} : (i64[], stack<f64[]>) {
    graph @test(%0 i: i64[], %1 s: stack<f64[]>, %2 n: i64[]) {
      %3 = lt(%0, %2) : bool[]
      return %3
    }
    graph @body(%0 i: i64[], %1 s: stack<f64[]>, %2 n: i64[]) {
      %3 = stack() {type=f64[]} : stack<f64[]>
      %4 = while(%0, %1, %3, %2) {carries=3} : (i64[], stack<f64[]>, stack<f64[]>) {
        graph @test(%0 i: i64[], %1 a: stack<f64[]>, %2 b: stack<f64[]>, %3 n: i64[]) {
          %4 = lt(%0, %3) : bool[]
          return %4
        }
        graph @body(%0 i: i64[], %1 a: stack<f64[]>, %2 b: stack<f64[]>, %3 n: i64[]) {
          return %3, %1, %2
        }
      }
      %5 = item(%4) {index=0} : i64[]
      %6 = item(%4) {index=1} : stack<f64[]>
      return %5, %6
    }
  }
  %3 = item(%2) {index=0} : i64[]
  return %3
}
"""


def test_a_stack_is_followed_through_the_carries_of_a_loop() -> None:
    def reasons(text: str) -> list[str]:
        return [reason for _, reason in broken_stacks(gc.parse(text))]

    assert reasons(INNER) == []
    other = INNER.replace("{index=1} : stack", "{index=2} : stack")
    swapped = INNER.replace("return %3, %1, %2", "return %3, %2, %1")
    for wrong in (other, swapped):
        assert any("cannot leave it" in reason for reason in reasons(wrong))
