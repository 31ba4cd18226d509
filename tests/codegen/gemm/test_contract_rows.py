"""Rows of A that are a page apart share a set of the first cache: lower tiles, or a copy."""

from __future__ import annotations

import numpy as np
import pytest
from contract_cores import call, core, matrix

from graphc.codegen import gemm as contract
from graphc.codegen.gemm import Dim, NormalForm
from graphc.codegen.gemm.hardware import Hardware
from graphc.codegen.gemm.layout import Flag, Word, height_bit
from graphc.tuning import chosen

# 14 rows of a tile, but 12 ways in a set of the first level.
MACHINE = Hardware(64, 32, True, True, 48 << 10, 256 << 10, 16 << 20)
PAGE_OF_F32 = 1024


def product(m: int, n: int, k: int, apart: int) -> NormalForm:
    """A matrix product with rows of A `apart` elements from each other."""
    dims = (Dim(m, apart, 0, n),), (Dim(n, 0, 1, 1),), (Dim(k, 1, n, 0),)
    return NormalForm("f32", (), *dims)


@pytest.mark.parametrize(
    ("m", "apart", "rows", "packs"),
    [
        (402, PAGE_OF_F32, 12, False),
        (402, 3 * PAGE_OF_F32, 12, False),
        (62, PAGE_OF_F32, 14, True),
        (402, PAGE_OF_F32 + 16, 14, False),
        (22, PAGE_OF_F32, 12, False),
        (22, PAGE_OF_F32 + 16, 14, False),
        (14, 2 * PAGE_OF_F32, 12, False),
    ],
)
def test_rows_that_share_a_set_get_lower_tiles_or_are_copied(
    m: int, apart: int, rows: int, packs: bool
) -> None:
    words = contract.plan(product(m, 256, 1000, apart), MACHINE).params
    assert words[Word.TILE_ROWS] == rows
    assert bool(words[Word.FLAGS] & Flag.PACK_A) == packs
    assert words[Word.ROW_BLOCK] % rows == 0


def test_a_first_level_of_few_ways_leaves_the_copy() -> None:
    few = MACHINE._replace(l1=32 << 10)
    words = contract.plan(product(402, 256, 1000, PAGE_OF_F32), few).params
    assert words[Word.TILE_ROWS] == 14 and words[Word.FLAGS] & Flag.PACK_A


@pytest.mark.parametrize(
    ("m", "heights"),
    [(64, [8]), (99, [10]), (256, [8]), (1000, [10]), (96, [12]), (3136, [14]), (62, [6, 14])],
)
def test_rows_that_are_a_multiple_of_a_height_take_one_tile(m: int, heights: list[int]) -> None:
    """The highest such tile, if it is not low: so few are compiled."""
    plan = contract.plan(product(m, 256, 1000, 1000), MACHINE)
    assert plan.params[Word.TILE_ROWS] == heights[-1]
    assert [rows for rows in range(2, 16, 2) if plan.parts & height_bit(rows)] == heights


@pytest.mark.parametrize(("m", "n", "k"), [(64, 40, 30), (99, 33, 300), (256, 70, 20)])
def test_bits_do_not_depend_on_whether_one_tile_serves_all_rows(m: int, n: int, k: int) -> None:
    hardware, found, heights = contract.host_target(), [], []
    for least in (8, 32):
        problem = matrix("f32", m, n, k)
        with chosen({"codegen.even_tile": least}):
            plan = contract.plan(problem.contraction(), hardware)
        call(
            plan,
            core("f32")[contract.contract_symbol("f32")],
            [problem.data[name] for name in "abc"],
        )
        problem.check(problem.data["c"].copy())
        found.append(problem.result())
        heights.append(plan.params[Word.TILE_ROWS])
    np.testing.assert_array_equal(found[0], found[1])
    assert heights[0] < heights[1] or hardware.registers < 32


@pytest.mark.parametrize(
    ("n", "ways", "packs"),
    [(33, 8, True), (64, 8, True), (32, 8, False), (64, 16, False), (200, 16, True)],
)
def test_two_panels_of_b_are_enough_for_a_copy_of_rows_that_evict_each_other(
    n: int, ways: int, packs: bool
) -> None:
    hardware = MACHINE._replace(l1=ways << 12, l2=1 << 20)
    words = contract.plan(product(128, n, 1024, PAGE_OF_F32), hardware).params
    assert bool(words[Word.FLAGS] & Flag.PACK_A) == packs
    apart = contract.plan(product(128, n, 1024, PAGE_OF_F32 + 16), hardware).params
    assert not apart[Word.FLAGS] & Flag.PACK_A


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("m", [131, 400])
def test_bits_do_not_depend_on_the_height_of_tiles(m: int, threads: int) -> None:
    found = []
    for l1 in (48 << 10, 64 << 10):
        hardware = contract.host_target()._replace(l1=l1, l2=256 << 10)
        problem = matrix("f32", m, 96, PAGE_OF_F32)
        plan = contract.plan(problem.contraction(), hardware, threads=threads)
        spans = [(unit, unit + 1, 0) for unit in range(plan.units)]
        buffers = [problem.data[name] for name in "abc"]
        call(plan, core("f32")[contract.contract_symbol("f32")], buffers, spans=spans)
        problem.check(problem.data["c"].copy())
        found.append(problem.result())
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(
    ("m", "k", "apart", "packs"),
    [
        (200, 64, 256, True),  # 1 KB apart: 4 sets of 8 ways hold 32 of the 64 rows of a panel
        (200, 64, 256 + 16, False),
        (12, 64, 256, False),  # two tiles
        (200, 32, 256, False),
    ],
)
def test_a_panel_of_b_is_copied_if_its_rows_evict_each_other(
    m: int, k: int, apart: int, packs: bool
) -> None:
    dims = (Dim(m, k, 0, 256),), (Dim(256, 0, 1, 1),), (Dim(k, 1, apart, 0),)
    narrow = MACHINE._replace(vector=32, registers=16, masked=False, l1=32 << 10)
    words = contract.plan(NormalForm("f32", (), *dims), narrow).params
    assert bool(words[Word.FLAGS] & (Flag.PACK_B | Flag.LATE)) == packs
