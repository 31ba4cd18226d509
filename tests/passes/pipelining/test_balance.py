"""Cutting sequences: the best there is, as every possible cut shows."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest

from benchmarks.pipelines import MODELS, ROWS, ceiling, seconds
from graphc.errors import GraphError
from graphc.passes.pipelining import balance
from graphc.passes.pipelining.balance import assigned, balanced

rng = np.random.default_rng(0)


def slowest(costs: list[float], ends: list[int]) -> float:
    return max(sum(costs[a:b]) for a, b in pairwise([0, *ends]))


def best_of_all(costs: list[float], parts: int) -> float:
    inner = combinations(range(1, len(costs)), parts - 1)
    return min(slowest(costs, [*ends, len(costs)]) for ends in inner)


def test_no_cut_is_better() -> None:
    """2,000 random sequences against brute force."""
    for _ in range(2000):
        count = int(rng.integers(2, 9))
        parts = int(rng.integers(1, min(count, 4) + 1))
        costs = rng.integers(1, 20, count).tolist()
        ends = balanced(costs, parts)
        assert len(ends) == parts
        assert ends[-1] == count
        assert all(a < b for a, b in pairwise([0, *ends]))
        assert slowest(costs, ends) == best_of_all(costs, parts)


def test_the_limit_of_a_part() -> None:
    costs, sizes = [1.0, 1.0, 1.0, 9.0], [1.0, 1.0, 8.0, 1.0]
    assert slowest(costs, balanced(costs, 2)) == 9
    assert balanced(costs, 2, sizes, limit=9) == [2, 4]
    with pytest.raises(GraphError, match="no cut into 2 stages keeps each within 7 bytes"):
        balanced(costs, 2, sizes, limit=7)


def test_fewest_bytes_of_good_cuts() -> None:
    assert balanced([100.0, 1.0, 1.0, 100.0], 2, crossing=[0, 5, 9, 2]) == [3, 4]
    assert balanced([100.0, 1.0, 1.0, 100.0], 2, crossing=[0, 2, 9, 5]) == [1, 4]
    assert balanced([1.0] * 8, 4) == [2, 4, 6, 8]


def test_odd_sequences() -> None:
    assert balanced([0.0] * 5, 2)[-1] == 5
    assert balanced([1.0], 3) == [1, 1, 1]
    assert balanced([], 2) == [0, 0]
    with pytest.raises(GraphError, match="one part or more"):
        balanced([1.0], 0)


def test_long_sequences_are_cut_between_blocks() -> None:
    costs = rng.random(5000).tolist()
    ends = balanced(costs, 8)
    assert slowest(costs, ends) < sum(costs) / 8 * 1.02
    assert len(costs) > balance.MOST_POSITIONS


def test_no_parts_of_a_graph_are_better() -> None:
    """Random graphs against all ways to take their edges forward."""
    for _ in range(150):
        count, parts = int(rng.integers(1, 7)), int(rng.integers(1, 4))
        costs = rng.integers(1, 20, count).tolist()
        before = [[k for k in range(n) if rng.random() < 0.3] for n in range(count)]
        sizes = rng.integers(1, 9, count).tolist()
        ends = balanced(costs, parts)
        least = max(sum(sizes[a:b]) for a, b in pairwise([0, *ends]))
        limit = least - int(rng.integers(2))
        try:
            balanced(costs, parts, sizes, limit)
        except GraphError:
            limit = least
        found = assigned(costs, before, parts, sizes=sizes, limit=limit)
        best = min(
            max(sum(c for c, p in zip(costs, way) if p == k) for k in range(parts))
            for way in product(range(parts), repeat=count)
            if all(way[k] <= way[n] for n in range(count) for k in before[n])
            and all(sum(s for s, p in zip(sizes, way) if p == k) <= limit for k in range(parts))
        )
        assert found.slowest == found.bound == best
        assert found.gap == 0
        assert all(found.part[k] <= found.part[n] for n in range(count) for k in before[n])


def test_branches_are_cut_across_their_order() -> None:
    """Two branches, a slow one behind a fast one: in order no cut is as good."""
    costs, before = [3.0, 3.0, 1.0, 1.0, 2.0], [[], [], [0], [1], [2, 3]]
    assert slowest(costs, balanced(costs, 2)) == 6
    assert assigned(costs, before, 2).slowest <= 6
    costs, before = [4.0, 1.0, 4.0, 1.0], [[], [0], [], [2]]
    assert slowest(costs, balanced(costs, 2)) == 5
    costs, before = [1.0, 4.0, 1.0, 4.0, 4.0, 2.0], [[], [0], [], [2], [2], [0]]
    assert assigned(costs, before, 2).slowest == 8


def test_a_search_that_is_stopped_says_how_far_it_got() -> None:
    costs = rng.random(60).tolist()
    before = [[n - 1] if n else [] for n in range(60)]
    stopped = assigned(costs, before, 4, steps=50)
    assert slowest(costs, balanced(costs, 4)) == pytest.approx(stopped.slowest)
    assert stopped.bound <= stopped.slowest
    assert 0 <= stopped.gap < 0.5


def test_more_chunks_are_faster_and_none_beats_the_ceiling() -> None:
    """Of the models whose speed-ups are published: the simulated ones are not far from them."""
    for make in MODELS.values():
        layers = make()
        alone = seconds(layers, 1, 1, "never")
        for devices in (2, 8):
            found = [alone / seconds(layers, devices, m, "never") for m in (1, 4, 32)]
            assert found == sorted(found)
            assert all(x <= ceiling(devices, m) for x, m in zip(found, (1, 4, 32)))
    assert all(2 / 3 < row.simulated() / row.published < 3 / 2 for row in ROWS)
