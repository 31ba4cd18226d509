"""What is done with the rows of a table: at once, written down for later runs, or timed.

stretch  launch launch copy launch | receive | launch while ( launch launch ) copy | check ...
         one graph                   alone     one graph                           alone

It ends with the table, or at a branch that the host has to decide.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from graphc.runtime.call.failure import CANCELLED
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.device_branches import NeedsHost, decided_there
from graphc.runtime.cuda.device_loops import on_device, take_turns
from graphc.runtime.cuda.interface import COMPUTE, Act, Acts, Decision, Driver, Turns
from graphc.runtime.load.layouts import FrameWords
from graphc.runtime.load.table import SEND, WAIT
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.frame import DeviceFrame
    from graphc.runtime.cuda.interpreter import Walk


Step = Callable[[], object]


class Stopped(Exception):
    """The run ended early, with a status of the walker or of a kernel."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Unplanned(Exception):
    """What a table does is too long to be written down."""


class Reached(Exception):
    """A walk that writes down has come to a branch, whose verdict lies at `address`."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.address = address


class Direct:
    """Rows are done as the walk comes to them."""

    def __init__(self, frame: DeviceFrame) -> None:
        self.frame = frame
        self.driver: Driver = frame.driver
        self.guarded = frame.guarded()

    def do(self, act: Act) -> None:
        """Something that concerns the compute stream alone."""
        act.step(COMPUTE)

    def alone(self, step: Step) -> None:
        """Something that the host waits for, or that other streams take part in."""
        step()

    def begin(self, row: int) -> None:
        self.frame.row = row
        if self.frame.words[FrameWords.cancel]:
            raise Stopped(CANCELLED)

    def call(self, row: int, addresses: tuple[int, ...]) -> None:
        if self.frame.table[row + 3]:
            self.frame.step_of(row, addresses)(COMPUTE)

    def copy(self, nbytes: int, target: int, source: int) -> None:
        if target in self.guarded:
            frame = weakref.proxy(self.frame)  # a plan belongs to its frame
            self.alone(lambda: frame.check())
            self.guarded = frozenset()
        self.do(self.copying(nbytes, target, source))

    def copying(self, nbytes: int, target: int, source: int) -> Act:
        """A copy on the device."""
        step = partial(self.driver.copy, target, source, nbytes)
        return Act(("copy", nbytes, target, source), step)

    def branch(self, walk: Walk, row: int, verdict: int, following: int) -> int:
        return following if self.frame.check(extra=verdict) else walk.words[row + 2]

    def again(self, walk: Walk, row: int, following: int) -> int:
        return walk.words[row + 3]

    def compare(self, apart: int) -> None:
        """Nothing depends on it."""

    def send(self, row: int, address: int) -> None:
        self.alone(partial(self.frame.post.sends[self.frame.table[row + 3]].send, address))

    def receive(self, row: int, address: int) -> None:
        self.alone(partial(self.frame.post.receives[self.frame.table[row + 3]].receive, address))


class Capture(Direct):
    """Rows are written down; branches, too, where the device can decide them."""

    def __init__(self, frame: DeviceFrame) -> None:
        super().__init__(frame)
        self.owner = weakref.proxy(frame)  # a plan belongs to its frame
        self.pieces: list[list[Act | Decision | Turns] | Step] = []
        self.size = 0
        self.depth = 0  # of branches and loops of the device
        self.plain: set[int] = set()  # rows of loops whose rounds are written down one by one
        self.compared: list[int] = []  # how far apart addresses were that rows were chosen by

    def do(self, act: Act) -> None:
        self.extend((act,))

    def call(self, row: int, addresses: tuple[int, ...]) -> None:
        if self.frame.table[row + 3]:
            self.do(self.calling(row, addresses))

    def calling(self, row: int, addresses: tuple[int, ...]) -> Act:
        """The call of a row's kernel, which is made ready when it is done: it may be moved yet."""
        return Act((row, *addresses), partial(_call, self.owner, row, addresses))

    def extend(self, acts: Acts) -> None:
        """Write down what happens after what is written."""
        for act in acts if self.depth else on_device(self, acts):
            self._count()
            last = self.pieces[-1] if self.pieces else None
            if isinstance(last, list):
                last.append(act)
            else:
                self.pieces.append([act])

    def alone(self, step: Step) -> None:
        if self.depth:
            raise NeedsHost
        self._count()
        self.pieces.append(step)

    def branch(self, walk: Walk, row: int, verdict: int, following: int) -> int:
        if not self.driver.decides:
            raise Reached(verdict)
        kept = list(walk.bases), self.guarded, self.size
        try:
            act, go_on = decided_there(self, walk, row, verdict, following)
        except NeedsHost:
            if self.depth:
                raise
            walk.bases[:], self.guarded, self.size = kept
            self.begin(row)
            raise Reached(verdict) from None
        self.extend((act,))
        return go_on

    def again(self, walk: Walk, row: int, following: int) -> int:
        counter, target = walk.words[row + 2 : row + 4]
        if not self.driver.decides or row in self.plain:
            return target
        kept = list(walk.bases), self.guarded, self.size
        try:
            take_turns(self, walk, row, target)
        except NeedsHost:
            self.plain.add(row)
            walk.bases[:], self.guarded, self.size = kept
        return target if walk.bases[counter] > 0 else following

    def compare(self, apart: int) -> None:
        self.compared.append(apart)

    def region(self, walk: Walk, row: int, until: int) -> Acts:
        """What happens from a row to another, by itself. Raises NeedsHost."""
        outer, self.pieces = self.pieces, []
        self.depth += 1
        try:
            walk.run(row, until)
            return tuple(act for piece in self.pieces if isinstance(piece, list) for act in piece)
        finally:
            self.depth -= 1
            self.pieces = outer

    def decision(self, row: int, verdict: int, ways: tuple[Acts, ...]) -> Decision:
        """What the device decides at a row: a loop if there is one way."""
        return Decision(row, verdict, ways, self.frame.looks(row) if len(ways) == 1 else (0, 0, 0))

    def _count(self) -> None:
        self.size += 1
        if self.size > tuned.planned_steps:
            raise Unplanned


