"""predict: when everything in a schedule would run, before there is a program.

    device 0  [0F0][0F1]      [0B0     ]         a device does one thing at a time, in its order;
    link           [y]   [y'] .                  what crosses keeps a link busy, not a device
    device 1        [1F0][1B0     ]

A forward pass that is run once more waits for no gradient: it may fill the time until that comes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from graphc.base.record import record
from graphc.passes.pipelining.timetable import Action, Timetable, needs
from graphc.passes.placement.events import Tasks, run

Seconds = Callable[[Action], float]
Transfer = Callable[[Action, Action], float]  # from what makes a value to what reads it
UNITS = {"F": 1.0, "R": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}


@record(frozen=True)
class Prediction:
    """When each action starts and ends, in seconds from the start of the step."""

    table: Timetable
    start: dict[Action, float]
    end: dict[Action, float]

    @property
    def makespan(self) -> float:
        return max(self.end.values())

    def busy(self, row: int) -> float:
        """Seconds that a device works."""
        return sum(self.end[a] - self.start[a] for a in self.table.rows[row])

    @property
    def bubble(self) -> float:
        """The share of all devices' time in which they wait."""
        whole = self.makespan * self.table.devices
        return 1 - sum(map(self.busy, range(self.table.devices))) / whole if whole else 0.0

    def __str__(self) -> str:
        return timeline(self)


def unit(action: Action) -> float:
    """A backward pass takes as long as two forward ones."""
    return UNITS[action.kind]


def predict(
    table: Timetable,
    seconds: Seconds = unit,
    transfer: Transfer | None = None,
    lockstep: bool = False,
) -> Prediction:
    """The timeline of a schedule.

    `seconds` says how long an action takes and `transfer` how long its result travels to the
    device of another.  In `lockstep`, nothing is sent to a stage before all devices have done what
    stands before it in the clock cycles of GPipe, as if one thread gave out both.
    """
    tasks = Tasks()
    number = {a: tasks.add(seconds(a)) for row in table.rows for a in row}
    links: dict[tuple[int, int], int] = {}
    for row in table.rows:
        for before, action in pairwise(row):
            tasks.edge(number[before], number[action])
    for action, task in number.items():
        for source in needs(table, action):
            ends = table.home[source.stage], table.home[action.stage]
            took = transfer(source, action) if transfer and ends[0] != ends[1] else 0.0
            if not took:
                tasks.edge(number[source], task)
                continue
            moved = tasks.add(took, links.setdefault(ends, len(links)))
            tasks.edge(number[source], moved)
            tasks.edge(moved, task)
            if lockstep and action.kind == "F":
                clock = source.stage + source.chunk
                for other in number:
                    if other.kind == "F" and other.stage + other.chunk == clock:
                        tasks.edge(number[other], moved)
    start, end = run(tasks)
    return Prediction(
        table, {a: start[k] for a, k in number.items()}, {a: end[k] for a, k in number.items()}
    )


def timeline(found: Prediction, width: int = 96) -> str:
    """The timeline to scale: a row for each device, every action from its start to its end."""
    scale = width / found.makespan if found.makespan else 0.0
    digits = len(str(found.table.devices - 1))
    lines = [f"{found.makespan:.6g} s, {found.bubble:.1%} of it waiting"]
    for number, row in enumerate(found.table.rows):
        cells = ["."] * width
        for action in row:
            first, last = round(found.start[action] * scale), round(found.end[action] * scale)
            text = str(action) if last - first > len(str(action)) else action.kind
            cells[first:last] = list(f"{text:-<{last - first}}"[: last - first])
        lines.append(f"device {number:{digits}} | {''.join(cells[:width])}")
    return "\n".join(lines)
