"""Writes: x[index] = v in functional form against NumPy, scatters, moving blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_harness import check_samples, lowered, same, traced

import graphc as gc
from graphc.errors import GraphError, RunError, TraceError
from graphc.ir.op import OPS
from graphc.ops.index import dynamic, update
from graphc.ops.index.scatter import UPDATES, scatter_rows
from graphc.ops.record.value import METHODS, emit

X = np.arange(60.0).reshape(3, 4, 5)
V = np.arange(7, dtype=np.int32)
ROWS = np.array([[0, 2], [-1, 1]])


@pytest.mark.parametrize(
    "name", ["scatter", "slice_update", "dynamic_slice", "dynamic_update_slice"]
)
def test_samples(name: str) -> None:
    check_samples(OPS[name])


@pytest.mark.parametrize("mode", UPDATES)
@pytest.mark.parametrize("width", [63, 64, 300])
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_long_rows(mode: str, width: int, threads: int) -> None:
    """In which order equal positions are written does not depend on who writes them."""
    rng = np.random.default_rng(width)
    x, updates = (rng.integers(-9, 9, (n, width)).astype(np.float32) for n in (97, 500))
    places = rng.integers(-97, 97, 500)
    fn = gc.compile(lambda x, i, u: emit("scatter", x, i, u, mode=mode, drop=True), threads=threads)
    for wild in (places, np.where(places % 7 == 0, 97 + places, places)):
        want = OPS["scatter"].reference(x, wild, updates, mode, True)
        np.testing.assert_array_equal(fn(x, wild, updates), want)
    strict = gc.compile(lambda x, i, u: emit("scatter", x, i, u, mode=mode), threads=threads)
    with pytest.raises(RunError, match="out of range"):
        strict(x, np.append(places[1:], 97), updates)


WRITES: list[tuple[Any, tuple[int, ...]]] = [
    (0, (4, 5)), (0, ()), ((0, 1, 2), ()), (slice(1, None), (2, 4, 5)), (..., (3, 4, 5)),
    ((slice(None), slice(None, None, 2)), (3, 2, 5)), ((..., slice(None, None, -1)), (5,)),
    ((..., slice(3, 0, -2)), (3, 4, 2)), ((..., -1), (3, 4)), ((0, None, 1), (1, 5)),
    (slice(2, 2), (0, 4, 5)), (slice(None), (1, 1, 1, 5)), ([0, 2], (2, 4, 5)), ([0, 2], (5,)),
    ((0, [0, 3]), (2, 5)), ((slice(None), ROWS), (3, 2, 2, 5)), (([0, 1], [2, 3]), (2, 5)),
    (([0, 1], slice(None), [2, 3]), (2, 4)), ((..., [1, -1]), (3, 4, 2)), (([0, 1], 2), (2, 5)),
    ((np.array([True, False, True]),), (2, 4, 5)), (X[:, :, 0] > 20, (5,)), (X > 30, ()),
    ((slice(0, 2), [1, 3]), (2, 2, 5)), ((None, [0, 1]), (1, 2, 4, 5)), ((1, ..., [0, 1]), (2, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("index", "shape"), WRITES, ids=lambda v: str(v)[:40].replace("\n", ""))
def test_setitem_is_numpys(index: Any, shape: Any) -> None:
    value = -np.arange(float(np.prod(shape, dtype=int))).reshape(shape) - 1
    expected = X.copy()
    expected[index] = value
    made = traced(lambda x, v: METHODS["setitem"](x, index, v), X, value, lower=True)
    same(made, expected)


@pytest.mark.parametrize("mode", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("index", [0, (..., slice(None, None, 2)), [1, 1, -1], (0, [0, 0])])
def test_updates_accumulate(mode: str, index: Any) -> None:
    ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
    value = np.arange(float(X[index].size)).reshape(X[index].shape) * 3 - 20
    expected = X.copy()
    ufunc.at(expected, index, value)
    made = traced(lambda x, v: update.index_update(x, index, v, mode), X, value, lower=True)
    same(made, expected)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8])
def test_extremes_of_segments(mode: str, dtype: Any) -> None:
    """Many for one place, rising, falling and of a NaN, which stays."""
    rng = np.random.default_rng(5)
    ids = np.sort(rng.integers(0, 9, 200))
    values = [np.arange(200) % 100, np.arange(200)[::-1] % 100, rng.integers(0, 100, 200)]
    ufunc = {"min": np.minimum, "max": np.maximum}[mode]
    for updates in (v.astype(dtype) for v in values):
        if updates.dtype.kind == "f":
            updates[[3, 150]] = np.nan

        def call(ids: Any, updates: Any) -> Any:
            made = np.full(10, 50, dtype)
            ufunc.at(made, ids, updates)
            return made

        np.testing.assert_array_equal(gc.compile(call)(ids, updates), call(ids, updates))


def test_traced_positions() -> None:
    def function(x: Any, i: Any, rows: Any) -> Any:
        set_ = METHODS["setitem"]
        return set_(x, i, 0), set_(x, (slice(None), rows), x[0, 0]), set_(x, (i, i, rows), 1)

    i, rows = np.array(-1), np.array([0, -2], np.int32)
    expected = [X.copy() for _ in range(3)]
    expected[0][i], expected[1][:, rows], expected[2][i, i, rows] = 0, X[0, 0], 1
    same(traced(function, X, i, rows, lower=True), tuple(expected))


def test_traced_masks() -> None:
    mask = X > 30
    set_ = METHODS["setitem"]
    expected = X.copy()
    expected[mask] = 0
    same(traced(lambda x, m: set_(x, m, 0), X, mask), expected)
    expected[mask] += 2
    same(traced(lambda x, m: update.index_update(set_(x, m, 0), m, 2, "add"), X, mask), expected)
    rows = mask[:, :, 0]
    expected = X.copy()
    expected[rows] = np.arange(5)
    same(traced(lambda x, m: set_(x, m, np.arange(5)), X, rows), expected)
    with pytest.raises(TraceError, match="mask"):
        traced(lambda x, m: set_(x, m, np.arange(3)), V, V > 2)


def test_value_takes_the_dtype_of_the_array() -> None:
    expected = V.copy()
    expected[1:3] = 2.7
    same(traced(lambda x: METHODS["setitem"](x, slice(1, 3), 2.7), V), expected)


def test_narrow_and_bool_arrays() -> None:
    half = np.zeros(3, np.float16)
    same(
        traced(lambda x: update.index_update(x, [1, 1], np.float16(0.1), "add"), half, lower=True),
        np.array([0, 0.2, 0], np.float16),
        1e-3,
    )
    flags = np.array([True, False, False])
    made = traced(lambda x: update.index_update(x, [0, 1], [False, True], "add"), flags, lower=True)
    same(made, np.array([True, True, False]))


def test_out_of_range() -> None:
    with pytest.raises(RunError):
        lowered("scatter", (V, np.array([7]), V[:1]), {})
    with pytest.raises(TraceError, match="out of range"):
        traced(lambda x: METHODS["setitem"](x, [9], 1), V)
    with pytest.raises(TraceError, match="out of range"):
        traced(lambda x: METHODS["setitem"](x, 9, 1), V)
    with pytest.raises(GraphError):
        traced(lambda x: METHODS["setitem"](x, slice(0, 2), np.arange(3)), V)
    same(scatter_rows(V, np.array([7, 1]), 0, drop=True), np.array([0, 0, 2, 3, 4, 5, 6], np.int32))


def test_put_along_axis() -> None:
    order = np.argmax(X, axis=1, keepdims=True)
    expected = X.copy()
    np.put_along_axis(expected, order, -1, 1)
    same(traced(lambda x, i: update.put_along_axis(x, i, -1.0, 1), X, order, lower=True), expected)


def test_moving_blocks() -> None:
    def function(x: Any, starts: Any, block: Any) -> Any:
        return (
            dynamic.dynamic_slice(x, starts, (1, 2, 3)),
            dynamic.dynamic_update_slice(x, block, [0, starts[1], starts[2]]),
        )

    starts, block = np.array([-4, 1, 9]), -np.ones((2, 2, 2))
    expected = X.copy()
    expected[:2, 1:3, 3:5] = -1
    made = traced(function, X, starts, block, lower=True)
    same(made, (X[:1, 1:3, 2:5], expected))
    with pytest.raises(GraphError):
        traced(lambda x: dynamic.dynamic_slice(x, [0, 0, 0], (4, 1, 1)), X)
    with pytest.raises(GraphError):
        traced(lambda x: dynamic.dynamic_slice(x, [0], (1, 1, 1)), X)
