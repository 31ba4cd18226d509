"""Rows that several passes read: those that come from afar are asked for ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as gc
from graphc.codegen.gemm.hardware import cache_size
from graphc.codegen.llvm import kernel as llvm
from graphc.codegen.llvm.target import host
from graphc.codegen.lowering.lower import lower_loops
from graphc.codegen.python import source
from graphc.codegen.tuning import tuned
from graphc.config import Config
from graphc.ir.graph import Program
from graphc.loops.nest import For, Kernel, Prefetch, walk
from graphc.passes import pipeline

FAR = int(tuned.far_share * cache_size(3)) // 8  # elements of f32 that are read and written


def layer_norm(x: Any, g: Any) -> Any:
    centred = x - gc.mean(x, axis=-1, keepdims=True)
    return centred / gc.sqrt(gc.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * g


def softmax(x: Any, g: Any) -> Any:
    powers = gc.exp(x - gc.max(x, axis=-1, keepdims=True))
    return powers / gc.sum(powers, axis=-1, keepdims=True)


def softmax_across(x: Any, g: Any) -> Any:
    """The greatest of each column, over square x, less than which a row may not be."""
    powers = gc.exp(x - gc.reshape(gc.max(x, axis=0), (-1, 1)))
    return powers / gc.sum(powers, axis=-1, keepdims=True)


def log_sum_exp(x: Any, g: Any) -> Any:
    return gc.log(gc.sum(gc.exp(x - gc.max(x, axis=-1, keepdims=True)), axis=-1))


def scaled(x: Any, g: Any) -> Any:
    return x * g


def kernel_of(function: Callable[..., Any], rows: int, columns: int) -> Kernel:
    """The one loop kernel of a function of x f32[rows, columns] and g f32[columns]."""
    specs = gc.spec((rows, columns), "f32"), gc.spec((columns,), "f32")
    graph = gc.compile(function).graph(*specs)
    program = pipeline.run(graph, Config())[-1].value
    assert isinstance(program, Program)
    fused = [n for n in program.graphs[0].nodes if n.op.name == "fused"]
    assert [n.attrs["kind"] for n in fused] == ["loop"]
    return lower_loops(fused[0].regions[0], "kernel")[0]


def asked(kernel: Kernel) -> list[Prefetch]:
    return [s for s in walk(kernel.body) if isinstance(s, Prefetch)]


def test_far_rows_are_asked_for() -> None:
    kernel = kernel_of(layer_norm, FAR // 1024, 1024)
    assert [(p.buffer.mode, p.count) for p in asked(kernel)] == [("in", 64), ("out", 64)]
    lines = llvm.emit(kernel, host()).count("call void @llvm.prefetch")
    assert lines == 2 * 64 * 4 // 64
    assert source.emit(kernel).count("# soon: 64 from") == 2


@pytest.mark.parametrize("function", [scaled, softmax, log_sum_exp])
def test_one_pass_and_costly_rows_ask_for_nothing(function: Callable[..., Any]) -> None:
    assert not asked(kernel_of(function, FAR // 512, 1024))


def test_near_rows_and_uneven_or_long_ones_ask_for_nothing() -> None:
    assert not asked(kernel_of(layer_norm, FAR // 1024 - 1, 1024))
    assert not asked(kernel_of(layer_norm, FAR // 512, 1000))
    assert not asked(kernel_of(layer_norm, FAR // 2048, 4096))


@pytest.mark.parametrize("columns", [64, 640, 1024, 2048])
def test_asking_changes_no_result(columns: int) -> None:
    far, near = int(tuned.far_share * cache_size(3)) // 4 // columns + 1, 8
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((far, columns)).astype(np.float32)
    g = rng.standard_normal(columns).astype(np.float32)
    compiled = gc.compile(layer_norm, threads=1)
    assert asked(kernel_of(layer_norm, far, columns))
    whole = compiled(x, g)
    for start in (0, far // 2, far - near):
        part = x[start : start + near]
        np.testing.assert_array_equal(compiled(part, g), whole[start : start + near])


def test_the_loop_over_a_row_is_whole() -> None:
    """Parts of a row are as long as all of it together."""
    kernel = kernel_of(layer_norm, FAR // 640 + 1, 640)
    outer = [s for s in walk(kernel.body) if isinstance(s, For) and s.kind == "serial"]
    inner = [s for s in walk(outer[0].body) if isinstance(s, For)]
    assert outer[0].stop.data * inner[0].stop.data == 640


def test_what_lacks_of_the_greatest_is_below_zero() -> None:
    specs = gc.spec((64, 64), "f32"), gc.spec((64,), "f32")
    for function, known in ((softmax, True), (log_sum_exp, True), (softmax_across, False)):
        program = pipeline.run(gc.compile(function).graph(*specs), Config())[-1].value
        assert isinstance(program, Program)
        fused = [n for n in program.graphs[0].nodes if n.op.name == "fused"]
        texts = [source.emit(lower_loops(n.regions[0], "kernel")[0]) for n in fused]
        assert any("exp_below_zero_f32(" in text for text in texts) == known
        assert any(" exp_f32(" in text for text in texts) != known


def test_rows_of_far_apart_infinite_and_missing_numbers() -> None:
    x = np.random.default_rng(5).uniform(-120, 120, (64, 64)).astype(np.float32)
    x[1, 3], x[2, 5], x[3, 7], x[4] = np.nan, np.inf, -np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        wanted = powers / powers.sum(axis=-1, keepdims=True)
        made = gc.compile(softmax)(x, x[0])
    np.testing.assert_allclose(made, wanted, rtol=2e-6, atol=1e-44)
    assert np.isnan(made[[1, 2, 4]]).all()
    assert np.isfinite(made[[0, 3, *range(5, 64)]]).all()


def ahead(kernel: Kernel) -> bool:
    """Does something pass from one row to the next?"""
    return not isinstance(kernel.body[0], For)


def test_costly_far_rows_find_the_greatest_of_the_next_one() -> None:
    assert ahead(kernel_of(softmax, FAR // 1024, 1024))
    assert ahead(kernel_of(log_sum_exp, FAR // 512, 1024))
    assert not ahead(kernel_of(softmax, FAR // 1024 - 1, 1024))
    assert not ahead(kernel_of(layer_norm, FAR // 1024, 1024))


@pytest.mark.parametrize("columns", [640, 1000])
@pytest.mark.parametrize("function", [softmax, log_sum_exp])
def test_what_is_found_ahead_changes_no_result(function: Callable[..., Any], columns: int) -> None:
    far = int(tuned.far_share * cache_size(3)) // 4 // columns + 1
    x = np.random.default_rng(columns).standard_normal((far, columns)).astype(np.float32)
    x[5] += 60  # no row is served by the greatest of another
    x[7, 3], x[9, 2] = np.nan, np.inf
    g = x[0]
    assert ahead(kernel_of(function, far, columns))
    with np.errstate(invalid="ignore"):
        whole = gc.compile(function, threads=1)(x, g)
        np.testing.assert_array_equal(gc.compile(function, threads=2)(x, g), whole)
        for start in (0, far // 2, far - 8):
            part = gc.compile(function, threads=1)(x[start : start + 8], g)
            np.testing.assert_array_equal(part, whole[start : start + 8])
        donated = gc.compile(function, threads=2, donate=["x"])(x.copy(), g)
    np.testing.assert_array_equal(donated, whole)


def test_the_readable_source_finds_ahead_too() -> None:
    far = int(tuned.far_share * cache_size(3)) // 4 // 4096 + 1
    x = np.random.default_rng(1).standard_normal((far, 4096)).astype(np.float32)
    made = gc.compile(softmax, backend="numba")(x, x[0])
    np.testing.assert_allclose(made, gc.compile(softmax)(x, x[0]), rtol=1e-6)
