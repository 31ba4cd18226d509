"""Reductions: type rules, references, expansions, and the public functions against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import case
from effort import crossed
from expand import expanded, traced
from op_harness import close

import graphc as gc
from graphc.errors import GraphError
from graphc.ir.types import DTYPES
from graphc.ops.record.value import NUMPY, PUBLIC
from graphc.ops.reference.interpreter import interpret
from graphc.ops.tuning import tuned

NAMES = [n for n in DTYPES if n != "bf16"]


REDUCTIONS = (np.sum, np.prod, np.max, np.min, np.mean, np.all, np.any, np.argmax, np.argmin,
              np.var, np.std, np.cumsum, np.cumprod, np.count_nonzero, np.nansum, np.nanprod,
              np.nanmax, np.nanmin, np.nanmean, np.nanvar, np.nanstd, np.ptp, np.average,
              np.linalg.norm, np.linalg.vector_norm)  # fmt: skip
ONE_AXIS = (np.argmax, np.argmin, np.cumsum, np.cumprod)
NO_COMPLEX = (np.max, np.min, np.argmax, np.argmin, np.cumprod, np.nanmax, np.nanmin, np.ptp)


def call(function, x, **options):
    try:
        with np.errstate(all="ignore"):
            return np.asarray(function(x, **options))
    except (TypeError, ValueError, GraphError):
        return None


@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
def test_public_function_equals_numpy(function) -> None:
    for name in NAMES:
        with case(name):
            rng = np.random.default_rng(0)
            x = (
                (rng.uniform(0, 3, (3, 2, 4)) * (1 + 0.5j)).astype(DTYPES[name].numpy)
                if (DTYPES[name].is_complex)
                else rng.uniform(0, 3, (3, 2, 4)).astype(DTYPES[name].numpy)
            )
            if x.dtype.kind == "c" and function in NO_COMPLEX:
                continue
            axes = [None, 0, -1] + ([] if function in ONE_AXIS else [(0, 2)])
            keeps = [{}] if function in (np.cumsum, np.cumprod) else [{}, {"keepdims": True}]
            for axis, options in itertools.product(axes, keeps):
                if function is np.linalg.norm and axis == (0, 2) and name == "f16":
                    continue
                want = call(function, x, axis=axis, **options)
                got = call(NUMPY[function], x, axis=axis, **options)
                assert (got is None) == (want is None), (axis, options)
                if got is not None:
                    assert got.dtype == want.dtype
                    assert got.shape == want.shape
                    close(got, want, DTYPES[name if got.dtype == x.dtype else "f32"], 20)


@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
def test_traced_function_equals_eager(function):
    x = np.random.default_rng(1).uniform(-2, 2, (3, 4)).astype(np.float32)
    x[1, 1] = np.nan
    axis = 1
    graph = traced(lambda v: NUMPY[function](v, axis=axis), [x])
    with np.errstate(all="ignore"):
        want = function(x, axis=axis)
    (got,) = interpret(expanded(graph), [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_initial_and_where():
    f, x = PUBLIC, np.arange(6, dtype=np.float32).reshape(2, 3)
    mask = np.array([[True, False, True], [False, False, False]])
    for name, numpy_function in (("sum", np.sum), ("prod", np.prod), ("max", np.max)):
        got = f[name](x, axis=1, initial=-1.0, where=mask)
        np.testing.assert_array_equal(got, numpy_function(x, axis=1, initial=-1.0, where=mask))
    np.testing.assert_array_equal(f["mean"](x, axis=0, where=mask), np.mean(x, 0, where=mask))
    np.testing.assert_array_equal(f["all"](mask, axis=1, where=mask), np.all(mask, 1, where=mask))
    assert f["max"](np.zeros((0, 2)), axis=0, initial=3.0).tolist() == [3.0, 3.0]
    assert f["sum"](np.ones(3, np.int8), dtype="f32").dtype == np.float32


def test_empty_maximum_names_the_axis():
    with pytest.raises(GraphError, match="axis 0"):
        PUBLIC["max"](np.zeros((0, 2)), axis=0)


@pytest.mark.parametrize("order", [None, "fro", 1, -1, np.inf, -np.inf])
def test_matrix_norms(order):
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(PUBLIC["norm"](x, order), np.linalg.norm(x, order))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, np.inf, -np.inf])
def test_vector_norms(order):
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(
        PUBLIC["norm"](x, order, axis=1), np.linalg.norm(x, order, axis=1), rtol=1e-12
    )


def test_weighted_average():
    x, w = np.arange(12.0).reshape(3, 4), np.array([1.0, 2.0, 0.5, 3.0])
    np.testing.assert_allclose(PUBLIC["average"](x, 1, w), np.average(x, 1, w))
    np.testing.assert_allclose(PUBLIC["average"](x, None, x), np.average(x, None, x))


def test_running_sums():
    x = np.arange(12).reshape(3, 4)
    got = PUBLIC["cumulative_sum"](x, axis=1, include_initial=True)
    np.testing.assert_array_equal(got, np.cumulative_sum(x, axis=1, include_initial=True))
    y = np.array([1, 3, np.nan, 2], np.float16)
    np.testing.assert_array_equal(PUBLIC["cummax"](y), np.maximum.accumulate(y))
    np.testing.assert_array_equal(PUBLIC["cummin"](-y), np.minimum.accumulate(-y))


RUNNING = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize(
    ("shape", "axis"), [((700, 3), 0), ((3, 700), 1), ((2, 5, 1300), 1), ((3, 2, 4, 6), 1)]
)
def test_running_folds_along_every_axis(name: str, shape: tuple[int, ...], axis: int) -> None:
    """Long rows, several blocks of lanes, several axes around; also backwards, also fused."""
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x[..., -1, 0] = np.nan if name in ("cummax", "cummin") else 1.0
    running = PUBLIC[name]

    def both(v):
        return 2 * running(v, axis=axis), running(v, axis=axis, reverse=True)

    forward, backward = gc.compile(both)(x)
    fold, wide = RUNNING[name], x.astype(np.float64)
    close(forward, 2 * fold.accumulate(wide, axis), DTYPES["f32"], 1)
    close(backward, np.flip(fold.accumulate(np.flip(wide, axis), axis), axis), DTYPES["f32"], 1)


def test_running_sum_of_negative_zeros_keeps_the_sign() -> None:
    assert np.signbit(gc.compile(lambda v: np.cumsum(v))(np.array([-0.0, -0.0], np.float32))).all()


@pytest.mark.parametrize("ddof", [0, 1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.filterwarnings("ignore:Degrees of freedom")
@pytest.mark.parametrize("function", [np.nanvar, np.nanstd])
def test_variance_of_too_few_numbers_is_nan(function, ddof: int, axis: int | None) -> None:
    x = np.array([[1, np.nan, 3.0], [np.nan] * 3, [1, 2, np.nan], [2, 3, 4]])
    made = gc.compile(lambda x: function(x, axis=axis, ddof=ddof))(x)
    np.testing.assert_allclose(made, function(x, axis=axis, ddof=ddof), rtol=1e-12)


LONG = tuned.place_block * tuned.place_blocks


@pytest.mark.parametrize("kind", ["f4", "i4", "?"])
def test_the_place_in_a_long_row_is_the_first(kind: str) -> None:
    """One sweep in blocks: ties, NaN, and a last block that is not full."""
    top, low = gc.compile(np.argmax), gc.compile(lambda x: np.argmin(x, -1, keepdims=True))
    for length in (LONG, LONG + 1, LONG + tuned.place_block - 1):
        x = np.ones(length, kind)
        rows = [x]
        for places in ((length - 1,), (LONG - 1, 0), (5000, 4999, length - 2)):
            for value in (2, 0, np.nan) if kind == "f4" else (2, 0):
                row = x.copy()
                row[list(places)] = value
                rows.append(row)
        for row in rows:
            assert top(row) == np.argmax(row)
        stack = np.stack(rows)
        np.testing.assert_array_equal(low(stack), np.argmin(stack, -1, keepdims=True))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
@pytest.mark.parametrize("count", [1, 5, 25, 1000])
def test_extremes_of_what_a_mask_leaves(count: int, dtype: str) -> None:
    """`min(where(mask, x, inf))` has the form of a search for the first place, but for its type."""
    x = (np.random.default_rng(count).standard_normal(count) * 100).astype(dtype)
    far = np.asarray(1 << 20 if dtype == "i4" else np.inf, dtype)
    for reduce, end in ((np.min, far), (np.max, -far)):
        made = gc.compile(lambda m, v, reduce=reduce, end=end: reduce(np.where(m, v, end)))(
            x > 0, x
        )
        assert made == reduce(np.where(x > 0, x, end))
    places = np.arange(count)
    first = gc.compile(lambda m, v: np.min(np.where(m, v, count)))(x > 0, places)
    assert first == np.min(np.where(x > 0, places, count))


@pytest.mark.parametrize(
    ("dtype", "count"),
    crossed(
        ["f4", "f8", "i1", "u8", "?", "c8"],
        [300, 0, tuned.compared_values + 1, tuned.compared_values, 1],
    ),
)
def test_isin_of_many_values(dtype: str, count: int) -> None:
    """Compared with each, or looked up in a sorted vector; a NaN is among none."""
    rng = np.random.default_rng(count)
    x, values = (rng.normal(size=n).reshape(-1, 7) * 20 for n in (70, 7 * count))
    x, values = x.astype(dtype), values.reshape(-1)[:count].astype(dtype)
    if dtype[0] == "f":
        x[0, :2] = np.nan, np.inf
        values[1:2] = np.nan
    for sizes in ("exact", {"values": ("n",)}):

        def call(x, values):
            return np.isin(x, values), np.isin(x, values, invert=True)

        for made, want in zip(gc.compile(call, sizes=sizes)(x, values), call(x, values)):
            np.testing.assert_array_equal(made, want)
    if count:
        made = gc.compile(gc.vmap(np.isin))(x, np.stack([values] * len(x)))
        np.testing.assert_array_equal(made, np.isin(x, values))
