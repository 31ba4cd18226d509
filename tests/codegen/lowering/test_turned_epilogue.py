"""Columns of finished sums that become rows: images whose pixels are rows of a product, as their
constant weights are its panels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import graphc as gc
from graphc.codegen import gemm
from graphc.codegen.gemm import Dim, NormalForm
from graphc.codegen.llvm.target import named
from graphc.ir.sizes import Scope
from graphc.ops.reference.interpreter import interpret
from graphc.tuning import chosen

LIMITS = {"float32": 1e-4, "float64": 1e-11}
ACROSS = {"codegen.across_steps": 0, "codegen.window_steps": 0}  # also where no lanes are empty


def as_they_are(y: Any, *operands: Any) -> Any:
    return y


def residual(y: Any, bias: Any, other: Any, rows: Any, pixels: Any) -> Any:
    return np.maximum(y + bias + other, 0)


def broadcast(y: Any, bias: Any, other: Any, rows: Any, pixels: Any) -> Any:
    return y * rows - pixels, np.tanh(y)


def elsewhere(y: Any, bias: Any, other: Any, rows: Any, pixels: Any) -> Any:
    return (y + other).transpose(0, 2, 3, 1)


TAILS = as_they_are, residual, broadcast, elsewhere


def check(
    tail: Callable[..., Any], sizes: tuple[int, ...], kind: str, threads: int, run: int = 1
) -> list[gemm.Plan]:
    """A convolution with a tail beside the interpreter; the plans that were made for it."""
    images, channels, filters, height, width, side, step = sizes
    generator = np.random.default_rng(sum(sizes))

    def drawn(*shape: int) -> Any:
        return generator.standard_normal(shape).astype(kind)

    weights = drawn(filters, channels, side, side)
    down, right = (-(-extent // step) for extent in (height, width))
    shapes = (1, filters, 1, 1), (images, filters, down, right), (1, 1, down, 1)
    given = [drawn(images, channels, height + side - 1, width + side - 1)]
    given += [drawn(*shape) for shape in (*shapes, (images, 1, down, right))]

    def function(x: Any, *operands: Any) -> Any:
        return tail(gc.conv(x, weights, stride=step), *operands)

    plans: list[gemm.Plan] = []
    plan = gemm.plan

    def noted(*form: Any, **options: Any) -> gemm.Plan:
        plans.append(plan(*form, **options))
        return plans[-1]

    with pytest.MonkeyPatch.context() as patch, chosen(ACROSS | {"codegen.turned_run": run}):
        patch.setattr(gemm, "plan", noted)
        compiled = gc.compile(function, threads=threads)
        found = compiled(*given)
    wanted = interpret(compiled.graph(*given), given)
    results = found if isinstance(found, tuple) else (found,)
    for result, want in zip(results, wanted, strict=True):
        scale = np.abs(want).max()
        np.testing.assert_allclose(result, want, 0, LIMITS[kind] * scale)
    return plans


KNOWN = [
    (residual, (1, 128, 64, 14, 14, 1, 1)),
    (residual, (3, 130, 67, 7, 9, 1, 1)),  # runs of 63, which tiles of rows begin within
    (as_they_are, (2, 160, 48, 10, 10, 1, 1)),
    (broadcast, (2, 140, 34, 5, 11, 1, 1)),
    (elsewhere, (2, 129, 40, 6, 8, 1, 1)),
    (residual, (2, 24, 40, 7, 7, 3, 1)),
    (broadcast, (3, 16, 70, 13, 15, 3, 2)),
    (residual, (9, 300, 33, 3, 3, 1, 1)),
    (residual, (1, 700, 288, 19, 20, 1, 1)),  # several blocks of rows, and of steps
]


@pytest.mark.parametrize(("tail", "sizes"), KNOWN)
def test_pixels_of_images_are_rows(tail: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    for threads in (1, 2):
        plans = check(tail, sizes, "float32", threads)
        assert tail is elsewhere or any(plan.turned for plan in plans)


@pytest.mark.slow
@examples(25, derandomize=True)
@given(data=st.data())
def test_any_images(data: st.DataObject) -> None:
    few = st.integers(1, 4)
    images, side, step, threads = (data.draw(few) for _ in range(4))
    height, width = (data.draw(st.integers(1, 17)) for _ in range(2))
    channels = data.draw(st.sampled_from([20, 64, 130, 290, 600]))
    filters = data.draw(st.integers(16, 90))
    sizes = images, channels, filters, height, width, side, step
    kind = data.draw(st.sampled_from([*LIMITS]))
    run = data.draw(st.sampled_from([1, 1, 8, 40]))
    check(data.draw(st.sampled_from(TAILS)), sizes, kind, threads, run)


def pixels(images: Any, area: Any, filters: int = 64, depth: int = 128) -> NormalForm:
    """A convolution by single pixels, with constant weights and an epilogue."""
    return NormalForm(
        "f32",
        (),
        (Dim(images, depth * area, 0, filters * area), Dim(area, 1, 0, 1)),
        (Dim(filters, 0, depth, area),),
        (Dim(depth, area, 1),),
        prepacked=(False, True),
    )


def test_runs_of_pixels_are_turned_where_they_are_known_to_be_long() -> None:
    hardware = gemm.hardware_of(named("znver4"))

    def turned(images: Any, area: Any, **options: Any) -> tuple[bool, int]:
        options = {"epilogue": True, "packed_b": True} | options
        plan = gemm.plan(pixels(images, area), hardware, **options)
        return plan.turned, plan.run

    assert turned(1, 196) == (True, 0)
    assert turned(8, 49) == (True, 49)
    assert turned(8, 4) == (False, 0)
    assert turned(8, 49, epilogue=False) == (False, 0)
    assert turned(8, 49, sources=(3, 0)) == (False, 0)
    scope = Scope()
    scope.typing = False
    assert not turned(scope.symbol("b", 8), 49)[0]
    assert not scope.guards


def test_images_are_rows_where_each_of_them_leaves_lanes_empty() -> None:
    """Not counted together: each is a product of its own where its pixels are columns."""
    hardware = gemm.hardware_of(named("znver4"))
    for images, area, rows in ((8, 196, True), (8, 208, False), (8, 784, False), (16, 100, True)):
        plan = gemm.plan(pixels(images, area), hardware, epilogue=True, packed_b=True)
        assert plan.turned is rows, (images, area)
