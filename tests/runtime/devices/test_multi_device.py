"""Programs of several devices run natively: messages, loops, failures, variables, files, fork."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from device_programs import TWO, X, made, ping_pong, there_and_back

import graphc as gc
from graphc.base.record import replace
from graphc.codegen.llvm.target import host
from graphc.codegen.runtime.support import support_ir
from graphc.errors import GraphError
from graphc.runtime.devices.multi_device import MultiDeviceExecutable
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.load.program import Channel


def want(function: Any, *arguments: Any) -> list[np.ndarray]:
    """The same, all on one device."""
    alone = gc.compile(function, devices=["cpu:0"], soft_placement=True)
    result = alone(*arguments)
    return list(result) if isinstance(result, tuple) else [result]


def check(function: Any, *arguments: Any, **options: Any) -> MultiDeviceExecutable:
    found, wanted = made(function, *arguments, **options), want(function, *arguments)
    for _ in range(4):
        results = found.run([np.asarray(a) for a in arguments])
        for got, expected in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, expected)
    return found


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


# ------------------------------------------------------------------------------------ state, files


@pytest.mark.parametrize(
    "triple", ["aarch64-unknown-linux-gnu", "arm64-apple-darwin", "x86_64-pc-windows-msvc"]
)
def test_the_native_text_is_sound_for_other_systems(triple: str) -> None:
    import llvmlite.binding as llvm

    text = support_ir(replace(host(), triple=triple))
    llvm.parse_assembly(text).verify()
    assert ("sched_getcpu" in text) == ("linux" in triple)


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


def test_what_is_sent_is_the_value_before_it_is_overwritten() -> None:
    state = gc.Variable(X, name="cluster_state")

    @gc.compile(devices=TWO, threads=1)
    def step(x: Any) -> Any:
        with gc.device("cpu:1"):
            old = state.value
            state.assign(old * 0.5 + 1)
        with gc.device("cpu:0"):  # busy long after the assignment
            for _ in range(10):
                x = np.tanh(x @ x)
            return x.sum() * 0 + old

    given = np.ones((200, 200), "f4")
    wanted = X
    for _ in range(30):
        np.testing.assert_array_equal(step(given), wanted)
        wanted = wanted * np.float32(0.5) + np.float32(1)


def test_a_file_holds_all_devices(tmp_path: Any) -> None:
    found = made(fan, X, devices=[f"cpu:{k}" for k in range(4)])
    gcx_writer.save(found.image, tmp_path / "fan.gcx")
    loaded = gcx_files.load(tmp_path / "fan.gcx")
    assert isinstance(loaded, MultiDeviceExecutable)
    for got, expected in zip(loaded.run([X]), found.run([X]), strict=True):
        np.testing.assert_array_equal(got, expected)
    image = gcx_files.read(tmp_path / "fan.gcx")
    assert image.channels == found.image.channels
    assert [dict(i.origins) for i in image.images] == [dict(i.origins) for i in found.image.images]
