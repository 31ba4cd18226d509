"""A product of any number of rows runs as one that is planned for exactly so many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from open_sizes import template

import graphc as gc
from graphc.codegen import gemm
from graphc.codegen.gemm.form import Dim, NormalForm
from graphc.codegen.gemm.hardware import host_target
from graphc.codegen.gemm.layout import Flag, Part, Word
from graphc.codegen.llvm.target import named
from graphc.ir.sizes import Scope, Size

ROWS = (0, 1, 2, 3, 8, 17, 28, 29, 100, 168, 169, 253, 600, 5000)


def product(m: int, n: int, k: int, turned: bool, batch: int, whole: bool) -> NormalForm:
    """A batch of products; where it is `turned`, B lies column by column."""
    b = (1, k) if turned else (n, 1)
    return NormalForm(
        "f32",
        (Dim(batch, m * k, k * n, m * n),) if batch > 1 else (),
        (Dim(m, k, 0, n),),
        (Dim(n, 0, b[1], 1),),
        (Dim(k, 1, b[0], 0),),
        whole_rows=whole,
    )


def at(value: Any, m: int) -> int:
    return value.value({"m": m}) if isinstance(value, Size) else int(value)


@examples(15)
@given(
    example=st.integers(2, 3000),
    n=st.sampled_from([16, 40, 64, 256, 1000]),
    k=st.sampled_from([1, 16, 64, 300, 1024]),
    turned=st.booleans(),
    batch=st.sampled_from([1, 6]),
    whole=st.booleans(),
)
def test_plans_of_open_rows_are_those_of_exact_ones(
    example: int, n: int, k: int, turned: bool, batch: int, whole: bool
) -> None:
    scope = Scope()
    scope.typing = False
    rows = scope.symbol("m", example)
    made = gemm.plan(product(rows, n, k, turned, batch, whole), host_target(), epilogue=whole)
    assert not scope.guards
    for m in ROWS:
        exact = gemm.plan(product(m, n, k, turned, batch, whole), host_target(), epilogue=whole)
        if m < 2 or exact.swapped or made.swapped:
            continue
        assert [at(word, m) for word in made.params] == list(exact.params), m
        assert (at(made.units, m), at(made.grain, m)) == (exact.units, exact.grain)
        assert made.parts & exact.parts == exact.parts


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_sum_of_open_length_may_be_of_nothing(dtype: str, turned: bool) -> None:
    """What is in memory before is no part of it, in whichever way so many rows are multiplied."""
    for rows, columns in ((1, 1), (1, 63), (63, 1), (2, 63), (63, 2), (1, 3000), (40, 40)):
        left = ("k", rows) if turned else (rows, "k")

        def product(x: Any, w: Any) -> Any:
            return (x.T if turned else x) @ w + 1

        shapes = left, ("k", columns)
        made = template(product, [gc.spec(s, dtype) for s in shapes], {"k": 8}, threads=2)
        empty = [np.zeros([0 if n == "k" else n for n in s], dtype) for s in shapes]
        for _ in range(2):
            np.testing.assert_array_equal(made.run(empty), np.ones((rows, columns)))


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_windows_of_open_images_are_read_as_those_of_exact_ones(cpu: str) -> None:
    """In place or copied, weights once or for each image: decided when images come."""
    hardware = gemm.hardware_of(named(cpu))

    def windows(images: Any, filters: Any, out: Any) -> NormalForm:
        width = 2 * out + 1
        return NormalForm(
            "f32",
            (Dim(images, 0, 15 * width, filters * out),),
            (Dim(filters, 45, 0, out),),
            (Dim(out, 0, 2, 1),),
            (Dim(5, 9, 3 * width), Dim(3, 3, width), Dim(3, 1, 1)),
        )

    def decided(plan: Any, values: dict[str, int]) -> tuple[int, int]:
        flags = plan.params[Word.FLAGS]
        flags = flags.value(values) if isinstance(flags, Size) else flags
        return flags & (Flag.LANES | Flag.SAME_A | Flag.PACK_A), plan.parts & Part.LANES

    scope = Scope()
    scope.typing = False
    sizes = scope.symbol("b", 4), scope.symbol("f", 64), scope.symbol("o", 300)
    made = gemm.plan(windows(*sizes), hardware)
    assert not scope.guards
    ways = set()
    for images, filters, out in (
        *((1, 64, 2), (1, 64, 95), (1, 64, 96), (2, 60, 400), (2, 47, 400), (1, 3, 500)),
        *((7, 64, 35), (5, 64, 35), (5, 64, 13), (3, 256, 40), (3, 300, 40), (1, 300, 96)),
    ):
        exact = gemm.plan(windows(images, filters, out), hardware)
        way, part = decided(made, {"b": images, "f": filters, "o": out})
        expected, needed = decided(exact, {})
        if images > 1 and out >= 32 and filters >= 16:  # else images are rows of one product
            assert way & Flag.LANES == expected & Flag.LANES, (images, filters, out)
        assert part & needed == needed
        ways.add(way)
    assert ways == ({0} if hardware.masked else {0, Flag.LANES, Flag.LANES | Flag.SAME_A})
