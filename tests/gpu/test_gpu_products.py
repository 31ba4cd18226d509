"""Products of matrices by cuBLASLt: beside the kernels that they stand for, and beside the CPU.

In the simulator NumPy is the library: what the descriptions say is compared with what the kernels
do. On a GPU the library is the real one, where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_harness import GPU, SIMULATED, need_gpu, opened, rng, sized, some
from product_reference import compute

import graphc as gc
from benchmarks import gpu as benchmark
from graphc.errors import GraphError
from graphc.runtime.cuda import gemm_choice as products
from graphc.runtime.cuda.gemm import Gemm
from graphc.runtime.cuda.interface import Streamed
from graphc.runtime.observe.profile import profile
from graphc.runtime.tuning import tuned

need_gpu()
pytestmark = pytest.mark.gpu

M, N, K = sized((9, 8, 12), (300, 512, 768))
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}
F16, BF16, F32, F64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64


class Reference:
    """NumPy as the library of a simulated GPU."""

    version = "numpy"

    def plans(self, product: Gemm) -> Sequence[Any]:
        return [SimpleNamespace(product=product, workspace=0)]

    def prepare(self, plan: Any, addresses: Sequence[int], workspace: int, row: int) -> Streamed:
        return lambda stream: compute(plan.product, addresses)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    if SIMULATED:
        reference = Reference()
        monkeypatch.setattr(type(opened()), "multiplier", lambda _: reference)
    try:
        opened().multiplier()
    except GraphError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(products, "_decided", {})
    monkeypatch.setattr(tuned, "trial_work", 0)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(products.VARIABLE, "always")


def attention(q: Any, k: Any) -> Any:
    return (q @ k.transpose(0, 2, 1)) / np.asarray(8, q.dtype)


def wide(x: Any, w: Any) -> Any:
    return x.astype(np.float32) @ w.astype(np.float32)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "plain": (lambda x, w: x @ w, ((M, K), (K, N)), (F32, F64, F16, BF16)),
    "transposed": (lambda x, w: x.T @ w.T, ((K, M), (N, K)), (F32, BF16)),
    "a part": (lambda x, w: x[1:, 1:] @ w[1:, 2:], ((M, K), (K, N)), (F32, F16)),
    "batch": (attention, ((3, M, K), (3, N, K)), (F32, BF16)),
    "long sums": (lambda x, w: x @ w, ((3, 64 * K), (64 * K, 5)), (F32, BF16)),
    "bias": (lambda x, w, b: x @ w + b, ((M, K), (K, N), (N,)), (F32, F16, BF16)),
    "relu": (lambda x, w, b: np.maximum(x @ w + b, 0), ((M, K), (K, N), (N,)), (F32, BF16)),
    "gelu": (lambda x, w, b: gc.nn.gelu(x @ w + b, tanh=True), ((M, K), (K, N), (N,)), (F32, BF16)),
    "residual": (
        lambda x, w, r, b: r + x @ w + b,
        ((M, K), (K, N), (M, N), (N,)),
        (F32, F16, BF16),
    ),
    "wide": (wide, ((M, K), (K, N)), (F16, BF16)),
}
KINDS = [(name, kind) for name, (_, _, kinds) in CASES.items() for kind in kinds]
# What relu makes of NaN is for the library to say: where that is not NaN, kernels do the work.
PERHAPS = () if SIMULATED else ("relu",)


@pytest.mark.parametrize(("name", "kind"), some(KINDS, 12), ids=lambda x: getattr(x, "__name__", x))
def test_products(name: str, kind: Any) -> None:
    function, shapes, _ = CASES[name]
    arrays = [rng(k).uniform(-1, 1, shape).astype(kind) for k, shape in enumerate(shapes)]
    there = gc.compile(function, devices=GPU)
    wanted = gc.compile(function)(*arrays)
    for _ in range(3):
        found = there(*arrays)
        slack = TOLERANCES[np.dtype(kind).name] * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found.astype(F64), wanted.astype(F64), rtol=0, atol=slack)
    executable = there.executable(*arrays)
    (route,) = executable.part.products.routes.values()
    assert route.name == "cublasLt" or name in PERHAPS
    assert {event.kernel for event in profile(executable, arrays)} in (
        {route.name},
        set(executable.image.kernels),
    )


def test_what_is_measured_is_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(products.VARIABLE, "measure")
    x, w = rng(1).uniform(-1, 1, (M, K)).astype(F32), rng(2).uniform(-1, 1, (K, N)).astype(F32)
    routes = []
    for _ in range(3):
        there = gc.compile(lambda x, w: x @ w, devices=GPU)
        np.testing.assert_allclose(there(x, w), x @ w, rtol=1e-4, atol=1e-4)
        (route,) = there.executable(x, w).part.products.routes.values()
        assert route.kernel is not None and route.kernel > 0
        assert route.library is not None and route.library > 0
        assert (route.algorithm >= 0) == (route.library < route.kernel)
        routes.append(route)
        monkeypatch.setattr(products, "_decided", {})
    assert routes[0] == routes[1] == routes[2]


def test_benchmarks_tell_who_made_them() -> None:
    x, w = np.ones((M, K), F32), np.ones((K, N), F32)
    there = gc.compile(lambda x, w: np.tanh(x @ w) @ w.T, devices=GPU)
    there.resident(x, w)
    executable = there.executable(x, w)
    assert sum(benchmark.routes(executable).values()) == len(executable.image.products) > 0
    assert benchmark.routes(executable).keys() == {"cublasLt"}


@pytest.mark.parametrize(
    "product",
    [lambda x, w: x @ w + 1, lambda x, w: x @ w.T + 1, lambda x, w: x.T @ w + 1],
    ids=["nn", "nt", "tn"],
)
def test_tf32_is_near(product: Callable[..., Any]) -> None:
    size = sized(12, 500)
    x, w = (rng(k).uniform(-1, 1, (size, size)).astype(F32) for k in (1, 2))
    wanted = product(x.astype(F64), w.astype(F64))
    for function, most in ((product, 4e-3), (lambda x, w: product(gc.exact(x), w), 1e-5)):
        found = gc.compile(function, devices=GPU, precision="tf32")(x, w)
        assert np.abs(found - wanted).max() < most * np.abs(wanted).max()
