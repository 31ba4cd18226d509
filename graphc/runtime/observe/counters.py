"""Counters of the processor for each kernel, where the kernel of the system gives them.

The run is done row by row (see `replay`), each kernel on this one thread, and the counters are read
before and after each call; what the reading itself counts is taken off.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.errors import GraphError
from graphc.runtime.call.execute import Executable
from graphc.runtime.call.phased_executable import PhasedExecutable
from graphc.runtime.observe.replay import Device, First, run_steps

# <linux/perf_event.h>: the type and number of what is counted
EVENTS = {
    "cycles": (0, 0),
    "instructions": (0, 1),
    "cache misses": (0, 3),
    "branch misses": (0, 5),
    "page faults": (1, 2),
}
_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241}
_SIZE = 64  # bytes of the first version of perf_event_attr
_TIMES = 1 | 2  # a counter that shares its register says how long it counted
_USER_ONLY = 1 << 5 | 1 << 6  # neither in the kernel of the system nor below it
_TRIES = 20

Counts = dict[str, float]
Key = tuple[str, str]  # device and node


class Counters:
    """The counters of this thread that are open; `missing` says why the others are not."""

    def __init__(self, events: Mapping[str, tuple[int, int]] = EVENTS) -> None:
        self.files: dict[str, int] = {}
        self.missing: dict[str, str] = {}
        for name, (kind, number) in events.items():
            try:
                self.files[name] = _opened(kind, number)
            except OSError as error:
                self.missing[name] = error.strerror or str(error)
        tries = [self._difference(self.read(), self.read()) for _ in range(_TRIES)]
        self.own = {name: min(each[name] for each in tries) for name in self.files}

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self.files.values():
            os.close(file)

    def read(self) -> Counts:
        """What each has counted so far, as if it had counted all the time."""
        found = {}
        for name, file in self.files.items():
            value, enabled, running = struct.unpack("QQQ", os.read(file, 24))
            found[name] = value * (enabled / running if running else 0.0)
        return found

    def since(self, before: Counts) -> Counts:
        """What was counted since then, without the reading itself."""
        found = self._difference(before, self.read())
        return {name: max(0.0, value - self.own[name]) for name, value in found.items()}

    @staticmethod
    def _difference(before: Counts, after: Counts) -> Counts:
        return {name: after[name] - value for name, value in before.items()}


def _opened(kind: int, number: int) -> int:
    """A counter of this thread. Raises OSError where there is none, or it is not permitted."""
    call = _SYSTEM_CALL.get(platform.machine())
    if call is None:
        raise OSError(0, f"not known on {platform.machine()}")
    packed = struct.pack("IIQQQQQIIQ", kind, _SIZE, number, 0, 0, _TIMES, _USER_ONLY, 0, 0, 0)
    attributes = ctypes.create_string_buffer(packed, _SIZE)
    library = ctypes.CDLL(None, use_errno=True)
    close_on_exec = 8
    file: int = library.syscall(call, attributes, 0, -1, -1, close_on_exec)
    if file < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return file


def counted(
    executable: Executable | PhasedExecutable, arrays: Sequence[Any], counters: Counters
) -> dict[Key, Counts]:
    """What each kernel counts in one run, by device and node; variables are as they were before.

    Raises GraphError for devices that are not CPUs of this process and for several programs that
    run one after the other, and what a run raises.
    """
    if isinstance(executable, PhasedExecutable):
        raise GraphError(f"{executable.name} has sizes that its data decides")
    found: dict[Key, Counts] = defaultdict(lambda: dict.fromkeys(counters.files, 0.0))

    class Counting(Device):
        def call(self, row: int, addresses: tuple[int, ...]) -> None:
            before = counters.read()
            super().call(row, addresses)
            counts = counters.since(before)
            origin = self.part.image.origins.get(row)
            if origin is not None:
                known = found[self.part.image.device, origin.node]
                for name, value in counts.items():
                    known[name] += value

    ends, _ = run_steps(executable, arrays, First(), Counting)
    if isinstance(ends, Exception):
        raise ends
    return dict(found)
