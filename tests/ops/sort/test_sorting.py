"""Sorting, searching, counting: kernels run as plain Python against NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from effort import crossed
from op_harness import check_samples, same, traced

import graphc as gc
from graphc.codegen.numba.route import emitted, library_module
from graphc.errors import GraphError
from graphc.ir.op import OPS
from graphc.ir.types import DTYPES, I64, U32
from graphc.ops.record.value import NUMPY, functions
from graphc.ops.reduce import counting, quantiles
from graphc.ops.sort import sorting
from graphc.ops.sort.sort_kernels import RADIX
from graphc.runtime.load import load

RNG = np.random.default_rng(1)
X = RNG.integers(0, 9, (4, 7)).astype(np.float64)
X[1, 3] = X[2, 0] = np.nan
N = RNG.integers(-9, 9, (3, 5)).astype(np.int32)


@pytest.mark.parametrize(
    "name",
    [
        "sort",
        "argsort",
        "topk",
        "sort_keys",
        "argsort_keys",
        "topk_keys",
        "searchsorted",
        "nonzero",
        "occurrences",
    ],
)
def test_samples(name: str) -> None:
    check_samples(OPS[name])


@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("x", [X, N, N > 0, N.astype(np.float16), N.astype(np.uint8)])
def test_sorts_are_numpys(x: Any, axis: Any) -> None:
    same(traced(lambda v: NUMPY[np.sort](v, axis), x, lower=True), np.sort(x, axis))
    expected = np.argsort(x, axis, kind="stable")
    same(traced(lambda v: NUMPY[np.argsort](v, axis), x, lower=True), expected)


def test_descending_is_stable_with_nans_first() -> None:
    x = np.array([2.0, np.nan, 1, 2, np.nan, 0])
    order = traced(lambda v: sorting.argsort(v, descending=True), x, lower=True)
    assert order.tolist() == [1, 4, 0, 3, 2, 5]
    same(traced(lambda v: sorting.sort(v, descending=True), x), x[order])


@pytest.mark.parametrize("largest", [True, False])
def test_topk(largest: bool) -> None:
    x = RNG.standard_normal((3, 200))
    order = np.argsort(-x if largest else x, axis=1, kind="stable")
    for k in (1, 5, 100):
        values, places = traced(lambda v, k=k: sorting.topk(v, k, 1, largest), x, lower=True)
        same(places, order[:, :k])
        same(values, np.take_along_axis(x, order[:, :k], 1))
    values, places = traced(lambda v: sorting.topk(v, 2, 0, largest), x)
    assert values.shape == places.shape == (2, 200)


def test_orders() -> None:
    keys = np.array([[1, 0, 1, 0], [2, 2, 1, 1]])
    same(traced(lambda k: NUMPY[np.lexsort](k), keys), np.lexsort(keys))
    made = traced(lambda v: NUMPY[np.partition](v, 3), N)
    assert (made[:, :3] <= made[:, 3:4]).all()
    with pytest.raises(GraphError):
        traced(lambda v: NUMPY[np.partition](v, 5), N)


@pytest.mark.parametrize("method", quantiles._METHODS)
def test_quantiles(method: str) -> None:
    for q in (0.3, np.array([0.1, 0.5, 1.0]), np.array([[0.0, 0.75]])):
        for axis, keepdims in ((None, False), (1, False), (0, True), ((0, 1), True)):
            named = {"axis": axis, "method": method, "keepdims": keepdims}
            made = traced(lambda v, q=q, named=named: NUMPY[np.quantile](v, q, **named), X)
            same(made, np.quantile(X, q, **named), 1e-12)
    same(traced(lambda v: NUMPY[np.percentile](v, 40), N), np.percentile(N, 40), 1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda v: sorting.topk(v, 8),
        lambda v: sorting.topk(v, 0),
        lambda v: sorting.sort(v, 2),
        lambda v: sorting.sort(v + 1j, descending=True),
        lambda v: quantiles.quantile(v, 0.5, method="inverted_cdf"),
    ],
)
def test_misuse_is_refused(function: Any) -> None:
    with pytest.raises(GraphError):
        traced(function, X)


CALLS: list[tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = [
    (np.searchsorted, np.sort(N[0]), (N,), {}),
    (np.searchsorted, np.sort(N[0]), (2.5,), {"side": "right"}),
    (np.searchsorted, N[0], (N,), {"sorter": np.argsort(N[0])}),
    (np.digitize, X, (np.array([1.0, 3, 6]),), {}),
    (np.digitize, X, (np.array([6.0, 3, 1]),), {"right": True}),
    (np.interp, X, (np.array([0.0, 2, 5]), np.array([1.0, 0, 4])), {}),
    (np.interp, X, (np.array([1.0, 2, 5]), np.array([1.0, 0, 4])), {"left": -9, "right": 9}),
    (np.interp, X, (np.array([1.0]), np.array([7.0])), {}),
    (np.histogram, X[0], (), {}),
    (np.histogram, N, (4,), {"range": (-5, 5)}),
    (np.histogram, N, (np.array([-5, 0, 1, 9]),), {"density": True}),
    (np.isin, N, (np.array([1, 2, -3]),), {}),
    (np.isin, N, ([0],), {"invert": True}),
    (np.choose, N % 3, ([N, N * 2, -N],), {}),
    (np.choose, N, ([N, N * 2],), {"mode": "wrap"}),
    (np.compress, N, (), {}),
    (np.unravel_index, np.abs(N), ((3, 5),), {}),
]


@pytest.mark.parametrize(("function", "x", "rest", "named"), CALLS)
def test_function_is_numpys(function: Any, x: Any, rest: Any, named: Any) -> None:
    if function is np.compress:
        made = traced(lambda v: NUMPY[np.compress]([True, False, True], v, axis=0), x)
        same(made, np.compress([True, False, True], x, axis=0))
        return
    made = traced(lambda v: NUMPY[function](v, *rest, **named), x, lower=True)
    same(made, function(x, *rest, **named), 1e-12)


def test_positions_of_fixed_size() -> None:
    mask = N > 0
    total = int(mask.sum())
    for size in (total, total + 3, 2):
        made = traced(
            lambda m, n=size: functions.nonzero(m, size=n, fill_value=-1), mask, lower=True
        )
        expected = [np.append(p, np.full(9, -1))[:size] for p in np.nonzero(mask)]
        expected = [np.where(np.arange(size) < total, e, -1) for e in expected]
        same(made, tuple(expected))
    same(traced(lambda v: NUMPY[np.argwhere](v, size=total), N * mask), np.argwhere(mask))
    same(traced(lambda v: NUMPY[np.flatnonzero](v, size=total), mask), np.flatnonzero(mask))
    same(traced(lambda v, m: v[functions.nonzero(m, size=total)], N, mask), N[mask])
    for name in (np.nonzero, np.unique, np.bincount):
        with pytest.raises(GraphError, match="depends on data"):
            traced(lambda v, f=name: NUMPY[f](v), N[0])


def test_distinct_values() -> None:
    named = {"return_index": True, "return_inverse": True, "return_counts": True}
    for x in (N, X, np.array([3.0])):
        expected = np.unique(x, **named)
        size = len(expected[0])
        same(traced(lambda v, n=size: counting.unique(v, **named, size=n), x, lower=True), expected)
    values, counts = traced(
        lambda v: counting.unique(v, return_counts=True, size=9, fill_value=-1), np.array([2, 1, 2])
    )
    assert values.tolist() == [1, 2] + [-1] * 7
    assert counts.tolist() == [1, 2] + [0] * 7


def test_places_in_tables_of_every_length() -> None:
    special = np.array([-np.inf, -1, -0.0, 0, 2, 3, np.inf, np.nan, np.nan], np.float32)
    for length in (*range(10), 15, 16, 17, 31, 33, 100):
        table = np.sort(RNG.choice(special, length))
        for side in ("left", "right"):
            made = traced(lambda a, v, s=side: gc.searchsorted(a, v, s), table, special, lower=True)
            same(made, np.searchsorted(table, special, side))


def test_counts_and_rows() -> None:
    x = np.array([1, 4, 1, 0, 7])
    for length in (9, 3):
        made = traced(lambda v, n=length: counting.bincount(v, length=n), x, lower=True)
        same(made, np.bincount(x, minlength=9)[:length])
    weights = np.arange(5.0)
    same(traced(lambda v: counting.bincount(v, weights, length=8), x), np.bincount(x, weights))
    same(traced(lambda v: counting.one_hot(v, 5), x), (x[:, None] == np.arange(5)).astype("f4"))
    made = traced(lambda v: counting.one_hot(v, 5, bool, axis=0), x)
    same(made, x == np.arange(5)[:, None])
    same(counting.select([x > 3, x > 0], [x, -x], 9), np.select([x > 3, x > 0], [x, -x], 9))


@pytest.mark.parametrize(
    ("shape", "name"),
    crossed(
        [(64, 1), (65, 3), (2, 40, 17), (70, 64), (17, 130)] * 2,
        ["u8", "i32", "f32", "i64", "f64", "f32"],
    ),
)
def test_many_rows(name: str, shape: tuple[int, ...]) -> None:
    """Rows in lanes, the last ones not full; equal keys keep their order."""
    x = (20 * np.random.default_rng(3).standard_normal(shape)).astype(DTYPES[name].numpy)
    if x.dtype.kind == "f":
        x[..., ::7] = np.nan
    sort = gc.compile(lambda v: (np.sort(v), np.argsort(v), gc.argsort(v, descending=True)))
    made, places, backwards = sort(x)
    same(made, np.sort(x))
    same(places, np.argsort(x, kind="stable"))
    turned = np.argsort(x[..., ::-1], kind="stable")[..., ::-1]
    same(backwards, x.shape[-1] - 1 - turned)


@pytest.mark.parametrize("result", ["keys", "positions"])
def test_a_radix_sort_of_a_cancelled_run_stops(result: str) -> None:
    """Called as the walker calls it: the address of the flag lies before the operands."""
    out = U32 if result == "keys" else I64
    kinds = U32, out, out, I64
    code = emitted(library_module(RADIX[result], kinds, "radix", params=2, ranged=True))
    linked = load.link(code, ["radix"])
    native = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)
    for cancelled in (0, 1):
        keys = RNG.integers(0, 1 << 32, 1000).astype(np.uint32)
        made, work = (np.zeros(1000, out.numpy) for _ in range(2))
        arrays = [np.array([cancelled]), keys, made, work, np.zeros(1024, np.int64)]
        buffers = np.array([a.ctypes.data for a in arrays])
        params = np.array([*(a.size for a in arrays[1:]), 1000, 4])
        status = native(linked["radix"])(buffers.ctypes.data + 8, params.ctypes.data, 0, 1, 0)
        assert status == -cancelled
        wanted = np.sort(keys) if result == "keys" else np.argsort(keys, kind="stable")
        assert (made == wanted).all() == (not cancelled)


NAN = float("nan")
HALF_MISSING = np.array(
    [1j, 2, complex(0, NAN), complex(NAN, 1), complex(NAN, NAN), complex(NAN, 0), complex(-3, NAN)]
)


@pytest.mark.parametrize(
    "function", [np.sort, np.argsort, np.sort_complex, np.nanmedian, np.median]
)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_with_nan_are_ordered_as_by_numpy(function, dtype) -> None:
    x = HALF_MISSING.astype(dtype)
    np.testing.assert_array_equal(gc.compile(lambda x: function(x))(x), function(x))


def test_interpolation_keeps_imaginary_parts_and_counts_refuse_them() -> None:
    x, fp = np.array([-1, 0.5, 3]), np.array([1 + 1j, 2])
    interpolated = gc.compile(lambda x, fp: np.interp(x, np.arange(2.0), fp))(x, fp)
    np.testing.assert_allclose(interpolated, np.interp(x, np.arange(2.0), fp))
    with pytest.raises(gc.GraphError, match="real numbers"):
        gc.compile(lambda x, w: np.bincount(x, w, minlength=2))(np.array([1, 0]), fp)
