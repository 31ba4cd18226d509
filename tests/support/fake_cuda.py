"""Stands in for `cuda.bindings.driver`: GPUs whose memory is host memory.

Every stream is a thread that does what it is told a little later, so that only events, graphs and
waiting put things in order, as on a real device.  All calls are recorded.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_programs import COUNT

from graphc.runtime.cuda import driver, interface

CHIP = "sm_90"
MOST_SHARED = 1000  # bytes of a block
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
        self.work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.captured: list[Work] | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self.work.get()
            time.sleep(0.0002)
            work()

    def put(self, work: Callable[[], object], name: str = "") -> None:
        if self.captured is not None:
            self.captured.append(Work(name, work))
        else:
            self.work.put(work)

    def wait(self) -> None:
        done = threading.Event()
        self.work.put(done.set)
        assert done.wait(300), "the stream waits for ever"


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

    def __init__(self, kernels: dict[str, Kernel], devices: int = 2, capacity: int = 1 << 24):
        self.kernels = kernels
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

    def cuInit(self, flags):
        return (OK,)

    def cuDriverGetVersion(self):
        return OK, 12080

    def cuDeviceGetCount(self):
        return OK, self.devices

    def cuDeviceGet(self, number):
        return OK, number

    def cuDeviceGetName(self, length, device):
        return OK, b"Fake".ljust(length - 1).replace(b" ", b"\0", 1)

    def cuDeviceGetAttribute(self, attribute, device):
        return OK, {75: 9, 97: MOST_SHARED}.get(attribute, 0)

    def cuDevicePrimaryCtxRetain(self, device):
        return OK, f"context {device}"

    def cuCtxSetCurrent(self, context):
        self.here.contexts = [context]
        return (OK,)

    def cuCtxPushCurrent(self, context):
        self.here.contexts = [*getattr(self.here, "contexts", []), context]
        return (OK,)

    def cuCtxPopCurrent(self):
        return OK, self.here.contexts.pop()

    @property
    def context(self):
        assert getattr(self.here, "contexts", []), "the thread has no device"
        return self.here.contexts[-1]

    def cuDeviceCanAccessPeer(self, device, other):
        return OK, 1

    def cuCtxEnablePeerAccess(self, context, flags):
        assert context != self.context
        peers = self.context, context
        if peers in self.peers:
            return (Status.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,)
        self.peers.add(peers)
        return (OK,)

    # ------------------------------------------------------------------------------ memory

    def cuMemGetInfo(self):
        used = sum(block.nbytes for block in self.device_memory.values())
        return OK, self.capacity - used, self.capacity

    def cuMemAlloc(self, nbytes):
        if nbytes > self.cuMemGetInfo()[1]:
            return (Status.CUDA_ERROR_OUT_OF_MEMORY,)
        address = self._block(self.device_memory, nbytes)
        self.owners[address] = self.context
        return OK, address

    def cuMemHostAlloc(self, nbytes, flags):
        return OK, self._block(self.pinned_memory, nbytes)

    def _block(self, memory, nbytes):
        block = np.full(nbytes, 0xA5, np.uint8)
        memory[block.ctypes.data] = block
        return block.ctypes.data

    def cuMemFree(self, address):
        assert self.owners[address] == self.context
        self._release(self.device_memory, address)
        return (OK,)

    def cuMemFreeHost(self, address):
        self._release(self.pinned_memory, address)
        return (OK,)

    def _release(self, memory, address):
        """Memory goes when all that was told before has been done, as with the driver."""
        block = memory.pop(address)
        for stream in self.streams:
            stream.work.put(lambda: block)

    def _pageable(self, address):
        blocks = (self.device_memory | self.pinned_memory).items()
        return not any(start <= address < start + block.nbytes for start, block in blocks)

    def cuMemcpyAsync(self, target, source, nbytes, stream):
        assert stream.context == self.context
        if self._pageable(source):  # taken at once, as the driver does
            taken = ctypes.string_at(source, nbytes)
            stream.put(lambda: ctypes.memmove(target, taken, nbytes))
        else:
            stream.put(lambda: ctypes.memmove(target, source, nbytes), "copy")
        if self._pageable(target):
            stream.wait()
        return (OK,)

    def cuMemsetD8Async(self, address, byte, nbytes, stream):
        stream.put(lambda: ctypes.memset(address, byte, nbytes), "set")
        return (OK,)

    # ------------------------------------------------------------------------------ kernels

    def cuModuleLoadData(self, image):
        if image.startswith(b"cubin") and image != b"cubin sm_90":
            return (Status.CUDA_ERROR_NO_BINARY_FOR_GPU,)
        if image.startswith(b"ptx new"):
            return (Status.CUDA_ERROR_UNSUPPORTED_PTX_VERSION,)
        return OK, image

    def cuModuleGetFunction(self, module, name):
        if b".entry" in module:
            return OK, getattr(self, name.decode())
        found = self.kernels.get(name.decode())
        return (OK, found) if found else (Status.CUDA_ERROR_NOT_FOUND,)

    def cuFuncSetAttribute(self, function, attribute, value):
        assert attribute == 8
        self.shared[function] = value
        return (OK,)

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, params, extra):
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        assert shared == self.shared.get(function, 0) <= MOST_SHARED
        assert stream.context == self.context
        count = len(signature(function).parameters) - 2
        pointers = (ctypes.c_int64 * count).from_address(params)
        words = [ctypes.c_int64.from_address(pointer).value for pointer in pointers]
        stream.put(lambda: function(gx, bx, *words), function.__name__)
        return (OK,)

    def cuLaunchHostFunc(self, stream, function, argument):
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        stream.put(lambda: call(argument))
        return (OK,)

    # ------------------------------------------------------------------------------ order

    def cuStreamCreate(self, flags):
        self.streams.append(Stream(self.context))
        return OK, self.streams[-1]

    def cuCtxSynchronize(self):
        assert self.context
        return (OK,)

    def cuStreamSynchronize(self, stream):
        stream.wait()
        return (OK,)

    def cuEventCreate(self, flags):
        return OK, Event(self.context)

    def cuEventDestroy(self, event):
        return (OK,)

    def cuEventRecord(self, event, stream):
        assert event.context == stream.context == self.context
        mark = event.mark = threading.Event()

        def happen() -> None:
            self.take(1e-6)  # no two events at once
            event.time = self.now
            mark.set()

        stream.put(happen)
        return (OK,)

    def cuStreamWaitEvent(self, stream, event, flags):
        mark = event.mark
        stream.put(lambda: mark.wait(300) or None)
        return (OK,)

    def cuEventSynchronize(self, event):
        event.mark.wait(300)
        return (OK,)

    def cuEventElapsedTime(self, first, second):
        return OK, 1e3 * (second.time - first.time)

    # ------------------------------------------------------------------------------ graphs

    def cuGraphCreate(self, flags):
        return OK, []

    def cuStreamBeginCaptureToGraph(self, stream, graph, before, edges, count, mode):
        assert (
            stream.captured is None
            and list(before or ()) == graph[-1:]
            and count == len(graph[-1:])
        )
        stream.captured = graph
        return (OK,)

    def cuStreamGetCaptureInfo(self, stream):
        last = stream.captured[-1:]
        return OK, 1, 7, stream.captured, last, [None] * len(last), len(last)

    def cuStreamEndCapture(self, stream):
        captured, stream.captured = stream.captured, None
        return OK, captured

    def cuGraphConditionalHandleCreate(self, graph, context, default, flags):
        assert context == self.context and not default and not flags
        self.conditions.append(0)
        return OK, len(self.conditions) - 1

    def decide(self, blocks, threads, handle, verdict, looks, cancel, status, row):
        """The kernel of that name; a failed or cancelled run is seen at once."""
        value = ctypes.c_uint8.from_address(verdict).value != 0
        if looks:
            cancelled, failed = (ctypes.c_int64.from_address(at) for at in (cancel, status))
            value = value and not cancelled.value and not failed.value
            if cancelled.value and not failed.value:
                failed.value = (row << 32) | 0xFFFFFFFF
        self.conditions[handle] = value

    def begin(self, blocks, threads, state, row):
        ctypes.c_int64.from_address(state).value = 0
        ctypes.c_uint8.from_address(state + 8).value = 1

    def advance(self, blocks, threads, state, total, row):
        count = ctypes.c_int64.from_address(state)
        count.value += 1
        ctypes.c_uint8.from_address(state + 8).value = count.value < total

    def move(self, blocks, threads, table, each, state, back, row):
        entries = (ctypes.c_int64 * (4 * (blocks // each))).from_address(table)
        for k in range(0, len(entries), 4):
            near, far, move, nbytes = entries[k : k + 4]
            far += ctypes.c_int64.from_address(state).value * move
            ctypes.memmove(*((far, near) if back else (near, far)), nbytes)

    def cuGraphAddNode(self, graph, before, edges, count, node):
        assert list(before or ()) == graph[-1:] and count == len(graph[-1:])
        found = node.conditional
        assert (node.type, found.ctx) == (13, self.context)
        found.phGraph_out = [[] for _ in range(found.size)]
        repeats = found.type == self.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        run = partial(self._conditional, found, repeats)
        graph.append(Work("while" if repeats else "if", run, found.phGraph_out))
        return OK, graph[-1]

    def _conditional(self, node, repeats):
        """A node that repeats its only body, or runs one of two."""
        bodies = node.phGraph_out
        while repeats and self.conditions[node.handle]:
            self.rounds += 1
            self._do(bodies[0])
        if not repeats:
            self._do(bodies[not self.conditions[node.handle]])

    def _do(self, graph):
        for work in graph:
            work.run()

    def cuGraphInstantiate(self, graph, flags):
        self.graphs.append(graph)
        return OK, list(graph)

    def cuGraphDestroy(self, graph):
        return (OK,)

    def cuGraphExecDestroy(self, graph):
        return (OK,)

    def cuGraphLaunch(self, graph, stream):
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
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda(KERNELS)
    monkeypatch.setattr(driver, "api", lambda: made)
    monkeypatch.setattr(interface, "_opened", {})
    return made
