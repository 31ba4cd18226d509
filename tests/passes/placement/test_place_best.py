"""Placements of small problems are the best there are, whatever the problem and the devices."""

from __future__ import annotations

import random

import pytest

from benchmarks.placement import random_problem
from graphc.config import Config
from graphc.passes.placement.assignment import Problem, assignments, evaluate
from graphc.passes.placement.exact import Exact
from graphc.passes.placement.gap import brute_force
from graphc.passes.placement.greedy import greedy
from graphc.passes.placement.improve import improve

SEEDS = range(11, 16)
LONG = 1e9


def problems(seed: int, devices: int, count: int) -> list[Problem]:
    draw = random.Random(seed)
    return [random_problem(draw, devices) for _ in range(count)]


def colocated(problem: Problem, draw: random.Random) -> Problem:
    """The problem with some tasks in the class of another."""
    group = [k if draw.random() < 0.7 else draw.randrange(k + 1) for k in problem.group]
    problem.group = [group[g] for g in group]
    return problem


@pytest.mark.parametrize("seed", SEEDS)
def test_branch_and_bound_finds_what_brute_force_finds(seed: int) -> None:
    draw = random.Random(seed)
    for devices in (2, 3):
        for problem in problems(seed, devices, 40):
            if assignments(problem) > 300:
                continue
            for given in (problem, colocated(problem, draw)):
                first = evaluate(given, [allowed[-1] for allowed in given.feasible])
                found = Exact(given, first, LONG)
                assert found.proven
                assert found.best.makespan == pytest.approx(brute_force(given).makespan, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_ten_nodes_are_placed_best_within_the_usual_time(seed: int) -> None:
    seconds = Config.create().place_seconds
    for devices in (2, 3):
        for problem in problems(seed, devices, 50):
            first = evaluate(problem, greedy(problem)[0])
            best = Exact(problem, first, LONG).best.makespan
            found = improve(problem, first, seconds).makespan
            assert best <= found <= best * (1 + 1e-9)


def test_a_search_that_runs_out_of_time_says_so() -> None:
    problem = max(problems(3, 3, 20), key=assignments)
    first = evaluate(problem, [allowed[-1] for allowed in problem.feasible])
    makespans = []
    for left in (0, 50, 200, LONG):
        found = Exact(problem, first, left)
        assert found.proven == (left == LONG)
        makespans.append(found.best.makespan)
    assert makespans == sorted(makespans, reverse=True)
    assert makespans[0] == first.makespan > makespans[-1]
