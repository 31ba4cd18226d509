"""A product of any number of rows runs as one that is planned for exactly so many."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from open_sizes import template

import graphc as gc
from graphc.codegen import gemm
from graphc.codegen.gemm.core import LANES
from graphc.codegen.gemm.form import Dim, NormalForm
from graphc.codegen.gemm.hardware import host_target
from graphc.codegen.gemm.layout import Flag, Word, half_lane_bit, lane_bit, narrow_lane_bit
from graphc.codegen.llvm.target import named
from graphc.ir.sizes import Scope, Size
from graphc.tuning import chosen

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
    machine = host_target()
    # Exact products may have tiles of one height, those of open rows have lower ones.
    with chosen({"codegen.even_tile": 32, "codegen.open_tile": 32}):
        made, *found = (
            gemm.plan(product(m, n, k, turned, batch, whole), machine, epilogue=whole)
            for m in (rows, *ROWS)
        )
    assert not scope.guards
    for m, exact in zip(ROWS, found, strict=True):
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


def dealt(columns: int, pairs: int) -> list[int]:
    """Widths of the tiles into which so many columns are dealt, each at most so many pairs."""
    tiles = -(-columns // (2 * pairs))
    base, longer = divmod(-(-columns // 2), tiles)
    return [2 * (base + (tile < longer)) for tile in range(tiles)]


@examples(60)
@given(
    st.integers(17, 2000),
    st.sampled_from((4, 8, 13, 16, 40, 48, 64, 300)),
    st.sampled_from((3, 100)),
    st.booleans(),
    st.integers(1, 3),
)
def test_a_core_has_the_tiles_into_which_columns_are_dealt(
    out: int, filters: int, channels: int, masked: bool, threads: int
) -> None:
    hardware = gemm.hardware_of(named("x86-64-v4" if masked else "x86-64-v3"))
    width = 2 * out + 1
    form = NormalForm(
        "f32",
        (),
        (Dim(filters, channels * 9, 0, out),),
        (Dim(out, 0, 2, 1),),
        (Dim(channels, 9, 3 * width), Dim(3, 3, width), Dim(3, 1, 1)),
    )
    with chosen({"codegen.lane_columns": 1, "codegen.window_rows": 1 << 20}):
        plan = gemm.plan(form, hardware, threads=threads)
    words, lanes = plan.params, 16 if masked else 8
    pairs = words[Word.TILE_ROWS] // 2
    last = (filters - 1) % (2 * lanes) + 1
    assume(words[Word.FLAGS] & Flag.LANES)  # else windows are copied
    for first in range(0, out, words[Word.UNIT_COLUMNS]):
        stop = min(first + words[Word.UNIT_COLUMNS], out)
        for start in range(first, stop, words[Word.FINISH_COLUMNS]):
            for width in dealt(min(stop - start, words[Word.FINISH_COLUMNS]), pairs):
                if filters > lanes:
                    assert plan.parts & lane_bit(width), width
                if last <= lanes:
                    few = half_lane_bit if last <= lanes // 2 else narrow_lane_bit
                    assert plan.parts & few(width), width


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_windows_of_open_images_are_read_as_those_of_exact_ones(cpu: str) -> None:
    """In place or copied, weights once or for each image: decided when images come."""
    hardware = gemm.hardware_of(named(cpu))

    def windows(images: Any, filters: Any, out: Any) -> NormalForm:
        width = 2 * out + 1
        return NormalForm(
            "f32",
            (Dim(images, 0, 135 * width, filters * out),),
            (Dim(filters, 405, 0, out),),
            (Dim(out, 0, 2, 1),),
            (Dim(45, 9, 3 * width), Dim(3, 3, width), Dim(3, 1, 1)),
        )

    def decided(plan: Any, values: dict[str, int]) -> tuple[int, int]:
        flags = plan.params[Word.FLAGS]
        flags = flags.value(values) if isinstance(flags, Size) else flags
        return flags & (Flag.LANES | Flag.SAME_A | Flag.PACK_A), plan.parts & LANES

    scope = Scope()
    scope.typing = False
    sizes = scope.symbol("b", 4), scope.symbol("f", 64), scope.symbol("o", 300)
    exacts = (
        *((1, 64, 2), (1, 64, 95), (1, 64, 96), (2, 60, 400), (2, 47, 400), (1, 3, 500)),
        *((7, 64, 35), (5, 64, 35), (5, 64, 13), (3, 256, 40), (3, 300, 40), (1, 320, 96)),
    )
    with chosen({"codegen.even_tile": 32, "codegen.open_tile": 32}):  # tiles of other widths
        made, *found = (gemm.plan(windows(*each), hardware) for each in (sizes, *exacts))
    assert not scope.guards
    ways = set()
    for (images, filters, out), exact in zip(exacts, found, strict=True):
        way, part = decided(made, {"b": images, "f": filters, "o": out})
        expected, needed = decided(exact, {})
        if images > 1 and out >= 32 and filters >= 16:  # else images are rows of one product
            assert way & Flag.LANES == expected & Flag.LANES, (images, filters, out)
        assert part & needed == needed
        ways.add(way)
    assert ways == {0, Flag.LANES, Flag.LANES | Flag.SAME_A}


IMAGES = [(8, 4, 6), (1, 20, 20), (2, 20, 20), (7, 9, 1), (50, 4, 4), (3, 40, 33), (9, 5, 13)]


def convolved(x: Any, w: Any) -> Any:
    return gc.conv(x, w, stride=2, padding=1)


def shifted(x: Any, w: Any) -> Any:
    """What is made of sums is written where they are: an epilogue finds the image of a column."""
    y = gc.conv(x, w)
    return np.maximum(y, 0) + x[:, :1] * 2, y.transpose(1, 0, 3, 2)


@pytest.mark.parametrize("first", [(1, 20, 20), (8, 4, 6)])
@pytest.mark.parametrize(("function", "side"), [(convolved, 3), (shifted, 1)])
def test_places_of_many_small_images_are_the_columns_of_one_product(
    function: Any, side: int, first: tuple[int, ...]
) -> None:
    """As in an exact compilation, whichever images come first; large ones are a product each."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((40, 16, side, side), np.float32)
    open_ = gc.compile(function, sizes={"x": ("b", 16, "h", "w")}, threads=1)
    exact = gc.compile(function, sizes="exact", threads=1)
    for b, height, width in (first, *IMAGES):
        x = rng.standard_normal((b, 16, height, width), np.float32)
        for made, want in zip(open_(x, w), exact(x, w), strict=True):
            np.testing.assert_array_equal(made, want)
    assert len(open_.compiles) == 1


