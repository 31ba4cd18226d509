"""A GPU that is none: memory of the host, kernels as Python functions that `graphc.gpu` runs.

What compiles for it registers each kernel in `functions`, with NumPy's name of the storage dtype
and the element count of every buffer.  Everything happens at once, so events and streams have
nothing to do.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.runtime.call.failure import CANCELLED
from graphc.runtime.call.memory import address_of, aligned_bytes
from graphc.runtime.cuda.device_code import WINDOW_BYTES
from graphc.runtime.cuda.interface import Act, Acts, Decision, Multiplier, check_process

GRANULE = 256  # device memory is aligned to this
_C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

Buffers = tuple[tuple[str, int], ...]
functions: dict[str, tuple[Callable[..., None], Buffers]] = {}


@record(frozen=True)
class _Launch:
    """A kernel with its arguments: views of memory, then plain numbers."""

    kernel: Any
    shape: tuple[int, int]
    arguments: tuple[Any, ...]


class Simulator:
    """`gpu:number` of the simulator."""

    captures, decides = False, True
    kind = "simulator"
    dlpack = (1, 0)  # its memory is the host's

    def __init__(self, number: int) -> None:
        self.name = f"gpu:{number} (simulated)"
        self.process = os.getpid()
        self.capacity = 1 << 30
        # Threads that compile and call at once allocate here.  A block that the garbage collector
        # ends frees it in the middle of another's turn, in the same thread: whoever walks over
        # the blocks takes a copy of them.
        self.turn = threading.RLock()
        self.blocks: dict[int, np.ndarray[Any, Any]] = {}
        self.starts: list[int] = []

    def enter(self) -> None:
        check_process(self.process)

    def room(self) -> tuple[int, int]:
        taken = sum(block.nbytes for block in list(self.blocks.values()))
        return self.capacity - taken, self.capacity

    def allocate(self, nbytes: int) -> int:
        with self.turn:
            if nbytes > self.room()[0]:
                raise MemoryError
            return self._block(nbytes)

    def free(self, address: int) -> None:
        with self.turn:
            del self.blocks[address]
            self.starts = sorted(self.blocks)

    def _block(self, nbytes: int) -> int:
        made = aligned_bytes(max(nbytes, 1), GRANULE)
        made[:] = 0xA5  # so that nobody counts on zeros
        address = address_of(made)
        with self.turn:
            self.blocks[address] = made
            self.starts = sorted(self.blocks)
        return address

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        address = self._block(nbytes)
        owner = (ctypes.c_uint8 * max(nbytes, 1)).from_address(address)
        weakref.finalize(owner, self.free, address).atexit = False
        return np.ctypeslib.as_array(owner)

    def reach(self, other: Simulator) -> None:
        """All of them share one memory."""

    def load(self, code: bytes, portable: bytes) -> None:
        raise GraphError("the simulator runs no object code")

    def function(self, module: None, symbol: str) -> tuple[Any, Buffers]:
        found = functions.get(symbol)
        if found is None:
            raise GraphError(
                f"kernel {symbol} was not compiled in this process",
                hint="programs for the simulator cannot be saved; compile again",
            )
        return _simulated(found[0]), found[1]

    def own(self, name: str) -> tuple[Any, Buffers]:
        return _Own(getattr(self, f"_{name}")), ()

    def _begin(self, state: int, row: int) -> None:
        _word(state).value = 0
        _byte(state + 8).value = 1

    def _advance(self, state: int, total: int, row: int) -> None:
        _word(state).value += 1
        _byte(state + 8).value = _word(state).value < total

    def _move(self, table: int, blocks: int, state: int, back: int, row: int, count: int) -> None:
        for at in range(table, table + count // blocks * WINDOW_BYTES, WINDOW_BYTES):
            near, far, move, nbytes = (_word(at + 8 * k).value for k in range(4))
            far += _word(state).value * move
            self._view("uint8", nbytes, near), self._view("uint8", nbytes, far)
            ctypes.memmove(*((far, near) if back else (near, far)), nbytes)

    def prepare(
        self, function: tuple[Any, Buffers], shape: tuple[int, int, int], arguments: Sequence[int]
    ) -> _Launch:
        kernel, buffers = function
        if isinstance(kernel, _Own):
            return _Launch(kernel, shape[:2], tuple(arguments))
        views = [self._view(*b, at) for b, at in zip(buffers, arguments, strict=False)]
        *params, status, row = arguments[len(buffers) :]
        return _Launch(kernel, shape[:2], (*views, *params, self._view("int64", 1, status), row))

    def _view(self, dtype: str, count: int, address: int) -> Any:
        """An array as simulated kernels take it. Raises GraphError outside allocated memory.

        A window of an operand is as large as that, and moves: it may end before it has so many
        elements, and whoever reads beyond gets an IndexError.
        """
        element = np.dtype(dtype)
        size = count * element.itemsize
        starts = self.starts
        position = bisect_right(starts, address) - 1
        start = starts[position] if position >= 0 else 0
        if position < 0 or address > start + self.blocks[start].size:
            raise GraphError(f"a kernel is given {size} bytes outside the memory of {self.name}")
        block = self.blocks[start][address - start : address - start + size]
        block = block[: block.size // element.itemsize * element.itemsize]
        return block.view(element)

    def launch(self, prepared: _Launch, stream: int) -> None:
        prepared.kernel[prepared.shape](*prepared.arguments)

    def multiplier(self) -> Multiplier:
        raise GraphError("the simulator has no library for products of matrices")

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def zero(self, address: int, nbytes: int, stream: int) -> None:
        ctypes.memset(address, 0, nbytes)

    def call(self, function: int, argument: int, stream: int) -> None:
        _C_FUNCTION(function)(argument)

    def event(self, *, timed: bool = False) -> list[float]:
        return [0.0]

    def record(self, event: list[float], stream: int) -> None:
        event[0] = time.perf_counter()

    def follow(self, stream: int, event: list[float]) -> None:
        """What the event marks has happened."""

    def settle(self, event: list[float]) -> None:
        """What the event marks has happened."""

    def seconds(self, first: list[float], second: list[float]) -> float:
        return second[0] - first[0]

    def rest(self) -> None:
        """Everything has happened."""

    def synchronize(self, stream: int) -> None:
        """Everything has happened."""

    def graph(self, acts: Acts) -> Acts:
        return acts

    def launch_graph(self, graph: Acts, stream: int) -> None:
        for act in graph:
            if isinstance(act, Decision):
                self._decision(act, stream)
            elif isinstance(act, Act):
                act.step(stream)

    def _decision(self, act: Decision, stream: int) -> None:
        """What a conditional node does; it is seen at once that the run has to end."""
        if not act.repeats:
            self.launch_graph(act.ways[not _byte(act.verdict).value], stream)
            return
        _, cancel, status = map(_word, act.words)
        while _byte(act.verdict).value and not cancel.value and not status.value:
            self.launch_graph(act.ways[0], stream)
        if cancel.value and not status.value:
            status.value = (act.row << 32) | (CANCELLED & 0xFFFFFFFF)


class _Own:
    """A kernel of the runtime itself; `move` is told its blocks."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __getitem__(self, shape: tuple[int, int]) -> Callable[..., None]:
        moves = self.function.__name__ == "_move"
        return partial(self.function, count=shape[0]) if moves else self.function


_word, _byte = ctypes.c_int64.from_address, ctypes.c_uint8.from_address


@cache
def _simulated(function: Callable[..., None]) -> Any:
    from graphc.gpu import SIMULATED, cuda

    if not SIMULATED:
        raise GraphError(
            "the program was compiled for the simulator of GPUs, which is off",
            hint="set NUMBA_ENABLE_CUDASIM=1",
        )
    return cuda.jit(function)
