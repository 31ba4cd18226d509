"""Attention as code for GPUs, without one: PTX and cubins with no register in memory."""

from __future__ import annotations

from typing import Any

import pytest
from effort import few
from gpu_launches import launches_of

import graphc as gc
from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import chip_of
from graphc.codegen.gpu.compile import compile_ptx

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

Shape = tuple[int, ...]
CASES: dict[str, tuple[str, list[Shape], tuple[Shape, str] | None, bool]] = {
    "heads of 64": ("bf16", [(2, 4, 512, 64)] * 3, None, True),
    "heads of 128": ("f16", [(2, 4, 512, 128)] * 3, None, False),
    "heads of 256": ("bf16", [(2, 4, 100, 256)] * 3, None, True),
    "heads of 20 and 36": ("bf16", [(2, 40, 20), (2, 77, 20), (2, 77, 36)], None, False),
    "shared keys": ("f16", [(2, 4, 100, 64), *[(2, 2, 99, 64)] * 2], ((99,), "f16"), True),
    "one query": ("bf16", [(2, 4, 1, 128), *[(2, 4, 4096, 128)] * 2], ((4096,), "bool"), False),
    "f32": ("f32", [(8, 12, 512, 64)] * 3, ((512, 512), "bool"), True),
    "f32, heads of 128": ("f32", [(8, 12, 70, 128)] * 3, ((12, 70, 70), "f32"), False),
    "f32, one query": ("f32", [(8, 1, 40), *[(8, 900, 40)] * 2], None, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(CASES, 6))
def test_kernels_assemble(name: str) -> None:
    dtype, shapes, mask, causal = CASES[name]
    given = [gc.spec(shape, dtype) for shape in shapes]
    given += [gc.spec(*mask)] if mask else []

    def attend(*operands: Any) -> Any:
        return gc.attention(*operands, causal=causal)

    found = launches_of(attend, tuple(given), target="cuda:sm_80")
    assert 1 <= len(found) <= 2
    ptx = compile_ptx(found, chip_of("cuda:sm_80"))
    for chip in few(("cuda:sm_80", "cuda:sm_90"), 1, list(CASES).index(name)):
        reports = toolkit.assemble(ptx, chip_of(chip))[1]
        assert reports.keys() == found.keys()
        # Heads of 256 take what registers there are; four blocks of heads of 64 on a processor
        # are worth two words of a thread's memory.
        most = {"heads of 256": 256, "heads of 64": 16}.get(name, 0)
        assert all(max(r.spills, r.stack) <= most for r in reports.values()), reports
    assert ("mma.sync" in ptx) == (dtype != "f32")


def test_chips_without_kernels_run_products() -> None:
    given = (gc.spec((2, 8, 16), "f16"),) * 3
    found = launches_of(lambda q, k, v: gc.attention(q, k, v), given, target="cuda:sm_75")
    assert len(found) >= 3


def test_sums_in_order_are_written_out() -> None:
    given = (gc.spec((2, 8, 16), "f32"),) * 3
    for options in ({"fast_math": False}, {"check_finite": True}, {"parity": True}):
        found = launches_of(gc.attention, given, target="cuda:sm_90", **options)
        assert len(found) >= 3
