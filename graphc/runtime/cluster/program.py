"""`ClusterExecutable`: a program whose devices are worker processes, and maybe this one.

    first run     each worker gets its share as an image, and the memory of the program
    every run     one message to each worker, and its answer; the rest goes from worker to worker

A run that fails ends on all workers.  The next one gets new links: nothing of the one before can
come through them.
"""

from __future__ import annotations

import itertools
import time
import weakref
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError, RunError
from graphc.forks import fork_safe_lock
from graphc.runtime.call import native_support
from graphc.runtime.call.array import Array
from graphc.runtime.call.binding import Binding
from graphc.runtime.call.execute import Executable, Value, executables, fit, no_entry, stop_all
from graphc.runtime.call.failure import CANCELLED, ENDED, FAILED, explain, take_error
from graphc.runtime.call.frame import Frame
from graphc.runtime.call.interrupt import EVER, stop_on_interrupt
from graphc.runtime.call.memory import address_of
from graphc.runtime.call.variable import Cell
from graphc.runtime.cluster.local_workers import LocalCluster, LocalWorker, LostWorker, note
from graphc.runtime.cluster.memory import Block, new_block
from graphc.runtime.cluster.program_part import (
    MemoryLayout,
    ProgramPart,
    bells_of,
    carried,
    layout_of,
    part_of,
)
from graphc.runtime.devices.device import default_threads
from graphc.runtime.devices.jobs import task_of
from graphc.runtime.files.gcx_writer import no_values, pieces
from graphc.runtime.load.program import ALIGNMENT, Image, Slot, numpy_dtype

HERE = -1  # instead of a task: this process
Ends = Mapping[int, tuple[int, int]]  # of links by number: the place, the task at the other end
_numbers = itertools.count()


@record(frozen=True)
class OpenProgram:
    """The memory that all processes of a program have, until a run fails.

    `values` are parameters, then results, where they do not stay in this process; `here` runs the
    devices of this process, if there are any, and `workers` those of the others.
    """

    memory: Block
    stop: np.ndarray[Any, Any]
    values: tuple[np.ndarray[Any, Any], ...]
    here: ProgramPart | None
    workers: list[LocalWorker]


