"""`Array`: a result that stays on the device that made it until somebody reads it."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from graphc.base.refusing import refusing
from graphc.runtime.devices.registry import kind_of, simulated
from graphc.runtime.load.program import Slot, dtype_name, numpy_dtype

_HOST = (1, 0)  # the host's memory, as DLPack names devices


class Block(Protocol):
    """Memory of a device, freed with this object."""

    address: int
    driver: Any
    read_only: bool

    def fetch(self, memory: np.ndarray[Any, Any]) -> None:
        """Copy its bytes to host memory."""

    def copied(self, nbytes: int) -> Block:
        """A copy on the same device."""


class Run(Protocol):
    """What makes an array. `is_over` where somebody has waited for it."""

    @property
    def is_over(self) -> bool: ...

    def wait(self) -> None:
        """Wait for its end. Raises what it failed with."""


class Array:
    """An array on the device that computed it, or in host memory where that is the CPU.

    A GPU may still compute it: who reads it waits, and gets the error if that fails.  It is an
    argument of compiled functions: without a copy on the device where it lies.  Reading it
    (`np.asarray`, an index, printing) fetches it once.  Other libraries take it through
    `__dlpack__` and `__cuda_array_interface__`.  It cannot be written; where it is a
    donated argument that lies on the GPU which runs, the result is the same object.
    """

    __slots__ = ("__weakref__", "_host", "block", "dtype", "name", "pending", "shape")

    @refusing
    def __init__(self, slot: Slot, memory: np.ndarray[Any, Any] | Block) -> None:
        self.name, self.shape = slot.name, slot.shape
        self.dtype = numpy_dtype(slot.dtype)
        self.pending: Run | None = None
        self.block: Block | None = None
        self._host: np.ndarray[Any, Any] | None = None
        if isinstance(memory, np.ndarray):
            self._host = _frozen(memory)
        else:
            self.block = memory

    def wait(self) -> Array:
        """Wait until it has been computed; the array itself. Raises RunError if that has failed."""
        if self.pending is not None:
            self.pending.wait()
            self.pending = None
        return self

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> str:
        """Where it lies: "cpu", or the name of a GPU."""
        return "cpu" if self.block is None else str(self.block.driver.name)

    @property
    def address(self) -> int:
        """The address in the memory of its GPU."""
        assert self.block is not None
        return self.block.address

    @property
    def driver(self) -> Any:
        """That of the GPU in whose memory it lies; None for host memory."""
        return None if self.block is None else self.block.driver

    def overlaps(self, other: Array) -> bool:
        """Whether both lie in the same memory."""
        return self.block is not None and self.block is other.block

    @property
    def read_only(self) -> bool:
        """Whether a run must not write to it even if it is donated."""
        return self.block is None or self.block.read_only

    def written(self) -> None:
        """Its memory is about to be written: what was fetched is out of date."""
        if self.block is not None:
            self._host = None

    def copied(self) -> Array:
        """A copy on the same GPU."""
        assert self.block is not None
        self.wait()
        made = Array.__new__(Array)
        made.name, made.dtype, made.shape, made._host = self.name, self.dtype, self.shape, None
        made.pending, made.block = None, self.block.copied(self.nbytes)
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values as a NumPy array that cannot be written; fetched once."""
        if self._host is None:
            self._host = _frozen(self.fetched())
        return self._host

    def fetched(self) -> np.ndarray[Any, Any]:
        """The values as a new NumPy array."""
        if self.block is None:
            return self.numpy().copy()
        self.wait()
        memory = np.empty(self.shape, self.dtype)
        if memory.nbytes:
            self.block.fetch(memory)
        return memory

    def __copy__(self) -> Array:
        return self if self.block is None else self.copied()

    def __deepcopy__(self, memo: object) -> Array:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled are the values: addresses mean nothing to another process."""
        return Array, (Slot(self.name, dtype_name(self.dtype), self.shape), self.numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.block is None:
            return _HOST
        found: tuple[int, int] = self.block.driver.dlpack
        return found

    def __dlpack__(self, *, dl_device: tuple[int, int] | None = None, **options: Any) -> Any:
        """A DLPack capsule over its memory, when it has been computed: no stream has to wait."""
        here = self.__dlpack_device__()
        if self.block is None or (dl_device == _HOST and here != _HOST):
            return self.numpy().copy().__dlpack__()
        if dl_device not in (None, here) or options.get("copy"):
            raise BufferError(f"an array on {self.device} cannot be exported to {dl_device}")
        from graphc.runtime.call.dlpack import capsule

        self.wait()
        return capsule(self.address, self.dtype, self.shape, here, self.block)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.__dlpack_device__() == _HOST:
            raise AttributeError("the array does not lie on a GPU")
        self.wait()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, True),
            "strides": None,
            "version": 3,
        }

    def __len__(self) -> int:
        return len(self.numpy())

    def __getitem__(self, index: Any) -> Any:
        return self.numpy()[index]

    def __iter__(self) -> Any:
        return iter(self.numpy())

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __repr__(self) -> str:
        kind = f"{self.dtype.name}[{','.join(map(str, self.shape))}]"
        return f"<graphc array {kind} on {self.device}>"


def _frozen(memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shown = memory.view()
    shown.flags.writeable = False
    return shown


def array_on(device: str, value: np.ndarray[Any, Any]) -> Array:
    """A copy of an array in the memory of a device ("cpu:0", "gpu:1"). Raises GraphError for one
    that is not there, LimitError where it is full.
    """
    slot = Slot("array", dtype_name(value.dtype), value.shape)
    plain = np.array(value, numpy_dtype(slot.dtype), order="C", copy=True)
    if kind_of(device.partition(":")[0]).runs_on != "cuda":
        return Array(slot, plain)
    from graphc.runtime.cuda.drivers import open_driver
    from graphc.runtime.cuda.result_memory import uploaded

    driver = open_driver("simulator" if simulated() else "", device)
    return Array(slot, uploaded(driver, plain))
