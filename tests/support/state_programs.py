"""Random programs over variables and donated arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gc
from graphc.ops.reference.interpreter import interpret

SIZE = 6


def expressions(rng: np.random.Generator, values: list[Any]) -> Any:
    """One more value, from random ones of equal shape."""
    a, b = (values[k] for k in rng.integers(len(values), size=2))
    match rng.integers(14):
        case 0:
            return a + 0.5 * b
        case 1:
            return a.T * 0.5
        case 2:
            return np.tanh(a @ b)
        case 3:
            return a - a.mean(0)
        case 4:
            return a[::-1] * 0.9
        case 5:
            return np.where(a > b, a, -b)
        case 6:
            return gc.index_update(a, slice(1, 3), b[2:4])
        case 7:
            return gc.index_update(a, np.array([0, 4, 0]), b[:3], mode="add") * 0.5
        case 8:
            return gc.dynamic_update_slice(a, b[:2, :3], (rng.integers(4), np.int64(1)))
        case 9:
            return a.reshape(4, 9).reshape(SIZE, SIZE) * 0.5
        case 10:
            return np.roll(a, 1, axis=0)
        case 11:
            return a - 0.1 * (a.T @ b)
        case 12:
            return gc.cond(a[1, 0] > 0.1, lambda x, y: x * 0.5, lambda x, y: y - 1, a, b)
    return gc.fori(0, 3, lambda k, x: x * 0.5 + b, a)


def nested(rng: np.random.Generator, target: Any, other: Any, value: Any) -> Any:
    """A statement in a branch, a loop or a function called inside."""

    def change(x: Any) -> Any:
        held = target.value
        target.assign(np.tanh(held * 0.5 + x))
        if rng.integers(2):
            other.assign_sub(held * 0.1)
        return held + other

    match rng.integers(4):
        case 0:
            return gc.cond(value[0, 1] > 0.1, change, lambda x: x + other, value)
        case 1:
            return gc.fori(0, 3, lambda k, x: np.tanh(change(x)), value)
        case 2:
            return gc.scan(lambda c, x: (np.tanh(change(c)), x + target[0]), value, value)[1]
    return gc.compile(change)(value)


def program(seed: int, variables: list[gc.Variable]) -> Callable[..., list[Any]]:
    """A function of two arrays that makes random values and assigns some of them."""

    def f(x: Any, y: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        values = [x, y]
        for _ in range(rng.integers(1, 5)):
            target = variables[rng.integers(len(variables))]
            few = [target.value, values[rng.integers(len(values))]]
            values.append(expressions(rng, few))
            if not rng.integers(4):
                other = variables[rng.integers(len(variables))]
                values.append(nested(rng, target, other, values[-1]))
            if rng.integers(4):
                target.assign(values[-1 if rng.integers(4) else 0])
        held = [v.value for v in variables]
        return [(values + held)[k] for k in rng.integers(len(values) + 3, size=3)]

    return f


def check_program(seed: int, **options: Any) -> None:
    with gc.container(f"random_{seed}"):
        rng = np.random.default_rng(1000 + seed)
        start = rng.normal(size=(5, SIZE, SIZE))
        variables = [gc.Variable(a, name=f"v{k}") for k, a in enumerate(start[:3])]
    f = program(seed, variables)
    donate = ("x", "y")[: seed % 3]
    compiled = gc.compile(f, donate=donate, opt=2 * (seed % 5 > 0), **options)
    state = {(v.container, v.name): v.value for v in variables}
    graph = compiled.graph(*start[3:])
    for _ in range(4):
        x, y = start[3].copy(), start[4].copy()
        wanted = interpret(graph, [x, y], state=state)
        for got, want in zip(compiled(x, y), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
        for v in variables:
            np.testing.assert_allclose(v.value, state[v.container, v.name], rtol=1e-9, atol=1e-9)
    gc.reset_container(f"random_{seed}")
