"""Runs of several devices: recorded, done again in the same order, and in any other order.

    native run     device 0   row 12 ..... 40 | picks 88 ...       each row has a time in a log
                   device 1   row 0 .. waits for a message ...
    the same run   one row after the other, in the order of these times

What a device does is fixed but for its picks: which of the pieces that are ready it runs next (see
`ready_queue`).  Together with the order in which messages are put and taken that is all that may
differ between two runs.  Doing a run again calls the same kernels on the same memory, one row at a
time, so it ends with the same bits each time it is done, and so does what a race made of them, as
far as the order of rows decides it.  Memory that has not been written holds bytes of all ones.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError, RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.failure import CANCELLED, EMPTY
from graphc.runtime.call.frame import Frame, Part
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.interpreter import Walk
from graphc.runtime.cuda.stacks import StackEmpty
from graphc.runtime.devices.multi_device import MultiDeviceExecutable
from graphc.runtime.files.files import write_atomically
from graphc.runtime.load.layouts import FrameWords
from graphc.runtime.load.program import Channel
from graphc.runtime.load.table import END, SEND, WAIT
from graphc.runtime.observe.trace import MOST_MARKS, Trace, trace_of

FORMAT = 1
STEP = 1000  # nanoseconds of a row in an order that nobody has run natively
KEEP_ON = 0.7  # how likely a device goes on in the random orders of every other try
CHANGES = 4  # how often, at most, the devices change their ranks in the orders of the others

_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
Order = list[tuple[int, int]]  # device and row of each step
Ends = list[Any] | GraphError  # results and variables of a run, or why it failed


@record(frozen=True, eq=False)
class Recording:
    """One run: for each device its rows with their times, as a traced run logs them, and digests of
    its results and of what it left in variables, or why it failed.

    `marks` are pairs (2 * row, or 2 * row + 1 once its message is there; nanoseconds), `dropped`
    counts those that had no room: from there on the order is the scheduler's own.
    """

    program: str
    devices: tuple[str, ...]
    marks: tuple[np.ndarray[Any, Any], ...]
    results: tuple[str, ...]
    dropped: int = 0

    def order(self) -> Order:
        """Device and row of each step, in the order of their times: a row that sends or receives
        comes when its message does."""
        steps = []
        for device, marks in enumerate(self.marks):
            latest: list[tuple[int, int, int]] = []
            for mark, time in marks.tolist():
                if mark & 1 and latest:
                    latest[-1] = time, device, mark >> 1
                else:
                    latest.append((time, device, mark >> 1))
            steps += latest
        return [(device, row) for _, device, row in sorted(steps, key=lambda step: step[0])]


def recorded(
    executable: Executable, arrays: Sequence[Any], room: int = MOST_MARKS
) -> tuple[list[Any], Recording]:
    """Run natively: the results, and the recording, which has room for so many marks of a device.

    Variables are as they were before; so they are after each of the other runs here.
    Raises GraphError for devices that are elsewhere, and what `Executable.run` raises.
    """
    _require_here(executable)
    with _taken_back(executable) as variables:
        outputs, logs = executable.traced(arrays, room)
        ends = [*outputs, *variables()]
    marks = tuple(log[2 : 2 + 2 * min(int(log[0]), room)].reshape(-1, 2).copy() for log in logs)
    dropped = sum(max(0, int(log[0]) - room) for log in logs)
    return outputs, _recording(executable, marks, ends, dropped)


def replayed(executable: Executable, arrays: Sequence[Any], found: Recording) -> list[Any]:
    """A recorded run, done again in its order: its results, and what it leaves in variables.

    Raises GraphError for a recording of another program, or of an order that cannot be, and what
    `Executable.run` raises.
    """
    _require_same(executable, found)
    ends, _ = run_steps(executable, arrays, _Followed(found.order(), is_whole=not found.dropped))
    if isinstance(ends, GraphError):
        raise ends
    return ends


def outcome(executable: Executable, arrays: Sequence[Any], found: Recording) -> tuple[str, ...]:
    """How a recorded run ends that is done again: what `Recording.results` says of the first time.

    Raises GraphError as `replayed` does for what is no recording of the program.
    """
    _require_same(executable, found)
    ends, _ = run_steps(executable, arrays, _Followed(found.order(), is_whole=not found.dropped))
    return _digests(ends)


def explored(
    executable: Executable, arrays: Sequence[Any], tries: int, seed: int = 0
) -> Iterator[Recording]:
    """Runs in the scheduler's own order, then in orders drawn at random: the recording of each."""
    for number in range(tries):
        draw = random.Random(f"{seed} {number}")
        chooser = First() if number == 0 else (_Wandering, _Ranked)[number % 2](draw)
        ends, order = run_steps(executable, arrays, chooser)
        yield _recording(executable, _marks_of(executable, order), ends)


