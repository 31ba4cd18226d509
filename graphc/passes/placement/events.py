"""The event simulator: tasks with dependencies, on resources that serve one task at a time.

A free resource takes, of the tasks that are ready, the one with the smallest number; a task without
a resource, or without a duration, starts as soon as it is ready.
"""

from __future__ import annotations

from heapq import heappop, heappush

NO_RESOURCE = -1
NEVER = -1.0


class Tasks:
    """Durations, resources and successors of tasks, which are numbered in order of preference."""

    __slots__ = ("following", "resource", "seconds", "waiting")

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.resource: list[int] = []
        self.following: list[list[int]] = []
        self.waiting: list[int] = []  # how many tasks each waits for

    def add(self, seconds: float, resource: int = NO_RESOURCE) -> int:
        """A new task; returns its number."""
        self.seconds.append(seconds)
        self.resource.append(resource)
        self.following.append([])
        self.waiting.append(0)
        return len(self.seconds) - 1

    def edge(self, first: int, second: int) -> None:
        """The second task starts when the first has ended."""
        self.following[first].append(second)
        self.waiting[second] += 1


def run(tasks: Tasks) -> tuple[list[float], list[float]]:
    """Start and end of every task; NEVER for those that wait for one another in a circle."""
    seconds, resource, following = tasks.seconds, tasks.resource, tasks.following
    waiting = tasks.waiting.copy()
    start, end = [NEVER] * len(seconds), [NEVER] * len(seconds)
    queues: list[list[int]] = [[] for _ in range(max(resource, default=-1) + 1)]
    idle = [True] * len(queues)
    running: list[tuple[float, int]] = []
    ready = [number for number, count in enumerate(waiting) if not count]
    now = 0.0
    while True:
        changed: list[int] = []  # resources that are free now, or got something to do
        finished: list[int] = []
        while running and running[0][0] == now:
            number = heappop(running)[1]
            finished.append(number)
            if resource[number] != NO_RESOURCE:
                idle[resource[number]] = True
                changed.append(resource[number])
        while finished or ready:
            while ready:
                number = ready.pop()
                if seconds[number] and resource[number] != NO_RESOURCE:
                    heappush(queues[resource[number]], number)
                    changed.append(resource[number])
                    continue
                start[number] = now
                if seconds[number]:
                    heappush(running, (now + seconds[number], number))
                else:
                    finished.append(number)
            while finished:
                number = finished.pop()
                end[number] = now
                for after in following[number]:
                    waiting[after] -= 1
                    if not waiting[after]:
                        ready.append(after)
        for where in changed:
            if idle[where] and queues[where]:
                number = heappop(queues[where])
                start[number] = now
                heappush(running, (now + seconds[number], number))
                idle[where] = False
        if not running:
            return start, end
        now = running[0][0]
