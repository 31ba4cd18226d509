"""The messages of a GPU: values that leave for other devices of the same run, or come from them.

    to the host     copied to pinned memory on the copy stream, which then tells the channel itself;
                    a channel with a buffer has turns, for which the host has to wait
    from the host   received into pinned memory, then copied to the device
    GPU to GPU      the channel only says that a value is there; the streams wait for one another,
                    and the receiver copies from the memory of the sender

Channels belong to native code (`graphc.codegen.runtime.channels`).  A row that sends or receives is
run by the native walker, as a table of that row alone, without the GIL.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.record import record
from graphc.runtime.call.failure import explain, keep
from graphc.runtime.call.frame import Frame
from graphc.runtime.call.memory import address_of
from graphc.runtime.cuda.drivers import open_driver
from graphc.runtime.cuda.interface import COMPUTE, COPY
from graphc.runtime.cuda.native import callback
from graphc.runtime.cuda.row_runners import Stopped
from graphc.runtime.load.layouts import FrameWords
from graphc.runtime.load.program import Channel, Image
from graphc.runtime.load.table import ARENA, CONSTANTS, TableBuilder
from graphc.runtime.tuning import tuned

if TYPE_CHECKING:
    from graphc.runtime.cuda.frame import DeviceFrame

# A message is sent when the one before it has been received; the receiver has then done all about
# the one before that, so that the buffer of a third one is free.
_BUFFERS = 3


@record(eq=False)
class Parcel:
    """A value in the memory of a GPU: there after `ready`, free again after `taken`."""

    address: int
    ready: Any
    taken: Any = None


Boxes = dict[int, deque[Parcel]]  # by channel: what is on the way from GPU to GPU


class Way:
    """One end of a channel in one frame."""

    def __init__(self, frame: DeviceFrame, native: Frame, channel: Channel, number: int) -> None:
        self.frame = weakref.proxy(frame)
        self.part, self.driver = frame.part, frame.driver
        self.words, self.address = native.words, native.address
        self.nbytes, self.number = channel.nbytes, number
        self.turn = 0

    def begin(self) -> None:
        """A run begins."""

    def row(self, table: np.ndarray[Any, Any], value: int) -> None:
        """Run a table on the frame of the device, its arena elsewhere. Raises Stopped."""
        words, before = self.words, int(self.words[FrameWords.table])
        words[FrameWords.table], words[FrameWords.bases + ARENA] = address_of(table), value
        try:
            status = self.part.support.walk(self.address)
        finally:
            words[FrameWords.table] = before
        if status:
            raise Stopped(status)

    def buffer(self) -> int:
        """Memory of the device for one message."""
        made = self.part.memory.allocate(self.nbytes)
        weakref.finalize(self, self.driver.free, made).atexit = False
        return made


def _sending(number: int, nbytes: int) -> np.ndarray[Any, Any]:
    table = TableBuilder()
    table.send(nbytes, number, (ARENA, 0))
    table.end()
    return table.finish()


def _receiving(number: int, nbytes: int) -> np.ndarray[Any, Any]:
    table = TableBuilder()
    table.wait(nbytes, number, (ARENA, 0))
    table.end()
    return table.finish()


def _sending_or_failing(number: int, nbytes: int) -> np.ndarray[Any, Any]:
    """Send, or call kernel 0 where the byte at base CONSTANTS says that a kernel has failed."""
    table = TableBuilder()
    good = table.branch((CONSTANTS, 0))
    table.call(0, ())
    table.end()
    table.patch(good, table.position)
    table.send(nbytes, number, (ARENA, 0))
    table.end()
    return table.finish()


# ------------------------------------------------------------------------------ with the host


class ToHost(Way):
    """Values for a device that reads host memory."""

    def __init__(self, frame: DeviceFrame, native: Frame, channel: Channel, number: int) -> None:
        super().__init__(frame, native, channel, number)
        self.waits = channel.buffered or not channel.nbytes
        self.staging = self.driver.pinned(max(8, channel.nbytes))
        self.event = self.driver.event()
        self.table = (_sending if self.waits else _sending_or_failing)(number, channel.nbytes)
        # A frame for the copy stream.
        letter = self.letter = np.zeros(FrameWords.bases + 2, np.int64)
        letter[FrameWords.table] = address_of(self.table)
        letter[FrameWords.team] = native.words[FrameWords.team]
        letter[FrameWords.device] = native.words[FrameWords.device]
        letter[FrameWords.bases :] = address_of(self.staging), frame.status
        found = weakref.ref(self)

        def fail(*_: int) -> int:
            way = found()
            return way.fail() if way is not None else 0

        self.callback, self.kernels = callback(fail)
        letter[[FrameWords.kernels, FrameWords.parameters]] = address_of(self.kernels)

    def fail(self) -> int:
        """Called by the copy stream, in a thread that may wait for nothing: a kernel has failed.

        Others may wait for the message that is not sent, and this device for them.
        """
        row, code = self.frame.transfer.failure
        self.words[FrameWords.row] = row
        status = keep(explain(self.part.image, code, row))
        team, device = self.words[[FrameWords.team, FrameWords.device]].tolist()
        self.part.support.fail_team(team, device, status)
        return 0

    def send(self, address: int) -> None:
        driver, staging = self.driver, address_of(self.staging)
        if self.waits:
            if self.nbytes:
                driver.copy(staging, address, self.nbytes, COMPUTE)
            self.frame.check()
            self.row(self.table, staging)
            return
        driver.record(self.event, COMPUTE)
        driver.follow(COPY, self.event)
        driver.copy(staging, address, self.nbytes, COPY)
        walk = self.part.support.addresses["graphc_walk"]
        driver.call(walk, address_of(self.letter), COPY)


class FromHost(Way):
    """Values from a device that writes host memory."""

    def __init__(self, frame: DeviceFrame, native: Frame, channel: Channel, number: int) -> None:
        super().__init__(frame, native, channel, number)
        self.table = _receiving(number, channel.nbytes)
        self.staging = self.driver.pinned(max(8, channel.nbytes))
        self.uploaded, self.taken = self.driver.event(), self.driver.event()
        self.between = self.buffer() if channel.nbytes >= tuned.copied_beside else 0

    def receive(self, address: int) -> None:
        driver, staging = self.driver, address_of(self.staging)
        driver.settle(self.uploaded)
        self.row(self.table, staging)
        if self.between:
            driver.follow(COPY, self.taken)
            driver.copy(self.between, staging, self.nbytes, COPY)
            driver.record(self.uploaded, COPY)
            driver.follow(COMPUTE, self.uploaded)
            driver.copy(address, self.between, self.nbytes, COMPUTE)
            driver.record(self.taken, COMPUTE)
        elif self.nbytes:
            driver.copy(address, staging, self.nbytes, COMPUTE)
            driver.record(self.uploaded, COMPUTE)


# ------------------------------------------------------------------------------ between GPUs


class ToDevice(Way):
    """Values for another GPU, which copies them."""

    def __init__(
        self, frame: DeviceFrame, native: Frame, channel: Channel, number: int, boxes: Boxes
    ) -> None:
        super().__init__(frame, native, channel, number)
        self.table = _sending(number, 0)
        self.box = boxes.setdefault(number, deque())
        self.buffered = channel.buffered
        count = _BUFFERS if channel.buffered else 1
        places = [self.buffer() if self.buffered else 0 for _ in range(count)]
        self.parcels = [Parcel(place, self.driver.event()) for place in places]

    def begin(self) -> None:
        self.box.clear()

    def send(self, address: int) -> None:
        if not self.nbytes:
            self.frame.check()
        parcel = self.parcels[self.turn % len(self.parcels)]
        self.turn += 1
        if not self.buffered:
            parcel.address = address
        elif self.nbytes:
            if parcel.taken is not None:
                self.driver.follow(COMPUTE, parcel.taken)
            self.driver.copy(parcel.address, address, self.nbytes, COMPUTE)
        self.driver.record(parcel.ready, COMPUTE)
        self.box.append(parcel)
        self.row(self.table, 0)


class FromDevice(Way):
    """Values from another GPU."""

    def __init__(
        self, frame: DeviceFrame, native: Frame, channel: Channel, number: int, boxes: Boxes
    ) -> None:
        super().__init__(frame, native, channel, number)
        self.table = _receiving(number, 0)
        self.box = boxes.setdefault(number, deque())
        self.events = [self.driver.event() for _ in range(_BUFFERS)]

    def receive(self, address: int) -> None:
        self.row(self.table, 0)
        parcel = self.box.popleft()
        if self.nbytes:
            self.driver.follow(COMPUTE, parcel.ready)
            self.driver.copy(address, parcel.address, self.nbytes, COMPUTE)
            event = self.events[self.turn % _BUFFERS]
            self.turn += 1
            self.driver.record(event, COMPUTE)
            parcel.taken = event


class Post:
    """The messages of a device frame, by channel."""

    def __init__(self) -> None:
        self.sends: dict[int, ToHost | ToDevice] = {}
        self.receives: dict[int, FromHost | FromDevice] = {}

    def join(
        self, frame: DeviceFrame, native: Frame, image: Image, device: int, boxes: Boxes
    ) -> None:
        """Open this device's ends of the channels of a program."""
        images = image.images
        for number, channel in enumerate(image.channels):
            if channel.source == device:
                near = images[channel.target].on_gpu
                self.sends[number] = (
                    ToDevice(frame, native, channel, number, boxes)
                    if near
                    else ToHost(frame, native, channel, number)
                )
            elif channel.target == device:
                source = images[channel.source]
                if source.on_gpu:
                    frame.driver.reach(open_driver(source.cpu, source.device))
                self.receives[number] = (
                    FromDevice(frame, native, channel, number, boxes)
                    if source.on_gpu
                    else FromHost(frame, native, channel, number)
                )

    def begin(self) -> None:
        """A run begins."""
        for way in self.sends.values():
            way.begin()
