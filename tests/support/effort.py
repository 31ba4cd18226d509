"""How many random programs and how much of a long table one run of the tests tries.

`make test` has to be quick, so that it tries a few of many; with GRAPHC_FUZZ=15 (`make test-full`)
fifteen times as many. What is tried is the same on every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

EFFORT = float(os.environ.get("GRAPHC_FUZZ", 1))
T = TypeVar("T")
S = TypeVar("S")


def rounds(count: int) -> int:
    """How often to repeat what `make test` repeats `count` times."""
    return max(1, round(count * EFFORT))


def few(items: Iterable[T], count: int, turn: int = 0) -> list[T]:
    """`count` of the items, evenly spaced; those of another turn are others."""
    every = list(items)
    count = rounds(count)
    if count >= len(every):
        return every
    return [every[(turn + k * len(every) // count) % len(every)] for k in range(count)]


def crossed(first: Iterable[T], second: Iterable[S]) -> list[tuple[T, S]]:
    """Each of the first with one of the second, which take turns; with GRAPHC_FUZZ with more."""
    every = list(second)
    return [(one, other) for turn, one in enumerate(first) for other in few(every, 1, turn)]


def slow(*values: Any) -> Any:
    """A case of a table that `make test` leaves to `make test-slow`: others show the same."""
    return pytest.param(*values, marks=pytest.mark.slow)


def examples(count: int, **more: Any) -> settings:
    """What Hypothesis draws: `count` examples, as slow ones as there are."""
    return settings(
        max_examples=rounds(count), deadline=None, suppress_health_check=list(HealthCheck), **more
    )
