"""Programs on worker processes: the bits of one process, errors, losses, what is left behind."""

from __future__ import annotations

import fcntl
import gc as collector
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.runtime.tuning import tuned
from graphc.errors import GraphError, RunError
from graphc.runtime.cluster import wire
from graphc.runtime.cluster.program import ClusterExecutable
from graphc.runtime.cluster.wire import Kind
from graphc.runtime.devices.ready_segments import agenda_of

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers need Linux")

X = np.random.default_rng(0).standard_normal((8, 16)).astype("f4")
W = X[:8].T @ X[:8]
TASKS = 3


@pytest.fixture(scope="module")
def workers() -> Iterator[gc.cluster.LocalCluster]:
    with gc.cluster.local(workers=TASKS) as found:
        yield found
    for pid in found.pids:
        assert not Path(f"/proc/{pid}").exists()


def on(task: int) -> Any:
    return gc.device(f"/task:{task}")


def here(found: gc.cluster.LocalCluster) -> list[str]:
    """As many devices of this process, of a job that nobody serves."""
    return [name.replace(f"/job:{found.job}", "/job:nobody") for name in found.devices]


def bits(values: Any) -> list[bytes]:
    leaves = values if isinstance(values, tuple | list) else [values]
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def same(function: Callable[..., Any], found: gc.cluster.LocalCluster, *arguments: Any) -> Any:
    """The results of a function on workers, which are those of one process to the bit."""
    far = gc.compile(function, devices=found.devices)
    near = gc.compile(function, devices=here(found))
    results = far(*arguments)
    assert isinstance(far.executable(*arguments), ClusterExecutable)
    assert not isinstance(near.executable(*arguments), ClusterExecutable)
    assert bits(results) == bits(near(*arguments)) == bits(far(*arguments))
    return results


@pytest.mark.parametrize("more", [0, 1, 63, 64, 65])
def test_long_messages_arrive_whole(workers: gc.cluster.LocalCluster, more: int) -> None:
    """Those that go past the caches, too, from places that are aligned to nothing."""
    count = tuned.link_stream + more

    def there_and_back(x: Any) -> Any:
        with on(1):
            y = x ^ np.uint8(255)
        with gc.device("cpu:0"):
            return y + np.uint8(1)

    whole = np.random.default_rng(more).integers(0, 256, count + 3, np.uint8)
    for start in (0, 3):
        x = whole[start : start + count]
        run = gc.compile(there_and_back, devices=["cpu:0", *workers.devices])
        assert np.array_equal(run(x), -x)


