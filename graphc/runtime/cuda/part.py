"""`DevicePart`: the share of a GPU in a program: kernels loaded, constants in device memory.

Native code knows it as a table of one row that calls one kernel: the run of a `DeviceFrame`.  So a
GPU takes part in runs of several devices, in their failures and in their ends as any other does.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from graphc.errors import LimitError
from graphc.runtime import pool
from graphc.runtime.cuda.frame import DeviceFrame
from graphc.runtime.cuda.interface import COMPUTE, Driver, open_driver
from graphc.runtime.frame import KERNELS, OPERANDS, TABLE, THREADS, WORDS, Frame, Part
from graphc.runtime.image import Image
from graphc.runtime.memory import address_of
from graphc.runtime.table import TableBuilder, stack_slots

_Kernel = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


def _one_call() -> np.ndarray[Any, Any]:
    builder = TableBuilder()
    builder.call(0, ())
    builder.end()
    return builder.finish()


_STUB = _one_call()


class DevicePart(Part):
    """An image for a GPU, loaded there. Raises GraphError where that cannot be."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.table: list[int] = image.table.tolist()
        self.stack_slots = stack_slots(self.table)
        self.threads = 1
        self.support = pool.support(image.support)
        self.driver: Driver = open_driver(image.cpu, image.device)
        self.driver.enter()
        self.functions = self._load()
        self.constants = self.allocate(image.constants.nbytes)
        weakref.finalize(self, self.driver.free, self.constants).atexit = False
        if image.constants.nbytes:
            source = address_of(image.constants)
            self.driver.copy(self.constants, source, image.constants.nbytes, COMPUTE)
            self.driver.synchronize(COMPUTE)

    def _load(self) -> list[Any]:
        """The kernels of the image."""
        modules: dict[str, Any] = {}
        portable = self.image.portable or (b"",) * len(self.image.objects)
        for (code, symbols), text in zip(self.image.objects, portable, strict=True):
            module = self.driver.load(code, text)
            modules.update(dict.fromkeys(symbols, module))
        return [self.driver.function(modules.get(name), name) for name in self.image.kernels]

    def params(self, kernel: int, first: int) -> list[int]:
        """The int64 parameters of a call."""
        found: list[int] = self.image.words[first : first + self.image.arity[kernel]].tolist()
        return found

    def allocate(self, nbytes: int) -> int:
        """Device memory. Raises LimitError."""
        try:
            return self.driver.allocate(nbytes)
        except MemoryError:
            raise LimitError(f"no memory on {self.driver.name} for {nbytes} bytes") from None

    def furnish(self, frame: Frame) -> None:
        """Have native code call the run of a device frame."""
        device = DeviceFrame(self, frame.words)
        found = weakref.ref(device)

        def run(*_: int) -> int:
            alive = found()
            return alive.run() if alive is not None else -2

        callback = _Kernel(run)
        address = ctypes.cast(callback, ctypes.c_void_p).value
        kernels = np.array([address], np.int64)
        frame.own = device, callback, kernels
        frame.words[TABLE] = address_of(_STUB)
        frame.words[KERNELS] = address_of(kernels)
        frame.words[WORDS] = address_of(kernels)  # the call has no parameters
        frame.words[OPERANDS], frame.words[THREADS] = 0, 1
