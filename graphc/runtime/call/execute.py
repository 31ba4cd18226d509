"""`Executable`: a loaded image that runs on NumPy arrays.

A run takes a frame (arena, base registers, cancel flag) from the executable's list, points the
base registers at the caller's arrays, and walks the step table natively without the GIL.  Runs of
several threads each hold a frame of their own; a few are kept, within `tuned.kept_arenas`.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from graphc.base.odd_arrays import odd_kind
from graphc.errors import FeedError, LimitError
from graphc.forks import fork_safe_lock
from graphc.runtime.call import entry
from graphc.runtime.call.array import Array
from graphc.runtime.call.binding import Binding, Homes
from graphc.runtime.call.failure import explain, take_error
from graphc.runtime.call.frame import Frame, Part, part_of
from graphc.runtime.call.interrupt import EVER, stop_on_interrupt
from graphc.runtime.call.library_runs import is_apart, on_one_thread, shares_library, walk_apart
from graphc.runtime.call.memory import address_of, result_array
from graphc.runtime.call.nesting import Build, Fetch, nested
from graphc.runtime.call.pending import Pending
from graphc.runtime.call.weak_set import WeakSet
from graphc.runtime.load.layouts import ContextWords, FrameWords
from graphc.runtime.load.program import Image, Slot, dtype_name, numpy_dtype
from graphc.runtime.load.table import FIRST_PARAM, has_jumps
from graphc.runtime.tuning import tuned
from graphc.seams import cpython

Value = np.ndarray | Array

executables: WeakSet[Executable] = WeakSet()


def stop_all(begun_by: int = EVER) -> None:
    """Cancel every run of the process that is in flight and began by this time."""
    for executable in executables:
        executable.cancel(begun_by)


def _frames_of(this: weakref.ref[Executable], device: int) -> list[Frame]:
    """The frames that a device has for the runs of an executable."""
    found = this()
    return [frame.frames[device] for frame in found.frames] if found is not None else []


class Executable:
    """A compiled partition, ready to run."""

    def __init__(self, image: Image, *, threads: int | None = None) -> None:
        image.check()
        self.image = image
        self.part = part_of(image, threads)
        self.support, self.threads = self.part.support, self.part.threads
        self.others: list[Part] = []  # of further devices
        self.is_left = self.part.is_left and not image.others
        self._drops = bool(image.others) or has_jumps(image.table.tolist())
        self._param_dtypes = [numpy_dtype(slot.dtype) for slot in image.params]
        self._result_dtypes = [numpy_dtype(slot.dtype) for slot in image.results]
        self._frames: tuple[Frame, ...] = ()
        self._extra: tuple[Frame, ...] = ()
        self._left: deque[Pending] = deque()  # runs in order, those that nobody has waited for
        self.ended: tuple[Frame, ...] = ()  # the frame of the latest that has ended
        self._lock = fork_safe_lock()
        arenas = max(1, sum(i.arena_bytes for i in image.images))
        self._kept_frames = max(1, min(entry.MOST_FRAMES, tuned.kept_arenas // arenas))
        ahead = max(2, tuned.pending_arenas // arenas)
        self._most_ahead = min(ahead, tuned.pending, self._kept_frames)
        self._runs = 0
        self._fastest = 1 << 62
        # What the native entry points to outlives this object where the entry does.
        owned = [(v, each.on_gpu) for each in image.images for v in each.variables]
        self._binding = Binding(*zip(*owned, strict=True)) if owned else None
        self._keep: list[Any] = [image, self.part]
        dtypes = (*self._param_dtypes, *self._result_dtypes)
        self._is_apart = any(map(is_apart, image.images))
        self._shares_library = any(map(shares_library, image.images))
        self._context = (
            None
            if self._is_apart or self._shares_library
            else entry.make_context(image, dtypes, self._binding, self._keep)
        )
        self.entry = self._make_entry()
        self._tell_hosts(self._binding.homes if self._binding is not None else ())
        executables.add(self)
        stop_on_interrupt(stop_all)

    def be_part_of(self, homes: Homes) -> None:
        """Have its runs be part of longer ones, which hold these containers."""
        if self._binding is not None:
            self._binding.is_part = True
        self._tell_hosts(homes)

    def _tell_hosts(self, homes: Homes) -> None:
        """Tell the calls of Python which containers a run holds."""
        this = weakref.ref(self)
        for number, part in enumerate(self.parts):
            for host in part.hosts.values():
                host.homes, host.frames = homes, partial(_frames_of, this, number)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The states of all its runs."""
        return (*self._frames, *self._extra)

    def _make_entry(self) -> Callable[..., Any]:
        """The native entry: arrays in; an array or tuple out, None (use `run`), or a failure."""
        if self._context is None:
            return no_entry
        return cpython.builtin(self.support.addresses["graphc_entry"], self._context)

    def nested_entry(
        self, arguments: int, fetches: Sequence[Fetch], builds: Sequence[Build]
    ) -> Callable[..., Any]:
        """As `entry`, for so many arguments out of which arrays are fetched; nests the results."""
        if self._context is None:
            return no_entry
        address = self.support.addresses["graphc_nested"]
        return nested(address, self._context, arguments, fetches, builds) or no_entry

    @property
    def parts(self) -> list[Part]:
        """The shares of all devices."""
        return [self.part, *self.others]

    @property
    def params(self) -> tuple[Slot, ...]:
        return self.image.params

    @property
    def results(self) -> tuple[Slot, ...]:
        return self.image.results

    def __call__(self, *arrays: Value) -> Any:
        """Run on flat arrays; returns one array for one result, else a tuple.  Errors as `run`."""
        try:
            outcome = self.entry(*arrays)
        except MemoryError:
            raise self._no_memory() from None
        if outcome is None:
            results = self.run(arrays)
            return results[0] if len(results) == 1 else tuple(results)
        if outcome.__class__ is int:
            raise self.failed(outcome)
        return outcome

    def of(self, arrays: Sequence[Value]) -> Executable:
        """What runs these arrays."""
        return self

    def run(self, arrays: Sequence[Value], *, checked: bool = False) -> list[Any]:
        """Run on flat arrays, one per parameter; returns new arrays, one per result.

        `checked` promises arrays of the right dtype and shape in native, aligned, C-contiguous
        memory.  A result that takes over a donated argument is that very array.
        Raises FeedError for arguments that do not fit and RunError when a step fails.  After a
        failure donated arguments are undefined, and each variable that the run writes holds its
        old value, its new one or, where a kernel wrote in place, some elements of both; programs
        compiled with `check_finite` leave all of them as they were.
        """
        frame, outputs = self.begin(arrays, checked=checked)
        try:
            self.go(frame)
        finally:
            self.give(frame)
        return [o.numpy() if isinstance(o, Array) else o for o in outputs]

    def traced(self, arrays: Sequence[Value], room: int) -> tuple[list[Any], list[np.ndarray]]:
        """As `run`, and the log of each device (see `LogWords`), of so many rows at most."""
        frame, outputs = self.begin(arrays)
        logs = [np.empty(2 + 2 * room, np.int64) for _ in frame.frames]
        try:
            for log, each in zip(logs, frame.frames, strict=True):
                log[:2] = 0, room
                each.words[FrameWords.log] = address_of(log)
            self.go(frame)
        finally:
            for each in frame.frames:
                each.words[FrameWords.log] = 0
            self.give(frame)
        return outputs, logs

    def run_resident(self, arrays: Sequence[Value]) -> list[Array]:
        """As `run`, but the results stay on the device until they are read: those of `launch`,
        where that can be."""
        launched = self.launch(arrays)
        if launched is not None:
            return launched
        frame, outputs = self.begin(arrays, resident=True)
        try:
            self.go(frame)
        finally:
            self.give(frame)
        made = zip(outputs, self.results, strict=True)
        return [o if isinstance(o, Array) else Array(slot, o) for o, slot in made]

    def launch(self, arrays: Sequence[Any]) -> list[Array] | None:
        """Begin a run on arrays of a GPU, and small ones of the host, and wait for nothing: its
        results do, when they are read.

        None where a run has to be waited for, or for other arrays.
        """
        given = self.part.operands(arrays) if self.is_left else None
        if given is None:
            return None
        frame = self._frame_ahead()
        try:
            made: list[Array] = frame.own.launch(arrays, given)
            run = Pending(self, frame, given.after)
        except BaseException:
            self.give(frame)
            raise
        self._left.append(run)
        for array in made:
            array.written()  # a donated one is
            array.pending = run
        if frame in self._extra:  # it goes with the run
            run.end()
        return made

    def go(self, frame: Frame, walk: Callable[[Frame], int] | None = None) -> None:
        """Do what a begun run does, with another walker in place of the native one if there is one.

        Raises RunError when a step fails.
        """
        status = self._walk(frame) if walk is None else walk(frame)
        if status:
            raise self.failure(status, int(frame.words[FrameWords.row]))
        if self._binding is not None:
            self._binding.wrote()

    def begin(
        self, arrays: Sequence[Value], *, checked: bool = False, resident: bool = False
    ) -> tuple[Frame, list[Any]]:
        """A frame that points to the arrays and to new results; to be given back with `give`.

        New results are NumPy arrays or, if they are `resident`, arrays of the device.
        """
        if not checked:
            arrays = self._fit_all(arrays)
        if self.image.donated:
            arrays = self._own_donated(arrays)
        outputs = self._outputs(arrays, resident)
        frame = self._take()
        frame.arrays = (*arrays, *outputs)  # among them copies that nobody else keeps
        frame.bases[FIRST_PARAM : self.image.first_variable] = [
            array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else 0
            for array in frame.arrays
        ]
        if self._binding is not None:
            try:
                self._enter(frame, self._binding)
            except BaseException:
                self.give(frame)
                raise
        return frame, outputs

    def _enter(self, frame: Frame, binding: Binding) -> None:
        """Wait for the variables of a run; point every frame at them if none does yet.

        A frame that is kept although the wait was broken off must not point anywhere else.
        """
        addresses = binding.addresses
        if addresses is not None:
            frame.bind(addresses)
        frame.held = binding.hold()
        addresses = binding.addresses
        if addresses is None:
            addresses = binding.bind()
            for each in self._frames:
                each.bind(addresses)
        frame.bind(addresses)

    def _outputs(self, arrays: Sequence[Value], resident: bool) -> list[Value]:
        donated = self.image.donated or (-1,) * len(self.image.results)
        triples = zip(self.image.results, self._result_dtypes, donated, strict=True)
        try:
            return [
                arrays[param]
                if param >= 0
                else self.part.result(slot)
                if resident
                else result_array(slot.shape, dtype)
                for slot, dtype, param in triples
            ]
        except MemoryError:
            raise self._no_memory() from None

    def _own_donated(self, arrays: Sequence[Value]) -> list[Value]:
        """Copies of donated arguments that are read-only or overlap another argument."""
        owned = list(arrays)
        for param in self.image.donated:
            if param >= 0:
                owned[param] = _own(owned[param], [*owned[:param], *owned[param + 1 :]])
        return owned

    def _no_memory(self) -> LimitError:
        kinds = ", ".join(f"{slot.name}: {slot}" for slot in self.image.results)
        return LimitError(f"no memory for the results of {self.image.name}", details=(kinds,))

    def _walk(self, frame: Frame) -> int:
        """Walk the table; after a few measured runs the native entry may take over."""
        if self.threads > self.support.threads:
            self.support.start(self.threads)
        begin = time.perf_counter_ns()
        status = walk_apart(self._go, frame) if self._is_apart else self._go(frame)
        if self._context is not None and not self._context[ContextWords.ready]:
            self._fastest = min(self._fastest, time.perf_counter_ns() - begin)
            self._runs += 1
            self._context[ContextWords.drop_gil] = (
                self._drops or self._fastest > tuned.gil_nanoseconds
            )
            self._context[ContextWords.ready] = self._runs >= tuned.measured_runs
        return status

    def _go(self, frame: Frame) -> int:
        if not self._shares_library:
            return self.part.go(frame)
        with on_one_thread:
            return self.part.go(frame)

    def _close_entry(self) -> None:
        """Have calls come through `run` until the next one has measured itself."""
        if self._context is not None:
            self._context[ContextWords.ready] = 0

    @property
    def stack_bytes(self) -> int:
        """The memory that stacks have grown to, over all runs so far."""
        return sum(frame.stack_bytes for frame in self.frames)

    def cancel(self, begun_by: int = EVER) -> None:
        """Stop the runs that are in flight and began by this time; each raises RunError before its
        next step."""
        for frame in self.frames:
            if frame.words[FrameWords.begun] <= begun_by:
                frame.cancel()

    def _take(self) -> Frame:
        """A frame that nobody uses: that of the oldest run that is left, or a new one."""
        while (found := self._free_frame()) is None:
            try:
                self._left.popleft().end()
            except IndexError:
                return self._new_frame()
        return found

    def _frame_ahead(self) -> Frame:
        """As `_take`, for a run that is left: a new one before the oldest of few is waited for."""
        while len(self._left) >= self._most_ahead:
            with suppress(IndexError):  # another thread was here
                self._left.popleft().end()
        found = self._free_frame()
        if found is None and len(self._frames) < self._most_ahead:
            return self._new_frame()
        return found or self._take()

    def _free_frame(self) -> Frame | None:
        for frames in (self.ended, self._frames):
            for frame in frames:
                if self.support.acquire(frame.flag):
                    frame.words[FrameWords.cancel] = 0
                    frame.words[FrameWords.begun] = time.monotonic_ns()
                    return frame
        return None

    def _new_frame(self) -> Frame:
        frame = self._make_frame()
        frame.words[FrameWords.in_use] = 1
        frame.words[FrameWords.begun] = time.monotonic_ns()
        with self._lock:
            count = len(self._frames)
            if count == self._kept_frames:
                self._extra = (*self._extra, frame)
                return frame
            self._frames = (*self._frames, frame)
            self._keep.append(frame)
            if self._context is not None:
                self._context[ContextWords.first_frame + count] = frame.address
                self._context[ContextWords.frames] = count + 1
        return frame

    def _make_frame(self) -> Frame:
        return Frame(self.part)

    def give(self, frame: Frame) -> None:
        """End the use of a frame; one whose run goes on is free when that ends."""
        if frame.apart is not None:
            if not frame.apart.is_over(partial(self.give, frame)):
                return
            frame.apart = None
        if frame.held is not None:
            frame.held.close()
            frame.held = None
        frame.arrays = ()
        if frame in self._extra:
            with self._lock:
                self._extra = tuple(other for other in self._extra if other is not frame)
        frame.words[FrameWords.in_use] = 0

    def _after_fork(self) -> None:
        """In a forked child runs of other threads do not exist, nor do the pool's workers."""
        self._extra = ()
        for frame in self._frames:
            frame.after_fork()
        self._close_entry()

    def _fit_all(self, arrays: Sequence[Value]) -> list[Value]:
        params = self.image.params
        if len(arrays) != len(params):
            expected = ", ".join(f"{slot.name}: {slot}" for slot in params)
            raise FeedError(
                f"{self.image.name} takes {len(params)} arrays, {len(arrays)} given",
                details=(f"expected {expected}",) if params else (),
            )
        return list(map(self._fit, arrays, params, self._param_dtypes))

    def _fit(self, array: Value, slot: Slot, dtype: np.dtype) -> Value:
        taken = self.part.taken(array.wait(), slot) if isinstance(array, Array) else None
        return fit(array, slot, dtype) if taken is None else taken

    def failed(self, outcome: int) -> BaseException:
        """The error that an integer from the native entry stands for."""
        status = outcome & 0xFFFFFFFF
        return self.failure(status - (status >> 31 << 32), outcome >> 32)

    def failure(self, status: int, row: int) -> BaseException:
        """The error of a row that ended with a nonzero status."""
        return take_error(status) or explain(self.image, status, row)


