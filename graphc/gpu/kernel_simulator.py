"""What `numba.cuda` is where GPUs are simulated: kernels are Python functions over NumPy arrays.

The threads of a block take turns.  One runs until it meets a barrier, waits for what another lane
passes to it, or ends; then the next one does.  Who is next is drawn in every round, at each launch
from the same seed: code that counts on an order of threads fails, and fails again.  What several
threads do to an element of shared memory without a barrier is refused, and so are places before
the memory that a kernel is given, where NumPy would count from the end.  Shared and local memory is
full of NaN, so that nobody counts on what lies there.

Numba's own simulator makes a thread of Python of each thread, which takes ten times as long and has
neither warps nor an order that repeats.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.seams.cpython import frame_above

try:
    from greenlet import greenlet
except ImportError as error:
    raise GraphError(
        f"simulated GPUs need greenlet, which cannot be imported: {error}",
        hint="pip install 'graphc[simulator]'",
    ) from None

Function = Callable[..., Any]
WARP = 4  # threads that pass values to each other

_launching = threading.Lock()  # what `cuda` holds is of one launch


def drawn(threads: list[Thread], chance: random.Random) -> None:
    chance.shuffle(threads)


order: Callable[[list[Thread], random.Random], None] = drawn  # the threads of a round, in place


class Index:
    """threadIdx, blockIdx, blockDim or gridDim. Launches have one axis."""

    def __init__(self, x: int) -> None:
        self.x = x


class Thread:
    """A thread of a block: what it has passed to other lanes, and what it waits for."""

    def __init__(self, number: int, run: Callable[[], Any]) -> None:
        self.running = greenlet(run)
        self.running.gr_context = copy_context()  # NumPy keeps there what it warns of
        self.ended = False
        self.index = Index(number)
        self.barrier: Any = None  # the place in the code
        self.partner: Thread | None = None
        self.passed: list[Any] = []

    def waits(self) -> bool:
        if self.barrier is not None:
            return True
        other = self.partner
        return other is not None and not other.ended and len(other.passed) < len(self.passed)

    def take_turn(self) -> None:
        """Run until it waits or ends."""
        self.running.switch()
        self.ended = bool(self.running.dead)

    def give_turn(self) -> None:
        """Called by itself: return from `take_turn`."""
        self.running.parent.switch()


class Pointer(np.ndarray[Any, Any]):
    """Memory that a kernel is given: nothing lies before its first element."""

    def __getitem__(self, place: Any) -> Any:
        self.check(place)
        return super().__getitem__(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        self.check(place)
        super().__setitem__(place, value)

    @staticmethod
    def check(place: Any) -> None:
        """Raise IndexError for a place that NumPy would count from the end."""
        if ((place.start or 0) if isinstance(place, slice) else place) < 0:
            raise IndexError(f"element {place} lies before the memory that a kernel is given")


def pointer(argument: Any) -> Any:
    """An argument as a kernel sees it."""
    flat = isinstance(argument, np.ndarray) and argument.ndim == 1
    return argument.view(Pointer) if flat else argument


class Atomic:
    """No other thread comes between, for threads take turns."""

    def add(self, array: Any, place: Any, value: Any) -> Any:
        array = array.array if isinstance(array, Watched) else array  # several may add to it
        old = array[place]
        array[place] += value
        return old

    def max(self, array: Any, place: Any, value: Any) -> Any:
        old = array[place]
        array[place] = max(old, value)
        return old

    def min(self, array: Any, place: Any, value: Any) -> Any:
        old = array[place]
        array[place] = min(old, value)
        return old


class Local:
    def array(self, shape: Any, dtype: Any, alignment: int = 16) -> Any:
        made = np.empty(shape, dtype)
        made.reshape(-1).view(np.uint8)[:] = 0xFF
        return made


class Watched:
    """Shared memory: between two barriers no thread touches what another one writes."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.touched: dict[Any, tuple[int, bool]] = {}  # by whom (-1: several), and written?

    def __getitem__(self, place: Any) -> Any:
        self.touch(place, False)
        return self.array[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.touch(place, True)
        self.array[place] = value

    def view(self, dtype: Any) -> Any:
        """The memory as an array of something else, which is not watched."""
        return self.array.view(dtype)

    def touch(self, place: Any, writes: bool) -> None:
        if isinstance(place, slice):
            for each in range(*place.indices(len(self.array))):
                self.touch(each, writes)
            return
        thread, touched = cuda.threadIdx.x, self.touched
        found = touched.get(place)
        if found is None:
            touched[place] = thread, writes
            return
        other, written = found
        if other == thread:
            if writes and not written:
                touched[place] = thread, True
        elif written or writes:
            raise RuntimeError(
                f"threads {max(other, 0)} and {thread} touch element {place} of shared memory,"
                " which one of them writes, with no barrier in between"
            )
        elif other >= 0:
            touched[place] = -1, False


class Shared(Local):
    """Arrays of a block: one for each place in the code that asks."""

    def __init__(self) -> None:
        self.arrays: dict[Any, Any] = {}

    def array(self, shape: Any, dtype: Any, alignment: int = 16) -> Any:
        place = _caller(), shape, dtype  # device functions are compiled for each type
        if place not in self.arrays:
            self.arrays[place] = Watched(super().array(shape, dtype))
        return self.arrays[place]


def _caller() -> Any:
    """The place in a kernel that calls what calls this."""
    frame = frame_above(2)
    return frame.f_code, frame.f_lasti


class Simulated:
    """The part of the module `numba.cuda` that kernels use, for the thread whose turn it is."""

    gridDim: Index
    blockDim: Index
    blockIdx: Index
    threadIdx: Index
    shared: Shared

    def __init__(self) -> None:
        self.atomic, self.local = Atomic(), Local()
        self.threads: list[Thread] = []  # of the block
        self.votes: list[bool] = []

    def jit(self, function: Function | None = None, device: bool = False) -> Any:
        if function is None:
            return lambda given: self.jit(given, device)
        return function if device else Kernel(function)

    def grid(self, axes: int) -> int:
        return self.blockIdx.x * self.blockDim.x + self.threadIdx.x

    def gridsize(self, axes: int) -> int:
        return self.gridDim.x * self.blockDim.x

    def syncthreads(self) -> None:
        thread = self.threads[self.threadIdx.x]
        thread.barrier = _caller()
        thread.give_turn()

    def syncthreads_count(self, value: Any) -> int:
        self.votes[self.threadIdx.x] = bool(value)
        self.syncthreads()
        count = sum(self.votes)
        self.syncthreads()
        return count

    def shfl_xor_sync(self, mask: int, value: Any, step: int) -> Any:
        """What the thread passes whose number differs by the bit `step`."""
        return self._passed(value, self.threadIdx.x ^ step)

    def shfl_sync(self, mask: int, value: Any, lane: int) -> Any:
        """What the thread of that number in the warp passes."""
        if not 0 <= lane < WARP:
            raise RuntimeError(f"a warp has no lane {lane}")
        return self._passed(value, self.threadIdx.x // WARP * WARP + lane)

    def ballot_sync(self, mask: int, holds: Any) -> int:
        """The lanes of the warp for which something holds, as bits."""
        found = [self.shfl_sync(mask, bool(holds), lane) for lane in range(WARP)]
        return sum(1 << lane for lane, each in enumerate(found) if each)

    def popc(self, bits: Any) -> int:
        return int(bits).bit_count()

    def ffs(self, bits: Any) -> int:
        """The number of the lowest bit that is set, from 1."""
        return (int(bits) & -int(bits)).bit_length()

    def _passed(self, value: Any, partner: int) -> Any:
        """What a thread passes in the call that is as many-th for it. Raises RuntimeError if it has
        ended: a GPU passes anything then.
        """
        thread = self.threads[self.threadIdx.x]
        thread.partner = other = self.threads[partner]
        thread.passed.append(value)
        count = len(thread.passed)
        if len(other.passed) < count and not other.ended:
            thread.give_turn()
        if len(other.passed) < count:
            raise RuntimeError(f"thread {other.index.x} has ended and passes nothing")
        return other.passed[count - 1]


cuda = Simulated()


class Kernel:
    """Called as kernel[blocks, threads](*arguments)."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __getitem__(self, shape: tuple[int, int]) -> Callable[..., None]:
        return lambda *arguments: self.launch(shape, arguments)

    def launch(self, shape: tuple[int, int], arguments: tuple[Any, ...]) -> None:
        with _launching, np.errstate(all="ignore"):
            cuda.gridDim, cuda.blockDim = map(Index, shape)
            given = [pointer(argument) for argument in arguments]
            chance = random.Random(0)
            for block in range(shape[0]):
                cuda.blockIdx, cuda.shared, cuda.votes = Index(block), Shared(), [False] * shape[1]
                cuda.threads = [Thread(k, lambda: self.function(*given)) for k in range(shape[1])]
                try:
                    _run_block(chance)
                except Exception as error:
                    error.add_note(f"in thread {cuda.threadIdx.x} of block {block} of {shape}")
                    raise


def _run_block(chance: random.Random) -> None:
    """Run the threads of a block to their ends. Threads that have ended are at every barrier."""
    alive = list(cuda.threads)
    while alive:
        turns = [thread for thread in alive if not thread.waits()]
        if not turns:
            if len({thread.barrier for thread in alive}) > 1:
                raise RuntimeError("threads of a block wait for different things")
            for thread in alive:
                thread.barrier = None
            for array in cuda.shared.arrays.values():
                array.touched.clear()
            turns = alive
        order(turns, chance)
        for thread in turns:
            cuda.threadIdx = thread.index
            thread.take_turn()
        alive = [thread for thread in alive if not thread.ended]
