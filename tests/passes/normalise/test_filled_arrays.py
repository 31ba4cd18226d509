"""Arrays that a function fills part by part: reads of what was written, and parts side by side."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from effort import rounds, slow

import graphc as gc
from graphc.codegen.build import build
from graphc.config import Config
from graphc.ir.liveness import planned_bytes
from graphc.ops.reference.interpreter import interpret
from graphc.passes import pipeline

RNG = np.random.default_rng(8)
pytestmark = pytest.mark.filterwarnings("ignore:.*copied out:graphc.errors.GraphHint")


def ops_of(function: Any, *given: Any, stage: str = "cse") -> Counter[str]:
    """How many nodes of each op there are when the rewrites that make work for each other end."""
    stages = {name: value for name, value, _, _ in gc.compile(function).stages(*given)}
    return Counter(node.op.name for node in stages[stage].nodes)


def kernels_of(function: Any, given: Any) -> int:
    """How many different kernels a function is compiled to."""
    config = Config.create(threads=1)
    graph = gc.compile(function, threads=1).graph(given)
    return len(build(pipeline.run(graph, config)[-1].value, config)[1].kernels)


def averages(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.1 * x[i] + 0.9 * y[i - 1]
    return y


def fibonacci(x: Any) -> Any:
    y = np.ones(len(x))
    for i in range(2, len(x)):
        y[i] = y[i - 1] * x[i] + y[i - 2]
    return y


def table(x: Any) -> Any:
    y = np.full((6, 5), 7.0)
    for i in range(1, 6):
        for j in range(5):
            y[i, j] = y[i - 1, j] + x[j] * y[i, (j - 1) % 5]
    return y


def longest_common(x: Any) -> Any:
    """The edges of its table are what nobody has written, however many writes ago."""
    found = np.zeros((len(x) + 1, len(x) + 1))
    for i in range(len(x)):
        for j in range(len(x)):
            longer = np.maximum(found[i, j + 1], found[i + 1, j])
            found[i + 1, j + 1] = np.where(x[i] > x[j], found[i, j] + 1, longer)
    return found


def columns(x: Any) -> Any:
    y = np.zeros((len(x), 4))
    for j in (2, 0, 3):
        y[:, j] = x * j
    return y


def red_and_black(x: Any) -> Any:
    y = x.copy()
    for _ in range(3):
        y[1::2] = (y[:-1:2] + 1) / 2
        y[::2] = y[1::2] * 2 + x[::2]
    return y


def written_twice(x: Any) -> Any:
    y = np.zeros(8)
    y[2:5] = x[:3]
    y[3] = x[4]
    y[0:3] = x[5:8]
    y[5:] = y[2:5] + 1
    return y


def backwards(x: Any) -> Any:
    y = np.zeros(8)
    y[::-1] = x[:8]
    y[6:2:-2] = y[1:3]
    return y, y[::-3], y[5:1:-1]


@pytest.mark.parametrize(
    "function",
    [
        averages,
        fibonacci,
        table,
        slow(longest_common),
        columns,
        red_and_black,
        written_twice,
        backwards,
    ],
)
@pytest.mark.parametrize("opt", [0, 2])
def test_arrays_are_filled_as_in_numpy(function: Any, opt: int) -> None:
    x = RNG.standard_normal(10)
    wanted, made = function(x), gc.compile(function, opt=opt)(x)
    pairs = zip(wanted, made, strict=True) if isinstance(wanted, tuple) else [(wanted, made)]
    for one, other in pairs:
        np.testing.assert_allclose(other, one, rtol=1e-12)


@pytest.mark.parametrize("function", [averages, fibonacci, table, columns, red_and_black])
def test_gradients_of_filled_arrays(function: Any) -> None:
    x = RNG.standard_normal(10)
    step = 1e-6 * RNG.standard_normal(10)
    slope = (function(x + step).sum() - function(x - step).sum()) / 2
    gradient = gc.compile(gc.grad(lambda x: np.sum(function(x))))(x)
    np.testing.assert_allclose(gradient @ step, slope, rtol=1e-5)


@pytest.mark.parametrize("function", [averages, fibonacci, table, longest_common])
def test_a_filled_array_is_a_concatenation(function: Any) -> None:
    found = ops_of(function, np.ones(12))
    assert found["slice_update"] == 0
    assert 1 <= found["concat"] <= 6  # in stages, if of many numbers


def test_an_array_of_the_caller_is_written_in_place() -> None:
    def step(x: Any, v: Any) -> Any:
        x[3:5] = v
        x[7:9] = v + 1
        return x

    found = ops_of(step, np.ones(1000), np.ones(2))
    assert (found["slice_update"], found["concat"]) == (2, 0)


def donated(x: Any) -> Any:
    x[0] = 1.0
    x[1] = x[5] * 2
    return x


def carried(x: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        y = y.copy()
        y[0] = 1.0
        y[1] = y[5] * 2 + i
        return y

    return gc.fori(0, 9, turn, x)


def branches(x: Any) -> Any:
    return gc.cond(x[2] > 0, donated, lambda x: x * 1, x)


@pytest.mark.parametrize("function", [donated, carried, branches])
def test_a_read_behind_a_write_does_not_keep_the_array_from_being_overwritten(
    function: Any,
) -> None:
    x = RNG.standard_normal(100_000)
    wanted = gc.compile(function, opt=0)(x)
    fn = gc.compile(function, donate=["x"])
    (plan,) = [value for name, value, _, _ in fn.stages(x) if name == "plan"]
    assert planned_bytes(plan) < 1.5 * x.nbytes
    made = fn(x)
    np.testing.assert_array_equal(made, wanted)
    assert np.shares_memory(made, x)


def test_a_read_behind_a_write_leaves_a_variable_in_place() -> None:
    x = RNG.standard_normal(100_000)
    held = gc.Variable(x)

    def step(a: Any) -> None:
        held[0] = a
        held[1] = held[5] * 2

    fn = gc.compile(step)
    (plan,) = [value for name, value, _, _ in fn.stages(1.0) if name == "plan"]
    assert planned_bytes(plan) < x.nbytes
    fn(1.0)
    assert held.value[1] == x[5] * 2


def test_what_is_read_between_two_writes_is_kept() -> None:
    def both(x: Any) -> Any:
        y = np.zeros(4)
        y[:2] = x[:2]
        before = y.copy()
        y[2:] = x[2:4]
        return before, y

    x = RNG.standard_normal(4)
    for wanted, made in zip(both(x), gc.compile(both)(x), strict=True):
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("function", [averages, slow(fibonacci)])
def test_turns_of_a_loop_share_their_kernels(function: Any) -> None:
    """Whatever part of the operand a kernel reads: as many for 400 turns as for 200."""
    few, many = (kernels_of(function, np.ones(n)) for n in (200, 400))
    assert many == few


def writes_and_reads(seed: int) -> tuple[Any, Any]:
    """A random function of one array, and that array: it fills another one and reads some of it."""
    rng = np.random.default_rng(seed)
    dims = tuple(rng.integers(1, 5, rng.integers(1, 4)))
    kind = rng.choice(["zeros", "copy", "table"])
    known = rng.integers(-3, 4, dims).astype(np.float32)

    def cut() -> tuple[slice, ...]:
        parts = []
        for extent in dims:
            low, high = sorted(rng.integers(0, extent + 1, 2))
            whole = slice(None, None, int(rng.choice([-2, -1, 1, 1, 2])))
            parts.append(whole if rng.random() < 0.5 else slice(low, high))
        return tuple(parts)

    steps = [(cut(), bool(rng.random() < 0.7)) for _ in range(rng.integers(1, 9))]

    def function(x: Any) -> Any:
        y = {"zeros": np.zeros(dims, np.float32), "copy": x.copy(), "table": known.copy()}[kind]
        seen = []
        for turn, (part, writes) in enumerate(steps):
            if writes:
                y[part] = x[part] * (turn + 1)
            else:
                seen.append(y[part] + turn)
        return (y, *seen)

    return function, rng.integers(-9, 9, dims).astype(np.float32)


@pytest.mark.parametrize("seed", range(rounds(20)))
def test_random_writes_and_reads(seed: int) -> None:
    function, x = writes_and_reads(seed)
    wanted = function(x.copy())
    graph = gc.compile(function).graph(x)
    for made in (gc.compile(function)(x), interpret(graph, [x])):
        for one, other in zip(wanted, made, strict=True):
            np.testing.assert_array_equal(other, one)