def _own(array: Value, others: Sequence[Value]) -> Value:
    """The array, if a run may write to it, else a copy."""
    if isinstance(array, Array):
        shared = any(isinstance(other, Array) and array.overlaps(other) for other in others)
        owned = array.copied() if shared or array.read_only else array
        owned.written()
        return owned
    hosts = (other for other in others if isinstance(other, np.ndarray))
    shared = any(np.may_share_memory(array, other) for other in hosts)
    return array.copy(order="C") if shared or not array.flags.writeable else array


def no_entry(*_arrays: np.ndarray) -> None:
    """The entry where there is no native one."""


def fit(array: object, slot: Slot, dtype: np.dtype) -> np.ndarray:
    """The array, or a native, aligned, contiguous copy; FeedError if it does not fit."""
    if type(array) is np.ndarray and array.dtype == dtype and array.shape == slot.shape:
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else array.copy(order="C")
    if isinstance(array, Array):
        return fit(array.numpy(), slot, dtype)
    if not isinstance(array, (np.ndarray, np.generic)):
        kind = type(array).__name__
        raise FeedError(f"argument {slot.name!r} is a {kind}; an array {slot} is expected")
    if kind := odd_kind(array):
        raise FeedError(f"argument {slot.name!r} is a {kind}; a plain array is expected")
    plain = np.asarray(array)
    if plain.shape != slot.shape or plain.dtype.newbyteorder("=") != dtype:
        given = f"{dtype_name(plain.dtype)}[{','.join(map(str, plain.shape))}]"
        same = plain.shape == slot.shape
        hint = f"convert it: .astype('{dtype.name}')" if same else None
        raise FeedError(f"argument {slot.name!r} is {given}; {slot} is expected", hint=hint)
    return plain.astype(dtype, order="C", copy=True)


def _after_fork() -> None:
    for executable in executables:
        executable._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
