"""One timeline of all workers, what went over their links, and metrics for Prometheus."""

from __future__ import annotations

import gc as collector
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.frontend.compile import measure_devices
from graphc.passes.placement import measured
from graphc.runtime.cluster.observe import workers_of_this_machine
from graphc.runtime.cluster.remote_workers import RemoteWorker
from graphc.runtime.cluster.wire import Kind, Message
from graphc.runtime.observe.replay import recorded
from graphc.runtime.observe.trace import Event, Trace, trace
from graphc.viewer.traces import write_trace

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers need Linux")

X = np.linspace(-1, 1, 64 * 64, dtype="f4").reshape(64, 64)


@pytest.fixture(scope="module")
def workers() -> Iterator[gc.cluster.LocalCluster]:
    with gc.cluster.local(workers=2) as found:
        yield found


def model(x: Any) -> Any:
    with gc.device("/task:0"):
        h = np.tanh(x @ x)
    with gc.device("/task:1"):

        def body(k: Any, h: Any) -> Any:
            return h @ x * 0.1

        return gc.fori(0, 3, body, h).sum(axis=0)


def pairs(found: Trace) -> Iterator[tuple[Event, Event]]:
    """Each message: where it was sent, where it was taken."""
    for name in {event.name for event in found.events if event.kind == "send"}:
        ends = ([e for e in found.events if (e.kind, e.name) == (kind, name)] for kind in _ENDS)
        yield from zip(*ends, strict=True)


_ENDS = ("send", "transfer")


@pytest.mark.parametrize("with_client", [False, True])
def test_one_timeline_of_all_workers(
    workers: gc.cluster.LocalCluster, with_client: bool, tmp_path: Path
) -> None:
    """Every device is there, messages are sent before they are taken, and the bits are the same."""
    devices = ["cpu:0", *workers.devices] if with_client else workers.devices
    run = gc.compile(model, devices=devices)
    wanted = run(X)
    results, found = trace(run.executable(X), [X])
    assert np.asarray(results[0]).tobytes() == wanted.tobytes() == run(X).tobytes()
    assert len(found.devices) == len(devices) and not found.dropped
    assert {event.device for event in found.events} == set(range(len(devices)))
    assert all(0 <= event.start <= event.end for event in found.events)
    messages = [*pairs(found)]
    assert messages
    for sent, taken in messages:
        assert sent.start <= taken.end and sent.end <= taken.start
        assert (sent.peer, taken.peer) == (taken.device, sent.device)
    kernels = [e for e in found.events if e.kind == "kernel"]
    assert all(e.origin is not None and e.origin.file.endswith("test_seeing.py") for e in kernels)
    write_trace(found, tmp_path / "t.json")
    told = json.loads((tmp_path / "t.json").read_text())
    assert told["otherData"] == {"dropped": 0, "clock_error_us": 0}


def test_links_have_messages_bytes_and_waits(workers: gc.cluster.LocalCluster) -> None:
    run = gc.compile(model, devices=workers.devices)
    run(X)
    before = [worker["sent"] for worker in workers.status()["workers"]]
    _, found = trace(run.executable(X), [X])
    after = [worker["sent"] for worker in workers.status()["workers"]]
    there, back = found.links()
    assert (there.source, there.target) == (back.target, back.source) == tuple(found.devices)
    assert [there.bytes, back.bytes] == [b - a for a, b in zip(before, after, strict=True)]
    assert (there.messages, back.messages, back.bytes) == (2, 1, 64 * 4)
    taken = {e.row for e in found.events if e.kind == "transfer" and e.device == 0}
    waits = [e for e in found.events if e.kind == "wait" and e.device == 0]
    assert back.waiting == sum(e.seconds for e in waits if e.row in taken)  # a send waits, too


