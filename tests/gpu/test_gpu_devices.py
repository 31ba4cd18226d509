"""Programs of GPUs beside CPUs and other GPUs: messages, state, failures, arrays, times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_harness import GPU, need_gpu

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.runtime.cuda.drivers import open_driver
from graphc.runtime.devices.registry import present_chip
from graphc.runtime.observe.trace import trace

need_gpu()
pytestmark = pytest.mark.gpu

BESIDE = [["cpu:0", "gpu:0"], ["gpu:0", "cpu:0"], ["gpu:0", "gpu:1"], ["gpu:1", "cpu:3", "gpu:0"]]
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def need(devices: list[str]) -> None:
    """Skip what needs more GPUs than there are; the first is there."""
    for device in devices:
        if device.startswith("gpu") and device != "gpu:0":
            try:
                open_driver(present_chip(), device)
            except GraphError as error:
                pytest.skip(str(error))


def check(function: Any, *arguments: Any, devices: list[str], **options: Any) -> None:
    """The results on the devices are those on the CPU."""
    made = gc.compile(function, devices=devices, **options)
    wanted = gc.compile(function, devices=["cpu:0"], soft_placement=True)(*arguments)
    for _ in range(3):
        results = made(*arguments)
        for got, expected in zip(tree(results), tree(wanted), strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-6)


def tree(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def spread(x: Any, devices: list[str]) -> Any:
    """Some of it on every device, back and forth."""
    need(devices)
    for k in range(4):
        with gc.device(devices[k % len(devices)]):
            x = np.tanh(x * 1.5) + k
    return x.sum(0), x


@pytest.mark.parametrize("devices", BESIDE, ids=" ".join)
def test_devices_beside_one_another(devices: list[str]) -> None:
    check(lambda x: spread(x, devices), X, devices=devices)


@pytest.mark.parametrize("devices", BESIDE, ids=" ".join)
@pytest.mark.parametrize("how", ["truncate", "nearest"])
def test_compressed_transfers(devices: list[str], how: str) -> None:
    """f32 goes as its upper 16 bits, which is what the reference of the same program does."""
    made = gc.compile(lambda x: spread(x, devices), devices=devices, compress=how)
    exact = gc.compile(lambda x: spread(x, devices), devices=["cpu:0"], soft_placement=True)(X)
    cpus = [f"cpu:{k}" for k in range(len(devices))]
    same = gc.compile(lambda x: spread(x, cpus), devices=cpus, compress=how)(X)
    for _ in range(3):
        for got, expected, other in zip(made(X), exact, same, strict=True):
            np.testing.assert_allclose(got, other, rtol=2e-6)
            assert 0 < np.abs(got - expected).max() < 0.2


def test_scans_and_their_gradients() -> None:
    def loss(x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            carry = np.tanh(carry * 0.5 + row)
            return carry, carry * 2

        final, rows = gc.scan(body, np.zeros(4, np.float32), x)
        return (final * final).sum() + rows.mean()

    check(loss, X, devices=GPU)
    check(gc.grad(loss), X, devices=GPU)


def test_loops_that_depend_on_data_and_their_gradients() -> None:
    def grow(x: Any) -> Any:
        return gc.while_loop(lambda x: (x * x).sum() < 500, lambda x: x * 1.7, x)

    check(grow, X, devices=GPU)
    check(grow, 9 * X, devices=GPU)
    check(gc.grad(lambda x: grow(x).sum()), X, devices=GPU)


@pytest.mark.parametrize("sign", [1, -1])
def test_branches(sign: int) -> None:
    def either(x: Any) -> Any:
        return gc.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 5, x)

    check(either, sign * (X + 0.5), devices=GPU)


@pytest.mark.parametrize("devices", [GPU, ["cpu:0", "gpu:0"]], ids=" ".join)
def test_variables(devices: list[str], home: Any) -> None:
    total = gc.Variable(np.zeros(4, np.float32), name="total")

    @gc.compile(devices=devices)
    def add(x: Any) -> Any:
        with gc.device("gpu:0"):
            total.assign_add(x.sum(0))
            return total.value * 2

    @gc.compile
    def add_on_cpu(x: Any) -> Any:
        total.assign_add(x.sum(0))
        return total.value * 2

    expected = np.zeros(4, np.float32)
    for step in (add, add, add_on_cpu, add_on_cpu, add_on_cpu, add_on_cpu, add, add_on_cpu, add):
        expected = expected + X.sum(0)
        np.testing.assert_allclose(step(X), 2 * expected, rtol=1e-5)
    np.testing.assert_allclose(total.value, expected, rtol=1e-5)
    total.assign(np.ones(4, np.float32))
    np.testing.assert_allclose(add(X), 2 * (1 + X.sum(0)), rtol=1e-5)


def test_a_failure_names_the_line() -> None:
    def pick(x: Any, i: Any) -> Any:
        return x[i] * 2

    for devices in (GPU, ["cpu:0", "gpu:0"]):
        made = gc.compile(lambda x, i: on_gpu(pick, x, i), devices=devices)
        np.testing.assert_array_equal(made(X, np.array([2, 0])), 2 * X[[2, 0]])
        for _ in range(2):
            with pytest.raises(RunError, match="out of range") as found:
                made(X, np.array([2, 7]))
            assert found.value.location is not None
            assert found.value.location[0].endswith("test_gpu_devices.py")
        np.testing.assert_array_equal(made(X, np.array([1, 1])), 2 * X[[1, 1]])


def on_gpu(function: Any, *arguments: Any) -> Any:
    with gc.device("gpu:0"):
        return function(*arguments)


def test_check_finite_leaves_variables(home: Any) -> None:
    total = gc.Variable(np.ones(4, np.float32), name="total")

    @gc.compile(devices=GPU, check_finite=True)
    def step(x: Any) -> Any:
        total.assign(total.value + np.log(x).sum(0))
        return total.value

    with pytest.raises(RunError, match=r"non-finite|NaN|Inf"):
        step(X)
    np.testing.assert_array_equal(total.value, np.ones(4))


def test_arrays_stay() -> None:
    step = gc.compile(lambda x: np.tanh(x) + 1, devices=GPU)
    found = step.resident(X)
    expected = np.tanh(X) + 1
    for _ in range(5):
        found, expected = step.resident(found), np.tanh(expected) + 1
    assert "gpu:0" in found.device
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)
    np.testing.assert_array_equal(np.from_dlpack(found, device="cpu"), np.asarray(found))
    mixed = gc.compile(lambda x: spread(x, BESIDE[1]), devices=BESIDE[1])
    np.testing.assert_allclose(np.asarray(mixed.resident(found)[0]), mixed(expected)[0], rtol=1e-5)


def test_calls_that_stay_are_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is bound or looked up for a nesting like an earlier one; others are."""
    step = gc.compile(lambda p, x: {"y": x * p["w"] + p["b"][0], "x": x}, devices=GPU)
    counts = 3, 4
    given = {n: gc.to_device(({"w": X[0, :n], "b": [X[1, :n]]}, X[:, :n]), GPU[0]) for n in counts}
    for _ in range(2):
        for p, x in given.values():
            step.resident(p, x)
    monkeypatch.setattr(type(step), "_signature", None)
    for n in counts:
        p, x = given[n]
        made = step.resident({"b": p["b"], "w": p["w"]}, x)
        np.testing.assert_allclose(made["y"], X[:, :n] * X[0, :n] + X[1, :n], rtol=1e-6)
        np.testing.assert_array_equal(made["x"], X[:, :n])
    monkeypatch.undo()
    for other in (X[:, :n], np.asarray(X[:, :n], order="F")):  # arrays of the host
        made = step.resident(p, other)
        np.testing.assert_allclose(made["y"], X[:, :n] * X[0, :n] + X[1, :n], rtol=1e-6)
    again = step.resident(*given[counts[0]])
    assert again["y"].shape == (3, 3) and len(step.compiles) == 2


