"""The first tiles that read B make its panels: same bits as packing first, whatever the shape."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from contract_cores import Problem, call, core, linked_core, matrix

import graphc as gc
from graphc.codegen import gemm as contract
from graphc.codegen.gemm import Plan
from graphc.codegen.gemm.layout import Flag, Word, copy_bit
from graphc.codegen.gemm.tile_choice import kind_of
from graphc.codegen.llvm.target import host

# A second level so small that every B is worth packing, and a third one that needs several units.
SMALL = contract.host_target()._replace(l2=64 << 10, l3=8 << 20)


def run(problem: Problem, plan: Plan, symbol: int, copies: bool) -> np.ndarray:
    words = list(plan.params)
    words[Word.FLAGS] &= ~0 if copies else ~Flag.COPIES
    spans = [(unit, unit + 1, 0) for unit in range(plan.units)]
    buffers = [problem.data[name] for name in "abc"]
    call(plan._replace(params=tuple(words)), symbol, buffers, spans=spans)
    problem.check(problem.data["c"].copy())
    return problem.result().copy()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(200, 130, 700), (181, 300, 70), (400, 257, 520), (173, 161, 133)]
)
def test_copies_have_the_bits_of_packed_panels(dtype: str, m: int, n: int, k: int) -> None:
    problem = matrix(dtype, m, n, k)
    symbol = core(dtype)[contract.contract_symbol(dtype)]
    for threads in (1, 3):
        plan = contract.plan(problem.contraction(), SMALL, threads=threads, stage=threads == 3)
        if not plan.params[Word.FLAGS] & Flag.COPIES:
            pytest.skip("this machine reads B in place")
        packed = run(problem, plan, symbol, copies=False)
        np.testing.assert_array_equal(run(problem, plan, symbol, copies=True), packed)


def test_a_core_without_the_tile_packs_the_panel() -> None:
    problem = matrix("f32", 200, 130, 700)
    plan = contract.plan(problem.contraction(), SMALL)
    assert plan.params[Word.FLAGS] & Flag.COPIES
    parts = plan.parts & ~sum(copy_bit(rows) for rows in range(2, 16, 2))
    assert parts != plan.parts
    name = contract.contract_symbol("f32")
    lacking = linked_core("f32", host(), parts)[name]
    whole = core("f32")[name]
    expected = run(problem, plan, whole, copies=True)
    np.testing.assert_array_equal(run(problem, plan, lacking, copies=True), expected)


def test_a_transposed_b_is_packed_ahead_of_its_tiles() -> None:
    problem = matrix("f32", 200, 130, 700, "nt")
    flags = contract.plan(problem.contraction(), SMALL).params[Word.FLAGS]
    assert flags & (Flag.PACK_B | Flag.LATE) and not flags & Flag.COPIES


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("dims", [(0, 5, 7), (7, 0, 5), (7, 5, 0), (0, 0, 0), (0, 700, 300)])
def test_products_of_nothing(cpu: str, dims: tuple[int, int, int]) -> None:
    if not host().triple.startswith("x86"):
        pytest.skip("needs an x86 machine")
    m, k, n = dims
    made = gc.compile(lambda x, w: x @ w, target=f"cpu:{cpu}")(np.ones((m, k)), np.ones((k, n)))
    np.testing.assert_array_equal(made, np.full((m, n), k))


@pytest.mark.parametrize("n", [1, 5, 8, 9, 17, 24, 25, 40, 56, 57, 120])
def test_last_columns_of_pairs_end_with_half_a_vector(n: int) -> None:
    """The core of a plan alone has the tiles that it runs, and makes what wide tiles make."""
    hardware = contract.host_target()
    if not hardware.brain:
        pytest.skip("needs a CPU that multiplies pairs of bf16")
    kind = kind_of("bf16", hardware)
    ends = 0 < (n - 1) % kind.lanes + 1 <= kind.lanes // 2
    for seed, (m, k, layout) in enumerate([(37, 50, "nn"), (150, 7, "nt"), (29, 300, "tt")]):
        problem = matrix("bf16", m, n, k, layout, seed)
        for name in "ab":
            values = np.random.default_rng(seed).integers(-2, 3, problem.data[name].size)
            problem.data[name][:] = values.astype(ml_dtypes.bfloat16)
        plan = contract.plan(problem.contraction(), hardware)
        made = [m.symbol for m in contract.core_of("bf16", hardware, plan.parts)]
        if "graphc_core_bf16_block" in made:
            assert any("_half_" in symbol for symbol in made) is (ends and not plan.swapped)
        entry = linked_core("bf16", host(), plan.parts)[contract.contract_symbol("bf16")]
        call(plan, entry, [problem.data[name] for name in "abc"])
        expected = problem.expected().astype(np.float32).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(problem.result(), expected)
