"""gc.grad and its kin: values, nesting, pytrees, control flow, markers, reports and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import slow

import graphc as gc
from graphc.ir.graph import Graph

rng = np.random.default_rng(0)
A, B = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))


def loss(a: Any, b: Any) -> Any:
    return (np.tanh(a @ b) ** 2).sum()


def differences(function: Callable[[Any], Any], x: Any, step: float = 1e-5) -> Any:
    """Central differences of a scalar function, element by element."""
    x = np.asarray(x, np.float64)
    made = np.empty_like(x)
    for index in np.ndindex(x.shape):
        way = np.zeros_like(x)
        way[index] = step
        made[index] = (function(x + way) - function(x - way)) / (2 * step)
    return made


def ops_of(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


# ---------------------------------------------------------------------------------------- values


def test_gradient_by_several_arguments() -> None:
    ga, gb = gc.compile(gc.grad(loss, wrt=(0, 1)))(A, B)
    t = np.tanh(A @ B)
    np.testing.assert_allclose(ga, (2 * t * (1 - t**2)) @ B.T, rtol=1e-9)
    np.testing.assert_allclose(gb, A.T @ (2 * t * (1 - t**2)), rtol=1e-9)
    np.testing.assert_allclose(gc.grad(loss, wrt="b")(A, b=B), gb, rtol=1e-12)


def test_gradients_keep_the_nesting_of_their_argument() -> None:
    params = {"w": [A, B], "scale": 2.0, "name": "net"}

    def model(p: Any, x: Any) -> Any:
        return (x @ p["w"][0] @ p["w"][1]).sum() * p["scale"]

    value, made = gc.value_and_grad(model)(params, np.ones(3))
    assert set(made) == set(params) and made["name"] is None
    np.testing.assert_allclose(value, made["scale"] * 2)
    np.testing.assert_allclose(made["w"][1], 2 * np.outer(np.ones(3) @ A, np.ones(2)))


def test_aux_rides_along() -> None:
    def model(x: Any) -> Any:
        return (x * x).sum(), {"x2": x * 2}

    made, aux = gc.grad(model, has_aux=True)(A)
    np.testing.assert_allclose(made, 2 * A)
    np.testing.assert_allclose(aux["x2"], 2 * A)
    (value, aux), made = gc.value_and_grad(model, has_aux=True)(A)
    np.testing.assert_allclose(value, (A * A).sum())


def test_f32_stays_f32() -> None:
    made = gc.grad(lambda x: (x * 2.5).mean())(A.astype(np.float32))
    assert made.dtype == np.float32


def test_unused_argument_has_gradient_zero() -> None:
    made = gc.grad(lambda x, y: x.sum(), wrt=1)(A, B)
    np.testing.assert_array_equal(made, np.zeros_like(B))


def test_shared_and_repeated_use_is_summed() -> None:
    made = gc.compile(lambda x: gc.grad(lambda a, b: (a * b).sum(), wrt=(0, 1))(x, x))(A)
    np.testing.assert_allclose(made[0], A)
    np.testing.assert_allclose(gc.grad(lambda x: (x * x * x + x).sum())(A), 3 * A * A + 1)


# ---------------------------------------------------------------------------------------- orders


def test_third_derivative() -> None:
    function: Any = lambda x: np.sin(x) * x
    third = gc.grad(gc.grad(gc.grad(function)))(np.float64(0.7))
    np.testing.assert_allclose(third, -3 * np.sin(0.7) - 0.7 * np.cos(0.7), rtol=1e-10)


def test_hessian_and_jacobian() -> None:
    x = rng.standard_normal(4)
    m = rng.standard_normal((4, 4))
    hessian = gc.hessian(lambda x: x @ m @ x)(x)
    np.testing.assert_allclose(hessian, m + m.T, rtol=1e-12)
    np.testing.assert_allclose(gc.jacobian(lambda x: m @ np.sin(x))(x), m * np.cos(x), rtol=1e-12)


def test_vjp_and_jvp_are_transposes() -> None:
    def function(a: Any, b: Any) -> Any:
        return {"y": np.tanh(a @ b), "n": (a * a).sum(), "i": np.argmax(a)}

    result, pullback = gc.vjp(function, A, B)
    cotangent = {"y": np.cos(A @ B), "n": np.float64(0.3), "i": np.int64(0)}
    ca, cb = pullback(cotangent)
    ways = rng.standard_normal(A.shape), rng.standard_normal(B.shape)
    value, moved = gc.jvp(lambda a, b: {**function(a, b), "i": 0.0}, (A, B), ways)
    left = (moved["y"] * cotangent["y"]).sum() + moved["n"] * cotangent["n"]
    np.testing.assert_allclose(left, (ca * ways[0]).sum() + (cb * ways[1]).sum(), rtol=1e-12)
    np.testing.assert_allclose(result["y"], value["y"])


def test_hessian_vector_product_forward_over_reverse() -> None:
    way = rng.standard_normal(A.shape)
    _, product = gc.jvp(lambda a: gc.grad(loss)(a, B), (A,), (way,))
    step = 1e-5
    first = gc.grad(loss)
    want = (first(A + step * way, B) - first(A - step * way, B)) / (2 * step)
    np.testing.assert_allclose(product, want, rtol=1e-6, atol=1e-8)


# ---------------------------------------------------------------------------------------- loops


@pytest.mark.parametrize("n", range(11))
def test_power_by_loop(n: int) -> None:
    def power(x: Any, n: Any) -> Any:
        return gc.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x), (0, 1.0))[1]

    x = np.float64(1.3)
    value, first = gc.value_and_grad(power)(x, np.int64(n))
    second = gc.grad(gc.grad(power))(x, np.int64(n))
    np.testing.assert_allclose(value, x**n, rtol=1e-12)
    np.testing.assert_allclose(first, n * x ** (n - 1) if n else 0, rtol=1e-12)
    np.testing.assert_allclose(second, n * (n - 1) * x ** (n - 2) if n > 1 else 0, rtol=1e-12)


def test_loop_whose_length_depends_on_data() -> None:
    def halved(x: Any) -> Any:
        return gc.while_loop(lambda y: (y * y).sum() > 1, lambda y: y * 0.5, x).sum()

    x = np.array([3.0, 5.0])
    np.testing.assert_allclose(gc.grad(halved)(x), differences(gc.compile(halved), x), rtol=1e-6)


def nested(x: Any, p: Any, n: Any) -> Any:
    def branch(x: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            y = gc.while_loop(
                lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x * carry["c"]), (0, x)
            )[1]
            z = gc.cond(y > 0.5, lambda y: y * carry["c"], lambda y: y * y, y)
            return {"c": carry["c"] * 0.9 + 0.001 * z, "n": carry["n"] + 1}, z

        carry, ys = gc.scan(step, {"c": np.float64(0.8), "n": np.int64(0)}, x)
        return carry["c"] + (ys * ys).sum()

    return gc.cond(p, branch, lambda x: (x * x).sum(), x)


@pytest.mark.parametrize(("n", "p"), [(3, False), (3, True), slow(0, True), slow(1, False)])
def test_while_in_scan_in_cond(n: int, p: bool) -> None:
    x = np.array([0.3, 0.9, 1.4, 1.1])
    function = gc.compile(nested)
    made = gc.grad(nested)(x, np.bool_(p), np.int64(n))
    want = differences(lambda x: function(x, np.bool_(p), np.int64(n)), x)
    np.testing.assert_allclose(made, want, rtol=1e-6, atol=1e-9)
    second = gc.hessian(nested)(x, np.bool_(p), np.int64(n))
    first = gc.grad(nested)
    for row in range(len(x)):
        want = differences(lambda x, row=row: first(x, np.bool_(p), np.int64(n))[row], x)
        np.testing.assert_allclose(second[row], want, rtol=1e-5, atol=1e-7)


def test_while_in_while_in_while() -> None:
    def inner(x: Any, n: Any) -> Any:
        def third(t: Any) -> Any:
            return t[0] + 1, t[1] * x

        def second(s: Any) -> Any:
            return s[0] + 1, gc.while_loop(lambda t: t[0] < s[0], third, (0, s[1] + 0.1))[1]

        def first(s: Any) -> Any:
            return s[0] + 1, gc.while_loop(lambda t: t[0] < s[0], second, (0, s[1]))[1]

        return gc.while_loop(lambda s: s[0] < n, first, (0, x))[1]

    function, n = gc.compile(inner), np.int64(4)
    x = np.float64(0.9)
    made = gc.grad(inner)(x, n)
    np.testing.assert_allclose(made, differences(lambda x: function(x, n), x), rtol=1e-6)
    want = differences(lambda x: gc.grad(inner)(x, n), x)
    np.testing.assert_allclose(gc.grad(gc.grad(inner))(x, n), want, rtol=1e-5)


def test_scan_over_nothing_and_backwards() -> None:
    def function(w: Any, xs: Any) -> Any:
        carry, ys = gc.scan(lambda c, x: (c * w + x, c * x), np.float64(1), xs, reverse=True)
        return carry + ys.sum()

    run, made = gc.compile(function), gc.grad(function, wrt=(0, 1))
    w = np.float64(0.7)
    for xs in (np.empty(0), np.array([0.3]), rng.standard_normal(5)):
        dw, dx = made(w, xs)
        np.testing.assert_allclose(dw, differences(lambda w, xs=xs: run(w, xs), w), atol=1e-8)
        np.testing.assert_allclose(dx, differences(lambda xs: run(w, xs), xs), atol=1e-8)


def test_switch_map_and_fori() -> None:
    def function(x: Any, k: Any) -> Any:
        y = gc.switch(k, [np.sin, np.cos, lambda x: x * x], x)
        z = gc.map(lambda row: row * row.sum(), y)
        return gc.fori(0, 3, lambda i, s: s * 1.1 + i, z).sum()

    run = gc.compile(function)
    for k in range(3):
        made = gc.grad(function)(A, np.int64(k))
        want = differences(lambda x, k=k: run(x, np.int64(k)), A)
        np.testing.assert_allclose(made, want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("limit", [None, 6000])
def test_the_largest_is_found_again_however_kernels_round(looped: bool, limit: int | None) -> None:
    """The rule of max compares with the maximum: both sides must be rounded alike."""
    x, y = rng.standard_normal((8, 9, 7)), rng.standard_normal((8, 9, 7))

    def peaks(x: Any, c: Any) -> Any:
        h = x * c - (x * c).mean(-1, keepdims=True)
        return (h * h * y + x * 0.1).max(-1).sum() * 0.01 + (np.tanh(h * h) * h).mean()

    def function(x: Any) -> Any:
        if looped:
            return gc.fori(0, 3, lambda i, c: c * 0.5 + peaks(x, c), x.mean() + 1)
        return peaks(x, 1.7) + peaks(x * x, 0.3)

    made = gc.compile(gc.grad(function), memory_limit=limit and 60 * limit)(x)
    strict = gc.compile(gc.grad(function), fast_math=False, opt=0)(x)
    np.testing.assert_allclose(made, strict, rtol=1e-9, atol=1e-12)


def test_only_what_a_rule_reads_is_saved() -> None:
    def function(x: Any) -> Any:
        return gc.scan(lambda c, _: (np.tanh(c + 1), None), x, length=7)[0].sum()

    stages = {s.name: s.value for s in gc.compile(gc.grad(function)).stages(np.ones(5))}
    graph = stages["dce"]
    scans = [n for n in graph.nodes if n.op.name == "scan"]
    saved = scans[0].type.elements[1:]
    assert [str(t) for t in saved] == ["f64[7,5]"]  # tanh's result; c + 1 is not kept
