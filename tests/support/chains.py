"""Random unrolled chains of element-wise steps over values of mixed element types."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

DTYPES = ("c8", "c16", "f8", "f4", "b1", "i1")

Function = Callable[..., Any]


def chain(seed: int, steps: int, dims: tuple[int, ...]) -> tuple[Function, list[Any]]:
    """A function of one to three arrays that takes a number of steps, and arguments for it.

    Every step makes a value of some element type from earlier ones, mostly from the last two; the
    result is the last value of every kind that was drawn, often a small one.
    """
    draw = random.Random(seed)
    kinds = [draw.choice(DTYPES) for _ in range(draw.randint(1, 3))]
    made = [argument(np.random.default_rng(seed + k), dims, kind) for k, kind in enumerate(kinds)]
    plan = [(draw.choice(STEPS), draw.random(), draw.random()) for _ in range(steps)]
    counts = draw.choice((("i1",), ("b1",), ("f4",), ("i1", "c8"), ("f8", "b1")))

    def function(*arrays: Any) -> Any:
        values = list(arrays)
        for step, a, b in plan:
            values.append(step(recent(values, a), recent(values, b)))
        return tuple(as_kind(values[-1 - k], kind) for k, kind in enumerate(counts))

    return function, made


def argument(rng: Any, dims: tuple[int, ...], kind: str) -> Any:
    if kind[0] == "c":
        return (rng.uniform(-1, 1, dims) + 1j * rng.uniform(-1, 1, dims)).astype(kind)
    return (rng.uniform(-1, 1, dims) * (1 if kind[0] == "f" else 3)).astype(kind)


def recent(values: list[Any], share: float) -> Any:
    """The last value half of the time, an early one seldom."""
    return values[-1 - int(len(values) * share**4)]


def as_kind(x: Any, kind: str) -> Any:
    if kind == "b1":
        return np.abs(x) < 1
    if kind[0] == "c":
        return x.astype(kind)
    size = np.abs(x) if x.dtype.kind == "c" else x
    return np.where(size < 1, 1, 0).astype(kind) if kind == "i1" else size.astype(kind)


def floating(x: Any) -> Any:
    return x if x.dtype.kind in "fc" else x.astype("f4")


def bounded(x: Any) -> Any:
    """No larger than one, so that no chain overflows and no branch hangs on a last bit."""
    x = floating(x)
    return x * (1 / (1 + np.abs(x))).astype(x.real.dtype)


STEPS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: bounded(x) * bounded(y) + bounded(y),
    lambda x, y: np.where(np.abs(x) < 0.5, bounded(x), bounded(y)),
    lambda x, y: np.abs(bounded(x)) - np.float32(0.5),
    lambda x, y: np.abs(x) < np.abs(y),
    lambda x, y: as_kind(x, "i1") + as_kind(y, "i1"),
    lambda x, y: floating(x).astype("c8") * 0.5,
    lambda x, y: np.conj(bounded(x)) + 0.25j,
    lambda x, y: bounded(x).real + bounded(y).imag,
    lambda x, y: np.tanh(bounded(y).real).astype("f8"),
    lambda x, y: x[::-1],
)


def attention(q: Any, k: Any, v: Any, *mask: Any) -> Any:
    """As one writes it by hand."""
    scores = q @ np.swapaxes(k, -1, -2) * 0.25
    for m in mask:
        scores = np.where(m, scores, -1e9) if m.dtype == bool else scores + m
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)) @ v
