"""The runtime of GPUs: on Numba's simulator, and over a stand-in for NVIDIA's driver API."""

from __future__ import annotations

import gc as garbage
from typing import Any

import numpy as np
import pytest
from fake_cuda import CHIP, KERNELS, MOST_SHARED, FakeCuda, Status, fake
from gpu_cases import CASES, STATE_CASES
from gpu_programs import (
    ALONE,
    COUNT,
    DOUBLE,
    INCREMENT,
    LESS,
    NBYTES,
    STORE,
    WHOLE,
    X,
    check,
    counter,
    image,
    pair,
    twice,
    vector,
)

from graphc.base.record import replace
from graphc.errors import GraphError, LimitError
from graphc.runtime.call.execute import Executable
from graphc.runtime.cuda import driver
from graphc.runtime.devices import registry as devices
from graphc.runtime.load.program import Origin
from graphc.runtime.load.table import ABSENT, ARENA, TableBuilder
from graphc.runtime.tuning import tuned

__all__ = ["fake"]


# ------------------------------------------------------------------------------ cases


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Any, fake: FakeCuda) -> None:
    case(CHIP)


@pytest.mark.parametrize("case", STATE_CASES, ids=lambda case: case.__name__)
def test_state(case: Any, fake: FakeCuda, home: Any) -> None:
    case(CHIP, home)


@pytest.mark.parametrize("count", [4, 1 << 15])
@pytest.mark.parametrize("rounds", [0, 3])
def test_large_messages(fake: FakeCuda, count: int, rounds: int) -> None:
    x = np.arange(count, dtype=np.float32)
    for places in (("cpu:0", "gpu:0"), ("gpu:0", "cpu:0"), ("gpu:0", "gpu:1")):
        cluster = pair(CHIP, places, rounds=rounds, count=count)
        expected = x
        for _ in range(max(rounds, 1)):
            expected = 2 * expected + 1
        for _ in range(3):
            np.testing.assert_array_equal(cluster(x), expected)


# ------------------------------------------------------------------------------ what is called


def test_later_runs_are_one_graph_and_one_wait(fake: FakeCuda) -> None:
    executable = twice(CHIP)
    executable(X)
    assert fake.count("cuGraphInstantiate") == 0, "there may be no second run"
    executable(X)
    assert fake.count("cuGraphInstantiate") == 1 and fake.count("cuLaunchKernel") == 4
    for _ in range(3):
        fake.calls.clear()
        np.testing.assert_array_equal(executable(X), 2 * X + 1)
        assert [name for name, _ in fake.calls] == [
            "cuCtxSetCurrent",
            "cuMemcpyAsync",
            "cuGraphLaunch",
            "cuMemcpyAsync",
            "cuStreamSynchronize",
        ]


def test_gpus_copy_from_one_another(fake: FakeCuda) -> None:
    check(pair(CHIP, ("gpu:0", "gpu:1")), 2 * X + 1)
    assert fake.peers == {("context 0", "context 1"), ("context 1", "context 0")}
    again = pair(CHIP, ("gpu:0", "gpu:1"))
    fake.calls.clear()
    check(again, 2 * X + 1)
    assert fake.count("cuLaunchHostFunc") == 0, "the host has no part in it"


def test_values_of_every_size_come_and_go(fake: FakeCuda) -> None:
    """Small ones together, large ones by themselves, empty ones not at all."""
    counts = (3, 1 << 13, 0, 5, 4096, 1 << 12)
    table = TableBuilder()
    for k, count in enumerate(counts):
        table.copy(4 * count, (2 + len(counts) + k, 0), (2 + k, 0))
    table.end()
    slots = tuple(vector(f"x{k}", count) for k, count in enumerate(counts))
    executable = Executable(image(CHIP, table, params=slots, results=slots))
    for start in range(3):
        given = [np.arange(start, start + count, dtype=np.float32) for count in counts]
        fake.calls.clear()
        for made, expected in zip(executable.run(given), given, strict=True):
            np.testing.assert_array_equal(made, expected)
    assert fake.count("cuMemcpyAsync") == 4 and fake.count("cuStreamSynchronize") == 1


def test_a_known_number_of_rounds_is_unrolled(fake: FakeCuda) -> None:
    table = TableBuilder()
    table.copy(NBYTES, (3, 0), (2, 0))
    table.set(4, (ABSENT, 30))
    top = table.position
    table.call(INCREMENT, [(3, 0), (3, 0)], **WHOLE)
    table.loop(4, top)
    table.end()
    executable = Executable(image(CHIP, table, registers=1))
    for _ in range(2):
        np.testing.assert_array_equal(executable(X), X + 30)
    fake.calls.clear()
    np.testing.assert_array_equal(executable(X), X + 30)
    assert fake.count("cuGraphLaunch") == 1 and fake.count("cuLaunchKernel") == 0


