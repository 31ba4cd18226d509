"""A worker: a process that runs its share of programs, step by step, as long as its client lives.

    main thread    sleeps until the bell rings; runs a step, or reads a message from the socket
    watcher        moves the beat; stops the run that is in flight when the client says so; ends the
                   process when the client has ended

It imports no part of the compiler: programs come as images.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.call import native_support
from graphc.runtime.call.failure import in_words
from graphc.runtime.call.memory import address_of
from graphc.runtime.cluster import wire
from graphc.runtime.cluster.heartbeats import BEAT_SECONDS
from graphc.runtime.cluster.link_table import BELL_BYTES, Row, write_links
from graphc.runtime.cluster.memory import Block, file_of
from graphc.runtime.cluster.program_part import ProgramPart, carried
from graphc.runtime.cluster.wire import Kind, Message
from graphc.runtime.devices.device import check_host
from graphc.runtime.files.gcx_reader import File
from graphc.runtime.load.layouts import BellWords
from graphc.runtime.load.program import FAR, Image

if TYPE_CHECKING:
    from graphc.runtime.cluster.transport import Carrier

TOKEN = "GRAPHC_TOKEN"  # where links go over TCP
READ_SOCKET = -1  # instead of the number of a program
CANCEL = struct.Struct("<q")  # the step that is given up
LOST_STATUS = 17  # of a process whose client is gone


class Worker:
    """The state of a worker process."""

    def __init__(
        self, connection: socket.socket, bell: Block, threads: int, token: str = ""
    ) -> None:
        self.connection, self.bell, self.threads, self.token = connection, bell, threads, token
        self.words = bell.words(0, BELL_BYTES // 8)
        self.images: dict[int, Image] = {}
        self.parts: dict[int, ProgramPart] = {}
        self.blocks: WeakValueDictionary[int, Block] = WeakValueDictionary()
        self.blocks_of: dict[int, list[Block]] = {}  # by program, its own memory first
        self.links_of: dict[int, list[Row]] = {}  # by program
        self.running: ProgramPart | None = None
        self.lock = threading.Lock()  # of what runs
        self.given_up = 0  # the latest step that was, which may not have begun yet
        self.trouble = ""  # why it cannot end
        self.reason = ""  # why the latest step failed that called a queue or reader
        self.carrier: Carrier | None = None  # where links do not lie in shared memory
        self.never = np.zeros(1, np.int64)

    # -- the watcher

    def watch(self) -> None:
        """Until the client ends, which the system tells through its end of stdin, too."""
        client = os.pidfd_open(os.getppid())
        while True:
            ready, _, _ = select.select([client, 0], (), (), BEAT_SECONDS)
            self.words[BellWords.beat] += 1
            told = os.read(0, 4096) if 0 in ready else b""
            if client in ready or (0 in ready and not told):
                os._exit(LOST_STATUS)
            for (step,) in CANCEL.iter_unpack(told):
                self.cancel(step)

    def report_broken_link(self, reason: str) -> None:
        """A connection to another worker is cut: what runs cannot end."""
        with self.lock:
            if self.running is not None:
                self.trouble = reason
                self.stop_program(int(self.words[BellWords.program]))
                self.running.cancel()

    def cancel(self, step: int) -> None:
        """Stop this step, also if it begins only later; what runs after it goes on."""
        with self.lock:
            self.given_up = step
            self.stop_if_given_up()

    def stop_if_given_up(self) -> None:
        """Stop what runs if it is the step that was given up."""
        if self.running is not None and self.words[BellWords.step] == self.given_up:
            self.running.cancel()

    def stop_program(self, program: int) -> None:
        """Tell all processes of a program, by the word they share, that its step has failed."""
        self.blocks_of[program][0].words(0, 1)[0] = 1

    # -- messages

    def serve(self) -> None:
        """Do what the client asks for."""
        while not self.images:
            self.read()
        support = native_support.support(next(iter(self.images.values())).support)
        at, never = self.bell.address, address_of(self.never)
        asked, done = at + 8 * BellWords.asked, at + 8 * BellWords.done
        answered = 0
        while True:
            support.reach(asked, answered + 1, never, never)
            program = int(self.words[BellWords.program])
            if program == READ_SOCKET:
                self.read()
            else:
                self.step(program)
            answered += 1
            support.advance(done, answered)

    def step(self, program: int) -> None:
        share = self.parts[program]
        with self.lock:
            share.ready()
            self.running = share
            self.stop_if_given_up()
        status, row = share.step()
        with self.lock:
            self.running = None
        self.words[BellWords.sent] = sum(each.sent() for each in self.parts.values())
        if status:
            self.stop_program(program)
            status, self.reason = in_words(status)
        self.words[BellWords.status], self.words[BellWords.row] = status, row

    def read(self) -> None:
        """Read one message, and answer it."""
        try:
            message = wire.receive(self.connection)
        except wire.Lost:
            os._exit(LOST_STATUS)
        try:
            made = _DOES[message.kind](self, message)
        except REFUSED as error:
            wire.send(self.connection, Kind.ERROR, told(error))
            return
        address = self.carrier.address if self.carrier is not None else ""
        fields = {"address": address, "reason": self.reason}
        files = [file_of([log]) for log in made or ()]
        wire.send(self.connection, Kind.DONE, fields, files)
        for file in files:
            os.close(file)

    def load(self, message: Message) -> None:
        """Take the image of a program over."""
        (descriptor,) = message.descriptors
        try:
            image = File(Path(f"/proc/self/fd/{descriptor}")).image(resources=True)
        finally:
            os.close(descriptor)
        for each in image.images:
            if not each.on_gpu:
                check_host(each.triple, each.cpu, each.features)
        support = native_support.support(image.support)
        if self.token and self.carrier is None:
            from graphc.runtime.cluster.transport import Carrier, sockets_for_links

            sockets = sockets_for_links(self.token, message.get("encrypts", bool))
            self.carrier = Carrier(support, sockets, self.report_broken_link)
        self.images[message.get("program", int)] = image

    def open(self, message: Message) -> None:
        """Make a program ready to run in this memory: the first block is that of the program."""
        program = message.get("program", int)
        numbers, sizes = message.numbers("blocks"), message.numbers("sizes")
        blocks = [
            self.block(size, number, descriptor)
            for size, number, descriptor in zip(sizes, numbers, message.descriptors, strict=True)
        ]
        start = blocks[0].address
        image, ways = self.images[program], message.numbers("links")
        places = dict(zip(ways[::2], ways[1::2], strict=True))
        bells = bells_told(message, start)
        if self.carrier is None:
            links = {number: start + at for number, at in places.items()}
            share = ProgramPart(image, self.threads, links, start, bells)
        else:
            peers = dict(zip(places, message.get("peers", list), strict=True))
            share = carried(
                image,
                self.threads,
                start,
                self.carrier,
                (program, message.get("opening", int)),
                peers,
                bells,
            )
        pairs = message.numbers("variables")
        variables = [
            blocks[which].address + at for which, at in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        share.point([start + at for at in message.numbers("values")])
        share.frame.bind(variables)
        self.parts[program], self.blocks_of[program] = share, blocks
        pairs = message.numbers("ends")
        ends = zip(pairs[::2], pairs[1::2], strict=True)
        self.links_of[program] = [
            (blocks[0].descriptor, at, source, target)
            for (number, at), (source, target) in zip(places.items(), ends, strict=True)
            if self.carrier is None and (image.channels[number].target != FAR or target < 0)
        ]
        self.list_links()

    def list_links(self) -> None:
        """Have others see the links of all programs: of those between workers, the taker's end."""
        write_links(self.bell, [row for rows in self.links_of.values() for row in rows])

    def block(self, size: int, number: int, descriptor: int) -> Block:
        """Memory that the client shares; one that is here already is not mapped again."""
        found = self.blocks.get(number)
        if found is not None:
            os.close(descriptor)
            return found
        made = self.blocks[number] = Block(size, number, descriptor)
        return made

    def why(self, message: Message) -> None:
        """Every answer says why the latest step failed."""

    def log(self, message: Message) -> list[np.ndarray]:
        """What a program has logged; from now on it logs so many rows of each device."""
        share = self.parts[message.get("program", int)]
        found = share.logged()
        share.log(message.get("room", int))
        return found

    def drop(self, message: Message) -> None:
        """Forget a program."""
        program = message.get("program", int)
        if self.carrier is not None:
            self.carrier.drop(program)
        for table in (self.images, self.parts, self.blocks_of, self.links_of):
            table.pop(program, None)
        self.list_links()


