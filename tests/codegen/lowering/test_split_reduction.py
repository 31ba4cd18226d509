"""Folds of one long outer axis, or of all elements: in parts, and several rows in a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effort import crossed, few

import graphc as gc
from graphc.codegen.lowering.lower import lower_loops
from graphc.codegen.lowering.space import space_of
from graphc.codegen.lowering.split_reduction import Shape, rows_together
from graphc.codegen.tuning import tuned
from graphc.loops.nest import Kernel

RNG = np.random.default_rng(5)
FOLDS = ("sum", "mean", "max", "min", "argmax", "argmin")


def draw(*shape: int, dtype: str = "f4") -> np.ndarray:
    x = RNG.standard_normal(shape) if dtype[0] == "f" else RNG.integers(-9, 9, shape)
    return x.astype(dtype)


def kernel_of(function: Callable[..., Any], *arguments: Any) -> Kernel:
    """The loop kernel of a function that is one."""
    stages = {s[0]: s[1] for s in gc.compile(function).stages(*arguments)}
    (node,) = (n for n in stages["fuse"].graphs[0].nodes if n.op.name == "fused")
    return lower_loops(node.regions[0], "kernel")[0]


def check(function: Callable[..., Any], *arguments: Any, rtol: float = 1e-5) -> None:
    """The results are right, and equal with one thread and with three."""
    wide = [a.astype("f8") if a.dtype.kind == "f" else a for a in arguments]
    one, three = (gc.compile(function, threads=t)(*arguments) for t in (1, 3))
    expected = function(*wide)
    for a, b, want in zip(*map(listed, (one, three, expected)), strict=True):
        np.testing.assert_array_equal(a, b)
        scale = float(np.nanmax(np.abs(want))) if np.size(want) else 0.0
        np.testing.assert_allclose(a, want, rtol=rtol, atol=rtol * max(scale, 1e-30))


def listed(value: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("width", few([1, 2, 3, 5, 7, 8, 12, 31, 32, 33, 600], 6))
def test_long_axes_of_any_width(width: int) -> None:
    x = draw(max(150_011 // width, 300), width)
    check(lambda x: x.sum(axis=0), x)
    check(lambda x: (x.max(axis=0), x.argmin(axis=0)), x)


@pytest.mark.parametrize(
    ("fold", "dtype"), crossed(FOLDS * 3, ["f2", "f4", "f8", "i1", "i4", "u8", "f2"])
)
def test_every_fold_of_every_element_type(fold: str, dtype: str) -> None:
    x = draw(2003, 6, dtype="i4" if dtype == "u8" else dtype)
    x = abs(x).astype(dtype) if dtype == "u8" else x
    check(lambda x: getattr(x, fold)(axis=0), x, rtol=2e-3 if dtype == "f2" else 1e-5)


@pytest.mark.parametrize("parts", [1, 5, 64])
@pytest.mark.parametrize("shape", [(4, 1100, 3), (2, 2100, 40), (1, 4097, 8)])
def test_kept_axes_outside_and_parts(
    shape: tuple[int, ...], parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = shape[1] * shape[2] // parts
    monkeypatch.setattr(tuned, "tall_part", elements)
    x = draw(*shape) * RNG.uniform(1, 1.01)  # another graph each time
    check(lambda x: (x.sum(axis=1), (x * x).mean(axis=1)), x)


def test_leading_axes_and_all_axes() -> None:
    x = draw(70, 61, 8)
    check(lambda x: x.sum(axis=(0, 1)), x)
    check(lambda x: (x - x[0, 0]).max(axis=(0, 1), keepdims=True), x)
    check(lambda x: ((x * x).sum(), x.max(), abs(x).mean()), x)
    y = draw(200_003)
    check(lambda y: (y.sum(), y.argmax()), y)


def test_variance_and_operands_of_each_kind() -> None:
    x, w, column = draw(5003, 5), draw(5), draw(5003, 1)
    check(lambda x: (x.var(axis=0), x.var()), x, rtol=1e-4)
    check(lambda x, w: ((x * w - 1).sum(axis=0) * w, (x + w).min(axis=0)), x, w)
    check(lambda x, c: (x * c).sum(axis=0), x, column)
    check(lambda x: (x * np.arange(5, dtype=np.float32) + x[:, :1]).sum(axis=0), x)


def test_full_results_are_stored_beside_the_folds() -> None:
    x, y = draw(4001, 3), draw(4001, 3)
    check(lambda x, y: (x + y, (x + y).sum(axis=0), np.exp(x).max(axis=0)), x, y)


def test_nan_wins_and_small_or_ordered_folds_stay_plain() -> None:
    x = draw(9001, 7)
    x[8999, 2] = x[3, 4] = np.nan
    check(lambda x: (x.max(axis=0), x.argmax(axis=0)), x)
    assert kernel_of(lambda x: x.sum(axis=0), draw(100, 8)).then is None
    wide = draw(200_000, 8)
    assert kernel_of(lambda x: x.sum(axis=0), wide).then is not None
    in_order = np.add.accumulate(wide.astype(np.float64), axis=0)[-1].astype(np.float32)
    made = gc.compile(lambda x: x.sum(axis=0), fast_math=False)(wide)
    np.testing.assert_array_equal(made, in_order)


def test_rows_that_fill_vectors() -> None:
    assert [rows_together(w, 4) for w in (1, 2, 3, 4, 8, 12)] == [32, 16, 16, 8, 4, 4]
    assert [rows_together(w, 8) for w in (1, 2, 3, 4, 8, 12)] == [16, 8, 16, 4, 2, 4]
    assert all(rows_together(w, 4) * w % tuned.tall_vector == 0 for w in range(1, 32))


def test_parts_depend_on_the_shape_alone() -> None:
    region = []
    for threads in (1, 4):
        compiled = gc.compile(lambda x: x.sum(axis=0), threads=threads)
        stages = {s[0]: s[1] for s in compiled.stages(draw(100_000, 8))}
        (node,) = (n for n in stages["fuse"].graphs[0].nodes if n.op.name == "fused")
        region.append(node.regions[0])
    parts = {Shape(r, space_of(r)).parts for r in region}
    assert parts == {100_000 * 8 // tuned.tall_part}
