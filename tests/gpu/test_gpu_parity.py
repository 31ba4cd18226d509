"""With parity=True a GPU computes the bits of a CPU, in the simulator at tiny sizes as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import parity_cases as cases
import pytest
from gpu_harness import GPU, SEED, crossed, need_gpu, rng, sized, some

import graphc as gc
from graphc.ir.op import OPS

need_gpu()
pytestmark = pytest.mark.gpu

VALUES = sized(24, 1 << 16)
SHAPES = sized(
    [(3, 5, 7), (2, 3, 129), (1, 2, 300), (7, 20, 2), (5, 1, 64)],
    [(64, 128, 257), (3, 5, 100_000), (4096, 31, 7), (2, 3, 129), (128, 1, 4096)],
)
LONG = sized([(9, 500), (1, 8200)], [(9, 5000), (2048, 2048), (3, 1_000_003)])
ROWS = sized([(3, 10), (2, 257), (1, 600)], [(4096, 1024), (999, 1000), (7, 70_001)])
PRODUCTS = sized(
    [(3, 7, 5), (1, 16, 33), (5, 16, 1), (4, 600, 3), (16, 32, 16), (3, 1, 4)],
    [(512, 512, 512), (1, 784, 4096), (333, 1000, 77), (64, 4096, 64), (128, 16, 2048)],
)
SIZES = sized((9, (12, 20, 5)), (1024, (784, 512, 10)))


def check(function: Any, arguments: tuple[Any, ...], where: str) -> None:
    on_cpu = gc.compile(function, parity=True)(*arguments)
    on_gpu = gc.compile(function, parity=True, devices=GPU)(*arguments)
    cases.assert_same_bits(on_gpu, on_cpu, f"{where}, seed {SEED}")


@pytest.mark.parametrize(("turn", "name"), some(enumerate(cases.SCALARS), 40))
def test_element_by_element(turn: int, name: str) -> None:
    samples = some(cases.scalar_operands(OPS[name], VALUES, rng(1)), 1, turn)
    function = cases.apply_samples(OPS[name], samples)
    check(function, ([list(s.operands) for s in samples],), name)


@pytest.mark.parametrize(("shape", "kind"), some(crossed(SHAPES, cases.FLOATS[:2]), 1), ids=str)
def test_folds(shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
    x, row = (rng(2).standard_normal(s).astype(kind) for s in (shape, shape[-1:]))
    check(cases.all_folds, (x, row), f"{shape} {kind}")


@pytest.mark.parametrize("shape", LONG, ids=str)
def test_sums_of_several_stretches(shape: tuple[int, ...]) -> None:
    x, row = (rng(8).standard_normal(s, np.float32) for s in (shape, shape[-1:]))
    check(lambda x, row: [x.sum(), (x * row).sum()], (x, row), str(shape))


@pytest.mark.parametrize(("kind", "shape"), crossed(cases.FLOATS, ROWS), ids=str)
def test_functions_of_rows(shape: tuple[int, int], kind: np.dtype[Any]) -> None:
    x, scale, shift = (rng(3).standard_normal(s).astype(kind) for s in (shape, shape[1:], ()))
    check(cases.row_functions, (x * 8, scale, shift), f"{shape} {kind}")


@pytest.mark.parametrize(("sizes", "kind"), crossed(PRODUCTS, cases.FLOATS), ids=str)
def test_products(sizes: tuple[int, int, int], kind: np.dtype[Any]) -> None:
    m, k, n = sizes
    a, b, bias = (rng(4).standard_normal(s).astype(kind) for s in ((m, k), (k, n), (n,)))
    check(cases.products, (a, b, b.T.copy(), bias), f"{sizes} {kind}")


def test_products_that_vanish() -> None:
    """Sums of denormal products, and of zeros of either sign."""
    random = rng(5)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((6, 20), (20, 6)))
    a[::2] *= np.float32(1e-30)
    b[:, ::2] *= np.float32(-1e-16)
    a[1::2] = np.copysign(np.float32(0), a[1::2])
    check(lambda a, b: a @ b, (a, b), "vanishing")


def test_training_step() -> None:
    count, sizes = SIZES
    x = rng(6).standard_normal((count, sizes[0]), np.float32)
    check(cases.trained, (cases.layers(sizes, rng(7)), x), "mlp")
