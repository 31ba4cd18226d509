"""`DeviceFrame`: one run at a time on a GPU.

    arena | params | results | status        one piece of device memory, so that addresses stay

The first run writes down what it launches; later ones repeat that without looking at the table, as
one graph where the driver records graphs.  Tables whose way depends on data are walked every time.
Nothing waits for the device but a branch, a message and the end of the run.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.runtime.cuda.interface import COMPUTE, Driver
from graphc.runtime.cuda.stacks import StackEmpty, Stacks
from graphc.runtime.cuda.walk import Walk
from graphc.runtime.failure import CANCELLED, EMPTY, explain, keep
from graphc.runtime.frame import BASES, CANCEL, LOG
from graphc.runtime.memory import address_of
from graphc.runtime.table import ARENA, BRANCH, FIRST_PARAM, rows

if TYPE_CHECKING:
    from graphc.runtime.cuda.part import DevicePart

MOST_PLANNED = 20_000  # steps of a plan
MOST_PREPARED = 100_000  # launches that are kept packed
_GRANULE = 256
_CODE = 0xFFFFFFFF

Step = Callable[[], object]


class Stopped(Exception):
    """The run ended early, with a status of the walker or of a kernel."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Unplanned(Exception):
    """What a table does depends on data, or is too long to be written down."""


