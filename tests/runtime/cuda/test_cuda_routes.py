"""Who makes products of matrices on a GPU: the choice, its launches and its errors, over stand-ins
for the driver and for cuBLASLt."""

from __future__ import annotations

import gc as garbage
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cublas import PLANS, Gpu, gpu
from product_reference import image_of

import graphc as gc
from graphc.errors import GraphError, RunError
from graphc.runtime.call.execute import Executable
from graphc.runtime.cuda.gemm_choice import FILE
from graphc.runtime.files import gcx_files, gcx_writer
from graphc.runtime.observe.profile import profile
from graphc.runtime.tuning import tuned

__all__ = ["gpu"]


def f32(*shape: int) -> Any:
    return gc.spec(shape, "f32")


SPECS = f32(32, 64), f32(64, 48), f32(48), f32(48, 16)
RANDOM = np.random.default_rng(3)
ARRAYS = [RANDOM.uniform(-1, 1, spec.shape).astype(np.float32) for spec in SPECS]


def layers(x: Any, w: Any, b: Any, v: Any) -> Any:
    return np.maximum(x @ w + b, 0) @ v


MODEL = "Fake sm_90"
WANTED = layers(*ARRAYS)


def program(gpu: Gpu) -> Executable:
    return Executable(gpu.has(image_of(layers, *SPECS)))


def names(executable: Executable) -> list[str]:
    return [event.kernel for event in profile(executable, ARRAYS)]


