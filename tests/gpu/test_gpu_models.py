"""Models on a GPU and their gradients against float64, at sizes that are multiples of what lanes
and blocks take, and at sizes that are not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_harness import (
    FEW_BLOCKS,
    GPU,
    MANY_BLOCKS,
    SEED,
    SIMULATED,
    last_first,
    need_gpu,
    rng,
    sized,
    some,
    use_chip,
)
from gpu_models import COMPLEX, MODELS, inputs

import graphc as gc
from graphc.ops.reference.interpreter import interpret

need_gpu()
pytestmark = pytest.mark.gpu

SIZES = sized(
    [{"R": 4, "C": 16, "K": 4}, {"R": 3, "C": 11, "K": 5}],
    [{"R": 512, "C": 1024, "K": 64}, {"R": 37, "C": 1111, "K": 7}, {"R": 700, "C": 5, "K": 3}],
)
RTOL = {"f2": 4e-3, "bf": 3e-2, "f4": 2e-5, "f8": 1e-11, "c8": 4e-5}
KINDS = {
    "f2": np.float16,
    "bf": ml_dtypes.bfloat16,
    "f4": np.float32,
    "f8": np.float64,
    "c8": np.complex64,
}
CASES = [
    (name, number, kind)
    for name in MODELS
    for number in range(len(SIZES))
    for kind in KINDS
    if (kind != "c8" or name in COMPLEX) and (kind in ("f4", "c8") or number == 1)
]


def wide(array: Any) -> Any:
    array = np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def close(got: Any, want: Any, tolerance: float, where: str) -> None:
    scale = float(np.max(np.abs(want), initial=1.0))
    np.testing.assert_allclose(wide(got), want, tolerance, tolerance * scale, err_msg=where)


def flat(results: Any) -> list[Any]:
    many = isinstance(results, tuple | list)
    return [x for one in results for x in flat(one)] if many else [results]


def compare(function: Any, arrays: list[Any], tolerance: float, **options: Any) -> None:
    """A function on the GPU, twice, against the reference in float64."""
    exact = [wide(a) for a in arrays]
    want = interpret(gc.compile(function).graph(*exact), exact)
    run = gc.compile(function, devices=GPU, **options)
    for _ in range(2):
        for got, expected in zip(flat(run(*arrays)), want, strict=True):
            close(got, expected, tolerance, f"seed {SEED}")


@pytest.mark.parametrize(("name", "number", "kind"), some(CASES, 30))
def test_model(name: str, number: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if number == 1:
        use_chip(monkeypatch, FEW_BLOCKS)
        last_first(monkeypatch)
    arrays = inputs(name, SIZES[number], KINDS[kind], rng(number))
    sixteen = kind in ("f2", "bf")
    compare(MODELS[name][0], arrays, RTOL[kind] * (4 if sixteen else 1))


LONG = ("rows", "columns", "middle", "outer axes", "everything", "layer norm", "two results")
LONG_SIZES = ({"R": 1, "C": 130, "K": 1}, {"R": 70, "C": 4, "K": 2})


@pytest.mark.skipif(not SIMULATED, reason="the other sizes are long enough for a GPU")
@pytest.mark.parametrize("name", LONG)
def test_long_rows_are_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a chip with more blocks than there are rows."""
    specs = use_chip(monkeypatch, MANY_BLOCKS)
    for number, sizes in enumerate(LONG_SIZES):
        compare(MODELS[name][0], inputs(name, sizes, np.float32, rng(5, number)), RTOL["f4"])
    assert any(len(spec.launches) > 1 for spec in specs.values())


@pytest.mark.parametrize("name", MODELS)
def test_gradient(name: str) -> None:
    function, _ = MODELS[name]
    arrays = inputs(name, SIZES[1], np.float32, rng(7))

    def loss(*given: Any) -> Any:
        return sum(np.tanh(x).sum() for x in flat(function(*given)))

    both = gc.value_and_grad(loss, wrt=tuple(range(len(arrays))))
    compare(lambda *given: both(*given), arrays, 1e-4)
