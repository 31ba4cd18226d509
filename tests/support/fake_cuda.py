"""Stands in for `cuda.bindings.driver`: GPUs whose memory is host memory.

Every stream is a thread that does what it is told a little later, so that only events, graphs and
waiting put things in order, as on a real device.  All calls are recorded.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_programs import COUNT

from graphc.runtime.cuda import driver, drivers

CHIP = "sm_90"
MOST_SHARED = 1000  # bytes of a block
Answer = tuple[Any, ...]  # a status, and what the function gives
Kernel = Callable[..., int | None]  # (blocks, threads, *words) -> a status that is not zero
Status = IntEnum(
    "Status",
    {
        "CUDA_SUCCESS": 0,
        "CUDA_ERROR_INVALID_VALUE": 1,
        "CUDA_ERROR_OUT_OF_MEMORY": 2,
        "CUDA_ERROR_NO_DEVICE": 100,
        "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
        "CUDA_ERROR_NOT_FOUND": 500,
        "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
        "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": 704,
    },
)
OK = Status.CUDA_SUCCESS


class Work:
    """A node of a graph: its name, and what it does."""

    def __init__(self, name: str, run: Callable[[], object], bodies: Any = ()) -> None:
        self.name, self.run, self.bodies = name, run, bodies


def shape(graph: list[Work]) -> list[Any]:
    """The names of the nodes of a graph, each conditional one with those of its bodies."""
    return [
        (work.name, *(shape(body) for body in work.bodies)) if work.bodies else work.name
        for work in graph
    ]


class Stream:
    """A queue of work and the thread that does it."""

    def __init__(self, context: str) -> None:
        self.context = context
        self.work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.captured: list[Work] | None = None
        self.ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while (work := self.work.get()) is not None:
            time.sleep(0.0002)
            work()

    def end(self) -> None:
        """After a test: what is still queued is done, what comes later is not."""
        self.ended = True
        self.work.put(None)

    def put(self, work: Callable[[], object], name: str = "") -> None:
        if self.captured is not None:
            self.captured.append(Work(name, work))
        else:
            self.work.put(work)

    def wait(self) -> None:
        done = threading.Event()
        self.work.put(done.set)
        assert self.ended or done.wait(300), "the stream waits for ever"


class Event:
    """Happened, until it is recorded again."""

    def __init__(self, context: str) -> None:
        self.context = context
        self.mark = threading.Event()
        self.mark.set()
        self.time = 0.0


class FakeCuda:
    """The functions of the module. `kernels` are those of every code, by symbol."""

    CU_MEMHOSTALLOC_PORTABLE = 1
    CUhostFn = staticmethod(int)

    class CUdevice_attribute:
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, MINOR = 75, 76
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97

    class CUfunction_attribute:
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

    class CUstream_flags:
        CU_STREAM_NON_BLOCKING = 1

    class CUevent_flags:
        CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING = 0, 2

    class CUstreamCaptureMode:
        CU_STREAM_CAPTURE_MODE_RELAXED = 2

    class CUgraphNodeType:
        CU_GRAPH_NODE_TYPE_CONDITIONAL = 13

    class CUgraphConditionalNodeType:
        CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_WHILE = 0, 1

    class CUgraphNodeParams:
        def __init__(self) -> None:
            self.type = -1
            self.conditional = SimpleNamespace()

    def __init__(self, kernels: Mapping[str, Kernel], devices: int = 2, capacity: int = 1 << 24):
        self.kernels = dict(kernels)
        self.devices = devices
        self.capacity = capacity
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.streams: list[Stream] = []
        self.device_memory: dict[int, np.ndarray] = {}
        self.pinned_memory: dict[int, np.ndarray] = {}
        self.owners: dict[int, str] = {}  # the context of device memory
        self.shared: dict[Kernel, int] = {}  # bytes that launches of kernels may have
        self.peers: set[tuple[str, str]] = set()
        self.failing: dict[str, Status] = {}  # function -> what it answers
        self.here = threading.local()  # the context of every thread
        self.conditions: list[bool] = []  # by handle
        self.graphs: list[list[Any]] = []  # that were instantiated
        self.rounds = 0  # of loops of graphs
        self.now = 0.0  # seconds; the machine's clock has no part in what tests decide

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            if name in self.failing:
                return (self.failing[name],)
            return found(*arguments)

        return call

    def take(self, seconds: float) -> None:
        """Let time pass, as events see it."""
        self.now += seconds

    def count(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)

    # ------------------------------------------------------------------------------ devices

    def cuInit(self, flags: int) -> Answer:
        return (OK,)

    def cuDriverGetVersion(self) -> Answer:
        return OK, 12080

    def cuDeviceGetCount(self) -> Answer:
        return OK, self.devices

    def cuDeviceGet(self, number: int) -> Answer:
        return OK, number

    def cuDeviceGetName(self, length: int, device: int) -> Answer:
        return OK, b"Fake".ljust(length - 1).replace(b" ", b"\0", 1)

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> Answer:
        return OK, {75: 9, 97: MOST_SHARED}.get(attribute, 0)

    def cuDevicePrimaryCtxRetain(self, device: int) -> Answer:
        return OK, f"context {device}"

    def cuCtxSetCurrent(self, context: str) -> Answer:
        self.here.contexts = [context]
        return (OK,)

    def cuCtxPushCurrent(self, context: str) -> Answer:
        self.here.contexts = [*getattr(self.here, "contexts", []), context]
        return (OK,)

    def cuCtxPopCurrent(self) -> Answer:
        return OK, self.here.contexts.pop()

    @property
    def context(self) -> str:
        assert getattr(self.here, "contexts", []), "the thread has no device"
        return str(self.here.contexts[-1])

    def cuDeviceCanAccessPeer(self, device: int, other: int) -> Answer:
        return OK, 1

    def cuCtxEnablePeerAccess(self, context: str, flags: int) -> Answer:
        assert context != self.context
        peers = self.context, context
        if peers in self.peers:
            return (Status.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,)
        self.peers.add(peers)
        return (OK,)

    # ------------------------------------------------------------------------------ memory

    def cuMemGetInfo(self) -> Answer:
        used = sum(block.nbytes for block in list(self.device_memory.values()))
        return OK, self.capacity - used, self.capacity

    def cuMemAlloc(self, nbytes: int) -> Answer:
        if nbytes > self.cuMemGetInfo()[1]:
            return (Status.CUDA_ERROR_OUT_OF_MEMORY,)
        address = self._block(self.device_memory, nbytes)
        self.owners[address] = self.context
        return OK, address

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> Answer:
        return OK, self._block(self.pinned_memory, nbytes)

    def _block(self, memory: dict[int, np.ndarray], nbytes: int) -> int:
        block = np.full(nbytes, 0xA5, np.uint8)
        memory[block.ctypes.data] = block
        return block.ctypes.data

    def cuMemFree(self, address: int) -> Answer:
        assert self.owners[address] == self.context
        self._release(self.device_memory, address)
        return (OK,)

    def cuMemFreeHost(self, address: int) -> Answer:
        self._release(self.pinned_memory, address)
        return (OK,)

    def _release(self, memory: dict[int, np.ndarray], address: int) -> None:
        """Memory goes when all that was told before has been done, as with the driver."""
        block = memory.pop(address)
        for stream in self.streams:
            stream.work.put(lambda: block)

    def _pageable(self, address: int) -> bool:
        blocks = (self.device_memory | self.pinned_memory).items()
        return not any(start <= address < start + block.nbytes for start, block in blocks)

    def cuMemcpyAsync(self, target: int, source: int, nbytes: int, stream: Stream) -> Answer:
        assert stream.context == self.context
        if self._pageable(source):  # taken at once, as the driver does
            taken = ctypes.string_at(source, nbytes)
            stream.put(lambda: ctypes.memmove(target, taken, nbytes))
        else:
            stream.put(lambda: ctypes.memmove(target, source, nbytes), "copy")
        if self._pageable(target):
            stream.wait()
        return (OK,)

    def cuMemsetD8Async(self, address: int, byte: int, nbytes: int, stream: Stream) -> Answer:
        stream.put(lambda: ctypes.memset(address, byte, nbytes), "set")
        return (OK,)

    # ------------------------------------------------------------------------------ kernels

    def cuModuleLoadData(self, image: bytes) -> Answer:
        if image.startswith(b"cubin") and image != b"cubin sm_90":
            return (Status.CUDA_ERROR_NO_BINARY_FOR_GPU,)
        if image.startswith(b"ptx new"):
            return (Status.CUDA_ERROR_UNSUPPORTED_PTX_VERSION,)
        return OK, image

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> Answer:
        if b".entry" in module:
            return OK, getattr(self, name.decode())
        found = self.kernels.get(name.decode())
        return (OK, found) if found else (Status.CUDA_ERROR_NOT_FOUND,)

    def cuFuncSetAttribute(self, function: Kernel, attribute: int, value: int) -> Answer:
        assert attribute == 8
        self.shared[function] = value
        return (OK,)

    def cuLaunchKernel(
        self,
        function: Kernel,
        gx: int,
        gy: int,
        gz: int,
        bx: int,
        by: int,
        bz: int,
        shared: int,
        stream: Stream,
        params: int,
        extra: int,
    ) -> Answer:
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        assert shared == self.shared.get(function, 0) <= MOST_SHARED
        assert stream.context == self.context
        count = len(signature(function).parameters) - 2
        pointers = (ctypes.c_int64 * count).from_address(params)
        words = [ctypes.c_int64.from_address(pointer).value for pointer in pointers]
        stream.put(lambda: function(gx, bx, *words), function.__name__)
        return (OK,)

    def cuLaunchHostFunc(
        self, stream: Stream, function: Callable[[int], None], argument: int
    ) -> Answer:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        stream.put(lambda: call(argument))
        return (OK,)

    # ------------------------------------------------------------------------------ order

    def cuStreamCreate(self, flags: int) -> Answer:
        self.streams.append(Stream(self.context))
        return OK, self.streams[-1]

    def cuCtxSynchronize(self) -> Answer:
        assert self.context
        return (OK,)

    def cuStreamSynchronize(self, stream: Stream) -> Answer:
        stream.wait()
        return (OK,)

    def cuEventCreate(self, flags: int) -> Answer:
        return OK, Event(self.context)

    def cuEventDestroy(self, event: Event) -> Answer:
        return (OK,)

    def cuEventRecord(self, event: Event, stream: Stream) -> Answer:
        assert event.context == stream.context == self.context
        mark = event.mark = threading.Event()

        def happen() -> None:
            self.take(1e-6)  # no two events at once
            event.time = self.now
            mark.set()

        stream.put(happen)
        return (OK,)

    def cuStreamWaitEvent(self, stream: Stream, event: Event, flags: int) -> Answer:
        mark = event.mark
        stream.put(lambda: mark.wait(300) or None)
        return (OK,)

    def cuEventSynchronize(self, event: Event) -> Answer:
        event.mark.wait(300)
        return (OK,)

    def cuEventElapsedTime(self, first: Event, second: Event) -> Answer:
        return OK, 1e3 * (second.time - first.time)

    # ------------------------------------------------------------------------------ graphs

    def cuGraphCreate(self, flags: int) -> Answer:
        return OK, []

    def cuStreamBeginCaptureToGraph(
        self,
        stream: Stream,
        graph: list[Work],
        before: Sequence[Work] | None,
        edges: object,
        count: int,
        mode: int,
    ) -> Answer:
        assert (
            stream.captured is None
            and list(before or ()) == graph[-1:]
            and count == len(graph[-1:])
        )
        stream.captured = graph
        return (OK,)

    def cuStreamGetCaptureInfo(self, stream: Stream) -> Answer:
        assert stream.captured is not None
        last = stream.captured[-1:]
        return OK, 1, 7, stream.captured, last, [None] * len(last), len(last)

    def cuStreamEndCapture(self, stream: Stream) -> Answer:
        captured, stream.captured = stream.captured, None
        return OK, captured

    def cuGraphConditionalHandleCreate(
        self, graph: list[Work], context: str, default: int, flags: int
    ) -> Answer:
        assert context == self.context and not default and not flags
        self.conditions.append(False)
        return OK, len(self.conditions) - 1

    def decide(
        self,
        blocks: int,
        threads: int,
        handle: int,
        verdict: int,
        looks: int,
        cancel: int,
        status: int,
        row: int,
    ) -> None:
        """The kernel of that name; a failed or cancelled run is seen at once."""
        value = ctypes.c_uint8.from_address(verdict).value != 0
        if looks:
            cancelled, failed = (ctypes.c_int64.from_address(at) for at in (cancel, status))
            value = value and not cancelled.value and not failed.value
            if cancelled.value and not failed.value:
                failed.value = (row << 32) | 0xFFFFFFFF
        self.conditions[handle] = value

    def begin(self, blocks: int, threads: int, state: int, row: int) -> None:
        ctypes.c_int64.from_address(state).value = 0
        ctypes.c_uint8.from_address(state + 8).value = 1

    def advance(self, blocks: int, threads: int, state: int, total: int, row: int) -> None:
        count = ctypes.c_int64.from_address(state)
        count.value += 1
        ctypes.c_uint8.from_address(state + 8).value = count.value < total

    def move(
        self, blocks: int, threads: int, table: int, each: int, state: int, back: int, row: int
    ) -> None:
        entries = (ctypes.c_int64 * (4 * (blocks // each))).from_address(table)
        for k in range(0, len(entries), 4):
            near, far, move, nbytes = entries[k : k + 4]
            far += ctypes.c_int64.from_address(state).value * move
            ctypes.memmove(*((far, near) if back else (near, far)), nbytes)

    def cuGraphAddNode(
        self,
        graph: list[Work],
        before: Sequence[Work] | None,
        edges: object,
        count: int,
        node: CUgraphNodeParams,
    ) -> Answer:
        assert list(before or ()) == graph[-1:] and count == len(graph[-1:])
        found = node.conditional
        assert (node.type, found.ctx) == (13, self.context)
        found.phGraph_out = [[] for _ in range(found.size)]
        repeats = found.type == self.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        run = partial(self._conditional, found, repeats)
        graph.append(Work("while" if repeats else "if", run, found.phGraph_out))
        return OK, graph[-1]

    def _conditional(self, node: SimpleNamespace, repeats: bool) -> None:
        """A node that repeats its only body, or runs one of two."""
        bodies = node.phGraph_out
        while repeats and self.conditions[node.handle]:
            self.rounds += 1
            self._do(bodies[0])
        if not repeats:
            self._do(bodies[not self.conditions[node.handle]])

    def _do(self, graph: list[Work]) -> None:
        for work in graph:
            work.run()

    def cuGraphInstantiate(self, graph: list[Work], flags: int) -> Answer:
        self.graphs.append(graph)
        return OK, list(graph)

    def cuGraphDestroy(self, graph: list[Work]) -> Answer:
        return (OK,)

    def cuGraphExecDestroy(self, graph: list[Work]) -> Answer:
        return (OK,)

    def cuGraphLaunch(self, graph: list[Work], stream: Stream) -> Answer:
        for work in graph:
            stream.put(work.run)
        return (OK,)


# ------------------------------------------------------------------------------ kernels


def floats(address: int, count: int = COUNT) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def double(blocks: int, threads: int, a: int, b: int, status: int, row: int) -> None:
    floats(b, blocks * threads)[:] = 2 * floats(a, blocks * threads)


def increment(blocks: int, threads: int, a: int, b: int, status: int, row: int) -> None:
    floats(b, blocks * threads)[:] = floats(a, blocks * threads) + 1


def less(blocks: int, threads: int, a: int, b: int, limit: int, status: int, row: int) -> None:
    ctypes.c_uint8.from_address(b).value = bool(floats(a)[0] < limit)


def fail(blocks: int, threads: int, code: int, status: int, row: int) -> None:
    word = ctypes.c_int64.from_address(status)
    word.value = word.value or (row << 32) | code


def store(blocks: int, threads: int, a: int, value: int, status: int, row: int) -> None:
    floats(a)[0] = value


KERNELS = {f.__name__: f for f in (double, increment, less, fail, store)}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = FakeCuda(KERNELS)
    monkeypatch.setattr(driver, "api", lambda: made)
    monkeypatch.setattr(drivers, "_opened", {})
    yield made
    for stream in made.streams:
        stream.end()
