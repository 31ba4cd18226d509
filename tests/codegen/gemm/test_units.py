"""How a product is cut into units for threads."""

from __future__ import annotations

import pytest

from graphc.codegen import gemm as contract
from graphc.codegen.gemm.blocking import UNBOUNDED, Sizes, _units, grain_of
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


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize(("m", "n", "k"), [(13, 17, 4001), (17, 4001, 13), (104, 104, 104)])
def test_elements_of_eight_bytes_are_twice_the_work(m: int, n: int, k: int, threads: int) -> None:
    """A product that f32 has done before a thread is there is shared if its elements are wider."""
    sizes = Sizes(1, m, n, k)
    for dtype, is_shared in (("f32", False), ("i32", False), ("f64", True), ("i64", True)):
        kind = kind_of(dtype, contract.host_target())
        columns, rows = _units(0, kind, sizes, UNBOUNDED, threads, False)
        units = -(-m // rows) * -(-n // columns)
        assert (units > 1) is is_shared, dtype
        assert units <= 1 or grain_of(kind, sizes, units) < units


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64"])
def test_small_products_are_not_cut(dtype: str) -> None:
    kind = kind_of(dtype, contract.host_target())
    for size in (1, 16, 33, 64, 80):
        columns, rows = _units(0, kind, Sizes(1, size, size, size), UNBOUNDED, 8, False)
        assert columns >= size and rows >= size