UNUSUAL = """
import os
for number in range(FILES):
    os.open(os.devnull, os.O_RDONLY)
import numpy as np, graphc as gc
with gc.cluster.local(workers=2, threads=1) as found:
    run = gc.compile(lambda x: x @ x, devices=found.devices)
    made = run(np.eye(2))
    os.kill(found.pids[0], 9)
    while found.status()["workers"][0]["state"] == "ready":
        pass
    found.restart()
    fine = np.array_equal(run(np.eye(2)), made)
os._exit(7 if fine else 8)
"""


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_whatever_descriptors_a_client_has(full: bool) -> None:
    """One that was started without standard streams, one that has a thousand files open."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if full and most[1] < 2048:
        pytest.skip("too few files may be open")
    if full:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 2048), most[1]))
    code = UNUSUAL.replace("FILES", "1100" if full else "0")
    start = 'exec "$0" -c "$1"' + ("" if full else " <&- >&- 2>&-")
    try:
        ended = subprocess.run(["sh", "-c", start, sys.executable, code], timeout=100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert ended.returncode == 7


# ------------------------------------------------------------------------- the bits of one process


@pytest.mark.slow
@pytest.mark.parametrize("links", ["memory", "tcp"])
def test_one_thread_waits_for_many_messages(links: str) -> None:
    """Whatever comes first is taken first: no receive keeps a thread."""
    if links == "tcp":
        pytest.importorskip("zmq")

    def function(x: Any) -> Any:
        parts = []
        for k in range(60):
            with on(1 + k % 2):
                parts.append(np.tanh(x * k))
        with on(0):
            return [np.exp(part) for part in parts]

    with gc.cluster.local(workers=3, threads=1, job="many", links=links) as found:
        same(function, found, X)
        image = gc.compile(function, devices=found.devices).executable(X).image
        agendas = [agenda_of(each.table.tolist()) for each in image.images]
        assert [len(agenda.messages) if agenda else 0 for agenda in agendas] == [60, 0, 0]


@pytest.mark.parametrize("width", [3, 40_000])
def test_collectives_go_over_links(workers: gc.cluster.LocalCluster, width: int) -> None:
    """Small sums along a tree, large ones around a ring: their bytes, the bits of one process."""

    def function(devices: list[str]) -> Any:
        def summed(x: Any) -> Any:
            parts = []
            for task in range(TASKS):
                with on(task):
                    parts.append(np.tanh(x * (task + 1)))
            made = []
            for task, total in enumerate(gc.parallel.all_reduce(parts, devices)):
                with on(task):
                    made.append(total.sum())
            return made

        return summed

    x = np.linspace(0, 1, width, dtype="f4")
    far = gc.compile(function(workers.devices), devices=workers.devices)
    near = gc.compile(function(here(workers)), devices=here(workers))
    assert bits(far(x)) == bits(near(x))
    before = [worker["sent"] for worker in workers.status()["workers"]]
    far(x)
    sent = [w["sent"] - b for w, b in zip(workers.status()["workers"], before, strict=True)]
    assert sum(sent) == 2 * x.nbytes + (4 * x.nbytes) + 2 * 4  # x to two, the sums, two results
    if width > 3:
        assert max(sent[1:]) <= x.nbytes * 4 // 3 + 64


def test_who_asks_a_worker_that_has_ended_is_the_first_to_know() -> None:
    """A step is done again with another one, though nobody else has noticed yet."""
    with gc.cluster.local(workers=2, job="unnoticed", retries=1) as found:
        found.check = lambda: None  # type: ignore[method-assign]
        run = gc.compile(lambda x: np.tanh(x), devices=found.devices[1:])
        victim = found.workers[1].process
        victim.kill()
        victim.wait()
        np.testing.assert_allclose(run(W), np.tanh(W), rtol=1e-6)
        assert found.restarts == 1


def test_stages_of_pipelines_are_workers(workers: gc.cluster.LocalCluster) -> None:
    """Two pipelines that share a batch and a worker, short messages, a limit of memory: the bits of
    one process. An error in the last stage ends the step, and the next one works."""

    def loss(params: Any, batch: Any) -> Any:
        h = W[batch % 16]
        for weight in params:
            h = np.tanh(h @ weight)
        return (np.take(h, batch, axis=1) ** 2).mean()

    def piped(names: list[str]) -> Any:
        pair = gc.parallel.pipeline(loss, [names[:2], names[1:]], 2)
        return gc.compile(pair, devices=names, compress="nearest", memory_limit=1 << 20)

    params, batch = [W * 0.1] * 3, np.arange(12)
    far = piped(workers.devices)
    (value, slopes), (near, wanted) = far(params, batch), piped(here(workers))(params, batch)
    assert bits([value, *slopes]) == bits([near, *wanted])
    with pytest.raises(GraphError, match=r"index 16 .*\(on /job:worker/task:[12]/") as error:
        far(params, batch + 5)
    assert "test_cluster.py" in str(error.value)
    assert far(params, batch)[0] == near


@pytest.mark.parametrize("shard", [False, True])
def test_copies_on_all_workers(workers: gc.cluster.LocalCluster, shard: bool) -> None:
    """Parameters and what Adam keeps stay on the workers; the bits are those of one process."""

    def loss(w: Any, batch: Any) -> Any:
        return ((np.tanh(batch @ w) - 1) ** 2).mean()

    def trained(devices: list[str]) -> Any:
        rule = gc.optim.adam(1e-2)
        trainer = gc.parallel.Synchronous(loss, W, rule, devices, shard, threads=1)
        losses = [trainer(X).tobytes() for _ in range(4)]
        copies = {np.asarray(w.value).tobytes() for w in trainer.params}
        assert len(copies) == 1
        return losses, copies

    assert trained(workers.devices) == trained(here(workers))


def chain(x: Any, w: Any) -> Any:
    with on(0):
        h = np.tanh(x @ w)
    with on(1):
        h = np.exp(h @ w.T)
    with on(2):
        return h.sum(axis=0), (h * 2).astype("f8"), h[:0]


def loop(x: Any, w: Any) -> Any:
    def body(k: Any, h: Any) -> Any:
        with on(0):
            a = np.tanh(h @ w)
        with on(1):
            return h + a @ w.T

    return gc.fori(0, 20, body, x)


def nested(x: Any, w: Any) -> Any:
    def outer(k: Any, h: Any) -> Any:
        def inner(j: Any, h: Any) -> Any:
            with on(2):
                return np.sin(h) * 0.9

        with on(1):
            h = np.cos(h)
        return gc.cond(h.sum() > 0, lambda h: gc.fori(0, 3, inner, h), lambda h: h * 0.5, h)

    return gc.fori(0, 4, outer, x @ w)


def gradient(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        return (loop(x, w) ** 2).mean()

    return gc.value_and_grad(loss)(w * 0.1)


def noise(x: Any, w: Any) -> Any:
    first, second = gc.random.split(gc.random.key(3))
    with on(1):
        a = gc.random.normal(first, (8, 16))
    with on(2):
        return a + gc.random.uniform(second, (8, 16)) + x


def lstm(x: Any, w: Any) -> Any:
    """Two layers over the rows of x, and the gradient of what they make."""

    def layer(task: int, w: Any, rows: Any) -> Any:
        def cell(carry: Any, row: Any) -> Any:
            h, s = carry
            i, f, g, o = np.split(np.tile(row @ w + h, 4), 4)
            s = s / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            h = np.tanh(s) / (1 + np.exp(-o))
            return (h, s), h

        with on(task):
            zero = np.zeros(16, "f4")
            return gc.scan(cell, (zero, zero), rows)[1]

    return gc.value_and_grad(lambda w: (layer(2, w, layer(1, w, x)) ** 2).mean())(w)


def attention(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x
        for task in range(TASKS):
            with on(task):
                scores = h @ w @ h.T
                weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
                h = h + weights / weights.sum(axis=-1, keepdims=True) @ h
        return (h * h).mean()

    return gc.value_and_grad(loss)(w)


def convolutions(x: Any, w: Any) -> Any:
    def loss(kernel: Any) -> Any:
        h = x.reshape(1, 2, 8, 8)
        for task in range(TASKS):
            with on(task):
                h = np.maximum(gc.conv(h, kernel), 0)
        return (h * h).mean()

    return gc.value_and_grad(loss)(w[:2, :2, None, None] * np.ones((2, 2, 3, 3), "f4"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", [chain, loop, nested, gradient, noise, lstm, attention, convolutions]
)
def test_results_are_those_of_one_process(
    workers: gc.cluster.LocalCluster, function: Callable[..., Any]
) -> None:
    same(function, workers, X, W)


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "c16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (300, 257)])
def test_values_of_any_type_and_size_cross(
    workers: gc.cluster.LocalCluster, dtype: str, shape: tuple[int, ...]
) -> None:
    def back_and_forth(x: Any) -> Any:
        with on(1):
            y = np.stack([x, x])
        with on(2):
            z = y[::-1]
        with on(0):
            return z, y

    x = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype)
    (got, again) = same(back_and_forth, workers, x)
    np.testing.assert_array_equal(got, [x, x])
    np.testing.assert_array_equal(again, [x, x])


def test_this_process_takes_part(
    workers: gc.cluster.LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    @gc.compile(devices=["cpu:0", *workers.devices])
    def mixed(x):
        with gc.device("cpu:0"):
            gc.print("sum {}", x.sum())
        with gc.device("/job:worker/task:2"):
            y = np.tanh(x)
        with gc.device("/job:localhost/device:cpu:0"):
            return y + 1

    np.testing.assert_array_equal(mixed(np.ones(4)), np.tanh(np.ones(4)) + 1)
    assert "sum 4" in capfd.readouterr().out


def test_messages_per_step_are_the_workers_that_take_part(workers: gc.cluster.LocalCluster) -> None:
    run = gc.compile(loop, devices=workers.devices)
    arguments = X, W
    run(*arguments)
    taking_part = len(run.executable(*arguments).members)
    before = workers.status()
    for _ in range(5):
        run(*arguments)
    after = workers.status()
    assert after["steps"] - before["steps"] == 5
    assert after["messages"] - before["messages"] == 5 * taking_part
    assert [each["state"] for each in after["workers"]] == ["ready"] * TASKS


def test_bytes_that_are_sent_are_those_of_the_values(workers: gc.cluster.LocalCluster) -> None:
    @gc.compile(devices=workers.devices)
    def far(x):
        with on(0):
            y = np.tanh(x)
        with on(1):
            return y * 2

    far(X)
    before = [worker["sent"] for worker in workers.status()["workers"]]
    far(X)
    after = [worker["sent"] for worker in workers.status()["workers"]]
    assert [b - a for a, b in zip(before, after)] == [X.nbytes, X.nbytes, 0]  # there and back


def test_compressed_values_take_half_the_bytes(workers: gc.cluster.LocalCluster) -> None:
    def far(x: Any) -> Any:
        with on(0):
            y = np.tanh(x)
        with on(1):
            return (y * 2).sum()

    def sent(**options: Any) -> int:
        run = gc.compile(far, devices=workers.devices, **options)
        run(x)
        before = sum(worker["sent"] for worker in workers.status()["workers"])
        run(x)
        return sum(worker["sent"] for worker in workers.status()["workers"]) - before

    x = np.ones((64, 64), "f4")
    assert (sent(), sent(compress=True)) == (x.nbytes + 4, x.nbytes // 2 + 4)


@pytest.mark.slow
def test_checkpoints_go_on_with_other_numbers_of_workers(
    workers: gc.cluster.LocalCluster, tmp_path: Path
) -> None:
    def trained(names: list[str], home: str, folder: str) -> list[float]:
        places = [names[task % len(names)].rpartition("/device")[0] for task in range(TASKS)]
        step = train(names, home, places)
        saved = gc.variables(home)
        with gc.Checkpoints(tmp_path / folder) as checkpoints:
            last = checkpoints.latest(saved)
            losses = [step() for _ in range(4)]
            checkpoints.save(4 + (last.step if last else 0), saved)
        return losses

    def twice(names: list[str], where: str) -> list[float]:
        """On all devices, then on two of them, which merge what others had in two kernels."""
        return trained(names, f"three {where}", where) + trained(names[1:], f"two {where}", where)

    losses = twice(workers.devices, "far")
    assert losses == twice(here(workers), "near")
    calm = train(here(workers), "whole")
    np.testing.assert_allclose(losses, [calm() for _ in range(8)], rtol=1e-6)


def test_donated_arguments_are_taken_over(workers: gc.cluster.LocalCluster) -> None:
    @gc.compile(devices=workers.devices, donate=("x",))
    def update(x, y):
        with on(1):
            step = np.sin(y)
        with on(0):
            return x + step

    x, y = np.ones((4, 4)), np.full((4, 4), 2.0)
    update(x.copy(), y)
    for _ in range(3):
        x = update(x, y)
    np.testing.assert_array_equal(x, 1 + 3 * np.sin(y) * np.ones((4, 4)))


def test_threads_call_at_the_same_time(workers: gc.cluster.LocalCluster) -> None:
    runs = [gc.compile(f, devices=workers.devices) for f in (chain, loop)]

    wanted = [bits(run(X, W)) for run in runs]
    found: list[bool] = []

    def call(k: int) -> None:
        found.extend(bits(runs[k % 2](X, W)) == wanted[k % 2] for _ in range(5))

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20


# ------------------------------------------------------------------------- variables


def train(
    devices: list[str], home: str, places: tuple[str, ...] | list[str] = ()
) -> Callable[[], float]:
    rng = np.random.default_rng(1)
    ws = [
        gc.Variable(rng.standard_normal((16, 16)).astype("f4") / 4, name=f"w{k}", container=home)
        for k in range(TASKS)
    ]

    @gc.compile(devices=devices)
    def step(x):
        def loss(ws: Any) -> Any:
            h = x
            for task, w in enumerate(ws):
                with gc.device(places[task]) if places else on(task):
                    h = np.tanh(h @ w)
            return (h * h).mean()

        value, gradients = gc.value_and_grad(loss)([w.value for w in ws])
        for w, gradient in zip(ws, gradients):
            w.assign_add(-0.1 * gradient)
        return value

    return lambda: float(step(X))


def test_variables_live_on_workers_and_are_read_here(workers: gc.cluster.LocalCluster) -> None:
    far, near = train(workers.devices, "far"), train(here(workers), "near")
    assert [far() for _ in range(5)] == [near() for _ in range(5)]
    a, b = gc.variables("far"), gc.variables("near")
    assert all(bits(a[name].value) == bits(b[name].value) for name in a)
    a["w1"].assign(np.zeros((16, 16), "f4"))  # the workers see what is assigned here
    assert far() == 0.0
    doubled = gc.compile(lambda: a["w0"].value * 2)  # and programs of this process what they write
    np.testing.assert_array_equal(doubled(), a["w0"].value * 2)


def test_a_container_that_was_reset_is_found_again(workers: gc.cluster.LocalCluster) -> None:
    v = gc.Variable(np.ones(3), name="v", container="again")

    @gc.compile(devices=workers.devices)
    def count():
        with on(1):
            v.assign_add(1.0)

    count()
    v.assign(np.zeros(3))
    count()
    np.testing.assert_array_equal(v.value, np.ones(3))
    gc.reset_container("again")
    with pytest.raises(RunError, match="reset"):
        count()
    v.assign(np.zeros(3))
    count()
    np.testing.assert_array_equal(v.value, np.ones(3))


# ------------------------------------------------------------------------- failures


def kill(pid: int, how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, how)


def test_errors_name_the_line_and_the_device(workers: gc.cluster.LocalCluster) -> None:
    @gc.compile(devices=workers.devices)
    def pick(x, k):
        with on(1):
            y = np.tanh(x)[k]
        with on(2):
            return y * 2

    assert pick(np.ones(3), np.int64(1)) == np.tanh(1.0) * 2
    with pytest.raises(GraphError, match=r"index 5 .*\(on /job:worker/task:1/device:cpu:0\)") as e:
        pick(np.ones(3), np.int64(5))
    assert "test_cluster.py" in str(e.value)
    assert pick(np.ones(3), np.int64(1)) == np.tanh(1.0) * 2


def test_what_cannot_be_is_said() -> None:
    for options in ({"workers": 0}, {"workers": 65}, {"workers": 1.5}, {"job": "localhost"}):
        with pytest.raises(GraphError):
            gc.cluster.local(**options)
    with pytest.raises(GraphError, match="patience"):
        gc.cluster.local(1, patience=-1)


def test_what_cannot_be_with_these_workers_is_said(workers: gc.cluster.LocalCluster) -> None:
    with pytest.raises(GraphError, match="served already"):
        gc.cluster.local(workers=1)
    far = [*workers.devices, "/job:worker/task:7/device:cpu:0"]

    def absent(x: Any) -> Any:
        with on(7):
            return x + 1

    with pytest.raises(GraphError, match="nobody serves /job:worker/task:7"):
        gc.compile(absent, devices=far)(X)

    def prints(x: Any) -> Any:
        with on(1):
            gc.print("{}", x.sum())
            return x + 1

    with pytest.raises(GraphError, match="task:1 calls no Python") as e:
        gc.compile(prints, devices=workers.devices)(X)
    assert "test_cluster.py" in str(e.value)


def endless(x: Any, trips: Any) -> Any:
    def body(k: Any, h: Any) -> Any:
        with on(0):
            a = np.tanh(h)
        with on(1):
            return np.sin(a) + h

    return gc.fori(0, trips, body, x)


def in_a_step(found: gc.cluster.LocalCluster, act: Callable[[], None]) -> threading.Thread:
    """Do something while the next step is running."""

    def wait_and_act() -> None:
        while found.in_flight is None:
            time.sleep(1e-3)
        act()

    made = threading.Thread(target=wait_and_act)
    made.start()
    return made


def lose(found: gc.cluster.LocalCluster, task: int, how: signal.Signals) -> None:
    """Kill a worker, or have it stand still for as long as the cluster is patient: on a busy
    machine any worker may not run for a second, so no test waits for that."""
    worker = found.workers[task]
    kill(worker.pid, how)
    while not worker.lost:
        found.heartbeats.heard[task] = -found.patience
        time.sleep(1e-3)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_ends_the_step_and_comes_back(how: signal.Signals) -> None:
    with gc.cluster.local(workers=2, patience=300.0, job="lossy") as found:
        run, other = (gc.compile(f, devices=found.devices) for f in (endless, endless))
        wanted = bits(run(X, np.int64(3)))
        assert bits(other(X, np.int64(3))) == wanted
        victim = found.pids[1]
        in_a_step(found, lambda: lose(found, 1, how))
        with pytest.raises(RunError, match=rf"task:1 \(process {victim}\) was lost in step 3"):
            run(X, np.int64(1 << 60))
        with pytest.raises(RunError, match="was lost"):
            run(X, np.int64(3))
        assert found.status()["workers"][1]["state"] not in ("ready", "")
        found.restart()
        assert found.pids[1] != victim
        assert bits(run(X, np.int64(3))) == bits(other(X, np.int64(3))) == wanted
    assert not any(Path(f"/proc/{pid}").exists() for pid in (victim, *found.pids))
    with pytest.raises(RunError, match="closed"):
        run(X, np.int64(3))


@pytest.mark.slow
def test_a_lost_step_is_done_again() -> None:
    """Whenever workers are killed or stopped, the weights are those of a run without that."""
    near = train([f"/job:nobody/task:{task}/device:cpu:0" for task in range(TASKS)], "calm")
    wanted = [near() for _ in range(12)]
    with gc.cluster.local(workers=TASKS, patience=300.0, job="hardy", retries=9) as found:
        far = train(found.devices, "stormy")
        losses = []
        for step in range(12):
            if step == 3:
                os.kill(found.pids[1], signal.SIGKILL)
            if step == 6:
                threading.Timer(0.001, kill, (found.pids[2], signal.SIGKILL)).start()
            losses.append(far())
        assert losses == wanted
        assert found.status()["restarts"] >= 1
    calm, stormy = gc.variables("calm"), gc.variables("stormy")
    assert all(bits(calm[name].value) == bits(stormy[name].value) for name in calm)


def test_a_cancel_between_runs_stops_none(workers: gc.cluster.LocalCluster) -> None:
    run = gc.compile(endless, devices=workers.devices)
    wanted = bits(run(X, np.int64(2)))
    for _ in range(20):
        run.executable(X, np.int64(2)).cancel()
        assert bits(run(X, np.int64(2))) == wanted


def test_a_run_is_cancelled(workers: gc.cluster.LocalCluster) -> None:
    run = gc.compile(endless, devices=workers.devices)
    wanted = bits(run(X, np.int64(2)))
    in_a_step(workers, run.executable(X, np.int64(2)).cancel)
    with pytest.raises(RunError, match="cancelled"):
        run(X, np.int64(1 << 60))
    assert bits(run(X, np.int64(2))) == wanted


def test_a_worker_that_hears_of_a_cancel_before_its_step_begins_stops_it(
    workers: gc.cluster.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be late: the word comes by another way than the step. No other stops this loop."""

    def far(x: Any, trips: Any) -> Any:
        with on(1):
            return gc.fori(0, trips, lambda k, h: np.sin(h), x)

    run = gc.compile(far, devices=workers.devices)
    wanted = bits(run(X, np.int64(2)))
    worker = workers.workers[1]
    ring = worker.ring

    def ring_late(*what: Any) -> None:
        run.executable(X, np.int64(2)).cancel()
        while unread(worker.process.stdin.fileno()):
            time.sleep(1e-3)
        ring(*what)

    with monkeypatch.context() as inside:
        inside.setattr(worker, "ring", ring_late)
        with pytest.raises(RunError, match="cancelled"):
            run(X, np.int64(1 << 60))
    assert bits(run(X, np.int64(2))) == wanted


