"""How a product is cut into units for threads."""

from __future__ import annotations

import pytest

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.blocking import UNBOUNDED, Sizes, _units
from graphc.codegen.gemm.layout import Flag
from graphc.codegen.gemm.tile_choice import kind_of


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("m", "n", "k", "threads"),
    [(196, 512, 128, 2), (960, 240, 240, 2), (960, 240, 240, 4), (480, 480, 480, 4)],
)
def test_threads_have_rows_of_what_is_multiplied_by_a_constant(
    m: int, n: int, k: int, threads: int, dtype: str
) -> None:
    """They made these rows in the product before, which was cut alike."""
    kind = kind_of(dtype, contract.host_target())
    columns, rows = _units(Flag.PACKED_B, kind, Sizes(1, m, n, k), UNBOUNDED, threads, False)
    assert columns >= n and -(-m // rows) >= threads


def test_few_rows_are_not_cut() -> None:
    kind = kind_of("f32", contract.host_target())
    columns, rows = _units(Flag.PACKED_B, kind, Sizes(1, 8, 2048, 1024), UNBOUNDED, 2, False)
    assert rows == 8 and columns < 2048