def test_short_runs_of_columns_are_joined_where_exact_ones_are() -> None:
    def images(count: Any, places: Any) -> NormalForm:
        return NormalForm(
            "f32",
            (),
            (Dim(64, 288, 0, places),),
            (Dim(count, 0, 32 * places, 64 * places), Dim(places, 0, 1, 1)),
            (Dim(288, 1, places),),
        )

    scope = Scope()
    scope.typing = False
    made = gemm.plan(images(scope.symbol("b", 1), scope.symbol("p", 5000)), host_target())
    assert not scope.guards
    open_columns = made.params[Word.N]
    assert isinstance(open_columns, Size)
    ways = set()
    for b, p in ((1, 200), (2, 50), (2, 200), (60, 9), (5, 16), (5, 31), (3, 128), (40, 60)):
        exact = gemm.plan(images(b, p), host_target())
        assert not exact.swapped
        columns = open_columns.value({"b": b, "p": p})
        assert columns == exact.params[Word.N]
        ways.add(columns == b * p)
    assert ways == {False, True}


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_windows_of_small_open_images_are_products_where_exact_ones_are(cpu: str) -> None:
    hardware = gemm.hardware_of(named(cpu))

    def windows(images: Any, out: Any) -> NormalForm:
        width = out + 2
        return NormalForm(
            "f32",
            (Dim(6, 16 * 135, 45 * width, 16 * out),),
            (Dim(16, 135, 0, out),),
            (Dim(images, 0, 270 * width, 96 * out), Dim(out, 0, 1, 1)),
            (Dim(45, 3, width), Dim(3, 1, 1)),
        )

    def decided(plan: Any, values: dict[str, int]) -> tuple[int, ...]:
        words = (plan.params[word] for word in (Word.N, Word.FLAGS, Word.A_RUN))
        n, flags, run = (w.value(values) if isinstance(w, Size) else w for w in words)
        return n, flags & Flag.LANES, run if flags & Flag.SAME_A else 1

    scope = Scope()
    scope.typing = False
    made = gemm.plan(windows(scope.symbol("b", 4), scope.symbol("o", 300)), hardware)
    assert not scope.guards
    ways = set()
    for images, out in ((8, 3), (8, 13), (9, 14), (3, 25), (1, 25), (1, 100), (2, 31), (2, 100)):
        exact = decided(gemm.plan(windows(images, out), hardware), {})
        assert decided(made, {"b": images, "o": out}) == exact, (images, out)
        ways.add((exact[0] == out, exact[1]))
    assert {(True, Flag.LANES), (True, 0)} < ways


@pytest.mark.parametrize("threads", [1, 2])
def test_units_of_open_images_are_those_of_exact_ones(threads: int) -> None:
    """Whichever came first: small ones do not make units narrow, nor few panels a thread idle."""

    def images(count: Any, places: Any, depth: int) -> NormalForm:
        return NormalForm(
            "f32",
            (),
            (Dim(64, depth, 0, places),),
            (Dim(count, 0, depth * places, 64 * places), Dim(places, 0, 1, 1)),
            (Dim(depth, 1, places),),
        )

    hardware = gemm.hardware_of(named("x86-64-v4"))
    for depth, sizes in (576, [(8, 24), (1, 16)]), (32, [(8, 96), (4, 256), (4, 1024)]):
        scope = Scope()
        scope.typing = False
        open_sizes = scope.symbol("b", 1), scope.symbol("p", 64)
        units = gemm.plan(images(*open_sizes, depth), hardware, threads=threads).units
        assert not scope.guards
        for count, places in sizes:
            exact = gemm.plan(images(count, places, depth), hardware, threads=threads)
            made = units.value({"b": count, "p": places}) if isinstance(units, Size) else units
            assert made == exact.units, (depth, count, places)


def test_the_dump_says_when_columns_are_joined(tmp_path: Path) -> None:
    made = gc.compile(convolved, sizes={"x": ("b", 16, "h", "w")}, dump=tmp_path)
    made(np.ones((2, 16, 8, 8), np.float32), np.ones((40, 16, 3, 3), np.float32))
    text = (tmp_path / "index.txt").read_text()
    assert re.search(r"columns in runs of .*: of fewer than \d+ side by side one product", text)
