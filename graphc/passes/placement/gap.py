"""How far a placement is from the best: of small problems that is known, of large ones a bound."""

from __future__ import annotations

import itertools

from graphc.base.record import record
from graphc.errors import LimitError
from graphc.passes.placement.assignment import Problem, Run, assignments, evaluate, lower_bound
from graphc.passes.placement.exact import Exact, is_small
from graphc.passes.tuning import tuned


@record(frozen=True)
class Gap:
    """A makespan beside the best one, or, when `exact` is false, beside what none is below."""

    makespan: float
    best: float
    exact: bool

    @property
    def relative(self) -> float:
        return self.makespan / self.best - 1 if self.best else 0.0


def gap_of(problem: Problem, run: Run, tasks: int = 50_000) -> Gap:
    """The gap of a run, to the best if that is found by simulating at most so many tasks."""
    if is_small(problem):
        exact = Exact(problem, run, tasks)
        if exact.proven:
            return Gap(run.makespan, exact.best.makespan, True)
    return Gap(run.makespan, lower_bound(problem), False)


def brute_force(problem: Problem) -> Run:
    """The best of all assignments. Raises LimitError where they are too many."""
    count = assignments(problem)
    if count > tuned.exact_assignments:
        raise LimitError(
            f"there are {count} placements, at most {tuned.exact_assignments} are tried"
        )
    runs = (evaluate(problem, where) for where in itertools.product(*problem.feasible))
    return min(runs, key=lambda run: run.makespan)
