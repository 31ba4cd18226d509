"""A real GPU through NVIDIA's driver API (package cuda-bindings), which is imported when one opens.

Every function of that API returns its status first; what it returns besides follows.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.device_code import CODE
from graphc.runtime.cuda.graphs import Graph, Graphs
from graphc.runtime.cuda.interface import CAPTURE, Acts, DeviceError, check_process

if TYPE_CHECKING:
    from graphc.runtime.cuda.cublas import CublasLt

_INSTALL = "pip install 'graphc[cuda]'"
_NAME_BYTES = 256
_NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
# Code that the GPU or the driver cannot take; the PTX beside it may do.
_NOT_FOR_CHIP = ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE")
_TOO_NEW = ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER")
_CRASHES = (
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
)


class Failed(Exception):
    """A function of the driver API did not succeed. `code` is the name of its status."""

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"{function}: {code}")
        self.code = code


@cache
def api() -> Any:
    """The driver API, initialised. Raises GraphError where there is none or no GPU."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise GraphError(
            f"a GPU needs the package cuda-bindings, which cannot be imported: {error}",
            hint=_INSTALL,
        ) from None
    simulator = "without a GPU, NUMBA_ENABLE_CUDASIM=1 runs small programs in a simulator"
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # a subclass of it, where the driver's library is absent
        raise GraphError(
            "there is no NVIDIA driver on this machine",
            details=(str(error).strip().split("\n")[0],),
            hint=simulator,
        ) from None
    if status:
        raise GraphError(f"no GPU can be used: {_code(status)}", hint=simulator)
    return driver


def _code(status: Any) -> str:
    return str(getattr(status, "name", status))


def ask(functions: Any, function: str, *arguments: Any) -> Any:
    """What a function of the driver API returns besides its status. Raises Failed, MemoryError."""
    status, *results = getattr(functions, function)(*arguments)
    if status:
        code = _code(status)
        raise MemoryError if code == _NO_MEMORY else Failed(function, code)
    return results[0] if len(results) == 1 else tuple(results)


def capability(functions: Any, device: Any) -> str:
    """The chip of a device: "sm_90"."""
    kinds = functions.CUdevice_attribute
    names = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR")
    wanted = (getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}") for name in names)
    major, minor = (ask(functions, "cuDeviceGetAttribute", kind, device) for kind in wanted)
    return f"sm_{major}{minor}"


def model(functions: Any, device: Any) -> str:
    """What a device is sold as. The name ends at a zero; what follows it may be anything."""
    found: bytes = ask(functions, "cuDeviceGetName", _NAME_BYTES, device)
    return found.partition(b"\0")[0].decode()


@cache
def first_chip() -> str | None:
    """The chip of the first GPU of this machine; None where there is none."""
    try:
        functions = api()
        return capability(functions, ask(functions, "cuDeviceGet", 0))
    except (GraphError, Failed):
        return None


@record(frozen=True, eq=False)
class _Launch:
    """A kernel, its shape, and the arguments in memory: words, and a pointer to each of them."""

    function: Any
    blocks: int
    threads: int
    shared: int
    words: np.ndarray[Any, Any]
    pointers: np.ndarray[Any, Any]
    address: int


