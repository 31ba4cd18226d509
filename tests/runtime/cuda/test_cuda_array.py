"""Results that stay on their device: `gc.Array`, over a stand-in for NVIDIA's driver API."""

from __future__ import annotations

import copy
import gc as garbage
import pickle
from typing import Any

import numpy as np
import pytest
from fake_cuda import CHIP, FakeCuda, fake
from gpu_programs import DOUBLE, INCREMENT, NBYTES, WHOLE, X, image, twice, vector

import graphc as gc
from graphc.errors import FeedError, GraphError, LimitError
from graphc.runtime.call.array import Array
from graphc.runtime.call.dlpack import _exported, capsule
from graphc.runtime.call.execute import Executable
from graphc.runtime.cuda.interop import adopted
from graphc.runtime.load.table import TableBuilder

__all__ = ["fake"]


def copies(fake: FakeCuda) -> int:
    """Copies between the device and the host."""
    return fake.count("cuMemcpyAsync")


def test_a_result_is_the_next_argument(fake: FakeCuda) -> None:
    executable = twice(CHIP)
    (y,) = executable.run_resident([X])
    assert isinstance(y, Array) and (y.shape, y.dtype, y.nbytes) == ((4,), np.float32, NBYTES)
    expected = 2 * X + 1
    for _ in range(6):
        fake.calls.clear()
        (y,) = executable.run_resident([y])
        assert copies(fake) == 0
        expected = 2 * expected + 1
    np.testing.assert_array_equal(np.asarray(y), expected)
    fake.calls.clear()
    assert y[1] == expected[1] and float(y[0]) == expected[0] and list(y) == list(expected)
    assert not fake.calls, "it is fetched once"
    np.testing.assert_array_equal(executable(y), 2 * expected + 1)


