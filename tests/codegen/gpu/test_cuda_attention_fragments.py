"""Attention on tensor cores without a GPU: what the lanes of a simulated warp do with scores and
weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import types
from simulated_warp import LANES, WARP, Numbers, Warp, constant

from graphc.codegen.gpu.attention import device as attention_device
from graphc.codegen.gpu.attention import fragments as attention_fragments
from graphc.codegen.gpu.attention.plain import column_of, row_of
from graphc.codegen.gpu.attention.plan import FRAGMENTS
from graphc.codegen.gpu.contraction import mma as contract_fragments

PAD = 8


class Lanes(Warp):
    """A warp that runs functions with sums that go from product to product."""

    def made(self, emit: Any, operands: list[list[Any]]) -> np.ndarray:
        """What each lane gets; the operands of lane l are `operands[l]`."""
        found: list[list[Any]] = []
        for self.pointing in (True, False):
            found = []
            for self.lane in range(WARP):
                self.load = self.product = 0
                found.append(emit(None, Numbers(), None, operands[self.lane]))
        results: list[np.ndarray] = []
        for product in self.products:
            known = [
                (a, b, [value(results, lane, x) for x in sums])
                for lane, (a, b, sums) in enumerate(product)
            ]
            results.append(self.carried_out(known))
        return np.array([[value(results, lane, x) for x in y] for lane, y in enumerate(found)])

    def multiply(self, builder: Any, name: str, a: Any, b: Any, sums: Any) -> Any:
        number = self.product
        super().multiply(builder, name, a, b, list(sums))
        return [(number, k) for k in range(4)]


def value(results: list[np.ndarray], lane: int, x: Any) -> float:
    """A sum: a number, or the result of a product."""
    if isinstance(x, tuple):
        return float(results[x[0]][lane][x[1]])
    return float(getattr(x, "constant", x))


def rows_of(square: np.ndarray) -> list[list[Any]]:
    """A matrix of 16 rows as left operands, four for 16 columns, for each lane."""
    made = []
    for g, t in LANES:
        found = []
        for k in range(0, square.shape[1], 16):
            for column in (k + 2 * t, k + 2 * t + 8):
                found += [square[row, column : column + 2] for row in (g, g + 8)]
        made.append(found)
    return made


@pytest.fixture
def warp(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(values: np.ndarray) -> Lanes:
        made = Lanes(values)
        monkeypatch.setattr(attention_fragments, "data_of", lambda *given: constant(0))
        for module in (attention_device, attention_fragments):
            plain = {"unpack_tuple": lambda b, x: list(x), "pack_array": lambda b, x: x}
            monkeypatch.setattr(module, "cgutils", type("Tuples", (), plain))
        monkeypatch.setattr(contract_fragments, "load_four", made.load_four)
        monkeypatch.setattr(contract_fragments, "address", lambda builder, place: place)
        monkeypatch.setattr(attention_fragments, "multiply", made.multiply)
        pair = lambda builder, name, low, high: np.array([low, high])
        monkeypatch.setattr(attention_fragments, "packed", pair)
        return made

    return make


def literals(*numbers: int) -> list[Any]:
    return [types.IntegerLiteral(n) for n in numbers]


def spread(tuples: np.ndarray, squares: int, columns: int) -> np.ndarray:
    """The matrix of which each lane has a part, in a tuple."""
    made = np.full((16 * squares, columns), np.nan)
    for lane, (g, t) in enumerate(LANES):
        for e, x in enumerate(tuples[lane]):
            row = g + 8 * row_of(e, tuples.shape[1], FRAGMENTS * squares)
            column = column_of(e, tuples.shape[1], FRAGMENTS * squares, 4)
            made[row, 2 * t + column] = x
    return made


@pytest.mark.parametrize(("squares", "keys", "width"), [(1, 16, 16), (2, 32, 48), (1, 64, 256)])
def test_scores_are_products_with_keys(squares: int, keys: int, width: int, warp: Any) -> None:
    random = np.random.default_rng(keys)
    lead, start = width + PAD, 24
    memory = random.integers(-4, 5, start + keys * lead).astype(np.float64)
    queries = random.integers(-4, 5, (16 * squares, width)).astype(np.float64)
    lines = memory[start:].reshape(keys, lead)[:, :width]
    count = types.UniTuple(types.uint32, width // 4 * squares)
    given = (count, types.Array(types.uint16, 1, "C"), types.int64, types.int64)
    fixed = literals(keys // 8, lead, squares)
    _, emit = attention_fragments.scoring("bf16")(None, *given, *fixed)
    parts = [rows_of(queries[n : n + 16]) for n in range(0, 16 * squares, 16)]
    operands = [
        [[x for part in parts for x in part[lane]], None, constant(start), constant(lane), *fixed]
        for lane in range(WARP)
    ]
    made = warp(memory).made(emit, operands)
    np.testing.assert_array_equal(spread(made, squares, keys), queries @ lines.T)


@pytest.mark.parametrize(("squares", "keys", "depth"), [(1, 16, 16), (2, 32, 48), (1, 16, 256)])
def test_weights_go_from_product_to_product(squares: int, keys: int, depth: int, warp: Any) -> None:
    random = np.random.default_rng(depth)
    lead, start = depth + PAD, 8
    memory = random.integers(-4, 5, start + keys * lead).astype(np.float64)
    lines = memory[start:].reshape(keys, lead)[:, :depth]
    weights = random.integers(-4, 5, (WARP, keys // 2 * squares)).astype(np.float64)
    totals = random.integers(-4, 5, (WARP, depth // 2 * squares)).astype(np.float64)
    kinds = [types.UniTuple(types.float32, x.shape[1]) for x in (totals, weights)]
    fixed = literals(lead, squares)
    given = (types.Array(types.uint16, 1, "C"), types.int64, types.int64, *fixed)
    _, emit = attention_fragments.weighing("bf16")(None, *kinds, *given)
    operands = [
        [list(totals[lane]), list(weights[lane]), None, constant(start), constant(lane), *fixed]
        for lane in range(WARP)
    ]
    made = spread(warp(memory).made(emit, operands), squares, depth)
    want = spread(totals, squares, depth) + spread(weights, squares, keys) @ lines
    np.testing.assert_array_equal(made, want)