def bells_told(message: Message, start: int) -> dict[int, int]:
    """The addresses of bells in the memory of a program, by the number of a link."""
    pairs = message.numbers("bells")
    return {number: start + at for number, at in zip(pairs[::2], pairs[1::2], strict=True)}


REFUSED = (GraphError, LookupError, TypeError, ValueError)  # what a message that is wrong raises


def told(error: Exception) -> dict[str, str]:
    """What the client is told of an error."""
    if isinstance(error, GraphError):
        return {"message": error.message, "hint": error.hint or ""}
    return {"message": f"the message does not fit ({type(error).__name__}: {error})", "hint": ""}


_DOES: dict[Kind, Callable[[Worker, Message], Any]] = {
    Kind.LOAD: Worker.load,
    Kind.OPEN: Worker.open,
    Kind.DROP: Worker.drop,
    Kind.WHY: Worker.why,
    Kind.LOG: Worker.log,
}


def main() -> None:
    """Serve the client that has started this process: `descriptor of the socket, of the bell`."""
    descriptor, bell, threads = map(int, sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to answer
    connection = socket.socket(fileno=descriptor)
    token = os.environ.pop(TOKEN, "")
    worker = Worker(connection, Block(BELL_BYTES, -1, bell), threads, token)
    threading.Thread(target=worker.watch, daemon=True).start()
    wire.send(connection, Kind.HELLO, wire.hello())
    worker.serve()


if __name__ == "__main__":
    main()
