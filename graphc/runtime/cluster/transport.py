"""`Carrier`: the links of a process to others over TCP, through ZeroMQ.

    link here  ── sender thread ──>  PUSH ══ TCP, CURVE ══> PULL  ── receiver thread ──>  link there
    taken      <──────────────────  PULL <══════════════  PUSH  <──────────────────────  taken

Each end has the link in memory of its own.  What a device moves there (`sent`, `taken`) is carried
to the other end, so both see what they would see in shared memory: at most one message lies in a
link.  Frames have a head of fixed size that says for which opening of which program they are; those
of any other are dropped.

Both ends of a connection prove that they know a secret, and all that passes is encrypted: the key
pair of every process comes from the token that the cluster has (CurveZMQ).  On a network that
nobody else is on, values may go as they are: then every head has a proof behind it that its sender
knows the token.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import threading
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.runtime.call.memory import address_of, aligned_bytes
from graphc.runtime.call.native_support import Support
from graphc.runtime.load.layouts import CountWords, LinkWords

HEAD = struct.Struct("<qqqqq")  # program, opening, link, whether bytes follow, position
MOST_FRAME = 1 << 34  # bytes
# By `benchmarks.cluster`: 4 MB, signed, took 6.1, 4.4, 3.9 and 4.4 ms in pieces of 64, 128, 256 kB
# and 1 MB.
MOST_PIECE = 1 << 18  # bytes of a message that go in one frame
SENT_IN_PLACE = 1 << 15  # bytes from which on a piece is not copied to be sent: not measured apart
PROOF = 16  # bytes
SHORTEST_TOKEN = 16
_WAIT = 100  # milliseconds
_FRAMES_HELD = 64  # that nobody has read yet
MOST_WAIT = 2500  # milliseconds for a connection


def zeromq() -> ModuleType:
    """The library. Raises GraphError where it is not installed."""
    try:
        import zmq
        import zmq.utils.z85
    except ImportError:
        raise GraphError(
            "links over TCP need pyzmq", hint="pip install 'graphc[cluster]'"
        ) from None
    library: ModuleType = zmq
    return library


def keys_of(token: str) -> tuple[bytes, bytes]:
    """The public and the secret key that a token stands for. Raises GraphError for a short one."""
    if len(token) < SHORTEST_TOKEN:
        raise GraphError(f"a token has at least {SHORTEST_TOKEN} characters, not {len(token)}")
    zmq = zeromq()
    secret = zmq.utils.z85.encode(hashlib.sha256(b"graphc link " + token.encode()).digest())
    return zmq.curve_public(secret), secret


class CurveSockets:
    """Sockets of those who know a token; all that passes between them is encrypted."""

    def __init__(self, token: str) -> None:
        self.zmq = zeromq()
        self.keys = keys_of(token)
        self.context = self.zmq.Context()
        from zmq.auth.thread import ThreadAuthenticator

        self.guard = ThreadAuthenticator(self.context)
        self.guard.start()
        self.guard.configure_curve_callback("*", credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """May who has this public key, and has proved it, connect?"""
        return key == self.keys[0]

    def socket(self, kind: int, *, serves: bool = False) -> Any:
        """A socket that others connect to (`serves`), or that connects to one."""
        connection = self.context.socket(kind)
        connection.curve_publickey, connection.curve_secretkey = self.keys
        connection.linger, connection.maxmsgsize = 0, MOST_FRAME
        connection.heartbeat_ivl, connection.heartbeat_timeout = 500, 2000
        if serves:
            connection.curve_server = True
        else:
            connection.curve_serverkey = self.keys[0]
        return connection

    def sealed(self, head: bytes) -> bytes:
        """A head of a frame as it goes: the connection says whose it is."""
        return head

    def opened(self, frame: bytes) -> bytes | None:
        """The head in a frame; None where it is of nobody who knows the token."""
        return frame if len(frame) == HEAD.size else None

    def close(self) -> None:
        """Close all sockets."""
        self.guard.stop()
        self.context.destroy()


class PlainSockets:
    """Sockets for links alone, where what passes may be read: heads of frames are signed.

    Who does not know the token cannot have a frame accepted, as long as it cannot change what
    passes between others, or have it again: this belongs to networks that nobody else is on.
    """

    def __init__(self, token: str) -> None:
        self.zmq = zeromq()
        self.key = hashlib.sha256(b"graphc frames " + keys_of(token)[1]).digest()
        self.context = self.zmq.Context()

    def socket(self, kind: int, *, serves: bool = False) -> Any:
        """A socket that others connect to (`serves`), or that connects to one."""
        connection = self.context.socket(kind)
        connection.linger, connection.maxmsgsize = 0, MOST_PIECE
        connection.rcvhwm = _FRAMES_HELD  # of each connection, whoever that is
        connection.heartbeat_ivl, connection.heartbeat_timeout = 500, 2000
        return connection

    def sealed(self, head: bytes) -> bytes:
        """A head of a frame as it goes: with a proof behind it."""
        return head + self._proof(head)

    def opened(self, frame: bytes) -> bytes | None:
        """The head in a frame; None where it is of nobody who knows the token."""
        head, proof = frame[: HEAD.size], frame[HEAD.size :]
        is_ours = len(head) == HEAD.size and hmac.compare_digest(proof, self._proof(head))
        return head if is_ours else None

    def _proof(self, head: bytes) -> bytes:
        return hashlib.blake2b(head, key=self.key, digest_size=PROOF).digest()

    def close(self) -> None:
        """Close all sockets."""
        self.context.destroy()


def sockets_for_links(token: str, encrypts: bool) -> CurveSockets | PlainSockets:
    """What the links of a cluster with this token go through."""
    return CurveSockets(token) if encrypts else PlainSockets(token)


@record
class Link:
    """One end of a link. `done` counts the bytes that are carried, or the takings that are told."""

    sends: bool
    nbytes: int
    peer: str
    words: np.ndarray[Any, Any]
    room: np.ndarray[Any, Any]
    bell: int = 0  # the address of what is rung when a message is there, or 0
    done: int = 0


class Carrier:
    """The threads that carry the bytes of links; `address` is where others reach it."""

    def __init__(
        self,
        support: Support,
        sockets: CurveSockets | PlainSockets,
        report_broken_link: Callable[[str], None],
        host: str = "127.0.0.1",
    ) -> None:
        self.support, self.sockets, self.zmq = support, sockets, sockets.zmq
        self.report_broken_link = (
            report_broken_link  # is told why what is carried does not come any more
        )
        self.words = aligned_bytes(CountWords.nbytes, CountWords.nbytes).view(np.int64)
        self.words[:] = 0
        self.at = address_of(self.words)
        self.closing = np.zeros(1, np.int64)
        self.links: dict[tuple[int, int, int], Link] = {}  # by program, opening, number
        self.lock = threading.Lock()
        self.inbox = sockets.socket(self.zmq.PULL, serves=True)
        self.address = f"tcp://{host}:{self.inbox.bind_to_random_port(f'tcp://{host}')}"
        self.peers: dict[str, Any] = {}
        self.monitors: dict[Any, str] = {}  # of connections to peers
        bodies = self._send, self._receive, self._watch
        self.threads = [threading.Thread(target=body, daemon=True) for body in bodies]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """End the threads and connections."""
        self.links = {}
        self.closing[0] = 1
        for thread in self.threads:
            thread.join()
        self.sockets.close()

    # -- what is carried

    def open(
        self, program: int, opening: int, links: Mapping[int, tuple[bool, int, str, int]]
    ) -> dict[int, int]:
        """Make links (by number: whether this end sends, bytes of a message, address of the other
        end, of the bell here), instead of earlier ones of the program; their addresses."""
        made = {}
        for number, (sends, nbytes, peer, bell) in links.items():
            memory = aligned_bytes(LinkWords.nbytes + max(1, nbytes), LinkWords.nbytes)
            words = memory[: LinkWords.nbytes].view(np.int64)
            words[:] = 0
            made[number] = Link(sends, nbytes, peer, words, memory[LinkWords.nbytes :], bell)
        with self.lock:
            kept = {key: link for key, link in self.links.items() if key[0] != program}
            opened = {(program, opening, number): link for number, link in made.items()}
            self.links = kept | opened
        return {number: address_of(link.words) for number, link in made.items()}

    def drop(self, program: int) -> None:
        """Forget the links of a program."""
        self.open(program, 0, {})

    # -- the threads

    def _send(self) -> None:
        """Carry what devices have moved here."""
        closing = address_of(self.closing)
        while not self.closing[0]:
            seen = int(self.words[CountWords.count])
            for key, link in self.links.items():
                self._carry(key, link)
            self.support.reach(self.at, seen + 1, closing, closing)

    def _carry(self, key: tuple[int, int, int], link: Link) -> None:
        if not link.sends:
            taken = int(link.words[LinkWords.taken])
            if taken > link.done and self._post(key, link, False, taken, None):
                link.done = taken
            return
        whole = max(1, link.nbytes)
        while (sent := int(link.words[LinkWords.sent])) > link.done:
            at = link.done % whole
            count = min(sent - link.done, whole - at, MOST_PIECE)
            piece = link.room[at : min(at + count, link.nbytes)]
            if not self._post(key, link, True, link.done + count, piece):
                return
            link.done += count

    def _post(
        self, key: tuple[int, int, int], link: Link, follows: bool, position: int, piece: Any
    ) -> bool:
        """Send a frame; False if the link was closed before it could go."""
        connection = self.peers.get(link.peer)
        if connection is None:
            connection = self.peers[link.peer] = self.sockets.socket(self.zmq.PUSH)
            monitor = connection.get_monitor_socket(self.zmq.EVENT_DISCONNECTED)
            self.monitors = {**self.monitors, monitor: link.peer}
            connection.immediate = True  # nothing waits for a connection that there is not
            connection.connect(link.peer)
        waited = 0
        while not connection.poll(_WAIT, self.zmq.POLLOUT):
            if self.links.get(key) is not link or self.closing[0]:
                return False
            waited += _WAIT
            if waited >= MOST_WAIT:
                self.report_broken_link(f"there is no connection to {link.peer}")
                waited = 0
        head = self.sockets.sealed(HEAD.pack(*key, follows, position))
        if piece is None:
            connection.send(head)
            return True
        connection.send(head, self.zmq.SNDMORE)
        # The device writes there again when the other end has told that it was taken.
        connection.send(piece.data, copy=piece.nbytes < SENT_IN_PLACE)
        return True

    def _watch(self) -> None:
        """Tell of connections that are cut: what was on its way there is lost."""
        while not self.closing[0]:
            ready, _, _ = self.zmq.select([*self.monitors], [], [], _WAIT / 1000)
            for monitor in ready:
                monitor.recv_multipart()
                self.report_broken_link(f"the connection to {self.monitors[monitor]} was cut")
            if not self.monitors:
                time.sleep(_WAIT / 1000)

    def _receive(self) -> None:
        """Move here what devices at other ends have moved."""
        while not self.closing[0]:
            if not self.inbox.poll(_WAIT):
                continue
            frames = self.inbox.recv_multipart(copy=False)
            head = self.sockets.opened(frames[0].bytes)
            if head is None or len(frames) > 2:
                continue
            program, opening, number, follows, position = HEAD.unpack(head)
            link = self.links.get((program, opening, number))
            if link is not None and follows != link.sends and len(frames) == 1 + follows:
                self._move(link, position, frames[1].buffer if follows else memoryview(b""))

    def _move(self, link: Link, position: int, piece: memoryview) -> None:
        start = address_of(link.words)
        if link.sends:
            if int(link.words[LinkWords.taken]) < position <= int(link.words[LinkWords.sent]):
                self.support.advance(start + 8 * LinkWords.taken, position)
            return
        whole = max(1, link.nbytes)
        before = int(link.words[LinkWords.sent])
        at = before % whole
        count = position - before
        fits = len(piece) == min(at + count, link.nbytes) - min(at, link.nbytes)
        if 0 < count <= whole - at and fits and position <= link.words[LinkWords.taken] + whole:
            link.room[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            self.support.advance(start + 8 * LinkWords.sent, position)
            if link.bell:
                self.support.ring(link.bell)
