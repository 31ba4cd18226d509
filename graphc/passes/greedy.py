"""Greedy placement by simulated execution, as in the TensorFlow white paper (section 3.2.1).

From the sources on, each task that becomes ready goes to the device where it would be finished
first, counting the transfers of what it reads and the work that is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from graphc.passes.assignment import Problem, Where

Offers = list[tuple[float, int]]  # when a class would be done, and on which device


def greedy(
    problem: Problem, rank: Sequence[float] | None = None
) -> tuple[Where, dict[int, Offers]]:
    """A device for every class, and what each could choose from when its first task was placed.

    Tasks are taken in the order in which they become ready, or with `rank` the highest first.
    """
    return _Greedy(problem, rank).run()


class _Greedy:
    """The state of the simulation: when devices and links are free and where values are."""

    def __init__(self, problem: Problem, rank: Sequence[float] | None) -> None:
        self.problem = problem
        self.rank = rank
        self.where: Where = [-1] * len(problem.feasible)
        self.offers: dict[int, Offers] = {}
        self.free = [0.0] * problem.devices
        self.link_free: dict[int, float] = {}
        self.arrived: dict[int, float] = {}
        self.end = [0.0] * len(problem.seconds)
        self.left = self.work_of_classes()
        self.results = {problem.maker[value]: value for value in problem.results}

    def work_of_classes(self) -> list[tuple[float, ...]]:
        """Seconds of all tasks of a class, on each device."""
        return [
            tuple(map(sum, zip(*(self.problem.seconds[task] for task in tasks))))
            for tasks in self.problem.members()
        ]

    def run(self) -> tuple[Where, dict[int, Offers]]:
        problem = self.problem
        readers = problem.readers()
        waiting = [len(values) for values in problem.reads]
        ready = [(self.priority(t, 0.0), t) for t, count in enumerate(waiting) if not count]
        heapify(ready)
        while ready:
            task = heappop(ready)[1]
            self.place(task)
            for after in readers[task]:
                waiting[after] -= 1
                if not waiting[after]:
                    at = max(self.end[problem.maker[v]] for v in problem.reads[after])
                    heappush(ready, (self.priority(after, at), after))
        return self.where, self.offers

    def priority(self, task: int, ready: float) -> float:
        return ready if self.rank is None else -self.rank[task]

    def place(self, task: int) -> None:
        group = self.problem.group[task]
        if self.where[group] < 0:
            devices = self.problem.feasible[group]
            if len(devices) > 1:
                offers = sorted((self.done(task, d), d) for d in devices)
                self.offers[group] = offers
                self.where[group] = offers[0][1]
            else:
                self.where[group] = devices[0]
        self.commit(task, self.where[group])

    def done(self, task: int, device: int) -> float:
        """When a task, and what shares its class, would be done and its results at home."""
        problem = self.problem
        begin = self.free[device]
        for value in problem.reads[task]:
            begin = max(begin, self.arrival(value, device))
        done = begin + self.left[problem.group[task]][device]
        if device and task in self.results:
            done += problem.transfer(self.results[task], device, 0)
        return done

    def arrival(self, value: int, device: int) -> float:
        """When a value could be on a device."""
        problem = self.problem
        maker = problem.maker[value]
        source = self.where[problem.group[maker]]
        if source == device:
            return self.end[maker]
        known = self.arrived.get(value * problem.devices + device)
        if known is not None:
            return known
        begin = max(self.end[maker], self.link_free.get(source * problem.devices + device, 0.0))
        return begin + problem.transfer(value, source, device)

    def commit(self, task: int, device: int) -> None:
        """Run the task on the device, and the transfers that it needs."""
        problem = self.problem
        begin = 0.0
        for value in problem.reads[task]:
            source = self.where[problem.group[problem.maker[value]]]
            at = self.arrival(value, device)
            if source != device:
                self.arrived[value * problem.devices + device] = at
                link = source * problem.devices + device
                self.link_free[link] = max(self.link_free.get(link, 0.0), at)
            begin = max(begin, at)
        seconds = problem.seconds[task][device]
        if seconds:
            begin = max(begin, self.free[device])
            self.free[device] = begin + seconds
        self.end[task] = begin + seconds
