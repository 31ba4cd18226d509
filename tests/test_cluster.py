"""Programs of several devices run natively: messages, loops, failures, variables, files, fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.runtime import artifact, cluster
from graphc.runtime.cluster import Cluster
from graphc.runtime.image import Channel

TWO = ["cpu:0", "cpu:1"]
X = np.random.default_rng(0).standard_normal((32, 32)).astype("f4")


def there_and_back(x: Any) -> Any:
    with gc.device("cpu:0"):
        y = np.tanh(x)
    with gc.device("cpu:1"):
        z = np.exp(y)
    with gc.device("cpu:0"):
        return z + y


def made(function: Any, *arguments: Any, **options: Any) -> Cluster:
    options = {"devices": TWO, "threads": 1, **options}
    found = gc.compile(function, **options).executable(*arguments)
    assert isinstance(found, Cluster)
    return found


def want(function: Any, *arguments: Any) -> list[np.ndarray]:
    """The same, all on one device."""
    alone = gc.compile(function, devices=["cpu:0"], soft_placement=True)
    result = alone(*arguments)
    return list(result) if isinstance(result, tuple) else [result]


def check(function: Any, *arguments: Any, **options: Any) -> Cluster:
    found, wanted = made(function, *arguments, **options), want(function, *arguments)
    for _ in range(4):
        results = found.run([np.asarray(a) for a in arguments])
        for got, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, expected)
    return found


def in_time(call: Any, seconds: float = 1.0) -> Any:
    """The result of a call that must end soon, whatever happens."""
    started = time.perf_counter()
    try:
        return call()
    finally:
        assert time.perf_counter() - started < seconds


# ------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("opt", [0, 2])
def test_a_value_goes_there_and_back(opt: int) -> None:
    found = check(there_and_back, X, opt=opt)
    assert [image.device for image in found.image.images] == TWO
    assert len(found.image.channels) == 2
    assert not any(channel.buffered for channel in found.image.channels)


def test_the_native_entry_runs_all_devices() -> None:
    found = made(there_and_back, X)
    wanted = found.run([X])[0]
    found.run([X])
    for _ in range(20):
        np.testing.assert_array_equal(found.entry(X), wanted)


def fan(x: Any) -> Any:
    """Eight branches over four devices, each read by the next."""
    results = []
    for k in range(8):
        with gc.device(f"cpu:{k % 4}"):
            y = x @ x if k % 2 else np.tanh(x)
            x = y + k
            results.append(x.sum(axis=1))
    return tuple(results)


def test_more_devices_than_cores() -> None:
    check(fan, X, devices=[f"cpu:{k}" for k in range(4)])


def test_many_runs_give_the_same_bits() -> None:
    found = made(fan, X, devices=[f"cpu:{k}" for k in range(4)])
    wanted = [r.tobytes() for r in found.run([X])]
    for _ in range(500):
        assert [r.tobytes() for r in found(X)] == wanted


def test_concurrent_runs_have_channels_of_their_own() -> None:
    found = made(there_and_back, X)
    inputs = [np.full_like(X, k / 8) for k in range(12)]
    wanted = [found.run([x])[0] for x in inputs]
    with ThreadPoolExecutor(12) as threads:
        for _ in range(20):
            for got, expected in zip(threads.map(found, inputs), wanted, strict=True):
                np.testing.assert_array_equal(got, expected)


def test_two_executables_at_once() -> None:
    first, second = made(there_and_back, X), made(fan, X, devices=[f"cpu:{k}" for k in range(4)])
    wanted = first.run([X]), second.run([X])
    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit((first, second)[k % 2].run, [X]) for k in range(60)]
        for k, job in enumerate(jobs):
            for got, expected in zip(job.result(), wanted[k % 2], strict=True):
                np.testing.assert_array_equal(got, expected)


def test_large_and_empty_values() -> None:
    check(there_and_back, np.ones((1500, 700), "f4"))
    check(there_and_back, np.ones((0, 3), "f4"))


def test_a_donated_argument_that_is_sent_is_copied_first() -> None:
    def step(x: Any) -> Any:
        with gc.device("cpu:1"):
            y = np.exp(np.exp(x) @ x)
        with gc.device("cpu:0"):
            return x * 2, y.sum()

    found = made(step, X, donate=("x",))
    wanted = want(step, X)
    for _ in range(50):
        given = X.copy()
        twice, total = found.run([given])
        assert twice is given
        np.testing.assert_array_equal(twice, wanted[0])
        np.testing.assert_array_equal(total, wanted[1])
    assert any(channel.buffered for channel in found.image.channels)


def test_a_null_device_answers_zeros() -> None:
    def function(x: Any) -> Any:
        with gc.device("null:0"):
            y = np.tanh(x) + 1
        with gc.device("cpu:0"):
            return y + x

    found = made(function, X, devices=["cpu:0", "null:0"])
    np.testing.assert_array_equal(found.run([X])[0], X)
    alone = gc.compile(lambda x: np.exp(x), devices=["null:0"])
    np.testing.assert_array_equal(alone(X), np.zeros_like(X))
    with pytest.raises(GraphError, match="null:0, which computes no conditions"):
        made(lambda x: either(x, "null:0"), X, devices=["cpu:0", "null:0"])


# ------------------------------------------------------------------------------------ loops


def ping_pong(x: Any) -> Any:
    def body(k: Any, value: Any) -> Any:
        with gc.device("cpu:1"):
            value = np.tanh(value) + 1
        with gc.device("cpu:0"):
            return value * 0.5

    return gc.fori(0, 200, body, x)


def until_small(x: Any) -> Any:
    def test(state: Any) -> Any:
        with gc.device("cpu:1"):
            return state[0].sum() > 1

    def body(state: Any) -> Any:
        with gc.device("cpu:1"):
            y = state[0] * 0.9
        with gc.device("cpu:0"):
            return y, state[1] + 1

    return gc.while_loop(test, body, (x, np.int32(0)))


def either(x: Any, other: str = "cpu:1") -> Any:
    def left(x: Any) -> Any:
        with gc.device(other):
            return np.tanh(x) + 1

    def right(x: Any) -> Any:
        with gc.device("cpu:0"):
            return x * 2

    return gc.cond(x.sum() > 0, left, right, x)


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("function", [ping_pong, until_small, either])
def test_control_flow_over_devices(function: Any, opt: int) -> None:
    for x in (np.abs(X), -np.abs(X)):
        found = check(function, x, opt=opt)
        inside = [channel for channel in found.image.channels if channel.buffered]
        assert inside, "something is sent in every round"


# ------------------------------------------------------------------------------------ failures


def pick(x: Any, index: Any) -> Any:
    with gc.device("cpu:1"):
        y = np.tanh(x)[index]
    with gc.device("cpu:0"):
        return y @ x


def test_the_first_failure_stops_all_devices_and_names_the_place() -> None:
    good, bad = np.arange(32), np.full(32, 99)
    found = made(pick, X, good)
    wanted = found.run([X, good])[0]
    for _ in range(10):
        with pytest.raises(RunError, match="out of range") as caught:
            in_time(lambda: found(X, bad))
        assert "cpu:1" in str(caught.value) and "test_cluster.py" in str(caught.value)
        np.testing.assert_array_equal(found.run([X, good])[0], wanted)


def endless(x: Any, go_on: Any) -> Any:
    with gc.device("cpu:1"):
        y = gc.while_loop(
            lambda s: go_on > s[1], lambda s: (np.tanh(s[0]), s[1] * 1), (x, go_on - 1)
        )
    with gc.device("cpu:0"):
        return y[0] + 1


def stopped(found: Cluster, stop: Any, words: str) -> None:
    """A run that never ends, stopped by another thread, then one that ends."""
    errors: list[RunError] = []

    def run() -> None:
        with pytest.raises(RunError) as caught:
            found.run([X, np.int32(1)])
        errors.append(caught.value)

    runner = threading.Thread(target=run)
    runner.start()
    time.sleep(0.05)
    stop()
    runner.join(1.0)
    assert not runner.is_alive() and words in str(errors[0])


def ends(found: Cluster) -> None:
    assert found.run([X, np.int32(np.iinfo(np.int32).min)])[0].shape == X.shape


def test_a_cancelled_run() -> None:
    found = made(endless, X, np.int32(1))
    for _ in range(3):
        stopped(found, found.cancel, "cancelled")
        ends(found)


def test_a_device_that_disappears() -> None:
    found = made(endless, X, np.int32(1))
    ends(found)
    stopped(found, lambda: cluster.disconnect("cpu:1"), "device cpu:1 was lost")
    try:
        with pytest.raises(RunError, match="device cpu:1 is gone"):
            ends(found)
    finally:
        cluster.reconnect("cpu:1")
    ends(found)


NO_THREADS = """
import resource
import numpy as np
from test_cluster import X, made, there_and_back
from graphc.errors import RunError
found = made(there_and_back, X)
found.give(found.begin([X])[0])
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), hard))
try:
    found.run([X])