def _call(frame: DeviceFrame, row: int, addresses: tuple[int, ...], stream: int) -> None:
    frame.step_of(row, addresses)(stream)


class Stretch:
    """What happens from some row on, with the bases of then, until the host has to decide.

    `row` is the branch it leads to, whose verdict lies at `verdict`, or -1, and `bases` are those
    it leaves.  What is done a second time may be done often: then it becomes graphs:
    even one launch takes the driver less time so.  What the device decides is one from the start.
    """

    def __init__(self, capture: Capture, row: int, verdict: int, bases: list[int]) -> None:
        self.driver = capture.driver
        self.pieces = capture.pieces
        self.row, self.verdict, self.bases = row, verdict, bases
        self.steps: list[Step] | None = None
        self.known = not all(_all_steps(piece) for piece in self.pieces if isinstance(piece, list))

    def run(self) -> None:
        if self.steps is None:
            self.steps = [step for piece in self.pieces for step in self._steps(piece)]
        for step in self.steps:
            step()
        if not self.known:
            self.known, self.steps = True, None

    def _steps(self, piece: list[Act | Decision | Turns] | Step) -> Iterator[Step]:
        if not isinstance(piece, list):
            yield piece
        elif not _all_steps(piece) or (self.known and self.driver.captures):
            graph = self.driver.graph(piece)
            yield partial(self.driver.launch_graph, graph, COMPUTE)
        else:
            yield from (partial(act.step, COMPUTE) for act in piece)


def _all_steps(acts: Acts) -> TypeGuard[Sequence[Act]]:
    return all(isinstance(act, Act) for act in acts)


class Traced(Direct):
    """Rows are done with an event before each; the log of the frame gets their times at the end."""

    def __init__(self, frame: DeviceFrame) -> None:
        super().__init__(frame)
        self.marks: list[tuple[int, Any]] = []
        self.driver.synchronize(COMPUTE)
        self.start = time.monotonic_ns()
        self._mark(0)

    def _mark(self, mark: int) -> None:
        event = self.driver.event(timed=True)
        self.driver.record(event, COMPUTE)
        self.marks.append((mark, event))

    def begin(self, row: int) -> None:
        super().begin(row)
        self._mark(2 * row)

    def alone(self, step: Step) -> None:
        step()
        if self.frame.table[self.frame.row] in (SEND, WAIT):
            self._mark(2 * self.frame.row + 1)

    def write(self, log: int) -> None:
        """Write the marks to the log at an address; everything has happened."""
        first = self.marks[0][1]
        times = [
            (mark, self.start + int(self.driver.seconds(first, event) * 1e9))
            for mark, event in self.marks[1:]
        ]
        room = ctypes.c_int64.from_address(log + 8).value
        ctypes.c_int64.from_address(log).value = len(times)
        kept = np.array(times[:room], np.int64)
        ctypes.memmove(log + 16, address_of(kept), kept.nbytes)
