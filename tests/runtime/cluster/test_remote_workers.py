"""Workers that join over TCP: the bits of one process, variables that live there, losses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.runtime.cluster import remote_workers
from graphc.runtime.cluster.remote_workers import RemoteCluster
from graphc.runtime.cluster.transport import CurveSockets
from graphc.runtime.cluster.wire import PULSE, host_of

pytest.importorskip("zmq")
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers need Linux")

TOKEN = "a secret of these tests"
X = np.random.default_rng(0).standard_normal((16, 16)).astype("f4")
SCRIPT = "import graphc as gc; gc.cluster.from_environment(threads=1, job='far'); print('ended')"


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def environment(address: str, rank: int, ranks: int = 3) -> dict[str, str]:
    return {
        "GRAPHC_ADDRESS": address,
        "GRAPHC_TOKEN": TOKEN,
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
    }


def started(address: str, rank: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environment(address, rank)},
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def ranks(patch: pytest.MonkeyPatch, **options: Any) -> Iterator[tuple[Any, list[Any], str]]:
    """A cluster of two workers, their processes, and its address."""
    address = free_address()
    processes = [started(address, rank) for rank in (1, 2)]
    try:
        with patch.context() as inside:
            for name, value in environment(address, 0).items():
                inside.setenv(name, value)
            inside.setattr(remote_workers, "START_SECONDS", 300.0)  # busy machines take over 60
            with gc.cluster.from_environment(threads=1, job="far", **options) as found:
                yield found, processes, address
        for process in processes:
            process.communicate(timeout=300)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def workers() -> Iterator[RemoteCluster]:
    with ranks(pytest.MonkeyPatch()) as (found, processes, _):
        assert found.pids == [process.pid for process in processes]
        yield found
    assert [process.returncode for process in processes] == [0, 0]


def loop(x: Any) -> Any:
    def body(k: Any, h: Any) -> Any:
        with gc.device("/task:0"):
            a = np.tanh(h @ h)
        with gc.device("/task:1"):
            return h * 0.5 + a

    return gc.value_and_grad(lambda x: (gc.fori(0, 10, body, x) ** 2).mean())(x)


def test_results_are_those_of_one_process(workers: RemoteCluster) -> None:
    alone = [name.replace("far", "nobody") for name in workers.devices]
    near, far = (gc.compile(loop, devices=names) for names in (alone, workers.devices))
    for _ in range(3):
        pairs = zip(far(X), near(X))
        assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
    mixed = gc.compile(loop, devices=["cpu:0", *workers.devices])
    np.testing.assert_array_equal(mixed(X)[1], near(X)[1])


def counter(home: str) -> tuple[Any, Any]:
    return (
        gc.Variable(np.zeros((16, 16), "f4"), name="sum", container=home),
        gc.Variable(np.zeros((), "i8"), name="steps", container=home),
    )


def adder(total: Any, steps: Any, devices: list[str]) -> Any:
    @gc.compile(devices=devices)
    def add(x):
        with gc.device("/task:0"):
            total.assign_add(x)
        with gc.device("/task:1"):
            steps.assign_add(1)
        return total.value.sum()

    return add


def test_variables_live_there_and_are_fetched(workers: RemoteCluster, tmp_path: Path) -> None:
    total, steps = counter("kept_far")
    add = adder(total, steps, workers.devices)
    for _ in range(3):
        add(X)
    assert steps.value == 3
    np.testing.assert_allclose(total.value, 3 * X, rtol=1e-6)
    total.assign(np.ones_like(X))  # is sent before the next step
    np.testing.assert_allclose(add(X), (1 + X).sum(), rtol=1e-4)
    here = gc.compile(lambda: total.value * 2)  # programs of this process see it, and change it
    np.testing.assert_array_equal(here(), 2 * (1 + X))
    gc.compile(lambda: total.assign(total.value * 0))()
    add(X)
    np.testing.assert_array_equal(total.value, X)
    np.testing.assert_array_equal(here(), 2 * X)
    gc.save_checkpoint(tmp_path / "c.safetensors", {"total": total.value, "steps": steps.value})
    assert gc.load_checkpoint(tmp_path / "c.safetensors")[0]["steps"] == 5


def test_errors_and_cancelled_runs_leave_the_workers_as_they_were(workers: RemoteCluster) -> None:
    @gc.compile(devices=workers.devices)
    def pick(x, k):
        with gc.device("/task:1"):
            y = np.tanh(x)[k]
        with gc.device("/task:0"):
            return y * 2

    wanted = np.tanh(X[1]) * 2
    for _ in range(2):
        np.testing.assert_allclose(pick(X, np.int64(1)), wanted, rtol=1e-5)
        with pytest.raises(GraphError, match=r"index 99 .*\(on /job:far/task:1"):
            pick(X, np.int64(99))

    @gc.compile(devices=workers.devices)
    def endless(x, trips):
        def body(k, h):
            with gc.device("/task:0"):
                a = np.tanh(h)
            with gc.device("/task:1"):
                return np.sin(a) + h

        return gc.fori(0, trips, body, x)

    endless(X, np.int64(2))
    canceller = threading.Thread(target=cancel_the_step, args=(workers, endless))
    canceller.start()
    with pytest.raises(RunError, match="cancelled"):
        endless(X, np.int64(1 << 60))
    endless(X, np.int64(2))


def cancel_the_step(found: RemoteCluster, endless: Any) -> None:
    """As soon as there is one: a worker may hear of that before it hears of the step."""
    while found.in_flight is None:
        time.sleep(1e-3)
    endless.executable(X, np.int64(2)).cancel()


def test_readers_read_where_they_run(workers: RemoteCluster, tmp_path: Path) -> None:
    """Rows are read by another process, with the place that this one has set; errors are told."""
    np.savez(tmp_path / "a.npz", x=np.arange(10.0))
    reader = gc.Reader(tmp_path / "a.npz", {"x": gc.spec((), "f64")}, batch=4)

    @gc.compile(devices=workers.devices)
    def step() -> Any:
        with gc.device("/task:1"):
            return reader.next()["x"].sum()

    assert [float(step()), float(step())] == [6, 22]
    with pytest.raises(gc.EndOfData, match="the reader has no more data"):
        step()
    reader.place.assign(np.array([0, 0, 2]))
    assert float(step()) == 14
    missing = gc.Reader([tmp_path / "b.npz"], {"x": gc.spec((), "f64")}, batch=4)

    @gc.compile(devices=workers.devices)
    def fails() -> Any:
        with gc.device("/task:1"):
            return missing.next()["x"]

    with pytest.raises(RunError, match="No such file"):
        fails()
    assert float(step()) == 30


def test_what_is_no_message_leaves_client_and_workers_as_they_were(workers: RemoteCluster) -> None:
    """From one who knows the token, too: a process of another version, say."""
    run = gc.compile(lambda x: loop(x)[0], devices=workers.devices)
    wanted = run(X)
    router = workers.router
    stranger = router.sockets.socket(router.sockets.zmq.DEALER)
    stranger.identity = b"0/" + b"9" * 16
    stranger.connect(router.address)
    heads = [b"", b"\xff"], [b"\x00", b"["], [b"\x04", b"{}"], [b"\x04" * 99]
    for parts in heads:
        stranger.send_multipart(parts)
        with router.lock:
            for name in list(router.names.values()):
                router.connection.send_multipart([name + PULSE, *parts])
                router.sort([name, *parts[:1]])
                router.sort([b"9" * 5000 + b"/x", *parts])
    np.testing.assert_array_equal(run(X), wanted)
    stranger.close()


def test_a_lost_worker_is_seen_and_its_successor_goes_on() -> None:
    with ranks(pytest.MonkeyPatch(), patience=300.0, retries=3) as (found, processes, address):
        total, steps = counter("lost_far")
        add = adder(total, steps, found.devices)
        add(X)
        os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].communicate()
        processes[0] = started(address, 1)
        add(X)
        assert (steps.value, found.status()["restarts"]) == (2, 1)
        np.testing.assert_array_equal(total.value, X + X)


def lose_first(found: RemoteCluster, processes: list[Any], how: signal.Signals) -> None:
    """End or stop the first worker, and have it miss as many beats as the cluster is patient for:
    on a busy machine any worker may be silent for a second, so no test waits for that."""
    processes[0].send_signal(how)
    while not found.workers[0].lost:
        found.router.heartbeats.heard[0] = -found.patience
        time.sleep(1e-3)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_lost_between_steps_is_missed_without_a_step(how: signal.Signals) -> None:
    with ranks(pytest.MonkeyPatch(), patience=300.0) as (found, processes, _):
        gc.compile(lambda x: loop(x)[0], devices=found.devices)(X)
        lose_first(found, processes, how)
        lost, there = (worker["state"] for worker in found.status()["workers"])
        assert (lost[:27], there) == ("nothing was heard of it for", "ready")
        processes[0].kill()


def test_a_worker_that_was_given_up_and_is_there_again_ends() -> None:
    """It has stood still for so short a time that its connection is as it was."""
    with ranks(pytest.MonkeyPatch(), patience=300.0) as (found, processes, address):
        run = gc.compile(lambda x: loop(x)[0], devices=found.devices)
        wanted = run(X)
        lose_first(found, processes, signal.SIGSTOP)
        with pytest.raises(RunError, match="nothing was heard of it"):
            run(X)
        processes[0].send_signal(signal.SIGCONT)
        starter = threading.Thread(target=lambda: succeed(processes, address))
        starter.start()
        found.restart()
        starter.join()
        np.testing.assert_array_equal(run(X), wanted)


def succeed(processes: list[Any], address: str) -> None:
    """Start the first rank again once it has ended."""
    assert processes[0].wait(timeout=300) == 17
    processes[0].communicate()
    processes[0] = started(address, 1)


PATIENT = "import graphc.runtime.cluster.tcp_worker as server; server.SILENCE = 0.3; "


@pytest.mark.parametrize("who", ["nobody", "a stranger"])
def test_a_worker_that_finds_no_client_ends(who: str) -> None:
    address, sockets = free_address(), CurveSockets("the token of another cluster")
    if who == "a stranger":
        sockets.socket(sockets.zmq.ROUTER, serves=True).bind(address)
    try:
        variables = {**os.environ, **environment(address, 1)}
        done = subprocess.run([sys.executable, "-c", PATIENT + SCRIPT], env=variables, timeout=300)
        assert done.returncode == 17
    finally:
        sockets.close()


def test_what_the_environment_must_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment("tcp://127.0.0.1:1", 0).items():
        monkeypatch.setenv(name, value)
    for name, value, told in (
        ("GRAPHC_TOKEN", "", "need GRAPHC_TOKEN"),
        ("GRAPHC_TOKEN", "short", "16 characters"),
        ("RANK", "7", "rank 7 of 3"),
        ("WORLD_SIZE", "many", "WORLD_SIZE"),
        ("GRAPHC_ADDRESS", "ipc:///tmp/x", "GRAPHC_ADDRESS"),
        ("GRAPHC_ADDRESS", "tcp://192.0.2.1:5555", "cannot listen"),
    ):
        with monkeypatch.context() as inside:
            inside.setenv(name, value)
            with pytest.raises(GraphError, match=told):
                gc.cluster.from_environment()
    assert host_of("tcp://10.0.0.1:5555") == "10.0.0.1"