def timeline(executable: Executable, found: Recording) -> Trace:
    """The events of a recorded run."""
    logs = [np.concatenate(([len(m), len(m)], m.reshape(-1))).astype(np.int64) for m in found.marks]
    return trace_of(executable, logs)


# ------------------------------------------------------------------------------------ recordings


def digest_of(executable: Executable) -> str:
    """What tells programs apart as far as their orders go: tables, kernels and parameters."""
    made = hashlib.sha256()
    for image in executable.image.images:
        for part in (image.table.tobytes(), repr(image.kernels).encode(), image.words.tobytes()):
            made.update(len(part).to_bytes(8, "little") + part)
    return made.hexdigest()


def _recording(
    executable: Executable, marks: tuple[Any, ...], ends: Ends, dropped: int = 0
) -> Recording:
    devices = tuple(image.device for image in executable.image.images)
    return Recording(digest_of(executable), devices, marks, _digests(ends), dropped)


def _digests(ends: Ends) -> tuple[str, ...]:
    if isinstance(ends, GraphError):
        return (f"failed: {ends.message}",)
    return tuple(map(digest_of_array, ends))


def digest_of_array(array: Any) -> str:
    """A digest of the bits of a result."""
    made = np.ascontiguousarray(array)
    return hashlib.sha256(f"{made.dtype} {made.shape}".encode() + made.tobytes()).hexdigest()[:32]


def write(found: Recording, path: Path, more: dict[str, Any] | None = None) -> None:
    """Write a recording as JSON; `more` is what else belongs to it. Raises GraphError."""
    marks = [np.diff(m, axis=0, prepend=0).reshape(-1).tolist() for m in found.marks]
    text = {
        "graphc recording": FORMAT,
        "program": found.program,
        "devices": found.devices,
        "results": found.results,
        "dropped": found.dropped,
        **(more or {}),
        "marks": marks,
    }
    write_atomically(path, [json.dumps(text).encode()])


def read(path: Path) -> tuple[Recording, dict[str, Any]]:
    """A recording, and all that is written beside it. Raises GraphError for a damaged file."""
    try:
        found = json.loads(path.read_bytes())
        if found["graphc recording"] != FORMAT:
            raise ValueError(f"its format is {found['graphc recording']!r}")
        marks = tuple(np.array(m, np.int64).reshape(-1, 2).cumsum(axis=0) for m in found["marks"])
        texts = [found["program"], *found["devices"], *found["results"]]
        if not all(isinstance(text, str) for text in texts) or type(found["dropped"]) is not int:
            raise ValueError("it holds something else")
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise GraphError(f"{path} is no recording of graphc: {error}") from None
    known = found["program"], tuple(found["devices"]), marks, tuple(found["results"])
    return Recording(*known, found["dropped"]), found


def _require_same(executable: Executable, found: Recording) -> None:
    _require_here(executable)
    if found.program != digest_of(executable):
        raise GraphError(
            f"the recording is of another program than {executable.image.name}",
            hint="the model, its options and the version of graphc have to be the same",
        )
    if len(found.marks) != len(executable.image.images):
        raise _Misfit("the recorded order cannot be: it is not of as many devices")


def _require_here(executable: Executable) -> None:
    images = executable.image.images
    is_here = type(executable) in (Executable, MultiDeviceExecutable)
    if not is_here or any(image.on_gpu for image in images):
        raise GraphError(
            "only runs on CPU devices of this process are recorded",
            hint='devices="cpu:0,cpu:1" has as many of them as one likes',
        )


def _marks_of(executable: Executable, order: Order) -> tuple[Any, ...]:
    """Times for an order: a step after the other."""
    marks: list[list[tuple[int, int]]] = [[] for _ in executable.image.images]
    tables = [image.table.tolist() for image in executable.image.images]
    for number, (device, row) in enumerate(order):
        marks[device].append((row << 1, number * STEP))
        if tables[device][row] in (SEND, WAIT):
            marks[device].append((row << 1 | 1, number * STEP))
    return tuple(np.array(each, np.int64).reshape(-1, 2) for each in marks)


# ------------------------------------------------------------------------------------ one run


class _Misfit(GraphError):
    """An order that no run can have."""


class _Failed(Exception):
    """A row ended with a status."""

    def __init__(self, status: int) -> None:
        self.status = status


class _Stacks:
    """The stacks of one device; what was taken off is there until the next run."""

    def __init__(self) -> None:
        self.values: dict[int, list[Any]] = {}
        self.taken: list[Any] = []

    def clear(self, slot: int) -> None:
        self.values[slot] = []

    def push(self, slot: int, nbytes: int) -> int:
        self.values[slot].append(ctypes.create_string_buffer(max(nbytes, 1)))
        return ctypes.addressof(self.values[slot][-1])

    def pop(self, slot: int) -> int:
        if not self.values[slot]:
            raise StackEmpty
        self.taken.append(self.values[slot].pop())
        return ctypes.addressof(self.taken[-1])


