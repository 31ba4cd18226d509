"""Values, gradients and Hessian-vector products of random functions, against PyTorch's autograd."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from effort import EFFORT, rounds
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import graphc as gc
from graphc.config import Config
from graphc.ops.reference.interpreter import interpret
from graphc.passes.normalise.gradient import gradient

torch = pytest.importorskip("torch", reason="PyTorch is the other autodiff")

from torch_control import InGraphc, InTorch, controlled  # noqa: E402
from torch_nets import MAKERS  # noqa: E402
from torch_ops import EXTENTS, Choose, Drawing, Out, Step, constant  # noqa: E402

LONG = settings(
    derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
SLOW = settings(LONG, phases=(Phase.generate,))  # shrinking would compile for minutes


def drawn(choose: Choose) -> Drawing:
    """One to three inputs whose axes have extents in common, and up to eight steps."""
    extents = [choose(EXTENTS) for _ in range(3)]
    inputs = []
    for k in range(choose((1, 2, 3))):
        dims = [choose((extents[j], 1)) for j in range(choose((2, 1, 3, 0)))]
        inputs.append(torch.from_numpy(constant(dims, 0.4 + k)) * choose((1.0, 0.5, 2.5)))
    made = Drawing(choose, inputs)
    for _ in range(choose((1, 2, 4, 8, 14))):
        try:
            choose(MAKERS)(made)
        except Out:
            continue
    return made


def steps_of(made: Drawing) -> tuple[list[Step], list[Any]]:
    return made.steps, made.values[: made.inputs]


def program(steps: Sequence[Step], library: str, total: Callable[[Any, Any], Any]) -> Any:
    """The function of a description: the sum of all its values with fixed weights."""

    def function(*inputs: Any) -> Any:
        pool = list(inputs)
        for step in steps:
            made = getattr(step, library)(*(pool[k] for k in step.operands))
            assert tuple(made.shape) == step.shape, f"{step.name} gives {tuple(made.shape)}"
            pool.append(made)
        return sum(total(value, constant(value.shape, 0.1 * k)) for k, value in enumerate(pool))

    return function


def by_graphc(steps: Sequence[Step]) -> Any:
    return program(steps, "graphc", lambda value, weight: np.sum(value * weight))


def by_torch(steps: Sequence[Step]) -> Any:
    return program(steps, "torch", lambda value, weight: (value * torch.from_numpy(weight)).sum())


def expected(function: Any, inputs: Sequence[Any], ways: Sequence[Any]) -> list[Any]:
    """Value, gradients and Hessian-vector products by PyTorch."""
    points = [x.detach().clone().requires_grad_() for x in inputs]
    how = {"allow_unused": True, "materialize_grads": True}
    value = function(*points)
    first = torch.autograd.grad(value, points, create_graph=True, **how)
    along = sum((g * torch.from_numpy(w)).sum() for g, w in zip(first, ways))
    second = [torch.zeros_like(x) for x in points]
    if along.requires_grad:
        second = torch.autograd.grad(along, points, **how)
    return [v.detach().clone().numpy() for v in (value, *first, *second)]


def questions(function: Any, count: int) -> tuple[Any, Any]:
    """(inputs, ways) -> value, gradients, Hessian-vector products, forwards over reverse and
    reverse over reverse."""
    every = tuple(range(count))

    def forwards(*args: Any) -> Any:
        inputs, ways = args[:count], args[count:]
        first, second = gc.jvp(gc.grad(function, every), inputs, ways)
        return [function(*inputs), *first, *second]

    def twice(*args: Any) -> Any:
        inputs, ways = args[:count], args[count:]

        def slope(*inputs: Any) -> Any:
            value, first = gc.value_and_grad(function, every)(*inputs)
            return sum(np.sum(g * w) for g, w in zip(first, ways)), (value, first)

        second, (value, first) = gc.grad(slope, every, has_aux=True)(*inputs)
        return [value, *first, *second]

    return forwards, twice


def compare(made: Sequence[Any], want: Sequence[Any], title: str) -> None:
    for k, (got, right) in enumerate(zip(made, want, strict=True)):
        got = np.asarray(got)
        assert got.shape == right.shape and got.dtype == right.dtype, (title, k)
        scale = max(1.0, *(float(np.max(np.abs(w), initial=0)) for w in want[k:]))
        worst = float(np.max(np.abs(got - right), initial=0))
        assert worst <= 2e-9 * scale, f"{title}: result {k} is {worst / scale:.1e} off"


def check(function: Any, other: Any, inputs: Sequence[Any], title: str, compiled: bool) -> None:
    arrays = [x.numpy() for x in inputs]
    ways = [constant(x.shape, 2.2 + k) for k, x in enumerate(arrays)]
    want = expected(other, [torch.from_numpy(x) for x in arrays], ways)
    if not all(np.isfinite(w).all() and np.abs(w).max(initial=0) < 1e7 for w in want):
        return
    for name, question in zip(("jvp of grad", "grad of grad"), questions(function, len(arrays))):
        made = gc.compile(question)
        graph = gradient(made.graph(*arrays, *ways), Config())
        compare(interpret(graph, [*arrays, *ways]), want, f"{name}, interpreted: {title}")
        if compiled and (name == "grad of grad" or EFFORT > 1):
            compare(made(*arrays, *ways), want, f"{name}, compiled: {title}")


def check_drawn(choose: Choose, compiled: bool) -> None:
    steps, inputs = steps_of(drawn(choose))
    title = f"{[tuple(x.shape) for x in inputs]} {[(s.name, s.operands) for s in steps]}"
    check(by_graphc(steps), by_torch(steps), inputs, title, compiled)


def chooser(data: Any) -> Choose:
    return lambda options: data.draw(st.sampled_from(list(options)))


def check_controlled(choose: Choose, depth: int, compiled: bool) -> None:
    function, other, inputs = controlled(choose, depth)
    check(function, other, inputs, f"control flow {depth} deep", compiled)


@pytest.mark.slow
@settings(LONG, max_examples=rounds(8))
@given(st.data())
def test_random_functions(data: Any) -> None:
    check_drawn(chooser(data), compiled=False)


@pytest.mark.slow
@settings(SLOW, max_examples=rounds(2))
@given(st.data())
def test_random_functions_compiled(data: Any) -> None:
    check_drawn(chooser(data), compiled=True)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_random_control_flow(depth: int) -> None:
    @settings(SLOW, max_examples=rounds(4 // depth))
    @given(st.data())
    def run(data: Any) -> None:
        check_controlled(chooser(data), depth, compiled=False)

    run()


@settings(SLOW, max_examples=rounds(1))
@given(st.data())
def test_random_control_flow_compiled(data: Any) -> None:
    check_controlled(chooser(data), 2, compiled=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5048, 5208, 7079])
def test_control_flow_that_once_failed(seed: int) -> None:
    """A gradient in a checkpoint; totals of a loop with stacks; a stack that nothing needs."""
    numbers = random.Random(seed)
    check_controlled(lambda options: numbers.choice(list(options)), 2, compiled=True)


def test_what_pops_from_a_stack_pushes_its_cotangents() -> None:
    """A part of the backward loop that no second derivative needs leaves its stacks alone."""

    def function(lib: Any) -> Any:
        def turn(k: Any, state: Any) -> Any:
            v = state[0]
            return v * (k + 1), lib.f.tanh(lib.f.sum(v) * 0.3 + v @ v)

        def turns(k: Any, state: Any) -> Any:
            return lib.fori(0, 2, turn, (state[0] * (k + 1), state[1]))

        def run(v: Any, s: Any) -> Any:
            made = lib.fori(0, lib.integer(abs(s) * 3), turns, (v + 0.3 * lib.f.cos(s), -s))
            return lib.f.sum(made[0] * v) + made[1]

        return run

    inputs = [torch.from_numpy(constant((3,))), torch.tensor(0.8, dtype=torch.float64)]
    check(function(InGraphc), function(InTorch), inputs, "a scan in a while", compiled=True)