def test_room_for_rows_and_failures(workers: gc.cluster.LocalCluster) -> None:
    run = gc.compile(model, devices=workers.devices)
    _, found = trace(run.executable(X), [X], room=5)
    assert found.dropped > 0

    @gc.compile(devices=workers.devices)
    def fails(x: Any, i: Any) -> Any:
        with gc.device("/task:1"):
            return x[i]

    with pytest.raises(RunError, match="out of range"):
        trace(fails.executable(X, np.int64(0)), [X, np.int64(99)])
    _, found = trace(fails.executable(X, np.int64(0)), [X, np.int64(1)])
    assert found.events
    with pytest.raises(GraphError):
        recorded(run.executable(X), [X])


def test_profiles_keep_what_kernels_cost_on_workers(workers: gc.cluster.LocalCluster) -> None:
    run = gc.compile(model, devices=workers.devices)
    found = gc.profile(run, X, runs=2)
    assert any("matmul" in key for key in found.seconds)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of measured costs."""
    monkeypatch.setattr(measured, "default_path", lambda: tmp_path / "costs.json")
    return tmp_path / "costs.json"


def _clock(hop: float, seconds_of_byte: float) -> Callable[..., float]:
    """Runs once, and says what a run takes where hops take so long."""

    def seconds(function: Any, arrays: list[Any], devices: Sequence[str] = ("cpu:0",)) -> float:
        gc.compile(function, devices=tuple(devices))(*arrays)
        hops = measure_devices.HOPS if len(devices) == 2 else 0
        kernels = max(hops - 1, 0) * 1e-6
        return 1e-6 + kernels + hops * (hop + arrays[0].nbytes * seconds_of_byte)

    return seconds


def test_links_are_measured_and_kept(monkeypatch: pytest.MonkeyPatch, costs: Path) -> None:
    monkeypatch.setattr(measure_devices, "MOVED", 1 << 10)
    monkeypatch.setattr(measure_devices, "_time", _clock(1e-5, 1e-9))
    with gc.cluster.local(workers=2, job="linked") as found:
        link = gc.measure_links(found)
    assert measured.load(costs).links == {"linked": link}
    assert link.latency == pytest.approx(1e-5, rel=0.05)
    assert link.bandwidth == pytest.approx(1e9, rel=0.05)
    with gc.cluster.local(workers=1, job="lonely") as found, pytest.raises(GraphError, match="one"):
        gc.measure_links(found)


@pytest.mark.slow
def test_no_link_is_kept_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, costs: Path, workers: gc.cluster.LocalCluster
) -> None:
    """A cluster that is closed, hops that take no time, and as many bytes as one likes."""
    monkeypatch.setattr(measure_devices, "MOVED", 1 << 10)
    for hop, byte in ((-1e-7, 1e-9), (0.0, 1e-10), (1e-5, 0.0), (1e-5, -1e-9)):
        monkeypatch.setattr(measure_devices, "_time", _clock(hop, byte))
        with pytest.raises(GraphError, match="could not be measured"):
            gc.measure_links(workers)
        assert measure_devices._link(np.ones(8, np.float32), np.ones(1 << 10, np.float32)) is None
    with gc.cluster.local(workers=2, job="closed") as found:
        pass
    monkeypatch.setattr(measure_devices, "_time", _clock(1e-5, 1e-9))
    with pytest.raises(GraphError, match="closed"):
        gc.measure_links(found)
    for bad in (None, 3, ["cpu:0", "cpu:1"]):
        with pytest.raises(GraphError, match="takes a cluster"):
            gc.measure_links(bad)  # type: ignore[arg-type]
    assert not costs.exists()


def test_the_quickest_answer_tells_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is far ahead is read to half of the shortest way; one that is near is ours."""
    now, ways = [0], [900, 40, 700, 50, 60, 800, 500]

    def clock(ahead: int) -> tuple[int, int]:
        left = iter(ways)

        def ask(self: Any, kind: Kind, fields: Any) -> Message:
            way = next(left)
            now[0] += way
            theirs = now[0] + ahead
            now[0] += way // 2  # back, twice as fast
            return Message(Kind.DONE, {"clock": theirs})

        monkeypatch.setattr(RemoteWorker, "_ask", ask)
        return RemoteWorker.clock(object.__new__(RemoteWorker), None)  # type: ignore[arg-type]

    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    ahead, error = clock(10**9)
    assert error == 30 and abs(ahead - 10**9) <= error
    assert clock(3) == (0, 30)


