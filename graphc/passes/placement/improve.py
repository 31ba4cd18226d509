"""Better placements than the greedy one: several starts, then local search along what is critical.

Where there are few assignments, branch and bound finds the best (`exact`).  Else a move takes a
class, or two that exchange a value, to another device; the first move that shortens the simulated
run is made.  When none does, some random classes are moved and the search goes on from there
(iterated local search: Lourenco, Martin and Stutzle, 2003).

The budget is counted in simulated tasks at a nominal speed and not by the clock, and the random
numbers are always the same: the same graph gets the same placement on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphc.passes.placement.assignment import Problem, Run, Where, evaluate, lower_bound, ranks
from graphc.passes.placement.exact import Exact, better, is_small
from graphc.passes.placement.greedy import greedy
from graphc.passes.tuning import tuned


def improve(problem: Problem, first: Run, seconds: float) -> Run:
    """The best run found from a first one within a budget of nominal seconds."""
    if is_small(problem):
        exact = Exact(problem, first, tuned.exact_share * seconds / tuned.bound_seconds)
        if exact.proven:
            return exact.best
        found = local_search(problem, first, (1 - tuned.exact_share) * seconds)
        return min(exact.best, found, key=lambda run: run.makespan)
    return local_search(problem, first, seconds)


def local_search(problem: Problem, first: Run, seconds: float) -> Run:
    """The best run that moves lead to."""
    return _Search(problem, first, seconds).run()


class _Search:
    def __init__(self, problem: Problem, first: Run, seconds: float) -> None:
        self.problem = problem
        self.left = seconds / tuned.task_seconds
        self.best = first
        self.bound = lower_bound(problem)
        self.free = [c for c, devices in enumerate(problem.feasible) if len(devices) > 1]
        self.random = 88172645463325252
        self.neighbours = self.exchanges()
        self.makespans: dict[tuple[int, ...], float] = {}  # of all that were simulated

    def evaluate(self, where: Where) -> Run:
        self.left -= len(self.problem.seconds)
        run = evaluate(self.problem, where)
        self.makespans[tuple(where)] = run.makespan
        return run

    def done(self) -> bool:
        return self.left <= 0 or not self.free or not better(self.bound, self.best.makespan)

    def run(self) -> Run:
        for start in self.starts():
            if self.done():
                return self.best
            self.keep(self.evaluate(start))
        self.best = self.descend(self.best)
        fruitless = 0
        while fruitless < tuned.restarts and not self.done():
            found = self.descend(self.evaluate(self.shaken(self.best.where)))
            fruitless = 0 if self.keep(found) else fruitless + 1
        return self.best

    def keep(self, found: Run) -> bool:
        gain = better(found.makespan, self.best.makespan)
        self.best = found if gain else self.best
        return gain

    def starts(self) -> Iterator[Where]:
        """Greedy by rank, everything on one device as far as allowed, even slices of the order."""
        problem = self.problem
        yield greedy(problem, ranks(problem))[0]
        for device in range(problem.devices):
            yield [device if device in allowed else allowed[0] for allowed in problem.feasible]
        yield self.sliced()

    def sliced(self) -> Where:
        """Tasks in the order of the graph, cut into as many pieces of equal work as devices.

        Branches of a model are often written one after another.
        """
        problem = self.problem
        work = [sum(row) for row in problem.seconds]
        share, done = sum(work) / problem.devices or 1.0, 0.0
        where: Where = [allowed[0] for allowed in problem.feasible]
        for task, group in enumerate(problem.group):
            device = min(problem.devices - 1, int((done + work[task] / 2) / share))
            where[group] = device if device in problem.feasible[group] else where[group]
            done += work[task]
        return where

    # -- descent

    def descend(self, run: Run) -> Run:
        """The run after moves until none is better."""
        found: Run | None = run
        while found is not None:
            run, found = found, self.better_neighbour(found)
        return run

    def better_neighbour(self, run: Run) -> Run | None:
        for where in self.moves(run):
            if self.left <= 0:
                return None
            known = self.makespans.get(tuple(where), 0.0)
            if not better(known, run.makespan):
                continue
            made = self.evaluate(where)
            if better(made.makespan, run.makespan):
                return made
        return None

    def moves(self, run: Run) -> Iterator[Where]:
        """Assignments a step away; what the end of the run waits for comes first."""
        problem, where = self.problem, run.where
        classes = critical_classes(problem, run)
        classes += [c for c in self.free if c not in set(classes)]
        for group in classes:
            for device in problem.feasible[group]:
                if device != where[group]:
                    yield moved(where, (group,), device)
        for group in classes:
            for other in self.neighbours[group]:
                both = (group, other)
                for device in problem.feasible[group]:
                    moves = where[group] != device or where[other] != device
                    if moves and device in problem.feasible[other]:
                        yield moved(where, both, device)
                swap = where[group] != where[other]
                if swap and allowed(problem, where, both):
                    yield swapped(where, group, other)

    def exchanges(self) -> list[list[int]]:
        """The classes that each class exchanges values with; in small problems all others."""
        problem = self.problem
        if len(self.free) <= tuned.paired_classes:
            return [[c for c in self.free if c > k] for k in range(len(problem.feasible))]
        found: list[dict[int, None]] = [{} for _ in problem.feasible]
        for task, values in enumerate(problem.reads):
            for value in values:
                first, second = problem.group[problem.maker[value]], problem.group[task]
                if first != second and len(problem.feasible[first]) > 1:
                    found[second][first] = None
        return [list(row) for row in found]

    def shaken(self, where: Where) -> Where:
        made = where.copy()
        for _ in range(2 + self.draw(max(1, len(self.free) - 1))):
            group = self.free[self.draw(len(self.free))]
            allowed = self.problem.feasible[group]
            made[group] = allowed[self.draw(len(allowed))]
        return made

    def draw(self, limit: int) -> int:
        """A random number below a limit (xorshift: Marsaglia, 2003)."""
        x = self.random
        x ^= (x << 13) & (2**64 - 1)
        x ^= x >> 7
        x ^= (x << 17) & (2**64 - 1)
        self.random = x
        return x % limit


def moved(where: Where, classes: tuple[int, ...], device: int) -> Where:
    made = where.copy()
    for group in classes:
        made[group] = device
    return made


def swapped(where: Where, first: int, second: int) -> Where:
    made = where.copy()
    made[first], made[second] = where[second], where[first]
    return made


def allowed(problem: Problem, where: Where, pair: tuple[int, int]) -> bool:
    """May two classes change places?"""
    first, second = pair
    return where[second] in problem.feasible[first] and where[first] in problem.feasible[second]


def critical_classes(problem: Problem, run: Run) -> list[int]:
    """The classes on the chain of tasks, transfers and busy devices that ends last, last first."""
    ends: dict[float, list[int]] = {}
    for number, end in enumerate(run.end):
        if run.tasks.seconds[number]:
            ends.setdefault(end, []).append(number)
    before: dict[int, set[int]] = {}
    for number, following in enumerate(run.tasks.following):
        for after in following:
            before.setdefault(after, set()).add(number)
    found: dict[int, None] = {}
    number = max(range(len(run.end)), key=run.end.__getitem__, default=-1)
    while number >= 0:
        task = number
        if number >= len(problem.seconds):
            task = problem.maker[run.moves[number - len(problem.seconds)][0]]
        found[problem.group[task]] = None
        number = _predecessor(run, number, before.get(number, set()), ends)
    return [group for group in found if len(problem.feasible[group]) > 1]


def _predecessor(run: Run, number: int, before: set[int], ends: dict[float, list[int]]) -> int:
    """What ended when this began: an operand, or what kept its device or link busy."""
    begin = run.start[number]
    if begin <= 0:
        return -1
    operand = max(before, key=run.end.__getitem__, default=-1)
    if operand >= 0 and run.end[operand] >= begin:
        return operand
    resource = run.tasks.resource[number]
    same = [k for k in ends.get(begin, ()) if run.tasks.resource[k] == resource]
    return same[0] if same else operand
