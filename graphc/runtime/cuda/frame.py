"""`DeviceFrame`: one run at a time on a GPU.

A run writes down what it launches up to the end or to a branch; later ones repeat that without
looking at the table, as a graph where the driver records graphs.
Nothing waits for the device but a branch that it cannot decide itself, a message and the end of the
run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import LimitError
from graphc.forks import fork_safe_lock
from graphc.runtime.call.array import Array
from graphc.runtime.call.failure import BAD_ROW, CANCELLED, EMPTY, explain, keep
from graphc.runtime.call.frame import Frame
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.interface import COMPUTE, COPY, DeviceError, Driver, Streamed
from graphc.runtime.cuda.interpreter import Walk
from graphc.runtime.cuda.messages import Boxes, Post
from graphc.runtime.cuda.native import callback
from graphc.runtime.cuda.row_runners import (
    Capture,
    Direct,
    Reached,
    Stopped,
    Stretch,
    Traced,
    Unplanned,
)
from graphc.runtime.cuda.stacks import StackEmpty, Stacks
from graphc.runtime.cuda.transfer import Operands, Transfer
from graphc.runtime.load.layouts import FrameWords
from graphc.runtime.load.program import Image
from graphc.runtime.load.table import BRANCH, FIRST_PARAM, TableBuilder, rows
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.part import DevicePart


def _one_call() -> np.ndarray[Any, Any]:
    builder = TableBuilder()
    builder.call(0, ())
    builder.end()
    return builder.finish()


_ONE_CALL = _one_call()


# What runs on arrays in place is tried again, should few addresses come back by now.
RETRY = 64


class DeviceFrame:
    """The memory of a run and what it launches. `native` is the frame that native code knows."""

    def __init__(self, part: DevicePart, native: Frame) -> None:
        self.part = part
        self.driver: Driver = part.driver
        self.table: list[int] = part.table
        self.words = native.words
        self.native = weakref.proxy(native)
        self.row = 0
        self.end = part.driver.event()  # of the latest run that was launched
        self.lock = fork_safe_lock()
        self.latest: list[int] = []  # where its params and results lay
        self.unknown = 0  # how often they lay where no run had met them
        image = part.image
        self.transfer = Transfer(part.memory, image)
        self.status = self.transfer.status
        self.bases = [self.transfer.arena, part.constants, *self.transfer.places]
        self.bases += [0] * (image.bases - len(self.bases))
        self.given = slice(FIRST_PARAM, image.first_variable)  # params and results
        self.placed = slice(FIRST_PARAM, image.first_register)  # params, results and variables
        native.stacks = np.zeros((part.stack_slots, 3), np.int64)
        self.stacks = Stacks(part.memory, native.stacks)
        self.workspace = 0
        if part.products.workspace:
            self.workspace = part.memory.allocate(part.products.workspace)
            weakref.finalize(self, part.driver.free, self.workspace).atexit = False
        self.times = 0  # device memory, if there are loops
        self.prepared: dict[tuple[int, ...], Streamed] = {}
        self.stretches: dict[tuple[int, ...], Stretch] = {}  # by row and base registers
        branches = any(self.table[row] == BRANCH for row in rows(self.table))
        self.plannable = not (branches and part.stack_slots)  # what a stack holds is not in the key
        self.post = Post()
        self._point(native)
        weakref.finalize(self, self.stacks.free).atexit = False

    def _point(self, native: Frame) -> None:
        """Have native code call the run, as the one kernel of a table of one row."""
        found = weakref.ref(self)

        def run(*_: int) -> int:
            device = found()
            return device.run() if device is not None else BAD_ROW

        self.callback, self.kernels = callback(run)
        native.words[FrameWords.table] = address_of(_ONE_CALL)
        native.words[FrameWords.kernels] = address_of(self.kernels)
        native.words[FrameWords.parameters] = address_of(self.kernels)  # it has none
        native.words[[FrameWords.operands, FrameWords.threads]] = 0, 1

    def join(self, native: Frame, image: Image, number: int, boxes: Boxes) -> None:
        """Take part in runs of several devices, as this one of them."""
        self.driver.enter()
        self.post.join(self, native, image, number, boxes)

    # -------------------------------------------------------------------------------------- runs

    def launch(self, arrays: Sequence[Any], given: Operands) -> list[Array]:
        """Have the device do a run on arguments, and wait for nothing; its results.

        Raises RunError where that cannot be launched.
        """
        self.driver.enter()
        made = self.part.results(arrays)
        if given.sent:
            self.transfer.send(arrays, given)
        places = [*given.addresses, *[array.address for array in made]]
        moved = self._moved(places)
        try:
            if moved:
                self._work_aside(places, moved)
            else:
                self.bases[self.placed] = places
                self._work()
            self.driver.record(self.end, COMPUTE)
        except BaseException as error:
            self._rest()
            image = self.part.image
            if isinstance(error, Stopped):
                raise explain(image, error.status, self.row) from None
            if isinstance(error, DeviceError):
                raise image.blamed(error, error.row) from None
            raise
        return made

    def _moved(self, places: list[int]) -> list[int]:
        """Which params and results a run had better have in memory of the frame.

        Those that lie elsewhere than in the run before, where runs keep meeting addresses for which
        nothing is written down, as they do if all results are kept.
        """
        latest, self.latest = self.latest, places
        if (0, *places, *self.bases[self.placed.stop :]) in self.stretches:
            return []
        self.unknown = (self.unknown + 1) % (RETRY * tuned.unknown_places)
        if self.unknown <= tuned.unknown_places or not self.plannable or self.transfer.taken:
            return []
        moved = [k for k, place in enumerate(places) if place != latest[k]]
        if sum(self.transfer.sizes[k] for k in moved) > tuned.moved_bytes:
            return []
        try:
            self.transfer.own_of(moved)
        except LimitError:
            return []
        return moved

    def _work_aside(self, places: list[int], moved: list[int]) -> None:
        """The rows of the table, with copies of what has moved."""
        transfer, copy = self.transfer, self.driver.copy
        own, there = transfer.places, list(places)
        for k in moved:
            there[k] = own[k]
            if k < transfer.count and transfer.sizes[k]:
                copy(own[k], places[k], transfer.sizes[k], COMPUTE)
        self.bases[self.placed] = there
        self._work()
        for k in moved:
            if k >= transfer.count and transfer.sizes[k]:
                copy(places[k], own[k], transfer.sizes[k], COMPUTE)

    def outcome(self) -> Callable[[], BaseException] | None:
        """Wait for what was launched: what makes its error, if it has failed."""
        self.driver.enter()
        image = self.part.image
        try:
            self.driver.settle(self.end)
        except DeviceError as error:
            return partial(image.blamed, error, error.row)
        if not self.transfer.word[0]:
            return None
        row, code = self.transfer.failure
        self.transfer.forget_failure()
        return partial(explain, image, code, row)

    def run(self) -> int:
        """Do what a run does; the status it ends with."""
        try:
            self._run()
        except Stopped as stop:
            if stop.status == CANCELLED:
                return CANCELLED
            return keep(explain(self.part.image, stop.status, self.row))
        except DeviceError as error:
            return keep(self.part.image.blamed(error, error.row))
        except BaseException as error:  # noqa: BLE001 native code lies between here and the caller
            return keep(error)
        return 0

    def _run(self) -> None:
        self.driver.enter()
        self.post.begin()
        mirrors = self.part.mirrors
        hosts = self.native.bases[self.given].tolist()
        places = self._places(hosts)
        try:
            self.bases[self.placed] = [*places, *mirrors.begin()]
            self.transfer.upload(hosts, places)
            self._work()
            self._judge(*self.transfer.download(hosts, places))
        except BaseException:
            mirrors.failed()
            self._rest()
            raise
        if self.post.sends:
            self.driver.synchronize(COPY)
        mirrors.wrote()

    def _rest(self) -> None:
        """Have the next run find nothing of this one."""
        with suppress(DeviceError):
            self.driver.synchronize(COMPUTE)
            if self.post.sends:
                self.driver.synchronize(COPY)
        self.transfer.forget_failure()

    def _places(self, hosts: list[int]) -> list[int]:
        """Where arguments and results lie on the device: those that are no arrays of the host (0)
        where they are, the others in the frame's own memory.
        """
        own = self.transfer.own(hosts)
        if 0 not in hosts:
            return own
        given = zip(hosts, own, self.native.arrays, strict=True)
        places = [place if host else array.address for host, place, array in given]
        for result, param in self.transfer.taken.items():
            places[result] = places[param]
        return places

    def _work(self) -> None:
        """The rows of the table."""
        log = int(self.words[FrameWords.log])
        if log:
            self._trace(log)
            return
        row, bases = 0, self.bases
        while row >= 0:
            stretch = self._stretch(row, bases) if self.plannable else None
            if stretch is None:
                self._walk(Direct(self), row, list(bases))
                return
            if self.words[FrameWords.cancel]:
                raise Stopped(CANCELLED)
            stretch.run()
            row, bases = stretch.row, stretch.bases
            if row >= 0:
                goes_on = self.check(extra=stretch.verdict)
                row = row + self.table[row + 1] if goes_on else self.table[row + 2]

    def _stretch(self, row: int, bases: list[int]) -> Stretch | None:
        """What happens from a row on; None for more than can be written down."""
        key = row, *bases[FIRST_PARAM:]
        found = self.stretches.pop(key, None)
        if found is None:
            capture, left, end, verdict = Capture(self), list(bases), -1, 0
            try:
                self._walk(capture, row, left)
            except Reached as reached:
                end, verdict = self.row, reached.address
            except Unplanned:
                self.plannable = False
                return None
            found = Stretch(capture, end, verdict, left)
            if len(self.stretches) == tuned.stretches:
                del self.stretches[next(iter(self.stretches))]
        self.stretches[key] = found  # the latest one is forgotten last
        return found

    def _trace(self, log: int) -> None:
        """Walk with the time of every row; native code leaves the log alone meanwhile."""
        self.words[FrameWords.log] = 0
        issue = Traced(self)
        try:
            self._walk(issue, 0, list(self.bases))
            self.driver.synchronize(COMPUTE)
        finally:
            self.words[FrameWords.log] = log
        issue.write(log)

    def _walk(self, issue: Direct, row: int, bases: list[int]) -> None:
        """Walk from a row to the end. Raises Stopped, and what the issue raises."""
        try:
            Walk(self.table, bases, self.stacks, issue).run(row)
        except StackEmpty:
            raise Stopped(EMPTY) from None

    def guarded(self) -> frozenset[int]:
        """Where variables lie that are written when all kernels before have succeeded."""
        image = self.part.image
        return frozenset(self.bases[image.first_variable : image.first_register] * image.guarded)

    def check(self, *, extra: int = 0) -> int:
        """Wait for the device. Raises Stopped if a kernel failed; else the byte at `extra`."""
        row, code, byte = self.transfer.look(extra)
        self._judge(row, code)
        return byte

    def _judge(self, row: int, code: int) -> None:
        if code:
            self.row = row
            raise Stopped(code)

    def looks(self, row: int) -> tuple[int, int, int]:
        """Where the loop of a row notes when it has looked, where it sees that the run is
        cancelled, and where that a kernel has failed."""
        if not self.times:  # each loop has its own, so that none looks for the other one
            self.times = self.part.memory.allocate(8 * len(self.table))
            weakref.finalize(self, self.driver.free, self.times).atexit = False
        cancel = self.native.address + 8 * FrameWords.cancel
        return self.times + 8 * row, cancel, self.status

    def step_of(self, row: int, addresses: tuple[int, ...]) -> Streamed:
        """What a row does that calls a kernel on operands at these addresses."""
        key = row, *addresses
        found = self.prepared.get(key)
        if found is None:
            if len(self.prepared) >= tuned.prepared:
                self.prepared.clear()
            found = self.prepared[key] = self.part.step(row, addresses, self.status, self.workspace)
        return found