def test_a_cancel_that_is_slow_stops_no_later_step(
    workers: gc.cluster.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step ends while workers are told one after the other."""
    run = gc.compile(endless, devices=workers.devices)
    wanted = bits(run(X, np.int64(2)))
    first, second = workers.workers[:2]
    cancel, is_told, told = first.cancel, threading.Event(), []

    def cancel_slowly(step: int) -> None:
        cancel(step)
        if threading.current_thread() is not threading.main_thread():
            is_told.wait(1)  # in which the step would end, and the next one begin

    monkeypatch.setattr(first, "cancel", cancel_slowly)
    monkeypatch.setattr(second, "cancel", told.append)
    thread = in_a_step(workers, run.executable(X, np.int64(2)).cancel)
    with pytest.raises(RunError, match="cancelled"):
        run(X, np.int64(1 << 60))
    step = workers.steps
    for _ in range(3):
        assert bits(run(X, np.int64(2))) == wanted
    thread.join()
    assert set(told) == {step}


def unread(pipe: int) -> int:
    """The bytes in a pipe."""
    count = np.zeros(1, np.int32)
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return int(count[0])


@pytest.mark.usefixtures("frozen")
def test_programs_that_are_gone_are_dropped(workers: gc.cluster.LocalCluster) -> None:
    before = [set(worker.programs) for worker in workers.workers]
    for k in range(3):
        gc.compile(lambda x, k=k: x * k, devices=workers.devices)(X)
    collector.collect()
    gc.compile(lambda x: x - 1, devices=workers.devices)(X)
    assert all(len(w.programs - old) <= 2 for w, old in zip(workers.workers, before))


CLIENT = """
import numpy as np, graphc as gc, os, sys
found = gc.cluster.local(workers=2, job="other")
gc.compile(lambda x: x + 1, devices=found.devices)(np.ones(3))
print(*found.pids, flush=True)
os.kill(os.getpid(), 9)
"""


def test_workers_end_with_their_client() -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    for pid in pids:  # they are no children of ours: a descriptor tells that they end
        try:
            end = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([end], (), (), 60)[0]
        os.close(end)


def test_a_worker_imports_no_compiler() -> None:
    code = "import graphc.runtime.cluster.worker, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "graphc.runtime.cluster.worker" in loaded
    assert not [m for m in loaded if m.startswith(("graphc.passes", "graphc.ops", "llvmlite"))]
    assert not {"numba", "lark", "graphc.frontend", "graphc.codegen"} & loaded


# ------------------------------------------------------------------------- frames


def received(data: bytes) -> wire.Message:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return wire.receive(ours)


def sent(fields: dict[str, Any]) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(theirs, Kind.LOAD, fields)
        return ours.recv(1 << 16)


def test_frames_are_read_as_they_were_sent() -> None:
    message = received(sent({"program": 3, "links": [1, 2]}))
    assert (message.kind, message.get("program", int)) == (Kind.LOAD, 3)
    assert message.numbers("links") == [1, 2]
    for name, kind in (("program", str), ("program", bool), ("absent", int)):
        with pytest.raises(GraphError, match="LOAD has no"):
            message.get(name, kind)


def test_damaged_frames_are_refused() -> None:
    whole = sent({"program": 3})
    for position in range(len(whole)):
        for change in (1, 0x80):
            data = bytearray(whole)
            data[position] ^= change
            try:
                message = received(bytes(data))
            except (GraphError, wire.Lost):
                continue
            assert isinstance(message.fields, dict)
    for length in range(len(whole)):
        with pytest.raises(wire.Lost):
            received(whole[:length])


def test_a_message_that_does_not_fit_is_an_error_and_not_the_end(
    workers: gc.cluster.LocalCluster,
) -> None:
    run = gc.compile(chain, devices=workers.devices)
    wanted = bits(run(X, W))
    support = run.executable(X, W).support
    names = "blocks", "sizes", "links", "variables", "values"
    for fields in ({}, {"program": 1 << 40, **{name: [] for name in names}}, {"program": "0"}):
        with pytest.raises(GraphError, match="task:0"):
            workers.workers[0].tell(support, Kind.OPEN, fields)
    assert bits(run(X, W)) == wanted


@pytest.mark.slow
def test_parts_that_are_no_message_are_refused() -> None:
    good = wire.framed(Kind.RUN, {"program": 1}, [b"values"])
    assert wire.unframed(good) == wire.Message(Kind.RUN, {"program": 1}, (), (b"values",))
    for parts in ([], [b""], [b"\x06"], [b"\xff", b"{}"], [b"\x06", b"[]"], [b"\x06", b"{"]):
        with pytest.raises(GraphError):
            wire.unframed(parts)
