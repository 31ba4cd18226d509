"""The placement problem without graphs: tasks, the values they read, and seconds per device.

Tasks of one class go to the same device.  `evaluate` simulates an assignment of classes to devices
with the rules of `simulate`: a value travels once for each device that reads it, over a link that
carries one transfer at a time in each direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from graphc.base.record import record
from graphc.passes.placement.events import Tasks, run

Where = list[int]  # the device of every class


@record(eq=False)
class Problem:
    """What is to be placed. Device 0 is home: of the arguments, and where results have to be.

    seconds     per task, on each device
    reads       per task, the values that it reads from other tasks; 0 bytes for mere order
    maker       per value, the task that makes it, and `nbytes` its size
    results     values that go home
    group       the class of each task
    feasible    per class, the devices it may go to
    latency     seconds of an empty transfer from one device to another; `pace` seconds per byte
    """

    seconds: list[tuple[float, ...]]
    reads: list[list[int]]
    maker: list[int]
    nbytes: list[float]
    results: list[int]
    group: list[int]
    feasible: list[tuple[int, ...]]
    latency: list[list[float]]
    pace: list[list[float]]

    @property
    def devices(self) -> int:
        return len(self.latency)

    def transfer(self, value: int, source: int, target: int) -> float:
        return self.latency[source][target] + self.nbytes[value] * self.pace[source][target]

    def members(self) -> list[list[int]]:
        """The tasks of each class."""
        table: list[list[int]] = [[] for _ in self.feasible]
        for task, group in enumerate(self.group):
            table[group].append(task)
        return table

    def readers(self) -> list[list[int]]:
        """The tasks that read something of each task, once per value."""
        table: list[list[int]] = [[] for _ in self.seconds]
        for task, values in enumerate(self.reads):
            for value in values:
                table[self.maker[value]].append(task)
        return table


@record(eq=False)
class Run:
    """An assignment, simulated. Tasks come first; `moves` are the transfers behind them as (value,
    source, target)."""

    where: Where
    start: list[float]
    end: list[float]
    moves: list[tuple[int, int, int]]
    tasks: Tasks

    @property
    def makespan(self) -> float:
        return max(self.end, default=0.0)


def evaluate(problem: Problem, where: Sequence[int]) -> Run:
    """The simulated run of an assignment."""
    at = [where[group] for group in problem.group]
    tasks = Tasks()
    tasks.seconds = [row[device] for row, device in zip(problem.seconds, at)]
    tasks.resource = at.copy()
    following: list[list[int]] = [[] for _ in at]
    tasks.following = following
    tasks.waiting = waiting = [0] * len(at)
    maker, devices = problem.maker, problem.devices
    arrived: dict[int, int] = {}
    moves: list[tuple[int, int, int]] = []

    def arrival(value: int, source: int, target: int) -> int:
        key = value * devices + target
        number = arrived.get(key)
        if number is None:
            seconds = problem.transfer(value, source, target)
            number = arrived[key] = tasks.add(seconds, devices * (1 + source) + target)
            tasks.edge(maker[value], number)
            moves.append((value, source, target))
        return number

    for task, values in enumerate(problem.reads):
        device = at[task]
        for value in values:
            before = maker[value]
            if at[before] != device:
                before = arrival(value, at[before], device)
            following[before].append(task)
            waiting[task] += 1
    for value in problem.results:
        if at[maker[value]] != 0:
            arrival(value, at[maker[value]], 0)
    start, end = run(tasks)
    return Run(list(where), start, end, moves, tasks)


def assignments(problem: Problem) -> int:
    """How many assignments there are."""
    return math.prod(map(len, problem.feasible))


def lower_bound(problem: Problem) -> float:
    """Seconds that no assignment stays below.

    The longest path with every task on its fastest device and no transfers; all work spread
    evenly; and the work that has no choice of device.
    """
    allowed = [problem.feasible[group] for group in problem.group]
    fastest = [min(row[d] for d in devices) for row, devices in zip(problem.seconds, allowed)]
    pinned = [0.0] * problem.devices
    for row, devices in zip(problem.seconds, allowed):
        if len(devices) == 1:
            pinned[devices[0]] += row[devices[0]]
    return max(longest_path(problem, fastest), sum(fastest) / problem.devices, *pinned)


def longest_path(problem: Problem, seconds: Sequence[float]) -> float:
    """The longest chain of tasks that read one another."""
    reach = [0.0] * len(seconds)
    for task in order(problem):
        before = max((reach[problem.maker[v]] for v in problem.reads[task]), default=0.0)
        reach[task] = before + seconds[task]
    return max(reach, default=0.0)


def ranks(problem: Problem) -> list[float]:
    """The longest way from the start of each task to the end, with mean times and transfers.

    Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", 2002: the upward rank.
    """
    count = problem.devices
    pairs = max(1, count * (count - 1))
    latency = sum(map(sum, problem.latency)) / pairs
    pace = sum(map(sum, problem.pace)) / pairs
    rank = [0.0] * len(problem.seconds)
    for task in reversed(order(problem)):
        rank[task] += sum(problem.seconds[task]) / count
        for value in problem.reads[task]:
            maker = problem.maker[value]
            way = rank[task] + latency + problem.nbytes[value] * pace
            rank[maker] = max(rank[maker], way)
    return rank


def order(problem: Problem) -> list[int]:
    """The tasks, each after those that it reads."""
    return _ordered(problem.readers(), [len(values) for values in problem.reads])


def _ordered(following: Sequence[Iterable[int]], waiting: list[int]) -> list[int]:
    found = [task for task, count in enumerate(waiting) if not count]
    for task in found:
        for after in following[task]:
            waiting[after] -= 1
            if not waiting[after]:
                found.append(after)
    return found
