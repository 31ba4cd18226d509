"""What the runtime asks of a GPU. Device addresses, streams and events are ints or opaque."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphc.base.record import record
from graphc.errors import RunError

if TYPE_CHECKING:
    from graphc.runtime.cuda.gemm import Gemm

# The streams of a device: kernels, copies beside them, and what is only recorded.
COMPUTE, COPY, CAPTURE = range(3)
ALIGNMENT = 16  # the widest load of a kernel

Streamed = Callable[[int], object]  # something that goes to a stream


@record(eq=False)
class Act:
    """A step that is written down; what has the same key does the same."""

    key: tuple[Any, ...]
    step: Streamed


@record(eq=False)
class Decision:
    """What the device decides by the byte at `verdict`, for a row of a table: whether it goes the
    first of the ways or the second, or whether it goes the only one, and that again and again.

    `words` say where a loop notes when it looks, where it sees that the run is cancelled, and where
    a kernel notes that it has failed; zeros for a choice.
    """

    row: int
    verdict: int
    ways: tuple[Acts, ...]
    words: tuple[int, int, int]

    @property
    def repeats(self) -> bool:
        return len(self.ways) == 1

    @property
    def key(self) -> tuple[Any, ...]:
        ways = (tuple(act.key for act in way) for way in self.ways)
        return self.row, self.verdict, *ways


@record(eq=False)
class Turns:
    """What happens `count` times, with operands that move from time to time: the first two times.

    It is written down for the loop of a row, and becomes a decision before it is done.
    """

    row: int
    count: int
    first: Acts
    second: Acts

    @property
    def key(self) -> tuple[Any, ...]:
        turns = (tuple(act.key for act in acts) for acts in (self.first, self.second))
        return self.row, self.count, *turns


Acts = Sequence[Act | Decision | Turns]


class DeviceError(RunError):
    """A device refuses something, or a kernel has crashed: that of the table's row, or -1."""

    def __init__(self, message: str, *, row: int = -1, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.row = row


class Multiplier(Protocol):
    """A library that makes products of matrices on one GPU. Plans are known to it alone."""

    version: str

    def plans(self, product: Gemm) -> Sequence[Any]:
        """Ways to make a product, best first, in the same order in every process; `workspace` of
        each are the bytes it needs. None where it cannot be made."""

    def prepare(self, plan: Any, addresses: Sequence[int], workspace: int, row: int) -> Streamed:
        """What makes the product of operands at these addresses; errors are those of a row."""


class Driver(Protocol):
    """One GPU. Launches and copies return at once and happen in the order of their stream.

    Every thread calls `enter` before anything else.
    """

    name: str
    dlpack: tuple[int, int]  # how DLPack names the device
    captures: bool  # whether launches can be recorded as a graph
    decides: bool  # whether a graph can have decisions
    kind: str  # what is alike in speed: model and chip

    def enter(self) -> None:
        """Make the device that of this thread. Raises RunError in a forked child."""

    def allocate(self, nbytes: int) -> int:
        """Device memory at a multiple of 256. Raises MemoryError."""

    def free(self, address: int) -> None:
        """Give memory back, after what uses it."""

    def room(self) -> tuple[int, int]:
        """Bytes of device memory that are free, and all there are."""

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Bytes of host memory that copies and kernels reach directly, at the same address; freed
        with the array."""

    def reach(self, other: Any) -> None:
        """Have copies from another device take the direct way, where there is one."""

    def load(self, code: bytes, portable: bytes) -> Any:
        """Object code for this chip, or the PTX beside it for one that is newer."""

    def function(self, module: Any, symbol: str) -> Any:
        """A kernel of a module."""

    def own(self, name: str) -> Any:
        """A kernel of the runtime itself (`device_code`)."""

    def prepare(self, function: Any, shape: tuple[int, int, int], arguments: Sequence[int]) -> Any:
        """A launch of blocks x threads, and bytes of shared memory for each block, with its packed
        arguments, all of them 64-bit words."""

    def launch(self, prepared: Any, stream: int) -> None:
        """Run a kernel."""

    def multiplier(self) -> Multiplier:
        """What makes products of matrices besides kernels. Raises GraphError without any."""

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy between addresses of this device, of another one or of the host."""

    def zero(self, address: int, nbytes: int, stream: int) -> None:
        """Set device memory to zero."""

    def call(self, function: int, argument: int, stream: int) -> None:
        """Call a C function with an address when the stream gets there; it calls no driver."""

    def event(self, *, timed: bool = False) -> Any:
        """A mark that `record` puts at the present end of a stream."""

    def record(self, event: Any, stream: int) -> None:
        """Put an event at the end of a stream; where it was before is forgotten."""

    def follow(self, stream: int, event: Any) -> None:
        """Have a stream wait for an event, of whatever device."""

    def settle(self, event: Any) -> None:
        """Wait until an event has happened, if it was ever recorded."""

    def seconds(self, first: Any, second: Any) -> float:
        """The time between two timed events that have happened."""

    def rest(self) -> None:
        """Wait for everything on the device, that of other libraries, too."""

    def synchronize(self, stream: int) -> None:
        """Wait until a stream is empty."""

    def graph(self, acts: Acts) -> Any:
        """Acts one after another, as a graph."""

    def launch_graph(self, graph: Any, stream: int) -> None:
        """Do what a graph says."""


def check_process(started: int) -> None:
    """Raise RunError in a child of the process that opened a driver."""
    if os.getpid() != started:
        raise RunError(
            "a forked process cannot use the GPU of its parent",
            hint='start processes with multiprocessing.get_context("spawn")',
        )
