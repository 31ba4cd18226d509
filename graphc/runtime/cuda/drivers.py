"""The drivers of the GPUs of this process, opened once: hardware, or the simulator."""

from __future__ import annotations

from graphc.errors import GraphError
from graphc.forks import fork_safe_lock
from graphc.runtime.cuda.interface import Driver

_opened: dict[tuple[str, int], Driver] = {}
_lock = fork_safe_lock()


def open_driver(cpu: str, device: str) -> Driver:
    """The GPU that `device` ("gpu:1") names, or the simulator where code is for that.

    Raises GraphError where there is no such GPU.
    """
    kind = "simulator" if cpu == "simulator" else "cuda"
    number = device.rpartition(":")[2]
    if not number.isdecimal():
        raise GraphError(f"{device!r} names no GPU", hint="GPUs are called gpu:0, gpu:1, ...")
    with _lock:
        found = _opened.get((kind, int(number)))
        if found is None:
            found = _opened[kind, int(number)] = _make(kind, int(number))
        return found


def _make(kind: str, number: int) -> Driver:
    if kind == "simulator":
        from graphc.runtime.cuda.simulated_driver import Simulator

        return Simulator(number)
    from graphc.runtime.cuda.driver import Cuda

    return Cuda(number)
