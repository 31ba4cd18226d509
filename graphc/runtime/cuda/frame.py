"""`DeviceFrame`: one run at a time on a GPU.

    arena | params | results | status        one piece of device memory, so that addresses stay

The first run writes down what it launches; later ones repeat that without looking at the table, as
one graph where the driver records graphs.  Tables whose way depends on data are walked every time.
Nothing waits for the device but a branch, a message and the end of the run.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.runtime.cuda.interface import COMPUTE, COPY, DeviceError, Driver
from graphc.runtime.cuda.messages import Boxes, Post
from graphc.runtime.cuda.native import callback, status_of
from graphc.runtime.cuda.plan import Direct, Recorder, Step, Stopped, Traced, Unplanned
from graphc.runtime.cuda.stacks import StackEmpty, Stacks
from graphc.runtime.cuda.walk import Walk
from graphc.runtime.failure import BAD_ROW, CANCELLED, EMPTY, explain, keep
from graphc.runtime.frame import BASES, KERNELS, LOG, OPERANDS, TABLE, THREADS, WORDS, Frame
from graphc.runtime.image import Image
from graphc.runtime.memory import address_of
from graphc.runtime.table import ARENA, BRANCH, FIRST_PARAM, TableBuilder, rows

if TYPE_CHECKING:
    from graphc.runtime.cuda.part import DevicePart

MOST_PLANS = 8  # results that stay on the device lie elsewhere each time
MOST_PREPARED = 100_000  # launches that are kept packed
_GRANULE = 256


def _one_call() -> np.ndarray[Any, Any]:
    builder = TableBuilder()
    builder.call(0, ())
    builder.end()
    return builder.finish()


_ONE_CALL = _one_call()


class DeviceFrame:
    """The memory of a run and what it launches. `native` is the frame that native code knows."""

    def __init__(self, part: DevicePart, native: Frame) -> None:
        self.part = part
        self.driver: Driver = part.driver
        self.table: list[int] = part.table
        self.words = native.words
        self.native = weakref.proxy(native)
        self.row = 0
        self.bases, self.status = self._allocate()
        image = part.image
        self.own = self.bases[FIRST_PARAM : image.first_variable]
        self.sizes = [slot.nbytes for slot in (*image.params, *image.results)]
        native.stacks = np.zeros((part.stack_slots, 3), np.int64)
        self.stacks = Stacks(part.memory, native.stacks)
        self.seen = self.driver.pinned(16)  # the status, and a verdict behind it
        self.prepared: dict[tuple[int, ...], Any] = {}
        self.plans: dict[tuple[int, ...], list[Step]] = {}  # by where all that may move lies
        self.plannable = all(self.table[row] != BRANCH for row in rows(self.table))
        self.post = Post()
        self._point(native)
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
        memory = self.part.memory.allocate(starts[-1] + _GRANULE)
        arena, *slots, status = (memory + start for start in starts)
        for number, param in enumerate(donated):
            if param >= 0:
                slots[len(image.params) + number] = slots[param]
        bases = [arena, self.part.constants, *slots]
        return bases + [0] * (image.bases - len(bases)), status

    def _point(self, native: Frame) -> None:
        """Have native code call the run, as the one kernel of a table of one row."""
        found = weakref.ref(self)

        def run(*_: int) -> int:
            device = found()
            return device.run() if device is not None else BAD_ROW

        self.callback, self.kernels = callback(run)
        native.words[TABLE] = address_of(_ONE_CALL)
        native.words[[KERNELS, WORDS]] = address_of(self.kernels)  # it has no words
        native.words[[OPERANDS, THREADS]] = 0, 1

    def join(self, native: Frame, image: Image, number: int, boxes: Boxes) -> None:
        """Take part in runs of several devices, as this one of them."""
        self.driver.enter()
        self.post.join(self, native, image, number, boxes)

    # -------------------------------------------------------------------------------------- runs

    def run(self) -> int:
        """Do what a run does; the status it ends with."""
        try:
            self._run()
        except Stopped as stop:
            if stop.status == CANCELLED:
                return CANCELLED
            return keep(explain(self.part.image, stop.status, self.row))
        except DeviceError as error:
            origin = self.part.image.origins.get(error.row)
            return keep(error.at(origin.location, (origin.node,)) if origin else error)
        except BaseException as error:  # noqa: BLE001 native code lies between here and the caller
            return keep(error)
        return 0

    def _run(self) -> None:
        self.driver.enter()
        self.post.begin()
        image, mirrors = self.part.image, self.part.mirrors
        hosts = self.words[BASES + FIRST_PARAM : BASES + image.first_variable].tolist()
        places = self._places(hosts)
        moves = list(zip(places, hosts, self.sizes, strict=True))
        try:
            self.bases[FIRST_PARAM : image.first_register] = [*places, *mirrors.begin()]
            self._move((device, host, size) for device, host, size in moves[: len(image.params)])
            self._work()
            self._move((host, device, size) for device, host, size in moves[len(image.params) :])
            self.check()
        except BaseException:
            mirrors.failed()
            raise
        finally:
            if self.post.sends:
                self.driver.synchronize(COPY)
        mirrors.wrote()

    def _places(self, hosts: list[int]) -> list[int]:
        """Where arguments and results lie on the device: those that are no arrays of the host (0)
        where they are, the others in the frame's own memory.
        """
        if 0 not in hosts:
            return self.own
        given = zip(hosts, self.own, self.native.arrays, strict=True)
        places = [place if host else array.address for host, place, array in given]
        for number, param in enumerate(self.part.image.donated):
            if param >= 0:
                places[len(self.part.image.params) + number] = places[param]
        return places

    def _move(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """Copy between the device and the host; what only lies on the device stays there."""
        for target, source, nbytes in moves:
            if nbytes and target and source:
                self.driver.copy(target, source, nbytes, COMPUTE)

    def _work(self) -> None:
        """The rows of the table."""
        log = int(self.words[LOG])
        if log:
            self._trace(log)
            return
        plan = self._plan() if self.plannable else None
        if plan is None:
            self._walk(Direct(self))
            return
        for step in plan:
            step()

    def _plan(self) -> list[Step] | None:
        """The plan for where everything lies now; None where there cannot be one."""
        key = tuple(self.bases[FIRST_PARAM : self.part.image.first_register])
        found = self.plans.get(key)
        if found is None:
            recorder = Recorder(self)
            try:
                self._walk(recorder)
            except Unplanned:
                self.plannable = False
                return None
            if len(self.plans) == MOST_PLANS:
                del self.plans[next(iter(self.plans))]
            found = self.plans[key] = recorder.plan()
        return found

    def _trace(self, log: int) -> None:
        """Walk with the time of every row; native code leaves the log alone meanwhile."""
        self.words[LOG] = 0
        issue = Traced(self)
        try:
            self._walk(issue)
            self.driver.synchronize(COMPUTE)
        finally:
            self.words[LOG] = log
        issue.write(log)

    def _walk(self, issue: Direct) -> None:
        issue.do(partial(self.driver.zero, self.status, 8))
        try:
            Walk(self.table, list(self.bases), self.stacks, issue).run()
        except StackEmpty:
            raise Stopped(EMPTY) from None

    def guarded(self) -> frozenset[int]:
        """Where variables lie that are written when all kernels before have succeeded."""
        image = self.part.image
        return frozenset(self.bases[image.first_variable : image.first_register] * image.guarded)

    def check(self, *, extra: int = 0) -> int:
        """Wait for the device. Raises Stopped if a kernel failed; else the byte at `extra`."""
        seen = address_of(self.seen)
        self.driver.copy(seen, self.status, 8, COMPUTE)
        if extra:
            self.driver.copy(seen + 8, extra, 1, COMPUTE)
        self.driver.synchronize(COMPUTE)
        row, code = status_of(self.seen)
        if code:
            self.row = row
            raise Stopped(code)
        return int(self.seen[8])

    def launch_of(self, row: int, addresses: tuple[int, ...]) -> Any:
        """The packed launch of a row on operands at these addresses."""
        key = row, *addresses
        found = self.prepared.get(key)
        if found is None:
            if len(self.prepared) >= MOST_PREPARED:
                self.prepared.clear()
            kernel, blocks, threads, first = self.table[row + 2 : row + 6]
            arguments = (*addresses, *self.part.params(kernel, first), self.status, row)
            function = self.part.functions[kernel]
            found = self.prepared[key] = self.driver.prepare(function, (blocks, threads), arguments)
        return found


def _free(driver: Driver, memory: int, stacks: Stacks) -> None:
    driver.free(memory)
    stacks.free()
