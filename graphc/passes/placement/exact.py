"""The best placement of a small problem, by branch and bound.

One class after the other gets a device, in the order of their first tasks.  An assignment that is
decided in part is given up when no completion of it can end sooner than the best run known: every
task waits for what it reads, on the devices that are still possible, and a device runs one after
the other what has no other choice (Land and Doig, "An automatic method of solving discrete
programming problems", 1960).  `evaluate` has the last word, so the result is that of brute force.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.passes.placement.assignment import Problem, Run, assignments, evaluate, order
from graphc.passes.tuning import tuned

LEAST_GAIN = 1e-9  # relative; less is rounding

Choices = Sequence[tuple[int, ...]]  # per class, the devices that are still possible


def is_small(problem: Problem) -> bool:
    """Are there so few assignments that the best is nearly always found?"""
    return assignments(problem) <= tuned.exact_assignments


class Exact:
    """A search from a run on, as long as it may simulate `left` tasks; then `best` is `proven`."""

    def __init__(self, problem: Problem, best: Run, left: float) -> None:
        self.problem = problem
        self.best = best
        self.left = left
        self.order = order(problem)
        self.results = {problem.maker[value]: value for value in problem.results}
        decided = dict.fromkeys(problem.group[task] for task in self.order)
        self.classes = [c for c in decided if len(problem.feasible[c]) > 1]
        self.descend(problem.feasible, 0)

    @property
    def proven(self) -> bool:
        return self.left > 0

    def descend(self, choices: Choices, depth: int) -> None:
        """Try all assignments that are left, the most promising device of a class first."""
        if depth == len(self.classes):
            self.left -= len(self.problem.seconds)
            found = evaluate(self.problem, [devices[0] for devices in choices])
            self.best = found if better(found.makespan, self.best.makespan) else self.best
            return
        branches = []
        for device in choices[self.classes[depth]]:
            branch = list(choices)
            branch[self.classes[depth]] = (device,)
            branches.append((self.bound(branch), device, branch))
        for bound, _, branch in sorted(branches):
            if self.left > 0 and better(bound, self.best.makespan):
                self.descend(branch, depth + 1)

    def bound(self, choices: Choices) -> float:
        """Seconds that no assignment among these choices stays below."""
        problem = self.problem
        self.left -= len(problem.seconds)
        ends: list[dict[int, float]] = [{}] * len(problem.seconds)  # on each possible device
        work: list[list[tuple[float, float]]] = [[] for _ in range(problem.devices)]
        last = least = 0.0
        for task in self.order:
            seconds, devices = problem.seconds[task], choices[problem.group[task]]
            found = {d: self.begin(task, d, ends) + seconds[d] for d in devices}
            ends[task] = found
            value = self.results.get(task)
            if value is not None:
                found = {d: end + problem.transfer(value, d, 0) for d, end in found.items()}
            last = max(last, min(found.values()))
            least += min(seconds[d] for d in devices)
            if len(devices) == 1:
                (device,) = devices
                work[device].append((ends[task][device] - seconds[device], seconds[device]))
        return max(last, least / problem.devices, *map(one_by_one, work))

    def begin(self, task: int, device: int, ends: Sequence[dict[int, float]]) -> float:
        """When a task can begin on a device at the earliest."""
        begin = 0.0
        for value in self.problem.reads[task]:
            sources = ends[self.problem.maker[value]]
            way = self.problem.transfer
            at = min([end + way(value, source, device) for source, end in sources.items()])
            begin = max(begin, at)
        return begin


def one_by_one(work: list[tuple[float, float]]) -> float:
    """The end of tasks with earliest starts and seconds, on a device that runs one at a time."""
    end = 0.0
    for begin, seconds in sorted(work):
        end = max(end, begin) + seconds
    return end


def better(found: float, than: float) -> bool:
    return found < than * (1 - LEAST_GAIN)
