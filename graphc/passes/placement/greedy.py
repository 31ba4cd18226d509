"""Greedy placement by simulated execution, as in the TensorFlow white paper (section 3.2.1).

From the sources on, each task that becomes ready goes to the device where it would be finished
first, counting the transfers of what it reads and the work that is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from graphc.passes.placement.assignment import Problem, Where

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
        self.link_free = [[0.0] * problem.devices for _ in self.free]
        self.arrived: dict[tuple[int, int], float] = {}
        self.copies: dict[int, list[int]] = {}  # the devices that a value has reached
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
            self.where[group] = devices[0]
            if len(devices) > 1:
                done = self.done(task)
                self.offers[group] = sorted((done[d], d) for d in devices)
                self.where[group] = self.offers[group][0][1]
        self.commit(task, self.where[group])

    def done(self, task: int) -> list[float]:
        """When a task, and what shares its class, would be done and its result at home, for each
        device."""
        problem = self.problem
        done = self.free.copy()
        for value in problem.reads[task]:
            for device, at in enumerate(self.arrivals(value)):
                if at > done[device]:
                    done[device] = at
        done = [begin + more for begin, more in zip(done, self.left[problem.group[task]])]
        if task in self.results:
            value = self.results[task]
            done = [at + problem.transfer(value, d, 0) for d, at in enumerate(done)]
        return done

    def arrivals(self, value: int) -> list[float]:
        """When a value could be on each device."""
        problem = self.problem
        maker = problem.maker[value]
        source, end, nbytes = (
            self.where[problem.group[maker]],
            self.end[maker],
            problem.nbytes[value],
        )
        ways = zip(self.link_free[source], problem.latency[source], problem.pace[source])
        found = [
            (end if end > free else free) + latency + nbytes * pace for free, latency, pace in ways
        ]
        for device in self.copies.get(value, ()):
            found[device] = self.arrived[value, device]
        found[source] = end
        return found

    def commit(self, task: int, device: int) -> None:
        """Run the task on the device, and the transfers that it needs."""
        problem = self.problem
        begin = 0.0
        for value in problem.reads[task]:
            source = self.where[problem.group[problem.maker[value]]]
            at = self.arrivals(value)[device]
            if source != device and (value, device) not in self.arrived:
                self.arrived[value, device] = self.link_free[source][device] = at
                self.copies.setdefault(value, []).append(device)
            begin = max(begin, at)
        seconds = problem.seconds[task][device]
        if seconds:
            begin = max(begin, self.free[device])
            self.free[device] = begin + seconds
        self.end[task] = begin + seconds