class Device:
    """One device of a run, a row at a time. `row` is the next one; None: a piece has to be picked;
    -1: all is done.
    """

    def __init__(
        self,
        number: int,
        part: Part,
        frame: Frame,
        channels: Sequence[Channel],
        mail: dict[int, Any],
    ) -> None:
        self.number, self.part, self.frame, self.mail = number, part, frame, mail
        self.words = part.image.table.tolist()
        self.walk = Walk(self.words, frame.bases.tolist(), _Stacks(), self)  # type: ignore[arg-type]
        self.kernels = [_KERNEL(address) for address in part.kernels.tolist()]
        self.row: int | None = 0
        self.channels = channels
        agenda = part.agenda
        self.starts = [0] if agenda is None else list(agenda.rows)
        self.counts = [0] if agenda is None else list(agenda.counts)
        self.begun_by = {} if agenda is None else {s: c for c, s in agenda.messages.items()}
        self.open: set[int] = set()

    def ready(self) -> list[int]:
        """The rows of pieces that may begin, in the scheduler's order."""
        there = (s for s in sorted(self.open) if self.begun_by.get(s, -1) in (-1, *self.mail))
        return [self.starts[segment] for segment in there]

    def may_step(self) -> bool:
        """Whether the next row need not wait."""
        if self.row is None:
            return bool(self.ready())
        opcode = self.words[self.row] if self.row >= 0 else None
        if opcode in (SEND, WAIT):
            is_full = self.words[self.row + 3] in self.mail
            return is_full if opcode == WAIT else not is_full
        return opcode is not None

    def step(self, row: int) -> None:
        """Do a row, which is the next one or begins a piece that is ready. Raises _Failed."""
        if self.row is None:
            self.open.remove(self.starts.index(row))
        following = row + self.words[row + 1]
        if self.words[row] == END:
            self._end(row, following)
            return
        try:
            self.row = self.walk.rows[self.words[row]](row, following)
        except StackEmpty:
            raise _Failed(EMPTY) from None

    def _end(self, row: int, following: int) -> None:
        self.row = following if following < len(self.words) else -1
        if self.part.agenda is None or self.row < 0:
            return
        self.row = None
        for segment in self.words[row + 2 : following]:
            self.counts[segment] -= 1
            if self.counts[segment] == 0:
                self.open.add(segment)

    # -- what rows do

    def begin(self, row: int) -> None:
        pass

    def call(self, row: int, addresses: tuple[int, ...]) -> None:
        cancel = self.frame.address + 8 * FrameWords.cancel
        operands = (ctypes.c_void_p * (len(addresses) + 2))(0, cancel, *addresses)
        first = ctypes.addressof(operands) + 2 * ctypes.sizeof(ctypes.c_void_p)
        parameters = address_of(self.part.image.words) + 8 * self.words[row + 5]
        units = self.words[row + 3]
        status = self.kernels[self.words[row + 2]](first, parameters, 0, units, 0)
        if status:
            raise _Failed(status)

    def copy(self, nbytes: int, target: int, source: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def branch(self, walk: Walk, row: int, verdict: int, following: int) -> int:
        return following if ctypes.string_at(verdict, 1) != b"\0" else walk.words[row + 2]

    def again(self, walk: Walk, row: int, following: int) -> int:
        return walk.words[row + 3]

    def compare(self, apart: int) -> None:
        """Nothing depends on it."""

    def send(self, row: int, address: int) -> None:
        """A message is its bytes, or where they lie until they are taken."""
        nbytes, channel = self.words[row + 2 : row + 4]
        is_copied = self.channels[channel].buffered
        self.mail[channel] = ctypes.string_at(address, nbytes) if is_copied else address

    def receive(self, row: int, address: int) -> None:
        nbytes, channel = self.words[row + 2 : row + 4]
        ctypes.memmove(address, self.mail.pop(channel), nbytes)


Chooser = Callable[[list[Device]], tuple[int, int]]


def run_steps(
    executable: Executable,
    arrays: Sequence[Any],
    choose: Chooser,
    device: Callable[..., Device] = Device,
) -> tuple[Ends, Order]:
    """Run row by row, in an order that is chosen and on devices of a kind: the results and the
    variables, or why it failed, and the order.  Raises GraphError for devices that are elsewhere.
    """
    _require_here(executable)
    order: Order = []
    with _taken_back(executable) as variables:
        frame, outputs = executable.begin(arrays)
        try:
            _spoil(executable, frame)
            executable.go(frame, lambda frame: _walked(executable, frame, choose, order, device))
        except _Misfit:
            raise
        except GraphError as error:
            return error, order
        finally:
            executable.give(frame)
        return [*outputs, *variables()], order


@contextmanager
def _taken_back(executable: Executable) -> Iterator[Callable[[], list[Any]]]:
    """A run whose variables get their values back; what it yields has those of the run."""
    binding = executable._binding
    cells = binding.found() if binding is not None else []
    before = [(cell, cell.host().copy()) for cell in cells if cell.ready]
    try:
        yield lambda: [cell.host().copy() for cell in cells]
    finally:
        for cell, value in before:
            np.copyto(cell.host(), value)


def _spoil(executable: Executable, frame: Frame) -> None:
    """Fill what no row has written yet: a result that depends on it is the same each time."""
    given = frame.arrays[: len(executable.params)]
    made = (a for a in frame.arrays if not any(a is argument for argument in given))
    for array in (*(each.arena for each in frame.frames), *made):
        if isinstance(array, np.ndarray):
            array.reshape(-1).view(np.uint8)[...] = 0xFF


def _walked(
    executable: Executable,
    frame: Frame,
    choose: Chooser,
    order: Order,
    device: Callable[..., Device],
) -> int:
    """Do rows until all devices are done; the status of the run."""
    mail: dict[int, Any] = {}
    pairs = enumerate(zip(executable.parts, frame.frames, strict=True))
    channels = executable.image.channels
    devices = [device(number, part, each, channels, mail) for number, (part, each) in pairs]
    frame.words[FrameWords.row] = 0
    while any(each.row != -1 for each in devices):
        if not any(each.may_step() for each in devices):
            raise RunError("the devices wait for each other")
        number, row = choose(devices)
        order.append((number, row))
        try:
            devices[number].step(row)
        except _Failed as failure:
            first = sum(len(each.words) for each in devices[:number])
            frame.words[FrameWords.row] = first + row
            return failure.status
        if frame.words[FrameWords.cancel]:
            return CANCELLED
    return 0


# ------------------------------------------------------------------------------------ orders


def _next_row(device: Device) -> int:
    return device.ready()[0] if device.row is None else device.row


class First:
    """The first device that need not wait, and its first piece."""

    def __call__(self, devices: list[Device]) -> tuple[int, int]:
        device = next(each for each in devices if each.may_step())
        return device.number, _next_row(device)


class _Wandering:
    """Any device, which likely goes on for a while, and any piece of it."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.latest = -1

    def __call__(self, devices: list[Device]) -> tuple[int, int]:
        able = [each for each in devices if each.may_step()]
        goes_on = [each for each in able if each.number == self.latest]
        is_same = goes_on and self.draw.random() < KEEP_ON
        device = goes_on[0] if is_same else self.draw.choice(able)
        self.latest = device.number
        return device.number, _picked(device, self.draw)


class _Ranked:
    """The device of the highest rank that need not wait; ranks change a few times.

    Few changes at the right places show most races ("A randomized scheduler with probabilistic
    guarantees of finding bugs", Burckhardt et al., 2010).
    """

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.ranks: dict[int, float] = {}
        self.left = 0

    def __call__(self, devices: list[Device]) -> tuple[int, int]:
        self.ranks = self.ranks or {each.number: self.draw.random() for each in devices}
        able = [each for each in devices if each.may_step()]
        device = max(able, key=lambda each: self.ranks[each.number])
        if self.left == 0:
            rows = sum(len(each.words) for each in devices) // 4
            self.left = self.draw.randint(1, max(1, rows // CHANGES))
            self.ranks[device.number] = self.draw.random() - 1
        self.left -= 1
        return device.number, _picked(device, self.draw)


def _picked(device: Device, draw: random.Random) -> int:
    return draw.choice(device.ready()) if device.row is None else device.row


class _Followed:
    """A recorded order; two rows of one moment may have been the other way round.

    Of a recording that is not `is_whole`, what it does not tell of a device is done in the
    scheduler's order, where the rest of what it tells has to wait for that.
    """

    def __init__(self, order: Order, is_whole: bool) -> None:
        self.left = order[::-1]
        self.is_whole = is_whole

    def __call__(self, devices: list[Device]) -> tuple[int, int]:
        seen: set[int] = set()
        for position in range(len(self.left) - 1, -1, -1):
            number, row = self.left[position]
            device = devices[number]
            if number not in seen and device.may_step() and _is_next(device, row):
                del self.left[position]
                return number, row
            seen.add(number)
            if len(seen) == len(devices):
                break
        known = {number for number, _ in self.left}
        rest = [each for each in devices if each.number not in known and each.may_step()]
        if self.is_whole or not rest:
            raise _Misfit("the recorded order cannot be: it is damaged, or of another program")
        return First()(rest)


def _is_next(device: Device, row: int) -> bool:
    return row in device.ready() if device.row is None else row == device.row