def test_what_stays_has_no_memory_in_frames(fake: FakeCuda) -> None:
    count = 1 << 18
    table = TableBuilder()
    table.call(INCREMENT, [(2, 0), (3, 0)], units=count // 2, grain=2)
    table.end()
    slots = {"params": (vector("x", count),), "results": (vector("y", count),)}
    executable = Executable(image(CHIP, table, **slots))
    x = gc.to_device(np.zeros(count, np.float32), "gpu:0")
    (y,) = executable.run_resident([x])
    assert sum(block.nbytes for block in fake.device_memory.values()) < 2 * x.nbytes + (1 << 16)
    np.testing.assert_array_equal(executable(y), np.full(count, 2))  # the result has some now
    np.testing.assert_array_equal(executable(y.numpy()), np.full(count, 2))
    (z,) = executable.run_resident([y])
    assert z[-1] == 2 and y[-1] == 1


def test_a_chain_of_steps_has_few_plans(fake: FakeCuda) -> None:
    executable = twice(CHIP)
    (y,) = executable.run_resident([X])
    for _ in range(20):
        (y,) = executable.run_resident([y])
    assert fake.count("cuGraphInstantiate") <= 4


def test_arrays_of_elsewhere_are_copied(fake: FakeCuda) -> None:
    first, second = twice(CHIP), twice(CHIP, device="gpu:1")
    (y,) = first.run_resident([X])
    (z,) = second.run_resident([y])
    np.testing.assert_array_equal(np.asarray(z), 2 * (2 * X + 1) + 1)
    assert y.device == "gpu:0 (Fake, sm_90)" and z.device == "gpu:1 (Fake, sm_90)"
    with pytest.raises(FeedError, match="f32"):
        first.run([Array(vector("x", 3), np.zeros(3, np.float32))])
    host = Array(vector("x"), X.copy())
    np.testing.assert_array_equal(first(host), 2 * X + 1)
    assert host.device == "cpu" and not host.numpy().flags.writeable


def donating() -> Executable:
    table = TableBuilder()
    table.call(DOUBLE, [(2, 0), (2, 0)], **WHOLE)
    table.call(INCREMENT, [(3, 0), (5, 0)], **WHOLE)
    table.end()
    pair = (vector("x"), vector("z"))
    return Executable(image(CHIP, table, donated=(0, -1), params=pair, results=pair))


def test_donated_arrays(fake: FakeCuda) -> None:
    (x,) = twice(CHIP).run_resident([X])
    before = x.numpy().copy()
    y, z = donating().run_resident([x, X])
    assert y is x
    np.testing.assert_array_equal(y.numpy(), 2 * before)
    np.testing.assert_array_equal(z.numpy(), X + 1)
    y, z = donating().run_resident([x, x])  # both: the donated one is a copy
    assert y is not x
    np.testing.assert_array_equal(z.numpy(), 2 * before + 1)
    np.testing.assert_array_equal(y.numpy(), 4 * before)
    np.testing.assert_array_equal(x.numpy(), 2 * before)
    plain, _ = donating().run([x, X])
    assert isinstance(plain, np.ndarray)
    np.testing.assert_array_equal(plain, 4 * before)


def test_other_libraries_take_it(fake: FakeCuda) -> None:
    (y,) = twice(CHIP).run_resident([X])
    assert y.__dlpack_device__() == (2, 0)
    found = y.__cuda_array_interface__
    assert (found["shape"], found["typestr"], found["data"]) == ((4,), "<f4", (y.address, True))
    assert "dltensor" in repr(y.__dlpack__())
    np.testing.assert_array_equal(np.from_dlpack(y, device="cpu"), 2 * X + 1)
    with pytest.raises(BufferError, match="cannot be exported"):
        y.__dlpack__(dl_device=(2, 7))
    host = Array(vector("x"), X)
    np.testing.assert_array_equal(np.from_dlpack(host), X)
    assert not hasattr(host, "__cuda_array_interface__")


@pytest.mark.parametrize("kind", ["f4", "i8", "u1", "?", "c16", "f2"])
@pytest.mark.usefixtures("frozen")
def test_capsules(kind: str) -> None:
    """What NumPy takes from one is the memory itself, which lives as long as somebody has it."""

    class Exporter:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            address = memory.__array_interface__["data"][0]
            return capsule(address, memory.dtype, memory.shape, (1, 0), owner)

    class Owner:
        pass

    memory, owner = np.arange(6).astype(kind).reshape(2, 3), Owner()
    before = len(_exported)
    taken = np.from_dlpack(Exporter())
    np.testing.assert_array_equal(taken, memory)
    assert np.shares_memory(taken, memory) and len(_exported) == before + 1
    del taken
    garbage.collect()
    assert len(_exported) == before
    unused = Exporter().__dlpack__()
    assert len(_exported) == before + 1
    del unused
    assert len(_exported) == before


def test_memory_is_used_again_and_freed(fake: FakeCuda) -> None:
    executable = twice(CHIP)
    held = [executable.run_resident([X])[0] for _ in range(5)]
    count = len(fake.device_memory)
    del held
    held = [executable.run_resident([X])[0] for _ in range(5)]
    assert len(fake.device_memory) == count
    del held
    fake.capacity = sum(block.nbytes for block in fake.device_memory.values()) + 300
    again = twice(CHIP)  # finds no memory before that of free blocks is given back
    np.testing.assert_array_equal(again(X), 2 * X + 1)


@pytest.mark.parametrize("devices", [["cpu:0"], ["cpu:0", "cpu:1"]])
def test_on_the_cpu(devices: list[str]) -> None:
    @gc.compile(devices=devices)
    def step(x: Any, scale: Any) -> Any:
        return {"y": x * scale, "sum": x.sum()}

    made = step.resident(X, 2.0)
    assert isinstance(made["y"], gc.Array) and float(made["sum"]) == X.sum()
    made = step.resident(made["y"], made["sum"])
    np.testing.assert_array_equal(np.asarray(made["y"]), 2 * X * X.sum())
    plain = step(made["y"], 1.0)
    assert isinstance(plain["y"], np.ndarray)


class Foreign:
    """An array of another library on a GPU."""

    def __init__(
        self,
        fake: FakeCuda,
        value: np.ndarray,
        *,
        strides: Any = None,
        number: int = 0,
        skipped: int = 0,
    ):
        fake.cuCtxSetCurrent(f"context {number}")
        _, start = fake.cuMemAlloc(skipped + value.nbytes)
        fake.device_memory[start][skipped:].view(value.dtype)[:] = value.ravel()
        self.address = start + skipped
        self.number = number
        self.__cuda_array_interface__ = {
            "shape": value.shape,
            "typestr": value.dtype.str,
            "data": (self.address, False),
            "strides": strides,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number


@pytest.mark.parametrize("number", [0, 1])
def test_arrays_of_other_libraries(fake: FakeCuda, number: int) -> None:
    step = gc.compile(lambda x: x * 2, devices=["cpu:0"])
    given = Foreign(fake, X, number=number)
    np.testing.assert_array_equal(step(given), 2 * X)  # fetched where the CPU computes
    executable = twice(CHIP)
    executable(X)
    array = adopted(given)
    fake.calls.clear()
    np.testing.assert_array_equal(executable(array), 2 * X + 1)
    assert copies(fake) == 1 + number  # the result; it comes from the other GPU
    with pytest.raises(FeedError, match=r"strides \(8,\)"):
        adopted(Foreign(fake, X, strides=(8,)))
    assert adopted(Foreign(fake, X, strides=(4,))).shape == (4,)


@pytest.mark.parametrize("skipped", [4, 8, 16])
def test_slices_of_other_libraries(fake: FakeCuda, skipped: int) -> None:
    """A kernel may load 16 bytes at once, which have to begin at a multiple of 16."""
    array = adopted(Foreign(fake, X, skipped=skipped))
    assert array.address % 16 == 0
    np.testing.assert_array_equal(array.numpy(), X)
    np.testing.assert_array_equal(twice(CHIP)(array), 2 * X + 1)
    if skipped % 16:
        foreign, fake.capacity = Foreign(fake, np.zeros(1 << 12), skipped=skipped), 0
        with pytest.raises(LimitError, match="no memory on gpu:0"):
            adopted(foreign)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.usefixtures("frozen")
def test_copies_and_pickles(fake: FakeCuda, there: bool) -> None:
    """A copy lies in memory of its own; a pickle holds the values, for any process."""
    array = gc.to_device(X, "gpu:0" if there else "cpu:0")
    packed, near, far = pickle.dumps(array), copy.copy(array), copy.deepcopy({"x": array})["x"]
    assert not far.overlaps(array) and far.device == near.device == array.device
    del array
    garbage.collect()
    gc.to_device(7 * X, "gpu:0")  # takes the memory that is free again
    for made in (near, far, pickle.loads(packed)):
        np.testing.assert_array_equal(made.numpy(), X)
    assert pickle.loads(packed).device == "cpu"
    assert len(packed) < 500


def test_arguments_are_put_on_a_device(fake: FakeCuda) -> None:
    weights = {"w": X[::-1], "names": ("a", None, 3), "b": [np.int32(7), np.zeros((0, 2))]}
    there = gc.to_device(weights, "gpu:1")
    assert there["names"] == ("a", None, 3) and there["b"][0].shape == ()
    assert there["w"].device == "gpu:1 (Fake, sm_90)" and there["b"][1].shape == (0, 2)
    np.testing.assert_array_equal(there["w"].numpy(), X[::-1])
    executable = twice(CHIP, device="gpu:1")
    executable(X)
    fake.calls.clear()
    np.testing.assert_array_equal(executable(there["w"]), 2 * X[::-1] + 1)
    assert copies(fake) == 1  # the result
    host = gc.to_device(X, "cpu:3")
    assert isinstance(host, Array) and host.device == "cpu" and not np.shares_memory(host, X)
    with pytest.raises(GraphError, match="no device gpu:5"):
        gc.to_device(X, "gpu:5")
    with pytest.raises(LimitError, match="no memory on gpu:0"):
        gc.to_device(np.zeros(1 << 24, np.uint8), "gpu:0")
