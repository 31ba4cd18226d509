"""Kernels that are Python functions: what a step table calls by an address of this process.

    walker ── call row ──> trampoline (takes the GIL) ──> function(copies of the operands)
                                                          results ──> memory of the row

The trampoline is called like every kernel.  An error is kept, and its status stops the run; it is
raised where the run was called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.call.failure import keep
from graphc.runtime.call.variable import Container, called_by_a_run
from graphc.runtime.input.resources import stopping
from graphc.runtime.load.layouts import FrameWords
from graphc.runtime.load.program import HostCall, Slot, numpy_dtype
from graphc.runtime.load.table import ARENA

if TYPE_CHECKING:
    from graphc.runtime.call.frame import Frame

_Words = ctypes.POINTER(ctypes.c_void_p)
_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int, _Words, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


class Trampoline:
    """A native function that runs a host call; it is there as long as this object.

    `homes` are the containers of variables that the run which calls it holds, `frames` gives those
    of its runs: one is known by its memory, and what waits looks at its cancel flag.
    """

    homes: Sequence[tuple[Container, bool]] = ()
    frames: Callable[[], Iterable[Frame]] = tuple

    def __init__(self, host: HostCall) -> None:
        self.host = host
        self._function = _KERNEL(self._run)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None
        self.address = address

    def _run(self, buffers: Any, params: Any, low: int, high: int, thread: int) -> int:
        """The kernel; nothing may be raised out of it."""
        try:
            self._call(buffers)
        except BaseException as error:  # noqa: BLE001 it is raised by whoever called the run
            if isinstance(error, GraphError):
                error.at(self.host.origin.location, (self.host.origin.node,))
            return keep(error)
        return 0

    def _call(self, buffers: Any) -> None:
        host = self.host
        count = len(host.operands)
        arrays = [_view(buffers[k], slot).copy() for k, slot in enumerate(host.operands)]
        with called_by_a_run(self.homes), stopping(self._flag(buffers)):
            made = host.call(*arrays)
        results = made if isinstance(made, tuple) else (made,)
        shapes = [np.shape(result) for result in results]
        if shapes != [slot.shape for slot in host.results]:
            wanted = ", ".join(map(str, host.results))
            raise GraphError(f"a call gave arrays of the shapes {shapes}, and not {wanted}")
        for k, (slot, result) in enumerate(zip(host.results, results, strict=True)):
            _view(buffers[count + k], slot)[...] = result

    def _flag(self, buffers: Any) -> Callable[[], bool]:
        """Whether the run is to stop that has the memory where the results go."""
        places = buffers[: len(self.host.operands) + len(self.host.results)]
        for frame in self.frames():
            start = frame.bases[ARENA]
            if any(start <= (at or 0) < start + frame.arena.nbytes for at in places):
                return lambda: bool(frame.words[FrameWords.cancel])
        return lambda: False


def _view(address: int | None, slot: Slot) -> np.ndarray:
    """The array that lies at an address."""
    dtype = numpy_dtype(slot.dtype)
    if not slot.nbytes:
        return np.zeros(slot.shape, dtype)
    raw: Any = (ctypes.c_char * slot.nbytes).from_address(address or 0)
    array: np.ndarray = np.frombuffer(raw, dtype)
    return array.reshape(slot.shape)
