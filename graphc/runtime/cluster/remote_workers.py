"""`RemoteCluster`: workers that somebody else has started, on this machine or others.

    client   ROUTER ══ TCP, CURVE ══ DEALER   worker: programs, steps, values, variables
                    ════════════════ DEALER   its pulse: beats, and word that a step is given up

Nothing is shared: arguments and results come with the message of a step and its answer, a variable
lives with the worker that uses it, and is fetched when this process reads it (as from a GPU: see
`graphc.runtime.cuda.device_variables`).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.call import native_support
from graphc.runtime.call.variable import Cell
from graphc.runtime.cluster.heartbeats import Heartbeats
from graphc.runtime.cluster.local_workers import LocalCluster, LostWorker, local, note
from graphc.runtime.cluster.memory import Block
from graphc.runtime.cluster.transport import MOST_FRAME, CurveSockets
from graphc.runtime.cluster.wire import (
    PULSE,
    START_SECONDS,
    Kind,
    Message,
    check_version,
    framed,
    host_of,
    message_of,
    require_good,
)
from graphc.runtime.devices.device import default_threads

_LOOK = 20  # milliseconds
_LISTEN_SECONDS = 0.1  # between looks while no step runs
_LAST_WORD_MILLISECONDS = 1000  # for what was sent before the end
MOST_DIGITS = 9  # of the number of a task
CLOCK_LOOKS = 7  # at the clock of a worker


class MessageRouter:
    """The socket of the client: messages of all workers come here, and are sorted by task."""

    def __init__(self, address: str, token: str) -> None:
        self.sockets = CurveSockets(token)
        self.connection = self.sockets.socket(self.sockets.zmq.ROUTER, serves=True)
        self.connection.linger = _LAST_WORD_MILLISECONDS
        try:
            self.connection.bind(address)
        except self.sockets.zmq.ZMQError as error:
            self.sockets.close()
            raise GraphError(f"cannot listen at {address}: {error}") from None
        self.address = self.connection.last_endpoint.decode()  # of any port, if it was 0
        self.lock = threading.RLock()  # of the socket
        self.names: dict[int, bytes] = {}  # of the process that has joined last, by task
        self.came: dict[int, deque[Message]] = defaultdict(deque)
        self.alarm = np.zeros(1, np.int64)  # set when a step has failed somewhere
        self.heartbeats = Heartbeats(_LISTEN_SECONDS)
        self.monitor = self.connection.get_monitor_socket(self.sockets.zmq.EVENT_DISCONNECTED)

    def post(self, name: bytes, kind: Kind, fields: dict[str, Any], payload: Any = ()) -> None:
        """Send to a process that has joined; what it is too late for is dropped. Raises GraphError
        for what is too large."""
        if (largest := max(map(len, payload), default=0)) > MOST_FRAME:
            raise GraphError(f"{largest} bytes are too many for one message ({MOST_FRAME})")
        with self.lock:
            self.connection.send_multipart([name, *framed(kind, fields, payload)])

    def take(self, task: int, ends: Callable[[], object]) -> Message | None:
        """The next message of a worker; None if the wait ends before."""
        while True:
            with self.lock:
                self.listen()
                if self.came[task]:
                    return self.came[task].popleft()
                if ends():
                    return None
                if self.connection.poll(_LOOK):
                    self.sort(self.connection.recv_multipart())

    def listen(self) -> None:
        """Sort what has come."""
        with self.lock:
            self.heartbeats.look()
            while self.connection.poll(0):
                self.sort(self.connection.recv_multipart())
            while self.monitor.poll(0):  # behind what a connection had still brought
                self.monitor.recv_multipart()
                self.heartbeats.hear_end()

    def sort(self, parts: list[bytes]) -> None:
        """Note what has come; what is no message, or an earlier process of a task says, is
        dropped."""
        name, text = parts[0], parts[0].split(b"/")[0]
        if not (text.isdigit() and len(text) < MOST_DIGITS):
            return
        task, message = int(text), message_of(parts[1:])
        if message is None:
            return
        if message.kind == Kind.HELLO:
            self.names[task] = name
            self.came[task].clear()
        elif name.removesuffix(PULSE) != self.names.get(task):
            return
        self.heartbeats.hear(task)
        if message.kind != Kind.BEAT:
            self.came[task].append(message)
        if message.kind == Kind.DONE and message.fields.get("status"):
            self.alarm[0] = 1


class RemoteWorker:
    """A worker process of another machine, as its client sees it."""

    def __init__(self, router: MessageRouter, cluster: RemoteCluster, task: int) -> None:
        self.router, self.cluster, self.task = router, cluster, task
        self.name = f"/job:{cluster.job}/task:{task}"
        self.where, self.pid = "not joined yet", 0
        self.joined = b""  # the name of its process on the socket
        self.lost = self.address = ""
        self.gone = np.zeros(1, np.int64)
        self.programs: set[int] = set()
        self.values: dict[int, tuple[int, Sequence[np.ndarray]]] = {}  # by program
        self.versions: dict[tuple[str, str], tuple[Cell, int]] = {}
        self.program = self.sent = 0

    def __repr__(self) -> str:
        return f"worker {self.name} ({self.where})"

    def join(self) -> None:
        """Wait until it is there. Raises GraphError for one of another version, and LostWorker."""
        end = time.monotonic() + START_SECONDS
        hello = self.router.take(self.task, lambda: time.monotonic() > end)
        if hello is None or hello.kind != Kind.HELLO:
            raise LostWorker(
                f"{self} did not join within {START_SECONDS:g} s",
                hint="every rank runs the same script, with the same GRAPHC_ADDRESS and token",
            )
        self.joined = self.router.names[self.task]
        self.pid = hello.get("pid", int)
        self.where = f"process {self.pid} of {hello.get('host', str)}"
        check_version(hello, self)

    def links(self) -> list[dict[str, int]]:
        """None: they lie in memory of its process, and this one cannot look at them."""
        return []

    # -- asking

    def tell(self, support: native_support.Support, kind: Kind, fields: dict[str, Any]) -> Message:
        """Send a message; the answer. Raises GraphError where that is an error."""
        return self._ask(kind, fields)

    def clock(self, support: native_support.Support) -> tuple[int, int]:
        """As that of a worker of this machine, by the quickest of some answers: it was given half
        way there and back, or as much earlier or later (Cristian, 1989)."""
        found = []
        for _ in range(CLOCK_LOOKS):
            begin = time.monotonic_ns()
            theirs = self._ask(Kind.CLOCK, {}).get("clock", int)
            end = time.monotonic_ns()
            found.append(((end - begin) // 2, theirs - (begin + end) // 2))
        error, ahead = min(found)
        return (ahead if abs(ahead) > error else 0), error  # it may well be the same clock

    def log(self, support: native_support.Support, program: int, room: int) -> list[np.ndarray]:
        answer = self._ask(Kind.LOG, {"program": program, "room": room})
        return [np.frombuffer(log, np.int64) for log in answer.payload]

    def _ask(self, kind: Kind, fields: dict[str, Any], payload: Any = ()) -> Message:
        self.look()
        if self.lost:
            raise LostWorker(f"{self} was lost: {self.lost}")
        try:
            self.router.post(self.joined, kind, fields, payload)
            answer = self._take(self.gone)
        except BaseException:
            self.lose("it was interrupted while it answered")  # its answer is still to come
            raise
        if answer is None:
            raise LostWorker(f"{self} was lost: {self.lost}")
        return require_good(answer, self)

    def _take(self, stop: np.ndarray) -> Message | None:
        alarm = stop if stop is self.gone else self.router.alarm

        def ends() -> bool:
            self.cluster.miss_silent()
            return bool(stop[0] or alarm[0] or self.gone[0])

        message = self.router.take(self.task, ends)
        if message is not None and message.kind == Kind.HELLO:
            self.router.came[self.task].appendleft(message)  # for the one who takes its place
            self.look()
            return None
        return message

    def look(self) -> None:
        """A process that was started in its place may have joined before it was missed."""
        if self.joined and self.router.names.get(self.task) != self.joined:
            self.lose("another process has joined in its place")

    def load(self, support: native_support.Support, program: int, pieces: Sequence[Any]) -> None:
        """Give it its share of a program."""
        data = b"".join(bytes(piece) for piece in pieces)
        fields = {"program": program, "encrypts": self.cluster.encrypts}
        self.address = self._ask(Kind.LOAD, fields, [data]).get("address", str)
        self.programs.add(program)

    def open(
        self,
        support: native_support.Support,
        fields: dict[str, Any],
        memory: Block,
        values: Sequence[np.ndarray],
        cells: Sequence[Cell],
    ) -> None:
        """Have it ready to run, with these variables."""
        named = [[*key_of(cell), cell.kind().nbytes] for cell in cells]
        self._ask(Kind.OPEN, {**fields, "variables": named})
        params = len(values) - fields["results"]
        self.values[fields["program"]] = params, values

    def ring(self, support: native_support.Support, program: int, step: int) -> None:
        """Ask for a step without waiting for it."""
        self.router.alarm[0], self.program = 0, program
        params, values = self.values[program]
        payload = [values[number].tobytes() for number in range(params)]
        fields = {"program": program, "step": step}
        self.look()
        if not self.lost:
            self.router.post(self.joined, Kind.RUN, fields, payload)

    def answer(self, support: native_support.Support, stop: np.ndarray) -> tuple[int, int] | None:
        """The status and row of the step that was asked for; None from a worker that is lost, and
        when the word `stop` is set or a step has failed elsewhere."""
        found = self._take(stop) if not self.lost else None
        if found is None:
            return None
        require_good(found, self)
        params, values = self.values[self.program]
        for place, data in zip(values[params:], found.payload):  # of a step that failed: none
            place[...] = np.frombuffer(data, place.dtype).reshape(place.shape)
        self.sent = found.get("sent", int)
        if trouble := found.get("trouble", str):
            self.cluster.trouble = f"{self}: {trouble}"
        self.reason = found.get("reason", str)
        return found.get("status", int), found.get("row", int)

    def why(self, support: native_support.Support) -> str:
        return self.reason

    def cancel(self, step: int) -> None:
        """Have it stop this step."""
        name = self.router.names.get(self.task)
        if name is not None and not self.lost:
            self.router.post(name + PULSE, Kind.CANCEL, {"step": step})

    def drop(self, support: native_support.Support, program: int) -> None:
        """Have it forget a program."""
        self._ask(Kind.DROP, {"program": program})
        self.programs.discard(program)
        self.values.pop(program, None)

    # -- variables

    def bring(self, support: native_support.Support, cell: Cell) -> None:
        """Have it know the newest value of a variable."""
        key = key_of(cell)
        known = self.versions.get(key)
        if cell.ready and (known is None or known[0] is not cell or known[1] != cell.version):
            self._ask(Kind.SET, {"variable": [*key]}, [cell.host().tobytes()])
            self.versions[key] = cell, cell.version

    def wrote(self, cell: Cell) -> None:
        """It has written a variable."""
        cell.changed()
        cell.newest = _There(self, key_of(cell))
        self.versions[key_of(cell)] = cell, cell.version

    def fetch(self, key: tuple[str, str]) -> bytes:
        """The value of a variable. Raises LostWorker."""
        with self.cluster.lock:
            return self._ask(Kind.GET, {"variable": [*key]}).payload[0]

    # -- the end

    def lose(self, reason: str) -> None:
        """It is not there any more."""
        if not self.lost:
            self.cluster.note_lost(self, reason)
            self.lost = reason
            self.gone[0] = 1
            self.cluster.stop_step()

    def close(self) -> None:
        """Have it end."""
        name = self.router.names.get(self.task)
        self.lost = self.lost or "the cluster was closed"
        if name is not None:
            self.router.post(name, Kind.CLOSE, {})

    def dismiss(self) -> None:
        """Have a process that was lost end: it may be there again, and not know that it was."""
        if self.joined:
            self.router.post(self.joined + PULSE, Kind.CLOSE, {})


class _There:
    """The value of a variable that a worker has."""

    def __init__(self, worker: RemoteWorker, key: tuple[str, str]) -> None:
        self.worker, self.key = worker, key

    def fetch(self, memory: np.ndarray[Any, Any]) -> None:
        """Copy it to memory of this process."""
        data = self.worker.fetch(self.key)
        memory[...] = np.frombuffer(data, memory.dtype).reshape(memory.shape)


def key_of(cell: Cell) -> tuple[str, str]:
    """What a variable is called."""
    return cell.container.name, cell.name


class RemoteCluster(LocalCluster):
    """Workers that somebody else starts and that join this process; a context manager.

    devices    the names of their devices, for `devices=` and `gc.device`
    pids       the numbers of their processes, each on its machine
    """

    is_remote = True

    def __init__(
        self, address: str, token: str, workers: int, threads: int, **options: Any
    ) -> None:
        self.router = MessageRouter(address, token)
        self.host = host_of(address)
        super().__init__(workers, threads, token=token, **options)

    def _started(self, count: int) -> list[Any]:
        return [RemoteWorker(self.router, self, task) for task in range(count)]

    def _look_after(self) -> None:
        watch = threading.Thread(target=_listen_between_steps, args=(weakref.ref(self),))
        watch.name, watch.daemon = "graphc-cluster", True
        watch.start()

    def check(self) -> None:
        """Find out who is silent, or was started anew, unless a step is running: that listens."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            if not self.is_closed:
                self.router.listen()
                self.miss_silent()
                for worker in self.workers:
                    worker.look()
        finally:
            self.lock.release()

    def miss_silent(self) -> None:
        """Lose who has said nothing for too long: somebody may wait for what comes from there."""
        for worker in self.workers:
            reason = self.router.heartbeats.missing(worker.task, self.patience)
            if worker.joined and reason:
                worker.lose(reason)

    def restart(self) -> None:
        """Wait for workers that were lost to join again; who has started them does so again.

        Variables that only such a worker had are lost: restore them.
        """
        with self.lock:
            for place, worker in enumerate(self.workers):
                if worker.lost:
                    worker.dismiss()
                    self.replace(worker)
                    self.workers[place] = made = RemoteWorker(self.router, self, worker.task)
                    self.restarts += 1
                    made.join()
                    note("%s is there after step %d", made, self.steps)

    def replace(self, worker: RemoteWorker) -> None:
        """Have another one started in its place: whoever has started it does so."""

    def close(self) -> None:
        """End the workers. Steps in flight end with an error."""
        if not self.is_closed and os.getpid() == self._owner:
            super().close()
            self.router.sockets.close()


