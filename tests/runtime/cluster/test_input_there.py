"""Readers and queues on workers: the data stays there, ends, fails and waits are told, and a step
that is done again gets the same rows."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import EndOfData, GraphError, RunError
from graphc.runtime.files.gcx_reader import File

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers need Linux")

ROW = {"x": gc.spec((50,), "f32")}


@pytest.fixture(scope="module")
def workers() -> Iterator[gc.cluster.LocalCluster]:
    with gc.cluster.local(workers=2, retries=1) as found:
        yield found


@pytest.fixture
def reader(tmp_path: Path) -> gc.Reader:
    for k in range(3):
        x = np.arange(500, dtype="f4").reshape(10, 50) + 1000 * k
        np.savez(tmp_path / f"{k}.npz", x=x)
    return gc.Reader(tmp_path / "*.npz", ROW, batch=4, shuffle=True, seed=3)


def taking(reader: gc.Reader, found: gc.cluster.LocalCluster) -> Any:
    @gc.compile(devices=found.devices)
    def step() -> Any:
        with gc.device("/task:1"):
            return reader.next()["x"].sum()

    return step


def test_rows_stay_with_the_worker(workers: gc.cluster.LocalCluster, reader: gc.Reader) -> None:
    """The bits of one process, and 4 bytes a step from the worker that reads."""
    here = gc.compile(lambda: reader.next()["x"].sum())
    wanted = [float(here()) for _ in range(7)]
    reader.place.assign(np.zeros(3, np.int64))
    step = taking(reader, workers)
    before = workers.status()["workers"][1]["sent"]
    assert [float(step()) for _ in range(7)] == wanted
    assert workers.status()["workers"][1]["sent"] - before == 7 * 4
    with pytest.raises(EndOfData, match=r"(?s)the reader has no more data \(on .*task:1.*resource"):
        step()
    np.testing.assert_array_equal(reader.place.value, [0, 2, 8])


def test_a_step_that_is_done_again_gets_the_same_rows(
    workers: gc.cluster.LocalCluster, reader: gc.Reader
) -> None:
    step = taking(reader, workers)
    wanted = [float(step()) for _ in range(6)]
    reader.place.assign(np.zeros(3, np.int64))
    found = []
    for k in range(6):
        if k in (2, 3):
            os.kill(workers.pids[1], signal.SIGKILL)
        found.append(float(step()))
    assert found == wanted


def test_queues_of_a_worker(workers: gc.cluster.LocalCluster) -> None:
    """What one step puts there another takes; this process has a queue of its own."""
    queue = gc.Queue(gc.spec((3,), "f32"), capacity=4)

    @gc.compile(devices=workers.devices)
    def put(x: Any) -> None:
        with gc.device("/task:1"):
            queue.enqueue(x + 1)

    @gc.compile(devices=workers.devices)
    def take() -> Any:
        with gc.device("/task:1"):
            return queue.dequeue()

    put(np.zeros(3, "f4"))
    put(np.ones(3, "f4"))
    assert queue.size() == 0
    np.testing.assert_array_equal([take(), take()], [[1] * 3, [2] * 3])
    errors: list[str] = []

    def wait() -> None:
        try:
            take()
        except RunError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while thread.is_alive():
        take.executable().cancel()
        thread.join(0.02)
    assert "cancelled" in errors[0]
    put(np.ones(3, "f4"))
    np.testing.assert_array_equal(take(), [2] * 3)


def test_what_fails_there_is_told(workers: gc.cluster.LocalCluster, tmp_path: Path) -> None:
    missing = gc.Reader([tmp_path / "none.npz"], ROW, batch=1)
    with pytest.raises(RunError, match=r"cannot read .*none.npz: No such file.*task:1"):
        taking(missing, workers)()

    @gc.compile(devices=workers.devices)
    def prints(x: Any) -> Any:
        with gc.device("/task:1"):
            gc.print("{}", x)
            return x + 1

    with pytest.raises(GraphError, match="calls no Python"):
        prints(np.ones(2))


def test_no_file_holds_a_reader(reader: gc.Reader, tmp_path: Path) -> None:
    """Only what a client sends to its workers may read files: a .gcx that would is refused."""
    from graphc.runtime.files import gcx_writer

    image = gc.compile(lambda: reader.next()["x"]).executable().image
    path = tmp_path / "reads.gcx"
    values = gcx_writer.no_values(image)
    path.write_bytes(b"".join(map(bytes, gcx_writer.pieces(image, values, resources=True))))
    with pytest.raises(GraphError, match="calls no Python"):
        gc.load(path)
    assert File(path).image(resources=True).hosts


@pytest.mark.slow
def test_a_queue_of_a_lost_worker_comes_back_from_its_contents(tmp_path: Path) -> None:
    """Its contents are saved like arrays, and put into the queue of the worker in its place."""
    queue = gc.Queue({"n": gc.spec((), "i64")}, capacity=8, order="priority")

    def there(function: Any, names: list[str]) -> Any:
        def call(*args: Any) -> Any:
            with gc.device("/task:1"):
                return function(*args)

        return gc.compile(call, devices=names)

    with gc.cluster.local(workers=2, job="queued") as cluster:
        put = there(lambda n: queue.enqueue({"n": n}, n), cluster.devices)
        take = there(lambda: queue.dequeue()["n"], cluster.devices)
        for n in (5, 3, 9, 4):
            put(np.int64(n))
        assert take() == 3 and queue.size() == 0  # this process has a queue of its own
        gc.save_checkpoint(tmp_path / "q.safetensors", there(queue.contents, cluster.devices)())
        os.kill(cluster.pids[1], signal.SIGKILL)
        with pytest.raises(RunError, match="was lost"):
            take()
        cluster.restart()
        kept = gc.load_checkpoint(tmp_path / "q.safetensors", queue.contents())[0]
        there(queue.restore, cluster.devices)(kept)
        assert [int(take()) for _ in range(3)] == [4, 5, 9]
