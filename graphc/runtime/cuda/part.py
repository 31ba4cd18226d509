"""`DevicePart`: the share of a GPU in a program: kernels loaded, constants in device memory.

Native code knows it as a table of one row that calls one kernel: the run of a `DeviceFrame`.  So a
GPU takes part in runs of several devices, in their failures and in their ends as any other does.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from graphc.runtime.call import native_support
from graphc.runtime.call.array import Array
from graphc.runtime.call.frame import Frame, Part
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.device_variables import Mirrors
from graphc.runtime.cuda.drivers import open_driver
from graphc.runtime.cuda.frame import DeviceFrame
from graphc.runtime.cuda.gemm_choice import GemmChoice
from graphc.runtime.cuda.interface import COMPUTE, Driver, Streamed
from graphc.runtime.cuda.memory import Memory
from graphc.runtime.cuda.result_memory import DeviceBlock, pool_of
from graphc.runtime.cuda.transfer import Operands
from graphc.runtime.load.program import Image, Slot, numpy_dtype
from graphc.runtime.load.table import BRANCH, JUMP, SEND, WAIT, rows, stack_slots
from graphc.runtime.tuning import tuned


class DevicePart(Part):
    """An image for a GPU, loaded there. Raises GraphError where that cannot be."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.table: list[int] = image.table.tolist()
        self.stack_slots = stack_slots(self.table)
        self.threads = 1
        self.support = native_support.support(image.support)
        self.driver: Driver = open_driver(image.cpu, image.device)
        self.driver.enter()
        self.functions = self._load()
        self.memory, self.pool = Memory(self.driver, image), pool_of(self.driver)
        donated = image.donated or (-1,) * len(image.results)
        self._donates = max(donated, default=-1) >= 0
        self._made = [(s, s.nbytes, p) for s, p in zip(image.results, donated, strict=True)]
        self.products = GemmChoice(self)
        self.mirrors = Mirrors(image.variables, self.memory)
        self.constants = self.memory.allocate(image.constants.nbytes)
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

    def step(self, row: int, addresses: Sequence[int], status: int, workspace: int) -> Streamed:
        """What a row does that calls a kernel on operands at these addresses: launch it, or what
        a library does in its place."""
        return self.products.step(row, addresses, status, workspace) or self.launch(
            row, addresses, status
        )

    def launch(self, row: int, addresses: Sequence[int], status: int) -> Streamed:
        """The launch of a row's kernel."""
        kernel, blocks, threads, first = self.table[row + 2 : row + 6]
        arguments = (*addresses, *self.params(kernel, first), status, row)
        function, shared = self.functions[kernel], self.image.shared
        shape = blocks, threads, shared[kernel] if shared else 0
        return partial(self.driver.launch, self.driver.prepare(function, shape, arguments))

    def called(self, row: int) -> str:
        return self.products.called(row) or super().called(row)

    def words(self, count: int) -> np.ndarray[Any, Any]:
        """Kernels see there that the run is cancelled."""
        self.driver.enter()
        made = self.driver.pinned(8 * count).view(np.int64)
        made[:] = 0
        return made

    @cached_property
    def is_left(self) -> bool:  # type: ignore[override]
        """Runs that change no variables, and end by themselves, need not be waited for."""
        image, table = self.image, self.table
        found = {table[row] for row in rows(table)}
        waits = found & {SEND, WAIT} or (BRANCH in found and not self.driver.decides)
        endless = any(table[row] == JUMP and table[row + 2] <= row for row in rows(table))
        return bool(image.results) and not (waits or endless or image.variables)

    @cached_property
    def _kinds(self) -> list[tuple[np.dtype[Any], tuple[int, ...], bool]]:
        """Of every argument dtype, shape and whether the host may send it along."""
        most, donated = tuned.gathered_bytes, self.image.donated
        return [
            (numpy_dtype(slot.dtype), slot.shape, slot.nbytes <= most and k not in donated)
            for k, slot in enumerate(self.image.params)
        ]

    def operands(self, arrays: Sequence[Any]) -> Operands | None:
        found, driver = Operands(), self.driver
        if len(arrays) != len(self._kinds):
            return None
        for k, (array, (dtype, shape, small)) in enumerate(zip(arrays, self._kinds)):
            kind = array.__class__
            if kind is Array:
                block, run = array.block, array.pending
                # What belongs to others may change as soon as a call has returned.
                if block.__class__ is not DeviceBlock or block.driver is not driver:
                    return None
                found.addresses.append(block.address)
                if run is not None:
                    found.follow(array, run)
            elif kind is np.ndarray and small:
                found.addresses.append(0)
                found.sent.append(k)
            else:
                return None
            if array.dtype is not dtype or array.shape != shape:
                return None
        if self._donates and len(set(found.addresses)) < len(arrays) - len(found.sent):
            return None  # one may have to be copied
        return found

    def results(self, arrays: Sequence[Array]) -> list[Array]:
        """The donated ones of arguments, and new arrays, in a thread that uses the device.

        Raises LimitError.
        """
        take = self.pool.take
        try:
            return [
                arrays[param] if param >= 0 else Array(slot, take(nbytes))
                for slot, nbytes, param in self._made
            ]
        except MemoryError:
            return [
                arrays[param] if param >= 0 else self.result(slot)  # says what takes the memory
                for slot, _, param in self._made
            ]

    def go(self, frame: Frame) -> int:
        status: int = frame.own.run()
        return status

    def result(self, slot: Slot) -> Array:
        """A new array on the device. Raises LimitError."""
        return Array(slot, self.memory.block(slot.nbytes))

    def taken(self, array: Array, slot: Slot) -> Array | None:
        fits = array.shape == slot.shape and array.dtype == numpy_dtype(slot.dtype)
        if not fits or array.driver is None:
            return None
        if array.driver is self.driver:
            return array
        made = self.result(slot)
        self.driver.reach(array.driver)
        if array.nbytes:
            self.driver.copy(made.address, array.address, array.nbytes, COMPUTE)
        return made

    def furnish(self, frame: Frame) -> None:
        """Have native code call the run of a device frame."""
        self.driver.enter()
        frame.own = DeviceFrame(self, frame)
