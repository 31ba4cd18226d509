"""timetable: which device does which part of which chunk, in which order.

    schedule 1f1b stages=2 chunks=3
    device 0 | 0F0 0F1  .  0B0 0F2  .  0B1  .  0B2      a row for each device, a column for each
    device 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2  .   .       unit of time, a dot where it waits

`1F0` is stage 1 of chunk 0: F forward, B backward, R forward once more for the backward pass (see
checkpoints), and I and W the halves of a backward pass: gradients of inputs, gradients of weights.
The text is the schedule: it parses back (the dots and the columns say nothing), may be written by
hand, and is checked before it runs.

gpipe         all forwards, clock k does stages s of chunks k - s, then all backwards (Huang et al.,
              GPipe, 2018)
1f1b          a backward as soon as there can be one (Narayanan et al., PipeDream, 2019)
interleaved   1f1b with several stages a device (Narayanan et al., Megatron-LM, 2021)
zb-h1         1f1b whose gradients of weights fill the gaps (Qi et al., Zero Bubble Pipeline
              Parallelism, 2023, section 2.2)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import NamedTuple

from graphc.base.hints import meant
from graphc.errors import GraphError
from graphc.ops.control.pipelined import CHECKPOINTS

KINDS = "FRBIW"
MOST_ACTIONS = 1 << 16
_ACTION = re.compile(r"([0-9]{1,6})([FRBIW])([0-9]{1,6})")
_ROW = re.compile(r"^device\s+[0-9]+\s*\|")
_HEAD = re.compile(r"schedule\s+([\w.+-]+)(?:\s+\w+=\d+)*")


class Action(NamedTuple):
    """One part of the work: what is done, for which stage and which chunk."""

    kind: str
    stage: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.chunk}"


Rows = tuple[tuple[Action, ...], ...]


class Timetable:
    """A schedule: what each device does, in order. Made by `timetable` and `parse_timetable`.

    home      the row of each stage
    splits    the (stage, chunk) whose backward pass is in halves
    repeats   the (stage, chunk) whose forward pass is run once more instead of being kept
    trains    whether there are backward passes
    """

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self.rows = rows
        listed = list(chain(*rows))
        self.stages = 1 + max(action.stage for action in listed)
        self.chunks = 1 + max(action.chunk for action in listed)
        found = {action.stage: row for row, actions in enumerate(rows) for action in actions}
        self.home = tuple(found.get(stage, 0) for stage in range(self.stages))
        self.splits = frozenset((a.stage, a.chunk) for a in listed if a.kind == "I")
        self.repeats = frozenset((a.stage, a.chunk) for a in listed if a.kind == "R")
        self.trains = any(action.kind != "F" for action in listed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timetable) and (self.name, self.rows) == (other.name, other.rows)

    def __hash__(self) -> int:
        return hash((self.name, self.rows))

    @property
    def devices(self) -> int:
        return len(self.rows)

    def recomputed(self, stage: int) -> int:
        """How many forward passes of a stage are run once more."""
        return sum(a.kind == "R" and a.stage == stage for a in self.rows[self.home[stage]])

    def held(self, stage: int) -> int:
        """For how many chunks at most a stage keeps what its backward pass reads."""
        return most_held(self.rows[self.home[stage]], stage)

    def checkpointed(self, mode: str) -> Timetable:
        """The schedule with forward passes run once more, right before their backward passes.

        `except_last` leaves out the chunk whose backward pass comes first after its forward pass:
        it would be rebuilt at once.  Raises GraphError for an unknown mode.
        """
        if mode not in CHECKPOINTS:
            raise GraphError(f"checkpoint is {', '.join(CHECKPOINTS)}, not {mode!r}")
        if mode == "never" or not self.trains:
            return self
        rows = tuple(tuple(_with_repeats(row, mode)) for row in self.rows)
        return Timetable(self.name, rows)

    def __str__(self) -> str:
        return drawn(self)


def _with_repeats(row: Sequence[Action], mode: str) -> Iterable[Action]:
    last = {action.stage: action.chunk for action in row if action.kind == "F"}
    for action in row:
        kept = mode == "except_last" and action.chunk == last[action.stage]
        if action.kind in "BI" and not kept:
            yield Action("R", action.stage, action.chunk)
        yield action


def most_held(row: Sequence[Action], stage: int) -> int:
    """The most chunks that a row has begun and not ended the work of a stage on."""
    again = {a.chunk for a in row if a.kind == "R" and a.stage == stage}
    ends = {a.chunk: a.kind for a in row if a.stage == stage}  # the last kind of each chunk
    held = most = 0
    for kind, at, chunk in row:
        if at != stage:
            continue
        held += (kind == "F" and chunk not in again) or kind == "R"
        most = max(most, held)
        held -= kind == ends[chunk] and kind != "F"
    return most


# ------------------------------------------------------------------------------------ making


def timetable(
    name: str, stages: int, chunks: int, home: Sequence[int] | None = None, trains: bool = True
) -> Timetable:
    """A schedule by its name; `home` is the row of each stage, by default a row for each.

    Raises GraphError for an unknown name, numbers below 1 and schedules of absurd length.
    """
    rows = list(range(stages)) if home is None else list(home)
    if stages < 1 or chunks < 1 or len(rows) != stages:
        raise GraphError("a schedule has one stage or more, one chunk or more, a row for each")
    if stages * chunks > MOST_ACTIONS:
        raise GraphError(f"{stages} stages of {chunks} chunks are more than {MOST_ACTIONS}")
    maker = MAKERS.get(name)
    if maker is None:
        hint = meant(name, MAKERS) or "or give the text of a schedule"
        raise GraphError(f"schedules are {', '.join(MAKERS)}, not {name!r}", hint=hint)
    if not trains:
        return Timetable(name, _clocked(rows, chunks, trains=False))
    return Timetable(name, maker(rows, chunks))


def clocks(stages: int, chunks: int) -> list[list[tuple[int, int]]]:
    """The clock cycles of GPipe: cycle k has the (chunk, stage) with chunk + stage = k."""
    return [
        [(k - s, s) for s in range(stages) if 0 <= k - s < chunks]
        for k in range(stages + chunks - 1)
    ]


def _clocked(home: Sequence[int], chunks: int, trains: bool = True) -> Rows:
    forward = [(j, s) for cycle in clocks(len(home), chunks) for j, s in cycle]
    work = [Action("F", s, j) for j, s in forward]
    work += [Action("B", s, j) for j, s in reversed(forward) if trains]
    rows: list[list[Action]] = [[] for _ in range(max(home) + 1)]
    for action in work:
        rows[home[action.stage]].append(action)
    return tuple(map(tuple, rows))


def _one_forward_one_backward(home: Sequence[int], chunks: int) -> Rows:
    stages = len(home)
    return _greedy(home, chunks, "B", lambda stage: stages - stage)


def _interleaved(home: Sequence[int], chunks: int) -> Rows:
    """Groups of as many chunks as there are devices go through all stages of a device in turn."""
    devices = max(home) + 1
    stages = len(home)
    rounds = stages // devices
    if stages % devices or list(home) != [s % devices for s in range(stages)]:
        return _greedy(home, chunks, "B", lambda stage: chunks)
    rows = []
    for device in range(devices):
        pairs = [(j, v) for v in range(rounds) for j in range(chunks)]
        ahead = sorted(pairs, key=lambda p: (p[0] // devices, p[1], p[0]))
        back = sorted(pairs, key=lambda p: (p[0] // devices, -p[1], p[0]))
        forward = [Action("F", v * devices + device, j) for j, v in ahead]
        backward = [Action("B", v * devices + device, j) for j, v in back]
        first = (devices - device - 1) * (2 if rounds > 1 else 1) + (rounds - 1) * devices
        rows.append(_alternating(forward, backward, first))
    made = tuple(rows)
    return made if _finishes(made) else _greedy(home, chunks, "B", lambda stage: chunks)


def _alternating(forward: list[Action], backward: list[Action], first: int) -> tuple[Action, ...]:
    """Some forwards, then one of each in turn, then the rest of the backwards."""
    first = min(first, len(forward))
    pairs = zip(forward[first:], backward)
    rest = backward[len(forward) - first :]
    return (*forward[:first], *chain(*pairs), *rest)


def _zero_bubble(home: Sequence[int], chunks: int) -> Rows:
    """Stage s begins as many chunks as in 1f1b, and does weights s chunks after the inputs."""
    stages = len(home)
    if sorted(home) != list(range(stages)):
        return _greedy(home, chunks, "IW", lambda stage: stages)
    rows: list[tuple[Action, ...]] = [()] * stages
    for stage, row in enumerate(home):
        ahead = min(stages - stage, chunks)
        made = [Action("F", stage, j) for j in range(ahead)]
        for j in range(chunks + stage):
            made += [Action("I", stage, j)] * (j < chunks)
            made += [Action("W", stage, j - stage)] * (j >= stage)
            made += [Action("F", stage, j + ahead)] * (j + ahead < chunks)
        rows[row] = tuple(made)
    return tuple(rows)


def _greedy(home: Sequence[int], chunks: int, back: str, most: Callable[[int], int]) -> Rows:
    """Every unit of time each device does what is ready: a backward first, then a forward if its
    stage holds fewer than `most` chunks, then gradients of weights."""
    rows: list[list[Action]] = [[] for _ in range(max(home) + 1)]
    done: set[Action] = set()
    begun, passed, ended = ([0] * len(home) for _ in range(3))  # chunks, per stage

    def ready(stage: int) -> Iterable[Action]:
        held = begun[stage] - ended[stage]
        action = Action(back[0], stage, passed[stage])
        if _needed(action, len(home), back[0]) <= done and passed[stage] < chunks:
            yield action
        action = Action("F", stage, begun[stage])
        if begun[stage] < chunks and held < most(stage) and _needed(action, len(home)) <= done:
            yield action
        if len(back) > 1 and ended[stage] < passed[stage]:
            yield Action("W", stage, ended[stage])

    order = {kind: number for number, kind in enumerate((back[0], "F", "W"))}
    total = (1 + len(back)) * len(home) * chunks
    while len(done) < total:
        made = []
        for row, actions in enumerate(rows):
            own = [s for s, at in enumerate(home) if at == row]
            found = [a for stage in own for a in ready(stage)]
            if found:
                best = min(found, key=lambda a: (order[a.kind], -a.stage))
                actions.append(best)
                made.append(best)
        if not made:  # stages of one device that hold one another up
            return _clocked(home, chunks)
        done.update(made)
        for kind, stage, _ in made:
            begun[stage] += kind == "F"
            passed[stage] += kind == back[0]
            ended[stage] += kind == back[-1]
    return tuple(map(tuple, rows))


MAKERS: dict[str, Callable[[Sequence[int], int], Rows]] = {
    "gpipe": _clocked,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zb-h1": _zero_bubble,
}


# ------------------------------------------------------------------------------------ checking


def _needed(action: Action, stages: int, back: str = "B") -> set[Action]:
    """What other stages have to have done, and the forward pass of the own one."""
    kind, stage, chunk = action
    if kind in "FR":
        before = {Action("F", stage - 1, chunk)} if stage else set()
        return before | ({Action("F", stage, chunk)} if kind == "R" else set())
    if kind == "W":
        return {Action("I", stage, chunk)}
    found = {Action("F", stage, chunk)}
    return found | ({Action(back, stage + 1, chunk)} if stage + 1 < stages else set())


def needs(table: Timetable, action: Action) -> list[Action]:
    """The actions whose results an action reads: its neighbours', and its own earlier ones'."""
    following = (action.stage + 1, action.chunk) in table.splits
    found = _needed(action, table.stages, "I" if following else "B")
    again = Action("R", action.stage, action.chunk)
    if action.kind in "BI" and (action.stage, action.chunk) in table.repeats:
        found.add(again)
    return sorted(found)


def _finishes(rows: Rows) -> bool:
    return _stuck(Timetable("", rows)) is None


def _stuck(table: Timetable) -> Action | None:
    """An action that waits forever."""
    position = [0] * table.devices
    done: set[Action] = set()
    moved = True
    while moved:
        moved = False
        for row, actions in enumerate(table.rows):
            while position[row] < len(actions):
                action = actions[position[row]]
                if not done.issuperset(needs(table, action)):
                    break
                done.add(action)
                position[row] += 1
                moved = True
    left = (row[k] for row, k in zip(table.rows, position) if k < len(row))
    return next(left, None)


def check_timetable(table: Timetable) -> Timetable:
    """The schedule, if it can be run.

    Raises GraphError unless every stage does every chunk exactly once, on one device, with a
    backward pass in one piece or in two halves (for all of them, or for none at all), and unless
    every wait has an end.
    """
    listed = list(chain(*table.rows))
    homes: dict[int, int] = {}
    for row, actions in enumerate(table.rows):
        for action in actions:
            if homes.setdefault(action.stage, row) != row:
                places = f"on device {homes[action.stage]} and on device {row}"
                raise GraphError(f"the schedule has stage {action.stage} {places}")
    twice, times = Counter(listed).most_common(1)[0]
    if times > 1:
        raise GraphError(f"the schedule does {twice} twice")
    found = set(listed)
    trains = any(action.kind != "F" for action in listed)
    for stage in range(table.stages):
        for chunk in range(table.chunks):
            _check_pair(found, stage, chunk, trains)
    stuck = _stuck(table)
    if stuck is not None:
        waits = ", ".join(str(a) for a in needs(table, stuck))
        raise GraphError(f"the schedule never gets to {stuck}: it comes after {waits}")
    return table


def _check_pair(found: set[Action], stage: int, chunk: int, trains: bool) -> None:
    kinds = "".join(kind for kind in KINDS if Action(kind, stage, chunk) in found)
    if kinds in (("FB", "FRB", "FIW", "FRIW") if trains else ("F",)):
        return
    wanted = "F and B, or F, I and W" if trains else "F"
    shown = ", ".join(kinds) or "nothing"
    raise GraphError(
        f"the schedule does {shown} for stage {stage} of chunk {chunk}",
        hint=f"every stage does {wanted} for every chunk; R before a backward runs F once more",
    )


# ------------------------------------------------------------------------------------ text


def parse_timetable(text: str) -> Timetable:
    """The schedule of a text: see the head of this file. Raises GraphError for what is none."""
    name, rows = "custom", []
    for line in filter(None, map(str.strip, text.splitlines())):
        head = _HEAD.fullmatch(line)
        if head:
            name = head[1]
            continue
        words = _ROW.sub("", line, count=1).split()
        rows.append(tuple(_action(word, line) for word in words if word != "."))
    if not any(rows):
        raise GraphError(
            f"{text[:60]!r} is no schedule",
            hint=f"name one ({', '.join(MAKERS)}) or write a row like '0F0 0F1 0B1 0B0' a device",
        )
    if sum(map(len, rows)) > 4 * MOST_ACTIONS:
        raise GraphError(f"the schedule has more than {4 * MOST_ACTIONS} actions")
    named = {a.stage for row in rows for a in row}
    missing = next(s for s in count() if s not in named)
    if missing <= max(named):
        raise GraphError(f"the schedule has a stage {max(named)}, and no stage {missing}")
    return check_timetable(Timetable(name, tuple(rows)))


def _action(word: str, line: str) -> Action:
    found = _ACTION.fullmatch(word)
    if found is None:
        raise GraphError(
            f"{word!r} in {line[:60]!r} is no action of a schedule",
            hint="1F0 is the forward pass of stage 1 for chunk 0; the kinds are F, R, B, I and W",
        )
    return Action(found[2], int(found[1]), int(found[3]))


def drawn(table: Timetable, mark: Action | None = None) -> str:
    """The schedule as a grid of units of time: every action takes one. `mark` gets a star."""
    slots = _slots(table)
    width = max(len(str(a)) for a in chain(*table.rows)) + (mark is not None)
    most = 1 + max(slots.values())
    lines = [f"schedule {table.name} stages={table.stages} chunks={table.chunks}"]
    digits = len(str(table.devices - 1))
    for number, row in enumerate(table.rows):
        cells = ["."] * most
        for action in row:
            cells[slots[action]] = f"{action}{'*' if action == mark else ''}"
        shown = " ".join(cell.center(width) if cell == "." else cell.ljust(width) for cell in cells)
        lines.append(f"device {number:{digits}} | {shown.rstrip()}")
    return "\n".join(lines)


def _slots(table: Timetable) -> dict[Action, int]:
    """When each action begins if every one takes a unit of time; what is stuck comes at the end."""
    position = [0] * table.devices
    slots: dict[Action, int] = {}
    total = sum(map(len, table.rows))
    for now in count():
        if len(slots) == total:
            return slots
        begun = []
        for row, actions in enumerate(table.rows):
            if position[row] < len(actions):
                action = actions[position[row]]
                if all(other in slots for other in needs(table, action)):
                    begun.append((row, action))
        if not begun:
            for row, actions in enumerate(table.rows):
                for k, action in enumerate(actions[position[row] :]):
                    slots[action] = now + k
            return slots
        for row, action in begun:
            slots[action] = now
            position[row] += 1
    raise AssertionError
