"""`Part`: the share of one device in a program, linked.  `Frame`: the state of one run of it."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import numpy as np

from graphc.runtime.call import native_support
from graphc.runtime.call.array import Array
from graphc.runtime.call.host import Trampoline
from graphc.runtime.call.library_runs import LibraryRun
from graphc.runtime.call.memory import address_of, aligned_bytes, result_array
from graphc.runtime.devices.device import default_threads
from graphc.runtime.devices.ready_segments import Ready, agenda_of
from graphc.runtime.load import load
from graphc.runtime.load.layouts import FrameWords, StackWords
from graphc.runtime.load.program import Image, Slot, numpy_dtype
from graphc.runtime.load.table import ARENA, CONSTANTS, can_split, most_operands, stack_slots

_NOTHING = np.zeros(0, np.int64)


class Part:
    """An image whose kernels are linked.  `threads` is what one kernel may use, `hosts` the kernels
    that call Python: a GPU has none."""

    hosts: Mapping[str, Trampoline] = MappingProxyType({})
    is_left = False  # whether runs need not be waited for

    def __init__(self, image: Image, threads: int | None) -> None:
        self.image = image
        words = image.table.tolist()
        self.most_operands = most_operands(words)
        self.stack_slots = stack_slots(words)
        self.agenda = agenda_of(words)
        wanted = threads or default_threads()
        self.threads = min(image.threads, wanted) if can_split(words) else 1
        self.support = native_support.support(image.support)
        addresses: dict[str, int] = {}
        self.linked: list[load.Linked] = []  # the code is there as long as these are
        for code, symbols in image.objects:
            found = load.link(code, symbols, addresses)
            self.linked.append(found)
            addresses.update((symbol, found[symbol]) for symbol in symbols)
        self.hosts = {symbol: Trampoline(host) for symbol, host in image.hosts.items()}
        addresses.update((symbol, host.address) for symbol, host in self.hosts.items())
        self.kernels = np.array([addresses[symbol] for symbol in image.kernels], np.int64)

    def called(self, row: int) -> str:
        """What a row of the table calls: the name of a kernel, or of a library."""
        name: str = self.image.kernels[self.image.table[row + 2]]
        return name

    def words(self, count: int) -> np.ndarray[Any, Any]:
        """Memory for the state of a run: zeros."""
        return np.zeros(count, np.int64)

    def result(self, slot: Slot) -> np.ndarray[Any, Any] | Array:
        """A new array where the device computes."""
        return result_array(slot.shape, numpy_dtype(slot.dtype))

    def taken(self, array: Array, slot: Slot) -> Array | None:
        """An argument where the device computes; None for one that has to come from the host."""
        return None

    def operands(self, arrays: Sequence[Any]) -> Any:
        """What a run that is left takes; None for arguments of which it has to be waited for."""
        return None

    def go(self, frame: Frame) -> int:
        """Do a run; the status it ends with."""
        return self.support.run(frame.address)

    def furnish(self, frame: Frame) -> None:
        """Give a new frame what its run needs: the table, the kernels, memory."""
        image, words = self.image, frame.words
        frame.arena = aligned_bytes(image.arena_bytes)
        frame.stacks = np.zeros((self.stack_slots, len(StackWords.fields)), np.int64)
        words[FrameWords.table] = address_of(image.table)
        words[FrameWords.kernels] = address_of(self.kernels)
        words[FrameWords.parameters] = address_of(image.words)
        words[FrameWords.operands] = self.most_operands
        words[FrameWords.threads] = self.threads
        if self.stack_slots:
            words[FrameWords.stacks] = address_of(frame.stacks)
            frame.budget[0] = image.stack_bytes
            words[FrameWords.budget] = address_of(frame.budget)
            weakref.finalize(frame, free_stacks, frame.stacks).atexit = False
        if self.agenda is not None:
            frame.ready = Ready(self.agenda)
            words[FrameWords.agenda] = frame.ready.address
        frame.bases[ARENA] = address_of(frame.arena)
        frame.bases[CONSTANTS] = address_of(image.constants)


def part_of(image: Image, threads: int | None) -> Part:
    """The share of a device: a CPU links its kernels, a GPU loads them."""
    if not image.on_gpu:
        return Part(image, threads)
    from graphc.runtime.cuda.part import DevicePart

    return DevicePart(image)


class Frame:
    """The state of one run: `words` is what the walker reads, `arena` its memory, `held` the locks.

    `stacks` holds (memory, bytes there, bytes in use) of every stack; the memory grows at run time,
    serves later runs too and is freed with the frame.  `ready` says which segments may run, where
    there are several, and `own` is what a GPU needs besides.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "apart",
        "arena",
        "arrays",
        "bases",
        "budget",
        "flag",
        "held",
        "own",
        "ready",
        "stacks",
        "variables",
        "words",
    )

    def __init__(self, part: Part) -> None:
        image = part.image
        self.held: ExitStack | None = None
        self.arrays: tuple[np.ndarray | Array, ...] = ()
        self.own: Any = None
        self.apart: LibraryRun | None = None  # the run, where it goes on by itself
        self.ready: Ready | None = None
        self.words = part.words(FrameWords.bases + image.bases)
        self.address = address_of(self.words)
        self.flag = self.address + 8 * FrameWords.in_use
        self.bases = self.words[FrameWords.bases :]
        self.variables = slice(image.first_variable, image.first_register)
        self.arena: np.ndarray[Any, Any] = _NOTHING
        self.stacks: np.ndarray[Any, Any] = _NOTHING.reshape(0, 3)
        self.budget = np.zeros(1, np.int64)  # what stacks may still take, on all devices of the run
        part.furnish(self)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames of all devices of the run."""
        return (self,)

    @property
    def stack_bytes(self) -> int:
        """The memory that stacks have grown to."""
        return sum(int(frame.stacks[:, StackWords.room].sum()) for frame in self.frames)

    def bind(self, addresses: Sequence[int]) -> None:
        """Point at the variables."""
        self.bases[self.variables] = addresses

    def cancel(self) -> None:
        """Have the run stop before its next step."""
        self.words[FrameWords.cancel] = 1

    def after_fork(self) -> None:
        """A forked child has no thread that uses the frame."""
        self.apart = None
        self.words[FrameWords.in_use] = 0


def free_stacks(stacks: np.ndarray) -> None:
    """Give the memory of a frame's stacks back."""
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(load.process_symbol("free"))
    for memory in stacks[:, StackWords.memory].tolist():
        free(memory or None)