def check(executable: Executable, arrays: Any = ARRAYS, wanted: Any = WANTED) -> None:
    for _ in range(4):
        np.testing.assert_allclose(executable(*arrays), wanted, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------ the choice


def test_always(gpu: Gpu) -> None:
    gpu.mode("always")
    executable = program(gpu)
    gpu.cuda.calls.clear()
    gpu.launched.clear()
    check(executable)
    assert gpu.cuda.count("cuLaunchKernel") == 0 and not gpu.launched
    assert gpu.cuda.count("cuGraphInstantiate") == 1 and gpu.cuda.count("cuGraphLaunch") == 3
    assert names(executable) == ["cublasLt", "cublasLt"]


def test_never(gpu: Gpu) -> None:
    gpu.mode("never")
    executable = program(gpu)
    check(executable)
    assert not gpu.libraries and not executable.part.products.routes
    assert names(executable) == list(executable.image.kernels)


@pytest.mark.parametrize("fastest", range(PLANS))
def test_the_fastest_way_is_taken(gpu: Gpu, fastest: int) -> None:
    gpu.library.seconds = [0.0 if k == fastest else 0.01 for k in range(PLANS)]
    gpu.kernel_seconds = 0.01
    executable = program(gpu)
    routes = list(executable.part.products.routes.values())
    assert [route.algorithm for route in routes] == [fastest, fastest]
    assert all(route.library < route.kernel for route in routes)
    check(executable)
    assert names(executable) == ["cublasLt", "cublasLt"]


def test_a_kernel_that_is_faster_stays(gpu: Gpu) -> None:
    gpu.library.seconds = [0.01] * PLANS
    executable = program(gpu)
    routes = list(executable.part.products.routes.values())
    assert [route.name for route in routes] == ["kernel", "kernel"]
    assert all(route.kernel < route.library for route in routes)
    check(executable)
    assert names(executable) == list(executable.image.kernels)


def test_small_products_are_not_tried(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "trial_work", 32 * 64 * 48)
    gpu.kernel_seconds = 0.01
    assert names(program(gpu))[0] == "cublasLt"
    monkeypatch.setattr(tuned, "trial_work", 32 * 64 * 48 + 1)
    gpu.forget()
    assert "cublasLt" not in names(program(gpu))


def test_what_takes_long_is_tried_once(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.library.seconds = [0.02] * PLANS
    gpu.kernel_seconds = 0.02
    monkeypatch.setattr(tuned, "trial_budget", 0.01)
    executable = program(gpu)
    # For its result, without a NaN and with one where there is an activation, and for its time.
    assert gpu.library.counts["make"] == (3 + 2) * PLANS
    routes = executable.part.products.routes.values()
    assert all(0.02 <= s < 0.2 for route in routes for s in (route.kernel, route.library))


def test_without_the_library(gpu: Gpu) -> None:
    gpu.installed = False
    executable = program(gpu)
    check(executable)
    gpu.mode("always")
    with pytest.raises(GraphError, match="cuBLASLt cannot be used"):
        program(gpu)
    gpu.mode("sometimes")
    with pytest.raises(GraphError, match="GRAPHC_CUBLAS must be measure, never or always"):
        program(gpu)


def transpose(target: np.ndarray) -> None:
    target[...] = target[:, ::-1].copy()


def nothing(target: np.ndarray) -> None:
    target[...] = 0


def tf32(target: np.ndarray) -> None:
    bits = target.view(np.uint32)
    bits &= np.uint32(0xFFFFE000)


@pytest.mark.parametrize("wrong", [transpose, nothing, tf32])
@pytest.mark.parametrize("mode", ["measure", "always"])
def test_a_library_that_computes_something_else_is_not_used(
    gpu: Gpu, mode: str, wrong: Any
) -> None:
    gpu.mode(mode)
    gpu.kernel_seconds = 0.02
    gpu.library.wrong = {0: wrong, 2: wrong}
    executable = program(gpu)
    assert [r.algorithm for r in executable.part.products.routes.values()] == [1, 1]
    check(executable)
    gpu.forget()
    (Path(gpu.folder) / FILE).unlink(missing_ok=True)
    gpu.library.wrong = dict.fromkeys(range(PLANS), wrong)
    executable = program(gpu)
    assert [r.name for r in executable.part.products.routes.values()] == ["kernel", "kernel"]
    check(executable)


def test_activations_have_to_let_nan_pass(gpu: Gpu) -> None:
    def bound(target: np.ndarray) -> None:
        target[np.isnan(target)] = 0

    gpu.mode("always")
    gpu.library.wrong = dict.fromkeys(range(PLANS), bound)
    routes = program(gpu).part.products.routes.values()
    assert [route.name for route in routes] == ["kernel", "cublasLt"]


@pytest.mark.parametrize("function", [lambda x, w: x[0] @ w, lambda x, w: np.maximum(x[0] @ w, 0)])
def test_one_column_is_compared_too(gpu: Gpu, function: Any) -> None:
    gpu.mode("always")
    gpu.library.wrong = dict.fromkeys(range(PLANS), transpose)
    part = Executable(gpu.has(image_of(function, *SPECS[:2]))).part
    assert [route.name for route in part.products.routes.values()] == ["kernel"]


def test_the_last_of_a_large_batch_is_compared(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def last(target: np.ndarray) -> None:
        target[-1, -1, -1] = 0

    monkeypatch.setattr(tuned, "trial_compared", 64)
    gpu.mode("always")
    image = gpu.has(image_of(lambda x, w: x @ w, f32(3, 8, 64), f32(3, 64, 16)))
    gpu.library.wrong = dict.fromkeys(range(1, PLANS), last)
    assert Executable(image).part.products.routes.popitem()[1].algorithm == 0
    gpu.forget()
    gpu.library.wrong = dict.fromkeys(range(PLANS), last)
    assert Executable(image).part.products.routes.popitem()[1].name == "kernel"


# ------------------------------------------------------------------------------------ what stays


def test_what_was_measured_stays(gpu: Gpu) -> None:
    gpu.kernel_seconds = 0.01
    first = program(gpu)
    made = gpu.library.counts["make"]
    gpu.kernel_seconds = 0.0
    gpu.library.seconds = [0.01] * PLANS
    again = program(gpu)
    assert again.part.products.routes == first.part.products.routes
    gpu.forget()  # another process finds it in the file
    again = program(gpu)
    assert again.part.products.routes == first.part.products.routes
    assert gpu.library.counts["make"] == made
    gpu.forget()
    gpu.library.version = "2"
    assert names(program(gpu)) == list(first.image.kernels)
    assert gpu.library.counts["make"] > made


def test_kernels_that_are_faster_need_no_library_later(gpu: Gpu) -> None:
    gpu.library.seconds = [0.01] * PLANS
    check(program(gpu))
    gpu.forget()
    gpu.libraries.clear()
    check(program(gpu))
    assert not gpu.libraries


@pytest.mark.parametrize(
    "change",
    [
        lambda found: {},
        lambda found: [],
        lambda found: {**found, "format": 0},
        lambda found: {**found, MODEL: {key: {} for key in found[MODEL]}},
        lambda found: {**found, MODEL: {k: v | {"algorithm": ""} for k, v in found[MODEL].items()}},
        lambda found: {**found, MODEL: {k: v | {"algorithm": 99} for k, v in found[MODEL].items()}},
        None,
    ],
)
def test_damaged_files_are_measured_anew(gpu: Gpu, change: Any) -> None:
    gpu.kernel_seconds = 0.01
    program(gpu)
    made = gpu.library.counts["make"]
    path = Path(gpu.folder) / FILE
    found = json.loads(path.read_text())
    path.write_text(json.dumps(change(found)) if change else "{")
    gpu.forget()
    check(program(gpu))
    assert gpu.library.counts["make"] > made
    assert json.loads(path.read_text()).keys() == found.keys()


def test_threads_agree(gpu: Gpu) -> None:
    gpu.kernel_seconds = 0.005
    image = gpu.has(image_of(layers, *SPECS))
    made: list[Executable] = []

    def load() -> None:
        made.append(Executable(image))
        check(made[-1])

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    routes = [each.part.products.routes for each in made]
    assert len(routes) == 4 and all(route == routes[0] for route in routes)


# ------------------------------------------------------------------------------------ runs


def test_errors_name_the_line(gpu: Gpu) -> None:
    gpu.mode("always")
    executable, other = program(gpu), program(gpu)
    check(executable)
    gpu.library.failing = True
    for run in (lambda: profile(executable, ARRAYS), lambda: other(*ARRAYS)):
        with pytest.raises(RunError, match="CUBLAS_STATUS_EXECUTION_FAILED") as caught:
            run()
        assert caught.value.location is not None
        assert caught.value.location[0].endswith("test_cuda_routes.py")
        assert "f32[32,48] of matmul" in str(caught.value)
    gpu.library.failing = False
    check(executable)
    check(other)


def test_sums_of_two_launches(gpu: Gpu) -> None:
    image = gpu.has(image_of(lambda x, w: x @ w, f32(7, 4096), f32(4096, 48)))
    ((_, product),) = image.products.items()
    assert product.calls == 2
    arrays = [RANDOM.uniform(-1, 1, s).astype(np.float32) for s in ((7, 4096), (4096, 48))]
    for mode in ("always", "never"):
        gpu.mode(mode)
        gpu.launched.clear()
        executable = Executable(image)
        gpu.launched.clear()
        for _ in range(3):
            np.testing.assert_allclose(executable(*arrays), arrays[0] @ arrays[1], atol=1e-3)
        assert sum(gpu.launched.values()) == (0 if mode == "always" else 6)


def test_loops(gpu: Gpu) -> None:
    def power(x: Any, w: Any) -> Any:
        return gc.fori(0, 5, lambda _, y: y @ w, x)

    gpu.mode("always")
    x, w = (RANDOM.uniform(-0.3, 0.3, s).astype(np.float32) for s in ((8, 32), (32, 32)))
    executable = Executable(gpu.has(image_of(power, f32(8, 32), f32(32, 32))))
    check(executable, [x, w], x @ np.linalg.matrix_power(w, 5))
    assert not gpu.launched.keys() - set(executable.image.kernels)
    assert names_of(executable, [x, w]) == ["cublasLt"]


def names_of(executable: Executable, arrays: Any) -> list[str]:
    return sorted({event.kernel for event in profile(executable, arrays)} - {"copy"})


def test_saved_programs(gpu: Gpu, tmp_path: Path) -> None:
    gpu.mode("always")
    path = tmp_path / "f.gcx"
    gcx_writer.save(gpu.has(image_of(layers, *SPECS)), path)
    executable = gcx_files.load(path)
    check(executable)
    assert names(executable) == ["cublasLt", "cublasLt"]


def test_results_in_the_memory_of_what_is_added(gpu: Gpu) -> None:
    gpu.mode("always")
    specs = f32(32, 64), f32(64, 48), f32(32, 48)
    arrays = [RANDOM.uniform(-1, 1, s.shape).astype(np.float32) for s in specs]
    image = gpu.has(image_of(lambda x, w, r: r + x @ w, *specs, donate=("r",)))
    assert image.donated == (2,)
    executable = Executable(image)
    wanted = arrays[2] + arrays[0] @ arrays[1]
    for _ in range(3):
        given = [a.copy() for a in arrays]
        np.testing.assert_allclose(executable(*given), wanted, atol=1e-4)
    assert not any(gpu.launched[name] > 1 for name in image.kernels), "but for the trial"


def test_operands_that_lie_badly_are_left_to_kernels(gpu: Gpu) -> None:
    gpu.mode("always")
    executable = program(gpu)
    device = executable.part
    row, product = next(iter(executable.image.products.items()))
    space = device.memory.allocate(1 << 16)
    starts = [space, space + 8192, space + 8192 + 12288, space + 8192 + 12288 + 192]
    counts = gpu.library.counts
    for moved, kernels in ((None, 0), (0, 1), (1, 1), (2, 1), (3, 1)):
        addresses = [a + 4 * (k == moved) for k, a in enumerate(starts)]
        before = counts["prepare"]
        device.step(row, addresses, space, space)
        assert counts["prepare"] - before == 1 - kernels
    before = counts["prepare"]
    device.step(row, [*starts[:3], starts[1] + 64], space, space)
    assert counts["prepare"] == before, "the result overlaps a factor"
    assert product.bias is not None
    device.driver.free(space)


@pytest.mark.usefixtures("frozen")
def test_memory_is_given_back(gpu: Gpu) -> None:
    gpu.mode("always")
    program(gpu)(*ARRAYS)
    garbage.collect()
    before = len(gpu.cuda.device_memory)
    executable = program(gpu)
    check(executable)
    assert len(gpu.cuda.device_memory) > before
    del executable
    garbage.collect()
    assert len(gpu.cuda.device_memory) == before


def test_a_device_that_is_full_has_kernels(gpu: Gpu) -> None:
    image = gpu.has(image_of(layers, *SPECS))
    gpu.kernel_seconds = 0.01
    gpu.cuda.capacity = 10_000
    part = Executable(image).part
    assert {route.name for route in part.products.routes.values()} == {"kernel"}
    assert not (Path(gpu.folder) / FILE).exists()
