"""Random losses, cuts and schedules for pipelines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphc as gc
from graphc.passes.pipelining.timetable import MAKERS, Action, Timetable, check_timetable, needs

WIDTH = 4
Loss = Callable[[Any, Any], Any]


def random_loss(rng: np.random.Generator, devices: list[str]) -> tuple[Loss, list[Any]]:
    """A loss of (params, (x, y)) with branches, skips, shared weights and loops, and parameters;
    where there are `devices`, its values are on random ones of them."""
    steps = [
        (int(rng.integers(7)), *rng.integers(0, 1 << 20, 2).tolist())
        for _ in range(rng.integers(3, 10))
    ]
    homes = [str(rng.choice(devices)) for _ in steps] if devices else [None] * len(steps)
    params = [rng.standard_normal((WIDTH, WIDTH)) * 0.7 for _ in range(rng.integers(1, 5))]

    def loss(params: Any, batch: Any) -> Any:
        x, y = batch
        values = [x]
        for (kind, first, second), home in zip(steps, homes):
            with gc.device(home):
                a, b = values[-1 - first % min(len(values), 4)], values[second % len(values)]
                values.append(_step(kind, a, b, params[second % len(params)]))
        return ((sum(values[-2:]) - y) ** 2).mean() + 1e-3 * (params[0] ** 2).sum()

    return loss, params


def _step(kind: int, a: Any, b: Any, w: Any) -> Any:
    if kind < 2:
        return np.tanh(a @ w)
    if kind == 2:
        return a + b
    if kind == 3:
        return np.concatenate([a[:, :2], np.sin(b[:, 2:])], axis=1)
    if kind == 4:
        return a @ w.T + np.where(b > 0, b, 0.1 * b)
    if kind == 5:
        return gc.fori(0, 2, lambda k, h: np.tanh(h @ w), a)
    return gc.checkpoint(lambda h: np.cos(h) * 0.5)(a) * b.mean(axis=1, keepdims=True)


def random_timetable(rng: np.random.Generator, home: list[int], chunks: int) -> Timetable:
    """A schedule that does at each time any of the things that can be done."""
    stages = len(home)
    halves = bool(rng.integers(2))
    again = {(s, j) for s in range(stages) for j in range(chunks) if rng.integers(2)}
    kinds = "FIW" if halves else "FB"
    left = [Action(k, s, j) for k in kinds for s in range(stages) for j in range(chunks)]
    left += [Action("R", s, j) for s, j in again]
    table = Timetable("random", (tuple(left),))  # of which only the needs are asked
    rows: list[list[Action]] = [[] for _ in range(max(home) + 1)]
    done: set[Action] = set()
    while left:
        ready = [a for a in left if done.issuperset(needs(table, a))]
        chosen = ready[rng.integers(len(ready))]
        rows[home[chosen.stage]].append(chosen)
        done.add(chosen)
        left.remove(chosen)
    return check_timetable(Timetable("random", tuple(map(tuple, rows))))


def random_schedule(rng: np.random.Generator, stages: int, chunks: int, devices: int) -> Any:
    """The name of one, or a random one."""
    if rng.integers(2):
        return str(rng.choice(list(MAKERS)))
    return random_timetable(rng, [stage % devices for stage in range(stages)], chunks)
