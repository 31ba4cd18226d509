"""`LocalCluster`: worker processes of this machine, which the client starts, watches and ends.

A worker that ends or stands still is lost: the step in flight ends with an error, on all workers.
`restart` starts it again; the programs are sent to it when they run next.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import GraphError, RunError
from graphc.runtime.call import native_support
from graphc.runtime.call.memory import address_of
from graphc.runtime.call.variable import Cell, Shared
from graphc.runtime.cluster import wire
from graphc.runtime.cluster.heartbeats import BEAT_SECONDS, Heartbeats
from graphc.runtime.cluster.link_table import BELL_BYTES, links_of
from graphc.runtime.cluster.memory import Block, above_standard, contents, file_of, new_block
from graphc.runtime.cluster.wire import Kind, Message
from graphc.runtime.cluster.worker import CANCEL, READ_SOCKET, TOKEN
from graphc.runtime.devices.device import default_threads
from graphc.runtime.devices.jobs import clusters
from graphc.runtime.load.layouts import BellWords

if TYPE_CHECKING:
    from graphc.runtime.cluster.transport import Carrier

MOST_WORKERS = 64
_ROOT = str(Path(__file__).parents[3])
MODULE = "graphc.runtime.cluster.worker"
_CODE = f"""\
import sys
sys.path.insert(0, sys.argv.pop(1))
from {MODULE} import main
main()
"""


def note(text: str, *what: object) -> None:
    """Have the log `graphc.cluster` say what has happened; the text names task and step."""
    import logging

    logging.getLogger("graphc.cluster").warning(text, *what)


class LostWorker(RunError):
    """A worker ended or stood still."""


def _ours_or_nothing(stream: int) -> int | None:
    """What a worker writes to, where this process has no such stream."""
    try:
        os.fstat(stream)
    except OSError:
        return subprocess.DEVNULL
    return None


class LocalWorker:
    """A worker process, as its client sees it. `lost` says why it is not there any more."""

    def __init__(self, job: str, task: int, threads: int, token: str, encrypts: bool) -> None:
        self.name = f"/job:{job}/task:{task}"
        self.task, self.encrypts = task, encrypts
        self.bell: Block = new_block(BELL_BYTES)
        self.words = self.bell.words(0, BELL_BYTES // 8)
        self.lost = ""
        self.gone = np.zeros(1, np.int64)  # what ends waits for it
        self.programs: set[int] = set()  # that it has
        self.asked = 0
        self.has_joined = False
        self.is_armed = False  # it waits for the bell, not for the socket
        self.beat = -1
        self.connection, theirs = (
            socket.socket(fileno=above_standard(end.detach())) for end in socket.socketpair()
        )
        with theirs:
            handed = (theirs.fileno(), self.bell.descriptor)
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CODE, _ROOT, *map(str, handed), str(threads)],
                stdin=subprocess.PIPE,
                stdout=_ours_or_nothing(1),
                stderr=_ours_or_nothing(2),
                pass_fds=handed,
                env={**os.environ, "GRAPHC_THREADS": str(threads), TOKEN: token},
            )
        self.descriptor = above_standard(os.pidfd_open(self.process.pid))
        self.address = ""  # where its carrier is reached, if it has one
        self.reason = ""  # why its latest step failed

    def __repr__(self) -> str:
        return f"worker {self.name} (process {self.process.pid})"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def sent(self) -> int:
        """The bytes it has sent to other workers."""
        return int(self.words[BellWords.sent])

    def links(self) -> list[dict[str, int]]:
        """The links that it takes values from, or sends this process values through: see
        `links_of`."""
        return links_of(self.pid, self.words)

    def bring(self, support: native_support.Support, cell: Cell) -> None:
        """It has the memory of the variable itself."""

    def wrote(self, cell: Cell) -> None:
        """This process has the memory that it wrote to."""

    def join(self) -> None:
        """Wait until it is there. Raises GraphError for one of another version, and LostWorker."""
        self.connection.settimeout(wire.START_SECONDS)
        try:
            hello = wire.receive(self.connection)
        except wire.Lost:
            self.lose("it has ended")
            raise LostWorker(f"{self} ended before it could join") from None
        self.connection.settimeout(None)
        wire.check_version(hello, self)
        self.has_joined = True

    # -- asking

    def load(self, support: native_support.Support, program: int, pieces: Sequence[Any]) -> None:
        """Give it its share of a program."""
        file = file_of(pieces)
        try:
            fields = {"program": program, "encrypts": self.encrypts}
            self.tell(support, Kind.LOAD, fields, [file])
        finally:
            os.close(file)
        self.programs.add(program)

    def open(
        self,
        support: native_support.Support,
        fields: dict[str, Any],
        memory: Block,
        values: Sequence[np.ndarray],
        cells: Sequence[Cell],
    ) -> None:
        """Have it ready to run in this memory, with these variables."""
        blocks: dict[int, Shared] = {memory.number: memory}
        places = [cell.place for cell in cells if cell.place is not None]
        for block, _ in places:
            blocks.setdefault(block.number, block)
        position = {number: k for k, number in enumerate(blocks)}
        told = {
            "blocks": list(blocks),
            "sizes": [block.size for block in blocks.values()],
            "variables": [w for block, at in places for w in (position[block.number], at)],
        }
        descriptors = [block.descriptor for block in blocks.values()]
        self.tell(support, Kind.OPEN, {**fields, **told}, descriptors)

    def drop(self, support: native_support.Support, program: int) -> None:
        """Have it forget a program."""
        self.tell(support, Kind.DROP, {"program": program})
        self.programs.discard(program)

    def why(self, support: native_support.Support) -> str:
        """Why the latest step failed there, where a queue or reader did."""
        self.tell(support, Kind.WHY, {})
        return self.reason

    def log(self, support: native_support.Support, program: int, room: int) -> list[np.ndarray]:
        """What a program has logged there; from now on it logs so many rows of each device."""
        answer = self.tell(support, Kind.LOG, {"program": program, "room": room})
        return [contents(file) for file in answer.descriptors]

    def clock(self, support: native_support.Support) -> tuple[int, int]:
        """How far its clock is ahead of the one of this process, in nanoseconds, and by how much
        that may be wrong: processes of a machine have one clock."""
        return 0, 0

    def ring(self, support: native_support.Support, program: int, step: int) -> None:
        """Ask for something without waiting for it."""
        self.words[BellWords.program], self.words[BellWords.step] = program, step
        self.asked += 1
        support.advance(self.bell.address + 8 * BellWords.asked, self.asked)

    def answer(self, support: native_support.Support, stop: np.ndarray) -> tuple[int, int] | None:
        """The status and row of the step that was asked for; None from a worker that is lost, and
        when the word `stop` is set."""
        done, gone = self.bell.address + 8 * BellWords.done, address_of(self.gone)
        if support.reach(done, self.asked, gone, address_of(stop)):
            return None
        return int(self.words[BellWords.status]), int(self.words[BellWords.row])

    def tell(
        self,
        support: native_support.Support,
        kind: Kind,
        fields: dict[str, Any],
        descriptors: Sequence[int] = (),
    ) -> Message:
        """Send a message; the answer. Raises GraphError where that is an error."""
        try:
            if self.is_armed:
                self.ring(support, READ_SOCKET, 0)
            wire.send(self.connection, kind, fields, descriptors)
            answer = self._receive()
        except wire.Lost:
            self.lose("it has ended")  # nobody may have noticed yet, and who tries again is to know
            raise LostWorker(f"{self} was lost: {self.lost}") from None
        except BaseException:
            self.lose("it was interrupted while it answered")  # its answer is still to come
            raise
        wire.require_good(answer, self)
        self.is_armed = True
        self.address, self.reason = answer.get("address", str), answer.get("reason", str)
        return answer

    def _receive(self) -> Message:
        while not self.lost:
            if wire.readable([self.connection.fileno()], BEAT_SECONDS):
                return wire.receive(self.connection)
        raise wire.Lost

    def cancel(self, step: int) -> None:
        """Have it stop this step."""
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            os.write(self.process.stdin.fileno(), CANCEL.pack(step))

    # -- the end

    def lose(self, reason: str) -> None:
        """It is not there any more; one that stands still is ended."""
        if not self.lost:
            self.lost = reason
            self.gone[0] = 1
            self.process.kill()

    def ended(self) -> str:
        """How the process has ended."""
        status = self.process.wait()
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"ended with status {status}"

    def close(self) -> None:
        """End the process, and everything that belongs to it."""
        self.lost = self.lost or "the cluster was closed"
        self.gone[0] = 1
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        with suppress(OSError):
            self.process.stdin.close()
        self.connection.close()
        os.close(self.descriptor)


class LocalCluster:
    """Workers of this machine; a context manager, which ends them.

    devices    the names of their devices, for `devices=` and `gc.device`
    pids       the numbers of their processes
    """

    is_remote = False  # whether workers have no memory in common with this process
    host = "127.0.0.1"  # where this process is reached

    def __init__(
        self,
        workers: int,
        threads: int,
        job: str,
        patience: float,
        retries: int,
        token: str,
        encrypts: bool = True,
    ) -> None:
        self.job, self.threads, self.patience, self.retries = job, threads, patience, retries
        self.token, self.encrypts = token, encrypts  # of links over TCP, or nothing
        self.carrier: Carrier | None = None  # of this process
        self.trouble = ""  # why links carry nothing
        self.lock = threading.RLock()  # one step at a time: all workers do them in one order
        self.steps = self.messages = self.restarts = 0
        self.seconds = 0.0  # that steps took
        self.dropped: list[int] = []  # programs that are not there any more
        self.is_closed = False
        self.in_flight: Callable[[], None] | None = None  # ends the step
        self._owner = os.getpid()
        self.workers = self._started(workers)
        self._finish = weakref.finalize(self, _close_all, self.workers, self._owner)
        try:
            for worker in self.workers:
                worker.join()
        except BaseException:
            self.close()
            raise
        clusters[job] = self
        self._look_after()

    def _started(self, count: int) -> list[Any]:
        """The workers, which may not have joined yet."""
        return [self._worker(task) for task in range(count)]

    def _worker(self, task: int) -> LocalWorker:
        return LocalWorker(self.job, task, self.threads, self.token, self.encrypts)

    def _look_after(self) -> None:
        self.heartbeats = Heartbeats(BEAT_SECONDS)
        watch = threading.Thread(target=_watch, args=(weakref.ref(self),), daemon=True)
        watch.name = "graphc-cluster"
        watch.start()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self.workers)} workers"
        return f"<graphc cluster /job:{self.job}: {state}>"

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def devices(self) -> list[str]:
        """The full names of the devices."""
        return [f"{worker.name}/device:cpu:0" for worker in self.workers]

    @property
    def pids(self) -> list[int]:
        """The numbers of the worker processes."""
        return [worker.pid for worker in self.workers]

    def status(self) -> dict[str, Any]:
        """Steps, the seconds they took, messages and restarts so far, and of every worker: pid,
        state, programs, bytes of memory, and those it has sent to other workers. Of each link in
        memory between two tasks, of which -1 is this process: the bytes that have gone through it
        and the nanoseconds that its ends have waited, by the programs that are open."""
        return {
            "job": self.job,
            "steps": self.steps,
            "seconds": self.seconds,
            "messages": self.messages,
            "restarts": self.restarts,
            "workers": [
                {
                    "task": worker.task,
                    "pid": worker.pid,
                    "state": worker.lost or ("closed" if self.is_closed else "ready"),
                    "programs": len(worker.programs),
                    "memory": resident_bytes(worker.pid),
                    "sent": worker.sent,
                }
                for worker in self.workers
            ],
            "links": [link for worker in self.workers for link in worker.links()],
        }

    def require(self) -> None:
        """Raise RunError unless all workers are there; start them again if steps are retried."""
        if self.is_closed or os.getpid() != self._owner:
            raise RunError(
                f"the cluster of /job:{self.job} is closed",
                hint="call it inside `with gc.cluster.local(...)`, in the process that opened it",
            )
        if self.retries:
            return  # who is lost turns out, and is started again
        for worker in self.workers:
            if worker.lost:
                raise LostWorker(
                    f"{worker} was lost: {worker.lost}",
                    hint="restart() starts it again; restore variables from a checkpoint",
                )

    def own_carrier(self, support: native_support.Support) -> Carrier:
        """What carries the links of this process, started when it first takes part."""
        if self.carrier is None:
            from graphc.runtime.cluster.transport import Carrier, sockets_for_links

            sockets = sockets_for_links(self.token, self.encrypts)
            self.carrier = Carrier(support, sockets, self.report_broken_link, self.host)
        return self.carrier

    def report_broken_link(self, reason: str) -> None:
        """A connection of this process to a worker is cut."""
        self.trouble = reason
        self.stop_step()

    def restart(self) -> None:
        """Start the workers that were lost again.

        What a step had written to variables when it was broken off is there: restore them.
        """
        with self.lock:
            for place, worker in enumerate(self.workers):
                if worker.lost:
                    worker.close()
                    self.workers[place] = made = self._worker(worker.task)
                    self.restarts += 1
                    made.join()
                    note("%s is there after step %d", made, self.steps)

    def close(self) -> None:
        """End the workers. Steps in flight end with an error."""
        if self.is_closed or os.getpid() != self._owner:
            return
        self.is_closed = True
        for worker in self.workers:
            worker.lose("the cluster was closed")
        self.stop_step()
        with self.lock:
            self._finish()
            if self.carrier is not None:
                self.carrier.close()
        if clusters.get(self.job) is self:
            del clusters[self.job]

    def check(self) -> None:
        """Find out who has ended, or stands still."""
        self.heartbeats.look()
        for worker in [*self.workers]:
            if not worker.lost and (reason := self._missing(worker)):
                self.note_lost(worker, reason)
                worker.lose(reason)
                self.stop_step()

    def note_lost(self, worker: object, reason: str) -> None:
        """Log who was lost, and when."""
        if not self.is_closed:
            note("%s was lost in step %d: %s", worker, self.steps, reason)

    def _missing(self, worker: LocalWorker) -> str:
        """Why a worker counts as lost, or nothing."""
        if worker.process.poll() is not None:
            return worker.ended()
        beat = int(worker.words[BellWords.beat])
        if beat != worker.beat or not worker.has_joined:
            self.heartbeats.hear(worker.task)
        worker.beat = beat
        return self.heartbeats.missing(worker.task, self.patience)

    def stop_step(self) -> None:
        """Give up the step that is in flight."""
        stop = self.in_flight
        if stop is not None:
            stop()


def _watch(found: weakref.ref[LocalCluster]) -> None:
    """Look after the workers as long as the cluster is open; whoever ends is noticed at once."""
    while (cluster := found()) is not None and not cluster.is_closed:
        here = [worker.descriptor for worker in cluster.workers if not worker.lost]
        del cluster
        wire.readable(here, BEAT_SECONDS)
        if (cluster := found()) is not None and not cluster.is_closed:
            cluster.check()


def _close_all(workers: list[LocalWorker], owner: int) -> None:
    if os.getpid() == owner:  # a forked child has no workers
        for worker in workers:
            worker.close()


def resident_bytes(process: int) -> int:
    """The bytes of memory that a process has for itself and shares."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def local(
    workers: int = 2,
    *,
    threads: int | None = None,
    job: str = "worker",
    patience: float = 2.5,
    retries: int = 0,
    links: str = "memory",
    encrypt: bool = True,
) -> LocalCluster:
    """Start worker processes on this machine: `with gc.cluster.local(workers=3) as cluster:`.

    Their devices are `cluster.devices`: "/job:worker/task:0/device:cpu:0", ...  A program that is
    compiled for them runs there; each has `threads` threads (without it they share the processors).
    Variables that they use lie in memory that all of them share with this process.  A worker that
    ends is noticed at once, one that stands still after `patience` seconds: the step fails with a
    RunError.  With `retries` it is done again instead, so often at most: the workers that were lost
    are started again, and variables that the step writes get back what they held before it.  The
    workers end with this process, whatever ends it.

    Values go from one worker to another through memory that both have, or with links="tcp" through
    encrypted connections of the loopback device, which need the extra `cluster`.  With
    encrypt=False they go as they are, signed with a secret of the cluster.

    Raises GraphError for a job that is served already, for numbers that are not possible, and where
    the system is not Linux.
    """
    check_options(workers, job, patience, retries, encrypt)
    if links not in ("memory", "tcp"):
        raise GraphError(f'links are "memory" or "tcp", not {links!r}')
    shared = max(1, default_threads() // workers)
    token = new_token() if links == "tcp" else ""
    return LocalCluster(workers, threads or shared, job, patience, retries, token, encrypt)


def check_options(
    workers: object, job: object, patience: object, retries: object, encrypt: object
) -> None:
    """Raise GraphError for what no cluster can have."""
    if type(encrypt) is not bool:
        raise GraphError(f"encrypt is True or False, not {encrypt!r:.80}")
    if type(workers) is not int or not 1 <= workers <= MOST_WORKERS:
        raise GraphError(f"a cluster has 1 to {MOST_WORKERS} workers, not {workers!r}")
    if not isinstance(job, str) or not job.isidentifier() or job == "localhost":
        raise GraphError(f"{job!r} cannot be the name of a job", hint='use one such as "worker"')
    if not isinstance(patience, int | float) or not patience > 0:
        raise GraphError(f"patience is a number of seconds, not {patience!r}")
    if type(retries) is not int or retries < 0:
        raise GraphError(f"retries is a number from 0, not {retries!r}")
    if job in clusters:
        raise GraphError(f"/job:{job} is served already", hint="close that cluster, or name a job=")


def new_token() -> str:
    """A secret of a cluster. Raises GraphError where the library of links over TCP is missing."""
    from graphc.runtime.cluster.transport import zeromq

    zeromq()
    return os.urandom(32).hex()