class ClusterExecutable(Executable):
    """A compiled program that runs on the workers of a cluster.  Steps of a cluster come one after
    the other, from whatever thread they are called.
    """

    def __init__(self, image: Image, cluster: LocalCluster, *, threads: int | None = None) -> None:
        image.check()
        self.image, self.cluster = image, cluster
        self.others = []
        self.threads = threads or default_threads()
        self.support = native_support.support(image.support)
        self.entry, self.is_left = no_entry, False
        self._param_dtypes = [numpy_dtype(slot.dtype) for slot in image.params]
        self._result_dtypes = [numpy_dtype(slot.dtype) for slot in image.results]
        self._context, self._frames, self._extra = None, (), ()
        self._lock = fork_safe_lock()
        self.number = next(_numbers)
        self.members = _members(image, cluster)
        self.owner = {d: task for task, devices in self.members.items() for d in devices}
        here = self.members.get(HERE, ())
        owned = [
            (variable, cluster.is_remote and number not in here)
            for number, each in enumerate(image.images)
            for variable in each.variables
        ]
        self._binding = Binding(*zip(*owned, strict=True)) if owned else None
        self._opened: OpenProgram | None = None
        self._asked: OpenProgram | None = None  # while a run is in flight
        self._cancelling = fork_safe_lock()  # a run ends before that begins, or after it is done
        self._begun = 0  # when it began, in nanoseconds of the monotonic clock
        self._room = 0  # for rows of a log, while a run is traced
        self.clock_error = 0.0  # seconds that clocks of workers may be read wrong by
        weakref.finalize(self, cluster.dropped.append, self.number).atexit = False
        executables.add(self)
        stop_on_interrupt(stop_all)

    # -- runs

    def begin(
        self, arrays: Sequence[Value], *, checked: bool = False, resident: bool = False
    ) -> tuple[Frame, list[Any]]:
        """Raises GraphError: what steers a run cannot steer other processes."""
        raise GraphError(
            f"{self.image.name} runs on {self.cluster!r}, where nothing can look on step by step",
            hint="compile it for cpu:0, cpu:1, ...",
        )

    def run(self, arrays: Sequence[Value], *, checked: bool = False) -> list[Any]:
        """As `Executable.run`. Raises RunError when a worker is lost, too: variables that the step
        writes then hold old values, new ones, or some elements of both."""
        if not checked:
            arrays = self._fit_all(arrays)
        if self.image.donated:
            arrays = self._own_donated(arrays)
        outputs = self._outputs(arrays, False)
        self._step([a.numpy() if isinstance(a, Array) else a for a in (*arrays, *outputs)])
        return outputs

    def traced(self, arrays: Sequence[Value], room: int) -> tuple[list[Any], list[np.ndarray]]:
        """As `run`, and the log of each device, with the times of this process's clock."""
        with self.cluster.lock:
            self._room = room
            try:
                outputs = self.run(arrays)
            finally:
                self._room = 0
            opened = self._opened
            if opened is None:
                raise RunError(f"{self.image.name} was stopped while it was traced")
            found = self._log(opened, 0)
            for worker in opened.workers:
                ahead, error = worker.clock(self.support)
                self.clock_error = max(self.clock_error, error * 1e-9)
                for device in self.members[worker.task]:
                    found[device][3::2] -= ahead
        return outputs, [found[device] for device in range(len(self.image.images))]

    def _log(self, opened: OpenProgram, room: int) -> dict[int, np.ndarray]:
        """What the devices have logged; from now on they log so many rows."""
        found: dict[int, np.ndarray] = {}
        for task, devices in self.members.items():
            if task != HERE:
                logs = self.cluster.workers[task].log(self.support, self.number, room)
            else:
                assert opened.here is not None
                logs = opened.here.logged()
                opened.here.log(room)
            found.update((device, log.copy()) for device, log in zip(devices, logs))
        return found

    @property
    def parts(self) -> list[Any]:
        """What rows of the tables call, for those who read logs."""
        return [_Described(image) for image in self.image.images]

    def run_resident(self, arrays: Sequence[Value]) -> list[Array]:
        """As `run`; the results are in memory of this process."""
        return [Array(slot, made) for slot, made in zip(self.results, self.run(arrays))]

    def _fit(self, array: Value, slot: Slot, dtype: np.dtype[Any]) -> Value:
        return fit(array, slot, dtype)

    def cancel(self, begun_by: int = EVER) -> None:
        """Stop the run that is in flight if it began by this time; it raises RunError."""
        with self._cancelling:
            opened = self._asked
            if opened is not None and self._begun <= begun_by:
                self._give_up(opened, self.cluster.steps)

    def _give_up(self, opened: OpenProgram, step: int) -> None:
        """Have all members stop this step: those that wait see the word, the others are told."""
        opened.stop[0] = 1
        for task in self.members:
            if task != HERE:
                self.cluster.workers[task].cancel(step)
            elif opened.here is not None:
                opened.here.cancel()

    def _step(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """One run. Locks of containers come before that of the cluster, as where variables are
        fetched."""
        binding, cluster = self._binding, self.cluster
        if binding is not None and binding.addresses is None and not cluster.is_remote:
            share_cells(binding.found())
        with binding.hold() if binding is not None else nullcontext(), cluster.lock:
            cluster.require()
            if binding is not None and binding.addresses is None:
                binding.bind()
                self._opened = None
                if not cluster.is_remote and any(cell.place is None for cell in binding.cells):
                    binding.unbind()
                    raise RunError(f"a variable was reset while {self.image.name} began to run")
            opened = self._until_done(arrays)
            params = len(self.params)
            for place, array in zip(opened.values[params:], arrays[params:]):
                np.copyto(array, place)
            if binding is not None:
                binding.wrote()

    def _until_done(self, arrays: Sequence[np.ndarray[Any, Any]]) -> OpenProgram:
        """A run, done again from what variables held before when a worker is lost; the memory that
        has its results."""
        retries = self.cluster.retries if self._can_repeat else 0
        before = [(cell, cell.host().copy()) for cell in self._written()] if retries else []
        while True:
            try:
                if self.cluster.retries:
                    self.cluster.restart()
                opened = self._ready()
                self._feed(opened, arrays)
                self._bring_variables()
                if self._room:
                    self._log(opened, self._room)
                self._ask(opened)
                for cell, _ in before:
                    cell.host()  # a later step may need it, when who has it now is lost
                return opened
            except BaseException as error:
                self._opened = None
                if not retries or not isinstance(error, LostWorker) or self.cluster.is_closed:
                    raise
                lost = error.message
            retries -= 1
            note("step %d, %s, is done again: %s", self.cluster.steps, self.image.name, lost)
            for cell, value in before:
                cell.changed()
                np.copyto(cell.host(), value)

    def _bring_variables(self) -> None:
        """Have workers without memory in common with this process have the newest values."""
        if self._binding is None or not self.cluster.is_remote:
            return
        for home, _ in self._binding.homes:
            home.take_over(set(self._binding.cells))
        for task, cells in self._cells().items():
            for cell in cells if task != HERE else ():
                self.cluster.workers[task].bring(self.support, cell)

    def _note_variables(self) -> None:
        """What a run has written is the newest there is."""
        written = set(self._written())
        for task, cells in self._cells().items():
            for cell in cells if task != HERE and self.cluster.is_remote else ():
                if cell in written:
                    self.cluster.workers[task].wrote(cell)

    def _cells(self) -> dict[int, list[Cell]]:
        """The variables of each member."""
        cells = self._binding.cells if self._binding is not None else []
        return {t: _cells_of(self.image, cells, devices) for t, devices in self.members.items()}

    def _ready(self) -> OpenProgram:
        """The links of the last run, or new ones."""
        opened = self._opened
        if opened is None or opened.workers != self.workers:
            opened = self._opened = self._open()
        return opened

    def _feed(self, opened: OpenProgram, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        for place, array in zip(opened.values, arrays[: len(self.params)]):
            np.copyto(place, array)
        if opened.here is not None and 0 in self.members[HERE]:
            opened.here.point([*map(address_of, arrays)])

    @property
    def _can_repeat(self) -> bool:
        """A run that takes an argument of the caller's over has no way back."""
        return not (self.image.donated and 0 in self.members.get(HERE, ()))

    def _written(self) -> list[Cell]:
        """The variables that a run writes."""
        binding = self._binding
        pairs = zip(binding.cells, binding.slots) if binding is not None else ()
        return [cell for cell, slot in pairs if slot.written]

    def _ask(self, opened: OpenProgram) -> None:
        """One message to each worker, one answer of each. Raises RunError."""
        cluster, workers = self.cluster, self.workers
        cluster.steps += 1
        cluster.trouble = ""
        outcomes: dict[int, tuple[int, int] | None] = {}
        step = cluster.steps
        cluster.in_flight = lambda: self._give_up(opened, step)
        self._begun = time.monotonic_ns()
        self._asked = opened
        begin = time.perf_counter()
        try:
            for worker in workers:
                worker.ring(self.support, self.number, cluster.steps)
                cluster.messages += 1
            if opened.here is not None:
                opened.here.ready()
                outcome = outcomes[HERE] = opened.here.step()
                if outcome[0]:
                    self._give_up(opened, step)
            for worker in workers:
                outcomes[worker.task] = self._answer(worker, opened)
        except BaseException:
            self._give_up(opened, step)
            for worker in workers:
                worker.answer(self.support, worker.gone)
            raise
        finally:
            with self._cancelling:
                cluster.in_flight = self._asked = None
            cluster.seconds += time.perf_counter() - begin
            self._note_variables()
        self._judge(outcomes)
        if opened.stop[0]:
            self._opened = None  # somebody gave up a run that was done

    def _answer(self, worker: LocalWorker, opened: OpenProgram) -> tuple[int, int] | None:
        """How a step ended at a worker; None if it is lost. Once anybody stops, all do."""
        found = worker.answer(self.support, opened.stop)
        if found is None and not worker.gone[0]:
            self._give_up(opened, self.cluster.steps)
            found = worker.answer(self.support, worker.gone)
        return found

    def _judge(self, outcomes: Mapping[int, tuple[int, int] | None]) -> None:
        """Raise the error that a step ended with, if there is one."""
        cluster = self.cluster
        failed = [(task, *found) for task, found in outcomes.items() if found and found[0]]
        first = next((each for each in failed if each[1] != CANCELLED), None)
        is_broken = None in outcomes.values() or (failed and first is None)
        if is_broken and (lost := next((w for w in cluster.workers if w.lost), None)) is not None:
            raise LostWorker(
                f"{lost} was lost in step {cluster.steps} of the cluster, "
                f"in {self.image.name}: {lost.lost}",
                hint="restart() starts it again; restore variables from a checkpoint",
            )
        if failed and first is None and cluster.trouble:
            raise LostWorker(
                f"step {cluster.steps} of the cluster, {self.image.name}: {cluster.trouble}",
                hint="can the machines reach one another at all ports?",
            )
        if failed:
            raise self._failure(*(first or failed[0]))

    def _failure(self, task: int, status: int, row: int) -> BaseException:
        """The error of a row, counted over the tables of a member."""
        images = [self.image.images[device] for device in self.members[task]]
        starts = [0, *itertools.accumulate(each.table.size for each in images)]
        number = min(bisect_right(starts, row), len(images)) - 1
        image = images[number]
        error = take_error(status) or explain(image, status, row - starts[number])
        if status in (ENDED, FAILED) and task != HERE and isinstance(error, GraphError):
            error.message = self.cluster.workers[task].why(self.support) or error.message
        if isinstance(error, GraphError):
            error.message += f" (on {image.device})"
        return error

    # -- what the workers get

    @property
    def workers(self) -> list[LocalWorker]:
        """Those that take part."""
        return [self.cluster.workers[task] for task in self.members if task != HERE]

    def _open(self) -> OpenProgram:
        """Give all members new links, and what they do not have yet."""
        self._drop_others()
        cells = self._binding.cells if self._binding is not None else []
        image = self.image
        owner = self.owner
        far = {
            number: channel
            for number, channel in enumerate(image.channels)
            if owner[channel.source] != owner[channel.target]
        }
        slots = (*image.params, *image.results) if owner[0] != HERE else ()
        places = layout_of(slots, len(image.images), far)
        bells = bells_of(image, places.bells)
        values = self._values(places) if slots else []
        memory = new_block(places.size)
        for task, devices in self.members.items():
            if task != HERE and self.number not in (worker := self.cluster.workers[task]).programs:
                self._load_at(worker, devices)
        made = [
            memory.bytes[at : at + slot.nbytes].view(numpy_dtype(slot.dtype)).reshape(slot.shape)
            for slot, at in zip(slots, values)
        ]
        opening, here = next(_numbers), None
        for task, devices in self.members.items():
            ends = {
                number: (places.links[number], next(t for t in pair if t != task))
                for number, channel in far.items()
                if task in (pair := (owner[channel.source], owner[channel.target]))
            }
            rung = {number: bells[number] for number in ends if number in bells}
            mine = _cells_of(image, cells, devices)
            if task == HERE:
                here = self._open_here(devices, memory, ends, rung, opening)
                here.frame.bind([address_of(cell.host()) for cell in mine])
            else:
                told = values if 0 in devices else []
                worker = self.cluster.workers[task]
                self._open_at(worker, memory, ends, rung, opening, told, made, mine)
        return OpenProgram(memory, memory.words(0, 1), tuple(made), here, self.workers)

    def _values(self, places: MemoryLayout) -> list[int]:
        """Where parameters and results lie; a donated parameter is the result that takes it."""
        params = len(self.params)
        donated = self.image.donated or (-1,) * len(self.results)
        taken = [
            places.values[param] if param >= 0 else places.values[params + number]
            for number, param in enumerate(donated)
        ]
        return [*places.values[:params], *taken]

    def _peer(self, task: int) -> str:
        """Where the links of a task are reached; nothing where they lie in shared memory."""
        if task != HERE or not self.cluster.token:
            return str(self.cluster.workers[task].address)
        return self.cluster.own_carrier(self.support).address

    def _tasks_of(self, link: int) -> tuple[int, int]:
        """The tasks that a link joins."""
        channel = self.image.channels[link]
        return self.owner[channel.source], self.owner[channel.target]

    def _open_here(
        self,
        devices: Sequence[int],
        memory: Block,
        ends: Ends,
        bells: Mapping[int, int],
        opening: int,
    ) -> ProgramPart:
        """The share of this process."""
        share, start = part_of(self.image, devices), memory.address
        rung = {number: start + at for number, at in bells.items()}
        if not self.cluster.token:
            links = {number: start + at for number, (at, _) in ends.items()}
            return ProgramPart(share, self.threads, links, start, rung)
        peers = {number: self._peer(task) for number, (_, task) in ends.items()}
        carrier = self.cluster.own_carrier(self.support)
        return carried(share, self.threads, start, carrier, (self.number, opening), peers, rung)

    def _open_at(
        self,
        worker: LocalWorker,
        memory: Block,
        ends: Ends,
        bells: Mapping[int, int],
        opening: int,
        values: Sequence[int],
        made: Sequence[np.ndarray[Any, Any]],
        cells: Sequence[Cell],
    ) -> None:
        first = list(values)
        fields = {
            "program": self.number,
            "size": memory.size,
            "links": [word for number, (at, _) in ends.items() for word in (number, at)],
            "bells": [word for pair in bells.items() for word in pair],
            "ends": [task for number in ends for task in self._tasks_of(number)],
            "peers": [self._peer(task) for _, task in ends.values()],
            "opening": opening,
            "values": first,
            "results": len(self.results) if first else 0,
        }
        worker.open(self.support, fields, memory, made if first else (), cells)

    def _load_at(self, worker: LocalWorker, devices: Sequence[int]) -> None:
        """Give a worker its share of the program."""
        share = part_of(self.image, devices)
        for image in share.images:
            host = next((h for h in image.hosts.values() if h.resource is None), None)
            if host is not None:
                raise GraphError(
                    f"{worker.name} calls no Python, and this program does there",
                    details=(host.origin.node,),
                    location=host.origin.location,
                    hint='have "cpu:0" among the devices, too, and gc.device("cpu:0") around it',
                )
        worker.load(self.support, self.number, pieces(share, no_values(share), resources=True))

    def _drop_others(self) -> None:
        """Have workers forget programs that are not there any more."""
        dropped = self.cluster.dropped
        while dropped:
            number = dropped.pop()
            for worker in self.cluster.workers:
                if number in worker.programs:
                    worker.drop(self.support, number)


@record(frozen=True)
class _Described:
    """A device of another process, as far as its image tells."""

    image: Image

    def called(self, row: int) -> str:
        return str(self.image.kernels[self.image.table[row + 2]])


def _members(image: Image, cluster: LocalCluster) -> dict[int, list[int]]:
    """The devices of each task that takes part, by number. Raises GraphError for a task that there
    is not, and for GPUs."""
    found: dict[int, list[int]] = {}
    for number, each in enumerate(image.images):
        if each.on_gpu:
            raise GraphError(f"{each.device}: programs of several processes run on CPUs alone")
        job, task = task_of(each.device) or (cluster.job, HERE)
        if job != cluster.job or task >= len(cluster.workers):
            raise GraphError(
                f"nobody serves {each.device}",
                hint=f"/job:{cluster.job} has tasks 0 to {len(cluster.workers) - 1}",
            )
        found.setdefault(task, []).append(number)
    return found


def _cells_of(image: Image, cells: Sequence[Cell], devices: Sequence[int]) -> list[Cell]:
    """The variables of some devices, in order; `cells` are those of all."""
    left = iter(cells)
    by_device = [[next(left) for _ in each.variables] for each in image.images]
    return [cell for device in devices for cell in by_device[device]]


def share_cells(cells: Sequence[Cell]) -> None:
    """Move variables to memory that other processes can have, where they do not lie there yet."""
    for cell in cells:
        cell.settle()
    moving = [cell for cell in dict.fromkeys(cells) if cell.place is None]
    sizes = [-(-cell.kind().nbytes // ALIGNMENT) * ALIGNMENT for cell in moving]
    if not moving:
        return
    block = new_block(sum(sizes))
    starts = itertools.accumulate(sizes, initial=0)
    for cell, start in zip(moving, starts):
        cell.move(block, start)
