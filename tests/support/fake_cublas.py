"""Stands in for cuBLASLt beside `fake_cuda`: NumPy makes the products, when a stream gets there.

Kernels that products can stand for do the same; who did what is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from fake_cuda import KERNELS, FakeCuda
from product_reference import compute, matrices

from graphc.base.record import record
from graphc.errors import GraphError
from graphc.runtime.cuda import driver, drivers
from graphc.runtime.cuda import gemm_choice as products
from graphc.runtime.cuda.gemm import Gemm
from graphc.runtime.cuda.interface import DeviceError, Streamed
from graphc.runtime.load.program import Image
from graphc.runtime.load.table import CALL, operands_of, rows
from graphc.runtime.tuning import tuned

PLANS, WORKSPACE = 3, 256


@record(frozen=True)
class Plan:
    product: Gemm
    number: int
    workspace: int = WORKSPACE


class FakeCublas:
    """The library on one GPU. `seconds` are what each plan takes longer, `wrong` are plans that
    compute something else, `failing` makes every call fail."""

    def __init__(self, gpu: Any, cuda: FakeCuda) -> None:
        self.gpu, self.cuda = gpu, cuda
        self.version = "1"
        self.seconds = [0.0] * PLANS
        self.wrong: dict[int, Callable[[np.ndarray], None]] = {}
        self.failing = False
        self.counts: Counter[str] = Counter()

    def plans(self, product: Gemm) -> Sequence[Plan]:
        self.counts["plans"] += 1
        return [Plan(product, number) for number in range(PLANS)]

    def prepare(self, plan: Plan, addresses: Sequence[int], workspace: int, row: int) -> Streamed:
        self.counts["prepare"] += 1
        assert workspace
        return lambda stream: self.make(plan, list(addresses), row, stream)

    def make(self, plan: Plan, addresses: list[int], row: int, stream: int) -> None:
        self.counts["make"] += 1
        if self.failing:
            raise DeviceError("cuBLASLt refuses matmul: CUBLAS_STATUS_EXECUTION_FAILED", row=row)

        def work() -> None:
            self.cuda.take(self.seconds[plan.number])
            compute(plan.product, addresses)
            if plan.number in self.wrong:
                target, element, rows, columns = plan.product.matrices["target"]
                address = addresses[target.operand]
                made = matrices(plan.product, target, element, rows, columns, address)
                self.wrong[plan.number](made)

        self.gpu.streams[stream].put(work)


class Gpu:
    """A machine with such a GPU; what it has done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Any) -> None:
        self.monkeypatch, self.folder = monkeypatch, folder
        self.cuda = FakeCuda(dict(KERNELS))
        self.kernel_seconds = 0.0
        self.launched: Counter[str] = Counter()
        self.installed = True
        self.libraries: dict[Any, FakeCublas] = {}
        monkeypatch.setattr(driver, "api", lambda: self.cuda)
        monkeypatch.setattr(driver.Cuda, "multiplier", lambda gpu: self.multiplier_of(gpu))
        monkeypatch.setattr(drivers, "_opened", {})
        monkeypatch.setattr(tuned, "trial_work", 0)
        monkeypatch.setenv("GRAPHC_CACHE_DIR", str(folder))
        self.forget()

    def multiplier_of(self, gpu: Any) -> FakeCublas:
        if not self.installed:
            raise GraphError("cuBLASLt cannot be used", hint="install it")
        return self.libraries.setdefault(gpu, FakeCublas(gpu, self.cuda))

    @property
    def library(self) -> FakeCublas:
        return self.multiplier_of(drivers.open_driver("sm_90", "gpu:0"))

    def forget(self) -> None:
        """What this process has decided; files stay."""
        self.monkeypatch.setattr(products, "_decided", {})

    def mode(self, mode: str) -> None:
        self.monkeypatch.setenv(products.VARIABLE, mode)

    def has(self, image: Image) -> Image:
        """Kernels for the products of an image: the last one of each does all of it."""
        words = image.table.tolist()
        for row in rows(words):
            if words[row] == CALL:
                count = len(operands_of(words, row))
                product = image.products.get(row)
                name = image.kernels[words[row + 2]]
                self.cuda.kernels[name] = self.kernel(name, product, count)
        return image

    def kernel(self, name: str, product: Gemm | None, count: int) -> Any:
        """A function with as many arguments as the kernel has."""

        def run(*addresses: int) -> None:
            self.launched[name] += 1
            if product is not None:
                self.cuda.take(self.kernel_seconds)
                compute(product, addresses)

        names = ", ".join(f"a{k}" for k in range(count))
        text = f"lambda blocks, threads, {names}, status, row: run({names})"
        return eval(text, {"run": run})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Gpu:
    return Gpu(monkeypatch, tmp_path / "cache")