def _listen_between_steps(found: weakref.ref[RemoteCluster]) -> None:
    """Check as long as the cluster is open; a step that begins need not wait for it."""
    while (cluster := found()) is not None and not cluster.is_closed:
        cluster.check()
        del cluster
        time.sleep(_LISTEN_SECONDS)


_RANKS = (
    ("GRAPHC_RANK", "GRAPHC_RANKS"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
)


def from_environment(
    *,
    threads: int | None = None,
    job: str = "worker",
    patience: float = 2.5,
    retries: int = 0,
    encrypt: bool = True,
) -> LocalCluster:
    """The cluster that the environment asks for; options are those of `local`.

    `graphc launch -n 3 SCRIPT` sets GRAPHC_WORKERS: workers of this machine.  Under torchrun,
    Slurm, MPI or anything that starts the same script several times, with GRAPHC_TOKEN and
    GRAPHC_ADDRESS=tcp://host:port: rank 0 gets the cluster, all others become its workers, here,
    and end with it.  What they send to one another is encrypted, or with encrypt=False signed.
    Raises GraphError where the environment says neither.
    """
    address = os.environ.get("GRAPHC_ADDRESS", "")
    if not address:
        workers = _number("GRAPHC_WORKERS", "graphc launch -n 3 SCRIPT sets it, or GRAPHC_ADDRESS")
        return local(workers, threads=threads, job=job, patience=patience, retries=retries)
    if type(encrypt) is not bool:
        raise GraphError(f"encrypt is True or False, not {encrypt!r:.80}")
    host_of(address)
    token = os.environ.get("GRAPHC_TOKEN", "")
    if not token:
        raise GraphError(
            f"workers that join at {address} need GRAPHC_TOKEN, a secret of all ranks",
            hint="export GRAPHC_TOKEN=$(head -c 32 /dev/urandom | base64) before they start",
        )
    found = [names for names in _RANKS if names[0] in os.environ]
    if not found:
        raise GraphError("GRAPHC_ADDRESS is set, but no rank", hint="set GRAPHC_RANK, GRAPHC_RANKS")
    rank, ranks = (_number(name, "ranks count from 0") for name in found[0])
    if not rank < ranks or ranks < 2:
        raise GraphError(f"rank {rank} of {ranks} is not possible", hint="a cluster has 2 or more")
    if rank:
        from graphc.runtime.cluster.tcp_worker import serve

        serve(address, token, rank - 1, threads or default_threads())
    return RemoteCluster(
        address,
        token,
        ranks - 1,
        threads or default_threads(),
        job=job,
        patience=patience,
        retries=retries,
        encrypts=encrypt,
    )


def _number(name: str, hint: str) -> int:
    text = os.environ.get(name, "")
    if not (text.isascii() and text.isdecimal()):
        raise GraphError(f"{name} is {text!r}; a number is expected", hint=hint)
    return int(text)
