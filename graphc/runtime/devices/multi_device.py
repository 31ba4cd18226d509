"""`MultiDeviceExecutable`: an executable of several devices.

The caller's thread runs the first device; each other device gets a worker thread for the time of
the run (see `graphc.codegen.runtime.team`).  A run holds a frame for every device and channels of
its own, so runs of several threads do not meet.  The first failure wins and stops the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import numpy as np

from graphc.errors import GraphError, RunError
from graphc.runtime.call.execute import Executable, Value, executables
from graphc.runtime.call.failure import CANCELLED, GONE, NO_WORKER, explain, take_error
from graphc.runtime.call.frame import Frame, part_of
from graphc.runtime.call.memory import address_of, aligned_bytes
from graphc.runtime.devices.channel import Channels
from graphc.runtime.devices.device import default_threads
from graphc.runtime.devices.jobs import serving
from graphc.runtime.devices.registry import local_name
from graphc.runtime.load.layouts import DeviceWords, FrameWords, TeamWords
from graphc.runtime.load.program import Image

_gone: set[str] = set()


class TeamFrame(Frame):
    """The state of one run on several devices: a frame for each, and their channels."""

    __slots__ = ("_parts", "_support", "channels", "others", "team", "team_address")

    def __init__(self, cluster: MultiDeviceExecutable) -> None:
        super().__init__(cluster.part)
        self._support, self._parts = cluster.support, cluster.others  # what the words point to
        self.others = [Frame(part) for part in cluster.others]
        self.budget[0] = cluster.image.stack_bytes
        self.channels = Channels(cluster.image.channels, cluster.links, cluster.carrier)
        count = 1 + len(self.others)
        size = TeamWords.nbytes + count * DeviceWords.nbytes
        self.team = aligned_bytes(size, DeviceWords.nbytes).view(np.int64)
        self.team[:] = 0
        self.team_address = address_of(self.team)
        self.team[TeamWords.devices] = count
        self.team[TeamWords.channel_count] = len(cluster.image.channels)
        self.team[TeamWords.channels] = self.channels.address
        self.team[TeamWords.stop] = cluster.stop
        records = self.team[TeamWords.nbytes // 8 :].reshape(count, -1)
        boxes: Any = {}  # what GPUs have in common
        for number, (frame, record) in enumerate(zip(self.frames, records, strict=True)):
            record[DeviceWords.frame] = frame.address
            record[DeviceWords.first_row] = cluster.first_rows[number]
            frame.words[FrameWords.team], frame.words[FrameWords.device] = self.team_address, number
            frame.words[FrameWords.budget] = address_of(self.budget)
            if frame.ready is not None:
                self.channels.announce(frame.ready)
            if frame.own is not None:
                frame.own.join(frame, cluster.image, number, boxes)
        cluster.support.open_team(self.team_address)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self, *self.others

    def bind(self, addresses: Sequence[int]) -> None:
        """Point every device at its variables: those of the first come first."""
        for frame in self.frames:
            count = frame.variables.stop - frame.variables.start
            frame.bases[frame.variables] = addresses[:count]
            addresses = addresses[count:]

    def cancel(self) -> None:
        self._support.stop_team(self.team_address)

    def after_fork(self) -> None:
        super().after_fork()
        self._support.open_team(self.team_address)


class MultiDeviceExecutable(Executable):
    """A compiled program of several devices. `threads` is what one kernel may use: without it the
    devices share the threads of this machine.

    `links` are the addresses of those of its channels that lead to other processes, `stop` that of
    the word which ends waiting for them, `carrier` that of who carries their bytes, if anybody.
    """

    links: Mapping[int, int] = MappingProxyType({})
    stop = carrier = 0

    def __init__(self, image: Image, *, threads: int | None = None) -> None:
        threads = threads or max(1, default_threads() // len(image.images))
        super().__init__(image, threads=threads)
        self.others = [part_of(other, threads) for other in image.others]
        self._tell_hosts(self._binding.homes if self._binding is not None else ())
        self.threads = max(part.threads for part in self.parts)
        sizes = accumulate((each.table.size for each in image.images), initial=0)
        self.first_rows = list(sizes)[:-1]

    def _make_frame(self) -> Frame:
        return TeamFrame(self)

    def begin(
        self, arrays: Sequence[Value], *, checked: bool = False, resident: bool = False
    ) -> tuple[Frame, list[Any]]:
        """As `Executable.begin`. Raises RunError when a device is gone."""
        if (device := self._missing()) is not None:
            raise RunError(
                f"device {device} is gone",
                hint=f"graphc.runtime.devices.multi_device.reconnect({device!r})",
            )
        return super().begin(arrays, checked=checked, resident=resident)

    def _go(self, frame: Frame) -> int:
        return self.support.run(frame.address)

    def _walk(self, frame: Frame) -> int:
        status = super()._walk(frame)
        if self._missing() is not None:
            self._close_entry()  # a device that went during the run has closed it too soon
        return status

    def _missing(self) -> str | None:
        return next((i.device for i in self.image.images if i.device in _gone), None)

    def failure(self, status: int, row: int) -> BaseException:
        """The error of a row, counted over the tables of all devices."""
        number = bisect_right(self.first_rows, row) - 1
        image = self.image.images[number]
        missing = self._missing()
        if status == GONE or (status == CANCELLED and missing is not None):
            return RunError(f"device {missing or image.device} was lost during the run")
        if status == NO_WORKER:
            return RunError(
                f"no thread can be started for device {image.device}",
                hint="the system limits the threads of a process",
            )
        error = take_error(status) or explain(image, status, row - self.first_rows[number])
        if isinstance(error, GraphError):
            error.message += f" (on {image.device})"
        return error

    def lose(self, device: str) -> None:
        """Fail the runs in flight if the device takes part in them."""
        for number, image in enumerate(self.image.images):
            if image.device == device:
                self._close_entry()
                for frame in (*self._frames, *self._extra):
                    assert isinstance(frame, TeamFrame)
                    self.support.fail_team(frame.team_address, number, GONE)


def executable(image: Image, *, threads: int | None = None) -> Executable:
    """What runs an image: on one device, on several, or on those of the cluster that has them."""
    if (found := serving(image.device for image in image.images)) is not None:
        from graphc.runtime.cluster.program import ClusterExecutable

        return ClusterExecutable(image, found, threads=threads)
    return (MultiDeviceExecutable if image.others else Executable)(image, threads=threads)


def disconnect(device: str) -> None:
    """Take a device ("cpu:1") out of service: runs on several devices that use it fail, those in
    flight and, until it is back, later ones.

    Raises GraphError for what is no device.
    """
    device = local_name(device)
    _gone.add(device)
    for found in executables:
        if isinstance(found, MultiDeviceExecutable):
            found.lose(device)


def reconnect(device: str) -> None:
    """Put a device back into service."""
    _gone.discard(local_name(device))