except RunError as error:
    assert "no thread can be started for device cpu:1" in str(error), error
else:
    raise SystemExit("it ran")
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
assert np.isfinite(found.run([X])[0]).all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_thread_for_a_device() -> None:
    tests = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", NO_THREADS], cwd=tests, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_gets_workers_of_its_own() -> None:
    found = made(there_and_back, X)
    wanted = found.run([X])[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(found.run([X])[0], wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(found.run([X])[0], wanted)


def test_tables_are_checked_against_the_channels() -> None:
    image = made(there_and_back, X).image
    (first, second) = image.channels
    for wrong in (
        replace(first, nbytes=first.nbytes + 4),
        replace(first, source=first.target, target=first.source),
        replace(first, target=7),
        Channel("c", 4, 0, 0, False),
    ):
        with pytest.raises(GraphError):
            replace(image, channels=(wrong, second)).check()


# ------------------------------------------------------------------------------------ state, files


def test_variables_live_on_their_devices() -> None:
    total = gc.Variable(np.zeros((32, 32), "f4"), name="cluster_total")
    count = gc.Variable(np.float32(0), name="cluster_count")

    @gc.compile(devices=TWO, threads=1)
    def step(x: Any) -> Any:
        with gc.device("cpu:1"):
            total.assign(total.value + np.tanh(x))
        with gc.device("cpu:0"):
            count.assign(count.value + 1)
            return x * 2

    for _ in range(5):
        np.testing.assert_array_equal(step(X), X * 2)
    np.testing.assert_allclose(total.value, 5 * np.tanh(X), rtol=1e-5, atol=1e-6)
    assert count.value == 5
    used = {
        image.device: [v.slot.name for v in image.variables]
        for image in step.executable(X).image.images
    }
    assert used == {"cpu:0": ["cluster_count"], "cpu:1": ["cluster_total"]}


def test_a_file_holds_all_devices(tmp_path: Any) -> None:
    found = made(fan, X, devices=[f"cpu:{k}" for k in range(4)])
    artifact.save(found.image, tmp_path / "fan.gcx")
    loaded = artifact.load(tmp_path / "fan.gcx")
    assert isinstance(loaded, Cluster)
    for got, expected in zip(loaded.run([X]), found.run([X]), strict=True):
        np.testing.assert_array_equal(got, expected)
    image = artifact.read(tmp_path / "fan.gcx")
    assert image.channels == found.image.channels
    assert [dict(i.origins) for i in image.images] == [dict(i.origins) for i in found.image.images]