class Cuda:
    """`gpu:number` of this machine. Raises GraphError where there is no such GPU."""

    def __init__(self, number: int) -> None:
        self.process = os.getpid()
        self.dlpack = (2, number)
        self.api = api()
        self.name = "a GPU"
        count = self.do("cuDeviceGetCount")
        if number >= count:
            raise GraphError(
                f"there is no device gpu:{number}",
                hint=f"this machine has {count} GPUs, numbered from 0",
            )
        # What every call asks for is found once.
        self._launch, self._graph_launch = self.api.cuLaunchKernel, self.api.cuGraphLaunch
        self._set_current, self._record = self.api.cuCtxSetCurrent, self.api.cuEventRecord
        self._settle, self._synchronize = self.api.cuEventSynchronize, self.api.cuStreamSynchronize
        self._copy = self.api.cuMemcpyAsync
        self.device = self.do("cuDeviceGet", number)
        self.context = self.do("cuDevicePrimaryCtxRetain", self.device)
        self.enter()
        self.chip = capability(self.api, self.device)
        sold_as = model(self.api, self.device)
        self.kind = f"{sold_as} {self.chip}"
        self.name = f"gpu:{number} ({sold_as}, {self.chip})"
        flags = int(self.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.streams = [self.do("cuStreamCreate", flags) for _ in range(CAPTURE + 1)]
        # Launches that wait tell which kernel has crashed; in a graph they do not.
        self.captures = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") == "0"
        self.graphs = Graphs(self)
        self.decides = self.captures and self.graphs.have_decisions
        self._modules: dict[bytes, Any] = {}
        self._multiplier: CublasLt | None = None

    def enter(self) -> None:
        if os.getpid() != self.process:
            check_process(self.process)
        (status,) = self._set_current(self.context)
        if status:
            raise self._refused("cuCtxSetCurrent", status)

    def do(self, function: str, *arguments: Any) -> Any:
        """As `ask`. Raises DeviceError where that fails."""
        try:
            return ask(self.api, function, *arguments)
        except Failed as error:
            raise self._error(function, error.code) from None

    def _refused(self, function: str, status: Any) -> Exception:
        code = _code(status)
        return MemoryError() if code == _NO_MEMORY else self._error(function, code)

    def _error(self, function: str, code: str, row: int = -1) -> DeviceError:
        if code not in _CRASHES:
            return DeviceError(f"{self.name} refuses {function}: {code}", row=row)
        return DeviceError(
            f"a kernel has crashed on {self.name}: {code}",
            row=row,
            hint="the GPU is lost to this process; CUDA_LAUNCH_BLOCKING=1 tells which kernel it is",
        )

    # ------------------------------------------------------------------------------ memory

    def room(self) -> tuple[int, int]:
        free, total = self.do("cuMemGetInfo")
        return free, total

    def allocate(self, nbytes: int) -> int:
        return int(self.do("cuMemAlloc", max(nbytes, 1)))

    def free(self, address: int) -> None:
        self.drop("cuMemFree", address)

    def drop(self, function: str, handle: Any) -> None:
        """Give something back, in the middle of whatever this thread does on another device.

        A forked child has no part in it, and after a crash all is lost.
        """
        if os.getpid() == self.process:
            with suppress(DeviceError):
                self.do("cuCtxPushCurrent", self.context)
                try:
                    self.do(function, handle)
                finally:
                    self.do("cuCtxPopCurrent")

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        size = max(nbytes, 1)
        portable = int(self.api.CU_MEMHOSTALLOC_PORTABLE)  # pinned for every GPU
        address = int(self.do("cuMemHostAlloc", size, portable))
        owner = (ctypes.c_uint8 * size).from_address(address)
        weakref.finalize(owner, self.drop, "cuMemFreeHost", address).atexit = False
        return np.ctypeslib.as_array(owner)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        (status,) = self._copy(target, source, nbytes, self.streams[stream])
        if status:
            raise self._refused("cuMemcpyAsync", status)

    def zero(self, address: int, nbytes: int, stream: int) -> None:
        self.do("cuMemsetD8Async", address, 0, nbytes, self.streams[stream])

    def reach(self, other: Cuda) -> None:
        if other is self or not self.do("cuDeviceCanAccessPeer", self.device, other.device):
            return
        try:
            ask(self.api, "cuCtxEnablePeerAccess", other.context, 0)
        except Failed as error:
            if error.code != "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED":
                raise self._error("cuCtxEnablePeerAccess", error.code) from None

    # ------------------------------------------------------------------------------ kernels

    def load(self, code: bytes, portable: bytes) -> Any:
        key = hashlib.sha256(code + portable).digest()
        found = self._modules.get(key)
        if found is None:
            found = self._modules[key] = self._module(code, portable)
        return found

    def _module(self, code: bytes, portable: bytes) -> Any:
        failures = []
        for image in (code, portable + b"\0") if portable else (code,):
            try:
                return ask(self.api, "cuModuleLoadData", image)
            except Failed as error:
                failures.append(error.code)
        if any(code in _TOO_NEW for code in failures):
            version = self.do("cuDriverGetVersion")
            raise GraphError(
                f"the driver of {self.name} is too old for the code: it knows CUDA "
                f"{version // 1000}.{version % 1000 // 10}",
                hint="update the NVIDIA driver, or compile with the packages of an older toolkit",
            )
        if failures[0] in _NOT_FOR_CHIP:
            raise GraphError(
                f"the code is not made for {self.name}",
                details=(", ".join(failures),),
                hint=f"compile it with target='cuda:{self.chip}'",
            )
        raise DeviceError(f"{self.name} cannot load kernels: {', '.join(failures)}")

    def function(self, module: Any, symbol: str) -> Any:
        return self.do("cuModuleGetFunction", module, symbol.encode())

    def own(self, name: str) -> Any:
        return self.function(self.load(CODE.encode() + b"\0", b""), name)

    def prepare(
        self, function: Any, shape: tuple[int, int, int], arguments: Sequence[int]
    ) -> _Launch:
        shared = self._allowed(function, shape[2]) if shape[2] else 0
        words = np.array(arguments, np.int64)
        pointers = address_of(words) + 8 * np.arange(len(arguments), dtype=np.int64)
        return _Launch(function, *shape[:2], shared, words, pointers, address_of(pointers))

    def _allowed(self, function: Any, shared: int) -> int:
        """Let launches of a kernel have so many bytes of shared memory, or all there are: PTX that
        takes the place of code for another chip may run where there is less, and needs less."""
        kinds = self.api.CUdevice_attribute
        limit = kinds.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        size = min(shared, int(self.do("cuDeviceGetAttribute", limit, self.device)))
        wanted = self.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.do("cuFuncSetAttribute", function, wanted, size)
        return size

    def launch(self, prepared: _Launch, stream: int) -> None:
        (status,) = self._launch(
            prepared.function,
            prepared.blocks,
            1,
            1,
            prepared.threads,
            1,
            1,
            prepared.shared,
            self.streams[stream],
            prepared.address,
            0,
        )
        if status:
            raise self._error("a launch", _code(status), int(prepared.words[-1]))

    def call(self, function: int, argument: int, stream: int) -> None:
        self.do("cuLaunchHostFunc", self.streams[stream], self.api.CUhostFn(function), argument)

    def multiplier(self) -> CublasLt:
        if self._multiplier is None:
            from graphc.runtime.cuda.cublas import CublasLt

            self._multiplier = CublasLt(self)
        return self._multiplier

    # ------------------------------------------------------------------------------ order

    def event(self, *, timed: bool = False) -> _Event:
        return _Event(self, timed)

    def record(self, event: _Event, stream: int) -> None:
        (status,) = self._record(event.handle, self.streams[stream])
        if status:
            raise self._refused("cuEventRecord", status)

    def follow(self, stream: int, event: _Event) -> None:
        self.do("cuStreamWaitEvent", self.streams[stream], event.handle, 0)

    def settle(self, event: _Event) -> None:
        (status,) = self._settle(event.handle)
        if status:
            raise self._refused("cuEventSynchronize", status)

    def seconds(self, first: _Event, second: _Event) -> float:
        return float(self.do("cuEventElapsedTime", first.handle, second.handle)) * 1e-3

    def rest(self) -> None:
        self.do("cuCtxSynchronize")

    def synchronize(self, stream: int) -> None:
        (status,) = self._synchronize(self.streams[stream])
        if status:
            raise self._refused("cuStreamSynchronize", status)

    def graph(self, acts: Acts) -> Graph:
        return self.graphs.graph(acts)

    def launch_graph(self, graph: Graph, stream: int) -> None:
        (status,) = self._graph_launch(graph.handle, self.streams[stream])
        if status:
            raise self._refused("cuGraphLaunch", status)


class _Event:
    """An event, destroyed with this object."""

    def __init__(self, driver: Cuda, timed: bool) -> None:
        flags = driver.api.CUevent_flags
        kind = flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING
        self.handle = driver.do("cuEventCreate", int(kind))
        weakref.finalize(self, driver.drop, "cuEventDestroy", self.handle).atexit = False