def test_links_count_bytes_and_waits_while_a_program_is_open() -> None:
    """Also those of this process, which takes part; another process of this user sees them."""

    def relay(x: Any) -> Any:
        with gc.device("/job:localhost"):
            x = np.abs(x)
        with gc.device("/task:1"):
            x = np.tanh(x)
        with gc.device("/task:0"):
            x = np.sin(x)
        with gc.device("/job:localhost"):
            return x + 1

    with gc.cluster.local(workers=2, job="linked") as found:
        run = gc.compile(relay, devices=["cpu:0", *found.devices])
        for _ in range(3):
            run(X)
        told = {(link["source"], link["target"]): link for link in found.status()["links"]}
        ways = (-1, 1), (1, 0), (0, -1)
        assert [told[way]["bytes"] for way in ways] == [3 * X.nbytes] * 3
        seen = [workers_of_this_machine()[pid]["links"] for pid in found.pids]
        assert {(link["source"], link["target"]) for links in seen for link in links} == {*told}
        waits = [link[end] for link in told.values() for end in ("sender_waited", "taker_waited")]
        assert min(waits) >= 0
        del run
        collector.collect()
        gc.compile(lambda x: x * 2, devices=found.devices)(X)
        assert not found.status()["links"]


def test_the_log_names_task_and_step(caplog: pytest.LogCaptureFixture) -> None:
    with gc.cluster.local(workers=2, job="noted", retries=2) as found:
        run = gc.compile(model, devices=found.devices)
        run(X)
        victim = found.workers[1]
        os.kill(victim.pid, signal.SIGKILL)
        while not victim.lost:
            time.sleep(0.01)
        run(X)
    lines = [each.getMessage() for each in caplog.records if each.name == "graphc.cluster"]
    assert "/job:noted/task:1" in lines[0] and "was lost in step" in lines[0]
    assert any("task:1" in line and "is there after step" in line for line in lines)


# ----------------------------------------------------------------------------------------- metrics


def scraped(address: str) -> dict[str, float]:
    with urllib.request.urlopen(address) as answer:
        lines = answer.read().decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def test_prometheus_reads_what_a_cluster_does() -> None:
    pytest.importorskip("prometheus_client")
    with gc.cluster.local(workers=2, job="seen") as found, gc.cluster.metrics(found) as metrics:
        assert metrics.address.startswith("http://127.0.0.1:")
        run = gc.compile(model, devices=found.devices)
        for _ in range(3):
            run(X)
        seen = scraped(metrics.address)
        assert seen['graphc_steps_total{job="seen"}'] == 3
        assert seen['graphc_messages_total{job="seen"}'] == 6
        assert seen['graphc_step_seconds_total{job="seen"}'] > 0
        sent = [worker["sent"] for worker in found.status()["workers"]]
        for task in range(2):
            labels = f'{{job="seen",task="{task}"}}'
            assert seen[f"graphc_worker_up{labels}"] == 1
            assert seen[f"graphc_worker_sent_bytes_total{labels}"] == sent[task]
            assert seen[f"graphc_worker_memory_bytes{labels}"] > 1e6
        for link in found.status()["links"]:
            labels = f'{{job="seen",source="{link["source"]}",target="{link["target"]}"}}'
            assert seen[f"graphc_link_bytes_total{labels}"] == link["bytes"] > 0
        os.kill(found.pids[1], signal.SIGKILL)
        with pytest.raises(RunError, match="was lost"):
            run(X)
        assert scraped(metrics.address)['graphc_worker_up{job="seen",task="1"}'] == 0
        with pytest.raises(GraphError, match="cannot listen"):
            gc.cluster.metrics(found, port=int(metrics.address.split(":")[2].split("/")[0]))
    with pytest.raises(OSError):
        scraped(metrics.address)


@pytest.mark.slow
def test_metrics_say_what_they_need(
    workers: gc.cluster.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(GraphError, match="need prometheus-client"):
        gc.cluster.metrics(workers)