def test_plain_calls_with_arrays_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    step = gc.compile(lambda x, w: (x * w, {"sum": x + w}), devices=GPU)
    w = gc.to_device(X, GPU[0])
    for k in range(4):
        if k == 2:
            monkeypatch.setattr(type(step), "_signature", None)
        y, others = step(X + k, w)
        assert type(y) is np.ndarray and y.flags.writeable and y.flags.owndata
        np.testing.assert_array_equal(y, (X + k) * X)
        np.testing.assert_array_equal(others["sum"], X + k + X)
    monkeypatch.undo()
    failing = gc.compile(lambda x, i: x[i] * 2, devices=GPU)
    for index in (1, 1, 1, 7, 2):
        if index < 3:
            np.testing.assert_array_equal(failing(w, np.array([index])), 2 * X[[index]])
            continue
        with pytest.raises(RunError, match="out of range") as found:
            failing(w, np.array([index]))
        assert found.value.location is not None


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = np.full(4, scale, np.float32)

    @gc.compile(devices=GPU)
    def step(self, x: Any) -> Any:
        return x * self.scale


def test_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Scaled(2), Scaled(3)
    there = gc.to_device(X, GPU[0])
    for _ in range(2):
        np.testing.assert_array_equal(first.step.resident(there), 2 * X)
        np.testing.assert_array_equal(second.step.resident(there), 3 * X)
    with monkeypatch.context() as patch:
        patch.setattr(type(vars(Scaled)["step"]), "_signature", None)
        np.testing.assert_array_equal(first.step.resident(there), 2 * X)
        np.testing.assert_array_equal(second.step.resident(there), 3 * X)
    first.scale = np.full(4, 5, np.float32)
    np.testing.assert_array_equal(first.step.resident(there), 5 * X)
    np.testing.assert_array_equal(second.step(there), 3 * X)


def test_numbers_are_sent_along(monkeypatch: pytest.MonkeyPatch) -> None:
    step = gc.compile(lambda x, rate: x * rate, devices=GPU)
    there = gc.to_device(X, GPU[0])
    step.resident(there, 2.0)
    monkeypatch.setattr(type(step), "_signature", None)
    made = [step.resident(there, k / 4) for k in range(12)]
    for k, y in enumerate(made):
        np.testing.assert_array_equal(y, X * np.float32(k / 4))
    monkeypatch.undo()
    np.testing.assert_array_equal(step.resident(there, 3), X * 3)
    np.testing.assert_array_equal(step.resident(there, True), X)
    np.testing.assert_array_equal(step.resident(there, 0.5), X / 2)


def test_times() -> None:
    executable = gc.compile(lambda x: spread(x, BESIDE[0]), devices=BESIDE[0]).executable(X)
    results, found = trace(executable, [X])
    np.testing.assert_allclose(results[1], executable.run([X])[1], rtol=1e-6)
    kinds = {(found.devices[event.device], event.kind) for event in found.events}
    assert {("gpu:0", "kernel"), ("gpu:0", "send"), ("gpu:0", "transfer")} <= kinds
