"""`ProgramPart`: the devices of a program that one process runs, with links to those of the others.

Where things lie in the memory of a program that all its processes have:

    stop      one word: a step has failed or was given up
    values    parameters, then results, where the first device is a worker's
    bells     one for each device, which who sends to it rings
    links     one for each channel between two processes: two cache lines, room for one message
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.base.record import record, replace
from graphc.runtime.call.frame import Frame
from graphc.runtime.call.interrupt import EVER
from graphc.runtime.call.memory import address_of
from graphc.runtime.devices.multi_device import MultiDeviceExecutable, TeamFrame
from graphc.runtime.devices.ready_segments import Ready, agenda_of
from graphc.runtime.load.layouts import ChannelWords, FrameWords, LinkWords
from graphc.runtime.load.program import ALIGNMENT, FAR, Channel, Image, Slot
from graphc.runtime.load.table import FIRST_PARAM

if TYPE_CHECKING:
    from graphc.runtime.cluster.transport import Carrier

_LINE = 2 * ALIGNMENT


def part_of(image: Image, devices: Sequence[int]) -> Image:
    """The image of some devices of a program; channels keep their numbers."""
    numbers = {device: number for number, device in enumerate(devices)}
    first, *others = (image.images[device] for device in devices)
    channels = (
        replace(c, source=numbers.get(c.source, FAR), target=numbers.get(c.target, FAR))
        for c in image.channels
    )
    return replace(first, channels=tuple(channels), others=tuple(others), text="")


@record(frozen=True)
class MemoryLayout:
    """Where values, bells and links lie, in bytes from the start; `size` is what they take."""

    values: tuple[int, ...]
    bells: tuple[int, ...]
    links: Mapping[int, int]
    size: int


def layout_of(slots: Sequence[Slot], devices: int, channels: Mapping[int, Channel]) -> MemoryLayout:
    """MemoryLayout for values, bells of devices, and the links of channels, by number."""
    end = _LINE
    values, links = [], {}
    for slot in slots:
        values.append(end)
        end += _rounded(slot.nbytes)
    bells = tuple(range(end, end + devices * _LINE, _LINE))
    end += devices * _LINE
    for number, channel in channels.items():
        links[number] = end
        end += LinkWords.nbytes + _rounded(channel.nbytes)
    return MemoryLayout(tuple(values), bells, links, end)


def bells_of(image: Image, bells: Sequence[int]) -> dict[int, int]:
    """The bell that a message of a channel rings, by the channel's number, where `bells` are those
    of devices: of messages that their device need not wait for while anything else is ready."""
    found = {}
    for bell, each in zip(bells, image.images, strict=True):
        agenda = agenda_of(each.table.tolist())
        found.update(dict.fromkeys(agenda.messages if agenda is not None else (), bell))
    return found


def _rounded(size: int) -> int:
    return -(-size // _LINE) * _LINE


def carried(
    image: Image,
    threads: int,
    stop: int,
    carrier: Carrier,
    opening: tuple[int, int],
    peers: Mapping[int, str],
    bells: Mapping[int, int],
) -> ProgramPart:
    """A share whose links lie in memory of this process, and go on to `peers` by number; `opening`
    are the numbers of the program and of its opening. The carrier rings bells of this process."""
    ends = {
        number: (
            image.channels[number].target == FAR,
            image.channels[number].nbytes,
            peer,
            bells.get(number, 0),
        )
        for number, peer in peers.items()
    }
    here = {number: bell for number, bell in bells.items() if image.channels[number].source == FAR}
    return ProgramPart(image, threads, carrier.open(*opening, ends), stop, here, carrier.at)


class ProgramPart(MultiDeviceExecutable):
    """What a process runs of a program. `stop` is the address of the word that ends waits, `bells`
    are those of devices that need not wait for the message of a link, by its number."""

    def __init__(
        self,
        image: Image,
        threads: int,
        links: Mapping[int, int],
        stop: int,
        bells: Mapping[int, int],
        carrier: int = 0,
    ) -> None:
        super().__init__(image, threads=threads)
        self.links, self.stop, self.carrier = links, stop, carrier
        self.sends = [number for number in links if image.channels[number].target == FAR]
        self.frame = TeamFrame(self)
        self.logs: list[np.ndarray] = []
        self.frame.channels.attach_bells({k: bells[k] for k in self.sends if k in bells})
        for frame in self.frame.frames:
            if frame.ready is not None:
                self._have_hear(frame.ready, bells)

    def _have_hear(self, ready: Ready, bells: Mapping[int, int]) -> None:
        """Have a device hear of messages that come over links."""
        start, size = self.frame.channels.address, ChannelWords.nbytes
        far = {c: k for c, k in ready.agenda.messages.items() if c in self.links}
        if far:
            (bell,) = {bells[channel] for channel in far}
            ready.hear(bell, {k: start + size * channel for channel, k in far.items()})

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.frame,)

    def point(self, values: Sequence[int]) -> None:
        """Have runs use these addresses of parameters and results."""
        self.frame.bases[FIRST_PARAM : FIRST_PARAM + len(values)] = values

    def ready(self) -> None:
        """Forget that an earlier run was cancelled."""
        for frame in self.frame.frames:
            frame.words[FrameWords.cancel] = 0
            frame.words[FrameWords.begun] = time.monotonic_ns()

    def sent(self) -> int:
        """The bytes that have gone through links to other processes."""
        slots = self.frame.channels.words.reshape(-1, ChannelWords.nbytes // 8)
        return int(slots[self.sends, ChannelWords.moved].sum())

    def log(self, room: int) -> None:
        """Have runs write down so many rows of each device from now on; 0 for none."""
        self.logs = [np.zeros(2 + 2 * room, np.int64) for _ in self.frame.frames]
        for log, frame in zip(self.logs, self.frame.frames, strict=True):
            log[1] = room
            frame.words[FrameWords.log] = address_of(log) if room else 0

    def logged(self) -> list[np.ndarray]:
        """What the run has written down: for each device the rows that were kept."""
        return [log[: 2 + 2 * min(int(log[0]), int(log[1]))].copy() for log in self.logs]

    def step(self) -> tuple[int, int]:
        """Run once: 0 or a status, and the row that has it."""
        status = self._walk(self.frame)
        return status, int(self.frame.words[FrameWords.row])

    def cancel(self, begun_by: int = EVER) -> None:
        """Stop the run that is in flight if it began by this time."""
        if self.frame.words[FrameWords.begun] <= begun_by:
            self.frame.cancel()