def test_rounds_that_depend_on_data_are_graphs(fake: FakeCuda) -> None:
    """A body whose registers change places is two of them, and so is what tests."""
    table = TableBuilder()
    table.set(4, (2, 0))
    table.set(5, (ARENA, 0))
    table.set(6, (ARENA, 64))
    top = table.call(LESS, [(4, 0), (ARENA, 128)], params=0, **ALONE)
    leave = table.branch((ARENA, 128))
    table.call(INCREMENT, [(4, 0), (5, 0)], **WHOLE)
    table.call(INCREMENT, [(5, 0), (5, 0)], **WHOLE)
    table.rotate(4, 5, 6)
    table.jump(top)
    table.patch(leave, table.position)
    table.copy(NBYTES, (3, 0), (4, 0))
    table.end()
    executable = Executable(image(CHIP, table, [21], registers=3))
    for start in range(4):
        fake.calls.clear()
        np.testing.assert_array_equal(
            executable(X - start), X - start + 20 + 2 * ((start + 1) // 2)
        )
    trips = 10 + 2
    assert fake.count("cuLaunchKernel") <= 3 and fake.count("cuGraphLaunch") >= trips - 1
    assert fake.count("cuStreamSynchronize") == trips + 2


def test_long_loops_are_walked(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "planned_steps", 8)
    table = TableBuilder()
    table.copy(NBYTES, (3, 0), (2, 0))
    table.set(4, (ABSENT, 20))
    top = table.position
    table.call(INCREMENT, [(3, 0), (3, 0)], **WHOLE)
    table.loop(4, top)
    table.end()
    executable = Executable(image(CHIP, table, registers=1))
    for _ in range(3):
        np.testing.assert_array_equal(executable(X), X + 20)
    assert fake.count("cuGraphLaunch") == 0


def test_variables_stay_on_the_device(fake: FakeCuda, home: Any) -> None:
    slot = counter(home)
    table = TableBuilder()
    table.call(INCREMENT, [(4, 0), (4, 0)], **WHOLE)
    table.copy(NBYTES, (3, 0), (4, 0))
    table.end()
    executable = Executable(image(CHIP, table, variables=(slot,)))
    executable(X)
    executable(X)
    fake.calls.clear()
    np.testing.assert_array_equal(executable(X), np.full(COUNT, 3))
    assert fake.count("cuMemcpyAsync") == 2  # the argument; the result and the status


@pytest.mark.usefixtures("frozen")
def test_memory_goes_with_the_executable(fake: FakeCuda, home: Any) -> None:
    executable = twice(CHIP, variables=(counter(home),))
    executable(X)
    clusters = [pair(CHIP, ("gpu:0", "gpu:1"), rounds=2), pair(CHIP, ("cpu:0", "gpu:0"))]
    for cluster in clusters:
        cluster(X)
    assert fake.device_memory and fake.pinned_memory
    del executable, cluster, clusters
    home.reset()
    garbage.collect()
    assert not fake.device_memory and not fake.pinned_memory


def test_calls_fit_the_installed_bindings(fake: FakeCuda, home: Any) -> None:
    """Without a driver a real function converts its arguments, then says what is absent."""
    real = pytest.importorskip("cuda.bindings.driver")
    try:
        real.cuInit(0)
    except RuntimeError:
        pass
    else:
        pytest.skip("there is a driver, which would get made-up handles")
    for case in CASES:
        case(CHIP)
    kinds = {
        "stream": real.CUstream,
        "hStream": real.CUstream,
        "hEvent": real.CUevent,
        "hStart": real.CUevent,
        "hEnd": real.CUevent,
        "event": real.CUevent,
        "ctx": real.CUcontext,
        "peerContext": real.CUcontext,
        "peerDev": real.CUdevice,
        "hmod": real.CUmodule,
        "f": real.CUfunction,
        "hGraph": real.CUgraph,
        "hGraphExec": real.CUgraphExec,
        "dev": real.CUdevice,
        "attrib": lambda _: real.CUdevice_attribute(75),
        "mode": real.CUstreamCaptureMode,
        "fn": real.CUhostFn,
    }
    seen = set()
    for name, arguments in fake.calls:
        if name in seen:
            continue
        seen.add(name)
        function = getattr(real, name)
        head = function.__doc__.split("\n")[0]
        listed = head[head.index("(") + 1 : -1].split(",")
        formal = [p.split(":")[0].split()[-1] for p in listed if p]
        assert len(formal) == len(arguments), head
        given = [
            kinds[p](a if isinstance(a, int) else 0) if p in kinds else a
            for p, a in zip(formal, arguments, strict=True)
        ]
        with pytest.raises(RuntimeError, match="driver"):
            function(*given)
    assert {"cuLaunchKernel", "cuMemcpyAsync", "cuGraphLaunch", "cuLaunchHostFunc"} <= seen


# ------------------------------------------------------------------------------ what goes wrong


def test_without_a_driver() -> None:
    real = pytest.importorskip("cuda.bindings.driver")
    try:
        real.cuInit(0)
    except RuntimeError:
        with pytest.raises(GraphError, match="no NVIDIA driver") as found:
            twice(CHIP)
        assert "NUMBA_ENABLE_CUDASIM" in str(found.value)
    else:
        pytest.skip("there is a driver")


def test_the_chip_that_is_present(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    driver.first_chip.cache_clear()
    assert devices.present_chip() == "sm_90"
    monkeypatch.setattr(fake.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", 75)
    driver.first_chip.cache_clear()
    assert devices.present_chip() == "sm_99"
    fake.failing["cuDeviceGet"] = Status.CUDA_ERROR_INVALID_VALUE
    driver.first_chip.cache_clear()
    assert driver.first_chip() is None and devices.present_chip() == "sm_90"
    driver.first_chip.cache_clear()


def test_there_is_no_such_gpu(fake: FakeCuda) -> None:
    with pytest.raises(GraphError, match=r"no device gpu:2\n.*has 2 GPUs") as found:
        twice(CHIP, device="gpu:2")
    assert len(str(found.value).split("\n")) == 2


def test_ptx_serves_chips_that_the_code_is_not_for(fake: FakeCuda) -> None:
    objects = ((b"cubin sm_75", tuple(KERNELS)),)
    executable = twice(CHIP, objects=objects, portable=(b"ptx",))
    np.testing.assert_array_equal(executable(X), 2 * X + 1)
    with pytest.raises(GraphError, match=r"not made for gpu:0 .*sm_90"):
        twice(CHIP, objects=objects)
    with pytest.raises(GraphError, match=r"driver of gpu:0 .* is too old .* CUDA 12\.8"):
        twice(CHIP, objects=objects, portable=(b"ptx new",))


def test_kernels_get_the_shared_memory_that_they_ask_for(fake: FakeCuda) -> None:
    many = 1 << 16
    executable = twice(CHIP, shared=(64, many, 0, 0, 0))  # the second one: more than there is
    check(executable, 2 * X + 1)
    assert set(fake.shared.values()) == {64, MOST_SHARED}


def test_a_full_device_names_the_largest_values(fake: FakeCuda) -> None:
    fake.capacity = 1 << 20
    largest = ((1 << 29, Origin("%9 = matmul(%1, %2) : f32[8192,16384]", "model.py", 31)),)
    executable = twice(CHIP, arena_bytes=1 << 30, largest=largest)
    with pytest.raises(LimitError) as found:
        executable(X)
    text = str(found.value)
    assert "no memory on gpu:0 (Fake, sm_90) for 1.0 GiB" in text
    assert "512.0 MiB  %9 = matmul(%1, %2) : f32[8192,16384]  (model.py:31)" in text
    assert found.value.location == ("model.py", 31)
    fake.capacity = 1 << 40
    with pytest.raises((LimitError, MemoryError)):
        twice(CHIP, arena_bytes=1 << 46)(X)


def test_images_that_cannot_be(fake: FakeCuda) -> None:
    for change, reason in (
        ({"arity": (0,)}, "1 counts of words for 5 kernels"),
        ({"arity": (0, 0, 1, 1, 5)}, "no words"),
        ({"shared": (0, 8)}, "5 kernels cannot share"),
        ({"shared": (0, 0, 0, 0, -8)}, "5 kernels cannot share"),
        ({"portable": (b"", b"")}, "2 PTX texts for 1 objects"),
        ({"objects": ()}, "no object code defines kernel"),
    ):
        table = TableBuilder()
        table.call(STORE, [(3, 0)], **ALONE)
        table.end()

        with pytest.raises(GraphError, match=reason):
            replace(image(CHIP, table), **change).check()
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (3, 0)], units=1, grain=2048)
    table.end()
    with pytest.raises(GraphError, match="2048 threads"):
        image(CHIP, table, params=(vector("x"),)).check()
