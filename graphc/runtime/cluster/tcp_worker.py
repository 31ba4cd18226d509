"""A worker that has joined over TCP: the work of `worker`, without memory in common."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.call import native_support
from graphc.runtime.cluster.heartbeats import BEAT_SECONDS
from graphc.runtime.cluster.link_table import BELL_BYTES
from graphc.runtime.cluster.memory import Block, file_of, new_block
from graphc.runtime.cluster.program_part import carried
from graphc.runtime.cluster.transport import Carrier, CurveSockets, PlainSockets
from graphc.runtime.cluster.wire import (
    PULSE,
    Kind,
    Message,
    framed,
    hello,
    host_of,
    message_of,
    unframed,
)
from graphc.runtime.cluster.worker import LOST_STATUS, REFUSED, Worker, bells_told, told
from graphc.runtime.load.layouts import BellWords

SILENCE = 60.0  # seconds without a connection to the client, after which a worker ends
LAST_WORD_SECONDS = 1.0  # for what was said before the connection ended to be read


def serve(address: str, token: str, task: int, threads: int) -> NoReturn:
    """Be the worker of this task until the client at the address ends, or has had enough."""
    TcpWorker(token, address, task, threads).serve()
    raise SystemExit(0)


class TcpWorker(Worker):
    """The state of a worker that has joined over TCP."""

    def __init__(self, token: str, address: str, task: int, threads: int) -> None:
        self.secret, self.sockets = token, CurveSockets(token)
        name = f"{task}/{os.urandom(8).hex()}".encode()
        self.dealer, self.pulse = (self._named(each) for each in (name, name + PULSE))
        self.monitor = self.dealer.get_monitor_socket()
        for connection in (self.dealer, self.pulse):
            connection.connect(address)
        self.host = own_host(host_of(address))
        self.variables: dict[tuple[str, str], Block] = {}
        self.places: dict[int, list[int]] = {}
        self.closing = threading.Event()  # the client has said that it ends
        super().__init__(socket.socket(), new_block(BELL_BYTES), threads)

    def _named(self, name: bytes) -> Any:
        connection = self.sockets.socket(self.sockets.zmq.DEALER)
        connection.identity = name
        return connection

    def serve(self) -> None:
        """Do what the client asks for, until it asks for the end."""
        self.dealer.send_multipart(framed(Kind.HELLO, hello(host=socket.gethostname())))
        threading.Thread(target=self.watch, daemon=True).start()
        while True:
            parts = self.dealer.recv_multipart()
            try:
                message = unframed(parts)
                if message.kind == Kind.CLOSE:
                    self.closing.set()
                    return
                fields, payload = _DOES[message.kind](self, message)
            except REFUSED as error:
                self.dealer.send_multipart(framed(Kind.ERROR, told(error)))
            else:
                self.dealer.send_multipart(framed(Kind.DONE, fields, payload))

    def watch(self) -> None:
        """Beat, and stop what the client gives up; end when the connection ends."""
        from zmq.utils.monitor import recv_monitor_message

        zmq = self.sockets.zmq
        poller = zmq.Poller()
        poller.register(self.pulse, zmq.POLLIN)
        poller.register(self.monitor, zmq.POLLIN)
        begin, is_connected = time.monotonic(), False
        while True:
            ready = dict(poller.poll(1000 * BEAT_SECONDS))
            if self.monitor in ready:
                event = recv_monitor_message(self.monitor)["event"]
                is_connected |= event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                if event == zmq.EVENT_DISCONNECTED and is_connected:
                    if self.closing.wait(LAST_WORD_SECONDS):
                        return
                    os._exit(LOST_STATUS)
            if not is_connected and time.monotonic() - begin > SILENCE:
                os._exit(LOST_STATUS)
            if self.pulse in ready:
                self.hear(message_of(self.pulse.recv_multipart()))
            with suppress(zmq.Again):  # a connection that was refused is not tried again
                self.pulse.send_multipart(framed(Kind.BEAT, {}), zmq.NOBLOCK)

    def hear(self, message: Message | None) -> None:
        """Do what the client says beside the steps, if it is anything."""
        if message is None:
            return
        if message.kind == Kind.CANCEL:
            self.cancel(message.get("step", int))
        elif message.kind == Kind.CLOSE:  # it was given up, and another takes its place
            os._exit(LOST_STATUS)

    def stop_if_given_up(self) -> None:
        """As that of a worker of the client's machine, and all who wait here for others."""
        if self.running is not None and self.words[BellWords.step] == self.given_up:
            self.stop_program(int(self.words[BellWords.program]))
            self.running.cancel()

    # -- messages

    def load_far(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Take the image of a program over; where links of this process are reached."""
        file = file_of(message.payload)
        self.load(Message(Kind.LOAD, message.fields, (file,)))
        if self.carrier is None:
            support = native_support.support(next(iter(self.images.values())).support)
            encrypts = message.get("encrypts", bool)
            sockets = self.sockets if encrypts else PlainSockets(self.secret)
            self.carrier = Carrier(support, sockets, self.report_broken_link, self.host)
        return {"address": self.carrier.address}, []

    def open_far(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Make a program ready to run in memory of this process."""
        program = message.get("program", int)
        memory = new_block(message.get("size", int))
        blocks = [
            self.variable((home, name), n) for home, name, n in message.get("variables", list)
        ]
        numbers = message.numbers("links")[::2]
        peers = dict(zip(numbers, message.get("peers", list), strict=True))
        assert self.carrier is not None
        opening = program, message.get("opening", int)
        image, start = self.images[program], memory.address
        share = carried(
            image, self.threads, start, self.carrier, opening, peers, bells_told(message, start)
        )
        places = message.numbers("values")
        share.point([start + at for at in places])
        share.frame.bind([block.address for block in blocks])
        self.parts[program], self.blocks_of[program] = share, [memory, *blocks]
        self.places[program] = places
        return {}, []

    def variable(self, key: tuple[str, str], nbytes: int) -> Block:
        """The memory of a variable, made when it is first asked for, or with another size."""
        found = self.variables.get(key)
        if found is None or found.size != nbytes:
            found = self.variables[key] = new_block(nbytes)
        return found

    def run(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """One step: parameters came with it, results go back."""
        program, step = message.get("program", int), message.get("step", int)
        image, memory = self.images[program], self.blocks_of[program][0]
        places = self.places[program]
        for slot, at, data in zip(image.params, places, message.payload):
            if len(data) != slot.nbytes:
                raise GraphError(
                    f"{slot.name!r} came with {len(data)} bytes, and has {slot.nbytes}"
                )
            memory.bytes[at : at + len(data)] = np.frombuffer(data, np.uint8)
        self.words[BellWords.program], self.words[BellWords.step] = program, step
        self.trouble = ""
        self.step(program)
        status, row = int(self.words[BellWords.status]), int(self.words[BellWords.row])
        sent = int(self.words[BellWords.sent])
        why = {"trouble": self.trouble, "reason": self.reason if status else ""}
        fields = {"status": status, "row": row, "sent": sent, **why}
        pairs = zip(image.results, places[len(image.params) :])
        results = [memory.bytes[at : at + slot.nbytes].tobytes() for slot, at in pairs]
        return fields, [] if status else results

    def set(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """A variable has this value."""
        home, name = message.get("variable", list)
        (data,) = message.payload
        self.variable((home, name), len(data)).bytes[: len(data)] = np.frombuffer(data, np.uint8)
        return {}, []

    def fetched(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """The value of a variable."""
        home, name = message.get("variable", list)
        block = self.variables[home, name]
        return {}, [block.bytes[: block.size].tobytes()]

    def clock(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """What the time is."""
        return {"clock": time.monotonic_ns()}, []

    def log_far(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """As `log`."""
        return {}, [log.tobytes() for log in self.log(message)]

    def drop_far(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Forget a program."""
        self.drop(message)
        self.places.pop(message.get("program", int), None)
        return {}, []


def own_host(other: str) -> str:
    """The address of this machine that another one sees."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # sends nothing
        return str(probe.getsockname()[0])


_DOES = {
    Kind.LOAD: TcpWorker.load_far,
    Kind.OPEN: TcpWorker.open_far,
    Kind.DROP: TcpWorker.drop_far,
    Kind.RUN: TcpWorker.run,
    Kind.CLOCK: TcpWorker.clock,
    Kind.LOG: TcpWorker.log_far,
    Kind.SET: TcpWorker.set,
    Kind.GET: TcpWorker.fetched,
}
