"""parity=True without a GPU: the order of sums, CPUs that agree, and the code that GPUs would run.

What a GPU computes is compared in tests/gpu/test_gpu_parity.py, in the simulator as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import parity_cases as cases
import pytest
from effort import crossed, few
from loop_evaluator import rounded

import graphc as gc
from graphc.codegen.llvm.target import host
from graphc.codegen.lowering.ordered import LANES, STRETCH
from graphc.ir.types import F32

RNG = np.random.default_rng(0)


def normal(*shape: int, kind: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(kind)


# --------------------------------------------------------------------------------------- the order


def in_lanes(row: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """The documented order, spelled in NumPy: lanes of one row."""
    lanes = row[:LANES].copy()
    for start in range(LANES, len(row), LANES):
        block = row[start : start + LANES]
        lanes[: len(block)] = combine(lanes[: len(block)], block)
    return lanes


def folded(row: Any, combine: Callable[[Any, Any], Any]) -> Any:
    lanes = in_lanes(row, combine)
    if row.dtype == np.float32 and combine is np.add:
        lanes = in_lanes(row[:STRETCH], combine).astype(np.float64)
        for start in range(STRETCH, len(row), STRETCH):
            more = in_lanes(row[start : start + STRETCH], combine)
            lanes[: len(more)] += more
    while len(lanes) > 1:
        half = 1 << (len(lanes) - 1).bit_length() - 1
        upper = lanes[half:]
        lanes[: len(upper)] = combine(lanes[: len(upper)], upper)
        lanes = lanes[:half]
    return lanes[0].astype(row.dtype)


def in_order(x: Any, combine: Callable[[Any, Any], Any] = np.add) -> Any:
    return np.array([folded(row, combine) for row in x])


@pytest.mark.parametrize(
    ("length", "kind"),
    crossed([1, 2, 7, 255, 256, 257, 1000, 4096, 4097, 8300, 99_999], [np.float32, np.float64]),
)
def test_rows_are_summed_in_lanes(length: int, kind: Any) -> None:
    x = normal(3, length, kind=kind)
    made = gc.compile(lambda x: np.sum(x, axis=1), parity=True)(x)
    cases.assert_same_bits(made, in_order(x), f"sum of {length}")


@pytest.mark.parametrize("length", [3, 300])
def test_rows_are_multiplied_in_lanes(length: int) -> None:
    x = 1 + normal(3, length) / 16
    made = gc.compile(lambda x: np.prod(x, axis=1), parity=True)(x)
    cases.assert_same_bits(made, in_order(x, np.multiply), f"product of {length}")


@pytest.mark.parametrize(
    "shape", [(3, 5, 7, 50), (2, 3, 129), (300, 3), (2, 256, 2, 256), (9, 1200)]
)
def test_several_axes_are_one_row(shape: tuple[int, ...]) -> None:
    """However the loops lie: read through a view, a broadcast operand keeps the axes apart."""
    x, last = normal(*shape), normal(shape[-1])
    want = in_order((x * last).reshape(1, -1))[0]
    made = gc.compile(lambda x, last: np.sum(x * last), parity=True)(x, last)
    cases.assert_same_bits(made, want, "broadcast")
    turned = np.ascontiguousarray(np.swapaxes(x * last, 0, 1))
    made = gc.compile(lambda x: np.sum(np.swapaxes(x, 0, 1)), parity=True)(turned)
    cases.assert_same_bits(made, want, "view")


@pytest.mark.parametrize("columns", [1, 3, 300])
@pytest.mark.parametrize("rows", [5, 40, 64, 65])
def test_rows_are_added_one_after_another_in_f64(rows: int, columns: int) -> None:
    x = normal(rows, columns) * np.float32(10) ** RNG.integers(-3, 4, (rows, columns))
    x = x.astype(np.float32)
    total = np.zeros(columns)
    for row in x:
        total += row
    whole = gc.compile(lambda x: x.sum(0), parity=True)
    np.testing.assert_array_equal(whole(x), total.astype(np.float32))
    opened = gc.compile(lambda x: x.sum(0), parity=True)
    for _ in range(3):  # from the third size on one compilation serves all
        opened(normal(rows + len(opened.compiles) + 1, columns))
    np.testing.assert_array_equal(opened(x), whole(x))


@pytest.mark.parametrize("across", [False, True], ids=["plain", "across"])
@pytest.mark.parametrize("k", [1, 40, 1100])
def test_products_are_added_one_by_one(k: int, across: bool) -> None:
    a, b = normal(2, k), normal(k, 3)
    want = np.zeros((2, 3), np.float32)
    for i, j in np.ndindex(2, 3):
        for x, y in zip(a[i], b[:, j], strict=True):
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(want[i, j]))
            want[i, j] = rounded(exact, F32)
    if across:
        made = gc.compile(lambda a, b: a @ b.T, parity=True)(a, b.T.copy())
    else:
        made = gc.compile(lambda a, b: a @ b, parity=True)(a, b)
    cases.assert_same_bits(made, want, f"product over {k}")


# ------------------------------------------------------------------------------------- CPUs agree


def functions() -> list[Any]:
    """(function, arguments), large enough to be shared by threads."""
    x = normal(64, 33, 40)
    rows = normal(300, 700) * 8
    a, b = normal(70, 1100), normal(1100, 90)
    single = normal(1, 1100)
    sizes = (784, 128, 10)
    return [
        pytest.param(cases.all_folds, (x, normal(40)), id="folds"),
        pytest.param(cases.row_functions, (rows, normal(700), normal(700)), id="rows"),
        pytest.param(cases.products, (a, b, b.T.copy(), normal(90)), id="products"),
        pytest.param(cases.products, (single, b, b.T.copy(), normal(90)), id="one row"),
        pytest.param(cases.trained, (cases.layers(sizes, RNG), normal(96, 784)), id="mlp"),
    ]


OPTIONS: list[dict[str, Any]] = [
    {"threads": 2},
    {"threads": 5},
    {"opt": 0},
    {"fast_math": False},
    {"check_finite": True},
]
if host().triple.startswith("x86") and host().vector_bits > 256:
    OPTIONS.append({"target": "cpu:x86-64-v3"})  # vectors of 256 bits, no masks


@pytest.mark.slow
@pytest.mark.parametrize(("function", "arguments"), functions())
def test_other_options_give_the_same_bits(function: Any, arguments: Any) -> None:
    want = gc.compile(function, parity=True, threads=1)(*arguments)
    for options in few(OPTIONS, 1, len(arguments)):
        made = gc.compile(function, parity=True, **options)(*arguments)
        cases.assert_same_bits(made, want, str(options))


@pytest.mark.parametrize("kind", cases.FLOATS, ids=str)
def test_constants_are_packed_and_summed_alike(kind: Any) -> None:
    x, w = normal(37, 1100, kind=kind), normal(1100, 90, kind=kind)
    want = gc.compile(lambda x, w: x @ w, parity=True)(x, w)
    cases.assert_same_bits(gc.compile(lambda x: x @ w, parity=True)(x), want, str(kind))


def test_attention_in_blocks_gives_the_same_bits() -> None:
    q, k, v = (normal(2, 4, 600, 32) for _ in range(3))

    def attention(q: Any, k: Any, v: Any) -> Any:
        return cases.softmax(q @ np.swapaxes(k, -1, -2) * 0.25) @ v

    function = gc.compile(attention, parity=True)
    assert "blocked" in gc.show(function.stages(q, k, v)[-1].value)
    want = gc.compile(attention, parity=True, opt=0)(q, k, v)
    cases.assert_same_bits(function(q, k, v), want, "attention")


@pytest.mark.slow
def test_the_readable_source_gives_the_same_bits() -> None:
    """What the dump shows, compiled by Numba."""
    x, row, (a, b) = normal(3, 2, 129), normal(129), (normal(5, 40), normal(40, 6))

    def both(x: Any, row: Any, a: Any, b: Any) -> list[Any]:
        return [np.sum(x * row, axis=(0, 2)), *cases.row_functions(x, row, row), np.tanh(a) @ b]

    want = gc.compile(both, parity=True)(x, row, a, b)
    made = gc.compile(both, parity=True, backend="numba")(x, row, a, b)
    cases.assert_same_bits(made, want, "numba")


@pytest.mark.slow
def test_results_are_near_those_without_parity() -> None:
    x, row = normal(6, 5, 700), normal(700)
    for made, want in zip(
        gc.compile(cases.all_folds, parity=True)(x, row),
        gc.compile(cases.all_folds)(x, row),
        strict=True,
    ):
        np.testing.assert_allclose(made, want, rtol=2e-5, atol=2e-5)


# -------------------------------------------------------------------------------- the code of GPUs

INEXACT = r"\.approx|\.ftz|div\.full|\b(?:ex2|lg2|sin|cos|tanh|rsqrt)\.\w+"
FUSABLE = r"\b(?:add|sub|mul)\.f(?:32|64)\b"  # without .rn: ptxas may fuse them
FUSED = r"\b(?:fma|mad)\.\w+\.f(?:32|64)\b"
ROWS = ((64, 1000), "f32"), ((1000,), "f32"), ((1000,), "f32")
KERNELS: dict[str, Any] = {
    "product and sum": (lambda x, y, z: x * y + z, [((999,), "f32")] * 3),
    "rows": (cases.row_functions, ROWS),
    "folds": (lambda x: cases.folds(x, (0, 2)), [((4, 33, 700), "f64")]),
    "columns": (lambda x: [np.sum(x * x, 0), np.var(x, 0)], [((333, 70), "f16")]),
    "hyperbolic": (lambda x, y: [np.tanh(x), np.log1p(y), x**y], [((99,), "f32")] * 2),
    "matmul": (lambda a, b: a @ b, [((256, 256), "f32")] * 2),
    "ragged matmul": (lambda a, b: a @ b, [((33, 41), "bf16"), ((41, 7), "bf16")]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(KERNELS, 4))
def test_code_of_gpus_fuses_and_approximates_nothing_by_itself(name: str) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from gpu_launches import CHIPS, launches_of

    from graphc.codegen.gpu.compile import compile_ptx

    function, specs = KERNELS[name]
    launches = launches_of(function, tuple(gc.spec(*s) for s in specs), parity=True)
    assert launches
    for symbol, launch in launches.items():
        ptx = compile_ptx({symbol: launch}, CHIPS[0])
        assert not re.findall(INEXACT, ptx)
        assert not re.findall(FUSABLE, ptx)
        asked = "fma(" in launch.text or "outer(" in launch.text
        assert asked or not re.findall(FUSED, ptx)


@pytest.mark.slow
def test_the_patterns_find_what_they_forbid() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from gpu_launches import CHIPS, launches_of

    from graphc.codegen.gpu.compile import compile_ptx

    function, specs = KERNELS["product and sum"]
    launches = launches_of(function, tuple(gc.spec(*s) for s in specs))
    assert re.findall(FUSED, compile_ptx(launches, CHIPS[0]))
    function, specs = KERNELS["hyperbolic"]
    launches = launches_of(function, tuple(gc.spec(*s) for s in specs))
    assert re.findall(FUSABLE, compile_ptx(launches, CHIPS[0]))
    assert re.findall(INEXACT, "ex2.approx.ftz.f32 %f1, %f2; div.full.f32 %f3, %f1, %f2;")
