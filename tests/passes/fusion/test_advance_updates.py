"""Updates run as soon as nobody needs the old value: in the kernels that make the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.ir.graph import Graph, Node
from graphc.ir.liveness import planned_bytes
from graphc.ir.types import leaves
from graphc.passes import pipeline

RNG = np.random.default_rng(5)
LAYERS, WIDTH = 6, 48


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    names = [f"{kind}{k}" for k in range(LAYERS) for kind in "wb"]
    shapes = {"w": (WIDTH, WIDTH), "b": (WIDTH,)}
    return {n: rng.standard_normal(shapes[n[0]]).astype(np.float32) * 0.15 for n in names}


X = RNG.standard_normal((20, WIDTH)).astype(np.float32)


def loss(p, x):
    for k in range(LAYERS):
        x = np.tanh(x @ p[f"w{k}"] + p[f"b{k}"])
    return (x * x).sum()


def sgd(p, x):
    value, gradients = gc.value_and_grad(loss)(p, x)
    return {k: p[k] - np.float32(0.01) * gradients[k] for k in p}, value


def momentum(state, x):
    p, m = state
    value, gradients = gc.value_and_grad(loss)(p, x)
    m = {k: np.float32(0.9) * m[k] + gradients[k] for k in p}
    return ({k: p[k] - np.float32(0.01) * m[k] for k in p}, m), value


def clipped(p, x):
    value, gradients = gc.value_and_grad(loss)(p, x)
    norm = np.sqrt(sum((g * g).sum() for g in gradients.values()))
    return {k: p[k] - gradients[k] / norm for k in p}, value


def program(step: Callable[..., Any], state: Any, *donate: str) -> Graph:
    graph = gc.compile(step, donate=donate).lower(state, X).graphs[0]
    assert isinstance(graph, Graph)
    return graph


def kernels(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op.name == "fused"]


def ops(kernel: Node) -> list[str]:
    return [n.op.name for n in kernel.regions[0].nodes]


@pytest.mark.parametrize("step", [sgd, clipped])
def test_steps_agree_with_those_of_single_kernels(step: Callable[..., Any]) -> None:
    want, value = gc.compile(step, opt=0)(parameters(), X)
    got, seen = gc.compile(step, donate=["p"])(parameters(), X)
    np.testing.assert_allclose(seen, value, rtol=1e-5)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_momentum_step_agrees_with_one_of_single_kernels() -> None:
    zeros = {k: np.zeros_like(v) for k, v in parameters().items()}
    (want, _), _ = gc.compile(momentum, opt=0)((parameters(), zeros), X)
    state = parameters(), {k: np.zeros_like(v) for k, v in zeros.items()}
    (got, _), _ = gc.compile(momentum, donate=["state"])(state, X)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_every_weight_is_updated_by_the_kernel_of_its_gradient() -> None:
    graph = program(sgd, parameters(), "p")
    with_einsum = [k for k in kernels(graph) if "einsum" in ops(k) and "sub" in ops(k)]
    assert [k.attrs["kind"] for k in with_einsum].count("staged") == LAYERS
    alone = [k for k in kernels(graph) if set(ops(k)) <= {"const", "mul", "sub"}]
    assert alone == []


def test_rates_that_a_step_computes_do_not_hold_updates_back() -> None:
    def adam(state, rate, x):
        p, m, v, count = state
        value, gradients = gc.value_and_grad(loss)(p, x)
        count = count + 1
        size = rate * np.sqrt(1 - np.float32(0.99) ** count) / (1 - np.float32(0.9) ** count)
        m = {k: np.float32(0.9) * m[k] + np.float32(0.1) * g for k, g in gradients.items()}
        v = {k: np.float32(0.99) * v[k] + np.float32(0.01) * g * g for k, g in gradients.items()}
        p = {k: p[k] - size * m[k] / (np.sqrt(v[k]) + np.float32(1e-6)) for k in p}
        return (p, m, v, count), value

    zeros = {k: np.zeros_like(v) for k, v in parameters().items()}
    state = parameters(), zeros, zeros, np.float32(0)
    rate = np.float32(0.01)
    graph = gc.compile(adam, donate=["state"]).lower(state, rate, X).graphs[0]
    alone = [k for k in kernels(graph) if "sqrt" in ops(k) and "einsum" not in ops(k)]
    weights = [k for k in alone if leaves(k.type)[0].shape == (WIDTH, WIDTH)]
    assert weights == []  # each runs in the kernel of its gradient
    want, _ = gc.compile(adam, opt=0)(state, rate, X)
    copies = tuple({k: v.copy() for k, v in part.items()} for part in state[:3])
    got, _ = gc.compile(adam, donate=["state"])((*copies, state[3]), rate, X)
    for name, array in want[0].items():
        np.testing.assert_allclose(got[0][name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_no_gradient_waits_for_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    step = gc.compile(sgd, donate=["p"])
    early = planned_bytes(step.lower(parameters(), X))
    others = tuple(stage for stage in pipeline.STAGES if stage.name != "advance_updates")
    monkeypatch.setattr(pipeline, "STAGES", others)
    late = planned_bytes(gc.compile(sgd, donate=["p"]).lower(parameters(), X))
    assert early < late


def test_updates_wait_for_the_last_reader_of_the_old_value() -> None:
    """What the first layer's weights get goes through all later weights: in place all the same."""
    compiled = gc.compile(sgd, donate=["p"])
    state = parameters()
    places = {k: v.ctypes.data for k, v in state.items()}
    state, _ = compiled(state, X)
    assert {k: v.ctypes.data for k, v in state.items()} == places


def test_what_needs_all_gradients_stays_last() -> None:
    made = kernels(program(clipped, parameters(), "p"))
    first = next(k for k, n in enumerate(made) if "sqrt" in ops(n))
    assert sum("div" in ops(k) for k in made[first:]) >= LAYERS
    assert not any("div" in ops(k) for k in made[:first])
