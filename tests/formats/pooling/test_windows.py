"""The largest elements of windows and where they are: whole windows, and axis by axis."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from effort import rounds

import graphc as gc
from graphc.formats.windows import largest_of_windows
from graphc.ops.reference.interpreter import interpret


def by_hand(x: Any, window: Any, step: Any, spread: Any, around: Any) -> Any:
    """Each window's largest element and its places: elements one by one, the padding left out."""
    counts = [
        (n + low + high - (k - 1) * d - 1) // s + 1
        for n, (low, high), k, d, s in zip(x.shape[2:], around, window, spread, step)
    ]
    largest = np.empty((*x.shape[:2], *counts), x.dtype)
    places = np.empty((len(window), *largest.shape), np.int64)
    for at in np.ndindex(*largest.shape):
        begin = [i * s - low for i, s, (low, _) in zip(at[2:], step, around)]
        axes = [
            [b + k * d for k in range(size) if 0 <= b + k * d < n]
            for b, size, d, n in zip(begin, window, spread, x.shape[2:])
        ]
        inside = list(itertools.product(*axes))
        values = np.array([x[(*at[:2], *place)] for place in inside])
        chosen = int(np.argmax(values))
        largest[at], places[(slice(None), *at)] = values[chosen], inside[chosen]
    return largest, places


def draw(number: int) -> Any:
    """An array with equal elements, infinities and NaN, and windows that fit it."""
    random = np.random.default_rng(number)
    rank = int(random.integers(1, 4))
    window = tuple(random.integers(1, 5 if rank == 3 else 12, rank).tolist())
    spread = tuple(random.integers(1, 3, rank).tolist())
    step = tuple(random.integers(1, 4, rank).tolist())
    around = [(k // 2, k // 2) for k in window]
    extents = [(k - 1) * d + 1 + int(random.integers(0, 4)) for k, d in zip(window, spread)]
    x = random.integers(-3, 3, (1, 2, *extents))
    if number % 2:
        return x, window, step, spread, around
    some = random.random(x.shape)
    made = np.where(some < 0.3, -np.inf, np.where(some > 0.98, np.nan, x)).astype(np.float32)
    made[0, 0] = -np.inf
    return made, window, step, spread, around


@pytest.mark.parametrize("number", range(rounds(16)))
def test_the_first_of_the_largest_is_found(number: int) -> None:
    x, *sizes = draw(number)
    graph = gc.compile(lambda x: largest_of_windows(x, *sizes)).graph(x)
    largest, *places = interpret(graph, [x])
    wanted, where = by_hand(x, *sizes)
    np.testing.assert_array_equal(largest, wanted)
    np.testing.assert_array_equal(places, where)


def test_draws_have_windows_of_both_kinds() -> None:
    counts = [math.prod(draw(number)[1]) for number in range(rounds(16))]
    assert min(counts) <= 64 < max(counts)
