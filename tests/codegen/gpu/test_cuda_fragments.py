"""Tensor cores without a GPU: the lanes of a simulated warp load and multiply what they should."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import types
from simulated_warp import WARP, Warp, constant

from graphc.codegen.gpu.contraction import mma as contract_fragments
from graphc.codegen.gpu.contraction import plain as contract_plain


@pytest.mark.parametrize("upright_a", [0, 1])
@pytest.mark.parametrize("upright_b", [0, 1])
@pytest.mark.parametrize(("down", "across"), [(1, 2), (2, 4), (4, 4)])
def test_lanes_multiply_what_they_should(
    upright_a: int, upright_b: int, down: int, across: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(down + across)
    values = random.integers(-8, 8, 8192).astype(np.float32)
    warp = Warp(values)
    monkeypatch.setattr(contract_fragments, "load_four", warp.load_four)
    monkeypatch.setattr(contract_fragments, "multiply", warp.multiply)
    monkeypatch.setattr(contract_fragments, "address", lambda builder, place: place)
    monkeypatch.setattr(contract_fragments, "data_of", lambda *given: constant(0))
    plain_tuples = {"unpack_tuple": lambda b, x: x, "pack_array": lambda b, x: x}
    monkeypatch.setattr(contract_fragments, "cgutils", type("Tuples", (), plain_tuples))
    lead_a, lead_b, a, b = 72, 40, 24, 4096
    shape = (down, across, lead_a, upright_a, lead_b, upright_b)
    total = types.UniTuple(types.float32, 4 * down * across)
    given = (total, types.Array(types.uint16, 1, "C"), *[types.int64] * 3)
    typed = contract_fragments.products("bf16")
    _, emit = typed(None, *given, *(types.IntegerLiteral(x) for x in shape))
    totals = random.integers(-8, 8, (WARP, 4 * down * across)).astype(np.float32)
    made = warp.run(emit, totals, a, b)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    for lane in range(WARP):
        want = contract_plain.products_bf16(tuple(totals[lane]), bits, a, b, lane, *shape)
        assert tuple(made[lane]) == want