class DeviceFrame:
    """The memory of a run and what it launches. `words` is the frame that native code knows."""

    def __init__(self, part: DevicePart, words: np.ndarray[Any, Any]) -> None:
        self.part = part
        self.words = words
        self.driver: Driver = part.driver
        self.table: list[int] = part.table
        self.row = 0
        self.bases, self.status = self._allocate()
        self.stacks = Stacks(self.driver, part.stack_slots)
        self.seen = self.driver.pinned(16)  # the status, and a verdict behind it
        self.prepared: dict[tuple[int, ...], Any] = {}
        self.plan: list[Step] | None = None
        self.plans = all(self.table[row] != BRANCH for row in rows(self.table))
        weakref.finalize(self, _free, self.driver, self.bases[ARENA], self.stacks).atexit = False

    def _allocate(self) -> tuple[list[int], int]:
        """The base registers of a run, and where its status lies."""
        image = self.part.image
        donated = image.donated or (-1,) * len(image.results)
        taken = zip(image.results, donated, strict=True)
        sizes = [image.arena_bytes, *(slot.nbytes for slot in image.params)]
        sizes += [0 if param >= 0 else slot.nbytes for slot, param in taken]
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + -(-size // _GRANULE) * _GRANULE)
        memory = self.part.allocate(starts[-1] + _GRANULE)
        arena, *slots, status = (memory + start for start in starts)
        for number, param in enumerate(donated):
            if param >= 0:
                slots[len(image.params) + number] = slots[param]
        bases = [arena, self.part.constants, *slots]
        return bases + [0] * (image.bases - len(bases)), status

    # -------------------------------------------------------------------------------------- runs

    def run(self) -> int:
        """Do what a run does; the status it ends with."""
        try:
            return self._run()
        except Stopped as stop:
            error: BaseException = explain(self.part.image, stop.status, self.row)
            return CANCELLED if stop.status == CANCELLED else keep(error)
        except BaseException as error:  # noqa: BLE001 native code lies between here and the caller
            return keep(error)

    def _run(self) -> int:
        self.driver.enter()
        image = self.part.image
        hosts = self.words[BASES + FIRST_PARAM : BASES + image.first_variable].tolist()
        devices = self.bases[FIRST_PARAM : image.first_variable]
        slots = [*image.params, *image.results]
        moves = list(zip(devices, hosts, (slot.nbytes for slot in slots), strict=True))
        for device, host, nbytes in moves[: len(image.params)]:
            if nbytes:
                self.driver.copy(device, host, nbytes, COMPUTE)
        self.driver.zero(self.status, 8, COMPUTE)
        self._work()
        for device, host, nbytes in moves[len(image.params) :]:
            if nbytes:
                self.driver.copy(host, device, nbytes, COMPUTE)
        self.check()
        return 0

    def _work(self) -> None:
        """The rows of the table."""
        if self.words[LOG]:
            self._walk(Traced(self))
            return
        if self.plans and self.plan is None:
            self._make_plan()
        if self.plan is None:
            self._walk(Direct(self))
            return
        for step in self.plan:
            step()

    def _make_plan(self) -> None:
        recorder = Recorder(self)
        try:
            self._walk(recorder)
        except Unplanned:
            self.plans = False
            return
        self.plan = recorder.steps

    def _walk(self, issue: Direct) -> None:
        try:
            Walk(self.table, list(self.bases), self.stacks, issue).run()
        except StackEmpty:
            raise Stopped(EMPTY) from None

    def check(self, *, extra: int = 0) -> int:
        """Wait for the device. Raises Stopped if a kernel failed; else the byte at `extra`."""
        seen = address_of(self.seen)
        self.driver.copy(seen, self.status, 8, COMPUTE)
        if extra:
            self.driver.copy(seen + 8, extra, 1, COMPUTE)
        self.driver.synchronize(COMPUTE)
        status = int(self.seen[:8].view(np.int64)[0])
        if status:
            self.row, code = status >> 32, status & _CODE
            raise Stopped(code - (code >> 31 << 32))
        return int(self.seen[8])

    def launch_of(self, row: int, addresses: tuple[int, ...]) -> Any:
        """The packed launch of a row on operands at these addresses."""
        key = row, *addresses
        found = self.prepared.get(key)
        if found is None:
            if len(self.prepared) >= MOST_PREPARED:
                self.prepared.clear()
            kernel, blocks, threads, first = self.table[row + 2 : row + 6]
            params = self.part.params(kernel, first)
            arguments = (*addresses, *params, self.status, row)
            function = self.part.functions[kernel]
            found = self.prepared[key] = self.driver.prepare(function, (blocks, threads), arguments)
        return found


def _free(driver: Driver, memory: int, stacks: Stacks) -> None:
    driver.free(memory)
    stacks.free()


# ------------------------------------------------------------------------------ what rows do


class Direct:
    """Rows are done as the walk comes to them."""

    def __init__(self, frame: DeviceFrame) -> None:
        self.frame = frame
        self.driver = frame.driver

    def do(self, step: Step) -> None:
        """Do or note something that later runs would do again in the same way."""
        step()

    def begin(self, row: int) -> None:
        self.frame.row = row
        if self.frame.words[CANCEL]:
            raise Stopped(CANCELLED)

    def call(self, row: int, addresses: tuple[int, ...]) -> None:
        if self.frame.table[row + 3]:
            self.do(partial(self.driver.launch, self.frame.launch_of(row, addresses), COMPUTE))

    def copy(self, nbytes: int, target: int, source: int) -> None:
        self.do(partial(self.driver.copy, target, source, nbytes, COMPUTE))

    def truth(self, address: int) -> bool:
        return self.frame.check(extra=address) != 0

    def send(self, row: int, address: int) -> None:
        raise NotImplementedError

    def receive(self, row: int, address: int) -> None:
        raise NotImplementedError


class Recorder(Direct):
    """Rows are written down."""

    def __init__(self, frame: DeviceFrame) -> None:
        super().__init__(frame)
        self.steps: list[Step] = []

    def do(self, step: Step) -> None:
        if len(self.steps) == MOST_PLANNED:
            raise Unplanned
        self.steps.append(step)

    def truth(self, address: int) -> bool:
        raise Unplanned


class Traced(Direct):
    """Rows are done one at a time, and marked in the log of the frame."""

    def __init__(self, frame: DeviceFrame) -> None:
        super().__init__(frame)

    def begin(self, row: int) -> None:
        super().begin(row)
        self.driver.synchronize(COMPUTE)
        time.perf_counter()
